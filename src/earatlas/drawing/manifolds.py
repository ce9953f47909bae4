"""Pictures of binaural manifolds: one line is one elevation, as in the paper's figure 3."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.art3d import Line3DCollection  # type: ignore[import-untyped]

from earatlas.drawing.style import GREY, INK
from earatlas.manifold.viewer import Embedding, rings
from earatlas.types import Array

__all__ = ["plot_manifolds"]


def _frame(values: Array) -> tuple[float, float]:
    return float(values.min()), max(float(values.max()), float(values.min()) + 1.0)


def plot_manifolds(
    embeddings: Sequence[Embedding], directions: Array, spacing_degrees: float, *, title: str = ""
) -> Figure:
    """All embeddings, a column a cue and a row a method; colours are elevations."""
    cues = list(dict.fromkeys(e.cue for e in embeddings))
    methods = list(dict.fromkeys(e.method for e in embeddings))
    figure = Figure(
        figsize=(3.5 * len(cues) + 0.8, 3.6 * len(methods) + 0.5),
        layout="constrained",
        facecolor="white",
    )
    low, high = _frame(directions[:, 1])
    colours = matplotlib.colormaps["turbo"]
    for e in embeddings:
        place = methods.index(e.method) * len(cues) + cues.index(e.cue) + 1
        axes = figure.add_subplot(len(methods), len(cues), place, projection="3d")
        t, x = e.centred, directions[e.places]
        lines = rings(x, spacing_degrees)
        shades = [colours(0.03 + 0.94 * (x[line, 1].mean() - low) / (high - low)) for line in lines]
        axes.add_collection3d(
            Line3DCollection([t[line] for line in lines], colors=shades, linewidths=0.7, alpha=0.75)
        )
        axes.set(xlim=(-0.8, 0.8), ylim=(-0.8, 0.8), zlim=(-0.8, 0.8), box_aspect=(1, 1, 1))
        axes.view_init(elev=22, azim=-58)
        axes.set_axis_off()
        axes.set_title(f"{e.cue}, {e.method}", fontsize=11, color=INK, fontweight="bold")
        axes.text2D(
            0.5, 1.0, e.caption, transform=axes.transAxes, ha="center", va="top", fontsize=8,
            color=GREY,
        )  # fmt: skip
    norm = matplotlib.colors.Normalize(low, high)
    bar = figure.colorbar(
        matplotlib.cm.ScalarMappable(norm, colours), ax=figure.axes, shrink=0.5, aspect=30, pad=0.01
    )
    bar.set_label("elevation in degrees; a line is one elevation", fontsize=8, color=INK)
    bar.ax.tick_params(labelsize=7)
    figure.get_layout_engine().set(rect=(0, 0, 1, 0.96))  # type: ignore[union-attr, call-arg]
    figure.text(0.01, 0.985, title, fontsize=13, color=INK, va="top", parse_math=False)
    return figure
