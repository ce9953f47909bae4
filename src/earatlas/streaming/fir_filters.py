"""FIR filters with limited look-ahead for a stream, applied hop by hop (overlap-save).

    y(n) = Σ_l h(l) x(n - l)        l from -n_future to n_past - 1

Input: hops (2, hop) of both channels. Output: as many samples of y, `n_future` samples late or
more. A change of h is crossfaded over a hop.

Filters H that are estimated at each frequency separately need more look-ahead than the latency
allows, and truncating them degrades the separation. Among all h with the allowed look-ahead, the
best is the one whose output is closest to that of H for signals with the observed covariances:

    J(h) = Σ_f tr (H_f - ĥ_f) Φ_f (H_f - ĥ_f)ᴴ

Samples beyond the look-ahead are thereby predicted from the others, which works since speech is far
from white. J is a least-squares problem whose products are FFTs, so that a few steps of conjugate
gradients are cheap.

    N     length of the FFT in which H was estimated
    h     (n_future + n_past, 2, 2) taps
    H, ĥ  (N / 2 + 1, 2, 2) filters, and the transform of h
    Φ     (N / 2 + 1, 2, 2) covariances of the two channels
"""

from __future__ import annotations

import numpy as np
import scipy.fft

from earatlas.types import Array, Complex

__all__ = ["FirFilterBank", "fit_taps", "truncated_taps"]

# Evidence: docs/figures/settings/streaming.md, "fir_filters".
_LOADING = 1e-4  # diagonal loading over the mean power: silent frequencies stay determined


def truncated_taps(spectrum: Complex, n_future: int, n_past: int, fade_fraction: float) -> Array:
    """Return h (n_future + n_past, 2, 2), truncated from filters (N / 2 + 1, 2, 2).

    The outer `fade_fraction` of either side is faded to avoid ringing.
    """
    h = scipy.fft.irfft(spectrum, axis=0)
    taps: Array = np.concatenate([h[len(h) - n_future :], h[:n_past]])
    for n_taps, edge in ((n_future, taps), (n_past, taps[::-1])):
        n_fade = int(fade_fraction * n_taps)
        fade = np.sin(0.5 * np.pi * (np.arange(n_fade) + 0.5) / max(n_fade, 1)) ** 2
        edge[:n_fade] *= fade[:, None, None]
    return taps


def fit_taps(spectrum: Complex, Phi: Complex, start: Array, n_future: int, n_steps: int) -> Array:
    """Minimize J by conjugate gradients from `start` (n_future + n_past, 2, 2).

    `spectrum` and the covariances Phi are (N / 2 + 1, 2, 2). Each step decreases J.
    """
    N = 2 * (len(spectrum) - 1)
    power = np.trace(Phi, axis1=1, axis2=2).real
    loaded_covariances = Phi / max(float(power.mean()), 1e-300) + _LOADING * np.eye(2)

    def restrict(values: Complex) -> Array:
        """Return the taps within the look-ahead of filters times Φ."""
        h = scipy.fft.irfft(values @ loaded_covariances, n=N, axis=0)
        return np.concatenate([h[N - n_future :], h[: len(start) - n_future]])

    def transform(h: Array) -> Complex:
        """Return the transform (N / 2 + 1, 2, 2) of taps."""
        padded = np.zeros((N, 2, 2))
        padded[N - n_future :], padded[: len(h) - n_future] = h[:n_future], h[n_future:]
        return np.asarray(scipy.fft.rfft(padded, axis=0))

    h = start
    residual = restrict(spectrum - transform(h))  # negative gradient, per output channel
    direction, size = residual, (residual**2).sum(axis=(0, 2))
    for _ in range(n_steps):
        image = restrict(transform(direction))
        step = size / ((direction * image).sum(axis=(0, 2)) + 1e-300)
        h = h + step[:, None] * direction
        residual = residual - step[:, None] * image
        previous_size, size = size, (residual**2).sum(axis=(0, 2))
        direction = residual + (size / (previous_size + 1e-300))[:, None] * direction
    return h


class FirFilterBank:
    """Applies 2 × 2 FIR filters to a stream."""

    def __init__(self, hop: int, n_taps: int, delay: int = 0) -> None:
        """Prepare for filters of `n_taps` samples, with `delay` samples of extra latency."""
        self._hop = hop
        self._size = scipy.fft.next_fast_len(n_taps + hop - 1, real=True)
        self._samples = np.zeros((2, self._size + delay))
        self._filter: Complex | None = None  # (F, 2, 2), current
        self._next: Complex | None = None  # (F, 2, 2), from the next hop on

    def append(self, x: Array) -> None:
        """Append a hop (2, hop)."""
        self._samples = np.concatenate([self._samples[:, self._hop :], x], axis=1)

    def set_taps(self, taps: Array) -> None:
        """Use other taps (n_taps, 2, 2) from the next output on."""
        self._next = scipy.fft.rfft(taps, n=self._size, axis=0)

    def output(self) -> Array:
        """Return the hop (2, hop) that the last input completes."""
        X = scipy.fft.rfft(self._samples[:, : self._size], axis=-1)
        old, self._filter = self._filter, self._filter if self._next is None else self._next
        self._next = None
        assert self._filter is not None, "set_taps must be called first"
        y = self._filtered(X, self._filter)
        if old is None or old is self._filter:
            return y
        fade_in = (np.arange(self._hop) + 0.5) / self._hop
        faded: Array = fade_in * y + (1 - fade_in) * self._filtered(X, old)
        return faded

    def _filtered(self, X: Complex, H: Complex) -> Array:
        """Return the last hop of the filtered samples, from spectra X (2, F)."""
        Y = np.einsum("fei,if->ef", H, X)
        y: Array = scipy.fft.irfft(Y, n=self._size, axis=-1)[:, -self._hop :]
        return y
