"""Credible radii and areas of many posteriors on the sphere, from quasi-random points.

Input: components of b posteriors. Output: the component that each point is drawn from
(`draw_components`), its chart coordinates (`chart_coordinates`), and the radii and areas that
follow from the distances and densities of these points. Single precision throughout.

    b   posteriors      n   components      m   points; areas use the first `N_AREA_POINTS`
"""

from __future__ import annotations

from functools import cache

import numpy as np

from earatlas.geometry.credible_region import quasi_random_draws
from earatlas.types import Array, Indices, Single

__all__ = [
    "N_AREA_POINTS",
    "chart_coordinates",
    "cholesky_factors",
    "credible_areas",
    "credible_radii",
    "draw_components",
]

_N_POINTS, N_AREA_POINTS = 1000, 250  # points for a radius, and for an area (densities are slower)


@cache
def _sorted_draws() -> tuple[Array, Array, Single]:
    """Return `quasi_random_draws`, sorted within the points for areas and within the others."""
    uniforms, normals = quasi_random_draws(_N_POINTS, 2)
    order = np.concatenate([
        np.argsort(uniforms[:N_AREA_POINTS], kind="stable"),
        N_AREA_POINTS + np.argsort(uniforms[N_AREA_POINTS:], kind="stable"),
    ])  # fmt: skip
    first, rest = np.split(uniforms[order], [N_AREA_POINTS])
    return first, rest, np.ascontiguousarray(normals[order].T, dtype=np.float32)


def draw_components(weights: Single) -> Indices:
    """Return flat indices (b, m) into the b · n components, drawn by their weights (b, n)."""
    b, n = weights.shape
    order = np.argsort(-weights, axis=1, kind="stable")
    edges = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1, dtype=np.float64)
    components = (order + n * np.arange(b)[:, None]).ravel()
    out = []
    for uniforms in _sorted_draws()[:2]:
        below = np.searchsorted(uniforms, edges)
        below[:, -1] = len(uniforms)
        counts = np.diff(below, axis=1, prepend=0)
        out.append(np.repeat(components, counts.ravel()).reshape(b, -1))
    return np.concatenate(out, axis=1)


def chart_coordinates(k: Indices, roots: Single, means: Single) -> tuple[Single, Single]:
    """Return chart coordinates x, y (b, m) of points drawn from components k (b, m).

    `roots` (3, N) are the `cholesky_factors` and `means` (2, N) the means of all components.
    """
    z = _sorted_draws()[2]
    x = roots[0].take(k)
    x *= z[0]
    y = roots[1].take(k)
    y *= z[0]
    y += roots[2].take(k) * z[1]
    x += means[0].take(k)
    y += means[1].take(k)
    return x, y


def cholesky_factors(V: Array) -> Single:
    """Return the lower triangles (3, ...), row by row, of covariances (..., 2, 2).

    Covariances are in square degrees, the factors in radians.
    """
    a = np.sqrt(V[..., 0, 0])
    b = V[..., 0, 1] / a
    roots: Single = np.radians(np.stack([a, b, np.sqrt(V[..., 1, 1] - b**2)])).astype(np.float32)
    return roots


def credible_radii(versines: Single, level: float) -> Array:
    """Return the radii (b,) in degrees that contain a fraction `level` of the points.

    `versines` (b, m) holds 1 - cos of the angles from the centre to the points.
    """
    position = level * (versines.shape[1] - 1)
    low = int(position)
    ordered = np.partition(versines, (low, low + 1), axis=1)[:, low : low + 2]
    half = np.sqrt(np.clip(ordered.astype(np.float64) / 2, 0, 1))
    below, above = np.degrees(2 * np.arcsin(half)).T
    radii: Array = below + (position - low) * (above - below)
    return radii


def credible_areas(densities: Single, level: float) -> Array:
    """Return the areas (b,) of the highest-density regions, estimated as the mean of 1[p > t] / p.

    The mean is over points drawn from p, with densities (b, m); t is the density that a fraction
    `level` of them exceeds.
    """
    position = (1 - level) * (densities.shape[1] - 1)
    low = int(position)
    ordered = np.partition(densities, (low, low + 1), axis=1)
    below, above = ordered[:, low], ordered[:, low + 1]
    threshold = (below + (position - low) * (above - below))[:, None]
    areas: Array = np.where(densities >= threshold, 1 / densities, 0).mean(axis=1, dtype=np.float64)
    return areas
