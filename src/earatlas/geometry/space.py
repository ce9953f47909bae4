"""The base class of spaces of directions: points, charts around them, distances, means and grids.

A point x is a row of degrees, (azimuth, elevation) for a head: azimuth in (-180, 180] is
counter-clockwise with left positive, elevation is upwards. Around any centre c a space has a chart
with coordinates u = log_c(x) in R^L, and x = exp_c(u).

    C   columns of a point      L   chart coordinates      N   points      K   centres

`log`, `exp` and `distance` broadcast over leading axes: centres (K, 1, C) and points (N, C) give
coordinates (K, N, L).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.angles import SPHERE_SQUARE_DEGREES, wrap_degrees
from earatlas.types import Array, Indices, Mask, Single

__all__ = ["Space", "check_spacing", "grid_axis"]


class Space(ABC):
    """Abstract base class of spaces of directions.

    `Sphere`, `Circle`, `Cylinder` and `Plane` implement it. All learning and inference goes through
    the charts of a space, so the same model works on each of them.

    Examples
    --------
    >>> import earatlas as ea
    >>> space = ea.Sphere()
    >>> space.dims, space.columns, space.name
    (2, 2, 'sphere')
    >>> space.exp([0, 0], space.log([0, 0], [30, 10])).round(6).tolist()
    [30.0, 10.0]
    """

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
        """Area of the whole space: degrees if L = 1, square degrees if L = 2."""

    @abstractmethod
    def log(self, centres: ArrayLike, points: ArrayLike) -> Array:
        """Return chart coordinates (..., L) of points (..., C) around centres (..., C)."""

    @abstractmethod
    def exp(self, centres: ArrayLike, coordinates: ArrayLike) -> Array:
        """Return points (..., C) at chart coordinates (..., L) around centres (..., C)."""

    @abstractmethod
    def grid(self, spacing: float) -> Array:
        """Return points (G, C) with cells of equal area, about `spacing` degrees wide."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the space as JSON values; `space_from_dict` is the inverse."""

    def radius(self, area: float) -> float:
        """Return the radius in degrees of a disc (or half the length of an arc) of that area."""
        return float(area / 2 if self.dims == 1 else np.sqrt(area / np.pi))

    @property
    def name(self) -> str:
        """Name of the space in lower case."""
        return str(self.to_dict()["space"])

    @property
    def holds_directions(self) -> bool:
        """Whether points are azimuths and elevations, and not, for example, pixels."""
        return True

    @property
    def max_region_area(self) -> float:
        """Largest possible area of a region: that of the space, at most that of the sphere.

        An unrolled cylinder has more square degrees than the sphere that it represents.
        """
        return min(self.area, 360.0 if self.dims == 1 else SPHERE_SQUARE_DEGREES)

    def contains(self, directions: Array) -> Mask:
        """Return which directions (N, 2) of a head belong to the space, as a mask (N,)."""
        return np.ones(len(directions), dtype=bool)

    def rotated(self, points: ArrayLike, degrees: float) -> Array:
        """Return points (..., C) rotated to the left about the vertical axis by some degrees."""
        x = np.array(points, dtype=np.float64)
        x[..., 0] = wrap_degrees(x[..., 0] + degrees)
        return x

    def charts(self, centres: ArrayLike, points: ArrayLike) -> Array:
        """Return `log` (N, K, L) of all pairs of points (N, C) and centres (K, C).

        The coordinate axis comes first in memory, so one coordinate of all pairs is contiguous.
        """
        c, x = np.asarray(centres, dtype=np.float64), np.asarray(points, dtype=np.float64)
        u = np.moveaxis(self.log(c, x[:, None]), -1, 0)
        return np.moveaxis(np.ascontiguousarray(u), 0, -1)

    def distance(self, a: ArrayLike, b: ArrayLike) -> Array:
        """Return distances (...,) in degrees between points (..., C)."""
        distance: Array = np.linalg.norm(self.log(a, b), axis=-1)
        return distance

    def squared_distances(self, centres: ArrayLike, points: ArrayLike) -> Array:
        """Return squared distances (N, K) of all pairs of points (N, C) and centres (K, C)."""
        squared: Array = (self.charts(centres, points) ** 2).sum(axis=-1)
        return squared

    def approximate_squared_distances(self, centres: Array, points: Array) -> Single:
        """Return `squared_distances` in single precision, faster where few digits are needed."""
        return self.squared_distances(centres, points).astype(np.float32)

    def check(self, points: ArrayLike, name: str = "directions") -> Array:
        """Return points as a float array (N, C); raise an InputError if that is impossible."""
        array = np.asarray(points, dtype=np.float64)
        if array.ndim != 2 or array.shape[1] != self.columns or len(array) == 0:
            raise InputError(
                f"{name} must be an array of shape (N, {self.columns}) with N >= 1, "
                f"got shape {array.shape}. Give one row per point."
            )
        if not np.isfinite(array).all():
            bad = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
            raise InputError(
                f"{name} must be finite, got {array[bad].tolist()} in row {bad}. Remove that row."
            )
        return array

    def mean(self, points: ArrayLike, weights: ArrayLike | None = None) -> Array:
        """Return Riemannian means, at which the weighted chart coordinates sum to zero.

        Points (N, C) and weights (N,) give one mean (C,); weights (N, K) give K means (K, C).
        """
        x = self.check(points, "points")
        w = np.ones(len(x)) if weights is None else np.asarray(weights, dtype=np.float64)
        normalized = w.reshape(len(x), -1) / w.reshape(len(x), -1).sum(axis=0)
        centres = self._initial_mean(x, normalized)
        for _ in range(50):
            step = np.stack([normalized[:, k] @ self.log(c, x) for k, c in enumerate(centres)])
            centres = self.exp(centres, step)
            if np.abs(step).max() < 1e-10:
                break
        return centres if w.ndim == 2 else centres[0]

    @abstractmethod
    def _initial_mean(self, points: Array, weights: Array) -> Array:
        """Return initial means (K, C) for `mean`; columns of the weights (N, K) sum to 1."""

    def nearest(self, points: ArrayLike, targets: ArrayLike) -> Indices:
        """Return, for each target (T, C), the index of the nearest of the points (N, C)."""
        x, t = self.check(points, "points"), self.check(targets, "targets")
        return np.array([int(np.argmin(self.distance(row, x))) for row in t], dtype=np.intp)

    def thin(self, points: ArrayLike, spacing: float) -> Indices:
        """Return indices of a subset with no two points closer than `spacing` (paper, Fig. 9).

        The selection is greedy in the given order, hence deterministic, and every omitted point is
        closer than `spacing` to a selected one.
        """
        x = self.check(points, "points")
        available = np.ones(len(x), dtype=bool)
        kept = []
        for i in range(len(x)):
            if available[i]:
                kept.append(i)
                near = self.distance(x[i], x[available]) < spacing - 1e-9
                available[np.flatnonzero(available)[near]] = False
        return np.array(kept, dtype=np.intp)


def check_spacing(spacing: float) -> None:
    """Raise an InputError unless the spacing is positive and finite."""
    if not (np.isfinite(spacing) and spacing > 0):
        raise InputError(
            f"spacing must be positive, got {spacing}. Give the distance between points in degrees."
        )


def grid_axis(low: float, high: float, spacing: float, *, closed: bool) -> Array:
    """Return the midpoints of the fewest equal cells no wider than `spacing`.

    On a `closed` axis `low` and `high` are the same point.
    """
    cells = max(int(np.ceil((high - low) / spacing - 1e-9)), 1)
    width = (high - low) / cells
    # A closed axis has a point at 0, so that straight ahead is on every grid.
    steps = np.arange(1.0, cells + 1) - (0.0 if closed else 0.5)
    return low + width * steps
