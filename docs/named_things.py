"""Site hook: names on a page must exist in the package, or the strict build fails.

It checks imports in Python blocks, and names in backticks that start with a package or module of
earatlas (`features.stft.stft`) or with a public class (`PPAM.fit`).
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
_SUFFIXES = {"csv", "html", "json", "jsonl", "md", "py", "sofa", "wav"}
_NAME = re.compile(r"`((?:[A-Za-z]\w*\.)+[A-Za-z]\w*)(?:\([^`]*\))?`")


@cache
def package() -> Any:
    """Return the package, loaded from the source."""
    return griffe.load("earatlas", search_paths=[os.environ.get("EARATLAS_SRC", "src")])


def exists(path: str) -> bool:
    """Return whether the package has this name (also as attribute or inherited member)."""
    thing = package()
    for part in path.split("."):
        try:
            thing = thing.all_members[part] if thing.is_class else thing[part]
        except (KeyError, griffe.AliasResolutionError, griffe.CyclicAliasError):
            return False
        if thing.is_attribute:
            return True  # attributes of values are not resolved
    return True


def full_path(name: str) -> str | None:
    """Return the path within the package of a name in backticks, or None if it is another name."""
    first, root = name.split(".")[0], package()
    if name.rpartition(".")[2] in _SUFFIXES:  # the name of a file, such as batch.jsonl
        return None
    if first == "earatlas":
        return name.removeprefix("earatlas.")
    if first == "ea" or first not in root.members:
        return name.removeprefix("ea.") if first == "ea" else None
    return name


def on_page_markdown(markdown: str, page: Any, **_: Any) -> None:
    """Warn about every name that does not exist, which fails a strict build."""
    names = {full_path(name) for name in _NAME.findall(markdown)} - {None}
    for module, imported in _IMPORT.findall(markdown):
        inside = f"{module}.".removeprefix("earatlas.")
        names |= {inside + name.strip() for name in imported.split(",")}
    for name in sorted(str(name) for name in names):
        if not exists(name):
            log.warning("%s names earatlas.%s, which does not exist", page.file.src_uri, name)
