"""The algebra of two ears: how sources reach them, and filters from that; a frequency at a time.

    X (2, F, T) spectra    v (M, F, T) powers    R (M, F, 2, 2) covariances
    A (F, 2, M) columns of length 1: how source m reaches the ears

`earatlas.separation.demixing.spatial_filtering` says what it is for; a live stream uses the same steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from earatlas.features.stft import squared_size
from earatlas.separation.demixing.matrices_2x2 import (
    determinant,
    inverse,
    principal_axis,
    shared_columns,
)
from earatlas.types import Array, Complex, Spectra

__all__ = [
    "Moments",
    "apart",
    "beside",
    "columns_of",
    "columns_of_pair",
    "covariances",
    "pair",
    "powers",
    "principal",
    "smoothed",
    "spread_determinant",
    "wiener",
]


# Frequencies of a filter at once, so that they stay in the cache: twice as fast. Of a frame or two
# all of them do.
_ROWS, _FEW_BINS = 64, 4096


@dataclass(frozen=True, eq=False)
class Moments:
    """|l|², |r|², and the real and imaginary part of l r* of every bin x = (l, r).

    Powers and covariances are linear in these: four real numbers a bin, found once.
    """

    values: Array  # (F, 4, T), in the precision of X

    @classmethod
    def of(cls, X: Spectra) -> Moments:
        """Of spectra (2, F, T)."""
        left, right = X
        cross = left * right.conj()
        return cls(
            np.stack([squared_size(left), squared_size(right), cross.real, cross.imag], axis=1)
        )

    def covariances(self, weights: Array) -> Complex:
        """Σ_t w x xᴴ (M, F, 2, 2) for weights (M, F, T)."""
        sums = np.matmul(self.values, weights.transpose(1, 2, 0))  # (F, 4, M)
        left, right, real, imaginary = sums.transpose(1, 2, 0)
        out = np.empty((*left.shape, 2, 2), dtype=np.complex128)
        out[..., 0, 0], out[..., 1, 1] = left, right
        out[..., 0, 1] = real + 1j * imaginary
        out[..., 1, 0] = out[..., 0, 1].conj()
        return out

    def powers(self, A: Complex) -> Array:
        """Of the images a_m y_m, y = A⁻¹ x: (2, F, T)."""
        W = inverse(A.astype(np.complex128))  # (F, M, 2)
        across = 2 * W[..., 0] * W[..., 1].conj()
        parts = [squared_size(W[..., 0]), squared_size(W[..., 1]), across.real, -across.imag]
        lengths = squared_size(A).sum(axis=1)  # (F, M)
        coefficients = np.stack(parts, axis=2) * lengths[..., None]
        found = np.matmul(coefficients.astype(self.values.dtype), self.values)
        # What cancels leaves rounding on either side of zero.
        powers: Array = np.maximum(found, 0, out=found).swapaxes(0, 1)
        return powers


def covariances(X: Spectra, weights: Array) -> Complex:
    """Σ_t w x xᴴ (M, F, 2, 2)."""
    return Moments.of(X).covariances(weights)


def principal(R: Complex) -> Complex:
    """The strongest direction of covariances (M, F, 2, 2), as columns (F, 2, M)."""
    return principal_axis(R).transpose(1, 2, 0)


def beside(X: Spectra, A: Complex) -> Array:
    """What of each bin is beside each source's column: (M, F, T), from 0 to 1; 1 in silence."""
    power = squared_size(X).sum(axis=0)
    inverse_power = 1 / np.where(power > 0, power, 1.0)
    columns = A.conj().astype(X.dtype)
    left = np.empty((A.shape[2], *power.shape), dtype=power.dtype)
    for m, out in enumerate(left):
        along = columns[:, 0, m, None] * X[0]
        along += columns[:, 1, m, None] * X[1]
        np.multiply(squared_size(along), inverse_power, out=out)
    np.subtract(1, left, out=left)
    return np.clip(left, 0, 1, out=left)


