"""Beliefs in pictures: where a sound is, and how often such beliefs hold the truth.

Azimuth runs from left (180) to right (-180), as seen from the listener.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from earatlas.drawing.style import _AZIMUTHS, _LINES, _MISSING, GREY, INK, _bar, figure_of, styled
from earatlas.errors import InputError
from earatlas.space.belief import ChartMixture

__all__ = ["plot_belief", "plot_reliability"]

_GOALS = ((50, 45, 55), (90, 85, 95))  # nominal level, least and most of the truths in it, in %


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
