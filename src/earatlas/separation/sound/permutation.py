"""Which is which: one order of two sources for all frequencies.

Filters that are found at each frequency alone part two sources there, but do not know which is the
first. In: the images that such filters made and masks, both (2 sources, F frequencies, T frames).
Out: where the two are to be exchanged.

Frequencies are gathered in narrow bands of equal width in pitch. In band i, d_i (T,) says which
source dominates when: 1 the first, -1 the second, about 0 where both are silent. A voice moves many
bands at once, those near each other most, so bands in the same order have d_i and d_j alike; and
the masks, where they are sure, tell the order themselves. With s_i = ±1 the best order makes

    J(s) = Σ_ij s_i s_j k_ij c_ij + Σ_i s_i (b_i + w g_i)

greatest, c_ij the correlation of d_i and d_j over time, k_ij = exp(-|pitch_i - pitch_j| / reach),
b_i = the product of d_i and the masks' dominance. Far bands may well be opposed (one talker hisses
while the other hums), hence the reach. The search starts at the order that the masks made, and as
long as J grows exchanges the sources in that run of neighbouring bands where it grows most.

Two voices that hold one pitch for a while sound there against what they do elsewhere, and came out
exchanged at that pitch and its harmonics: 12 dB where other mixtures have 30. But where each is
known to be, and what the head does to sound from there, tells the order too: g_i from -1 to 1 is
how much more like the expected columns the found ones are as they stand than exchanged.
"""

from __future__ import annotations

import numpy as np

from earatlas.hearing.transform import squared_size
from earatlas.types import Array, Complex, Mask

__all__ = ["exchanged", "likeness"]

_KNEE_HERTZ = 1000.0  # pitch is log2(1 + frequency / knee): even below it, in octaves above
_BAND_HERTZ = 8.0  # the lowest band; the others are as wide in pitch
_REACH = 0.25  # in pitch
_SILENT = 0.1  # of a source's mean power: a dominance of less than that says little
_MOST_EXCHANGES = 100
_ALIKE = 0.02  # of expected columns that differ by less, an error of the head is all that is seen


def exchanged(powers: Array, masks: Array, hertz: Array, told: Array | float = 0.0) -> Mask:
    """The frequencies (F,) at which the two sources of powers (2, F, T) are to change places.

    `told` (F,) is w g, what is known of the order besides.
    """
    pitch = np.log2(1 + hertz / _KNEE_HERTZ)
    band = np.floor(pitch / np.log2(1 + _BAND_HERTZ / _KNEE_HERTZ)).astype(np.intp)
    _, first, band = np.unique(band, return_index=True, return_inverse=True)
    counts = np.diff(np.append(first, len(hertz)))
    d, mask = (
        np.add.reduceat(values, first, axis=0) / counts[:, None]
        for values in (_dominance(powers), _centred(masks[0] - masks[1]))
    )
    d /= np.maximum(np.sqrt((d**2).sum(axis=1, keepdims=True)), 1e-12)
    middle = np.add.reduceat(pitch, first) / counts
    near = np.exp(-np.abs(middle[:, None] - middle) / _REACH)
    known = np.add.reduceat(np.broadcast_to(told, hertz.shape), first) / counts
    order = _best_order(near * (d @ d.T), (d * mask).sum(axis=1) + known)
    changed: Mask = order[band] < 0
    return changed


def likeness(A: Complex, expected: Complex) -> Array:
    """g (F,): how much more columns A (F, 2, 2) are like the expected ones than exchanged.

    All columns have length 1. About 0 where both are expected to be alike.
    """
    along = squared_size(np.einsum("fam,fan->fmn", A.conj(), expected))
    more = along[:, 0, 0] + along[:, 1, 1] - along[:, 0, 1] - along[:, 1, 0]
    alike = squared_size((expected[..., 0].conj() * expected[..., 1]).sum(axis=1))
    g: Array = np.clip(0.5 * more / (1 - alike + _ALIKE), -1, 1)
    return g


def _dominance(powers: Array) -> Array:
    """(F, T) how much more of the first source there is, each at its own mean level."""
    mean = powers.mean(axis=2, keepdims=True)
    first, second = powers / np.where(mean > 0, mean, 1.0)
    return _centred((first - second) / (first + second + _SILENT))


def _centred(values: Array) -> Array:
    centred: Array = values - values.mean(axis=1, keepdims=True)
    return centred


def _best_order(alike: Array, sure: Array) -> Array:
    """Signs s (n,) for which Σ s_i s_j alike_ij + Σ s_i sure_i can grow by no run of flips."""
    n = len(sure)
    s = np.ones(n)
    apart = alike - np.diag(np.diag(alike))
    begin, end = np.triu_indices(n + 1, 1)  # every run of neighbours
    for _ in range(_MOST_EXCHANGES):
        J = apart * s[:, None] * s
        # A run keeps what ties it to itself, and loses twice what ties it to the rest.
        square = np.zeros((n + 1, n + 1))
        square[1:, 1:] = J.cumsum(axis=0).cumsum(axis=1)
        inside = square[end, end] - 2 * square[begin, end] + square[begin, begin]
        ties = np.append(0.0, (2 * J.sum(axis=1) + s * sure).cumsum())
        gain = -2 * (ties[end] - ties[begin] - 2 * inside)
        best = int(gain.argmax())
        if gain[best] <= 1e-9 * np.abs(apart).sum():
            break
        s[begin[best] : end[best]] *= -1
    return s
