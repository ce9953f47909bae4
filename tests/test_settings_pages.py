"""Tests of the pages on settings: links from the code resolve, and named settings exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "earatlas"
PAGES = sorted((ROOT / "docs" / "figures" / "settings").glob("*.md"))

# A page and optionally a section; a line break in between may be followed by a comment sign.
_LINK = re.compile(r'(docs/figures/settings/\w+\.md)(?:,(?:\s+#)?\s+"([^"\n]+)")?')
_CONSTANT = re.compile(r"`(_?[A-Z][A-Z0-9_]+)`")


def links(text: str) -> list[tuple[str, str | None]]:
    """Return the links of a module to pages on settings, each with its section or None."""
    return [(match[1], match[2]) for match in _LINK.finditer(text)]


def headings(page: Path) -> set[str]:
    """Return the second-level headings of a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return {line[3:].split("{")[0].strip() for line in lines if line.startswith("## ")}


def broken_links(file: Path, root: Path = ROOT) -> list[str]:
    """Return the links of a module whose page or section does not exist."""
    broken = []
    for name, section in links(file.read_text(encoding="utf-8")):
        page = root / name
        if not page.is_file() or (section is not None and section not in headings(page)):
            broken.append(f'{file.name}: {name}, "{section}"')
    return broken


def named_constants(page: Path) -> set[str]:
    """Return the constants in the first column of the tables of a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    rows = [line.split("|")[1] for line in lines if line.startswith("|")]
    return {name for row in rows for name in _CONSTANT.findall(row)}


def test_links_to_settings_pages_resolve() -> None:
    """Every link in the code points to an existing page and heading."""
    files = sorted(SOURCE.rglob("*.py"))
    assert sum(len(links(file.read_text(encoding="utf-8"))) for file in files) > 100
    assert [link for file in files for link in broken_links(file)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_settings_of_a_page_exist(page: Path) -> None:
    """Constants that a page names as settings occur in the code."""
    code = "\n".join(file.read_text(encoding="utf-8") for file in sorted(SOURCE.rglob("*.py")))
    assert named_constants(page) - set(re.findall(r"\w+", code)) == set()


def test_broken_links_are_detected(tmp_path: Path) -> None:
    """Missing pages and sections are detected, also after a line break."""
    folder = tmp_path / "docs" / "figures" / "settings"
    folder.mkdir(parents=True)
    (folder / "a.md").write_text("# Settings\n\n## one\n\n## two { #second }\n")
    file = tmp_path / "x.py"
    file.write_text(
        '# Evidence: docs/figures/settings/a.md, "one".\n'
        '# Evidence: docs/figures/settings/a.md,\n# "two".\n'
        '# Evidence: docs/figures/settings/a.md,\n# "three".\n'
        '# Evidence: docs/figures/settings/b.md, "one".\n'
    )
    assert broken_links(file, tmp_path) == [
        'x.py: docs/figures/settings/a.md, "three"',
        'x.py: docs/figures/settings/b.md, "one"',
    ]
