"""A worker: a process that computes, and is asked by lines of JSON.

    to the worker      a line an order, {"do": name, …}; "bytes": n, and n bytes follow it
    from the worker    lines {"share": …, "words": …} while it works, {"answer": …} as soon as there
                       is something to see; then {"done": …}, {"error": sentence} or {"bug": text};
                       "bytes" as above

`Worker` is the one who asks; `serve` runs in the process itself. It is started anew, and not by
`multiprocessing`, so that it has nothing of the server, and ends when nobody asks any more.
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

__all__ = ["Told", "Worker", "WorkerEndedError", "serve"]

Told = Callable[[dict[str, Any]], None]

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from earatlas.studio.worker import serve; serve()"
)
# One thread each: products of small matrices by several threads fight for the cores.
_ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)


class WorkerEndedError(Exception):
    """The process ended in the middle of an order."""


class Worker:
    """The process as seen by the one who asks it; one at a time does."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-W", "ignore", "-c", _START, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the server, which ends this one
            env={**os.environ, **_ONE_THREAD},
        )

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def ask(
        self, order: dict[str, Any], told: Told, data: bytes = b""
    ) -> tuple[dict[str, Any], bytes]:
        """What came of an order, and its bytes; `told` gets everything that is said before."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            _say(self._process.stdin, order, data)
            for message, came in _heard(self._process.stdout):
                if message.keys() & {"done", "error", "bug"}:
                    return message, came
                told(message)
        except (OSError, ValueError):  # a pipe that is broken, or closed, or half a line
            pass
        raise WorkerEndedError

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(OSError):
                stream.close()


def _say(stream: IO[bytes], message: dict[str, Any], data: bytes = b"") -> None:
    line = {**message, "bytes": len(data)} if data else message
    stream.write(json.dumps(line).encode() + b"\n" + data)
    stream.flush()


def _heard(stream: IO[bytes]) -> Iterator[tuple[dict[str, Any], bytes]]:
    while line := stream.readline():
        message = json.loads(line)
        size = message.pop("bytes", 0)
        yield message, stream.read(size) if size else b""


# --- in the process that computes -------------------------------------------------------------


def serve() -> None:
    """Do what is ordered on standard input, until that ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    from earatlas.studio.tasks import Tasks

    tasks = Tasks(lambda message: _say(answers, message))
    for order, data in _heard(sys.stdin.buffer):
        try:
            done, came = tasks.do(order.pop("do"), order, data)
            _say(answers, {"done": done}, came)
        except InputError as error:
            _say(answers, {"error": str(error)})
        except MemoryError:
            _say(answers, {"error": "There is not enough memory for this. Give a shorter one."})
        except Exception:  # a bug of ours: told with all that helps to find it
            _say(answers, {"bug": traceback.format_exc(limit=-6)})
