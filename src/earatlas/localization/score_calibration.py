"""Calibration of onset log-likelihoods: posteriors with the spread that simulated scenes justify.

Input: log-likelihoods of directions (`earatlas.localization.onset_likelihood`) of scenes with known
truth, simulated from the head in all conditions. Output: a `ScoreCalibration`, which turns the
log-likelihood of a recording into a posterior as sharp as the errors in similar scenes allow, and
gives the mixing weight of the anechoic posterior.

    p_ig ∝ size_g exp(β_i L_g)                        directions at inverse temperature β_i
    posterior = Σ_ij a_ij Σ_g p_ig N(g, width_j²)     errors of width_j around them
    π PPAM + (1 - π) posterior                        combined posterior

The mixture weights a are those of the scenes with the most similar features φ (nats per bin, median
SNR in dB, log2 of the number of bins). π is a logistic function of φ and of the normalized residual
of the anechoic model. A single β does not suffice: with it, 50 % regions were too wide where 90 %
regions were right, because most estimates are very good and a few are quite wrong.

    I  inverse temperatures    J  widths    P  directions    n  scenes    N  sounds
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from earatlas.errors import InputError
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Space
from earatlas.localization.onset_likelihood import DirectionLogLikelihood
from earatlas.numerics import logistic, quantile
from earatlas.types import Array

__all__ = [
    "ScoreCalibration",
    "ScoreCalibrationSettings",
    "direction_probabilities",
    "direction_scores",
    "fit_anechoic_weight",
    "fit_score_calibration",
    "tempered_posterior",
]

# The axes of the mixture weights, which are a part of atlas files
KERNEL_WIDTHS_DEGREES = 2.0 ** np.arange(7)  # standard deviations of the kernels, 1 … 64
BETAS = 2.0 ** np.arange(1.0, -7.01, -1.0)  # inverse temperatures, 2 … 1/128


# Evidence: docs/figures/settings/localization.md, "score_calibration".
@dataclass(frozen=True, slots=True)
class ScoreCalibrationSettings:
    """Fit of a `ScoreCalibration`, and its use."""

    # Fit
    similar_scenes: int = 15  # approximate number of scenes of a local fit
    prior_scenes: float = 3.0  # strength of the prior from all scenes
    min_spread: tuple[float, ...] = (0.1, 2.0, 0.5)  # smallest standard deviations of the features
    feature_scales: tuple[float, ...] = (1.0, 0.5, 1.0)  # the SNR separates noise and rooms
    ridge: float = 0.3  # penalty of the logistic weights
    weight_tolerance: float = 1e-8  # of the logistic weights: last step of their fit
    max_weight_steps: int = 10_000  # of this fit; a bound that it does not reach

    # Use
    kernel_variance: float = 0.25  # of the kernel over φ that selects scenes
    anechoic_percentile: float = 85.0  # 15 % of the training scenes are anechoic
    max_components: int = 400  # most components of a posterior
    mass: float = 0.995  # probability that they hold
    point_degrees: float = 0.5  # width of a grid point: a quarter of the grid spacing
    peak_radius_degrees: float = 3.2  # neighbours of the best point on a grid of 2 degrees


CALIBRATION_SETTINGS = ScoreCalibrationSettings()


@dataclass(frozen=True, eq=False)
class ScoreCalibration:
    """Calibration fitted to n scenes."""

    features: Array  # (n, 3) φ
    scale: Array  # (3,) of distances between features
    mixture_weights: Array  # (n, I, J) a, fitted around each scene
    weights: Array  # (4,) of the logistic function for π
    settings: ScoreCalibrationSettings = CALIBRATION_SETTINGS

    @cached_property
    def typical_nats_per_onset(self) -> float:
        """Log-likelihood per onset that is typical for anechoic scenes."""
        return quantile(self.features[:, 0], self.settings.anechoic_percentile / 100)

    def local_mixture_weights(self, features: Array) -> Array:
        """Return the mixture weights (..., I, J) of scenes similar to the features (..., 3)."""
        squared = (((self.features - features[..., None, :]) / self.scale) ** 2).sum(axis=-1)
        squared = squared - squared.min(axis=-1, keepdims=True)
        w = np.exp(-0.5 * squared / self.settings.kernel_variance)
        kernel = w / w.sum(axis=-1, keepdims=True)
        mixture_weights: Array = np.tensordot(kernel, self.mixture_weights, axes=1)
        return mixture_weights

    def anechoic_weight(self, features: Array, residual_ratio: float) -> float:
        """Return π, the weight of the anechoic posterior, given its normalized residual."""
        return float(logistic(self.weights @ _regressors(features, residual_ratio)))

    def posterior(self, space: Space, likelihood: DirectionLogLikelihood) -> DirectionPosterior:
        """Return the calibrated posterior of one sound."""
        return self.posteriors(space, [likelihood])[0]

    def posteriors(
        self, space: Space, likelihoods: Sequence[DirectionLogLikelihood]
    ) -> list[DirectionPosterior]:
        """Return the calibrated posterior of each sound."""
        if not likelihoods:
            return []
        weights = self.local_mixture_weights(np.array([one.features for one in likelihoods]))
        beta_weights = weights.sum(axis=2)
        # Inverse temperatures of a smaller weight change no printed digit.
        used = beta_weights > 1e-6 * beta_weights.sum(axis=1, keepdims=True)
        betas = np.exp(beta_weights @ np.log(BETAS) / beta_weights.sum(axis=1))
        widths = np.hypot(KERNEL_WIDTHS_DEGREES, self.settings.point_degrees)
        peaks = _peaks(space, likelihoods, betas, self.settings)
        posteriors = []
        for one, own, a, peak in zip(likelihoods, used, weights, peaks, strict=True):
            p = direction_probabilities(one, BETAS[own]).T @ a[own]
            posteriors.append(_gaussian_mixture(space, one, p, widths, peak, self.settings))
        return posteriors


def tempered_posterior(
    space: Space, likelihood: DirectionLogLikelihood, beta: float, width_degrees: float
) -> DirectionPosterior:
    """Return p_g ∝ size_g exp(β L_g) as a mixture of Gaussians of one width."""
    p = direction_probabilities(likelihood, np.array([beta]))
    (peak,) = _peaks(space, [likelihood], np.array([beta]), CALIBRATION_SETTINGS)
    widths = np.array([width_degrees])
    return _gaussian_mixture(space, likelihood, p.T, widths, peak, CALIBRATION_SETTINGS)


def _gaussian_mixture(
    space: Space,
    likelihood: DirectionLogLikelihood,
    p: Array,
    widths: Array,
    peak: Array,
    settings: ScoreCalibrationSettings,
) -> DirectionPosterior:
    """Return Gaussians of widths (J,) at the directions, with probabilities p (P, J).

    Components of little probability are left out. The best direction is shifted between the grid
    points, to `peak` (L,) of its chart.
    """
    flat, most = p.ravel(), min(settings.max_components, p.size)
    # Partition only the components above the mean: a twentieth of the time of sorting all.
    above = np.flatnonzero(flat > flat.mean())
    if len(above) < most:
        above = np.arange(len(flat))
    top = np.sort(above[np.argpartition(-flat[above], most - 1)[:most]])
    order = top[np.argsort(-flat[top], kind="stable")]
    mass = np.cumsum(flat[order])
    count = min(int(np.searchsorted(mass, settings.mass * flat.sum())) + 1, most)
    kept = np.sort(order[:count])
    direction, width = np.divmod(kept, len(widths))
    means = np.zeros((len(kept), space.dims))
    means[direction == np.argmax(likelihood.log_likelihoods)] = peak
    return DirectionPosterior(
        space,
        likelihood.directions[direction],
        flat[kept] / flat[kept].sum(),
        means,
        (widths[width] ** 2)[:, None, None] * np.eye(space.dims),
    )


def _regressors(features: Array, residual_ratio: float) -> Array:
    """Return the inputs (4,) of the logistic function for π, each of about unit size."""
    return np.array([1.0, features[0] - 1.5, (features[1] - 25) / 10, np.log(residual_ratio)])


def direction_probabilities(likelihood: DirectionLogLikelihood, betas: Array) -> Array:
    """Return p (I, P) of the directions at inverse temperatures (I,), the largest first.

    Most inverse temperatures are twice the next one: squaring takes a tenth of the time of an
    exponential.
    """
    gaps = likelihood.log_likelihoods - likelihood.log_likelihoods.max()
    p = np.empty((len(betas), len(gaps)))
    for n in range(len(betas))[::-1]:
        if n + 1 < len(betas) and betas[n] == 2 * betas[n + 1]:
            np.square(p[n + 1], out=p[n])
        else:
            np.exp(betas[n] * gaps, out=p[n])
    p *= likelihood.sizes
    p /= p.sum(axis=1, keepdims=True)
    return p


def _peaks(
    space: Space,
    likelihoods: Sequence[DirectionLogLikelihood],
    betas: Array,
    settings: ScoreCalibrationSettings,
) -> Array:
    """Return chart coordinates (N, L) of the peaks, from each best point and its neighbours."""
    radius = settings.peak_radius_degrees
    best = [int(np.argmax(one.log_likelihoods)) for one in likelihoods]
    # The difference of the last coordinate is a lower bound of the distance and excludes most.
    neighbours = [
        np.flatnonzero(
            (np.abs(one.directions[:, -1] - one.directions[n, -1]) < radius) & (one.sizes == 1)
        )
        for one, n in zip(likelihoods, best, strict=True)
    ]
    sound = np.repeat(np.arange(len(likelihoods)), [len(rows) for rows in neighbours])
    directions, gains = (
        np.concatenate([part[rows] for part, rows in zip(parts, neighbours, strict=True)])
        for parts in (
            [one.directions for one in likelihoods],
            [one.log_likelihoods - one.log_likelihoods.max() for one in likelihoods],
        )
    )
    centres = np.array([one.directions[n] for one, n in zip(likelihoods, best, strict=True)])
    u = space.log(centres[sound], directions)
    w = np.exp(np.minimum(2 * betas, 1.0)[sound] * gains)
    w[np.linalg.norm(u, axis=1) >= radius] = 0.0
    N = len(likelihoods)
    sums = [np.bincount(sound, w * axis, minlength=N) for axis in u.T]
    peaks: Array = np.stack(sums, axis=1) / np.bincount(sound, w, minlength=N)[:, None]
    return peaks


def direction_scores(space: Space, likelihood: DirectionLogLikelihood, truth: Array) -> Array:
    """Return log Σ_g p_ig N(truth; g, width_j²) (I, J)."""
    squared = space.distance(likelihood.directions, truth) ** 2
    normal = np.exp(-0.5 * np.divide.outer(squared, KERNEL_WIDTHS_DEGREES**2)) / (
        2 * np.pi * KERNEL_WIDTHS_DEGREES**2
    ) ** (space.dims / 2)
    p = direction_probabilities(likelihood, BETAS)
    scores: Array = np.log(np.maximum(p @ normal, 1e-300))
    return scores


def _fit_mixture_weights(scores: Array, weight: Array, prior: Array, strength: float) -> Array:
    """Return the mixture weights (IJ,) that maximize weighted scores (n, IJ), by EM."""
    used = weight > 1e-3 * weight.max()
    scores, weight = scores[used], weight[used]
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    a: Array = prior / prior.sum()
    for _ in range(60):
        a = a * ((weight / (e @ a)) @ e) + strength * prior
        a /= a.sum()
    return a


def fit_score_calibration(
    space: Space,
    likelihoods: Sequence[DirectionLogLikelihood],
    truths: Array,
    settings: ScoreCalibrationSettings = CALIBRATION_SETTINGS,
) -> ScoreCalibration:
    """Fit the mixture weights around each scene; π is fitted later and is 0 until then."""
    features = np.array([one.features for one in likelihoods])
    scale = np.maximum(features.std(axis=0), settings.min_spread) * settings.feature_scales
    scores = np.stack(
        [
            direction_scores(space, one, truth).ravel()
            for one, truth in zip(likelihoods, truths, strict=True)
        ]
    )
    uniform = np.full(scores.shape[1], 1 / scores.shape[1])
    prior = _fit_mixture_weights(scores, np.ones(len(likelihoods)), uniform, 0.5)
    mixture_weights = np.empty_like(scores)
    for n, own in enumerate(features):
        squared = (((features - own) / scale) ** 2).sum(axis=1)
        width = max(np.sort(squared)[min(settings.similar_scenes, len(squared) - 1)] / 2, 1e-6)
        kernel = np.exp(-0.5 * squared / width) + 1e-3
        mixture_weights[n] = _fit_mixture_weights(scores, kernel, prior, settings.prior_scenes)
    by_scene = mixture_weights.reshape(-1, len(BETAS), len(KERNEL_WIDTHS_DEGREES))
    return ScoreCalibration(features, scale, by_scene, np.array([-30.0, 0.0, 0.0, 0.0]), settings)


def fit_anechoic_weight(
    features: Array,
    residual_ratios: Array,
    anechoic_scores: Array,
    onset_scores: Array,
    settings: ScoreCalibrationSettings = CALIBRATION_SETTINGS,
) -> Array:
    """Return the weights (4,) of π that maximize the combined posterior of the true directions.

    The scores (n,) are log p of the true directions under the anechoic and the onset posterior.
    """
    X = np.array([_regressors(f, m) for f, m in zip(features, residual_ratios, strict=True)])
    top = np.maximum(anechoic_scores, onset_scores)
    a, b = (np.exp(np.maximum(s - top, -40.0)) for s in (anechoic_scores, onset_scores))

    # EM. The slope of the logistic function is at most 1/4: with this bound instead of the slope,
    # a Newton step on the result of the E-step never decreases the likelihood.
    v = np.zeros(X.shape[1])
    curvature = 0.25 * X.T @ X + 2 * settings.ridge * np.eye(len(v))
    for _ in range(settings.max_weight_steps):
        pi = logistic(X @ v)
        responsibilities = pi * a / (pi * a + (1 - pi) * b)
        gradient = X.T @ (responsibilities - pi) - 2 * settings.ridge * v
        step = np.linalg.solve(curvature, gradient)
        v = v + step
        if not np.isfinite(v).all():
            raise InputError(
                "scores and features must be finite, got weights of the anechoic posterior with "
                "NaN or infinity. Check the responses of the head."
            )
        if np.abs(step).max() <= settings.weight_tolerance:
            break
    return v
