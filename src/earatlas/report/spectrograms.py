"""Level spectrograms of sounds at their own rate and over their full band.

The input is `Audio` or a sound file of any length, which is read in blocks. The output is the mean
level of both ears on a grid of bounded size. (The `SpectrogramSummary` of a scene only covers the
band of the cues, up to 8 kHz.)

    B   bins of a window, without 0 Hz      T   columns      F   rows
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from earatlas.errors import InputError
from earatlas.features.audio import Audio
from earatlas.features.audio_files import audio_rate, audio_seconds, read_blocks
from earatlas.features.stft import FrameStream, bin_power
from earatlas.types import Array

__all__ = ["LevelSpectrogram", "level_spectrogram"]


@dataclass(frozen=True, eq=False)
class LevelSpectrogram:
    """Mean level of both ears over time and frequency."""

    seconds: Array  # (T,) midpoint of each column
    frequencies_hz: Array  # (F,) midpoint of each row
    level_db: Array  # (F, T) relative to a full-scale sine

    @property
    def top_db(self) -> float:
        """Highest level."""
        return float(self.level_db.max(initial=-200.0))


def level_spectrogram(
    sound: Audio | Path, *, max_columns: int = 1200, max_rows: int = 256
) -> LevelSpectrogram:
    """Compute the level spectrogram of a sound or a file."""
    if isinstance(sound, Audio):
        rate, seconds = sound.rate, sound.seconds
    else:
        rate, seconds = audio_rate(sound), audio_seconds(sound)
    window = 2 ** int(np.ceil(np.log2(0.032 * rate)))  # 32 ms or the next power of two samples
    hop = window // 4
    frames = 1 + int(seconds * rate) // hop
    frames_per_column = -(-frames // max_columns)
    bins_per_row = max(window // 2 // max_rows, 1)
    shape = -(-frames // frames_per_column), window // 2 // bins_per_row
    sums, counts, done = np.zeros(shape), np.zeros(shape[0]), 0
    for power in _powers(sound, window, hop):  # (B, t)
        rows = power.reshape(shape[1], bins_per_row, -1).mean(axis=1)
        # A file may have a few samples more than its header declares.
        columns = (done + np.arange(rows.shape[1])) // frames_per_column
        columns = np.minimum(columns, shape[0] - 1)
        np.add.at(sums, columns, rows.T)
        np.add.at(counts, columns, 1.0)
        done += rows.shape[1]
    mean = (sums / np.maximum(counts, 1.0)[:, None]).T
    return LevelSpectrogram(
        seconds=((np.arange(shape[0]) + 0.5) * frames_per_column - 0.5) * hop / rate,
        frequencies_hz=((np.arange(shape[1]) + 0.5) * bins_per_row + 0.5) * rate / window,
        level_db=10 * np.log10(np.maximum(mean, 1e-20)),
    )


def _powers(sound: Audio | Path, window: int, hop: int) -> Iterator[Array]:
    """Yield the mean power (B, t) of both ears, block by block."""
    stream = FrameStream(window, hop, single=True)
    blocks = iter([sound]) if isinstance(sound, Audio) else read_blocks(sound, warn=False)
    has_signal = False
    try:
        for block in blocks:
            has_signal = has_signal or bool(block.samples.any())
            yield bin_power(stream.push(block.samples), window).mean(axis=0)
    except InputError:  # read_blocks refuses a silent file at its end; a report shows it
        if has_signal:
            raise
    yield bin_power(stream.finish(), window).mean(axis=0)
