"""Filters of many samples, applied to a stream hop by hop, that hear only a little of the future.

    y(n) = Σ_l h(l) x(n - l)        l from -before to after; h (before + after, 2, 2)

In: hops (2, hop) of both ears. Out: as many samples of y, those of `before` samples ago, or of more
where they are to wait. Spectra of as many samples as it takes give each hop exactly (overlap-save).
A change of h is faded over a hop.
"""

from __future__ import annotations

import numpy as np
import scipy.fft

from earatlas.types import Array, Complex

__all__ = ["Firs", "taps_of"]


def taps_of(spectrum: Complex, before: int, after: int, faded: float) -> Array:
    """h (before + after, 2, 2) of filters (N / 2 + 1, 2, 2), as many in the future as are heard.

    The ends are faded, from so great a part of either side on: where h is cut off, it rings.
    """
    h = scipy.fft.irfft(spectrum, axis=0)
    taps: Array = np.concatenate([h[len(h) - before :], h[:after]])
    for side, edge in ((before, taps), (after, taps[::-1])):
        length = int(faded * side)
        fade = np.sin(0.5 * np.pi * (np.arange(length) + 0.5) / max(length, 1)) ** 2
        edge[:length] *= fade[:, None, None]
    return taps


class Firs:
    """Two ears to two ears."""

    def __init__(self, hop: int, length: int, waits: int = 0) -> None:
        """For filters of so many samples, heard so many later than they could be."""
        self._hop = hop
        self._size = scipy.fft.next_fast_len(length + hop - 1, real=True)
        self._samples = np.zeros((2, self._size + waits))
        self._filter: Complex | None = None  # (F, 2, 2)
        self._next: Complex | None = None

    def hear(self, x: Array) -> None:
        """Take in a hop (2, hop)."""
        self._samples = np.concatenate([self._samples[:, self._hop :], x], axis=1)

    def change(self, taps: Array) -> None:
        """Go on with other filters (length, 2, 2)."""
        self._next = scipy.fft.rfft(taps, n=self._size, axis=0)

    def sound(self) -> Array:
        """(2, hop) that the last hop completes."""
        X = scipy.fft.rfft(self._samples[:, : self._size], axis=-1)
        old, self._filter = self._filter, self._filter if self._next is None else self._next
        self._next = None
        assert self._filter is not None, "change comes first"
        y = self._filtered(X, self._filter)
        if old is None or old is self._filter:
            return y
        rise = (np.arange(self._hop) + 0.5) / self._hop
        faded: Array = rise * y + (1 - rise) * self._filtered(X, old)
        return faded

    def _filtered(self, X: Complex, H: Complex) -> Array:
        Y = np.einsum("fei,if->ef", H, X)
        y: Array = scipy.fft.irfft(Y, n=self._size, axis=-1)[:, -self._hop :]
        return y
