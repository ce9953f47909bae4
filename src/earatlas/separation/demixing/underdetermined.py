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
    regularized by an NMF model per source and updated by EM. Itakura-Saito NMF [3]_ approximates a
    power spectrogram by K templates W (F, K) with activations H (K, T), v ≈ W H; its divergence
    Σ_ft v / (W H) - log (v / (W H)) - 1 counts quiet bins as much as loud ones.

    X (2, F, T) spectra    q, r, v (M, F, T) masks, posteriors, powers
    A (F, 2, M) steering vectors

References
----------
.. [1] N. Ito, S. Araki and T. Nakatani, "Complex angular central Gaussian mixture model for
   directional statistics in mask-based microphone array signal processing", EUSIPCO 2016.
.. [2] A. Ozerov and C. Févotte, "Multichannel nonnegative matrix factorization in convolutive
   mixtures for audio source separation", IEEE Trans. Audio, Speech, and Language Processing 18(3),
   2010.
.. [3] C. Févotte and J. Idier, "Algorithms for nonnegative matrix factorization with the
   β-divergence", Neural Computation 23(9), 2011.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from earatlas.features.stft import squared_magnitude
from earatlas.numerics import moving_mean
from earatlas.parts import Parts
from earatlas.separation.demixing.determined import (
    SecondMoments,
    principal_steering_vectors,
    smooth_powers,
)
from earatlas.separation.demixing.wiener import SourceCovariances
from earatlas.types import Array, Complex, Single, Spectra

__all__ = [
    "ItakuraSaitoNMF",
    "UnderdeterminedSettings",
    "em_source_powers",
    "nmf_source_powers",
    "underdetermined_steering_vectors",
]


# Evidence: docs/figures/settings/separation.md, "demixing.underdetermined".
@dataclass(frozen=True, slots=True)
class UnderdeterminedSettings:
    """Settings of the steering vectors and powers of more than two sources."""

    # ε per iteration, where r is given by masks, and by neighbouring frequencies
    mask_epsilons: tuple[float, ...] = (0.8, 0.2, 0.05, 0.012, 0.003, 0.003)
    neighbour_epsilons: tuple[float, ...] = (0.3, 0.3, 0.1, 0.1, 0.1, 0.03, 0.03, 0.01, 0.003)
    prior_size: tuple[int, int] = (65, 3)  # bins and frames over which the prior of r is averaged
    min_prior: float = 1e-3  # added to the prior of a source; at a prior of 0 it would stay at 0
    frame_step: int = 2  # every second frame is used for steering vectors; they overlap by 7/8
    power_neighbourhood: tuple[int, int] = (3, 3)  # bins and frames of the local mean of a power
    power_iterations: int = 10  # EM iterations before the first NMF
    templates: int = 16  # K of the NMF
    rounds: int = 5  # alternations of NMF and EM
    round_iterations: int = 3  # EM iterations in each
    first_nmf_iterations: int = 15  # NMF updates in the first round
    nmf_iterations: int = 5  # NMF updates in later rounds


