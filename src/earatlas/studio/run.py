"""Runs the studio's server on a bound socket until it is interrupted."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from earatlas.studio.connections import limited_protocol
from earatlas.studio.safety import new_token
from earatlas.studio.server import Studio

__all__ = ["create_server"]


def create_server(
    bound: socket.socket, folder: Path, head: Path | None
) -> tuple[str, Callable[[], None]]:
    """Return the address of a new studio, including its token, and a function that runs it."""
    port, token = bound.getsockname()[1], new_token()
    studio = Studio(folder, token=token, port=port, head=head)
    config = uvicorn.Config(
        studio.app, log_level="error", access_log=False, ws="websockets-sansio",
        ws_max_size=studio.limits.live_block_bytes, timeout_graceful_shutdown=1,
        server_header=False, http=limited_protocol(studio.limits),
    )  # fmt: skip
    server = uvicorn.Server(config)
    return f"http://127.0.0.1:{port}/{token}/", lambda: server.run(sockets=[bound])
