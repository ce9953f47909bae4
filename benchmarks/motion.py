"""Sources that move, separated offline; run as `python benchmarks/motion.py [HEAD]`.

Scenes of 10 s: one who walks 200 degrees around the head at 20 degrees a second; the same beside
one who stands (whose direction is passed in most scenes); two who walk towards each other and
cross; and two who stand, as a control. Longer ones (`--seconds 30`) have walkers who go to and fro
on the same way. In the open, and with T60 0.3 s (`--t60`). Printed: how often the
number of sources is right, the median error of direction along the way, how many of the true
directions lie within the 90 % radius, and SDR.

Developed on cipic_021 and kemar_full with seeds 0 to 19, judged on ku100 with others. Readers and
ways are drawn from the seed. `--atlas` takes a learned head instead of learning it.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations, product
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from protocol import head_of, utterances

import earatlas as ea
from earatlas.evaluation.quality import separation_quality
from earatlas.features.audio_files import audio_seconds
from earatlas.geometry.angles import great_circle_error
from earatlas.separation.source_track import SourceTrack
from earatlas.simulation.image_source import room_responses
from earatlas.simulation.trajectories import moved
from earatlas.types import Array

RATE = 16_000
ARC_SECONDS = 10.0  # of one walk
KINDS = ("walker", "walker and stander", "two cross", "two stand")
STEP_DEGREES = 1.0  # between the responses of a room along a way


def places_of(kind: str, rng: np.random.Generator, seconds: float) -> list[ea.Trajectory]:
    """Ways of all sources; one who stands has a way of one place."""
    side, elevation = rng.choice([-1.0, 1.0]), rng.choice([-10.0, 0.0, 10.0, 20.0])
    start = rng.uniform(60, 100)
    stops = start - np.array([0.0, 100.0, 199.5])
    times = np.arange(np.ceil(2 * seconds / ARC_SECONDS) + 1) * ARC_SECONDS / 2  # to the end
    there = [stops[i] for i in _to_and_fro(len(times))]
    walk, back = (
        ea.Trajectory(tuple(times), [(sign * side * a, elevation) for a in there])
        for sign in (1.0, -1.0)
    )
    where = (rng.choice([-1.0, 1.0]) * rng.uniform(20, 60), rng.choice([-10.0, 0.0, 20.0]))
    stand, other = (
        ea.Trajectory((0, seconds), [place, place]) for place in (where, (-where[0], elevation))
    )
    return {
        "walker": [walk],
        "walker and stander": [walk, stand],
        "two cross": [walk, back],
        "two stand": [stand, other],
    }[kind]


def _to_and_fro(count: int) -> list[int]:
    """0, 1, 2, 1, 0, 1, …: which of three stops comes when."""
    return [(0, 1, 2, 1)[i % 4] for i in range(count)]


@dataclass(frozen=True, eq=False)
class RoomAlong:
    """Responses (…, 2, taps) of a room along a way, for `moved`: the nearest that was made."""

    directions: Array
    samples: Array

    @property
    def taps(self) -> int:
        """Samples of a response."""
        return int(self.samples.shape[-1])

    def at(self, directions: Array) -> Array:
        """The nearest of each."""
        return self.samples[ea.Sphere().nearest(self.directions, directions)]


def rendered(head: ea.Head, sounds: list[Array], ways: list[ea.Trajectory], t60: float) -> Array:
    """Images (M, 2, n) in the open (0) or in a room."""
    if not t60:
        scene = ea.render_scene(head, sounds, ways)
        return scene.images
    n, images, ears = len(sounds[0]), [], head.responses()
    for sound, way in zip(sounds, ways, strict=True):
        steps = max(int(great_circle_error(*way.directions[[0, 1]]) / STEP_DEGREES), 1)
        along = way.at(np.linspace(0, ARC_SECONDS, 2 * steps))
        wet = room_responses(
            ea.Room(t60_seconds=t60), along, head.directions, ears.samples, ears.rate
        )
        wet = ea.Head("wet", along, type(ears)(wet, ears.rate)).responses().at_rate(RATE)
        places: Any = RoomAlong(along, wet)
        image = moved(sound, places, way, start=0, rate=RATE)[:, :n]
        images.append(image / np.sqrt((image**2).mean()))
    return np.stack(images)


def scenes(
    head: ea.Head, kind: str, seeds: range, t60: float, seconds: float
) -> Iterator[tuple[Array, list[ea.Trajectory]]]:
    """Images and ways."""
    files = [path for path in utterances() if audio_seconds(path) >= ARC_SECONDS + 0.2]
    for seed in seeds:
        rng = np.random.default_rng((31, seed))
        ways = places_of(kind, rng, seconds)
        chosen = rng.choice(len(files), len(ways), replace=False)
        sounds = [speech(files, int(i), seconds) for i in chosen]
        yield rendered(head, sounds, ways, t60), ways


def speech(files: list[Path], first: int, seconds: float) -> Array:
    """A reader, and others after it where it is not enough, each for ten seconds."""
    count = int(np.ceil(seconds / ARC_SECONDS))
    own = [files[(first + 7 * k) % len(files)] for k in range(count)]
    parts = [ea.read_mono(path, rate=RATE)[: int(ARC_SECONDS * RATE)] for path in own]
    return np.concatenate(parts)[: int(seconds * RATE)]


def judged(
    atlas: ea.Atlas, images: Array, ways: list[ea.Trajectory]
) -> tuple[int, Array, float, float]:
    """Sources found; errors (M,), share within the 90 % radius and SDR where they are as many."""
    peak = np.abs(images.sum(axis=0)).max()
    images = 0.5 * images / peak
    noise = 1e-3 * images.std() * np.random.default_rng(0).normal(size=images.shape[1:])
    found = atlas.separate(ea.Audio(images.sum(axis=0) + noise, RATE))
    M = len(ways)
    if len(found.sources) != M:
        return len(found.sources), np.full(M, np.nan), np.nan, np.nan
    sounds = np.stack([source.audio.samples for source in found.sources])
    tracks = [source.track for source in found.sources]
    errors = np.array([[_off(way, track) for track in tracks] for way in ways])
    order = min(permutations(range(M)), key=lambda p: sum(errors[i, p[i]] for i in range(M)))
    within = [
        np.mean(_gaps(ways[i], tracks[j])[tracks[j].heard] <= tracks[j].radius_90[tracks[j].heard])
        for i, j in enumerate(order)
    ]
    own = np.array([errors[i, j] for i, j in enumerate(order)])
    sdr = separation_quality(images, sounds[list(order)]).sdr_db if M > 1 else np.nan
    return M, own, float(np.mean(within)), float(np.mean(sdr))


def _gaps(way: ea.Trajectory, track: SourceTrack) -> Array:
    return great_circle_error(way.at(track.seconds), track.directions)


def _off(way: ea.Trajectory, track: SourceTrack) -> float:
    return float(np.nanmedian(_gaps(way, track)))


def table(
    atlas: ea.Atlas, head: ea.Head, seeds: range, jobs: int, asked: argparse.Namespace
) -> None:
    """A row a kind of scene."""
    print(
        f"\n| {head.name}, {len(seeds)} scenes each | number right | median error, ° "
        "| worst scene, ° | within 90 % radius | SDR, dB | worst tenth |\n"
        "|---|---|---|---|---|---|---|"
    )
    work: Callable[..., object] = joblib.delayed(judged)
    for seconds, t60 in product(asked.seconds, asked.t60):
        for kind in asked.kinds:
            rows = joblib.Parallel(n_jobs=jobs)(
                work(atlas, images, ways)
                for images, ways in scenes(head, kind, seeds, t60, seconds)
            )
            right = np.mean([row[0] == len(row[1]) for row in rows])
            errors = np.array(
                [np.nanmax(row[1]) if row[0] == len(row[1]) else np.nan for row in rows]
            )
            every = np.concatenate([row[1] for row in rows])
            within, sdr = (np.array([row[i] for row in rows]) for i in (2, 3))
            quality = (
                f"{np.nanmean(sdr):.1f} | {np.nanquantile(sdr, 0.1):.1f}"
                if np.isfinite(sdr).any() else "– | –"
            )  # fmt: skip
            where = f"{seconds:g} s, " + (f"T60 {t60:g} s" if t60 else "open")
            print(
                f"| {kind}, {where} | {100 * right:.0f} % | {np.nanmedian(every):.1f} | "
                f"{np.nanmax(errors):.1f} | {100 * np.nanmean(within):.0f} % | {quality} |",
                flush=True,
            )


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("head", nargs="?", default="ku100")
    parser.add_argument("--atlas", type=Path, default=None)
    parser.add_argument("--count", type=int, default=10, help="scenes a row")
    parser.add_argument("--first", type=int, default=100, help="seed of the first scene")
    parser.add_argument("--seconds", type=float, nargs="+", default=[10.0], help="of a scene")
    parser.add_argument("--t60", type=float, nargs="+", default=[0.0, 0.3], help="0 is the open")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    head = head_of(asked.head)
    atlas = ea.learn(head) if asked.atlas is None else ea.Atlas.load(asked.atlas)
    table(atlas, head, range(asked.first, asked.first + asked.count), asked.jobs, asked)


if __name__ == "__main__":
    main()
