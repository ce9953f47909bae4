"""WebSocket of the live page: sound in, results out.

The page sends blocks of samples, and {"monitor": id} to select a source to play. It receives one
line of JSON per processed block, and the sound of the monitored source as bytes.

Each socket has its own worker. If the worker is slower than the sound, pending blocks are processed
together. Beyond two seconds the oldest blocks are dropped, and the page is informed.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from earatlas.studio.safety import Limits
from earatlas.studio.worker import Worker, WorkerEndedError

__all__ = ["LiveSocket"]

_PROCESS_ENDED = "The live process was ended by the system. Start again."


@dataclass(eq=False)
class _PendingAudio:
    """Received sound that has not been processed yet."""

    rate: int
    max_seconds: float  # beyond, the oldest sound is dropped
    blocks: deque[bytes] = field(default_factory=deque)
    size: int = 0  # bytes
    dropped: int = 0  # bytes
    monitor: int | None = None
    open: bool = True
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def bytes_per_second(self) -> int:
        """Bytes per second: two channels of 32-bit floats."""
        return 8 * self.rate

    def add(self, block: bytes) -> None:
        """Add a block, and drop the oldest ones beyond the limit."""
        self.blocks.append(block)
        self.size += len(block)
        limit = self.max_seconds * self.bytes_per_second
        while self.size > limit and len(self.blocks) > 1:
            dropped = len(self.blocks.popleft())
            self.size -= dropped
            self.dropped += dropped
        self.changed.set()

    def take(self) -> bytes:
        """Return and remove all pending sound."""
        data = b"".join(self.blocks)
        self.blocks.clear()
        self.size = 0
        self.changed.clear()
        return data


class LiveSocket:
    """The connection of one live page."""

    def __init__(self, socket: WebSocket, atlas: str, rate: int, limits: Limits) -> None:
        self._socket, self._atlas = socket, atlas
        self._pending = _PendingAudio(rate, limits.pending_seconds)

    async def run(self) -> None:
        """Process sound until the page disconnects or the worker ends."""
        await self._socket.accept()
        worker = await asyncio.to_thread(Worker)
        receiving = asyncio.create_task(self._receive())
        try:
            await self._process(worker)
        except (WebSocketDisconnect, RuntimeError):  # disconnected while a result was sent
            pass
        finally:
            receiving.cancel()
            try:
                with suppress(asyncio.CancelledError):
                    await receiving
            finally:  # an error while receiving must not leave a process behind
                await asyncio.to_thread(worker.kill)

    async def _receive(self) -> None:
        """Receive sound and selections; always wake up `_process` at the end."""
        pending = self._pending
        try:
            while (message := await self._socket.receive())["type"] != "websocket.disconnect":
                if message.get("bytes"):
                    pending.add(message["bytes"])
                elif message.get("text"):
                    # The text may be invalid JSON, not an object, or nested too deeply.
                    with suppress(ValueError, AttributeError, RecursionError):
                        monitor = json.loads(message["text"]).get("monitor")
                        pending.monitor = monitor if isinstance(monitor, int) else None
        finally:
            pending.open = False
            pending.changed.set()

    async def _process(self, worker: Worker) -> None:
        pending, request = self._pending, {"task": "live_begin", "atlas": self._atlas}
        message, _ = await self._run(worker, {**request, "rate": pending.rate}, b"")
        await self._send({"ready": True} if "done" in message else message)
        while pending.open and "done" in message:
            await pending.changed.wait()
            data = pending.take()
            if not data:
                continue
            request = {"task": "live_push", "monitor": pending.monitor}  # type: ignore[dict-item]
            message, sound = await self._run(worker, request, data)
            dropped_seconds = pending.dropped / pending.bytes_per_second
            await self._send({**message.get("done", message), "dropped_seconds": dropped_seconds})
            if sound:
                await self._socket.send_bytes(sound)
        with suppress(RuntimeError):
            await self._socket.close()

    async def _run(
        self, worker: Worker, request: dict[str, Any], data: bytes
    ) -> tuple[dict[str, Any], bytes]:
        try:
            return await asyncio.to_thread(worker.run, request, lambda message: None, data)
        except WorkerEndedError:
            return {"error": _PROCESS_ENDED}, b""

    async def _send(self, message: dict[str, Any]) -> None:
        await self._socket.send_text(json.dumps(message))
