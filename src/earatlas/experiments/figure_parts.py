"""Shared parts of the figures: arrays in rows, colours, and pictures on the page."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from earatlas.plotting.palette import COLOURS, GREY, INK, MARKERS, MISSING
from earatlas.plotting.style import degree_labels, new_figure, save, style_axes
from earatlas.types import Array

__all__ = [
    "COLOURS",
    "GREY",
    "INK",
    "MARKERS",
    "MISSING",
    "degree_labels",
    "new_figure",
    "pack_array",
    "save_picture",
    "style_axes",
    "unpack_array",
]


_STEPS = 30_000  # quantization steps over the range of an array


def pack_array(values: ArrayLike) -> dict[str, Any]:
    """Return an array as JSON values with 16 bits per number over its range; NaN is kept."""
    v = np.asarray(values, dtype=np.float64)
    low, high = float(np.nanmin(v)), float(np.nanmax(v))
    scaled = (v - low) * (_STEPS / max(high - low, 1e-300))
    small = np.where(np.isnan(v), -1, np.rint(scaled)).astype("<i2")
    text = base64.b64encode(zlib.compress(small.tobytes(), 9)).decode()
    return {"shape": list(v.shape), "low": low, "high": high, "data": text}


def unpack_array(packed: dict[str, Any]) -> Array:
    """Return the array that `pack_array` packed, accurate to 1 in 30,000 of its range."""
    small = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), dtype="<i2")
    scaled = packed["low"] + small * ((packed["high"] - packed["low"]) / _STEPS)
    return np.where(small < 0, np.nan, scaled).reshape(packed["shape"])


def save_picture(figure: Figure, folder: Path, name: str, caption: str) -> str:
    """Save the figure and return the Markdown that shows it from the parent of the folder."""
    safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
    path = save(figure, folder / f"{safe}.png")
    return f"![{caption}]({folder.name}/{path.name})"
