"""How large a posterior is: points that are spread evenly over it, and its density there, quickly.

In: the parts of a posterior (`earatlas.geometry.direction_posterior.DirectionPosterior`). Out: n points of it, and p at each
in single precision: sizes are told with two digits, and tracks ask for tens of thousands of them.

    K   parts                w_k   weights
    n   points               v_k   variance of a round part, degrees²
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

__all__ = ["densities", "distinct", "even_draws", "round_parts"]

_LEAST = np.float32(-60)  # of an exponent: what is less is not told, and would be ten times as slow
_NUMBERS = 50_000  # that are worked on at a time: they stay in the cache


@cache
def even_draws(n: int, dims: int) -> tuple[Array, Array]:
    """n numbers (n,) in (0, 1) and standard normal points (n, L), spread evenly together.

    Multiples of the powers of one irrational number, the root of g^(d+1) = g + 1: in d dimensions
    what the golden ratio is in one.
    """
    d, g = dims + 1, 1.5
    for _ in range(40):
        g = (1 + g) ** (1 / (d + 1))
    u = (0.5 + np.arange(1, n + 1)[:, None] * g ** -np.arange(1.0, d + 1)) % 1
    return u[:, 0], ndtri(u[:, 1:])


def distinct(rows: Array) -> tuple[Array, Indices]:
    """The rows (K, C) without repetitions, and which of them (K,) each one is."""
    order = np.lexsort(rows.T)
    ordered = rows[order]
    first = np.ones(len(rows), dtype=bool)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    place = np.empty(len(rows), dtype=np.intp)
    place[order] = np.cumsum(first) - 1
    return ordered[first], place


def round_parts(posterior: DirectionPosterior) -> tuple[Mask, Array]:
    """Which parts (K,) are round and stand at their centres, and the variance (K,) of each."""
    variances = posterior.covariances[:, 0, 0]
    even = variances[:, None, None] * np.eye(posterior.space.dims)
    plain: Mask = (posterior.means == 0).all(axis=1) & (posterior.covariances == even).all(
        axis=(1, 2)
    )
    return plain, variances


def densities(posterior: DirectionPosterior, points: Array) -> Array:
    """p (n,) at points (n, C), to about 1e-3 of itself.

    A blur, and onsets, put parts of several widths at one place: each place is looked at once.
    """
    plain, variances = round_parts(posterior)
    norms = posterior.weights / np.sqrt(np.linalg.det(2 * np.pi * posterior.covariances))
    p = np.zeros(len(points))
    if plain.any():
        exponents = _round_exponents(posterior, plain, variances, points)
        _add_parts(p, exponents, norms[plain].astype(np.float32))
    if not plain.all():
        exponents = _leaning_exponents(posterior, ~plain, points)
        _add_parts(p, exponents, norms[~plain].astype(np.float32))
    return p


def _add_parts(p: Array, exponents: Callable[[slice], Single], norms: Single) -> None:
    """Add Σ_k norms_k exp(exponent_nk) to p (n,), some points at a time."""
    block = max(_NUMBERS // len(norms), 1)
    for start in range(0, len(p), block):
        some = slice(start, start + block)
        e = exponents(some)
        np.maximum(e, _LEAST, out=e)
        p[some] += np.exp(e, out=e) @ norms


def _round_exponents(
    posterior: DirectionPosterior, plain: Mask, variances: Array, points: Array
) -> Callable[[slice], Single]:
    """Of parts that are round and stand at their centres: they need no chart."""
    centres, place = distinct(posterior.centres[plain])
    squared = posterior.space.rough_squared_distances(centres, points)  # (n, P)
    factors = (-0.5 / variances[plain]).astype(np.float32)
    return lambda some: squared[some].take(place, axis=1) * factors


def _leaning_exponents(
    posterior: DirectionPosterior, leaning: Mask, points: Array
) -> Callable[[slice], Single]:
    """Of parts of any shape: -|W (u - m)|² / 2 in the chart of their centre, with Wᵀ W = V^-1."""
    centres, place = distinct(posterior.centres[leaning])
    u = np.moveaxis(posterior.space.charts(centres, points), -1, 0).astype(np.float32)  # (L, n, P)
    means = posterior.means[leaning].T.astype(np.float32)[:, None]
    root = np.linalg.inv(np.linalg.cholesky(posterior.covariances[leaning]))
    W = (np.sqrt(0.5) * root.transpose(1, 2, 0)).astype(np.float32)  # (L, L, K) lower triangles

    def exponents(some: slice) -> Single:
        r = u[:, some].take(place, axis=2) - means  # (L, n, K)
        total = np.zeros(r.shape[1:], dtype=np.float32)
        for i, row in enumerate(W):
            white = row[0] * r[0]
            for j in range(1, i + 1):
                white += row[j] * r[j]
            white *= white
            total -= white
        return total

    return exponents
