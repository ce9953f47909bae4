"""Normalized products of a direction posterior with another density.

Input: a `DirectionPosterior` p, and another one or any function of directions. Output: the product
as a `DirectionPosterior` in the charts of p.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from earatlas.errors import InputError
from earatlas.geometry.chart_gaussians import change_chart, log_gaussians
from earatlas.types import Array

if TYPE_CHECKING:
    from earatlas.geometry.direction_posterior import DirectionPosterior

__all__ = ["mixture_product", "quadrature_product"]

_NODES = 7  # nodes of the Gauss-Hermite quadrature per axis


def mixture_product(p: DirectionPosterior, q: DirectionPosterior) -> DirectionPosterior:
    """Return p(x) q(x) / Z, component by component; exact on the plane."""
    k, j = (i.ravel() for i in np.indices((len(p.weights), len(q.weights))))
    means, jacobian = change_chart(p.space, q.centres[j], q.means[j], p.centres[k])
    cov_q = jacobian @ q.covariances[j] @ jacobian.mT
    cov_p, total = p.covariances[k], p.covariances[k] + cov_q
    difference = means - p.means[k]
    logs = np.log(p.weights[k]) + np.log(q.weights[j]) + log_gaussians(difference, total)
    gain = np.linalg.solve(total, cov_p).mT  # V_p (V_p + V_q)^-1
    covariances = cov_p - gain @ cov_p
    return replace(
        p,
        centres=p.centres[k],
        weights=np.exp(logs - logsumexp(logs)),
        means=p.means[k] + np.einsum("klm,km->kl", gain, difference),
        covariances=0.5 * (covariances + covariances.mT),
    )


def quadrature_product(
    p: DirectionPosterior, log_factor: Callable[[Array], ArrayLike]
) -> DirectionPosterior:
    """Return p(x) f(x) / Z, with the moments of each component by Gauss-Hermite quadrature."""
    L = p.space.dims
    node, weight = np.polynomial.hermite_e.hermegauss(_NODES)
    nodes = np.stack(np.meshgrid(*[node] * L, indexing="ij"), axis=-1).reshape(-1, L)
    node_weights = np.prod(
        np.stack(np.meshgrid(*[weight / weight.sum()] * L, indexing="ij"), axis=-1), axis=-1
    ).ravel()
    root = np.linalg.cholesky(p.covariances)
    u = p.means[:, None] + np.einsum("klm,jm->kjl", root, nodes)
    points = p.space.exp(p.centres[:, None], u)
    logs = np.asarray(log_factor(points.reshape(-1, p.space.columns)), dtype=np.float64)
    terms = logs.reshape(len(p.weights), -1) + np.log(node_weights)
    norm = logsumexp(terms, axis=1)
    if not np.isfinite(norm).any():
        raise InputError(
            "log_factor must be above -inf where the posterior has probability, got -inf "
            "everywhere. Add a small floor to the prior."
        )
    r = np.exp(terms - np.where(np.isfinite(norm), norm, 0.0)[:, None])
    means = np.einsum("kj,kjl->kl", r, u)
    residuals = u - means[:, None]
    covariances = np.einsum("kj,kjl,kjm->klm", r, residuals, residuals)
    logs = np.log(p.weights) + norm
    return replace(
        p,
        weights=np.exp(logs - logsumexp(logs)),
        means=means,
        # If f selects a single node the covariance is zero: keep a hundredth of the old width.
        covariances=covariances + 1e-4 * p.covariances,
    )
