"""Which rows of the figures were measured by earlier code: `python docs/figure_rows.py`.

A comment on a page of docs/figures names the functions that the rows of its section depend on, a
hash of their code (`earatlas.code_hash`) when they were measured, and the first words of the rows:

    <!-- rows "VESSL as printed": 0123456789ab experiments.vessl_as_published:paper_scales -->

If the present code has another hash, the site marks these rows with † (this module is a hook of
mkdocs), and the command lists them. After a repetition of the measurement, `--measured "VESSL as
printed"` replaces the hashes. No test fails for stale rows.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).parent / "figures"
MARK = " †"
_COMMENT = re.compile(r'<!-- rows "([^"]+)": ([0-9a-f]{12}) ([\w.:, ]+) -->')
_SECTION = re.compile(r"^(?=## )", re.MULTILINE)


def fingerprint(functions: str) -> str:
    """Return 12 digits for the code of functions such as "experiments.models:paper_ppam"."""
    from earatlas.code_hash import code_hash

    digest = hashlib.sha256()
    for name in functions.split(", "):
        module, _, function = name.partition(":")
        called: Callable[..., Any] = getattr(import_module(f"earatlas.{module}"), function)
        digest.update(code_hash(called).encode())
    return digest.hexdigest()[:12]


def marked(markdown: str) -> str:
    """Return a page with marks behind the names of rows that were measured by other code."""
    parts = _SECTION.split(markdown)
    for n, part in enumerate(parts):
        for start, digest, functions in _COMMENT.findall(part):
            if digest != fingerprint(functions):
                rows = rf"^(\| {re.escape(start)}[^|†]*?)(?: †)? \|"
                parts[n] = re.sub(rows, rf"\1{MARK} |", parts[n], flags=re.MULTILINE)
    return "".join(parts)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Mark stale rows on a page of the site, if the package is installed where it is made."""
    return markdown if find_spec("earatlas") is None else marked(markdown)


def main() -> int:
    """Print the stale rows, or state that some were measured now; return 1 if any are stale."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measured", metavar="ROWS", help="rows that were measured just now")
    measured, stale = parser.parse_args().measured, 0
    for page in sorted(FIGURES.glob("*.md")):

        def current(match: re.Match[str]) -> str:
            start, _, functions = match.groups()
            return f'<!-- rows "{start}": {fingerprint(functions)} {functions} -->'

        text = page.read_text(encoding="utf-8")
        for match in _COMMENT.finditer(text):
            if match[1] == measured:
                text = text.replace(match[0], current(match))
            elif current(match) != match[0]:
                stale += 1
                print(f'stale: "{match[1]}" in docs/figures/{page.name}')
        page.write_text(text, encoding="utf-8")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
