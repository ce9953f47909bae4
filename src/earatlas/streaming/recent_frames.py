"""Ring buffer of recent frames as second moments of the two channels.

Input: frames (2, F), one at a time. Output: `SecondMoments` of the last of them, normalized by
given ear levels. They are computed once per frame and stored by frequency in single precision, as
in `earatlas.separation.demixing.frames`.

    F, T  frequencies, frames
"""

from __future__ import annotations

import numpy as np

from earatlas.features.stft import squared_magnitude
from earatlas.separation.demixing.steering_vectors import SecondMoments
from earatlas.types import Array, Complex, Single, Spectra

__all__ = ["RecentFrames"]


class RecentFrames:
    """Up to `max_frames` frames of F frequencies, with spectra of the lowest `n_low` ones."""

    def __init__(self, F: int, max_frames: int, n_low: int) -> None:
        self.n_low, self._max_frames = n_low, max_frames
        # Twice the capacity: the kept frames stay contiguous and are moved rarely.
        self._moments: Single = np.zeros((F, 4, 2 * max_frames), dtype=np.float32)
        self._low_spectra: Spectra = np.zeros((2, n_low, 2 * max_frames), dtype=np.complex64)
        self._end = self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, x: Complex) -> None:
        """Append a frame (2, F)."""
        if self._end == 2 * self._max_frames:
            for kept in (self._moments, self._low_spectra):
                kept[..., : self._max_frames] = kept[..., self._max_frames :]
            self._end = self._max_frames
        left, right = x
        cross = left * right.conj()
        values = self._moments[:, :, self._end]
        values[:, 0], values[:, 1] = squared_magnitude(left), squared_magnitude(right)
        values[:, 2], values[:, 3] = cross.real, cross.imag
        self._low_spectra[..., self._end] = x[:, : self.n_low]
        self._end += 1
        self._count = min(self._count + 1, self._max_frames)

    def moments(self, T: int, ear_levels: Array) -> SecondMoments:
        """Return the moments of the last T frames, normalized by ear levels (2, F)."""
        left, right = 1 / ear_levels
        scale = np.stack([left**2, right**2, left * right, left * right], axis=1)[..., None]
        last = self._moments[:, :, self._end - T : self._end]
        values: Array = np.multiply(last, scale, dtype=np.float32, casting="same_kind")
        return SecondMoments(values)

    def low_spectra(self, T: int, ear_levels: Array) -> Spectra:
        """Return the spectra (2, n_low, T) of the last T frames, normalized in the same way."""
        scale = (1 / ear_levels[:, : self.n_low, None]).astype(np.float32)
        low_spectra: Spectra = self._low_spectra[..., self._end - T : self._end] * scale
        return low_spectra
