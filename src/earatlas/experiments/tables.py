"""From rows to text: statistics that can be pooled, Markdown tables, and selection of rows.

The inputs are values or rows. The outputs are summaries as JSON values, and Markdown. Findings are
templates without numbers; `fill_template` inserts the numbers of the rows.

    mean, std, n      of the values
    median            median, for direction errors
    beyond_30         share of the errors beyond 30 degrees
    points            up to 20 quantiles of the errors, from which pooled medians are computed
    low, high         95 % confidence interval of the mean, of pooled values
"""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from earatlas.experiments.rows import Row

__all__ = [
    "MIN_VALUES",
    "complete_splits",
    "fill_template",
    "format_interval",
    "format_mean_std",
    "format_medians",
    "format_range",
    "group_by_head",
    "head_labels",
    "markdown_table",
    "mean_errors",
    "merge_parts",
    "parse_mean",
    "pluralize",
    "pool",
    "rows_of_heads",
    "select_rows",
    "speech_label",
    "summarize",
    "summarize_errors",
]

MIN_VALUES = 3  # values of which statistics are printed


def summarize(values: ArrayLike) -> dict[str, float]:
    """Return mean, standard deviation and count of the values that are not NaN, as JSON values."""
    v = np.ravel(np.asarray(values, dtype=np.float64))
    v = v[~np.isnan(v)]
    if not len(v):
        return {"mean": 0.0, "std": 0.0, "n": 0}
    return {"mean": round(float(v.mean()), 4), "std": round(float(v.std()), 4), "n": len(v)}


def summarize_errors(degrees: ArrayLike) -> dict[str, Any]:
    """Return the summary of direction errors, with median and share beyond 30 degrees."""
    v = np.ravel(np.asarray(degrees, dtype=np.float64))
    v = np.sort(v[~np.isnan(v)])
    if not len(v):
        return summarize(v)
    points = v if len(v) <= 20 else np.quantile(v, (np.arange(20) + 0.5) / 20)
    return {
        **summarize(v),
        "median": round(float(np.median(v)), 4),
        "beyond_30": round(float((v > 30.0).mean()), 4),
        "points": np.round(points, 3).tolist(),
    }


def pool(parts: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Return the summary of all values of several summaries, with quartiles for errors.

    The parts are independent repetitions: mixtures, recordings or splits. Their means give the
    confidence interval, because the values of one mixture or split are not independent.
    """
    nonempty = [p for p in parts if p["n"]]
    if not nonempty:
        return summarize([])
    mean, std, n = np.array([(p["mean"], p["std"], p["n"]) for p in nonempty]).T
    total = n.sum()
    middle = float((n * mean).sum() / total)
    square = float((n * (std**2 + mean**2)).sum() / total)
    pooled = {"mean": middle, "std": max(square - middle**2, 0.0) ** 0.5, "n": int(total)}
    if len(n) >= MIN_VALUES:
        error = np.sqrt((n**2 * (mean - middle) ** 2).sum() * len(n) / (len(n) - 1)) / total
        half = float(stats.t.ppf(0.975, len(n) - 1) * error)
        pooled |= {"low": middle - half, "high": middle + half}
    if not all("points" in p for p in nonempty):
        return pooled
    points = np.concatenate([p["points"] for p in nonempty])
    weights = np.concatenate(
        [np.full(len(p["points"]), p["n"] / len(p["points"])) for p in nonempty]
    )
    order = np.argsort(points, kind="stable")
    reached = (np.cumsum(weights[order]) - 0.5 * weights[order]) / total
    low, median, high = np.interp((0.25, 0.5, 0.75), reached, points[order])
    beyond = float((n * [p["beyond_30"] for p in nonempty]).sum() / total)
    return pooled | {
        "median": float(median),
        "lower_quartile": float(low),
        "upper_quartile": float(high),
        "beyond_30": beyond,
    }


def format_mean_std(part: dict[str, float] | None) -> str:
    """Return mean±deviation with two digits, as in the paper, and the interval of the mean.

    Fewer than three values give "", and fewer than three repetitions no interval.
    """
    if part is None or part["n"] < MIN_VALUES:
        return ""
    return f"{_two_digits(part['mean'])}±{_two_digits(part['std'])}{format_interval(part)}"


def format_interval(part: dict[str, float]) -> str:
    """Return the confidence interval of the mean as " [low, high]", or "" without one."""
    if "low" not in part:
        return ""
    return f" [{_two_digits(part['low'])}, {_two_digits(part['high'])}]"


def format_medians(azimuth: dict[str, float], elevation: dict[str, float]) -> list[str]:
    """Return two cells, azimuth / elevation: medians, and shares beyond 30 degrees."""
    both = [p for p in (azimuth, elevation) if p["n"] >= MIN_VALUES and "median" in p]
    return [
        " / ".join(_two_digits(p["median"]) for p in both),
        " / ".join(f"{100 * p['beyond_30']:.0f} %" for p in both),
    ]


def _two_digits(v: float) -> str:
    return f"{v:.1f}" if abs(v) < 9.95 else f"{v:.0f}"


def pluralize(n: int, thing: str) -> str:
    """Return a count with its noun, such as "3 splits"."""
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"


def markdown_table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    rule = ["---"] * len(header)
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rule, *lines])


def group_by_head(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows of each data set by its label, simulated heads first, sorted by settings."""
    sets: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: json.dumps(row["settings"], sort_keys=True)):
        sets.setdefault(json.dumps(row["data"], sort_keys=True), []).append(row)
    names = head_labels(data_rows[0]["data"] for data_rows in sets.values())
    named = dict(zip(names, sets.values(), strict=True))
    return {name: named[name] for name in sorted(named, key=lambda n: (n[:9] != "simulated", n))}


