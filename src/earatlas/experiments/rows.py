"""Rows: the measurements of an experiment, one JSON line each, so that nothing is run twice.

The inputs are an `Experiment` and a `Bench` (head, speech, repetitions). The outputs are the rows,
read from the file if they exist, otherwise measured and appended one by one. A row is identified by
everything that could change it: experiment and revision, data set, settings with the seed, quick or
not, and the version of the package. A row also records a hash of the code that measured it
(`code_hash`): if that code has changed since, or was not recorded, the row is stale, which the page
states, unless a line of the file confirms it (`confirmation`). An experiment can measure the
methods of a repetition in parts, so that a change of one method does not make the others stale.
Files are only appended to. The plan of a data set is a line of its own, and the newest plan
determines which rows are shown.

    plan(bench)            settings of every row, as JSON values
    measure(bench, s)      results of one row, as JSON values
    section(rows, folder)  Markdown, and pictures in the folder; measures nothing
    findings(rows)         summary of the results, with all numbers taken from the rows
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

import joblib

import earatlas
from earatlas.code_hash import code_hash
from earatlas.errors import EaratlasWarning, InputError
from earatlas.experiments.bench import BUILT_IN_HEADS, Bench
from earatlas.experiments.talkers import describe_speech
from earatlas.types import Progress

__all__ = [
    "DataSetRows",
    "Experiment",
    "Row",
    "Settings",
    "append_lines",
    "current_rows",
    "group_by_data_set",
    "measure_row",
    "read_rows",
    "run_experiment",
]

Row = dict[str, Any]
Settings = dict[str, Any]
Measure = Callable[[Bench, Settings], dict[str, Any]]

_IDENTITY = ("experiment", "data", "settings", "quick", "version")  # and "revision"


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper, or another experiment in that form."""

    name: str  # such as "table1"
    title: str
    plan: Callable[[Bench], list[Settings]]
    measure: Measure
    section: Callable[[Sequence[Row], Path], str]
    description: str  # what is compared, and how
    findings: Callable[[Sequence[Row]], str] | None = None  # results and explanations
    findings_on: tuple[str, ...] = ()  # heads that the findings mention
    revision: int = 1  # increased when the measurements change
    parts: Mapping[str, Measure] = field(default_factory=dict)  # what `measure` does by "part"
    head: bool = True  # False for synthetic data without a head
    needs_speech: bool = False  # talkers are rendered, which requires impulse responses
    needs_anechoic_head: bool = False  # requires a head measured in anechoic conditions

    def data(self, bench: Bench) -> dict[str, Any]:
        """Return the description of the data set."""
        if not self.head:
            return {"head": "toy"}
        return {**bench.description, **(describe_speech(bench.speech) if self.needs_speech else {})}

    def findings_for(self, data_sets: Iterable[DataSetRows], *, quick: bool) -> str:
        """Return the findings if all heads that they mention cover their plans, otherwise ""."""
        complete = [
            data_set
            for data_set in data_sets
            if data_set.covers_plan and data_set.data["head"] in self.findings_on
        ]
        missing = {*self.findings_on} - {data_set.data["head"] for data_set in complete}
        if quick or missing or self.findings is None:
            return ""
        return self.findings([row for data_set in complete for row in data_set.rows])

    def code(self, settings: Settings) -> str:
        """Return the hash of the code on which a row, or a part of it, depends."""
        return code_hash(self.parts.get(settings.get("part", ""), self.measure))

    def is_stale(self, row: Row) -> bool:
        """Whether a row was measured by other code than today's, or by unknown code."""
        return bool(row.get("code") != self.code(row["settings"]))

    def identity(self, bench: Bench) -> Row:
        """Return what all rows of a data set and its plan have in common."""
        return {
            "experiment": self.name,
            "revision": self.revision,
            "data": self.data(bench),
            "quick": bench.quick,
            "version": earatlas.__version__,
        }


