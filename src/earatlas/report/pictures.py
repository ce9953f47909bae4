"""Picture of a camera as the background of a map of positions in its image."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

from earatlas.geometry.spaces import Space
from earatlas.plotting.pictures import read_picture

__all__ = ["picture_uri"]


def picture_uri(picture: str | Path, space: Space) -> str:
    """Return a picture of the size of the image as a data URI."""
    read_picture(picture, space)
    content = Path(picture).read_bytes()
    kind = "png" if content.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64," + b64encode(content).decode("ascii")
