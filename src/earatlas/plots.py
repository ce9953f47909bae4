"""Pictures: a head's coverage and cues, the cue spectrograms of a recording, and beliefs.

Every function returns a matplotlib Figure that belongs to nobody: no pyplot, no global state, safe
in threads and on machines without a screen. `save` writes it.

Azimuth runs from left (180) to right (-180), as seen from the listener; missing bins are grey.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from earatlas.cues import CueLayout, Cues
from earatlas.directions import Sphere, to_directions
from earatlas.errors import InputError
from earatlas.heads import Head
from earatlas.posterior import ChartMixture

__all__ = ["check_picture", "plot_belief", "plot_cues", "plot_head", "plot_reliability", "save"]

Array = NDArray[np.float64]

INK, GREY, _MISSING = "#1f2933", "#7b8794", "#c9ced6"
_LEVEL, _PHASE = "RdBu_r", "twilight_shifted"
_AZIMUTHS = (180, 90, 0, -90, -180)
_COLUMNS = 120  # of a plane round the head: 3 degrees each
_LINES = ("#2f6db5", "#ff9f1c", "#d7263d", "#2a9d5c", "#8e5ea2", "#17a2b8", "#8d6e63")
_GOALS = ((50, 45, 55), (90, 85, 95))  # nominal level, least and most of the truths in it, in %


def check_picture(path: Path) -> None:
    """Refuse a name that `save` cannot write: commands ask before they work."""
    if path.suffix.lower() not in {".png", ".svg", ".pdf"}:
        raise InputError(f"plot must end in .png, .svg or .pdf, got '{path}'. Rename the output.")


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure as PNG, SVG or PDF, by its ending; the whole file or nothing."""
    path = Path(path)
    check_picture(path)
    try:
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            figure.savefig(Path(scratch, path.name), dpi=150)
            Path(scratch, path.name).replace(path)
    except OSError as error:
        raise InputError(
            f"plot must be a file that can be written, got '{path}' ({error.strerror}). "
            "Check that its folder exists and is writable."
        ) from error
    return path


def figure_of(width: float, height: float) -> Figure:
    """An empty figure that belongs to nobody."""
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def styled(axes: Axes, title: str, x: str = "", y: str = "") -> Axes:
    """Title, labels and thin grey lines around."""
    axes.set_title(title, loc="left", fontsize=10, color=INK, fontweight="bold")
    axes.set_xlabel(x, fontsize=9, color=INK)
    axes.set_ylabel(y, fontsize=9, color=INK)
    axes.tick_params(labelsize=8, colors=GREY, labelcolor=INK)
    for spine in axes.spines.values():
        spine.set_color(GREY)
        spine.set_linewidth(0.6)
    return axes


def _bar(figure: Figure, image: ScalarMappable, axes: Axes, label: str) -> None:
    bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=18)
    bar.set_label(label, fontsize=8, color=INK)
    bar.ax.tick_params(labelsize=7)


def plot_cues(cues: Cues, *, title: str = "", start_seconds: float = 0.0) -> Figure:
    """ILD and IPD spectrograms of a recording; grey where nothing was observed."""
    layout = cues.layout
    both = (
        ("Level difference", layout.ild_bins, cues.ild, _LEVEL, 20.0, "dB, right over left"),
        ("Phase difference", layout.ipd_bins, cues.ipd, _PHASE, np.pi, "radians"),
    )
    panels = [panel for panel in both if len(panel[1])]
    figure = figure_of(9.0, 3.0 * len(panels) + 0.4)
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
        styled(axes, kind, "seconds" if row == len(panels) else "", "kHz")
        _bar(figure, image, axes, label)
    if title:
        figure.suptitle(title, fontsize=11, color=INK, x=0.01, ha="left", parse_math=False)
    return figure


def plot_head(head: Head) -> Figure:
    """Coverage, and the cues along the horizontal plane and over the median plane."""
    figure = figure_of(10.5, 6.6)
    _plot_coverage(figure.add_subplot(2, 2, 1), head)
    levels, phases = CueLayout(ipd_band_hz=None), CueLayout.low_ipd()
    ild = head.cues(levels)
    cos, sin = np.split(head.cues(phases), 2, axis=1)
    ipd = np.arctan2(sin, cos)
    khz = levels.frequencies_hz / 1000
    low = khz[phases.ipd_bins]
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


def _nearest(head: Head, plane: Array) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
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


