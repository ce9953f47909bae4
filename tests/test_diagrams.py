"""The diagrams of docs/architecture.md match the script that makes them, and the package."""

import importlib.util
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = runpy.run_path(str(ROOT / "docs" / "diagrams.py"))


@pytest.mark.parametrize("name", SCRIPT["diagrams"]())
def test_files_are_current(name: str) -> None:
    """A changed layer or data flow needs `python docs/diagrams.py`."""
    text = (ROOT / "docs" / "images" / name).read_text(encoding="utf-8")
    assert text == SCRIPT["diagrams"]()[name]


@pytest.mark.parametrize("module", SCRIPT["modules"]())
def test_modules_exist(module: str) -> None:
    """Every module that a data flow names can be imported."""
    assert importlib.util.find_spec(f"earatlas.{module}") is not None


def packages() -> list[tuple[str, str]]:
    """Return (package, module) for every module that the table of packages names."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z/]+)/`[^|]*\| ([^|]*) \|", text, re.MULTILINE)
    return [
        (package.replace("/", "."), module)
        for package, modules in rows
        for module in re.findall(r"`([a-z_0-9]+)`", modules)
    ]


@pytest.mark.parametrize(("package", "module"), packages())
def test_modules_of_the_table_exist(package: str, module: str) -> None:
    """Every module in the table of packages exists, except folders such as `static/`."""
    assert importlib.util.find_spec(f"earatlas.{package}.{module}") is not None


def test_the_table_has_modules() -> None:
    """The expression that reads the table still finds its rows."""
    assert len(packages()) > 80
