"""A binaural recording that can be read repeatedly in blocks, from memory or from a file.

Long recordings are processed in two passes (first the thresholds, then the bins above them) without
ever being held in memory. Algorithms therefore take a `Recording`. `without_dc_offset` returns the
same recording with the constant removed that a converter may add
(`earatlas.features.input_samples`). `overlapping_blocks` regroups samples into blocks that share
some sound with the next one, and `CrossFade` joins what was computed from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from earatlas.features.audio import Audio
from earatlas.features.audio_checks import check_audio, check_binaural
from earatlas.features.audio_files import audio_rate, audio_seconds, read_blocks
from earatlas.features.input_samples import count_clipped, estimate_dc_offset
from earatlas.features.layout import CueLayout
from earatlas.types import Array

__all__ = [
    "Block",
    "CrossFade",
    "FileRecording",
    "MemoryRecording",
    "Recording",
    "SegmentReader",
    "overlapping_blocks",
]


_BLOCK_SECONDS = 10.0  # duration of a block; its spectra take a few megabytes


def _zero_offset() -> Array:
    return np.zeros((2, 1))


def _clipped_fraction(samples: Array) -> float:
    """Return the fraction of samples (2, n) that are clipped."""
    return count_clipped(samples) / max(samples.size, 1)


class Recording(Protocol):
    """Two channels of sound that can be read several times, at any sampling rate."""

    @property
    def offset(self) -> Array:
        """DC offset (2, 1) that was removed from each ear."""

    @property
    def clipped_fraction(self) -> float:
        """Fraction of the samples of the first block that are clipped, at the native rate."""

    def without_dc_offset(self) -> Recording:
        """Return the recording without the DC offset of its first block, with its clipping."""

    @property
    def seconds(self) -> float:
        """Duration in seconds."""

    @property
    def rate(self) -> int:
        """Native sampling rate in Hz."""

    def chunks(self, rate: int) -> Iterator[Array]:
        """Yield samples (2, n) at any rate, without the checks and warnings of `blocks`."""

    def blocks(self, layout: CueLayout, *, second_pass: bool = False) -> Iterator[Audio]:
        """Yield blocks at the rate of the layout; a second pass does not repeat warnings."""


@dataclass(frozen=True, eq=False)
class MemoryRecording:
    """A recording in memory."""

    audio: Audio
    offset: Array = field(default_factory=_zero_offset)  # (2, 1), already removed
    clipped_fraction: float = 0.0  # of the samples of the first block; 0: not measured

    def __post_init__(self) -> None:
        check_binaural(self.audio)

    def without_dc_offset(self) -> MemoryRecording:
        """Return the recording without the DC offset of its first block."""
        samples, rate = self.audio.samples, self.audio.rate
        first = samples[:, : int(_BLOCK_SECONDS * rate)]
        offset, clipped = estimate_dc_offset(first), _clipped_fraction(first + self.offset)
        return MemoryRecording(Audio(samples - offset, rate), self.offset + offset, clipped)

    @property
    def seconds(self) -> float:
        """Duration in seconds."""
        return self.audio.seconds

    @property
    def rate(self) -> int:
        """Native sampling rate in Hz."""
        return self.audio.rate

    def chunks(self, rate: int) -> Iterator[Array]:
        """Yield all samples (2, n) at any rate, as one chunk."""
        yield self.audio.at_rate(rate).samples

    def blocks(self, layout: CueLayout, *, second_pass: bool = False) -> Iterator[Audio]:
        """Yield blocks at the rate of the layout; raise InputError if there can be no cues."""
        samples = check_audio(self.audio, layout).samples
        size = int(_BLOCK_SECONDS * layout.rate)
        for start in range(0, samples.shape[1], size):
            yield Audio(samples[:, start : start + size], layout.rate)


@dataclass(frozen=True, eq=False)
class FileRecording:
    """A recording in a sound file of any length."""

    path: str | Path
    channels: tuple[int, int] = (0, 1)  # channel numbers of the left and the right ear
    offset: Array = field(default_factory=_zero_offset)  # (2, 1), removed while reading
    clipped_fraction: float = 0.0  # of the samples of the first block; 0: not measured

    def without_dc_offset(self) -> FileRecording:
        """Return the recording without the DC offset of its first block."""
        first = next(self._read(self.rate, warn=False)).samples
        offset, clipped = estimate_dc_offset(first), _clipped_fraction(first + self.offset)
        return replace(self, offset=self.offset + offset, clipped_fraction=clipped)

    @property
    def seconds(self) -> float:
        """Duration in seconds, from the header."""
        return audio_seconds(self.path)

    @property
    def rate(self) -> int:
        """Native sampling rate in Hz, from the header."""
        return audio_rate(self.path)

    def chunks(self, rate: int) -> Iterator[Array]:
        """Yield samples (2, n) at any rate, without warnings."""
        return (block.samples for block in self._read(rate, warn=False))

    def blocks(self, layout: CueLayout, *, second_pass: bool = False) -> Iterator[Audio]:
        """Yield blocks at the rate of the layout; a second pass does not repeat warnings."""
        return self._read(layout.rate, warn=not second_pass)

    def _read(self, rate: int, *, warn: bool) -> Iterator[Audio]:
        return read_blocks(
            self.path, channels=self.channels, rate=rate, block_seconds=_BLOCK_SECONDS,
            offset=self.offset if self.offset.any() else None, warn=warn,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Block:
    """A block of a recording."""

    samples: Array  # (2, n)
    start: int  # index of the first sample within the recording
    last: bool


def overlapping_blocks(chunks: Iterable[Array], length: int, overlap: int) -> Iterator[Block]:
    """Yield blocks of `length` samples that begin every `length - overlap` samples.

    The last block includes the remainder if that is at most half a block long, so that no block is
    too short to be analysed.
    """
    buffer, start = np.zeros((2, 0)), 0
    hop, max_length = length - overlap, length + length // 2
    for chunk in chunks:
        buffer = np.concatenate([buffer, chunk], axis=1)
        while buffer.shape[1] > max_length:
            yield Block(buffer[:, :length], start, last=False)
            buffer, start = buffer[:, hop:], start + hop
    yield Block(buffer, start, last=True)


class SegmentReader:
    """Reads segments (2, n) with increasing start from a recording that arrives in chunks."""

    def __init__(self, chunks: Iterable[Array]) -> None:
        self._chunks = iter(chunks)
        self._buffer, self._start = np.zeros((2, 0)), 0  # `_start`: first sample of the buffer

    def read(self, begin: int, end: int | None) -> Array:
        """Return the samples from `begin` to `end`, or to the end of the recording if None.

        `begin` must not be smaller than in the previous call.
        """
        parts, received = [self._buffer], self._start + self._buffer.shape[1]
        while end is None or received < end:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            parts.append(chunk)
            received += chunk.shape[1]
        self._buffer = np.concatenate(parts, axis=1)[:, begin - self._start :]
        self._start = begin
        return self._buffer if end is None else self._buffer[:, : end - begin]


class CrossFade:
    """Joins results (..., n) of overlapping blocks by a linear cross-fade of `overlap` steps."""

    def __init__(self, overlap: int) -> None:
        self._overlap = overlap
        self._tail: Array | None = None

    def push(self, values: Array, *, last: bool) -> Array:
        """Return the final values up to the overlap of this block with the next one."""
        if self._tail is not None:
            n = self._tail.shape[-1]
            rise = (np.arange(n) + 0.5) / n
            faded = values[..., :n] * rise + self._tail * (1 - rise)
            values = np.concatenate([faded, values[..., n:]], axis=-1)
        if last:
            return values
        self._tail = values[..., -self._overlap :].copy()
        return values[..., : -self._overlap]
