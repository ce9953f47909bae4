"""How far a look may be trusted: measured in scenes made from the head itself.

In: looks (`earatlas.localization.onset_likelihood.Look`) at scenes whose truth is known, in all conditions.
Out: `Trust`, which turns a look at a recording into an honest posterior, as sure as the scenes most
like it allow, and says how much of the open-air answer to mix in.

    p_ig ∝ size_g exp(β_i L_g)                           which place, by sharper and blunter judges
    posterior = Σ_ij share_ij Σ_g p_ig N(g, width_j²)       how far beside it
    π PPAM + (1 - π) posterior                              joint answer

The shares are those of the scenes nearest in their features φ (nats a bin, dB above the quiet
level, number of bins); π is a logistic function of φ and of how badly the open-air model fits.
With one β for all, the 50 % regions were too wide where the 90 % regions were right: an answer is
mostly very good and now and then quite wrong, which no single temperature says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit

from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Space
from earatlas.localization.onset_likelihood import Look
from earatlas.types import Array

__all__ = ["Trust", "believed_places", "fit_trust", "place_probabilities", "place_scores"]

WIDTHS = 2.0 ** np.arange(7)  # degrees, 1 … 64
BETAS = 2.0 ** np.arange(1.0, -7.01, -1.0)
_POINT_DEGREES = 0.5  # of a posterior's points: a quarter of the way between them
_AROUND_DEGREES = 3.2  # of the best point: its neighbours on a grid of 2 degrees
_LIKE = 15  # scenes, about, that an answer's sureness is taken from
_PRIOR_SCENES = 3.0  # that a neighbourhood is drawn towards what all scenes have together
_SHARP = 0.25  # of the squared distance in φ, among the scenes nearest to a recording
_MOST_PARTS, _MASS = 400, 0.995  # of a posterior
_NO_SHARE = 1e-6  # of a judge: he changes no digit
_LEAST_SPREAD = np.array([0.1, 2.0, 0.5])  # of the features, where scenes are all alike
_SCALES = np.array([1.0, 0.5, 1.0])  # of their distances: noise and echoes differ by the second
_OPEN_PERCENTILE = 85  # of the scenes, 15 in 100 are in the open
# Of the logistic weights, which forty scenes must tell: at 0.02 truths of 40 talkers in the open
# that fitted badly had a mean log p of -5.25, at 0.3 of -3.92; in noise and rooms all do alike.
_RIDGE = 0.3


@dataclass(frozen=True, eq=False)
class Trust:
    """Fitted on n scenes."""

    features: Array  # (n, 3)
    scale: Array  # (3,) of their distances
    shares: Array  # (n, I, J) of the temperatures and widths, fitted around each scene
    weights: Array  # (4,) of π's logistic function

    @cached_property
    def usual_nats(self) -> float:
        """What an onset tells in the open, about: few of the scenes are better."""
        return float(np.percentile(self.features[:, 0], _OPEN_PERCENTILE))

    def near(self, features: Array) -> Array:
        """Shares (..., I, J) of the scenes nearest in their features (..., 3)."""
        far = (((self.features - features[..., None, :]) / self.scale) ** 2).sum(axis=-1)
        w = np.exp(-0.5 * (far - far.min(axis=-1, keepdims=True)) / _SHARP)
        near: Array = np.tensordot(w / w.sum(axis=-1, keepdims=True), self.shares, axes=1)
        return near

    def open_share(self, features: Array, misfit: float) -> float:
        """π: how much of the open-air answer is believed; `misfit` in units of what is usual."""
        return float(expit(self.weights @ _inputs(features, misfit)))

    def posterior(self, space: Space, look: Look) -> DirectionPosterior:
        """Where the sound is believed to be."""
        return self.posteriors(space, [look])[0]

    def posteriors(self, space: Space, looks: Sequence[Look]) -> list[DirectionPosterior]:
        """Where each of some sounds is believed to be."""
        if not looks:
            return []
        near = self.near(np.array([look.features for look in looks]))
        judges = near.sum(axis=2)
        asked = judges > _NO_SHARE * judges.sum(axis=1, keepdims=True)
        betas = np.exp(judges @ np.log(BETAS) / judges.sum(axis=1))
        widths = np.hypot(WIDTHS, _POINT_DEGREES)
        return [
            _gaussians(
                space, look, place_probabilities(look, BETAS[own]).T @ shares[own], widths, peak
            )
            for look, own, shares, peak in zip(
                looks, asked, near, _peaks(space, looks, betas), strict=True
            )
        ]


def believed_places(
    space: Space, look: Look, beta: float, width_degrees: float
) -> DirectionPosterior:
    """p_g ∝ size_g exp(β L_g) as a posterior: a Gaussian of that width at each place that counts."""
    p = place_probabilities(look, np.array([beta]))
    (peak,) = _peaks(space, [look], np.array([beta]))
    return _gaussians(space, look, p.T, np.array([width_degrees]), peak)


def _gaussians(
    space: Space, look: Look, p: Array, widths: Array, peak: Array
) -> DirectionPosterior:
    """Gaussians of widths (J,) at the places of a look, in proportion p (P, J): those that count.

    The likeliest place stands between the points of the grid, at `peak` (L,) of its chart.
    """
    flat = p.ravel()
    # Those above the mean, and the greatest of them: a twentieth of the time of sorting all.
    above = np.flatnonzero(flat > flat.mean())
    if len(above) < _MOST_PARTS:
        above = np.arange(len(flat))
    most = min(_MOST_PARTS, len(flat))
    top = np.sort(above[np.argpartition(-flat[above], most - 1)[:most]])
    order = top[np.argsort(-flat[top], kind="stable")]
    count = min(int(np.searchsorted(np.cumsum(flat[order]), _MASS * flat.sum())) + 1, _MOST_PARTS)
    kept = np.sort(order[:count])
    place, width = np.divmod(kept, len(widths))
    means = np.zeros((len(kept), space.dims))
    means[place == np.argmax(look.log_likelihoods)] = peak
    return DirectionPosterior(
        space,
        look.places[place],
        flat[kept] / flat[kept].sum(),
        means,
        (widths[width] ** 2)[:, None, None] * np.eye(space.dims),
    )


def _inputs(features: Array, misfit: float) -> Array:
    """What π hangs on, each about 1 in size."""
    return np.array([1.0, features[0] - 1.5, (features[1] - 25) / 10, np.log(misfit)])


def place_probabilities(look: Look, betas: Array) -> Array:
    """p (I, P): how probable each place is to judges of such sharpness, the sharpest first.

    Most are twice as sharp as the next: a square is a tenth of the time of an exponential.
    """
    gaps = look.log_likelihoods - look.log_likelihoods.max()
    p = np.empty((len(betas), len(gaps)))
    for n in range(len(betas))[::-1]:
        if n + 1 < len(betas) and betas[n] == 2 * betas[n + 1]:
            np.square(p[n + 1], out=p[n])
        else:
            np.exp(betas[n] * gaps, out=p[n])
    p *= look.sizes
    p /= p.sum(axis=1, keepdims=True)
    return p


def _peaks(space: Space, looks: Sequence[Look], betas: Array) -> Array:
    """Chart coordinates (N, L) of the peaks, between each best point and those around it."""
    best = [int(np.argmax(look.log_likelihoods)) for look in looks]
    # No place is nearer than its last coordinate is: a tenth of them is looked at.
    around = [
        np.flatnonzero(
            (np.abs(look.places[:, -1] - look.places[n, -1]) < _AROUND_DEGREES) & (look.sizes == 1)
        )
        for look, n in zip(looks, best, strict=True)
    ]
    of = np.repeat(np.arange(len(looks)), [len(some) for some in around])
    places, gains = (
        np.concatenate([part[some] for part, some in zip(parts, around, strict=True)])
        for parts in (
            [look.places for look in looks],
            [look.log_likelihoods - look.log_likelihoods.max() for look in looks],
        )
    )
    centres = np.array([look.places[n] for look, n in zip(looks, best, strict=True)])
    u = space.log(centres[of], places)
    w = np.exp(np.minimum(2 * betas, 1.0)[of] * gains)
    w[np.linalg.norm(u, axis=1) >= _AROUND_DEGREES] = 0.0
    N = len(looks)
    sums = [np.bincount(of, w * axis, minlength=N) for axis in u.T]
    peaks: Array = np.stack(sums, axis=1) / np.bincount(of, w, minlength=N)[:, None]
    return peaks


def place_scores(space: Space, look: Look, truth: Array) -> Array:
    """log Σ_g p_ig N(truth; g, width_j²) (I, J)."""
    squared = space.distance(look.places, truth) ** 2
    normal = np.exp(-0.5 * np.divide.outer(squared, WIDTHS**2)) / (2 * np.pi * WIDTHS**2) ** (
        space.dims / 2
    )
    scores: Array = np.log(np.maximum(place_probabilities(look, BETAS) @ normal, 1e-300))
    return scores


def _shares(scores: Array, weight: Array, prior: Array, strength: float) -> Array:
    """Shares (IJ,) that make weighted truths most probable, scores (n, IJ): concave, by EM."""
    some = weight > 1e-3 * weight.max()
    scores, weight = scores[some], weight[some]
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    s: Array = prior / prior.sum()
    for _ in range(60):
        s = s * ((weight / (e @ s)) @ e) + strength * prior
        s /= s.sum()
    return s


def fit_trust(space: Space, looks: Sequence[Look], truths: Array) -> Trust:
    """The shares around each scene; nothing of the open-air answer is believed yet."""
    features = np.array([look.features for look in looks])
    scale = np.maximum(features.std(axis=0), _LEAST_SPREAD) * _SCALES
    scores = np.stack(
        [
            place_scores(space, look, truth).ravel()
            for look, truth in zip(looks, truths, strict=True)
        ]
    )
    even = np.full(scores.shape[1], 1 / scores.shape[1])
    usual = _shares(scores, np.ones(len(looks)), even, 0.5)
    shares = np.empty_like(scores)
    for n, own in enumerate(features):
        far = (((features - own) / scale) ** 2).sum(axis=1)
        width = max(np.sort(far)[min(_LIKE, len(far) - 1)] / 2, 1e-6)
        shares[n] = _shares(scores, np.exp(-0.5 * far / width) + 1e-3, usual, _PRIOR_SCENES)
    pairs = shares.reshape(-1, len(BETAS), len(WIDTHS))
    return Trust(features, scale, pairs, np.array([-30.0, 0.0, 0.0, 0.0]))


def fit_open_share(features: Array, misfits: Array, open_scores: Array, own_scores: Array) -> Array:
    """Weights (4,) of π that make truths most probable under the joint posterior.

    The scores (n,) are log p of the truths under the open-air posterior and under ours.
    """
    from scipy.optimize import minimize

    X = np.array([_inputs(f, m) for f, m in zip(features, misfits, strict=True)])
    top = np.maximum(open_scores, own_scores)
    a, b = (np.exp(np.maximum(s - top, -40.0)) for s in (open_scores, own_scores))

    def loss(v: Array) -> float:
        share = expit(X @ v)
        return float(-np.log(share * a + (1 - share) * b).sum() + _RIDGE * (v**2).sum())

    weights: Array = minimize(loss, np.zeros(X.shape[1]), method="BFGS").x
    return weights
