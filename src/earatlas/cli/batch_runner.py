"""Run a batch job from the command line: results, progress bar and summary.

Each file's result is printed when it is done. A progress bar shows the number of files, the speed
and the remaining time, and a table at the end sums up. The exit code is 1 if a file failed. Ctrl-C,
SIGTERM and SIGHUP end all processes of the batch: no file is half-written, and a line tells how to
continue.
"""

from __future__ import annotations

import shlex
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape

from earatlas.batch.batch import (
    SUMMARY_FILE,
    Batch,
    Executor,
    SummaryError,
    execute_batch,
    existing_outputs,
    plan_batch,
)
from earatlas.batch.eta import TimeEstimate
from earatlas.batch.job import BatchJob, Outcome
from earatlas.cli import StoppedBySignal
from earatlas.cli.console import FailureTally, FileWarnings, err, out, print_json, print_note
from earatlas.cli.outputs import OutputFiles, print_replaced
from earatlas.errors import InputError, sanitize
from earatlas.files import output_folder
from earatlas.wording import format_duration

__all__ = ["BatchOptions", "run_batch"]

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


@dataclass(frozen=True)
class BatchOptions:
    """Options of a batch on the command line."""

    jobs: int = 1
    resume: bool = False
    scheduler: str | None = None  # address of a Dask scheduler
    force: bool = False
    as_json: bool = False

    def __post_init__(self) -> None:
        Executor(self.jobs)  # validates the number of processes
        if self.scheduler is not None and self.jobs > 1:
            raise InputError(
                f"--jobs must be used without --scheduler, got {self.jobs}. Remove it: a cluster "
                "runs one job per worker."
            )

    def files(self, files: Sequence[Path]) -> tuple[Path, ...]:
        """Return the files as workers see them: absolute paths for a cluster."""
        return tuple(files) if self.scheduler is None else tuple(f.absolute() for f in files)

    def folder(self, folder: Path) -> Path:
        """Return the folder of the results as workers see it."""
        return folder if self.scheduler is None else folder.absolute()


