"""Conversions between angles and unit vectors, angular errors, and the prior of front before rear.

Angles are in degrees: azimuth is counter-clockwise (left is positive), elevation is upwards.

On the median plane of a nearly symmetric head, and in rooms, cues often do not distinguish front
from back. Without a prior, small differences between the learned and the recording head then decide
between the two. The prior is

    log p(x) = 1/2 log(odds) x_1 + constant,

where x_1, from -1 (straight behind) to 1 (straight ahead), is the front component of the unit
vector of x. It decides ties, and is negligible wherever cues distinguish front from back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from earatlas.types import Array

if TYPE_CHECKING:
    from earatlas.geometry.direction_posterior import DirectionPosterior

__all__ = [
    "FRONT_PRIOR",
    "SPHERE_SQUARE_DEGREES",
    "FrontPrior",
    "apply_front_prior",
    "azimuth_error",
    "cosines_to_degrees",
    "elevation_error",
    "great_circle_error",
    "to_directions",
    "to_vectors",
    "wrap_degrees",
]


SPHERE_SQUARE_DEGREES = float(4 * np.pi * (180 / np.pi) ** 2)  # 41,253, area of the unit sphere


def wrap_degrees(angle: ArrayLike) -> Array:
    """Wrap angles in degrees to (-180, 180].

    >>> wrap_degrees([190.0, -180.0, 180.0, 0.0]).tolist()
    [-170.0, 180.0, 180.0, 0.0]
    """
    wrapped: Array = 180.0 - np.mod(180.0 - np.asarray(angle, dtype=np.float64), 360.0)
    return wrapped


def to_vectors(directions: ArrayLike) -> Array:
    """Convert directions (..., 2) in degrees to unit vectors (..., 3): x front, y left, z up."""
    angles = np.radians(np.asarray(directions, dtype=np.float64))
    azimuth, elevation = angles[..., 0], angles[..., 1]
    horizontal = np.cos(elevation)
    vectors = np.empty((*azimuth.shape, 3))  # np.stack takes twice as long for few directions
    vectors[..., 0] = horizontal * np.cos(azimuth)
    vectors[..., 1] = horizontal * np.sin(azimuth)
    vectors[..., 2] = np.sin(elevation)
    return vectors


def to_directions(vectors: ArrayLike) -> Array:
    """Convert vectors (..., 3) of any length to directions (..., 2) in degrees.

    This is the inverse of `to_vectors`. The azimuth at a pole is undefined and set to 0.
    """
    x, y, z = np.moveaxis(np.asarray(vectors, dtype=np.float64), -1, 0)
    horizontal = np.hypot(x, y)
    azimuth = np.where(horizontal > 1e-12 * np.abs(z), np.arctan2(y, x), 0.0)
    directions: Array = np.degrees(np.stack([azimuth, np.arctan2(z, horizontal)], axis=-1))
    directions[..., 0] = wrap_degrees(directions[..., 0])
    return directions


def cosines_to_degrees(cosines: Array) -> Array:
    """Return the angles in degrees between unit vectors from their inner products.

    >>> cosines_to_degrees(np.array([1.0 + 1e-15, 0.0, -1.0])).tolist()
    [0.0, 90.0, 180.0]
    """
    degrees: Array = np.degrees(np.arccos(np.clip(cosines, -1, 1)))
    return degrees


def great_circle_error(true: ArrayLike, estimated: ArrayLike) -> Array:
    """Return the great-circle distance between true and estimated directions.

    Parameters
    ----------
    true, estimated : array_like of shape (..., 2)
        Azimuth and elevation in degrees. The leading axes broadcast.

    Returns
    -------
    ndarray of shape (...)
        Angle between the two directions in degrees, from 0 to 180.

    Examples
    --------
    >>> import earatlas as ea
    >>> ea.great_circle_error([[0, 0], [170, 0]], [[0, 90], [-170, 0]]).round(6).tolist()
    [90.0, 20.0]
    """
    a, b = to_vectors(true), to_vectors(estimated)
    # arctan2 keeps full precision near 0 and 180 degrees, where arccos loses half of the digits.
    cross = np.linalg.norm(np.cross(a, b), axis=-1)
    angle: Array = np.degrees(np.arctan2(cross, np.sum(a * b, axis=-1)))
    return angle


def azimuth_error(true: ArrayLike, estimated: ArrayLike) -> Array:
    """Return the absolute azimuth difference, wrapped at 180 degrees.

    Parameters
    ----------
    true, estimated : array_like of shape (..., 2)
        Azimuth and elevation in degrees. The leading axes broadcast.

    Returns
    -------
    ndarray of shape (...)
        Absolute azimuth error in degrees, from 0 to 180.

    Examples
    --------
    >>> import earatlas as ea
    >>> float(ea.azimuth_error([170, 0], [-170, 45]))
    20.0
    """
    t, e = np.asarray(true, dtype=np.float64), np.asarray(estimated, dtype=np.float64)
    return np.abs(wrap_degrees(e[..., 0] - t[..., 0]))


def elevation_error(true: ArrayLike, estimated: ArrayLike) -> Array:
    """Return the absolute elevation difference.

    Parameters
    ----------
    true, estimated : array_like of shape (..., 2)
        Azimuth and elevation in degrees. The leading axes broadcast.

    Returns
    -------
    ndarray of shape (...)
        Absolute elevation error in degrees.

    Examples
    --------
    >>> import earatlas as ea
    >>> float(ea.elevation_error([170, 0], [-170, 45]))
    45.0
    """
    t, e = np.asarray(true, dtype=np.float64), np.asarray(estimated, dtype=np.float64)
    error: Array = np.abs(e[..., 1] - t[..., 1])
    return error


# Evidence: docs/figures/settings/geometry.md, "front_prior".
@dataclass(frozen=True, slots=True)
class FrontPrior:
    """The prior of front before rear."""

    odds: float = 2.0  # prior probability straight ahead over that straight behind

    def log_density(self, front: Array) -> Array:
        """Return the log prior (N,) at front components x_1 (N,), 0 on the frontal plane."""
        log_prior: Array = 0.5 * np.log(self.odds) * front
        return log_prior


FRONT_PRIOR = FrontPrior()


def apply_front_prior(
    posterior: DirectionPosterior, prior: FrontPrior = FRONT_PRIOR
) -> DirectionPosterior:
    """Multiply a posterior, relative to the head, by the prior of front before rear.

    The prior is nearly constant over a chart, so only the weights of the components change, by the
    prior at their chart centres. A posterior over coordinates that are no directions is returned
    unchanged.
    """
    if not posterior.space.holds_directions:
        return posterior
    # The front component of a unit vector; faster than the whole vector.
    front = np.cos(np.radians(posterior.centres)).prod(axis=1)
    weights = posterior.weights * np.exp(prior.log_density(front))
    return replace(posterior, weights=weights / weights.sum())
