"""Bands of neighbouring cues, in which people differ from each other.

Input: a `CueLayout`. Output: `CueBands`, which sums or averages the D cues over H bands.
Responses of a few milliseconds have a spectral resolution of a few hundred hertz, while the bins of
a window of 64 ms are 16 Hz apart: differences between people are described by H = 120 values
instead of D = 730, which makes a population small and its inference fast.

    d  cues (D)    h  bands (H)    h(d)  band of cue d
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.types import Array, Indices

__all__ = ["CueBands"]

# Evidence: docs/figures/settings/population.md, "bands".
_LEVEL_BAND_HZ = 125.0  # width of a band of level differences
_PHASE_BAND_HZ = 62.5  # width of a band of phase differences, which vary faster


@dataclass(frozen=True, eq=False)
class CueBands:
    """Assignment of the D cues of a layout to H bands."""

    band: Indices  # (D,) h(d), from 0 to H - 1, all of which occur

    @classmethod
    def of(cls, layout: CueLayout) -> CueBands:
        """Return the bands of a layout, separately for each kind of cue."""
        hz = layout.cue_frequencies * (layout.rate / layout.window)
        width = np.where(layout.cue_kinds == "ild", _LEVEL_BAND_HZ, _PHASE_BAND_HZ)
        kinds = np.unique(layout.cue_kinds, return_inverse=True)[1]
        keys = kinds * 100_000 + np.floor(hz / width).astype(np.intp)
        return cls(np.unique(keys, return_inverse=True)[1].astype(np.intp))

    def __len__(self) -> int:
        return int(self.band.max()) + 1

    @cached_property
    def _starts(self) -> tuple[Indices, Indices]:
        """Order (D,) that sorts the cues by band, and the first position (H,) of each band."""
        order = np.argsort(self.band, kind="stable")
        return order, np.searchsorted(self.band[order], np.arange(len(self)))

    def sum(self, values: Array) -> Array:
        """Return the sums (..., H) of values (..., D) over the cues of each band."""
        order, starts = self._starts
        total: Array = np.add.reduceat(values[..., order], starts, axis=-1)
        return total

    def weighted_sums(self, weights: Array, values: Array) -> Array:
        """Return Σ_d∈h weights_wd values_nd (W, n, H) of weights (W, D) and values (n, D)."""
        order, starts = self._starts
        sums = np.empty((len(self), len(weights), len(values)))
        ends = [*starts[1:].tolist(), len(order)]
        for h, (start, end) in enumerate(zip(starts.tolist(), ends, strict=True)):
            cues = order[start:end]
            np.matmul(weights[:, cues], values[:, cues].T, out=sums[h])
        return np.ascontiguousarray(np.moveaxis(sums, 0, -1))

    def mean(self, values: Array) -> Array:
        """Return the means (..., H) of values (..., D) over the cues of each band."""
        return self.sum(values) / np.bincount(self.band)

    def expand(self, values: Array) -> Array:
        """Return values (..., D) that are constant in each band, from values (..., H)."""
        return np.asarray(values[..., self.band])
