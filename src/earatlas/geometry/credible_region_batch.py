"""Radii and areas of many posteriors by points that are spread evenly over each, in single precision.

In: parts of posteriors on the sphere. Out: which part each point is drawn from (`drawn`), where in its
chart it lies (`normals_of`), and what distances and densities there say of the size of a region.

    b   posteriors        n   parts        m   points, the first `OF_AREA` of which serve for areas
"""

from __future__ import annotations

from functools import cache

import numpy as np

from earatlas.geometry.credible_region import even_draws
from earatlas.types import Array, Indices, Single

__all__ = ["OF_AREA", "areas_of", "drawn", "normals_of", "radii_of", "roots_of"]

_DRAWS, OF_AREA = 1000, 250  # points of a radius, and of an area: a density costs more


@cache
def _ordered() -> tuple[Array, Array, Single]:
    """`even_draws`: those of areas and the others, each in order of the parts that they choose."""
    which, normals = even_draws(_DRAWS, 2)
    order = np.concatenate([
        np.argsort(which[:OF_AREA], kind="stable"),
        OF_AREA + np.argsort(which[OF_AREA:], kind="stable"),
    ])  # fmt: skip
    first, rest = np.split(which[order], [OF_AREA])
    return first, rest, np.ascontiguousarray(normals[order].T, dtype=np.float32)


def drawn(weights: Single) -> Indices:
    """Which of all b n parts each of the points (b, m) is drawn from, of weights (b, n)."""
    b, n = weights.shape
    order = np.argsort(-weights, axis=1, kind="stable")
    edges = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1, dtype=np.float64)
    parts = (order + n * np.arange(b)[:, None]).ravel()
    out = []
    for which in _ordered()[:2]:
        below = np.searchsorted(which, edges)
        below[:, -1] = len(which)
        counts = np.diff(below, axis=1, prepend=0)
        out.append(np.repeat(parts, counts.ravel()).reshape(b, -1))
    return np.concatenate(out, axis=1)


def normals_of(k: Indices, roots: Single, means: Single) -> tuple[Single, Single]:
    """Chart coordinates x, y (b, m) of points of parts k (b, m), of roots (3, N), means (2, N)."""
    z = _ordered()[2]
    x = roots[0].take(k)
    x *= z[0]
    y = roots[1].take(k)
    y *= z[0]
    y += roots[2].take(k) * z[1]
    x += means[0].take(k)
    y += means[1].take(k)
    return x, y


def roots_of(V: Array) -> Single:
    """Lower triangles (3, ...), by rows, of covariances (..., 2, 2) in degrees; radians."""
    a = np.sqrt(V[..., 0, 0])
    b = V[..., 0, 1] / a
    roots: Single = np.radians(np.stack([a, b, np.sqrt(V[..., 1, 1] - b**2)])).astype(np.float32)
    return roots


def radii_of(versines: Single, level: float) -> Array:
    """Degrees (b,) within which `level` of points lie, by 1 - cos of their angles (b, m)."""
    place = level * (versines.shape[1] - 1)
    low = int(place)
    ordered = np.partition(versines, (low, low + 1), axis=1)[:, low : low + 2]
    half = np.sqrt(np.clip(ordered.astype(np.float64) / 2, 0, 1))
    below, above = np.degrees(2 * np.arcsin(half)).T
    radii: Array = below + (place - low) * (above - below)
    return radii


def areas_of(densities: Single, level: float) -> Array:
    """(b,): the mean of 1[p > t] / p over points of p, t the density that `level` exceed."""
    place = (1 - level) * (densities.shape[1] - 1)
    low = int(place)
    ordered = np.partition(densities, (low, low + 1), axis=1)
    below, above = ordered[:, low], ordered[:, low + 1]
    least = (below + (place - low) * (above - below))[:, None]
    areas: Array = np.where(densities >= least, 1 / densities, 0).mean(axis=1, dtype=np.float64)
    return areas
