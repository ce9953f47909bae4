"""Site extension: fence examples, and document the fields of dataclasses by their comments.

Plain docstrings are Markdown, in which `>>>` would be a block quotation: examples outside of a
numpydoc section get a fence. The shape and unit of a dataclass field are in the comment on its
line; they become a list in the class documentation.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)
_COMMENT = re.compile(r"\s# (?!type:|noqa|fmt:)(.*?)\s*$")
_SECTION = re.compile(r"^[A-Z][A-Za-z ]+\n-{3,}$", re.MULTILINE)


def fenced(text: str) -> str:
    """Return the text with every run of `>>>` lines, up to an empty one, in a fence."""
    return _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)


def comment_of(field: griffe.Object) -> str | None:
    """Return the comment on the last line of a field, escaped for Markdown."""
    found = _COMMENT.search(field.lines[-1]) if field.lines else None
    return None if found is None else re.sub(r"([*_<>\[\]])", r"\\\1", found[1])


def fields_of(cls: griffe.Object) -> str:
    """Return a list of the fields of a class that have a comment."""
    fields = {
        name: comment_of(field)
        for name, field in cls.members.items()
        if not field.is_alias and field.is_attribute and field.docstring is None
    }
    return "\n".join(f"- `{name}`: {text}" for name, text in fields.items() if text)


class PlainDocstrings(griffe.Extension):
    """Adds fences around plain examples, and the list of fields to class docstrings."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring in place after the object was loaded."""
        if obj.docstring is None:
            return
        text = obj.docstring.value
        section = _SECTION.search(text)
        prose, sections = (
            (text[: section.start()], text[section.start() :]) if section else (text, "")
        )
        prose = fenced(prose)
        documented = re.search(r"^(Parameters|Attributes)\n-{3,}$", sections, re.MULTILINE)
        if obj.is_class and not documented and (fields := fields_of(obj)):
            prose = f"{prose.rstrip()}\n\n{fields}\n\n"
        obj.docstring.value = prose + sections
