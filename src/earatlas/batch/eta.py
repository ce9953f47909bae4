"""Estimate the processing rate and the remaining time of a batch.

The inputs are the workload of each file (seconds of sound, or 1 where there is no sound) and the
completed share of each file. The outputs are the completed workload, the workload per second and
the remaining seconds. Skipped files are not counted. Worker processes take seconds to start, so the
remaining time is extrapolated from the first progress report on, not from the start of the batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

__all__ = ["TimeEstimate"]


class TimeEstimate:
    """Progress of a batch and estimate of the remaining time."""

    def __init__(
        self, workloads: Sequence[float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.workloads = list(workloads)
        self.total = sum(self.workloads)
        self._clock, self._start = clock, clock()
        self._finished: set[int] = set()
        self._finished_workload = 0.0  # sum over the finished files
        self._shares: dict[int, float] = {}  # completed share of each unfinished file
        self._first_report: tuple[float, float] | None = None  # time, workload

    def share(self, number: int, share: float) -> None:
        """Record the completed share of a file, from 0 to 1."""
        if number not in self._finished:
            self._shares[number] = min(max(share, 0.0), 1.0)
            self._first_report = self._first_report or (self._clock(), self.done)

    def finish(self, number: int) -> None:
        """Record that a file is finished, successfully or not."""
        if number not in self._finished:
            self._first_report = self._first_report or (self._start, 0.0)
            self._finished.add(number)
            self._finished_workload += self.workloads[number]
            self._shares.pop(number, None)

    @property
    def files(self) -> int:
        """Number of finished files."""
        return len(self._finished)

    @property
    def done(self) -> float:
        """Completed workload, at most `total`."""
        partial = sum(self.workloads[number] * share for number, share in self._shares.items())
        return min(self._finished_workload + partial, self.total)

    @property
    def seconds(self) -> float:
        """Seconds since the start of the batch."""
        return self._clock() - self._start

    @property
    def rate(self) -> float:
        """Completed workload per second since the start."""
        return self.done / self.seconds if self.seconds > 0 else 0.0

    @property
    def remaining_seconds(self) -> float | None:
        """Remaining seconds at the rate since the first report, or None while it is uncertain."""
        if self._first_report is None:
            return None
        elapsed, progress = self._clock() - self._first_report[0], self.done - self._first_report[1]
        # Before one second, the progress of a single file would be taken for that of the batch.
        if elapsed < 1.0 or progress <= 0:
            return None
        return (self.total - self.done) * elapsed / progress
