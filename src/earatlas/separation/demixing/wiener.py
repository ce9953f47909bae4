"""Multichannel Wiener post-filter: source images from masks, steering vectors and powers.

Where both sources have similar steering vectors (at low frequencies, or on one cone of confusion),
the exact inverse A⁻¹ amplifies all model errors. Source m therefore has a full-rank covariance,

    v_m R_m,  R_m = a_m a_mᴴ + ε I        image of m = v_m R_m (Σ v R)⁻¹ x

Its power v lies between the estimates of masks and of demixing filters, and the diffuse-to-direct
ratio ε is estimated from the energy orthogonal to a_m in bins with a single active source; it is
small in anechoic and large in reverberant recordings. Recordings, moving sources, bands without
masks and streams all use these functions.

    c_m = q_m + u r_m                     q masks, r activity of the source in the last moments
    v_m = c_m |x|²                        more than two sources
    v_m = √(c_m (p_m + l)) |x|²           two sources; p their fractions after demixing by A⁻¹

    F, T, M       frequencies, frames, sources
    X (2, F, T)   spectra, each ear at unit level per frequency
    q, v, p (M, F, T)    r (M, 1, T)    A (F, 2, M)

References
----------
.. [1] N. Q. K. Duong, E. Vincent and R. Gribonval, "Under-determined reverberant audio source
   separation using a full-rank spatial covariance model", IEEE Trans. Audio, Speech, and Language
   Processing 18(7), 2010.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from earatlas.features.stft import squared_magnitude
from earatlas.numerics import moving_mean
from earatlas.separation.demixing.determined import SecondMoments
from earatlas.types import Array, Complex, Spectra

__all__ = [
    "SourceCovariances",
    "WienerSettings",
    "estimate_diffuse_to_direct",
    "multichannel_wiener_filter",
    "relative_activity",
    "source_activity",
    "source_powers",
]


# Evidence: docs/figures/settings/separation.md, "demixing.wiener".
@dataclass(frozen=True, slots=True)
class WienerSettings:
    """Settings of the source powers and of the diffuse-to-direct ratio."""

    mask_uncertainty: float = 0.1  # u: fraction of a bin an active source may have despite its mask
    filter_leakage: float = 0.02  # l: fraction of a bin that filters may assign to the wrong source
    activity_seconds: float = 0.25  # averaging time of the source activity
    single_source_quantile: float = 0.05  # best-fitting fraction of the bins of a source
    diffuse_scale: float = 16.0  # ε over the orthogonal energy of those bins, which fit best
    # Bounds of ε. A value near single precision (about 1e-7) would invert rounding errors.
    min_diffuse_to_direct: float = 1e-6
    max_diffuse_to_direct: float = 0.3
    max_hz: float = 1000.0  # ε is estimated below, where bins have a good signal-to-noise ratio
    underdetermined_diffuse_to_direct: float = 3e-3  # ε of more than two sources without estimate
    moving_diffuse_to_direct: float = 0.03  # ε of moving sources


def source_powers(
    moments: SecondMoments,
    q: Array,
    activity: Array,
    settings: WienerSettings,
    *,
    fractions: Array | None = None,
) -> Array:
    """Return the source powers v (M, F, T).

    Parameters
    ----------
    moments : SecondMoments
        Moments of the spectra.
    q : array of shape (M, F, T)
        Soft masks.
    activity : array that broadcasts to (M, F, T)
        Activity r of each source, from 0 to 1.
    settings : WienerSettings
        Uncertainty of masks and filters.
    fractions : array of shape (2, F, T), optional
        Fractions p of the demixed sources in each bin (`SecondMoments.power_fractions`); without
        them, the powers follow from the masks alone.

    Returns
    -------
    array of shape (M, F, T)
        Powers, above 0.
    """
    powers = q + settings.mask_uncertainty * activity
    if fractions is not None:
        powers = np.sqrt(powers * (fractions + settings.filter_leakage))
    powers *= moments.power
    powers += moments.floor
    return powers


def source_activity(q: Array, power: Array, frames: float) -> Array:
    """Return the activity (M, 1, T) of each source, averaged over a number of frames."""
    energy = moving_mean((q * power).sum(axis=1), max(round(frames), 1), axis=1)
    return relative_activity(energy)[:, None]


def relative_activity(energy: Array) -> Array:
    """Return the activity (M, …), from 0 to 1, of sources with recent energies (M, …)."""
    total = energy.sum(axis=0)
    fraction = energy / np.where(total > 0, total, 1.0)
    # 10 % of the energy counts as fully active; 1 % may be leakage of the masks.
    activity: Array = np.clip((fraction - 0.01) / 0.09, 0.0, 1.0)
    return activity


def estimate_diffuse_to_direct(
    moments: SecondMoments,
    A: Complex,
    fractions: Array,
    settings: WienerSettings,
    *,
    quantile: float = 0.5,
) -> float:
    """Estimate ε from bins with a single active source.

    `fractions` (M, F, T) are the fractions of the sources in the power of each bin. The estimate is
    a quantile over sources and frequencies of the orthogonal energy of the best-fitting bins.
    """
    orthogonal = np.where(fractions > 0.5, moments.orthogonal_fraction(A), 1)
    counts = np.maximum((orthogonal < 1).sum(axis=2), 1)
    rank = (settings.single_source_quantile * (counts - 1)).astype(np.intp)
    best = np.take_along_axis(np.sort(orthogonal, axis=2), rank[..., None], axis=2)
    ratio = settings.diffuse_scale * float(np.quantile(best, quantile))
    return min(max(ratio, settings.min_diffuse_to_direct), settings.max_diffuse_to_direct)


def multichannel_wiener_filter(
    X: Spectra, A: Complex, v: Array, diffuse_to_direct: float
) -> Complex:
    """Estimate the source images v_m R_m (Σ v R)⁻¹ x by a multichannel Wiener filter.

    Where the steering vectors differ, the filter cancels the interferer; where they are similar, it
    acts like a time-frequency mask.

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
    # 64 frequencies at once stay in the cache, which is twice as fast; few frames need no blocks.
    count = max(64, 4096 // max(X.shape[2], 1))
    for first in range(0, X.shape[1], count):
        rows = slice(first, first + count)
        x, out = X[:, rows], images[:, :, rows]
        R = SourceCovariances.from_steering_vectors(A[rows].astype(X.dtype), diffuse_to_direct)
        left, right = R.whiten(x, R.inverse(v[:, rows]))
        own = v[:-1, rows]
        out[:-1, 0] = own * (R.R00[:-1] * left + R.R01[:-1] * right)
        out[:-1, 1] = own * (R.R01[:-1].conj() * left + R.R11[:-1] * right)
        out[-1] = x - out[:-1].sum(axis=0)
    return images


@dataclass(frozen=True, eq=False, slots=True)
class SourceCovariances:
    """The covariances R_m = a_m a_mᴴ + ε I (2, 2) of all sources, by their entries."""

    a: Complex  # (M, F, 1) left ear of the steering vectors
    b: Complex  # (M, F, 1) right ear
    diffuse_to_direct: float  # ε
    R00: Array  # (M, F, 1)
    R11: Array  # (M, F, 1)
    R01: Complex  # (M, F, 1)

    @classmethod
    def from_steering_vectors(cls, A: Complex, diffuse_to_direct: float) -> SourceCovariances:
        """Return the covariances of steering vectors (F, 2, M), in their precision."""
        a, b = A[:, 0].T[..., None], A[:, 1].T[..., None]
        R00, R11 = (squared_magnitude(ear) + diffuse_to_direct for ear in (a, b))
        return cls(a, b, diffuse_to_direct, R00, R11, a * b.conj())

    def at(self, rows: slice) -> SourceCovariances:
        """Return the covariances at some frequencies."""
        R00, R11, R01 = self.R00[:, rows], self.R11[:, rows], self.R01[:, rows]
        return SourceCovariances(
            self.a[:, rows], self.b[:, rows], self.diffuse_to_direct, R00, R11, R01
        )

    def inverse(self, v: Array) -> tuple[Array, Array, Complex]:
        """Return the entries 00, 11 and 01 (F, T) of S⁻¹, where S = Σ_m v_m R_m."""
        S00, S11, S01 = (_weighted_sum(v, R) for R in (self.R00, self.R11, self.R01))
        scale = 1 / self._determinant(v)
        return scale * S11, scale * S00, -scale * S01

    @staticmethod
    def whiten(X: Spectra, inverse: tuple[Array, Array, Complex]) -> tuple[Complex, Complex]:
        """Return both ears (F, T) of y = S⁻¹ x."""
        P00, P11, P01 = inverse
        return P00 * X[0] + P01 * X[1], P11 * X[1] + P01.conj() * X[0]

    def _determinant(self, v: Array) -> Array:
        """Return the determinant (F, T) of S.

        It is computed as a sum of squares. The form S_00 S_11 - |S_01|² cancels to 0 in single
        precision where all steering vectors are alike, and the filter would then return NaN.
        """
        a, b, diffuse = self.a, self.b, self.diffuse_to_direct * v.sum(axis=0)
        squares: Array = diffuse * (
            _weighted_sum(v, squared_magnitude(a) + squared_magnitude(b)) + diffuse
        )
        for m, n in combinations(range(len(v)), 2):
            squares += v[m] * v[n] * squared_magnitude(a[m] * b[n] - a[n] * b[m])
        return squares


def _weighted_sum(v: Array, R: Array | Complex) -> Any:
    """Return Σ_m v_m R_m (F, T) without storing all products at once."""
    total = v[0] * R[0]
    for power, r in zip(v[1:], R[1:], strict=True):
        total += power * r
    return total
