"""Parallel execution in threads: long NumPy operations release the interpreter lock.

Matrix products use one BLAS thread (`single_threaded_blas`) in learning, whose threads would slow
each other down, and in localization, separation and streams, whose products are small.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

__all__ = ["parallel_map", "run_both", "single_threaded", "single_threaded_blas"]

_T = TypeVar("_T")
_R = TypeVar("_R")
_S = TypeVar("_S")
_SINGLE_THREADED = ContextVar("_SINGLE_THREADED", default=False)
_NESTED_CALLS = ContextVar("_NESTED_CALLS", default=False)  # inside `single_threaded_blas`


def parallel_map(function: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """Return `function(item)` for every item, in order, using one thread per core, at most 4.

    BLAS uses one thread in each of them.
    """
    if _SINGLE_THREADED.get():
        return list(map(function, items))
    # At most four threads, because each needs about 30 MB of working memory.
    with single_threaded_blas(), ThreadPoolExecutor(min(os.cpu_count() or 1, 4)) as pool:
        return list(pool.map(function, items))


def run_both(first: Callable[[], _R], second: Callable[[], _S]) -> tuple[_R, _S]:
    """Call two independent functions in parallel and return both results."""
    if _SINGLE_THREADED.get():
        return first(), second()
    with single_threaded_blas(), ThreadPoolExecutor(1) as pool:
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


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Let BLAS use one thread, in a `with` statement or as a decorator.

    The products of hops, windows and sources are small: several BLAS threads do not make them
    faster, and on a busy machine they wait for each other. The limit also holds in threads that
    are started inside. Calls may be nested; the outermost one restores the former limit.
    """
    if _NESTED_CALLS.get():
        yield
        return
    token = _NESTED_CALLS.set(True)
    try:
        with _blas_controller("scipy.linalg" in sys.modules).limit(limits=1):
            yield
    finally:
        _NESTED_CALLS.reset(token)


@cache
def _blas_controller(with_scipy: bool) -> Any:
    """Return the controller of all BLAS libraries; finding them takes milliseconds.

    SciPy has a BLAS of its own, which is found only after it was loaded. It is not loaded here,
    because that takes longer than a short recording; streams load it before they start.
    """
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
