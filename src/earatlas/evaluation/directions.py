"""Errors of directions, where the true ones are known."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.evaluation.assignment import Assignment, best_assignment, known_mean
from earatlas.geometry.angles import azimuth_error, elevation_error, great_circle_error
from earatlas.geometry.spaces import Sphere
from earatlas.types import Array

__all__ = [
    "DirectionErrors",
    "DirectionMeans",
    "assign_directions",
    "check_found",
    "direction_errors",
]


class DirectionMeans(NamedTuple):
    """Means over sources, in degrees."""

    azimuth_degrees: float
    elevation_degrees: float
    great_circle_degrees: float


@dataclass(frozen=True, eq=False, slots=True)
class DirectionErrors:
    """Absolute errors of each true source's direction; NaN where it was missed."""

    azimuth_degrees: Array  # (M,) the short way round; means little near a pole
    elevation_degrees: Array  # (M,)
    great_circle_degrees: Array  # (M,)

    def __repr__(self) -> str:
        azimuth, elevation, arc = self.mean()
        return (
            f"DirectionErrors({len(self.azimuth_degrees)} sources, means: azimuth {azimuth:.1f}, "
            f"elevation {elevation:.1f}, great circle {arc:.1f} degrees)"
        )

    def mean(self) -> DirectionMeans:
        """Means over the sources that were found."""
        return DirectionMeans(*(known_mean(getattr(self, f.name)) for f in fields(self)))


def assign_directions(directions: ArrayLike, found: ArrayLike) -> Assignment:
    """The assignment of found directions (J, 2) to true ones (M, 2) with the least error.

    Its sum of great-circle distances. J may be any number, 0 too.
    """
    x, y = Sphere().check(directions, "directions"), check_found(found)
    return best_assignment(great_circle_error(x[:, None], y[None]))


def direction_errors(
    directions: ArrayLike, found: ArrayLike, assignment: Assignment | None = None
) -> DirectionErrors:
    """Errors of found directions (J, 2) for each true one (M, 2); None: the best assignment."""
    x, y = Sphere().check(directions, "directions"), check_found(found)
    assignment = assignment or assign_directions(x, y)
    if (len(assignment.found), assignment.n_found) != (len(x), len(y)):
        raise InputError(
            f"assignment must be of {len(x)} true and {len(y)} found sources, got one of "
            f"{len(assignment.found)} and {assignment.n_found}. Make it from the same directions."
        )
    y = assignment.take(y)
    return DirectionErrors(azimuth_error(x, y), elevation_error(x, y), great_circle_error(x, y))


def check_found(found: ArrayLike) -> Array:
    """Found directions (J, 2); none at all is an answer too."""
    y = np.asarray(found, dtype=np.float64)
    return y.reshape(0, 2) if y.size == 0 else Sphere().check(y, "found_directions")
