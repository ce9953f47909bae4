"""Pictures of binaural manifolds: one line is one elevation, as in the paper's figure 3."""

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
from earatlas.plotting.style import figure_of, plain
from earatlas.types import Array

__all__ = ["plot_manifolds"]

_LIMITS = (-0.56, 0.56)  # of each axis: matplotlib leaves so much room that the unit ball fits


def plot_manifolds(
    embeddings: Sequence[Embedding], directions: Array, spacing_degrees: float, *, title: str = ""
) -> Figure:
    """All embeddings, a column a cue and a row a method; colours are elevations.

    Points far from all others lie outside the frame: they are not drawn, but counted below a title.
    """
    cues = list(dict.fromkeys(e.cue for e in embeddings))
    methods = list(dict.fromkeys(e.method for e in embeddings))
    figure = figure_of(3.5 * len(cues) + 0.8, 4.0 * len(methods) + 0.5)
    low, high = float(directions[:, 1].min()), float(directions[:, 1].max())
    colours = ScalarMappable(Normalize(low, max(high, low + 1.0)), _elevations())
    for e in embeddings:
        place = methods.index(e.method) * len(cues) + cues.index(e.cue) + 1
        axes = figure.add_subplot(len(methods), len(cues), place, projection="3d")
        _draw(axes, e, directions, spacing_degrees, colours)
    bar = figure.colorbar(colours, ax=figure.axes, shrink=0.5, aspect=30, pad=0.01)
    bar.set_label("elevation in degrees; a line is one elevation", fontsize=8, color=INK)
    bar.ax.tick_params(labelsize=7)
    inch = 1 / figure.get_figheight()
    room = 0.85 if title else 0.4  # inches above the panels: the layout leaves none for 3D titles
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - room * inch))  # type: ignore[union-attr, call-arg]
    figure.text(0.01, 1 - 0.1 * inch, title, fontsize=13, color=INK, va="top", parse_math=False)
    return figure


def _elevations() -> ListedColormap:
    """The colours of elevations, without the ends, which are almost black."""
    shades = matplotlib.colormaps[ELEVATION_MAP](0.03 + 0.94 * np.linspace(0, 1, 256))
    return ListedColormap(shades)


def _draw(
    axes: Axes3D, e: Embedding, directions: Array, spacing_degrees: float, colours: ScalarMappable
) -> None:
    """One embedding, turned a little and seen from a little above."""
    points, elevations = e.centred, directions[e.places, 1]
    lines = e.lines(directions, spacing_degrees)
    axes.add_collection3d(
        Line3DCollection(
            [points[line] for line in lines],
            colors=[colours.to_rgba(elevations[line].mean()) for line in lines],
            linewidths=0.7,
            alpha=0.75,
        )
    )
    axes.set(xlim=_LIMITS, ylim=_LIMITS, zlim=_LIMITS, box_aspect=(1, 1, 1))
    axes.view_init(elev=22, azim=-58)
    axes.set_axis_off()
    name = plain(f"{e.cue}, {e.method}")
    axes.set_title(name, fontsize=11, color=INK, fontweight="bold", pad=30)
    axes.text2D(
        0.5, 1.1, e.caption, transform=axes.transAxes, ha="center", va="top", fontsize=8, color=GREY
    )
