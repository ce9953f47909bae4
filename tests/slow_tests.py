"""Marks slow tests, which `make check` skips, by the measured list tests/slow.txt.

`make slow` runs all tests and writes the list again: test functions with a case that takes more
than `LIMIT` seconds of CPU time including its fixtures, and the total seconds of all their cases.
New tests count as fast until they are measured. Files run in the order of their total duration,
longest first, so that the workers finish at about the same time.
"""

import gc
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = [
    "pytest_collection",
    "pytest_collection_modifyitems",
    "pytest_fixture_setup",
    "pytest_runtest_call",
    "pytest_runtest_logreport",
    "pytest_runtest_setup",
    "pytest_sessionfinish",
]

LIMIT = 0.1  # seconds; the other tests take about 15 s on two cores, mostly for imports
LIST = Path(__file__).with_name("slow.txt")
# The two workers start with these files, which learn heads that other files need.
_FIRST = ("tests/test_atlas.py", "tests/test_readme.py")
_KEPT = {"atlas"}  # fixtures that are cached in files between sessions
_SETUP = pytest.StashKey[float]()
_fixture_seconds: dict[str, float] = {}  # seconds per fixture, in this process
_slowest_case: dict[str, float] = {}  # seconds of the slowest case of each test, in all processes
_test_seconds: dict[str, float] = defaultdict(float)  # seconds of all cases of each test
_MEASURING = bool(os.environ.get("EARATLAS_MEASURE_SLOW"))


def _seconds() -> float:
    """Return the CPU time of this process and its children."""
    own = sum(os.times()[:4])
    return own + (_living_children() if _MEASURING else 0.0)


def _living_children() -> float:
    """Return the CPU time of children that are still alive, such as process pools."""
    ticks = 0
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:  # the process has just ended
            continue
        if int(fields[1]) == os.getpid():
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _name(case: str) -> str:
    """Return the test of a case: test_x.py::test_y for test_x.py::test_y[7]."""
    return case.partition("[")[0]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without garbage collection, and exclude the collected objects from later ones.

    Nothing that is imported becomes garbage, but it would be searched whenever the heap has grown.
    Later collections are rarer than usual: they take 1 instead of 3 % of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before -m selects tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests, and sort files by duration."""
    lines = LIST.read_text().splitlines() if LIST.exists() else []
    slow = {name: float(seconds) for name, seconds in (line.rsplit(" ", 1) for line in lines)}
    file_seconds: dict[str, float] = defaultdict(float)
    for name, seconds in slow.items():
        file_seconds[name.partition("::")[0]] += seconds
    for item in items:
        if _name(item.nodeid) in slow:
            item.add_marker(pytest.mark.slow)

    def sort_key(item: pytest.Item) -> tuple[int, float, str]:
        file = item.nodeid.partition("::")[0]
        return (_FIRST.index(file) if file in _FIRST else len(_FIRST), -file_seconds[file], file)

    items.sort(key=sort_key)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
    """Record the duration of a fixture."""
    start = _seconds()
    result = yield
    _fixture_seconds[fixturedef.argname] = _seconds() - start
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Record the duration of the fixtures of a test."""
    start = _seconds()
    try:
        return (yield)
    finally:
        item.stash[_SETUP] = _seconds() - start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Add the duration to the report of a test, which workers send to the main process."""
    start = _seconds()
    try:
        return (yield)
    finally:
        needed = set(getattr(item, "fixturenames", ())) - _KEPT
        own = _seconds() - start
        item.user_properties.append(("own", own + item.stash[_SETUP]))
        item.user_properties.append(
            ("cpu", own + sum(_fixture_seconds.get(name, 0.0) for name in needed))
        )


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect the durations of all processes."""
    name = _name(report.nodeid)
    for key, value in report.user_properties if report.when == "call" else ():
        if key == "cpu":
            _slowest_case[name] = max(_slowest_case.get(name, 0.0), float(str(value)))
        elif key == "own":
            _test_seconds[name] += float(str(value))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the list if durations are measured."""
    if _MEASURING and not hasattr(session.config, "workerinput"):
        slow = sorted(name for name, seconds in _slowest_case.items() if seconds > LIMIT)
        LIST.write_text("".join(f"{name} {_test_seconds[name]:.1f}\n" for name in slow))
