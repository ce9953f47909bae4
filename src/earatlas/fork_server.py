"""Calls of functions in forks of a separate process.

Some libraries crash on damaged files, print messages about them, or keep memory after an error. A
`ForkServer` calls a function in a second Python process without output, so that none of this
affects the caller. The process starts with the first call, imports what the function needs, forks
for each call, ends with this process, and is restarted if it was killed. A second fork waits for
the first and reports the signal that ended it. Without forks (Windows), a process serves one call.
(The fork server of `multiprocessing` imports the main script again, which repeats the work of a
script without a guard.)

    control socket   one byte per call, with the socket of that call
    connection       messages in both directions: a line of JSON, then the arrays as bytes
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import IO, Any, NoReturn

import numpy as np

from earatlas.types import Array

__all__ = ["CAN_FORK", "Connection", "ForkServer", "ProcessCrashError", "serve"]

CAN_FORK = hasattr(os, "fork")
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from earatlas.fork_server import serve; serve(*sys.argv[2:])"
)


class ProcessCrashError(OSError):
    """The process at the other end of a connection has ended.

    Attributes
    ----------
    signal : int
        The signal that ended it, or 0 if it is not known.

    """

    def __init__(self, signal: int = 0) -> None:
        super().__init__("the process ended")
        self.signal = signal


class Connection:
    """Messages to and from a function in another process; closed at the end of a `with` block."""

    def __init__(
        self,
        input: IO[bytes],
        output: IO[bytes],
        process: subprocess.Popen[bytes] | None = None,  # that serves this connection only
    ) -> None:
        self._input, self._output, self._process = input, output, process

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, message: dict[str, Any], *arrays: Array) -> None:
        """Send a message that JSON can represent, and arrays of float64."""
        header = {**message, "shapes": [array.shape for array in arrays]}
        try:
            self._output.write(json.dumps(header).encode() + b"\n")
            for array in arrays:
                self._output.write(np.ascontiguousarray(array, dtype=np.float64).data)
            self._output.flush()
        except ConnectionError:
            raise ProcessCrashError from None

    def receive(self) -> tuple[dict[str, Any], list[Array]]:
        """Return the next message and its arrays; raise ProcessCrashError if there is none."""
        try:
            line = self._input.readline()
            if not line:
                raise ProcessCrashError
            message = json.loads(line)
            if "signal" in message:
                raise ProcessCrashError(message["signal"])
            return message, [self._receive_array(shape) for shape in message.pop("shapes")]
        except ConnectionError:
            raise ProcessCrashError from None

    def _receive_array(self, shape: list[int]) -> Array:
        array = np.empty(shape)
        remaining = array.data.cast("B") if array.size else memoryview(b"")
        while remaining:
            count = self._input.readinto(remaining)  # type: ignore[attr-defined]
            if not count:
                raise ProcessCrashError
            remaining = remaining[count:]
        return array

    def close(self) -> None:
        """Close the connection; the function at the other end receives no more messages."""
        for stream in (self._output, self._input):
            with suppress(ConnectionError):  # of a message that was not sent
                stream.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()


Function = Callable[[Connection], None]


class ForkServer:
    """A process whose forks call a function.

    Parameters
    ----------
    function : callable
        Function of a module. Its argument is a `Connection` to the caller.
    *imports : str
        Slow modules that the function imports; the process imports them once.

    """

    def __init__(self, function: Function, *imports: str) -> None:
        self._arguments = [f"{function.__module__}:{function.__qualname__}", *imports]
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._owner = 0  # process that started the server
        self.process: subprocess.Popen[bytes] | None = None

    def connect(self) -> Connection:
        """Return a connection to a new call of the function; start the process if necessary."""
        if not CAN_FORK:
            return self._connect_to_a_process()
        try:
            return self._connect_to_a_fork()
        except ProcessCrashError:  # the server was killed since the last call
            return self._connect_to_a_fork()

    def end(self) -> None:
        """End the process and its forks, if this process started it."""
        with self._lock:
            self._end()

    def _connect_to_a_fork(self) -> Connection:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            with self._lock:
                control, process = self._start()
                try:
                    socket.send_fds(control, [b"\n"], [theirs.fileno()])
                except ConnectionError:
                    self._end()
                    raise ProcessCrashError from None
            theirs.close()
            connection = Connection(ours.makefile("rb"), ours.makefile("wb"))
        try:
            connection.receive()  # the fork is ready
        except ProcessCrashError:
            connection.close()
            with self._lock:
                if self.process is process:  # no other thread has restarted it
                    self._end()
            raise
        return connection

    def _connect_to_a_process(self) -> Connection:
        process = self._popen(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdin is not None
        connection = Connection(process.stdout, process.stdin, process)
        connection.receive()
        return connection

    def _start(self) -> tuple[socket.socket, subprocess.Popen[bytes]]:
        """Return the control socket and the running process."""
        # After a fork, the process belongs to the parent.
        if self._control is None or self.process is None or self._owner != os.getpid():
            self._control, theirs = socket.socketpair()
            with theirs:
                self.process = self._popen(stdin=theirs.fileno(), stdout=subprocess.DEVNULL)
            self._owner = os.getpid()
            atexit.register(self._end)
        return self._control, self.process

    def _popen(self, *, stdin: int, stdout: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-I", "-W", "ignore", "-c", _START, json.dumps(sys.path)]
        return subprocess.Popen(
            [*command, *self._arguments],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C must not reach it
        )

    def _end(self) -> None:
        process, self.process = self.process, None
        if process is None or self._control is None or self._owner != os.getpid():
            return
        atexit.unregister(self._end)
        self._control.close()
        self._control = None
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with its forks
        process.wait()


# --- in the other process ----------------------------------------------------------------------


def serve(name: str, *imports: str) -> None:
    """Call a function for each connection, until standard input ends."""
    for module in imports:
        import_module(module)
    module, _, attribute = name.partition(":")
    function: Function = getattr(import_module(module), attribute)
    if not CAN_FORK:
        output = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)  # keep what libraries print out of the messages
        _call(function, Connection(sys.stdin.buffer, output))
        return
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks are not waited for
    control = socket.socket(fileno=0)
    while True:
        byte, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not byte:
            return
        with socket.socket(fileno=descriptors[0]) as connection:
            if not os.fork():
                control.close()
                _call_in_fork(function, connection)


def _call(function: Function, connection: Connection) -> None:
    connection.send({})  # ready
    with suppress(ProcessCrashError):  # the caller has closed the connection
        function(connection)


def _call_in_fork(function: Function, ours: socket.socket) -> NoReturn:
    """Call the function in a fork of this one, and report the signal that ends it."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        connection = Connection(ours.makefile("rb"), ours.makefile("wb"))
        fork = os.fork()
        if not fork:
            _call(function, connection)
        else:
            code = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
            if code < 0:
                connection.send({"signal": -code})
    finally:
        os._exit(0)
