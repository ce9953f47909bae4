"""Functions for tests/test_fork_server.py, which forks of another process call."""

import os
import signal
import sys

from earatlas.fork_server import Connection

__all__ = ["answer"]


def answer(connection: Connection) -> None:
    """Answer messages: return their arrays, print, wait, or end with a signal."""
    while True:
        message, arrays = connection.receive()
        match message["do"]:
            case "return":
                connection.send({"pid": os.getpid(), "server": _server()}, *arrays)
            case "print":
                for stream in (sys.stdout, sys.stderr):
                    stream.write("message of a library\n")
                    stream.flush()
                connection.send({})
            case "end":
                os.kill(os.getpid(), signal.SIGSEGV)


def _server() -> int:
    """Return the process that has forked twice for this call."""
    with open(f"/proc/{os.getppid()}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])
