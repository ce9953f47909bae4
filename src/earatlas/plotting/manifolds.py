"""Figures of binaural manifolds: one line per elevation, as in figure 3 of the paper."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.art3d import Line3DCollection  # type: ignore[import-untyped]
from mpl_toolkits.mplot3d.axes3d import Axes3D  # type: ignore[import-untyped]

from earatlas.manifold.viewer import Embedding
from earatlas.plotting.palette import ELEVATION_MAP, GREY, INK
from earatlas.plotting.style import axes_figure, degree_labels, escape_mathtext, new_figure
from earatlas.types import Array

__all__ = ["plot_manifolds"]


def plot_manifolds(
    embeddings: Sequence[Embedding],
    directions: Array,
    spacing_degrees: float,
    *,
    title: str = "",
    ax: Sequence[Axes3D] | None = None,
) -> Figure:
    """Plot three-dimensional embeddings of cues, one panel per cue and method.

    Columns are cues, rows are methods, colours are elevations. Points far from all others lie
    outside the frame: they are not drawn, and the caption of the panel counts them.

    Parameters
    ----------
    embeddings : sequence of Embedding
        Embeddings of the same directions, from `earatlas.manifold.viewer`.
    directions : ndarray of shape (N, 2)
        Azimuth and elevation of each direction in degrees.
    spacing_degrees : float
        Typical angle between neighbouring directions in degrees: neighbours of one elevation are
        joined by a line.
    title : str, default: ""
        Title of the figure.
    ax : sequence of Axes3D, optional
        Axes with projection "3d" to draw on, one per embedding, without a colour bar. By default a
        new figure is made.

    Returns
    -------
    matplotlib.figure.Figure
        The figure; `earatlas.plotting.style.save` writes it.

    References
    ----------
    .. [1] A. Deleforge, F. Forbes, R. Horaud, "Acoustic space learning for sound-source separation
       and localization on binaural manifolds", International Journal of Neural Systems 25(1),
       2015.
    """
    low, high = float(directions[:, 1].min()), float(directions[:, 1].max())
    colours = ScalarMappable(Normalize(low, max(high, low + 1.0)), _elevation_colormap())
    if ax is not None:
        for axes, e in zip(ax, embeddings, strict=True):
            _draw(axes, e, directions, spacing_degrees, colours)
        return axes_figure(ax[0])
    cues = list(dict.fromkeys(e.cue for e in embeddings))
    methods = list(dict.fromkeys(e.method for e in embeddings))
    figure = new_figure(3.5 * len(cues) + 0.8, 4.0 * len(methods) + 0.5)
    for e in embeddings:
        position = methods.index(e.method) * len(cues) + cues.index(e.cue) + 1
        axes = figure.add_subplot(len(methods), len(cues), position, projection="3d")
        _draw(axes, e, directions, spacing_degrees, colours)
    bar = figure.colorbar(colours, ax=figure.axes, shrink=0.5, aspect=30, pad=0.01)
    bar.set_label("elevation (one line per elevation)", fontsize=8, color=INK)
    degree_labels(bar.ax.yaxis)
    bar.ax.tick_params(labelsize=7)
    inch = 1 / figure.get_figheight()
    margin = 0.85 if title else 0.4  # inches above the panels: the layout ignores 3-D titles
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - margin * inch))  # type: ignore[union-attr, call-arg]
    figure.text(0.01, 1 - 0.1 * inch, title, fontsize=13, color=INK, va="top", parse_math=False)
    return figure


def _elevation_colormap() -> ListedColormap:
    """Return the colours of elevations without the ends of the map, which are almost black."""
    shades = matplotlib.colormaps[ELEVATION_MAP](0.03 + 0.94 * np.linspace(0, 1, 256))
    return ListedColormap(shades)


def _draw(
    axes: Axes3D, e: Embedding, directions: Array, spacing_degrees: float, colours: ScalarMappable
) -> None:
    """Draw one embedding, seen from slightly above."""
    points, elevations = e.centred, directions[e.direction_indices, 1]
    lines = e.lines(directions, spacing_degrees)
    axes.add_collection3d(
        Line3DCollection(
            [points[line] for line in lines],
            colors=[colours.to_rgba(elevations[line].mean()) for line in lines],
            linewidths=0.7,
            alpha=0.75,
        )
    )
    limits = (-0.56, 0.56)  # with matplotlib's 3-D margins, the unit ball fits
    axes.set(xlim=limits, ylim=limits, zlim=limits)
    axes.set_box_aspect((1, 1, 1), zoom=0.92)  # no line reaches the caption
    axes.view_init(elev=22, azim=-58)
    axes.set_axis_off()
    name = escape_mathtext(f"{e.cue}, {e.method}")
    axes.set_title(name, fontsize=11, color=INK, fontweight="bold", pad=30)
    axes.text2D(
        0.5, 1.1, e.caption, transform=axes.transAxes, ha="center", va="top", fontsize=8, color=GREY
    )
