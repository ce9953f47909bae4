"""How a worker tells how far it is: in words and shares, and not too often."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from earatlas.types import Progress

__all__ = ["Teller"]

_LEAST_SECONDS = 0.05  # between two lines: the page looks ten times a second


class Teller:
    """Says {"share": …, "words": …} of what is being done, and {"answer": …} early."""

    def __init__(self, say: Callable[[dict[str, Any]], None]) -> None:
        self._say = say
        self._next = 0.0
        self.warned: Callable[[], list[str]] = list  # what was warned of so far

    def stage(self, words: str, begin: float = 0.0, end: float = 1.0) -> Progress:
        """A stage of the work, from one share of it to another."""
        self._say({"words": words, "share": begin})

        def told(done: float, total: float) -> None:
            now = time.monotonic()
            if now >= self._next:
                self._next = now + _LEAST_SECONDS
                share = min(max(done / max(total, 1e-300), 0.0), 1.0)
                self._say({"words": words, "share": round(begin + (end - begin) * share, 4)})

        return told

    def answer(self, answer: dict[str, Any]) -> None:
        """What can be shown before all is done."""
        self._say({"answer": {**answer, "warnings": self.warned()}})
