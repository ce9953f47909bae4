"""Another sampling rate for a sound that comes in pieces, with a delay that is known.

In: samples (2, n) at one rate. Out: those at another, as soon as they can be had. A sinc of finite
length, read off at the times of the new samples:

    y[k] = Σ_j h_p[j] x[i_k - j]        i_k = ⌊k down / up⌋,  p = k down mod up

    up / down   the new rate over the old one, in lowest terms
    h (up, taps)  the sinc at each place that a new sample may have between two old ones

All of its state is numbers, so that it can be copied and pickled, which a library's cannot.
"""

from __future__ import annotations

from math import gcd

import numpy as np

from earatlas.types import Array

__all__ = ["Resampler"]

_CROSSINGS = 24  # of zero on either side of the sinc; 1.5 ms at 16 kHz
_BETA = 9.0  # of the Kaiser window: 90 dB
_CUT = 0.94  # of the lower rate's half: what passes


class Resampler:
    """From one rate to another; samples come half the sinc late."""

    def __init__(self, rate: int, wanted: int) -> None:
        common = gcd(rate, wanted)
        self._up, self._down = wanted // common, rate // common
        longer = max(rate / wanted, 1.0)
        half = int(np.ceil(_CROSSINGS * longer))
        self._half = half
        # Place p of a new sample is p / up after the old one i; old sample i + half - j is at j.
        j = np.arange(2 * half + 1) - half
        at = j + np.arange(self._up)[:, None] / self._up
        window = np.i0(_BETA * np.sqrt(np.maximum(1 - (at / (half + 1)) ** 2, 0.0))) / np.i0(_BETA)
        cut = _CUT / longer
        self._filters = cut * np.sinc(cut * at) * window  # (up, taps)
        self._filters /= self._filters.sum(axis=1, keepdims=True)
        self._past = np.zeros((2, 2 * half))
        self._taken = 0  # old samples
        self._given = 0  # new ones

    def push(self, samples: Array) -> Array:
        """The new samples (2, m) that these (2, n) complete: those up to the last old one."""
        if self._up == self._down:
            return samples
        x = np.concatenate([self._past, samples], axis=1)
        self._taken += samples.shape[1]
        last = -(-self._taken * self._up // self._down)  # one past the last whose i < taken
        k = np.arange(self._given, last)
        self._given = last
        i, p = k * self._down // self._up, k * self._down % self._up
        # The newest old sample of a new one is i; the oldest in x is taken - n - 2 half.
        end = i - (self._taken - samples.shape[1]) + 2 * self._half
        taps = np.arange(2 * self._half + 1)
        out: Array = np.einsum("ckj,kj->ck", x[:, end[:, None] - taps], self._filters[p])
        self._past = x[:, x.shape[1] - 2 * self._half :]
        return out
