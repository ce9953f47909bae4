"""The house: what is private stays in its file, and colours are written in one."""

import ast
import re
from pathlib import Path

import pytest

import earatlas as ea

SOURCE = Path(ea.__file__).parent
ROOMS = sorted(
    f for f in SOURCE.iterdir() if (f.is_dir() and f.name[0] != "_") or f.suffix == ".py"
)


def private_imports(file: Path) -> list[str]:
    """What a file imports from others of the package that begins with an underscore."""
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return [
        f"{file.relative_to(SOURCE)}: {node.module}.{alias.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("earatlas")
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    ]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_private_names_stay_at_home(room: Path) -> None:
    """No module imports another's private names."""
    files = [room] if room.is_file() else sorted(room.rglob("*.py"))
    assert [name for file in files for name in private_imports(file)] == []


def test_private_imports_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also over several lines, under another name, and inside a function."""
    monkeypatch.setattr("test_conventions.SOURCE", tmp_path)
    file = tmp_path / "x.py"
    file.write_text(
        "from earatlas.a import (\n    b,\n    _c,\n)\n"
        "from earatlas import __version__\nfrom numpy import _core\n"
        "def f():\n    from earatlas.d import _E as e\n"
    )
    assert private_imports(file) == ["x.py: earatlas.a._c", "x.py: earatlas.d._E"]


@pytest.mark.parametrize("room", ["plotting", "report", "studio"])
def test_one_palette(room: str) -> None:
    """Colours are written in the palette alone."""
    for file in (SOURCE / room).glob("*.py"):
        found = re.findall(r"[\"',]#[0-9a-fA-F]{6}", file.read_text(encoding="utf-8"))
        assert not found or file.name == "palette.py", (file.name, found)
