"""Figures of posteriors: where a sound is, and how well credible regions are calibrated.

A posterior is drawn as a close-up with a small map of the whole space. Azimuth runs from left
(180 degrees) to right (-180 degrees) as seen by the listener.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

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
from earatlas.plotting.palette import COLOURS, GREY, INK, MARKERS, MISSING, source_colour
from earatlas.plotting.posterior_maps import (
    MapSettings,
    PosteriorMap,
    polar_cap_map,
    posterior_map,
    zoomed_map,
)
from earatlas.plotting.posterior_panels import (
    REGION_TINTS,
    Mark,
    draw_density_curve,
    draw_mark,
    draw_marks,
    draw_regions,
    label_axes,
    posterior_marks,
)
from earatlas.plotting.style import (
    add_grid,
    add_title,
    axes_figure,
    escape_mathtext,
    new_figure,
    style_axes,
    tint_colormap,
)
from earatlas.types import Array
from earatlas.wording import format_position, format_radius, is_unknown

__all__ = ["HasPosterior", "plot_posterior", "plot_reliability"]


class HasPosterior(Protocol):
    """A result with a posterior, such as a `Localization` or a `Source`."""

    @property
    def posterior(self) -> DirectionPosterior:
        """Posterior of the direction."""


def plot_posterior(
    posterior: DirectionPosterior | HasPosterior,
    *,
    title: str = "",
    truth: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Plot a close-up of a posterior: its credible regions, peak, mean and the true direction.

    A small map shows where in the whole space the close-up lies. A posterior around a pole
    (straight above or below) is drawn as a polar cap. For a broad posterior only the map of the
    whole space is drawn.

    Parameters
    ----------
    posterior : DirectionPosterior, or an object with a `posterior`
        The posterior of a direction, or a result that has one: a `Localization`, or a source of a
        separated scene.
    title : str, default: ""
        Title of the figure.
    truth : array-like of shape (C,), optional
        The true place: azimuth and elevation in degrees on a sphere.
    ax : matplotlib.axes.Axes, optional
        Axes on which only the map is drawn, with `title` in front of its description: the close-up,
        or the whole space for a broad posterior. By default a new figure is made.

    Returns
    -------
    matplotlib.figure.Figure
        The figure; `earatlas.plotting.style.save` writes it.

    Raises
    ------
    InputError
        If `posterior` is something else, or has more than two coordinates.

    Examples
    --------
    A Gaussian with a standard deviation of 2 degrees around (40, 10):

    >>> import numpy as np
    >>> import earatlas as ea
    >>> from earatlas.plotting.posteriors import plot_posterior
    >>> posterior = ea.DirectionPosterior(
    ...     ea.Sphere(), np.array([[40.0, 10]]), np.ones(1), np.zeros((1, 2)), 4 * np.eye(2)[None])
    >>> figure = plot_posterior(posterior, title="speech", truth=[41, 12])
    >>> figure.axes[0].get_title(loc="left")
    '40° left, 10° up, front; 90 % within 4.3°'

    The result of a localization:

    >>> plot_posterior(ea.example_atlas().localize_file("recording.wav"))  # doctest: +SKIP
    """
    found = _direction_posterior(posterior)
    space, colour = found.space, source_colour(getattr(posterior, "number", None) or 0)
    if ax is not None:
        text = f"{title}: {_describe(found)}" if title else _describe(found)
        marks = posterior_marks(found, truth=truth, mean=True)
        _draw_close_up(ax, space, zoomed_map(found, truth=truth), marks, text, colour)
        return axes_figure(ax)
    figure = new_figure(9.0, 4.2)
    grid = figure.add_gridspec(2, 2, width_ratios=(2.9, 1.0), height_ratios=(1.0, 1.2))
    fine = MapSettings(cells=360, max_evaluations=4e7)  # 1 degree each on the whole sphere
    whole = posterior_map(found, settings=fine)
    cap = polar_cap_map(found, truth=truth, settings=fine)
    close_up = cap or zoomed_map(found, truth=truth, settings=fine)
    marks = posterior_marks(found, truth=truth, mean=True)
    description = _describe(found)
    if cap is None:
        _draw_close_up(figure.add_subplot(grid[:, 0]), space, close_up, marks, description, colour)
    else:
        polar_axes = PolarAxes(figure, grid[:, 0])
        figure.add_subplot(polar_axes)
        _draw_polar_cap(polar_axes, cap, marks, description, colour)
    zoomed = close_up.extent != whole.extent
    if zoomed:
        _draw_overview(figure.add_subplot(grid[0, 1]), space, whole, close_up, colour)
    _draw_legend(figure.add_subplot(grid[1 if zoomed else 0, 1]), space, marks, colour)
    return add_title(figure, title)


