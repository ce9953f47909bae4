"""The recent frames of a stream, as second moments, from which its filters are estimated.

F, T               frequencies without 0 Hz, recent frames
moments (F, 4, T)  |l|², |r|², and the real and imaginary part of l r* of each bin
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from earatlas.separation.demixing.determined import SecondMoments
from earatlas.types import Array, Complex, Single

__all__ = ["FrameMoments", "RecentFrames"]

# Frames of one allocation, which one hop uses for the first time: 3 MB with windows of 24,576
# samples. Evidence: docs/figures/streaming.md, "hops".
_FRAMES_PER_BLOCK = 16


@dataclass(frozen=True, eq=False, slots=True)
class FrameMoments:
    """Second moments of successive frames: views of the parts in which they are stored."""

    parts: tuple[Single, ...]  # (F, 4, t) each, in single precision

    def __len__(self) -> int:
        return sum(part.shape[-1] for part in self.parts)

    def last(self, T: int, n_low: int | None = None) -> FrameMoments:
        """Return the moments of the last T frames, at the lowest `n_low` frequencies."""
        kept, missing = [], T
        for part in reversed(self.parts):
            n = min(part.shape[-1], missing)
            if n:
                kept.append(part[:n_low, :, part.shape[-1] - n :])
            missing -= n
        return FrameMoments(tuple(kept[::-1]))

    def normalized(self, ear_levels: Array) -> SecondMoments:
        """Return the moments (F, 4, T) of spectra divided by the ear levels (2, F)."""
        left, right = 1 / ear_levels
        scale = np.stack([left**2, right**2, left * right, left * right], axis=1)[..., None]
        values: Array = np.empty((len(scale), 4, len(self)), dtype=np.float32)
        end = 0
        for part in self.parts:
            begin, end = end, end + part.shape[-1]
            np.multiply(
                part, scale, out=values[..., begin:end], dtype=np.float32, casting="same_kind"
            )
        return SecondMoments(values)


class RecentFrames:
    """Up to `max_frames` recent frames of F frequencies, as second moments.

    The moments are computed once per frame and stored by frequency in single precision, in blocks
    that are allocated one at a time: the memory of all would be first used in one hop, which would
    take long. Stored values never change, so that views of them stay valid while further frames
    are appended.
    """

    def __init__(self, F: int, max_frames: int) -> None:
        self._shape, self._max_frames = (F, 4, _FRAMES_PER_BLOCK), max_frames
        self._blocks: deque[Single] = deque()
        self._count = self._end = 0  # frames that are kept; frames in all blocks

    def __len__(self) -> int:
        return self._count

    def append(self, x: Complex) -> None:
        """Append a frame (2, F)."""
        size = _FRAMES_PER_BLOCK
        if self._end == size * len(self._blocks):
            self._blocks.append(np.empty(self._shape, dtype=np.float32))
        moments = SecondMoments.from_spectra(x[..., None]).values[..., 0]
        self._blocks[-1][..., self._end % size] = moments
        self._end += 1
        self._count = min(self._count + 1, self._max_frames)
        if self._end - self._count >= size:
            self._blocks.popleft()
            self._end -= size

    @property
    def moments(self) -> FrameMoments:
        """Moments of the recent frames, views."""
        size = _FRAMES_PER_BLOCK
        parts = [block[..., : self._end - n * size] for n, block in enumerate(self._blocks)]
        return FrameMoments(tuple(parts)).last(self._count)
