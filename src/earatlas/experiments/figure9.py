"""Figure 9: error as a function of the sparsity of the training set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.experiments.bench import PAGE_HEADS, Bench, azimuth_elevation_errors
from earatlas.experiments.models import fit_method
from earatlas.experiments.rows import Experiment, Row
from earatlas.experiments.tables import (
    fill_template,
    format_mean_std,
    format_range,
    group_by_head,
    markdown_table,
    mean_errors,
    pluralize,
    pool,
    rows_of_heads,
    select_rows,
    summarize_errors,
)

__all__ = ["EXPERIMENT"]

METHODS = {"PPAM": "PPAM", "PPAM, K = N/10": "PPAM", "PPAM, ours, K = N/10": "PPAM, ours"}


# Evidence: docs/figures/settings/experiments.md, "figure9".
@dataclass(frozen=True, slots=True)
class Figure9Settings:
    """Training and test sets of Figure 9."""

    spacings_degrees: tuple[float, ...] = (2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0)  # δ
    directions_per_chart: int = 30  # as in the paper
    many_charts_from_degrees: float = 4.0  # below, one chart per ten directions takes minutes
    test_directions: int = 100  # per training set


_FIGURE = Figure9Settings()
_DRAWN = ("median", "lower_quartile", "upper_quartile")
ABOUT = """\
The paper prints no numbers but states that the mean error is always less than half the sparsity
δ, which is the dashed line. δ is the spacing that a random subset of that size would have on a
regular grid, as in the paper (9,600 directions at 2°, 1,530 at 5°, 384 at 10°). Test directions
are never training directions. The three lines are the paper's PPAM with 30 directions per chart,
as in the paper; the same with ten; and ours with ten. Thin bars are quartiles."""
FINDINGS = """\
- PPAM with {samples} directions per chart, as in the paper, stays below the line up to
  {paper:g}° on the simulated head. With sparser sets it has {charts} charts or fewer for the
  whole plane, which is too few here. On measured heads, which are less smooth, it is above the
  line in {above} of {cases} means.
- The number of charts has the largest effect: with one chart per ten directions the paper's PPAM
  has {more:.0f} % of the error, and ours, at the same K, {ours:.0f} % of that. Ours is below the
  line up to {simulated:g}° on the simulated head and {ku100:g}° on ku100; on the CIPIC heads it
  is close to the line ({cipic} times half the sparsity)."""


def plan(bench: Bench) -> list[dict[str, Any]]:
    """Return one row per method, sparsity and subset."""
    coarse = bench.quick and bench.is_camil_grid
    spacing = 6.0 if coarse else 2.0 if bench.is_camil_grid else bench.planar_head.spacing_degrees
    degrees = (8.0, 12.0) if coarse else (5.0, 10.0) if bench.quick else _FIGURE.spacings_degrees
    return [
        {"method": method, "degrees": d, "seed": seed}
        for seed in range(bench.repeats(10))
        for d in degrees
        for method in METHODS
        if d > 1.12 * spacing  # at least a fifth remains for testing
        and (method == "PPAM" or d >= _FIGURE.many_charts_from_degrees)
    ]


def measure(bench: Bench, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the errors at 100 random test directions."""
    train, test = bench.random_subset(settings["degrees"], settings["seed"])
    test = test[: min(_FIGURE.test_directions, len(test))]  # already in random order
    x, y = bench.planar_head.directions, bench.cues()
    method, seed = settings["method"], settings["seed"]
    charts = max(round(len(train) / _FIGURE.directions_per_chart), 1)
    K = charts if method == "PPAM" else len(train) // 10
    model = fit_method(METHODS[method], x[train], y[train], K, seed=seed)
    azimuth, elevation = azimuth_elevation_errors(x[test], model.inverse_map(y[test]))
    return {
        "azimuth": summarize_errors(azimuth),
        "elevation": summarize_errors(elevation),
        "learned": len(train),
        "components": K,
    }


