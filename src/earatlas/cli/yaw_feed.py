"""The head's yaw as a stream: JSON lines of a file, a pipe, a file descriptor or a socket.

    {"yaw": 12.5}    degrees to the left, as often as the tracker has one; the rest is skipped

Nothing waits for it: the last line that came holds. A line that is no yaw, or a jump that no head
makes, is skipped and counted. Lines come when they come, sound block by block: towards a yaw that
came late (the first, or one after a pause) the head is turned as fast as heads can be.
"""

from __future__ import annotations

import json
import math
import os
import socket
from pathlib import Path
from typing import Any

from earatlas.errors import InputError

__all__ = ["YawFeed"]

_MOST_BYTES = 1 << 16  # without a line's end: this is no yaw
_FASTEST = 990.0  # degrees a second; a stream refuses 1000 (`earatlas.geometry.head_yaw`)


class YawFeed:
    """Reads what has come, whenever it is asked."""

    def __init__(self, where: str) -> None:
        """`fd:3`, `HOST:PORT`, or the path of a file or a named pipe."""
        try:
            self._number, self._socket = _opened(where)
            os.set_blocking(self._number, False)
        except (OSError, ValueError, OverflowError) as error:
            raise InputError(
                f"yaw stream must be fd:NUMBER, HOST:PORT or a readable file, got '{where}' "
                f"({error}). Start what writes it first."
            ) from error
        self._waiting, self._ended = b"", False
        self._told, self._told_at = 0.0, 0.0  # the last good line
        self._heard = False
        self._yaw = 0.0  # that was answered last, and when
        self._asked_at: float | None = None
        self.skipped = 0  # lines

    def at(self, seconds: float) -> float:
        """The yaw at the end of so many seconds of sound, in degrees."""
        self._read()
        *lines, self._waiting = self._waiting.split(b"\n")
        for line in lines:
            if line.strip():
                self._take(line, seconds)
        if self._asked_at is None:
            self._yaw = self._told
        else:
            most = _FASTEST * max(seconds - self._asked_at, 0.0)
            turn = _turn(self._yaw, self._told)
            self._yaw = self._told if abs(turn) <= most else self._yaw + math.copysign(most, turn)
        self._asked_at = seconds
        return self._yaw

    def _take(self, line: bytes, seconds: float) -> None:
        yaw = _yaw_of(line)
        if yaw is None:
            self.skipped += 1
            return
        longest = _FASTEST * max(seconds - self._told_at, 0.02)
        if self._heard and abs(_turn(self._told, yaw)) > longest:
            self.skipped += 1
            return
        self._told, self._told_at, self._heard = yaw, seconds, True

    def _read(self) -> None:
        while not self._ended and len(self._waiting) < _MOST_BYTES:
            try:
                data = os.read(self._number, 4096)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._ended = True
            self._waiting += data
        if len(self._waiting) >= _MOST_BYTES and b"\n" not in self._waiting:
            self._waiting, self.skipped = b"", self.skipped + 1

    def close(self) -> None:
        """No more."""
        if self._socket is not None:
            self._socket.close()
        else:
            os.close(self._number)


def _opened(where: str) -> tuple[int, socket.socket | None]:
    if where.startswith("fd:"):
        return os.dup(int(where[3:])), None
    host, colon, port = where.rpartition(":")
    if colon and port.isdigit() and not Path(where).exists():
        link = socket.create_connection((host or "127.0.0.1", int(port)), timeout=3.0)
        return link.fileno(), link
    return os.open(where, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), None


def _turn(start: float, end: float) -> float:
    """Degrees to the left from one yaw to another, the shorter way."""
    return (end - start + 180.0) % 360.0 - 180.0


def _yaw_of(line: bytes) -> float | None:
    try:
        said: Any = json.loads(line)
        yaw = float(said["yaw"] if isinstance(said, dict) else said)
    except (ValueError, OverflowError, KeyError, TypeError, RecursionError):
        return None
    return yaw if abs(yaw) < 1e6 else None
