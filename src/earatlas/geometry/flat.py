"""Spaces that unroll: the plane, azimuths on a circle, and a cylinder of azimuth and elevation.

Their charts are differences of degrees, of which azimuths are wrapped where they go all round.
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
    """R^L with u = x - c, the paper's space; `bounds` limit only `grid` and `area`.

    >>> Plane(((0, 640), (0, 480))).log([320, 240], [330.0, 200.0]).tolist()
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
        """L: a pair of bounds each."""
        return len(self.bounds)

    @property
    def columns(self) -> int:
        """C = L: a point is its own coordinates."""
        return len(self.bounds)

    @property
    def area(self) -> float:
        """Product of the bounds' widths."""
        return float(np.prod([high - low for low, high in self.bounds]))

    def log(self, centres: ArrayLike, points: ArrayLike) -> Array:
        """x - c."""
        return np.asarray(points, dtype=np.float64) - np.asarray(centres, dtype=np.float64)

    def exp(self, centres: ArrayLike, coordinates: ArrayLike) -> Array:
        """c + u."""
        return np.asarray(centres, dtype=np.float64) + np.asarray(coordinates, dtype=np.float64)

    def grid(self, spacing: float) -> Array:
        """Midpoints of equal boxes between the bounds."""
        check_spacing(spacing)
        axes = [grid_axis(low, high, spacing, closed=False) for low, high in self.bounds]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, self.dims)

    def turned(self, points: ArrayLike, degrees: float) -> Array:
        """Azimuths and degrees added: a plane has no way round behind, they may pass 180."""
        x = np.array(points, dtype=np.float64)
        x[..., 0] += degrees
        return x

    @property
    def holds_directions(self) -> bool:
        """Whether the bounds are those of angles."""
        limits = (180.0, 90.0)[: self.dims]
        return self.dims <= 2 and all(
            max(-low, high) <= limit for (low, high), limit in zip(self.bounds, limits, strict=True)
        )

    @property
    def largest_region(self) -> float:
        """Bounds limit only grids: all directions there are, or no limit where it holds others."""
        if not self.holds_directions:
            return math.inf
        return 360.0 if self.dims == 1 else SPHERE_SQUARE_DEGREES

    def within(self, directions: Array) -> Mask:
        """Those between the bounds, if these are two: of azimuth and of elevation."""
        if self.dims != 2:
            return super().within(directions)
        low, high = np.array(self.bounds).T
        inside: Mask = ((directions >= low) & (directions <= high)).all(axis=1)
        return inside

    def to_dict(self) -> dict[str, Any]:
        """Name and bounds."""
        return {"space": "plane", "bounds": [list(pair) for pair in self.bounds]}

    def _rough_mean(self, points: Array, weights: Array) -> Array:
        return weights.T @ points


@dataclass(frozen=True)
class Circle(Space):
    """Azimuths all round at one elevation: L = 1, points still (azimuth, elevation).

    The chart keeps the azimuth difference alone; `exp` returns to the centre's elevation.
    """

    dims: ClassVar[int] = 1
    columns: ClassVar[int] = 2
    area: ClassVar[float] = 360.0

    def log(self, centres: ArrayLike, points: ArrayLike) -> Array:
        """Wrapped azimuth difference."""
        return wrap_degrees(
            np.asarray(points, dtype=np.float64)[..., :1]
            - np.asarray(centres, dtype=np.float64)[..., :1]
        )

    def exp(self, centres: ArrayLike, coordinates: ArrayLike) -> Array:
        """Turn by u in azimuth."""
        c, u = np.asarray(centres, dtype=np.float64), np.asarray(coordinates, dtype=np.float64)
        azimuth = wrap_degrees(c[..., 0] + u[..., 0])
        return np.stack(np.broadcast_arrays(azimuth, c[..., 1]), axis=-1)

    def grid(self, spacing: float) -> Array:
        """Even azimuths at elevation 0."""
        check_spacing(spacing)
        azimuth = grid_axis(-180.0, 180.0, spacing, closed=True)
        return np.stack([azimuth, np.zeros_like(azimuth)], axis=-1)

    def within(self, directions: Array) -> Mask:
        """Those at the elevation nearest to the ears'."""
        elevation = directions[:, 1]
        inside: Mask = np.abs(elevation - elevation[np.argmin(np.abs(elevation))]) < 1.0
        return inside

    def to_dict(self) -> dict[str, Any]:
        """A circle has no fields."""
        return {"space": "circle"}

    def _rough_mean(self, points: Array, weights: Array) -> Array:
        turn = weights.T @ np.exp(1j * np.radians(points[:, 0]))
        return np.stack([np.degrees(np.angle(turn)), weights.T @ points[:, 1]], axis=-1)


@dataclass(frozen=True)
class Cylinder(Space):
    """Azimuth wrapped, elevation flat: a head on a pan-tilt unit (the paper's motor states)."""

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
        """360 degrees times the elevation range: square degrees of the unrolled cylinder."""
        return 360.0 * (self.elevations[1] - self.elevations[0])

    def log(self, centres: ArrayLike, points: ArrayLike) -> Array:
        """Wrapped azimuth difference, plain elevation difference."""
        u = np.asarray(points, dtype=np.float64) - np.asarray(centres, dtype=np.float64)
        u[..., 0] = wrap_degrees(u[..., 0])
        return u

    def exp(self, centres: ArrayLike, coordinates: ArrayLike) -> Array:
        """Move by u, azimuth wrapped."""
        x = np.asarray(centres, dtype=np.float64) + np.asarray(coordinates, dtype=np.float64)
        x[..., 0] = wrap_degrees(x[..., 0])
        return x

    def grid(self, spacing: float) -> Array:
        """Even azimuths by even elevations."""
        check_spacing(spacing)
        azimuth = grid_axis(-180.0, 180.0, spacing, closed=True)
        elevation = grid_axis(*self.elevations, spacing, closed=False)
        return np.stack(np.meshgrid(azimuth, elevation, indexing="ij"), axis=-1).reshape(-1, 2)

    def within(self, directions: Array) -> Mask:
        """Those between the lowest and the highest elevation."""
        low, high = self.elevations
        inside: Mask = (directions[:, 1] >= low) & (directions[:, 1] <= high)
        return inside

    def to_dict(self) -> dict[str, Any]:
        """Name and elevation range."""
        return {"space": "cylinder", "elevations": list(self.elevations)}

    def _rough_mean(self, points: Array, weights: Array) -> Array:
        return Circle()._rough_mean(points, weights)
