"""Spectrograms of sounds as they are heard: all of their band, at their own rate.

In: `Audio`, or a sound file of any length, which is read in blocks. Out: mean levels of both ears,
in bounded size. (A scene's `Picture` is of what directions are told by, which ends at 8 kHz.)

    B   bins of a window, without 0 Hz      T   columns
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from earatlas.errors import InputError
from earatlas.features.audio import Audio
from earatlas.features.audio_files import audio_rate, audio_seconds, read_blocks
from earatlas.features.cues import bin_power
from earatlas.features.stft import FrameStream
from earatlas.types import Array

__all__ = ["Levels", "levels_of"]

_WINDOW_SECONDS = 0.032  # about: the next power of two above it
_MOST_COLUMNS, _MOST_ROWS = 1200, 256  # as of a scene's picture


@dataclass(frozen=True, eq=False)
class Levels:
    """A spectrogram."""

    seconds: Array  # (T,) middle of each column
    frequencies_hz: Array  # (F,) middle of each row
    level_db: Array  # (F, T) re a full-scale sine

    @property
    def top_db(self) -> float:
        """The loudest."""
        return float(self.level_db.max(initial=-200.0))


def levels_of(sound: Audio | Path) -> Levels:
    """The levels of a sound."""
    if isinstance(sound, Audio):
        rate, seconds = sound.rate, sound.seconds
    else:
        rate, seconds = audio_rate(sound), audio_seconds(sound)
    window = 2 ** int(np.ceil(np.log2(_WINDOW_SECONDS * rate)))
    hop = window // 4
    frames = 1 + int(seconds * rate) // hop
    column = -(-frames // _MOST_COLUMNS)  # frames a column
    row = max(window // 2 // _MOST_ROWS, 1)  # bins a row
    shape = -(-frames // column), window // 2 // row
    sums, counts, done = np.zeros(shape), np.zeros(shape[0]), 0
    for power in _powers(sound, window, hop):  # (B, t)
        rows = power.reshape(shape[1], row, -1).mean(axis=1)
        # A file may have some samples more than its header says.
        at = np.minimum((done + np.arange(rows.shape[1])) // column, shape[0] - 1)
        np.add.at(sums, at, rows.T)
        np.add.at(counts, at, 1.0)
        done += rows.shape[1]
    mean = (sums / np.maximum(counts, 1.0)[:, None]).T
    return Levels(
        seconds=((np.arange(shape[0]) + 0.5) * column - 0.5) * hop / rate,
        frequencies_hz=((np.arange(shape[1]) + 0.5) * row + 0.5) * rate / window,
        level_db=10 * np.log10(np.maximum(mean, 1e-20)),
    )


def _powers(sound: Audio | Path, window: int, hop: int) -> Iterator[Array]:
    """Powers (B, t) of both ears, piece by piece."""
    stream = FrameStream(window, hop, single=True)
    blocks = iter([sound]) if isinstance(sound, Audio) else read_blocks(sound, warn=False)
    heard = False
    try:
        for block in blocks:
            heard = heard or bool(block.samples.any())
            yield bin_power(stream.push(block.samples), window).mean(axis=0)
    except InputError:  # a file that is silent throughout says so at its end: it is shown
        if heard:
            raise
    yield bin_power(stream.finish(), window).mean(axis=0)
