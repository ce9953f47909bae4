"""A space of directions: points, flat charts around them, and what charts alone allow.

A point x is a row of degrees, (azimuth, elevation) on a head: azimuth counter-clockwise with left
positive in (-180, 180], elevation up. Each space gives, around any centre c, a chart: the
coordinates u = log_c(x) in R^L, with x = exp_c(u).

`log`, `exp` and `distance` broadcast over leading axes: centres (K, 1, C) against points (N, C)
give (K, N, L). C is the number of columns of a point, L the number of chart coordinates.
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

    def rough_squared_distances(self, centres: Array, points: Array) -> Single:
        """The same in single precision, where many are wanted and few digits."""
        return self.squared_distances(centres, points).astype(np.float32)

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


def check_spacing(spacing: float) -> None:
    """Refuse what no grid can have."""
    if not (np.isfinite(spacing) and spacing > 0):
        raise InputError(f"spacing must be positive, got {spacing}. Give degrees between points.")


def grid_axis(low: float, high: float, spacing: float, *, closed: bool) -> Array:
    """Middles of the fewest equal cells no wider than `spacing`; `closed`: low meets high."""
    cells = max(int(np.ceil((high - low) / spacing - 1e-9)), 1)
    width = (high - low) / cells
    # On a closed axis a point falls on 0, so that straight ahead is on every grid.
    steps = np.arange(1.0, cells + 1) - (0.0 if closed else 0.5)
    return low + width * steps
