"""Who may ask the studio for anything: this user's own page, and nobody else.

In: requests. Out: requests that may pass, or a refusal; and headers on every answer.

- The address has a random token as its first part. Nothing is served without it, nothing is kept in
  cookies (which a browser would send to other ports, too), and no page is told it by a referrer.
- `Host` must be this computer by number or as localhost, so that no name of an attacker's that was
  bound again to 127.0.0.1 will do; `Origin`, where a browser gives one, must be the page's own.
- Bodies are bounded, and counted while they come: a length that a header tells is not believed.
- A path is compared with names that are known; none ever reaches the file system.
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
    "Refused",
    "TooLargeError",
    "check_size",
    "new_token",
    "shown_name",
    "store_body",
]

_Message = MutableMapping[str, Any]
_App = Callable[[_Message, Callable[[], Awaitable[_Message]], "_Send"], Awaitable[None]]
_Send = Callable[[_Message], Awaitable[None]]

_LONGEST_NAME = 120  # letters of a file's name that are shown
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "media-src 'self' blob:; connect-src 'self' ws://{host}; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


class TooLargeError(InputError):
    """More than may be sent at once."""


@dataclass(frozen=True)
class Refused:
    """Why a request is not answered."""

    status: int
    reason: str


def new_token() -> str:
    """128 random bits and more, as letters for an address."""
    return secrets.token_urlsafe(24)


def shown_name(name: str) -> str:
    """A file's name as it may be shown: its last part, printable, and not long."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    plain = "".join(c for c in last if c.isprintable()).strip()[:_LONGEST_NAME]
    return plain or "recording"


async def store_body(chunks: AsyncIterator[bytes], path: Path, most_bytes: int) -> int:
    """Write what is sent to a file of ours; beyond the bound it is removed and refused."""
    size = 0
    try:
        with path.open("wb") as file:
            async for chunk in chunks:
                size += len(chunk)
                check_size(size, most_bytes)
                file.write(chunk)
    except BaseException:  # the browser went away, too
        path.unlink(missing_ok=True)
        raise
    return size


def check_size(size: int, most_bytes: int) -> None:
    """Refuse what is larger than that."""
    if size > most_bytes:
        raise TooLargeError(
            f"file must have at most {most_bytes / 1e6:.0f} MB in the studio, got more. Use "
            "`earatlas separate` for it, or cut it."
        )


class Guard:
    """An ASGI application in front of another: lets pass what is this user's own."""

    def __init__(self, app: _App, token: str, port: int) -> None:
        self._app, self._token = app, token
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}

    async def __call__(
        self, scope: _Message, receive: Callable[[], Awaitable[_Message]], send: _Send
    ) -> None:
        """Answer, refuse, or pass on with the token taken off the path."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = {key.lower(): value.decode("latin-1") for key, value in scope["headers"]}
        refused = self._refused(scope, headers)
        if refused is not None:
            await _refuse(scope, receive, send, refused)
            return
        prefix = f"/{self._token}"
        inner = {**scope, "path": scope["path"][len(prefix) :], "raw_path": None}

        async def told(message: _Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._safe(headers[b"host"])]
            await send(message)

        await self._app(inner, receive, told)

    def _refused(self, scope: _Message, headers: dict[bytes, str]) -> Refused | None:
        host, origin = headers.get(b"host", ""), headers.get(b"origin")
        if host not in self._hosts:
            return Refused(421, "This is not the address that the studio has.")
        if origin is not None and origin != f"http://{host}":
            return Refused(403, "Only the studio's own page may ask for this.")
        if headers.get(b"sec-fetch-site", "none") not in ("none", "same-origin"):
            return Refused(403, "Only the studio's own page may ask for this.")
        if scope["type"] == "websocket" and origin is None:
            return Refused(403, "Only the studio's own page may ask for this.")
        first, slash, _ = scope["path"].removeprefix("/").partition("/")
        if not slash or not hmac.compare_digest(first.encode(), self._token.encode()):
            return Refused(403, "Open the address that `earatlas studio` printed, all of it.")
        return None

    def _safe(self, host: str) -> list[tuple[bytes, bytes]]:
        """Headers of every answer."""
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
    scope: _Message, receive: Callable[[], Awaitable[_Message]], send: _Send, why: Refused
) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": why.reason})
        return
    words = why.reason.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    headers.append((b"content-length", str(len(words)).encode()))
    await send({"type": "http.response.start", "status": why.status, "headers": headers})
    await send({"type": "http.response.body", "body": words})
