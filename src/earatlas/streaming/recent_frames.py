"""The last frames of a stream, as what columns are found from: the second moments of both ears.

In: frames (2, F), one at a time. Out: `Moments` of the last of them, each ear at a level that is
told. They are found once, when a frame comes, and stand in rows of a frequency, in single
precision, as in a recording (`earatlas.separation.demixing.frames`).
"""

from __future__ import annotations

import numpy as np

from earatlas.features.stft import squared_size
from earatlas.separation.demixing.steering_vectors import Moments
from earatlas.types import Array, Complex, Single, Spectra

__all__ = ["Recent"]


class Recent:
    """Up to `length` frames of F frequencies; of the lowest `low` the spectra themselves too."""

    def __init__(self, F: int, length: int, low: int) -> None:
        self.low, self._length = low, length
        # Twice as many columns as frames: what is kept stays in one piece, and moves seldom.
        self._values: Single = np.zeros((F, 4, 2 * length), dtype=np.float32)
        self._lower: Spectra = np.zeros((2, low, 2 * length), dtype=np.complex64)
        self._end = self._count = 0

    def __len__(self) -> int:
        return self._count

    def keep(self, x: Complex) -> None:
        """Take in a frame (2, F)."""
        if self._end == 2 * self._length:
            for kept in (self._values, self._lower):
                kept[..., : self._length] = kept[..., self._length :]
            self._end = self._length
        left, right = x
        cross = left * right.conj()
        values = self._values[:, :, self._end]
        values[:, 0], values[:, 1] = squared_size(left), squared_size(right)
        values[:, 2], values[:, 3] = cross.real, cross.imag
        self._lower[..., self._end] = x[:, : self.low]
        self._end += 1
        self._count = min(self._count + 1, self._length)

    def moments(self, T: int, ears: Array) -> Moments:
        """Of the last T frames, in units of the levels (2, F) of the ears."""
        left, right = 1 / ears
        units = np.stack([left**2, right**2, left * right, left * right], axis=1)[..., None]
        last = self._values[:, :, self._end - T : self._end]
        values: Array = np.multiply(last, units, dtype=np.float32, casting="same_kind")
        return Moments(values)

    def lower(self, T: int, ears: Array) -> Spectra:
        """Spectra (2, low, T) of the last T frames, in the same units."""
        units = (1 / ears[:, : self.low, None]).astype(np.float32)
        lower: Spectra = self._lower[..., self._end - T : self._end] * units
        return lower