def _direction_posterior(value: object) -> DirectionPosterior:
    """Return a posterior itself, or the `posterior` of a result."""
    posterior = getattr(value, "posterior", value)
    if not isinstance(posterior, DirectionPosterior):
        raise InputError(
            "posterior must be a DirectionPosterior or have one as its attribute 'posterior', "
            f"got {type(value).__name__}. Pass the result of Atlas.localize, or a source of a "
            "separated scene."
        )
    return posterior


def _describe(posterior: DirectionPosterior) -> str:
    """Describe the peak and the 90 % radius of a posterior, or say that it is unknown."""
    space, radius = posterior.space, posterior.radius_90
    place = format_position(space, posterior.direction, radius)
    if is_unknown(radius, space):
        return place
    return f"{place}; 90 % within {format_radius(space, radius)}"


def _draw_close_up(
    axes: Axes,
    space: Space,
    close_up: PosteriorMap,
    marks: Sequence[Mark],
    title: str,
    colour: str,
) -> None:
    """Draw a map with its marks and title."""
    _draw_map(axes, space, close_up, colour)
    draw_marks(axes, space, close_up, marks)
    label_axes(axes, space, title)


def _draw_map(axes: Axes, space: Space, drawn: PosteriorMap, colour: str) -> None:
    """Draw the credible regions, with the limits of the map."""
    add_grid(axes)
    if space.dims == 1:
        draw_density_curve(axes, drawn, colour)
        return
    draw_regions(axes, (drawn.x, drawn.y, drawn.credible_levels), colour)
    left, right, low, high = drawn.extent
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)


def _draw_polar_cap(
    axes: PolarAxes, cap: PosteriorMap, marks: Sequence[Mark], title: str, colour: str
) -> None:
    """Draw the regions around a pole as seen from above: front at the top, left on the left."""
    sign = np.sign(cap.y[0])  # sign of the pole's elevation
    levels = cap.credible_levels if sign > 0 else cap.credible_levels[::-1]  # from rim to pole
    # Add the pole and repeat the first column: otherwise a hole and a slit remain.
    levels = np.concatenate([levels, np.full((1, len(cap.x)), levels[-1].mean())])
    levels = np.concatenate([levels, levels[:, :1]], axis=1)
    azimuth = np.radians(np.append(cap.x, cap.x[0] + 360))
    polar_distance = np.append(np.sort(90 - np.abs(cap.y))[::-1], 0.0)  # degrees from the pole
    draw_regions(axes, (azimuth, polar_distance, levels), colour)
    for mark in marks:
        place = np.radians(mark.place[0]), 90 - sign * mark.place[1]
        draw_mark(axes, *place, mark)
    rim = float(np.abs(cap.extent[2:]).min())
    axes.set_theta_zero_location("N")
    axes.set_xticks(np.radians((0, 90, 180, 270)), ("front", "left", "behind", "right"))
    rings = (90 - rim) * np.array([0.25, 0.5, 0.75, 1.0])
    names = [f"{sign * (90 - r):g}°".replace("-", "−") for r in rings]
    axes.set_rgrids(rings, names, angle=marks[0].place[0] + 180)  # opposite to the peak
    axes.set_rlim(0, rings[-1])
    style_axes(add_grid(axes), escape_mathtext(title))


def _draw_overview(
    axes: Axes, space: Space, whole: PosteriorMap, close_up: PosteriorMap, colour: str
) -> None:
    """Draw a small map of the whole space, with a frame around the close-up."""
    _draw_map(axes, space, whole, colour)
    left, right, low, high = close_up.extent
    if space.dims == 1:
        low, high = axes.get_ylim()
    offsets = (0.0,) if isinstance(space, Plane) else (-360.0, 0.0, 360.0)  # across ±180 degrees
    for offset in offsets:
        corner = left + offset, low
        axes.add_patch(Rectangle(corner, right - left, high - low, fill=False, ec=INK, lw=1.2))
    label_axes(axes, space, "")
    style_axes(axes, "Overview")


