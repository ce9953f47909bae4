"""Confirmation of stale rows: some are measured again, and if they agree, the others are kept.

A change of the code makes every row stale that depends on it, although most changes alter no
number. `check_rows` repeats some of the stale rows of a data set for each kind of row, version of
the code and set of results: the kind is what a row measures by other code, such as its method or
the number of talkers. The rows are spread over the plan, and of their neighbours those are taken
that cost the least time. If all of them agree with their earlier results, a line in the file
confirms the others of the kind, which then count as measured by the present code. If one differs,
the others stay stale.

    agreement of numbers   |a - b| <= absolute + relative |a|
    agreement of arrays    the same with the range of the array in place of |a|
    standard deviations    the same with |mean| + deviation in place of |a|, because they are
                           differences of values of that size
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.errors import InputError
from earatlas.experiments.bench import Bench
from earatlas.experiments.figure_parts import unpack_array
from earatlas.experiments.rows import (
    Experiment,
    Row,
    Settings,
    append_lines,
    group_by_data_set,
    measure_row,
)
from earatlas.types import Array, Progress

__all__ = ["AgreementSettings", "Check", "check_rows", "first_difference"]

_KIND = ("part", "method", "sources", "talkers")  # settings that decide which code measures a row
_PACKED = {"shape", "low", "high", "data"}  # keys of a packed array (`pack_array`)


@dataclass(frozen=True)
class AgreementSettings:
    """Largest differences between the results of a row and of its repetition.

    Tables print one decimal below 10 and whole numbers above: a difference of half a printed digit,
    0.05 at 10, is not reached. Between repetitions of nearly perfect separations, a STIR of 58.4 dB
    differed by 0.14 dB.
    """

    absolute: float = 0.02  # degrees, decibels or shares
    relative: float = 0.003  # of the value, or of the range of an array


@dataclass(frozen=True)
class Check:
    """Result of the repetition of some stale rows of one kind, of one version of the code."""

    kind: str  # such as "VESSL, sources 2", "" for experiments with one kind
    rows: int  # stale rows, including the repeated ones
    repeated: int
    difference: str | None  # the first result that differs, such as "seed 3: SDR.mean 5.1, now 4"

    @property
    def agrees(self) -> bool:
        """Whether all repetitions agree."""
        return self.difference is None


def check_rows(
    experiment: Experiment,
    bench: Bench,
    path: Path,
    repetitions: int,
    *,
    settings: AgreementSettings | None = None,
    progress: Progress | None = None,
) -> list[Check]:
    """Repeat some stale rows of a data set; confirm the others if the results agree.

    Parameters
    ----------
    experiment : Experiment
        What to check.
    bench : Bench
        Head and speech.
    path : Path
        File of the rows, to which repeated rows and confirmations are appended.
    repetitions : int
        Number of repeated rows of each kind, version of the code and set of results.
    settings : AgreementSettings, optional
        Largest differences.
    progress : callable, optional
        Called with the numbers of finished and planned repetitions.

    Returns
    -------
    list of Check
        One for each kind, version of the code and set of results that has stale rows.

    """
    if repetitions < 1:
        raise InputError(
            f"check must be at least 1 row, got {repetitions}. Use 3, for example, to repeat "
            "three rows of each kind."
        )
    identity = experiment.identity(bench)
    plan = experiment.plan(replace(bench, share=1.0))  # without settings that no longer exist
    groups = [
        rows
        for data_set in group_by_data_set(experiment, path, quick=bench.quick)
        if data_set.data == identity["data"]
        for rows in _group(
            row for row in data_set.rows if experiment.is_stale(row) and row["settings"] in plan
        )
    ]
    picked = [_spread(rows, repetitions) for rows in groups]
    total, done, checks = sum(map(len, picked)), 0, []
    report = progress or (lambda _done, _total: None)
    for rows, some in zip(groups, picked, strict=True):
        today, difference, repeated = experiment.code(rows[0]["settings"]), None, 0
        for row in some:
            new = {**identity, "settings": row["settings"], "code": today}
            new = measure_row(experiment.measure, bench, new)
            append_lines(path, new)
            done, repeated = done + 1, repeated + 1
            report(done, total)
            difference = first_difference(row["result"], new["result"], settings)
            if difference is not None:
                difference = f"{_describe(row['settings'], other_than=_KIND)}: {difference}"
                break
        if difference is None:
            confirmed = {
                "from": rows[0].get("code"),
                "to": today,
                "repeated": repeated,
                "settings": [row["settings"] for row in rows],
            }
            append_lines(path, {**identity, "confirmed": confirmed})
        kind = {name: rows[0]["settings"].get(name) for name in _KIND}
        checks.append(Check(_describe(kind), len(rows), repeated, difference))
    return checks


def _group(rows: Iterable[Row]) -> list[list[Row]]:
    """Return rows of the same kind, version of the code and names of results."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        kind = [row["settings"].get(name) for name in _KIND]
        key = json.dumps([kind, row.get("code"), _names(row["result"])])
        groups.setdefault(key, []).append(row)
    return list(groups.values())


