"""The live page's socket: sound in, answers out, and no sound ever waits for an answer.

In: blocks of the page's microphones, and what it wishes to hear ({"monitor": id}). Out: a line of
JSON a block or several, and the sound of the source that is monitored, as bytes.

A socket has a worker of its own. Where that is slower than the sound, what waits is joined and done
at once; beyond two seconds the oldest is left out, which the page is told.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from earatlas.studio.worker import Worker, WorkerEndedError

__all__ = ["LiveSocket"]

_MOST_SECONDS = 2.0  # of sound that waits
_FRAME = 8  # bytes: two channels of 32-bit floats
_ENDED = "The process that listens was ended by the system. Start again."


@dataclass(eq=False)
class _Waiting:
    """Sound that has come and was not yet listened to."""

    rate: int
    blocks: deque[bytes] = field(default_factory=deque)
    size: int = 0
    left_out: int = 0  # bytes
    monitor: int | None = None
    open: bool = True
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, block: bytes) -> None:
        self.blocks.append(block)
        self.size += len(block)
        while self.size > _MOST_SECONDS * self.rate * _FRAME and len(self.blocks) > 1:
            gone = len(self.blocks.popleft())
            self.size -= gone
            self.left_out += gone
        self.changed.set()

    def take(self) -> bytes:
        data = b"".join(self.blocks)
        self.blocks.clear()
        self.size = 0
        self.changed.clear()
        return data


class LiveSocket:
    """One page that listens."""

    def __init__(self, socket: WebSocket, atlas: str, rate: int) -> None:
        self._socket, self._atlas = socket, atlas
        self._waiting = _Waiting(rate)

    async def run(self) -> None:
        """Until the page goes away, or the worker does."""
        await self._socket.accept()
        worker = await asyncio.to_thread(Worker)
        hearing = asyncio.create_task(self._hear())
        try:
            await self._answer(worker)
        except (WebSocketDisconnect, RuntimeError):  # it went while an answer was on its way
            pass
        finally:
            hearing.cancel()
            try:
                with suppress(asyncio.CancelledError):
                    await hearing
            finally:  # a bug in hearing leaves no process behind
                await asyncio.to_thread(worker.end)

    async def _hear(self) -> None:
        """Take in what the page sends; however that ends, nobody waits for more."""
        waiting = self._waiting
        try:
            while (message := await self._socket.receive())["type"] != "websocket.disconnect":
                if message.get("bytes"):
                    waiting.add(message["bytes"])
                elif message.get("text"):
                    # A text may be no JSON, no object, or nested too deep to be read.
                    with suppress(ValueError, AttributeError, RecursionError):
                        wish = json.loads(message["text"]).get("monitor")
                        waiting.monitor = wish if isinstance(wish, int) else None
        finally:
            waiting.open = False
            waiting.changed.set()

    async def _answer(self, worker: Worker) -> None:
        waiting, order = self._waiting, {"do": "live_begin", "atlas": self._atlas}
        message, _ = await self._asked(worker, {**order, "rate": waiting.rate}, b"")
        await self._told({"ready": True} if "done" in message else message)
        while waiting.open and "done" in message:
            await waiting.changed.wait()
            data = waiting.take()
            if not data:
                continue
            order = {"do": "live_push", "monitor": waiting.monitor}  # type: ignore[dict-item]
            message, sound = await self._asked(worker, order, data)
            left_out = waiting.left_out / (_FRAME * waiting.rate)
            await self._told({**message.get("done", message), "left_out_seconds": left_out})
            if sound:
                await self._socket.send_bytes(sound)
        with suppress(RuntimeError):
            await self._socket.close()

    async def _asked(
        self, worker: Worker, order: dict[str, Any], data: bytes
    ) -> tuple[dict[str, Any], bytes]:
        try:
            return await asyncio.to_thread(worker.ask, order, lambda said: None, data)
        except WorkerEndedError:
            return {"error": _ENDED}, b""

    async def _told(self, message: dict[str, Any]) -> None:
        await self._socket.send_text(json.dumps(message))
