"""What there is to see of a separated recording, in bounded size however long it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.features.tf_bins import HeardBins
from earatlas.types import Array, Indices, Spectra

__all__ = ["Picture", "PictureBuilder"]

_MOST_COLUMNS, _MOST_ROWS = 1200, 256


@dataclass(frozen=True, eq=False)
class Picture:
    """Spectrograms of a scene; a cell is the mean of its bins, NaN where none was heard."""

    seconds: Array  # (T',) time of each column
    frequencies_hz: Array  # (F',)
    level_db: Array  # (F', T') of both ears, re a full-scale sine
    ild_db: Array  # (F', T') of the mixture
    masks: Array  # (M, F', T') assignment probabilities

    def __repr__(self) -> str:
        M, rows, columns = self.masks.shape
        return f"Picture({M} sources, {rows} x {columns})"


class PictureBuilder:
    """Adds up a picture of T frames from stretches of them."""

    def __init__(self, layout: CueLayout, frames: int, n_sources: int) -> None:
        self._layout = layout
        self._row = max(-(-layout.n_frequencies // _MOST_ROWS), 1)  # bins a row
        self._column = max(-(-frames // _MOST_COLUMNS), 1)  # frames a column
        shape = (-(-layout.n_frequencies // self._row), -(-frames // self._column))
        self._power, self._bins = np.zeros(shape), np.zeros(shape)
        self._heard, self._ild = np.zeros(shape), np.zeros(shape)
        self._masks = np.zeros((n_sources, *shape))

    def add(
        self, spectra: Spectra, power: Array, masks: Array, first: int, heard: HeardBins
    ) -> None:
        """Frames from `first` on: spectra (2, B, t), power (F, t), masks (M, F, t), bins heard.

        Frames that two blocks share count twice, in what is added up and in what it is divided by.
        """
        F, T = self._layout.n_frequencies, spectra.shape[-1]
        rows = np.arange(F) // self._row
        columns = np.minimum((first + np.arange(T)) // self._column, self._power.shape[1] - 1)
        cell = rows[:, None] * self._power.shape[1] + columns
        self._power += self._sums(cell.ravel(), power.ravel())
        self._bins += self._sums(cell.ravel(), np.ones(F * T))
        own = cell[heard.f, heard.t]
        self._heard += self._sums(own, np.ones(len(own)))
        left, right = spectra[:, heard.f + 1, heard.t]
        self._ild += self._sums(own, 20 * np.log10(np.abs(right) / np.abs(left)))
        for m, mask in enumerate(masks):
            self._masks[m] += self._sums(own, mask[heard.f, heard.t])

    def _sums(self, cell: Indices, values: Array) -> Array:
        size = self._power.size
        sums: Array = np.bincount(cell, values, size).reshape(self._power.shape).astype(np.float64)
        return sums

    def picture(self) -> Picture:
        """The picture of all that was added."""
        layout, (rows, columns) = self._layout, self._power.shape
        heard = np.where(self._heard > 0, self._heard, np.nan)
        middle = (np.arange(columns) + 0.5) * self._column - 0.5
        f = np.minimum((np.arange(rows) + 0.5) * self._row + 0.5, layout.n_frequencies)
        power = self._power / np.maximum(self._bins, 1.0)
        return Picture(
            seconds=middle * layout.hop / layout.rate,
            frequencies_hz=f * layout.rate / layout.window,
            level_db=10 * np.log10(np.maximum(power, 1e-20)),
            ild_db=self._ild / heard,
            masks=self._masks / heard,
        )
