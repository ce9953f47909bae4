"""Filters of many samples, applied to a stream hop by hop, that hear only a little of the future.

    y(n) = Σ_l h(l) x(n - l)        l from -before to after; h (before + after, 2, 2)

In: hops (2, hop) of both ears. Out: as many samples of y, those of `before` samples ago, or of more
where they are to wait. Spectra of as many samples as it takes give each hop exactly (overlap-save).
A change of h is faded over a hop.

Filters H that were found at each frequency alone reach further into the future than is heard.
Cutting them off there loses much. Of all h that hear no more than they may, those are best that
come out most alike on sound such as this:

    J(h) = Σ_f tr (H_f - ĥ_f) Φ_f (H_f - ĥ_f)ᴴ        Φ_f covariances of both ears

What h may not hear of the future it guesses from what it does: speech is far from white. J is a
least-squares problem whose products are transforms, so a few steps of conjugate gradients are
cheap.
"""

from __future__ import annotations

import numpy as np
import scipy.fft

from earatlas.types import Array, Complex

__all__ = ["Firs", "fitted", "taps_of"]

# Of the mean power of both ears, that each frequency has at least: else silent ones tell nothing.
# With 1e-5 and 1e-3 twelve pairs in rooms were the same to 0.01 dB.
_LOADING = 1e-4


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


def fitted(spectrum: Complex, Phi: Complex, start: Array, before: int, steps: int) -> Array:
    """h for which J is least, from a start (before + after, 2, 2), after so many steps.

    Filters `spectrum` and covariances Phi are (N / 2 + 1, 2, 2). Each step makes J smaller.
    """
    N = 2 * (len(spectrum) - 1)
    power = np.trace(Phi, axis1=1, axis2=2).real
    loaded = Phi / max(float(power.mean()), 1e-300) + _LOADING * np.eye(2)

    def within(values: Complex) -> Array:
        """The taps of filters times Φ that are there."""
        h = scipy.fft.irfft(values @ loaded, n=N, axis=0)
        return np.concatenate([h[N - before :], h[: len(start) - before]])

    def spectra(h: Array) -> Complex:
        padded = np.zeros((N, 2, 2))
        padded[N - before :], padded[: len(h) - before] = h[:before], h[before:]
        return np.asarray(scipy.fft.rfft(padded, axis=0))

    h = start
    left = within(spectrum - spectra(h))  # minus the gradient, each ear that comes out by itself
    along, size = left, (left**2).sum(axis=(0, 2))
    for _ in range(steps):
        changed = within(spectra(along))
        length = size / ((along * changed).sum(axis=(0, 2)) + 1e-300)
        h = h + length[:, None] * along
        left = left - length[:, None] * changed
        before_that, size = size, (left**2).sum(axis=(0, 2))
        along = left + (size / (before_that + 1e-300))[:, None] * along
    return h


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
