"""Spaces of directions: where a sound can be, and flat charts of it.

A point x is a row of degrees, (azimuth, elevation) on a head: azimuth counter-clockwise with left
positive in (-180, 180], elevation up. Each space gives, around any centre c, a chart: the
coordinates u = log_c(x) in R^L, with x = exp_c(u). Everything that is learned is learned in charts,
so one model serves them all.

    space      points                    log_c(x)                          used for
    Plane      any L numbers             x - c                             the paper; pixels
    Circle     (azimuth, 0), L = 1       wrapped azimuth difference        horizontal measurements
    Cylinder   (azimuth, elevation)      azimuth wrapped, elevation flat   pan-tilt heads
    Sphere     (azimuth, elevation)      tangent-plane logarithm           whole heads (default)

`log`, `exp` and `distance` broadcast over leading axes: centres (K, 1, C) against points (N, C)
give (K, N, L). C is the number of columns of a point, L the number of chart coordinates.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.space.angles import (
    SPHERE_SQUARE_DEGREES,
    great_circle_error,
    to_directions,
    to_vectors,
    wrap_degrees,
)
from earatlas.types import Array, Indices, Mask

__all__ = ["Circle", "Cylinder", "Plane", "Space", "Sphere", "space_from_dict"]


def _grid_axis(low: float, high: float, spacing: float, *, closed: bool) -> Array:
    """Middles of the fewest equal cells no wider than `spacing`; `closed`: low meets high."""
    cells = max(int(np.ceil((high - low) / spacing - 1e-9)), 1)
    width = (high - low) / cells
    # On a closed axis a point falls on 0, so that straight ahead is on every grid.
    steps = np.arange(1.0, cells + 1) - (0.0 if closed else 0.5)
    return low + width * steps


class Space(ABC):
    """Points, the charts around them, and what can be computed through charts."""

    @property
    @abstractmethod
    def dims(self) -> int:
        """L, the number of chart coordinates."""

    @property
    @abstractmethod
    def columns(self) -> int:
        """C, the number of columns of a point."""

    @property
    @abstractmethod
    def area(self) -> float:
        """Size of the whole space: degrees if L = 1, square degrees if L = 2."""

    @abstractmethod
    def log(self, centres: ArrayLike, points: ArrayLike) -> Array:
        """Chart coordinates (..., L) of points (..., C) around centres (..., C)."""

    @abstractmethod
    def exp(self, centres: ArrayLike, coordinates: ArrayLike) -> Array:
        """Points (..., C) at chart coordinates (..., L) around centres (..., C)."""

    @abstractmethod
    def grid(self, spacing: float) -> Array:
        """Points (G, C) whose cells have equal size and are about `spacing` wide."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The space as JSON values; `space_from_dict` is the inverse."""

    def radius(self, area: float) -> float:
        """Half the width of an arc, or of a round patch, of that size, in degrees."""
        return float(area / 2 if self.dims == 1 else np.sqrt(area / np.pi))

    @property
    def name(self) -> str:
        """What it is called, in a word."""
        return str(self.to_dict()["space"])

    @property
    def holds_directions(self) -> bool:
        """Whether points are (azimuth, elevation) or an azimuth, not such as pixels of an image."""
        return True

    @property
    def largest_region(self) -> float:
        """What no region of directions exceeds: the space, or the whole sphere around a head.

        An unrolled cylinder has more square degrees than the sphere that it stands for.
        """
        return min(self.area, 360.0 if self.dims == 1 else SPHERE_SQUARE_DEGREES)

    def within(self, directions: Array) -> Mask:
        """(N,) which of a head's directions (N, 2) the space has."""
        return np.ones(len(directions), dtype=bool)

    def turned(self, points: ArrayLike, degrees: float) -> Array:
        """Points (..., C) turned to the left about the vertical axis: azimuths alone change."""
        x = np.array(points, dtype=np.float64)
        x[..., 0] = wrap_degrees(x[..., 0] + degrees)
        return x

    def charts(self, centres: ArrayLike, points: ArrayLike) -> Array:
        """All pairs: coordinates (N, K, L) of points (N, C) around centres (K, C), as `log`.

        In memory the coordinate axis comes first: one coordinate of all pairs is contiguous.
        """
        c, x = np.asarray(centres, dtype=np.float64), np.asarray(points, dtype=np.float64)
        u = np.moveaxis(self.log(c, x[:, None]), -1, 0)
        return np.moveaxis(np.ascontiguousarray(u), 0, -1)

    def distance(self, a: ArrayLike, b: ArrayLike) -> Array:
        """Distance (...,) in degrees between points (..., C)."""
        distance: Array = np.linalg.norm(self.log(a, b), axis=-1)
        return distance

    def squared_distances(self, centres: ArrayLike, points: ArrayLike) -> Array:
        """All pairs: squared distances (N, K) of points (N, C) and centres (K, C)."""
        squared: Array = (self.charts(centres, points) ** 2).sum(axis=-1)
        return squared

    def check(self, points: ArrayLike, name: str = "directions") -> Array:
        """The points as a float array (N, C), or an InputError that says what is wrong."""
        array = np.asarray(points, dtype=np.float64)
        if array.ndim != 2 or array.shape[1] != self.columns or len(array) == 0:
            raise InputError(
                f"{name} must be an array of shape (N, {self.columns}) with N >= 1, "
                f"got shape {array.shape}. Give one row a point."
            )
        if not np.isfinite(array).all():
            bad = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
            raise InputError(
                f"{name} must be finite, got {array[bad].tolist()} in row {bad}. Remove that row."
            )
        return array

    def mean(self, points: ArrayLike, weights: ArrayLike | None = None) -> Array:
        """Riemannian means: where the weighted chart coordinates sum to zero.

        Points (N, C) and weights (N,) give one mean (C,); weights (N, K) give K means (K, C).
        """
        x = self.check(points, "points")
        w = np.ones(len(x)) if weights is None else np.asarray(weights, dtype=np.float64)
        columns = w.reshape(len(x), -1) / w.reshape(len(x), -1).sum(axis=0)
        centres = self._rough_mean(x, columns)
        for _ in range(50):
            step = np.stack([columns[:, k] @ self.log(c, x) for k, c in enumerate(centres)])
            centres = self.exp(centres, step)
            if np.abs(step).max() < 1e-10:
                break
        return centres if w.ndim == 2 else centres[0]

    @abstractmethod
    def _rough_mean(self, points: Array, weights: Array) -> Array:
        """Start of the iteration in `mean`: (K, C) from points (N, C), weights (N, K) of sum 1."""

    def nearest(self, points: ArrayLike, targets: ArrayLike) -> Indices:
        """For each target (T, C), the index of the nearest of the points (N, C)."""
        x, t = self.check(points, "points"), self.check(targets, "targets")
        return np.array([int(np.argmin(self.distance(row, x))) for row in t], dtype=np.intp)

    def thin(self, points: ArrayLike, spacing: float) -> Indices:
        """Indices of a subset with no two points closer than `spacing` (paper, Fig. 9).

        Greedy in the given order, so deterministic; every point that is left out has a kept one
        closer than `spacing`. Of an even grid, the subset is about `spacing` dense.
        """
        x = self.check(points, "points")
        alive = np.ones(len(x), dtype=bool)
        kept = []
        for i in range(len(x)):
            if alive[i]:
                kept.append(i)
                near = self.distance(x[i], x[alive]) < spacing - 1e-9
                alive[np.flatnonzero(alive)[near]] = False
        return np.array(kept, dtype=np.intp)


