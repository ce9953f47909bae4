"""Credible regions: sets of grid cells, and the points from which their sizes are estimated.

Input: a `DirectionPosterior`, a level and the spacing of a grid. Output: a `CredibleRegion`, the
smallest set of cells that holds the level. `DirectionPosterior` and `summarize_posteriors` estimate
radii and areas without a grid, from `quasi_random_draws`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from earatlas.geometry.chart_gaussians import unique_rows
from earatlas.geometry.spaces import Circle, Plane, Space
from earatlas.types import Array, Mask

if TYPE_CHECKING:
    from earatlas.geometry.direction_posterior import DirectionPosterior

__all__ = [
    "REGION_SETTINGS",
    "CredibleRegion",
    "RegionSettings",
    "cells_within_reach",
    "grid_regions",
]


# Evidence: docs/figures/settings/geometry.md, "credible_region".
@dataclass(frozen=True, slots=True)
class RegionSettings:
    """Settings of the best direction and of the sizes of credible regions."""

    n_points: int = 1000  # quasi-random points for the size of a region
    mass: float = 0.998  # probability that the components used for region sizes hold
    n_candidates: int = 16  # component means at which the maximum of the density is sought


REGION_SETTINGS = RegionSettings()
_CENTRES_AT_ONCE = 16  # whose distances from all cells are computed together


@dataclass(frozen=True, eq=False)
class CredibleRegion:
    """The smallest set of grid cells that holds a given probability.

    Regions are made by `DirectionPosterior.credible_region`.

    Attributes
    ----------
    level : float
        Probability that was asked for.
    cells : ndarray of shape (G, C)
        Midpoints of the cells in degrees, most probable first.
    area : float
        Area of the cells: degrees of an arc, or square degrees.
    mass : float
        Probability that the cells hold, at least `level`.
    equivalent_radius_degrees : float
        Radius of a disc, or half the length of an arc, of the same area.
    space : Space
        Space of the directions.

    Examples
    --------
    >>> import earatlas as ea, numpy as np
    >>> posterior = ea.DirectionPosterior(
    ...     ea.Sphere(), np.zeros((1, 2)), np.ones(1), np.zeros((1, 2)), 25 * np.eye(2)[None]
    ... )
    >>> posterior.credible_region(0.9)
    CredibleRegion(90 %, 360 square degrees)
    """

    level: float  # probability that was asked for
    cells: Array  # (G, C) midpoints in degrees, most probable first
    area: float  # degrees of an arc, or square degrees
    mass: float  # probability that the cells hold, at least `level`
    equivalent_radius_degrees: float  # radius of a disc (or half an arc) of the same area
    space: Space

    def __repr__(self) -> str:
        size = f"{self.area:.1f}" if self.area < 10 else f"{self.area:.0f}"
        unit = self.space.unit_name or "units"
        unit = unit if self.space.dims == 1 else f"square {unit}"
        return f"CredibleRegion({100 * self.level:g} %, {size} {unit})"


def grid_regions(
    posterior: DirectionPosterior, levels: Sequence[float], spacing: float
) -> list[CredibleRegion]:
    """Return the credible regions of a posterior on `space.grid(spacing)`, evaluated once."""
    p, space = posterior.pruned(1e-6), posterior.space  # lighter components add no cells
    centres = space.exp(p.centres, p.means)
    reach = 5 * np.sqrt(np.linalg.eigvalsh(p.covariances)[:, -1]) + 2 * spacing
    cells, density, size = _grid_density(p, space, centres, reach, spacing)
    least = 0.5 * max(levels)  # probability of the cells of a grid that resolves the posterior
    outside = density.sum() * size < least
    if outside and isinstance(space, Plane):
        # Most of the posterior lies outside the bounds, which limit only grids: widen them.
        margin = reach[:, None] * space.unit_scale
        low, high = (centres - margin).min(axis=0), (centres + margin).max(axis=0)
        pairs = zip(space.bounds, low, high, strict=True)
        bounds = tuple((min(b[0], a), max(b[1], z)) for b, a, z in pairs)
        wider = replace(space, bounds=bounds)
        cells, density, size = _grid_density(p, wider, centres, reach, spacing)
    if density.sum() * size < least:
        # The posterior is sharper than a cell and lies between the midpoints: use its own means.
        cells, density = centres, p.weights / size
    order = np.argsort(-density)
    mass = np.cumsum(density[order]) / density.sum()
    scale, regions = space.unit_scale, []
    for level in levels:
        count = int(np.searchsorted(mass, level)) + 1
        area, radius = count * size, scale * space.radius(count * size)
        kept, held = cells[order[:count]], float(mass[count - 1])
        regions.append(CredibleRegion(level, kept, scale**space.dims * area, held, radius, space))
    return regions


def _grid_density(
    posterior: DirectionPosterior, space: Space, centres: Array, reach: Array, spacing: float
) -> tuple[Array, Array, float]:
    """Return the cells (G, C) within reach of a component, the density there and the cell size."""
    cells = space.grid(spacing)
    size = space.area / len(cells)
    if isinstance(space, Circle):
        cells[:, 1] = centres[0, 1]  # the circle may have been measured above or below the ears
    cells = cells[cells_within_reach(space, cells, centres, reach)]
    density = np.exp(posterior.log_density(cells)) if len(cells) else np.zeros(0)
    return cells, density, size


def cells_within_reach(space: Space, cells: Array, centres: Array, reach: Array) -> Mask:
    """Return which cells (G, C) are closer to one of the centres (K, C) than its reach (K,).

    Components with one centre need one distance, that of the widest. The cells within all reaches
    are found first, and the widest components leave few others.
    """
    centres, index = unique_rows(centres)
    radii = np.zeros(len(centres))
    np.maximum.at(radii, index, reach)
    order = np.argsort(-radii)
    first = centres[order[0]]
    farthest = (space.distance(first, centres) + radii).max()
    remaining = np.flatnonzero(space.distance(first, cells) < farthest)
    near = np.zeros(len(cells), dtype=bool)
    for start in range(0, len(order), _CENTRES_AT_ONCE):
        own = order[start : start + _CENTRES_AT_ONCE]
        squared = space.squared_distances(centres[own], cells[remaining])
        hit = (squared < radii[own] ** 2).any(axis=1)
        near[remaining[hit]] = True
        remaining = remaining[~hit]
    return near
