"""Claims of the paper: for each claim and head, whether the rows confirm it.

The inputs are the rows of the experiments. The output is a Markdown table. A claim is a difference
that is positive if the claim holds, computed for every repetition (mixture, recording, split or
condition). It holds if the 95 % confidence interval of the mean difference is positive, and does
not hold if it is negative. Fewer than three repetitions have no interval: the sign of the mean
decides if each is a split with hundreds of test directions, and otherwise nothing does. A claim
about every condition (K or sparsity) holds if the difference is positive in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from earatlas.experiments.rows import Row
from earatlas.experiments.tables import (
    format_interval,
    group_by_head,
    markdown_table,
    merge_parts,
    pool,
    select_rows,
    summarize,
)

__all__ = ["STATEMENTS", "Statement", "statements_table"]

REVERBERANT = ("simulated-room",)  # heads in a room; all others are anechoic
Differences = Callable[[Sequence[Row]], Iterable[float]]
_ANGLES = ("azimuth", "elevation")


@dataclass(frozen=True)
class Statement:
    """A claim of the paper, as a difference that is positive if it holds."""

    text: str
    where: str  # in the paper
    experiment: str
    unit: str
    differences: Differences  # one value per repetition
    in_every_condition: bool = False  # whether every difference must be positive, not the mean
    of_splits: bool = False  # whether a single repetition, with its test directions, decides


def _error(result: Mapping[str, Any]) -> float:
    """Return the mean of azimuth and elevation error."""
    return float(sum(result[angle]["mean"] for angle in _ANGLES) / 2)


def _between_rows(
    rows: Sequence[Row], better: Mapping[str, Any], worse: Mapping[str, Any]
) -> Iterable[float]:
    """Yield the error of one group of rows minus that of another, for equal other settings."""
    for row in select_rows(rows, **better):
        for other in select_rows(rows, **{**row["settings"], **worse}):
            yield _error(other["result"]) - _error(row["result"])


def _table2(rows: Sequence[Row], better: str, worse: str, angles: Sequence[str]) -> Iterable[float]:
    for row in rows:
        errors = row["result"]["errors"]
        if better in errors and worse in errors:
            yield sum(errors[worse][a]["mean"] - errors[better][a]["mean"] for a in angles) / len(
                angles
            )


def _table3(
    rows: Sequence[Row], better: str, worse: str, what: str, sources: int
) -> Iterable[float]:
    """Yield the gain in decibels, or the reduction of the error, of one method over another."""
    sign = -1 if what == "azimuth" else 1
    for row in select_rows(rows, sources=sources):
        methods = row["result"]["methods"]
        pair = [methods.get(method, {}).get(what) for method in (better, worse)]
        if all(part is not None and part["n"] for part in pair):
            yield sign * (pair[0]["mean"] - pair[1]["mean"])


def _at_every_k(rows: Sequence[Row]) -> Iterable[float]:
    """Yield the mean error of plain MPLR minus that of PPAM for each K."""
    for K in sorted({row["settings"]["components"] for row in rows}):
        at_k = select_rows(rows, components=K)
        differences = list(_between_rows(at_k, {"method": "PPAM"}, {"method": "MPLR, plain"}))
        if differences:
            yield sum(differences) / len(differences)


def _below_half_sparsity(rows: Sequence[Row]) -> Iterable[float]:
    """Yield half the sparsity minus the mean error of the paper's PPAM, for each sparsity."""
    for degrees in sorted({row["settings"]["degrees"] for row in rows}):
        errors = [
            _error(row["result"]) for row in select_rows(rows, method="PPAM", degrees=degrees)
        ]
        if errors:
            yield degrees / 2 - sum(errors) / len(errors)


