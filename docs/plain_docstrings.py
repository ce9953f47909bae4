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
    """What the comment on the last line of a field says."""
    found = _COMMENT.search(field.lines[-1]) if field.lines else None
    # Symbols such as S_k and *: a comment is text, not Markdown.
    return None if found is None else re.sub(r"([*_<>\[\]])", r"\\\1", found[1])


class PlainDocstrings(griffe.Extension):
    """Puts fences around examples, and gives fields the words beside them."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring in place, once the object is read."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
        elif obj.is_attribute and obj.parent is not None and obj.parent.is_class:
            text = comment_of(obj)
            if text:
                obj.docstring = griffe.Docstring(text, parent=obj)
