"""Confirmation of stale rows: some are measured again, and if they agree, the others are kept.

A change of the code makes every row stale that depends on it, although most changes alter no
number. `check_rows` repeats some of the stale rows of a data set, spread over the plan, for each
part of the experiment, version of the code and set of results. If all of them agree with their
earlier results, a line in the file confirms the others, which then count as measured by the present
code. If one differs, the others stay stale.

    agreement of numbers   |a - b| <= absolute + relative |a|
    agreement of arrays    the same with the range of the array in place of |a|
    standard deviations    the same with |mean| + deviation in place of |a|, because they are
                           differences of values of that size
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.errors import InputError
from earatlas.experiments.bench import Bench
from earatlas.experiments.figure_parts import unpack_array
from earatlas.experiments.rows import (
    Experiment,
    Row,
    append_lines,
    group_by_data_set,
    measure_row,
)
from earatlas.types import Array, Progress

__all__ = ["AgreementSettings", "Check", "check_rows", "results_agree"]

_PACKED = {"shape", "low", "high", "data"}  # keys of a packed array (`pack_array`)


@dataclass(frozen=True)
class AgreementSettings:
    """Largest differences between the results of a row and of its repetition.

    Tables print degrees and decibels with one decimal. Between repetitions of nearly perfect
    separations, a STIR of 58.4 dB differed by 0.14 dB.
    """

    absolute: float = 0.02  # degrees, decibels or shares; below half of a printed tenth
    relative: float = 0.001  # of the value, or of the range of an array


@dataclass(frozen=True)
class Check:
    """Result of the repetition of some stale rows of one part, of one version of the code."""

    part: str  # "" for experiments without parts
    rows: int  # stale rows, including the repeated ones
    repeated: int
    agrees: bool


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
        Number of repeated rows of each part, version of the code and set of results.
    settings : AgreementSettings, optional
        Largest differences.
    progress : callable, optional
        Called with the numbers of finished and planned repetitions.

    Returns
    -------
    list of Check
        One for each part, version of the code and set of results that has stale rows.

    """
    if repetitions < 1:
        raise InputError(
            f"check must be at least 1 row, got {repetitions}. Use 3, for example, to repeat "
            "three rows of each part."
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
        first = rows[0]["settings"]
        today, agrees, repeated = experiment.code(first), True, 0
        for row in some:
            new = {**identity, "settings": row["settings"], "code": today}
            new = measure_row(experiment.measure, bench, new)
            append_lines(path, new)
            done, repeated = done + 1, repeated + 1
            report(done, total)
            agrees = results_agree(row["result"], new["result"], settings)
            if not agrees:
                break
        if agrees:
            confirmed = {
                "from": rows[0].get("code"),
                "to": today,
                "repeated": repeated,
                "settings": [row["settings"] for row in rows],
            }
            append_lines(path, {**identity, "confirmed": confirmed})
        checks.append(Check(first.get("part", ""), len(rows), repeated, agrees))
    return checks


def _group(rows: Iterable[Row]) -> list[list[Row]]:
    """Return rows of the same part, version of the code and names of results."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        part = row["settings"].get("part", "")
        key = json.dumps([part, row.get("code"), _names(row["result"])])
        groups.setdefault(key, []).append(row)
    return list(groups.values())


def _names(result: Any) -> Any:
    """Return the names of a result and of the results in it."""
    if not isinstance(result, dict) or result.keys() == _PACKED:
        return None
    return {name: _names(result[name]) for name in sorted(result)}


def _spread(rows: Sequence[Row], number: int) -> list[Row]:
    """Return that many rows, or all, at equal distances from the first to the last."""
    indices = np.linspace(0, len(rows) - 1, min(number, len(rows)))
    return [rows[i] for i in np.rint(indices).astype(int)]


def results_agree(first: Any, second: Any, settings: AgreementSettings | None = None) -> bool:
    """Whether two results, which are JSON values, agree within the tolerances."""
    agreed = settings or AgreementSettings()
    if isinstance(first, dict) and isinstance(second, dict):
        if first.keys() != second.keys():
            return False
        if first.keys() == _PACKED:
            if first["shape"] != second["shape"]:
                return False
            a, b = unpack_array(first), unpack_array(second)
            return _all_close(a, b, first["high"] - first["low"], agreed)
        names = set(first)
        if names >= {"mean", "std"}:
            scale = abs(first["mean"]) + first["std"]
            if not _all_close(np.array(first["std"]), np.array(second["std"]), scale, agreed):
                return False
            names.remove("std")
        return all(results_agree(first[key], second[key], agreed) for key in names)
    if isinstance(first, list) and isinstance(second, list):
        pairs = zip(first, second, strict=False)
        return len(first) == len(second) and all(results_agree(*pair, agreed) for pair in pairs)
    if _is_number(first) and _is_number(second):
        return _all_close(np.array(first), np.array(second), abs(first), agreed)
    return bool(first == second)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _all_close(a: Array, b: Array, scale: float, settings: AgreementSettings) -> bool:
    both_missing = np.isnan(a) & np.isnan(b)
    close = np.abs(a - b) <= settings.absolute + settings.relative * scale
    return bool((close | both_missing).all())
