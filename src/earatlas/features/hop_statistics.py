"""Cue statistics of a long recording per hop, and per sliding window of several hops.

The inputs are spectra in blocks and the floors that bins must reach. The outputs are Q, R and E of
each `step` frames (`hop_statistics`) and of each run of `length` hops (`sliding_statistics`).
`whole_statistics` are those of a sound in memory, of which the floors are determined first.

    H   hops per part      D   cues        W   windows
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.features.statistics import CueStatistics, LevelHistogram
from earatlas.features.stft import FRAMES_AT_ONCE, bin_power, stft
from earatlas.types import Array, Indices, Spectra

__all__ = ["HopStatistics", "hop_statistics", "sliding_statistics", "whole_statistics"]


@dataclass(frozen=True, eq=False)
class HopStatistics:
    """Statistics Q, R and E of successive hops or windows, and their numbers of frames."""

    table: Array  # (3, H, D): Q, R, E
    frames: Array  # (H,)

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, rows: slice) -> HopStatistics:
        return HopStatistics(self.table[:, rows], self.frames[rows])

    def __add__(self, other: HopStatistics) -> HopStatistics:
        return HopStatistics(self.table + other.table, self.frames + other.frames)

    def __iter__(self) -> Iterator[CueStatistics]:
        """Iterate over the statistics of the hops."""
        for n, frames in enumerate(self.frames):
            counts, sums, squares = self.table[:, n]
            yield CueStatistics(counts, sums, squares, float(frames))

    @classmethod
    def concatenate(cls, parts: Iterable[HopStatistics]) -> HopStatistics:
        """Concatenate parts along the hops."""
        parts = list(parts)
        return cls(
            np.concatenate([part.table for part in parts], axis=1),
            np.concatenate([part.frames for part in parts]),
        )

    def total(self) -> HopStatistics:
        """Return the sum over all hops as one hop."""
        return HopStatistics(self.table.sum(axis=1, keepdims=True), self.frames.sum(keepdims=True))


def hop_statistics(
    parts: Iterable[Spectra], layout: CueLayout, floors: Indices, step: int
) -> Iterator[HopStatistics]:
    """Yield the statistics of each `step` frames of spectra (2, B, t) that arrive in parts.

    `floors` (D,) are in dB. The last hop may have fewer frames.
    """
    incomplete: HopStatistics | None = None  # hop that continues in the next part
    for spectra in parts:
        for segment in _split(
            spectra, step, 0 if incomplete is None else int(incomplete.frames[0])
        ):
            hops = _sum_segment(segment, layout, floors, step)
            if incomplete is not None:
                hops, incomplete = (incomplete + hops[:1]), None
            if hops.frames[-1] < step:
                incomplete, hops = hops[-1:], hops[:-1]
            if len(hops):
                yield hops
    if incomplete is not None:
        yield incomplete


def _split(spectra: Spectra, step: int, begun: int) -> Iterator[Spectra]:
    """Yield segments: the end of a hop with `begun` frames, groups of hops, and the remainder."""
    T = spectra.shape[-1]
    start = min(step - begun, T) if begun else 0
    group = max(FRAMES_AT_ONCE // step, 1) * step
    end = T - (T - start) % step
    for first, last in pairwise([0, *range(start, end, group), end, T]):
        if last > first:
            yield spectra[..., first:last]


def _sum_segment(spectra: Spectra, layout: CueLayout, floors: Indices, step: int) -> HopStatistics:
    """Return the statistics of a segment of whole hops, or of less than one hop."""
    power = bin_power(spectra, layout.window).min(axis=0).T  # (t, F)
    min_power = (10.0 ** (floors / 10)).astype(power.dtype)
    mask = power.take(layout.cue_frequencies, axis=1) >= min_power
    left, right = spectra[:, 1:].swapaxes(-1, -2)
    y = layout.stack(left, right)
    y *= mask
    hops = max(len(y) // step, 1)
    frames = len(y) // hops
    table = np.empty((3, hops, y.shape[1]))
    for sums, values in zip(table, (mask, y, y * y), strict=True):
        values.reshape(hops, frames, -1).sum(axis=1, out=sums)
    return HopStatistics(table, np.full(hops, float(frames)))


def whole_statistics(samples: Array, layout: CueLayout) -> CueStatistics:
    """Return the statistics of all frames of a sound (2, n), in single precision.

    They are those of `LevelStatistics` up to single precision, in a third of the time.
    """
    spectra = stft(samples.astype(np.float32), layout.window, layout.hop)
    levels = LevelHistogram(layout)
    levels.push(spectra)
    hops = hop_statistics([spectra], layout, levels.floors_db(), FRAMES_AT_ONCE)
    (statistics,) = HopStatistics.concatenate(hops).total()
    return statistics


# Evidence: docs/figures/settings/features.md, "hop_statistics".
def sliding_statistics(
    parts: Iterable[HopStatistics], length: int, *, hops_at_once: int = 160
) -> Iterator[HopStatistics]:
    """Yield the statistics of every window of `length` successive hops.

    If there are fewer hops, the only window contains all of them. No sums are subtracted, so that
    silence gives exactly zero. `hops_at_once` are summed together, in a few megabytes.
    """
    buffer: list[HopStatistics] = []
    count, too_few = 0, True
    for part in parts:
        buffer.append(part)
        count += len(part)
        if count >= max(2 * length, hops_at_once):
            hops = HopStatistics.concatenate(buffer)
            yield _sliding_sums(hops, length)
            buffer = [hops[len(hops) - length + 1 :]] if length > 1 else []
            count, too_few = length - 1, False
    if count >= length:
        yield _sliding_sums(HopStatistics.concatenate(buffer), length)
    elif buffer and too_few:
        yield HopStatistics.concatenate(buffer).total()


def _sliding_sums(hops: HopStatistics, length: int) -> HopStatistics:
    """Return the sums of every `length` hops, composed of sums of 1, 2, 4, ... hops."""
    windows = len(hops) - length + 1
    total = HopStatistics(np.zeros_like(hops.table[:, :windows]), np.zeros(windows))
    size, done = 1, 0
    while done < length:
        if length & size:
            total = total + hops[done : done + windows]
            done += size
        hops = hops[:-size] + hops[size:]
        size *= 2
    return total
