"""Which is which: one order of two sources for all frequencies.

Filters that are found at each frequency alone part two sources there, but do not know which is the
first. In: the images that such filters made and masks, both (2 sources, F frequencies, T frames).
Out: where the two are to be exchanged.

Frequencies are gathered in narrow bands of equal width in pitch. In band i, d_i (T,) says which
source dominates when: 1 the first, -1 the second, about 0 where both are silent. A voice moves many
bands at once, those near each other most, so bands in the same order have d_i and d_j alike; and
the masks, where they are sure, tell the order themselves. With s_i = ±1 the best order makes

    J(s) = Σ_ij s_i s_j k_ij c_ij + Σ_i s_i b_i

greatest, c_ij the correlation of d_i and d_j over time, k_ij = exp(-|pitch_i - pitch_j| / reach),
b_i = the product of d_i and the masks' dominance. Far bands may well be opposed (one talker hisses
while the other hums), hence the reach. The search starts at the order that the masks made, and as
long as J grows exchanges the sources in that run of neighbouring bands where it grows most.
"""

from __future__ import annotations

import numpy as np

from earatlas.types import Array, Mask

__all__ = ["exchanged"]

_KNEE_HERTZ = 1000.0  # pitch is log2(1 + frequency / knee): even below it, in octaves above
_BAND_HERTZ = 8.0  # the lowest band; the others are as wide in pitch
_REACH = 0.25  # in pitch
_SILENT = 0.1  # of a source's mean power: a dominance of less than that says little
_MOST_EXCHANGES = 100


def exchanged(powers: Array, masks: Array, hertz: Array) -> Mask:
    """The frequencies (F,) at which the two sources of powers (2, F, T) are to change places."""
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
    order = _best_order(near * (d @ d.T), (d * mask).sum(axis=1))
    changed: Mask = order[band] < 0
    return changed


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
