"""Images for a page: PNG files with a palette, one pixel a cell, inside the page.

In: arrays of a scene's `Picture`. Out: data URIs. Colours are see-through where there is little to
show, so that the page's own ground, light or dark, is behind them.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from functools import cache

import matplotlib
import numpy as np
from matplotlib.colors import to_hex, to_rgb
from numpy.typing import NDArray

from earatlas.plotting.palette import (
    BLACK,
    GREY,
    LEFT,
    LEVEL_MAP,
    MISSING_OPACITY,
    RIGHT,
    WHITE,
)
from earatlas.types import Array

__all__ = [
    "LEVEL_STOPS",
    "ild_image",
    "level_image",
    "mask_image",
    "on_colour",
    "png",
]

Bytes = NDArray[np.uint8]

_STEPS = 48  # shades of an image: more cannot be told apart, and fewer bytes do
# The colours of a spectrogram's key, from quiet to loud.
LEVEL_STOPS = tuple(to_hex(matplotlib.colormaps[LEVEL_MAP](at)) for at in (0, 0.25, 0.5, 0.75, 1.0))


def png(indices: Bytes, palette: Bytes) -> bytes:
    """A PNG file of indices (H, W) into a palette (256 at most, 4) of RGBA."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    height, width = indices.shape
    rows = np.pad(indices, ((0, 0), (1, 0)))  # every row begins with its filter: none
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            chunk(b"PLTE", palette[:, :3].tobytes()),
            chunk(b"tRNS", palette[:, 3].tobytes()),
            chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)),
            chunk(b"IEND", b""),
        )
    )


def _image(values: Array, colours: Array) -> str:
    """Values (H, W) in [0, 1], first row lowest, as a data URI; NaN is missing."""
    known = ~np.isnan(values)
    shade = np.where(known, np.clip(values, 0.0, 1.0), 0.0) * (len(colours) - 1)
    indices = np.where(known, 1 + np.rint(shade), 0).astype(np.uint8)[::-1]
    missing = [[*to_rgb(GREY), MISSING_OPACITY]]
    palette = np.rint(255 * np.concatenate([missing, colours])).astype(np.uint8)
    return "data:image/png;base64," + b64encode(png(indices, palette)).decode("ascii")


def _see_through(colour: str, opacity: Array) -> Array:
    return np.column_stack([np.tile(to_rgb(colour), (len(opacity), 1)), opacity])


@cache
def _level_colours() -> Array:
    return np.asarray(matplotlib.colormaps[LEVEL_MAP](np.linspace(0, 1, _STEPS)), dtype=np.float64)


def level_image(level_db: Array, top_db: float, range_db: float) -> str:
    """A spectrogram as a data URI, from black at `range_db` below `top_db`."""
    known = np.where(np.isfinite(level_db), level_db, -np.inf)
    return _image(np.clip((known - top_db) / range_db + 1, 0.0, 1.0), _level_colours())


def ild_image(ild_db: Array, limit_db: float) -> str:
    """Level differences: blue where the left ear is louder, red where the right one is."""
    half = np.linspace(0.0, 1.0, _STEPS)
    left, right = _see_through(LEFT, half[::-1]), _see_through(RIGHT, half[1:])
    return _image(0.5 + ild_db / (2 * limit_db), np.concatenate([left, right]))


def mask_image(mask: Array, colour: str) -> str:
    """Probabilities: nothing at 0, the colour at 1."""
    return _image(mask, _see_through(colour, np.linspace(0.0, 1.0, _STEPS)))


def on_colour(colour: str) -> str:
    """Black or white, whichever is easier to read on the colour (WCAG contrast)."""
    c = np.array(to_rgb(colour))
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    return BLACK if linear @ (0.2126, 0.7152, 0.0722) > 0.179 else WHITE
