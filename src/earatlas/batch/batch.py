"""Plan and execute a batch, and write its summary.

The inputs are a `BatchJob`, files and an `Executor`. The outputs are an `Outcome` per file (skipped
files first, then in the order of completion), the results with a sidecar per file in the folder of
the job, and at the end the file batch.jsonl in that folder. It has one line per file in the order
in which they were given, also for files that failed and, if the batch was interrupted, for files
that were not processed ("open").
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from earatlas.batch.job import BatchJob, Outcome
from earatlas.batch.sidecar import (
    Recipe,
    Sidecar,
    is_damaged,
    read_sidecar,
    rerun_reason,
    sidecar_path,
)
from earatlas.errors import InputError
from earatlas.files import atomic_write, recover_scratch

if TYPE_CHECKING:
    from earatlas.batch.worker_pool import ShareCallback

__all__ = [
    "SUMMARY_FILE",
    "Batch",
    "Executor",
    "SummaryError",
    "check_jobs",
    "execute_batch",
    "existing_outputs",
    "plan_batch",
]

SUMMARY_FILE = "batch.jsonl"  # name within the output folder


class SummaryError(InputError):
    """The batch is finished, but its summary could not be written."""


@dataclass(frozen=True)
class Executor:
    """Where a batch runs: in `jobs` local processes, or on a Dask cluster."""

    jobs: int = 1
    client: Any = None  # a dask.distributed.Client

    def __post_init__(self) -> None:
        check_jobs(self.jobs)


def check_jobs(jobs: int) -> None:
    """Raise InputError unless `jobs` is a valid number of processes."""
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}. Use the number of your cores.")


@dataclass(frozen=True)
class Batch:
    """The files of a batch, divided into those to skip and those to process."""

    job: BatchJob
    files: tuple[Path, ...]
    skipped: dict[Path, Sidecar]  # processed before, results still valid
    rerun: dict[Path, str]  # processed before, with the reason to do it again

    @property
    def pending(self) -> tuple[Path, ...]:
        """Files to process, in the order in which they were given."""
        return tuple(file for file in self.files if file not in self.skipped)


def plan_batch(job: BatchJob, files: Sequence[Path], *, resume: bool) -> Batch:
    """Plan a batch; with `resume`, files that were processed with the same settings are skipped."""
    skipped: dict[Path, Sidecar] = {}
    rerun: dict[Path, str] = {}
    recipe = job.recipe()
    for file in files if resume else ():
        path = sidecar_path(job.folder, file)
        sidecar = read_sidecar(path)
        if sidecar is None:
            if path.is_file() and is_damaged(path):
                rerun[file] = "the sidecar is damaged"
            continue
        reason = _rerun_reason_of_file(job, recipe, file, sidecar)
        if reason is None:
            skipped[file] = sidecar
        else:
            rerun[file] = reason
    return Batch(job, tuple(files), skipped, rerun)


def existing_outputs(job: BatchJob, files: Sequence[Path]) -> Iterator[tuple[Path, bool]]:
    """Yield existing results, sidecars and summary, and whether an earlier batch wrote each.

    The contents of the files decide that, or for results the sidecar that lists them.
    """
    for file in files:
        sidecar = sidecar_path(job.folder, file)
        if sidecar.exists():
            yield sidecar, _certainly(_is_own_sidecar, sidecar)
        for output in job.claimed_outputs(file):
            if output.exists():
                yield output, _certainly(_is_own_output, job, output, sidecar)
    path = job.folder / SUMMARY_FILE
    if len(files) > 1 and path.exists():
        yield path, _certainly(_is_summary, path)


def _certainly(is_own: Callable[..., bool], *arguments: object) -> bool:
    """Return whether a file is recognized at the first or at the second attempt.

    While another batch replaces a file, it is missing for a moment.
    """
    return is_own(*arguments) or is_own(*arguments)


def _is_own_sidecar(path: Path) -> bool:
    """Return whether a file is a sidecar, or a damaged one."""
    return path.is_file() and (read_sidecar(path) is not None or is_damaged(path))


def _is_own_output(job: BatchJob, path: Path, sidecar_file: Path) -> bool:
    """Return whether an earlier batch wrote a result."""
    try:
        if not path.is_file():
            return False
        if job.is_own_output(path) or path.stat().st_size == 0:
            return True
    except FileNotFoundError:
        return False
    sidecar = read_sidecar(sidecar_file)
    return sidecar is not None and any(
        job.folder / output.file == path and output.matches(path) for output in sidecar.outputs
    )


def _is_summary(path: Path) -> bool:
    """Return whether a file is the summary of a batch."""
    if not path.is_file():  # reading from a pipe could block forever
        return False
    try:
        with path.open("rb") as file:
            first = json.loads(file.readline(1 << 24))  # 16 MB at most
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(first, dict) and {"file", "status"} <= first.keys()


def _rerun_reason_of_file(
    job: BatchJob, recipe: Recipe, file: Path, sidecar: Sidecar
) -> str | None:
    """Return why a file must be processed again, or None if its sidecar and results are valid."""
    try:
        job.outputs(sidecar.answer)
    except (LookupError, TypeError):
        return "the answer in the sidecar was changed"
    try:
        return rerun_reason(sidecar, recipe, job.inputs(file), job.folder)
    except InputError:  # an unreadable table: reported when the file is processed
        return "the contents of the file changed"


def execute_batch(
    batch: Batch, executor: Executor, report: ShareCallback
) -> Generator[Outcome, None, None]:
    """Yield the outcomes of a batch; `report` receives the progress of each of `batch.pending`."""
    with _summary_writer(batch) as outcomes:
        for file, sidecar in batch.skipped.items():
            answer = _with_current_paths(batch.job, file, sidecar)
            outcomes[file] = Outcome(file, "skipped", answer, warnings=sidecar.warnings)
            yield outcomes[file]
        for _, outcome in _execute(batch, executor, report):
            rerun = batch.rerun.get(outcome.file)
            outcomes[outcome.file] = outcome = replace(outcome, rerun=rerun)
            yield outcome


def _with_current_paths(job: BatchJob, file: Path, sidecar: Sidecar) -> dict[str, Any]:
    """Return the answer of a sidecar with the current paths of its files, which may have moved."""
    names: dict[str, str] = {}
    for old, fingerprint in zip(job.outputs(sidecar.answer), sidecar.outputs, strict=False):
        new = job.folder / fingerprint.file
        names |= {str(old): str(new), str(old.parent): str(new.parent)}
    if isinstance(sidecar.answer.get("file"), str):
        names[sidecar.answer["file"]] = str(file)
    current: dict[str, Any] = _replace_strings(sidecar.answer, names)
    return current


def _replace_strings(value: Any, names: dict[str, str]) -> Any:
    """Return JSON values in which some strings are replaced."""
    if isinstance(value, dict):
        return {key: _replace_strings(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_replace_strings(item, names) for item in value]
    return names.get(value, value) if isinstance(value, str) else value


def _execute(
    batch: Batch, executor: Executor, report: ShareCallback
) -> Iterator[tuple[int, Outcome]]:
    """Yield (index, outcome) of the pending files from the chosen executor."""
    job, recipe, pending = batch.job, batch.job.recipe(), batch.pending
    if executor.client is not None:
        from earatlas.batch.cluster import run_on_cluster

        return run_on_cluster(job, recipe, pending, executor.client)
    from earatlas.batch.worker_pool import run_parallel, run_serial

    jobs = min(executor.jobs, len(pending))
    return (
        run_parallel(job, recipe, pending, jobs, report)
        if jobs > 1
        else run_serial(job, recipe, pending, report)
    )


@contextmanager
def _summary_writer(batch: Batch) -> Iterator[dict[Path, Outcome]]:
    """Yield a dictionary of outcomes by file; write the summary at the end, also after an error."""
    outcomes: dict[Path, Outcome] = {}
    try:
        yield outcomes
    except BaseException:
        with suppress(SummaryError):  # the original error is reported
            _write_summary(batch, outcomes)
        raise
    _write_summary(batch, outcomes)


def _write_summary(batch: Batch, outcomes: dict[Path, Outcome]) -> None:
    """Write batch.jsonl; a batch with a single file has no summary."""
    recover_scratch(batch.job.folder)
    if len(batch.files) == 1 or not outcomes:
        return
    try:
        with atomic_write(batch.job.folder / SUMMARY_FILE, SUMMARY_FILE) as scratch:
            lines = (_summary_line(batch, file, outcomes.get(file)) for file in batch.files)
            text = "".join(f"{json.dumps(line)}\n" for line in lines)
            scratch.write_text(text, encoding="utf-8", newline="\n")
    except InputError as error:
        raise SummaryError(error) from error


def _summary_line(batch: Batch, file: Path, outcome: Outcome | None) -> dict[str, Any]:
    """Return the line of a file in batch.jsonl."""
    line: dict[str, Any] = {"file": str(file), "status": "open"}
    if outcome is None:
        return line
    line |= {"status": outcome.status, "seconds": outcome.seconds, "again": outcome.rerun}
    line |= {"error": outcome.error, "warnings": list(outcome.warnings)}
    if outcome.traceback_text is not None:
        line["traceback"] = outcome.traceback_text
    if outcome.answer is not None:
        line["sidecar"] = sidecar_path(batch.job.folder, file).name
        line["answer"] = outcome.answer
    return line
