"""How far a look may be trusted: measured in scenes made from the head itself.

In: looks (`earatlas.learning.direct.Look`) at scenes whose truth is known, in all conditions.
Out: `Trust`, which turns a look at a recording into an honest belief, as sure as the scenes most
like it allow, and says how much of the open-air answer to mix in.

    p_g ∝ size_g exp(β L_g)                              which place
    belief = Σ_g p_g Σ_j share_j N(width_j² + turn²)     how far beside it
    π PPAM + (1 - π) belief                              joint answer

β and the shares are those of the scenes nearest in their features φ (nats a bin, dB above the quiet
level, number of bins); π is a logistic function of φ and of how badly the open-air model fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logsumexp

from earatlas.learning.direct import Look
from earatlas.space.belief import ChartMixture
from earatlas.space.spaces import Space
from earatlas.types import Array

__all__ = ["Trust", "believed_places", "fit_trust", "place_scores"]

WIDTHS = 2.0 ** np.arange(7)  # degrees, 1 … 64
BETAS = 2.0 ** np.arange(2.0, -7.01, -0.5)
_TURN_DEGREES = 1.5  # no two measurements of a head are turned alike
_AROUND_DEGREES = 3.2  # of the best point: its neighbours on a grid of 2 degrees
_LIKE = 25  # scenes, about, that an answer's sureness is taken from
_SHARP = 0.25  # of the squared distance in φ, among the scenes nearest to a recording
_MOST_PLACES, _MASS = 300, 0.999  # of a belief
_LEAST_SPREAD = np.array([0.1, 2.0, 0.5])  # of the features, where scenes are all alike
_RIDGE = 0.02  # of the logistic weights: keeps them finite where one answer always wins


@dataclass(frozen=True, eq=False)
class Trust:
    """Fitted on n scenes."""

    features: Array  # (n, 3)
    scale: Array  # (3,) of their distances
    beta: Array  # (n,) fitted around each scene
    shares: Array  # (n, J) of the widths
    weights: Array  # (4,) of π's logistic function

    def near(self, features: Array) -> tuple[float, Array]:
        """β and shares (J,) of the scenes nearest in their features."""
        far = (((self.features - features) / self.scale) ** 2).sum(axis=1)
        w = np.exp(-0.5 * (far - far.min()) / _SHARP)
        w /= w.sum()
        return float(np.exp(w @ np.log(self.beta))), w @ self.shares

    def open_share(self, features: Array, misfit: float) -> float:
        """π: how much of the open-air answer is believed; `misfit` in units of what is usual."""
        return float(expit(self.weights @ _inputs(features, misfit)))

    def belief(self, space: Space, look: Look) -> ChartMixture:
        """Where the sound is believed to be."""
        beta, shares = self.near(look.features)
        points = believed_places(space, look, beta, _TURN_DEGREES)
        some = shares > 1e-3
        return points.blurred(WIDTHS[some], shares[some])


def believed_places(space: Space, look: Look, beta: float, width_degrees: float) -> ChartMixture:
    """p_g ∝ size_g exp(β L_g) as a belief: a Gaussian of that width at each place that counts."""
    p = _probabilities(look, beta)
    order = np.argsort(-p, kind="stable")
    count = min(int(np.searchsorted(np.cumsum(p[order]), _MASS)) + 1, _MOST_PLACES)
    kept = order[:count]
    means = np.zeros((count, space.dims))
    means[kept == np.argmax(look.log_likelihoods)] = _refined(space, look, beta)
    return ChartMixture(
        space,
        look.places[kept],
        p[kept] / p[kept].sum(),
        means,
        np.tile(width_degrees**2 * np.eye(space.dims), (count, 1, 1)),
    )


def _inputs(features: Array, misfit: float) -> Array:
    """What π hangs on, each about 1 in size."""
    return np.array([1.0, features[0] - 1.5, (features[1] - 25) / 10, np.log(misfit)])


def _probabilities(look: Look, beta: float) -> Array:
    logs = beta * look.log_likelihoods + np.log(look.sizes)
    p: Array = np.exp(logs - logsumexp(logs))
    return p


def _refined(space: Space, look: Look, beta: float) -> Array:
    """Chart coordinates (L,) of the peak, between the best point and those around it."""
    best = int(np.argmax(look.log_likelihoods))
    u = space.log(look.places[best], look.places)
    near = (np.linalg.norm(u, axis=1) < _AROUND_DEGREES) & (look.sizes == 1)
    gain = look.log_likelihoods[near] - look.log_likelihoods[best]
    w = np.exp(min(2 * beta, 1.0) * gain)
    refined: Array = w @ u[near] / w.sum()
    return refined


def place_scores(space: Space, look: Look, truth: Array, betas: Array) -> Array:
    """log Σ_g p_g N(truth; g, width_j²) (betas, J)."""
    squared = space.distance(look.places, truth) ** 2
    normal = np.exp(-0.5 * squared[:, None] / WIDTHS**2) / (2 * np.pi * WIDTHS**2) ** (
        space.dims / 2
    )
    p = np.stack([_probabilities(look, beta) for beta in betas])
    scores: Array = np.log(np.maximum(p @ normal, 1e-300))
    return scores


def _shares(scores: Array, weight: Array, prior: Array, strength: float) -> tuple[Array, Array]:
    """Shares (betas, J) that make weighted truths most probable, scores (n, betas, J); and how."""
    s = np.tile(prior / prior.sum(), (scores.shape[1], 1))
    some = weight > 1e-3 * weight.max()
    scores, weight = scores[some], weight[some]
    top = scores.max(axis=-1, keepdims=True)
    e = np.exp(scores - top)
    for _ in range(40):
        scale = weight[:, None] / np.einsum("nbj,bj->nb", e, s)
        s = s * np.einsum("nbj,nb->bj", e, scale) + strength * prior
        s /= weight.sum() + strength
    fit = np.log(np.einsum("nbj,bj->nb", e, s)) + top[..., 0]
    return s, weight @ fit / weight.sum()


def fit_trust(space: Space, looks: Sequence[Look], truths: Array) -> Trust:
    """β and shares around each scene; nothing of the open-air answer is believed yet."""
    features = np.array([look.features for look in looks])
    scale = np.maximum(features.std(axis=0), _LEAST_SPREAD)
    scores = np.stack(
        [place_scores(space, look, truth, BETAS) for look, truth in zip(looks, truths, strict=True)]
    )
    even = np.full(len(WIDTHS), 1 / len(WIDTHS))
    every, fits = _shares(scores, np.ones(len(looks)), even, 0.5)
    usual = every[np.argmax(fits)] + 1e-6
    beta, shares = np.empty(len(looks)), np.empty((len(looks), len(WIDTHS)))
    for n, own in enumerate(features):
        far = (((features - own) / scale) ** 2).sum(axis=1)
        width = max(np.sort(far)[min(_LIKE, len(far) - 1)] / 2, 1e-6)
        found, fits = _shares(scores, np.exp(-0.5 * far / width) + 1e-3, usual, 1.0)
        beta[n], shares[n] = BETAS[np.argmax(fits)], found[np.argmax(fits)]
    return Trust(features, scale, beta, shares, np.array([-30.0, 0.0, 0.0, 0.0]))


def fit_open_share(features: Array, misfits: Array, open_scores: Array, own_scores: Array) -> Array:
    """Weights (4,) of π that make truths most probable under the joint belief.

    The scores (n,) are log p of the truths under the open-air belief and under ours.
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
