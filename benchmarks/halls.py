"""Two talkers in halls with T60 of 1 and 2 s: `separate` beside joint dereverberation and demixing.

    python benchmarks/halls.py [--count 6] [--t60 1 2] [--head ku100] [--seed 61] [--atlases FOLDER]
    python benchmarks/halls.py --check

Talkers of 8 s at 2.5 m in a simulated hall of 16 m by 12 m by 7 m, at learned directions up to 30
degrees above or below the head; the number is given. `T-ISS-NMF` is the blind method of
`separation_parts/joint_dereverberation.py`, with the settings of its publication; `--check` prints
by how much its cost changes per iteration on a small random case. Printed are means over talkers
and scenes: SDR and SIR with respect to the reverberant images, and SDR to the early images (first
50 ms). Nothing was chosen on ku100; cipic_021 is for choosing.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from protocol import load_head, speech_excerpt, utterances
from separation_parts.joint_dereverberation import JointSettings, joint_demixing, separate
from separation_parts.metrics import signal_metrics
from streaming_parts.other_heads import load_atlas

import earatlas as ea
from earatlas.features.audio_files import audio_seconds
from earatlas.types import Array

SIZE_METRES, DISTANCE_METRES, SECONDS, RATE = (16.0, 12.0, 7.0), 2.5, 8.0, 16_000
LISTENER_METRES = (6.0, 4.5, 1.7)  # from the corner
MIN_SEPARATION_DEGREES, MAX_ELEVATION_DEGREES = 20.0, 30.0
FIGURES = {"SDR": 0, "SIR": 1, "early SDR": 5}  # columns of `signal_metrics`


def scenes(head: ea.Head, t60: float, count: int, seed: int) -> Iterator[ea.SimulatedScene]:
    """Yield scenes of two talkers in the hall."""
    rng = np.random.default_rng((seed, round(100 * t60)))
    files = [path for path in utterances() if audio_seconds(path) >= SECONDS]
    room = ea.Room(SIZE_METRES, t60, LISTENER_METRES)
    # Steeper directions reach the floor within the distance of the talkers.
    within = head.directions[np.abs(head.directions[:, 1]) <= MAX_ELEVATION_DEGREES]
    for number in range(count):
        gap = 0.0
        while gap < MIN_SEPARATION_DEGREES:
            directions = within[rng.choice(len(within), 2, replace=False)]
            gap = float(ea.great_circle_error(*directions))
        speakers = rng.choice(len(files), 2, replace=False)
        sounds = [speech_excerpt(files[i], SECONDS, rng) for i in speakers]
        settings = ea.SceneSettings(snr_db=40.0, seed=number, distance_metres=DISTANCE_METRES)
        with warnings.catch_warnings():  # directions that nobody measured, below the head
            warnings.simplefilter("ignore", ea.EaratlasWarning)
            yield ea.render_scene(head, sounds, directions, settings=settings, room=room)


def methods(atlas: ea.Atlas) -> dict[str, Callable[[ea.SimulatedScene], Array]]:
    """Return the methods, which return images (2, 2, n) of a scene."""

    def ours(scene: ea.SimulatedScene, *, dry: bool) -> Array:
        result = atlas.separate(scene.mixture, n_sources=2, dry=dry)
        return np.stack([source.audio.samples for source in result.sources])

    return {
        "`separate`": lambda scene: ours(scene, dry=False),
        "`separate --dry`": lambda scene: ours(scene, dry=True),
        "T-ISS-NMF": lambda scene: separate(scene.mixture.samples, JointSettings()),
    }


def check() -> None:
    """Print the smallest and the largest change of the cost of T-ISS-NMF per iteration."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2, 2, 7, 60))
    X = (noise[0] + 1j * noise[1]) * rng.gamma(0.3, size=(1, 7, 60))
    changes = np.diff(joint_demixing(X, JointSettings(taps=2))[2])
    print(f"changes of the cost per iteration: from {changes.min():.2f} to {changes.max():.2e}")


def main() -> None:
    """Print one row per reverberation time and method."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=6, help="scenes per row")
    parser.add_argument("--t60", type=float, nargs="+", default=[1.0, 2.0], help="seconds")
    parser.add_argument("--head", default="ku100", help="learned head, which records the scenes")
    parser.add_argument("--seed", type=int, default=61, help="seed of the scenes")
    parser.add_argument("--atlases", type=Path, help="folder in which learned atlases are kept")
    parser.add_argument("--check", action="store_true", help="check the cost of T-ISS-NMF only")
    options = parser.parse_args()
    if options.check:
        return check()
    warnings.simplefilter("ignore", ea.EaratlasWarning)
    atlas, head = load_atlas(options.head, options.atlases), load_head(options.head)
    columns = " | ".join(f"{name} dB" for name in FIGURES)
    print(f"| 2 talkers, {options.head} | scenes | {columns} | CPU s per s |\n{'|---' * 6}|")
    for t60 in options.t60:
        figures: dict[str, list[list[float]]] = {}
        for scene in scenes(head, t60, options.count, options.seed):
            for name, method in methods(atlas).items():
                start = time.process_time()
                sounds = method(scene)
                spent = (time.process_time() - start) / SECONDS
                found = signal_metrics(scene, sounds)
                row = [*(found[column] for column in FIGURES.values()), spent]
                figures.setdefault(name, []).append(row)
        for name, rows in figures.items():
            *levels, spent = np.mean(rows, axis=0)
            cells = " | ".join(f"{level:.1f}" for level in levels)
            print(f"| T60 {t60:g} s, {name} | {len(rows)} | {cells} | {spent:.2f} |", flush=True)


if __name__ == "__main__":
    main()
