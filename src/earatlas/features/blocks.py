"""Long recordings in bounded memory: overlapping blocks, and their results without a seam.

In: a recording that comes in chunks. Out: blocks that overlap (`overlapping`); results of the
blocks put together again (`CrossFade`); and any stretch of it, one after the other (`Spans`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from earatlas.types import Array

__all__ = ["Block", "CrossFade", "Spans", "overlapping"]


@dataclass(frozen=True, eq=False)
class Block:
    """Samples (2, n) of a recording from `start` on."""

    samples: Array
    start: int
    last: bool


def overlapping(chunks: Iterable[Array], length: int, overlap: int) -> Iterator[Block]:
    """Blocks of `length` samples that begin every `length - overlap`.

    The last one is longer by what is left if that is no more than half a block: no block is so
    short that little can be told of it.
    """
    held, start = np.zeros((2, 0)), 0
    hop, longest = length - overlap, length + length // 2
    for chunk in chunks:
        held = np.concatenate([held, chunk], axis=1)
        while held.shape[1] > longest:
            yield Block(held[:, :length], start, last=False)
            held, start = held[:, hop:], start + hop
    yield Block(held, start, last=True)


class Spans:
    """Samples (2, n) of a recording that comes in chunks; of its past, what may still be wanted."""

    def __init__(self, chunks: Iterable[Array]) -> None:
        self._chunks = iter(chunks)
        self._held, self._start = np.zeros((2, 0)), 0

    def take(self, begin: int, end: int | None) -> Array:
        """From `begin`, never before that of the last time, to `end`, or all that is left."""
        parts, known = [self._held], self._start + self._held.shape[1]
        while end is None or known < end:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            parts.append(chunk)
            known += chunk.shape[1]
        self._held = np.concatenate(parts, axis=1)[:, begin - self._start :]
        self._start = begin
        return self._held if end is None else self._held[:, : end - begin]


class CrossFade:
    """Results (…, n) of overlapping blocks, faded into each other over `overlap` steps."""

    def __init__(self, overlap: int) -> None:
        self._overlap = overlap
        self._tail: Array | None = None

    def push(self, values: Array, *, last: bool) -> Array:
        """What is final once this block is known: all of it but the overlap with the next."""
        if self._tail is not None:
            n = self._tail.shape[-1]
            rise = (np.arange(n) + 0.5) / n
            faded = values[..., :n] * rise + self._tail * (1 - rise)
            values = np.concatenate([faded, values[..., n:]], axis=-1)
        if last:
            return values
        self._tail = values[..., -self._overlap :].copy()
        return values[..., : -self._overlap]
