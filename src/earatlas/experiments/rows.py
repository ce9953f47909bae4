"""Rows: what an experiment measured, a JSON line each, so that nothing is ever run twice.

In: an `Experiment` and a `Bench` (which head and speech, how thoroughly). Out: its rows, from the
file where they are there already, else measured now and appended one by one as they finish. A row
is known by everything that could change it: experiment and its revision, data set, settings with
their seed, quick or not, and the package's version. Files are only ever appended to: beside the
rows, what was planned for a data set is a line of its own, and the newest plan says what is shown.

    plan(bench)            the settings of every row, as JSON values
    measure(bench, s)      the figures of one row, as JSON values
    section(rows, folder)  Markdown, and pictures in the folder; measures nothing
    findings(rows)         what came out, with every figure taken from the rows
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib

import earatlas
from earatlas.errors import EaratlasWarning, InputError
from earatlas.experiments.bench import BUILT_IN_HEADS, Bench
from earatlas.experiments.talkers import speech_about
from earatlas.types import Progress

__all__ = ["DataSetRows", "Experiment", "Row", "by_data_set", "current", "read_rows", "run"]

Row = dict[str, Any]
Settings = dict[str, Any]

_IDENTITY = ("experiment", "data", "settings", "quick", "version")  # and the revision


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper, or one of ours in that form."""

    name: str  # "table1"
    title: str
    plan: Callable[[Bench], list[Settings]]
    measure: Callable[[Bench, Settings], dict[str, Any]]
    section: Callable[[Sequence[Row], Path], str]
    about: str  # what is compared and how
    findings: Callable[[Sequence[Row]], str] | None = None  # what came out, and why
    findings_on: tuple[str, ...] = ()  # the heads that the findings speak of
    revision: int = 1  # raised when what it measures changes
    head: bool = True  # False: a toy that needs no head
    sound: bool = False  # True: talkers are rendered, so impulse responses are needed
    open_air: bool = False  # True: of a head that was measured in the open

    def data(self, bench: Bench) -> dict[str, Any]:
        """What the rows are about."""
        if not self.head:
            return {"head": "toy"}
        return {**bench.about, **(speech_about(bench.speech) if self.sound else {})}

    def findings_for(self, sets: Iterable[DataSetRows], *, quick: bool) -> str:
        """The findings, if all heads that they speak of are finished at full size."""
        there = [own for own in sets if own.finished and own.data["head"] in self.findings_on]
        missing = {*self.findings_on} - {own.data["head"] for own in there}
        if quick or missing or self.findings is None:
            return ""
        return self.findings([row for own in there for row in own.rows])

    def identity(self, bench: Bench) -> Row:
        """What all rows of a data set have, and its plan."""
        return {
            "experiment": self.name,
            "revision": self.revision,
            "data": self.data(bench),
            "quick": bench.quick,
            "version": earatlas.__version__,
        }


@dataclass(frozen=True)
class DataSetRows:
    """The rows of one data set: those that the newest plan asks for and that are there."""

    data: dict[str, Any]
    rows: list[Row]
    planned: int  # rows, of which some may be missing

    @property
    def finished(self) -> bool:
        """Whether every planned row is there."""
        return len(self.rows) == self.planned


def _key(row: Row) -> str:
    return _text([*(row[name] for name in _IDENTITY), row.get("revision", 1)])


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def read_rows(path: Path) -> list[Row]:
    """The rows of a file, the last of each identity; broken lines are reported and skipped."""
    return _read(path)[0]


