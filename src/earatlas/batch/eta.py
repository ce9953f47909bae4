"""How fast a batch goes, and how long it will take yet.

In: how much there is to do for each file (seconds of sound, or 1 where there is none), and the
shares that are done. Out: the part of the whole, the amount a second, and the seconds left. What
was skipped is no part of it, and a file counts as what it is: a long one is not done with a short.
Processes take seconds to start: the time left goes by the pace since something was first told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

__all__ = ["Pace"]

_KNOWN_SECONDS = 1.0  # several files tell one after the other: before, one is taken for the pace


class Pace:
    """The pace of a batch so far, from its start on."""

    def __init__(
        self, amounts: Sequence[float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.amounts = list(amounts)
        self.total = sum(self.amounts)
        self._clock, self._start = clock, clock()
        self._finished: set[int] = set()
        self._amount = 0.0  # of those that are finished
        self._shares: dict[int, float] = {}  # of those that are not
        self._first: tuple[float, float] | None = None  # when something was told, and the amount

    def share(self, number: int, share: float) -> None:
        """So much of a file is done."""
        if number not in self._finished:
            self._shares[number] = min(max(share, 0.0), 1.0)
            self._first = self._first or (self._clock(), self.done)

    def finish(self, number: int) -> None:
        """All of a file is done, well or badly."""
        if number not in self._finished:
            self._first = self._first or (self._start, 0.0)
            self._finished.add(number)
            self._amount += self.amounts[number]
            self._shares.pop(number, None)

    @property
    def files(self) -> int:
        """How many are finished."""
        return len(self._finished)

    @property
    def done(self) -> float:
        """The amount that is done; its whole is `total`."""
        begun = sum(self.amounts[number] * share for number, share in self._shares.items())
        return min(self._amount + begun, self.total)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self._clock() - self._start

    @property
    def rate(self) -> float:
        """The amount that is done a second; 0 as long as nothing is."""
        return self.done / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """At the pace since something was first told; None as long as that is hardly known."""
        if self._first is None:
            return None
        passed, gained = self._clock() - self._first[0], self.done - self._first[1]
        if passed < _KNOWN_SECONDS or gained <= 0:
            return None
        return (self.total - self.done) * passed / gained
