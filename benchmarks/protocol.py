"""What the benchmarks share: the measured data, a timer, splits of a head, and placed talkers."""

import argparse
import csv
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import joblib
import numpy as np

import earatlas as ea
from earatlas.features.audio_files import audio_seconds
from earatlas.hrtf.head import ImpulseResponses
from earatlas.simulation.image_source import room_responses
from earatlas.types import Array

DATA = Path(os.environ.get("EARATLAS_DATA", Path(__file__).parents[2] / "shared" / "data"))


def best_seconds(work: Callable[[], object], rounds: int = 5) -> float:
    """The least of several wall-clock times: the run that was disturbed least."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def head_of(name: str) -> ea.Head:
    """One of the measured heads; a clear end of the program where the data are not there."""
    path = DATA / "heads" / f"{name}.sofa"
    if not path.exists():
        raise SystemExit(f"measured heads: none in {DATA}. Set EARATLAS_DATA to their folder.")
    return ea.read_sofa(path)


def of_long_recordings(about: str | None) -> argparse.ArgumentParser:
    """The options of what is measured on long recordings with ku100."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--minutes", type=int, default=4)
    parser.add_argument("--t60", type=float, default=None, help="of a room; without, in the open")
    parser.add_argument("--atlas", type=Path, help="of ku100, where it was learned before")
    return parser


def within_plane(head: ea.Head) -> ea.Head:
    """The directions of the paper's plane: |azimuth| <= 160, |elevation| <= 60."""
    azimuth, elevation = np.abs(head.directions).T
    return head.subset((azimuth <= 160) & (elevation <= 60))


def split(head: ea.Head, seed: int, share: float = 0.8) -> tuple[ea.Head, ea.Head]:
    """A random 80 % of the directions to learn from, and the rest to ask for."""
    order = np.random.default_rng(seed).permutation(len(head))
    cut = int(share * len(head))
    return head.subset(order[:cut]), head.subset(order[cut:])


def in_room(head: ea.Head, room: ea.Room, around: ea.Head) -> ea.Head:
    """The head in a room: every direction's response, reflections as heard by `around`."""
    ears = around.responses()

    def few(first: int) -> Array:
        with warnings.catch_warnings():  # what the plane lacks below and above is said once
            warnings.simplefilter("ignore", ea.EaratlasWarning)
            directions = head.directions[first : first + 8]
            return room_responses(room, directions, around.directions, ears.samples, ears.rate)

    parts = joblib.Parallel(n_jobs=-1)(joblib.delayed(few)(i) for i in range(0, len(head), 8))
    taps = max(part.shape[-1] for part in parts)
    padded = [np.pad(p, ((0, 0), (0, 0), (0, taps - p.shape[-1]))) for p in parts]
    return ea.Head(head.name, head.directions, ImpulseResponses(np.concatenate(padded), ears.rate))


def utterances() -> list[Path]:
    """All speech files, in the table's order."""
    with (DATA / "speech" / "utterances.csv").open(newline="") as handle:
        return [DATA / "speech" / row["file"] for row in csv.DictReader(handle)]


def talker(path: Path, seconds: float, rng: np.random.Generator) -> Array:
    """A stretch of an utterance, from a random place in it."""
    sound = ea.read_mono(path, rate=16_000)
    n = min(int(seconds * 16_000), len(sound))
    start = int(rng.integers(0, len(sound) - n + 1))
    return sound[start : start + n]


def single_talkers(
    head: ea.Head,
    count: int,
    *,
    snr_db: float = 60.0,
    room: ea.Room | None = None,
    seed: int = 0,
) -> Iterator[tuple[Array, ea.Audio]]:
    """(true direction, recording) of one talker for 2 to 5 s from random directions of a head."""
    rng = np.random.default_rng(seed)
    files = utterances()
    for number in range(count):
        direction = head.directions[rng.integers(len(head))]
        sound = talker(files[rng.integers(len(files))], rng.uniform(2, 5), rng)
        settings = ea.SceneSettings(snr_db=snr_db, seed=number)
        scene = ea.render_scene(head, [sound], [direction], settings=settings, room=room)
        yield scene.directions[0], scene.mixture


def mixtures(
    head: ea.Head,
    count: int,
    n_sources: int,
    *,
    seconds: float = 3.0,
    apart_degrees: float = 15.0,
    snr_db: float = 60.0,
    room: ea.Room | None = None,
    around: ea.Head | None = None,
    seed: int = 0,
) -> Iterator[ea.SimulatedScene]:
    """Different readers at equal level, from directions of the head at least so far apart.

    In a room, reflections come from the directions of `around`, which has those of the head too.
    """
    rng = np.random.default_rng((seed, n_sources))
    files = [path for path in utterances() if audio_seconds(path) >= seconds]
    sphere = ea.Sphere()
    for number in range(count):
        gaps = np.zeros(1)
        while gaps.min() < apart_degrees:
            directions = head.directions[rng.choice(len(head), n_sources, replace=False)]
            first, second = np.triu_indices(n_sources, 1)
            gaps = np.append(sphere.distance(directions[first], directions[second]), 180.0)
        readers = rng.choice(len(files), n_sources, replace=False)
        sounds = [talker(files[i], seconds, rng) for i in readers]
        settings = ea.SceneSettings(snr_db=snr_db, seed=number)
        yield ea.render_scene(around or head, sounds, directions, settings=settings, room=room)
