"""Pictures of binaural manifolds: a matplotlib figure, and a page that turns in a browser.

In: a head's directions and embeddings of its cues. Out: `plot_manifolds`, a Figure for
`earatlas.plots.save`, and `manifold_page`, the text of one HTML file that needs nothing else, no
network and no library. As in the paper's figure 3, one line is one elevation in azimuth order.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.art3d import Line3DCollection  # type: ignore[import-untyped]
from numpy.typing import NDArray

from earatlas.manifold import Faithfulness
from earatlas.plots import GREY, INK

__all__ = ["Embedding", "manifold_page", "plot_manifolds", "rings"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True, eq=False, slots=True)
class Embedding:
    """Coordinates of the cues at some of a head's directions, and how faithful they are."""

    cue: str  # such as "low ILD"
    method: str  # such as "LTSA"
    places: Indices  # (M,) which directions
    coordinates: Array  # (M, 3)
    score: Faithfulness
    left_out: int  # how many directions have no place

    @property
    def verdict(self) -> str:
        """Homeomorphic if the scores say so and at least nine in ten directions have a place."""
        whole = len(self.places) >= 9 * self.left_out
        return "homeomorphic" if self.score.homeomorphic and whole else "distorted"

    @property
    def caption(self) -> str:
        """The scores in a line."""
        s = self.score
        return (
            f"{self.verdict}: trustworthiness {s.trustworthiness:.2f}, "
            f"continuity {s.continuity:.2f}"
        )

    @property
    def centred(self) -> Array:
        """(M, 3) the coordinates, moved and scaled into the unit ball."""
        low, high = np.quantile(self.coordinates, (0.01, 0.99), axis=0)
        t = self.coordinates - 0.5 * (low + high)
        # The few farthest points may leave the ball: they must not shrink all the others.
        unit: Array = t / max(float(np.quantile(np.linalg.norm(t, axis=1), 0.99)), 1e-300)
        return unit


def rings(directions: Array, spacing_degrees: float) -> list[Indices]:
    """Lines of one elevation in azimuth order: indices into the directions.

    A grid of elevations gives its own; others are cut into bands as wide as their spacing. Lines
    end where the next direction is more than four spacings away, and close behind the head.
    """
    azimuth, elevation = directions.T
    levels = np.unique(np.round(elevation, 3))
    band = np.searchsorted(levels, np.round(elevation, 3))
    if len(levels) > len(directions) / 8:
        band = np.round(elevation / max(spacing_degrees, 0.1)).astype(np.intp)
    lines: list[Indices] = []
    for level in np.unique(band):
        ring = np.flatnonzero(band == level)
        ring = ring[np.argsort(azimuth[ring], kind="stable")]
        if len(ring) < 3:
            continue
        ring = np.append(ring, ring[0])
        arc = np.diff(azimuth[ring]) % 360 * np.cos(np.radians(elevation[ring[:-1]]))
        ends = np.flatnonzero(arc > 4 * spacing_degrees) + 1
        parts = np.split(ring, ends)
        lines.extend(part for part in parts if len(part) > 1)
    return lines


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


def manifold_page(
    embeddings: Sequence[Embedding], directions: Array, spacing_degrees: float, *, title: str = ""
) -> str:
    """The HTML page: drag to turn, wheel or pinch to zoom, hover for the direction."""
    panels: dict[str, dict[str, object]] = {}
    for e in embeddings:
        lines = rings(directions[e.places], spacing_degrees)
        panels.setdefault(e.cue, {})[e.method] = {
            "score": e.caption,
            "places": e.places.tolist(),
            "points": np.rint(1000 * e.centred).astype(int).tolist(),
            "lines": [line.tolist() for line in lines],
        }
    data = {
        "methods": list(dict.fromkeys(e.method for e in embeddings)),
        "directions": np.round(directions, 1).tolist(),
        "panels": [{"name": cue, "views": views} for cue, views in panels.items()],
    }
    page = files("earatlas").joinpath("manifold_viewer.html").read_text(encoding="utf-8")
    # A "</script>" in a name would end the script.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return page.replace("__TITLE__", html.escape(title)).replace("__DATA__", text)
