"""A batch on the command line: its bar, its lines, its end.

In: a `Work` and its files. Out: an answer a file as it is done, a bar with files, pace and time
left meanwhile, and a table at the end. The exit code is 1 if some failed. Ctrl-C, SIGTERM and
SIGHUP end all processes of the batch; nothing is half-written, and a line says how to go on.
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
from rich.table import Table

from earatlas.batch.batch import (
    SUMMARY,
    Batch,
    Hands,
    SummaryError,
    planned,
    run,
    to_replace,
)
from earatlas.batch.eta import Pace
from earatlas.batch.job import Outcome, Work
from earatlas.cli import Stopped
from earatlas.cli.console import Tally, Warned, err, note, out, print_json
from earatlas.cli.outputs import Outputs, tell_replaced
from earatlas.errors import InputError, harmless
from earatlas.files import output_folder
from earatlas.wording import length_words

__all__ = ["BatchOptions", "run_batch"]

_MOST_NAMED = 20  # failures in the table; batch.jsonl has all
_LONGEST_COMMAND = 300  # letters of a command that is told whole
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


@dataclass(frozen=True)
class BatchOptions:
    """How a batch is to be run."""

    jobs: int = 1
    resume: bool = False
    scheduler: str | None = None  # the address of a Dask scheduler
    force: bool = False
    as_json: bool = False

    def __post_init__(self) -> None:
        Hands(self.jobs)  # refuses what is no number of processes
        if self.scheduler is not None and self.jobs > 1:
            raise InputError(
                f"--jobs must go without --scheduler, got {self.jobs}. A cluster has as many at a "
                "time as it has workers."
            )

    def files(self, files: Sequence[Path]) -> tuple[Path, ...]:
        """The files as those who do the work see them: a cluster has current folders of its own."""
        return tuple(files) if self.scheduler is None else tuple(f.absolute() for f in files)

    def folder(self, folder: Path) -> Path:
        """The same for the folder of the results."""
        return folder if self.scheduler is None else folder.absolute()


class _InterruptedError(BaseException):
    """A signal asked for an end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run_batch(
    work: Work,
    files: Sequence[Path],
    how: BatchOptions,
    show: Callable[[dict[str, Any]], None],
) -> None:
    """Do a batch and tell of it; `show` prints an answer for people."""
    _check_sidecars(work, files, force=how.force)
    batch = planned(work, files, resume=how.resume)
    tally = Tally(len(files), as_json=how.as_json, what=work.what)
    warned = Warned(len(files), work.what)
    lost: SummaryError | None = None
    with output_folder(work.folder), _ended_by_signals(batch, how) as told, _client(how) as client:
        _tell_plan(batch)
        bar = _Bar(batch)
        with bar, closing(run(batch, Hands(how.jobs, client), bar.tell)) as outcomes:
            try:
                for outcome in outcomes:
                    told.append(outcome)
                    bar.finish(outcome)
                    with bar.hidden():
                        if outcome.status != "skipped":
                            warned.tell(outcome.file, outcome.warnings)
                        _tell(outcome, tally, how, show)
            except SummaryError as error:
                lost = error
    warned.close()
    if len(files) > 1:
        _tell_end(batch, told, bar.pace, as_json=how.as_json)
    if lost is not None:
        raise lost
    if len(files) > 1:
        note("[cyan]batch:[/]", str(batch.work.folder / SUMMARY))
    tally.close()


def _check_sidecars(work: Work, files: Sequence[Path], *, force: bool) -> None:
    """Refuse to replace what no batch wrote; what one wrote is told when it is replaced."""
    outputs = Outputs(force=force)
    for path, ours in to_replace(work, files):
        outputs.claim_in_folder(path, ours)


def _client(how: BatchOptions) -> Any:
    if how.scheduler is None:
        return nullcontext()
    from earatlas.batch.cluster import connected

    return connected(how.scheduler)


# --- the end, wished or not -----------------------------------------------------------------


@contextmanager
def _ended_by_signals(batch: Batch, how: BatchOptions) -> Iterator[list[Outcome]]:
    """What was told so far; a signal ends the batch, and how to go on is said."""

    def stop(number: int, _: object) -> None:
        for one in caught:  # once is enough: what is left is tidying up
            signal.signal(one, signal.SIG_IGN)
        raise _InterruptedError(number)

    caught, before = [], {}
    told: list[Outcome] = []
    try:
        for one in (getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)):
            if signal.getsignal(one) is not signal.SIG_IGN:  # as nohup(1) wishes it
                with suppress(ValueError):  # not in the main thread, which has the signals
                    before[one] = signal.signal(one, stop)
                    caught.append(one)
        yield told
    except _InterruptedError as interrupted:
        with suppress(OSError):  # the terminal may be gone
            _tell_stop(batch, told, how)
        raise Stopped(128 + interrupted.number) from None  # as shells have it
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _tell_stop(batch: Batch, told: Sequence[Outcome], how: BatchOptions) -> None:
    """How far it is, and how to go on."""
    done = sum(outcome.status != "failed" for outcome in told)
    words = [*sys.argv[1:], *([] if how.resume else ["--resume"])]
    command = f"earatlas {shlex.join(words)}"
    if len(command) > _LONGEST_COMMAND:
        command = "the same command and --resume"
    note(
        "[yellow]stopped:[/]",
        f"{done} of {len(batch.files)} {batch.work.what} are done. Go on with: {command}",
    )


