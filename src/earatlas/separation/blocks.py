"""A recording in overlapping blocks of whole hops.

In: a recording. Out: blocks at the rate of the layout; they begin and end with a sample at another
rate, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from earatlas.features.blocks import Block, overlapping
from earatlas.features.layout import CueLayout
from earatlas.features.recording import Recording

__all__ = ["blocks_of", "overlap_samples"]

_BLOCK_SECONDS, _OVERLAP_SECONDS = 12.0, 2.0


def blocks_of(
    recording: Recording, layout: CueLayout, rate: int, *, again: bool = False
) -> Iterator[Block]:
    """All of the recording; `again`: what is to be warned of was said the first time."""
    chunks = (block.samples for block in recording.blocks(layout, again=again))
    length = _whole_hops(_BLOCK_SECONDS, layout, rate)
    return overlapping(chunks, length, overlap_samples(layout, rate))


def overlap_samples(layout: CueLayout, rate: int) -> int:
    """Of two neighbouring blocks, at the rate of the layout."""
    return _whole_hops(_OVERLAP_SECONDS, layout, rate)


def _whole_hops(seconds: float, layout: CueLayout, rate: int) -> int:
    """A length in samples, rounded to so many hops that it is whole samples at `rate`, too."""
    step = layout.hop * (layout.rate // gcd(layout.rate, layout.hop * rate))
    return max(round(seconds * layout.rate / step), 1) * step
