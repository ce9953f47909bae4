"""Structure of sound files, checked before libsndfile decodes them.

libsndfile silently accepts files whose end is missing, reads only the first of several recordings
in one file, and decodes formats with known vulnerabilities. `check_container` reads headers only.
Its input is a file; it raises an error unless the file has one of the supported formats, is
complete, and contains one recording.

    WAV (RIFF, RIFX, RF64), AIFF, W64, CAF    a list of chunks, one of which contains the samples
    AU                                        a header with the length of the samples
    OGG                                       pages, the first and the last of a stream are marked
    MP3                                       frames; the first may contain information ("Xing")
    FLAC                                      libsndfile itself reports a missing end
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO

from earatlas.errors import InputError

__all__ = ["Container", "check_container", "read_chunks"]

_MAX_CHUNKS = 1000  # a malicious file may contain millions
_MAX_RESYNC_BYTES = 4096  # bytes between MP3 frames, at most; libmpg123 gives up after 1024
_FLAC_START = b"fLaC\0\0\0\x22"  # a FLAC file starts with a block of this length
_ID3_BYTES = 10  # length of the header of an ID3 tag


class Container(Enum):
    """Supported containers; the values are the formats of libsndfile that they may contain."""

    AIFF = ("AIFF",)
    AU = ("AU",)
    CAF = ("CAF",)
    FLAC = ("FLAC",)
    MP3 = ("MP3",)
    OGG = ("OGG",)
    W64 = ("W64",)
    WAV = ("WAV", "WAVEX", "RF64")


class _Problem(Enum):
    TRUNCATED = "must be complete, but its end is missing. Copy or record it again."
    DAMAGED = "must be complete, but a part of it is damaged. Copy or record it again."
    SEVERAL = (
        "must be one recording, but the file contains several, one after the other, of which only "
        "the first would be read. Split it, or convert all of it to a WAV file."
    )


@dataclass(frozen=True, slots=True)
class _ChunkLayout:
    """How the chunks of a container are stored."""

    container: Container
    first: int  # position of the first chunk in bytes
    order: str = "little"  # of the bytes of a length
    name_bytes: int = 4
    length_bytes: int = 4
    alignment: int = 2  # of chunks, in bytes
    with_header: bool = False  # whether a length includes the header of the chunk
    data: bytes = b"data"  # name of the chunk with the samples

    @property
    def header_bytes(self) -> int:
        return self.name_bytes + self.length_bytes

    def is_streamed(self, length: int) -> bool:
        """Whether a length means "until the end", as programs that write to a pipe leave it."""
        # They leave 0 or a number near the largest one, with or without a sign.
        return length <= 0 or length >= (1 << (8 * self.length_bytes - 1)) - 4096


_W64_RIFF = bytes.fromhex("726966662e91cf11a5d628db04c10000")
_W64_DATA = bytes.fromhex("64617461f3acd3118cd100c04f8edb8a")
_CHUNKED = {
    b"RIFF": _ChunkLayout(Container.WAV, 12),
    b"RIFX": _ChunkLayout(Container.WAV, 12, "big"),
    b"RF64": _ChunkLayout(Container.WAV, 12),
    b"FORM": _ChunkLayout(Container.AIFF, 12, "big", data=b"SSND"),
    b"caff": _ChunkLayout(Container.CAF, 8, "big", length_bytes=8, alignment=1),
    b"riff": _ChunkLayout(
        Container.W64, 40, name_bytes=16, length_bytes=8, alignment=8, with_header=True,
        data=_W64_DATA,
    ),
}  # fmt: skip
_FORMS = {
    b"RIFF": (b"WAVE",),
    b"RIFX": (b"WAVE",),
    b"RF64": (b"WAVE",),
    b"FORM": (b"AIFF", b"AIFC"),
}


def check_container(path: Path) -> Container:
    """Return the container of a sound file.

    Raises
    ------
    InputError
        If the end or another part is missing, or there are several recordings.
    OSError
        If the file cannot be read, or its format is not supported.
    """
    with path.open("rb") as file:
        start = _skip_tags(file)
        file.seek(start)
        container = _recognize(file.read(16))
        if container is None:
            raise OSError("its first bytes are not those of a supported format")
        problem = _find_problem(file, container, start)
    if problem is not None:
        raise InputError(f"The recording '{path}' {problem.value}")
    return container


def _skip_tags(file: IO[bytes]) -> int:
    """Return the position behind the ID3 tags at the beginning of a file."""
    position = 0
    for _ in range(_MAX_CHUNKS):
        file.seek(position)
        header = file.read(_ID3_BYTES)
        if header[:3] != b"ID3" or len(header) < _ID3_BYTES:
            break
        position += _id3_length(header)
    return position


def _id3_length(header: bytes) -> int:
    """Return the length in bytes of an ID3 tag, of which seven bits per byte are used."""
    length = 0
    for byte in header[6:10]:
        length = length << 7 | byte & 0x7F
    return length + _ID3_BYTES


def _recognize(start: bytes) -> Container | None:
    """Return the container that begins with these 16 bytes, or None if it is not supported."""
    name = start[:4]
    if name in _FORMS:
        return _CHUNKED[name].container if start[8:12] in _FORMS[name] else None
    if name == b"riff":
        return Container.W64 if start == _W64_RIFF else None
    others = {b".snd": Container.AU, b"dns.": Container.AU, b"caff": Container.CAF,
              b"fLaC": Container.FLAC, b"OggS": Container.OGG}  # fmt: skip
    if name in others:
        return others[name]
    return Container.MP3 if _mp3_frame(name) is not None else None


def _find_problem(file: IO[bytes], container: Container, start: int) -> _Problem | None:
    """Return what is wrong with a file of a container that begins at `start`."""
    size = os.fstat(file.fileno()).st_size
    if container is Container.AU:
        return _find_au_problem(file, start, size)
    if container is Container.OGG:
        return _find_ogg_problem(file, start, size)
    if container in (Container.MP3, Container.FLAC):
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if container is Container.MP3:
                return _find_mp3_problem(content, start)
            repeated = content.find(_FLAC_START, start + 4) >= 0
            return _Problem.SEVERAL if repeated else None
    return _find_chunk_problem(file, start, size)


def read_chunks(file: IO[bytes], start: int = 0) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, position and length in bytes of the chunks of a file, at most 1000.

    The position is that of the contents. A chunk without a known length is the last one. Nothing
    is yielded for files of other formats.
    """
    file.seek(start)
    layout = _CHUNKED.get(file.read(4))
    if layout is None:
        return
    position, data_bytes = start + layout.first, None
    size = os.fstat(file.fileno()).st_size
    for _ in range(_MAX_CHUNKS):
        if position >= size:  # also beyond what `seek` accepts
            return
        file.seek(position)
        if len(header := file.read(layout.header_bytes)) < layout.header_bytes:
            return
        name = header[: layout.name_bytes]
        length = int.from_bytes(header[layout.name_bytes :], layout.order)  # type: ignore[arg-type]
        contents = position + layout.header_bytes
        if name == b"ds64":  # RF64: lengths of 64 bits, of the file and of the samples
            data_bytes = int.from_bytes(file.read(16)[8:], "little")
        elif name == layout.data and data_bytes is not None and length == 0xFFFFFFFF:
            length = data_bytes if 0 < data_bytes < 1 << 62 else -1
        elif layout.is_streamed(length) and name == layout.data:
            length = -1
        if layout.with_header:
            length -= layout.header_bytes
        yield name, contents, length
        if length < 0:
            return
        position = contents + length + -length % layout.alignment


