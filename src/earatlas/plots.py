"""Pictures: a head's coverage and cues, and the cue spectrograms of a recording.

Every function returns a matplotlib Figure that belongs to nobody: no pyplot, no global state, safe
in threads and on machines without a screen. `save` writes it.

Azimuth runs from left (180) to right (-180), as seen from the listener; missing bins are grey.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from numpy.typing import NDArray

from earatlas.cues import CueLayout, Cues
from earatlas.directions import to_vectors
from earatlas.errors import InputError
from earatlas.heads import Head

__all__ = ["plot_cues", "plot_head", "save"]

Array = NDArray[np.float64]

_INK, _GREY, _MISSING = "#1f2933", "#7b8794", "#c9ced6"
_LEVEL, _PHASE = "RdBu_r", "twilight_shifted"
_AZIMUTHS = (180, 90, 0, -90, -180)


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure as PNG, SVG or PDF, by its ending."""
    path = Path(path)
    if path.suffix.lower() not in {".png", ".svg", ".pdf"}:
        raise InputError(f"plot must end in .png, .svg or .pdf, got '{path}'. Rename the output.")
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise InputError(
            f"plot must be a file that can be written, got '{path}' ({error.strerror}). "
            "Check that its folder exists and is writable."
        ) from error
    return path


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def _style(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, color=_INK, fontweight="bold")
    axes.set_xlabel(x, fontsize=9, color=_INK)
    axes.set_ylabel(y, fontsize=9, color=_INK)
    axes.tick_params(labelsize=8, colors=_GREY, labelcolor=_INK)
    for spine in axes.spines.values():
        spine.set_color(_GREY)
        spine.set_linewidth(0.6)


def _bar(figure: Figure, image: ScalarMappable, axes: Axes, label: str) -> None:
    bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=18)
    bar.set_label(label, fontsize=8, color=_INK)
    bar.ax.tick_params(labelsize=7)


def plot_cues(cues: Cues, *, title: str = "", start_seconds: float = 0.0) -> Figure:
    """ILD and IPD spectrograms of a recording; grey where nothing was observed."""
    layout = cues.layout
    both = (
        ("Level difference", layout.ild_bins, cues.ild, _LEVEL, 20.0, "dB, right over left"),
        ("Phase difference", layout.ipd_bins, cues.ipd, _PHASE, np.pi, "radians"),
    )
    panels = [panel for panel in both if len(panel[1])]
    figure = _figure(9.0, 3.0 * len(panels) + 0.4)
    seconds = cues.frames * layout.hop / layout.rate
    for row, (kind, bins, values, cmap, limit, label) in enumerate(panels, start=1):
        axes = figure.add_subplot(len(panels), 1, row)
        low, high = (layout.frequencies_hz[bins[i]] / 1000 for i in (0, -1))
        extent = (start_seconds, start_seconds + seconds, float(low), float(high))
        axes.set_facecolor(_MISSING)
        image = axes.imshow(
            values,
            origin="lower",
            aspect="auto",
            extent=extent,
            cmap=cmap,
            vmin=-limit,
            vmax=limit,
            interpolation="nearest",
        )
        _style(axes, kind, "seconds" if row == len(panels) else "", "kHz")
        _bar(figure, image, axes, label)
    if title:
        figure.suptitle(title, fontsize=11, color=_INK, x=0.01, ha="left")
    return figure


def plot_head(head: Head) -> Figure:
    """Coverage, and the cues along the horizontal plane and over the median plane."""
    figure = _figure(10.5, 6.6)
    _plot_coverage(figure.add_subplot(2, 2, 1), head)
    v = to_vectors(head.directions)
    azimuth = head.directions[:, 0]
    polar = np.degrees(np.arctan2(v[:, 2], v[:, 0]))
    polar = np.where(polar < -90, polar + 360, polar)  # cut open below, where few heads measure
    flat = np.abs(head.directions[:, 1]) < max(3.0, head.spacing_degrees)
    median = np.abs(v[:, 1]) < np.sin(np.radians(3.0))
    levels, phases = CueLayout(ipd_band_hz=None), CueLayout.low_ipd()
    ild, ipd = head.cues(levels), head.cues(phases)
    cos, sin = np.split(ipd, 2, axis=1)
    khz = levels.frequencies_hz / 1000
    low = khz[phases.ipd_bins]
    for place, angle, chosen, values, rows, cmap, limit, title in (
        (2, azimuth, flat, ild, khz, _LEVEL, 25.0, "Level difference, horizontal plane"),
        (3, polar, median, ild, khz, _LEVEL, 10.0, "Level difference, median plane"),
        (4, azimuth, flat, np.arctan2(sin, cos), low, _PHASE, np.pi,
         "Phase difference, horizontal plane"),
    ):  # fmt: skip
        axes = figure.add_subplot(2, 2, place)
        if chosen.sum() < 3:
            axes.text(0.5, 0.5, "not measured", ha="center", va="center", color=_GREY)
            axes.set_xticks([])
            axes.set_yticks([])
            _style(axes, title, "", "")
            continue
        order = np.argsort(angle[chosen])
        mesh = axes.pcolormesh(
            angle[chosen][order],
            rows,
            values[chosen][order].T,
            cmap=cmap,
            vmin=-limit,
            vmax=limit,
            shading="nearest",
            rasterized=True,
        )
        if angle is polar:
            axes.set_xticks((-90, 0, 90, 180, 270))
            _style(axes, title, "polar angle: 0 ahead, 90 above, 180 behind", "kHz")
        else:
            axes.set_xlim(180, -180)
            axes.set_xticks(_AZIMUTHS)
            _style(axes, title, "azimuth (left … right)", "kHz")
        _bar(figure, mesh, axes, "radians" if cmap == _PHASE else "dB, right over left")
    named = head.provenance.startswith(head.name)
    title = head.provenance if named else f"{head.name}: {head.provenance}"
    figure.suptitle(title[:110], fontsize=11, color=_INK, x=0.01, ha="left")
    return figure


def _plot_coverage(axes: Axes, head: Head) -> None:
    axes.scatter(head.directions[:, 0], head.directions[:, 1], s=3, color="#2f6db5", linewidths=0)
    axes.set_xlim(180, -180)
    axes.set_ylim(-90, 90)
    axes.set_xticks(_AZIMUTHS)
    axes.set_yticks((-90, -45, 0, 45, 90))
    axes.grid(color=_MISSING, linewidth=0.5)
    _style(axes, f"{len(head)} directions", "azimuth (left … right)", "elevation")
