"""Short-time Fourier transform (STFT), at once or streamed, and its exact inverse.

`stft` turns samples into spectra (channels, bins, frames), and `istft` recovers the samples to
rounding error. `FrameStream` computes the same frames from samples that arrive in pieces.

    x     (C, n)        samples
    w     (window,)     periodic Hann window
    S     (C, B, T)     spectra, B = window // 2 + 1 bins from 0 Hz, T = 1 + n // hop frames
    t                   frame t is centred on sample t * hop; the sound is padded with zeros

Why it does not use `scipy.signal.ShortTimeFFT`: docs/figures/settings/features.md, "stft".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from earatlas.types import Array, Spectra

__all__ = [
    "FRAMES_AT_ONCE",
    "FrameStream",
    "bin_power",
    "frame_groups",
    "hann_window",
    "istft",
    "squared_magnitude",
    "stft",
]

FRAMES_AT_ONCE = 256  # frames processed together, as many as fit into the cache


def frame_groups(spectra: Spectra, axis: int = -1) -> Iterator[Spectra]:
    """Yield consecutive parts of spectra along the axis of the frames, small enough for the cache.

    >>> [part.shape for part in frame_groups(np.zeros((2, 5, 300), dtype=complex))]
    [(2, 5, 256), (2, 5, 44)]
    """
    for start in range(0, spectra.shape[axis], FRAMES_AT_ONCE):
        part = [slice(None)] * spectra.ndim
        part[axis] = slice(start, start + FRAMES_AT_ONCE)
        yield spectra[tuple(part)]


@lru_cache(maxsize=8)
def hann_window(window: int) -> Array:
    """Return the periodic Hann window (window,)."""
    w = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    w.flags.writeable = False  # cached and shared
    return w


def _transform(padded: Array, window: int, hop: int, frames: int) -> Spectra:
    """Return spectra (C, B, frames) of windows that start at 0, hop, 2 hop, ... in (C, n)."""
    views = _strided(padded, frames, hop, window)
    dtype = np.complex64 if padded.dtype == np.float32 else np.complex128
    spectra = np.empty((len(padded), frames, window // 2 + 1), dtype=dtype)
    w = hann_window(window).astype(padded.dtype)
    for start in range(0, frames, FRAMES_AT_ONCE):
        part = slice(start, min(start + FRAMES_AT_ONCE, frames))
        spectra[:, part] = np.fft.rfft(views[:, part] * w, axis=-1)
    return spectra.swapaxes(-1, -2)


def stft(samples: ArrayLike, window: int, hop: int) -> Spectra:
    """Compute the short-time Fourier transform, with istft(stft(x)) = x.

    Parameters
    ----------
    samples : array_like of shape (C, n)
        One channel per row. Single precision gives spectra in single precision, which take half
        the time and memory; any other type is converted to double precision.
    window : int
        Length of the periodic Hann window in samples, an even number.
    hop : int
        Samples between the centres of successive frames.

    Returns
    -------
    ndarray of shape (C, B, T)
        Complex spectra with B = window // 2 + 1 bins from 0 Hz to half the sampling rate and
        T = 1 + n // hop frames. Frame t is centred on sample t * hop; the sound is padded with
        zeros at both ends.

    See Also
    --------
    istft : The inverse.

    Examples
    --------
    >>> import numpy as np
    >>> import earatlas as ea
    >>> x = np.random.default_rng(0).normal(size=(2, 16000))
    >>> spectra = ea.stft(x, 1024, 128)
    >>> spectra.shape
    (2, 513, 126)
    >>> bool(np.allclose(ea.istft(spectra, 1024, 128, 16000), x))
    True
    """
    x = np.asarray(samples)
    x = x if x.dtype == np.float32 else x.astype(np.float64)
    half = window // 2
    padded = np.pad(x, ((0, 0), (half, half + hop)))
    return _transform(padded, window, hop, 1 + x.shape[-1] // hop)


def istft(spectra: ArrayLike, window: int, hop: int, n: int) -> Array:
    """Invert `stft` by weighted overlap-add: the least-squares inverse of Griffin and Lim.

    The inverse is exact for spectra computed by `stft`. For other spectra, such as masked ones, it
    returns the signal whose spectra are nearest to them. It is linear: if masks sum to one, the
    signals of the masked spectra sum to the original.

    Parameters
    ----------
    spectra : array_like of shape (..., B, T)
        Complex spectra with B = window // 2 + 1 bins.
    window : int
        Length of the Hann window in samples, as in `stft`.
    hop : int
        Samples between successive frames, as in `stft`.
    n : int
        Number of samples to return.

    Returns
    -------
    ndarray of shape (..., n)
        The samples.

    References
    ----------
    .. [1] D. Griffin and J. Lim, "Signal estimation from modified short-time Fourier transform",
       IEEE Transactions on Acoustics, Speech, and Signal Processing, 32(2), 1984.

    Examples
    --------
    >>> import numpy as np
    >>> import earatlas as ea
    >>> x = np.random.default_rng(0).normal(size=(1, 5000))
    >>> spectra = ea.stft(x, 512, 128)
    >>> low = spectra * (np.arange(257) < 64)[:, None]
    >>> parts = [ea.istft(part, 512, 128, 5000) for part in (low, spectra - low)]
    >>> bool(np.allclose(sum(parts), x))
    True
    """
    s = np.asarray(spectra)
    w = hann_window(window)
    half, frames = window // 2, s.shape[-1]
    pieces = np.fft.irfft(s.swapaxes(-1, -2), n=window, axis=-1)
    pieces *= w.astype(pieces.dtype)
    length = max((frames - 1) * hop + window, half + n)
    out = np.zeros((*s.shape[:-2], length))
    norm = np.zeros(length)
    # Frames that are window / hop apart do not overlap, so one strided addition places them all.
    step = -(-window // hop)
    for first in range(min(step, frames)):
        block = pieces[..., first::step, :]
        count = block.shape[-2]
        span = slice(first * hop, first * hop + (count - 1) * step * hop + window)
        _strided(out[..., span], count, step * hop, window)[...] += block
        _strided(norm[span], count, step * hop, window)[...] += w**2
    return out[..., half : half + n] / norm[half : half + n]


def _strided(x: Array, count: int, step: int, window: int) -> Array:
    """Return a view (..., count, window) of windows that start `step` apart in x (..., m).

    The view may be written to if the windows do not overlap. Unlike `sliding_window_view`, it does
    not validate its arguments, which would take a tenth of the time of a streamed hop.
    """
    shape = (*x.shape[:-1], count, window)
    strides = (*x.strides[:-1], step * x.strides[-1], x.strides[-1])
    return np.lib.stride_tricks.as_strided(x, shape, strides)


class FrameStream:
    """Streaming STFT: the concatenated frames equal those of `stft`.

    `push` returns the frames that are complete, and `finish` those that reach beyond the end.
    With `single`, spectra have single precision and take half the time and memory.
    """

    def __init__(self, window: int, hop: int, channels: int = 2, *, single: bool = False) -> None:
        self._window, self._hop = window, hop
        self._dtype = np.float32 if single else np.float64
        self._buffer = np.zeros((channels, window // 2), dtype=self._dtype)
        self._pushed = self._frames = 0

    def push(self, samples: ArrayLike) -> Spectra:
        """Return spectra (C, B, t) of the frames that samples (C, n) complete; t may be 0."""
        x = np.asarray(samples, dtype=self._dtype)
        self._pushed += x.shape[-1]
        return self._transform(np.concatenate([self._buffer, x], axis=-1))

    def finish(self) -> Spectra:
        """Return spectra (C, B, t) of the last frames, which reach beyond the end."""
        missing = 1 + self._pushed // self._hop - self._frames
        need = (missing - 1) * self._hop + self._window - self._buffer.shape[-1]
        return self._transform(np.pad(self._buffer, ((0, 0), (0, max(need, 0)))))

    def _transform(self, x: Array) -> Spectra:
        count = max((x.shape[-1] - self._window) // self._hop + 1, 0)
        self._frames += count
        self._buffer = x[:, count * self._hop :].copy()
        if count == 0:
            return _transform(np.zeros_like(x), self._window, self._hop, 0)
        return _transform(x, self._window, self._hop, count)


def squared_magnitude(spectra: Spectra) -> Array:
    """Return |spectra|², without the square root of np.abs."""
    power: Array = spectra.real**2 + spectra.imag**2
    return power


def bin_power(spectra: Spectra, window: int) -> Array:
    """Return the power (C, F, T) of bins 1 to F relative to a full-scale sine at their centre."""
    return squared_magnitude(spectra[:, 1:]) * (4.0 / window) ** 2
