"""Limits of the connections to the studio's server.

A connection that sends no complete request head, or sends it too slowly, is closed after some
seconds. Only the first head of a connection is timed: afterwards the server closes connections that
are idle, but not those that send a further head slowly, which the number of connections limits.
Beyond a number of open connections, a new one replaces the oldest that still waits for its first
head, so that silent connections do not keep the page from opening; if there is none, the new one is
closed at once. Without these limits, connections that nobody uses exhaust the file descriptors of
the process.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from earatlas.studio.safety import Limits

__all__ = ["limited_protocol"]

_END_OF_HEAD = b"\r\n\r\n"


def limited_protocol(limits: Limits) -> type[asyncio.Protocol]:
    """Return a class of HTTP connections that keep to the limits; they are counted together."""
    opened: dict[asyncio.Transport, LimitedProtocol] = {}  # in the order of their beginning

    class LimitedProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        """A connection of the server."""

        _transport: asyncio.Transport | None = None  # None: the connection was refused
        _timer: asyncio.TimerHandle | None = None
        _received = b""  # the end of what was received of the head

        def connection_made(self, transport: Any) -> None:
            """Refuse a connection beyond the limit, or wait for its first request."""
            # An upgrade to a WebSocket replaces this object, which then misses the end.
            for ended in [one for one in opened if one.is_closing()]:
                del opened[ended]
            if len(opened) >= limits.connections:
                waiting = next((one for one, own in opened.items() if own._timer is not None), None)
                if waiting is None:
                    transport.abort()
                    return
                waiting.abort()
                del opened[waiting]
            opened[transport] = self
            self._transport = transport
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(limits.request_head_seconds, transport.abort)
            super().connection_made(transport)

        def data_received(self, data: bytes) -> None:
            """Stop the timer at the end of the first head."""
            if self._timer is not None:
                self._received = self._received[-len(_END_OF_HEAD) :] + data
                if _END_OF_HEAD in self._received:
                    self._timer.cancel()
                    self._timer, self._received = None, b""
            super().data_received(data)

        def connection_lost(self, exc: Exception | None) -> None:
            """Forget the connection."""
            if self._transport is None:
                return
            opened.pop(self._transport, None)
            if self._timer is not None:
                self._timer.cancel()
            super().connection_lost(exc)

    return LimitedProtocol
