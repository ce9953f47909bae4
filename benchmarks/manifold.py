"""Binaural manifolds in figures; run as `python benchmarks/manifold.py PART …`.

Parts: speed (LTSA, time and peak memory), figure3 (which cues unroll into an image of the
directions), unlabelled (localization with no or few positions told). Without a part: all three.
The heads come from EARATLAS_DATA.

`figure3` has the heads as measured, and the KU100 on the paper's grid of 10,800 directions: its
2702 responses are interpolated by spherical harmonics, in the open and, as the paper's head was,
turned on a pan-tilt unit in a room before a fixed source (early reflections, 50 ms).
"""

import argparse
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from protocol import head_of, split
from scipy.stats import spearmanr

import earatlas as ea
from earatlas.experiments.figure3 import CUES
from earatlas.experiments.simulated_camil import ROOM, turned_spectra
from earatlas.hrtf.simulated import camil_directions
from earatlas.manifold.faithfulness import faithfulness
from earatlas.manifold.ltsa import Manifold, ltsa, pca
from earatlas.manifold.unlabelled import learn_unlabelled
from earatlas.types import Array, Indices

HEADS = ("ku100", "cipic_021", "cipic_003")
LOW = ea.CueLayout(ild_band_hz=(0.0, 2000.0))
CHILD = """
import resource, sys, time
import numpy as np
from earatlas.manifold.ltsa import ltsa
y = np.load(sys.argv[1])
start = time.perf_counter()
found = ltsa(y, neighbours=20)
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(f"{len(found.kept)} of {len(y)} kept, {seconds:.1f} s, peak memory {peak:.0f} MB")
"""


