"""What the figures share: arrays in rows, colours, and a picture in a page."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from earatlas.plotting.palette import COLOURS, GREY, INK, MISSING
from earatlas.plotting.style import figure_of, save, styled
from earatlas.types import Array

__all__ = ["COLOURS", "GREY", "INK", "MISSING", "figure_of", "pack", "picture", "styled", "unpack"]


_STEPS = 30_000


def pack(values: ArrayLike) -> dict[str, Any]:
    """An array as JSON values: 16 bits a number, over the array's own range; NaN stays NaN."""
    v = np.asarray(values, dtype=np.float64)
    low, high = float(np.nanmin(v)), float(np.nanmax(v))
    scaled = (v - low) * (_STEPS / max(high - low, 1e-300))
    small = np.where(np.isnan(v), -1, np.rint(scaled)).astype("<i2")
    text = base64.b64encode(zlib.compress(small.tobytes(), 9)).decode()
    return {"shape": list(v.shape), "low": low, "high": high, "data": text}


def unpack(packed: dict[str, Any]) -> Array:
    """The array that `pack` took, to 1 in 30,000 of its range."""
    small = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), dtype="<i2")
    scaled = packed["low"] + small * ((packed["high"] - packed["low"]) / _STEPS)
    return np.where(small < 0, np.nan, scaled).reshape(packed["shape"])


def picture(figure: Figure, folder: Path, name: str, caption: str) -> str:
    """The figure saved into the folder, and the Markdown that shows it from the folder's parent."""
    safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
    path = save(figure, folder / f"{safe}.png")
    return f"![{caption}]({folder.name}/{path.name})"