@dataclass(frozen=True)
class DataSetRows:
    """Existing rows of the newest plan of one data set."""

    data: dict[str, Any]
    rows: list[Row]
    plan: list[Settings]

    @property
    def finished(self) -> bool:
        """Whether all planned rows exist."""
        return len(self.rows) == len(self.plan)

    @property
    def covers_plan(self) -> bool:
        """Whether all planned settings have at least one repetition, that is, one seed."""
        return _settings_without_seed(self.plan) == _settings_without_seed(
            row["settings"] for row in self.rows
        )


def _settings_without_seed(plan: Iterable[Settings]) -> set[str]:
    return {_canonical_json({**settings, "seed": None}) for settings in plan}


def _key(row: Row) -> str:
    return _canonical_json([*(row[name] for name in _IDENTITY), row.get("revision", 1)])


def _canonical_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file, the last one of each identity; warn about broken lines."""
    return _read(path)[0]


def _read(path: Path) -> tuple[list[Row], list[Row]]:
    """Return the rows, and the plans in the order in which they were made."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return [], []
    except OSError as error:
        raise InputError(
            f"rows must be a readable file, got '{path}' ({error.strerror}). "
            "Choose another output folder."
        ) from error
    rows: dict[str, Row] = {}
    plans: list[Row] = []
    broken: list[int] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            _ = _data_set_key(row["data"])
            if "plan" in row:
                _ = [_key({**row, "settings": settings}) for settings in row["plan"]]
                plans.append(row)
            elif "confirmed" in row:
                _confirm(rows, row, row["confirmed"])
            else:
                rows[_key(row)] = {**row, "result": row["result"]}
        except (ValueError, LookupError, TypeError, AttributeError):
            broken.append(number)
    if broken:
        warnings.warn(
            f"rows must be JSON lines with {', '.join(_IDENTITY)} and result, got {len(broken)} of "
            f"{len(lines)} other lines in '{path}' (first: line {broken[0]}). They are skipped, "
            "and their measurements are run again.",
            EaratlasWarning,
            stacklevel=3,
        )
    return list(rows.values()), plans


def _confirm(rows: dict[str, Row], line: Row, confirmed: dict[str, Any]) -> None:
    """Let rows that a line confirms count as measured by the code of their repetitions."""
    counts = {"repeated": confirmed["repeated"], "rows": len(confirmed["settings"])}
    for settings in confirmed["settings"]:
        key = _key({**line, "settings": settings})
        if key in rows and rows[key].get("code") == confirmed["from"]:
            rows[key] = {**rows[key], "code": confirmed["to"], "confirmed": counts}


def current_rows(experiment: Experiment, rows: Iterable[Row], *, quick: bool) -> list[Row]:
    """Return the rows or plans of this version, revision and size."""
    wanted = (earatlas.__version__, experiment.revision, quick)
    return [r for r in rows if (r["version"], r.get("revision", 1), r["quick"]) == wanted]


def group_by_data_set(experiment: Experiment, path: Path, *, quick: bool) -> list[DataSetRows]:
    """Return the rows of the newest plan of each data set, or all rows if a file has no plan."""
    every_row, every_plan = _read(path)
    rows = current_rows(experiment, every_row, quick=quick)
    newest: dict[str, tuple[dict[str, Any], list[Settings] | None]] = {}
    for row in rows:
        newest[_data_set_key(row["data"])] = row["data"], None
    for line in current_rows(experiment, every_plan, quick=quick):
        newest[_data_set_key(line["data"])] = line["data"], line["plan"]
    data_sets = []
    for data, plan in newest.values():
        data_rows = [row for row in rows if row["data"] == data]
        if plan is not None:
            wanted = {_canonical_json(settings) for settings in plan}
            data_rows = [row for row in data_rows if _canonical_json(row["settings"]) in wanted]
        settings = [row["settings"] for row in data_rows] if plan is None else plan
        data_sets.append(DataSetRows(data, data_rows, settings))
    return data_sets


