"""Progress of a separation, which reads a long recording twice.

Input: the fractions of the two passes that are done. Output: calls of a function with a
non-decreasing fraction of the total time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from earatlas.types import Progress

__all__ = ["SeparationProgress"]


class SeparationProgress:
    """Reports non-decreasing progress, as a fraction of the total time.

    A long recording is read twice. Between the passes the sources are estimated, which takes as
    long for a minute as for an hour. The first pass therefore counts as a fixed fraction
    (docs/figures/settings/separation.md, "pipeline"); in the second, the remaining time is
    extrapolated from the blocks that are done.
    """

    first_pass_fraction = 0.2  # estimated fraction of the total time that the first pass takes

    def __init__(
        self, report: Progress | None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._report, self._clock = report, clock
        self._start = self._second_start = clock()
        self._last = 0.0

    def report_first_pass(self, fraction: float) -> None:
        """Report that a fraction of the first pass is done."""
        self._report_fraction(self.first_pass_fraction * fraction)

    def begin_second_pass(self) -> None:
        """Start the clock of the second pass, once the sources are estimated."""
        self._second_start = self._clock()

    def report_second_pass(self, fraction: float) -> None:
        """Report that a fraction of the second pass is done, at constant speed."""
        now = self._clock()
        remaining = (now - self._second_start) * (1 - fraction) / max(fraction, 1e-9)
        self._report_fraction((now - self._start) / max(now - self._start + remaining, 1e-9))

    def _report_fraction(self, fraction: float) -> None:
        self._last = max(self._last, fraction)
        if self._report is not None:
            self._report(self._last, 1.0)
