"""Posterior densities over directions: mixtures of Gaussians, each in its own chart.

Input: weights, means and covariances, as `PPAM.posterior` computes them from the statistics of a
recording. Output: best and mean direction, density, samples, credible regions, and products with
other densities.

    K      components            w_k   weights (paper: rho_k, alpha_k)
    L      chart coordinates     m_k   means in chart k
    C      columns of a point    V_k   covariances in chart k
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.alternatives import ALTERNATIVE_SETTINGS, Alternative, find_alternatives
from earatlas.geometry.angles import to_vectors
from earatlas.geometry.chart_gaussians import (
    log_components,
    mixture_product,
    quadrature_product,
    quasi_random_draws,
)
from earatlas.geometry.credible_region import (
    REGION_SETTINGS,
    CredibleRegion,
    grid_regions,
)
from earatlas.geometry.lateral_angle import LateralAngle, lateral_angles
from earatlas.geometry.posterior_summary import PosteriorSummary
from earatlas.geometry.spaces import Space
from earatlas.notebooks import HtmlView
from earatlas.numerics import quantile
from earatlas.types import Array, Indices

__all__ = ["DirectionPosterior"]

# Densities of components at points that are evaluated together, so that they stay in the cache
_BLOCK_NUMBERS = 200_000


@dataclass(frozen=True, eq=False)
class DirectionPosterior(HtmlView):
    """Posterior density over directions, a mixture of Gaussians in charts.

    p(x) = sum_k weights[k] N(u_k(x); means[k], covariances[k]), with u_k the chart centred at c_k.

    Parameters
    ----------
    space : Space
        The space of the directions, with C columns per point and L chart coordinates.
    centres : ndarray of shape (K, C)
        Chart centres c_k in degrees.
    weights : ndarray of shape (K,)
        Weights of the components, which sum to 1.
    means : ndarray of shape (K, L)
        Means in chart coordinates, in degrees.
    covariances : ndarray of shape (K, L, L)
        Covariances in chart coordinates, in square degrees.

    Raises
    ------
    InputError
        If the shapes do not match, or if the weights do not sum to 1.

    Examples
    --------
    >>> import earatlas as ea, numpy as np
    >>> posterior = ea.DirectionPosterior(
    ...     space=ea.Sphere(),
    ...     centres=np.array([[30.0, 0.0], [150.0, 0.0]]),
    ...     weights=np.array([0.9, 0.1]),
    ...     means=np.zeros((2, 2)),
    ...     covariances=np.stack([4 * np.eye(2), 9 * np.eye(2)]),
    ... )
    >>> posterior
    DirectionPosterior((30.0, 0.0) degrees, radius_90 17.9, 2 components)
    >>> round(posterior.credible_radius(0.5), 1)
    2.5
    """

    space: Space
    centres: Array  # (K, C) c_k, degrees
    weights: Array  # (K,) sums to 1
    means: Array  # (K, L) degrees, in chart coordinates
    covariances: Array  # (K, L, L) square degrees

    def __post_init__(self) -> None:
        K, L = len(self.weights), self.space.dims
        shapes = self.centres.shape, self.means.shape, self.covariances.shape
        if shapes != ((K, self.space.columns), (K, L), (K, L, L)):
            raise InputError(
                f"centres, means and covariances must have shapes (K, C), (K, L) and (K, L, L) "
                f"with K = {K}, got {shapes}. Give one of each per component."
            )
        if not abs(self.weights.sum() - 1.0) < 1e-5:
            raise InputError(
                f"weights must sum to 1, got {self.weights.sum():.6g}. Divide them by their sum."
            )

    def __repr__(self) -> str:
        place = ", ".join(f"{v:.1f}" for v in self.direction)
        unit = f" {self.space.unit_name}".rstrip()
        return (
            f"DirectionPosterior(({place}){unit}, radius_90 {self.radius_90:.1f}, "
            f"{len(self.weights)} components)"
        )

    # --- point estimates and density -----------------------------------------------------------

    @cached_property
    def best(self) -> Array:
        """The component mean (C,) with the highest density (MAP estimate), in degrees."""
        p = self.pruned(1e-9)
        if len(p.weights) == 1:
            return self.space.exp(p.centres[0], p.means[0])
        peaks = np.log(p.weights) - 0.5 * np.linalg.slogdet(p.covariances)[1]
        top = np.argsort(-peaks)[: REGION_SETTINGS.n_candidates]
        points = self.space.exp(p.centres[top], p.means[top])
        best: Array = points[np.argmax(p.log_density(points))]
        return best

    @cached_property
    def direction(self) -> Array:
        """The reported direction (C,) in degrees: that of the most probable peak.

        It is `best` unless the posterior is wide and another peak holds more probability.
        """
        return self.alternatives[0].direction

    @cached_property
    def alternatives(self) -> tuple[Alternative, ...]:
        """The possible directions: the peaks of the posterior, that of `direction` first.

        There is one if 90 % of the probability are within 20 degrees of `best`, or if the points of
        the space are no directions.
        """
        _, points = self._quasi_random_points
        radius = quantile(self.space.distance(self.best, points), 0.9)
        if not self.space.holds_directions or radius < ALTERNATIVE_SETTINGS.min_radius_degrees:
            return (Alternative(self.best, 1.0, self.space.unit_scale * radius),)
        # The direction of a posterior that was summarized in a batch is `best`.
        return find_alternatives(self, points, best_first="direction" in vars(self))

    @cached_property
    def mean(self) -> Array:
        """The Riemannian mean direction (C,), in degrees."""
        p = self.pruned()
        return self.space.mean(self.space.exp(p.centres, p.means), p.weights)

    def log_density(self, points: ArrayLike) -> Array:
        """Return the log density at points.

        Parameters
        ----------
        points : array_like of shape (N, C)
            Directions in degrees.

        Returns
        -------
        ndarray of shape (N,)
            log p, per degree of each chart coordinate.
        """
        p, x = self.pruned(), self.space.check(points, "points")
        densities = np.empty(len(x))
        size = max(_BLOCK_NUMBERS // len(p.weights), 1)
        for start in range(0, len(x), size):
            block = slice(start, start + size)
            terms = log_components(p, x[block])
            terms += np.log(p.weights)
            top = terms.max(axis=1)
            terms -= top[:, None]
            densities[block] = np.log(np.exp(terms, out=terms).sum(axis=1)) + top
        return densities

    def sample(self, n: int, seed: int | np.random.Generator = 0) -> Array:
        """Draw random directions.

        Parameters
        ----------
        n : int
            Number of directions.
        seed : int or numpy.random.Generator, default 0
            Source of random numbers.

        Returns
        -------
        ndarray of shape (n, C)
            Directions in degrees.
        """
        rng = np.random.default_rng(seed)
        k = rng.choice(len(self.weights), size=n, p=self.weights / self.weights.sum())
        return self._points(k, rng.standard_normal((n, self.space.dims)))

    def _points(self, k: Indices, normals: Array) -> Array:
        """Map standard normal coordinates (n, L) of components k (n,) to points (n, C)."""
        root = np.linalg.cholesky(self.covariances)[k]
        return self.space.exp(
            self.centres[k], self.means[k] + np.einsum("nlm,nm->nl", root, normals)
        )

    # --- credible regions ----------------------------------------------------------------------

    def credible_region(self, level: float = 0.9, spacing: float | None = None) -> CredibleRegion:
        """Return the smallest set of grid cells that holds a given probability.

        Parameters
        ----------
        level : float, default 0.9
            Probability, between 0 and 1.
        spacing : float, optional
            Width of the grid cells in degrees. By default the cells are refined from 4 degrees
            until the region has a hundred of them, or down to half a degree.

        Returns
        -------
        CredibleRegion
            The cells, their total area and probability.

        Raises
        ------
        InputError
            If the level is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise InputError(f"level must lie between 0 and 1, got {level}. 0.9 is usual.")
        if spacing is not None:
            return grid_regions(self, [level], spacing)[0]
        for width in (4.0, 2.0, 1.0):
            region = grid_regions(self, [level], width)[0]
            if len(region.cells) >= 100:
                return region
        return grid_regions(self, [level], 0.5)[0]

    def credible_area(self, level: float = 0.9) -> float:
        """Return the area of the credible region within a few percent, without a grid.

        With t the density that a fraction `level` of samples of p exceeds, the area is the mean of
        1[p > t] / p over these samples. This is about a hundred times as fast as `credible_region`.

        Parameters
        ----------
        level : float, default 0.9
            Probability, between 0 and 1.

        Returns
        -------
        float
            Square degrees, or degrees on a circle; at most the area of the whole space.
        """
        if level in self._sizes:
            return self._sizes[level][1]
        p, points = self._quasi_random_points
        density = np.exp(p.log_density(points))
        inside = density >= quantile(density, 1 - level)
        area = float(np.mean(np.where(inside, 1 / density, 0.0)))
        area *= self.space.unit_scale**self.space.dims
        return min(area, self.space.max_region_area)  # a broad posterior may cover the whole space

    def rounded_region_size(self, level: float = 0.9) -> tuple[float, float]:
        """Return the size of the credible region, rounded as it is reported.

        Rounding never makes the area larger than the space.

        Parameters
        ----------
        level : float, default 0.9
            Probability, between 0 and 1.

        Returns
        -------
        radius : float
            `credible_radius` in degrees, with two decimals.
        area : float
            `credible_area` in square degrees, or degrees on a circle, with one decimal.
        """
        area = self.credible_area(level)
        largest = self.space.max_region_area
        rounded = math.floor(10 * area) / 10 if area > largest - 0.1 else round(area, 1)
        return round(self.credible_radius(level), 2), rounded

    @property
    def radius_90(self) -> float:
        """Radius around `direction`, in degrees, that contains 90 % of the probability mass."""
        return self.credible_radius(0.9)

    def credible_radius(self, level: float) -> float:
        """Return the radius around `direction` that contains a given probability.

        For one peak this is the radius of its credible region. For two peaks, such as front and
        back, the radius reaches the second peak if that has enough probability, so that the true
        direction lies within it as often as `level` says.

        Parameters
        ----------
        level : float
            Probability, between 0 and 1.

        Returns
        -------
        float
            Degrees, or units of the space if it holds no directions, within a few percent.
        """
        if level in self._sizes:
            return self._sizes[level][0]
        _, points = self._quasi_random_points
        distances = self.space.distance(self.direction, points)
        return float(self.space.unit_scale * quantile(distances, level))

    def credible_level(self, point: ArrayLike, draws: int = 1000, seed: int = 0) -> float:
        """Return the level of the smallest credible region that contains a point.

        Over many well calibrated posteriors this is uniform: 90 % of the true directions have a
        level below 0.9.

        Parameters
        ----------
        point : array_like of shape (C,)
            Direction in degrees.
        draws : int, default 1000
            Number of samples that the level is estimated from.
        seed : int, default 0
            Seed of the samples.

        Returns
        -------
        float
            Level from 0 to 1.
        """
        p = self.pruned(1e-9)
        at_point = p.log_density(np.atleast_2d(np.asarray(point, dtype=np.float64)))[0]
        return float(np.mean(p.log_density(p.sample(draws, seed)) > at_point))

    @cached_property
    def _sizes(self) -> dict[float, tuple[float, float]]:
        """Radii and areas that were computed in a batch, by level."""
        return {}

    def cache_summary(self, summary: PosteriorSummary) -> None:
        """Store values that were computed in a batch, so that they are not computed again.

        Parameters
        ----------
        summary : PosteriorSummary
            Best and mean direction, radius and area of this posterior.
        """
        vars(self).update(best=summary.best, direction=summary.best, mean=summary.mean)
        self._sizes[0.9] = summary.radius_90, summary.area_90

    @cached_property
    def lateral_angle(self) -> LateralAngle | None:
        """The lateral angle, with the radius that contains 90 % of the probability.

        It is often known where front, back and height are not. None if the points of the space are
        no directions.
        """
        if not self.space.holds_directions:
            return None
        directions = np.zeros((len(self.points), 2))
        directions[:, : self.space.columns] = self.points
        return LateralAngle.of_points(lateral_angles(to_vectors(directions)))

    @property
    def points(self) -> Array:
        """Quasi-random points (n, C) in degrees that are distributed like the posterior."""
        return self._quasi_random_points[1]

    @cached_property
    def _quasi_random_points(self) -> tuple[DirectionPosterior, Array]:
        """The heaviest components, and quasi-random points (n, C) of them."""
        p = self._heaviest(REGION_SETTINGS.mass)
        uniforms, normals = quasi_random_draws(REGION_SETTINGS.n_points, self.space.dims)
        k = np.searchsorted(np.cumsum(p.weights)[:-1], uniforms, side="right")
        return p, p._points(k, normals)

    # --- transformations -----------------------------------------------------------------------

    def pruned(self, negligible: float = 1e-12) -> DirectionPosterior:
        """Return the posterior without components of negligible weight.

        Parameters
        ----------
        negligible : float, default 1e-12
            Weight below which a component is left out. The heaviest one is always kept.

        Returns
        -------
        DirectionPosterior
            The remaining components, with weights that sum to 1.
        """
        return self._subset(self.weights >= min(negligible, self.weights.max()))

    def _heaviest(self, mass: float) -> DirectionPosterior:
        """Return the heaviest components that together hold the probability `mass`."""
        order = np.argsort(-self.weights, kind="stable")
        total = np.cumsum(self.weights[order])
        return self._subset(order[: int(np.searchsorted(total, mass * total[-1])) + 1])

    def _subset(self, kept: ArrayLike) -> DirectionPosterior:
        """Return some components, by mask or index, with weights that sum to 1."""
        k = np.asarray(kept)
        weights = self.weights[k] / self.weights[k].sum()
        return DirectionPosterior(
            self.space, self.centres[k], weights, self.means[k], self.covariances[k]
        )

    def rotated(self, degrees: float) -> DirectionPosterior:
        """Return the posterior rotated to the left about the vertical axis, p'(x) = p(x - yaw).

        Charts rotate with their centres, so means and covariances do not change.

        Parameters
        ----------
        degrees : float
            Rotation, counter-clockwise (to the left).

        Returns
        -------
        DirectionPosterior
            The rotated posterior.
        """
        if degrees == 0:
            return self
        return replace(self, centres=self.space.rotated(self.centres, degrees))

    def times(self, other: DirectionPosterior) -> DirectionPosterior:
        """Return the normalized product p(x) q(x) / Z with another mixture.

        Use it to combine the posterior with that of a camera or a motion model. The product is
        expressed in the charts of this posterior and is exact on the plane.

        Parameters
        ----------
        other : DirectionPosterior
            The density q over the same space.

        Returns
        -------
        DirectionPosterior
            The product.
        """
        return mixture_product(self.pruned(), other.pruned()).pruned()

    def reweighted(self, log_factor: Callable[[Array], ArrayLike]) -> DirectionPosterior:
        """Return the normalized product p(x) f(x) / Z with any function, such as a prior map.

        Each component is matched to the moments of the product by Gauss-Hermite quadrature with
        7 nodes per axis, so f should not be much sharper than the components. Use `times` for a
        sharp density.

        Parameters
        ----------
        log_factor : callable
            log f, a function from points (N, C) to values (N,).

        Returns
        -------
        DirectionPosterior
            The product.

        Raises
        ------
        InputError
            If f is zero wherever the posterior has probability.
        """
        return quadrature_product(self.pruned(), log_factor).pruned()

    def blurred(self, widths: ArrayLike, weights: ArrayLike) -> DirectionPosterior:
        """Return the posterior convolved, in its charts, with sum_j weights[j] N(0, widths[j]² I).

        Parameters
        ----------
        widths : array_like of shape (J,)
            Standard deviations in degrees.
        weights : array_like of shape (J,)
            Weights of the kernel's Gaussians; they are normalized to sum to 1.

        Returns
        -------
        DirectionPosterior
            The convolved posterior, with J times as many components.
        """
        p = self.pruned(1e-9)
        s = np.atleast_1d(np.asarray(widths, float))
        w = np.atleast_1d(np.asarray(weights, float))
        J, K = len(s), len(p.weights)
        kernel = (s**2)[:, None, None, None] * np.eye(self.space.dims)
        return DirectionPosterior(
            self.space,
            np.tile(p.centres, (J, 1)),
            np.outer(w / w.sum(), p.weights).ravel(),
            np.tile(p.means, (J, 1)),
            (p.covariances + kernel).reshape(J * K, self.space.dims, self.space.dims),
        )
