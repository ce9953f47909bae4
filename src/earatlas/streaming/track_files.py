"""WAV files of the tracks of a live stream, valid at any time while they grow.

    track1.wav   RIFF 32-bit float, both ears, from the confirmation of track 1 to its end

The lengths in the header are updated every second, after the samples that they count: if the
program ends at any point, the file is valid. A file that exceeds 4 GB becomes RF64, for which space
is reserved in the header.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np

from earatlas.errors import InputError
from earatlas.streaming.report import LiveReport, LiveSource
from earatlas.types import Array

__all__ = ["GrowingWav", "TrackFiles", "is_track_file", "track_file"]


def track_file(number: int) -> str:
    """Return the name of a track's file."""
    return f"track{number}.wav"


def is_track_file(name: str) -> bool:
    """Return whether a name is that of a track's file."""
    number = name.removeprefix("track").removesuffix(".wav")
    return number.isdecimal() and name == track_file(int(number))


class GrowingWav:
    """A WAV file that is valid after every `sync`."""

    def __init__(self, path: Path, rate: int) -> None:
        self.path, self.rate = path, rate
        self.frames = self._synced_frames = 0
        self._file: IO[bytes] = path.open("wb")
        self._file.write(_header(rate, 0))
        self._file.flush()

    def append(self, samples: Array) -> None:
        """Append samples (2, n)."""
        self._file.write(np.ascontiguousarray(samples.T, dtype="<f4").tobytes())
        self.frames += samples.shape[1]
        if self.frames - self._synced_frames >= self.rate:
            self.sync()

    def sync(self) -> None:
        """Write the current length to the header."""
        self._file.flush()
        self._file.seek(0)
        self._file.write(_header(self.rate, self.frames))
        self._file.flush()
        self._file.seek(0, 2)
        self._synced_frames = self.frames

    def close(self) -> None:
        """Write the final length and close the file."""
        try:
            self.sync()
        finally:
            self._file.close()


def _header(rate: int, frames: int) -> bytes:
    """Return the header of a file with `frames` samples per channel."""
    frame_bytes, ieee_float = 8, 3  # two channels of 32-bit floats; WAVE_FORMAT_IEEE_FLOAT
    header_bytes = 12 + 36 + 24 + 12 + 8  # RIFF, JUNK or ds64, fmt, fact, data
    size = frames * frame_bytes
    is_rf64 = size + header_bytes > 0xFFFF_FFF0  # a RIFF file has 32-bit sizes
    riff_size = size + header_bytes - 8
    ds64 = struct.pack("<QQQI", riff_size, size, frames, 0) if is_rf64 else bytes(28)
    sizes32 = [0xFFFF_FFFF] * 3 if is_rf64 else [riff_size, frames, size]
    return b"".join(
        [
            struct.pack("<4sI4s", b"RF64" if is_rf64 else b"RIFF", sizes32[0], b"WAVE"),
            struct.pack("<4sI", b"ds64" if is_rf64 else b"JUNK", 28) + ds64,
            struct.pack(
                "<4sIHHIIHH", b"fmt ", 16, ieee_float, 2, rate, rate * frame_bytes, frame_bytes, 32
            ),
            struct.pack("<4sII", b"fact", 4, sizes32[1]),
            struct.pack("<4sI", b"data", sizes32[2]),
        ]
    )


class TrackFiles:
    """The WAV files of the tracks of a stream, in one folder."""

    def __init__(self, folder: Path, rate: int) -> None:
        self._folder, self._rate = folder, rate
        self._open: dict[int, GrowingWav] = {}
        self.tracks: dict[int, dict[str, object]] = {}  # entries of the summary, by track id

    def write(self, report: LiveReport) -> None:
        """Append the signals of a report, and close the files of tracks that ended."""
        try:
            for source in (*report.sources, *report.ended):
                if source.confirmed and source.samples.shape[1]:
                    self._append(source, report.start)
            for source in report.ended:
                if source.id in self._open:
                    self._open.pop(source.id).close()
        except OSError as error:
            raise _disk_error(self._folder, error) from error

    def _append(self, source: LiveSource, start: int) -> None:
        """Append the signal of a source, from its first nonzero sample on."""
        samples = source.samples
        if source.id not in self._open:
            if source.id in self.tracks or not samples.any():
                return
            first = int(np.argmax(samples.any(axis=0)))
            samples, start = samples[:, first:], start + first
            name = track_file(source.id)
            self._open[source.id] = GrowingWav(self._folder / name, self._rate)
            self.tracks[source.id] = {"id": source.id, "file": name, "start": start / self._rate}
        file = self._open[source.id]
        file.append(samples)
        self.tracks[source.id]["seconds"] = round(file.frames / self._rate, 3)
        self.tracks[source.id]["direction"] = [round(float(v), 1) for v in source.direction]

    def close(self) -> None:
        """Close all files."""
        errors = []
        for file in self._open.values():
            try:
                file.close()
            except OSError as error:
                errors.append(error)
        self._open = {}
        if errors:
            raise _disk_error(self._folder, errors[0])

    @property
    def summary(self) -> Sequence[dict[str, object]]:
        """Entry of each track: id, file, start, seconds, direction."""
        return list(self.tracks.values())


def _disk_error(folder: Path, error: OSError) -> InputError:
    """Return the error for a folder that cannot be written."""
    return InputError(
        f"output folder must have room for the files, got '{folder}' ({error.strerror or error}). "
        "The files written so far can be played. Free some space, or choose another folder."
    )
