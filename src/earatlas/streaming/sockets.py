"""TCP server for reports and separated signals of a live stream.

    HOST:PORT       one line of JSON per report, in the format of ODAS clients, with more keys:
                    {"timeStamp": 12, "src": [{"id": 1, "tag": "dynamic", "x": 0.8, "y": 0.6,
                     "z": 0.1, "activity": 1.0, "radius_90": 3.1, …}]}     x front, y left, z up
    HOST:PORT + 1   signals: one line of JSON {"start", "samples", "rate", "format": "s16",
                    "channels": 2, "ids": [1, 2]}, then for each id that many samples, left and
                    right interleaved, 16 bits little-endian

Sockets do not block and there is no thread: clients are served whenever a message is sent. If a
client does not read for a second or more of sound, whole messages are dropped for it.
"""

from __future__ import annotations

import json
import socket
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from earatlas.errors import InputError
from earatlas.geometry.angles import to_vectors
from earatlas.streaming.report import LiveReport, LiveSource
from earatlas.types import Array

__all__ = ["Broadcast", "BroadcastSettings", "LiveServer", "odas_tracks", "pcm_message", "to_pcm16"]


@dataclass(frozen=True, slots=True)
class BroadcastSettings:
    """Limits of a port."""

    max_clients: int = 16
    max_pending_bytes: int = 1 << 20  # unsent bytes per client: 5 s of one source at 48 kHz


class Broadcast:
    """A port that sends the same messages to all connected clients."""

    def __init__(self, host: str, port: int) -> None:
        try:
            self._socket = socket.create_server((host, port), reuse_port=False)
        except (OSError, OverflowError) as error:
            raise InputError(
                f"socket must be a free port of this machine, got {host}:{port} ({error}). "
                "Choose another port, or end the program that uses it."
            ) from error
        self._settings = BroadcastSettings()
        self._socket.setblocking(False)
        self._clients: dict[socket.socket, deque[memoryview]] = {}
        self.dropped = 0  # number of dropped messages, over all clients

    @property
    def port(self) -> int:
        """The port number, also if any free port was requested (0)."""
        return int(self._socket.getsockname()[1])

    def __len__(self) -> int:
        return len(self._clients)

    def send(self, message: bytes) -> None:
        """Send a message to every client whose queue is not full."""
        self._accept_clients()
        for client, pending in list(self._clients.items()):
            if sum(map(len, pending)) + len(message) > self._settings.max_pending_bytes:
                self.dropped += 1
            else:
                pending.append(memoryview(message))
            self._flush(client, pending)

    def _accept_clients(self) -> None:
        """Accept pending connections, up to the maximum."""
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:  # no pending connection
                return
            if len(self._clients) >= self._settings.max_clients:
                client.close()
                continue
            client.setblocking(False)
            self._clients[client] = deque()

    def _flush(self, client: socket.socket, pending: deque[memoryview]) -> None:
        """Send as much of a queue as the client accepts now."""
        try:
            while pending:
                sent = client.send(pending[0])
                if sent < len(pending[0]):
                    pending[0] = pending[0][sent:]
                    return
                pending.popleft()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # the client has disconnected
            client.close()
            del self._clients[client]

    def close(self) -> None:
        """Flush the queues and close all connections."""
        for client, pending in list(self._clients.items()):
            self._flush(client, pending)
        for client in self._clients:
            client.close()
        self._clients = {}
        self._socket.close()


class LiveServer:
    """Serves the reports and the signals of a stream on two ports."""

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
        """Send the tracks of a report."""
        self._count += 1
        self.tracks.send(json.dumps(odas_tracks(report, self._count)).encode() + b"\n")

    def send_sound(self, report: LiveReport) -> None:
        """Send the signals of a report."""
        if message := pcm_message(report, self._rate):
            self.sound.send(message)

    def close(self) -> None:
        """Close both ports."""
        self.tracks.close()
        self.sound.close()


def odas_tracks(report: LiveReport, count: int) -> dict[str, Any]:
    """Return a report in the format of ODAS clients, which ignore unknown keys."""
    sources = [source for source in report.sources if source.confirmed]
    return {
        "timeStamp": count,
        "src": [_odas_source(source) for source in sources],
        "time": round(report.time, 3),
        "doubts": [str(doubt) for doubt in report.doubts],
    }


def _odas_source(source: LiveSource) -> dict[str, Any]:
    """Return a source in the format of ODAS clients."""
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
    """Return the message with the signals of a report; empty without signals."""
    sources = [source for source in report.sources if source.confirmed and source.samples.size]
    if not sources:
        return b""
    header = {
        "start": report.start,
        "samples": sources[0].samples.shape[1],
        "rate": rate,
        "format": "s16",
        "channels": 2,
        "ids": [source.id for source in sources],
    }
    pcm = b"".join(to_pcm16(source.samples) for source in sources)
    return json.dumps(header).encode() + b"\n" + pcm


def to_pcm16(samples: Array) -> bytes:
    """Return samples (2, n) as interleaved 16-bit little-endian PCM, clipped to full scale."""
    clipped = np.clip(np.round(samples.T * 32768.0), -32768, 32767)
    return np.ascontiguousarray(clipped, dtype="<i2").tobytes()