def underdetermined_steering_vectors(
    moments: SecondMoments, q: Array, n_phase_bins: int, settings: UnderdeterminedSettings
) -> Parts[Complex]:
    """Return A (F, 2, M) of M sources with masks q, with one iteration per part.

    Phase was learned below bin `n_phase_bins`.
    """
    weights = q**2 / np.maximum(moments.power, moments.floor)
    A = principal_steering_vectors(moments.covariances(weights))
    for epsilon in settings.mask_epsilons:
        yield moments.n_bins
        weighted = weights * _proximity(moments, A, epsilon) ** 2
        A = principal_steering_vectors(moments.covariances(weighted))
    if n_phase_bins < len(A):
        begin = max(n_phase_bins - settings.prior_size[0] // 2, 0)
        upper = yield from _neighbour_steering_vectors(
            SecondMoments(moments.values[begin:]), q[:, begin:], settings
        )
        A[n_phase_bins:] = upper[n_phase_bins - begin :]
    return A


def _neighbour_steering_vectors(
    moments: SecondMoments, q: Array, settings: UnderdeterminedSettings
) -> Parts[Complex]:
    """Return steering vectors where the masks of a single frequency may be wrong, in parts.

    The prior of each bin is the average posterior of many neighbouring frequencies.
    """
    weights = 1 / np.maximum(moments.power, moments.floor)
    prior = _local_prior(q, settings)
    A = principal_steering_vectors(moments.covariances(prior * weights))
    for epsilon in settings.neighbour_epsilons:
        yield moments.n_bins
        proximity = _proximity(moments, A, epsilon)
        r = prior * proximity**2
        r /= r.sum(axis=0)
        A = principal_steering_vectors(moments.covariances(r * proximity * weights))
        prior = _local_prior(r, settings)
    return A


def _local_prior(r: Array, settings: UnderdeterminedSettings) -> Array:
    """Return the prior (M, F, T) of a bin: the mean of r over its neighbourhood."""
    over_frequency, over_time = settings.prior_size
    local = moving_mean(moving_mean(r, over_frequency, 1), over_time, 2)
    return local + settings.min_prior


def _proximity(moments: SecondMoments, A: Complex, epsilon: float) -> Array:
    """Return ε / (b + ε) (M, F, T): 1 on the steering vector, 1/2 where b equals ε."""
    proximity: Array = epsilon / (moments.orthogonal_fraction(A) + epsilon)
    return proximity


def nmf_source_powers(
    X: Spectra,
    R: SourceCovariances,
    v: Array | Single,
    floor: float,
    settings: UnderdeterminedSettings,
) -> Array:
    """Return powers (M, F, T) refined from v by EM in alternation with an NMF model per source."""
    size = settings.power_neighbourhood
    powers = em_source_powers(X, R, v, floor, size, settings.power_iterations)
    models = [ItakuraSaitoNMF.initialize(power, settings.templates) for power in powers]
    for turn in range(settings.rounds):
        iterations = settings.nmf_iterations if turn else settings.first_nmf_iterations
        for m, power in enumerate(powers):
            models[m] = models[m].fit(power, iterations)
            power *= models[m].powers
        geometric_mean = np.sqrt(powers, out=powers)
        powers = em_source_powers(X, R, geometric_mean, floor, size, settings.round_iterations)
    return powers


def em_source_powers(
    X: Spectra,
    R: SourceCovariances,
    v: Array | Single,
    floor: float,
    size: tuple[int, int],
    iterations: int,
) -> Array:
    """Return powers (M, F, T) after EM iterations from v, each averaged with its local mean.

    The local mean is over `size` bins and frames.
    """
    v = cast(Array, v.copy())  # in the precision of the input
    # 32 frequencies at once stay in the cache; few frames need no blocks.
    count = max(32, 4096 // v.shape[2])
    blocks = [slice(first, first + count) for first in range(0, v.shape[1], count)]
    covariances = [R.at(rows) for rows in blocks]
    for _ in range(iterations):
        for rows, R in zip(blocks, covariances, strict=True):
            _em_step(X[:, rows], R, v[:, rows], floor)
        v += smooth_powers(v, size, floor)
        v *= 0.5
    return v


def _em_step(X: Spectra, R: SourceCovariances, v: Array, floor: float) -> None:
    """Replace the powers v (M, F, T) by those after one EM iteration, without averaging."""
    P00, P11, P01 = inverse = R.inverse(v)
    left, right = R.whiten(X, inverse)
    # yᴴ R y - tr(S⁻¹ R): three numbers per bin, combined with three per source.
    left_excess = squared_magnitude(left) - P00
    right_excess = squared_magnitude(right) - P11
    cross_excess = right * left.conj() - P01.conj()
    real_excess, imaginary_excess = 2 * cross_excess.real, 2 * cross_excess.imag
    for power, r00, r11, r01 in zip(v, R.R00, R.R11, R.R01, strict=True):
        gain = r00 * left_excess
        gain += r11 * right_excess
        gain += r01.real * real_excess
        gain -= r01.imag * imaginary_excess
        gain *= power
        gain *= power
        gain *= 0.5
        power += gain
    np.maximum(v, floor, out=v)


@dataclass(frozen=True, eq=False)
class ItakuraSaitoNMF:
    """An Itakura-Saito NMF model of a power spectrogram, in single precision.

    The multiplicative updates with exponent 1/2 never increase the divergence [1]_.

    Attributes
    ----------
    W : array of shape (F, K)
        Spectral templates.
    H : array of shape (K, T)
        Activations.
    floor : float
        Power that is added to W H, so that no bin is zero.

    References
    ----------
    .. [1] C. Févotte and J. Idier, "Algorithms for nonnegative matrix factorization with the
       β-divergence", Neural Computation 23(9), 2011.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> v = rng.random((5, 1)) @ rng.random((1, 7)) + 0.1
    >>> model = ItakuraSaitoNMF.initialize(v, n_templates=2).fit(v, iterations=200)
    >>> bool(np.abs(np.log(model.powers / v)).max() < 0.1)
    True
    """

    W: Single  # (F, K) spectral templates
    H: Single  # (K, T) activations
    floor: float  # power added to W H

    @classmethod
    def initialize(cls, v: Array | Single, n_templates: int) -> ItakuraSaitoNMF:
        """Return a random model at the mean level of the given powers.

        The random numbers are the same in every call, so results are reproducible.

        Parameters
        ----------
        v : array of shape (F, T)
            Power spectrogram.
        n_templates : int
            Number of spectral templates K.

        Returns
        -------
        ItakuraSaitoNMF
            The initial model.
        """
        rng = np.random.default_rng(0)
        level = float(v.mean())
        scale = np.sqrt(level / n_templates)
        shapes = ((len(v), n_templates), (n_templates, v.shape[1]))
        W, H = (rng.uniform(0.5, 1.5, shape) * scale for shape in shapes)
        # Without a floor, silent bins divide by zero. The square of 1e-15 fits single precision.
        floor = 1e-9 * level + 1e-15
        return cls(W.astype(np.float32), H.astype(np.float32), floor)

    @property
    def powers(self) -> Single:
        """The modelled power spectrogram W H plus the floor, (F, T)."""
        powers: Single = self.W @ self.H + np.float32(self.floor)
        return powers

    def fit(self, v: Array | Single, iterations: int) -> ItakuraSaitoNMF:
        """Fit the model by multiplicative updates, starting from the current factors.

        Parameters
        ----------
        v : array of shape (F, T)
            Power spectrogram.
        iterations : int
            Number of updates of W and H.

        Returns
        -------
        ItakuraSaitoNMF
            The updated model; its divergence from v is not larger than before.
        """
        W, H = self.W.copy(), self.H.copy()
        for _ in range(iterations):
            ratio, weight = self._gradient_terms(v, W, H)
            W *= _update_factor(ratio @ H.T, weight @ H.T)
            ratio, weight = self._gradient_terms(v, W, H)
            H *= _update_factor(W.T @ ratio, W.T @ weight)
        return ItakuraSaitoNMF(W, H, self.floor)

    def _gradient_terms(self, v: Array | Single, W: Single, H: Single) -> tuple[Single, Single]:
        """Return v / (W H)² and 1 / (W H), both (F, T)."""
        weight: Single = np.reciprocal(W @ H + np.float32(self.floor))
        ratio = v.astype(np.float32, copy=False) * weight
        ratio *= weight
        return ratio, weight


def _update_factor(numerator: Single, denominator: Single) -> Single:
    """Return the multiplicative update; an entry that is zero stays zero."""
    factor: Single = np.sqrt(numerator / np.maximum(denominator, np.float32(1e-30)))
    return factor
