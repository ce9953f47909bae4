"""From rows to text: means and deviations, tables in Markdown, and who is in which rows."""

from __future__ import annotations

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
    "pooled",
    "said_by",
    "shown",
    "summary",
    "table",
    "where",
]


def summary(values: ArrayLike) -> dict[str, float]:
    """Mean, standard deviation and count of what is not NaN, as JSON values."""
    v = np.ravel(np.asarray(values, dtype=np.float64))
    v = v[~np.isnan(v)]
    if not len(v):
        return {"mean": 0.0, "std": 0.0, "n": 0}
    return {"mean": round(float(v.mean()), 4), "std": round(float(v.std()), 4), "n": len(v)}


def pooled(parts: Iterable[dict[str, float]]) -> dict[str, float]:
    """The summary of all values together."""
    values = np.array([(p["mean"], p["std"], p["n"]) for p in parts]).reshape(-1, 3)
    mean, std, n = values.T
    total = n.sum()
    if not total:
        return summary([])
    middle = float((n * mean).sum() / total)
    square = float((n * (std**2 + mean**2)).sum() / total)
    return {"mean": middle, "std": max(square - middle**2, 0.0) ** 0.5, "n": int(total)}


def shown(part: dict[str, float] | None) -> str:
    """Mean±deviation as the paper prints them: two digits; nothing where nothing was measured."""
    if part is None or not part["n"]:
        return ""
    return "±".join(
        f"{v:.1f}" if abs(v) < 9.95 else f"{v:.0f}" for v in (part["mean"], part["std"])
    )


def counted(n: int, thing: str) -> str:
    """Such as "3 splits"."""
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    rule = ["---"] * len(header)
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rule, *lines])


def by_head(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each data set, simulated ones first; of a head that has changed, the latest."""
    heads: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: not row["data"]["head"].startswith("simulated")):
        heads.setdefault(row["data"]["head"], []).append(row)
    return {
        name: [row for row in own if row["data"] == own[-1]["data"]] for name, own in heads.items()
    }


def complete(rows: Sequence[Row]) -> list[Row]:
    """The rows of the seeds that have the most of them: a split that is half done waits."""
    counts = Counter(row["settings"]["seed"] for row in rows)
    most = max(counts.values(), default=0)
    return [row for row in rows if counts[row["settings"]["seed"]] == most]


def said_by(row: Row) -> str:
    """Who talks in the rows of an experiment."""
    speech = row["data"]["speech"]
    return "built-in talkers" if speech == "built-in" else f"talkers of the folder `{speech}`"


def where(rows: Iterable[Row], **settings: Any) -> list[Row]:
    """The rows with these settings."""
    return [r for r in rows if all(r["settings"].get(k) == v for k, v in settings.items())]
