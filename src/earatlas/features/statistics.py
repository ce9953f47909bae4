"""What a model needs of a recording: three numbers a cue, however long it is.

In: cues y_dt with weights w_dt (0 where a bin is not observed). Out: `CueStatistics`, which add up
over pieces of a recording; a posterior needs nothing else (docs/method.md).

    Q_d = sum_t w_dt          counts
    R_d = sum_t w_dt y_dt     sums
    E_d = sum_t w_dt y_dt^2   squares

Which bins are observed depends on the peak of the whole recording, and on the noise in it, which a
stream does not know yet. `LevelStatistics` therefore keeps Q, R, E apart for every whole dB of a
bin's level: whatever the floors turn out to be, the levels above them are summed at the end. One
pass, constant memory, and the answer of the whole.
The floors themselves stand in `earatlas.features.noise_floor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from earatlas.features.cues import Cues, bin_power
from earatlas.features.layout import CueLayout, Threshold
from earatlas.features.level_tables import add_frames
from earatlas.features.noise_floor import HIGHEST_DB, LOWEST_DB, floors_of, level_rows
from earatlas.types import Array, Indices, Spectra

__all__ = ["CueStatistics", "LevelStatistics"]

_FRAMES_AT_ONCE = 512  # (frames, D) arrays that stay small, however large a block is pushed


@dataclass(frozen=True, eq=False, slots=True)
class CueStatistics:
    """Q, R and E of a recording, or of each of several sources, and how many frames they have."""

    counts: Array  # (..., D) Q
    sums: Array  # (..., D) R
    squares: Array  # (..., D) E
    frames: float = 1.0  # T, for the share that was observed

    def __repr__(self) -> str:
        share = 100 * float(self.counts.mean()) / max(self.frames, 1e-300)
        rows = "".join(f"{n} x " for n in self.counts.shape[:-1])
        D = self.counts.shape[-1]
        return f"CueStatistics({rows}D={D}, T={self.frames:g}, {share:.1f} % observed)"

    def __getitem__(self, row: int | slice | Indices) -> CueStatistics:
        """Those of one source (D,), or of some (..., D)."""
        return CueStatistics(self.counts[row], self.sums[row], self.squares[row], self.frames)

    @property
    def means(self) -> Array:
        """(..., D) R / Q, and 0 where nothing was observed, whatever stands in R."""
        seen = self.counts > 0
        means: Array = np.where(seen, self.sums, 0.0) / np.where(seen, self.counts, 1.0)
        return means

    @property
    def scatter(self) -> Array:
        """(..., D) Σ_t w (y - mean)²: what of E the mean does not explain."""
        squares = np.where(self.counts > 0, self.squares, 0.0)
        return np.maximum(squares - self.counts * self.means**2, 0.0)

    def scaled(self, factor: ArrayLike) -> CueStatistics:
        """Worth `factor` (one, or one a row) times as many frames."""
        by = np.broadcast_to(np.asarray(factor, dtype=np.float64), self.counts.shape[:-1])[
            ..., None
        ]
        return CueStatistics(self.counts * by, self.sums * by, self.squares * by, self.frames)

    def misses(self, cues: Array, squares: Array) -> Array:
        """(..., D) Σ_t w E[(y - s)²] for E[s] = cues and E[s²] = squares."""
        misses: Array = self.squares - 2 * cues * self.sums + squares * self.counts
        return misses

    def __add__(self, other: CueStatistics) -> CueStatistics:
        return CueStatistics(
            self.counts + other.counts,
            self.sums + other.sums,
            self.squares + other.squares,
            self.frames + other.frames,
        )

    @classmethod
    def stacked(cls, rows: Sequence[CueStatistics]) -> Self:
        """Those of several sounds (D,) as one, a row (N, D) each."""
        return cls(
            np.stack([row.counts for row in rows]),
            np.stack([row.sums for row in rows]),
            np.stack([row.squares for row in rows]),
            float(np.mean([row.frames for row in rows])),
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
        mask = cues.cue_observed
        y = np.where(mask, cues.values, 0.0)
        if weights is None:
            return cls(
                mask.sum(axis=1).astype(np.float64),
                y.sum(axis=1),
                np.einsum("dt,dt->d", y, y),
                float(cues.frames),
            )
        w = np.where(cues.observed, np.asarray(weights, dtype=np.float64), 0.0)
        w = w[cues.layout.cue_frequencies]
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
        levels = HIGHEST_DB - LOWEST_DB + 1
        self._table = np.zeros((3, levels, layout.n_cues))  # Q, R, E by level and cue
        self._scale = 1.0  # what a frame of now is worth in the table: grows instead of it fading
        self._frames = 0.0
        self._peak = 0.0

    def push(self, spectra: Spectra) -> None:
        """Count the frames of two-channel spectra (2, B, t)."""
        for start in range(0, spectra.shape[-1], _FRAMES_AT_ONCE):
            self._count(spectra[..., start : start + _FRAMES_AT_ONCE])

    def _count(self, spectra: Spectra) -> None:
        layout, g = self._layout, self._forgetting
        power = bin_power(spectra, layout.window)
        left, right = spectra[:, 1:].swapaxes(-1, -2)
        y = layout.stack(left, right)  # (t, D)
        with np.errstate(divide="ignore"):
            level = np.log10(power.min(axis=0).T)  # (t, F) of the weaker ear
        level *= 10
        rows = np.clip(np.floor(level, out=level), LOWEST_DB, HIGHEST_DB, out=level)
        # `take`, not an index: it keeps frames in rows, which the table wants.
        place = np.take(rows.astype(np.intp) - LOWEST_DB, layout.cue_frequencies, axis=1)
        t = len(y)
        worth = np.ones((t, 1)) if g == 1 else self._scale * g ** -np.arange(1.0, t + 1)[:, None]
        own = y if g == 1 else worth * y
        add_frames(list(self._table), place, (worth, own, own * y))
        age = g ** np.arange(t - 1.0, -1.0, -1.0)
        self._scale = float(worth[-1, 0])
        self._frames = self._frames * g**t + float(age.sum())
        self._peak = max(self._peak * g**t, float((power.max(axis=(0, 1)) * age).max()))
        self._renew()

    def age(self, frames: int) -> None:
        """So many frames have passed that were counted elsewhere: what is here fades by them."""
        fade = self._forgetting**frames
        self._scale /= fade
        self._frames *= fade
        self._peak *= fade
        self._renew()

    def _renew(self) -> None:
        if self._scale > 1e100:
            self._table /= self._scale
            self._scale = 1.0

    @classmethod
    def joined(cls, parts: Sequence[LevelStatistics]) -> LevelStatistics:
        """All that several ones counted, of one layout and forgetting."""
        whole = cls(parts[0]._layout, forgetting=parts[0]._forgetting)
        for part in parts:
            whole._table += part._table / part._scale
        whole._frames = sum(part._frames for part in parts)
        whole._peak = max(part._peak for part in parts)
        return whole

    @property
    def frames(self) -> float:
        """What is counted, in frames."""
        return self._frames

    def floors_db(self, threshold: Threshold | None = None) -> Indices:
        """The level (D,) that each cue's bin must pass, in whole dB."""
        counts, sums = self._table[:2] / self._scale
        return floors_of(counts, sums, self._layout, self._peak, threshold or Threshold())

    def _kept(self, floors: Indices) -> Array:
        """Q, R, E (3, D) of the levels from the floors up."""
        heard = np.arange(self._table.shape[1])[:, None] >= level_rows(floors)
        kept: Array = (self._table * heard).sum(axis=1) / self._scale
        return kept

    def statistics(self, threshold: Threshold | None = None) -> CueStatistics:
        """Q, R and E of the bins that pass their floors, given all that was pushed."""
        return self.above(self.floors_db(threshold))

    def above(self, floors: Indices) -> CueStatistics:
        """Q, R and E of the bins that pass these floors (D,), in whole dB."""
        counts, sums, squares = self._kept(floors)
        return CueStatistics(counts, sums, squares, self._frames)
