"""Reports and sound for other processes, over TCP; whoever does not read is not waited for.

    HOST:PORT       a line of JSON a report, as the clients of ODAS read it, and more:
                    {"timeStamp": 12, "src": [{"id": 1, "tag": "dynamic", "x": 0.8, "y": 0.6,
                     "z": 0.1, "activity": 1.0, "radius_90": 3.1, …}]}     x ahead, y left, z up
    HOST:PORT + 1   sound: a line of JSON {"start", "samples", "rate", "format": "s16",
                    "channels": 2, "ids": [1, 2]}, then for each id so many samples, left and
                    right in turn, 16 bits little-endian

Nothing here blocks, and there is no thread: clients are looked after whenever something is sent.
What a client does not take within a second or so of sound is dropped for it, in whole messages.
"""

from __future__ import annotations

import json
import socket
from collections import deque
from typing import Any

import numpy as np

from earatlas.errors import InputError
from earatlas.geometry.angles import to_vectors
from earatlas.streaming.report import LiveReport, LiveSource
from earatlas.types import Array

__all__ = ["Broadcast", "LiveServer", "odas_tracks", "pcm_message", "to_pcm16"]

_MOST_CLIENTS = 16
_MOST_WAITING = 1 << 20  # bytes a client: 5 s of one source at 48 kHz


class Broadcast:
    """A port that sends the same messages to all that are connected."""

    def __init__(self, host: str, port: int) -> None:
        try:
            self._socket = socket.create_server((host, port), reuse_port=False)
        except (OSError, OverflowError) as error:
            raise InputError(
                f"socket must be a free port of this machine, got {host}:{port} ({error}). "
                "Choose another port, or end what uses it."
            ) from error
        self._socket.setblocking(False)
        self._clients: dict[socket.socket, deque[memoryview]] = {}
        self.dropped = 0  # messages, over all clients

    @property
    def port(self) -> int:
        """The port, also where any was asked for (0)."""
        return int(self._socket.getsockname()[1])

    def __len__(self) -> int:
        return len(self._clients)

    def send(self, message: bytes) -> None:
        """To every client that keeps up."""
        self._accept()
        for client, waiting in list(self._clients.items()):
            if sum(map(len, waiting)) + len(message) > _MOST_WAITING:
                self.dropped += 1
            else:
                waiting.append(memoryview(message))
            self._push(client, waiting)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:  # nobody waits; or whoever did has gone
                return
            if len(self._clients) >= _MOST_CLIENTS:
                client.close()
                continue
            client.setblocking(False)
            self._clients[client] = deque()

    def _push(self, client: socket.socket, waiting: deque[memoryview]) -> None:
        try:
            while waiting:
                sent = client.send(waiting[0])
                if sent < len(waiting[0]):
                    waiting[0] = waiting[0][sent:]
                    return
                waiting.popleft()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # it is gone
            client.close()
            del self._clients[client]

    def close(self) -> None:
        """Let all of them go."""
        for client, waiting in list(self._clients.items()):
            self._push(client, waiting)
        for client in self._clients:
            client.close()
        self._clients = {}
        self._socket.close()


class LiveServer:
    """Both ports of a stream."""

    def __init__(self, host: str, port: int, rate: int) -> None:
        self._rate = rate
        self.tracks = Broadcast(host, port)
        try:
            self.sound = Broadcast(host, self.tracks.port + 1)
        except InputError:
            self.tracks.close()
            raise
        self._count = 0

    def send_tracks(self, report: LiveReport) -> None:
        """Who is where."""
        self._count += 1
        self.tracks.send(json.dumps(odas_tracks(report, self._count)).encode() + b"\n")

    def send_sound(self, report: LiveReport) -> None:
        """And each by itself."""
        if message := pcm_message(report, self._rate):
            self.sound.send(message)

    def close(self) -> None:
        """Let all clients go."""
        self.tracks.close()
        self.sound.close()


def odas_tracks(report: LiveReport, count: int) -> dict[str, Any]:
    """A report as the clients of ODAS read it; what they do not know, they skip."""
    sources = [source for source in report.sources if source.confirmed]
    return {
        "timeStamp": count,
        "src": [_odas_source(source) for source in sources],
        "time": round(report.time, 3),
        "doubts": [str(doubt) for doubt in report.doubts],
    }


def _odas_source(source: LiveSource) -> dict[str, Any]:
    x, y, z = to_vectors(source.direction)
    return {
        "id": source.id,
        "tag": "dynamic",
        "x": round(float(x), 4),
        "y": round(float(y), 4),
        "z": round(float(z), 4),
        "activity": float(source.active),
        **{k: v for k, v in source.to_dict().items() if k not in ("id", "active")},
    }


def pcm_message(report: LiveReport, rate: int) -> bytes:
    """The sounds of a report; nothing if there are none."""
    sources = [source for source in report.sources if source.confirmed and source.samples.size]
    if not sources:
        return b""
    head = {
        "start": report.start,
        "samples": sources[0].samples.shape[1],
        "rate": rate,
        "format": "s16",
        "channels": 2,
        "ids": [source.id for source in sources],
    }
    sounds = b"".join(to_pcm16(source.samples) for source in sources)
    return json.dumps(head).encode() + b"\n" + sounds


def to_pcm16(samples: Array) -> bytes:
    """Samples (2, n) as 16-bit little-endian, left and right in turn; what is too loud is cut."""
    cut = np.clip(np.round(samples.T * 32768.0), -32768, 32767)
    return np.ascontiguousarray(cut, dtype="<i2").tobytes()
