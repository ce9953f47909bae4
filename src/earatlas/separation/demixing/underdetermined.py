"""Steering vectors and source powers of more sources than microphones (underdetermined mixtures).

Two ears can cancel one source at a time. Speech is sparse: in most bins at most two of three
talkers are active, and where it is known which two, they can be separated as in a determined
mixture. Input: spectra X and masks q of M > 2 sources. Output: steering vectors A and powers v for
the multichannel Wiener filter, both refined beyond what the masks provide.

Steering vectors
    The steering vector a_mf is the direction around which the normalized bins x / |x| of a source
    cluster. Each bin is weighted by its proximity to the current estimate,

        w_mft = r_mft (ε / (b_mft + ε))^p        b_mft = 1 - |a_mᴴ x|² / |x|²

    with ε decreasing from iteration to iteration, so that bins with two active sources lose weight.
    Where the head model has learned phase, r is the mask. At higher frequencies masks rest on level
    differences alone and may be wrong at a whole frequency; there r is the posterior of a complex
    angular central Gaussian mixture with covariances a aᴴ + ε I, and its prior is r averaged over
    many neighbouring frequencies, because these are active together.

Powers
    x is Gaussian with covariance S = Σ_m v_m R_m, R_m = a_m a_mᴴ + ε I. EM iterations increase the
    likelihood of v, and each result is averaged with its local mean. Of three powers that two ears
    cannot resolve, one decays towards zero, consistently within neighbouring bins:

        v_m ← ½ E[c_mᴴ R_m⁻¹ c_m | x] = v_m + ½ v_m² (yᴴ R_m y - tr(S⁻¹ R_m))        y = S⁻¹ x

    Two observations per bin do not determine three powers. The powers are therefore alternately
    regularized by an NMF model per source (`earatlas.separation.demixing.nmf`) and updated by EM.

    X (2, F, T) spectra    q, r, v (M, F, T) masks, posteriors, powers
    A (F, 2, M) steering vectors

References
----------
.. [1] N. Ito, S. Araki and T. Nakatani, "Complex angular central Gaussian mixture model for
   directional statistics in mask-based microphone array signal processing", EUSIPCO 2016.
.. [2] A. Ozerov and C. Févotte, "Multichannel nonnegative matrix factorization in convolutive
   mixtures for audio source separation", IEEE Trans. Audio, Speech, and Language Processing 18(3),
   2010.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from earatlas.features.stft import squared_magnitude
from earatlas.separation.demixing.nmf import ItakuraSaitoNMF
from earatlas.separation.demixing.steering_vectors import (
    diffuse_determinant,
    orthogonal_fraction,
    principal_steering_vectors,
    smooth_powers,
    weighted_covariances,
)
from earatlas.types import Array, Complex, Single, Spectra

__all__ = ["em_source_powers", "nmf_source_powers", "underdetermined_steering_vectors"]

# Evidence: docs/figures/settings/separation.md, "demixing.underdetermined".
_MASK_EPSILONS = (0.8, 0.2, 0.05, 0.012, 0.003, 0.003)  # ε per iteration, r given by masks
_NEIGHBOUR_EPSILONS = (0.3, 0.3, 0.1, 0.1, 0.1, 0.03, 0.03, 0.01, 0.003)  # r by neighbours
_PRIOR_SIZE = (65, 3)  # bins and frames over which the prior of r is averaged
_FRAME_STEP = 2  # every second frame is used for steering vectors; they overlap by 7/8
_MIN_PRIOR = 1e-3  # added to the prior of a source; at a prior of 0 it would stay at 0
_POWER_NEIGHBOURHOOD = (3, 3)  # bins and frames of the local mean of a power
_POWER_ITERATIONS = 10  # EM iterations before the first NMF
_TEMPLATES, _ROUNDS, _ROUND_ITERATIONS = 16, 5, 3  # NMF templates, alternations, EM steps in each
_FIRST_NMF_ITERATIONS, _NMF_ITERATIONS = 15, 5  # NMF updates in the first and in later rounds


def underdetermined_steering_vectors(X: Spectra, q: Array, n_phase_bins: int) -> Complex:
    """Return A (F, 2, M) of M sources with masks q; phase was learned below bin `n_phase_bins`."""
    X, q = X[:, :, ::_FRAME_STEP], q[:, :, ::_FRAME_STEP]
    power = squared_magnitude(X).sum(axis=0)
    weights = q**2 / np.maximum(power, 1e-9 * float(power.max()))
    A = principal_steering_vectors(weighted_covariances(X, weights))
    for epsilon in _MASK_EPSILONS:
        A = principal_steering_vectors(
            weighted_covariances(X, weights * _proximity(X, A, epsilon) ** 2)
        )
    begin = max(n_phase_bins - _PRIOR_SIZE[0] // 2, 0)
    if n_phase_bins < len(A):
        A[n_phase_bins:] = _neighbour_steering_vectors(X[:, begin:], q[:, begin:])[
            n_phase_bins - begin :
        ]
    return A


def _neighbour_steering_vectors(X: Spectra, q: Array) -> Complex:
    """Return steering vectors where the masks of a single frequency may be wrong.

    The prior of each bin is the average posterior of many neighbouring frequencies.
    """
    power = squared_magnitude(X).sum(axis=0)
    weights = 1 / np.maximum(power, 1e-9 * float(power.max()) + 1e-300)
    prior = _local_prior(q)
    A = principal_steering_vectors(weighted_covariances(X, prior * weights))
    for epsilon in _NEIGHBOUR_EPSILONS:
        proximity = _proximity(X, A, epsilon)
        r = prior * proximity**2
        r /= r.sum(axis=0)
        A = principal_steering_vectors(weighted_covariances(X, r * proximity * weights))
        prior = _local_prior(r)
    return A


def _local_prior(r: Array) -> Array:
    """Return the prior (M, F, T) of a bin: the mean of r over its neighbourhood."""
    from scipy.ndimage import uniform_filter

    return np.stack([uniform_filter(row, _PRIOR_SIZE) for row in r]) + _MIN_PRIOR


def _proximity(X: Spectra, A: Complex, epsilon: float) -> Array:
    """Return ε / (b + ε) (M, F, T): 1 on the steering vector, 1/2 where b equals ε."""
    proximity: Array = epsilon / (orthogonal_fraction(X, A) + epsilon)
    return proximity


def nmf_source_powers(
    X: Spectra, A: Complex, v: Array | Single, diffuse_to_direct: float, floor: float
) -> Array:
    """Return powers (M, F, T) refined from v by EM in alternation with an NMF model per source."""
    powers = em_source_powers(X, A, v, diffuse_to_direct, floor)
    models = [ItakuraSaitoNMF.initialize(power, _TEMPLATES) for power in powers]
    for turn in range(_ROUNDS):
        for m, power in enumerate(powers):
            models[m] = models[m].fit(power, _NMF_ITERATIONS if turn else _FIRST_NMF_ITERATIONS)
            power *= models[m].powers
        geometric_mean = np.sqrt(powers, out=powers)
        powers = em_source_powers(
            X, A, geometric_mean, diffuse_to_direct, floor, iterations=_ROUND_ITERATIONS
        )
    return powers


def em_source_powers(
    X: Spectra,
    A: Complex,
    v: Array | Single,
    diffuse_to_direct: float,
    floor: float,
    *,
    iterations: int = _POWER_ITERATIONS,
) -> Array:
    """Return powers (M, F, T) after EM iterations from v, each averaged with its local mean."""
    v = cast(Array, v.copy())  # in the precision of the input
    a, b = (A[:, ear].T.astype(X.dtype)[..., None] for ear in (0, 1))  # (M, F, 1)
    R00 = squared_magnitude(a) + diffuse_to_direct
    R11 = squared_magnitude(b) + diffuse_to_direct
    R01 = a * b.conj()
    for _ in range(iterations):
        S00, S11, S01 = (_weighted_sum(v, R) for R in (R00, R11, R01))
        scale = 1 / diffuse_determinant(a, b, v, diffuse_to_direct)
        left = scale * (S11 * X[0] - S01 * X[1])
        right = scale * (S00 * X[1] - S01.conj() * X[0])
        # yᴴ R y - tr(S⁻¹ R): three numbers per bin, combined with three per source.
        left_excess = squared_magnitude(left) - scale * S11
        right_excess = squared_magnitude(right) - scale * S00
        cross_excess = right * left.conj() + scale * S01.conj()
        for power, r00, r11, r01 in zip(v, R00, R11, R01, strict=True):
            gain = r00 * left_excess
            gain += r11 * right_excess
            gain += 2 * (r01.real * cross_excess.real - r01.imag * cross_excess.imag)
            gain *= power
            gain *= power
            power += 0.5 * gain
        np.maximum(v, floor, out=v)
        v += smooth_powers(v, _POWER_NEIGHBOURHOOD, floor)
        v *= 0.5
    return v


def _weighted_sum(v: Array, R: Array | Complex) -> Any:
    """Return Σ_m v_m R_m (F, T) without storing all products at once."""
    total = v[0] * R[0]
    for power, r in zip(v[1:], R[1:], strict=True):
        total += power * r
    return total
