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
the result of the whole recording.

The floor of a bin is at least the threshold relative to the peak of the recording. The quietest
frames of a bin tell its noise level. If they have no common direction, that is, if their phase
differences are random, they are noise or reverberation, which pull level differences towards 0 dB;
then the floor is raised above the noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from earatlas.features.cues import Cues
from earatlas.features.layout import CueLayout, Threshold
from earatlas.features.stft import bin_power, frame_groups
from earatlas.types import Array, Indices, Spectra

__all__ = [
    "NOISE_FLOOR",
    "CueStatistics",
    "LevelHistogram",
    "LevelStatistics",
    "LevelTable",
    "NoiseFloorSettings",
]

LOWEST_DB, HIGHEST_DB = -140, 60  # range of the tables; levels outside count at its ends
_N_LEVELS = HIGHEST_DB - LOWEST_DB + 1


@dataclass(frozen=True, slots=True)
class NoiseFloorSettings:
    """Settings of the level that a bin must reach to be observed.

    Evidence: docs/figures/settings/features.md, "statistics".
    """

    quiet_fraction: float = 0.15  # quietest fraction of the frames, which are the noise
    directional_coherence: float = 0.7  # phase coherence above which quiet frames are no noise
    min_observed_fraction: float = 0.002  # if fewer bins remain, the floor is not raised
    margin_db: float = 18.0  # margin of the floor above the mean noise power


NOISE_FLOOR = NoiseFloorSettings()


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


class LevelTable:
    """Sums (S, levels, D) of frames by level, with optional exponential forgetting.

    With `forgetting` = g < 1, a frame has the weight g^a after a further frames. The weight of new
    frames grows instead of the table decaying.
    """

    def __init__(
        self, n_levels: int, n_columns: int, *, n_sums: int = 1, forgetting: float = 1.0
    ) -> None:
        self._table = np.zeros((n_sums, n_levels, n_columns))
        self._forgetting, self._scale = forgetting, 1.0  # weight of a new frame

    @property
    def sums(self) -> Array:
        """Sums (S, levels, D)."""
        return self._table / self._scale

    def add(self, rows: Indices, *values: Array) -> None:
        """Add values, each (t, D) or (t, 1), of t frames to the rows (t, D) of the S tables."""
        g, t = self._forgetting, len(rows)
        if g < 1:
            weight = self._scale * g ** -np.arange(1.0, t + 1)[:, None]
            values = tuple(weight * value for value in values)
            self._scale = float(weight[-1, 0])
        index = rows * rows.shape[1]
        index += np.arange(rows.shape[1])
        for table, own in zip(self._table, values, strict=True):
            flat = table.reshape(-1)
            if t <= 16:  # faster than np.add.at, which adds equal indices
                for position, value in zip(index, own, strict=True):
                    flat[position] += value  # within a frame, every column occurs once
            else:
                np.add.at(flat, index.ravel(), np.broadcast_to(own, rows.shape).ravel())
        self._renormalize()

    def advance(self, frames: int) -> None:
        """Decay the sums by a number of frames that were added elsewhere."""
        decay = self._forgetting**frames
        if decay > 1e-200:
            self._scale /= decay
            self._renormalize()
        else:  # all is forgotten, and the scale would overflow
            self._table[:], self._scale = 0.0, 1.0

    def _renormalize(self) -> None:
        if self._scale > 1e100:  # long before it overflows
            self._table /= self._scale
            self._scale = 1.0

    def merge(self, other: LevelTable) -> None:
        """Add the sums of another table."""
        self._table += self._scale * other.sums


class LevelStatistics:
    """Statistics of a stream by level, with optional exponential forgetting.

    With `forgetting` = g < 1, a frame has the weight g^a after a further frames, so that
    Q_d = sum_t g^(T-t) w_dt and so on; the peak decays by the same factor. With g = 1 nothing is
    forgotten.
    """

    def __init__(self, layout: CueLayout, *, forgetting: float = 1.0) -> None:
        self._layout = layout
        self._forgetting = forgetting
        self._table = LevelTable(
            _N_LEVELS, layout.n_cues, n_sums=3, forgetting=forgetting
        )  # Q, R, E
        self._frames = 0.0
        self._peak = 0.0

    def push(self, spectra: Spectra) -> None:
        """Add the frames of two-channel spectra (2, B, t)."""
        for part in frame_groups(spectra):
            self._add(part)

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
        self._table.add(cue_rows, np.ones((t, 1)), y, y * y)
        decay = g ** np.arange(t - 1.0, -1.0, -1.0)
        self._frames = self._frames * g**t + float(decay.sum())
        self._peak = max(self._peak * g**t, float((power.max(axis=(0, 1)) * decay).max()))

    def advance(self, frames: int) -> None:
        """Decay the statistics by a number of frames that were added to another object."""
        decay = self._forgetting**frames
        self._table.advance(frames)
        self._frames *= decay
        self._peak *= decay

    @classmethod
    def merge(cls, parts: Sequence[LevelStatistics]) -> LevelStatistics:
        """Add up several objects with the same layout and forgetting."""
        whole = cls(parts[0]._layout, forgetting=parts[0]._forgetting)
        for part in parts:
            whole._table.merge(part._table)
        whole._frames = sum(part._frames for part in parts)
        whole._peak = max(part._peak for part in parts)
        return whole

    @property
    def frames(self) -> float:
        """Number of frames, with forgetting."""
        return self._frames

    def floors_db(self, threshold: Threshold | None = None) -> Indices:
        """Return the level (D,) in whole dB that the bin of each cue must reach."""
        (counts, sums, _), layout = self._table.sums, self._layout
        phases = layout.cue_kinds != "ild"
        return _estimate_floors_db(
            counts, sums[:, phases], layout, self._peak, threshold or Threshold()
        )

    def statistics(self, threshold: Threshold | None = None) -> CueStatistics:
        """Return Q, R and E of the bins above their floors, given all frames so far."""
        return self.statistics_above(self.floors_db(threshold))

    def statistics_above(self, floors: Indices) -> CueStatistics:
        """Return Q, R and E of the bins above given floors (D,) in whole dB."""
        observed = np.arange(_N_LEVELS)[:, None] >= _level_rows(floors)
        counts, sums, squares = (self._table.sums * observed).sum(axis=1)
        return CueStatistics(counts, sums, squares, self._frames)


