"""Maps of posteriors: the density over a direction space in even cells, whole or from near by.

In: a `DirectionPosterior` of one or two coordinates. Out: a `BeliefMap`, the numbers behind every picture
of it.

    X, Y   cells across and up, C and L as in `earatlas.geometry`
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.angles import wrap_degrees
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Cylinder, Plane, Space, Sphere
from earatlas.types import Array

__all__ = ["FLOOR", "BeliefMap", "belief_map", "cap_map", "edges", "zoomed_map"]

FLOOR = -12.0  # log-density below the peak at which a map is blank
_ZOOMS = (
    2.5,
    5.0,
    7.5,
    10.0,
    15.0,
    20.0,
    30.0,
    40.0,
)  # half the height of a map from near by, in degrees
_CELLS = 180  # of a map, along its longer side: 2 degrees each on a sphere
_DRAWS, _HELD = 2000, 0.995  # a map from near by holds this share of so many samples


@dataclass(frozen=True, eq=False)
class BeliefMap:
    """A posterior's log-density below its peak, in even cells: (Y, X), or (1, X) if L = 1."""

    x: Array  # (X,) first coordinate of the cells' midpoints, rising
    y: Array  # (Y,) second one
    log_density: Array  # (Y, X) at most 0
    sizes: Array  # (Y, 1) relative sizes of the cells: smaller towards a pole

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Outer edges: left, right, low, high."""
        return (*edges(self.x), *edges(self.y))

    @property
    def levels(self) -> Array:
        """(Y, X) the level of the smallest credible region that holds each cell, in (0, 1]."""
        mass = np.exp(self.log_density - self.log_density.max()) * self.sizes
        order = np.argsort(-self.log_density, axis=None)
        levels = np.empty(mass.size)
        # Half of its own mass: the best cell of a sharp posterior is not on the rim of its region.
        inside = mass.ravel()[order]
        levels[order] = (np.cumsum(inside) - 0.5 * inside) / inside.sum()
        return levels.reshape(mass.shape)


def edges(middles: Array) -> tuple[float, float]:
    """Outer edges of even cells with these midpoints; one cell is 1 wide."""
    half = (middles[-1] - middles[0]) / (2 * (len(middles) - 1)) if len(middles) > 1 else 0.5
    return float(middles[0] - half), float(middles[-1] + half)


def _bounds(space: Space, best: Array) -> tuple[Array, Array]:
    """Lowest and highest coordinates of a map; a plane is widened for what lies beyond it."""
    if not isinstance(space, Plane):
        rows = space.elevations if isinstance(space, Cylinder) else (-90.0, 90.0)
        return np.array([-180.0, rows[0]]), np.array([180.0, rows[1]])
    if space.columns > 2:
        raise InputError(
            f"posterior must have one or two coordinates, got {space.columns}. Draw two of them."
        )
    low, high = np.array(space.bounds, dtype=np.float64).T
    margin = 0.05 * (high - low)
    return np.where(best < low, best - margin, low), np.where(best > high, best + margin, high)


def belief_map(posterior: DirectionPosterior, *, cells: int = _CELLS) -> BeliefMap:
    """The posterior over the whole space; a plane is widened where the posterior lies beyond it."""
    low, high = _bounds(posterior.space, posterior.best)
    return _window(posterior, low, high, cells)


def zoomed_map(
    posterior: DirectionPosterior, *, truth: ArrayLike | None = None, cells: int = _CELLS
) -> BeliefMap:
    """The posterior from near by: as far around its peak as it, and the truth, reach.

    What was heard well is known to a degree or two, a dot on the map of the whole space. That map
    is given where the posterior is broad.
    """
    space, best = posterior.space, posterior.best
    low, high = _bounds(space, best)
    reach = np.quantile(_gaps(space, best, posterior.sample(_DRAWS)), _HELD, axis=0)
    if truth is not None:
        reach = np.maximum(reach, _gaps(space, best, np.asarray(truth, dtype=np.float64)))
    unit = float((high - low).max()) / 360
    need = 1.3 * max(0.5 * float(reach[0]), float(reach[1]) if space.dims == 2 else 0.0)
    half = next((step * unit for step in _ZOOMS if step * unit >= need), None)
    if half is None:
        return belief_map(posterior, cells=cells)
    # Twice as wide as high, as the whole map; at a pole it ends, and is moved to end there.
    middle = best.copy()
    if space.dims == 2 and high[1] == 90:
        middle[1] = np.clip(best[1], low[1] + half, high[1] - half)
    reached = half * np.array([2.0, 1.0])[: space.columns]
    return _window(posterior, middle - reached, middle + reached, cells)


def cap_map(
    posterior: DirectionPosterior, *, truth: ArrayLike | None = None, cells: int = _CELLS
) -> BeliefMap | None:
    """The posterior around a pole of the sphere, at all azimuths; None where it is no such posterior.

    Straight above, a degree is any azimuth: a map with azimuth across would show a bar.
    """
    space, best = posterior.space, posterior.best
    if not isinstance(space, Sphere):
        return None
    places = posterior.sample(_DRAWS)
    pole = np.array([0.0, np.copysign(90.0, best[1])])
    reach = np.quantile(space.distance(best, places), _HELD)
    need = 1.15 * float(np.quantile(space.distance(pole, places), _HELD))
    if truth is not None:
        need = max(need, 1.15 * float(space.distance(pole, truth)))
    rim = next((2 * step for step in _ZOOMS if 2 * step >= need), None)
    if rim is None or rim > 40 or space.distance(pole, best) > reach:
        return None
    x, y = _cells(-180.0, 180.0, 360 / cells), _cells(90 - rim, 90.0, 4 * rim / cells)
    return _map(posterior, x, y if best[1] > 0 else -y[::-1])


def _window(posterior: DirectionPosterior, low: Array, high: Array, cells: int) -> BeliefMap:
    """The posterior between two corners."""
    best = posterior.best
    if posterior.space.dims == 1:
        x = _cells(low[0], high[0], (high[0] - low[0]) / (4 * cells))
        return _map(posterior, x, best[1:] if len(best) > 1 else np.zeros(1))
    width = float((high - low).max()) / cells
    return _map(posterior, _cells(low[0], high[0], width), _cells(low[1], high[1], width))


def _gaps(space: Space, best: Array, places: Array) -> Array:
    """How far (..., 2) places are away in each coordinate."""
    gaps = places - best
    if not isinstance(space, Plane):
        gaps[..., 0] = wrap_degrees(gaps[..., 0])
    return np.abs(gaps)


def _map(posterior: DirectionPosterior, x: Array, y: Array) -> BeliefMap:
    space = posterior.space
    points = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)[:, : space.columns]
    p = posterior.pruned(1e-6)  # what weighs less is fainter than FLOOR, or narrower than a cell
    log_density = np.concatenate([p.log_density(part) for part in _parts(points)])
    peak = max(float(p.log_density(posterior.best[None])[0]), float(log_density.max()))
    sizes = np.cos(np.radians(y)) if isinstance(space, Sphere) else np.ones_like(y)
    return BeliefMap(x, y, log_density.reshape(len(y), len(x)) - peak, sizes[:, None])


def _parts(points: Array) -> list[Array]:
    return [points[i : i + 2048] for i in range(0, len(points), 2048)]  # fits in the cache


def _cells(low: float, high: float, width: float) -> Array:
    n = max(round((high - low) / width), 1)
    return low + (high - low) / n * (np.arange(n, dtype=np.float64) + 0.5)
