"""Reading SOFA files in a separate process, so that a crash becomes an InputError.

netCDF-C and HDF5 crash on some files and allocate gigabytes for others. The reader is a second
Python process. It starts with the first file (0.5 s, mostly for importing netCDF4 and sofar, which
are then not imported here), serves all further files, ends with this process, and is restarted
after a crash and when it does not release the memory of a file. Its time (of the processor and of
the clock) and its memory are limited in proportion to the size of the file.

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
        timed_out = threading.Event()

        def kill() -> None:
            timed_out.set()
            process.kill()

        seconds = LIMITS.wall_factor * _processor_seconds(path.stat().st_size)
        timer = threading.Timer(seconds, kill)
        timer.daemon = True
        timer.start()
        try:
            header, arrays = _exchange(process, path)
        except (BrokenPipeError, EOFError):
            reason = _exit_reason(self._end(), timed_out=timed_out.is_set())
            raise InputError(
                f"The file '{path}' cannot be read as a SOFA (netCDF-4) file ({reason}). Export "
                "it again."
            ) from None
        finally:
            timer.cancel()
        if header["last"]:
            self._end()
        if "error" in header:
            raise InputError(header["error"])
        directions, responses = arrays
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
            process.kill()
            return process.wait()


def _processor_seconds(size: int) -> float:
    """Return the processor time that a file of `size` bytes may take."""
    return LIMITS.seconds + size / LIMITS.bytes_per_second


def _exit_reason(code: int, *, timed_out: bool) -> str:
    if timed_out or code == -getattr(signal, "SIGXCPU", 0):
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
    import scipy.fft  # noqa: F401
    import sofar  # noqa: F401

    base_bytes, base_resident_bytes = _memory_bytes()
    for line in sys.stdin.buffer:
        path = Path(os.fsdecode(bytes.fromhex(line.decode())))
        header, arrays = _respond(path, base_bytes)
        growth = _memory_bytes()[1] - base_resident_bytes - sum(array.nbytes for array in arrays)
        header["last"] = growth > LIMITS.max_growth_bytes
        output.write(json.dumps(header).encode() + b"\n")
        for array in arrays:
            output.write(np.ascontiguousarray(array, dtype=np.float64).data)
        output.flush()


def _respond(path: Path, base_bytes: int) -> tuple[dict[str, Any], list[Array]]:
    """Return the header and the arrays of the response for a file."""
    try:
        _limit_resources(path.stat().st_size, base_bytes)
        data = read_sofa_file(path)
    except InputError as error:
        return {"error": str(error), "shapes": []}, []
    arrays = [data.directions, data.responses]
    header = {
        "shapes": [array.shape for array in arrays],
        "rate": data.rate,
        "attributes": data.attributes,
        "violation": data.violation,
    }
    return header, arrays


def _memory_bytes() -> tuple[int, int]:
    """Return the address space and the memory of this process, 0 if the system does not tell."""
    pages = Path("/proc/self/statm")
    if not pages.exists():
        return 0, 0
    total, resident = (int(number) for number in pages.read_text().split()[:2])
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    return total * page_bytes, resident * page_bytes


def _limit_resources(size: int, base_bytes: int) -> None:
    """Limit processor time and memory for a file of `size` bytes, if the system supports it."""
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    limits = {resource.RLIMIT_CPU: int(used + _processor_seconds(size)) + 1}
    if base_bytes:
        allowed = LIMITS.memory_per_byte * size + LIMITS.memory_bytes
        limits[resource.RLIMIT_AS] = base_bytes + allowed
    for kind, limit in limits.items():
        highest = resource.getrlimit(kind)[1]  # only root can raise it
        limit = limit if highest == resource.RLIM_INFINITY else min(limit, highest)
        resource.setrlimit(kind, (limit, highest))
