"""Printed output of the Python blocks on the documentation's pages.

    python docs/outputs.py            # fill every `output` block anew, in place

A page's Python blocks run one after the other in an empty folder. A block that is followed by a
fence with the language `output` must print its content; tests/test_readme.py compares them.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n\n^```output\n(.*?)^```$)?", re.S | re.M)
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?")
RELATIVE, ABSOLUTE = 0.05, 0.15  # tolerance of printed numbers: machines differ in the last digits


@dataclass(frozen=True)
class Example:
    """One Python block and what it printed."""

    code: str
    expected: str | None  # None: the page shows no output
    printed: str


def run(page: Path) -> list[Example]:
    """Run the Python blocks of a page in the current folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    examples = []
    for block in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        code, expected = block[1], block[2]
        stream = io.StringIO()
        with contextlib.redirect_stdout(stream):
            exec(compile(code, page.name, "exec"), names)
        examples.append(Example(code, expected, stream.getvalue()))
    return examples


def agrees(printed: str, expected: str) -> bool:
    """Return whether the texts are equal up to white space and the tolerance of numbers."""
    texts = ("".join(_NUMBER.sub("0", text).split()) for text in (printed, expected))
    if next(texts) != next(texts):
        return False
    pairs = zip(_NUMBER.findall(printed), _NUMBER.findall(expected), strict=True)
    return all(
        abs(float(a) - float(b)) <= max(ABSOLUTE, RELATIVE * abs(float(b))) for a, b in pairs
    )


def pages() -> list[Path]:
    """Return every page that shows output."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if "```output\n" in page.read_text(encoding="utf-8")]


def fill(page: Path) -> None:
    """Replace the output blocks of a page by what its Python blocks print now."""
    with TemporaryDirectory() as folder, contextlib.chdir(folder):
        examples = iter(run(page))

    def filled(block: re.Match[str]) -> str:
        printed = next(examples).printed
        head = f"```python\n{block[1]}```"
        return head if block[2] is None else f"{head}\n\n```output\n{printed}```"

    text = _BLOCK.sub(filled, page.read_text(encoding="utf-8"))
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    warnings.simplefilter("ignore")
    for name in sys.argv[1:] or pages():
        fill(Path(name).resolve())
