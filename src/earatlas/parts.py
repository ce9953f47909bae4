"""Computations in parts, which a stream spreads over its hops.

A computation that takes longer than a hop is a generator: it yields the relative cost of its next
part before it runs it, and returns the result. `complete` runs all parts at once. A
`SpreadComputation` runs some parts per hop, so that no hop takes long.

Which parts belong to which hop follows from their costs alone, not from the time that they take.
The output of a stream therefore depends neither on the machine nor on the size of the blocks.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Generic, TypeAlias, TypeVar

__all__ = ["Parts", "SpreadComputation", "complete"]

_T = TypeVar("_T")
Parts: TypeAlias = Generator[float, None, _T]


def complete(parts: Parts[_T]) -> _T:
    """Run all parts and return the result.

    >>> def double(values):
    ...     doubled = []
    ...     for value in values:
    ...         yield 1.0
    ...         doubled.append(2 * value)
    ...     return doubled
    >>> complete(double([1, 2]))
    [2, 4]
    """
    while True:
        try:
            next(parts)
        except StopIteration as end:
            result: _T = end.value
            return result


class SpreadComputation(Generic[_T]):
    """Runs parts with a total cost of at most `budget` per hop, but at least one part.

    What precedes the first part is run at once; the parts must depend on nothing that changes.
    A generator can be neither copied nor pickled: with its state, the remaining parts are run at
    once, and the result is held until the hop at which it would have been available.
    """

    def __init__(self, parts: Parts[_T], budget: float = 1.0) -> None:
        self._parts: Parts[_T] | None = parts
        self._budget = budget
        self._next_cost = 0.0  # of the part that runs next
        self._result: _T | None = None
        self._waiting_hops = 0  # until the result is due, once all parts have run
        self._run_part(parts)

    def advance(self) -> bool:
        """Process a hop; return whether the computation is finished."""
        if self._parts is None:
            self._waiting_hops = max(self._waiting_hops - 1, 0)
        else:
            self._run_hop(self._parts)
        return self.finished

    @property
    def finished(self) -> bool:
        """Whether the result is available."""
        return self._parts is None and self._waiting_hops == 0

    @property
    def result(self) -> _T:
        """The result of a finished computation."""
        assert self.finished
        return self._result  # type: ignore[return-value]

    def _run_hop(self, parts: Parts[_T]) -> None:
        """Run the parts of a hop."""
        spent = 0.0
        while self._parts is not None and (spent == 0.0 or spent + self._next_cost <= self._budget):
            spent += self._next_cost
            self._run_part(parts)

    def _run_part(self, parts: Parts[_T]) -> None:
        """Run what precedes the next part, or the end."""
        try:
            self._next_cost = next(parts)
        except StopIteration as end:
            self._parts, self._result = None, end.value

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without a generator, which cannot be copied."""
        hops = 0
        while self._parts is not None:
            self._run_hop(self._parts)
            hops += 1
        self._waiting_hops = max(hops, self._waiting_hops)
        return vars(self)
