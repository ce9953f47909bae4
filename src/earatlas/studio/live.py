"""Live in the studio: blocks of sound in, who is where now and one of them to be heard out.

In: samples of the page's microphones, as bytes of 32-bit floats, left and right in turn. Out: JSON
values for the sphere, and the sound of the source that is monitored, in the same form.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from earatlas.atlas import Atlas
from earatlas.errors import InputError
from earatlas.plotting.palette import colour_of
from earatlas.report.images import on_colour
from earatlas.streaming.report import LiveReport, LiveSource
from earatlas.studio.views import sphere_view
from earatlas.types import Array
from earatlas.wording import place_words, radius_words

__all__ = ["Listening", "from_bytes", "to_bytes"]


def from_bytes(data: bytes) -> Array:
    """Samples (2, n) of interleaved 32-bit floats."""
    if len(data) % 8:
        raise InputError(
            f"sound must be pairs of 32-bit floats, got {len(data)} bytes. Load the page again."
        )
    return np.frombuffer(data, dtype="<f4").reshape(-1, 2).T.astype(np.float64)


def to_bytes(samples: Array) -> bytes:
    """The inverse of `from_bytes`."""
    return samples.T.astype("<f4").tobytes()


class Listening:
    """A stream of one page."""

    def __init__(self, atlas: Atlas, rate: int) -> None:
        self._live, self._space = atlas.live(rate=rate), atlas.space

    def push(self, data: bytes, monitored: int | None) -> tuple[dict[str, Any], bytes]:
        """Who is where after a block, and the sound of the one that is monitored."""
        report = self._live.push(from_bytes(data))
        told = {
            "time": round(report.time, 3),
            "sources": [self._shown(source) for source in report.sources if source.confirmed],
            "doubts": [str(doubt) for doubt in report.doubts],
        }
        return told, b"" if monitored is None else to_bytes(_sound(report, monitored))

    def _shown(self, source: LiveSource) -> dict[str, Any]:
        """A source as the page draws it."""
        colour = colour_of(source.id - 1)
        return {
            **source.to_dict(),
            "direction": np.round(sphere_view(source.direction)[0], 1).tolist(),
            "words": place_words(self._space, source.direction),
            "sure": f"90 % within {radius_words(self._space, source.radius_90)}",
            "colour": colour,
            "on_colour": on_colour(colour),
        }


def _sound(report: LiveReport, wished: int) -> Array:
    """(2, n) of the source with that number; silence where it has ended, so that time goes on."""
    sounds = {source.id: source.samples for source in report.sources}
    longest = max((sound.shape[1] for sound in sounds.values()), default=0)
    own = sounds.get(wished, np.zeros((2, 0)))
    return own if own.shape[1] else np.zeros((2, longest))
