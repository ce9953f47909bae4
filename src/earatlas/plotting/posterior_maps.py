"""Maps of posteriors: the log density over a direction space on a regular grid.

The input is a `DirectionPosterior` with one or two coordinates, the output a `PosteriorMap` of the
whole space, of a close-up, or of a polar cap. All figures and pages draw these maps.

    X, Y   numbers of cells along the first and second coordinate
    C, L   columns and dimensions of the space, as in `earatlas.geometry`
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.angles import wrap_degrees
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Cylinder, Plane, Space, Sphere
from earatlas.types import Array

__all__ = [
    "LOG_DENSITY_FLOOR",
    "MapSettings",
    "PosteriorMap",
    "cell_edges",
    "polar_cap_map",
    "posterior_map",
    "zoomed_map",
]

LOG_DENSITY_FLOOR = -12.0  # nats below the peak at which maps are blank


# Evidence: docs/figures/settings/plotting.md, "posterior_maps".
@dataclass(frozen=True, slots=True)
class MapSettings:
    """Resolution of a map, and choice of a close-up."""

    cells: int = 180  # along the longer side: 2 degrees each on a sphere
    min_cells: int = 60  # along the longer side, for a posterior of any number of components
    max_evaluations: float = 1e7  # cells times components; more components have fewer cells
    half_heights_degrees: tuple[float, ...] = (2.5, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 40.0)
    zoom_samples: int = 2000  # of the posterior
    zoom_coverage: float = 0.95  # fraction of the samples that a close-up contains


_DEFAULTS = MapSettings()


@dataclass(frozen=True, eq=False)
class PosteriorMap:
    """Log density of a posterior relative to its peak, on a regular grid; Y = 1 if L = 1."""

    x: Array  # (X,) first coordinate of the cells' midpoints, increasing
    y: Array  # (Y,) second coordinate of the cells' midpoints, increasing
    log_density: Array  # (Y, X) nats, at most 0
    cell_areas: Array  # (Y, 1) relative areas of the cells: smaller towards a pole

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Outer edges: left, right, low, high."""
        return (*cell_edges(self.x), *cell_edges(self.y))

    @property
    def credible_levels(self) -> Array:
        """(Y, X) level in (0, 1] of the smallest credible region that contains each cell."""
        mass = np.exp(self.log_density - self.log_density.max()) * self.cell_areas
        order = np.argsort(-self.log_density, axis=None)
        levels = np.empty(mass.size)
        # A cell counts with half of its own mass. Otherwise the peak cell of a sharp posterior
        # would lie on the boundary of its region.
        sorted_mass = mass.ravel()[order]
        levels[order] = (np.cumsum(sorted_mass) - 0.5 * sorted_mass) / sorted_mass.sum()
        return levels.reshape(mass.shape)


def cell_edges(midpoints: Array) -> tuple[float, float]:
    """Return the outer edges of a regular grid with these midpoints; a single cell is 1 wide."""
    half = (
        (midpoints[-1] - midpoints[0]) / (2 * (len(midpoints) - 1)) if len(midpoints) > 1 else 0.5
    )
    return float(midpoints[0] - half), float(midpoints[-1] + half)


def _bounds(space: Space, best: Array) -> tuple[Array, Array]:
    """Return the lowest and highest coordinates of a map; a plane is extended to the peak."""
    if not isinstance(space, Plane):
        elevations = space.elevations if isinstance(space, Cylinder) else (-90.0, 90.0)
        return np.array([-180.0, elevations[0]]), np.array([180.0, elevations[1]])
    if space.columns > 2:
        raise InputError(
            f"posterior must have one or two coordinates, got {space.columns}. Plot two of them."
        )
    low, high = np.array(space.bounds, dtype=np.float64).T
    margin = 0.05 * (high - low)
    return np.where(best < low, best - margin, low), np.where(best > high, best + margin, high)


def posterior_map(
    posterior: DirectionPosterior, *, settings: MapSettings = _DEFAULTS
) -> PosteriorMap:
    """Return the posterior over the whole space; a plane is extended to a peak outside of it."""
    low, high = _bounds(posterior.space, posterior.direction)
    return _map_between(posterior, low, high, settings)


