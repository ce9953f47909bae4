"""How much of a voice can be understood: STOI (Taal, Hendriks, Heusdens and Jensen 2011).

In: a clean sound and what became of it. Out: a number that is 1 where nothing is lost and about
0.6 where half of the words are. At 10 kHz, in frames of 25.6 ms of which the silent ones are left
out, in 15 third-octave bands from 150 Hz on:

    x, y (30,)  a band of the clean and of the processed sound over 30 frames (384 ms)
    y'  = min(|x| / |y| y, (1 + 10^(15/20)) x)        at its level, no worse than -15 dB
    STOI = mean over bands and stretches of the correlation of x and y'

Written here, since a hundred lines need no further package at run time; the tests hold it against
`pystoi`, which gives the same to 1e-9 where it need not resample.

    J  15 bands    T  frames
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from earatlas.evaluation.assignment import Assignment
from earatlas.evaluation.quality import check_order
from earatlas.features.audio import checked_rate, resample
from earatlas.features.stft import squared_size
from earatlas.types import Array

__all__ = ["intelligibility", "stoi"]

_RATE, _FRAME, _HOP, _FFT = 10_000, 256, 128, 512
_BANDS, _LOWEST_HERTZ = 15, 150.0
_STRETCH = 30  # frames
_RANGE_DB = 40.0  # frames so far below the loudest are silent
_CLIP = 1 + 10 ** (15 / 20)
_TINY = np.finfo(np.float64).eps


def intelligibility(
    images: ArrayLike, estimates: ArrayLike, *, rate: int, assignment: Assignment | None = None
) -> Array:
    """STOI (M, 2) at each ear of estimates (J, 2, n) of the images (M, 2, n), at `rate` in Hz.

    Without an assignment they are in the same order. Missed sources have NaN.
    """
    true, found, order = check_order(images, estimates, assignment)
    values = np.full((len(true), 2), np.nan)
    for m, ear in np.argwhere(order[:, None] >= [0, 0]):
        values[m, ear] = stoi(true[m, ear], found[order[m], ear], rate=rate)
    return values


def stoi(clean: Array, processed: Array, *, rate: int) -> float:
    """STOI of one channel (n,); NaN where less than 384 ms of it are not silent."""
    x, y = (resample(sound, checked_rate(rate), _RATE) for sound in (clean, processed))
    if len(x) < _FRAME:
        return float("nan")
    X, Y = (_band_levels(sound) for sound in _without_silence(x, y))
    T = X.shape[1]
    if T < _STRETCH:
        return float("nan")
    windows = np.lib.stride_tricks.sliding_window_view
    x_, y_ = windows(X, _STRETCH, axis=1), windows(Y, _STRETCH, axis=1)  # (J, T - 29, 30)
    scale = _length(x_) / (_length(y_) + _TINY)
    clipped = np.minimum(y_ * scale, _CLIP * x_)
    return float((_standard(x_) * _standard(clipped)).sum(axis=-1).mean())


def _length(values: Array) -> Array:
    length: Array = np.sqrt((values**2).sum(axis=-1, keepdims=True))
    return length


def _standard(values: Array) -> Array:
    """Stretches (…, 30) without their means, of length 1."""
    centred = values - values.mean(axis=-1, keepdims=True)
    standard: Array = centred / (_length(centred) + _TINY)
    return standard


def _window() -> Array:
    return np.hanning(_FRAME + 2)[1:-1]


def _frames(x: Array, end: int) -> Array:
    """Windowed frames (T, 256) that begin before `end`."""
    views = np.lib.stride_tricks.sliding_window_view(x, _FRAME)[: max(end, 0) : _HOP]
    return views * _window()


def _without_silence(x: Array, y: Array) -> tuple[Array, Array]:
    """Both sounds with the frames left out in which the clean one is silent, overlap-added."""
    clean, other = (_frames(sound, len(sound) - _FRAME + 1) for sound in (x, y))
    level = 20 * np.log10(np.sqrt((clean**2).sum(axis=1)) + _TINY)
    heard = level > level.max() - _RANGE_DB
    return _overlap_added(clean[heard]), _overlap_added(other[heard])


def _overlap_added(frames: Array) -> Array:
    out = np.zeros((len(frames) - 1) * _HOP + _FRAME)
    for t, frame in enumerate(frames):
        out[t * _HOP : t * _HOP + _FRAME] += frame
    return out


def _band_levels(x: Array) -> Array:
    """(J, T) the size of each third of an octave in each frame."""
    power = squared_size(np.fft.rfft(_frames(x, len(x) - _FRAME), _FFT))  # (T, 257)
    hertz = np.arange(_FFT // 2 + 1) * _RATE / _FFT
    k = np.arange(_BANDS)
    low, high = (
        np.abs(hertz - (_LOWEST_HERTZ * 2 ** ((2 * k + side) / 6))[:, None]).argmin(axis=1)
        for side in (-1, 1)
    )
    levels: Array = np.sqrt(
        [power[:, a:b].sum(axis=1) for a, b in zip(low, high, strict=True)], dtype=np.float64
    )
    return levels
