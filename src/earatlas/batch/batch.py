"""A batch: what is to be done of it, what is done already, and what came of all of it.

In: a `Work`, files, and who does it. Out: an `Outcome` of every file, the skipped ones first, then
as they are done; results and a sidecar each in the folder of the work; and, at the end, the file
batch.jsonl there: a line a file, in the order they were given, also of those that failed and, where
the batch was interrupted, those that are still open.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from earatlas.batch.job import Outcome, Work
from earatlas.batch.sidecar import (
    Recipe,
    Sidecar,
    is_damaged,
    read_sidecar,
    sidecar_path,
    why_again,
)
from earatlas.batch.worker_pool import Tell, alone, together
from earatlas.errors import InputError
from earatlas.files import clear_scratch, written_whole

__all__ = [
    "SUMMARY",
    "Batch",
    "Hands",
    "SummaryError",
    "check_jobs",
    "planned",
    "run",
    "to_replace",
]

SUMMARY = "batch.jsonl"


class SummaryError(InputError):
    """All was done that could be, and the summary of it could not be written."""


@dataclass(frozen=True)
class Hands:
    """Who does the work: so many processes here, or those of a Dask cluster."""

    jobs: int = 1
    client: Any = None  # a dask.distributed.Client

    def __post_init__(self) -> None:
        check_jobs(self.jobs)


def check_jobs(jobs: int) -> None:
    """Refuse what is no number of processes."""
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}. Take the number of your cores.")


@dataclass(frozen=True)
class Batch:
    """What is to be done, and what is done already."""

    work: Work
    files: tuple[Path, ...]
    kept: dict[Path, Sidecar]  # done before, and holds still
    again: dict[Path, str]  # done before, and why that does not hold

    @property
    def todo(self) -> tuple[Path, ...]:
        """What is left, in the order it was given."""
        return tuple(file for file in self.files if file not in self.kept)


def planned(work: Work, files: Sequence[Path], *, resume: bool) -> Batch:
    """A batch; with `resume`, what was done with the same settings and files is kept."""
    kept: dict[Path, Sidecar] = {}
    again: dict[Path, str] = {}
    recipe = work.recipe()
    for file in files if resume else ():
        path = sidecar_path(work.folder, file)
        sidecar = read_sidecar(path)
        if sidecar is None:
            if path.is_file() and is_damaged(path):
                again[file] = "a damaged sidecar"
            continue
        why = _why_again(work, recipe, file, sidecar)
        if why is None:
            kept[file] = sidecar
        else:
            again[file] = why
    return Batch(work, tuple(files), kept, again)


def to_replace(work: Work, files: Sequence[Path]) -> Iterator[tuple[Path, bool]]:
    """What is there already under the names of sidecars and summary, and whether a batch wrote it.

    Both go by their contents.
    """
    for file in files:
        path = sidecar_path(work.folder, file)
        if path.exists():
            yield path, path.is_file() and (read_sidecar(path) is not None or is_damaged(path))
    path = work.folder / SUMMARY
    if len(files) > 1 and path.exists():
        yield path, _is_summary(path)


def _is_summary(path: Path) -> bool:
    if not path.is_file():  # of a pipe nothing may ever come
        return False
    try:
        with path.open("rb") as file:
            first = json.loads(file.readline(1 << 24))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(first, dict) and {"file", "status"} <= first.keys()


def _why_again(work: Work, recipe: Recipe, file: Path, sidecar: Sidecar) -> str | None:
    try:
        work.outputs(sidecar.answer)
    except (LookupError, TypeError):
        return "an answer that was changed"
    try:
        return why_again(sidecar, recipe, work.inputs(file), work.folder)
    except InputError:  # a table that cannot be read: that is told when it is done
        return "other contents of the file"


def run(batch: Batch, hands: Hands, tell: Tell) -> Generator[Outcome, None, None]:
    """The outcomes of a batch; `tell` is told how far each of `batch.todo` is."""
    with _summary(batch) as outcomes:
        for file, sidecar in batch.kept.items():
            answer = _as_now(batch.work, file, sidecar)
            outcomes[file] = Outcome(file, "skipped", answer, warnings=sidecar.warnings)
            yield outcomes[file]
        for _, outcome in _worked(batch, hands, tell):
            again = batch.again.get(outcome.file)
            outcomes[outcome.file] = outcome = replace(outcome, again=again)
            yield outcome


def _as_now(work: Work, file: Path, sidecar: Sidecar) -> dict[str, Any]:
    """The answer of a sidecar with the names that its files have now: folders may have moved."""
    names: dict[str, str] = {}
    for old, mark in zip(work.outputs(sidecar.answer), sidecar.outputs, strict=False):
        new = work.folder / mark.file
        names |= {str(old): str(new), str(old.parent): str(new.parent)}
    if isinstance(sidecar.answer.get("file"), str):
        names[sidecar.answer["file"]] = str(file)
    renamed: dict[str, Any] = _renamed(sidecar.answer, names)
    return renamed


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """JSON values in which some strings are others."""
    if isinstance(value, dict):
        return {key: _renamed(part, names) for key, part in value.items()}
    if isinstance(value, list):
        return [_renamed(part, names) for part in value]
    return names.get(value, value) if isinstance(value, str) else value


def _worked(batch: Batch, hands: Hands, tell: Tell) -> Iterator[tuple[int, Outcome]]:
    work, recipe, todo = batch.work, batch.work.recipe(), batch.todo
    if hands.client is not None:
        from earatlas.batch.cluster import on_cluster

        return on_cluster(work, recipe, todo, hands.client)
    jobs = min(hands.jobs, len(todo))
    return together(work, recipe, todo, jobs, tell) if jobs > 1 else alone(work, recipe, todo, tell)


@contextmanager
def _summary(batch: Batch) -> Iterator[dict[Path, Outcome]]:
    """Outcomes by file, which are written down at the end, whatever that is."""
    outcomes: dict[Path, Outcome] = {}
    try:
        yield outcomes
    except BaseException:
        with suppress(SummaryError):  # how it ended is what is to be told
            _write_summary(batch, outcomes)
        raise
    _write_summary(batch, outcomes)


def _write_summary(batch: Batch, outcomes: dict[Path, Outcome]) -> None:
    clear_scratch(batch.work.folder)
    if len(batch.files) == 1 or not outcomes:
        return
    try:
        with written_whole(batch.work.folder / SUMMARY, SUMMARY) as scratch:
            lines = (_line(batch, file, outcomes.get(file)) for file in batch.files)
            text = "".join(f"{json.dumps(line)}\n" for line in lines)
            scratch.write_text(text, encoding="utf-8", newline="\n")
    except InputError as error:
        raise SummaryError(error) from error


def _line(batch: Batch, file: Path, outcome: Outcome | None) -> dict[str, Any]:
    told: dict[str, Any] = {"file": str(file), "status": "open"}
    if outcome is None:
        return told
    told |= {"status": outcome.status, "seconds": outcome.seconds, "again": outcome.again}
    told |= {"error": outcome.error, "warnings": list(outcome.warnings)}
    if outcome.bug is not None:
        told["traceback"] = outcome.bug
    if outcome.answer is not None:
        told["sidecar"] = sidecar_path(batch.work.folder, file).name
        told["answer"] = outcome.answer
    return told
