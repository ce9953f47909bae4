"""Overlapping blocks of a recording, in which it is separated.

Input: a recording. Output: blocks at the rate of the layout. Block boundaries are whole samples at
the output rate as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from earatlas.features.blocks import Block, overlapping_blocks
from earatlas.features.layout import CueLayout
from earatlas.features.recording import Recording

__all__ = ["overlap_samples", "recording_blocks"]

_BLOCK_SECONDS, _OVERLAP_SECONDS = 12.0, 2.0  # length and overlap of consecutive blocks, s


def recording_blocks(
    recording: Recording, layout: CueLayout, rate: int, *, second_pass: bool = False
) -> Iterator[Block]:
    """Yield all blocks of the recording; a second pass does not repeat warnings."""
    chunks = (block.samples for block in recording.blocks(layout, second_pass=second_pass))
    length = _whole_hops(_BLOCK_SECONDS, layout, rate)
    return overlapping_blocks(chunks, length, overlap_samples(layout, rate))


def overlap_samples(layout: CueLayout, rate: int) -> int:
    """Return the overlap of neighbouring blocks, in samples at the rate of the layout."""
    return _whole_hops(_OVERLAP_SECONDS, layout, rate)


def _whole_hops(seconds: float, layout: CueLayout, rate: int) -> int:
    """Return a length in samples that is a multiple of the hop and of whole samples at `rate`."""
    step = layout.hop * (layout.rate // gcd(layout.rate, layout.hop * rate))
    return max(round(seconds * layout.rate / step), 1) * step