def _estimate_floors_db(
    counts: Array, phase_sums: Array, layout: CueLayout, peak: float, threshold: Threshold
) -> Indices:
    """Return the level (D,) in whole dB that the bin of each cue must reach.

    `counts` (levels, D) is how often the bin of each cue had each level, and `phase_sums` (levels,
    P) the sums of the cues of phases at that level. `peak` is the power of the strongest bin.
    """
    floors = np.full(layout.n_cues, threshold.floor_db(peak), dtype=np.intp)
    phases = np.flatnonzero(layout.cue_kinds != "ild")
    if not len(phases):
        return floors
    # Exclude digital silence (padding, a muted input), whose phase is meaningless.
    first = max(int(threshold.absolute_db) - LOWEST_DB, 0)
    cumulative = np.cumsum(counts[first:], axis=0)
    total = cumulative[-1]
    # (D,), rows above the first one
    quiet = np.argmax(cumulative >= NOISE_FLOOR.quiet_fraction * total, axis=0)
    n_quiet = np.maximum(cumulative[quiet[phases], phases], 1e-300)
    up_to_quiet = np.arange(len(cumulative))[:, None] <= quiet[phases]
    mean = (phase_sums[first:] * up_to_quiet).sum(axis=0) / n_quiet
    if np.hypot(*np.split(mean, 2)).mean() > NOISE_FLOOR.directional_coherence:
        return floors  # the quiet frames have a direction: a steady sound, or its decay
    # The powers of noise are exponentially distributed, which relates the quantile to the mean.
    to_mean_db = -10 * np.log10(-np.log(1 - NOISE_FLOOR.quiet_fraction))
    noise = np.where(total > 0, first + quiet, 0) + LOWEST_DB
    noise += np.ceil(to_mean_db + NOISE_FLOOR.margin_db).astype(np.intp)
    raised: Indices = np.maximum(floors, noise)
    below = np.maximum(_level_rows(raised) - first, 0)  # rows of levels below the floor
    n_below = np.where(below > 0, cumulative[below - 1, np.arange(len(below))], 0.0)
    if (total - n_below).sum() < NOISE_FLOOR.min_observed_fraction * total.sum():
        return floors  # nothing exceeds the noise: several steady sounds rather than noise
    return raised


def _level_rows(floors_db: Indices) -> Indices:
    """Return the first row of a level table that is above each floor (D,) in dB."""
    rows: Indices = np.clip(floors_db, LOWEST_DB, HIGHEST_DB) - LOWEST_DB
    return rows


class LevelHistogram:
    """Histogram of levels, sufficient for the floors; three times as fast as `LevelStatistics`."""

    def __init__(self, layout: CueLayout) -> None:
        self._layout = layout
        self._counts = np.zeros((_N_LEVELS, layout.n_frequencies))
        self._cos, self._sin = np.zeros((2, _N_LEVELS, len(layout.ipd_frequencies)))
        self._peak = 0.0

    def push(self, spectra: Spectra) -> None:
        """Add the frames of two-channel spectra (2, B, t)."""
        for part in frame_groups(spectra):
            self._add(part)

    def _add(self, spectra: Spectra) -> None:
        power = bin_power(spectra, self._layout.window).swapaxes(-1, -2)  # (2, t, F)
        self._peak = max(self._peak, float(power.max()))
        with np.errstate(divide="ignore"):
            level = np.log(power.min(axis=0))
        level *= 10 / np.log(10)
        rows = np.clip(np.floor(level, out=level), LOWEST_DB, HIGHEST_DB, out=level)
        rows = rows.astype(np.intp) - LOWEST_DB
        self._counts += _histogram(rows)
        band = self._layout.ipd_frequencies
        if len(band):
            left, right = (ear[band[0] + 1 : band[-1] + 2].T for ear in spectra)
            cross = right * left.conj()
            cross /= np.maximum(np.abs(cross), np.finfo(cross.real.dtype).tiny)
            band_rows = rows[:, band[0] : band[-1] + 1]
            self._cos += _histogram(band_rows, cross.real)
            self._sin += _histogram(band_rows, cross.imag)

    def floors_db(self, threshold: Threshold | None = None) -> Indices:
        """Return the level (D,) in whole dB that the bin of each cue must reach."""
        layout = self._layout
        counts = self._counts[:, layout.cue_frequencies]
        sums = np.hstack([self._cos, self._sin])
        return _estimate_floors_db(counts, sums, layout, self._peak, threshold or Threshold())


def _histogram(rows: Indices, weights: Array | None = None) -> Array:
    """Return the histogram (levels, F) of rows (t, F), optionally with weights (t, F)."""
    F = rows.shape[1]
    index = (rows * F + np.arange(F)).ravel()
    flat = None if weights is None else weights.ravel()
    return (
        np.bincount(index, weights=flat, minlength=_N_LEVELS * F)
        .reshape(_N_LEVELS, F)
        .astype(float)
    )
