"""Flat spaces: the plane, the circle of azimuths, and the cylinder of azimuth and elevation.

Their charts are coordinate differences; azimuth differences are wrapped on circle and cylinder.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.angles import SPHERE_SQUARE_DEGREES, wrap_degrees
from earatlas.geometry.space import Space, check_spacing, grid_axis
from earatlas.types import Array, Mask

__all__ = ["Circle", "Cylinder", "Plane"]


@dataclass(frozen=True)
class Plane(Space):
    """The Euclidean space R^L with u = (x - c) / s, as in the paper, where s = 1.

    Parameters
    ----------
    bounds : tuple of (float, float)
        Lowest and highest value of each of the L coordinates. The bounds limit only `grid` and
        `area`; the default is for azimuth and elevation in degrees.
    unit : str, optional
        Unit of the points, such as "pixels". By default degrees if the bounds are possible azimuths
        and elevations, otherwise unknown.
    units_per_degree : float, default 1.0
        Scale s of the charts. Distances, areas and spacings are in degrees, the unit of all
        settings; for an image one pixel is about a tenth of a degree.

    Raises
    ------
    InputError
        If a lower bound is not below its upper bound, or the scale is not positive.

    See Also
    --------
    Plane.image : The plane of positions in an image.

    Examples
    --------
    >>> import earatlas as ea
    >>> ea.Plane(((0, 640), (0, 480))).log([320, 240], [330.0, 200.0]).tolist()
    [10.0, -40.0]
    """

    bounds: tuple[tuple[float, float], ...] = ((-160.0, 160.0), (-60.0, 60.0))
    unit: str | None = None
    units_per_degree: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.units_per_degree) and self.units_per_degree > 0):
            raise InputError(
                f"units_per_degree must be positive, got {self.units_per_degree}. "
                "For an image, divide its width by the field of view of the camera."
            )
        for low, high in self.bounds:
            if not low < high:
                raise InputError(
                    f"bounds must be pairs (low, high) with low < high, got {(low, high)}. "
                    "Swap them."
                )

    @classmethod
    def image(cls, width: float, height: float, field_of_view_degrees: float = 60.0) -> Self:
        """Return the plane of positions in an image, in pixels from the upper left corner.

        Parameters
        ----------
        width, height : float
            Size of the image in pixels.
        field_of_view_degrees : float, default 60.0
            Angle that the camera sees from the left to the right edge. It need not be accurate: it
            only scales settings in degrees, such as the smallest distance of two sources.

        Returns
        -------
        Plane
            The plane, with x to the right and y downwards.

        Raises
        ------
        InputError
            If a size is not positive, or the angle not between 0 and 180 degrees.

        Examples
        --------
        >>> import earatlas as ea
        >>> ea.Plane.image(640, 480).distance([320, 240], [330, 240]).round(2).tolist()
        0.94
        """
        if not (width > 0 and height > 0 and 0 < field_of_view_degrees < 180):
            raise InputError(
                "An image must have a positive width and height and a field of view between 0 and "
                f"180 degrees, got {width:g} x {height:g} pixels and {field_of_view_degrees:g} "
                "degrees. Give the size of the camera's pictures."
            )
        scale = width / field_of_view_degrees
        return cls(((0.0, float(width)), (0.0, float(height))), "pixels", scale)

    @property
    def dims(self) -> int:
        """L, one coordinate per pair of bounds."""
        return len(self.bounds)

    @property
    def columns(self) -> int:
        """C = L, because a point is its own coordinates."""
        return len(self.bounds)

    @property
    def area(self) -> float:
        """Product of the widths of the bounds, in square degrees."""
        widths = [(high - low) / self.units_per_degree for low, high in self.bounds]
        return float(np.prod(widths))

    def log(self, centres: ArrayLike, points: ArrayLike) -> Array:
        """Return scaled coordinate differences u = (x - c) / s.

        Parameters
        ----------
        centres : array_like of shape (..., L)
            Centres c, in the unit of the bounds.
        points : array_like of shape (..., L)
            Points x, in the unit of the bounds.

        Returns
        -------
        ndarray of shape (..., L)
            Chart coordinates in degrees.
        """
        u = np.asarray(points, dtype=np.float64) - np.asarray(centres, dtype=np.float64)
        return u if self.units_per_degree == 1.0 else u / self.units_per_degree

    def exp(self, centres: ArrayLike, coordinates: ArrayLike) -> Array:
        """Return the points x = c + s u.

        Parameters
        ----------
        centres : array_like of shape (..., L)
            Centres c, in the unit of the bounds.
        coordinates : array_like of shape (..., L)
            Chart coordinates u in degrees.

        Returns
        -------
        ndarray of shape (..., L)
            Points, in the unit of the bounds.
        """
        u = np.asarray(coordinates, dtype=np.float64)
        scaled = u if self.units_per_degree == 1.0 else self.units_per_degree * u
        return np.asarray(centres, dtype=np.float64) + scaled

    def grid(self, spacing: float) -> Array:
        """Return the midpoints of equal boxes between the bounds.

        Parameters
        ----------
        spacing : float
            Largest width of a box in degrees.

        Returns
        -------
        ndarray of shape (G, L)
            Midpoints of the boxes.

        Raises
        ------
        InputError
            If the spacing is not positive and finite.
        """
        check_spacing(spacing)
        width = spacing * self.units_per_degree
        axes = [grid_axis(low, high, width, closed=False) for low, high in self.bounds]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, self.dims)

    def rotated(self, points: ArrayLike, degrees: float) -> Array:
        """Return points with degrees added to the azimuth, which is not wrapped on a plane.

        Parameters
        ----------
        points : array_like of shape (..., L)
            Points in degrees.
        degrees : float
            Rotation, counter-clockwise (to the left).

        Returns
        -------
        ndarray of shape (..., L)
            Rotated points.
        """
        x = np.array(points, dtype=np.float64)
        x[..., 0] += degrees
        return x

    @property
    def holds_directions(self) -> bool:
        """Whether the unit is degrees, or unknown and the bounds are those of directions."""
        limits = (180.0, 90.0)[: self.dims]
        return (
            self.unit in (None, "degrees")
            and self.dims <= 2
            and all(
                max(-low, high) <= limit
                for (low, high), limit in zip(self.bounds, limits, strict=True)
            )
        )

    @property
    def unit_name(self) -> str:
        """Unit of the coordinates of points, "" if it is not known."""
        return self.unit or ("degrees" if self.holds_directions else "")

    @property
    def unit_scale(self) -> float:
        """Units of points per unit of chart coordinates and distances, which is a degree."""
        return self.units_per_degree

    @property
    def max_region_area(self) -> float:
        """The sphere or circle of all directions; infinite if the plane holds no directions."""
        if not self.holds_directions:
            return math.inf
        return 360.0 if self.dims == 1 else SPHERE_SQUARE_DEGREES

    def contains(self, directions: Array) -> Mask:
        """Return which directions lie between the bounds of azimuth and elevation.

        Parameters
        ----------
        directions : ndarray of shape (N, 2)
            Azimuth and elevation in degrees.

        Returns
        -------
        ndarray of bool, shape (N,)
            True for each direction between the bounds; True for all unless L = 2.
        """
        if self.dims != 2:
            return super().contains(directions)
        low, high = np.array(self.bounds).T
        inside: Mask = ((directions >= low) & (directions <= high)).all(axis=1)
        return inside

    def to_dict(self) -> dict[str, Any]:
        """Return the space as JSON values.

        Returns
        -------
        dict
            Name and bounds; unit and scale if they are not the default.
        """
        described: dict[str, Any] = {
            "space": "plane",
            "bounds": [list(pair) for pair in self.bounds],
        }
        if (self.unit, self.units_per_degree) != (None, 1.0):
            described |= {"unit": self.unit, "units_per_degree": self.units_per_degree}
        return described

    def _initial_mean(self, points: Array, weights: Array) -> Array:
        return weights.T @ points


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
