"""The E-W step: the probability that a time-frequency bin belongs to each source.

Input: the moments of the cues of M sources, the noise variances and the mixing weights. Output: the
responsibilities of the sources for observed bins, or the masks of all bins of a spectrogram. VESSL,
the masks along trajectories and the masks of a stream all use these functions.

    q_mn ∝ λ_mc exp E[log p(y_n | s_m)]
    E[log p(y_n | s_m)] = Σ_d -½ (log 2π v_d + (y_d² - 2 y_d E[s_md] + E[s_md²]) / v_d)

    q_mn (M, N)    responsibility of source m for bin n     λ_mc (M, cells)  mixing weights, cell c
    y_d            level and phase cues d of a bin          s_md (M, D)      cues of source m
    v_d (D,)       noise variance of the cues of a bin
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.features.stft import squared_magnitude
from earatlas.features.tf_bins import ObservedBins
from earatlas.types import Array, Indices, Single, Spectra

__all__ = ["CueDensities", "WeightCells", "dense_masks", "responsibilities"]


def responsibilities(log_joint: Array | Single) -> tuple[Array, Array]:
    """Return q (M, ...), which sums to 1 over the sources, and log Σ_m λ_m p_m (...).

    `log_joint` (M, ...) is log λ_m + E[log p(y | s_m)].
    """
    top = log_joint.max(axis=0)
    q = log_joint - top
    np.exp(q, out=q)
    total = q.sum(axis=0)
    q /= total
    return q, top + np.log(total)


@dataclass(frozen=True, eq=False, slots=True)
class CueDensities:
    """E[log p(y | s_m)] = Σ_d square_md y_d² + linear_md y_d + constant_md for M sources."""

    square: Array  # (M, D)
    linear: Array  # (M, D)
    constant: Array  # (M, D)

    @classmethod
    def from_moments(cls, cues: Array, squares: Array, v: Array) -> CueDensities:
        """Return the densities for E[s] and E[s²] (M, D) and noise variances v (D,)."""
        constant = -0.5 * (np.log(2 * np.pi * v) + squares / v)
        return cls(np.broadcast_to(-0.5 / v, cues.shape), cues / v, constant)

    def of_bins(self, bins: ObservedBins) -> Array:
        """Return E[log p(y_n | s_m)] (M, N) of observed bins."""
        return bins.quadratic(self.square, self.linear, self.constant)

    def of_spectra(self, X: Spectra, layout: CueLayout, log_weights: Single) -> Single:
        """Return log λ + E[log p(y_ft | s_m)] (M, F, t) of all bins of X (2, F, t).

        All arrays have single precision, and `log_weights` the shape of the result. The power of X
        must be relative to the loudest bin. If one ear is silent, the cosine and the sine of the
        phase are 0, which favours no source.
        """
        # Without the floor, a silent ear would divide by zero.
        left, right = (power + np.float32(1e-30) for power in squared_magnitude(X))
        ild, ipd = (_band_slice(f) for f in (layout.ild_frequencies, layout.ipd_frequencies))
        cross = X[1, ipd] * X[0, ipd].conj()
        size = 1 / (np.sqrt(left[ipd]) * np.sqrt(right[ipd]))
        level = 10 * np.log10(right[ild] / left[ild])
        logs = log_weights.copy()
        cue = 0
        for band, y in ((ild, level), (ipd, cross.real * size), (ipd, cross.imag * size)):
            square, linear, constant = (
                coefficient[:, cue : cue + len(y), None].astype(np.float32)
                for coefficient in (self.square, self.linear, self.constant)
            )
            logs[:, band] += (square * y + linear) * y + constant
            cue += len(y)
        return logs


def _band_slice(frequencies: Indices) -> slice:
    """Return the slice of a contiguous band of frequencies."""
    return slice(int(frequencies[0]), int(frequencies[-1]) + 1) if len(frequencies) else slice(0)


@dataclass(frozen=True, slots=True)
class WeightCells:
    """Cells whose bins share mixing weights: one of `bands` bands of a frame.

    With `bands` None a cell is a frequency (the paper).
    """

    n_frequencies: int  # F
    frames: int  # T
    bands: int | None

    def __len__(self) -> int:
        return self.n_frequencies if self.bands is None else self.frames * self.bands

    def of(self, f: Indices, t: Indices) -> Indices:
        """Return the cells of the bins (f, t), which are broadcast."""
        if self.bands is None:
            return np.broadcast_arrays(f, t)[0]
        return t * self.bands + f * self.bands // self.n_frequencies

    def mean(self, q: Array, cell: Indices, prior_bins: float) -> Array:
        """Return λ (M, cells): the mean of q (M, N) per cell, with a prior at uniform weights."""
        counts = [np.bincount(cell, row, len(self)) for row in q]
        total = np.array(counts, dtype=np.float64) + prior_bins
        sums = total.sum(axis=0)
        return np.where(sums > 0, total / np.where(sums > 0, sums, 1.0), 1.0 / len(q))


def dense_masks(
    densities: Sequence[CueDensities],
    starts: Indices,
    cells: WeightCells,
    mixing_weights: Array,
    spectra: Spectra,
    layout: CueLayout,
) -> Array:
    """Return the masks (M, F, T) of all bins of spectra (2, B, T), observed or not.

    The cues of the sources have the s-th of `densities` in the frames from the s-th of `starts` on.
    Computed a few frames at a time and in single precision, which is five times as fast as
    `CueDensities.of_bins` with a list of all bins.
    """
    F, T = cells.n_frequencies, spectra.shape[-1]
    masks = np.empty((len(mixing_weights), F, T))
    scale = float(max(np.abs(spectra.real).max(), np.abs(spectra.imag).max())) or 1.0
    log_weights = np.log(np.maximum(mixing_weights, 1e-30)).astype(np.float32)
    for density, (begin, end) in zip(densities, pairwise([*starts.tolist(), T]), strict=True):
        for first in range(begin, end, 64):  # 64 frames fit the cache
            part = slice(first, min(first + 64, end))
            X: Spectra = np.ascontiguousarray(spectra[:, 1:, part] / scale).astype(np.complex64)
            cell = cells.of(np.arange(F)[:, None], np.arange(part.start, part.stop))
            logs = density.of_spectra(X, layout, log_weights[:, cell])
            masks[..., part], _ = responsibilities(logs)
    return masks
