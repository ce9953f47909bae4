"""Access control of the studio: only the user's own page may send requests.

`Guard` passes requests on or refuses them, and adds security headers to every response.

- The first part of the path is a random token. Nothing is served without it. It is not kept in a
  cookie, which a browser would also send to other ports, and not sent as a referrer.
- `Host` must be 127.0.0.1 or localhost with the studio's port, which prevents DNS rebinding. If a
  browser sends `Origin`, it must be that of the page.
- Request bodies are limited, and counted while they arrive: the content-length header is not
  trusted.
- Paths are compared with known names and never reach the file system.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from earatlas.errors import InputError

__all__ = [
    "Guard",
    "Limits",
    "Refusal",
    "TooLargeError",
    "check_size",
    "display_name",
    "new_token",
    "store_body",
]

_Message = MutableMapping[str, Any]
_App = Callable[[_Message, Callable[[], Awaitable[_Message]], "_Send"], Awaitable[None]]
_Send = Callable[[_Message], Awaitable[None]]

_OTHER_PAGE = "Only the studio's own page may send this request."
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "media-src 'self' blob:; connect-src 'self' ws://{host}; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


# Evidence: docs/figures/settings/studio.md, "safety".
@dataclass(frozen=True, slots=True)
class Limits:
    """Most that pages may send to a studio, keep in it and let it compute at a time."""

    connections: int = 100  # open connections; a page needs about ten
    request_head_seconds: float = 10.0  # until the first request of a connection is complete
    upload_bytes: int = 500_000_000
    json_bytes: int = 100_000  # JSON of a request
    folder_files: int = 5000  # files of a folder of calibration recordings
    sessions: int = 20  # open pages
    entries: int = 100  # recordings of a page, and as many heads and sounds
    workers: int = 2
    waiting: int = 12  # jobs in the queue
    listeners: int = 2  # live pages at the same time, each with its own process
    live_block_bytes: int = 1 << 21  # block of live sound; a second at 48 kHz has 400,000 bytes
    pending_seconds: float = 2.0  # live sound that waits for its worker; older sound is dropped


class TooLargeError(InputError):
    """An upload exceeds a limit."""


@dataclass(frozen=True)
class Refusal:
    """Status and reason of a refused request."""

    status: int
    reason: str


def new_token() -> str:
    """Return a random token of 192 bits that can be part of an address."""
    return secrets.token_urlsafe(24)


def display_name(name: str) -> str:
    """Return a file name that can be shown: its last part, printable and of limited length."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    printable = "".join(c for c in last if c.isprintable()).strip()[:120]
    return printable or "recording"


async def store_body(chunks: AsyncIterator[bytes], path: Path, max_bytes: int) -> int:
    """Write an upload to a file and return its size; remove the file if it is too large."""
    size = 0
    try:
        with path.open("wb") as file:
            async for chunk in chunks:
                size += len(chunk)
                check_size(size, max_bytes)
                file.write(chunk)
    except BaseException:  # also if the browser disconnects
        path.unlink(missing_ok=True)
        raise
    return size


def check_size(size: int, max_bytes: int) -> None:
    """Raise TooLargeError if a size exceeds the limit."""
    if size > max_bytes:
        raise TooLargeError(
            f"file must have at most {max_bytes / 1e6:.0f} MB in the studio, got more. Shorten "
            "it, or use the command `earatlas separate`."
        )


class Guard:
    """An ASGI application that passes only the page's own requests to another application."""

    def __init__(self, app: _App, token: str, port: int) -> None:
        self._app, self._token = app, token
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}

    async def __call__(
        self, scope: _Message, receive: Callable[[], Awaitable[_Message]], send: _Send
    ) -> None:
        """Refuse a request, or pass it on without the token in its path."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = {key.lower(): value.decode("latin-1") for key, value in scope["headers"]}
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _refuse(scope, receive, send, refusal)
            return
        prefix = f"/{self._token}"
        inner = {**scope, "path": scope["path"][len(prefix) :], "raw_path": None}

        async def send_with_headers(message: _Message) -> None:
            if message["type"] == "http.response.start":
                security = self._security_headers(headers[b"host"])
                message["headers"] = [*message["headers"], *security]
            await send(message)

        await self._app(inner, receive, send_with_headers)

    def _refusal(self, scope: _Message, headers: dict[bytes, str]) -> Refusal | None:
        host, origin = headers.get(b"host", ""), headers.get(b"origin")
        if host not in self._hosts:
            return Refusal(421, "This is not the address of the studio.")
        if origin is not None and origin != f"http://{host}":
            return Refusal(403, _OTHER_PAGE)
        if headers.get(b"sec-fetch-site", "none") not in ("none", "same-origin"):
            return Refusal(403, _OTHER_PAGE)
        if scope["type"] == "websocket" and origin is None:
            return Refusal(403, _OTHER_PAGE)
        first, slash, _ = scope["path"].removeprefix("/").partition("/")
        if not slash or not hmac.compare_digest(first.encode(), self._token.encode()):
            return Refusal(403, "Open the complete address that `earatlas studio` printed.")
        return None

    def _security_headers(self, host: str) -> list[tuple[bytes, bytes]]:
        """Return the security headers of every response."""
        values = {
            "content-security-policy": _POLICY.format(host=host),
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
            "cache-control": "no-store",
        }
        return [(key.encode(), value.encode()) for key, value in values.items()]


async def _refuse(
    scope: _Message, receive: Callable[[], Awaitable[_Message]], send: _Send, refusal: Refusal
) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": refusal.reason})
        return
    body = refusal.reason.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