def head_labels(data: Iterable[dict[str, Any]]) -> list[str]:
    """Return the names of the heads, extended by what distinguishes heads of the same name."""
    sets = list(data)
    names = [str(d["head"]) for d in sets]
    for what in ("speech", "files", "fingerprint"):
        values = {name: {d.get(what) for n, d in zip(names, sets, strict=True) if n == name}
                  for name in names}  # fmt: skip
        names = [
            f"{name}, {what if what != 'speech' else 'with'} {d[what]}"
            if len(values[name]) > 1 and what in d
            else name
            for name, d in zip(names, sets, strict=True)
        ]
    return names


def merge_parts(rows: Iterable[Row]) -> list[Row]:
    """Return one row per repetition, with the results of all of its parts."""
    merged: dict[str, Row] = {}
    for row in rows:
        settings = {k: v for k, v in row["settings"].items() if k != "part"}
        key = json.dumps([row["data"], settings], sort_keys=True)
        result = dict(merged[key]["result"]) if key in merged else {}
        for name, value in row["result"].items():
            together = isinstance(value, dict) and name in result
            result[name] = {**result[name], **value} if together else value
        merged[key] = {**row, "settings": settings, "result": result}
    return list(merged.values())


def complete_splits(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of the seeds with the most rows; an unfinished split is omitted."""
    counts = Counter(row["settings"]["seed"] for row in rows)
    most = max(counts.values(), default=0)
    return [row for row in rows if counts[row["settings"]["seed"]] == most]


def speech_label(row: Row) -> str:
    """Return the description of the talkers of a row."""
    speech = str(row["data"]["speech"])
    if "files" not in row["data"]:
        return speech  # built in
    kind = "recordings of the table" if speech.endswith(".csv") else "talkers of the folder"
    return f"{kind} `{speech}`"


def select_rows(rows: Iterable[Row], **settings: Any) -> list[Row]:
    """Return the rows with these settings."""
    return [r for r in rows if all(r["settings"].get(k) == v for k, v in settings.items())]


def rows_of_heads(rows: Iterable[Row], *names: str) -> list[Row]:
    """Return the rows of the heads with these names."""
    return [r for r in rows if r["data"]["head"] in names]


def mean_errors(rows: Sequence[Row], **settings: Any) -> tuple[float, float]:
    """Return mean azimuth and elevation error of the rows with these settings."""
    selected = select_rows(rows, **settings)
    azimuth, elevation = (
        pool(r["result"][what] for r in selected)["mean"] for what in ("azimuth", "elevation")
    )
    return azimuth, elevation


def parse_mean(cell: str) -> float:
    """Return the mean of a cell of the paper, such as "4.7±11"."""
    return float(cell.split("±")[0])


def format_range(values: Iterable[float], form: str) -> str:
    """Return the range of values in a format such as "{:.0f}°", or one value if both ends agree."""
    v = list(values)
    least, largest = form.format(min(v)), form.format(max(v))
    return least if least == largest else f"{least} to {largest}"


def fill_template(template: str, **numbers: object) -> str:
    """Return the template with its numbers, each paragraph and list item wrapped."""
    lines: list[str] = []
    for line in template.splitlines():
        if line.startswith("- ") or not lines:
            lines.append(line)
        else:
            lines[-1] += " " + line.strip()
    return "\n".join(
        textwrap.fill(
            line.format(**numbers),
            100,  # columns of the page
            subsequent_indent="  " if line.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in lines
    )
