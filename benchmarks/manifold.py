"""Binaural manifolds; run as `python benchmarks/manifold.py PART …`.

Parts: speed (time and peak memory of LTSA), figure3 (which cues have an embedding that is
homeomorphic to the directions), unlabelled (localization with no or few labelled directions).
Default: all three. Heads are read from EARATLAS_DATA.

`figure3` uses the heads as measured, and the KU100 on the paper's grid of 10,800 directions: its
2702 responses are interpolated by spherical harmonics, anechoic and, as the paper's head, rotated
on a pan-tilt unit in a room in front of a fixed source (early reflections, 50 ms).
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
from protocol import load_head, split
from scipy.stats import spearmanr

import earatlas as ea
from earatlas.experiments.figure3 import CUES
from earatlas.experiments.simulated_camil import ROOM, rotated_head_spectra
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
manifold = ltsa(y, neighbours=20)
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(f"{len(manifold.kept)} of {len(y)} kept, {seconds:.1f} s, peak memory {peak:.0f} MB")
"""


def speed() -> None:
    """Print time and memory of LTSA on the full ILD (D = 512), in a separate process.

    Memory includes the interpreter and libraries. Target at N = 10,800: at most 60 s and 2 GB.
    """
    print("\n### LTSA, 20 symmetric neighbours, D = 512\n")
    sphere = ea.Sphere()
    layout = ea.CueLayout(ipd_band_hz=None)
    for x in (sphere.grid(np.sqrt(sphere.area / 2702)), camil_directions()):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "cues.npy")
            np.save(path, ea.simulated_head(x).cues(layout))
            process = subprocess.run(
                [sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, check=True
            )
        print(f"- N = {len(x)}: {process.stdout.strip()}", flush=True)


def paper_grid_cues(head: ea.Head, room: ea.Room | None) -> tuple[Array, dict[str, Array]]:
    """Return directions (10800, 2) and cues by band of a head that rotates in front of a source."""
    x, spectra = rotated_head_spectra(head, room=room)
    left, right = np.moveaxis(spectra, 1, 0)
    return x, {name: cue.stack(left, right) for name, cue in CUES.items()}


def row(name: str, space: ea.Space, x: Array, kept: Indices, t: Array) -> None:
    """Print one row of the table."""
    s = faithfulness(space, x[kept], t)
    verdict = s.homeomorphic and len(kept) > 0.9 * len(x)
    print(
        f"| {name} | {len(x) - len(kept)} | {s.trustworthiness:.3f} | {s.continuity:.3f} | "
        f"{s.agreement:.2f} | {s.jump_degrees:.1f} | {100 * s.beyond_30_share:.1f} | "
        f"{'yes' if verdict else 'no'} |",
        flush=True,
    )


def embeddings(
    name: str, space: ea.Space, x: Array, cues: dict[str, Array], *, neighbours: Sequence[int]
) -> None:
    """Print all embeddings of a head: the paper's, ours with several neighbourhoods, and PCA."""
    dense = len(x) > 5000
    whitened = 30 if dense else 20
    for cue, y in cues.items():

        def line(method: str, manifold: Manifold, cue: str = cue) -> None:
            row(f"{name}, {cue}: {method}", space, x, manifold.kept, manifold.coordinates)

        line("LTSA, first three, k = 20", ltsa(y, neighbours=20))
        for k in neighbours:
            line(f"LTSA, chosen three, k = {k}", ltsa(y, neighbours=k, candidates=12))
        for k in neighbours:
            manifold = ltsa(y, neighbours=k, candidates=12, whiten=whitened)
            line(f"LTSA, {whitened} whitened, k = {k}", manifold)
        row(f"{name}, {cue}: PCA", space, x, np.arange(len(x)), pca(y))


def figure3() -> None:
    """Print how faithful the embeddings of the cues are to the directions."""
    print("\n### Figure 3: is the embedding homeomorphic to the directions?\n")
    print("| | left out | trustworthiness | continuity | agreement | jump ° | beyond 30° % | |")
    print("|---|---|---|---|---|---|---|---|")
    for name in HEADS:
        head = load_head(name)
        cues = {cue: head.cues(layout) for cue, layout in CUES.items()}
        embeddings(name, ea.Sphere(), head.directions, cues, neighbours=(10,))
    x, cues = paper_grid_cues(load_head("ku100"), None)
    embeddings("ku100, 10,800", ea.Cylinder(), x, cues, neighbours=(10, 12, 15))
    x, cues = paper_grid_cues(load_head("ku100"), ROOM)
    embeddings("ku100, 10,800, room", ea.Cylinder(), x, cues, neighbours=(15,))
    head = ea.simulated_head(camil_directions())
    cues = {cue: head.cues(layout) for cue, layout in CUES.items()}
    embeddings("simulated, 10,800", ea.Cylinder(), head.directions, cues, neighbours=(10,))


def unlabelled() -> None:
    """Print errors of PPAM on manifold coordinates, learned from 80 % of the cue vectors."""
    print("\n### Localization without labels: ILD and IPD below 2 kHz, held-out vectors\n")
    labels = (12, 25, 50, 100, 200)
    print("| | nearest known: median °, beyond 30° % | rank correlation of distances | "
          + " | ".join(f"{n} labels: median °" for n in labels) + " |")  # fmt: skip
    print("|---" * (3 + len(labels)) + "|")
    heads = [load_head(name) for name in HEADS] + [ea.simulated_head(ea.Sphere().grid(4.0))]
    for head in heads:
        training, held_out = split(head, 0)
        y, new = training.cues(LOW), held_out.cues(LOW)
        start = time.perf_counter()
        intrinsic = learn_unlabelled(y)
        seconds = time.perf_counter() - start
        kept = intrinsic.manifold.kept
        t, kept_t = intrinsic.locate(new), intrinsic.locate(y[kept])
        nearest_kept = np.array([((kept_t - row) ** 2).sum(axis=1).argmin() for row in t])
        jumps = ea.great_circle_error(held_out.directions, training.directions[kept[nearest_kept]])
        i, j = np.random.default_rng(0).integers(0, len(t), (2, 20_000))
        ranks = spearmanr(
            np.linalg.norm(t[i] - t[j], axis=1),
            ea.great_circle_error(held_out.directions[i], held_out.directions[j]),
        ).statistic
        calibrated, looked_up = [], []
        for count in labels:
            labelled = slice(0, count)  # the training directions are in random order
            estimated = intrinsic.calibrated(y[labelled], training.directions[labelled]).localize(
                new
            )
            calibrated.append(np.median(ea.great_circle_error(held_out.directions, estimated)))
            nearest = [((y[labelled] - row) ** 2).sum(axis=1).argmin() for row in new]
            errors = ea.great_circle_error(held_out.directions, training.directions[nearest])
            looked_up.append(np.median(errors))
        print(
            f"| {head.name}, {len(kept)} of {len(y)} kept, {seconds:.0f} s | "
            f"{np.median(jumps):.1f}, {100 * np.mean(jumps > 30):.1f} | {ranks:.2f} | "
            + " | ".join(f"{error:.1f}" for error in calibrated) + " |"
        )  # fmt: skip
        print("| the labels alone, looked up | | | "
              + " | ".join(f"{error:.1f}" for error in looked_up) + " |", flush=True)  # fmt: skip


if __name__ == "__main__":
    parts = {"speed": speed, "figure3": figure3, "unlabelled": unlabelled}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*parts, []], help="default: all parts")
    warnings.simplefilter("ignore", ea.EaratlasWarning)  # the tables report what is left out
    for part in parser.parse_args().parts or parts:
        parts[part]()
