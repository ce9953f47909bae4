"""Open Sound Control (OSC): tracks to other programs, and the head yaw from head trackers.

Tracks are sent over UDP, one message per source and one with the number of sources:

    /earatlas/source  id azimuth elevation radius_90 level_db active    degrees, dB; active 0 or 1
    /earatlas/sources count seconds
    /earatlas/ended   id

A yaw is received from messages whose address ends in `yaw` (degrees), `ypr` (yaw, pitch and roll in
degrees) or `quaternions` (w, x, y, z), as head trackers send them to ambisonic plug-ins. This needs
the extra `earatlas[osc]`.
"""

from __future__ import annotations

import math
import socket
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np

from earatlas.errors import InputError, missing_extra
from earatlas.streaming.report import LiveReport, LiveSource

__all__ = ["OscSink", "OscYawReceiver", "source_arguments", "yaw_of_message"]

_NO_LEVEL_DB = -200.0  # OSC receivers rarely accept infinity


def _pythonosc(module: str) -> Any:
    """Import a module of python-osc."""
    try:
        return import_module(f"pythonosc.{module}")
    except ImportError as error:
        raise missing_extra("osc", "python-osc") from error


def source_arguments(source: LiveSource) -> list[int | float]:
    """Return the arguments of a source's message.

    Examples
    --------
    >>> import numpy as np
    >>> source_arguments(LiveSource(3, np.array([30.0, -5.0]), 4.0, 0.5, 0.1, -20.0, True, True, 0))
    [3, 30.0, -5.0, 4.0, -20.0, 1]
    """
    azimuth, elevation = [*(float(v) for v in source.direction), 0.0][:2]
    level = source.level_db if np.isfinite(source.level_db) else _NO_LEVEL_DB
    radius = float(source.radius_90)
    return [source.id, azimuth, elevation, radius, float(level), int(source.active)]


class OscSink:
    """Sends the confirmed sources of every report to a host and port, over UDP."""

    def __init__(self, host: str, port: int) -> None:
        self._builder = _pythonosc("osc_message_builder").OscMessageBuilder
        try:
            known = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        except (OSError, UnicodeError) as error:  # UnicodeError: not a name of a machine
            raise InputError(
                f"osc must be HOST:PORT of a machine that exists, got {host}:{port} ({error}). "
                "Check the name."
            ) from error
        family, kind, _, _, address = known[0]
        self._address: Any = address
        self._socket = socket.socket(family, kind)
        self._socket.setblocking(False)

    def send(self, report: LiveReport) -> None:
        """Send one message per source; a receiver that is not there is no error."""
        sources = [source for source in report.sources if source.confirmed]
        self._message("/earatlas/sources", [len(sources), float(report.time)])
        for source in sources:
            self._message("/earatlas/source", source_arguments(source))
        for source in report.ended:
            self._message("/earatlas/ended", [source.id])

    def _message(self, address: str, arguments: list[int | float]) -> None:
        """Send one message; nothing happens if it cannot be delivered now."""
        message = self._builder(address)
        for argument in arguments:
            message.add_arg(argument)
        with suppress(OSError):  # no program listens at the port, or the network is away
            self._socket.sendto(message.build().dgram, self._address)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def yaw_of_message(address: str, arguments: list[Any]) -> float | None:
    """Return the yaw in degrees, positive to the left, of a message; None if it has none.

    Examples
    --------
    >>> yaw_of_message("/SceneRotator/ypr", [30.0, 5.0, 0.0]), yaw_of_message("/gain", [1.0])
    (30.0, None)
    >>> round(yaw_of_message("/quaternions", [0.5**0.5, 0.0, 0.0, 0.5**0.5]))
    90
    """
    kind = address.rpartition("/")[2].lower()
    values = [v for v in arguments if isinstance(v, int | float) and math.isfinite(v)]
    if len(values) < len(arguments):
        return None
    if (kind, len(values)) in {("yaw", 1), ("ypr", 3)}:
        return float(values[0])
    if kind == "quaternions" and len(values) == 4:
        w, x, y, z = values
        return math.degrees(math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)))
    return None


class OscYawReceiver:
    """Non-blocking receiver of the head yaw on a UDP port."""

    def __init__(self, host: str, port: int, *, clockwise: bool = False) -> None:
        """`clockwise`: the sender counts the yaw as positive to the right."""
        self._parse = _pythonosc("osc_packet")
        self._sign = -1.0 if clockwise else 1.0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.bind((host, port))
        except (OSError, OverflowError) as error:
            self._socket.close()
            raise InputError(
                f"yaw stream must be a free UDP port of this machine, got {host}:{port} ({error}). "
                "Choose another port."
            ) from error
        self._socket.setblocking(False)
        self.port = int(self._socket.getsockname()[1])

    def receive(self) -> list[float | None]:
        """Return the yaw of each message since the last call; None for what is no OSC message.

        Messages with another address are left out: trackers send more than the yaw.
        """
        found: list[float | None] = []
        for _ in range(1000):  # a flood of messages must not delay the sound
            try:
                data = self._socket.recv(4096)
            except OSError:  # nothing more has arrived
                break
            try:
                messages = [timed.message for timed in self._parse.OscPacket(data).messages]
            except (self._parse.ParseError, ValueError, IndexError, TypeError, RecursionError):
                found.append(None)
                continue
            yaws = [yaw_of_message(m.address, list(m.params)) for m in messages]
            found += [self._sign * yaw for yaw in yaws if yaw is not None]
        return found

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
