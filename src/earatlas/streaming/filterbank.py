"""Frames of a stream, and sound from frames, with a short way from in to out.

Each hop a window of the last N samples is transformed; what is made of it is heard only in the last
S of them, so that a sample waits for S samples and not for N:

    Σ_k wa(n - k hop) ws(n - k hop) = 1          wa (N,) analysis, ws (S,) synthesis
    wa ws = the square of a Hann window of the last S samples

Long windows resolve harmonics and the responses of rooms; the delay is that of the short one
(Mauler and Martin, A low delay, variable resolution, perfect reconstruction spectral
analysis-synthesis system, 2007).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.fft

from earatlas.types import Array, Complex

__all__ = ["Bank", "OverlapAdd", "WindowStream"]


@dataclass(frozen=True)
class Bank:
    """The windows of a stream at one rate."""

    rate: int  # Hz
    hop: int  # samples
    window_hops: int  # N
    heard_hops: int  # S

    @classmethod
    def of(cls, rate: int, *, hop_seconds: float, window_hops: int, heard_hops: int) -> Bank:
        """With the largest hop that is no longer, and fast to transform."""
        hop = max(int(hop_seconds * rate), 2)
        while scipy.fft.next_fast_len(hop, True) != hop:
            hop -= 1
        return cls(rate, hop, window_hops, heard_hops)

    @property
    def window(self) -> int:
        """N, in samples."""
        return self.window_hops * self.hop

    @property
    def heard(self) -> int:
        """S, in samples: the delay from in to out."""
        return self.heard_hops * self.hop

    @property
    def hop_seconds(self) -> float:
        """From frame to frame."""
        return self.hop / self.rate

    @property
    def hertz(self) -> Array:
        """(F,) of the transform, from 0 on."""
        hertz: Array = np.arange(self.window // 2 + 1.0) * (self.rate / self.window)
        return hertz

    def windows(self) -> tuple[Array, Array]:
        """wa (N,) and ws (S,)."""
        S = self.heard
        product = _hann(S) ** 2 / (0.375 * self.heard_hops)
        fall = _hann(S)[S // 2 :]
        rise = self.window - len(fall)
        analysis = np.concatenate([_hann(2 * rise)[:rise], fall])
        return analysis, product / analysis[-S:]


def _hann(n: int) -> Array:
    window: Array = 0.5 - 0.5 * np.cos(2 * np.pi * (np.arange(n) + 0.5) / n)
    return window


class WindowStream:
    """The last N samples of a stream, and their spectra."""

    def __init__(self, bank: Bank) -> None:
        self._samples = np.zeros((2, bank.window))
        self._window = bank.windows()[0]

    def hear(self, samples: Array) -> None:
        """Take in one more hop (2, hop)."""
        n = samples.shape[1]
        self._samples = np.concatenate([self._samples[:, n:], samples], axis=1)

    def spectra(self) -> Complex:
        """(2, F) of the last N samples."""
        spectra: Complex = scipy.fft.rfft(self._samples * self._window, axis=-1)
        return spectra

    def push(self, samples: Array) -> Complex:
        """Spectra (2, F) after one more hop (2, hop)."""
        self.hear(samples)
        return self.spectra()


class OverlapAdd:
    """Sounds (M, 2, hop) from spectra (M, 2, F), hop by hop; each `heard` samples late."""

    def __init__(self, bank: Bank, sources: int) -> None:
        self._bank = bank
        self._window = bank.windows()[1]
        self._sum = np.zeros((sources, 2, bank.heard))

    def push(self, spectra: Complex) -> Array:
        """The oldest hop, to which no later frame adds."""
        bank = self._bank
        frames = scipy.fft.irfft(spectra, n=bank.window, axis=-1)[..., -bank.heard :]
        self._sum += frames * self._window
        done = self._sum[..., : bank.hop].copy()
        self._sum[..., : -bank.hop] = self._sum[..., bank.hop :]
        self._sum[..., -bank.hop :] = 0.0
        return done

    def with_bank(self, bank: Bank) -> OverlapAdd:
        """The same going on with other windows that are heard in as many samples."""
        other = OverlapAdd(bank, len(self._sum))
        other._sum = self._sum.copy()
        return other

    def clear(self, row: int) -> None:
        """Forget what waits of one sound: its place is another's."""
        self._sum[row] = 0.0
