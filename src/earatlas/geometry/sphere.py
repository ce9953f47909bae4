"""The sphere of all directions, with tangent planes for charts.

v (..., 3) are unit vectors of points: x ahead, y left, z up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.angles import (
    SPHERE_SQUARE_DEGREES,
    great_circle_error,
    to_directions,
    to_vectors,
    wrap_degrees,
)
from earatlas.geometry.space import Space, check_spacing
from earatlas.types import Array, Indices, Single

__all__ = ["Sphere", "read_by_versine"]


_STEPS = 4096  # of 1 - cos, from 0 to 2


def read_by_versine(versine: Single, values: Single, slopes: Single) -> Single:
    """A table (S,) at 1 - cos, which its even steps go by; `versine` becomes the answer."""
    step = versine
    step *= np.float32(len(values) / 2)
    np.clip(step, 0, len(values) - 1, out=step)
    row = step.astype(np.int32)
    step -= row
    step *= slopes.take(row)
    step += values.take(row)
    return step


@cache
def _squared_angles() -> tuple[Single, Single]:
    """Squared angles (S,) in degrees² at even steps of 1 - cos, and how much the next is more."""
    half = np.sqrt(np.arange(_STEPS + 1) / _STEPS)  # sin of half the angle
    squared = np.degrees(2 * np.arcsin(half)) ** 2
    return squared[:-1].astype(np.float32), np.diff(squared).astype(np.float32)


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
    def frame(centres: Array) -> tuple[Array, Array, Array]:
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
        out, east, north = self.frame(np.asarray(centres, dtype=np.float64))
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
        out, east, north = self.frame(np.asarray(centres, dtype=np.float64))
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
        out, east, north = self.frame(np.asarray(centres, dtype=np.float64))
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

    def rough_squared_distances(self, centres: Array, points: Array) -> Single:
        """To 1e-3 square degrees, but for the antipode: from a table, a fifth of the time."""
        versine = (1 - to_vectors(points) @ to_vectors(centres).T).astype(np.float32)
        return read_by_versine(versine, *_squared_angles())

    def radius(self, area: float) -> float:
        """Of a cap of that size: at most 180 degrees, where it is the whole sphere."""
        share = min(area / self.area, 1.0)
        return float(np.degrees(np.arccos(1 - 2 * share)))

    def grid(self, spacing: float) -> Array:
        """A Fibonacci lattice: cells of exactly equal area, about spacing^2 square degrees each."""
        check_spacing(spacing)
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
