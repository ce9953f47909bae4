"""The short-time Fourier transform, whole or streamed, and its exact inverse.

`stft` turns samples into spectra (channels, bins, frames) and `istft` gives the samples back to
rounding error; `FrameStream` does the same piece by piece, with the same numbers.

    x     (C, n)        samples
    w     (window,)     periodic Hann window
    S     (C, B, T)     spectra, B = window // 2 + 1 frequencies from 0 Hz, T = 1 + n // hop frames
    t     frame t is centred on sample t * hop; beyond the ends the sound is silent

It is written here, on scipy.fft: `scipy.signal.ShortTimeFFT` inverts only with frames that reach
over both ends of the sound, which the paper's T = 126 frames a second do not, and is slower.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import scipy.fft
from numpy.typing import ArrayLike

from earatlas.types import Array, Spectra

__all__ = ["FrameStream", "istft", "stft"]


@lru_cache(maxsize=8)
def _hann(window: int) -> Array:
    w = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    w.flags.writeable = False  # everyone has the same one
    return w


def _transform(padded: Array, window: int, hop: int, frames: int) -> Spectra:
    """Spectra (C, B, frames) of windows that start at 0, hop, 2 hop, … of padded (C, n)."""
    views = _strided(padded, frames, hop, window)
    kind = np.complex64 if padded.dtype == np.float32 else np.complex128
    spectra = np.empty((len(padded), frames, window // 2 + 1), dtype=kind)
    w = _hann(window).astype(padded.dtype)
    for start in range(0, frames, 256):  # as many windows as stay in the cache: twice as fast
        part = slice(start, min(start + 256, frames))
        spectra[:, part] = scipy.fft.rfft(views[:, part] * w, axis=-1)
    return spectra.swapaxes(-1, -2)


def stft(samples: ArrayLike, window: int, hop: int) -> Spectra:
    """Spectra (C, B, T) of samples (C, n), with istft(stft(x)) = x and T = 1 + n // hop.

    Samples in single precision have spectra in single precision: half the time and memory.
    """
    x = np.asarray(samples)
    x = x if x.dtype == np.float32 else x.astype(np.float64)
    half = window // 2
    padded = np.pad(x, ((0, 0), (half, half + hop)))
    return _transform(padded, window, hop, 1 + x.shape[-1] // hop)


def istft(spectra: ArrayLike, window: int, hop: int, n: int) -> Array:
    """Samples (..., n) from spectra (..., B, T): windowed overlap-add over the sum of w^2.

    The least-squares inverse (Griffin and Lim 1984): exact for spectra that stft made, and the
    nearest sound for others, such as masked ones. It is linear, so parts add up to the whole.
    """
    s = np.asarray(spectra)
    w = _hann(window)
    half, frames = window // 2, s.shape[-1]
    pieces = scipy.fft.irfft(s.swapaxes(-1, -2), n=window, axis=-1)
    pieces *= w.astype(pieces.dtype)
    length = max((frames - 1) * hop + window, half + n)
    out = np.zeros((*s.shape[:-2], length))
    norm = np.zeros(length)
    # Frames that are window/hop apart do not overlap: one strided addition places them all.
    step = -(-window // hop)
    for first in range(min(step, frames)):
        block = pieces[..., first::step, :]
        count = block.shape[-2]
        span = slice(first * hop, first * hop + (count - 1) * step * hop + window)
        _strided(out[..., span], count, step * hop, window)[...] += block
        _strided(norm[span], count, step * hop, window)[...] += w**2
    return out[..., half : half + n] / norm[half : half + n]


def _strided(x: Array, count: int, step: int, window: int) -> Array:
    """A view (..., count, window) of windows that start `step` apart in x (..., m).

    It can be written to where they do not overlap. (sliding_window_view checks what is known here,
    and takes a tenth of a hop of a stream.)
    """
    shape = (*x.shape[:-1], count, window)
    strides = (*x.strides[:-1], step * x.strides[-1], x.strides[-1])
    return np.lib.stride_tricks.as_strided(x, shape, strides)


class FrameStream:
    """`stft` for a sound that arrives in pieces: the pieces' frames, put together, are the same.

    `push` returns the frames that are complete, `finish` the rest, which wait for the end. In
    `single` precision they take half the time and memory.
    """

    def __init__(self, window: int, hop: int, channels: int = 2, *, single: bool = False) -> None:
        self._window, self._hop = window, hop
        self._kind = np.float32 if single else np.float64
        self._rest = np.zeros((channels, window // 2), dtype=self._kind)
        self._pushed = self._frames = 0

    def push(self, samples: ArrayLike) -> Spectra:
        """Spectra (C, B, t) of the frames that these samples (C, n) complete; t may be 0."""
        x = np.asarray(samples, dtype=self._kind)
        self._pushed += x.shape[-1]
        return self._take(np.concatenate([self._rest, x], axis=-1))

    def finish(self) -> Spectra:
        """Spectra of the last frames, which reach beyond the end of the sound."""
        missing = 1 + self._pushed // self._hop - self._frames
        need = (missing - 1) * self._hop + self._window - self._rest.shape[-1]
        return self._take(np.pad(self._rest, ((0, 0), (0, max(need, 0)))))

    def _take(self, x: Array) -> Spectra:
        count = max((x.shape[-1] - self._window) // self._hop + 1, 0)
        self._frames += count
        self._rest = x[:, count * self._hop :].copy()
        if count == 0:
            return _transform(np.zeros_like(x), self._window, self._hop, 0)
        return _transform(x, self._window, self._hop, count)


def squared_size(spectra: Spectra) -> Array:
    """|s|^2 without the square root that abs() takes: three times as fast."""
    power: Array = spectra.real**2 + spectra.imag**2
    return power