class _InterruptedError(BaseException):
    """Raised by a signal handler to end the batch."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run_batch(
    job: BatchJob,
    files: Sequence[Path],
    options: BatchOptions,
    show: Callable[[dict[str, Any]], None],
) -> None:
    """Run a batch job on files; `show` prints the result of one file as text."""
    _check_sidecars(job, files, force=options.force)
    batch = plan_batch(job, files, resume=options.resume)
    tally = FailureTally(len(files), as_json=options.as_json, file_kind=job.file_kind)
    file_warnings = FileWarnings(len(files), job.file_kind)
    summary_error: SummaryError | None = None
    with (
        output_folder(job.folder),
        _stop_on_signal(batch, options) as outcomes,
        _client(options) as client,
    ):
        _print_plan(batch)
        bar = _Bar(batch)
        with (
            bar,
            closing(execute_batch(batch, Executor(options.jobs, client), bar.update)) as running,
        ):
            try:
                for outcome in running:
                    outcomes.append(outcome)
                    bar.finish(outcome)
                    with bar.hidden():
                        if outcome.status != "skipped":
                            file_warnings.add(outcome.file, outcome.warnings)
                        _print_outcome(outcome, tally, options, show)
            except SummaryError as error:
                summary_error = error
    file_warnings.close()
    if len(files) > 1:
        _print_summary(batch, outcomes, bar.pace, as_json=options.as_json)
    if summary_error is not None:
        raise summary_error
    if len(files) > 1:
        print_note("[cyan]batch:[/]", str(batch.job.folder / SUMMARY_FILE))
    tally.close()


def _check_sidecars(job: BatchJob, files: Sequence[Path], *, force: bool) -> None:
    """Refuse to replace files that were not written by a batch, unless forced."""
    outputs = OutputFiles(force=force)
    for path, replaceable in existing_outputs(job, files):
        outputs.claim_in_folder(path, replaceable)


def _client(options: BatchOptions) -> Any:
    """Return a context manager for the client of the Dask scheduler, if there is one."""
    if options.scheduler is None:
        return nullcontext()
    from earatlas.batch.cluster import cluster_client

    return cluster_client(options.scheduler)


# --- signals --------------------------------------------------------------------------------


@contextmanager
def _stop_on_signal(batch: Batch, options: BatchOptions) -> Iterator[list[Outcome]]:
    """Yield a list for the outcomes; a signal ends the batch and prints how to continue."""

    def stop(number: int, _: object) -> None:
        for other in caught:  # ignore further signals during the cleanup
            signal.signal(other, signal.SIG_IGN)
        raise _InterruptedError(number)

    caught, previous = [], {}
    outcomes: list[Outcome] = []
    try:
        for kind in (getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)):
            if signal.getsignal(kind) is not signal.SIG_IGN:  # nohup(1) ignores SIGHUP
                with suppress(ValueError):  # only the main thread can set handlers
                    previous[kind] = signal.signal(kind, stop)
                    caught.append(kind)
        yield outcomes
    except _InterruptedError as interrupted:
        with suppress(OSError):  # the terminal may be closed
            _print_stopped(batch, outcomes, options)
        raise StoppedBySignal(128 + interrupted.number) from None  # the convention of shells
    finally:
        for kind, handler in previous.items():
            signal.signal(kind, handler)


def _print_stopped(batch: Batch, outcomes: Sequence[Outcome], options: BatchOptions) -> None:
    """Print how many files are done, and the command that continues."""
    done = sum(outcome.status != "failed" for outcome in outcomes)
    arguments = [*sys.argv[1:], *([] if options.resume else ["--resume"])]
    command = f"earatlas {shlex.join(arguments)}"
    if len(command) > 300:  # characters; a long command is not repeated
        command = "the same command with --resume"
    print_note(
        "[yellow]stopped:[/]",
        f"{done} of {len(batch.files)} {batch.job.file_kind} are done. Continue with: {command}",
    )


# --- output ---------------------------------------------------------------------------------


def _print_plan(batch: Batch) -> None:
    """Print how many files are skipped, and which are processed again and why."""
    if batch.skipped:
        print_note(
            "[cyan]resume:[/]", f"{len(batch.skipped)} of {len(batch.files)} are done already."
        )
    for why, count in Counter(batch.rerun.values()).most_common():
        first = next(file for file, reason in batch.rerun.items() if reason == why)
        others = f" and {count - 1} more" if count > 1 else ""
        print_note("[cyan]again:[/]", f"{first}{others}: {why}.")


def _print_outcome(
    outcome: Outcome,
    tally: FailureTally,
    options: BatchOptions,
    show: Callable[[dict[str, Any]], None],
) -> None:
    """Print the result of a file, or why it failed."""
    if outcome.status == "skipped":
        if options.as_json:
            print_json({**(outcome.answer or {}), "skipped": True})
        return
    print_replaced(list(outcome.replaced))
    if outcome.removed:
        print_note("[yellow]removed, from an earlier run:[/]", ", ".join(outcome.removed))
    if outcome.traceback_text is not None:
        err.print(outcome.traceback_text, markup=False, highlight=False, soft_wrap=True)
        if tally.total == 1:  # the exit code of any uncaught exception
            raise SystemExit(1)
    if outcome.answer is None:
        tally.fail(outcome.file, outcome.error or "")
    elif options.as_json:
        print_json(outcome.answer)
    else:
        show(outcome.answer)


def _print_summary(
    batch: Batch, outcomes: Sequence[Outcome], pace: TimeEstimate, *, as_json: bool
) -> None:
    """Print the summary table; with `as_json`, to standard error."""
    from rich.table import Table

    count = Counter(outcome.status for outcome in outcomes)
    rerun = sum(outcome.rerun is not None and outcome.status == "done" for outcome in outcomes)
    table = Table(box=None, padding=(0, 2), show_header=False)
    speed = f"{format_duration(pace.seconds)}{_speed(batch, pace)}" if count["done"] else ""
    table.add_row("done", str(count["done"]), speed)
    if rerun:
        table.add_row("", str(rerun), "of them processed again")
    table.add_row("skipped", str(count["skipped"]), "done before" if count["skipped"] else "")
    table.add_row("failed", str(count["failed"]), "")
    console = err if as_json else out
    console.print(table, highlight=False)
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    # Below the table, because its columns would break names within words.
    n_listed = 20  # batch.jsonl has all
    for outcome in failed[:n_listed]:
        line = escape(sanitize(f"    {outcome.file.name}: {outcome.error}"))
        console.print(line, highlight=False, soft_wrap=True)
    if len(failed) > n_listed:
        console.print(f"    and {len(failed) - n_listed} more", highlight=False)


def _speed(batch: Batch, pace: TimeEstimate) -> str:
    """Return the processing speed for recordings, and nothing for heads."""
    return f", {pace.rate:.1f} s of sound per second" if _has_sound(batch) else ""


def _has_sound(batch: Batch) -> bool:
    """Whether the files are recordings, whose workload is measured in seconds of sound."""
    return batch.job.file_kind == "recordings"


class _Bar:
    """Progress bar with files, speed and remaining time; shown only on a terminal."""

    def __init__(self, batch: Batch) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        pending, job = batch.pending, batch.job
        # Heads all count the same.
        amounts = (
            [job.workload(file) for file in pending] if _has_sound(batch) else [1.0] * len(pending)
        )
        self.pace, self._batch = TimeEstimate(amounts), batch
        self._skipped = len(batch.skipped)
        self._numbers = {file: number for number, file in enumerate(pending)}
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[status]}"),
        )
        self._bar = Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
        self._task = self._bar.add_task(
            escape(sanitize(self._label())), total=max(self.pace.total, 1e-9), status=""
        )

    def __enter__(self) -> None:
        self._bar.start()

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _label(self) -> str:
        files, done = self._batch.files, self._skipped + self.pace.files
        if len(files) == 1:
            return f"{self._batch.job.command} {files[0].name}"
        return f"{self._batch.job.command} {done} of {len(files)}"

    def update(self, number: int, share: float) -> None:
        """Record the completed fraction of one pending file."""
        self.pace.share(number, share)
        self._redraw()

    def finish(self, outcome: Outcome) -> None:
        """Record that a file is done."""
        if outcome.file in self._numbers:
            self.pace.finish(self._numbers[outcome.file])
        self._redraw()

    def _redraw(self) -> None:
        left = self.pace.remaining_seconds
        status = (
            "" if left is None else f"{format_duration(left)} left{_speed(self._batch, self.pace)}"
        )
        self._bar.update(
            self._task,
            completed=self.pace.done,
            description=escape(sanitize(self._label())),
            status=status,
        )

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Hide the bar while results are printed."""
        self._bar.stop()
        yield
        self._bar.start()
