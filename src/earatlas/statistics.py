"""What a model needs of a recording: three numbers a channel, however long it is.

In: cues y_dt with weights w_dt (0 where a bin is not observed). Out: `CueStatistics`, which add up
over pieces of a recording; a posterior needs nothing else (DESIGN §3, posterior of one source).

    Q_d = sum_t w_dt          counts
    R_d = sum_t w_dt y_dt     sums
    E_d = sum_t w_dt y_dt^2   squares

Which bins are observed depends on the peak of the whole recording, which a stream does not know
yet. `LevelStatistics` therefore keeps Q, R, E apart for every whole dB of a bin's level: whatever
the peak turns out to be, the levels above the threshold are summed at the end. One pass, constant
memory, and the answer of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from earatlas.audio import Spectra
from earatlas.cues import CueLayout, Cues, Threshold, bin_power

__all__ = ["CueStatistics", "LevelStatistics"]

Array = NDArray[np.float64]

_LOWEST_DB, _HIGHEST_DB = -140, 60  # levels outside are counted at the ends


@dataclass(frozen=True, eq=False, slots=True)
class CueStatistics:
    """Q, R and E of a recording, and how many frames they come from."""

    counts: Array  # (D,) Q
    sums: Array  # (D,) R
    squares: Array  # (D,) E
    frames: float = 1.0  # T, for the share that was observed

    def __repr__(self) -> str:
        share = 100 * float(self.counts.mean()) / max(self.frames, 1e-300)
        return f"CueStatistics(D={len(self.counts)}, T={self.frames:g}, {share:.1f} % observed)"

    def __add__(self, other: CueStatistics) -> CueStatistics:
        return CueStatistics(
            self.counts + other.counts,
            self.sums + other.sums,
            self.squares + other.squares,
            self.frames + other.frames,
        )

    @classmethod
    def of_vector(cls, values: ArrayLike) -> Self:
        """One vector (D,), all observed: the paper's inverse map is the posterior of these."""
        y = np.asarray(values, dtype=np.float64)
        return cls(np.ones_like(y), y, y**2, 1.0)

    @classmethod
    def of_cues(cls, cues: Cues, weights: ArrayLike | None = None) -> Self:
        """All frames of a recording; `weights` (F, T) in [0, 1] say how much a bin belongs.

        What stands in unobserved bins, even NaN, changes nothing.
        """
        mask = cues.channel_observed
        y = np.where(mask, cues.values, 0.0)
        if weights is None:
            return cls(
                mask.sum(axis=1).astype(np.float64),
                y.sum(axis=1),
                np.einsum("dt,dt->d", y, y),
                float(cues.frames),
            )
        w = np.where(cues.observed, np.asarray(weights, dtype=np.float64), 0.0)
        w = w[cues.layout.channel_bins]
        return cls(
            w.sum(axis=1),
            np.einsum("dt,dt->d", w, y),
            np.einsum("dt,dt,dt->d", w, y, y),
            float(cues.frames),
        )


class LevelStatistics:
    """Statistics of a stream, kept by level, with or without forgetting.

    With `forgetting` = g < 1, a frame counts g^a after a frames: Q_d = sum_t g^(T-t) w_dt, and so
    on; the peak fades by the same factor. With 1 nothing is forgotten.
    """

    def __init__(self, layout: CueLayout, *, forgetting: float = 1.0) -> None:
        self._layout = layout
        self._forgetting = forgetting
        levels = _HIGHEST_DB - _LOWEST_DB + 1
        self._table = np.zeros((3, levels, layout.channels))
        self._scale = 1.0  # what a frame of now is worth in the table: grows instead of it fading
        self._frames = 0.0
        self._peak = 0.0
        self._columns = np.arange(layout.channels)

    def push(self, spectra: Spectra) -> None:
        """Count the frames of two-channel spectra (2, B, t)."""
        layout = self._layout
        power = bin_power(spectra, layout.window)
        left, right = spectra[:, 1:].swapaxes(-1, -2)
        y = layout.stack(left, right)  # (t, D)
        weaker = power.min(axis=0).T  # (t, F)
        with np.errstate(divide="ignore"):
            level = np.floor(10 * np.log10(weaker))
        rows = np.clip(level, _LOWEST_DB, _HIGHEST_DB).astype(np.intp) - _LOWEST_DB
        for t, loudest in enumerate(power.max(axis=(0, 1))):
            self._scale /= self._forgetting
            self._frames = self._frames * self._forgetting + 1.0
            self._peak = max(self._peak * self._forgetting, float(loudest))
            place = rows[t][layout.channel_bins], self._columns
            # Each channel has one place a frame, so plain indexing adds each number once.
            self._table[0][place] += self._scale
            self._table[1][place] += self._scale * y[t]
            self._table[2][place] += self._scale * y[t] ** 2
        if self._scale > 1e100:
            self._table /= self._scale
            self._scale = 1.0

    def statistics(self, threshold: Threshold | None = None) -> CueStatistics:
        """Q, R and E of the bins that pass the threshold, given the peak up to now."""
        floor_db = (threshold or Threshold()).floor_db(self._peak)
        first = int(np.clip(floor_db, _LOWEST_DB, _HIGHEST_DB)) - _LOWEST_DB
        counts, sums, squares = self._table[:, first:].sum(axis=1) / self._scale
        return CueStatistics(counts, sums, squares, self._frames)
