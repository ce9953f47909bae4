"""Errors of estimated directions, given the true directions."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.evaluation.assignment import Assignment, best_assignment, nan_mean
from earatlas.geometry.angles import azimuth_error, elevation_error, great_circle_error
from earatlas.geometry.spaces import Sphere
from earatlas.types import Array

__all__ = [
    "DirectionErrors",
    "DirectionMeans",
    "assign_directions",
    "check_estimated_directions",
    "direction_errors",
]


class DirectionMeans(NamedTuple):
    """Mean absolute errors over sources, in degrees."""

    azimuth_degrees: float
    elevation_degrees: float
    great_circle_degrees: float


@dataclass(frozen=True, eq=False, slots=True)
class DirectionErrors:
    """Absolute error of the direction of each true source, NaN for missed sources.

    Attributes
    ----------
    azimuth_degrees : array, shape (M,)
        Azimuth error along the shorter arc; it means little near a pole.
    elevation_degrees : array, shape (M,)
        Elevation error.
    great_circle_degrees : array, shape (M,)
        Angle between the true and the estimated direction.

    """

    azimuth_degrees: Array  # (M,)
    elevation_degrees: Array  # (M,)
    great_circle_degrees: Array  # (M,)

    def __repr__(self) -> str:
        azimuth, elevation, arc = self.mean()
        return (
            f"DirectionErrors({len(self.azimuth_degrees)} sources, means: azimuth {azimuth:.1f}, "
            f"elevation {elevation:.1f}, great circle {arc:.1f} degrees)"
        )

    def mean(self) -> DirectionMeans:
        """Return the means over the sources that were not missed."""
        return DirectionMeans(*(nan_mean(getattr(self, f.name)) for f in fields(self)))


def assign_directions(directions: ArrayLike, estimated_directions: ArrayLike) -> Assignment:
    """Assign estimated directions to true directions, with the least sum of great-circle errors.

    Parameters
    ----------
    directions : array_like, shape (M, 2)
        True (azimuth, elevation) in degrees.
    estimated_directions : array_like, shape (J, 2)
        Estimated (azimuth, elevation) in degrees; J may be any number, also 0.

    Returns
    -------
    assignment : Assignment
        Index of the estimate of each true source.

    Examples
    --------
    >>> assign_directions([[0.0, 0.0], [60.0, 0.0]], [[58.0, 1.0], [2.0, 0.0]])
    Assignment(true 0: estimate 1, true 1: estimate 0)

    """
    true, estimates = (
        Sphere().check(directions, "directions"),
        check_estimated_directions(estimated_directions),
    )
    return best_assignment(great_circle_error(true[:, None], estimates[None]))


def direction_errors(
    directions: ArrayLike, estimated_directions: ArrayLike, assignment: Assignment | None = None
) -> DirectionErrors:
    """Compute the errors of estimated directions.

    Parameters
    ----------
    directions : array_like, shape (M, 2)
        True (azimuth, elevation) in degrees.
    estimated_directions : array_like, shape (J, 2)
        Estimated (azimuth, elevation) in degrees.
    assignment : Assignment, optional
        Which estimate belongs to which true source; by default the best assignment.

    Returns
    -------
    errors : DirectionErrors
        Errors in the order of the true sources, NaN for missed sources.

    Raises
    ------
    InputError
        If the directions are invalid, or if the assignment has other numbers of sources.

    Examples
    --------
    >>> direction_errors([[0.0, 0.0], [60.0, 0.0]], [[58.0, 0.0], [4.0, 0.0]])
    DirectionErrors(2 sources, means: azimuth 3.0, elevation 0.0, great circle 3.0 degrees)

    """
    true, estimates = (
        Sphere().check(directions, "directions"),
        check_estimated_directions(estimated_directions),
    )
    assignment = assignment or assign_directions(true, estimates)
    if (len(assignment.found), assignment.n_found) != (len(true), len(estimates)):
        raise InputError(
            f"assignment must have {len(true)} true and {len(estimates)} estimated sources, got "
            f"{len(assignment.found)} and {assignment.n_found}. Use the same directions."
        )
    estimates = assignment.take(estimates)
    return DirectionErrors(
        azimuth_error(true, estimates),
        elevation_error(true, estimates),
        great_circle_error(true, estimates),
    )


def check_estimated_directions(estimated: ArrayLike) -> Array:
    """Return estimated directions as an array (J, 2); an empty list is valid."""
    estimates = np.asarray(estimated, dtype=np.float64)
    return (
        estimates.reshape(0, 2)
        if estimates.size == 0
        else Sphere().check(estimates, "estimated_directions")
    )
