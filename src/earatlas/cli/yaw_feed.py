"""Head yaw as a stream of JSON lines from a file, a pipe, a file descriptor or a socket, or of OSC.

    {"yaw": 12.5}    degrees, positive to the left; other fields are ignored

Reading never blocks: the last line that was received holds. A line that is not a yaw, or that jumps
faster than a head can turn, is skipped and counted. After the first line, or after a pause, the yaw
approaches the new value at the maximum speed of a head.
"""

from __future__ import annotations

import json
import math
import os
import socket
from pathlib import Path
from typing import Any

from earatlas.cli.listen_exports import parse_udp_address
from earatlas.errors import InputError
from earatlas.geometry.head_yaw import YawLimits
from earatlas.interchange.osc import OscYawReceiver

__all__ = ["OscYawFeed", "YawFeed", "open_yaw_feed"]

_MAX_DEGREES_PER_SECOND = 0.99 * YawLimits().degrees_per_second  # a stream refuses the limit


class YawFeed:
    """Non-blocking reader of a yaw stream."""

    def __init__(self, address: str) -> None:
        """`address` is `fd:3`, `HOST:PORT`, or the path of a file or a named pipe."""
        try:
            self._descriptor, self._socket = _open(address)
            os.set_blocking(self._descriptor, False)
        except (OSError, ValueError, OverflowError) as error:
            raise InputError(
                f"yaw stream must be fd:NUMBER, HOST:PORT or a readable file, got '{address}' "
                f"({error}). Start the program that writes it first."
            ) from error
        self._start()

    def _start(self) -> None:
        """Set the state before anything was received."""
        self._buffer, self._ended = b"", False
        self._received, self._received_at = 0.0, 0.0  # last valid yaw, and its time
        self._has_received = False
        self._yaw = 0.0  # last answer of `at`
        self._answered_at: float | None = None
        self.skipped = 0  # number of skipped lines

    def at(self, seconds: float) -> float:
        """Return the yaw in degrees at this time of the sound."""
        self._read()
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            if line.strip():
                self._take(line, seconds)
        if self._answered_at is None:
            self._yaw = self._received
        else:
            max_turn = _MAX_DEGREES_PER_SECOND * max(seconds - self._answered_at, 0.0)
            turn = _turn(self._yaw, self._received)
            self._yaw = (
                self._received
                if abs(turn) <= max_turn
                else self._yaw + math.copysign(max_turn, turn)
            )
        self._answered_at = seconds
        return self._yaw

    def _take(self, line: bytes, seconds: float) -> None:
        """Accept or skip a line that was received at this time."""
        yaw = _parse_yaw(line)
        if yaw is None:
            self.skipped += 1
            return
        max_turn = _MAX_DEGREES_PER_SECOND * max(seconds - self._received_at, 0.02)
        if self._has_received and abs(_turn(self._received, yaw)) > max_turn:
            self.skipped += 1
            return
        self._received, self._received_at, self._has_received = yaw, seconds, True

    def _read(self) -> None:
        """Read the available bytes."""
        max_bytes = 1 << 16  # a longer line is not a yaw
        while not self._ended and len(self._buffer) < max_bytes:
            try:
                data = os.read(self._descriptor, 4096)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._ended = True
            self._buffer += data
        if len(self._buffer) >= max_bytes and b"\n" not in self._buffer:
            self._buffer, self.skipped = b"", self.skipped + 1

    def close(self) -> None:
        """Close the stream."""
        if self._socket is not None:
            self._socket.close()
        else:
            os.close(self._descriptor)


class OscYawFeed(YawFeed):
    """Non-blocking reader of the yaw in OSC messages of a head tracker."""

    def __init__(self, address: str) -> None:
        """`address` is `osc:PORT` or `osc:HOST:PORT`, with `,clockwise` if right is positive."""
        self._start()
        place, _, direction = address.removeprefix("osc:").partition(",")
        if direction not in ("", "clockwise"):
            raise InputError(
                f"yaw stream must be osc:PORT or osc:PORT,clockwise, got '{address}'. Add "
                "',clockwise' if the tracker counts the yaw as positive to the right."
            )
        host, port = parse_udp_address(place, "yaw-stream osc")
        self._receiver = OscYawReceiver(host, port, clockwise=bool(direction))
        self.port = self._receiver.port

    def _read(self) -> None:
        """Read the messages that have arrived."""
        for yaw in self._receiver.receive():
            self._buffer += json.dumps({"yaw": yaw}).encode() + b"\n"

    def close(self) -> None:
        """Close the port."""
        self._receiver.close()


def open_yaw_feed(address: str) -> YawFeed:
    """Return the reader of an address: OSC messages for `osc:…`, otherwise JSON lines."""
    return OscYawFeed(address) if address.startswith("osc:") else YawFeed(address)


def _open(address: str) -> tuple[int, socket.socket | None]:
    """Return the file descriptor of an address, and its socket if it is one."""
    if address.startswith("fd:"):
        return os.dup(int(address[3:])), None
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit() and not Path(address).exists():
        connection = socket.create_connection((host or "127.0.0.1", int(port)), timeout=3.0)
        return connection.fileno(), connection
    return os.open(address, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), None


def _turn(start: float, end: float) -> float:
    """Return the shortest rotation from one yaw to another, in degrees to the left."""
    return (end - start + 180.0) % 360.0 - 180.0


def _parse_yaw(line: bytes) -> float | None:
    """Return the yaw of a line, or None if the line is not a yaw."""
    try:
        value: Any = json.loads(line)
        yaw = float(value["yaw"] if isinstance(value, dict) else value)
    except (ValueError, OverflowError, KeyError, TypeError, RecursionError):
        return None
    return yaw if abs(yaw) < 1e6 else None
