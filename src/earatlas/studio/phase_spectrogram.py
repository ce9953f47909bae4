"""Interaural phase difference of a recording over time and low frequencies, for the page.

The input is a sound file of any length, which is read in blocks; the output has a bounded size. A
cell has the phase of the sum of the cross-spectra of its bins, so that strong bins count most.

    B   bins of a window up to the highest frequency      T   columns
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from earatlas.errors import InputError
from earatlas.features.audio_files import audio_rate, audio_seconds, read_blocks
from earatlas.features.stft import FrameStream, squared_magnitude
from earatlas.plotting.palette import LEVEL_RANGE_DB
from earatlas.separation.result import SpectrogramSummary
from earatlas.types import Array, Spectra

__all__ = ["PhaseSettings", "PhaseSpectrogram", "phase_spectrogram"]


# Evidence: docs/figures/settings/studio.md, "phase_spectrogram".
@dataclass(frozen=True, slots=True)
class PhaseSettings:
    """Resolution of the image of phase differences."""

    max_hz: float = 2000.0  # above, phases of a head are ambiguous and not used by default
    max_columns: int = 1200
    window_seconds: float = 0.032  # rounded up to a power of two samples


_DEFAULTS = PhaseSettings()


@dataclass(frozen=True, eq=False)
class PhaseSpectrogram:
    """Phase of the right ear relative to the left one; NaN where almost nothing is observed."""

    seconds: Array  # (T,) midpoint of each column
    frequencies_hz: Array  # (B,)
    radians: Array  # (B, T) within ±π

    def observed_in(self, spectrogram: SpectrogramSummary) -> PhaseSpectrogram:
        """Return the phases without cells in which the scene has observed no cue."""
        rows, columns = (
            np.abs(np.subtract.outer(own, other)).argmin(axis=1)
            for own, other in (
                (self.frequencies_hz, spectrogram.frequencies_hz),
                (self.seconds, spectrogram.seconds),
            )
        )
        observed = np.isfinite(spectrogram.ild_db)[np.ix_(rows, columns)]
        return replace(self, radians=np.where(observed, self.radians, np.nan))


def phase_spectrogram(path: Path, settings: PhaseSettings = _DEFAULTS) -> PhaseSpectrogram:
    """Compute the phase differences of a file with two channels."""
    rate = audio_rate(path)
    window = 2 ** int(np.ceil(np.log2(settings.window_seconds * rate)))
    hop = window // 4
    B = min(int(settings.max_hz * window / rate), window // 2)
    frames = 1 + int(audio_seconds(path) * rate) // hop
    frames_per_column = -(-frames // settings.max_columns)
    T = -(-frames // frames_per_column)
    cross, power = np.zeros((T, B), dtype=np.complex128), np.zeros((T, B))
    done = 0
    for spectra in _spectra(path, window, hop):
        left, right = spectra[:, 1 : B + 1]
        # A file may have a few samples more than its header declares.
        columns = np.minimum((done + np.arange(left.shape[1])) // frames_per_column, T - 1)
        np.add.at(cross, columns, (right * left.conj()).T)
        np.add.at(power, columns, squared_magnitude(spectra[:, 1 : B + 1]).sum(axis=0).T)
        done += left.shape[1]
    audible = power > power.max() * 10 ** (-LEVEL_RANGE_DB / 10)
    return PhaseSpectrogram(
        seconds=((np.arange(T) + 0.5) * frames_per_column - 0.5) * hop / rate,
        frequencies_hz=(np.arange(B) + 1.0) * rate / window,
        radians=np.where(audible, np.angle(cross), np.nan).T,
    )


def _spectra(path: Path, window: int, hop: int) -> Iterator[Spectra]:
    """Yield spectra (2, window // 2 + 1, t) of a file, block by block."""
    stream = FrameStream(window, hop, single=True)
    has_signal = False
    try:
        for block in read_blocks(path, warn=False):
            has_signal = has_signal or bool(block.samples.any())
            yield stream.push(block.samples)
    except InputError:  # read_blocks refuses a silent file at its end; the page shows it
        if has_signal:
            raise
    yield stream.finish()
