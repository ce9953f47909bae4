"""Angles and unit vectors: azimuth counter-clockwise (left positive), elevation up, in degrees."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from earatlas.types import Array

__all__ = [
    "SPHERE_SQUARE_DEGREES",
    "azimuth_error",
    "elevation_error",
    "great_circle_error",
    "to_directions",
    "to_vectors",
    "wrap_degrees",
]

SPHERE_SQUARE_DEGREES = float(4 * np.pi * (180 / np.pi) ** 2)  # 41,253


def wrap_degrees(angle: ArrayLike) -> Array:
    """The same angle in (-180, 180].

    >>> wrap_degrees([190.0, -180.0, 180.0, 0.0]).tolist()
    [-170.0, 180.0, 180.0, 0.0]
    """
    wrapped: Array = 180.0 - np.mod(180.0 - np.asarray(angle, dtype=np.float64), 360.0)
    return wrapped


def to_vectors(directions: ArrayLike) -> Array:
    """Unit vectors (..., 3), x ahead, y left, z up, of directions (..., 2) in degrees."""
    azimuth, elevation = np.moveaxis(np.radians(np.asarray(directions, dtype=np.float64)), -1, 0)
    flat = np.cos(elevation)
    return np.stack([flat * np.cos(azimuth), flat * np.sin(azimuth), np.sin(elevation)], axis=-1)


def to_directions(vectors: ArrayLike) -> Array:
    """Directions (..., 2) in degrees of vectors (..., 3) of any length; the inverse of to_vectors.

    At a pole the azimuth is 0: it means nothing there.
    """
    x, y, z = np.moveaxis(np.asarray(vectors, dtype=np.float64), -1, 0)
    flat = np.hypot(x, y)
    azimuth = np.where(flat > 1e-12 * np.abs(z), np.arctan2(y, x), 0.0)
    directions: Array = np.degrees(np.stack([azimuth, np.arctan2(z, flat)], axis=-1))
    directions[..., 0] = wrap_degrees(directions[..., 0])
    return directions


def great_circle_error(true: ArrayLike, found: ArrayLike) -> Array:
    """Angle in degrees between directions (..., 2), in [0, 180]."""
    a, b = to_vectors(true), to_vectors(found)
    # arctan2 keeps full precision at 0 and 180 degrees, where arccos loses half the digits.
    cross = np.linalg.norm(np.cross(a, b), axis=-1)
    angle: Array = np.degrees(np.arctan2(cross, np.sum(a * b, axis=-1)))
    return angle


def azimuth_error(true: ArrayLike, found: ArrayLike) -> Array:
    """Absolute azimuth difference in degrees the short way round, in [0, 180]."""
    t, f = np.asarray(true, dtype=np.float64), np.asarray(found, dtype=np.float64)
    return np.abs(wrap_degrees(f[..., 0] - t[..., 0]))


def elevation_error(true: ArrayLike, found: ArrayLike) -> Array:
    """Absolute elevation difference in degrees."""
    t, f = np.asarray(true, dtype=np.float64), np.asarray(found, dtype=np.float64)
    error: Array = np.abs(f[..., 1] - t[..., 1])
    return error
