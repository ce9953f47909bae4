"""Shared parts of the benchmarks: measured data, a timer, splits of a head, and test scenes."""

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


def min_seconds(function: Callable[[], object], runs: int = 5) -> float:
    """Return the minimum wall-clock time of several runs, the one that was disturbed least."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def load_head(name: str) -> ea.Head:
    """Read a measured head; exit with a message if the data are missing."""
    path = DATA / "heads" / f"{name}.sofa"
    if not path.exists():
        raise SystemExit(f"No measured heads in {DATA}. Set EARATLAS_DATA to the data folder.")
    return ea.read_sofa(path)


def long_recording_parser(description: str | None) -> argparse.ArgumentParser:
    """Return the argument parser of the benchmarks on long recordings with ku100."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--minutes", type=int, default=4, help="length of the recording")
    parser.add_argument(
        "--t60", type=float, default=None, help="T60 of the room in s; default: anechoic"
    )
    parser.add_argument("--atlas", type=Path, help="atlas of ku100; default: learn it")
    return parser


def within_plane(head: ea.Head) -> ea.Head:
    """Return the head on the paper's plane: |azimuth| <= 160°, |elevation| <= 60°."""
    azimuth, elevation = np.abs(head.directions).T
    return head.subset((azimuth <= 160) & (elevation <= 60))


def split(head: ea.Head, seed: int, fraction: float = 0.8) -> tuple[ea.Head, ea.Head]:
    """Split the directions at random into a training head (80 %) and a held-out head."""
    order = np.random.default_rng(seed).permutation(len(head))
    cut = int(fraction * len(head))
    return head.subset(order[:cut]), head.subset(order[cut:])


def reverberant_head(head: ea.Head, room: ea.Room, room_head: ea.Head) -> ea.Head:
    """Return the responses of a head in a room; `room_head` filters the reflections."""
    ears = room_head.responses()

    def batch(first: int) -> Array:
        with warnings.catch_warnings():  # missing directions below and above are known
            warnings.simplefilter("ignore", ea.EaratlasWarning)
            directions = head.directions[first : first + 8]
            return room_responses(room, directions, room_head.directions, ears.samples, ears.rate)

    parts = joblib.Parallel(n_jobs=-1)(joblib.delayed(batch)(i) for i in range(0, len(head), 8))
    taps = max(part.shape[-1] for part in parts)
    padded = [np.pad(p, ((0, 0), (0, 0), (0, taps - p.shape[-1]))) for p in parts]
    return ea.Head(head.name, head.directions, ImpulseResponses(np.concatenate(padded), ears.rate))


def utterances() -> list[Path]:
    """Return the paths of all speech files, in the order of the table."""
    with (DATA / "speech" / "utterances.csv").open(newline="") as handle:
        return [DATA / "speech" / row["file"] for row in csv.DictReader(handle)]


def speech_excerpt(path: Path, seconds: float, rng: np.random.Generator) -> Array:
    """Return a random excerpt of an utterance at 16 kHz."""
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
    """Yield (true direction, recording) of one talker, 2 to 5 s, at random directions of a head."""
    rng = np.random.default_rng(seed)
    files = utterances()
    for number in range(count):
        direction = head.directions[rng.integers(len(head))]
        sound = speech_excerpt(files[rng.integers(len(files))], rng.uniform(2, 5), rng)
        settings = ea.SceneSettings(snr_db=snr_db, seed=number)
        scene = ea.render_scene(head, [sound], [direction], settings=settings, room=room)
        yield scene.directions[0], scene.mixture


def mixtures(
    head: ea.Head,
    count: int,
    n_sources: int,
    *,
    seconds: float = 3.0,
    min_separation_degrees: float = 15.0,
    snr_db: float = 60.0,
    room: ea.Room | None = None,
    room_head: ea.Head | None = None,
    seed: int = 0,
) -> Iterator[ea.SimulatedScene]:
    """Yield scenes of different speakers at equal level, at a minimum angular separation.

    Source directions are those of `head`. `room_head`, which contains them, renders the room.
    """
    rng = np.random.default_rng((seed, n_sources))
    files = [path for path in utterances() if audio_seconds(path) >= seconds]
    sphere = ea.Sphere()
    for number in range(count):
        separations = np.zeros(1)
        while separations.min() < min_separation_degrees:
            directions = head.directions[rng.choice(len(head), n_sources, replace=False)]
            first, second = np.triu_indices(n_sources, 1)
            separations = np.append(sphere.distance(directions[first], directions[second]), 180.0)
        speakers = rng.choice(len(files), n_sources, replace=False)
        sounds = [speech_excerpt(files[i], seconds, rng) for i in speakers]
        settings = ea.SceneSettings(snr_db=snr_db, seed=number)
        yield ea.render_scene(room_head or head, sounds, directions, settings=settings, room=room)
