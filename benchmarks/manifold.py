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
from scipy.special import sph_harm_y
from scipy.stats import spearmanr

import earatlas as ea
from earatlas.heads.simulated import SPEED_OF_SOUND, camil_directions
from earatlas.hearing.cues import transfer_functions
from earatlas.manifold.faithfulness import faithfulness
from earatlas.manifold.ltsa import Manifold, ltsa, pca
from earatlas.manifold.unlabelled import learn_unlabelled
from earatlas.scenes.rooms import _images
from earatlas.space.angles import to_directions
from earatlas.types import Array, Complex, Indices

HEADS = ("ku100", "cipic_021", "cipic_003")
CUES = {
    "low ILD": ea.CueLayout.low_ild(),
    "low IPD": ea.CueLayout.low_ipd(),
    "high ILD": ea.CueLayout.high_ild(),
    "high IPD": ea.CueLayout.high_ipd(),
}
LOW = ea.CueLayout(ild_band_hz=(0.0, 2000.0))
ORDER = 30  # of the harmonics: 40 dB below the responses at 1 kHz, 26 dB at 8 kHz is left over
EARLY_SECONDS = 0.05  # reflections that a window of 64 ms holds
CHILD = """
import resource, sys, time
import numpy as np
from earatlas.manifold import ltsa
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


def harmonics(directions: Array) -> tuple[Complex, Indices]:
    """Spherical harmonics (N, S) at directions, and the order m of each."""
    degree = np.concatenate([np.full(2 * n + 1, n) for n in range(ORDER + 1)])
    m = np.concatenate([np.arange(-n, n + 1) for n in range(ORDER + 1)])
    azimuth, elevation = np.radians(directions).T
    return sph_harm_y(degree, m, np.pi / 2 - elevation[:, None], azimuth[:, None]), m


def on_the_papers_grid(head: ea.Head, room: ea.Room | None) -> tuple[Array, dict[str, Array]]:
    """Directions (10800, 2) and the cues of each band of a head that turns before a source.

    The head turns, not the source: every reflection keeps its delay and turns with the direct
    sound. A turn in azimuth only multiplies the harmonics of order m by exp(j m azimuth).
    """
    x, layout = camil_directions(), ea.CueLayout()
    ears, distance = head.responses(), 2.7
    H = transfer_functions(ears.samples, ears.rate, layout.frequencies_hz)
    Y, m = harmonics(head.directions)
    c = np.linalg.lstsq(Y, H.reshape(len(head), -1), rcond=None)[0].reshape(len(m), 2, -1)
    ahead = np.array([[distance, 0.0, 0.0]])
    offsets, shares = (ahead, np.ones(1)) if room is None else _images(room, ahead[0])
    metres = np.linalg.norm(offsets, axis=1)
    delays = (metres - distance) / SPEED_OF_SOUND
    early = delays < EARLY_SECONDS
    gains = (shares * distance / metres)[early, None]
    heard = gains * np.exp(-2j * np.pi * delays[early, None] * layout.frequencies_hz)  # (I, F)
    sorted_m = np.argsort(m, kind="stable")
    starts = np.searchsorted(m[sorted_m], np.arange(-ORDER, ORDER + 1))
    azimuths, elevations = np.unique(x[:, 0]), np.unique(x[:, 1])
    turns = np.exp(1j * np.radians(np.outer(azimuths, np.arange(-ORDER, ORDER + 1))))
    spectra = np.empty(
        (len(azimuths), len(elevations), 2, layout.n_frequencies), dtype=np.complex128
    )
    for place, tilt in enumerate(np.radians(elevations)):
        lift = np.array(
            [[np.cos(tilt), 0, -np.sin(tilt)], [0, 1, 0], [np.sin(tilt), 0, np.cos(tilt)]]
        )
        arriving = harmonics(to_directions(offsets[early] @ lift.T))[0].T @ heard  # (S, F)
        by_order = np.add.reduceat((arriving[:, None] * c)[sorted_m], starts, axis=0)
        ears_hear = turns @ by_order.reshape(len(starts), -1)
        spectra[:, place] = ears_hear.reshape(len(azimuths), 2, -1)
    left, right = np.moveaxis(spectra.reshape(len(x), 2, -1), 1, 0)
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
    room = ea.Room((7.0, 6.0, 3.0), t60_seconds=0.5, listener_metres=(3.1, 2.3, 1.4))
    x, cues = on_the_papers_grid(head_of("ku100"), room)
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
