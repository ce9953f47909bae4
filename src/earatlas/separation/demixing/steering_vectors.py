"""Steering vectors of sources at two ears, and the multichannel Wiener filter made from them.

    X (2, F, T) spectra    v (M, F, T) source powers    R (M, F, 2, 2) spatial covariances
    A (F, 2, M) steering vectors (relative transfer functions) a_m of unit length
    ε           diffuse-to-direct ratio: source m has the covariance v_m (a_m a_mᴴ + ε I)

All operations are per frequency. `earatlas.separation.demixing.spatial_filtering` describes the
method; the online demixer of `earatlas.streaming` uses the same functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from earatlas.features.stft import squared_magnitude
from earatlas.separation.demixing.matrices_2x2 import (
    determinant,
    inverse,
    joint_diagonalizer,
    principal_eigenvector,
)
from earatlas.types import Array, Complex, Spectra

__all__ = [
    "SecondMoments",
    "diffuse_determinant",
    "image_powers",
    "multichannel_wiener_filter",
    "orthogonal_fraction",
    "principal_steering_vectors",
    "regularize_collinear",
    "smooth_powers",
    "steering_vectors_from_covariances",
    "steering_vectors_from_moments",
    "weighted_covariances",
]


# Evidence: docs/figures/settings/separation.md, "demixing.steering_vectors".
# Frequencies per chunk of the Wiener filter, chosen to fit the cache, and the number of bins up to
# which all frequencies are processed at once.
_ROWS_PER_CHUNK, _BINS_AT_ONCE = 64, 4096


@dataclass(frozen=True, eq=False)
class SecondMoments:
    """|l|², |r|², and the real and imaginary part of l r* of every bin x = (l, r).

    Image powers and spatial covariances are linear in these four real numbers per bin, which are
    computed once.
    """

    values: Array  # (F, 4, T), in the precision of X

    @classmethod
    def from_spectra(cls, X: Spectra) -> SecondMoments:
        """Compute the moments of spectra (2, F, T)."""
        left, right = X
        cross = left * right.conj()
        return cls(
            np.stack(
                [squared_magnitude(left), squared_magnitude(right), cross.real, cross.imag], axis=1
            )
        )

    def covariances(self, weights: Array) -> Complex:
        """Return Σ_t w x xᴴ (M, F, 2, 2) for weights w (M, F, T)."""
        sums = np.matmul(self.values, weights.transpose(1, 2, 0))  # (F, 4, M)
        left, right, real, imaginary = sums.transpose(1, 2, 0)
        out = np.empty((*left.shape, 2, 2), dtype=np.complex128)
        out[..., 0, 0], out[..., 1, 1] = left, right
        out[..., 0, 1] = real + 1j * imaginary
        out[..., 1, 0] = out[..., 0, 1].conj()
        return out

    def powers(self, A: Complex) -> Array:
        """Return the powers (2, F, T) of the source images a_m y_m, where y = A⁻¹ x."""
        W = inverse(A.astype(np.complex128))  # (F, M, 2)
        cross = 2 * W[..., 0] * W[..., 1].conj()
        terms = [
            squared_magnitude(W[..., 0]),
            squared_magnitude(W[..., 1]),
            cross.real,
            -cross.imag,
        ]
        lengths = squared_magnitude(A).sum(axis=1)  # (F, M)
        coefficients = np.stack(terms, axis=2) * lengths[..., None]
        powers = np.matmul(coefficients.astype(self.values.dtype), self.values)
        # Rounding may leave small negative values where the terms cancel.
        nonnegative: Array = np.maximum(powers, 0, out=powers).swapaxes(0, 1)
        return nonnegative


def weighted_covariances(X: Spectra, weights: Array) -> Complex:
    """Return Σ_t w x xᴴ (M, F, 2, 2) of spectra X (2, F, T) for weights w (M, F, T)."""
    return SecondMoments.from_spectra(X).covariances(weights)


def principal_steering_vectors(R: Complex) -> Complex:
    """Return the principal eigenvectors of covariances (M, F, 2, 2) as A (F, 2, M)."""
    return principal_eigenvector(R).transpose(1, 2, 0)


def orthogonal_fraction(X: Spectra, A: Complex) -> Array:
    """Return 1 - |a_mᴴ x|² / |x|² (M, F, T): the energy of a bin orthogonal to a steering vector.

    Values are from 0 (the bin lies on the steering vector) to 1 (orthogonal, or silent).
    """
    power = squared_magnitude(X).sum(axis=0)
    inverse_power = 1 / np.where(power > 0, power, 1.0)
    conjugate = A.conj().astype(X.dtype)
    fraction = np.empty((A.shape[2], *power.shape), dtype=power.dtype)
    for m, out in enumerate(fraction):
        projection = conjugate[:, 0, m, None] * X[0]
        projection += conjugate[:, 1, m, None] * X[1]
        np.multiply(squared_magnitude(projection), inverse_power, out=out)
    np.subtract(1, fraction, out=fraction)
    return np.clip(fraction, 0, 1, out=fraction)


def regularize_collinear(A: Complex) -> Complex:
    """Replace collinear pairs of steering vectors (F, 2, 2) by the identity, so A is invertible."""
    collinear = np.abs(determinant(A)) < 1e-6
    regular: Complex = np.where(collinear[:, None, None], np.eye(2), A)
    return regular


def image_powers(X: Spectra, A: Complex) -> Array:
    """Return the powers (2, F, T) of the source images a_m y_m, where y = A⁻¹ x."""
    return SecondMoments.from_spectra(X).powers(A)


def smooth_powers(v: Array, size: tuple[int, int], floor: float) -> Array:
    """Average powers (M, F, T) over `size` bins and frames, relative to each frequency's level."""
    from scipy.ndimage import uniform_filter

    level = v.mean(axis=2, keepdims=True) + floor
    smooth = np.empty(v.shape, dtype=v.dtype)
    for power, own_level, out in zip(v, level, smooth, strict=True):
        uniform_filter(power / own_level, size, output=out)
    smooth *= level
    smooth += floor
    return smooth


