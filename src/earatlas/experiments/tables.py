"""From rows to text: means and deviations, tables in Markdown, and who is in which rows.

In: values, or rows. Out: summaries as JSON values, which can be pooled, and Markdown. Findings are
templates without a figure in them: `told` puts in those that the rows give.

    mean, std, n      of the values
    median            of errors of directions, too
    beyond_30         the share of errors beyond 30 degrees
    points            up to 20 of them, evenly through the sorted errors: medians can be pooled
"""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from earatlas.experiments.rows import Row

__all__ = [
    "by_head",
    "complete",
    "counted",
    "error_summary",
    "means",
    "medians",
    "names_of",
    "of_head",
    "pooled",
    "printed",
    "said_by",
    "shown",
    "span",
    "summary",
    "table",
    "told",
    "where",
]

_FEWEST = 3  # values that a printed mean is of
_POINTS = 20
_FAR_DEGREES = 30.0
_COLUMNS = 100


def summary(values: ArrayLike) -> dict[str, float]:
    """Mean, standard deviation and count of what is not NaN, as JSON values."""
    v = np.ravel(np.asarray(values, dtype=np.float64))
    v = v[~np.isnan(v)]
    if not len(v):
        return {"mean": 0.0, "std": 0.0, "n": 0}
    return {"mean": round(float(v.mean()), 4), "std": round(float(v.std()), 4), "n": len(v)}


def error_summary(degrees: ArrayLike) -> dict[str, Any]:
    """The summary of errors of directions, which are seldom normal: median and far ones, too."""
    v = np.ravel(np.asarray(degrees, dtype=np.float64))
    v = np.sort(v[~np.isnan(v)])
    if not len(v):
        return summary(v)
    points = v if len(v) <= _POINTS else np.quantile(v, (np.arange(_POINTS) + 0.5) / _POINTS)
    return {
        **summary(v),
        "median": round(float(np.median(v)), 4),
        "beyond_30": round(float((v > _FAR_DEGREES).mean()), 4),
        "points": np.round(points, 3).tolist(),
    }


def pooled(parts: Iterable[dict[str, Any]]) -> dict[str, float]:
    """The summary of all values together; of errors with median and quartiles."""
    some = [p for p in parts if p["n"]]
    if not some:
        return summary([])
    mean, std, n = np.array([(p["mean"], p["std"], p["n"]) for p in some]).T
    total = n.sum()
    middle = float((n * mean).sum() / total)
    square = float((n * (std**2 + mean**2)).sum() / total)
    found = {"mean": middle, "std": max(square - middle**2, 0.0) ** 0.5, "n": int(total)}
    if not all("points" in p for p in some):
        return found
    points = np.concatenate([p["points"] for p in some])
    weights = np.concatenate([np.full(len(p["points"]), p["n"] / len(p["points"])) for p in some])
    order = np.argsort(points, kind="stable")
    reached = (np.cumsum(weights[order]) - 0.5 * weights[order]) / total
    low, median, high = np.interp((0.25, 0.5, 0.75), reached, points[order])
    far = float((n * [p["beyond_30"] for p in some]).sum() / total)
    return found | {
        "median": float(median),
        "lower_quartile": float(low),
        "upper_quartile": float(high),
        "beyond_30": far,
    }


def shown(part: dict[str, float] | None) -> str:
    """Mean±deviation as the paper prints them: two digits; nothing of fewer than three values."""
    if part is None or part["n"] < _FEWEST:
        return ""
    return f"{_two_digits(part['mean'])}±{_two_digits(part['std'])}"


def medians(azimuth: dict[str, float], elevation: dict[str, float]) -> list[str]:
    """Two cells, azimuth / elevation: medians, and the shares beyond 30 degrees."""
    both = [p for p in (azimuth, elevation) if p["n"] >= _FEWEST and "median" in p]
    return [
        " / ".join(_two_digits(p["median"]) for p in both),
        " / ".join(f"{100 * p['beyond_30']:.0f} %" for p in both),
    ]


def _two_digits(v: float) -> str:
    return f"{v:.1f}" if abs(v) < 9.95 else f"{v:.0f}"


def counted(n: int, thing: str) -> str:
    """Such as "3 splits"."""
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    rule = ["---"] * len(header)
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rule, *lines])


def by_head(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each data set by its name, simulated heads first, in the order of settings."""
    sets: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: json.dumps(row["settings"], sort_keys=True)):
        sets.setdefault(json.dumps(row["data"], sort_keys=True), []).append(row)
    names = names_of(own[0]["data"] for own in sets.values())
    named = dict(zip(names, sets.values(), strict=True))
    return {name: named[name] for name in sorted(named, key=lambda n: (n[:9] != "simulated", n))}


def names_of(data: Iterable[dict[str, Any]]) -> list[str]:
    """The heads' names, and where some are alike, what tells them apart."""
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


def complete(rows: Sequence[Row]) -> list[Row]:
    """The rows of the seeds that have the most of them: a split that is half done waits."""
    counts = Counter(row["settings"]["seed"] for row in rows)
    most = max(counts.values(), default=0)
    return [row for row in rows if counts[row["settings"]["seed"]] == most]


def said_by(row: Row) -> str:
    """Who talks in the rows of an experiment."""
    speech = row["data"]["speech"]
    built_in = "files" not in row["data"]
    return str(speech) if built_in else f"talkers of the folder `{speech}`"


def where(rows: Iterable[Row], **settings: Any) -> list[Row]:
    """The rows with these settings."""
    return [r for r in rows if all(r["settings"].get(k) == v for k, v in settings.items())]


def of_head(rows: Iterable[Row], *names: str) -> list[Row]:
    """The rows of the heads of these names."""
    return [r for r in rows if r["data"]["head"] in names]


def means(rows: Sequence[Row], **settings: Any) -> tuple[float, float]:
    """Mean azimuth and elevation error of the rows with these settings."""
    some = where(rows, **settings)
    azimuth, elevation = (
        pooled(r["result"][what] for r in some)["mean"] for what in ("azimuth", "elevation")
    )
    return azimuth, elevation


def printed(cell: str) -> float:
    """The mean of a cell as the paper prints it, such as "4.7±11"."""
    return float(cell.split("±")[0])


def span(values: Iterable[float], form: str) -> str:
    """From the least to the largest, each in the form, such as "{:.0f}°"; once if alike."""
    v = list(values)
    least, largest = form.format(min(v)), form.format(max(v))
    return least if least == largest else f"{least} to {largest}"


def told(template: str, **figures: object) -> str:
    """The template with its figures, every paragraph and point wrapped anew."""
    lines: list[str] = []
    for line in template.splitlines():
        if line.startswith("- ") or not lines:
            lines.append(line)
        else:
            lines[-1] += " " + line.strip()
    return "\n".join(
        textwrap.fill(
            line.format(**figures),
            _COLUMNS,
            subsequent_indent="  " if line.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in lines
    )
