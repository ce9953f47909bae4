"""From lines of the socket to the fields of messages; this module does not need ROS.

Input: bytes of the port of `earatlas listen --separate --socket`, one line of JSON per report.
Output: one `TracksMessage` per line. Directions are unit vectors: x front, y left, z up (REP 103).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Track:
    """Fields of odas_ros_msgs/OdasSst."""

    id: int
    x: float
    y: float
    z: float
    activity: float  # 1 while the source is active, otherwise 0


@dataclass(frozen=True)
class TracksMessage:
    """Fields of odas_ros_msgs/OdasSstArrayStamped, and the line itself."""

    seconds: float  # time of the stream, counted from its beginning
    sources: tuple[Track, ...]
    json: str  # the whole report, with 90 % radii, levels and doubts


class LineBuffer:
    """Splits the bytes of a stream into complete lines."""

    def __init__(self, max_bytes: int = 1 << 20) -> None:
        self._rest, self._max_bytes = b"", max_bytes

    def add(self, data: bytes) -> list[str]:
        """Return the lines that `data` completes; a line that is too long is dropped."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > self._max_bytes:
            self._rest = b""
        return [line.decode("utf-8", "replace") for line in lines if line.strip()]


def tracks_message(line: str) -> TracksMessage | None:
    """Return the message of a line, None if the line is not a report."""
    try:
        report: Any = json.loads(line)
        sources = tuple(_track(source) for source in report["src"])
        return TracksMessage(float(report["time"]), sources, line)
    except (ValueError, KeyError, TypeError):
        return None


def _track(source: dict[str, Any]) -> Track:
    """Return the fields of one source; raise a ValueError if its direction is not finite."""
    x, y, z = (float(source[axis]) for axis in ("x", "y", "z"))
    if not all(map(math.isfinite, (x, y, z))):
        raise ValueError("the direction of a source must be finite")
    return Track(int(source["id"]), x, y, z, float(source["activity"]))


def stamp(seconds: float, offset_nanoseconds: int) -> tuple[int, int]:
    """Return seconds and nanoseconds of a ROS time, for a time of the stream and its beginning."""
    return divmod(offset_nanoseconds + round(seconds * 1e9), 1_000_000_000)