def _read(path: Path) -> tuple[list[Row], list[Row]]:
    """Rows, and plans in the order in which they were made."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return [], []
    except OSError as error:
        raise InputError(
            f"rows must be a file that can be read, got '{path}' ({error.strerror}). "
            "Choose another output folder."
        ) from error
    rows: dict[str, Row] = {}
    plans: list[Row] = []
    broken = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            _ = _place(row["data"])
            if "plan" in row:
                _ = [_key({**row, "settings": settings}) for settings in row["plan"]]
                plans.append(row)
            else:
                rows[_key(row)] = {**row, "result": row["result"]}
        except (ValueError, LookupError, TypeError, AttributeError):
            broken.append(number)
    if broken:
        warnings.warn(
            f"rows must be JSON lines with {', '.join(_IDENTITY)} and result, got {len(broken)} of "
            f"{len(lines)} others in '{path}' (first: line {broken[0]}). They are skipped; what "
            "they held is run again.",
            EaratlasWarning,
            stacklevel=3,
        )
    return list(rows.values()), plans


def current(experiment: Experiment, rows: Iterable[Row], *, quick: bool) -> list[Row]:
    """Those of this version, revision and thoroughness, rows or plans."""
    wanted = (earatlas.__version__, experiment.revision, quick)
    return [r for r in rows if (r["version"], r.get("revision", 1), r["quick"]) == wanted]


def by_data_set(experiment: Experiment, path: Path, *, quick: bool) -> list[DataSetRows]:
    """Of every data set the rows of its newest plan; all of them where a file has no plan yet."""
    every_row, every_plan = _read(path)
    rows = current(experiment, every_row, quick=quick)
    newest: dict[str, tuple[dict[str, Any], list[Settings] | None]] = {}
    for row in rows:
        newest[_place(row["data"])] = row["data"], None
    for line in current(experiment, every_plan, quick=quick):
        newest[_place(line["data"])] = line["data"], line["plan"]
    found = []
    for data, plan in newest.values():
        own = [row for row in rows if row["data"] == data]
        if plan is not None:
            wanted = {_text(settings) for settings in plan}
            own = [row for row in own if _text(row["settings"]) in wanted]
        found.append(DataSetRows(data, own, len(own) if plan is None else len(plan)))
    return found


def _place(data: dict[str, Any]) -> str:
    """What a newer plan takes the place of: a built-in head that has changed is no second head."""
    built_in = data["head"] in BUILT_IN_HEADS
    return _text({k: v for k, v in data.items() if not (built_in and k == "fingerprint")})


def run(
    experiment: Experiment,
    bench: Bench,
    path: Path,
    *,
    jobs: int = 1,
    progress: Progress | None = None,
) -> tuple[list[Row], int]:
    """All rows of the plan, and how many of them were measured now; the rest was in the file."""
    identity = experiment.identity(bench)
    planned = {**identity, "plan": experiment.plan(bench)}
    wanted = [{**identity, "settings": settings} for settings in planned["plan"]]
    rows, plans = _read(path)
    known = {_key(row): row for row in rows}
    before = [plan for plan in plans if _place(plan["data"]) == _place(planned["data"])]
    newest = current(experiment, before, quick=bench.quick)[-1:]
    news = [planned] if _text(newest) != _text([planned]) else []
    todo = [row for row in wanted if _key(row) not in known]
    if not todo:
        _append(path, *news)
    done = len(wanted) - len(todo)
    tell = progress or (lambda _done, _total: None)
    tell(done, len(wanted))
    for row in _measured(experiment, bench, todo, jobs):
        known[_key(row)] = row
        _append(path, *news, row)  # the plan with its first row: what is refused leaves no trace
        news = []
        done += 1
        tell(done, len(wanted))
    return [known[_key(row)] for row in wanted], len(todo)


def _append(path: Path, *lines: Row) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    if not text:
        return
    try:
        with path.open("ab+") as handle:
            handle.seek(max(handle.seek(0, 2) - 1, 0))
            cut = handle.read() not in (b"", b"\n")  # a crash leaves a line without its end
            handle.write(b"\n" * cut + text.encode())
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
    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
    yield from parallel(joblib.delayed(_one)(experiment.measure, bench, row) for row in todo)


def _one(measure: Callable[[Bench, Settings], dict[str, Any]], bench: Bench, row: Row) -> Row:
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EaratlasWarning)  # the tables say what is left out
        result = measure(bench, row["settings"])
    return {**row, "result": result, "seconds": round(time.perf_counter() - start, 2)}
