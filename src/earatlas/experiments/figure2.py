"""Figure 2: standard and symmetric neighbours, at a border (k = 4), with an outlier (k = 2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.experiments.bench import Bench
from earatlas.experiments.rows import Experiment, Row
from earatlas.experiments.tables import by_head, told
from earatlas.manifold.ltsa import neighbour_graph
from earatlas.types import Array

__all__ = ["EXPERIMENT"]


ABOUT = """\
The paper shows the same four cases."""
FINDINGS = """\
Standard neighbourhoods have one size, so those at the border
reach too far in or along it and the outlier pulls two points to itself. Symmetric ones lose these
edges, and the outlier with them: `manifold.ltsa` leaves such points out and says how many."""


_PANEL = ("symmetric", "points", "neighbours")
PANELS = [(kind, *case) for kind in (False, True) for case in (("grid", 4), ("outlier", 2))]


def plan(bench: Bench) -> list[dict[str, Any]]:
    """A row a panel."""
    return [
        {"points": points, "neighbours": k, "symmetric": symmetric, "seed": 3}
        for symmetric, points, k in PANELS
    ]


def _points(name: str, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if name == "grid":  # a little uneven, or a border's neighbours would tie
        x, y = np.meshgrid(np.arange(7.0), np.arange(5.0))
        return np.stack([x.ravel(), y.ravel()], axis=1) + rng.normal(scale=0.06, size=(35, 2))
    along = np.linspace(0.0, 6.0, 12)
    curve = np.stack([along, 0.9 * np.sin(1.1 * along) + 1.5], axis=1)
    return np.vstack([curve + rng.normal(scale=0.05, size=curve.shape), [[2.6, 4.2]]])


def measure(bench: Bench, settings: dict[str, Any]) -> dict[str, Any]:
    """Points and the edges between them."""
    points = _points(settings["points"], settings["seed"])
    graph = neighbour_graph(points, settings["neighbours"], symmetric=settings["symmetric"])
    edges = np.argwhere(graph.toarray() > 0)
    return {"points": np.round(points, 3).tolist(), "edges": edges.tolist()}


def section(rows: Sequence[Row], folder: Path) -> str:
    """Four panels: (a, b) standard, (c, d) symmetric."""
    from earatlas.experiments.figure_parts import COLOURS, INK, figure_of, picture, styled

    figure = figure_of(11.0, 2.7)
    words = []
    ordered = (row for own in by_head(rows).values() for row in own)
    found = {tuple(row["settings"][name] for name in _PANEL): row for row in ordered}
    for panel, case in enumerate(PANELS):
        row = found.get(case)
        if row is None:
            continue
        s, points = row["settings"], np.array(row["result"]["points"])
        edges = row["result"]["edges"]
        axes = figure.add_subplot(1, 4, panel + 1)
        both = {(a, b) for a, b in edges}
        for a, b in edges:
            one_way = (b, a) not in both
            axes.plot(*points[[a, b]].T, color=COLOURS[2 if one_way else 0], linewidth=1.1,
                      zorder=1)  # fmt: skip
        axes.plot(*points.T, "o", ms=4, color=INK, zorder=2)
        alone = np.setdiff1d(np.arange(len(points)), np.ravel(edges))
        axes.plot(*points[alone].T, "o", ms=9, mfc="none", color=COLOURS[2], zorder=3)
        kind = "symmetric" if s["symmetric"] else "standard"
        styled(axes, f"({'abcd'[panel]}) {kind}, k = {s['neighbours']}")
        axes.set(xticks=[], yticks=[], aspect="equal")
        sizes = np.bincount([a for a, _ in edges], minlength=len(points))
        words.append(f"({'abcd'[panel]}) {sizes.min()} to {sizes.max()}")
    shown = picture(figure, folder, "figure2", "Neighbourhoods, standard and symmetric")
    return (
        f"{shown}\n\nRed edges are one-way: one point counts the other as a neighbour, but not the "
        f"other way round; a red ring is a point without neighbours. Sizes of the neighbourhoods: "
        f"{', '.join(words)}."
    )


def findings(rows: Sequence[Row]) -> str:
    """What came out, in words."""
    return told(FINDINGS)


EXPERIMENT = Experiment(
    name="figure2",
    title="Figure 2: standard and symmetric neighbours",
    plan=plan,
    measure=measure,
    section=section,
    about=ABOUT,
    findings=findings,
    findings_on=("toy",),
    head=False,
)
