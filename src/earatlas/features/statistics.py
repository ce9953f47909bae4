"""Sufficient statistics of the cues of a recording: three sums per cue.

The input is cues y_dt with weights w_dt (0 for unobserved bins). The output is `CueStatistics`,
which is additive over the parts of a recording and is all that a posterior depends on
(docs/method.md).

    Q_d = sum_t w_dt          counts
    R_d = sum_t w_dt y_dt     sums
    E_d = sum_t w_dt y_dt²    squares

Which bins are observed depends on the peak and on the noise of the whole recording, which a stream
does not know in advance. `LevelStatistics` therefore accumulates Q, R and E separately for each
whole dB of level and sums the levels above the floors at the end: one pass, constant memory, and
the result of the whole recording. The floors are defined in `earatlas.features.noise_floor`.
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
from earatlas.features.noise_floor import (
    HIGHEST_DB,
    LOWEST_DB,
    estimate_floors_db,
    level_table_rows,
)
from earatlas.types import Array, Indices, Spectra

__all__ = ["CueStatistics", "LevelStatistics"]

_FRAMES_AT_ONCE = 512  # frames counted together; bounds the memory for blocks of any size
_MAX_SCALE = 1e100  # scale of the table at which it is renormalized, to avoid overflow


@dataclass(frozen=True, eq=False, slots=True)
class CueStatistics:
    """Statistics Q, R and E of a recording, or of several sources, and the number of frames."""

    counts: Array  # (..., D), Q
    sums: Array  # (..., D), R
    squares: Array  # (..., D), E
    frames: float = 1.0  # T, from which the observed fraction follows

    def __repr__(self) -> str:
        observed = 100 * float(self.counts.mean()) / max(self.frames, 1e-300)
        rows = "".join(f"{n} x " for n in self.counts.shape[:-1])
        D = self.counts.shape[-1]
        return f"CueStatistics({rows}D={D}, T={self.frames:g}, {observed:.1f} % observed)"

    def __getitem__(self, row: int | slice | Indices) -> CueStatistics:
        """Return the statistics of one source (D,) or of several (..., D)."""
        return CueStatistics(self.counts[row], self.sums[row], self.squares[row], self.frames)

    @property
    def means(self) -> Array:
        """Weighted means R / Q (..., D), and 0 where nothing was observed."""
        observed = self.counts > 0
        means: Array = np.where(observed, self.sums, 0.0) / np.where(observed, self.counts, 1.0)
        return means

    @property
    def scatter(self) -> Array:
        """Weighted scatter around the mean, Σ_t w (y - mean)², of shape (..., D)."""
        squares = np.where(self.counts > 0, self.squares, 0.0)
        return np.maximum(squares - self.counts * self.means**2, 0.0)

    def scaled(self, factor: ArrayLike) -> CueStatistics:
        """Multiply all weights by a factor, which is a scalar or has one value per row."""
        scale = np.broadcast_to(np.asarray(factor, dtype=np.float64), self.counts.shape[:-1])
        scale = scale[..., None]
        return CueStatistics(
            self.counts * scale, self.sums * scale, self.squares * scale, self.frames
        )

    def expected_squared_errors(self, cues: Array, squares: Array) -> Array:
        """Return Σ_t w E[(y - s)²] of shape (..., D), for E[s] = cues and E[s²] = squares."""
        errors: Array = self.squares - 2 * cues * self.sums + squares * self.counts
        return errors

    def __add__(self, other: CueStatistics) -> CueStatistics:
        return CueStatistics(
            self.counts + other.counts,
            self.sums + other.sums,
            self.squares + other.squares,
            self.frames + other.frames,
        )

    @classmethod
    def stack(cls, rows: Sequence[CueStatistics]) -> Self:
        """Stack the statistics (D,) of N sounds into one object with rows (N, D)."""
        return cls(
            np.stack([row.counts for row in rows]),
            np.stack([row.sums for row in rows]),
            np.stack([row.squares for row in rows]),
            float(np.mean([row.frames for row in rows])),
        )

    @classmethod
    def from_vector(cls, values: ArrayLike) -> Self:
        """Return the statistics of one fully observed vector (D,): the paper's inverse map."""
        y = np.asarray(values, dtype=np.float64)
        return cls(np.ones_like(y), y, y**2, 1.0)

    @classmethod
    def from_cues(cls, cues: Cues) -> Self:
        """Sum over all frames of a recording.

        The values in unobserved bins are ignored, even if they are NaN.
        """
        mask = cues.cue_observed
        y = np.where(mask, cues.values, 0.0)
        return cls(
            mask.sum(axis=1).astype(np.float64),
            y.sum(axis=1),
            np.einsum("dt,dt->d", y, y),
            float(cues.frames),
        )