def zoomed_map(
    posterior: DirectionPosterior,
    *,
    truth: ArrayLike | None = None,
    whole: PosteriorMap | None = None,
    settings: MapSettings = _DEFAULTS,
) -> PosteriorMap:
    """Return a close-up around the peak that contains the posterior and the true direction.

    A sharp posterior of one or two degrees would be a dot on a map of the whole space. For a broad
    posterior the map of the whole space is returned, which is `whole` if it is given.
    """
    space, best = posterior.space, posterior.direction
    low, high = _bounds(space, best)
    samples = posterior.sample(settings.zoom_samples)
    reach = np.quantile(_coordinate_distances(space, best, samples), settings.zoom_coverage, axis=0)
    if truth is not None:
        true = np.asarray(truth, dtype=np.float64)
        reach = np.maximum(reach, _coordinate_distances(space, best, true))
    unit = float((high - low).max()) / 360
    needed = 1.3 * max(0.5 * float(reach[0]), float(reach[1]) if space.dims == 2 else 0.0)
    half = next((h * unit for h in settings.half_heights_degrees if h * unit >= needed), None)
    if half is None:
        return whole or posterior_map(posterior, settings=settings)
    # Twice as wide as high, like the whole map; moved where it would extend beyond a pole.
    middle = best.copy()
    if space.dims == 2 and high[1] == 90:
        middle[1] = np.clip(best[1], low[1] + half, high[1] - half)
    half_sizes = half * np.array([2.0, 1.0])[: space.columns]
    return _map_between(posterior, middle - half_sizes, middle + half_sizes, settings)


def polar_cap_map(
    posterior: DirectionPosterior,
    *,
    truth: ArrayLike | None = None,
    settings: MapSettings = _DEFAULTS,
) -> PosteriorMap | None:
    """Return the posterior around a pole at all azimuths; None if it does not surround a pole.

    A map over azimuth would show a posterior close to a pole as a long bar.
    """
    space, best = posterior.space, posterior.direction
    if not isinstance(space, Sphere):
        return None
    samples = posterior.sample(settings.zoom_samples)
    pole = np.array([0.0, np.copysign(90.0, best[1])])
    reach = np.quantile(space.distance(best, samples), settings.zoom_coverage)
    needed = 1.15 * float(np.quantile(space.distance(pole, samples), settings.zoom_coverage))
    if truth is not None:
        needed = max(needed, 1.15 * float(space.distance(pole, truth)))
    radius = next((2 * h for h in settings.half_heights_degrees if 2 * h >= needed), None)
    if radius is None or radius > 40 or space.distance(pole, best) > reach:
        return None
    x = _cell_midpoints(-180.0, 180.0, 360 / settings.cells)
    y = _cell_midpoints(90 - radius, 90.0, 4 * radius / settings.cells)
    return _evaluate(posterior, x, y if best[1] > 0 else -y[::-1])


def _map_between(
    posterior: DirectionPosterior, low: Array, high: Array, settings: MapSettings
) -> PosteriorMap:
    """Return the map between two corners (C,)."""
    best = posterior.direction
    if posterior.space.dims == 1:
        x = _cell_midpoints(low[0], high[0], (high[0] - low[0]) / (4 * settings.cells))
        return _evaluate(posterior, x, best[1:] if len(best) > 1 else np.zeros(1))
    sides = (high - low)[:2]
    n_squares = settings.max_evaluations / len(_drawn_components(posterior).weights)
    affordable = math.sqrt(n_squares * sides.max() / sides.min())
    cells = min(settings.cells, max(settings.min_cells, affordable))
    width = float(sides.max()) / cells
    x, y = (_cell_midpoints(low[i], high[i], width) for i in (0, 1))
    return _evaluate(posterior, x, y)


def _coordinate_distances(space: Space, best: Array, places: Array) -> Array:
    """Return the absolute difference (..., C) of places from the peak in each coordinate."""
    differences = places - best
    if not isinstance(space, Plane):
        differences[..., 0] = wrap_degrees(differences[..., 0])
    return np.abs(differences)


def _evaluate(posterior: DirectionPosterior, x: Array, y: Array) -> PosteriorMap:
    """Evaluate the density of a posterior at the midpoints x (X,) and y (Y,)."""
    space = posterior.space
    points = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)[:, : space.columns]
    pruned = _drawn_components(posterior)
    log_density = np.concatenate([pruned.log_density(batch) for batch in _batches(points)])
    peak = max(float(pruned.log_density(posterior.direction[None])[0]), float(log_density.max()))
    areas = np.cos(np.radians(y)) if isinstance(space, Sphere) else np.ones_like(y)
    return PosteriorMap(x, y, log_density.reshape(len(y), len(x)) - peak, areas[:, None])


def _drawn_components(posterior: DirectionPosterior) -> DirectionPosterior:
    # Components of a smaller weight are below LOG_DENSITY_FLOOR, or narrower than a cell.
    return posterior.pruned(1e-6)


def _batches(points: Array) -> list[Array]:
    size = 2048  # points per evaluation of a density: intermediate arrays fit in the cache
    return [points[i : i + size] for i in range(0, len(points), size)]


def _cell_midpoints(low: float, high: float, width: float) -> Array:
    """Return the midpoints of cells of about this width between two edges."""
    n = max(round((high - low) / width), 1)
    return low + (high - low) / n * (np.arange(n, dtype=np.float64) + 0.5)
