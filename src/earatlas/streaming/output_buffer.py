"""Sound that leaves as many samples at a time as come in, each by the same delay.

Filters give hops; whoever pushes blocks of n samples wants n back. Between them stand the hops that
wait, each with the sounds of those that were there.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from earatlas.types import Array

__all__ = ["Outlet"]


class Outlet:
    """Hops (2, hop) of each source by its id go in, stretches of any length come out."""

    def __init__(self, hop: int, first: int) -> None:
        """`first` is the sample that the first hop begins at; those before 0 are dropped."""
        self._hop, self._next, self._out = hop, first, 0
        self._waiting: deque[tuple[int, dict[int, Array]]] = deque()

    @property
    def start(self) -> int:
        """The sample that is next to leave."""
        return self._out

    def put(self, sounds: dict[int, Array]) -> None:
        """One more hop."""
        if self._next + self._hop > 0:
            self._waiting.append((self._next, sounds))
        self._next += self._hop

    def holds(self, source: int) -> bool:
        """Whether some of a source's sound still waits."""
        return any(source in sounds for _, sounds in self._waiting)

    def take(self, until: int) -> dict[int, Array]:
        """The sounds (2, n) up to a sample, of all that have some; silent where they were not."""
        begin, end = self._out, max(until, self._out)
        taken: dict[int, Array] = {}
        while self._waiting and self._waiting[0][0] < end:
            start, sounds = self._waiting[0]
            a, b = max(start, begin), min(start + self._hop, end)
            for i, sound in sounds.items():
                whole = taken.setdefault(i, np.zeros((2, end - begin)))
                whole[:, a - begin : b - begin] = sound[:, a - start : b - start]
            if b < start + self._hop:
                break
            self._waiting.popleft()
        self._out = end
        return taken
