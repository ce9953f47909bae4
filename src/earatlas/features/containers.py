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
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Literal

from earatlas.errors import InputError

__all__ = ["Container", "caf_frames", "check_container", "read_chunks"]

_MAX_CHUNKS = 1000  # a malicious file may contain millions
_MAX_RESYNC_BYTES = 4096  # bytes between MP3 frames, at most; libmpg123 gives up after 1024
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

    @property
    def prints_when_decoded(self) -> bool:
        """Whether a decoder of this container prints messages about damaged files."""
        return self in (Container.MP3, Container.CAF)


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
    order: Literal["little", "big"] = "little"  # of the bytes of a length
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
        signed = 1 << (8 * self.length_bytes - 1)
        empty = self.header_bytes if self.with_header else 0
        return length <= empty or abs(length - signed) <= 4096 or length >= 2 * signed - 4096


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
# First bytes of a file, by its first four.
_STARTS = {
    name: re.compile(pattern, re.DOTALL)
    for name, pattern in {
        b"RIFF": rb"RIFF....WAVE",
        b"RIFX": rb"RIFX....WAVE",
        b"RF64": rb"RF64....WAVE",
        b"FORM": rb"FORM....AIF[FC]",
        b"riff": re.escape(_W64_RIFF),
        b"caff": rb"caff\x00\x01",
        b".snd": rb"\.snd",
        b"dns.": rb"dns\.",
        b"OggS": rb"OggS\x00",
        b"fLaC": rb"fLaC\x00\x00\x00\x22",
    }.items()
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
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            problem = _find_problem(content, container, start)
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
    if name not in _STARTS:
        return Container.MP3 if _mp3_frame(name) is not None else None
    if _STARTS[name].match(start) is None:
        return None
    others = {b"OggS": Container.OGG, b"fLaC": Container.FLAC}
    return _CHUNKED[name].container if name in _CHUNKED else others.get(name, Container.AU)


def _find_problem(content: mmap.mmap, container: Container, start: int) -> _Problem | None:
    """Return what is wrong with a file of a container that begins at `start`."""
    if container is Container.OGG:
        return _find_ogg_problem(content, start)
    if container is Container.MP3:
        return _find_mp3_problem(content, start)
    end = start + 4  # libsndfile reports a missing end of FLAC files
    if container is not Container.FLAC:
        ends = _au_end if container is Container.AU else _chunked_end
        known_end = ends(content, start)
        if known_end is None:
            return None
        end = known_end
    if end > len(content):
        return _Problem.TRUNCATED
    another = _STARTS[content[start : start + 4]].search(content, end)
    return None if another is None else _Problem.SEVERAL


def read_chunks(file: IO[bytes] | mmap.mmap, start: int = 0) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, position and length in bytes of the chunks of a file, at most 1000.

    The position is that of the contents. Samples without a known length have the length -1 and are
    the last chunk. Nothing is yielded for files of other formats.
    """
    size = file.seek(0, os.SEEK_END) or file.tell()  # `mmap.seek` returns None before Python 3.13
    file.seek(start)
    layout = _CHUNKED.get(file.read(4))
    if layout is None:
        return
    position, data_bytes = start + layout.first, None
    for _ in range(_MAX_CHUNKS):
        if position >= size:  # also beyond what `seek` accepts
            return
        file.seek(position)
        if len(header := file.read(layout.header_bytes)) < layout.header_bytes:
            return
        name = header[: layout.name_bytes]
        length = int.from_bytes(header[layout.name_bytes :], layout.order)
        contents = position + layout.header_bytes
        if name == b"ds64":  # RF64: lengths of 64 bits, of the file and of the samples
            data_bytes = int.from_bytes(file.read(16)[8:], "little")
        if name == layout.data:
            streamed = layout.is_streamed(length)
            if data_bytes is not None and length == 0xFFFFFFFF:
                length, streamed = data_bytes, not 0 < data_bytes < 1 << 62
            if streamed:
                yield name, contents, -1
                return
        if layout.with_header:
            length = max(length - layout.header_bytes, 0)
        yield name, contents, length
        position = contents + length + -length % layout.alignment


def _chunked_end(content: mmap.mmap, start: int) -> int | None:
    """Return where the samples of a container of chunks end, or None if that is not known.

    A container without samples ends behind the file: even an empty recording has the chunk.
    """
    layout = _CHUNKED[content[start : start + 4]]
    for name, position, length in read_chunks(content, start):
        if name == layout.data:
            return None if length < 0 else position + length
    return len(content) + 1


def caf_frames(path: Path) -> int | None:
    """Return the samples per channel that the packet table of a CAF file states, if it has one."""
    with path.open("rb") as file:
        for name, position, _ in read_chunks(file):
            if name == b"pakt":
                file.seek(position + 8)  # behind the number of packets
                return int.from_bytes(file.read(8), "big")
    return None


def _au_end(content: mmap.mmap, start: int) -> int | None:
    """Return where the samples of an AU file end, or None if that is not known."""
    order: Literal["big", "little"] = "big" if content[start : start + 1] == b"." else "little"
    offset = int.from_bytes(content[start + 4 : start + 8], order)
    length = int.from_bytes(content[start + 8 : start + 12], order)
    streamed = length in (0, 0xFFFFFFFF)  # written to a pipe
    return None if streamed else start + offset + length


def _find_ogg_problem(content: mmap.mmap, start: int) -> _Problem | None:
    """Return what is wrong with the pages of an OGG file."""
    position, flags, in_header = start, 0, True
    while position < len(content):
        page = content[position : position + 27 + 255]
        if page[:5] != b"OggS\0" or len(page) < 27:
            following = _STARTS[b"OggS"].search(content, position)
            if following is None:
                break  # other bytes at the end, such as a tag
            is_first = content[following.start() + 5 : following.start() + 6] == b"\2"
            return _Problem.SEVERAL if is_first else _Problem.DAMAGED
        segment_lengths = page[27 : 27 + page[26]]
        position += 27 + len(segment_lengths) + sum(segment_lengths)
        if len(segment_lengths) < page[26] or position > len(content):
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
