"""Figures of a separated scene: figure 7 of the paper, and each of its panels.

The inputs are a `SceneSummary` and, if known, the `GroundTruth`. `plot_scene` returns one Figure,
which `earatlas.plotting.style.save` writes; the `draw_...` functions draw single panels on given
axes.

    F', T'   frequencies and columns of the scene's `SpectrogramSummary`
    M        number of sources; source m has the same colour in all panels

Missing bins are grey. Azimuth runs from left to right as seen by the listener.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.image import AxesImage

from earatlas.errors import InputError, abbreviate
from earatlas.evaluation.ground_truth import GroundTruth, SourceMatching
from earatlas.plotting.palette import (
    COLOURS,
    DIFFERENCE_MAP,
    ILD_LIMIT_DB,
    MISSING,
    source_colour,
    source_numbers,
)
from earatlas.plotting.posterior_maps import cell_edges
from earatlas.plotting.posterior_panels import draw_posterior, draw_posteriors
from earatlas.plotting.style import (
    add_colour_bar,
    add_grid,
    add_title,
    axes_figure,
    escape_mathtext,
    new_figure,
    style_axes,
    tint_colormap,
)
from earatlas.plotting.tracks import draw_direction_tracks, draw_levels
from earatlas.separation.result import SceneSummary, SpectrogramSummary
from earatlas.types import Array
from earatlas.wording import format_position

__all__ = [
    "draw_direction_tracks",
    "draw_free_energy",
    "draw_ild",
    "draw_levels",
    "draw_mask",
    "draw_posterior",
    "draw_posteriors",
    "plot_scene",
]


def _draw_spectrogram(
    axes: Axes,
    spectrogram: SpectrogramSummary,
    values: Array,
    *,
    limits: tuple[float, float],
    **style: object,
) -> AxesImage:
    """Draw values (F', T') over time and frequency; grey where they are NaN."""
    axes.set_facecolor(MISSING)
    low, high = cell_edges(spectrogram.frequencies_hz / 1000)
    return axes.imshow(
        values,
        origin="lower",
        aspect="auto",
        extent=(*cell_edges(spectrogram.seconds), low, high),
        interpolation="nearest",
        vmin=limits[0],
        vmax=limits[1],
        **style,  # type: ignore[arg-type]
    )


def draw_ild(axes: Axes, spectrogram: SpectrogramSummary) -> AxesImage:
    """Draw the observed interaural level difference; grey where nothing was observed."""
    limits = -ILD_LIMIT_DB, ILD_LIMIT_DB
    image = _draw_spectrogram(
        axes, spectrogram, spectrogram.ild_db, limits=limits, cmap=DIFFERENCE_MAP
    )
    style_axes(axes, "Level difference", "seconds", "kHz")
    return image


def draw_mask(
    axes: Axes, spectrogram: SpectrogramSummary, mask: Array, *, m: int, title: str
) -> AxesImage:
    """Draw an estimated or true mask (F', T') in the colour of source m; grey where it is NaN."""
    cmap = tint_colormap(source_colour(m))
    image = _draw_spectrogram(axes, spectrogram, mask, limits=(0.0, 1.0), cmap=cmap)
    style_axes(axes, escape_mathtext(title), "seconds", "kHz")
    return image


def draw_free_energy(axes: Axes, free_energies: Sequence[float]) -> None:
    """Draw the free energy over the iterations."""
    steps = np.arange(1, len(free_energies) + 1)
    axes.plot(steps, free_energies, ".-", color=COLOURS[0], linewidth=1.2, ms=4)
    axes.locator_params(axis="x", integer=True, nbins=8)
    axes.ticklabel_format(axis="y", useOffset=False)
    style_axes(add_grid(axes), "Free energy", "iteration", "nats")


def plot_scene(
    scene: SceneSummary,
    *,
    truth: GroundTruth | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Plot a separated scene as in figure 7 of the paper.

    The first row shows the level difference, all directions and the free energy. Each source has a
    row with the log density of its direction, the probability that each bin belongs to it and, if
    the truth has images, its true mask. The last row shows azimuth, elevation and level over time.

    Parameters
    ----------
    scene : SceneSummary
        A separated scene, for example from `Atlas.separate`.
    truth : GroundTruth, optional
        True directions, true images, or both.
    title : str, default: ""
        Title of the figure.
    ax : matplotlib.axes.Axes, optional
        Axes on which only the directions of all sources are drawn. By default a new figure is made.

    Returns
    -------
    matplotlib.figure.Figure
        The figure; `earatlas.plotting.style.save` writes it.

    Raises
    ------
    InputError
        If `scene` is not a separated scene.

    References
    ----------
    .. [1] A. Deleforge, F. Forbes, R. Horaud, "Acoustic space learning for sound-source separation
       and localization on binaural manifolds", International Journal of Neural Systems 25(1),
       2015.

    Examples
    --------
    >>> import earatlas as ea
    >>> from earatlas.plotting.scenes import plot_scene
    >>> scene = ea.render_scene(
    ...     ea.simulated_head([[40, 10]]), [ea.synthetic_speech(0.4, seed=1)], [[40, 10]])
    >>> figure = plot_scene(ea.example_atlas().separate(scene.mixture, n_sources=1))
    >>> [axes.get_title(loc="left") for axes in figure.axes][:3]
    ['Level difference', '', 'Directions']
    """
    if not isinstance(scene, SceneSummary):
        raise InputError(
            f"scene must be a separated scene, got {abbreviate(repr(scene))}. Separate a recording "
            "with Atlas.separate; plot a localization with plot_posterior."
        )
    if ax is not None:
        if scene.sources:
            _draw_directions(ax, scene, None if truth is None else truth.directions)
        if title:
            style_axes(ax, escape_mathtext(title), ax.get_xlabel(), ax.get_ylabel())
        return axes_figure(ax)
    M = len(scene.sources)
    over_time = bool(M) and scene.sources[0].posterior.space.holds_directions
    rows = M + 1 + over_time
    figure = new_figure(12.5, 2.6 * rows + 0.3)
    grid = figure.add_gridspec(rows, 3)
    matched = None if truth is None else SourceMatching.of(scene, truth)
    _draw_overview(figure, grid, scene, None if truth is None else truth.directions)
    for m in range(M):
        _draw_source(figure, grid, scene, m, matched)
    if over_time:
        _draw_over_time(figure, grid, scene)
    return add_title(figure, title)


