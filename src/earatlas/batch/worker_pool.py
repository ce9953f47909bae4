"""Run a batch on this machine, in this process or in several worker processes.

The inputs are a `BatchJob` and files. The outputs are pairs (index, `Outcome`), each as soon as it
is known. Data that all files share, such as the atlas, is sent once: workers read it from a scratch
file.

When the operating system ends a worker (out of memory, a crash in a library), the files in progress
in the pool are processed once more, one at a time, so that the file that caused it is identified
and fails alone. No worker process outlives the batch: workers are killed when it is interrupted,
and exit by themselves when the parent process is gone.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from itertools import islice
from multiprocessing import get_context, resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from earatlas.batch.job import BatchJob, Outcome, process_file
from earatlas.batch.sidecar import Recipe
from earatlas.files import recover_scratch
from earatlas.threads import ONE_THREAD_ENVIRONMENT, single_threaded

__all__ = ["ShareCallback", "run_parallel", "run_serial"]

ShareCallback = Callable[[int, float], None]  # (index of the file, completed share from 0 to 1)

# Evidence: docs/figures/settings/batch.md, "worker_pool".
_POLL_SECONDS = 0.2  # s between checks of the progress of the worker processes
_SHUTDOWN_SECONDS = 10.0  # s, upper limit of the wait for a pool to notice that its workers died
_PROCESS_ENDED_MESSAGE = (
    "its process was ended by the system. The file may need more memory than available, or crash "
    "a library that reads it."
)


def run_serial(
    job: BatchJob, recipe: Recipe, files: Sequence[Path], report: ShareCallback
) -> Iterator[tuple[int, Outcome]]:
    """Yield (index, outcome) of each file, one after the other, in this process."""
    for number, file in enumerate(files):
        yield number, process_file(job, recipe, file, partial(_report_share, report, number))


def _report_share(report: ShareCallback, number: int, done: float, total: float) -> None:
    report(number, done / total)


def run_parallel(
    job: BatchJob, recipe: Recipe, files: Sequence[Path], jobs: int, report: ShareCallback
) -> Iterator[tuple[int, Outcome]]:
    """Yield (index, outcome) of each file from `jobs` worker processes, in order of completion."""
    with tempfile.TemporaryDirectory(prefix="earatlas-batch-") as scratch:
        job_file = Path(scratch) / "job.pickle"
        job_file.write_bytes(pickle.dumps((job, recipe)))
        pending = dict(enumerate(files))
        suspects: list[int] = []  # in progress when a process was ended: one of them caused it
        while pending:
            chosen = {number: pending[number] for number in suspects} or pending
            # Two files per process, so that the next one is ready when one is finished.
            queue_length = 1 if suspects else 2 * jobs
            try:
                for number, outcome in _run_pool(
                    job_file, chosen, min(jobs, queue_length), queue_length, report
                ):
                    del pending[number]
                    yield number, outcome
                suspects = []
            except _BrokenPoolError as error:
                time.sleep(_POLL_SECONDS)  # a signal to the process group reaches this process, too
                for number in error.in_progress if suspects else ():
                    yield (
                        number,
                        Outcome(pending.pop(number), "failed", error=_PROCESS_ENDED_MESSAGE),
                    )
                suspects = [number for number in suspects or error.in_progress if number in pending]
            finally:
                recover_scratch(job.folder)


class _BrokenPoolError(Exception):
    """The system ended a worker process; `in_progress` are the indices of the suspected files."""

    def __init__(self, in_progress: list[int]) -> None:
        super().__init__(in_progress)
        self.in_progress = in_progress


def _run_pool(
    job_file: Path, files: dict[int, Path], jobs: int, queue_length: int, report: ShareCallback
) -> Iterator[tuple[int, Outcome]]:
    """Yield the outcomes of a pool of processes that has at most `queue_length` files submitted."""
    remaining = iter(list(files.items()))
    submitted: dict[Future[Outcome], int] = {}
    context = _TrackingContext()
    pool = _create_pool(job_file.parent, jobs, context)
    try:
        while True:
            for number, file in islice(remaining, queue_length - len(submitted)):
                with _block_terminal_signals():  # submitting starts processes
                    submitted[pool.submit(_process_in_worker, str(job_file), number, file)] = number
            if not submitted:
                return
            for future in wait(submitted, _POLL_SECONDS, FIRST_COMPLETED).done:
                outcome = future.result()
                yield submitted.pop(future), outcome
            for number in submitted.values():
                with suppress(OSError, ValueError):  # not started, or being written now
                    report(number, float(_progress_file(job_file, number).read_text()))
    except BrokenProcessPool as error:
        raise _BrokenPoolError(sorted(submitted.values())) from error
    finally:
        _kill_pool(pool, context, submitted)


class _TrackingContext:
    """A multiprocessing context that keeps a list of the processes that it started."""

    def __init__(self) -> None:
        from joblib.externals import loky  # noqa: F401, registers the context "loky"

        self._context = get_context("loky")
        self.processes: list[BaseProcess] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def Process(self, **arguments: Any) -> BaseProcess:
        """Create a process, not yet running."""
        process: BaseProcess = self._context.Process(**arguments)  # type: ignore[attr-defined]
        self.processes.append(process)
        return process


def _create_pool(scratch: Path, jobs: int, context: _TrackingContext) -> Any:
    """Create the process pool, with terminal signals blocked in the processes that it starts."""
    from joblib.externals.loky import ProcessPoolExecutor

    with _block_terminal_signals():  # starts two resource trackers
        if os.name == "posix":
            resource_tracker.ensure_running()  # started later, it would unblock the signals
        return ProcessPoolExecutor(
            jobs,
            initializer=_initialize_worker,
            initargs=(os.getpid(), scratch),
            env=ONE_THREAD_ENVIRONMENT,
            timeout=None,
            context=context,
        )


@contextmanager
def _block_terminal_signals() -> Iterator[None]:
    """Block SIGINT and SIGHUP in processes that are started meanwhile; here they arrive delayed.

    Without it, a worker that receives Ctrl-C during start-up prints a traceback, and a resource
    tracker that ends with the terminal leaves its locks to another one, which prints a dozen.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _kill_pool(
    pool: Any, context: _TrackingContext, submitted: Collection[Future[Outcome]]
) -> None:
    """Kill the worker processes at once, then shut down the pool.

    A pool that is shut down while files are queued prints a KeyError from its management thread,
    which forgets the queued files but not their places in the queue. Therefore wait until that
    thread has noticed the death of the workers and has failed all `submitted` files.
    """
    for process in list(context.processes):
        if process.pid is not None and process.is_alive():
            with suppress(OSError):  # it has ended
                # `process.kill` is missing in loky's processes. Windows has no SIGKILL, and ends a
                # process at once for any signal.
                os.kill(process.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
    wait(submitted, _SHUTDOWN_SECONDS)
    pool.shutdown(wait=True, kill_workers=True)


# --- in the worker processes ----------------------------------------------------------------


def _initialize_worker(parent: int, scratch: Path) -> None:
    """Ignore terminal signals, which the parent process handles, and watch for the parent's end."""
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, args=(parent, scratch), daemon=True).start()


def _exit_with_parent(parent: int, scratch: Path) -> None:
    """Exit this process when the parent process is gone, and remove its scratch folder."""
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(1)


@lru_cache(maxsize=1)
def _load_job(job_file: str) -> tuple[BatchJob, Recipe]:
    """Return the job and the recipe of a scratch file."""
    return pickle.loads(Path(job_file).read_bytes())  # type: ignore[no-any-return]


def _progress_file(job_file: Path, number: int) -> Path:
    """Return the file to which a worker writes the completed share of a file."""
    return job_file.with_name(f"share{number}")


def _process_in_worker(job_file: str, number: int, file: Path) -> Outcome:
    """Process one file in a worker process."""
    with single_threaded():  # several workers share the cores
        return process_file(
            *_load_job(job_file), file, _ProgressWriter(_progress_file(Path(job_file), number))
        )


class _ProgressWriter:
    """Progress callback that writes the completed share to a file, once per poll interval."""

    def __init__(self, path: Path) -> None:
        self.path, self.next = path, 0.0

    def __call__(self, done: float, total: float) -> None:
        if time.monotonic() >= self.next:
            self.path.write_text(f"{done / total:.4f}")
            self.next = time.monotonic() + _POLL_SECONDS