def steering_vectors_from_moments(moments: SecondMoments, v: Array) -> Complex:
    """Return the maximum-likelihood steering vectors (F, 2, 2) for source powers v (2, F, T)."""
    return steering_vectors_from_covariances(moments.covariances(1 / v) / v.shape[-1])


def steering_vectors_from_covariances(V: Complex) -> Complex:
    """Return the maximum-likelihood steering vectors (F, 2, 2) from weighted covariances.

    V (2, F, 2, 2) holds Σ_t x xᴴ / v_m of both sources. The demixing filters are the generalized
    eigenvectors of the pair (iterative projection, as in AuxIVA and ILRMA).
    """
    # Powers are in units of v, so this loading is far below any signal; it keeps silence regular.
    V = V + (1e-9 * np.trace(V, axis1=-2, axis2=-1).real[..., None, None] + 1e-12) * np.eye(2)
    # The filter that passes source 1 minimizes wᴴ V_1 w: it has the smaller generalized eigenvalue.
    return joint_diagonalizer(V[0], V[1])


def multichannel_wiener_filter(
    X: Spectra, A: Complex, v: Array, diffuse_to_direct: float
) -> Complex:
    """Estimate the source images by a multichannel Wiener filter.

    Source m has the spatial covariance v_m R_m with R_m = a_m a_mᴴ + ε I, and its image is
    v_m R_m (Σ v R)⁻¹ x. Where the steering vectors differ, the filter cancels the interferer; where
    they are similar, it acts like a time-frequency mask.

    Parameters
    ----------
    X : complex array of shape (2, F, T)
        Spectra of the mixture.
    A : complex array of shape (F, 2, M)
        Steering vectors of unit length.
    v : array of shape (M, F, T)
        Source powers, above 0.
    diffuse_to_direct : float
        Diffuse-to-direct ratio ε, above 0.

    Returns
    -------
    complex array of shape (M, 2, F, T)
        Source images, which sum to X.

    References
    ----------
    .. [1] N. Q. K. Duong, E. Vincent and R. Gribonval, "Under-determined reverberant audio source
       separation using a full-rank spatial covariance model", IEEE Trans. Audio, Speech, and
       Language Processing 18(7), 2010.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2, 3, 4)) + 1j * rng.normal(size=(2, 3, 4))
    >>> A = np.broadcast_to(np.array([[0.8, 0.6], [0.6, -0.8]]), (3, 2, 2))
    >>> images = multichannel_wiener_filter(X, A, rng.random((2, 3, 4)) + 0.1, 0.01)
    >>> bool(np.allclose(images.sum(axis=0), X))
    True
    """
    images = np.empty((len(v), *X.shape), dtype=X.dtype)
    count = max(_ROWS_PER_CHUNK, _BINS_AT_ONCE // max(X.shape[2], 1))
    for first in range(0, X.shape[1], count):
        rows = slice(first, first + count)
        _wiener_rows(
            X[:, rows], A[rows].astype(X.dtype), v[:, rows], diffuse_to_direct, images[:, :, rows]
        )
    return images


def _wiener_rows(
    X: Spectra, A: Complex, v: Array, diffuse_to_direct: float, images: Complex
) -> None:
    """Write the images of some frequencies to `images` (M, 2, F, T)."""
    a, b = A[:, 0].T[..., None], A[:, 1].T[..., None]  # (M, F, 1)
    R00, R11 = (
        squared_magnitude(a) + a.real.dtype.type(diffuse_to_direct),
        squared_magnitude(b) + b.real.dtype.type(diffuse_to_direct),
    )
    R01 = a * b.conj()
    S00, S11, S01 = ((v * R).sum(axis=0) for R in (R00, R11, R01))
    scale = 1 / diffuse_determinant(a, b, v, diffuse_to_direct)
    left = scale * (S11 * X[0] - S01 * X[1])  # S⁻¹ x
    right = scale * (S00 * X[1] - S01.conj() * X[0])
    images[:-1, 0] = v[:-1] * (R00[:-1] * left + R01[:-1] * right)
    images[:-1, 1] = v[:-1] * (R01[:-1].conj() * left + R11[:-1] * right)
    images[-1] = X - images[:-1].sum(axis=0)


def diffuse_determinant(a: Complex, b: Complex, v: Array, diffuse_to_direct: float) -> Array:
    """Return the determinant (F, T) of Σ v (a aᴴ + ε I) for steering vectors (a, b) (M, F, 1).

    It is computed as a sum of squares. The form S_00 S_11 - |S_01|² cancels to 0 in single
    precision where all steering vectors are alike, and the filter would then return NaN.
    """
    total = v.sum(axis=0)
    size = (v * (squared_magnitude(a) + squared_magnitude(b))).sum(axis=0)
    squares: Array = diffuse_to_direct * total * (size + diffuse_to_direct * total)
    for m, n in combinations(range(len(v)), 2):
        squares += v[m] * v[n] * squared_magnitude(a[m] * b[n] - a[n] * b[m])
    return squares
