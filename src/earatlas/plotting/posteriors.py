"""Beliefs in pictures: where a sound is, and how often such posteriors hold the truth.

A posterior is drawn from near by, with a small map of the whole space that says where that is. Azimuth
runs from left (180) to right (-180), as seen from the listener.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.projections.polar import PolarAxes
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Plane, Space
from earatlas.plotting.palette import COLOURS, GREY, INK, MISSING
from earatlas.plotting.posterior_maps import BeliefMap, belief_map, cap_map, zoomed_map
from earatlas.plotting.posterior_panels import (
    REGIONS,
    Mark,
    draw_arc,
    draw_mark,
    draw_marks,
    draw_regions,
    marks_of,
    name_axes,
)
from earatlas.plotting.style import figure_of, gridded, headed, plain, styled, tints
from earatlas.types import Array
from earatlas.wording import place_words, radius_words

__all__ = ["plot_belief", "plot_reliability"]

_CELLS = 360  # of a map, across: a degree each on the whole sphere, smooth at the size of a figure
_GOALS = ((50, 45, 55), (90, 85, 95))  # nominal level, least and most of the truths in it, in %


def plot_belief(
    posterior: DirectionPosterior, *, title: str = "", truth: ArrayLike | None = None
) -> Figure:
    """Where a sound is believed to be, from near by: its regions, peak, mean, and the truth.

    A small map shows where in the space that is. A posterior about what is straight above or below is
    seen from there; a broad one is shown in the whole space alone.
    """
    space = posterior.space
    figure = figure_of(9.0, 4.2)
    grid = figure.add_gridspec(2, 2, width_ratios=(2.9, 1.0), height_ratios=(1.0, 1.2))
    whole = belief_map(posterior, cells=_CELLS)
    cap = cap_map(posterior, truth=truth, cells=_CELLS)
    near = cap or zoomed_map(posterior, truth=truth, cells=_CELLS)
    marks = marks_of(posterior, truth=truth, mean=True)
    radius = radius_words(space, posterior.radius_90)
    words = f"{place_words(space, posterior.best)}; 90 % within {radius}"
    if cap is None:
        _draw_near(figure.add_subplot(grid[:, 0]), space, near, marks, words)
    else:
        round_axes = PolarAxes(figure, grid[:, 0])
        figure.add_subplot(round_axes)
        _draw_cap(round_axes, cap, marks, words)
    zoomed = near.extent != whole.extent
    if zoomed:
        _draw_whole(figure.add_subplot(grid[0, 1]), space, whole, near)
    _draw_key(figure.add_subplot(grid[1 if zoomed else 0, 1]), space, marks)
    return headed(figure, title)


def _draw_near(
    axes: Axes, space: Space, near: BeliefMap, marks: Sequence[Mark], words: str
) -> None:
    """The map, with its marks and words."""
    _draw_map(axes, space, near)
    draw_marks(axes, space, near, marks)
    name_axes(axes, space, words)


def _draw_map(axes: Axes, space: Space, drawn: BeliefMap) -> None:
    """The regions in a frame of the map's own size."""
    gridded(axes)
    if space.dims == 1:
        draw_arc(axes, drawn, COLOURS[0])
        return
    draw_regions(axes, (drawn.x, drawn.y, drawn.levels), COLOURS[0])
    left, right, low, high = drawn.extent
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)


def _draw_cap(axes: PolarAxes, cap: BeliefMap, marks: Sequence[Mark], words: str) -> None:
    """The regions around a pole, from above: ahead at the top, left on the left."""
    side = np.sign(cap.y[0])
    levels = cap.levels if side > 0 else cap.levels[::-1]  # from the rim to the pole
    # The pole itself, and the first column again behind the last: else a hole and a slit are left.
    levels = np.concatenate([levels, np.full((1, len(cap.x)), levels[-1].mean())])
    levels = np.concatenate([levels, levels[:, :1]], axis=1)
    turn = np.radians(np.append(cap.x, cap.x[0] + 360))
    away = np.append(np.sort(90 - np.abs(cap.y))[::-1], 0.0)  # degrees from the pole
    draw_regions(axes, (turn, away, levels), COLOURS[0])
    for mark in marks:
        place = np.radians(mark.place[0]), 90 - side * mark.place[1]
        draw_mark(axes, *place, mark)
    rim = float(np.abs(cap.extent[2:]).min())
    axes.set_theta_zero_location("N")
    axes.set_xticks(np.radians((0, 90, 180, 270)), ("front", "left", "behind", "right"))
    rings = (90 - rim) * np.array([0.25, 0.5, 0.75, 1.0])
    names = [f"{side * (90 - r):g}°".replace("-", "−") for r in rings]
    axes.set_rgrids(rings, names, angle=marks[0].place[0] + 180)  # where the posterior is not
    axes.set_rlim(0, rings[-1])
    styled(gridded(axes), plain(words))