def _draw_legend(axes: Axes, space: Space, marks: Sequence[Mark], colour: str) -> None:
    """Draw the legend of marks and regions."""
    axes.set_axis_off()
    regions = [
        Patch(fc=tint_colormap(colour)(shade), ec=colour if level < 0.99 else "none",
              lw=0.9, label=f"{100 * level:.0f} % region")
        for level, shade in REGION_TINTS
    ]  # fmt: skip
    unit = "°" if space.holds_directions else ""
    lines = [
        Line2D([], [], color=mark.colour, ls=mark.linestyle if space.dims == 1 else "none",
               marker=None if space.dims == 1 else mark.marker, ms=9, mew=1.8,
               label=f"{mark.name} {_format_place(mark.place[: space.dims], unit)}")
        for mark in marks
    ]  # fmt: skip
    axes.legend(handles=lines + regions, loc="upper left", fontsize=8.5, frameon=False,
                labelspacing=0.7, borderaxespad=0.0)  # fmt: skip


def _format_place(place: Array, unit: str) -> str:
    return ", ".join(f"{v + 0.0:.1f}{unit}" for v in np.round(place, 1)).replace("-", "−")


def plot_reliability(
    levels_by_name: Mapping[str, ArrayLike], *, title: str = "", ax: Axes | None = None
) -> Figure:
    """Plot a reliability diagram: how often credible regions contain the true direction.

    A calibrated posterior lies on the diagonal. The grey band contains 95 % of calibrated curves at
    each level, given the smallest number of cases of a curve. The bars are targets: 45 to 55 % at
    the 50 % level and 85 to 95 % at the 90 % level.

    Parameters
    ----------
    levels_by_name : mapping from str to array-like
        For each curve, the `DirectionPosterior.credible_level` of the true directions, in [0, 1].
    title : str, default: ""
        Title of the panel.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is made.

    Returns
    -------
    matplotlib.figure.Figure
        The figure; `earatlas.plotting.style.save` writes it.

    Raises
    ------
    InputError
        If a curve has no numbers, or numbers outside [0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> from earatlas.plotting.posteriors import plot_reliability
    >>> levels = np.random.default_rng(0).random(100)
    >>> plot_reliability({"calibrated": levels}).axes[0].get_ylabel()
    'true directions inside, %'
    """
    curves = {name: np.sort(np.ravel(levels)) for name, levels in levels_by_name.items()}
    if not curves or not all(len(v) and ((v >= 0) & (v <= 1)).all() for v in curves.values()):
        counts = {name: len(v) for name, v in curves.items()}
        raise InputError(
            f"levels_by_name must hold numbers between 0 and 1 for every name, got {counts} "
            "numbers. Use DirectionPosterior.credible_level."
        )
    from scipy.stats import binom

    axes = new_figure(7.8, 5.2).add_subplot() if ax is None else ax
    nominal = np.linspace(0.0, 1.0, 201)
    fewest = min(map(len, curves.values()))
    low, high = (binom.ppf(q, fewest, nominal) * (100 / fewest) for q in (0.025, 0.975))
    axes.fill_between(100 * nominal, low, high, color=MISSING, alpha=0.5, linewidth=0,
                      label=f"95 % by chance, {fewest} cases")  # fmt: skip
    axes.plot((0, 100), (0, 100), color=GREY, linewidth=0.8)
    for i, (name, levels) in enumerate(curves.items()):
        inside = np.searchsorted(levels, nominal, side="right") * (100 / len(levels))
        dash = ("-", "--", ":")[i // len(COLOURS) % 3]
        # The marks of the curves are at different levels, so that they do not hide each other.
        marks = slice(6 * (i % len(MARKERS)), None, 6 * len(MARKERS))
        axes.plot(100 * nominal, inside, dash, color=COLOURS[i % len(COLOURS)], linewidth=1.4,
                  marker=MARKERS[i % len(MARKERS)], markevery=marks, ms=5, label=name)  # fmt: skip
    # Targets: 45 to 55 % of the truths in the 50 % region, 85 to 95 % in the 90 % region.
    level, lowest, highest = np.array([(50, 45, 55), (90, 85, 95)]).T
    axes.errorbar(level, (lowest + highest) / 2, (highest - lowest) / 2, fmt="none", ecolor=INK,
                  elinewidth=1.6, capsize=5, capthick=1.6, zorder=3, label="target")  # fmt: skip
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 100)
    axes.set_aspect("equal")
    axes.set_xticks((0, 25, 50, 75, 90, 100))
    axes.set_yticks((0, 25, 50, 75, 90, 100))
    style_axes(
        add_grid(axes),
        title or "Calibration of the credible regions",
        "credible level, %",
        "true directions inside, %",
    )
    figure = axes_figure(axes)
    if ax is None:
        figure.legend(loc="outside right upper", fontsize=8, frameon=False)
    else:
        ax.legend(loc="lower right", fontsize=8, frameon=False)
    return figure