class LevelStatistics:
    """Statistics of a stream by level, with optional exponential forgetting.

    With `forgetting` = g < 1, a frame has the weight g^a after a further frames, so that
    Q_d = sum_t g^(T-t) w_dt and so on; the peak decays by the same factor. With g = 1 nothing is
    forgotten.
    """

    def __init__(self, layout: CueLayout, *, forgetting: float = 1.0) -> None:
        self._layout = layout
        self._forgetting = forgetting
        levels = HIGHEST_DB - LOWEST_DB + 1
        self._table = np.zeros((3, levels, layout.n_cues))  # Q, R, E by level and cue
        self._scale = 1.0  # weight of a new frame; it grows instead of the table decaying
        self._frames = 0.0
        self._peak = 0.0

    def push(self, spectra: Spectra) -> None:
        """Add the frames of two-channel spectra (2, B, t)."""
        for start in range(0, spectra.shape[-1], _FRAMES_AT_ONCE):
            self._add(spectra[..., start : start + _FRAMES_AT_ONCE])

    def _add(self, spectra: Spectra) -> None:
        layout, g = self._layout, self._forgetting
        power = bin_power(spectra, layout.window)
        left, right = spectra[:, 1:].swapaxes(-1, -2)
        y = layout.stack(left, right)  # (t, D)
        with np.errstate(divide="ignore"):
            level = np.log10(power.min(axis=0).T)  # (t, F), of the weaker ear
        level *= 10
        rows = np.clip(np.floor(level, out=level), LOWEST_DB, HIGHEST_DB, out=level)
        # np.take, unlike indexing, keeps the memory order of the rows, as the table needs it.
        cue_rows = np.take(rows.astype(np.intp) - LOWEST_DB, layout.cue_frequencies, axis=1)
        t = len(y)
        weight = np.ones((t, 1)) if g == 1 else self._scale * g ** -np.arange(1.0, t + 1)[:, None]
        weighted = y if g == 1 else weight * y
        add_frames(list(self._table), cue_rows, (weight, weighted, weighted * y))
        decay = g ** np.arange(t - 1.0, -1.0, -1.0)
        self._scale = float(weight[-1, 0])
        self._frames = self._frames * g**t + float(decay.sum())
        self._peak = max(self._peak * g**t, float((power.max(axis=(0, 1)) * decay).max()))
        self._renormalize()

    def advance(self, frames: int) -> None:
        """Decay the statistics by a number of frames that were added to another object."""
        decay = self._forgetting**frames
        self._scale /= decay
        self._frames *= decay
        self._peak *= decay
        self._renormalize()

    def _renormalize(self) -> None:
        if self._scale > _MAX_SCALE:
            self._table /= self._scale
            self._scale = 1.0

    @classmethod
    def merge(cls, parts: Sequence[LevelStatistics]) -> LevelStatistics:
        """Add up several objects with the same layout and forgetting."""
        whole = cls(parts[0]._layout, forgetting=parts[0]._forgetting)
        for part in parts:
            whole._table += part._table / part._scale
        whole._frames = sum(part._frames for part in parts)
        whole._peak = max(part._peak for part in parts)
        return whole

    @property
    def frames(self) -> float:
        """Number of frames, with forgetting."""
        return self._frames

    def floors_db(self, threshold: Threshold | None = None) -> Indices:
        """Return the level (D,) in whole dB that the bin of each cue must reach."""
        counts, sums = self._table[:2] / self._scale
        return estimate_floors_db(counts, sums, self._layout, self._peak, threshold or Threshold())

    def statistics(self, threshold: Threshold | None = None) -> CueStatistics:
        """Return Q, R and E of the bins above their floors, given all frames so far."""
        return self.statistics_above(self.floors_db(threshold))

    def statistics_above(self, floors: Indices) -> CueStatistics:
        """Return Q, R and E of the bins above given floors (D,) in whole dB."""
        observed = np.arange(self._table.shape[1])[:, None] >= level_table_rows(floors)
        counts, sums, squares = (self._table * observed).sum(axis=1) / self._scale
        return CueStatistics(counts, sums, squares, self._frames)
