"""Foreign files are read in a process of their own, where a crash becomes a sentence.

netCDF-C and HDF5 crash on some files, and ask for gigabytes on others. The reader is a second
Python: it starts with the first file (0.5 s, most of it netCDF4 and sofar, which are then not
imported here), serves all others, ends with this process, and is started again after a crash. What
a file may cost is limited by its length.

    to the reader      a line a file: its name, as hexadecimal bytes
    from the reader    a line of JSON, {"error": …} or what was read; then the arrays, as bytes
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
from earatlas.hrtf.sofa_file import SofaData, read_sofa_file
from earatlas.types import Array

__all__ = ["read_aside", "serve"]

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from earatlas.hrtf.sofa_subprocess import serve; serve()"
)
_CPU_SECONDS, _BYTES_A_SECOND = 10, 10e6  # a set of 400 MB takes 4 s to read and verify
# Of memory, beside that of the process itself. Numbers may take 8 times the length of their file
# (`sofa_file`), and are there three times while they are read and verified.
_MOST_BYTES, _MOST_TIMES = 200 << 20, 24


class _Reader:
    """The process that reads; one at a time asks it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def read(self, path: Path) -> SofaData:
        with self._lock:
            process = self._started()
            try:
                return self._answer(process, path)
            except InputError:
                raise
            except BaseException:  # such as Ctrl-C: half an answer must not be that to the next
                self._end()
                raise

    def _started(self) -> subprocess.Popen[bytes]:
        # After a fork the reader is that of the other process.
        if self._process is None or self._owner != os.getpid():
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-W", "ignore", "-c", _START, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for us
            )
            self._owner = os.getpid()
            atexit.register(self._end)
        return self._process

    def _answer(self, process: subprocess.Popen[bytes], path: Path) -> SofaData:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(os.fsencode(os.path.abspath(path)).hex().encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise InputError(
                f"head must be a SOFA (netCDF-4) file, got '{path}', which cannot be read "
                f"({_how_it_died(self._end())}). Export it again."
            )
        answer = json.loads(line)
        if "error" in answer:
            raise InputError(answer["error"])
        directions, responses = (_received(process.stdout, shape) for shape in answer["shapes"])
        return SofaData(directions, responses, answer["rate"], answer["about"], answer["fault"])

    def _end(self) -> int:
        """End the process, if it is ours and runs; what it ended with."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return 0
        atexit.unregister(self._end)
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()  # the reader ends when there is nothing more to read
        try:
            return process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _how_it_died(code: int) -> str:
    if code == -getattr(signal, "SIGXCPU", 0):
        return f"it takes more than {_CPU_SECONDS} s"
    return "it crashes the library that reads such files"


def _received(stream: IO[bytes], shape: list[int]) -> Array:
    array = np.empty(shape)
    rest = array.data.cast("B")
    while rest:
        count = stream.readinto(rest)  # type: ignore[attr-defined]
        if not count:
            raise EOFError
        rest = rest[count:]
    return array


_reader = _Reader()


def read_aside(path: Path) -> SofaData:
    """What `read_sofa_file` reads; a crash, too much time or too much memory is an InputError."""
    return _reader.read(path)


# --- in the process that reads ---------------------------------------------------------------


def serve() -> None:
    """Read the files that are named on standard input, until that ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    import netCDF4  # noqa: F401, before memory is limited
    import sofar  # noqa: F401

    for line in sys.stdin.buffer:
        path = Path(os.fsdecode(bytes.fromhex(line.decode())))
        told, arrays = _told(path)
        answers.write(json.dumps(told).encode() + b"\n")
        for array in arrays:
            answers.write(np.ascontiguousarray(array, dtype=np.float64).data)
        answers.flush()


def _told(path: Path) -> tuple[dict[str, Any], list[Array]]:
    try:
        _limit(path.stat().st_size)
        data = read_sofa_file(path)
    except InputError as error:
        return {"error": str(error)}, []
    arrays = [data.directions, data.responses]
    shapes = [array.shape for array in arrays]
    return {"shapes": shapes, "rate": data.rate, "about": data.about, "fault": data.fault}, arrays


def _limit(size: int) -> None:
    """Let a file of this length have so much memory and time, where the system can."""
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    seconds = int(used + _CPU_SECONDS + size / _BYTES_A_SECOND) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
    pages = Path("/proc/self/statm")
    if pages.exists():
        own = int(pages.read_text().split()[0]) * resource.getpagesize()
        most = own + _MOST_TIMES * size + _MOST_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
