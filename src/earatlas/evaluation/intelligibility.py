"""Short-time objective intelligibility (STOI).

The inputs are clean and processed signals. The output is 1 if nothing is lost and about 0.6 if half
of the words are understood. Signals are resampled to 10 kHz and divided into frames of 25.6 ms;
silent frames are removed, and 15 third-octave bands start at 150 Hz.

    x, y (30,)  envelope of a band of the clean and the processed signal over 30 frames (384 ms)
    y'  = min(|x| / |y| y, (1 + 10^(15/20)) x)        normalized and clipped at -15 dB
    STOI = mean over bands and segments of the correlation of x and y'

    J  15 bands    T  frames

The tests compare it with `pystoi`: the results agree to 1e-9 if no resampling is necessary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from earatlas.evaluation.assignment import Assignment
from earatlas.evaluation.quality import check_matched
from earatlas.features.audio import check_rate, resample
from earatlas.features.stft import squared_magnitude
from earatlas.types import Array

__all__ = ["intelligibility", "stoi"]

_TINY = np.finfo(np.float64).eps  # avoids division by 0 for constant envelopes


# Evidence: docs/figures/settings/evaluation.md, "intelligibility".
@dataclass(frozen=True, slots=True)
class STOISettings:
    """Parameters of STOI, with the values of Taal et al. (2011)."""

    rate_hz: int = 10_000
    frame: int = 256  # samples; frames overlap by half and are padded to twice their length
    bands: int = 15  # number of third-octave bands
    lowest_hz: float = 150.0  # centre frequency of the first band
    segment: int = 30  # frames
    silence_db: float = 40.0  # level below the loudest frame at which a frame counts as silent
    min_sdr_db: float = -15.0  # lower bound of the signal-to-distortion ratio: clips the envelope


_STOI = STOISettings()


def intelligibility(
    images: ArrayLike, estimates: ArrayLike, *, rate: int, assignment: Assignment | None = None
) -> Array:
    """Compute the STOI of separated sources at each ear.

    Parameters
    ----------
    images : array_like, shape (M, 2, n)
        True image of each source at both ears.
    estimates : array_like, shape (J, 2, n)
        Estimated images.
    rate : int
        Sampling rate in Hz.
    assignment : Assignment, optional
        Which estimate belongs to which source; by default both are in the same order.

    Returns
    -------
    values : array, shape (M, 2)
        STOI of each source at each ear, NaN for missed sources.

    References
    ----------
    C. H. Taal, R. C. Hendriks, R. Heusdens and J. Jensen, "An algorithm for
    intelligibility prediction of time-frequency weighted noisy speech", IEEE Trans. Audio, Speech,
    Lang. Process., 19(7), 2011.

    Examples
    --------
    >>> import earatlas as ea
    >>> import numpy as np
    >>> speech = ea.synthetic_speech(1.0, seed=0)
    >>> image = np.stack([speech, 0.5 * speech])
    >>> intelligibility([image], [0.1 * image], rate=16_000).round(3)
    array([[1., 1.]])

    """
    true, estimated, order = check_matched(images, estimates, assignment)
    values = np.full((len(true), 2), np.nan)
    for m, ear in np.argwhere(order[:, None] >= [0, 0]):
        values[m, ear] = stoi(true[m, ear], estimated[order[m], ear], rate=rate)
    return values


def stoi(clean: Array, processed: Array, *, rate: int) -> float:
    """Compute the STOI of one channel.

    Parameters
    ----------
    clean, processed : array, shape (n,)
        Clean reference and processed signal.
    rate : int
        Sampling rate in Hz.

    Returns
    -------
    value : float
        STOI, NaN if less than 384 ms of the clean signal are active.

    References
    ----------
    C. H. Taal, R. C. Hendriks, R. Heusdens and J. Jensen, "An algorithm for
    intelligibility prediction of time-frequency weighted noisy speech", IEEE Trans. Audio, Speech,
    Lang. Process., 19(7), 2011.

    Examples
    --------
    >>> import earatlas as ea
    >>> speech = ea.synthetic_speech(1.0, seed=0)
    >>> round(stoi(speech, speech, rate=16_000), 3)
    1.0

    """
    x, y = (resample(signal, check_rate(rate), _STOI.rate_hz) for signal in (clean, processed))
    if len(x) < _STOI.frame:
        return float("nan")
    X, Y = (_band_envelopes(signal) for signal in _remove_silent_frames(x, y))
    T = X.shape[1]
    if _STOI.segment > T:
        return float("nan")
    windows = np.lib.stride_tricks.sliding_window_view
    x_segments, y_segments = (windows(Z, _STOI.segment, axis=1) for Z in (X, Y))  # (J, T - 29, 30)
    scale = _norm(x_segments) / (_norm(y_segments) + _TINY)
    clip = 1 + 10 ** (-_STOI.min_sdr_db / 20)
    clipped = np.minimum(y_segments * scale, clip * x_segments)
    return float((_standardize(x_segments) * _standardize(clipped)).sum(axis=-1).mean())


def _norm(values: Array) -> Array:
    norm: Array = np.sqrt((values**2).sum(axis=-1, keepdims=True))
    return norm


def _standardize(values: Array) -> Array:
    """Return segments (..., 30) with mean 0 and norm 1."""
    centred = values - values.mean(axis=-1, keepdims=True)
    standardized: Array = centred / (_norm(centred) + _TINY)
    return standardized


def _window() -> Array:
    return np.hanning(_STOI.frame + 2)[1:-1]


def _frames(x: Array, end: int) -> Array:
    """Return the windowed frames (T, 256) that start before sample `end`."""
    views = np.lib.stride_tricks.sliding_window_view(x, _STOI.frame)
    return views[: max(end, 0) : _STOI.frame // 2] * _window()


def _remove_silent_frames(x: Array, y: Array) -> tuple[Array, Array]:
    """Return both signals, overlap-added, without the frames in which the clean one is silent."""
    clean, other = (_frames(signal, len(signal) - _STOI.frame + 1) for signal in (x, y))
    level = 20 * np.log10(np.sqrt((clean**2).sum(axis=1)) + _TINY)
    active = level > level.max() - _STOI.silence_db
    return _overlap_add(clean[active]), _overlap_add(other[active])


def _overlap_add(frames: Array) -> Array:
    hop = _STOI.frame // 2
    out = np.zeros((len(frames) - 1) * hop + _STOI.frame)
    for t, frame in enumerate(frames):
        out[t * hop : t * hop + _STOI.frame] += frame
    return out


def _band_envelopes(x: Array) -> Array:
    """Return the magnitude (J, T) of each third-octave band in each frame."""
    n = 2 * _STOI.frame
    power = squared_magnitude(np.fft.rfft(_frames(x, len(x) - _STOI.frame), n))  # (T, 257)
    hertz = np.arange(n // 2 + 1) * _STOI.rate_hz / n
    k = np.arange(_STOI.bands)
    low, high = (
        np.abs(hertz - (_STOI.lowest_hz * 2 ** ((2 * k + side) / 6))[:, None]).argmin(axis=1)
        for side in (-1, 1)
    )
    envelopes: Array = np.sqrt(
        [power[:, a:b].sum(axis=1) for a, b in zip(low, high, strict=True)], dtype=np.float64
    )
    return envelopes