STATEMENTS = (
    Statement("PPAM is more accurate than MPLR (K = 64, ILPD)", "Table 1", "table1", "°",
          partial(_between_rows, better={"method": "PPAM", "cue": "ILPD"},
                  worse={"method": "MPLR, plain"}), of_splits=True),
    Statement("PPAM is more accurate than SIR-2 (ILPD)", "Table 1", "table1", "°",
          partial(_between_rows, better={"method": "PPAM", "cue": "ILPD"},
                  worse={"method": "SIR-2"}), of_splits=True),
    Statement("IPD cues are slightly better than ILD cues", "Table 1", "table1", "°",
          partial(_between_rows, better={"method": "PPAM", "cue": "IPD"}, worse={"cue": "ILD"}),
          of_splits=True),
    Statement("PPAM is more accurate than PHAT (frontal azimuth)", "Table 2", "table2", "°",
          partial(_table2, better="PPAM(T2)", worse="PHAT", angles=("azimuth",))),
    Statement("T1 is more accurate than T2", "Table 2", "table2", "°",
          partial(_table2, better="PPAM(T1)", worse="PPAM(T2)", angles=_ANGLES)),
    *(
        Statement(f"{M} talkers: VESSL has a higher {what} than MESSL-G", "Table 3", "table3", "dB",
              partial(_table3, better="VESSL(T1)", worse="MESSL-G", what=what, sources=M))
        for M in (2, 3) for what in ("SDR", "STIR")
    ),
    *(
        Statement(f"{M} talkers: VESSL is more accurate than MESSL-G (frontal azimuth)", "Table 3",
              "table3", "°", partial(_table3, better="VESSL(T1)", worse="MESSL-G", what="azimuth",
                                     sources=M))
        for M in (2, 3)
    ),
    Statement("2 talkers: binary masks of VESSL are better than the mixture (SDR)", "Table 3",
          "table3", "dB", partial(_table3, better="VESSL(T1), binary", worse="mixture", what="SDR",
                                  sources=2)),
    Statement("PPAM is more accurate than MPLR at every K", "Figure 8", "figure8", "K",
          _at_every_k, in_every_condition=True),
    Statement("the error is always below half the sparsity", "Figure 9", "figure9", "sparsities",
          _below_half_sparsity, in_every_condition=True),
)  # fmt: skip


def _cell(statement: Statement, rows: Sequence[Row]) -> tuple[str, bool | None]:
    """Return verdict and mean difference with its interval, and the verdict as a value."""
    differences = list(statement.differences(rows))
    if not differences:
        return "", None
    if statement.in_every_condition:
        n = sum(value > 0 for value in differences)
        holds = n == len(differences)
        return f"{'yes' if holds else 'no'}: {n} of {len(differences)} {statement.unit}", holds
    pooled = pool(summarize([value]) for value in differences)
    low, high = pooled.get("low", pooled["mean"]), pooled.get("high", pooled["mean"])
    verdict = True if low > 0 else False if high < 0 else None
    if "low" not in pooled and not statement.of_splits:
        verdict = None
    word = {True: "yes", False: "no", None: "undecided"}[verdict]
    number = (
        f"{pooled['mean']:+.1f}{format_interval(pooled)} {statement.unit}, n = {len(differences)}"
    )
    return f"{word}: {number}", verdict


def statements_table(rows: Mapping[str, Sequence[Row]]) -> str:
    """Return the table of all claims for the rows of each experiment, or "" without rows."""
    by_statement = {
        statement: group_by_head(merge_parts(rows.get(statement.experiment, [])))
        for statement in STATEMENTS
    }
    heads = list(dict.fromkeys(head for groups in by_statement.values() for head in groups))
    heads.sort(key=lambda head: (head in REVERBERANT, head))
    if not heads:
        return ""
    lines = []
    for statement, groups in by_statement.items():
        cells = {head: _cell(statement, groups.get(head, [])) for head in heads}
        anechoic = [v for head, (text, v) in cells.items() if head not in REVERBERANT and text]
        room = [v for head, (text, v) in cells.items() if head in REVERBERANT and text]
        lines.append(
            [
                f"{statement.text} ({statement.where})",
                _summary(anechoic),
                _summary(room),
                *(cells[head][0] for head in heads),
            ]
        )
    return markdown_table(["claim", "anechoic", "in the room", *heads], lines)


def _summary(verdicts: Sequence[bool | None]) -> str:
    """Return in how many of the heads a claim holds."""
    if not verdicts:
        return ""
    counts = {
        "holds": sum(verdict is True for verdict in verdicts),
        "does not hold": sum(verdict is False for verdict in verdicts),
        "undecided": sum(verdict is None for verdict in verdicts),
    }
    texts = [
        f"**{text}**" if text != "undecided" else text
        for text, n in counts.items()
        if n == len(verdicts)
    ]
    return texts[0] if texts else ", ".join(f"{text} for {n}" for text, n in counts.items() if n)
