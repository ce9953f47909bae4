"""The tutorial notebooks run from top to bottom, and show their results."""

import ast
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
TUTORIALS = sorted((ROOT / "examples" / "tutorials").glob("*.py"))
MARKER = "# %%"


def cells(path: Path) -> list[tuple[str, str]]:
    """Return the cells of a notebook in the percent format: kind and text."""
    before, *parts = path.read_text(encoding="utf-8").split(MARKER)
    assert before == ""
    found = []
    for part in parts:
        header, _, text = part.partition("\n")
        assert header in ("", " [markdown]")
        found.append(("markdown" if header else "code", text.strip()))
    return found


def run_cell(text: str, names: dict[str, Any]) -> str:
    """Run a cell as a notebook does, and return what it shows: the value of its last line."""
    tree = ast.parse(text)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, "cell", "exec"), names)
        return ""
    del tree.body[-1]
    exec(compile(tree, "cell", "exec"), names)
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    html = getattr(value, "_repr_html_", None)
    return str(html() if html else repr(value))


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_tutorial_runs(
    tutorial: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each notebook begins with a title, runs, shows a view and leaves no files."""
    if tutorial.stem == "reverberant_rooms" and find_spec("pyroomacoustics") is None:
        pytest.skip("pyroomacoustics is an extra")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    all_cells = cells(tutorial)
    assert all_cells[0][0] == "markdown"
    assert all_cells[0][1].startswith("# # ")
    shown = [run_cell(text, names) for kind, text in all_cells if kind == "code"]
    assert any("earatlas-view" in html for html in shown)
    assert capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_markdown_cells_are_comments() -> None:
    """Every line of a text cell is a comment, so that a notebook is also a script."""
    for tutorial in TUTORIALS:
        for kind, text in cells(tutorial):
            if kind == "markdown":
                assert all(line.startswith("#") for line in text.splitlines()), tutorial


def test_all_tutorials_are_documented() -> None:
    """The page of the tutorials includes each of them."""
    page = (ROOT / "docs" / "guide" / "tutorials.md").read_text(encoding="utf-8")
    assert len(TUTORIALS) == 6
    for tutorial in TUTORIALS:
        assert f"examples/tutorials/{tutorial.name}" in page
