"""Live in the studio: blocks of sound in, who is where now and one of them to be heard out.

In: samples of the page's microphones, as bytes of 32-bit floats, left and right in turn. Out: JSON
values for the sphere, and the sound of the source that is monitored, in the same form.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from earatlas.atlas import Atlas
from earatlas.drawing.palette import colour_of
from earatlas.errors import InputError
from earatlas.localization.stream import Localizer
from earatlas.report.images import on_colour
from earatlas.studio.views import sphere_view
from earatlas.types import Array
from earatlas.words import place_words, radius_words

__all__ = ["Listening", "from_bytes", "to_bytes"]

_RATES = 8_000, 192_000
_MEMORY_SECONDS = 1.0
_QUIET_DB = -60.0  # of a block: below, nobody is heard


def from_bytes(data: bytes) -> Array:
    """Samples (2, n) of interleaved 32-bit floats; what is no number is silence."""
    if len(data) % 8:
        raise InputError(
            f"sound must be pairs of 32-bit floats, got {len(data)} bytes. Load the page again."
        )
    samples = np.frombuffer(data, dtype="<f4").reshape(-1, 2).T.astype(np.float64)
    return np.where(np.abs(samples) < 1e6, samples, 0.0)  # false for NaN


def to_bytes(samples: Array) -> bytes:
    """The inverse of `from_bytes`."""
    return samples.T.astype("<f4").tobytes()


class Listening:
    """A stream of one page."""

    def __init__(self, atlas: Atlas, rate: int) -> None:
        if not _RATES[0] <= rate <= _RATES[1]:
            raise InputError(
                f"rate must be from {_RATES[0]} to {_RATES[1]} Hz, got {rate}. Choose another "
                "input."
            )
        self._localizer: Localizer = atlas.localizer(rate=rate, memory_seconds=_MEMORY_SECONDS)
        self._space, self._rate, self._samples = atlas.space, rate, 0
        self._heard = -np.inf  # seconds, when anybody was heard last

    def push(self, data: bytes, monitored: int | None) -> tuple[dict[str, Any], bytes]:
        """Who is where after a block, and the sound of the one that is monitored."""
        samples = from_bytes(data)
        self._localizer.push(samples)
        self._samples += samples.shape[1]
        now = self._samples / self._rate
        level = _decibels(samples)
        if level > _QUIET_DB:
            self._heard = now
        where = self._localizer.where()
        sources = []
        if where.observed_share > 0 and np.isfinite(self._heard):
            source = {
                "id": 1,
                "direction": where.direction,
                "radius_90": where.radius_degrees(0.9),
                "level_db": level,
                "age": now - self._heard,
                "active": now - self._heard < 0.4,
                "doubts": [str(doubt) for doubt in where.doubts],
            }
            sources.append(self._shown(source))
        return {"time": round(now, 3), "sources": sources, "doubts": []}, b""

    def _shown(self, source: dict[str, Any]) -> dict[str, Any]:
        """A source as the page draws it."""
        colour = colour_of(source["id"] - 1)
        return {
            **source,
            "direction": np.round(sphere_view(source["direction"])[0], 1).tolist(),
            "radius_90": round(float(source["radius_90"]), 1),
            "level_db": round(float(source["level_db"]), 1),
            "age": round(float(source["age"]), 2),
            "words": place_words(self._space, source["direction"]),
            "sure": f"90 % within {radius_words(self._space, source['radius_90'])}",
            "colour": colour,
            "on_colour": on_colour(colour),
        }


def _decibels(samples: Array) -> float:
    """Level of a block (2, n), re a full-scale sine."""
    power = float((samples**2).mean()) if samples.size else 0.0
    return 10 * float(np.log10(max(2 * power, 1e-12)))
