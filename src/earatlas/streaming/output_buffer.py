"""Output buffer: converts hops of separated signals to blocks of any size.

The renderer returns whole hops, while each pushed block of n samples must return n samples. The
buffer holds the pending hops, each with the signals of the tracks that existed then.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from earatlas.types import Array

__all__ = ["OutputBuffer"]


class OutputBuffer:
    """FIFO of hops (2, hop) per track id; blocks of any length are taken out."""

    def __init__(self, hop: int, first_sample: int) -> None:
        """Begin with a hop at `first_sample`; samples before 0 are dropped."""
        self._hop, self._next_sample, self._position = hop, first_sample, 0
        self._pending: deque[tuple[int, dict[int, Array]]] = deque()

    @property
    def start(self) -> int:
        """The next sample that is taken."""
        return self._position

    def append(self, signals: dict[int, Array]) -> None:
        """Append a hop of signals, by track id."""
        if self._next_sample + self._hop > 0:
            self._pending.append((self._next_sample, signals))
        self._next_sample += self._hop

    def has_pending(self, track_id: int) -> bool:
        """Return whether samples of a track are pending."""
        return any(track_id in signals for _, signals in self._pending)

    def take(self, until: int) -> dict[int, Array]:
        """Return the signals (2, n) of all tracks up to a sample, zero where a track had none."""
        begin, end = self._position, max(until, self._position)
        outputs: dict[int, Array] = {}
        while self._pending and self._pending[0][0] < end:
            start, signals = self._pending[0]
            a, b = max(start, begin), min(start + self._hop, end)
            for i, signal in signals.items():
                output = outputs.setdefault(i, np.zeros((2, end - begin)))
                output[:, a - begin : b - begin] = signal[:, a - start : b - start]
            if b < start + self._hop:
                break
            self._pending.popleft()
        self._position = end
        return outputs