def section(rows: Sequence[Row], folder: Path) -> str:
    """Return medians and quartiles as functions of δ, and the line δ / 2."""
    from earatlas.experiments.figure_parts import (
        COLOURS,
        GREY,
        MARKERS,
        MISSING,
        degree_labels,
        new_figure,
        save_picture,
        style_axes,
    )

    parts, highest = [], 20.0  # degrees, upper limit of the picture
    for head, head_rows in group_by_head(rows).items():
        degrees = sorted({row["settings"]["degrees"] for row in head_rows})
        figure, lines = new_figure(9.6, 3.6), []
        for panel, what in enumerate(("azimuth", "elevation"), start=1):
            axes, top = figure.add_subplot(1, 2, panel), 0.0
            for n, method in enumerate(METHODS):
                pooled = {
                    d: pool(r["result"][what] for r in selected)
                    for d in degrees
                    if (selected := select_rows(head_rows, degrees=d, method=method))
                }
                if not pooled:
                    continue
                median, low, high = np.array([[p[k] for k in _DRAWN] for p in pooled.values()]).T
                shifted = np.array(list(pooled)) + 0.08 * (n - 1)
                axes.plot(shifted, median, marker=MARKERS[n], ms=5, linewidth=1.4,
                          color=COLOURS[n], label=method)  # fmt: skip
                axes.vlines(shifted, low, np.minimum(high, highest), linewidth=0.8,
                            color=COLOURS[n])  # fmt: skip
                top = max(top, float(median.max()), float(high.max()))
                lines.append(
                    [f"{what} °, {method}", *(format_mean_std(pooled.get(d)) for d in degrees)]
                )
            axes.plot(degrees, np.array(degrees) / 2, "--", color=GREY, label="δ / 2")
            style_axes(axes, f"{what.capitalize()} error, median and quartiles", "sparsity δ")
            degree_labels(axes.xaxis, axes.yaxis)
            axes.set_ylim(0, min(1.05 * top, highest))
            axes.grid(color=MISSING, linewidth=0.5)
            axes.legend(fontsize=8, frameon=False, loc="upper left")
        for method in METHODS:
            results = {
                r["settings"]["degrees"]: r["result"] for r in select_rows(head_rows, method=method)
            }
            sizes = {d: f"{r['learned']}, {r['components']}" for d, r in results.items()}
            lines.append(
                [f"training directions, K: {method}", *(sizes.get(d, "") for d in degrees)]
            )
        markdown = save_picture(
            figure, folder, f"figure9_{head}", f"{head}: error against sparsity"
        )
        sets = pluralize(len({row["settings"]["seed"] for row in head_rows}), "random subset")
        header = ["", *(f"δ = {d:g}°" for d in degrees)]
        parts.append(f"**{head}**, {sets} per δ (paper: 10), {_FIGURE.test_directions} "
                     f"test directions each.\n\n{markdown}\n\n"
                     f"{markdown_table(header, lines)}")  # fmt: skip
    return "\n\n".join(parts)


def _relative_to_line(rows: Sequence[Row], method: str) -> dict[float, tuple[float, float]]:
    """Return mean azimuth and elevation error relative to δ / 2, by δ."""
    head_rows = select_rows(rows, method=method)
    relative = {}
    for d in sorted({r["settings"]["degrees"] for r in head_rows}):
        azimuth, elevation = mean_errors(head_rows, degrees=d)
        relative[d] = azimuth / (d / 2), elevation / (d / 2)
    return relative


def _below_up_to(over: dict[float, tuple[float, float]]) -> float:
    """Return the last δ up to which both errors are below the line, or 0."""
    good = takewhile(lambda d: max(over[d]) < 1, over)
    return max(good, default=0.0)


def _relative_error(rows: Sequence[Row], method: str, reference: str) -> float:
    """Return the error in % of a reference, the geometric mean over heads, δ and angles."""
    logs = []
    for head in PAGE_HEADS:
        head_rows = rows_of_heads(rows, head)
        relative, reference_errors = (
            _relative_to_line(head_rows, method),
            _relative_to_line(head_rows, reference),
        )
        logs += [np.log(relative[d]) - np.log(reference_errors[d]) for d in relative]
    return 100 * float(np.exp(np.mean(logs)))


def findings(rows: Sequence[Row]) -> str:
    """Return the findings with the numbers of the rows."""
    paper, more, ours = METHODS
    over = {head: _relative_to_line(rows_of_heads(rows, head), paper) for head in PAGE_HEADS}
    up_to = _below_up_to(over["simulated"])
    measured = [e for head in PAGE_HEADS[1:] for both in over[head].values() for e in both]
    sparser = [
        r["result"]["components"]
        for r in select_rows(rows_of_heads(rows, "simulated"), method=paper)
        if r["settings"]["degrees"] > up_to
    ]
    best = {head: _relative_to_line(rows_of_heads(rows, head), ours) for head in PAGE_HEADS}
    cipic = [e for h in PAGE_HEADS if "cipic" in h for both in best[h].values() for e in both]
    return fill_template(
        FINDINGS,
        samples=_FIGURE.directions_per_chart,
        paper=up_to,
        charts=max(sparser, default=0),
        above=sum(e > 1 for e in measured),
        cases=len(measured),
        more=_relative_error(rows, more, paper),
        ours=_relative_error(rows, ours, more),
        simulated=_below_up_to(best["simulated"]),
        ku100=_below_up_to(best["ku100"]),
        cipic=format_range(cipic, "{:.1f}"),
    )


EXPERIMENT = Experiment(
    name="figure9",
    title="Figure 9: error against the sparsity of the training set",
    plan=plan,
    measure=measure,
    section=section,
    description=ABOUT,
    findings=findings,
    findings_on=PAGE_HEADS,
    revision=2,
)
