"""Gaussians in charts: draws, log densities, changes of coordinates, and products of mixtures.

`mixture_product` and `quadrature_product` return the normalized product of a `DirectionPosterior`
with another one, or with any function of directions, in the charts of the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.space import Space
from earatlas.numerics import logsumexp
from earatlas.types import Array, Indices

if TYPE_CHECKING:
    from earatlas.geometry.direction_posterior import DirectionPosterior

__all__ = [
    "change_chart",
    "gaussian_radius_90",
    "log_components",
    "log_gaussians",
    "mixture_product",
    "quadrature_product",
    "quasi_random_draws",
    "unique_rows",
]


def gaussian_radius_90(dims: int) -> float:
    """Return the radius that holds 90 % of a standard Gaussian in one or two dimensions."""
    return NormalDist().inv_cdf(0.95) if dims == 1 else math.sqrt(-2 * math.log(0.1))


@cache
def quasi_random_draws(n: int, dims: int) -> tuple[Array, Array]:
    """Return n numbers (n,) in (0, 1) and n standard normal points (n, L) of low discrepancy.

    This is the additive recurrence (Kronecker sequence) with powers of the root of
    g^(d+1) = g + 1, which generalizes the golden ratio to d dimensions.
    """
    d, g = dims + 1, 1.5
    for _ in range(40):
        g = (1 + g) ** (1 / (d + 1))
    u = (0.5 + np.arange(1, n + 1)[:, None] * g ** -np.arange(1.0, d + 1)) % 1
    quantile = np.vectorize(NormalDist().inv_cdf)
    return u[:, 0], quantile(u[:, 1:])


def change_chart(space: Space, centres: Array, u: Array, new_centres: Array) -> tuple[Array, Array]:
    """Return the coordinates (K, L) of points in new charts, and the Jacobians (K, L, L) there.

    The points have coordinates `u` (K, L) in the charts around `centres` (K, C).
    """
    L, step = space.dims, 0.25  # degrees, of the central differences
    moved = space.log(new_centres, space.exp(centres, u))
    columns = []
    for axis in np.eye(L) * step:
        forward = space.log(new_centres, space.exp(centres, u + axis))
        backward = space.log(new_centres, space.exp(centres, u - axis))
        columns.append((forward - backward) / (2 * step))
    return moved, np.stack(columns, axis=-1)


def log_gaussians(residuals: Array, covariances: Array) -> Array:
    """Return log N(residuals; 0, covariances) (..., K) of (..., K, L) and (K, L, L)."""
    L = residuals.shape[-1]
    factor = np.linalg.cholesky(covariances)
    whiten = np.linalg.inv(factor)
    squared = np.zeros(residuals.shape[:-1])
    for i in range(L):  # one coordinate at a time is several times as fast as one einsum
        white = whiten[:, i, 0] * residuals[..., 0]
        for j in range(1, i + 1):
            white += whiten[:, i, j] * residuals[..., j]
        white *= white
        squared += white
    log_root = np.log(np.einsum("kll->kl", factor)).sum(axis=-1)
    result: Array = -0.5 * squared - log_root - 0.5 * L * np.log(2 * np.pi)
    return result


def log_components(posterior: DirectionPosterior, x: Array) -> Array:
    """Return log N (N, K) of each component at points (N, C).

    Several components often share one centre, so that charts are computed once per unique centre.
    Isotropic components around their own centre need only distances.
    """
    space, L = posterior.space, posterior.space.dims
    variances = posterior.covariances[:, 0, 0]
    scaled_identity = variances[:, None, None] * np.eye(L)
    isotropic = (posterior.covariances == scaled_identity).all(axis=(1, 2))
    isotropic &= (posterior.means == 0).all(axis=1)
    logs = np.empty((len(x), len(isotropic)))
    if not isotropic.all():
        centres, index = unique_rows(posterior.centres[~isotropic])
        u = np.moveaxis(space.charts(centres, x), -1, 0)[..., index]
        residuals = np.moveaxis(u, 0, -1) - posterior.means[~isotropic]
        logs[:, ~isotropic] = log_gaussians(residuals, posterior.covariances[~isotropic])
    if isotropic.any():
        centres, index = unique_rows(posterior.centres[isotropic])
        v = variances[isotropic]
        squared = space.squared_distances(centres, x)[:, index]
        logs[:, isotropic] = -0.5 * (squared / v + L * np.log(2 * np.pi * v))
    return logs


def unique_rows(rows: Array) -> tuple[Array, Indices]:
    """Return the unique rows of an array (K, C), and the index (K,) of each row among them."""
    order = np.lexsort(rows.T)
    ordered = rows[order]
    first = np.ones(len(rows), dtype=bool)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    inverse = np.empty(len(rows), dtype=np.intp)
    inverse[order] = np.cumsum(first) - 1
    return ordered[first], inverse


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
    node, weight = np.polynomial.hermite_e.hermegauss(7)  # nodes and weights
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
