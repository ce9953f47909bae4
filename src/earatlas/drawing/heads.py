"""A head in a picture: its coverage and its cues."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from earatlas.drawing.style import (
    _AZIMUTHS,
    _LEVEL,
    _MISSING,
    _PHASE,
    GREY,
    INK,
    _bar,
    figure_of,
    styled,
)
from earatlas.heads.head import Head
from earatlas.hearing.layout import CueLayout
from earatlas.space.angles import to_directions
from earatlas.space.spaces import Sphere
from earatlas.types import Array, Indices, Mask

__all__ = ["plot_head"]

_COLUMNS = 120  # of a plane round the head: 3 degrees each


def plot_head(head: Head) -> Figure:
    """Coverage, and the cues along the horizontal plane and over the median plane."""
    figure = figure_of(10.5, 6.6)
    _plot_coverage(figure.add_subplot(2, 2, 1), head)
    levels, phases = CueLayout(ipd_band_hz=None), CueLayout.low_ipd()
    ild = head.cues(levels)
    cos, sin = np.split(head.cues(phases), 2, axis=1)
    ipd = np.arctan2(sin, cos)
    khz = levels.frequencies_hz / 1000
    low = khz[phases.ipd_frequencies]
    across = (np.arange(_COLUMNS) + 0.5) * (360 / _COLUMNS)
    azimuth, polar = across - 180, across - 90  # cut open behind, and below
    turn = np.radians(polar)
    flat = np.stack([azimuth, 0 * azimuth], axis=1)
    over = to_directions(np.stack([np.cos(turn), 0 * turn, np.sin(turn)], axis=1))
    for place, angle, plane, values, rows, cmap, limit, title in (
        (2, azimuth, flat, ild, khz, _LEVEL, 25.0, "Level difference, horizontal plane"),
        (3, polar, over, ild, khz, _LEVEL, 10.0, "Level difference, median plane"),
        (4, azimuth, flat, ipd, low, _PHASE, np.pi, "Phase difference, horizontal plane"),
    ):
        axes = figure.add_subplot(2, 2, place)
        near, measured = _nearest(head, plane)
        if len(np.unique(near[measured])) < 3:
            axes.text(0.5, 0.5, "not measured", ha="center", va="center", color=GREY)
            axes.set_xticks([])
            axes.set_yticks([])
            styled(axes, title, "", "")
            continue
        axes.set_facecolor(_MISSING)
        mesh = axes.pcolormesh(
            angle,
            rows,
            np.where(measured[:, None], values[near], np.nan).T,
            cmap=cmap,
            vmin=-limit,
            vmax=limit,
            shading="nearest",
            rasterized=True,
        )
        if angle is polar:
            axes.set_xticks((-90, 0, 90, 180, 270))
            styled(axes, title, "polar angle: 0 ahead, 90 above, 180 behind", "kHz")
        else:
            axes.set_xlim(180, -180)
            axes.set_xticks(_AZIMUTHS)
            styled(axes, title, "azimuth (left … right)", "kHz")
        _bar(figure, mesh, axes, "radians" if cmap == _PHASE else "dB, right over left")
    named = head.provenance.startswith(head.name)
    title = head.provenance if named else f"{head.name}: {head.provenance}"
    figure.suptitle(title[:110], fontsize=11, color=INK, x=0.01, ha="left", parse_math=False)
    return figure


def _nearest(head: Head, plane: Array) -> tuple[Indices, Mask]:
    """The measured directions nearest to those of a plane, and whether they are near enough."""
    near = Sphere().nearest(head.directions, plane)
    gap = Sphere().distance(head.directions[near], plane)
    return near, gap <= 1.5 * head.spacing_degrees


def _plot_coverage(axes: Axes, head: Head) -> None:
    axes.scatter(head.directions[:, 0], head.directions[:, 1], s=3, color="#2f6db5", linewidths=0)
    axes.set_xlim(180, -180)
    axes.set_ylim(-90, 90)
    axes.set_xticks(_AZIMUTHS)
    axes.set_yticks((-90, -45, 0, 45, 90))
    axes.grid(color=_MISSING, linewidth=0.5)
    styled(axes, f"{len(head)} directions", "azimuth (left … right)", "elevation")
