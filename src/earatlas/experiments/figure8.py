"""Figure 8: error as a function of the number of components, for PPAM and MPLR."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from earatlas.experiments.bench import PAGE_HEADS, Bench, azimuth_elevation_errors
from earatlas.experiments.models import fit_method
from earatlas.experiments.rows import Experiment, Row
from earatlas.experiments.tables import (
    fill_template,
    format_interval,
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

METHODS = ("PPAM", "MPLR, plain", "PPAM, ours", "MPLR, reduced")
# Minimum directions per component: a full covariance needs more than a chart.
_MIN_DIRECTIONS_PER_COMPONENT = {"PPAM": 8, "PPAM, ours": 8, "MPLR, plain": 25, "MPLR, reduced": 25}
ABOUT = """\
The paper shows this figure without numbers and states that PPAM performs better than MPLR.
Ridges are fixed here. A method is left out if it has too few directions per component."""
FINDINGS = """\
Errors decrease with K, but at equal K the MPLR variants are more accurate than the PPAM variants
in {ahead} of {cases} means: each of their components has a full covariance, whereas PPAM has one
diagonal noise covariance for all. PPAM can have more components for the same data: on ku100 ours
is more accurate than all others, at any K, from K = {many} on. On the simulated head, which is
smooth and noiseless, MPLR is more accurate at equal K in {smooth} of {smooth_cases} means."""


def plan(bench: Bench) -> list[dict[str, Any]]:
    """Return one row per method, number of components and split."""
    train, _ = bench.train_test_split(0)
    sizes = (4, 16, 48) if bench.quick else (2, 4, 8, 16, 32, 64, 128, 256)
    return [
        {"method": method, "components": K, "seed": seed}
        for seed in range(bench.repeats(3 if bench.is_camil_grid else 10))
        for K in sizes
        for method in METHODS
        if len(train) >= K * _MIN_DIRECTIONS_PER_COMPONENT[method]
        and not (bench.quick and method == "MPLR, plain")
    ]


def measure(bench: Bench, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the errors over all test directions of a split."""
    train, test = bench.train_test_split(settings["seed"])
    x, y = bench.planar_head.directions, bench.cues()
    K, seed = settings["components"], settings["seed"]
    model = fit_method(settings["method"], x[train], y[train], K, seed=seed)
    azimuth, elevation = azimuth_elevation_errors(x[test], model.inverse_map(y[test]))
    return {"azimuth": summarize_errors(azimuth), "elevation": summarize_errors(elevation)}


def section(rows: Sequence[Row], folder: Path) -> str:
    """Return azimuth and elevation error as functions of K, and the numbers."""
    from earatlas.experiments.figure_parts import (
        COLOURS,
        MARKERS,
        MISSING,
        new_figure,
        save_picture,
        style_axes,
    )

    parts = []
    for head, head_rows in group_by_head(rows).items():
        sizes = sorted({row["settings"]["components"] for row in head_rows})
        figure = new_figure(9.6, 3.6)
        methods = [m for m in METHODS if select_rows(head_rows, method=m)]
        lines = [[m] for m in methods]
        for panel, what in enumerate(("azimuth", "elevation"), start=1):
            axes = figure.add_subplot(1, 2, panel)
            for n, method in enumerate(methods):
                pooled = {
                    K: pool(r["result"][what] for r in selected)
                    for K in sizes
                    if (selected := select_rows(head_rows, method=method, components=K))
                }
                means = {K: part["mean"] for K, part in pooled.items()}
                number = METHODS.index(method)
                axes.loglog(list(means), list(means.values()), marker=MARKERS[number], ms=5,
                            linewidth=1.4, color=COLOURS[number], label=method)  # fmt: skip
                for K, part in pooled.items():  # no interval with fewer than three splits
                    if "low" in part:
                        axes.vlines(K, part["low"], part["high"], color=COLOURS[number])
                for i, K in enumerate(sizes):
                    cell = f"{means[K]:.1f}{format_interval(pooled[K])}" if K in means else ""
                    if panel == 1:
                        lines[n].append(cell)
                    else:
                        lines[n][i + 1] += f" / {cell}" if cell else ""
            style_axes(axes, f"Mean {what} error", "components K")
            axes.set_xticks(sizes, [str(K) for K in sizes])
            axes.minorticks_off()
            ticks = [t for t in (0.2, 0.5, 1, 2, 5, 10, 20, 50) if _is_within(t, axes.get_ylim())]
            axes.set_yticks(ticks, [f"{t:g}°" for t in ticks])
            axes.grid(color=MISSING, linewidth=0.5)
            axes.legend(fontsize=8, frameon=False)
        splits = pluralize(len({row["settings"]["seed"] for row in head_rows}), "random split")
        markdown = save_picture(figure, folder, f"figure8_{head}", f"{head}: error against K")
        header = ["azimuth / elevation °", *(f"K = {K}" for K in sizes)]
        parts.append(f"**{head}**, {splits}, ILPD.\n\n"
                     f"{markdown}\n\n{markdown_table(header, lines)}")  # fmt: skip
    return "\n\n".join(parts)


def findings(rows: Sequence[Row]) -> str:
    """Return the findings with the numbers of the rows."""
    by_head = {head: _mplr_ahead(rows_of_heads(rows, head)) for head in PAGE_HEADS}
    ahead = [better for head in PAGE_HEADS for better in by_head[head]]
    return fill_template(
        FINDINGS,
        ahead=sum(ahead),
        cases=len(ahead),
        many=_smallest_leading_k(rows, "ku100"),
        smooth=sum(by_head["simulated"]),
        smooth_cases=len(by_head["simulated"]),
    )


def _mplr_ahead(head_rows: Sequence[Row]) -> list[bool]:
    """Return whether MPLR is more accurate than PPAM, by variant, K and angle."""
    return [
        mplr < ppam
        for pair in (("MPLR, plain", "PPAM"), ("MPLR, reduced", "PPAM, ours"))
        for K in sorted(
            {r["settings"]["components"] for r in select_rows(head_rows, method=pair[0])}
        )
        for mplr, ppam in zip(
            *(mean_errors(head_rows, method=method, components=K) for method in pair), strict=True
        )
    ]


def _smallest_leading_k(rows: Sequence[Row], head: str) -> int | None:
    """Return the smallest K of ours with errors below the best of all others, or None."""
    head_rows = rows_of_heads(rows, head)
    errors_by_method = {
        (r["settings"]["method"], K := r["settings"]["components"]): mean_errors(
            head_rows, method=r["settings"]["method"], components=K
        )
        for r in head_rows
    }
    others = [errors for (method, _), errors in errors_by_method.items() if method != "PPAM, ours"]
    best = [min(errors) for errors in zip(*others, strict=True)]
    sizes = sorted(K for method, K in errors_by_method if method == "PPAM, ours")
    below = [
        all(e < b for e, b in zip(errors_by_method["PPAM, ours", K], best, strict=True))
        for K in sizes
    ]
    return next((K for K, good in zip(sizes, below, strict=True) if good), None)


def _is_within(tick: float, limits: tuple[float, float]) -> bool:
    return limits[0] <= tick <= limits[1]


EXPERIMENT = Experiment(
    name="figure8",
    title="Figure 8: error against the number of components",
    plan=plan,
    measure=measure,
    section=section,
    description=ABOUT,
    findings=findings,
    findings_on=PAGE_HEADS,
    revision=2,
)
