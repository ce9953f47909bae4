"""Live localization in the studio.

The input is blocks of microphone samples as interleaved 32-bit floats (left, right). The output is
JSON values for the sphere, and the sound of the monitored source in the same format.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from earatlas.atlas import Atlas
from earatlas.errors import InputError
from earatlas.geometry.alternatives import Alternative
from earatlas.plotting.palette import source_colour, text_colour
from earatlas.plotting.tracks import alternative_bands
from earatlas.streaming.report import LiveReport, LiveSource
from earatlas.studio.views import alternatives_view, azimuth_elevation, describe_uncertainty
from earatlas.types import Array
from earatlas.wording import format_position, is_unknown

__all__ = ["LiveListener", "decode_samples", "encode_samples"]


def decode_samples(data: bytes) -> Array:
    """Return samples (2, n) from interleaved 32-bit floats."""
    if len(data) % 8:
        raise InputError(
            f"sound must be pairs of 32-bit floats, got {len(data)} bytes. Reload the page."
        )
    return np.frombuffer(data, dtype="<f4").reshape(-1, 2).T.astype(np.float64)


def encode_samples(samples: Array) -> bytes:
    """Return samples (2, n) as interleaved 32-bit floats: the inverse of `decode_samples`."""
    return samples.T.astype("<f4").tobytes()


class LiveListener:
    """The live stream of one page."""

    def __init__(self, atlas: Atlas, rate: int) -> None:
        self._live, self._space = atlas.live(rate=rate), atlas.space

    def push(self, data: bytes, monitored: int | None) -> tuple[dict[str, Any], bytes]:
        """Process a block; return JSON values, and the sound of the monitored source."""
        report = self._live.push(decode_samples(data))
        state = {
            "time": round(report.time, 3),
            "sources": [self._source_view(source) for source in report.sources if source.confirmed],
            "doubts": [str(doubt) for doubt in report.doubts],
        }
        return state, b"" if monitored is None else encode_samples(_sound(report, monitored))

    def _source_view(self, source: LiveSource) -> dict[str, Any]:
        """Return a source as the page draws it."""
        colour = source_colour(source.id - 1)
        return {
            **source.to_dict(),
            "direction": np.round(azimuth_elevation(source.direction)[0], 1).tolist(),
            **alternatives_view(
                self._space, source.alternatives, source.radius_90, source.lateral_angle
            ),
            "place": format_position(self._space, source.direction, source.radius_90),
            "uncertainty": describe_uncertainty(self._space, source.radius_90),
            "bands": np.round(azimuth_elevation(self._bands(source))[0], 1).tolist(),
            "known": not is_unknown(source.radius_90, self._space),
            "colour": colour,
            "text_colour": text_colour(colour),
        }

    def _bands(self, source: LiveSource) -> Array:
        """Return half-widths (C,) of the 90 % bands of azimuth and elevation."""
        own = Alternative(source.direction, 1.0, source.radius_90)
        return alternative_bands(self._space, source.alternatives or (own,))


def _sound(report: LiveReport, source_id: int) -> Array:
    """Return the sound (2, n) of a source, or silence of the same length if it has ended."""
    sounds = {source.id: source.samples for source in report.sources}
    longest = max((sound.shape[1] for sound in sounds.values()), default=0)
    sound = sounds.get(source_id, np.zeros((2, 0)))
    return sound if sound.shape[1] else np.zeros((2, longest))
