"""Sums of a long sound, hop by hop, and of every window of several hops.

In: spectra in blocks, and the floors that bins must pass. Out: Q, R, E of each `step` frames
(`hop_sums`), many in a piece, and of every run of `length` hops (`sliding_sums`).

    H   hops of a piece      D   cues        W   windows
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from earatlas.features.cues import bin_power
from earatlas.features.layout import CueLayout
from earatlas.features.statistics import CueStatistics
from earatlas.types import Array, Indices, Spectra

__all__ = ["HopSums", "hop_sums", "sliding_sums"]

_FRAMES_AT_ONCE = 256  # as many as stay in the cache
# That are summed up together: some megabytes. With 64, answers took a tenth longer.
_HOPS_AT_ONCE = 160


@dataclass(frozen=True, eq=False)
class HopSums:
    """Q, R, E of some hops, or windows, in a row, and how many frames each has."""

    table: Array  # (3, H, D)
    frames: Array  # (H,)

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, rows: slice) -> HopSums:
        return HopSums(self.table[:, rows], self.frames[rows])

    def __add__(self, other: HopSums) -> HopSums:
        return HopSums(self.table + other.table, self.frames + other.frames)

    def __iter__(self) -> Iterator[CueStatistics]:
        """One after the other."""
        for n, frames in enumerate(self.frames):
            counts, sums, squares = self.table[:, n]
            yield CueStatistics(counts, sums, squares, float(frames))

    @classmethod
    def joined(cls, parts: Iterable[HopSums]) -> HopSums:
        """Those of all parts, in order."""
        every = list(parts)
        return cls(
            np.concatenate([part.table for part in every], axis=1),
            np.concatenate([part.frames for part in every]),
        )

    def total(self) -> HopSums:
        """All of them as one."""
        return HopSums(self.table.sum(axis=1, keepdims=True), self.frames.sum(keepdims=True))


def hop_sums(
    parts: Iterable[Spectra], layout: CueLayout, floors: Indices, step: int
) -> Iterator[HopSums]:
    """Sums of each `step` frames of spectra that come in parts; the last may have fewer."""
    rest: HopSums | None = None  # of a hop that goes on
    for spectra in parts:
        for some in _cut(spectra, step, 0 if rest is None else int(rest.frames[0])):
            sums = _summed(some, layout, floors, step)
            if rest is not None:
                sums, rest = (rest + sums[:1]), None
            if sums.frames[-1] < step:
                rest, sums = sums[-1:], sums[:-1]
            if len(sums):
                yield sums
    if rest is not None:
        yield rest


def _cut(spectra: Spectra, step: int, begun: int) -> Iterator[Spectra]:
    """Some frames at a time: first those that a hop still wants, whole hops, then what is left."""
    T = spectra.shape[-1]
    at = min(step - begun, T) if begun else 0
    many = max(_FRAMES_AT_ONCE // step, 1) * step
    whole = T - (T - at) % step
    for first, last in pairwise([0, *range(at, whole, many), whole, T]):
        if last > first:
            yield spectra[..., first:last]


def _summed(spectra: Spectra, layout: CueLayout, floors: Indices, step: int) -> HopSums:
    """Of whole hops, or of less than one."""
    power = bin_power(spectra, layout.window).min(axis=0).T  # (t, F)
    least = (10.0 ** (floors / 10)).astype(power.dtype)
    mask = power.take(layout.cue_frequencies, axis=1) >= least
    left, right = spectra[:, 1:].swapaxes(-1, -2)
    y = layout.stack(left, right)
    y *= mask
    hops = max(len(y) // step, 1)
    frames = len(y) // hops
    table = np.empty((3, hops, y.shape[1]))
    for own, values in zip(table, (mask, y, y * y), strict=True):
        values.reshape(hops, frames, -1).sum(axis=1, out=own)
    return HopSums(table, np.full(hops, float(frames)))


def sliding_sums(parts: Iterable[HopSums], length: int) -> Iterator[HopSums]:
    """Sums of every `length` hops in a row, some at a time; of all hops if there are fewer.

    Nothing is ever subtracted: silence sums to exactly zero.
    """
    held: list[HopSums] = []
    count, fewer = 0, True
    for part in parts:
        held.append(part)
        count += len(part)
        if count >= max(2 * length, _HOPS_AT_ONCE):
            hops = HopSums.joined(held)
            yield _slid(hops, length)
            held = [hops[len(hops) - length + 1 :]] if length > 1 else []
            count, fewer = length - 1, False
    if count >= length:
        yield _slid(HopSums.joined(held), length)
    elif held and fewer:
        yield HopSums.joined(held).total()


def _slid(hops: HopSums, length: int) -> HopSums:
    """Sums of every `length` of the hops, put together from sums of 1, 2, 4, … of them."""
    windows = len(hops) - length + 1
    total = HopSums(np.zeros_like(hops.table[:, :windows]), np.zeros(windows))
    size, done = 1, 0
    while done < length:
        if length & size:
            total = total + hops[done : done + windows]
            done += size
        hops = hops[:-size] + hops[size:]
        size *= 2
    return total