def _draw_whole(axes: Axes, space: Space, whole: BeliefMap, near: BeliefMap) -> None:
    """The whole space, small, and in it a frame around what is seen from near by."""
    _draw_map(axes, space, whole)
    left, right, low, high = near.extent
    if space.dims == 1:
        low, high = axes.get_ylim()
    turns = (0.0,) if isinstance(space, Plane) else (-360.0, 0.0, 360.0)  # on both sides of a seam
    for turn in turns:
        corner = left + turn, low
        axes.add_patch(Rectangle(corner, right - left, high - low, fill=False, ec=INK, lw=1.2))
    name_axes(axes, space, "")
    styled(axes, "Where that is")


def _draw_key(axes: Axes, space: Space, marks: Sequence[Mark]) -> None:
    """What the marks and shades are."""
    axes.set_axis_off()
    shades = [
        Patch(fc=tints(COLOURS[0])(shade), ec=COLOURS[0] if level < 0.99 else "none", lw=0.9,
              label=f"{100 * level:.0f} % region")
        for level, shade in REGIONS
    ]  # fmt: skip
    unit = "°" if space.holds_directions else ""
    lines = [
        Line2D([], [], color=mark.colour, ls=mark.line if space.dims == 1 else "none",
               marker=None if space.dims == 1 else mark.marker, ms=9, mew=1.8,
               label=f"{mark.name} {_numbers(mark.place[: space.dims], unit)}")
        for mark in marks
    ]  # fmt: skip
    axes.legend(handles=lines + shades, loc="upper left", fontsize=8.5, frameon=False,
                labelspacing=0.7, borderaxespad=0.0)  # fmt: skip


def _numbers(place: Array, unit: str) -> str:
    return ", ".join(f"{v + 0.0:.1f}{unit}" for v in np.round(place, 1)).replace("-", "−")


def plot_reliability(levels_by_name: Mapping[str, ArrayLike], *, title: str = "") -> Figure:
    """The share of truths inside the credible regions of each level; honest is the diagonal.

    `levels_by_name` holds, for each line, the `DirectionPosterior.level_of` of the truths. The grey band
    is where 95 % of honest lines lie at each level, by chance, given the fewest truths of a line;
    the bars are 45 to 55 % at 50 and 85 to 95 % at 90.
    """
    lines = {name: np.sort(np.ravel(levels)) for name, levels in levels_by_name.items()}
    if not lines or not all(len(v) and ((v >= 0) & (v <= 1)).all() for v in lines.values()):
        raise InputError(
            "levels_by_name must hold numbers between 0 and 1 for every name, got "
            f"{ {name: len(v) for name, v in lines.items()} } numbers. Use DirectionPosterior.level_of."
        )
    from scipy.stats import binom

    figure = figure_of(7.8, 5.2)
    axes = figure.add_subplot()
    nominal = np.linspace(0.0, 1.0, 201)
    fewest = min(map(len, lines.values()))
    low, high = (binom.ppf(q, fewest, nominal) * (100 / fewest) for q in (0.025, 0.975))
    axes.fill_between(100 * nominal, low, high, color=MISSING, alpha=0.5, linewidth=0,
                      label=f"chance, {fewest} truths")  # fmt: skip
    axes.plot((0, 100), (0, 100), color=GREY, linewidth=0.8)
    for i, (name, levels) in enumerate(lines.items()):
        inside = np.searchsorted(levels, nominal, side="right") * (100 / len(levels))
        dash = ("-", "--", ":")[i // len(COLOURS) % 3]
        axes.plot(100 * nominal, inside, dash, color=COLOURS[i % len(COLOURS)], linewidth=1.4,
                  label=name)  # fmt: skip
    level, least, most = np.array(_GOALS).T
    axes.errorbar(level, (least + most) / 2, (most - least) / 2, fmt="none", ecolor=INK,
                  elinewidth=1.6, capsize=5, capthick=1.6, zorder=3, label="the aim")  # fmt: skip
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 100)
    axes.set_aspect("equal")
    axes.set_xticks((0, 25, 50, 75, 90, 100))
    axes.set_yticks((0, 25, 50, 75, 90, 100))
    styled(
        gridded(axes),
        title or "How honest the regions are",
        "credible level, %",
        "truths inside, %",
    )
    figure.legend(loc="outside right upper", fontsize=8, frameon=False)
    return figure
