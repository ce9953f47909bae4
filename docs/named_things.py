"""For the site: what a page names must be in the package, or the strict build fails.

Checked are imports in Python blocks, and names in backticks that start with a package or module of
earatlas (`hearing.transform.stft`) or with a public class (`PPAM.fit`).
"""

from __future__ import annotations

import logging
import os
import re
from functools import cache
from typing import Any

import griffe

log = logging.getLogger("mkdocs.hooks.named_things")
_IMPORT = re.compile(r"^from (earatlas[\w.]*) import ([\w, ]+)", re.MULTILINE)
_NAME = re.compile(r"`((?:[A-Za-z]\w*\.)+[A-Za-z]\w*)(?:\([^`]*\))?`")


@cache
def package() -> Any:
    """The package, read from the source."""
    return griffe.load("earatlas", search_paths=[os.environ.get("EARATLAS_SRC", "src")])


def exists(path: str) -> bool:
    """Whether the package has such a thing; instance attributes and inherited members count."""
    thing = package()
    for part in path.split("."):
        try:
            thing = thing.all_members[part] if thing.is_class else thing[part]
        except (KeyError, griffe.AliasResolutionError, griffe.CyclicAliasError):
            return False
        if thing.is_attribute:
            return True  # what lies in a value is not looked into
    return True


def full_path(name: str) -> str | None:
    """The path within the package of a name in backticks; None if it is of something else."""
    first, root = name.split(".")[0], package()
    if first == "earatlas":
        return name.removeprefix("earatlas.")
    if first == "ea" or first not in root.members:
        return name.removeprefix("ea.") if first == "ea" else None
    return name


def on_page_markdown(markdown: str, page: Any, **_: Any) -> None:
    """Warn, which fails a strict build, of every name that is not there."""
    names = {full_path(name) for name in _NAME.findall(markdown)} - {None}
    for module, imported in _IMPORT.findall(markdown):
        inside = f"{module}.".removeprefix("earatlas.")
        names |= {inside + name.strip() for name in imported.split(",")}
    for name in sorted(str(name) for name in names):
        if not exists(name):
            log.warning("%s names earatlas.%s, which is not there", page.file.src_uri, name)
