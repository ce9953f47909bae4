"""Reading SOFA files in a separate process, so that a crash becomes an InputError.

netCDF-C and HDF5 crash on some files, allocate gigabytes for others, and keep memory and open files
after an error. The reader is a second Python process. It starts with the first file (0.5 s, mostly
for importing netCDF4 and sofar, which are then not imported here), serves all further files, ends
with this process, and is restarted after a crash. It forks for each file, so that no file affects
the next one. The memory and the time of a fork (of the processor and of the clock) are limited in
proportion to the size of the file. Without forks (Windows), a reader serves one file.

    request    one line per file: its name as hexadecimal bytes
    response   one line of JSON, {"error": ...} or the metadata; then the arrays as bytes
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from earatlas.errors import InputError
from earatlas.hrtf.sofa_file import LIMITS, SofaData, read_sofa_file
from earatlas.types import Array

__all__ = ["read_in_subprocess", "serve"]

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from earatlas.hrtf.sofa_subprocess import serve; serve()"
)


_CAN_FORK = hasattr(os, "fork")


class _Reader:
    """The process that reads files, used by one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0  # process that started the reader

    def read(self, path: Path) -> SofaData:
        with self._lock:
            process = self._start()
            try:
                return self._request(process, path)
            except InputError:
                raise
            except BaseException:  # such as Ctrl-C: a partial response must not be read later
                self._end()
                raise
            finally:
                if not _CAN_FORK:
                    self._end()

    def _start(self) -> subprocess.Popen[bytes]:
        """Return the running process, and start it if necessary."""
        # After a fork, the reader belongs to the parent process.
        if self._process is None or self._owner != os.getpid():
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-W", "ignore", "-c", _START, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C must not reach the reader
            )
            self._owner = os.getpid()
            atexit.register(self._end)
        return self._process

    def _request(self, process: subprocess.Popen[bytes], path: Path) -> SofaData:
        """Let the process read a file and return its contents."""
        try:
            header, (directions, responses) = _exchange(process, path)
        except (BrokenPipeError, EOFError):
            raise InputError(
                f"The file '{path}' cannot be read as a SOFA (netCDF-4) file "
                f"({_exit_reason(self._end())}). Export it again."
            ) from None
        return SofaData(
            directions, responses, header["rate"], header["attributes"], header["violation"]
        )

    def _end(self) -> int:
        """End the process if this process started it, and return its exit code."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return 0
        atexit.unregister(self._end)
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()  # the reader ends at the end of its input
        try:
            return process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            if _CAN_FORK:
                os.killpg(process.pid, signal.SIGKILL)  # with the fork that reads a file
            process.kill()
            return process.wait()


def _exit_reason(code: int) -> str:
    if code in (-getattr(signal, "SIGXCPU", 0), -getattr(signal, "SIGALRM", 0)):
        return f"it takes more than {LIMITS.seconds} s"
    return "it crashes the library that reads such files"


def _exchange(process: subprocess.Popen[bytes], path: Path) -> tuple[dict[str, Any], list[Array]]:
    """Send the name of a file; return the header and the arrays of the response."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(os.fsencode(os.path.abspath(path)).hex().encode() + b"\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise EOFError
    header = json.loads(line)
    if "error" in header:
        raise InputError(header["error"])
    return header, [_read_array(process.stdout, shape) for shape in header["shapes"]]


def _read_array(stream: IO[bytes], shape: list[int]) -> Array:
    """Read an array of float64 from a pipe."""
    array = np.empty(shape)
    remaining = array.data.cast("B")
    while remaining:
        count = stream.readinto(remaining)  # type: ignore[attr-defined]
        if not count:
            raise EOFError
        remaining = remaining[count:]
    return array


_reader = _Reader()


def read_in_subprocess(path: Path) -> SofaData:
    """Call `read_sofa_file` in a separate process; a crash becomes an InputError."""
    return _reader.read(path)


# --- in the reading process ------------------------------------------------------------------


def serve() -> None:
    """Read the files named on standard input, until it ends."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keep what libraries print out of the responses
    import netCDF4  # noqa: F401, imported before memory is limited
    import sofar  # noqa: F401

    for line in sys.stdin.buffer:
        path = Path(os.fsdecode(bytes.fromhex(line.decode())))
        if _CAN_FORK:
            _respond_in_fork(path, output)
        else:
            _respond(path, output)


def _respond_in_fork(path: Path, output: IO[bytes]) -> None:
    """Read a file in a fork; if the fork ends by a signal, end in the same way."""
    fork = os.fork()
    if not fork:
        code = 1
        try:
            _respond(path, output)
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    if code:
        sys.exit(code)


def _respond(path: Path, output: IO[bytes]) -> None:
    """Read a file and write the header and the arrays of the response."""
    arrays: list[Array] = []
    try:
        _limit_resources(path.stat().st_size)
        data = read_sofa_file(path)
        arrays = [data.directions, data.responses]
        header: dict[str, Any] = {
            "shapes": [array.shape for array in arrays],
            "rate": data.rate,
            "attributes": data.attributes,
            "violation": data.violation,
        }
    except InputError as error:
        header = {"error": str(error)}
    output.write(json.dumps(header).encode() + b"\n")
    for array in arrays:
        output.write(np.ascontiguousarray(array, dtype=np.float64).data)
    output.flush()


def _limit_resources(size: int) -> None:
    """Limit time and memory of this fork for a file of `size` bytes, if the system supports it."""
    try:
        import resource
    except ImportError:  # Windows
        return
    seconds = int(LIMITS.seconds + size / LIMITS.bytes_per_second) + 1
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(LIMITS.wall_factor * seconds)
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_CPU: seconds}
    pages = Path("/proc/self/statm")
    if pages.exists():
        current = int(pages.read_text().split()[0]) * resource.getpagesize()
        limits[resource.RLIMIT_AS] = current + LIMITS.memory_per_byte * size + LIMITS.memory_bytes
    for kind, limit in limits.items():
        highest = resource.getrlimit(kind)[1]  # only root can raise it
        allowed = limit if highest == resource.RLIM_INFINITY else min(limit, highest)
        resource.setrlimit(kind, (allowed, highest))
