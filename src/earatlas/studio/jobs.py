"""Jobs for the worker processes, in a queue of bounded length.

A `Job` holds a request and reports its progress, its result or its error. A job can be cancelled at
any time: its process is killed and another one is started. A process that crashes or is killed by
the system is replaced as well, and the job reports it.
"""

from __future__ import annotations

import queue
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from earatlas.errors import InputError
from earatlas.studio.worker import Worker, WorkerEndedError

__all__ = ["BusyError", "Job", "WorkerPool"]

_PROCESS_ENDED = (
    "The worker process was ended by the system. It may have run out of memory, or the file may "
    "have crashed a library that reads it. The studio is still running."
)
_BUG = "This is a bug in earatlas, not in your file. Please report it with the text below."
_WARM_UP = {"task": "warm_up"}


class BusyError(InputError):
    """Too many jobs are waiting."""


@dataclass(eq=False)
class Job:
    """A request and its state: waiting, running, done, failed or cancelled."""

    request: dict[str, Any]
    id: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    state: str = "waiting"
    progress: float = 0.0  # between 0 and 1
    stage: str = ""  # description of what is being done
    result: Any = None  # preliminary or final result, as soon as there is one
    result_version: int = 0  # how often the result has changed
    error: str = ""
    details: str = ""  # traceback of a bug
    on_done: Callable[[], None] | None = None  # called when the state is "done"

    @property
    def ended(self) -> bool:
        """Whether the job is done, failed or cancelled."""
        return self.state in ("done", "failed", "cancelled")

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        names = (
            "id", "state", "progress", "stage", "result_version", "result", "error", "details",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def update(self, message: dict[str, Any]) -> None:
        """Process a message that the worker sends while it works."""
        self.progress = float(message.get("progress", self.progress))
        self.stage = str(message.get("stage", self.stage))
        if "result" in message:
            self._set_result(message["result"])

    def _set_result(self, result: Any) -> None:
        self.result = result
        self.result_version += 1

    def fail(self, error: str, details: str = "") -> None:
        """Set the state to failed, unless the job was cancelled."""
        if self.state != "cancelled":
            self.state, self.error, self.details = "failed", error, details

    def finish(self, message: dict[str, Any]) -> None:
        """Process the last message of the worker."""
        if "error" in message:
            self.fail(message["error"])
        elif "bug" in message:
            self.fail(_BUG, message["bug"])
        elif self.state != "cancelled":
            self._set_result(message["done"])
            self.state, self.progress = "done", 1.0
            if self.on_done is not None:
                with suppress(OSError):  # a full disk must not end the thread of the worker
                    self.on_done()


class WorkerPool:
    """Worker processes, each with a thread that communicates with it, and one queue of jobs."""

    def __init__(self, workers: int, max_waiting: int) -> None:
        self._queue: queue.Queue[Job | None] = queue.Queue()
        self._waiting: set[Job] = set()  # jobs in the queue that were not cancelled
        self._max_waiting = max_waiting
        self._lock = threading.Lock()
        self._running: dict[str, Worker] = {}  # by job id
        self._reserved = 0  # places in the queue that are reserved for uploads
        self._open = True
        self._threads = [
            threading.Thread(target=self._work, name=f"studio worker {n}", daemon=True)
            for n in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by job id."""
        with self._lock:
            return {job: worker.pid for job, worker in self._running.items()}

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Reserve a place in the queue during an upload, or raise BusyError.

        A job submitted within the block takes a place of its own; the reservation ends with the
        block.
        """
        with self._lock:
            waiting = len(self._waiting) + self._reserved
            if waiting >= self._max_waiting:
                raise BusyError(
                    f"The queue already has {self._max_waiting} waiting jobs. "
                    "Try again when one is done."
                )
            self._reserved += 1
        try:
            yield
        finally:
            with self._lock:
                self._reserved -= 1

    def submit(self, job: Job) -> Job:
        """Add a job to the queue; call it within `reserve`."""
        with self._lock:
            self._waiting.add(job)
            self._queue.put(job)
        return job

    def cancel(self, job: Job) -> None:
        """Cancel a waiting or running job."""
        with self._lock:
            if job.ended:
                return
            job.state = "cancelled"
            self._waiting.discard(job)
            worker = self._running.get(job.id)
            if worker is not None:
                worker.kill()

    def close(self) -> None:
        """Kill all processes and end their threads."""
        with self._lock:
            self._open = False
            for worker in self._running.values():
                worker.kill()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(timeout=10)

    def _work(self) -> None:
        worker = self._start_worker()
        while (job := self._queue.get()) is not None and self._open:
            with self._lock:
                self._waiting.discard(job)
                if job.ended:
                    continue
                job.state = "running"
                self._running[job.id] = worker
            message = None
            with suppress(WorkerEndedError):
                message, _ = worker.run(job.request, job.update)
            with self._lock:  # so that `cancel` does not kill a worker that has just finished
                del self._running[job.id]
                if message is None:
                    job.fail(_PROCESS_ENDED)
                else:
                    job.finish(message)
                broken = message is None or job.state == "cancelled"
            if broken and self._open:
                worker.kill()
                worker = self._start_worker()
        worker.kill()

    def _start_worker(self) -> Worker:
        """Start a process and let it import its libraries; a failure shows at the first job."""
        worker = Worker()
        with suppress(WorkerEndedError):
            worker.run(_WARM_UP, lambda message: None)
        return worker
