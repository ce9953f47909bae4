"""Credible radii and areas of posteriors whose components all share one centre and one mean.

Input: the mean in the common chart, the weights and the covariances. Output: radius and area, from
the same quasi-random points as for other posteriors (`earatlas.geometry.credible_region_batch`);
all computations stay in the chart.

    b   posteriors    J   components    m   points    x, y   chart coordinates, radians
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.geometry.credible_region_batch import (
    N_AREA_POINTS,
    chart_coordinates,
    cholesky_factors,
    credible_areas,
    credible_radii,
    draw_components,
)
from earatlas.types import Array, Single

__all__ = ["ConcentricPosteriors"]


@dataclass(frozen=True, eq=False)
class ConcentricPosteriors:
    """The heaviest components of b posteriors with one common mean each."""

    mean: Single  # (2, b) radians
    weights: Single  # (b, J) sum to 1
    roots: Single  # (3, b, J) Cholesky factors of the covariances, radians

    @classmethod
    def of(
        cls, mean: Array, weights: Array, covariances: Array, mass: float
    ) -> ConcentricPosteriors:
        """Build from means (b, 2), weights (b, J) and covariances (b, J, 2, 2) in degrees.

        Keeps the heaviest components of each posterior that together hold the fraction `mass`.
        """
        order = np.argsort(-weights, axis=1, kind="stable")
        ordered = np.take_along_axis(weights, order, axis=1)
        ordered[np.cumsum(ordered, axis=1) - ordered >= mass * ordered.sum(axis=1)[:, None]] = 0
        ordered /= ordered.sum(axis=1, keepdims=True)
        V = np.take_along_axis(covariances, order[..., None, None], axis=1)
        return cls(
            np.radians(mean).T.astype(np.float32), ordered.astype(np.float32), cholesky_factors(V)
        )

    def sizes(self, level: float) -> tuple[Array, Array]:
        """Return radii (b,) in degrees and areas (b,) in square degrees."""
        zero_means = np.zeros((2, self.weights.size), dtype=np.float32)
        x, y = chart_coordinates(
            draw_components(self.weights), self.roots.reshape(3, -1), zero_means
        )
        radii = credible_radii(self._versines(x, y), level)
        return radii, credible_areas(
            self._densities(x[:, :N_AREA_POINTS], y[:, :N_AREA_POINTS]), level
        )

    def _versines(self, x: Single, y: Single) -> Single:
        """Return 1 - cos of the angles (b, m) between the mean and mean + (x, y)."""
        mean = self.mean[..., None]
        difference = _unit_vectors(x + mean[0], y + mean[1])
        difference -= _unit_vectors(*mean)
        difference *= difference
        versines: Single = difference.sum(axis=0)
        versines *= np.float32(0.5)
        return versines

    def _densities(self, x: Single, y: Single) -> Single:
        """Return the densities (b, m) per square degree at mean + (x, y)."""
        a, c, d = self.roots
        # |W (x, y)|² as a linear form in x², xy and y², with W the inverse of the Cholesky factor.
        forms = np.stack([1 / a**2 + (c / (a * d)) ** 2, -2 * c / (a * d**2), 1 / d**2], axis=1)
        squares = np.stack([x * x, x * y, y * y], axis=-1)
        exponents = squares @ (np.float32(-0.5) * forms)
        volumes = 2 * np.pi * np.degrees(np.degrees(a * d))
        p: Single = (np.exp(exponents, out=exponents) @ (self.weights / volumes)[..., None])[..., 0]
        return p


def _unit_vectors(x: Single, y: Single) -> Single:
    """Return vectors (3, ...) at chart coordinates, as (outward - 1, east, north).

    The 1 is subtracted from the outward component so that differences keep their digits.
    """
    angle = np.sqrt(x * x + y * y)
    half = np.float32(0.5) * angle
    sine = np.sin(half)
    ratio = 2 * sine * np.cos(half) / np.maximum(angle, np.float32(1e-12))
    return np.stack([-2 * sine * sine, ratio * x, ratio * y])
