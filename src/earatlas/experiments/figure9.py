"""Figure 9: error against the sparsity of the training set."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

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
    shown,
    span,
    table,
    told,
    where,
)

__all__ = ["EXPERIMENT"]

METHODS = {"PPAM": "PPAM", "PPAM, K = N/10": "PPAM", "PPAM, ours, K = N/10": "PPAM, ours"}
_SAMPLES = 30  # a component, as in the paper
_DEGREES = (2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0)
_MANY_FROM_DEGREES = 4.0  # below it, one chart for ten directions takes minutes
_ASKED = 100
_HIGHEST_DEGREES = 20.0  # that is drawn
_DRAWN = ("mean", "lower_quartile", "upper_quartile")
ABOUT = """\
The paper prints no numbers but says that the mean error is always less than half the sparsity
δ: the dashed line. δ is the spacing that a random subset of that size would have if it were
even, as the paper counts it (9,600 directions at 2°, 1,530 at 5°, 384 at 10°). Directions that
are learned are never asked for. Three lines: the paper's PPAM with 30 directions a chart, as
there; the same with ten; and ours with ten. Thin bars are quartiles."""
FINDINGS = """\
- PPAM with {samples} directions a chart, as in the paper, stays below the line up to {paper:g}° on
  the simulated head. Sparser sets leave it {charts} charts and fewer for the whole plane, which is
  too few here; and on measured heads, which are less smooth, it is above the line in {above} of
  {cases} means.
