"""A worker process that computes, controlled by JSON lines.

    to the worker      one request per line, {"task": name, …}; with "bytes": n, n bytes follow
    from the worker    {"progress": …, "stage": …} while it works and {"result": …} for early
                       results; then {"done": …}, {"error": sentence} or {"bug": traceback};
                       "bytes" as above

`Worker` is the side of the server, `serve` runs in the process. The process is started from
scratch, not by `multiprocessing`, so that it shares nothing with the server. It ends when its
standard input is closed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, Any

from earatlas.errors import InputError
from earatlas.threads import ONE_THREAD_ENVIRONMENT

__all__ = ["MessageHandler", "Worker", "WorkerEndedError", "serve"]

MessageHandler = Callable[[dict[str, Any]], None]

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from earatlas.studio.worker import serve; serve()"
)


class WorkerEndedError(Exception):
    """The process ended while it worked on a request."""


class Worker:
    """Handle of a worker process; one thread at a time may use it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-W", "ignore", "-c", _START, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C only reaches the server, which kills the worker
            env={**os.environ, **ONE_THREAD_ENVIRONMENT},
        )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def run(
        self, request: dict[str, Any], on_message: MessageHandler, data: bytes = b""
    ) -> tuple[dict[str, Any], bytes]:
        """Return the last message of a request and its bytes; earlier ones go to `on_message`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            _write_message(self._process.stdin, request, data)
            for message, payload in _read_messages(self._process.stdout):
                if message.keys() & {"done", "error", "bug"}:
                    return message, payload
                on_message(message)
        except (OSError, ValueError):  # a broken or closed pipe, or an incomplete line
            pass
        raise WorkerEndedError

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(OSError):
                stream.close()


def _write_message(stream: IO[bytes], message: dict[str, Any], data: bytes = b"") -> None:
    line = {**message, "bytes": len(data)} if data else message
    stream.write(json.dumps(line).encode() + b"\n" + data)
    stream.flush()


def _read_messages(stream: IO[bytes]) -> Iterator[tuple[dict[str, Any], bytes]]:
    while line := stream.readline():
        message = json.loads(line)
        size = message.pop("bytes", 0)
        yield message, stream.read(size) if size else b""


# --- in the worker process --------------------------------------------------------------------


def serve() -> None:
    """Process requests from standard input until it is closed."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever libraries print goes to standard error
    from earatlas.studio.tasks import Tasks

    tasks = Tasks(lambda message: _write_message(output, message))
    for request, data in _read_messages(sys.stdin.buffer):
        try:
            done, payload = tasks.run(request.pop("task"), request, data)
            _write_message(output, {"done": done}, payload)
        except InputError as error:
            _write_message(output, {"error": str(error)})
        except MemoryError:
            _write_message(
                output, {"error": "There is not enough memory for this file. Use a shorter one."}
            )
        except Exception:  # a bug: the page shows the traceback, so that it can be reported
            _write_message(output, {"bug": traceback.format_exc(limit=-6)})
