"""The recent frames of a stream, as second moments, and their normalization.

F, T          frequencies without 0 Hz, recent frames
values (F, 4, T)  |l|², |r|², and the real and imaginary part of l r* of each bin
"""

from __future__ import annotations

import numpy as np

from earatlas.separation.demixing.determined import SecondMoments
from earatlas.types import Array, Complex, Single

__all__ = ["RecentFrames", "normalized_moments"]


class RecentFrames:
    """Ring buffer of up to `max_frames` frames of F frequencies, as second moments.

    The moments are computed once per frame and stored by frequency in single precision. Stored
    values never change, so that a view of them stays valid while further frames are appended.
    """

    def __init__(self, F: int, max_frames: int) -> None:
        self._max_frames = max_frames
        # Twice the capacity: the kept frames stay contiguous and are moved rarely.
        self._moments: Single = np.zeros((F, 4, 2 * max_frames), dtype=np.float32)
        self._end = self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, x: Complex) -> None:
        """Append a frame (2, F)."""
        if self._end == 2 * self._max_frames:
            moments = np.empty_like(self._moments)
            moments[..., : self._max_frames] = self._moments[..., self._max_frames :]
            self._moments, self._end = moments, self._max_frames
        self._moments[..., self._end] = SecondMoments.from_spectra(x[..., None]).values[..., 0]
        self._end += 1
        self._count = min(self._count + 1, self._max_frames)

    @property
    def values(self) -> Single:
        """Moments (F, 4, T) of the recent frames, a view."""
        return self._moments[..., self._end - self._count : self._end]


def normalized_moments(values: Single, ear_levels: Array) -> SecondMoments:
    """Return moments (F, 4, T) of spectra divided by the ear levels (2, F)."""
    left, right = 1 / ear_levels
    scale = np.stack([left**2, right**2, left * right, left * right], axis=1)[..., None]
    return SecondMoments(np.multiply(values, scale, dtype=np.float32, casting="same_kind"))