def _check_spacing(spacing: float) -> None:
    if not (np.isfinite(spacing) and spacing > 0):
        raise InputError(f"spacing must be positive, got {spacing}. Give degrees between points.")


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
        _check_spacing(spacing)
        axes = [_grid_axis(low, high, spacing, closed=False) for low, high in self.bounds]
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
        _check_spacing(spacing)
        azimuth = _grid_axis(-180.0, 180.0, spacing, closed=True)
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
        _check_spacing(spacing)
        azimuth = _grid_axis(-180.0, 180.0, spacing, closed=True)
        elevation = _grid_axis(*self.elevations, spacing, closed=False)
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


@dataclass(frozen=True)
class Sphere(Space):
    """All directions; the chart is the tangent plane, u = (east, north) in degrees of arc.

    |log_c(x)| is the great-circle distance, so neither the poles nor the seam behind the head cost
    anything. "East" at a centre is its direction of growing azimuth (to the left of the head).
    """

    dims: ClassVar[int] = 2
    columns: ClassVar[int] = 2
    area: ClassVar[float] = SPHERE_SQUARE_DEGREES

    def check(self, points: ArrayLike, name: str = "directions") -> Array:
        """As for any space, and elevations must be between the poles."""
        array = super().check(points, name)
        beyond = np.abs(array[:, 1]) > 90.0 + 1e-6
        if beyond.any():
            row = int(np.argmax(beyond))
            raise InputError(
                f"{name} must have elevations from -90 to 90 degrees, got {array[row, 1]:g} in row "
                f"{row}. Check the order of the columns: azimuth first, then elevation."
            )
        return array

    @staticmethod
    def _frame(centres: Array) -> tuple[Array, Array, Array]:
        """Outward, east and north unit vectors (..., 3) at the centres."""
        azimuth, elevation = np.moveaxis(np.radians(centres), -1, 0)
        zero = np.zeros_like(azimuth)
        east = np.stack([-np.sin(azimuth), np.cos(azimuth), zero], axis=-1)
        north = np.stack(
            [
                -np.sin(elevation) * np.cos(azimuth),
                -np.sin(elevation) * np.sin(azimuth),
                np.cos(elevation),
            ],
            axis=-1,
        )
        return to_vectors(centres), east, north

    def log(self, centres: ArrayLike, points: ArrayLike) -> Array:
        """The arc from c to x: its length in degrees, its direction in (east, north)."""
        out, east, north = self._frame(np.asarray(centres, dtype=np.float64))
        v = to_vectors(points)
        e, n, o = (np.sum(v * axis, axis=-1) for axis in (east, north, out))
        flat = np.hypot(e, n)
        angle = np.arctan2(flat, o)
        # angle / sin(angle) -> 1 at the centre; at the antipode the direction is arbitrary.
        scale = np.degrees(np.where(flat > 1e-15, angle / np.maximum(flat, 1e-15), 1.0))
        u = np.stack([e * scale, n * scale], axis=-1)
        opposite = (flat <= 1e-15) & (o < 0)
        u[opposite] = (180.0, 0.0)
        return u

    def charts(self, centres: ArrayLike, points: ArrayLike) -> Array:
        """As `log` of all pairs, but by products with the frames: no (N, K, 3) array appears."""
        out, east, north = self._frame(np.asarray(centres, dtype=np.float64))
        v = to_vectors(points)
        u = np.stack([v @ east.T, v @ north.T])  # (L, N, K)
        ahead = v @ out.T
        flat = np.sqrt(u[0] ** 2 + u[1] ** 2)
        angle = np.degrees(np.arctan2(flat, ahead))
        near = flat <= 1e-15  # at the centre u = 0 already; at the antipode any way leads there
        opposite = near & (ahead < 0)
        flat[near] = 1.0
        angle /= flat
        u *= angle
        u[0][opposite], u[1][opposite] = 180.0, 0.0
        return np.moveaxis(u, 0, -1)

    def exp(self, centres: ArrayLike, coordinates: ArrayLike) -> Array:
        """Walk |u| degrees along the great circle that leaves c in the direction u."""
        out, east, north = self._frame(np.asarray(centres, dtype=np.float64))
        u = np.radians(np.asarray(coordinates, dtype=np.float64))
        angle = np.linalg.norm(u, axis=-1, keepdims=True)
        ratio = np.sinc(angle / np.pi)  # sin(angle) / angle
        along = u[..., :1] * east + u[..., 1:] * north
        return to_directions(np.cos(angle) * out + ratio * along)

    def distance(self, a: ArrayLike, b: ArrayLike) -> Array:
        """Great-circle distance in degrees."""
        return great_circle_error(a, b)

    def squared_distances(self, centres: ArrayLike, points: ArrayLike) -> Array:
        """As for any space: near 0, where arccos loses half the digits, its square does not."""
        cosines = np.clip(to_vectors(points) @ to_vectors(centres).T, -1.0, 1.0)
        squared: Array = np.degrees(np.arccos(cosines, out=cosines)) ** 2
        return squared

    def radius(self, area: float) -> float:
        """Of a cap of that size: at most 180 degrees, where it is the whole sphere."""
        share = min(area / self.area, 1.0)
        return float(np.degrees(np.arccos(1 - 2 * share)))

    def grid(self, spacing: float) -> Array:
        """A Fibonacci lattice: cells of exactly equal area, about spacing^2 square degrees each."""
        _check_spacing(spacing)
        n = max(round(self.area / spacing**2), 1)
        i = np.arange(n)
        golden = 180.0 * (3.0 - np.sqrt(5.0))
        elevation = np.degrees(np.arcsin(1.0 - (2.0 * i + 1.0) / n))
        return np.stack([wrap_degrees(golden * i), elevation], axis=-1)

    def nearest(self, points: ArrayLike, targets: ArrayLike) -> Indices:
        """For each target (T, 2), the index of the nearest of the points (N, 2)."""
        v, t = to_vectors(self.check(points, "points")), to_vectors(self.check(targets, "targets"))
        nearest: Indices = np.argmax(t @ v.T, axis=1)
        return nearest

    def to_dict(self) -> dict[str, Any]:
        """A sphere has no fields."""
        return {"space": "sphere"}

    def mean(self, points: ArrayLike, weights: ArrayLike | None = None) -> Array:
        """As for any space; of one mean, in unit vectors: a tenth of the time."""
        if weights is not None and np.ndim(weights) == 2:
            return super().mean(points, weights)
        v = to_vectors(self.check(points, "points"))
        w = np.ones(len(v)) if weights is None else np.asarray(weights, dtype=np.float64)
        w = w / w.sum()
        c = to_vectors(to_directions(w @ v))
        for _ in range(50):
            ahead = np.clip(v @ c, -1.0, 1.0)
            flat = np.sqrt(1 - ahead**2)
            arcs = np.where(flat > 1e-9, np.arccos(ahead) / np.maximum(flat, 1e-9), 1.0)
            pull = w * arcs
            step = pull @ v - (pull @ ahead) * c
            length = float(np.linalg.norm(step))
            c = np.cos(length) * c + np.sinc(length / np.pi) * step
            if length < 1e-12:
                break
        return to_directions(c)

    def _rough_mean(self, points: Array, weights: Array) -> Array:
        return to_directions(weights.T @ to_vectors(points))


def space_from_dict(fields: dict[str, Any]) -> Space:
    """The space that `Space.to_dict` described."""
    match fields:
        case {"space": "plane", "bounds": bounds}:
            return Plane(tuple((float(low), float(high)) for low, high in bounds))
        case {"space": "circle"}:
            return Circle()
        case {"space": "cylinder", "elevations": [low, high]}:
            return Cylinder((float(low), float(high)))
        case {"space": "sphere"}:
            return Sphere()
    raise InputError(
        f"space must be plane, circle, cylinder or sphere with its fields, got {fields}. "
        "Check the file that it was read from."
    )
