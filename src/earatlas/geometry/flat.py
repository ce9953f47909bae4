"""Flat spaces: the plane, the circle of azimuths, and the cylinder of azimuth and elevation.

Their charts are coordinate differences; azimuth differences are wrapped on circle and cylinder.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.angles import SPHERE_SQUARE_DEGREES, wrap_degrees
from earatlas.geometry.space import Space, check_spacing, grid_axis
from earatlas.types import Array, Mask

__all__ = ["Circle", "Cylinder", "Plane"]


@dataclass(frozen=True)
class Plane(Space):
    """The Euclidean space R^L with u = x - c, as in the paper.

    Parameters
    ----------
    bounds : tuple of (float, float)
        Lowest and highest value of each of the L coordinates. The bounds limit only `grid` and
        `area`; the default is for azimuth and elevation in degrees.

    Raises
    ------
    InputError
        If a lower bound is not below its upper bound.

    Examples
    --------
    >>> import earatlas as ea
    >>> ea.Plane(((0, 640), (0, 480))).log([320, 240], [330.0, 200.0]).tolist()
    [10.0, -40.0]
    """

    bounds: tuple[tuple[float, float], ...] = ((-160.0, 160.0), (-60.0, 60.0))

    def __post_init__(self) -> None:
        for low, high in self.bounds:
            if not low < high:
                raise InputError(
                    f"bounds must be pairs (low, high) with low < high, got {(low, high)}. "
                    "Swap them."
                )

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
        """Product of the widths of the bounds."""
        return float(np.prod([high - low for low, high in self.bounds]))

    def log(self, centres: ArrayLike, points: ArrayLike) -> Array:
        """Return x - c."""
        return np.asarray(points, dtype=np.float64) - np.asarray(centres, dtype=np.float64)

    def exp(self, centres: ArrayLike, coordinates: ArrayLike) -> Array:
        """Return c + u."""
        return np.asarray(centres, dtype=np.float64) + np.asarray(coordinates, dtype=np.float64)

    def grid(self, spacing: float) -> Array:
        """Return the midpoints of equal boxes between the bounds."""
        check_spacing(spacing)
        axes = [grid_axis(low, high, spacing, closed=False) for low, high in self.bounds]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, self.dims)

    def rotated(self, points: ArrayLike, degrees: float) -> Array:
        """Return points with degrees added to the azimuth, which is not wrapped on a plane."""
        x = np.array(points, dtype=np.float64)
        x[..., 0] += degrees
        return x

    @property
    def holds_directions(self) -> bool:
        """Whether the bounds are possible azimuths and elevations."""
        limits = (180.0, 90.0)[: self.dims]
        return self.dims <= 2 and all(
            max(-low, high) <= limit for (low, high), limit in zip(self.bounds, limits, strict=True)
        )

    @property
    def max_region_area(self) -> float:
        """The sphere or circle of all directions; infinite if the plane holds no directions."""
        if not self.holds_directions:
            return math.inf
        return 360.0 if self.dims == 1 else SPHERE_SQUARE_DEGREES

    def contains(self, directions: Array) -> Mask:
        """Return which directions (N, 2) lie between the bounds of azimuth and elevation."""
        if self.dims != 2:
            return super().contains(directions)
        low, high = np.array(self.bounds).T
        inside: Mask = ((directions >= low) & (directions <= high)).all(axis=1)
        return inside

    def to_dict(self) -> dict[str, Any]:
        """Return name and bounds as JSON values."""
        return {"space": "plane", "bounds": [list(pair) for pair in self.bounds]}

    def _initial_mean(self, points: Array, weights: Array) -> Array:
        return weights.T @ points


@dataclass(frozen=True)
class Circle(Space):
    """All azimuths at one elevation.

    Points are (azimuth, elevation) in degrees, but the chart has one coordinate (L = 1), the
    wrapped azimuth difference. `exp` returns points at the elevation of the centre.

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
        """Return the wrapped azimuth difference."""
        return wrap_degrees(
            np.asarray(points, dtype=np.float64)[..., :1]
            - np.asarray(centres, dtype=np.float64)[..., :1]
        )

    def exp(self, centres: ArrayLike, coordinates: ArrayLike) -> Array:
        """Return the point rotated by u in azimuth."""
        c, u = np.asarray(centres, dtype=np.float64), np.asarray(coordinates, dtype=np.float64)
        azimuth = wrap_degrees(c[..., 0] + u[..., 0])
        return np.stack(np.broadcast_arrays(azimuth, c[..., 1]), axis=-1)

    def grid(self, spacing: float) -> Array:
        """Return equally spaced azimuths at elevation 0."""
        check_spacing(spacing)
        azimuth = grid_axis(-180.0, 180.0, spacing, closed=True)
        return np.stack([azimuth, np.zeros_like(azimuth)], axis=-1)

    def contains(self, directions: Array) -> Mask:
        """Return which directions (N, 2) lie at the elevation that is nearest to 0."""
        elevation = directions[:, 1]
        inside: Mask = np.abs(elevation - elevation[np.argmin(np.abs(elevation))]) < 1.0
        return inside

    def to_dict(self) -> dict[str, Any]:
        """Return the space as JSON values; a circle has no parameters."""
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
        """Return the wrapped azimuth difference and the elevation difference."""
        u = np.asarray(points, dtype=np.float64) - np.asarray(centres, dtype=np.float64)
        u[..., 0] = wrap_degrees(u[..., 0])
        return u

    def exp(self, centres: ArrayLike, coordinates: ArrayLike) -> Array:
        """Return c + u with the azimuth wrapped."""
        x = np.asarray(centres, dtype=np.float64) + np.asarray(coordinates, dtype=np.float64)
        x[..., 0] = wrap_degrees(x[..., 0])
        return x

    def grid(self, spacing: float) -> Array:
        """Return a grid of equally spaced azimuths and elevations."""
        check_spacing(spacing)
        azimuth = grid_axis(-180.0, 180.0, spacing, closed=True)
        elevation = grid_axis(*self.elevations, spacing, closed=False)
        return np.stack(np.meshgrid(azimuth, elevation, indexing="ij"), axis=-1).reshape(-1, 2)

    def contains(self, directions: Array) -> Mask:
        """Return which directions (N, 2) lie between the lowest and the highest elevation."""
        low, high = self.elevations
        inside: Mask = (directions[:, 1] >= low) & (directions[:, 1] <= high)
        return inside

    def to_dict(self) -> dict[str, Any]:
        """Return name and elevation range as JSON values."""
        return {"space": "cylinder", "elevations": list(self.elevations)}

    def _initial_mean(self, points: Array, weights: Array) -> Array:
        return Circle()._initial_mean(points, weights)