def apart(A: Complex) -> Complex:
    """Columns that can be inverted: where two sources are the same, an ear each."""
    same = np.abs(determinant(A)) < 1e-6
    columns: Complex = np.where(same[:, None, None], np.eye(2), A)
    return columns


def powers(X: Spectra, A: Complex) -> Array:
    """Of the images a_m y_m, y = A⁻¹ x: (2, F, T)."""
    return Moments.of(X).powers(A)


def smoothed(v: Array, size: tuple[int, int], floor: float) -> Array:
    """Powers (M, F, T) averaged over bins and frames, each frequency at its own level."""
    from scipy.ndimage import uniform_filter

    level = v.mean(axis=2, keepdims=True) + floor
    smooth = np.empty(v.shape, dtype=v.dtype)
    for row, own, out in zip(v, level, smooth, strict=True):
        uniform_filter(row / own, size, output=out)
    smooth *= level
    smooth += floor
    return smooth


def pair(X: Spectra, v: Array) -> Complex:
    """The columns (F, 2, 2) that make two sources of powers v (2, F, T) most probable."""
    return columns_of(Moments.of(X), v)


def columns_of(moments: Moments, v: Array) -> Complex:
    """The same from second moments."""
    return columns_of_pair(moments.covariances(1 / v) / v.shape[-1])


def columns_of_pair(V: Complex) -> Complex:
    """The same from covariances (2, F, 2, 2) of frames over the powers of either source."""
    # Powers are in units of v: the loading is far below any sound, and keeps silence regular.
    V = V + (1e-9 * np.trace(V, axis1=-2, axis2=-1).real[..., None, None] + 1e-12) * np.eye(2)
    # wᴴ V_1 w is least where source 1 passes: its filter has the smallest ratio, 2 the largest.
    return shared_columns(V[0], V[1])


def wiener(X: Spectra, A: Complex, v: Array, spread: float) -> Complex:
    """v_m R_m (Σ v R)⁻¹ x with R_m = a_m a_mᴴ + ε I: images (M, 2, F, T) that sum to x."""
    images = np.empty((len(v), *X.shape), dtype=X.dtype)
    count = max(_ROWS, _FEW_BINS // max(X.shape[2], 1))
    for first in range(0, X.shape[1], count):
        rows = slice(first, first + count)
        _wiener_rows(X[:, rows], A[rows].astype(X.dtype), v[:, rows], spread, images[:, :, rows])
    return images


def _wiener_rows(X: Spectra, A: Complex, v: Array, spread: float, images: Complex) -> None:
    """The same for a few frequencies, into their place."""
    a, b = A[:, 0].T[..., None], A[:, 1].T[..., None]  # (M, F, 1)
    R00, R11 = (
        squared_size(a) + a.real.dtype.type(spread),
        squared_size(b) + b.real.dtype.type(spread),
    )
    R01 = a * b.conj()
    S00, S11, S01 = ((v * R).sum(axis=0) for R in (R00, R11, R01))
    scale = 1 / spread_determinant(a, b, v, spread)
    left = scale * (S11 * X[0] - S01 * X[1])  # S⁻¹ x
    right = scale * (S00 * X[1] - S01.conj() * X[0])
    images[:-1, 0] = v[:-1] * (R00[:-1] * left + R01[:-1] * right)
    images[:-1, 1] = v[:-1] * (R01[:-1].conj() * left + R11[:-1] * right)
    images[-1] = X - images[:-1].sum(axis=0)


def spread_determinant(a: Complex, b: Complex, v: Array, spread: float) -> Array:
    """Of Σ v (a aᴴ + ε I), columns (a, b) (M, F, 1): a sum of squares, so nothing cancels.

    As S_00 S_11 - |S_01|² it was 0 in single precision where all columns are alike: one sound that
    is louder in one ear became NaN.
    """
    total = v.sum(axis=0)
    size = (v * (squared_size(a) + squared_size(b))).sum(axis=0)
    squares: Array = spread * total * (size + spread * total)
    for m, n in combinations(range(len(v)), 2):
        squares += v[m] * v[n] * squared_size(a[m] * b[n] - a[n] * b[m])
    return squares
