"""Parallel execution in threads: long NumPy operations release the interpreter lock.

An interruption (Ctrl-C) arrives in the main thread only. It ends the calls in other threads after
the item that each of them is working on, and does not wait for them.

Matrix products use one BLAS thread (`single_threaded_blas`) in learning, whose threads would slow
each other down, and in localization, separation and streams, whose products are small.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = [
    "ONE_THREAD_ENVIRONMENT",
    "parallel_map",
    "run_both",
    "single_threaded",
    "single_threaded_blas",
]

# Environment of a process whose numerical libraries use one thread: several threads for products of
# small matrices compete for the cores.
ONE_THREAD_ENVIRONMENT = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)

_T = TypeVar("_T")
_R = TypeVar("_R")
_S = TypeVar("_S")
_SINGLE_THREADED = ContextVar("_SINGLE_THREADED", default=False)
# Set once the caller of `run_both` was interrupted, while the second function runs in its thread.
_INTERRUPTED: ContextVar[Event | None] = ContextVar("_INTERRUPTED", default=None)


class _InterruptedCallError(Exception):
    """The caller of this thread was interrupted and does not use the result."""


def parallel_map(function: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """Return `function(item)` for every item, in order, using one thread per core, at most 4.

    BLAS uses one thread in each of them.
    """
    if _SINGLE_THREADED.get():
        return list(map(function, items))
    interrupted = _INTERRUPTED.get()

    def call(item: _T) -> _R:
        if interrupted is not None and interrupted.is_set():
            raise _InterruptedCallError
        return function(item)

    # At most four threads, because each needs about 30 MB of working memory.
    with single_threaded_blas(), _thread_pool(min(os.cpu_count() or 1, 4)) as pool:
        return list(pool.map(call, items))


def run_both(first: Callable[[], _R], second: Callable[[], _S]) -> tuple[_R, _S]:
    """Call two independent functions in parallel and return both results."""
    if _SINGLE_THREADED.get():
        return first(), second()
    interrupted = Event()

    def call() -> _S:
        _INTERRUPTED.set(interrupted)  # in the context of its thread
        return second()

    with single_threaded_blas(), _thread_pool(1) as pool:
        future = pool.submit(call)
        try:
            return first(), future.result()
        except BaseException:
            interrupted.set()
            raise


@contextmanager
def _thread_pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool that is waited for at the end, unless it is an interruption."""
    from concurrent.futures import ThreadPoolExecutor  # a short recording needs no threads

    pool = ThreadPoolExecutor(threads)
    try:
        yield pool
    except Exception:
        pool.shutdown(cancel_futures=True)
        raise
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


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
    faster, and on a busy machine they wait for each other. The limit is one of the whole process:
    it holds while at least one call in any thread is inside, and the last one that leaves restores
    the former limit.
    """
    _BLAS_LIMIT.enter()
    try:
        yield
    finally:
        _BLAS_LIMIT.leave()


class _BlasLimit:
    """Counts the calls inside `single_threaded_blas`, in all threads."""

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0
        self._limits: dict[bool, Any] = {}  # by whether SciPy's BLAS is among the libraries

    def enter(self) -> None:
        """Limit the libraries, unless another call already does."""
        with_scipy = "scipy.linalg" in sys.modules
        with self._lock:
            if with_scipy not in self._limits:
                controller = _take_control(_blas_controller(with_scipy))
                self._limits[with_scipy] = controller.limit(limits=1)
            self._inside += 1

    def leave(self) -> None:
        """Restore the former limits if no call remains inside."""
        with self._lock:
            self._inside -= 1
            while not self._inside and self._limits:  # in the reverse order
                with_scipy, limit = self._limits.popitem()
                controller = _take_control(_blas_controller(with_scipy))
                limit.restore_original_limits()
                _take_control(controller)  # other code may set limits in any thread


_BLAS_LIMIT = _BlasLimit()


def _take_control(controller: Any) -> Any:
    """Let any thread set the limits, and return the controller.

    From version 3.8 on, threadpoolctl ignores limits set by other threads than the first one.
    """
    for library in controller.lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)
    return controller


@cache
def _blas_controller(with_scipy: bool) -> Any:
    """Return the controller of all BLAS libraries; finding them takes milliseconds.

    SciPy has a BLAS of its own, which is found only after it was loaded. It is not loaded here,
    because that takes longer than a short recording; streams load it before they start.
    """
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
