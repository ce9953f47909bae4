"""Spectrograms of a separated recording in bounded size, for plots and reports.

Input: spectra, masks and observed bins of successive blocks. Output: a `SpectrogramSummary` with at
most 256 rows and 1200 columns, whatever the duration.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.features.tf_bins import ObservedBins
from earatlas.types import Array, Indices, Spectra

__all__ = ["SpectrogramAccumulator", "SpectrogramSummary"]

_MAX_COLUMNS, _MAX_ROWS = 1200, 256  # largest size of a spectrogram: cells of time, of frequency


@dataclass(frozen=True, eq=False)
class SpectrogramSummary:
    """Spectrograms of a scene; a cell is the mean of its bins, NaN where none was observed."""

    seconds: Array  # (T',) time of each column
    frequencies_hz: Array  # (F',)
    level_db: Array  # (F', T') of both ears, dB re a full-scale sine
    ild_db: Array  # (F', T') interaural level difference of the mixture
    masks: Array  # (M, F', T') assignment probabilities

    def __repr__(self) -> str:
        M, rows, columns = self.masks.shape
        return f"SpectrogramSummary({M} sources, {rows} x {columns})"


class SpectrogramAccumulator:
    """Accumulates the summary of T frames from successive blocks."""

    def __init__(self, layout: CueLayout, frames: int, n_sources: int) -> None:
        self._layout = layout
        self._bins_per_row = max(-(-layout.n_frequencies // _MAX_ROWS), 1)
        self._frames_per_column = max(-(-frames // _MAX_COLUMNS), 1)
        shape = (
            -(-layout.n_frequencies // self._bins_per_row),
            -(-frames // self._frames_per_column),
        )
        self._power, self._bins = np.zeros(shape), np.zeros(shape)
        self._observed, self._ild = np.zeros(shape), np.zeros(shape)
        self._masks = np.zeros((n_sources, *shape))

    def add(
        self, spectra: Spectra, power: Array, masks: Array, first: int, observed: ObservedBins
    ) -> None:
        """Add frames from `first` on: spectra (2, B, t), power (F, t), masks (M, F, t).

        Frames that two blocks share count twice, both in the sums and in the counts.
        """
        F, T = self._layout.n_frequencies, spectra.shape[-1]
        rows = np.arange(F) // self._bins_per_row
        columns = (first + np.arange(T)) // self._frames_per_column
        columns = np.minimum(columns, self._power.shape[1] - 1)
        cell = rows[:, None] * self._power.shape[1] + columns
        self._power += self._sums(cell.ravel(), power.ravel())
        self._bins += self._sums(cell.ravel(), np.ones(F * T))
        observed_cell = cell[observed.f, observed.t]
        self._observed += self._sums(observed_cell, np.ones(len(observed_cell)))
        left, right = spectra[:, observed.f + 1, observed.t]
        self._ild += self._sums(observed_cell, 20 * np.log10(np.abs(right) / np.abs(left)))
        for m, mask in enumerate(masks):
            self._masks[m] += self._sums(observed_cell, mask[observed.f, observed.t])

    def _sums(self, cell: Indices, values: Array) -> Array:
        """Return the sums of values per cell."""
        size = self._power.size
        sums: Array = np.bincount(cell, values, size).reshape(self._power.shape).astype(np.float64)
        return sums

    def summary(self) -> SpectrogramSummary:
        """Return the summary of all frames that were added."""
        layout, (rows, columns) = self._layout, self._power.shape
        observed = np.where(self._observed > 0, self._observed, np.nan)
        middle = (np.arange(columns) + 0.5) * self._frames_per_column - 0.5
        f = np.minimum((np.arange(rows) + 0.5) * self._bins_per_row + 0.5, layout.n_frequencies)
        power = self._power / np.maximum(self._bins, 1.0)
        return SpectrogramSummary(
            seconds=middle * layout.hop / layout.rate,
            frequencies_hz=f * layout.rate / layout.window,
            level_db=10 * np.log10(np.maximum(power, 1e-20)),
            ild_db=self._ild / observed,
            masks=self._masks / observed,
        )
