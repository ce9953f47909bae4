"""Panels of posteriors, on axes of one's own: one source from near by, or all of a scene.

In: a `DirectionPosterior`, or several. Out: what is drawn on the axes. Azimuth runs from left to right,
as seen from the listener, also across the seam behind the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MultipleLocator
from numpy.typing import ArrayLike

from earatlas.geometry.angles import wrap_degrees
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Plane, Space
from earatlas.plotting.palette import INK, MEAN, TRUE, colour_of
from earatlas.plotting.posterior_maps import FLOOR, BeliefMap, belief_map, edges, zoomed_map
from earatlas.plotting.style import gridded, plain, styled, tints
from earatlas.types import Array

__all__ = [
    "REGIONS",
    "Mark",
    "draw_arc",
    "draw_belief",
    "draw_beliefs",
    "draw_mark",
    "draw_marks",
    "draw_regions",
    "marks_of",
    "name_axes",
]

REGIONS = ((0.5, 0.75), (0.9, 0.35), (0.99, 0.1))  # (level, how much of the colour), inner first
_OUTLINE = [withStroke(linewidth=3.6, foreground="white")]  # seen on a source's colour, too


@dataclass(frozen=True, eq=False)
class Mark:
    """A place on a map."""

    name: str
    place: Array  # (C,)
    colour: str
    marker: str
    line: str  # of an arc, where there is nothing but azimuth


def marks_of(
    posterior: DirectionPosterior, *, truth: ArrayLike | None = None, mean: bool = False
) -> list[Mark]:
    """The peak (+), the mean (1) if it is wanted, and the truth (x) if it is known."""
    marks = [Mark("peak", posterior.best, INK, "+", "-")]
    if mean:
        marks.append(Mark("mean", posterior.mean, MEAN, "1", ":"))
    if truth is not None:
        marks.append(Mark("truth", np.asarray(truth, dtype=np.float64), TRUE, "x", "--"))
    return marks


def draw_marks(axes: Axes, space: Space, drawn: BeliefMap, marks: Sequence[Mark]) -> None:
    """Marks on a map, or lines on an arc."""
    for mark in marks:
        x = _across(space, drawn, float(mark.place[0]))
        if space.dims == 1:
            axes.axvline(x, color=mark.colour, linewidth=1.2, linestyle=mark.line, label=mark.name)
        else:
            draw_mark(axes, x, float(mark.place[1]), mark)


def draw_mark(axes: Axes, x: float, y: float, mark: Mark) -> None:
    """A mark that is seen on any colour."""
    axes.plot(x, y, mark.marker, ms=10, mew=1.8, color=mark.colour, label=mark.name,
              path_effects=_OUTLINE)  # fmt: skip


def _across(space: Space, drawn: BeliefMap, x: float) -> float:
    """A first coordinate where the map has it: beyond 180 degrees, if it goes across the seam."""
    left, right, *_ = drawn.extent
    if isinstance(space, Plane) or left <= x <= right:
        return x
    middle = 0.5 * (left + right)
    turned = middle + float(wrap_degrees(x - middle))
    return turned if left <= turned <= right else x


def draw_regions(axes: Axes, levels: tuple[Array, Array, Array], colour: str) -> None:
    """The regions of 50, 90 and 99 %, filled, the first two outlined.

    `levels` are x (X,), y (Y,), and the level of each cell (Y, X).
    """
    limits, shades = zip(*REGIONS, strict=True)
    fills = [tints(colour)(shade) for shade in shades]
    axes.contourf(*levels, (0.0, *limits), colors=fills)
    axes.contour(*levels, limits[:2], colors=[colour], linewidths=0.9)


def draw_arc(axes: Axes, drawn: BeliefMap, colour: str) -> None:
    """The density over one coordinate, and under it the regions of 50, 90 and 99 %."""
    density, levels = np.exp(drawn.log_density[0]), drawn.levels[0]
    for level, shade in reversed(REGIONS):
        axes.fill_between(drawn.x, density, where=levels <= level, color=tints(colour)(shade),
                          linewidth=0)  # fmt: skip
    axes.plot(drawn.x, density, color=colour, linewidth=0.9)
    axes.set_xlim(edges(drawn.x))
    axes.set_ylim(0, 1.1)
    axes.set_yticks([])


def _step(span: float) -> float:
    """Degrees between ticks."""
    return next((s for s in (0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 45.0) if span / s < 5.5), 90.0)


def name_axes(axes: Axes, space: Space, title: str) -> None:
    """Labels and limits of a map; left is on the left."""
    values = "density" if space.dims == 1 else ""
    if not space.holds_directions:
        styled(axes, plain(title), "first coordinate", values or "second coordinate")
        return
    styled(axes, plain(title), "azimuth (left … right)", values or "elevation")
    right, left = sorted(axes.get_xlim())
    axes.set_xlim(left, right)
    axes.xaxis.set_major_locator(MultipleLocator(_step(left - right)))
    axes.xaxis.set_major_formatter(lambda x, _: f"{wrap_degrees(x):g}".replace("-", "−"))
    if space.dims == 2:
        low, high = axes.get_ylim()
        axes.yaxis.set_major_locator(MultipleLocator(_step(high - low)))


def draw_belief(
    axes: Axes,
    posterior: DirectionPosterior,
    *,
    m: int,
    title: str = "",
    truth: ArrayLike | None = None,
) -> AxesImage | None:
    """Log-density of where source m is, from near by, its peak (+) and the truth (x).

    With one coordinate it is the density, with lines for peak and truth, and None is returned.
    """
    space, drawn = posterior.space, zoomed_map(posterior, truth=truth)
    image = None
    if space.dims == 1:
        draw_arc(axes, drawn, colour_of(m))
    else:
        image = axes.imshow(
            np.maximum(drawn.log_density, FLOOR),
            origin="lower",
            aspect="auto",
            extent=drawn.extent,
            cmap=tints(colour_of(m)),
            vmin=FLOOR,
            vmax=0.0,
        )
    draw_marks(axes, space, drawn, marks_of(posterior, truth=truth))
    name_axes(axes, space, title)
    return image


def draw_beliefs(
    axes: Axes, posteriors: Sequence[DirectionPosterior], *, directions: ArrayLike | None = None
) -> None:
    """Where all the sources are: their regions in their colours, true places ringed."""
    space = posteriors[0].space
    for m, posterior in enumerate(posteriors):
        drawn = belief_map(posterior)
        if space.dims == 1:
            draw_arc(axes, drawn, colour_of(m))
        else:
            _draw_source(axes, drawn, posterior.best, m)
    for place in () if directions is None else np.asarray(directions, dtype=np.float64):
        if space.dims == 1:
            axes.axvline(place[0], color=TRUE, linewidth=1.2, linestyle="--")
        else:
            axes.plot(*place, "o", ms=18, mfc="none", mew=1.6, color=TRUE, path_effects=_OUTLINE)
    name_axes(gridded(axes), space, "Directions")


def _draw_source(axes: Axes, drawn: BeliefMap, best: Array, m: int) -> None:
    """The 50 and 90 % regions of one of several, which may lie over another's, and its number."""
    colour, extent, (x, y) = colour_of(m), drawn.extent, best
    for level in (0.5, 0.9):
        axes.contourf(drawn.x, drawn.y, drawn.levels, (0.0, level), colors=[colour], alpha=0.3)
    axes.contour(drawn.x, drawn.y, drawn.levels, (0.9,), colors=[colour], linewidths=1.0)
    axes.plot(x, y, "o", ms=13, color=colour, mec="white", mew=1.2)
    axes.text(x, y, str(m + 1), color="white", fontsize=8, ha="center", va="center",
              fontweight="bold")  # fmt: skip
    axes.set_xlim(extent[:2])
    axes.set_ylim(extent[2:])
