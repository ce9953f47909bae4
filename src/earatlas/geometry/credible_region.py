"""Quasi-random points of a direction posterior and its density at them, for credible-region sizes.

Input: the components of a `DirectionPosterior`. Output: n points and the density at each of them in
single precision, which is enough for sizes that are reported with two digits.

    K   components           w_k   weights
    n   points               v_k   variance of an isotropic component, square degrees
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from earatlas.types import Array, Indices, Mask, Single

if TYPE_CHECKING:
    from earatlas.geometry.direction_posterior import DirectionPosterior

__all__ = ["densities", "isotropic_components", "quasi_random_draws", "unique_rows"]

# Evidence: docs/figures/settings/geometry.md, "credible_region".
_MIN_EXPONENT = np.float32(-60)  # smaller exponents do not matter, and subnormals are slow
_BLOCK_NUMBERS = 50_000  # numbers per block, so that a block stays in the cache


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
    return u[:, 0], ndtri(u[:, 1:])


def unique_rows(rows: Array) -> tuple[Array, Indices]:
    """Return the unique rows of an array (K, C), and the index (K,) of each row among them."""
    order = np.lexsort(rows.T)
    ordered = rows[order]
    first = np.ones(len(rows), dtype=bool)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    inverse = np.empty(len(rows), dtype=np.intp)
    inverse[order] = np.cumsum(first) - 1
    return ordered[first], inverse


def isotropic_components(posterior: DirectionPosterior) -> tuple[Mask, Array]:
    """Return which components (K,) are isotropic with mean zero, and the variance (K,) of each."""
    variances = posterior.covariances[:, 0, 0]
    scaled_identity = variances[:, None, None] * np.eye(posterior.space.dims)
    isotropic: Mask = (posterior.means == 0).all(axis=1) & (
        posterior.covariances == scaled_identity
    ).all(axis=(1, 2))
    return isotropic, variances


def densities(posterior: DirectionPosterior, points: Array) -> Array:
    """Return the density (n,) at points (n, C), with a relative error of about 1e-3.

    Several components often share one centre with different widths (after a convolution, and for
    onsets), so distances are computed once per unique centre.
    """
    isotropic, variances = isotropic_components(posterior)
    norms = posterior.weights / np.sqrt(np.linalg.det(2 * np.pi * posterior.covariances))
    p = np.zeros(len(points))
    if isotropic.any():
        exponents = _isotropic_exponents(posterior, isotropic, variances, points)
        _add_components(p, exponents, norms[isotropic].astype(np.float32))
    if not isotropic.all():
        exponents = _general_exponents(posterior, ~isotropic, points)
        _add_components(p, exponents, norms[~isotropic].astype(np.float32))
    return p


def _add_components(p: Array, exponents: Callable[[slice], Single], norms: Single) -> None:
    """Add Σ_k norms_k exp(exponent_nk) to p (n,) in place, block by block."""
    size = max(_BLOCK_NUMBERS // len(norms), 1)
    for start in range(0, len(p), size):
        block = slice(start, start + size)
        e = exponents(block)
        np.maximum(e, _MIN_EXPONENT, out=e)
        p[block] += np.exp(e, out=e) @ norms


def _isotropic_exponents(
    posterior: DirectionPosterior, isotropic: Mask, variances: Array, points: Array
) -> Callable[[slice], Single]:
    """Return a function of a block of points that computes -d² / (2 v_k); no chart is needed."""
    centres, index = unique_rows(posterior.centres[isotropic])
    squared = posterior.space.approximate_squared_distances(centres, points)  # (n, P)
    factors = (-0.5 / variances[isotropic]).astype(np.float32)
    return lambda block: squared[block].take(index, axis=1) * factors


def _general_exponents(
    posterior: DirectionPosterior, general: Mask, points: Array
) -> Callable[[slice], Single]:
    """Return a function of a block that computes -|W (u - m)|² / 2 in each chart, Wᵀ W = V⁻¹."""
    centres, index = unique_rows(posterior.centres[general])
    u = np.moveaxis(posterior.space.charts(centres, points), -1, 0).astype(np.float32)  # (L, n, P)
    means = posterior.means[general].T.astype(np.float32)[:, None]
    inverse_root = np.linalg.inv(np.linalg.cholesky(posterior.covariances[general]))
    W = (np.sqrt(0.5) * inverse_root.transpose(1, 2, 0)).astype(np.float32)  # (L, L, K), lower

    def exponents(block: slice) -> Single:
        residuals = u[:, block].take(index, axis=2) - means  # (L, n, K)
        total = np.zeros(residuals.shape[1:], dtype=np.float32)
        for i, row in enumerate(W):
            white = row[0] * residuals[0]
            for j in range(1, i + 1):
                white += row[j] * residuals[j]
            white *= white
            total -= white
        return total

    return exponents
