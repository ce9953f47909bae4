"""Jobs: what the workers have to do, in a line that is not endless.

In: orders. Out: `Job`s that say how far they are, what was found, or what went wrong. A job can be
cancelled at any moment: its process is ended, and another one started. So is one that crashes or
is killed by the system, and the job says so.
"""

from __future__ import annotations

import queue
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from earatlas.errors import InputError
from earatlas.studio.worker import Worker, WorkerEndedError

__all__ = ["BusyError", "Crew", "Job"]

_ENDED = (
    "The process that worked on this was ended by the system. It may need more memory than there "
    "is, or crash a library that reads it. The studio goes on."
)
_BUG = "This is a bug of earatlas, not of your file. Please report it with the text below."
_WARM = {"do": "warm"}


class BusyError(InputError):
    """Too much is waiting."""


@dataclass(eq=False)
class Job:
    """One order, and how far it is: waiting, running, done, failed or cancelled."""

    order: dict[str, Any]
    id: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    state: str = "waiting"
    share: float = 0.0
    words: str = ""
    answer: Any = None  # as soon as there is something to see
    answers: int = 0  # how often it changed
    error: str = ""
    details: str = ""  # of a bug of ours

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.state in ("done", "failed", "cancelled")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        names = ("id", "state", "share", "words", "answers", "answer", "error", "details")
        return {name: getattr(self, name) for name in names}

    def tell(self, message: dict[str, Any]) -> None:
        """Take in what its worker says while it works."""
        self.share = float(message.get("share", self.share))
        self.words = str(message.get("words", self.words))
        if "answer" in message:
            self._see(message["answer"])

    def _see(self, answer: Any) -> None:
        self.answer = answer
        self.answers += 1

    def fail(self, error: str, details: str = "") -> None:
        """It ended without what was wished."""
        if self.state != "cancelled":
            self.state, self.error, self.details = "failed", error, details

    def finish(self, message: dict[str, Any]) -> None:
        """It ended in the way that its worker says."""
        if "error" in message:
            self.fail(message["error"])
        elif "bug" in message:
            self.fail(_BUG, message["bug"])
        elif self.state != "cancelled":
            self._see(message["done"])
            self.state, self.share = "done", 1.0


class Crew:
    """Workers, each with a thread that asks it; jobs wait in one line."""

    def __init__(self, workers: int, most_waiting: int) -> None:
        self._waiting: queue.Queue[Job | None] = queue.Queue()
        self._in_line: set[Job] = set()  # those of them that were not cancelled
        self._most_waiting = most_waiting
        self._lock = threading.Lock()
        self._running: dict[str, Worker] = {}  # by job
        self._promised = 0  # places in the line that are kept for what is being uploaded
        self._open = True
        self._threads = [
            threading.Thread(target=self._work, name=f"studio worker {n}", daemon=True)
            for n in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pids(self) -> dict[str, int]:
        """Which process works on which job."""
        with self._lock:
            return {job: worker.pid for job, worker in self._running.items()}

    @contextmanager
    def place(self) -> Iterator[None]:
        """Keep a place in the line, or refuse: nothing is uploaded that nobody will do.

        What is submitted within has a place of its own; this one is given back at the end.
        """
        with self._lock:
            waiting = len(self._in_line) + self._promised
            if waiting >= self._most_waiting:
                raise BusyError(
                    f"work must wait in a line of at most {self._most_waiting}, got one more. Try "
                    "again when something is done."
                )
            self._promised += 1
        try:
            yield
        finally:
            with self._lock:
                self._promised -= 1

    def submit(self, job: Job) -> Job:
        """Put a job into the line; within a `place`."""
        with self._lock:
            self._in_line.add(job)
            self._waiting.put(job)
        return job

    def cancel(self, job: Job) -> None:
        """End a job, whether it waits or runs."""
        with self._lock:
            if job.ended:
                return
            job.state = "cancelled"
            self._in_line.discard(job)
            worker = self._running.get(job.id)
            if worker is not None:
                worker.end()

    def close(self) -> None:
        """End all processes, and the threads that ask them."""
        with self._lock:
            self._open = False
            for worker in self._running.values():
                worker.end()
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join(timeout=10)

    def _work(self) -> None:
        worker = self._warm()
        while (job := self._waiting.get()) is not None and self._open:
            with self._lock:
                self._in_line.discard(job)
                if job.ended:
                    continue
                job.state = "running"
                self._running[job.id] = worker
            message = None
            with suppress(WorkerEndedError):
                message, _ = worker.ask(job.order, job.tell)
            with self._lock:  # nobody ends a worker that has just finished
                del self._running[job.id]
                if message is None:
                    job.fail(_ENDED)
                else:
                    job.finish(message)
                broken = message is None or job.state == "cancelled"
            if broken and self._open:
                worker.end()
                worker = self._warm()
        worker.end()

    def _warm(self) -> Worker:
        """A new process, with its libraries imported; one that cannot start says so later."""
        worker = Worker()
        with suppress(WorkerEndedError):
            worker.ask(_WARM, lambda message: None)
        return worker
