"""How large posteriors are that have all their parts at one place: several widths around one mean.

In: the mean in the chart of the one centre, and the parts' weights and covariances. Out: radius and
area, of the same points as other posteriors' (`earatlas.geometry.credible_region_batch`), which never leave the chart.

    b   posteriors        J   parts        m   points        x, y   chart coordinates, radians
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.geometry.credible_region_batch import (
    OF_AREA,
    areas_of,
    drawn,
    normals_of,
    radii_of,
    roots_of,
)
from earatlas.types import Array, Single

__all__ = ["OnePlace"]


@dataclass(frozen=True, eq=False)
class OnePlace:
    """Parts of b posteriors, the heaviest of each."""

    mean: Single  # (2, b) radians
    weights: Single  # (b, J) sum to 1
    roots: Single  # (3, b, J) of the covariances, radians

    @classmethod
    def of(cls, mean: Array, weights: Array, covariances: Array, mass: float) -> OnePlace:
        """By means (b, 2), weights (b, J) and covariances (b, J, 2, 2), in degrees.

        The lightest parts are left out; the others hold so much of each posterior.
        """
        order = np.argsort(-weights, axis=1, kind="stable")
        ordered = np.take_along_axis(weights, order, axis=1)
        ordered[np.cumsum(ordered, axis=1) - ordered >= mass * ordered.sum(axis=1)[:, None]] = 0
        ordered /= ordered.sum(axis=1, keepdims=True)
        V = np.take_along_axis(covariances, order[..., None, None], axis=1)
        return cls(np.radians(mean).T.astype(np.float32), ordered.astype(np.float32), roots_of(V))

    def sizes(self, level: float) -> tuple[Array, Array]:
        """Radii and areas (b,) in degrees and square degrees."""
        nowhere = np.zeros((2, self.weights.size), dtype=np.float32)
        x, y = normals_of(drawn(self.weights), self.roots.reshape(3, -1), nowhere)
        radii = radii_of(self._versines(x, y), level)
        return radii, areas_of(self._densities(x[:, :OF_AREA], y[:, :OF_AREA]), level)

    def _versines(self, x: Single, y: Single) -> Single:
        """1 - cos of the angles (b, m) from the mean to points beside it by so much."""
        middle = self.mean[..., None]
        away = _placed(x + middle[0], y + middle[1])
        away -= _placed(*middle)
        away *= away
        versines: Single = away.sum(axis=0)
        versines *= np.float32(0.5)
        return versines

    def _densities(self, x: Single, y: Single) -> Single:
        """p (b, m) per square degree, at points beside the mean by so much."""
        a, c, d = self.roots
        # |W (x, y)|² with W the inverse of the root, in x², xy and y².
        forms = np.stack([1 / a**2 + (c / (a * d)) ** 2, -2 * c / (a * d**2), 1 / d**2], axis=1)
        squares = np.stack([x * x, x * y, y * y], axis=-1)
        exponents = squares @ (np.float32(-0.5) * forms)
        volumes = 2 * np.pi * np.degrees(np.degrees(a * d))
        p: Single = (np.exp(exponents, out=exponents) @ (self.weights / volumes)[..., None])[..., 0]
        return p


def _placed(x: Single, y: Single) -> Single:
    """Points (3, ...) at chart coordinates: ahead less 1, east and north, for differences."""
    angle = np.sqrt(x * x + y * y)
    half = np.float32(0.5) * angle
    sine = np.sin(half)
    ratio = 2 * sine * np.cos(half) / np.maximum(angle, np.float32(1e-12))
    return np.stack([-2 * sine * sine, ratio * x, ratio * y])
