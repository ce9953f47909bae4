"""Pictures of a separated scene: the paper's figure 7, and each of its panels.

In: a `FoundScene` and, where it is known, the `Truth`. Out: `plot_scene`, one Figure for everything
(it belongs to nobody, and `earatlas.plotting.style.save` writes it), and the `draw_...` functions,
which draw a single panel on axes of your own.

    F', T'   frequencies and columns of the scene's `Picture`
    M        sources, each in its own colour throughout

Missing bins are grey; azimuth runs from left to right as seen from the listener.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.image import AxesImage

from earatlas.evaluation.ground_truth import Matched, Truth
from earatlas.plotting.palette import COLOURS, DIFFERENCE_MAP, ILD_LIMIT_DB, MISSING, colour_of
from earatlas.plotting.posterior_maps import edges
from earatlas.plotting.posterior_panels import draw_belief, draw_beliefs
from earatlas.plotting.style import colour_bar, figure_of, gridded, headed, plain, styled, tints
from earatlas.plotting.tracks import draw_levels, draw_ways
from earatlas.separation.result import FoundScene
from earatlas.separation.spectrogram_summary import Picture
from earatlas.types import Array
from earatlas.wording import place_words

__all__ = [
    "draw_belief",
    "draw_beliefs",
    "draw_free_energy",
    "draw_ild",
    "draw_levels",
    "draw_mask",
    "draw_ways",
    "plot_scene",
]


def _spectrogram(
    axes: Axes, picture: Picture, values: Array, *, limits: tuple[float, float], **style: object
) -> AxesImage:
    axes.set_facecolor(MISSING)
    low, high = edges(picture.frequencies_hz / 1000)
    return axes.imshow(
        values,
        origin="lower",
        aspect="auto",
        extent=(*edges(picture.seconds), low, high),
        interpolation="nearest",
        vmin=limits[0],
        vmax=limits[1],
        **style,  # type: ignore[arg-type]
    )


def draw_ild(axes: Axes, picture: Picture) -> AxesImage:
    """The level difference between the ears, as it was heard; grey where nothing was."""
    limits = -ILD_LIMIT_DB, ILD_LIMIT_DB
    image = _spectrogram(axes, picture, picture.ild_db, limits=limits, cmap=DIFFERENCE_MAP)
    styled(axes, "Level difference", "seconds", "kHz")
    return image


def draw_mask(axes: Axes, picture: Picture, mask: Array, *, m: int, title: str) -> AxesImage:
    """A mask (F', T') in the colour of source m: found, or true; grey where it is NaN."""
    image = _spectrogram(axes, picture, mask, limits=(0.0, 1.0), cmap=tints(colour_of(m)))
    styled(axes, plain(title), "seconds", "kHz")
    return image


def draw_free_energy(axes: Axes, free_energies: Sequence[float]) -> None:
    """The free energy's course over the iterations."""
    steps = np.arange(1, len(free_energies) + 1)
    axes.plot(steps, free_energies, ".-", color=COLOURS[0], linewidth=1.2, ms=4)
    axes.locator_params(axis="x", integer=True, nbins=8)
    axes.ticklabel_format(axis="y", useOffset=False)
    styled(gridded(axes), "Free energy", "iteration", "nats")


def plot_scene(scene: FoundScene, *, truth: Truth | None = None, title: str = "") -> Figure:
    """Figure 7 of the paper: level differences, directions, assignments, and the truth beside them.

    The first row is the scene: level differences, all directions, free energy. Then a row a source:
    log-density of its direction, the probabilities that each bin is its own, and its true mask. The
    last row is over time: azimuth, elevation and level of each source.
    """
    M = len(scene.sources)
    over_time = bool(M) and scene.sources[0].posterior.space.holds_directions
    rows = M + 1 + over_time
    figure = figure_of(12.5, 2.6 * rows + 0.3)
    grid = figure.add_gridspec(rows, 3)
    matched = None if truth is None else Matched.of(scene, truth)
    _draw_all(figure, grid, scene, None if truth is None else truth.directions)
    for m in range(M):
        _draw_source(figure, grid, scene, m, matched)
    if over_time:
        _draw_over_time(figure, grid, scene)
    return headed(figure, title)


def _draw_all(figure: Figure, grid: GridSpec, scene: FoundScene, directions: Array | None) -> None:
    """The first row: what was heard, where everything is, and the inference."""
    axes = figure.add_subplot(grid[0, 0])
    colour_bar(draw_ild(axes, scene.picture), axes, "dB, right over left")
    if scene.sources:
        posteriors = [source.posterior for source in scene.sources]
        draw_beliefs(figure.add_subplot(grid[0, 1]), posteriors, directions=directions)
    if scene.free_energies:
        draw_free_energy(figure.add_subplot(grid[0, 2]), scene.free_energies)


def _draw_source(
    figure: Figure, grid: GridSpec, scene: FoundScene, m: int, matched: Matched | None
) -> None:
    """The row of source m: where it is, what was assigned to it, and what is truly its own."""
    source, picture = scene.sources[m], scene.picture
    direction = None if matched is None else matched.direction_of(m)
    axes = figure.add_subplot(grid[m + 1, 0])
    words = f"{source.name}: {place_words(source.posterior.space, source.direction)}"
    image = draw_belief(axes, source.posterior, m=m, title=words, truth=direction)
    axes.legend(loc="lower right", fontsize=7, framealpha=0.9)
    if image is not None:
        colour_bar(image, axes, "log density")
    room = matched is not None and matched.masks is not None  # for a true mask
    axes = figure.add_subplot(grid[m + 1, 1] if room else grid[m + 1, 1:])
    image = draw_mask(axes, picture, picture.masks[m], m=m, title="Assignment")
    true = None if matched is None else matched.mask_of(m)
    if true is not None:
        name, mask = true
        axes = figure.add_subplot(grid[m + 1, 2])
        image = draw_mask(axes, picture, mask, m=m, title=f"True: {name}")
    colour_bar(image, axes, "probability")


def _draw_over_time(figure: Figure, grid: GridSpec, scene: FoundScene) -> None:
    """The last row: where each source was when, and how loud; no elevation on a circle."""
    tracks = [source.track for source in scene.sources]
    tall = scene.sources[0].posterior.space.dims > 1
    where = grid[-1, 0] if tall else grid[-1, :2]
    draw_ways(figure.add_subplot(where), tracks, elevation=tall)
    if tall:
        draw_ways(figure.add_subplot(grid[-1, 1]), tracks, 1)
    draw_levels(figure.add_subplot(grid[-1, 2]), tracks)
