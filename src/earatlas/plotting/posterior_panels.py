"""Panels of posteriors on given axes: a close-up of one source, or all sources of a scene.

The inputs are one or several `DirectionPosterior`. Azimuth runs from left to right as seen by the
listener, also across ±180 degrees.
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
from earatlas.plotting.palette import (
    DEGREE_STEPS,
    INK,
    MEAN_COLOUR,
    TRUTH_COLOUR,
    source_colour,
    text_colour,
)
from earatlas.plotting.posterior_maps import (
    LOG_DENSITY_FLOOR,
    PosteriorMap,
    cell_edges,
    posterior_map,
    zoomed_map,
)
from earatlas.plotting.style import (
    add_grid,
    degree_labels,
    escape_mathtext,
    style_axes,
    tint_colormap,
)
from earatlas.types import Array

__all__ = [
    "REGION_TINTS",
    "Mark",
    "draw_density_curve",
    "draw_mark",
    "draw_marks",
    "draw_posterior",
    "draw_posteriors",
    "draw_regions",
    "label_axes",
    "posterior_marks",
]

REGION_TINTS = ((0.5, 0.75), (0.9, 0.35), (0.99, 0.1))  # (credible level, tint of the colour)
_OUTLINE = [withStroke(linewidth=3.6, foreground="white")]  # keeps marks visible on a colour


@dataclass(frozen=True, eq=False)
class Mark:
    """A marked place on a map."""

    name: str
    place: Array  # (C,)
    colour: str
    marker: str
    linestyle: str  # style of the vertical line in a space with one coordinate


def posterior_marks(
    posterior: DirectionPosterior, *, truth: ArrayLike | None = None, mean: bool = False
) -> list[Mark]:
    """Return the marks of the peak (+), optionally the mean (1), and the truth (x) if given."""
    marks = [Mark("peak", posterior.direction, INK, "+", "-")]
    if mean:
        marks.append(Mark("mean", posterior.mean, MEAN_COLOUR, "1", ":"))
    if truth is not None:
        marks.append(Mark("truth", np.asarray(truth, dtype=np.float64), TRUTH_COLOUR, "x", "--"))
    return marks


def draw_marks(axes: Axes, space: Space, drawn: PosteriorMap, marks: Sequence[Mark]) -> None:
    """Draw marks on a map, or vertical lines if the space has one coordinate."""
    for mark in marks:
        x = _unwrapped(space, drawn, float(mark.place[0]))
        if space.dims == 1:
            axes.axvline(
                x, color=mark.colour, linewidth=1.2, linestyle=mark.linestyle, label=mark.name
            )
        else:
            draw_mark(axes, x, float(mark.place[1]), mark)


def draw_mark(axes: Axes, x: float, y: float, mark: Mark) -> None:
    """Draw a mark with a white outline."""
    axes.plot(x, y, mark.marker, ms=10, mew=1.8, color=mark.colour, label=mark.name,
              path_effects=_OUTLINE)  # fmt: skip


def _unwrapped(space: Space, drawn: PosteriorMap, x: float) -> float:
    """Return a first coordinate within a map that may extend beyond ±180 degrees."""
    left, right, *_ = drawn.extent
    if isinstance(space, Plane) or left <= x <= right:
        return x
    middle = 0.5 * (left + right)
    unwrapped = middle + float(wrap_degrees(x - middle))
    return unwrapped if left <= unwrapped <= right else x


def draw_regions(axes: Axes, levels: tuple[Array, Array, Array], colour: str) -> None:
    """Draw the 50, 90 and 99 % regions filled, and the outlines of the first two.

    `levels` are x (X,), y (Y,) and the credible level of each cell (Y, X).
    """
    limits, shades = zip(*REGION_TINTS, strict=True)
    fills = [tint_colormap(colour)(shade) for shade in shades]
    axes.contourf(*levels, (0.0, *limits), colors=fills)
    axes.contour(*levels, limits[:2], colors=[colour], linewidths=0.9)


def draw_density_curve(axes: Axes, drawn: PosteriorMap, colour: str) -> None:
    """Draw a density over one coordinate, filled by its 50, 90 and 99 % regions."""
    density, levels = np.exp(drawn.log_density[0]), drawn.credible_levels[0]
    for level, shade in reversed(REGION_TINTS):
        axes.fill_between(drawn.x, density, where=levels <= level,
                          color=tint_colormap(colour)(shade), linewidth=0)  # fmt: skip
    axes.plot(drawn.x, density, color=colour, linewidth=0.9)
    axes.set_xlim(cell_edges(drawn.x))
    axes.set_ylim(0, 1.1)
    axes.set_yticks([])


def _tick_spacing(span: float) -> float:
    """Return the degrees between ticks of an axis of this span."""
    return next((spacing for spacing in DEGREE_STEPS if span / spacing < 5.5), 90.0)


def label_axes(axes: Axes, space: Space, title: str) -> None:
    """Set the title, labels, limits and ticks of a map; left is on the left."""
    values = "density" if space.dims == 1 else ""
    if space.unit_name == "pixels":
        style_axes(axes, escape_mathtext(title), "x, pixels", values or "y, pixels")
        if space.dims == 2:
            axes.set_ylim(*sorted(axes.get_ylim(), reverse=True))  # rows are counted from the top
        return
    if not space.holds_directions:
        style_axes(axes, escape_mathtext(title), "first coordinate", values or "second coordinate")
        return
    style_axes(axes, escape_mathtext(title), "azimuth (left … right)", values or "elevation")
    right, left = sorted(axes.get_xlim())
    axes.set_xlim(left, right)
    axes.xaxis.set_major_locator(MultipleLocator(_tick_spacing(left - right)))
    degree_labels(axes.xaxis)
    if space.dims == 2:
        degree_labels(axes.yaxis)
        low, high = axes.get_ylim()
        axes.yaxis.set_major_locator(MultipleLocator(_tick_spacing(high - low)))


def draw_posterior(
    axes: Axes,
    posterior: DirectionPosterior,
    *,
    m: int,
    title: str = "",
    truth: ArrayLike | None = None,
) -> AxesImage | None:
    """Draw a close-up of the log density of source m, its peak (+) and the true direction (x).

    In a space with one coordinate the density is drawn as a curve, with lines for peak and truth,
    and None is returned.
    """
    space, drawn = posterior.space, zoomed_map(posterior, truth=truth)
    image = None
    if space.dims == 1:
        draw_density_curve(axes, drawn, source_colour(m))
    else:
        image = axes.imshow(
            np.maximum(drawn.log_density, LOG_DENSITY_FLOOR),
            origin="lower",
            aspect="auto",
            extent=drawn.extent,
            cmap=tint_colormap(source_colour(m)),
            vmin=LOG_DENSITY_FLOOR,
            vmax=0.0,
        )
    draw_marks(axes, space, drawn, posterior_marks(posterior, truth=truth))
    label_axes(axes, space, title)
    return image


def draw_posteriors(
    axes: Axes,
    posteriors: Sequence[DirectionPosterior],
    *,
    directions: ArrayLike | None = None,
    numbers: Sequence[int] | None = None,
) -> None:
    """Draw the regions of all sources in their colours, and rings at true `directions` (M, C).

    `numbers` (from 0) determine the colours; by default they are those of the order.
    """
    space = posteriors[0].space
    for m, posterior in zip(numbers or range(len(posteriors)), posteriors, strict=True):
        drawn = posterior_map(posterior)
        if space.dims == 1:
            draw_density_curve(axes, drawn, source_colour(m))
        else:
            _draw_source(axes, drawn, posterior.direction, m)
    for place in () if directions is None else np.asarray(directions, dtype=np.float64):
        if space.dims == 1:
            axes.axvline(place[0], color=TRUTH_COLOUR, linewidth=1.2, linestyle="--")
        else:
            axes.plot(*place, "o", ms=18, mfc="none", mew=1.6, color=TRUTH_COLOUR,
                      path_effects=_OUTLINE)  # fmt: skip
    label_axes(add_grid(axes), space, "Directions")


def _draw_source(axes: Axes, drawn: PosteriorMap, best: Array, m: int) -> None:
    """Draw the translucent 50 and 90 % regions of source m, and its number at the peak."""
    colour, extent, (x, y) = source_colour(m), drawn.extent, best
    levels = drawn.credible_levels
    for level in (0.5, 0.9):
        axes.contourf(drawn.x, drawn.y, levels, (0.0, level), colors=[colour], alpha=0.3)
    axes.contour(drawn.x, drawn.y, levels, (0.9,), colors=[colour], linewidths=1.0)
    axes.plot(x, y, "o", ms=13, color=colour, mec="white", mew=1.2)
    axes.text(x, y, str(m + 1), color=text_colour(colour), fontsize=8, ha="center", va="center",
              fontweight="bold")  # fmt: skip
    axes.set_xlim(extent[:2])
    axes.set_ylim(extent[2:])
