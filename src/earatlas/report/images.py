"""Images for pages: PNG files with a palette and one pixel per cell, as data URIs.

The inputs are arrays of a scene's `SpectrogramSummary`. Small values are transparent, so that the
light or dark background of the page is visible behind them.
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
    GREY,
    LEFT_EAR,
    LEVEL_MAP,
    MISSING_OPACITY,
    PHASE_MAP,
    RIGHT_EAR,
)
from earatlas.types import Array

__all__ = [
    "ILD_STOPS",
    "LEVEL_STOPS",
    "PHASE_STOPS",
    "ild_image",
    "level_image",
    "mask_image",
    "phase_image",
    "png",
]

Bytes = NDArray[np.uint8]

# Evidence: docs/figures/settings/report.md, "images".
_SHADES = 48  # number of shades of an image


def _stops(name: str, count: int) -> tuple[str, ...]:
    """Return colours of a colour map at equal distances, for a legend."""
    return tuple(to_hex(matplotlib.colormaps[name](at)) for at in np.linspace(0, 1, count))


# Colours of legends: from quiet to loud, from the left to the right ear, from -π to π.
LEVEL_STOPS = _stops(LEVEL_MAP, 5)
ILD_STOPS = (LEFT_EAR, "transparent", RIGHT_EAR)
PHASE_STOPS = _stops(PHASE_MAP, 9)


def png(indices: Bytes, palette: Bytes) -> bytes:
    """Encode indices (H, W) into a palette (at most 256, 4) of RGBA as a PNG file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    height, width = indices.shape
    rows = np.pad(indices, ((0, 0), (1, 0)))  # each row starts with filter type 0: none
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


def _data_uri(values: Array, colours: Array) -> str:
    """Return values (H, W) in [0, 1], first row lowest, as a data URI; NaN is missing."""
    known = ~np.isnan(values)
    shade = np.where(known, np.clip(values, 0.0, 1.0), 0.0) * (len(colours) - 1)
    indices = np.where(known, 1 + np.rint(shade), 0).astype(np.uint8)[::-1]
    missing = [[*to_rgb(GREY), MISSING_OPACITY]]
    palette = np.rint(255 * np.concatenate([missing, colours])).astype(np.uint8)
    return "data:image/png;base64," + b64encode(png(indices, palette)).decode("ascii")


def _translucent(colour: str, opacity: Array) -> Array:
    """Return RGBA rows (n, 4) of a colour at opacities (n,)."""
    return np.column_stack([np.tile(to_rgb(colour), (len(opacity), 1)), opacity])


@cache
def _level_colours() -> Array:
    """Return the RGBA rows of the colour map of spectrograms."""
    return np.asarray(matplotlib.colormaps[LEVEL_MAP](np.linspace(0, 1, _SHADES)), dtype=np.float64)


def level_image(level_db: Array, top_db: float, range_db: float) -> str:
    """Return the image of a spectrogram; it is black `range_db` below `top_db`."""
    known = np.where(np.isfinite(level_db), level_db, -np.inf)
    return _data_uri(np.clip((known - top_db) / range_db + 1, 0.0, 1.0), _level_colours())


def ild_image(ild_db: Array, limit_db: float) -> str:
    """Return the image of level differences: blue if the left ear is louder, red if the right."""
    half = np.linspace(0.0, 1.0, _SHADES)
    left, right = _translucent(LEFT_EAR, half[::-1]), _translucent(RIGHT_EAR, half[1:])
    return _data_uri(0.5 + ild_db / (2 * limit_db), np.concatenate([left, right]))


def phase_image(radians: Array) -> str:
    """Return the image of phases within ±π in cyclic colours; NaN is missing."""
    colours = np.asarray(matplotlib.colormaps[PHASE_MAP](np.linspace(0, 1, _SHADES)))
    return _data_uri(0.5 + radians / (2 * np.pi), colours)


def mask_image(mask: Array, colour: str) -> str:
    """Return the image of probabilities: transparent at 0, the full colour at 1."""
    return _data_uri(mask, _translucent(colour, np.linspace(0.0, 1.0, _SHADES)))