def _draw_overview(
    figure: Figure, grid: GridSpec, scene: SceneSummary, directions: Array | None
) -> None:
    """Draw the first row: level difference, directions of all sources, free energy."""
    axes = figure.add_subplot(grid[0, 0])
    add_colour_bar(draw_ild(axes, scene.spectrogram), axes, "dB, right over left")
    if scene.sources:
        _draw_directions(figure.add_subplot(grid[0, 1]), scene, directions)
    if scene.free_energies:
        draw_free_energy(figure.add_subplot(grid[0, 2]), scene.free_energies)


def _draw_directions(axes: Axes, scene: SceneSummary, directions: Array | None) -> None:
    """Draw the posteriors of all sources, and true directions (M, C) if known."""
    posteriors = [source.posterior for source in scene.sources]
    numbers = source_numbers(scene.sources)
    draw_posteriors(axes, posteriors, directions=directions, numbers=numbers)


def _draw_source(
    figure: Figure, grid: GridSpec, scene: SceneSummary, m: int, matched: SourceMatching | None
) -> None:
    """Draw the row of source m: its direction, its mask, and its true mask if known."""
    source, spectrogram = scene.sources[m], scene.spectrogram
    number = source_numbers(scene.sources)[m]
    direction = None if matched is None else matched.true_direction(m)
    axes = figure.add_subplot(grid[m + 1, 0])
    place = format_position(source.posterior.space, source.direction, source.radius_90)
    title = f"{source.name}: {place}"
    image = draw_posterior(axes, source.posterior, m=number, title=title, truth=direction)
    axes.legend(loc="lower right", fontsize=7, framealpha=0.9)
    if image is not None:
        add_colour_bar(image, axes, "log density")
    with_true_mask = matched is not None and matched.masks is not None
    axes = figure.add_subplot(grid[m + 1, 1] if with_true_mask else grid[m + 1, 1:])
    image = draw_mask(axes, spectrogram, spectrogram.masks[m], m=number, title="Mask")
    true = None if matched is None else matched.true_mask(m)
    if true is not None:
        name, mask = true
        axes = figure.add_subplot(grid[m + 1, 2])
        image = draw_mask(axes, spectrogram, mask, m=number, title=f"True mask: {name}")
    add_colour_bar(image, axes, "probability")


def _draw_over_time(figure: Figure, grid: GridSpec, scene: SceneSummary) -> None:
    """Draw the last row: azimuth, elevation (not on a circle) and level of each source."""
    has_elevation = scene.sources[0].posterior.space.dims > 1
    cells = grid[-1, 0] if has_elevation else grid[-1, :2]
    draw_direction_tracks(figure.add_subplot(cells), scene.sources)
    if has_elevation:
        draw_direction_tracks(figure.add_subplot(grid[-1, 1]), scene.sources, 1)
    draw_levels(figure.add_subplot(grid[-1, 2]), scene.sources)
