"""Lab Streaming Layer (LSL): tracks and markers beside EEG and motion data, with time stamps.

Two streams are offered on the network [1]_, which recorders such as LabRecorder store in one file
with all others:

    NAME          type Tracks, irregular rate, float32; for each of `slots` places the channels
                  id, azimuth, elevation (degrees), radius_90 (degrees), level_db, active; NaN
                  where there is no source. A source keeps its place until it ends.
    NAME-markers  type Markers, strings: "track 3 began", "track 3 ended"

The time stamp of a sample is the LSL time at which the last sample of its block of sound was
received. This needs the extra `earatlas[lsl]`.

References
----------
.. [1] C. Kothe et al., "The Lab Streaming Layer for synchronized multimodal recording", Imaging
   Neuroscience, 2025.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from earatlas.errors import InputError, missing_extra
from earatlas.streaming.report import LiveReport, LiveSource
from earatlas.types import Array

__all__ = ["CHANNELS", "LslSettings", "LslSink", "StreamTimestamps", "TrackSlots"]

CHANNELS = ("id", "azimuth", "elevation", "radius_90", "level_db", "active")
_UNITS = ("", "degrees", "degrees", "degrees", "dB", "")


@dataclass(frozen=True, slots=True)
class LslSettings:
    """Settings of the streams.

    Evidence: docs/figures/settings/interchange.md, "lsl".
    """

    slots: int = 4  # places for sources, as many as `listen` separates by default
    window_seconds: float = 30.0  # of the smallest delay between sound and clock


_SETTINGS = LslSettings()


class TrackSlots:
    """Assigns sources to places, which they keep until they end."""

    def __init__(self, count: int) -> None:
        self._ids: list[int | None] = [None] * count

    def update(self, report: LiveReport) -> tuple[list[LiveSource | None], list[int], list[int]]:
        """Return the source of each place, and the ids of sources that began and that ended."""
        sources = {source.id: source for source in report.sources if source.confirmed}
        ended = [i for i in self._ids if i is not None and i not in sources]
        self._ids = [None if i in ended else i for i in self._ids]
        began = []
        for number in sources:
            if number not in self._ids and None in self._ids:
                self._ids[self._ids.index(None)] = number
                began.append(number)
        return [None if i is None else sources[i] for i in self._ids], began, ended


class StreamTimestamps:
    """Converts seconds of a stream to the time of a clock.

    The offset is the smallest difference within a window: a block is never received before its
    last sample, and delays of the processing are always positive. The window follows the drift
    between the clock of the sound card and that of the computer.
    """

    def __init__(self, window_seconds: float) -> None:
        self._window = window_seconds
        self._offsets: deque[tuple[float, float]] = deque()  # stream time, increasing offset

    def at(self, seconds: float, clock: float) -> float:
        """Return the clock time of a stream time, when the clock shows `clock`."""
        offset = clock - seconds
        while self._offsets and self._offsets[-1][1] >= offset:
            self._offsets.pop()
        self._offsets.append((seconds, offset))
        while self._offsets[0][0] < seconds - self._window:
            self._offsets.popleft()
        return seconds + self._offsets[0][1]


def _sample(source: LiveSource | None) -> list[float]:
    """Return the channels of one place."""
    if source is None:
        return [float("nan")] * len(CHANNELS)
    azimuth, elevation = [*(float(v) for v in source.direction), 0.0][:2]
    level = source.level_db if np.isfinite(source.level_db) else float("nan")
    return [source.id, azimuth, elevation, source.radius_90, level, float(source.active)]


def slot_values(sources: list[LiveSource | None]) -> Array:
    """Return the channels of all places as one row."""
    return np.array([value for source in sources for value in _sample(source)])


class LslSink:
    """Offers the tracks and the markers of a live stream as two LSL streams."""

    def __init__(self, name: str = "earatlas", settings: LslSettings = _SETTINGS) -> None:
        if not name.strip():
            raise InputError(
                f"lsl must be the name of the streams, got '{name}'. For example: --lsl earatlas."
            )
        try:
            import pylsl
        except ImportError as error:
            raise missing_extra("lsl", "pylsl") from error
        except RuntimeError as error:  # pylsl is installed, but the library liblsl is not
            raise missing_extra("lsl", "pylsl") from error
        self._lsl: Any = pylsl
        count = settings.slots * len(CHANNELS)
        info = pylsl.StreamInfo(
            name, "Tracks", count, pylsl.IRREGULAR_RATE, "float32", f"earatlas-{name}"
        )
        channels = info.desc().append_child("channels")
        for slot in range(settings.slots):
            for label, unit in zip(CHANNELS, _UNITS, strict=True):
                channel = channels.append_child("channel")
                channel.append_child_value("label", f"{label}_{slot + 1}")
                channel.append_child_value("unit", unit)
        self._tracks = pylsl.StreamOutlet(info)
        self._markers = pylsl.StreamOutlet(
            pylsl.StreamInfo(
                f"{name}-markers",
                "Markers",
                1,
                pylsl.IRREGULAR_RATE,
                "string",
                f"earatlas-{name}-markers",
            )
        )
        self._slots = TrackSlots(settings.slots)
        self._times = StreamTimestamps(settings.window_seconds)

    def send(self, report: LiveReport) -> None:
        """Send one sample of all places, and markers of the sources that began or ended."""
        stamp = self._times.at(report.time, self._lsl.local_clock())
        sources, began, ended = self._slots.update(report)
        self._tracks.push_sample(slot_values(sources).tolist(), stamp)
        for ids, word in ((ended, "ended"), (began, "began")):
            for number in ids:
                self._markers.push_sample([f"track {number} {word}"], stamp)

    def close(self) -> None:
        """Close both streams."""
        del self._tracks, self._markers
