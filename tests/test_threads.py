"""Numerical libraries use one thread inside localization, separation and streams."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from threading import Event, Thread, active_count
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import earatlas as ea
from earatlas.features.recording import MemoryRecording
from earatlas.localization.windowed import WindowedLocalizer, WindowSettings
from earatlas.threads import parallel_map, run_both, single_threaded_blas


def blas_threads() -> set[int]:
    """Return the numbers of threads of all BLAS libraries of the process."""
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_the_limit_is_nested_and_restored() -> None:
    """Inside, BLAS has one thread; the former limit returns with the last exit."""
    with threadpool_limits(2, "blas"):
        before = blas_threads()
        with single_threaded_blas():
            with single_threaded_blas():
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == before
        with pytest.raises(ValueError, match="inside"), single_threaded_blas():
            raise ValueError("inside")
        assert blas_threads() == before


def test_the_limit_holds_until_the_last_thread_leaves() -> None:
    """A thread that leaves first does not end the limit of another, and none is left behind."""
    entered, may_leave, seen = Event(), Event(), []

    def other() -> None:
        with single_threaded_blas():
            entered.set()
            may_leave.wait()
            seen.append(blas_threads())

    with threadpool_limits(2, "blas"):
        before, thread = blas_threads(), Thread(target=other)
        with single_threaded_blas():
            thread.start()
            entered.wait()
        may_leave.set()
        thread.join()
        assert seen == [{1}]
        assert blas_threads() == before


def test_parallel_functions_use_one_thread_each() -> None:
    """The limit of the calling thread holds in the threads of a pool."""
    with threadpool_limits(2, "blas"):
        assert parallel_map(lambda _: blas_threads(), range(3)) == [{1}] * 3
        assert run_both(blas_threads, blas_threads) == ({1}, {1})


def test_an_interruption_ends_the_other_function() -> None:
    """Ctrl-C during one of two functions ends the items of the other, and is not delayed by it."""
    started, done = Event(), []

    def item(number: int) -> None:
        started.set()
        time.sleep(0.02)
        done.append(number)

    def interrupted() -> None:
        started.wait()
        raise KeyboardInterrupt

    before = active_count()
    with pytest.raises(KeyboardInterrupt):
        run_both(interrupted, lambda: parallel_map(item, range(2000)))
    assert len(done) < 200
    while active_count() > before:  # at most one item of each thread
        time.sleep(0.01)
    assert len(done) < 200


def test_every_entry_uses_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Localization of recordings and windows, streams and separation limit BLAS."""
    atlas, original = ea.example_atlas(), np.concatenate
    seen: list[set[int]] = []

    def spy(*arguments: Any, **settings: Any) -> Any:
        if not seen:
            seen.append(blas_threads())
        return original(*arguments, **settings)

    samples = np.random.default_rng(0).normal(size=(2, 9600))
    audio, localizer, live = ea.Audio(samples, 16_000), atlas.localizer(), atlas.live()
    monkeypatch.setattr(np, "concatenate", spy)

    def windows() -> WindowedLocalizer:
        return WindowedLocalizer(atlas, MemoryRecording(audio), WindowSettings())

    calls: dict[str, Callable[[], object]] = {
        "localize": lambda: atlas.localize(audio),
        "windows": lambda: atlas.localize_frames(audio),
        "each window": lambda: next(windows()),
        "all windows together": lambda: windows().whole(),
        "separate": lambda: atlas.separate(audio, n_sources=2),
        "localizer": lambda: (localizer.push(samples), localizer.where(), localizer.finish()),
        "live": lambda: (live.push(samples), live.finish()),
    }
    with threadpool_limits(2, "blas"):
        for name, call in calls.items():
            seen.clear()
            call()
            assert seen == [{1}], name


_TRACK = """
import hashlib, json
import numpy as np
import earatlas as ea
from earatlas.features.recording import MemoryRecording
from earatlas.localization.windowed import WindowedLocalizer, WindowSettings

sound = np.random.default_rng(0).normal(size=(2, 48_000))
audio = ea.Audio(sound + sound[::-1], 16_000)
windows = WindowedLocalizer(ea.example_atlas(), MemoryRecording(audio), WindowSettings())
posteriors = [window.posterior for _, window in windows] + [windows.whole().posterior]
values = [(one.weights.tolist(), one.means.tolist()) for one in posteriors]
print(len(values), hashlib.sha256(json.dumps(values).encode()).hexdigest())
"""


def test_a_track_does_not_depend_on_the_number_of_threads() -> None:
    """The posteriors of windows are equal to the last bit with one and with two BLAS threads."""
    outputs = [
        subprocess.run(
            [sys.executable, "-c", _TRACK],
            env={**os.environ, "OPENBLAS_NUM_THREADS": str(threads)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in (1, 2)
    ]
    assert outputs[0].startswith("29 ")
    assert outputs[0] == outputs[1]
