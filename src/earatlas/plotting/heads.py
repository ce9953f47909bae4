"""A head in a picture: its coverage and its cues."""

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
    AZIMUTHS,
    COLOURS,
    DIFFERENCE_MAP,
    ELEVATIONS,
    GREY,
    MISSING,
    PHASE_MAP,
)
from earatlas.plotting.style import colour_bar, figure_of, gridded, headed, styled
from earatlas.types import Array, Indices, Mask

__all__ = ["plot_head"]

_TURN = np.arange(1.5, 360.0, 3.0)  # columns of a plane round the head, in degrees


@dataclass(frozen=True, eq=False)
class _Panel:
    """The cues of a head along a plane through its middle."""

    title: str
    values: Array  # (N, F) of the head's directions
    khz: Array  # (F,)
    cmap: str
    limit: float  # at which the colours end


def plot_head(head: Head) -> Figure:
    """Coverage, and the cues along the horizontal plane and over the median plane."""
    figure = figure_of(10.5, 6.6)
    _draw_coverage(figure.add_subplot(2, 2, 1), head)
    levels, phases = CueLayout(ipd_band_hz=None), CueLayout.low_ipd()
    ild, khz = head.cues(levels), levels.frequencies_hz / 1000
    cos, sin = np.split(head.cues(phases), 2, axis=1)
    ipd, low = np.arctan2(sin, cos), khz[phases.ipd_frequencies]
    flat = _Panel("Level difference, horizontal plane", ild, khz, DIFFERENCE_MAP, 25.0)
    over = _Panel("Level difference, median plane", ild, khz, DIFFERENCE_MAP, 10.0)
    turn = _Panel("Phase difference, horizontal plane", ipd, low, PHASE_MAP, np.pi)
    _draw_horizontal(figure.add_subplot(2, 2, 2), head, flat)
    _draw_median(figure.add_subplot(2, 2, 3), head, over)
    _draw_horizontal(figure.add_subplot(2, 2, 4), head, turn)
    named = head.provenance.startswith(head.name)
    title = head.provenance if named else f"{head.name}: {head.provenance}"
    return headed(figure, title[:110])


def _draw_horizontal(axes: Axes, head: Head, panel: _Panel) -> None:
    """Over azimuth at ear height, cut open behind."""
    azimuth = _TURN - 180
    if _draw_cues(axes, head, panel, azimuth, np.stack([azimuth, 0 * azimuth], axis=1)):
        axes.set_xlim(180, -180)
        axes.set_xticks(AZIMUTHS)
        styled(axes, panel.title, "azimuth (left … right)", "kHz")


def _draw_median(axes: Axes, head: Head, panel: _Panel) -> None:
    """Over the polar angle from ahead over the top to behind, cut open below."""
    polar = _TURN - 90
    turn = np.radians(polar)
    plane = to_directions(np.stack([np.cos(turn), 0 * turn, np.sin(turn)], axis=1))
    if _draw_cues(axes, head, panel, polar, plane):
        axes.set_xticks((-90, 0, 90, 180, 270))
        styled(axes, panel.title, "polar angle: 0 ahead, 90 above, 180 behind", "kHz")


def _draw_cues(axes: Axes, head: Head, panel: _Panel, angles: Array, plane: Array) -> bool:
    """The cues at the directions nearest to a plane's; False where it was not measured."""
    near, measured = _nearest(head, plane)
    if len(np.unique(near[measured])) < 3:
        axes.text(0.5, 0.5, "not measured", ha="center", va="center", color=GREY)
        axes.set_xticks([])
        axes.set_yticks([])
        styled(axes, panel.title)
        return False
    axes.set_facecolor(MISSING)
    mesh = axes.pcolormesh(
        angles,
        panel.khz,
        np.where(measured[:, None], panel.values[near], np.nan).T,
        cmap=panel.cmap,
        vmin=-panel.limit,
        vmax=panel.limit,
        shading="nearest",
        rasterized=True,
    )
    label = "radians" if panel.cmap == PHASE_MAP else "dB, right over left"
    colour_bar(mesh, axes, label)
    return True


def _nearest(head: Head, plane: Array) -> tuple[Indices, Mask]:
    """The measured directions nearest to those of a plane, and whether they are near enough."""
    near = Sphere().nearest(head.directions, plane)
    gap = Sphere().distance(head.directions[near], plane)
    return near, gap <= 1.5 * head.spacing_degrees


def _draw_coverage(axes: Axes, head: Head) -> None:
    axes.scatter(head.directions[:, 0], head.directions[:, 1], s=3, color=COLOURS[0], linewidths=0)
    axes.set_xlim(180, -180)
    axes.set_ylim(-90, 90)
    axes.set_xticks(AZIMUTHS)
    axes.set_yticks(ELEVATIONS)
    styled(gridded(axes), f"{len(head)} directions", "azimuth (left … right)", "elevation")
