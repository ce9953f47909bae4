"""Tests of conventions: private imports, colours, and pinned actions of the workflow."""

import ast
import re
from pathlib import Path

import pytest

import earatlas as ea

SOURCE = Path(ea.__file__).parent
PACKAGES = sorted(
    f for f in SOURCE.iterdir() if (f.is_dir() and f.name[0] != "_") or f.suffix == ".py"
)


def private_imports(file: Path) -> list[str]:
    """Return the names with an underscore that a file imports from other modules."""
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return [
        f"{file.relative_to(SOURCE)}: {node.module}.{alias.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("earatlas")
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    ]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_private_names_are_not_imported(package: Path) -> None:
    """No module imports another's private names."""
    files = [package] if package.is_file() else sorted(package.rglob("*.py"))
    assert [name for file in files for name in private_imports(file)] == []


def test_private_imports_are_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Imports over several lines, under another name and in functions are detected."""
    monkeypatch.setattr("test_conventions.SOURCE", tmp_path)
    file = tmp_path / "x.py"
    file.write_text(
        "from earatlas.a import (\n    b,\n    _c,\n)\n"
        "from earatlas import __version__\nfrom numpy import _core\n"
        "def f():\n    from earatlas.d import _E as e\n"
    )
    assert private_imports(file) == ["x.py: earatlas.a._c", "x.py: earatlas.d._E"]


@pytest.mark.parametrize("package", ["plotting", "report", "studio"])
def test_colours_are_defined_in_palette(package: str) -> None:
    """Only the palette contains colour codes."""
    for file in (SOURCE / package).glob("*.py"):
        found = re.findall(r"[\"',]#[0-9a-fA-F]{6}", file.read_text(encoding="utf-8"))
        assert not found or file.name == "palette.py", (file.name, found)


def test_actions_are_pinned() -> None:
    """The workflow names actions by commit, with the version as a comment: a tag can be moved."""
    workflows = sorted((Path(__file__).parents[1] / ".github" / "workflows").glob("*.yml"))
    lines = [line for file in workflows for line in file.read_text().splitlines()]
    used = [line for line in lines if "uses:" in line]
    assert used
    pinned = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")
    assert [line for line in used if pinned.search(line) is None] == []
