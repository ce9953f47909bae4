"""Figure 2: standard and symmetric neighbourhoods at a border (k = 4) and an outlier (k = 2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.experiments.bench import Bench
from earatlas.experiments.rows import Experiment, Row
from earatlas.experiments.tables import fill_template, group_by_head
from earatlas.manifold.ltsa import neighbour_graph
from earatlas.types import Array

__all__ = ["EXPERIMENT"]


ABOUT = """\
The paper shows the same four cases."""
FINDINGS = """\
Standard neighbourhoods all have the same size, so that those at the border extend too far
inwards or along it, and the outlier has two neighbours. Symmetric neighbourhoods lack these
edges, which isolates the outlier: `manifold.ltsa` leaves such points out and reports their
number."""


_PANEL = ("symmetric", "points", "neighbours")
# Panels: symmetric neighbourhoods or not, kind of points, number of neighbours.
PANELS = [(kind, *case) for kind in (False, True) for case in (("grid", 4), ("outlier", 2))]


def plan(bench: Bench) -> list[dict[str, Any]]:
    """Return one row per panel."""
    return [
        {"points": points, "neighbours": k, "symmetric": symmetric, "seed": 3}
        for symmetric, points, k in PANELS
    ]


def _points(name: str, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if name == "grid":  # slightly irregular, to avoid ties between neighbours
        x, y = np.meshgrid(np.arange(7.0), np.arange(5.0))
        return np.stack([x.ravel(), y.ravel()], axis=1) + rng.normal(scale=0.06, size=(35, 2))
    along = np.linspace(0.0, 6.0, 12)
    curve = np.stack([along, 0.9 * np.sin(1.1 * along) + 1.5], axis=1)
    return np.vstack([curve + rng.normal(scale=0.05, size=curve.shape), [[2.6, 4.2]]])


def measure(bench: Bench, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the points and the edges between them."""
    points = _points(settings["points"], settings["seed"])
    graph = neighbour_graph(points, settings["neighbours"], symmetric=settings["symmetric"])
    edges = np.argwhere(graph.toarray() > 0)
    return {"points": np.round(points, 3).tolist(), "edges": edges.tolist()}


def section(rows: Sequence[Row], folder: Path) -> str:
    """Return four panels: (a, b) standard, (c, d) symmetric."""
    from earatlas.experiments.figure_parts import COLOURS, INK, new_figure, save_picture, style_axes

    figure = new_figure(11.0, 2.7)
    sizes_text = []
    ordered = (row for head_rows in group_by_head(rows).values() for row in head_rows)
    row_of_panel = {tuple(row["settings"][name] for name in _PANEL): row for row in ordered}
    for panel, case in enumerate(PANELS):
        row = row_of_panel.get(case)
        if row is None:
            continue
        s, points = row["settings"], np.array(row["result"]["points"])
        edges = row["result"]["edges"]
        axes = figure.add_subplot(1, 4, panel + 1)
        both = {(a, b) for a, b in edges}
        for a, b in edges:
            one_way = (b, a) not in both
            axes.plot(*points[[a, b]].T, "--" if one_way else "-", linewidth=1.1,
                      color=COLOURS[1 if one_way else 0], zorder=1)  # fmt: skip
        axes.plot(*points.T, "o", ms=4, color=INK, zorder=2)
        isolated = np.setdiff1d(np.arange(len(points)), np.ravel(edges))
        axes.plot(*points[isolated].T, "o", ms=9, mfc="none", color=COLOURS[1], zorder=3)
        kind = "symmetric" if s["symmetric"] else "standard"
        style_axes(axes, f"({'abcd'[panel]}) {kind}, k = {s['neighbours']}")
        axes.set(xticks=[], yticks=[], aspect="equal")
        sizes = np.bincount([a for a, _ in edges], minlength=len(points))
        sizes_text.append(f"({'abcd'[panel]}) {sizes.min()} to {sizes.max()}")
    markdown = save_picture(figure, folder, "figure2", "Neighbourhoods, standard and symmetric")
    return (
        f"{markdown}\n\nDashed edges are one-way: only one of the two points counts the other "
        f"as a neighbour; a ring is a point without neighbours. Sizes of the neighbourhoods: "
        f"{', '.join(sizes_text)}."
    )


def findings(rows: Sequence[Row]) -> str:
    """Return the findings."""
    return fill_template(FINDINGS)


EXPERIMENT = Experiment(
    name="figure2",
    title="Figure 2: standard and symmetric neighbours",
    plan=plan,
    measure=measure,
    section=section,
    description=ABOUT,
    findings=findings,
    findings_on=("toy",),
    head=False,
)
