"""What all handlers of the studio share: sessions, entries by id, JSON, uploads, and errors.

The input is a request, the output the objects it names, or a response that tells in one sentence
why it was refused.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from earatlas.errors import InputError
from earatlas.studio.jobs import BusyError, WorkerPool
from earatlas.studio.safety import Limits, TooLargeError, check_size, store_body
from earatlas.studio.session import Session, Sessions

__all__ = ["Handlers", "NotFoundError", "entry_of", "with_session"]

_T = TypeVar("_T")
_Handler = Callable[[Any, Request, Session], Awaitable[Response]]


class NotFoundError(Exception):
    """The requested entry does not exist."""


def with_session(handler: _Handler) -> Callable[[Any, Request], Awaitable[Response]]:
    """Pass the session of the path to a handler, and turn errors into JSON responses."""

    @wraps(handler)
    async def handle(self: Any, request: Request) -> Response:
        session = self.sessions.get(request.path_params["session"])
        if session is None:
            return _error_response(410, "This page belongs to an earlier studio. Reload it.")
        try:
            return await handler(self, request, session)
        except NotFoundError:
            return _error_response(404, "This item does not exist in this session.")
        except TooLargeError as error:
            return _error_response(413, str(error))
        except BusyError as error:
            return _error_response(429, str(error))
        except InputError as error:
            return _error_response(400, str(error))
        except ClientDisconnect:  # nobody reads the response
            return _error_response(400, "The upload was interrupted.")

    return handle


def _error_response(status: int, sentence: str) -> Response:
    # The connection is closed, so that the rest of a refused upload is not received.
    headers = {"connection": "close"} if status in (413, 429) else {}
    return JSONResponse({"error": sentence}, status, headers)


class Handlers:
    """Base of classes with handlers."""

    limits: Limits
    pool: WorkerPool
    sessions: Sessions

    async def json(self, request: Request) -> dict[str, Any]:
        """Return the JSON object of a request of limited size."""
        data = b""
        async for chunk in request.stream():
            data += chunk
            check_size(len(data), self.limits.json_bytes)
        try:
            value = json.loads(data or b"{}")
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise InputError("request must be a JSON object, got another value. Reload the page.")
        return value

    async def store_upload(self, request: Request, path: Path) -> None:
        """Write the body of a request into a file of limited size."""
        limit = self.limits.upload_bytes
        declared = request.headers.get("content-length", "0")
        check_size(int(declared) if declared.isdecimal() else limit + 1, limit)
        size = await store_body(request.stream(), path, limit)
        if not size:
            path.unlink()
            raise InputError("file must not be empty, got 0 bytes. Choose another.")


def entry_of(entries: dict[str, _T], entry_id: Any) -> _T:
    """Return the entry with this id."""
    entry = entries.get(str(entry_id))
    if entry is None:
        raise NotFoundError
    return entry
