"""Offline separation of moving sources; run as `python benchmarks/motion.py [HEAD]`.

Scenes of 10 s: one source that moves 200 degrees around the head at 20 degrees per second; the same
with a static source (the moving source passes its direction in most scenes); two sources that move
towards each other and cross; and two static sources, as a control. In longer scenes
(`--seconds 30`) sources move back and forth. Anechoic, and with T60 0.3 s (`--t60`). Printed: how
often the number of sources is correct, the median direction error along the trajectory, the
percentage of true directions within the 90 % radius, and SDR.

Developed on cipic_021 and kemar_full with seeds 0 to 19, evaluated on ku100 with other seeds.
Speakers and trajectories are drawn from the seed.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations, product
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from protocol import load_head, utterances

import earatlas as ea
from earatlas.evaluation.quality import separation_quality
from earatlas.features.audio_files import audio_seconds
from earatlas.geometry.angles import great_circle_error
from earatlas.separation.result import SourceTrack
from earatlas.simulation.image_source import room_responses
from earatlas.simulation.trajectories import render_moving_source
from earatlas.types import Array

RATE = 16_000
ARC_SECONDS = 10.0  # s, duration of one arc
KINDS = ("one moving", "one moving, one static", "two crossing", "two static")
STEP_DEGREES = 1.0  # between the room responses along a trajectory


def draw_trajectories(kind: str, rng: np.random.Generator, seconds: float) -> list[ea.Trajectory]:
    """Draw the trajectories of all sources; that of a static source is constant."""
    side, elevation = rng.choice([-1.0, 1.0]), rng.choice([-10.0, 0.0, 10.0, 20.0])
    start = rng.uniform(60, 100)
    stops = start - np.array([0.0, 100.0, 199.5])
    times = (
        np.arange(np.ceil(2 * seconds / ARC_SECONDS) + 1) * ARC_SECONDS / 2
    )  # until the end of the scene
    azimuths = [stops[i] for i in _back_and_forth(len(times))]
    forward, backward = (
        ea.Trajectory(tuple(times), [(sign * side * a, elevation) for a in azimuths])
        for sign in (1.0, -1.0)
    )
    direction = (rng.choice([-1.0, 1.0]) * rng.uniform(20, 60), rng.choice([-10.0, 0.0, 20.0]))
    static, other_static = (
        ea.Trajectory((0, seconds), [x, x]) for x in (direction, (-direction[0], elevation))
    )
    return {
        "one moving": [forward],
        "one moving, one static": [forward, static],
        "two crossing": [forward, backward],
        "two static": [static, other_static],
    }[kind]


def _back_and_forth(count: int) -> list[int]:
    """Return the order 0, 1, 2, 1, 0, 1, … of three stops when moving back and forth."""
    return [(0, 1, 2, 1)[i % 4] for i in range(count)]


@dataclass(frozen=True, eq=False)
class TrajectoryResponses:
    """Room responses (…, 2, taps) along a trajectory, for `render_moving_source`."""

    directions: Array
    samples: Array

    @property
    def taps(self) -> int:
        """Length of a response in samples."""
        return int(self.samples.shape[-1])

    def at(self, directions: Array) -> Array:
        """Return the responses at the nearest rendered directions."""
        return self.samples[ea.Sphere().nearest(self.directions, directions)]


def render_images(
    head: ea.Head, sounds: list[Array], trajectories: list[ea.Trajectory], t60: float
) -> Array:
    """Return images (M, 2, n), anechoic (t60 = 0) or in a room."""
    if not t60:
        scene = ea.render_scene(head, sounds, trajectories)
        return scene.images
    n, images, ears = len(sounds[0]), [], head.responses()
    for sound, trajectory in zip(sounds, trajectories, strict=True):
        steps = max(int(great_circle_error(*trajectory.directions[[0, 1]]) / STEP_DEGREES), 1)
        along = trajectory.at(np.linspace(0, ARC_SECONDS, 2 * steps))
        room = room_responses(
            ea.Room(t60_seconds=t60), along, head.directions, ears.samples, ears.rate
        )
        room = ea.Head("room", along, type(ears)(room, ears.rate)).responses().at_rate(RATE)
        responses: Any = TrajectoryResponses(along, room)
        image = render_moving_source(sound, responses, trajectory, start=0, rate=RATE)[:, :n]
        images.append(image / np.sqrt((image**2).mean()))
    return np.stack(images)


def scenes(
    head: ea.Head, kind: str, seeds: range, t60: float, seconds: float
) -> Iterator[tuple[Array, list[ea.Trajectory]]]:
    """Yield images and trajectories."""
    files = [path for path in utterances() if audio_seconds(path) >= ARC_SECONDS + 0.2]
    for seed in seeds:
        rng = np.random.default_rng((31, seed))
        trajectories = draw_trajectories(kind, rng, seconds)
        chosen = rng.choice(len(files), len(trajectories), replace=False)
        sounds = [speech(files, int(i), seconds) for i in chosen]
        yield render_images(head, sounds, trajectories, t60), trajectories


def speech(files: list[Path], first: int, seconds: float) -> Array:
    """Return the speech of one speaker per ten seconds."""
    count = int(np.ceil(seconds / ARC_SECONDS))
    chosen = [files[(first + 7 * k) % len(files)] for k in range(count)]
    parts = [ea.read_mono(path, rate=RATE)[: int(ARC_SECONDS * RATE)] for path in chosen]
    return np.concatenate(parts)[: int(seconds * RATE)]


def evaluate(
    atlas: ea.Atlas, images: Array, trajectories: list[ea.Trajectory]
) -> tuple[int, Array, float, float]:
    """Return number of sources, errors (M,), fraction within the 90 % radius, and SDR.

    All but the number are NaN if the number is wrong.
    """
    peak = np.abs(images.sum(axis=0)).max()
    images = 0.5 * images / peak
    noise = 1e-3 * images.std() * np.random.default_rng(0).normal(size=images.shape[1:])
    result = atlas.separate(ea.Audio(images.sum(axis=0) + noise, RATE))
    M = len(trajectories)
    if len(result.sources) != M:
        return len(result.sources), np.full(M, np.nan), np.nan, np.nan
    sounds = np.stack([source.audio.samples for source in result.sources])
    tracks = [source.track for source in result.sources]
    errors = np.array(
        [[_median_error(trajectory, track) for track in tracks] for trajectory in trajectories]
    )
    permutation = min(permutations(range(M)), key=lambda p: sum(errors[i, p[i]] for i in range(M)))
    within = [
        np.mean(
            _errors(trajectories[i], tracks[j])[tracks[j].active]
            <= tracks[j].radius_90[tracks[j].active]
        )
        for i, j in enumerate(permutation)
    ]
    matched = np.array([errors[i, j] for i, j in enumerate(permutation)])
    sdr = separation_quality(images, sounds[list(permutation)]).sdr_db if M > 1 else np.nan
    return M, matched, float(np.mean(within)), float(np.mean(sdr))


def _errors(trajectory: ea.Trajectory, track: SourceTrack) -> Array:
    return great_circle_error(trajectory.at(track.seconds), track.directions)


def _median_error(trajectory: ea.Trajectory, track: SourceTrack) -> float:
    return float(np.nanmedian(_errors(trajectory, track)))


def table(
    atlas: ea.Atlas, head: ea.Head, seeds: range, jobs: int, options: argparse.Namespace
) -> None:
    """Print one row per kind of scene."""
    print(
        f"\n| {head.name}, {len(seeds)} scenes each | number correct | median error, ° "
        "| worst scene, ° | within 90 % radius | SDR, dB | worst tenth |\n"
        "|---|---|---|---|---|---|---|"
    )
    delayed: Callable[..., object] = joblib.delayed(evaluate)
    for seconds, t60 in product(options.seconds, options.t60):
        for kind in options.kinds:
            rows = joblib.Parallel(n_jobs=jobs)(
                delayed(atlas, images, trajectories)
                for images, trajectories in scenes(head, kind, seeds, t60, seconds)
            )
            correct = np.mean([row[0] == len(row[1]) for row in rows])
            errors = np.array(
                [np.nanmax(row[1]) if row[0] == len(row[1]) else np.nan for row in rows]
            )
            all_errors = np.concatenate([row[1] for row in rows])
            within, sdr = (np.array([row[i] for row in rows]) for i in (2, 3))
            quality = (
                f"{np.nanmean(sdr):.1f} | {np.nanquantile(sdr, 0.1):.1f}"
                if np.isfinite(sdr).any() else "– | –"
            )  # fmt: skip
            condition = f"{seconds:g} s, " + (f"T60 {t60:g} s" if t60 else "anechoic")
            print(
                f"| {kind}, {condition} | {100 * correct:.0f} % | {np.nanmedian(all_errors):.1f} | "
                f"{np.nanmax(errors):.1f} | {100 * np.nanmean(within):.0f} % | {quality} |",
                flush=True,
            )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("head", nargs="?", default="ku100", help="measured head")
    parser.add_argument(
        "--atlas", type=Path, default=None, help="atlas of the head; default: learn it"
    )
    parser.add_argument("--count", type=int, default=10, help="number of scenes per row")
    parser.add_argument("--first", type=int, default=100, help="seed of the first scene")
    parser.add_argument(
        "--seconds", type=float, nargs="+", default=[10.0], help="lengths of the scenes"
    )
    parser.add_argument(
        "--t60", type=float, nargs="+", default=[0.0, 0.3], help="in s; 0: anechoic"
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    head = load_head(options.head)
    atlas = ea.learn(head) if options.atlas is None else ea.Atlas.load(options.atlas)
    table(atlas, head, range(options.first, options.first + options.count), options.jobs, options)


if __name__ == "__main__":
    main()
