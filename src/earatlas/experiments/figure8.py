"""Figure 8: error against the number of components, PPAM and MPLR."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from earatlas.experiments.bench import PAGE_HEADS, Bench, errors_of
from earatlas.experiments.models import fit_method
from earatlas.experiments.rows import Experiment, Row
from earatlas.experiments.tables import (
    by_head,
    counted,
    error_summary,
    means,
    of_head,
    pooled,
    table,
    told,
    where,
)

__all__ = ["EXPERIMENT"]

METHODS = ("PPAM", "MPLR, plain", "PPAM, ours", "MPLR, reduced")
# Directions a component at least: a chart wants a few, a Gaussian of 42 dimensions more than these.
_LEAST = {"PPAM": 8, "PPAM, ours": 8, "MPLR, plain": 25, "MPLR, reduced": 25}
ABOUT = """\
The paper draws this figure and prints no numbers; it says that PPAM performs better than MPLR.
Ridges are fixed here. Where a method has fewer directions a component than it needs, it is left
out."""
FINDINGS = """\
Errors fall as K grows, but at equal K the MPLRs are ahead of the PPAMs in {ahead} of {cases} means:
each of their components has its own full covariance, where PPAM has one diagonal noise for all.
PPAM can have more components for the same data: on ku100 ours is ahead of all others, whatever
their K, from K = {many} on. On the simulated head, smooth and without noise, MPLR is ahead as far
as it was run."""


def plan(bench: Bench) -> list[dict[str, Any]]:
    """A row a method, number of components and split."""
    known, _ = bench.halves(0)
    sizes = (4, 16, 48) if bench.quick else (2, 4, 8, 16, 32, 64, 128, 256)
    return [
        {"method": method, "components": K, "seed": seed}
        for seed in range(bench.repeats(10))
        for K in sizes
        for method in METHODS
        if len(known) >= K * _LEAST[method] and not (bench.quick and method == "MPLR, plain")
    ]


def measure(bench: Bench, settings: dict[str, Any]) -> dict[str, Any]:
    """Errors over all held-out directions of a split."""
    known, asked = bench.halves(settings["seed"])
    x, y = bench.plane.directions, bench.cues()
    K, seed = settings["components"], settings["seed"]
    model = fit_method(settings["method"], x[known], y[known], K, seed=seed)
    azimuth, elevation = errors_of(x[asked], model.inverse_map(y[asked]))
    return {"azimuth": error_summary(azimuth), "elevation": error_summary(elevation)}


def section(rows: Sequence[Row], folder: Path) -> str:
    """Azimuth and elevation error over K, and the numbers."""
    from earatlas.experiments.figure_parts import COLOURS, MISSING, figure_of, picture, styled

    parts = []
    for head, own in by_head(rows).items():
        sizes = sorted({row["settings"]["components"] for row in own})
        figure = figure_of(9.6, 3.6)
        methods = [m for m in METHODS if where(own, method=m)]
        lines = [[m] for m in methods]
        for panel, what in enumerate(("azimuth", "elevation"), start=1):
            axes = figure.add_subplot(1, 2, panel)
            for n, method in enumerate(methods):
                means = {
                    K: pooled(r["result"][what] for r in some)["mean"]
                    for K in sizes
                    if (some := where(own, method=method, components=K))
                }
                axes.loglog(list(means), list(means.values()), "o-", ms=4, linewidth=1.4,
                            color=COLOURS[METHODS.index(method)], label=method)  # fmt: skip
                for i, K in enumerate(sizes):
                    cell = f"{means[K]:.1f}" if K in means else ""
                    if panel == 1:
                        lines[n].append(cell)
                    else:
                        lines[n][i + 1] += f" / {cell}" if cell else ""
            styled(axes, f"Mean {what} error", "components K", "degrees")
            axes.set_xticks(sizes, [str(K) for K in sizes])
            axes.minorticks_off()
            ticks = [t for t in (0.2, 0.5, 1, 2, 5, 10, 20, 50) if _within(t, axes.get_ylim())]
            axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
            axes.grid(color=MISSING, linewidth=0.5)
            axes.legend(fontsize=8, frameon=False)
        splits = counted(len({row["settings"]["seed"] for row in own}), "random split")
        shown = picture(figure, folder, f"figure8_{head}", f"{head}: error against K")
        header = ["azimuth / elevation °", *(f"K = {K}" for K in sizes)]
        parts.append(f"**{head}**, {splits}, ILPD.\n\n"
                     f"{shown}\n\n{table(header, lines)}")  # fmt: skip
    return "\n\n".join(parts)


def findings(rows: Sequence[Row]) -> str:
    """What came out, in words and in the rows' figures."""
    ahead = [
        mplr < ppam
        for own in (of_head(rows, head) for head in PAGE_HEADS)
        for pair in (("MPLR, plain", "PPAM"), ("MPLR, reduced", "PPAM, ours"))
        for K in sorted({r["settings"]["components"] for r in where(own, method=pair[0])})
        for mplr, ppam in zip(
            *(means(own, method=method, components=K) for method in pair), strict=True
        )
    ]
    return told(FINDINGS, ahead=sum(ahead), cases=len(ahead), many=_ahead_from(rows, "ku100"))


def _ahead_from(rows: Sequence[Row], head: str) -> int | None:
    """The least K of ours whose errors are below the least of every other; None: no K is."""
    own = of_head(rows, head)
    found = {
        (r["settings"]["method"], K := r["settings"]["components"]): means(
            own, method=r["settings"]["method"], components=K
        )
        for r in own
    }
    others = [errors for (method, _), errors in found.items() if method != "PPAM, ours"]
    best = [min(errors) for errors in zip(*others, strict=True)]
    sizes = sorted(K for method, K in found if method == "PPAM, ours")
    below = [all(e < b for e, b in zip(found["PPAM, ours", K], best, strict=True)) for K in sizes]
    return next((K for K, good in zip(sizes, below, strict=True) if good), None)


def _within(tick: float, limits: tuple[float, float]) -> bool:
    return limits[0] <= tick <= limits[1]


EXPERIMENT = Experiment(
    name="figure8",
    title="Figure 8: error against the number of components",
    plan=plan,
    measure=measure,
    section=section,
    about=ABOUT,
    findings=findings,
    findings_on=PAGE_HEADS,
    revision=2,
)
