"""Flat spaces with wrapped azimuths: the circle of azimuths, and the cylinder with elevations.

Their charts are coordinate differences, of which those of azimuths are wrapped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.angles import wrap_degrees
from earatlas.geometry.space import Space, check_spacing, grid_axis
from earatlas.types import Array, Mask

__all__ = ["Circle", "Cylinder"]


@dataclass(frozen=True)
class Circle(Space):
    """All azimuths at one elevation.

    Points are (azimuth, elevation) in degrees, but the chart has one coordinate (L = 1), the
    wrapped azimuth difference. `exp` returns points at the elevation of the centre.

    Attributes
    ----------
    dims : int
        L = 1 chart coordinate.
    columns : int
        C = 2 columns of a point.
    area : float
        Length of the circle, 360 degrees.

    Examples
    --------
    >>> import earatlas as ea
    >>> ea.Circle().log([170, 0], [-170, 0]).tolist()
    [20.0]
    """

    dims: ClassVar[int] = 1
    columns: ClassVar[int] = 2
    limited_angles: ClassVar[bool] = True
    area: ClassVar[float] = 360.0

    def log(self, centres: ArrayLike, points: ArrayLike) -> Array:
        """Return wrapped azimuth differences.

        Parameters
        ----------
        centres : array_like of shape (..., 2)
            Centres of the charts in degrees.
        points : array_like of shape (..., 2)
            Points in degrees.

        Returns
        -------
        ndarray of shape (..., 1)
            Azimuth differences in degrees, in (-180, 180].
        """
        return wrap_degrees(
            np.asarray(points, dtype=np.float64)[..., :1]
            - np.asarray(centres, dtype=np.float64)[..., :1]
        )

    def exp(self, centres: ArrayLike, coordinates: ArrayLike) -> Array:
        """Return the centres rotated in azimuth by chart coordinates.

        Parameters
        ----------
        centres : array_like of shape (..., 2)
            Centres of the charts in degrees.
        coordinates : array_like of shape (..., 1)
            Azimuth differences in degrees.

        Returns
        -------
        ndarray of shape (..., 2)
            Points in degrees, at the elevations of the centres.
        """
        c, u = np.asarray(centres, dtype=np.float64), np.asarray(coordinates, dtype=np.float64)
        azimuth = wrap_degrees(c[..., 0] + u[..., 0])
        return np.stack(np.broadcast_arrays(azimuth, c[..., 1]), axis=-1)

    def grid(self, spacing: float) -> Array:
        """Return equally spaced azimuths at elevation 0.

        Parameters
        ----------
        spacing : float
            Largest distance between neighbouring azimuths in degrees.

        Returns
        -------
        ndarray of shape (G, 2)
            Azimuth and elevation in degrees.

        Raises
        ------
        InputError
            If the spacing is not positive and finite.
        """
        check_spacing(spacing)
        azimuth = grid_axis(-180.0, 180.0, spacing, closed=True)
        return np.stack([azimuth, np.zeros_like(azimuth)], axis=-1)

    def measured_arc(self, directions: Array) -> Array:
        """Return one point per degree of the circle, or of its measured part.

        Parameters
        ----------
        directions : ndarray of shape (N, 2)
            Measured directions; a gap of more than 2.5 times their spacing was not measured.

        Returns
        -------
        ndarray of shape (G, 2)
            Azimuth and elevation in degrees.
        """
        azimuth = np.sort(directions[:, 0])
        gaps = np.diff(azimuth, append=azimuth[0] + 360)
        widest = int(gaps.argmax())
        low, high = -179.0, 180.0
        if gaps[widest] >= 2.5 * np.median(gaps):
            low, high = np.ceil(azimuth[widest] + gaps[widest]), np.floor(azimuth[widest] + 360)
        degrees = wrap_degrees(np.arange(low, high + 1))
        return np.stack([degrees, np.full(len(degrees), directions[0, 1])], axis=-1)

    def contains(self, directions: Array) -> Mask:
        """Return which directions lie at the elevation that is nearest to 0.

        Parameters
        ----------
        directions : ndarray of shape (N, 2)
            Azimuth and elevation in degrees.

        Returns
        -------
        ndarray of bool, shape (N,)
            True for each direction within 1 degree of that elevation.
        """
        elevation = directions[:, 1]
        inside: Mask = np.abs(elevation - elevation[np.argmin(np.abs(elevation))]) < 1.0
        return inside

    def to_dict(self) -> dict[str, Any]:
        """Return the space as JSON values; a circle has no parameters.

        Returns
        -------
        dict
            Name of the space.
        """
        return {"space": "circle"}

    def _initial_mean(self, points: Array, weights: Array) -> Array:
        phasor = weights.T @ np.exp(1j * np.radians(points[:, 0]))
        return np.stack([np.degrees(np.angle(phasor)), weights.T @ points[:, 1]], axis=-1)


@dataclass(frozen=True)
class Cylinder(Space):
    """Azimuth and elevation as on a pan-tilt unit (the paper's motor states).

    Azimuth differences are wrapped, elevation differences are not.

    Parameters
    ----------
    elevations : (float, float), default (-60.0, 60.0)
        Lowest and highest elevation in degrees; they limit only `grid` and `area`.

    Raises
    ------
    InputError
        If the lowest elevation is not below the highest.

    Examples
    --------
    >>> import earatlas as ea
    >>> ea.Cylinder((-45, 45)).log([170, 0], [-170, 10]).tolist()
    [20.0, 10.0]
    """

    dims: ClassVar[int] = 2
    columns: ClassVar[int] = 2
    elevations: tuple[float, float] = (-60.0, 60.0)

    def __post_init__(self) -> None:
        if not self.elevations[0] < self.elevations[1]:
            raise InputError(
                f"elevations must be (low, high) with low < high, got {self.elevations}. Swap them."
            )

    @property
    def area(self) -> float:
        """360 degrees times the elevation range, in square degrees of the unrolled cylinder."""
        return 360.0 * (self.elevations[1] - self.elevations[0])

    def log(self, centres: ArrayLike, points: ArrayLike) -> Array:
        """Return wrapped azimuth differences and elevation differences.

        Parameters
        ----------
        centres : array_like of shape (..., 2)
            Centres of the charts in degrees.
        points : array_like of shape (..., 2)
            Points in degrees.

        Returns
        -------
        ndarray of shape (..., 2)
            Differences of azimuth, in (-180, 180], and elevation in degrees.
        """
        u = np.asarray(points, dtype=np.float64) - np.asarray(centres, dtype=np.float64)
        u[..., 0] = wrap_degrees(u[..., 0])
        return u

    def exp(self, centres: ArrayLike, coordinates: ArrayLike) -> Array:
        """Return the points x = c + u with the azimuth wrapped.

        Parameters
        ----------
        centres : array_like of shape (..., 2)
            Centres c of the charts in degrees.
        coordinates : array_like of shape (..., 2)
            Differences u of azimuth and elevation in degrees.

        Returns
        -------
        ndarray of shape (..., 2)
            Points in degrees, with azimuths in (-180, 180].
        """
        x = np.asarray(centres, dtype=np.float64) + np.asarray(coordinates, dtype=np.float64)
        x[..., 0] = wrap_degrees(x[..., 0])
        return x

    def grid(self, spacing: float) -> Array:
        """Return a grid of equally spaced azimuths and elevations.

        Parameters
        ----------
        spacing : float
            Largest distance between neighbouring azimuths, and elevations, in degrees.

        Returns
        -------
        ndarray of shape (G, 2)
            Azimuth and elevation in degrees.

        Raises
        ------
        InputError
            If the spacing is not positive and finite.
        """
        check_spacing(spacing)
        azimuth = grid_axis(-180.0, 180.0, spacing, closed=True)
        elevation = grid_axis(*self.elevations, spacing, closed=False)
        return np.stack(np.meshgrid(azimuth, elevation, indexing="ij"), axis=-1).reshape(-1, 2)

    def contains(self, directions: Array) -> Mask:
        """Return which directions lie between the lowest and the highest elevation.

        Parameters
        ----------
        directions : ndarray of shape (N, 2)
            Azimuth and elevation in degrees.

        Returns
        -------
        ndarray of bool, shape (N,)
            True for each direction in the elevation range.
        """
        low, high = self.elevations
        inside: Mask = (directions[:, 1] >= low) & (directions[:, 1] <= high)
        return inside

    def to_dict(self) -> dict[str, Any]:
        """Return the space as JSON values.

        Returns
        -------
        dict
            Name and elevation range.
        """
        return {"space": "cylinder", "elevations": list(self.elevations)}

    def _initial_mean(self, points: Array, weights: Array) -> Array:
        return Circle()._initial_mean(points, weights)
