"""Parallel execution in threads: long NumPy operations release the interpreter lock.

Matrix products in such threads must use one BLAS thread each (`single_threaded_blas`), because
several products that each use all cores slow each other down.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

__all__ = ["parallel_map", "run_both", "single_threaded", "single_threaded_blas"]

_T = TypeVar("_T")
_R = TypeVar("_R")
_S = TypeVar("_S")
_SINGLE_THREADED = ContextVar("_SINGLE_THREADED", default=False)


def parallel_map(function: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """Return `function(item)` for every item, in order, using one thread per core, at most 4."""
    if _SINGLE_THREADED.get():
        return list(map(function, items))
    # At most four threads, because each needs about 30 MB of working memory.
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 4)) as pool:
        return list(pool.map(function, items))


def run_both(first: Callable[[], _R], second: Callable[[], _S]) -> tuple[_R, _S]:
    """Call two independent functions in parallel and return both results."""
    if _SINGLE_THREADED.get():
        return first(), second()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(second)
        return first(), future.result()


@contextmanager
def single_threaded() -> Iterator[None]:
    """Run `parallel_map` and `run_both` serially, for processes that share the cores."""
    token = _SINGLE_THREADED.set(True)
    try:
        yield
    finally:
        _SINGLE_THREADED.reset(token)


def single_threaded_blas() -> AbstractContextManager[Any]:
    """Return a context manager in which BLAS uses one thread."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[Any] = threadpool_limits(1, "blas")
    return limits
