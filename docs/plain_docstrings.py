"""For the site: examples in docstrings as code, and parameters that a reader may know.

Docstrings here are plain Markdown, in which a bare `>>>` would be a quotation within a quotation.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


def fenced(text: str) -> str:
    """The text with every run of `>>>` lines, up to an empty one, in a fence."""
    return _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)


class PlainDocstrings(griffe.Extension):
    """Puts fences around the examples of every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring in place, once the object is read."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
