"""The diagrams of docs/architecture.md match the script that makes them, and the package."""

import importlib.util
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
