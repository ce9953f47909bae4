"""Figure of a head: its measured directions and its cues."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from earatlas.features.layout import CueLayout
from earatlas.geometry.angles import to_directions
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.head import Head
from earatlas.plotting.palette import (
    AZIMUTH_TICKS,
    COLOURS,
    DIFFERENCE_MAP,
    ELEVATION_TICKS,
    GREY,
    MISSING,
    PHASE_MAP,
)
from earatlas.plotting.style import (
    add_colour_bar,
    add_grid,
    add_title,
    axes_figure,
    degree_labels,
    new_figure,
    phase_labels,
    style_axes,
)
from earatlas.types import Array, Indices, Mask

__all__ = ["plot_head"]

_PLANE_ANGLES = np.arange(1.5, 360.0, 3.0)  # angles of the columns of a plane, degrees


@dataclass(frozen=True, eq=False)
class _Panel:
    """Cues of a head, drawn along a plane through its centre."""

    title: str
    values: Array  # (N, F) cue values of the head's directions
    khz: Array  # (F,) frequencies, kHz
    cmap: str
    limit: float  # largest absolute value of the colour scale


def plot_head(head: Head, *, ax: Axes | None = None) -> Figure:
    """Plot the measured directions of a head and its cues along two planes.

    The panels show the directions, the level difference along the horizontal and the median plane,
    and the phase difference along the horizontal plane. A column shows the measured direction
    nearest to it; parts of a plane without a measurement nearby are grey.

    Parameters
    ----------
    head : Head
        A head with its responses or recordings, for example from `earatlas.open_head`.
    ax : matplotlib.axes.Axes, optional
        Axes on which only the directions are drawn. By default a new figure is made.

    Returns
    -------
    matplotlib.figure.Figure
        The figure; `earatlas.plotting.style.save` writes it.

    Examples
    --------
    >>> import earatlas as ea
    >>> from earatlas.plotting.heads import plot_head
    >>> figure = plot_head(ea.simulated_head(ea.Sphere().grid(30.0)))
    >>> figure.axes[0].get_title(loc="left")
    '46 directions'
    """
    if ax is not None:
        _draw_coverage(ax, head)
        return axes_figure(ax)
    if head.plane is not None:
        return _plot_positions(head)
    figure = new_figure(10.5, 6.6)
    _draw_coverage(figure.add_subplot(2, 2, 1), head)
    ild_layout, ipd_layout = CueLayout(ipd_band_hz=None), CueLayout.low_ipd()
    ild, khz = head.cues(ild_layout), ild_layout.frequencies_hz / 1000
    cos, sin = np.split(head.cues(ipd_layout), 2, axis=1)
    ipd, ipd_khz = np.arctan2(sin, cos), khz[ipd_layout.ipd_frequencies]
    horizontal_ild = _Panel("Level difference, horizontal plane", ild, khz, DIFFERENCE_MAP, 25.0)
    median_ild = _Panel("Level difference, median plane", ild, khz, DIFFERENCE_MAP, 10.0)
    horizontal_ipd = _Panel("Phase difference, horizontal plane", ipd, ipd_khz, PHASE_MAP, np.pi)
    _draw_horizontal(figure.add_subplot(2, 2, 2), head, horizontal_ild)
    _draw_median(figure.add_subplot(2, 2, 3), head, median_ild)
    _draw_horizontal(figure.add_subplot(2, 2, 4), head, horizontal_ipd)
    named = head.provenance.startswith(head.name)
    title = head.provenance if named else f"{head.name}: {head.provenance}"
    return add_title(figure, title[:110])


def _plot_positions(head: Head) -> Figure:
    """Plot the positions of a head in its image, in the colour of their mean level difference."""
    figure = new_figure(7.5, 5.6)
    axes = figure.add_subplot()
    level = head.cues(CueLayout(ipd_band_hz=None)).mean(axis=1)
    limit = max(float(np.abs(level).max()), 1.0)
    x, y = head.directions.T
    points = axes.scatter(x, y, c=level, cmap=DIFFERENCE_MAP, vmin=-limit, vmax=limit)
    assert head.plane is not None
    (left, right), (top, bottom) = head.plane.bounds
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    axes.set_aspect("equal")
    unit = head.plane.unit_name
    style_axes(axes, f"{len(head)} positions", f"x, {unit}", f"y, {unit}")
    add_colour_bar(points, axes, "mean level difference, dB, right over left")
    return add_title(figure, head.name[:110])


def _draw_horizontal(axes: Axes, head: Head, panel: _Panel) -> None:
    """Draw a panel over azimuth at elevation 0, from 180 to -180 degrees."""
    azimuth = _PLANE_ANGLES - 180
    if _draw_cues(axes, head, panel, azimuth, np.stack([azimuth, 0 * azimuth], axis=1)):
        axes.set_xlim(180, -180)
        axes.set_xticks(AZIMUTH_TICKS)
        degree_labels(axes.xaxis)
        style_axes(axes, panel.title, "azimuth (left … right)", "kHz")


def _draw_median(axes: Axes, head: Head, panel: _Panel) -> None:
    """Draw a panel over the polar angle, from -90 (below) over 0 (front) to 270 degrees."""
    polar = _PLANE_ANGLES - 90
    angle = np.radians(polar)
    plane = to_directions(np.stack([np.cos(angle), 0 * angle, np.sin(angle)], axis=1))
    if _draw_cues(axes, head, panel, polar, plane):
        names = ("below", "front", "above", "behind", "below")
        axes.set_xticks((-90, 0, 90, 180, 270), [f"{a}°\n{name}".replace("-", "−") for a, name in
                        zip((-90, 0, 90, 180, 270), names, strict=True)])  # fmt: skip
        style_axes(axes, panel.title, "polar angle", "kHz")


def _draw_cues(axes: Axes, head: Head, panel: _Panel, angles: Array, plane: Array) -> bool:
    """Draw the cues at the measured directions nearest to a plane's (n, 2).

    Returns False, and writes "not measured", where fewer than three directions are near the plane.
    """
    nearest, measured = _nearest(head, plane)
    if len(np.unique(nearest[measured])) < 3:
        axes.text(0.5, 0.5, "not measured", ha="center", va="center", color=GREY)
        axes.set_xticks([])
        axes.set_yticks([])
        style_axes(axes, panel.title)
        return False
    axes.set_facecolor(MISSING)
    mesh = axes.pcolormesh(
        angles,
        panel.khz,
        np.where(measured[:, None], panel.values[nearest], np.nan).T,
        cmap=panel.cmap,
        vmin=-panel.limit,
        vmax=panel.limit,
        shading="nearest",
        rasterized=True,
    )
    if panel.cmap == PHASE_MAP:
        phase_labels(add_colour_bar(mesh, axes, "radians, right minus left").ax.yaxis)
    else:
        add_colour_bar(mesh, axes, "dB, right over left")
    return True


def _nearest(head: Head, plane: Array) -> tuple[Indices, Mask]:
    """Return the measured directions nearest to a plane's, and whether they are near enough."""
    nearest = Sphere().nearest(head.directions, plane)
    distance = Sphere().distance(head.directions[nearest], plane)
    return nearest, distance <= 1.5 * head.spacing_degrees


def _draw_coverage(axes: Axes, head: Head) -> None:
    """Draw the measured directions as dots."""
    axes.scatter(head.directions[:, 0], head.directions[:, 1], s=3, color=COLOURS[0], linewidths=0)
    axes.set_xlim(180, -180)
    axes.set_ylim(-90, 90)
    axes.set_xticks(AZIMUTH_TICKS)
    axes.set_yticks(ELEVATION_TICKS)
    degree_labels(axes.xaxis, axes.yaxis)
    style_axes(add_grid(axes), f"{len(head)} directions", "azimuth (left … right)", "elevation")