def _find_chunk_problem(file: IO[bytes], start: int, size: int) -> _Problem | None:
    """Return what is wrong with a container of chunks."""
    file.seek(start)
    magic = file.read(4)
    layout, found = _CHUNKED[magic], False
    for name, position, length in read_chunks(file, start):
        if name == layout.data:
            found = True
            if length > 0 and position + length > size:
                return _Problem.TRUNCATED
        elif found and name[:4] == magic:
            return _Problem.SEVERAL
    return None


def _find_au_problem(file: IO[bytes], start: int, size: int) -> _Problem | None:
    """Return what is wrong with an AU file."""
    file.seek(start)
    magic, *fields = (file.read(4) for _ in range(3))
    order = "big" if magic == b".snd" else "little"
    offset, length = (int.from_bytes(field, order) for field in fields)  # type: ignore[arg-type]
    if length in (0, 0xFFFFFFFF):  # written to a pipe
        return None
    end = start + offset + length
    if end > size:
        return _Problem.TRUNCATED
    file.seek(end)
    return _Problem.SEVERAL if file.read(4) == magic else None


def _find_ogg_problem(file: IO[bytes], start: int, size: int) -> _Problem | None:
    """Return what is wrong with the pages of an OGG file."""
    position, flags, in_header = start, 0, True
    while position < size:
        file.seek(position)
        page = file.read(27 + 255)
        if page[:4] != b"OggS" or len(page) < 27:
            break  # not a page, such as a tag at the end
        segment_lengths = page[27 : 27 + page[26]]
        position += 27 + len(segment_lengths) + sum(segment_lengths)
        if len(segment_lengths) < page[26] or position > size:
            return _Problem.TRUNCATED
        flags = page[5]
        is_first = bool(flags & 2)  # of a stream; streams that are played together begin together
        if is_first and not in_header:
            return _Problem.SEVERAL
        in_header = is_first
    return None if flags & 4 else _Problem.TRUNCATED


