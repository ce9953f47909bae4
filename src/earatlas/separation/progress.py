"""How far a separation is, as a share of the time that it takes.

A recording is gone through twice, and between the passes sources are found, which takes as long for
a minute as for an hour. So the first pass can only guess what share it is; in the second, what is
left is reckoned from the blocks that are done.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from earatlas.types import Progress

__all__ = ["SURVEY", "Passes"]

# What the first pass is of both, about. Two talkers, 2 minutes: 0.23 in the open, 0.22 at T60
# 0.3 s, 0.18 where their number is told.
SURVEY = 0.2


class Passes:
    """Tells how far it is, never less than before; itself a `Progress` for the first pass."""

    def __init__(
        self, tell: Progress | None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._tell, self._clock = tell, clock
        self._start = self._second = clock()
        self._told = 0.0

    def __call__(self, done: float, total: float) -> None:
        """So much is done before the second pass."""
        self._say(done / total)

    def find(self) -> None:
        """Sources are found: the second pass begins."""
        self._second = self._clock()

    def again(self, share: float) -> None:
        """So much of the second pass is done; the rest goes on as fast as that."""
        now = self._clock()
        left = (now - self._second) * (1 - share) / max(share, 1e-9)
        self._say((now - self._start) / max(now - self._start + left, 1e-9))

    def _say(self, share: float) -> None:
        self._told = max(self._told, share)
        if self._tell is not None:
            self._tell(self._told, 1.0)
