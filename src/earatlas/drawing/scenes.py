"""Pictures of a separated scene: the paper's figure 7, and each of its panels.

In: a `Scene` and, where it is known, the `Truth`. Out: `plot_scene`, one Figure for everything (see
`earatlas.plots`: it belongs to nobody, and `save` writes it), and the `draw_...` functions, which
draw a single panel on axes of your own.

    F', T'   frequencies and columns of the scene's `Picture`
    M        sources, each in its own colour throughout

Missing bins are grey; azimuth runs from left to right as seen from the listener.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MultipleLocator
from numpy.typing import ArrayLike

from earatlas.drawing.belief_maps import (
    FLOOR,
    BeliefMap,
    belief_map,
    edges,
    zoomed_map,
)
from earatlas.drawing.style import _LEVEL, _LINES, _MISSING, INK, _bar, figure_of, styled
from earatlas.judging.truth import Truth, pair_directions, pair_masks, true_masks
from earatlas.separation.picture import Picture
from earatlas.separation.scene import FoundScene
from earatlas.space.angles import wrap_degrees
from earatlas.space.belief import ChartMixture
from earatlas.space.spaces import Plane, Space
from earatlas.types import Array

__all__ = [
    "ILD_LIMIT_DB",
    "LEVEL_RANGE_DB",
    "colour_of",
    "draw_belief",
    "draw_beliefs",
    "draw_free_energy",
    "draw_ild",
    "draw_level",
    "draw_mask",
    "plot_scene",
]

ILD_LIMIT_DB = 20.0
LEVEL_RANGE_DB = 60.0
_TRUE = "#d7263d"
_OUTLINE = [withStroke(linewidth=3.6, foreground="white")]  # seen on a source's colour, too


def colour_of(m: int) -> str:
    """The colour of source m."""
    return _LINES[m % len(_LINES)]


def _spectrogram(axes: Axes, picture: Picture, values: Array, **style: object) -> AxesImage:
    axes.set_facecolor(_MISSING)
    low, high = edges(picture.frequencies_hz / 1000)
    return axes.imshow(
        values,
        origin="lower",
        aspect="auto",
        extent=(*edges(picture.seconds), low, high),
        interpolation="nearest",
        **style,  # type: ignore[arg-type]
    )


def draw_level(axes: Axes, picture: Picture) -> AxesImage:
    """The level of both ears, 60 dB down from the loudest bin."""
    top = float(np.nanmax(picture.level_db, initial=-np.inf, where=np.isfinite(picture.level_db)))
    top = top if np.isfinite(top) else 0.0
    image = _spectrogram(
        axes, picture, picture.level_db, cmap="magma", vmin=top - LEVEL_RANGE_DB, vmax=top
    )
    styled(axes, "Mixture", "seconds", "kHz")
    return image


def draw_ild(axes: Axes, picture: Picture) -> AxesImage:
    """The level difference between the ears, as it was heard; grey where nothing was."""
    limit = ILD_LIMIT_DB
    image = _spectrogram(axes, picture, picture.ild_db, cmap=_LEVEL, vmin=-limit, vmax=limit)
    styled(axes, "Level difference", "seconds", "kHz")
    return image


def draw_mask(axes: Axes, picture: Picture, mask: Array, *, m: int, title: str) -> AxesImage:
    """A mask (F', T') in the colour of source m: found, or true; grey where it is NaN."""
    image = _spectrogram(axes, picture, mask, cmap=_ramp(colour_of(m)), vmin=0.0, vmax=1.0)
    styled(axes, _plain(title), "seconds", "kHz")
    return image


def _plain(name: str) -> str:
    """A name from outside, of which matplotlib is not to make a formula."""
    return name.replace("$", r"\$")


def _ramp(colour: str) -> LinearSegmentedColormap:
    return LinearSegmentedColormap.from_list(colour, ["white", colour])


def _step(span: float) -> float:
    """Degrees between ticks."""
    return next((s for s in (0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 45.0) if span / s < 5.5), 90.0)


def _name_axes(axes: Axes, space: Space, title: str, values: str = "") -> None:
    """Labels and limits of a map; left is on the left."""
    if space.holds_directions:
        styled(axes, _plain(title), "azimuth (left … right)", values or "elevation")
        right, left = sorted(axes.get_xlim())
        axes.set_xlim(left, right)
        axes.xaxis.set_major_locator(MultipleLocator(_step(left - right)))
        axes.xaxis.set_major_formatter(lambda x, _: f"{wrap_degrees(x):g}".replace("-", "−"))
        if space.dims == 2:
            low, high = axes.get_ylim()
            axes.yaxis.set_major_locator(MultipleLocator(_step(high - low)))
    else:
        styled(axes, _plain(title), "first coordinate", values or "second coordinate")


def draw_belief(
    axes: Axes, belief: ChartMixture, *, m: int, title: str = "", truth: ArrayLike | None = None
) -> AxesImage | None:
    """Log-density of where source m is, from near by, its peak (+) and the truth (x).

    With one coordinate it is the density, with lines for peak and truth, and None is returned.
    """
    space, best, drawn = belief.space, belief.best, zoomed_map(belief, truth=truth)
    marks = [("peak", best, INK, "+", "-")]
    if truth is not None:
        marks.append(("truth", np.asarray(truth, dtype=np.float64), _TRUE, "x", "--"))
    if space.dims == 1:
        _draw_arc(axes, drawn, m)
        for name, place, colour, _, line in marks:
            axes.axvline(place[0], color=colour, linewidth=1.2, linestyle=line, label=name)
        _name_axes(axes, space, title, "density")
        return None
    image = axes.imshow(
        np.maximum(drawn.log_density, FLOOR),
        origin="lower",
        aspect="auto",
        extent=drawn.extent,
        cmap=_ramp(colour_of(m)),
        vmin=FLOOR,
        vmax=0.0,
    )
    for name, place, colour, marker, _ in marks:
        x, y = place
        if not isinstance(space, Plane):
            x = best[0] + wrap_degrees(x - best[0])  # across the seam, if the map is
            x = x if drawn.extent[0] <= x <= drawn.extent[1] else place[0]
        axes.plot(x, y, marker, ms=10, mew=1.8, color=colour, label=name, path_effects=_OUTLINE)
    _name_axes(axes, space, title)
    return image


def _draw_arc(axes: Axes, drawn: BeliefMap, m: int) -> None:
    density = np.exp(drawn.log_density[0])
    axes.fill_between(drawn.x, density, color=colour_of(m), alpha=0.6, linewidth=0)
    axes.set_xlim(edges(drawn.x))
    axes.set_ylim(0, 1.1)
    axes.set_yticks([])


def draw_beliefs(
    axes: Axes, beliefs: Sequence[ChartMixture], *, directions: ArrayLike | None = None
) -> None:
    """Where all the sources are: the 50 and 90 % regions in their colours, true ones ringed."""
    for m, belief in enumerate(beliefs):
        drawn = belief_map(belief)
        if belief.space.dims == 1:
            _draw_arc(axes, drawn, m)
            continue
        levels, extent = drawn.levels, drawn.extent
        for level in (0.5, 0.9):
            axes.contourf(drawn.x, drawn.y, levels, (0.0, level), colors=[colour_of(m)], alpha=0.3)
        axes.contour(drawn.x, drawn.y, levels, (0.9,), colors=[colour_of(m)], linewidths=1.0)
        x, y = belief.best
        axes.plot(x, y, "o", ms=13, color=colour_of(m), mec="white", mew=1.2)
        axes.text(x, y, str(m + 1), color="white", fontsize=8, ha="center", va="center",
                  fontweight="bold")  # fmt: skip
        axes.set_xlim(extent[:2])
        axes.set_ylim(extent[2:])
    space = beliefs[0].space
    for place in () if directions is None else np.asarray(directions, dtype=np.float64):
        if space.dims == 1:
            axes.axvline(place[0], color=_TRUE, linewidth=1.2, linestyle="--")
        else:
            axes.plot(*place, "o", ms=18, mfc="none", mew=1.6, color=_TRUE, path_effects=_OUTLINE)
    axes.grid(color=_MISSING, linewidth=0.5)
    axes.set_axisbelow(True)
    _name_axes(axes, space, "Directions", "density" if space.dims == 1 else "")


def draw_free_energy(axes: Axes, free_energies: Sequence[float]) -> None:
    """The free energy's course over the iterations."""
    steps = np.arange(1, len(free_energies) + 1)
    axes.plot(steps, free_energies, ".-", color=_LINES[0], linewidth=1.2, ms=4)
    axes.grid(color=_MISSING, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.locator_params(axis="x", integer=True, nbins=8)
    axes.ticklabel_format(axis="y", useOffset=False)
    styled(axes, "Free energy", "iteration", "nats")


def plot_scene(scene: FoundScene, *, truth: Truth | None = None, title: str = "") -> Figure:
    """Figure 7 of the paper: level differences, directions, assignments, and the truth beside them.

    The first row is the scene: level differences, all directions, free energy. Then a row a source:
    log-density of its direction, the probabilities that each bin is its own, and its true mask.
    """
    M, picture = len(scene.sources), scene.picture
    oracle = true_masks(picture, truth.images) if truth is not None and truth.images else None
    figure = figure_of(12.5, 2.6 * (M + 1) + 0.3)
    grid = figure.add_gridspec(M + 1, 3)
    axes = figure.add_subplot(grid[0, 0])
    _bar(figure, draw_ild(axes, picture), axes, "dB, right over left")
    where = None if truth is None else truth.directions
    if M:
        draw_beliefs(figure.add_subplot(grid[0, 1]), [s.belief for s in scene.sources],
                     directions=where)  # fmt: skip
    if scene.free_energies:
        draw_free_energy(figure.add_subplot(grid[0, 2]), scene.free_energies)
    true_of: dict[int, Array] = {}  # found source -> its true direction
    mask_of: dict[int, tuple[str, Array]] = {}
    if truth is not None and where is not None:
        pairs = pair_directions(scene, where)
        true_of = {int(j): where[i] for i, j in enumerate(pairs.found) if j >= 0}
    if truth is not None and oracle is not None and M:
        pairs = pair_masks(oracle, picture.masks)
        mask_of = {int(j): (truth.names[i], oracle[i]) for i, j in enumerate(pairs.found) if j >= 0}
    for m, source in enumerate(scene.sources):
        axes = figure.add_subplot(grid[m + 1, 0])
        place = ", ".join(f"{v:.0f}" for v in source.direction)
        image = draw_belief(axes, source.belief, m=m, title=f"{source.name} ({place})",
                            truth=true_of.get(m))  # fmt: skip
        axes.legend(loc="lower right", fontsize=7, framealpha=0.9)
        if image is not None:
            _bar(figure, image, axes, "log density")
        axes = figure.add_subplot(grid[m + 1, 1] if oracle is not None else grid[m + 1, 1:])
        image = draw_mask(axes, picture, picture.masks[m], m=m, title="Assignment")
        if m in mask_of:
            name, mask = mask_of[m]
            axes = figure.add_subplot(grid[m + 1, 2])
            image = draw_mask(axes, picture, mask, m=m, title=f"True: {name}")
        _bar(figure, image, axes, "probability")
    if title:
        figure.suptitle(title, fontsize=11, color=INK, x=0.01, ha="left", parse_math=False)
    return figure
