"""For the site: docstrings as they are written here, and the comments beside fields.

Docstrings are plain Markdown, in which a bare `>>>` would be a quotation within a quotation:
examples get a fence. What a field of a dataclass holds, its shape and unit, stands in a comment on
its line.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)
_COMMENT = re.compile(r"\s# (?!type:|noqa|fmt:)(.*?)\s*$")


def fenced(text: str) -> str:
    """The text with every run of `>>>` lines, up to an empty one, in a fence."""
    return _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)


def comment_of(field: griffe.Object) -> str | None:
    """What the comment on the last line of a field says, as text and not as Markdown."""
    found = _COMMENT.search(field.lines[-1]) if field.lines else None
    return None if found is None else re.sub(r"([*_<>\[\]])", r"\\\1", found[1])


def fields_of(cls: griffe.Object) -> str:
    """A list of the fields of a class that have words beside them."""
    fields = {
        name: comment_of(field)
        for name, field in cls.members.items()
        if not field.is_alias and field.is_attribute and field.docstring is None
    }
    return "\n".join(f"- `{name}`: {text}" for name, text in fields.items() if text)


class PlainDocstrings(griffe.Extension):
    """Puts fences around examples, and the list of its fields into a class's docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring in place, once the object is read."""
        if obj.docstring is None:
            return
        obj.docstring.value = fenced(obj.docstring.value)
        if obj.is_class and (fields := fields_of(obj)):
            obj.docstring.value += f"\n\n{fields}"