def speed() -> None:
    """LTSA of the full ILD (D = 512) in a process of its own, interpreter and libraries included.

    At most 60 s and 2 GB are wanted at N = 10,800.
    """
    print("\n### LTSA, 20 symmetric neighbours, D = 512\n")
    sphere = ea.Sphere()
    layout = ea.CueLayout(ipd_band_hz=None)
    for x in (sphere.grid(np.sqrt(sphere.area / 2702)), camil_directions()):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "cues.npy")
            np.save(path, ea.simulated_head(x).cues(layout))
            answer = subprocess.run(
                [sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, check=True
            )
        print(f"- N = {len(x)}: {answer.stdout.strip()}", flush=True)


def on_the_papers_grid(head: ea.Head, room: ea.Room | None) -> tuple[Array, dict[str, Array]]:
    """Directions (10800, 2) and the cues of each band of a head that turns before a source."""
    x, spectra = turned_spectra(head, room=room)
    left, right = np.moveaxis(spectra, 1, 0)
    return x, {name: cue.stack(left, right) for name, cue in CUES.items()}


def row(name: str, space: ea.Space, x: Array, places: Indices, t: Array) -> None:
    """One line of the table."""
    s = faithfulness(space, x[places], t)
    verdict = s.homeomorphic and len(places) > 0.9 * len(x)
    print(
        f"| {name} | {len(x) - len(places)} | {s.trustworthiness:.3f} | {s.continuity:.3f} | "
        f"{s.agreement:.2f} | {s.jump_degrees:.1f} | {100 * s.beyond_30_share:.1f} | "
        f"{'yes' if verdict else 'no'} |",
        flush=True,
    )


def embeddings(
    name: str, space: ea.Space, x: Array, cues: dict[str, Array], *, tries: Sequence[int]
) -> None:
    """All embeddings of a head: the paper's, ours for some numbers of neighbours, and PCA."""
    dense = len(x) > 5000
    white = 30 if dense else 20
    for cue, y in cues.items():

        def line(method: str, found: Manifold, cue: str = cue) -> None:
            row(f"{name}, {cue}: {method}", space, x, found.kept, found.coordinates)

        line("LTSA, first three, k = 20", ltsa(y, neighbours=20))
        for k in tries:
            line(f"LTSA, chosen three, k = {k}", ltsa(y, neighbours=k, candidates=12))
        for k in tries:
            found = ltsa(y, neighbours=k, candidates=12, whiten=white)
            line(f"LTSA, {white} whitened, k = {k}", found)
        row(f"{name}, {cue}: PCA", space, x, np.arange(len(x)), pca(y))


def figure3() -> None:
    """Which cues are homeomorphic to the directions, by the numbers."""
    print("\n### Figure 3: is the embedding homeomorphic to the directions?\n")
    print("| | left out | trustworthiness | continuity | agreement | jump ° | beyond 30° % | |")
    print("|---|---|---|---|---|---|---|---|")
    for name in HEADS:
        head = head_of(name)
        cues = {cue: head.cues(layout) for cue, layout in CUES.items()}
        embeddings(name, ea.Sphere(), head.directions, cues, tries=(10,))
    x, cues = on_the_papers_grid(head_of("ku100"), None)
    embeddings("ku100, 10,800", ea.Cylinder(), x, cues, tries=(10, 12, 15))
    x, cues = on_the_papers_grid(head_of("ku100"), ROOM)
    embeddings("ku100, 10,800, room", ea.Cylinder(), x, cues, tries=(15,))
    head = ea.simulated_head(camil_directions())
    cues = {cue: head.cues(layout) for cue, layout in CUES.items()}
    embeddings("simulated, 10,800", ea.Cylinder(), head.directions, cues, tries=(10,))


def unlabelled() -> None:
    """PPAM on the manifold's own coordinates, 80 % of the vectors; the rest is asked for."""
    print("\n### Localization without positions: ILD and IPD below 2 kHz, held-out vectors\n")
    labels = (12, 25, 50, 100, 200)
    print("| | nearest known: median °, beyond 30° % | rank correlation of distances | "
          + " | ".join(f"{n} labels: median °" for n in labels) + " |")  # fmt: skip
    print("|---" * (3 + len(labels)) + "|")
    heads = [head_of(name) for name in HEADS] + [ea.simulated_head(ea.Sphere().grid(4.0))]
    for head in heads:
        known, asked = split(head, 0)
        y, new = known.cues(LOW), asked.cues(LOW)
        start = time.perf_counter()
        intrinsic = learn_unlabelled(y)
        seconds = time.perf_counter() - start
        kept = intrinsic.manifold.kept
        t, places = intrinsic.locate(new), intrinsic.locate(y[kept])
        near = np.array([((places - row) ** 2).sum(axis=1).argmin() for row in t])
        jumps = ea.great_circle_error(asked.directions, known.directions[kept[near]])
        i, j = np.random.default_rng(0).integers(0, len(t), (2, 20_000))
        ranks = spearmanr(
            np.linalg.norm(t[i] - t[j], axis=1),
            ea.great_circle_error(asked.directions[i], asked.directions[j]),
        ).statistic
        told, looked = [], []
        for count in labels:
            some = slice(0, count)  # the split is in random order
            found = intrinsic.calibrated(y[some], known.directions[some]).localize(new)
            told.append(np.median(ea.great_circle_error(asked.directions, found)))
            nearest = [((y[some] - row) ** 2).sum(axis=1).argmin() for row in new]
            errors = ea.great_circle_error(asked.directions, known.directions[nearest])
            looked.append(np.median(errors))
        print(
            f"| {head.name}, {len(kept)} of {len(y)} kept, {seconds:.0f} s | "
            f"{np.median(jumps):.1f}, {100 * np.mean(jumps > 30):.1f} | {ranks:.2f} | "
            + " | ".join(f"{error:.1f}" for error in told) + " |"
        )  # fmt: skip
        print("| the labels alone, looked up | | | "
              + " | ".join(f"{error:.1f}" for error in looked) + " |", flush=True)  # fmt: skip


if __name__ == "__main__":
    parts = {"speed": speed, "figure3": figure3, "unlabelled": unlabelled}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*parts, []], help="default: all")
    warnings.simplefilter("ignore", ea.EaratlasWarning)  # the tables say what is left out
    for part in parser.parse_args().parts or parts:
        parts[part]()
