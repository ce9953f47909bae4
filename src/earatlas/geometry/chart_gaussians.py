"""Gaussians in charts: log densities, and the change of coordinates between two charts."""

from __future__ import annotations

import numpy as np

from earatlas.geometry.space import Space
from earatlas.types import Array

__all__ = ["change_chart", "log_gaussians"]

_STEP_DEGREES = 0.25  # step of the central differences, degrees


def change_chart(space: Space, centres: Array, u: Array, new_centres: Array) -> tuple[Array, Array]:
    """Return the coordinates (K, L) of points in new charts, and the Jacobians (K, L, L) there.

    The points have coordinates `u` (K, L) in the charts around `centres` (K, C).
    """
    L, step = space.dims, _STEP_DEGREES
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
