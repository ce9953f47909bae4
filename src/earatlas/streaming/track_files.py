"""A sound file for each track, which grows with it and can be played at any moment.

    track1.wav   RIFF 32-bit float, both ears, from when track 1 was confirmed to its end

The lengths in a file's header are brought up to date every second, after the samples that they
count: whatever ends the program, what is there is whole. A file that outgrows 4 GB becomes RF64,
for which room is kept in its header.
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

_FRAME_BYTES = 8  # two channels of 32-bit float
_HEADER_BYTES = 12 + 36 + 24 + 12 + 8  # RIFF, JUNK or ds64, fmt, fact, data
_LARGEST_RIFF = 0xFFFF_FFF0 - _HEADER_BYTES
_FLOAT = 3  # the format's number


def track_file(number: int) -> str:
    """The name of a track's file."""
    return f"track{number}.wav"


def is_track_file(name: str) -> bool:
    """Whether a track's file has this name."""
    number = name.removeprefix("track").removesuffix(".wav")
    return number.isdecimal() and name == track_file(int(number))


class GrowingWav:
    """A WAV file that is whole after every `sync`."""

    def __init__(self, path: Path, rate: int) -> None:
        self.path, self.rate = path, rate
        self.frames = self._told = 0
        self._file: IO[bytes] = path.open("wb")
        self._file.write(_header(rate, 0))
        self._file.flush()

    def append(self, samples: Array) -> None:
        """Samples (2, n)."""
        self._file.write(np.ascontiguousarray(samples.T, dtype="<f4").tobytes())
        self.frames += samples.shape[1]
        if self.frames - self._told >= self.rate:
            self.sync()

    def sync(self) -> None:
        """The header as long as the sound is."""
        self._file.flush()
        self._file.seek(0)
        self._file.write(_header(self.rate, self.frames))
        self._file.flush()
        self._file.seek(0, 2)
        self._told = self.frames

    def close(self) -> None:
        """The last of it."""
        try:
            self.sync()
        finally:
            self._file.close()


def _header(rate: int, frames: int) -> bytes:
    size = frames * _FRAME_BYTES
    large = size > _LARGEST_RIFF
    whole = size + _HEADER_BYTES - 8
    lengths = struct.pack("<QQQI", whole, size, frames, 0) if large else bytes(28)
    short = [0xFFFF_FFFF] * 3 if large else [whole, frames, size]
    return b"".join(
        [
            struct.pack("<4sI4s", b"RF64" if large else b"RIFF", short[0], b"WAVE"),
            struct.pack("<4sI", b"ds64" if large else b"JUNK", 28) + lengths,
            struct.pack("<4sIHHIIHH", b"fmt ", 16, _FLOAT, 2, rate, rate * 8, _FRAME_BYTES, 32),
            struct.pack("<4sII", b"fact", 4, short[1]),
            struct.pack("<4sI", b"data", short[2]),
        ]
    )


class TrackFiles:
    """The files of a stream in a folder."""

    def __init__(self, folder: Path, rate: int) -> None:
        self._folder, self._rate = folder, rate
        self._open: dict[int, GrowingWav] = {}
        self.tracks: dict[int, dict[str, object]] = {}  # what there is of each, for the summary

    def write(self, report: LiveReport) -> None:
        """The sounds of a report; those of tracks that ended are closed."""
        try:
            for source in (*report.sources, *report.ended):
                if source.confirmed and source.samples.shape[1]:
                    self._append(source, report.start)
            for source in report.ended:
                if source.id in self._open:
                    self._open.pop(source.id).close()
        except OSError as error:
            raise _no_room(self._folder, error) from error

    def _append(self, source: LiveSource, start: int) -> None:
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
        """All files, as far as they are."""
        problems = []
        for file in self._open.values():
            try:
                file.close()
            except OSError as error:
                problems.append(error)
        self._open = {}
        if problems:
            raise _no_room(self._folder, problems[0])

    @property
    def summary(self) -> Sequence[dict[str, object]]:
        """What there is of each track."""
        return list(self.tracks.values())


def _no_room(folder: Path, error: OSError) -> InputError:
    return InputError(
        f"output folder must have room for the sound, got '{folder}' ({error.strerror or error}). "
        "What was written until then can be played. Free some space, or choose another folder."
    )
