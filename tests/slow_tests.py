"""Which tests are slow: those of tests/slow.txt, a list that is measured; `make check` skips them.

`make slow` runs everything and writes the list anew: functions of which a case takes more than
`LIMIT` seconds of CPU, with what it needs from fixtures, and the seconds of all its cases. The list
is by name, so that a new test is quick until it is measured. Files are run in the order of their
seconds, the longest first: at the end no worker waits long for the other.
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = [
    "pytest_collection_modifyitems",
    "pytest_fixture_setup",
    "pytest_runtest_call",
    "pytest_runtest_logreport",
    "pytest_runtest_setup",
    "pytest_sessionfinish",
]

LIMIT = 0.15  # what is left takes some 20 s on two cores, most of it imports
LIST = Path(__file__).with_name("slow.txt")
# Two workers begin with these: each learns heads that others need, and would wait for, too.
_FIRST = ("tests/test_atlas.py", "tests/test_readme.py")
_KEPT = {"atlas"}  # learned in the first session, and read from its file in all others
_SETUP = pytest.StashKey[float]()
_made: dict[str, float] = {}  # seconds that each fixture took, in this process
_taken: dict[str, float] = {}  # seconds of the slowest case of each test, of all processes
_total: dict[str, float] = defaultdict(float)  # and of all its cases
_MEASURING = bool(os.environ.get("EARATLAS_MEASURE_SLOW"))


def _seconds() -> float:
    """CPU of this process and of its children: other work on the machine is not in."""
    own = sum(os.times()[:4])
    return own + (_living_children() if _MEASURING else 0.0)


def _living_children() -> float:
    """CPU of children that nobody has waited for yet: pools of processes that stay."""
    ticks = 0
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(fields[1]) == os.getpid():
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _name(case: str) -> str:
    """The test of a case: test_x.py::test_y[7] is one of test_x.py::test_y."""
    return case.partition("[")[0]


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the list; files that take long come early, so that no worker is last."""
    lines = LIST.read_text().splitlines() if LIST.exists() else []
    slow = {name: float(seconds) for name, seconds in (line.rsplit(" ", 1) for line in lines)}
    long: dict[str, float] = defaultdict(float)
    for name, seconds in slow.items():
        long[name.partition("::")[0]] += seconds
    for item in items:
        if _name(item.nodeid) in slow:
            item.add_marker(pytest.mark.slow)

    def place(item: pytest.Item) -> tuple[int, float, str]:
        file = item.nodeid.partition("::")[0]
        return (_FIRST.index(file) if file in _FIRST else len(_FIRST), -long[file], file)

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
    """Keep what a fixture took."""
    start = _seconds()
    result = yield
    _made[fixturedef.argname] = _seconds() - start
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Keep what a test's fixtures took."""
    start = _seconds()
    try:
        return (yield)
    finally:
        item.stash[_SETUP] = _seconds() - start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Put what a test took into its report, which other processes send home."""
    start = _seconds()
    try:
        return (yield)
    finally:
        needed = set(getattr(item, "fixturenames", ())) - _KEPT
        own = _seconds() - start
        item.user_properties.append(("own", own + item.stash[_SETUP]))
        item.user_properties.append(("cpu", own + sum(_made.get(name, 0.0) for name in needed)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect the reports of all processes."""
    name = _name(report.nodeid)
    for key, value in report.user_properties if report.when == "call" else ():
        if key == "cpu":
            _taken[name] = max(_taken.get(name, 0.0), float(str(value)))
        elif key == "own":
            _total[name] += float(str(value))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the list, if it was asked for."""
    if _MEASURING and not hasattr(session.config, "workerinput"):
        slow = sorted(name for name, seconds in _taken.items() if seconds > LIMIT)
        LIST.write_text("".join(f"{name} {_total[name]:.1f}\n" for name in slow))
