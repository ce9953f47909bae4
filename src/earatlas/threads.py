"""Work side by side: long array operations let go of the interpreter, so threads are enough.

Products of matrices must then keep to one thread each (`one_thread_each`): two of them that take
all cores wait for each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

__all__ = ["one_thread", "one_thread_each", "side_by_side", "together"]

_T = TypeVar("_T")
_R = TypeVar("_R")
_S = TypeVar("_S")
_MOST_THREADS = 4  # each works on some 30 MB at a time
_ALONE = ContextVar("_ALONE", default=False)


def side_by_side(work: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """`work` of every item, in their order, on as many threads as there are cores (at most 4)."""
    if _ALONE.get():
        return list(map(work, items))
    with ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST_THREADS)) as pool:
        return list(pool.map(work, items))


def together(first: Callable[[], _R], second: Callable[[], _S]) -> tuple[_R, _S]:
    """The answers of two works that need not wait for each other."""
    if _ALONE.get():
        return first(), second()
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(second)
        return first(), other.result()


@contextmanager
def one_thread() -> Iterator[None]:
    """Within it, nothing is done side by side: for processes that share the cores."""
    token = _ALONE.set(True)
    try:
        yield
    finally:
        _ALONE.reset(token)


def one_thread_each() -> AbstractContextManager[Any]:
    """Within it, products of matrices start no threads of their own."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[Any] = threadpool_limits(1, "blas")
    return limits
