"""Who does the work of a batch on this machine: this process alone, or several beside each other.

In: a `Work` and files. Out: (number, `Outcome`) of each, as soon as it is known. What a file needs
beside its name, such as the atlas, is sent once: processes read it from a scratch file.

A process that is ended by the system (memory, a crash in a library) takes what its pool had begun
with it. Those few files are done once more, one at a time: so the one that did it is known, and
fails alone. However a batch ends, no process of it stays: they are killed when it is
interrupted, and end themselves when there is no one left to work for.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from itertools import islice
from multiprocessing import get_context, resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from earatlas.batch.job import Outcome, Work, done
from earatlas.batch.sidecar import Recipe
from earatlas.files import clear_scratch
from earatlas.threads import one_thread

__all__ = ["Tell", "alone", "together"]

Tell = Callable[[int, float], None]  # told the share of a file's work that is done

_LOOK_SECONDS = 0.2  # between looks at how far the processes are
_WAITING = 2  # files given out a process: the next one is there when one is done
_ENDED = (
    "its process was ended by the system. It may need more memory than there is, or crash a "
    "library that reads it."
)
# One thread each: products of small matrices by several threads fight for the cores.
_ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)


def alone(
    work: Work, recipe: Recipe, files: Sequence[Path], tell: Tell
) -> Iterator[tuple[int, Outcome]]:
    """One after the other, in this process."""
    for number, file in enumerate(files):
        yield number, done(work, recipe, file, partial(_share, tell, number))


def _share(tell: Tell, number: int, done: float, whole: float) -> None:
    tell(number, done / whole)


def together(
    work: Work, recipe: Recipe, files: Sequence[Path], jobs: int, tell: Tell
) -> Iterator[tuple[int, Outcome]]:
    """As many at a time as there are jobs, in the order in which they are done."""
    with tempfile.TemporaryDirectory(prefix="earatlas-batch-") as scratch:
        order = Path(scratch) / "order"
        order.write_bytes(pickle.dumps((work, recipe)))
        left = dict(enumerate(files))
        suspects: list[int] = []  # begun when a process was ended: one of them did it
        while left:
            chosen = {number: left[number] for number in suspects} or left
            ahead = 1 if suspects else _WAITING * jobs
            try:
                for number, outcome in _pooled(order, chosen, min(jobs, ahead), ahead, tell):
                    del left[number]
                    yield number, outcome
                suspects = []
            except _BrokenPoolError as error:
                time.sleep(_LOOK_SECONDS)  # a signal to all of us is on its way to this one, too
                for number in error.begun if suspects else ():
                    yield number, Outcome(left.pop(number), "failed", error=_ENDED)
                suspects = [number for number in suspects or error.begun if number in left]
            finally:
                clear_scratch(work.folder)


class _BrokenPoolError(Exception):
    """A process was ended by the system; `begun` are the files that it may have been."""

    def __init__(self, begun: list[int]) -> None:
        super().__init__(begun)
        self.begun = begun


def _pooled(
    order: Path, files: dict[int, Path], jobs: int, ahead: int, tell: Tell
) -> Iterator[tuple[int, Outcome]]:
    """The outcomes of a pool of processes; so many files are given out at a time."""
    waiting = iter(list(files.items()))
    given: dict[Future[Outcome], int] = {}
    started = _Started()
    pool = _pool(order.parent, jobs, started)
    try:
        while True:
            for number, file in islice(waiting, ahead - len(given)):
                with _signals_held_back():  # it starts processes
                    given[pool.submit(_ordered, str(order), number, file)] = number
            if not given:
                return
            for future in wait(given, _LOOK_SECONDS, FIRST_COMPLETED).done:
                outcome = future.result()
                yield given.pop(future), outcome
            for number in given.values():
                with suppress(OSError, ValueError):  # not begun, or just being written
                    tell(number, float(_shares(order, number).read_text()))
    except BrokenProcessPool as error:
        raise _BrokenPoolError(sorted(given.values())) from error
    finally:
        _end(pool, started)


class _Started:
    """A context of multiprocessing that keeps what it has started."""

    def __init__(self) -> None:
        from joblib.externals import loky  # noqa: F401, which names the context

        self._context = get_context("loky")
        self.processes: list[BaseProcess] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def Process(self, **how: Any) -> BaseProcess:
        """One more, not yet running."""
        process: BaseProcess = self._context.Process(**how)  # type: ignore[attr-defined]
        self.processes.append(process)
        return process


def _pool(scratch: Path, jobs: int, started: _Started) -> Any:
    from joblib.externals.loky import ProcessPoolExecutor

    with _signals_held_back():  # two are started that watch over locks
        if os.name == "posix":
            resource_tracker.ensure_running()  # it would let signals in again among the others
        return ProcessPoolExecutor(
            jobs,
            initializer=_begin,
            initargs=(os.getpid(), scratch),
            env=_ONE_THREAD,
            timeout=None,
            context=started,
        )


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """Processes that are started meanwhile never see the signals that a terminal sends to all.

    One that met Ctrl-C while it began printed a traceback, and one that met the end of the terminal
    left the locks to another, which printed a dozen. Here, signals come a moment later.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(pool: Any, started: _Started) -> None:
    """End its processes at once.

    A pool that is told to kill them while it has work to give out may stumble over that work, and
    say so (a KeyError of its thread); one whose processes have died tidies up.
    """
    for process in list(started.processes):
        with suppress(OSError, AttributeError, ValueError):  # it has ended, or never begun
            process.kill()
    pool.shutdown(wait=True, kill_workers=True)


# --- in the other processes -----------------------------------------------------------------


def _begin(parent: int, scratch: Path) -> None:
    """Signals of the terminal are for the one who gives out the work; it ends this process."""
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent, scratch), daemon=True).start()


def _end_with(parent: int, scratch: Path) -> None:
    """End this process when there is nobody left to work for, nor to tidy up."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(1)


@lru_cache(maxsize=1)
def _read_order(path: str) -> tuple[Work, Recipe]:
    return pickle.loads(Path(path).read_bytes())  # type: ignore[no-any-return]


def _shares(order: Path, number: int) -> Path:
    return order.with_name(f"share{number}")


def _ordered(order: str, number: int, file: Path) -> Outcome:
    with one_thread():  # learning has several, and there are several of us
        return done(*_read_order(order), file, _Told(_shares(Path(order), number)))


class _Told:
    """Progress for another process to look at, not more often than that."""

    def __init__(self, path: Path) -> None:
        self.path, self.next = path, 0.0

    def __call__(self, done: float, whole: float) -> None:
        if time.monotonic() >= self.next:
            self.path.write_text(f"{done / whole:.4f}")
            self.next = time.monotonic() + _LOOK_SECONDS
