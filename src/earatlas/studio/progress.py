"""Progress messages of a worker: the stage, the fraction done, and preliminary results."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from earatlas.types import Progress

__all__ = ["ProgressReporter"]


class ProgressReporter:
    """Sends {"progress": …, "stage": …} while a task runs, and {"result": …} for early results."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self._next = 0.0
        self.warnings: Callable[[], list[str]] = list  # returns the warnings given so far

    def stage(self, name: str, begin: float = 0.0, end: float = 1.0) -> Progress:
        """Begin a stage between two fractions of the task, and return its progress callback."""
        self._send({"stage": name, "progress": begin})

        def update(done: float, total: float) -> None:
            now = time.monotonic()
            if now >= self._next:
                self._next = now + 0.05  # seconds; the page asks ten times per second
                fraction = min(max(done / max(total, 1e-300), 0.0), 1.0)
                progress = round(begin + (end - begin) * fraction, 4)
                self._send({"stage": name, "progress": progress})

        return update

    def publish(self, result: dict[str, Any]) -> None:
        """Send a result that can be shown before the task is done."""
        self._send({"result": {**result, "warnings": self.warnings()}})
