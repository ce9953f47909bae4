"""The README is true: its Python runs, and its figures are those of docs/figures.md."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_readme_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python block, as printed, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    exec(compile(block, "README.md", "exec"), {})
    assert (tmp_path / "head.atlas").exists()


def test_readme_figures_are_the_measured_ones() -> None:
    """Every row of the README's table stands in docs/figures.md."""
    figures = (ROOT / "docs" / "figures.md").read_text()
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line[:2] == "| "]
    assert len(rows) >= 4
    for row in rows:
        assert row in figures
