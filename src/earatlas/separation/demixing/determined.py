"""Demixing filters of two sources at two ears (a determined mixture): AuxIVA with masks.

Input: spectra of both ears, as second moments, and soft masks of two sources. Output: the steering
vectors of the sources at every frequency, in one order. The same equations serve recordings
(`earatlas.separation.demixing.rendering`) and streams (`earatlas.streaming.online_steering`); a
stream adds the covariances of older frames (`past`).

    x_ft = Σ_m a_mf y_mft         y = A⁻¹ x, image of source m = a_m y_m
    1. a_m ← principal eigenvector of Σ_t q_m² x xᴴ
    2. v_m ← smoothed power of a_m y_m
       V_m = Σ_t x xᴴ / v_m + past_m
       A⁻¹ ← generalized eigenvectors of (V_1, V_2)                        iterative projection
    3. swap the sources where the masks and all frequencies together require it, and repeat 2

Step 2 is the maximum-likelihood estimate for sources with time-varying powers, as in AuxIVA [1]_
and ILRMA [2]_. Powers are smoothed over many frequencies at first, which keeps the frequencies of a
source together, then over few. Step 3 is `permutation_alignment`.

    F, T, M       frequencies without 0 Hz, frames, sources
    X (2, F, T)   spectra, each ear at unit level per frequency
    q (M, F, T)   masks            v (M, F, T)   source powers
    A (F, 2, M)   steering vectors (relative transfer functions) a_m of unit length
    V (2, F, 2, 2) weighted covariances

Frequencies above the band of the head model have no masks. There the envelope of the powers is that
of the frequencies below, and the order is not changed.

References
----------
.. [1] N. Ono, "Stable and fast update rules for independent vector analysis based on auxiliary
   function technique", WASPAA 2011.
.. [2] D. Kitamura, N. Ono, H. Sawada, H. Kameoka and H. Saruwatari, "Determined blind source
   separation unifying independent vector analysis and nonnegative matrix factorization", IEEE/ACM
   Trans. Audio, Speech, and Language Processing 24(9), 2016.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from earatlas.features.stft import squared_magnitude
from earatlas.numerics import moving_mean
from earatlas.parts import Parts
from earatlas.separation.demixing.permutation_alignment import (
    FINE_PERMUTATION,
    ExpectedCues,
    PermutationSettings,
    align_permutation,
)
from earatlas.types import Array, Complex, Mask, Spectra

__all__ = [
    "REVERBERANT_SMOOTHING",
    "DemixingSettings",
    "SecondMoments",
    "determinant",
    "estimate_pair",
    "inverse",
    "iterative_projection",
    "joint_diagonalizer",
    "normalize_levels",
    "principal_eigenvector",
    "principal_steering_vectors",
    "regularize_collinear",
    "smooth_powers",
    "steering_vectors_from_covariances",
]

_Sizes = Sequence[tuple[int, int]]


# Evidence: docs/figures/settings/separation.md, "demixing.determined".
@dataclass(frozen=True, slots=True)
class DemixingSettings:
    """Settings of `estimate_pair`; the defaults are those of anechoic recordings."""

    # Bins and frames over which powers are averaged, one entry per iteration: before and after
    # permutation alignment.
    first_smoothing: _Sizes = ((65, 1), (65, 1), (5, 1), (5, 1))
    second_smoothing: _Sizes = ((5, 1), (5, 1))
    alignments: int = 1  # rounds of permutation alignment and second iterations
    permutation: PermutationSettings = FINE_PERMUTATION


# The first smoothing of reverberant recordings and streams.
REVERBERANT_SMOOTHING: _Sizes = ((65, 3), (65, 3), (5, 5), (5, 5))


def normalize_levels(X: Spectra) -> tuple[Spectra, Array]:
    """Return spectra (2, F, T) with unit RMS per ear and frequency, and the levels (2, F, 1).

    A diffuse sound then has the same power in both ears at every frequency.
    """
    levels = np.sqrt(squared_magnitude(X).mean(axis=2, keepdims=True))
    levels = np.maximum(levels, 1e-6 * float(levels.max()))
    return X / levels, levels


@dataclass(frozen=True, eq=False)
class SecondMoments:
    """|l|², |r|², and the real and imaginary part of l r* of every bin x = (l, r).

    Image powers, spatial covariances and the distance of a bin from a steering vector are linear in
    these four real numbers per bin, which are computed once.
    """

    values: Array  # (F, 4, T), in the precision of X
    max_power: float | None = None  # of the strongest bin of all, if these bins are a part of them

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

    @property
    def n_bins(self) -> int:
        """Number of bins F T: the cost of a computation with all of them."""
        F, _, T = self.values.shape
        return int(F * T)

    @cached_property
    def power(self) -> Array:
        """Power (F, T) of each bin, summed over both ears."""
        power: Array = self.values[:, 0] + self.values[:, 1]
        return power

    @cached_property
    def floor(self) -> float:
        """A power that is negligible against the strongest bin; avoids division by 0 in silence."""
        max_power = float(self.power.max()) if self.max_power is None else self.max_power
        return 1e-9 * max_power + 1e-30

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
        W = inverse(A.astype(np.complex128))
        return self._projected_powers(W, squared_magnitude(A).sum(axis=1))

    def filtered_powers(self, H: Complex) -> Array:
        """Return the powers (F, T) of the signals of both ears behind filters H (F, 2, 2)."""
        powers: Array = self._projected_powers(H, np.ones(H.shape[:2])).sum(axis=0)
        return powers

    def power_fractions(self, A: Complex) -> Array:
        """Return the fraction (2, F, T) of each source image in the sum of their powers."""
        v = self.powers(A)
        fractions: Array = v / (v.sum(axis=0) + self.floor)
        return fractions

    def orthogonal_fraction(self, A: Complex) -> Array:
        """Return 1 - |a_mᴴ x|² / |x|² (M, F, T): the energy of a bin orthogonal to a unit vector.

        Values are from 0 (the bin lies on the steering vector) to 1 (orthogonal, or silent).
        """
        orthogonal = np.stack([-A[:, 1], A[:, 0]], axis=2)  # (F, M, 2), the row of 1 - a aᴴ
        energies = self._projected_powers(orthogonal, np.ones((len(A), A.shape[2])))
        fraction = np.divide(energies, self.power, out=np.ones_like(energies), where=self.power > 0)
        return np.minimum(fraction, 1, out=fraction)

    def _projected_powers(self, W: Complex, scale: Array) -> Array:
        """Return scale_fm |w_fmᵀ x|² (M, F, T) for W (F, M, 2) and scale (F, M)."""
        cross = 2 * W[..., 0] * W[..., 1].conj()
        terms = [
            squared_magnitude(W[..., 0]),
            squared_magnitude(W[..., 1]),
            cross.real,
            -cross.imag,
        ]
        coefficients = np.stack(terms, axis=2) * scale[..., None]  # (F, M, 4)
        powers = np.matmul(coefficients.astype(self.values.dtype), self.values)
        # Rounding may leave small negative values where the terms cancel.
        nonnegative: Array = np.maximum(powers, 0, out=powers).swapaxes(0, 1)
        return nonnegative


def estimate_pair(
    moments: SecondMoments,
    q: Array,
    frequencies_hz: Array,
    settings: DemixingSettings,
    *,
    initial: Complex | None = None,
    expected: ExpectedCues | None = None,
    prior: Complex | float = 0.0,
    alignment_cost: float = 0.0,
) -> Parts[tuple[Complex, Mask]]:
    """Estimate the steering vectors of two sources from their masks, in parts.

    The cost of a part is a number of bins; `earatlas.parts.complete` runs all of them.

    Parameters
    ----------
    moments : SecondMoments
        Moments of the normalized spectra.
    q : array of shape (2, F, T)
        Soft masks of the two sources.
    frequencies_hz : array of shape (F',)
        The lower F' of all F frequencies, at which the masks were learned.
    settings : DemixingSettings
        Smoothing of the powers and permutation alignment.
    initial : complex array of shape (F, 2, 2), optional
        First steering vectors, instead of the principal eigenvectors of the masked covariances.
    expected : ExpectedCues, optional
        Cues of the two sources at the lower F' frequencies, which indicate their order.
    prior : complex array that broadcasts to (2, F, 2, 2), optional
        Weighted covariances that are added to those of the frames.
    alignment_cost : float, default 0
        Cost of a permutation alignment, in bins.

    Returns
    -------
    A : complex array of shape (F, 2, 2)
        Steering vectors.
    permuted : boolean array of shape (F,)
        Frequencies at which the masks have the opposite order.
    """
    n_masked = len(frequencies_hz)
    yield moments.n_bins
    A = principal_steering_vectors(moments.covariances(q**2)) if initial is None else initial
    A = regularize_collinear(A)
    A = yield from iterative_projection(moments, A, settings.first_smoothing, n_masked, prior)
    permuted = np.zeros(len(A), dtype=bool)
    for _ in range(settings.alignments):
        yield moments.n_bins + alignment_cost
        masked, powers = slice(None, n_masked), moments.powers(A)
        agreement = 0.0 if expected is None else expected.agreement(A[masked])
        swap = np.zeros(len(A), dtype=bool)
        swap[masked] = align_permutation(
            powers[:, masked],
            np.where(permuted[masked, None], q[::-1, masked], q[:, masked]),
            frequencies_hz,
            agreement,
            settings.permutation,
        )
        permuted ^= swap
        A = np.where(swap[:, None, None], A[..., ::-1], A)
        A = yield from iterative_projection(moments, A, settings.second_smoothing, n_masked, prior)
    return A, permuted


def iterative_projection(
    moments: SecondMoments,
    A: Complex,
    sizes: _Sizes,
    n_masked: int | None = None,
    past: Complex | float = 0.0,
) -> Parts[Complex]:
    """Refine A (F, 2, 2) in parts, with one smoothing size of the powers per iteration.

    `past` (2, F, 2, 2) are weighted covariances of older frames. For `n_masked` see
    `smooth_powers`.
    """
    for size in sizes:
        yield moments.n_bins
        v = smooth_powers(moments.powers(A), size, moments.floor, n_masked)
        V = (moments.covariances(1 / v) + past) / v.shape[-1]
        A = regularize_collinear(steering_vectors_from_covariances(V))
    return A


def smooth_powers(
    v: Array, size: tuple[int, int], floor: float, n_masked: int | None = None
) -> Array:
    """Average powers (M, F, T) over `size` bins and frames, relative to each frequency's level.

    Above the lowest `n_masked` frequencies, the powers follow the mean envelope of those below.
    """
    level = v.mean(axis=2, keepdims=True) + floor
    smooth = np.empty(v.shape, dtype=v.dtype)
    lower = slice(None, n_masked)
    for power, own_level, out in zip(v[:, lower], level[:, lower], smooth[:, lower], strict=True):
        out[:] = moving_mean(moving_mean(power / own_level, size[0], 0), size[1], 1)
    if n_masked is not None and n_masked < v.shape[1]:
        envelopes = (v[:, lower] / level[:, lower]).mean(axis=1, keepdims=True)
        # The floor of a silent source: without it, the weights 1 / v are infinite.
        smooth[:, n_masked:] = envelopes + 1e-3 * envelopes.mean(axis=2, keepdims=True) + 1e-30
    smooth *= level
    smooth += floor
    return smooth


def principal_steering_vectors(R: Complex) -> Complex:
    """Return the principal eigenvectors of covariances (M, F, 2, 2) as A (F, 2, M)."""
    return principal_eigenvector(R).transpose(1, 2, 0)


def steering_vectors_from_covariances(V: Complex) -> Complex:
    """Return the maximum-likelihood steering vectors (F, 2, 2) from weighted covariances.

    V (2, F, 2, 2) holds Σ_t x xᴴ / v_m of both sources. The demixing filters are the generalized
    eigenvectors of the pair.
    """
    # Powers are in units of v, so this loading is far below any signal; it keeps silence regular.
    V = V + (1e-9 * np.trace(V, axis1=-2, axis2=-1).real[..., None, None] + 1e-12) * np.eye(2)
    # The filter that passes source 1 minimizes wᴴ V_1 w: it has the smaller generalized eigenvalue.
    return joint_diagonalizer(V[0], V[1])


def regularize_collinear(A: Complex) -> Complex:
    """Replace collinear pairs of steering vectors (F, 2, 2) by the identity, so A is invertible."""
    collinear = np.abs(determinant(A)) < 1e-6
    regular: Complex = np.where(collinear[:, None, None], np.eye(2), A)
    return regular


# Closed-form algebra for stacks of 2 × 2 matrices. The closed form of an eigenvector takes about a
# twentieth of the time of a call to LAPACK per matrix.


def determinant(A: Complex) -> Complex:
    """Return the determinants (…,) of matrices (…, 2, 2)."""
    d: Complex = A[..., 0, 0] * A[..., 1, 1] - A[..., 0, 1] * A[..., 1, 0]
    return d


def inverse(A: Complex) -> Complex:
    """Return the inverses (…, 2, 2) of matrices (…, 2, 2)."""
    out = np.empty_like(A)
    out[..., 0, 0], out[..., 1, 1] = A[..., 1, 1], A[..., 0, 0]
    out[..., 0, 1], out[..., 1, 0] = -A[..., 0, 1], -A[..., 1, 0]
    out /= determinant(A)[..., None, None]
    return out


def principal_eigenvector(R: Complex) -> Complex:
    """Return the unit eigenvector (…, 2) of the larger eigenvalue of Hermitian R (…, 2, 2).

    There are two algebraically equal forms; the one without cancellation is used.
    """
    off_diagonal = R[..., 0, 1]
    half = 0.5 * (R[..., 0, 0].real - R[..., 1, 1].real)
    size = np.sqrt(half**2 + squared_magnitude(off_diagonal))
    positive = half >= 0
    vector = np.empty((*half.shape, 2), dtype=np.complex128)
    vector[..., 0] = np.where(positive, half + size, off_diagonal)
    vector[..., 1] = np.where(positive, off_diagonal.conj(), size - half)
    length = np.sqrt(squared_magnitude(vector).sum(axis=-1))
    isotropic = length == 0  # every vector is an eigenvector; take the first ear
    vector[..., 0] = np.where(isotropic, 1.0, vector[..., 0])
    vector /= np.where(isotropic, 1.0, length)[..., None]
    return vector


def joint_diagonalizer(V: Complex, U: Complex) -> Complex:
    """Return A (…, 2, 2) with unit columns such that A⁻¹ V A⁻ᴴ and A⁻¹ U A⁻ᴴ are diagonal.

    V and U are Hermitian and positive definite. The ratio of V to U is smaller along the first
    column. The rows of A⁻¹ are the generalized eigenvectors of V and U, that is, the eigenvectors
    of U⁻¹ V and of adj(U) V; each column is orthogonal to the other source's row. Where V and U are
    proportional, A is the identity.
    """
    p = U[..., 1, 1] * V[..., 0, 0] - U[..., 0, 1] * V[..., 1, 0]  # adj(U) V = (p, q; r, s)
    q = U[..., 1, 1] * V[..., 0, 1] - U[..., 0, 1] * V[..., 1, 1]
    r = U[..., 0, 0] * V[..., 1, 0] - U[..., 1, 0] * V[..., 0, 0]
    s = U[..., 0, 0] * V[..., 1, 1] - U[..., 1, 0] * V[..., 0, 1]
    half = 0.5 * (p - s)
    root = np.sqrt(half**2 + q * r)  # half the difference of the eigenvalues, real up to rounding
    positive = (half.conj() * root).real >= 0  # selects the form without cancellation
    pivot = np.where(positive, half + root, root - half)
    proportional = (pivot == 0) & (q == 0) & (r == 0)
    pivot = np.where(proportional, 1.0, pivot)
    # Columns orthogonal to the rows (pivot, r) and (q, -pivot), or (q, pivot) and (-pivot, r).
    A = np.empty_like(U)
    A[..., 0, 0], A[..., 1, 0] = (
        np.where(positive, r, pivot).conj(),
        -np.where(positive, pivot, q).conj(),
    )
    A[..., 0, 1], A[..., 1, 1] = (
        np.where(positive, -pivot, r).conj(),
        -np.where(positive, q, -pivot).conj(),
    )
    A /= np.sqrt(squared_magnitude(A).sum(axis=-2, keepdims=True))
    return A