# --- what is told ---------------------------------------------------------------------------


def _tell_plan(batch: Batch) -> None:
    """What is skipped, and what is done again, and why."""
    if batch.kept:
        note("[cyan]resume:[/]", f"{len(batch.kept)} of {len(batch.files)} are done already.")
    for why, count in Counter(batch.again.values()).most_common():
        first = next(file for file, reason in batch.again.items() if reason == why)
        others = f" and {count - 1} more" if count > 1 else ""
        note("[cyan]again:[/]", f"{first}{others}: {why}.")


def _tell(
    outcome: Outcome, tally: Tally, how: BatchOptions, show: Callable[[dict[str, Any]], None]
) -> None:
    """An answer, or why there is none."""
    if outcome.status == "skipped":
        if how.as_json:
            print_json({**(outcome.answer or {}), "skipped": True})
        return
    tell_replaced(list(outcome.replaced))
    if outcome.removed:
        note("[yellow]removed, of an earlier run:[/]", ", ".join(outcome.removed))
    if outcome.bug is not None:
        err.print(outcome.bug, markup=False, highlight=False, soft_wrap=True)
        if tally.total == 1:  # as every bug ends a command
            raise SystemExit(1)
    if outcome.answer is None:
        tally.fail(outcome.file, outcome.error or "")
    elif how.as_json:
        print_json(outcome.answer)
    else:
        show(outcome.answer)


def _tell_end(batch: Batch, told: Sequence[Outcome], pace: Pace, *, as_json: bool) -> None:
    """The table of the batch; beside answers in JSON it goes to standard error."""
    count = Counter(outcome.status for outcome in told)
    again = sum(outcome.again is not None and outcome.status == "done" for outcome in told)
    table = Table(box=None, padding=(0, 2), show_header=False)
    speed = f"{length_words(pace.seconds)}{_speed(batch, pace)}" if count["done"] else ""
    table.add_row("done", str(count["done"]), speed)
    if again:
        table.add_row("", str(again), "of them again")
    table.add_row("skipped", str(count["skipped"]), "done before" if count["skipped"] else "")
    table.add_row("failed", str(count["failed"]), "")
    where = err if as_json else out
    where.print(table, highlight=False)
    failed = [outcome for outcome in told if outcome.status == "failed"]
    # Below the table, whose columns would break names and reasons in the midst of a word.
    for outcome in failed[:_MOST_NAMED]:
        words = escape(harmless(f"    {outcome.file.name}: {outcome.error}"))
        where.print(words, highlight=False, soft_wrap=True)
    if len(failed) > _MOST_NAMED:
        where.print(f"    and {len(failed) - _MOST_NAMED} more", highlight=False)


def _speed(batch: Batch, pace: Pace) -> str:
    return f", {pace.rate:.1f} s of sound a second" if _has_sound(batch) else ""


def _has_sound(batch: Batch) -> bool:
    return batch.work.what == "recordings"


class _Bar:
    """Files, seconds of sound a second, and the time left; shown on a terminal alone."""

    def __init__(self, batch: Batch) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        todo, work = batch.todo, batch.work
        # Of heads one is as good as another.
        amounts = [work.amount(file) for file in todo] if _has_sound(batch) else [1.0] * len(todo)
        self.pace, self._batch = Pace(amounts), batch
        self._skipped = len(batch.kept)
        self._numbers = {file: number for number, file in enumerate(todo)}
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[words]}"),
        )
        self._bar = Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
        self._task = self._bar.add_task(
            escape(harmless(self._label())), total=max(self.pace.total, 1e-9), words=""
        )

    def __enter__(self) -> None:
        self._bar.start()

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _label(self) -> str:
        files, done = self._batch.files, self._skipped + self.pace.files
        if len(files) == 1:
            return f"{self._batch.work.command} {files[0].name}"
        return f"{self._batch.work.command} {done} of {len(files)}"

    def tell(self, number: int, share: float) -> None:
        """So much of one of what is to be done."""
        self.pace.share(number, share)
        self._update()

    def finish(self, outcome: Outcome) -> None:
        """That one is done."""
        if outcome.file in self._numbers:
            self.pace.finish(self._numbers[outcome.file])
        self._update()

    def _update(self) -> None:
        left = self.pace.seconds_left
        words = "" if left is None else f"{length_words(left)} left{_speed(self._batch, self.pace)}"
        self._bar.update(
            self._task,
            completed=self.pace.done,
            description=escape(harmless(self._label())),
            words=words,
        )

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """While something is printed: nothing can be while a bar is shown."""
        self._bar.stop()
        yield
        self._bar.start()