def plot_belief(belief: ChartMixture, *, title: str = "", truth: ArrayLike | None = None) -> Figure:
    """A map of where a sound is believed to be: log-density, its peak, mean and 90 % region."""
    figure = figure_of(9.0, 4.6)
    axes = figure.add_subplot()
    if belief.space.dims == 1:
        return _plot_arc(figure, axes, belief, title)
    azimuth, elevation = np.arange(-180.0, 180.1, 2.0), np.arange(-90.0, 90.1, 2.0)
    points = np.stack(np.meshgrid(azimuth, elevation), axis=-1).reshape(-1, 2)
    density = belief.log_density(points).reshape(len(elevation), len(azimuth))
    mesh = axes.pcolormesh(
        azimuth,
        elevation,
        np.maximum(density - density.max(), -12.0),
        cmap="Blues",
        shading="nearest",
        rasterized=True,
    )
    region = belief.credible_region(0.9)
    cells = region.cells
    axes.plot(cells[:, 0], cells[:, 1], ".", ms=1.2, color="#ff9f1c", label="90 % region")
    markers = [("best", belief.best, "+", INK), ("mean", belief.mean, "1", "#2a9d5c")]
    if truth is not None:
        markers.append(("truth", np.asarray(truth, dtype=np.float64), "x", "#d7263d"))
    for name, place, marker, colour in markers:
        label = f"{name} ({place[0]:.0f}, {place[1]:.0f})"
        axes.plot(*place, marker, ms=10, mew=1.6, color=colour, label=label)
    axes.set_xlim(180, -180)
    axes.set_ylim(-90, 90)
    axes.set_xticks(_AZIMUTHS)
    axes.set_yticks((-90, -45, 0, 45, 90))
    styled(axes, f"90 % region: {region.area:.0f} square degrees", "azimuth (left … right)",
           "elevation")  # fmt: skip
    axes.legend(loc="lower right", fontsize=8, framealpha=0.9)
    _bar(figure, mesh, axes, "log density below its peak")
    if title:
        figure.suptitle(title, fontsize=11, color=INK, x=0.01, ha="left", parse_math=False)
    return figure


def _plot_arc(figure: Figure, axes: Axes, belief: ChartMixture, title: str) -> Figure:
    """The density over azimuth, for a head that was measured at one elevation."""
    azimuth = np.arange(-180.0, 180.1, 0.5)
    points = np.stack([azimuth, np.full_like(azimuth, belief.best[1])], axis=-1)
    axes.fill_between(azimuth, np.exp(belief.log_density(points)), color="#2f6db5", alpha=0.8)
    axes.axvline(belief.best[0], color=INK, linewidth=1, label=f"best {belief.best[0]:.0f}°")
    axes.set_xlim(180, -180)
    axes.set_xticks(_AZIMUTHS)
    styled(axes, f"90 % region: {belief.credible_area(0.9):.0f} degrees of azimuth",
           "azimuth (left … right)", "density per degree")  # fmt: skip
    axes.legend(loc="upper right", fontsize=8)
    figure.suptitle(title, fontsize=11, color=INK, x=0.01, ha="left", parse_math=False)
    return figure


def plot_reliability(levels_by_name: Mapping[str, ArrayLike], *, title: str = "") -> Figure:
    """The share of truths inside the credible regions of each level; honest is the diagonal.

    `levels_by_name` holds, for each line, the `ChartMixture.level_of` of the truths. The grey band
    is where 95 % of honest lines lie at each level, by chance, given the fewest truths of a line;
    the bars are 45 to 55 % at 50 and 85 to 95 % at 90.
    """
    lines = {name: np.sort(np.ravel(levels)) for name, levels in levels_by_name.items()}
    if not lines or not all(len(v) and ((v >= 0) & (v <= 1)).all() for v in lines.values()):
        raise InputError(
            "levels_by_name must hold numbers between 0 and 1 for every name, got "
            f"{ {name: len(v) for name, v in lines.items()} } numbers. Use ChartMixture.level_of."
        )
    from scipy.stats import binom

    figure = figure_of(7.8, 5.2)
    axes = figure.add_subplot()
    nominal = np.linspace(0.0, 1.0, 201)
    fewest = min(map(len, lines.values()))
    low, high = (binom.ppf(q, fewest, nominal) * (100 / fewest) for q in (0.025, 0.975))
    axes.fill_between(100 * nominal, low, high, color=_MISSING, alpha=0.5, linewidth=0,
                      label=f"chance, {fewest} truths")  # fmt: skip
    axes.plot((0, 100), (0, 100), color=GREY, linewidth=0.8)
    for i, (name, levels) in enumerate(lines.items()):
        inside = np.searchsorted(levels, nominal, side="right") * (100 / len(levels))
        dash = ("-", "--", ":")[i // len(_LINES) % 3]
        axes.plot(100 * nominal, inside, dash, color=_LINES[i % len(_LINES)], linewidth=1.4,
                  label=name)  # fmt: skip
    level, least, most = np.array(_GOALS).T
    axes.errorbar(level, (least + most) / 2, (most - least) / 2, fmt="none", ecolor=INK,
                  elinewidth=1.6, capsize=5, capthick=1.6, zorder=3, label="the aim")  # fmt: skip
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 100)
    axes.set_aspect("equal")
    axes.set_xticks((0, 25, 50, 75, 90, 100))
    axes.set_yticks((0, 25, 50, 75, 90, 100))
    axes.grid(color=_MISSING, linewidth=0.5)
    axes.set_axisbelow(True)
    styled(axes, title or "How honest the regions are", "credible level, %", "truths inside, %")
    figure.legend(loc="outside right upper", fontsize=8, frameon=False)
    return figure
