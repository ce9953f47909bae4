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
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.angles import SPHERE_SQUARE_DEGREES, wrap_degrees
from earatlas.types import Array, Indices, Mask

__all__ = ["Space", "check_angles", "check_spacing", "grid_axis"]


class Space(ABC):
    """Abstract base class of spaces of directions.

    `Sphere`, `Circle`, `Cylinder` and `Plane` implement it. All learning and inference goes through
    the charts of a space, so the same model works on each of them.

    Attributes
    ----------
    dims : int
        L, the number of chart coordinates.
    columns : int
        C, the number of columns of a point.
    area : float
        Area of the whole space: degrees if L = 1, square degrees if L = 2.
    name : str
        Name of the space in lower case.
    limited_angles : bool
        Whether points are azimuths up to 360 and elevations up to 90 degrees.

    Examples
    --------
    >>> import earatlas as ea
    >>> space = ea.Sphere()
    >>> space.dims, space.columns, space.name
    (2, 2, 'sphere')
    >>> space.exp([0, 0], space.log([0, 0], [30, 10])).round(6).tolist()
    [30.0, 10.0]
    """

    limited_angles: ClassVar[bool] = False

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
        """Return the chart coordinates of points around centres.

        Leading axes are broadcast.

        Parameters
        ----------
        centres : array_like of shape (..., C)
            Centres of the charts in degrees.
        points : array_like of shape (..., C)
            Points in degrees.

        Returns
        -------
        ndarray of shape (..., L)
            Coordinates u = log_c(x) in degrees.
        """

    @abstractmethod
    def exp(self, centres: ArrayLike, coordinates: ArrayLike) -> Array:
        """Return the points at chart coordinates around centres, the inverse of `log`.

        Leading axes are broadcast.

        Parameters
        ----------
        centres : array_like of shape (..., C)
            Centres of the charts in degrees.
        coordinates : array_like of shape (..., L)
            Chart coordinates in degrees.

        Returns
        -------
        ndarray of shape (..., C)
            Points x = exp_c(u) in degrees.
        """

    @abstractmethod
    def grid(self, spacing: float) -> Array:
        """Return a grid whose cells have equal areas.

        Parameters
        ----------
        spacing : float
            Approximate width of a cell in degrees.

        Returns
        -------
        ndarray of shape (G, C)
            Midpoints of the cells in degrees.

        Raises
        ------
        InputError
            If the spacing is not positive and finite.
        """

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the space as JSON values.

        Returns
        -------
        dict
            Name and parameters of the space; `space_from_dict` is the inverse.
        """

    def radius(self, area: float) -> float:
        """Return the radius of a disc, or half the length of an arc, of a given area.

        Parameters
        ----------
        area : float
            Degrees if L = 1, square degrees if L = 2.

        Returns
        -------
        float
            Radius in degrees.
        """
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
    def unit_name(self) -> str:
        """Unit of the coordinates of points, "" if it is not known."""
        return "degrees"

    @property
    def unit_scale(self) -> float:
        """Units of points per unit of chart coordinates and distances, which is a degree."""
        return 1.0

    @property
    def max_region_area(self) -> float:
        """Largest possible area of a region: that of the space, at most that of the sphere.

        An unrolled cylinder has more square degrees than the sphere that it represents.
        """
        return min(self.area, 360.0 if self.dims == 1 else SPHERE_SQUARE_DEGREES)

    def contains(self, directions: Array) -> Mask:
        """Return which directions of a head belong to the space.

        Parameters
        ----------
        directions : ndarray of shape (N, 2)
            Azimuth and elevation in degrees.

        Returns
        -------
        ndarray of bool, shape (N,)
            True for each direction in the space.
        """
        return np.ones(len(directions), dtype=bool)

    def rotated(self, points: ArrayLike, degrees: float) -> Array:
        """Return points rotated about the vertical axis.

        Parameters
        ----------
        points : array_like of shape (..., C)
            Points in degrees.
        degrees : float
            Rotation, counter-clockwise (to the left).

        Returns
        -------
        ndarray of shape (..., C)
            Rotated points, with azimuths in (-180, 180].

        Examples
        --------
        >>> import earatlas as ea
        >>> ea.Sphere().rotated([170.0, 10.0], 20.0).tolist()
        [-170.0, 10.0]
        """
        x = np.array(points, dtype=np.float64)
        x[..., 0] = wrap_degrees(x[..., 0] + degrees)
        return x

    def charts(self, centres: ArrayLike, points: ArrayLike) -> Array:
        """Return `log` of all pairs of points and centres.

        The coordinate axis comes first in memory, so one coordinate of all pairs is contiguous.

        Parameters
        ----------
        centres : array_like of shape (K, C)
            Centres of the charts in degrees.
        points : array_like of shape (N, C)
            Points in degrees.

        Returns
        -------
        ndarray of shape (N, K, L)
            Chart coordinates in degrees.
        """
        c, x = np.asarray(centres, dtype=np.float64), np.asarray(points, dtype=np.float64)
        u = np.moveaxis(self.log(c, x[:, None]), -1, 0)
        return np.moveaxis(np.ascontiguousarray(u), 0, -1)

    def distance(self, a: ArrayLike, b: ArrayLike) -> Array:
        """Return the distances between points; leading axes are broadcast.

        Parameters
        ----------
        a, b : array_like of shape (..., C)
            Points in degrees.

        Returns
        -------
        ndarray of shape (...,)
            Distances in degrees.
        """
        distance: Array = np.linalg.norm(self.log(a, b), axis=-1)
        return distance

    def squared_distances(self, centres: ArrayLike, points: ArrayLike) -> Array:
        """Return the squared distances of all pairs of points and centres.

        Parameters
        ----------
        centres : array_like of shape (K, C)
            Centres in degrees.
        points : array_like of shape (N, C)
            Points in degrees.

        Returns
        -------
        ndarray of shape (N, K)
            Squared distances in square degrees.
        """
        squared: Array = (self.charts(centres, points) ** 2).sum(axis=-1)
        return squared

    def check(self, points: ArrayLike, name: str = "directions") -> Array:
        """Return points as a float array, or raise an error that names the invalid row.

        Parameters
        ----------
        points : array_like of shape (N, C)
            Points in degrees, at least one.
        name : str, default "directions"
            Name of the argument in the error message.

        Returns
        -------
        ndarray of shape (N, C)
            The points.

        Raises
        ------
        InputError
            If the points have another shape, are not finite, or are out of range.
        """
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
        if self.limited_angles:
            check_angles(array, name)
        return array

    def mean(self, points: ArrayLike, weights: ArrayLike | None = None) -> Array:
        """Return Riemannian means, at which the weighted chart coordinates sum to zero.

        Parameters
        ----------
        points : array_like of shape (N, C)
            Points in degrees.
        weights : array_like of shape (N,) or (N, K), optional
            Weights of the points, by default equal. Each of K columns gives one mean.

        Returns
        -------
        ndarray of shape (C,) or (K, C)
            One mean, or K means, in degrees.

        Examples
        --------
        >>> import earatlas as ea
        >>> ea.Circle().mean([[170.0, 0.0], [-150.0, 0.0]]).round(6).tolist()
        [-170.0, 0.0]
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
        """Return the index of the point nearest to each target.

        Parameters
        ----------
        points : array_like of shape (N, C)
            Points in degrees.
        targets : array_like of shape (T, C)
            Targets in degrees.

        Returns
        -------
        ndarray of int, shape (T,)
            Indices of points.

        Examples
        --------
        >>> import earatlas as ea
        >>> ea.Sphere().nearest([[0.0, 0.0], [90.0, 0.0]], [[80.0, 20.0]]).tolist()
        [1]
        """
        x, t = self.check(points, "points"), self.check(targets, "targets")
        nearest: Indices = np.argmin(self.squared_distances(x, t), axis=1)
        return nearest

    def distances_from(self, points: Array) -> Callable[[int], Array]:
        """Return a function of n: the squared distances (N,) of all points (N, C) to point n.

        Parameters
        ----------
        points : ndarray of shape (N, C)
            Points in degrees.

        Returns
        -------
        callable
            What all points have in common is computed once.
        """
        return lambda n: self.squared_distances(points[n][None], points)[:, 0]

    def thin(self, points: ArrayLike, spacing: float) -> Indices:
        """Select a subset with no two points closer than `spacing` (paper, Fig. 9).

        The selection is greedy in the given order, hence deterministic, and every omitted point is
        closer than `spacing` to a selected one.

        Parameters
        ----------
        points : array_like of shape (N, C)
            Points in degrees.
        spacing : float
            Smallest distance between two selected points in degrees.

        Returns
        -------
        ndarray of int
            Indices of the selected points, ascending.

        Examples
        --------
        >>> import earatlas as ea
        >>> ea.Circle().thin([[0.0, 0.0], [4.0, 0.0], [10.0, 0.0]], 5.0).tolist()
        [0, 2]
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


def check_angles(points: Array, name: str) -> None:
    """Raise an InputError unless points (N, 2) can be azimuths and elevations in degrees."""
    remedies = {
        1: ("elevations", 90, "Check the order of the columns: azimuth first, then elevation."),
        0: ("azimuths", 360, "Check the unit of the azimuths."),
    }
    for column, (what, limit, remedy) in remedies.items():
        row = int(np.argmax(np.abs(points[:, column])))
        if abs(points[row, column]) > limit + 1e-6:
            raise InputError(
                f"{name} must have {what} from -{limit} to {limit} degrees, got "
                f"{points[row, column]:g} in row {row}. {remedy}"
            )


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