- It is the number of charts that helps most: with one for ten directions the paper's PPAM has
  {more:.0f} % of the error, and ours, at the same K, {ours:.0f} % of that. Ours is below the line
  up to {simulated:g}° on the simulated head and {ku100:g}° on ku100; on the CIPIC heads it is
  about on it ({cipic} times)."""


def plan(bench: Bench) -> list[dict[str, Any]]:
    """A row a sparsity and subset."""
    coarse = bench.quick and bench.on_grid
    spacing = 6.0 if coarse else 2.0 if bench.on_grid else bench.plane.spacing_degrees
    degrees = (8.0, 12.0) if coarse else (5.0, 10.0) if bench.quick else _DEGREES
    return [
        {"method": method, "degrees": d, "seed": seed}
        for seed in range(bench.repeats(10))
        for d in degrees
        for method in METHODS
        if d > 1.12 * spacing  # at least a fifth is left to ask for
        and (method == "PPAM" or d >= _MANY_FROM_DEGREES)
    ]


def measure(bench: Bench, settings: dict[str, Any]) -> dict[str, Any]:
    """Errors at 100 random directions that were not learned."""
    known, asked = bench.decimated(settings["degrees"], settings["seed"])
    asked = asked[: min(_ASKED, len(asked))]  # in random order already
    x, y = bench.plane.directions, bench.cues()
    method, seed = settings["method"], settings["seed"]
    K = len(known) // 10 if method != "PPAM" else max(round(len(known) / _SAMPLES), 1)
    model = fit_method(METHODS[method], x[known], y[known], K, seed=seed)
    azimuth, elevation = errors_of(x[asked], model.inverse_map(y[asked]))
    return {
        "azimuth": error_summary(azimuth),
        "elevation": error_summary(elevation),
        "learned": len(known),
        "components": K,
    }


def section(rows: Sequence[Row], folder: Path) -> str:
    """Means and quartiles over δ, and half of δ."""
    from earatlas.experiments.figure_parts import COLOURS, GREY, MISSING, figure_of, picture, styled

    parts = []
    for head, own in by_head(rows).items():
        degrees = sorted({row["settings"]["degrees"] for row in own})
        figure, lines = figure_of(9.6, 3.6), []
        for panel, what in enumerate(("azimuth", "elevation"), start=1):
            axes, top = figure.add_subplot(1, 2, panel), 0.0
            for n, method in enumerate(METHODS):
                found = {
                    d: pooled(r["result"][what] for r in some)
                    for d in degrees
                    if (some := where(own, degrees=d, method=method))
                }
                if not found:
                    continue
                mean, low, high = np.array([[p[k] for k in _DRAWN] for p in found.values()]).T
                axes.plot(list(found), mean, "o-", ms=4, linewidth=1.4, color=COLOURS[n],
                          label=method)  # fmt: skip
                beside = np.array(list(found)) + 0.06 * (n - 1)
                axes.vlines(beside, low, np.minimum(high, _HIGHEST_DEGREES), linewidth=0.8,
                            color=COLOURS[n])  # fmt: skip
                top = max(top, float(mean.max()), float(high.max()))
                lines.append([f"{what} °, {method}", *(shown(found.get(d)) for d in degrees)])
            axes.plot(degrees, np.array(degrees) / 2, "--", color=GREY, label="δ / 2")
            styled(axes, f"{what.capitalize()} error", "sparsity δ, degrees", "degrees")
            axes.set_ylim(0, min(1.05 * top, _HIGHEST_DEGREES))
            axes.grid(color=MISSING, linewidth=0.5)
            axes.legend(fontsize=8, frameon=False, loc="upper left")
        for method in METHODS:
            results = {r["settings"]["degrees"]: r["result"] for r in where(own, method=method)}
            sizes = {d: f"{r['learned']}, {r['components']}" for d, r in results.items()}
            lines.append([f"learned, K, {method}", *(sizes.get(d, "") for d in degrees)])
        picture_ = picture(figure, folder, f"figure9_{head}", f"{head}: error against sparsity")
        sets = counted(len({row["settings"]["seed"] for row in own}), "random subset")
        header = ["", *(f"δ = {d:g}°" for d in degrees)]
        parts.append(f"**{head}**, {sets} a δ (paper: 10), {_ASKED} "
                     f"directions each.\n\n{picture_}\n\n{table(header, lines)}")  # fmt: skip
    return "\n\n".join(parts)


def _over_line(rows: Sequence[Row], method: str) -> dict[float, tuple[float, float]]:
    """Mean azimuth and elevation error over half of δ, by δ."""
    own = where(rows, method=method)
    found = {}
    for d in sorted({r["settings"]["degrees"] for r in own}):
        azimuth, elevation = means(own, degrees=d)
        found[d] = azimuth / (d / 2), elevation / (d / 2)
    return found


def _below_up_to(over: dict[float, tuple[float, float]]) -> float:
    """The last δ up to which both errors are below the line; 0 if none is."""
    good = takewhile(lambda d: max(over[d]) < 1, over)
    return max(good, default=0.0)


def _share(rows: Sequence[Row], method: str, of: str) -> float:
    """One method's error in % of another's, the geometric mean over heads, δ and angles."""
    logs = []
    for head in PAGE_HEADS:
        own = of_head(rows, head)
        ours, theirs = _over_line(own, method), _over_line(own, of)
        logs += [np.log(ours[d]) - np.log(theirs[d]) for d in ours]
    return 100 * float(np.exp(np.mean(logs)))


def findings(rows: Sequence[Row]) -> str:
    """What came out, in words and in the rows' figures."""
    paper, more, ours = METHODS
    over = {head: _over_line(of_head(rows, head), paper) for head in PAGE_HEADS}
    up_to = _below_up_to(over["simulated"])
    measured = [e for head in PAGE_HEADS[1:] for both in over[head].values() for e in both]
    sparser = [
        r["result"]["components"]
        for r in where(of_head(rows, "simulated"), method=paper)
        if r["settings"]["degrees"] > up_to
    ]
    best = {head: _over_line(of_head(rows, head), ours) for head in PAGE_HEADS}
    cipic = [e for h in PAGE_HEADS if "cipic" in h for both in best[h].values() for e in both]
    return told(
        FINDINGS,
        samples=_SAMPLES,
        paper=up_to,
        charts=max(sparser, default=0),
        above=sum(e > 1 for e in measured),
        cases=len(measured),
        more=_share(rows, more, paper),
        ours=_share(rows, ours, more),
        simulated=_below_up_to(best["simulated"]),
        ku100=_below_up_to(best["ku100"]),
        cipic=span(cipic, "{:.1f}"),
    )


EXPERIMENT = Experiment(
    name="figure9",
    title="Figure 9: error against the sparsity of the training set",
    plan=plan,
    measure=measure,
    section=section,
    about=ABOUT,
    findings=findings,
    findings_on=PAGE_HEADS,
    revision=2,
)
