"""A constant that a converter adds to each ear: what it is in a recording, and in a stream.

It is no sound, but its leakage fills the lowest bins, and where it begins it is an onset at all
frequencies: with a tenth of full scale, separated sources came out 10 dB off, and one talker was
found 28 degrees too high; live, a hundredth of full scale cost a pair of talkers 18 dB.

    m  mean of an ear      p  its mean power      an offset is clear where m² > share · p
"""

from __future__ import annotations

import numpy as np

from earatlas.features.audio import LARGEST_SAMPLE
from earatlas.types import Array

__all__ = ["OffsetStream", "offset_of"]

_FAINT = 1e-4  # of the power of a sound: an offset so small changes no answer
# Of a stream, a second tells less. Of 251 readers without an offset (high-passed at 20 Hz) none was
# taken for one who has it, and one where hops are of 16 ms from the first on (by -43 dB).
_CLEAR = 1e-2
_CONSTANT = 0.9  # of the power: that is no sound, however short it is
_SURE_SECONDS = 0.5  # in less than that, an offset must be the larger
_MEMORY_SECONDS = 1.0  # at 100 Hz, what is taken out with the mean is 56 dB below the sound
_RAMP_SECONDS = 0.1  # a step would be an onset
_FIRST_SECONDS, _HOP_SECONDS = 0.25, 0.008


def offset_of(samples: Array) -> Array:
    """(2, 1) the mean of each ear; 0 where it is nothing to speak of, as of any sound."""
    if not np.abs(samples).max(initial=0.0) < LARGEST_SAMPLE:  # or NaN: it will be refused
        return np.zeros((2, 1))
    count = max(samples.shape[1], 1)
    mean = samples.sum(axis=1, keepdims=True) / count
    power = (samples**2).sum(axis=1, keepdims=True) / count
    return np.where(mean**2 > _FAINT * power, mean, 0.0)


class OffsetStream:
    """Takes the offset out of a stream, a hop at a time: the size of the blocks changes nothing.

    Nothing is changed until there clearly is one; then the mean of the last second is taken out.
    """

    def __init__(self, rate: int, hop: int | None = None) -> None:
        """For hops of so many samples; by default short ones after a first one of some words."""
        self._rate = rate
        self._hop = max(round(_HOP_SECONDS * rate), 1) if hop is None else hop
        self._next = max(round(_FIRST_SECONDS * rate), 1) if hop is None else hop
        self._rest = np.zeros((2, 0))
        self._count = self._seconds = 0.0  # of samples, faded; of all
        self._sum = np.zeros((2, 1))
        self._squares = np.zeros((2, 1))
        self._clear = np.zeros((2, 1), dtype=bool)
        self._taken = np.zeros((2, 1))  # at the end of the last hop

    @property
    def taken(self) -> Array:
        """(2, 1) what is taken out now."""
        return self._taken

    def push(self, x: Array) -> Array:
        """The hops (2, n) that a block completes, without it."""
        x = np.concatenate([self._rest, x], axis=1)
        done: list[Array] = [x[:, :0]]
        while x.shape[1] >= self._next:
            done.append(self._centred(x[:, : self._next]))
            x, self._next = x[:, self._next :], self._hop
        self._rest = x
        return np.concatenate(done, axis=1)

    def finish(self) -> Array:
        """The last samples, which are no whole hop."""
        x, self._rest = self._rest, self._rest[:, :0]
        return self._centred(x) if x.shape[1] else x

    def _centred(self, x: Array) -> Array:
        n = x.shape[1]
        seconds, first = n / self._rate, self._count == 0.0
        fade = float(np.exp(-seconds / _MEMORY_SECONDS))
        self._count = fade * self._count + n
        self._seconds += seconds
        self._sum = fade * self._sum + x.sum(axis=1, keepdims=True)
        self._squares = fade * self._squares + (x**2).sum(axis=1, keepdims=True)
        mean, power = self._sum / self._count, self._squares / self._count
        least = min(_CLEAR * (1 + (_SURE_SECONDS / self._seconds) ** 2), _CONSTANT)
        self._clear |= mean**2 > least * power
        if not self._clear.any():
            return x
        wanted = np.where(self._clear, mean, 0.0)
        before = wanted if first else self._taken
        self._taken = before + min(seconds / _RAMP_SECONDS, 1.0) * (wanted - before)
        rise = (np.arange(n) + 1) / n
        centred: Array = x - before - (self._taken - before) * rise
        return centred
