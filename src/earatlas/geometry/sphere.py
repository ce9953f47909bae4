"""The sphere of all directions, with tangent planes as charts.

v (..., 3)   unit vectors of points: x front, y left, z up
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from earatlas.geometry.angles import (
    SPHERE_SQUARE_DEGREES,
    cosines_to_degrees,
    great_circle_error,
    to_directions,
    to_vectors,
    wrap_degrees,
)
from earatlas.geometry.space import Space, check_spacing
from earatlas.types import Array, Indices

__all__ = ["Sphere"]


@dataclass(frozen=True)
class Sphere(Space):
    """The sphere of all directions, the default space of a head.

    Points are (azimuth, elevation) in degrees. The chart is the tangent plane: u = (east, north) in
    degrees of arc, where east is the direction of growing azimuth (to the left of the head) and
    |log_c(x)| is the great-circle distance. There is no seam behind the head, and the poles are
    ordinary points.

    Attributes
    ----------
    dims : int
        L = 2 chart coordinates.
    columns : int
        C = 2 columns of a point.
    area : float
        Area of the sphere, 41,253 square degrees.

    Examples
    --------
    >>> import earatlas as ea
    >>> sphere = ea.Sphere()
    >>> sphere.log([0, 0], [90, 0]).round(6).tolist()
    [90.0, 0.0]
    >>> float(sphere.distance([179, 0], [-179, 0]).round(6))
    2.0
    >>> len(sphere.grid(10.0))
    413
    """

    dims: ClassVar[int] = 2
    columns: ClassVar[int] = 2
    limited_angles: ClassVar[bool] = True
    area: ClassVar[float] = SPHERE_SQUARE_DEGREES

    @staticmethod
    def frame(centres: Array) -> tuple[Array, Array, Array]:
        """Return the local axes of the tangent planes at centres.

        Parameters
        ----------
        centres : ndarray of shape (..., 2)
            Azimuth and elevation in degrees.

        Returns
        -------
        outward, east, north : ndarray of shape (..., 3)
            Unit vectors with x to the front, y to the left and z up.
        """
        azimuth, elevation = np.radians(centres[..., 0]), np.radians(centres[..., 1])
        sine, cosine, height = np.sin(azimuth), np.cos(azimuth), np.sin(elevation)
        horizontal = np.cos(elevation)
        out, east, north = np.empty((3, *azimuth.shape, 3))
        out[..., 0], out[..., 1], out[..., 2] = horizontal * cosine, horizontal * sine, height
        east[..., 0], east[..., 1], east[..., 2] = -sine, cosine, 0.0
        north[..., 0], north[..., 1], north[..., 2] = -height * cosine, -height * sine, horizontal
        return out, east, north

    def log(self, centres: ArrayLike, points: ArrayLike) -> Array:
        """Return the arcs from centres to points as chart coordinates.

        Parameters
        ----------
        centres : array_like of shape (..., 2)
            Centres c of the charts in degrees.
        points : array_like of shape (..., 2)
            Points x in degrees.

        Returns
        -------
        ndarray of shape (..., 2)
            Coordinates u = (east, north) in degrees; |u| is the length of the arc from c to x. At
            the antipode, where the direction is arbitrary, u = (180, 0).
        """
        out, east, north = self.frame(np.asarray(centres, dtype=np.float64))
        v = to_vectors(points)
        e, n, o = (np.sum(v * axis, axis=-1) for axis in (east, north, out))
        sine = np.hypot(e, n)
        angle = np.arctan2(sine, o)
        # angle / sin(angle) -> 1 at the centre; at the antipode the direction is arbitrary.
        scale = np.degrees(np.where(sine > 1e-15, angle / np.maximum(sine, 1e-15), 1.0))
        u = np.stack([e * scale, n * scale], axis=-1)
        opposite = (sine <= 1e-15) & (o < 0)
        u[opposite] = (180.0, 0.0)
        return u

    def charts(self, centres: ArrayLike, points: ArrayLike) -> Array:
        """Return `log` of all pairs by matrix products, without an array (N, K, 3).

        Parameters
        ----------
        centres : array_like of shape (K, 2)
            Centres of the charts in degrees.
        points : array_like of shape (N, 2)
            Points in degrees.

        Returns
        -------
        ndarray of shape (N, K, 2)
            Chart coordinates (east, north) in degrees.
        """
        out, east, north = self.frame(np.asarray(centres, dtype=np.float64))
        v = to_vectors(points)
        u = np.stack([v @ east.T, v @ north.T])  # (L, N, K)
        cosine = v @ out.T
        sine = np.sqrt(u[0] ** 2 + u[1] ** 2)
        angle = np.degrees(np.arctan2(sine, cosine))
        singular = sine <= 1e-15  # at the centre u = 0 already; at the antipode it is arbitrary
        opposite = singular & (cosine < 0)
        sine[singular] = 1.0
        angle /= sine
        u *= angle
        u[0][opposite], u[1][opposite] = 180.0, 0.0
        return np.moveaxis(u, 0, -1)

    def exp(self, centres: ArrayLike, coordinates: ArrayLike) -> Array:
        """Return the points |u| degrees from centres along the great circles in the directions u.

        Parameters
        ----------
        centres : array_like of shape (..., 2)
            Centres of the charts in degrees.
        coordinates : array_like of shape (..., 2)
            Chart coordinates u = (east, north) in degrees.

        Returns
        -------
        ndarray of shape (..., 2)
            Azimuth and elevation in degrees.
        """
        out, east, north = self.frame(np.asarray(centres, dtype=np.float64))
        u = np.radians(np.asarray(coordinates, dtype=np.float64))
        angle = np.linalg.norm(u, axis=-1, keepdims=True)
        ratio = np.sinc(angle / np.pi)  # sin(angle) / angle
        tangent = u[..., :1] * east + u[..., 1:] * north
        return to_directions(np.cos(angle) * out + ratio * tangent)

    def distance(self, a: ArrayLike, b: ArrayLike) -> Array:
        """Return great-circle distances; leading axes are broadcast.

        Parameters
        ----------
        a, b : array_like of shape (..., 2)
            Azimuth and elevation in degrees.

        Returns
        -------
        ndarray of shape (...,)
            Distances in degrees, from 0 to 180.
        """
        return great_circle_error(a, b)

    def squared_distances(self, centres: ArrayLike, points: ArrayLike) -> Array:
        """Return the squared great-circle distances of all pairs of points and centres.

        Squares keep the digits that arccos loses near 0.

        Parameters
        ----------
        centres : array_like of shape (K, 2)
            Centres in degrees.
        points : array_like of shape (N, 2)
            Points in degrees.

        Returns
        -------
        ndarray of shape (N, K)
            Squared distances in square degrees.
        """
        cosines = np.clip(to_vectors(points) @ to_vectors(centres).T, -1.0, 1.0)
        squared: Array = np.degrees(np.arccos(cosines, out=cosines)) ** 2
        return squared

    def radius(self, area: float) -> float:
        """Return the radius of a spherical cap of a given area.

        Parameters
        ----------
        area : float
            Square degrees.

        Returns
        -------
        float
            Radius in degrees, at most 180.
        """
        fraction = min(area / self.area, 1.0)
        return float(np.degrees(np.arccos(1 - 2 * fraction)))

    def grid(self, spacing: float) -> Array:
        """Return a Fibonacci lattice, whose cells have equal areas of about spacing² degrees².

        Parameters
        ----------
        spacing : float
            Approximate distance between neighbouring points in degrees.

        Returns
        -------
        ndarray of shape (G, 2)
            Azimuth and elevation in degrees, from the zenith downwards.

        Raises
        ------
        InputError
            If the spacing is not positive and finite.
        """
        check_spacing(spacing)
        n = max(round(self.area / spacing**2), 1)
        i = np.arange(n)
        golden = 180.0 * (3.0 - np.sqrt(5.0))
        elevation = np.degrees(np.arcsin(1.0 - (2.0 * i + 1.0) / n))
        return np.stack([wrap_degrees(golden * i), elevation], axis=-1)

    def nearest(self, points: ArrayLike, targets: ArrayLike) -> Indices:
        """Return the index of the point nearest to each target.

        Parameters
        ----------
        points : array_like of shape (N, 2)
            Azimuth and elevation in degrees.
        targets : array_like of shape (T, 2)
            Azimuth and elevation in degrees.

        Returns
        -------
        ndarray of int, shape (T,)
            Indices of points.
        """
        v, t = to_vectors(self.check(points, "points")), to_vectors(self.check(targets, "targets"))
        nearest: Indices = np.argmax(t @ v.T, axis=1)
        return nearest

    def distances_from(self, points: Array) -> Callable[[int], Array]:
        """Return a function of n: the squared distances (N,) of all points (N, 2) to point n.

        Parameters
        ----------
        points : ndarray of shape (N, 2)
            Azimuth and elevation in degrees.

        Returns
        -------
        callable
            Unit vectors are computed once.
        """
        v = to_vectors(points)
        return lambda n: cosines_to_degrees(v @ v[n]) ** 2

    def to_dict(self) -> dict[str, Any]:
        """Return the space as JSON values; a sphere has no parameters.

        Returns
        -------
        dict
            Name of the space.
        """
        return {"space": "sphere"}

    def mean(self, points: ArrayLike, weights: ArrayLike | None = None) -> Array:
        """Return Riemannian means; one mean is computed with unit vectors, ten times as fast.

        Parameters
        ----------
        points : array_like of shape (N, 2)
            Azimuth and elevation in degrees.
        weights : array_like of shape (N,) or (N, K), optional
            Weights of the points, by default equal. Each of K columns gives one mean.

        Returns
        -------
        ndarray of shape (2,) or (K, 2)
            One mean, or K means, in degrees.
        """
        if weights is not None and np.ndim(weights) == 2:
            return super().mean(points, weights)
        v = to_vectors(self.check(points, "points"))
        w = np.ones(len(v)) if weights is None else np.asarray(weights, dtype=np.float64)
        w = w / w.sum()
        c = to_vectors(to_directions(w @ v))
        for _ in range(50):
            cosine = np.clip(v @ c, -1.0, 1.0)
            sine = np.sqrt(1 - cosine**2)
            ratio = np.where(sine > 1e-9, np.arccos(cosine) / np.maximum(sine, 1e-9), 1.0)
            scaled = w * ratio
            step = scaled @ v - (scaled @ cosine) * c
            length = float(np.linalg.norm(step))
            c = np.cos(length) * c + np.sinc(length / np.pi) * step
            if length < 1e-12:
                break
        return to_directions(c)

    def _initial_mean(self, points: Array, weights: Array) -> Array:
        return to_directions(weights.T @ to_vectors(points))