def _names(result: Any) -> Any:
    """Return the names of a result and of the results in it."""
    if not isinstance(result, dict) or result.keys() == _PACKED:
        return None
    return {name: _names(result[name]) for name in sorted(result)}


def _spread(rows: Sequence[Row], number: int) -> list[Row]:
    """Return that many rows, or all: the one of least time in each of as many parts of the plan."""
    edges = np.rint(np.linspace(0, len(rows), min(number, len(rows)) + 1)).astype(int)
    return [
        min(rows[first:end], key=lambda row: row.get("seconds") or np.inf)
        for first, end in pairwise(edges)
    ]


def _describe(settings: Settings, other_than: Iterable[str] = ()) -> str:
    """Return settings as text, texts without their names."""
    shown = {k: v for k, v in settings.items() if v not in (None, "") and k not in other_than}
    return ", ".join(v if isinstance(v, str) else f"{k} {v}" for k, v in shown.items())


def first_difference(
    first: Any, second: Any, settings: AgreementSettings | None = None
) -> str | None:
    """Return where two results, which are JSON values, first differ, or None if they agree."""
    return next(_differences(first, second, settings or AgreementSettings()), None)


def _differences(
    first: Any, second: Any, agreed: AgreementSettings, path: str = "", scale: float | None = None
) -> Iterator[str]:
    """Yield texts such as "SDR.mean 5.1, now 4.2" for everything that differs."""
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        if first.keys() == _PACKED:
            a, b = unpack_array(first), unpack_array(second)
            scale = first["high"] - first["low"]
            if a.shape != b.shape or not _all_close(a, b, scale, agreed):
                yield f"array {path}".rstrip()
            return
        for name in first:
            spread = name == "std" and "mean" in first
            scale = abs(first["mean"]) + first["std"] if spread else None
            inner = f"{path}.{name}" if path else name
            yield from _differences(first[name], second[name], agreed, inner, scale)
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for n, pair in enumerate(zip(first, second, strict=True)):
            yield from _differences(*pair, agreed, f"{path}[{n}]")
    elif _is_number(first) and _is_number(second):
        scale = abs(first) if scale is None else scale
        if not _all_close(np.array(first), np.array(second), scale, agreed):
            yield f"{path} {first}, now {second}".lstrip()
    elif first != second:
        yield f"{path} {_shorten(first)}, now {_shorten(second)}".lstrip()


def _shorten(value: Any) -> str:
    """Return a value as text, of lists and dictionaries their lengths or names."""
    if isinstance(value, list):
        return f"{len(value)} values"
    return ", ".join(sorted(value)) if isinstance(value, dict) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _all_close(a: Array, b: Array, scale: float, settings: AgreementSettings) -> bool:
    both_missing = np.isnan(a) & np.isnan(b)
    close = np.abs(a - b) <= settings.absolute + settings.relative * scale
    return bool((close | both_missing).all())
