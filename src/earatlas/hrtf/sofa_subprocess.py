"""Reading SOFA files in a separate process, so that a crash becomes an InputError.

netCDF-C and HDF5 crash on some files, allocate gigabytes for others, and keep memory and open files
after an error. A fork of a second process reads each file (`ForkServer`; it starts in 0.5 s, mostly
for importing netCDF4 and sofar, which are then not imported here). The memory and the time of a
fork (of the processor and of the clock) are limited in proportion to the size of the file.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from earatlas.errors import InputError
from earatlas.fork_server import Connection, ForkServer, ProcessCrashError
from earatlas.hrtf.sofa_file import LIMITS, SofaData, read_sofa_file

__all__ = ["SERVER", "read_in_subprocess"]


def read_in_subprocess(path: Path) -> SofaData:
    """Call `read_sofa_file` in a separate process; a crash becomes an InputError."""
    try:
        with SERVER.connect() as connection:
            connection.send({"path": os.fsencode(os.path.abspath(path)).hex()})
            header, arrays = connection.receive()
    except ProcessCrashError as error:
        raise InputError(
            f"The file '{path}' cannot be read as a SOFA (netCDF-4) file "
            f"({_crash_reason(error)}). Export it again."
        ) from None
    if "error" in header:
        raise InputError(header["error"])
    directions, responses = arrays
    return SofaData(directions, responses, **header)


def _crash_reason(error: ProcessCrashError) -> str:
    if error.signal in (getattr(signal, "SIGXCPU", -1), getattr(signal, "SIGALRM", -1)):
        return f"it takes more than {LIMITS.seconds} s"
    return "it crashes the library that reads such files"


def _read(connection: Connection) -> None:
    """Read the file that the caller names, and send its contents."""
    request, _ = connection.receive()
    path = Path(os.fsdecode(bytes.fromhex(request["path"])))
    try:
        _limit_resources(path.stat().st_size)
        data = read_sofa_file(path)
    except InputError as error:
        connection.send({"error": str(error)})
        return
    metadata = {"rate": data.rate, "attributes": data.attributes, "violation": data.violation}
    connection.send(metadata, data.directions, data.responses)


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


SERVER = ForkServer(_read, "netCDF4", "sofar")
