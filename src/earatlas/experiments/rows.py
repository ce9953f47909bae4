"""Rows: what an experiment measured, a JSON line each, so that nothing is ever run twice.

In: an `Experiment` and a `Bench` (which head and speech, how thoroughly). Out: its rows, from the
file where they are there already, else measured now and appended one by one as they finish. A row
is known by everything that could change it: experiment, data set, settings with their seed, quick
or not, and the package's version.

    plan(bench)            the settings of every row, as JSON values
    measure(bench, s)      the figures of one row, as JSON values
    render(rows, folder)   Markdown, and pictures in the folder; measures nothing
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import earatlas
from earatlas.errors import EaratlasWarning, InputError, missing_extra
from earatlas.experiments.data import Bench

__all__ = ["Experiment", "Row", "current", "read_rows", "run"]

Row = dict[str, Any]
Settings = dict[str, Any]
Progress = Callable[[float, float], None]

_IDENTITY = ("experiment", "data", "settings", "quick", "version")


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper."""

    name: str  # "table1"
    title: str
    plan: Callable[[Bench], list[Settings]]
    measure: Callable[[Bench, Settings], dict[str, Any]]
    render: Callable[[Sequence[Row], Path], str]
    remarks: str  # where ours is worse or different, and why
    head: bool = True  # False: a toy that needs no head
    sound: bool = False  # True: talkers are rendered, so impulse responses are needed

    def data(self, bench: Bench) -> dict[str, Any]:
        """What the rows are about."""
        if not self.head:
            return {"head": "toy"}
        return {**bench.about, **({"speech": bench.speech_name} if self.sound else {})}

    def identity(self, bench: Bench, settings: Settings) -> Row:
        """All that a row has besides its figures."""
        return {
            "experiment": self.name,
            "data": self.data(bench),
            "settings": settings,
            "quick": bench.quick,
            "version": earatlas.__version__,
        }


def _key(row: Row) -> str:
    return json.dumps([row[name] for name in _IDENTITY], sort_keys=True)


def read_rows(path: Path) -> list[Row]:
    """The rows of a file, the last of each identity; broken lines are reported and taken out."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(
            f"rows must be a file that can be read, got '{path}' ({error.strerror}). "
            "Choose another output folder."
        ) from error
    rows: dict[str, Row] = {}
    broken = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            rows[_key(row)] = {**row, "result": row["result"]}
        except (ValueError, LookupError, TypeError):
            broken.append(number)
    if broken:
        warnings.warn(
            f"rows must be JSON lines with {', '.join(_IDENTITY)} and result, got {len(broken)} of "
            f"{len(lines)} others in '{path}' (first: line {broken[0]}). They are taken out and "
            "run again.",
            EaratlasWarning,
            stacklevel=2,
        )
        scratch = path.with_suffix(".new")
        scratch.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
        os.replace(scratch, path)
    return list(rows.values())


def current(rows: Iterable[Row], *, quick: bool) -> list[Row]:
    """Those of this version and thoroughness: what is rendered."""
    return [r for r in rows if r["version"] == earatlas.__version__ and r["quick"] == quick]


def run(
    experiment: Experiment,
    bench: Bench,
    path: Path,
    *,
    jobs: int = 1,
    progress: Progress | None = None,
) -> tuple[list[Row], int]:
    """All rows of the plan, and how many of them were measured now; the rest was in the file."""
    wanted = [experiment.identity(bench, settings) for settings in experiment.plan(bench)]
    known = {_key(row): row for row in read_rows(path)}
    todo = [row for row in wanted if _key(row) not in known]
    done = len(wanted) - len(todo)
    tell = progress or (lambda _done, _total: None)
    tell(done, len(wanted))
    for row in _measured(experiment, bench, todo, jobs):
        known[_key(row)] = row
        _append(path, row)
        done += 1
        tell(done, len(wanted))
    return [known[_key(row)] for row in wanted], len(todo)


def _append(path: Path, row: Row) -> None:
    try:
        with path.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(row) + "\n")
    except OSError as error:
        raise InputError(
            f"rows must be a file that can be written, got '{path}' ({error.strerror}). "
            "Choose another output folder."
        ) from error


def _measured(
    experiment: Experiment, bench: Bench, todo: Sequence[Row], jobs: int
) -> Iterator[Row]:
    """The rows with their figures, in the order in which they finish."""
    if jobs == 1 or len(todo) < 2:
        for row in todo:
            yield _one(experiment.measure, bench, row)
        return
    try:
        import joblib
    except ImportError as error:
        raise missing_extra("sklearn", "joblib") from error
    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
    yield from parallel(joblib.delayed(_one)(experiment.measure, bench, row) for row in todo)


def _one(measure: Callable[[Bench, Settings], dict[str, Any]], bench: Bench, row: Row) -> Row:
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EaratlasWarning)  # the tables say what is left out
        result = measure(bench, row["settings"])
    return {**row, "result": result, "seconds": round(time.perf_counter() - start, 2)}
