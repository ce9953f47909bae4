"""Figure 3: manifolds of four kinds of cues, embedded by LTSA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.experiments.bench import PAGE_HEADS, Bench
from earatlas.experiments.rows import Experiment, Row
from earatlas.experiments.tables import (
    fill_template,
    group_by_head,
    markdown_table,
    rows_of_heads,
    select_rows,
)
from earatlas.features.layout import CueLayout
from earatlas.manifold.faithfulness import Faithfulness, faithfulness
from earatlas.manifold.ltsa import ltsa

__all__ = ["CUES", "EXPERIMENT"]

CUES = {
    "low ILD": CueLayout.low_ild(),
    "low IPD": CueLayout.low_ipd(),
    "high ILD": CueLayout.high_ild(),
    "high IPD": CueLayout.high_ipd(),
}
PAPER = {cue: "distorted" if cue == "high IPD" else "homeomorphic" for cue in CUES}
METHODS = {"the paper's": "LTSA of the paper", "ours": "LTSA, ours"}  # in rows, and as shown
ABOUT = """\
"LTSA of the paper" uses the first three eigenvectors and 20 neighbours. "LTSA, ours" searches 10
neighbours in 20 whitened principal components (30 on the paper's grid) and selects the three of
twelve eigenvectors that preserve neighbourhoods best. `earatlas manifold` and `learn_unlabelled`
select from nine eigenvectors, with 20 and 30 components. "Homeomorphic" means trustworthiness
and continuity of at least 0.95 (0.5 is chance level) and at most a tenth of the directions left
out."""
FINDINGS = """\
In anechoic conditions nothing is homeomorphic with the paper's method; simulated high ILD comes
close ({near}). Cues change much more with the lateral angle than around the interaural axis, so
that an unscaled neighbourhood contains front and back at once. On the simulated head and the
paper's grid, ours confirms the paper: high IPD is distorted, and the other three are
homeomorphic. On ku100, low ILD and low IPD are homeomorphic; high ILD is not, because a spacing
of {spacing} is too coarse for it (docs/figures/manifold.md). On the CIPIC heads, with {few}
irregular directions, nothing is homeomorphic. For ku100 in a simulated reverberant room all four
are homeomorphic, including high IPD (docs/figures/manifold.md), where the paper's result does
not hold."""


def plan(bench: Bench) -> list[dict[str, Any]]:
    """Return one row per cue and method."""
    dense = bench.is_camil_grid and not bench.quick
    method_settings: dict[str, dict[str, Any]] = {
        "the paper's": {"neighbours": 20, "candidates": 3, "whiten": None},
        "ours": {"neighbours": 10, "candidates": 12, "whiten": 30 if dense else 20},
    }
    return [
        {"cue": cue, "method": m, **method_settings[m], "seed": 0} for m in METHODS for cue in CUES
    ]


def measure(bench: Bench, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the coordinates, and how faithful they are to the directions."""
    from earatlas.experiments.figure_parts import pack_array

    head = bench.full_head
    embedding = ltsa(
        bench.full_cues(CUES[settings["cue"]]),
        neighbours=settings["neighbours"],
        candidates=settings["candidates"],
        whiten=settings["whiten"],
    )
    x = head.directions[embedding.kept]
    score = faithfulness(bench.space, x, embedding.coordinates, seed=settings["seed"])
    levels = np.unique(np.round(x[:, 1], 3))
    drawn = np.arange(len(x))
    max_drawn = 3600  # points of the picture; the scores use all points
    if len(x) > max_drawn and len(levels) < len(x) / 8:  # a subset of the elevations of a grid
        some = levels[:: int(np.ceil(len(x) / max_drawn))]
        drawn = np.flatnonzero(np.isin(np.round(x[:, 1], 3), some))
    return {
        "score": asdict(score),
        "left_out": len(head) - len(x),
        "spacing_degrees": head.spacing_degrees,
        "directions": pack_array(x[drawn]),
        "coordinates": pack_array(embedding.coordinates[drawn]),
    }


def _verdict(row: Row) -> str:
    s, left_out = Faithfulness(**row["result"]["score"]), row["result"]["left_out"]
    nearly_all = left_out <= 0.1 * row["data"]["directions"]
    return "homeomorphic" if s.homeomorphic and nearly_all else "distorted"


def _sort_key(row: Row) -> tuple[int, int]:
    s = row["settings"]
    return list(METHODS).index(s["method"]), list(CUES).index(s["cue"])


def section(rows: Sequence[Row], folder: Path) -> str:
    """Return a picture and a table per data set."""
    from earatlas.experiments.figure_parts import save_picture, unpack_array
    from earatlas.manifold.viewer import Embedding
    from earatlas.plotting.manifolds import plot_manifolds

    parts = []
    for head, head_rows in group_by_head(rows).items():
        embeddings, directions, first, lines = [], [], 0, []
        for row in sorted(head_rows, key=_sort_key):
            s, r = row["settings"], row["result"]
            x = unpack_array(r["directions"])
            indices = np.arange(first, first + len(x))
            score = Faithfulness(**r["score"])
            left_out = 0 if r["left_out"] <= 0.1 * row["data"]["directions"] else 10 * len(x)
            embeddings.append(
                Embedding(
                    s["cue"],
                    METHODS[s["method"]],
                    indices,
                    unpack_array(r["coordinates"]),
                    score,
                    left_out,
                )
            )
            directions.append(x)
            first += len(x)
            lines.append(
                [s["cue"], METHODS[s["method"]], str(r["left_out"]), f"{score.trustworthiness:.2f}",
                 f"{score.continuity:.2f}", f"{100 * score.beyond_30_share:.0f} %",
                 PAPER[s["cue"]], _verdict(row)]
            )  # fmt: skip
        n = head_rows[0]["data"]["directions"]
        title = f"{head}: binaural manifolds of {n} directions"
        figure = plot_manifolds(
            embeddings, np.concatenate(directions), head_rows[0]["result"]["spacing_degrees"]
        )
        header = ["cue", "method", "left out", "trustworthiness", "continuity",
                  "nearest beyond 30°", "paper", "ours"]  # fmt: skip
        parts.append(
            f"**{head}**, {n} directions.\n\n"
            + save_picture(figure, folder, f"figure3_{head}", title)
            + "\n\n"
            + markdown_table(header, lines)
        )
    return "\n\n".join(parts)


def findings(rows: Sequence[Row]) -> str:
    """Return the findings with the numbers of the rows."""
    (near,) = select_rows(rows_of_heads(rows, "simulated"), cue="high ILD", method="the paper's")
    return fill_template(
        FINDINGS,
        near=f"{near['result']['score']['trustworthiness']:.2f}",
        spacing=f"{rows_of_heads(rows, 'ku100')[0]['result']['spacing_degrees']:.0f}°",
        few=rows_of_heads(rows, "cipic_021")[0]["data"]["directions"],
    )


EXPERIMENT = Experiment(
    name="figure3",
    title="Figure 3: binaural manifolds",
    plan=plan,
    measure=measure,
    section=section,
    description=ABOUT,
    findings=findings,
    findings_on=PAGE_HEADS,
    revision=2,  # LTSA uses the actual size of small neighbourhoods
)
