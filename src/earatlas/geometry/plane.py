"""The plane, as in the paper: any L numbers, such as positions in an image.

Its charts are coordinate differences, in degrees of the field of view.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.angles import SPHERE_SQUARE_DEGREES
from earatlas.geometry.space import Space, check_spacing, grid_axis
from earatlas.types import Array, Mask

__all__ = ["Plane"]


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
