"""Processing long recordings in bounded memory.

`overlapping_blocks` cuts a recording that arrives in chunks into overlapping blocks, `CrossFade`
joins the results of the blocks without a step, and `SegmentReader` reads consecutive, possibly
overlapping segments of the recording.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from earatlas.types import Array

__all__ = ["Block", "CrossFade", "SegmentReader", "overlapping_blocks"]


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
