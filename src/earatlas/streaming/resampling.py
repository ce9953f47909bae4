"""Resampling of a stream with a fixed delay, by a windowed-sinc polyphase filter.

Input: samples (2, n) at one rate. Output: the samples at another rate, as early as possible.

    y[k] = Σ_j h_p[j] x[i_k - j]        i_k = ⌊k down / up⌋,  p = k down mod up

    up / down     target rate over input rate, in lowest terms
    h (up, taps)  windowed sinc for each phase p

The state consists of arrays and numbers, so that it can be copied and pickled.
"""

from __future__ import annotations

from math import gcd

import numpy as np

from earatlas.types import Array

__all__ = ["Resampler"]

_ZERO_CROSSINGS = 24  # zero crossings on either side of the sinc; 1.5 ms at 16 kHz
_KAISER_BETA = 9.0  # Kaiser window with 90 dB stop-band attenuation
_CUTOFF = 0.94  # pass band over half of the lower rate


class Resampler:
    """Converts a stream from one rate to another; the delay is half of the filter length."""

    def __init__(self, rate: int, target_rate: int) -> None:
        common = gcd(rate, target_rate)
        self._up, self._down = target_rate // common, rate // common
        ratio = max(rate / target_rate, 1.0)
        half = int(np.ceil(_ZERO_CROSSINGS * ratio))
        self._half = half
        # Phase p: the output sample is p / up after input sample i; tap j is for i + half - j.
        j = np.arange(2 * half + 1) - half
        position = j + np.arange(self._up)[:, None] / self._up
        shape = np.sqrt(np.maximum(1 - (position / (half + 1)) ** 2, 0.0))
        window = np.i0(_KAISER_BETA * shape) / np.i0(_KAISER_BETA)
        cutoff = _CUTOFF / ratio
        self._filters = cutoff * np.sinc(cutoff * position) * window  # (up, taps)
        self._filters /= self._filters.sum(axis=1, keepdims=True)
        self._past = np.zeros((2, 2 * half))
        self._n_in = 0  # input samples so far
        self._n_out = 0  # output samples so far

    def push(self, samples: Array) -> Array:
        """Return the output samples (2, m) that input samples (2, n) complete."""
        if self._up == self._down:
            return samples
        x = np.concatenate([self._past, samples], axis=1)
        self._n_in += samples.shape[1]
        last = -(-self._n_in * self._up // self._down)  # first output sample with i >= n_in
        k = np.arange(self._n_out, last)
        self._n_out = last
        i, p = k * self._down // self._up, k * self._down % self._up
        # x begins with input sample n_in - n - 2 half; an output sample needs those up to i.
        end = i - (self._n_in - samples.shape[1]) + 2 * self._half
        taps = np.arange(2 * self._half + 1)
        out: Array = np.einsum("ckj,kj->ck", x[:, end[:, None] - taps], self._filters[p])
        self._past = x[:, x.shape[1] - 2 * self._half :]
        return out
