"""Line coverage of the tests, which costs little time: `make test COVERAGE=1`.

Before Python 3.12, coverage.py traces with `sys.settrace`. While that is active, the interpreter
runs all Python code, that of other packages too, three to five times slower. Here the modules of a
package are compiled with assignments that note which lines are executed instead. coverage.py then
counts them by the settings in pyproject.toml, so that the percentages are those of tracing
(tests/test_executed_lines.py). New processes are not measured.

    lines   a list per file, faster than other arrays; element n is 1 if line n was executed
"""

import ast
import importlib.machinery
import os
import sys
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from types import CodeType, ModuleType

import pytest

__all__ = ["InstrumentedModules", "pytest_configure"]

_LINES = "__lines__"  # this name is not mangled in classes, and not public


class InstrumentedModules:
    """Compiles the modules of a package that are imported from now on, and has their lines.

    A finder of modules, for `sys.meta_path`.
    """

    def __init__(self, package: str) -> None:
        """Take the name of a package that is not yet imported."""
        if package in sys.modules:
            raise RuntimeError(f"{package} was imported before its lines could be noted")
        self.package = package
        self.lines: dict[str, list[int]] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find a module as usual, but load it with `_Loader`."""
        if name.partition(".")[0] != self.package:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(name, spec.loader.path, self.lines)
        return spec

    def executed(self) -> dict[str, list[int]]:
        """Return the executed lines of each file."""
        return {
            file: [line for line, executed in enumerate(flags) if executed]
            for file, flags in self.lines.items()
        }

    def pytest_sessionfinish(self) -> None:
        """Write the lines of this process for `coverage combine`, also of files without any."""
        from coverage import CoverageData

        data = CoverageData(suffix=str(os.getpid()))
        data.add_lines(self.executed())
        root = Path(next(file for file in self.lines if Path(file).name == "__init__.py")).parent
        data.touch_files([str(file) for file in root.rglob("*.py")])
        data.write()


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module whose statements note their lines."""

    def __init__(self, name: str, path: str, lines: dict[str, list[int]]) -> None:
        super().__init__(name, path)
        self._lines = lines

    def get_code(self, fullname: str) -> CodeType:
        """Compile the source always: compiled files contain no notes."""
        return instrument(self.get_data(self.path), self.path)

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its lines before it runs."""
        n_lines = self.get_data(self.path).count(b"\n") + 1
        setattr(module, _LINES, self._lines.setdefault(self.path, [0] * (n_lines + 1)))
        super().exec_module(module)


def instrument(source: bytes, path: str) -> CodeType:
    """Compile a module: `__lines__[7] = 1` precedes the statement that starts in line 7."""
    tree = ast.parse(source, path)
    tree.body = _noted(tree.body)
    return compile(tree, path, "exec", dont_inherit=True)


def _noted(body: list[ast.stmt], before: Iterable[int] = ()) -> list[ast.stmt]:
    """Return statements with notes of their lines, and first of the lines `before` them."""
    first = list(takewhile(_must_be_first, body))
    result = [*first, *map(_note, before), *(_note(statement.lineno) for statement in first)]
    for statement in body[len(first) :]:
        decorators = getattr(statement, "decorator_list", ())
        result += [_note(part.lineno) for part in (*decorators, statement)]
        result.append(statement)
    for statement in body:
        for field in ("body", "orelse", "finalbody"):
            if inner := getattr(statement, field, None):
                setattr(statement, field, _noted(inner))
        tried: list[int] = []  # the branches are tried in order until one matches
        for branch in getattr(statement, "handlers", []) + getattr(statement, "cases", []):
            tried.append((branch.pattern if hasattr(branch, "pattern") else branch).lineno)
            branch.body = _noted(branch.body, tried)
    return result


def _must_be_first(statement: ast.stmt) -> bool:
    """Return whether notes may not precede a statement: docstrings, imports from __future__."""
    if isinstance(statement, ast.ImportFrom):
        return statement.module == "__future__"
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _note(line: int) -> ast.stmt:
    target = ast.Subscript(ast.Name(_LINES, ast.Load()), ast.Constant(line), ast.Store())
    note = ast.Assign([target], ast.Constant(1))
    for node in (note, target, target.value, target.slice, note.value):
        node.lineno = node.end_lineno = line
        node.col_offset = node.end_col_offset = 0
    return note


_MODULES = InstrumentedModules("earatlas") if os.environ.get("EARATLAS_COVERAGE") else None
if _MODULES:
    sys.meta_path.insert(0, _MODULES)


def pytest_configure(config: pytest.Config) -> None:
    """Write the lines of this process at its end if they are noted."""
    if _MODULES:
        config.pluginmanager.register(_MODULES)
