"""Decoding of sound files by libsndfile, in this process or in a separate one.

Decoders of some formats print messages about damaged files: libmpg123 (MP3) on standard error, ALAC
on standard output. A second process without output decodes these formats. It starts with the first
such file (0.2 s, mostly for importing NumPy), forks for each file, and ends with this process. A
crash of such a decoder becomes an error. Without forks (Windows), this process decodes all formats.

    control socket   one byte per file, with the socket of that file
    socket of a file the name of the file; a header; then requests and responses, one line each:
    request          number of samples per channel
    response         JSON, {"error": ...} or {"samples": n}, followed by the samples as bytes
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
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import soundfile

from earatlas.features.wav import libsndfile_path
from earatlas.types import Array

__all__ = ["Decoder", "LocalDecoder", "SeparateDecoder", "open_decoder", "serve"]

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from earatlas.features.decoder import serve; serve()"
)
_FIELDS = ("samplerate", "channels", "frames", "format")  # of a sound file, in the header


class Decoder(Protocol):
    """An open sound file."""

    samplerate: int
    channels: int
    frames: int  # samples per channel according to the header of the file
    format: str  # name that libsndfile uses

    def read_forward(self, count: int) -> Array:
        """Return the next samples (n, channels), at most `count`; n is 0 at the end."""

    def close(self) -> None:
        """Close the file."""


class LocalDecoder(soundfile.SoundFile):  # type: ignore[misc]
    """A sound file that this process decodes, from beginning to end.

    If a file is seekable, libsndfile trusts the length in its header. Reading forward yields the
    samples that exist, so that their number can be compared with the header.
    """

    def seekable(self) -> bool:
        """Return False: the file is only read forward."""
        return False

    def read_forward(self, count: int) -> Array:
        """Return the next samples (n, channels), at most `count`; n is 0 at the end."""
        samples: Array = self.read(count, "float64", always_2d=True)
        return samples


def open_decoder(path: Path, *, separate: bool) -> Decoder:
    """Open a file; `separate`: a separate process decodes it, if the system can fork.

    Raises OSError or `soundfile.SoundFileError` if it cannot be opened.
    """
    if separate and hasattr(os, "fork"):
        return SeparateDecoder(path)
    decoder: Decoder = LocalDecoder(libsndfile_path(path))
    return decoder


class SeparateDecoder:
    """A sound file that a fork of the decoding process decodes."""

    def __init__(self, path: Path) -> None:
        try:
            header = self._open(path)
        except OSError:
            if not _server.restart_if_ended():
                raise
            header = self._open(path)
        self.samplerate, self.channels, self.frames = (int(header[name]) for name in _FIELDS[:3])
        self.format = str(header["format"])

    def _open(self, path: Path) -> dict[str, Any]:
        """Connect to a fork and return the header of the file."""
        self._socket = _server.connect()
        self._file = self._socket.makefile("rwb")
        try:
            self._send(os.fsencode(os.path.abspath(path)).hex())
            return self._receive()
        except BaseException:
            self.close()
            raise

    def _send(self, line: str) -> None:
        try:
            self._file.write(line.encode() + b"\n")
            self._file.flush()
        except BrokenPipeError:
            raise OSError("it crashes the decoder") from None

    def _receive(self) -> dict[str, Any]:
        """Return a line of the decoder."""
        try:
            line = self._file.readline()
        except ConnectionError:
            line = b""
        if not line:
            raise OSError("it crashes the decoder")
        response: dict[str, Any] = json.loads(line)
        if "error" in response:
            raise soundfile.SoundFileError(response["error"])
        return response

    def read_forward(self, count: int) -> Array:
        """Return the next samples (n, channels), at most `count`; n is 0 at the end."""
        self._send(str(count))
        samples = np.empty((self._receive()["samples"], self.channels))
        if samples.nbytes and self._fill(samples.data.cast("B")) < samples.nbytes:
            raise OSError("it crashes the decoder")
        return samples

    def _fill(self, memory: memoryview) -> int:
        """Read bytes into memory and return their number."""
        try:
            return self._file.readinto(memory)
        except ConnectionError:
            return 0

    def close(self) -> None:
        """Close the file; its fork ends at the end of its input."""
        with suppress(BrokenPipeError):  # of a request that was not sent
            self._file.close()
        self._socket.close()


class _Server:
    """The process whose forks decode files."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0  # process that started it

    def connect(self) -> socket.socket:
        """Return a socket that is connected to a new fork; start the process if necessary."""
        ours, theirs = socket.socketpair()
        try:
            with theirs, self._lock:
                socket.send_fds(self._start(), [b"\n"], [theirs.fileno()])
        except BaseException:
            ours.close()
            raise
        return ours

    def restart_if_ended(self) -> bool:
        """Return whether the process was killed; if so, the next file starts another one."""
        with self._lock:
            if self._process is None or self._process.poll() is None:
                return False
            self._end()
        return True

    def _start(self) -> socket.socket:
        """Return the control socket of the running process."""
        # After a fork, the process belongs to the parent.
        if self._control is None or self._owner != os.getpid():
            self._control, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-W", "ignore", "-c", _START, json.dumps(sys.path)],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C must not reach it
                )
            self._owner = os.getpid()
            atexit.register(self._end)
        return self._control

    def _end(self) -> None:
        """End the process if this process started it."""
        if self._owner != os.getpid() or self._control is None or self._process is None:
            return
        atexit.unregister(self._end)
        self._control.close()
        self._control = None
        self._process.kill()  # forks end with their files
        self._process.wait()


_server = _Server()


# --- in the decoding process -------------------------------------------------------------------


def serve() -> None:
    """Fork for each file that is requested on standard input, until it ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks are not waited for
    control = socket.socket(fileno=0)
    while True:
        byte, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not byte:
            return
        with socket.socket(fileno=descriptors[0]) as connection:
            if not os.fork():
                try:
                    control.close()
                    _decode(connection)
                finally:
                    os._exit(0)


def _decode(connection: socket.socket) -> None:
    """Decode the file whose name is on the first line, as requested on the following ones."""
    stream = connection.makefile("rwb")

    def respond(response: dict[str, Any], samples: bytes = b"") -> None:
        stream.write(json.dumps(response).encode() + b"\n")
        stream.write(samples)
        stream.flush()

    try:
        name = os.fsdecode(bytes.fromhex(stream.readline().decode()))
        with LocalDecoder(libsndfile_path(Path(name))) as sound:
            respond({field: getattr(sound, field) for field in _FIELDS})
            for line in stream:
                samples = sound.read_forward(int(line))
                respond({"samples": len(samples)}, samples.tobytes())
    except (soundfile.SoundFileError, OSError, MemoryError, ValueError) as error:
        respond({"error": str(getattr(error, "error_string", error)) or type(error).__name__})
