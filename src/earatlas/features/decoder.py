"""Decoding of sound files by libsndfile, in this process or in a separate one.

Decoders of some formats print messages about damaged files: libmpg123 (MP3) on standard error, ALAC
on standard output. A fork of a process without output decodes these formats (`ForkServer`; it
starts in 0.2 s, mostly for importing NumPy). A crash of such a decoder becomes an error. Without
forks (Windows), this process decodes all formats.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

import soundfile

from earatlas.features.wav import libsndfile_path
from earatlas.fork_server import CAN_FORK, Connection, ForkServer, ProcessCrashError
from earatlas.types import Array

__all__ = ["SERVER", "Decoder", "LocalDecoder", "SeparateDecoder", "open_decoder"]

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
    if separate and CAN_FORK:
        return SeparateDecoder(path)
    decoder: Decoder = LocalDecoder(libsndfile_path(path))
    return decoder


class SeparateDecoder:
    """A sound file that a fork of the decoding process decodes."""

    def __init__(self, path: Path) -> None:
        self._connection = SERVER.connect()
        try:
            header, _ = self._request({"path": os.fsencode(os.path.abspath(path)).hex()})
        except BaseException:
            self.close()
            raise
        self.samplerate, self.channels, self.frames = (int(header[name]) for name in _FIELDS[:3])
        self.format = str(header["format"])

    def _request(self, message: dict[str, Any]) -> tuple[dict[str, Any], list[Array]]:
        try:
            self._connection.send(message)
            header, arrays = self._connection.receive()
        except ProcessCrashError:
            raise OSError("it crashes the decoder") from None
        if "error" in header:
            raise soundfile.SoundFileError(header["error"])
        return header, arrays

    def read_forward(self, count: int) -> Array:
        """Return the next samples (n, channels), at most `count`; n is 0 at the end."""
        return self._request({"count": count})[1][0]

    def close(self) -> None:
        """Close the file; its fork ends."""
        self._connection.close()


def _decode(connection: Connection) -> None:
    """Decode the file that the first message names, as requested by the following ones."""
    try:
        request, _ = connection.receive()
        name = os.fsdecode(bytes.fromhex(request["path"]))
        with LocalDecoder(libsndfile_path(Path(name))) as sound:
            connection.send({field: getattr(sound, field) for field in _FIELDS})
            while True:
                request, _ = connection.receive()
                connection.send({}, sound.read_forward(request["count"]))
    except ProcessCrashError:
        raise
    except (soundfile.SoundFileError, OSError, MemoryError, ValueError) as error:
        message = str(getattr(error, "error_string", error)) or type(error).__name__
        connection.send({"error": message})


SERVER = ForkServer(_decode)
