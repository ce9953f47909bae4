"""Mixtures of recorded talkers: binaural recordings of speech from known directions are summed.

The inputs are a table of recordings (columns file, azimuth, elevation, speaker), the directions of
a head, and the indices of the allowed ones. The output is a `SimulatedScene` without noise, whose
images are the recordings at the levels at which they were made, as in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from earatlas.csv_tables import read_table
from earatlas.errors import InputError, existing_file
from earatlas.features.audio import Audio
from earatlas.features.audio_files import read_audio
from earatlas.geometry.spaces import Sphere
from earatlas.simulation.overlap import overlap_share, starts_for_overlap
from earatlas.simulation.scene import SimulatedScene
from earatlas.types import Array, Indices

__all__ = ["Mixing", "RecordedSpeech", "is_recorded_speech", "mix_recordings", "recorded_speech"]


@dataclass(frozen=True)
class Mixing:
    """How recordings are combined."""

    n_sources: int
    seed: int
    seconds: tuple[float, float]  # shortest and longest part of a recording
    rate: int  # Hz
    overlap: float = 0.6  # share of the time in which at least two talkers speak, as in the paper
    min_separation_degrees: float = 15.0


@dataclass(frozen=True, eq=False)
class RecordedSpeech:
    """The recordings of a table."""

    files: tuple[Path, ...]
    directions: Array  # (N, 2), degrees
    speakers: tuple[str, ...]


def is_recorded_speech(speech: Path | None) -> bool:
    """Whether speech is a table of binaural recordings instead of a folder of dry ones."""
    return speech is not None and speech.suffix.lower() == ".csv"


@lru_cache(maxsize=2)
def recorded_speech(table: Path) -> RecordedSpeech:
    """Return the recordings that a table lists; file names are relative to its folder."""
    rows = list(
        read_table(
            existing_file(table, "speech"), ("file", "azimuth", "elevation", "speaker"), "speech"
        )
    )
    if not rows:
        raise InputError(f"speech must list recordings, got none in '{table}'. Add one per row.")
    files = tuple(table.parent / str(row.cells["file"]).strip() for row in rows)
    missing = [file for file in files if not file.is_file()]
    if missing:
        raise InputError(
            f"speech must list existing recordings, got {len(missing)} of {len(files)} missing in "
            f"'{table}', the first is '{missing[0]}'. Check the names, which are relative to the "
            "folder of the table."
        )
    directions = Sphere().check([row.numbers("azimuth", "elevation") for row in rows])
    speakers = tuple(str(row.cells["speaker"]).strip() for row in rows)
    return RecordedSpeech(files, directions, speakers)


def mix_recordings(
    speech: RecordedSpeech, head_directions: Array, allowed: Indices, mixing: Mixing
) -> SimulatedScene:
    """Sum recordings of different speakers whose nearest head direction is an allowed one.

    Parameters
    ----------
    speech : RecordedSpeech
        Recordings to choose from.
    head_directions : array of shape (N, 2)
        Directions of the head on the plane, in degrees.
    allowed : array of int
        Indices of the directions at which talkers may be: those that are not learned.
    mixing : Mixing
        Number of talkers, lengths and seed.

    Returns
    -------
    SimulatedScene
        The sum of the recordings, and each of them as image.
    """
    nearest = Sphere().nearest(head_directions, speech.directions)
    on_plane = (np.abs(speech.directions) <= (160, 60)).all(axis=1)
    candidates = np.flatnonzero(np.isin(nearest, allowed) & on_plane)
    rng = np.random.default_rng((mixing.seed, mixing.n_sources))
    chosen = _draw(speech, candidates, mixing, rng)
    recordings = [_cut(read_audio(speech.files[i], rate=mixing.rate).samples, mixing, rng)
                  for i in chosen]  # fmt: skip
    lengths = np.array([recording.shape[1] for recording in recordings])
    starts = np.zeros(len(chosen))
    if mixing.n_sources > 1:
        starts = np.round(starts_for_overlap(lengths, mixing.overlap))
    images = np.zeros((len(chosen), 2, int((starts + lengths).max())))
    for image, start, recording in zip(images, starts.astype(int), recordings, strict=True):
        image[:, start : start + recording.shape[1]] = recording
    return SimulatedScene(
        mixture=Audio(images.sum(axis=0), mixing.rate),
        images=images,
        early=images,
        noise=np.zeros(images.shape[1:]),
        directions=speech.directions[chosen],
        starts_seconds=starts / mixing.rate,
        names=tuple(speech.files[i].stem for i in chosen),
        trajectories=(None,) * len(chosen),
        settings={"overlap": round(overlap_share(starts, lengths), 4), "seed": mixing.seed},
    )


def _draw(
    speech: RecordedSpeech, candidates: Indices, mixing: Mixing, rng: np.random.Generator
) -> Indices:
    """Return recordings of different speakers that are far enough apart."""
    M, pairs = mixing.n_sources, np.triu_indices(mixing.n_sources, 1)

    def suitable(chosen: Indices) -> bool:
        x = speech.directions[chosen]
        gaps = Sphere().distance(x[pairs[0]], x[pairs[1]])
        different = len({speech.speakers[i] for i in chosen}) == M
        return different and (M == 1 or float(gaps.min()) >= mixing.min_separation_degrees)

    n_attempts = 1000 if len(candidates) >= M else 0
    attempts = (rng.choice(candidates, M, replace=False) for _ in range(n_attempts))
    chosen = next((found for found in attempts if suitable(found)), None)
    if chosen is None:
        raise InputError(
            f"speech must have recordings of {M} different speakers, at least "
            f"{mixing.min_separation_degrees:g} degrees apart, at directions that are not learned, "
            f"got {len(candidates)} recordings at such directions. Add recordings."
        )
    return chosen


def _cut(samples: Array, mixing: Mixing, rng: np.random.Generator) -> Array:
    """Return a random part of a recording (2, n)."""
    n = min(int(rng.uniform(*mixing.seconds) * mixing.rate), samples.shape[1])
    start = int(rng.integers(0, samples.shape[1] - n + 1))
    return samples[:, start : start + n]