def _data_set_key(data: dict[str, Any]) -> str:
    """Return the key of a data set; a changed built-in head replaces the earlier one."""
    built_in = data["head"] in BUILT_IN_HEADS
    return _canonical_json({k: v for k, v in data.items() if not (built_in and k == "fingerprint")})


def run_experiment(
    experiment: Experiment,
    bench: Bench,
    path: Path,
    *,
    jobs: int = 1,
    repeat_stale: bool = False,
    portion: float = 1.0,
    progress: Progress | None = None,
) -> tuple[list[Row], int]:
    """Run an experiment.

    Parameters
    ----------
    experiment : Experiment
        What to run.
    bench : Bench
        Head, speech and repetitions.
    path : Path
        File of the rows, which is appended to.
    jobs : int
        Number of processes.
    repeat_stale : bool
        Whether to measure planned rows again that were measured by other code.
    portion : float
        Share of the plan, from its beginning, that is measured now. Plans are ordered by
        repetition, so that a portion has every method.
    progress : callable, optional
        Called with the numbers of finished and planned rows.

    Returns
    -------
    rows : list of dict
        All rows of the portion of the plan.
    new : int
        Number of rows that were measured now; the others were in the file.

    """
    identity = experiment.identity(bench)
    planned = {**identity, "plan": experiment.plan(bench)}
    wanted = [
        {**identity, "settings": settings, "code": experiment.code(settings)}
        for settings in planned["plan"][: ceil(portion * len(planned["plan"]))]
    ]
    rows, plans = _read(path)
    existing = {_key(row): row for row in rows}
    earlier = [
        plan for plan in plans if _data_set_key(plan["data"]) == _data_set_key(planned["data"])
    ]
    newest = current_rows(experiment, earlier, quick=bench.quick)[-1:]
    new_lines = [planned] if _canonical_json(newest) != _canonical_json([planned]) else []
    kept = {key for key, row in existing.items() if not (repeat_stale and experiment.is_stale(row))}
    missing = [row for row in wanted if _key(row) not in kept]
    if not missing:
        append_lines(path, *new_lines)
    n_done = len(wanted) - len(missing)
    report = progress or (lambda _done, _total: None)
    report(n_done, len(wanted))
    for row in _measure_rows(experiment, bench, missing, jobs):
        existing[_key(row)] = row
        append_lines(path, *new_lines, row)  # the plan is written with its first row
        new_lines = []
        n_done += 1
        report(n_done, len(wanted))
    return [existing[_key(row)] for row in wanted], len(missing)


def append_lines(path: Path, *lines: Row) -> None:
    """Append rows, plans and confirmations to a file."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    if not text:
        return
    try:
        with path.open("ab+") as handle:
            handle.seek(max(handle.seek(0, 2) - 1, 0))
            cut = handle.read() not in (b"", b"\n")  # a crash may leave an incomplete line
            handle.write(b"\n" * cut + text.encode())
    except OSError as error:
        raise InputError(
            f"rows must be a writable file, got '{path}' ({error.strerror}). "
            "Choose another output folder."
        ) from error


def _measure_rows(
    experiment: Experiment, bench: Bench, missing: Sequence[Row], jobs: int
) -> Iterator[Row]:
    """Yield the rows with their results, in the order of completion."""
    if jobs == 1 or len(missing) < 2:
        for row in missing:
            yield measure_row(experiment.measure, bench, row)
        return
    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
    yield from parallel(
        joblib.delayed(measure_row)(experiment.measure, bench, row) for row in missing
    )


def measure_row(measure: Measure, bench: Bench, row: Row) -> Row:
    """Return a row with its result and the seconds of CPU time."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EaratlasWarning)  # the tables state what is omitted
        result = measure(bench, row["settings"])
    return {**row, "result": result, "seconds": round(time.process_time() - start, 2)}