@dataclass(frozen=True, slots=True)
class _Mp3Frame:
    """What the header of a frame tells."""

    kind: tuple[int, int, int]  # version, layer and rate, the same in all frames of a stream
    length: int  # bytes
    info: int  # position of the "Xing" information in a frame that has it


# Bit rates in kbit/s by index, for MPEG 1 and for MPEG 2 and 2.5, layers I, II and III.
_KILOBITS = {
    (True, 1): tuple(range(32, 449, 32)),
    (True, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 1): (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 3): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_MPEG1_RATES = (44100, 48000, 32000)  # Hz; half of these in MPEG 2, a quarter in MPEG 2.5


def _mp3_frame(header: bytes) -> _Mp3Frame | None:
    """Return what four bytes tell if they are the header of a frame."""
    if len(header) < 4 or header[0] != 0xFF or header[1] & 0xE0 != 0xE0:
        return None
    version, layer = header[1] >> 3 & 3, 4 - (header[1] >> 1 & 3)
    bits, rate_index = header[2] >> 4, header[2] >> 2 & 3
    if version == 1 or layer == 4 or bits in (0, 15) or rate_index == 3:
        return None
    first_version = version == 3
    rate = _MPEG1_RATES[rate_index] // {3: 1, 2: 2, 0: 4}[version]
    bits_per_second = 1000 * _KILOBITS[first_version, layer][bits - 1]
    padding = header[2] >> 1 & 1
    if layer == 1:
        length = (12 * bits_per_second // rate + padding) * 4
    else:
        samples = 576 if layer == 3 and not first_version else 1152
        length = samples // 8 * bits_per_second // rate + padding
    mono = header[3] >> 6 == 3
    info = (
        4
        + {(True, False): 32, (True, True): 17, (False, False): 17, (False, True): 9}[
            first_version, mono
        ]
    )
    return _Mp3Frame((version, layer, rate), length, info)


def _find_mp3_problem(content: mmap.mmap, start: int) -> _Problem | None:
    """Return whether another stream follows the first one; missing ends are found by counting."""
    position, kind = start, None
    while position < len(content):
        frame = _mp3_frame(content[position : position + 4])
        if frame is not None:
            info = content[position + frame.info : position + frame.info + 4]
            if kind not in (None, frame.kind) or (kind and info in (b"Xing", b"Info")):
                return _Problem.SEVERAL
            kind = frame.kind
            position += frame.length
        elif content[position : position + 3] == b"ID3":
            header = content[position : position + _ID3_BYTES]
            follows = position + _id3_length(header.ljust(_ID3_BYTES, b"\0"))
            if _mp3_frame(content[follows : follows + 4]) is not None:
                return _Problem.SEVERAL
            return None
        elif content[position : position + 3] == b"TAG":
            position += 128
        else:
            position = _next_mp3_frame(content, position)
            if position < len(content):
                return _Problem.DAMAGED
    return None


def _next_mp3_frame(content: mmap.mmap, position: int) -> int:
    """Return the position of the next two frames in a row, or the end of the file."""
    end = min(position + _MAX_RESYNC_BYTES, len(content))
    for candidate in range(position + 1, end):
        frame = _mp3_frame(content[candidate : candidate + 4])
        if frame is not None:
            follows = candidate + frame.length
            following = _mp3_frame(content[follows : follows + 4])
            if following is not None and following.kind == frame.kind:
                return candidate
    return len(content)
