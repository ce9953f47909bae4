"""Lines that are noted by instrumented modules are those that coverage.py traces."""

import importlib
import sys
from pathlib import Path

import coverage
import pytest
from executed_lines import InstrumentedModules

STATEMENTS = '''"""A module
of several lines."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import (
    cache,
    partial,
)


@dataclass(
    frozen=True
)
class Point:
    """A class."""

    x: int = 3
    y: int = 4

    @property
    def size(self) -> int:
        """A docstring."""
        return (
            self.x
            + self.y
        )

    def unused(self) -> int:
        """A docstring."""
        return 1


@cache
@partial(partial, b=1)
def branches(a: int, b: int = 0) -> str:
    global counted
    counted = a
    if a == 1:
        text = "one"
    elif a == 2:
        text = "two"
    elif a == 3:
        text = "three"
    else:
        text = "many"
    match a:
        case 1:
            text += "1"
        case 2 if b:
            text += "2"
        case 5:
            text += "5"
        case _:
            text += "_"
    return text


def raises(error: Exception) -> str:
    """Raise and catch."""
    try:
        raise error
    except KeyError:
        return "key"
    except (
        ValueError,
        OSError,
    ) as caught:
        return str(caught)
    except TypeError:
        return "type"
    else:
        return "never"
    finally:
        print(
            "end"
        )


def loops(n: int):
    """A generator."""
    for i in range(n):
        if i == 1: continue
        yield i
    else:
        yield -1
    while n > 0:
        n -= 1
        with contextlib.suppress(KeyError), \\
                contextlib.suppress(OSError):
            raise KeyError
    else:
        yield [
            k
            for k in range(3)
        ]
    if n: return
    lambda: (
        n
    )
    """A text."""
    pass


async def never() -> None:
    async with None:
        pass


Point().size
[branches(a) for a in (1, 2, 7)]
raises(OSError())
list(loops(3))
'''


def test_lines_are_those_of_a_tracer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways find the same lines missing, some in each kind of statement."""
    path = tmp_path / "many_statements.py"
    path.write_text(STATEMENTS)
    monkeypatch.syspath_prepend(tmp_path)
    tracer = coverage.Coverage(data_file=None, config_file=False, include=[str(path)])
    with tracer.collect():
        importlib.import_module(path.stem)
    *_, traced_missing, _ = tracer.analysis2(str(path))
    monkeypatch.delitem(sys.modules, path.stem)
    modules = InstrumentedModules(path.stem)
    monkeypatch.setattr(sys, "meta_path", [modules, *sys.meta_path])
    importlib.import_module(path.stem)
    monkeypatch.delitem(sys.modules, path.stem)
    noted = coverage.Coverage(data_file=None, config_file=False, include=[str(path)])
    noted.get_data().add_lines(modules.executed())
    *_, noted_missing, _ = noted.analysis2(str(path))
    assert noted_missing == traced_missing
    assert {STATEMENTS.splitlines()[line - 1].strip() for line in noted_missing} >= {
        *("return 1", 'text = "three"', 'text += "5"', "except TypeError:", "async with None:"),
    }


def test_an_imported_package_is_refused() -> None:
    """Lines of a package that is already imported could not be noted."""
    with pytest.raises(RuntimeError, match="json was imported before its lines"):
        InstrumentedModules("json")
