"""Sums of a long sound, hop by hop, and of every window of several hops.

In: bins in blocks, and the floors that they must pass. Out: Q, R, E of each `step` frames
(`hop_sums`), many in a piece, and of every run of `length` hops (`sliding_sums`).

    H   hops of a piece      D   cues        W   windows
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from earatlas.hearing.layout import CueLayout
from earatlas.hearing.loud_bins import LoudBins
from earatlas.hearing.statistics import CueStatistics
from earatlas.types import Array, Indices

__all__ = ["HopSums", "hop_sums", "sliding_sums"]

_HOPS_AT_ONCE = (
    160  # that are summed up together: some megabytes; of 64, answers took a tenth longer
)


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
    parts: Iterable[LoudBins], layout: CueLayout, floors: Indices, step: int
) -> Iterator[HopSums]:
    """Sums of each `step` frames of bins that come in parts; the last may have fewer."""
    sieve = _Sieve.of(layout, floors)
    nothing = HopSums(np.zeros((3, 1, layout.n_cues)), np.zeros(1))
    rest = nothing  # of a hop that goes on
    for bins in parts:
        if not bins.frames:
            continue
        sums = sieve.sums(bins, step, begun=int(rest.frames[0]))
        sums = HopSums.joined([rest + sums[:1], sums[1:]])
        whole = len(sums) - int(sums.frames[-1] < step)
        rest = sums[whole:] if whole < len(sums) else nothing
        if whole:
            yield sums[:whole]
    if rest.frames[0]:
        yield rest


@dataclass(frozen=True, eq=False)
class _Sieve:
    """The cues of bins that pass their floors."""

    n_cues: int
    cues: Indices  # (3, F) ILD, cos and sin of IPD of each frequency; -1: it has none
    least: Array  # (D,) power of the weaker ear, as spectra have it

    @classmethod
    def of(cls, layout: CueLayout, floors: Indices) -> _Sieve:
        """That of floors (D,) in dB re a full-scale sine."""
        cues = np.full((3, layout.n_frequencies), -1)
        for own, kind in zip(cues, ("ild", "ipd_cos", "ipd_sin"), strict=True):
            (d,) = np.nonzero(layout.cue_kinds == kind)
            own[layout.cue_frequencies[d]] = d
        return cls(layout.n_cues, cues, 10.0 ** (floors / 10) * (layout.window / 4) ** 2)

    def sums(self, bins: LoudBins, step: int, *, begun: int) -> HopSums:
        """Of hops, the first of which had so many frames before."""
        D, edges = self.n_cues, np.arange(0, begun + bins.frames + step, step)
        frames = np.diff(np.clip(edges - begun, 0, bins.frames)).astype(np.float64)
        d, power = self.cues.take(bins.f, axis=1), bins.power
        heard = (d >= 0) & (power >= self.least.astype(power.dtype).take(d, mode="wrap"))
        place = ((begun + bins.t) // step * D + d)[heard]
        y = bins.cues()[heard].astype(np.float64)
        table = np.empty((3, len(frames) * D))
        for own, values in zip(table, (None, y, y * y), strict=True):
            own[:] = np.bincount(place, values, minlength=len(own))
        return HopSums(table.reshape(3, -1, D), frames)


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
