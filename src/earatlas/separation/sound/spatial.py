"""Sound by filters that use both ears: from masks to what each source alone puts into the ears.

In: a two-channel mixture and soft masks of its sources. Out: both ears of every source; they add up
to the mixture. A mask can only turn a bin down; two ears can also cancel a source, by a filter that
is blind to its direction. With two sources that is exact where each reaches the ears by one ratio:

    x_ft (2,) = Σ_m a_mf y_mft           a_mf (2,) how source m reaches the ears at frequency f
    y = A⁻¹ x,  image of m = a_m y_m      A_f = (a_1f, a_2f)

The masks tell a_mf well enough to begin: the strongest direction of the bins that are a source's.
Then independence improves it: for sources whose powers v_mft change in time, the filters that make
the likelihood largest are the generalized eigenvectors of the two covariances Σ_t x xᴴ / v_mft
(iterative projection of a pair, as in AuxIVA and ILRMA). Powers are smoothed over many frequencies
at first, so that what belongs together stays together, then over few. Where the masks were wrong
throughout a stretch of frequencies the two sources come out exchanged there; `permutation` finds
such stretches, and the filters are improved once more from the right order.

Where two sources reach the ears alike (low frequencies, one cone of confusion) cancelling blows up
whatever does not fit. The last step is therefore a multichannel Wiener filter: sources have the
covariance v_mft (a_m a_mᴴ + ε I), v between what the masks and what the filters say. It cancels
where it can and masks where it cannot. ε is measured: how much of a source reaches the ears beside
a_m where it is alone, little in the open and much in a room. More than two sources cannot all be
cancelled; how their a_m and v are made better than the masks tell: `many`.

A band in which no cue was learned has no masks. `separate_band` starts from envelopes instead: how
strong each source is in each frame, as a band below tells, is a power v_mt that gives filters at
once, and shares of it stand for masks.

    X (2, F, T) spectra    masks (M, F, T)    v (M, F, T) powers    A (F, 2, M) columns of length 1
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from earatlas.hearing.layout import CueLayout
from earatlas.hearing.transform import istft, squared_size, stft
from earatlas.separation.sound.demixing import (
    apart,
    beside,
    covariances,
    pair,
    powers,
    principal,
    smoothed,
    wiener,
)
from earatlas.separation.sound.many import crowded_columns, sparse_powers
from earatlas.separation.sound.permutation import exchanged
from earatlas.types import Array, Complex, Spectra

__all__ = ["measured_spread", "separate_band", "separate_spatially", "shares_of"]

# What each of these does when it is changed alone: docs/figures.md, "Numbers in the code".
_LONGER = 4  # windows for cancelling, in those of the cues: 256 ms hold most of a room's answer
_HOPS = 8  # a window; 4 lose 2 dB in the open
_BROAD, _NARROW = (65, 3), (5, 3)  # bins and frames that powers are smoothed over
_PLAN, _AGAIN = (_BROAD, _BROAD, _NARROW, _NARROW), (_NARROW, _NARROW)
_MORE = 3e-3  # ε of more than two sources in a band without masks, where none is surely alone
_ALONE = 0.05  # of a source's bins, those that fit best, are its alone; 0.2 loses 4 dB
_WIDER = 16.0  # ε in what they miss: they fit better than most
_MOST_SPREAD = 0.3
_SPREAD_HERTZ = 1000.0  # below it bins are heard well enough to measure
_DOUBT = 0.1  # of a bin's power that a source may have whatever its mask says
_LEAK = 0.02  # of a bin's power that the filters may have given to the wrong source
_ACTIVITY_SECONDS = 0.25
_FLOOR = 1e-9  # of the strongest bin: keeps silence from being divided by
# Of the frequencies of a band without masks, those that tell ε: above 8 kHz most are near the
# recording's noise, which is no spread. With half of them it is up to 2.4 dB worse in the open. In
# a room, where all have spread, half of them (as below 1 kHz) is 1 dB better.
_CLEAREST, _TYPICAL = 0.1, 0.5
_PAUSE = 1e-3  # of its mean envelope that a silent source still has


def separate_spatially(samples: Array, masks: Array, layout: CueLayout) -> Array:
    """Both ears (M, 2, n) of every source of samples (2, n), from masks (M, F, T) in the layout."""
    M, n = len(masks), samples.shape[1]
    if M == 1 or not samples.any():
        return np.repeat(samples[None], M, axis=0)
    window = layout.window * (_LONGER if M == 2 else 1)
    hop = max(window // _HOPS, 1)
    spectra = stft(samples, window, hop)
    # Both ears at one level at every frequency: ε then means the same in each.
    ears = np.sqrt(squared_size(spectra[:, 1:]).mean(axis=2, keepdims=True))
    ears = np.maximum(ears, 1e-6 * float(ears.max()))
    X = spectra[:, 1:] / ears
    q = _on_grid(masks, X.shape[1], X.shape[2], hop / layout.hop)
    power = squared_size(X).sum(axis=0)
    floor = _FLOOR * float(power.max())
    hertz = (np.arange(X.shape[1]) + 1) * layout.rate / window
    low = slice(None, max(int(np.searchsorted(hertz, _SPREAD_HERTZ)), 1))
    if M == 2:
        A, q = _in_order(X, principal(covariances(X, q**2)), q, hertz, floor)
        v = powers(X, A)
        shares = v / (v.sum(axis=0) + floor)
    else:
        _, highest = layout.ipd_band_hz or (0.0, 0.0)
        A, shares = crowded_columns(X, q, int(np.searchsorted(hertz, highest, "right"))), q
    spread = measured_spread(X[:, low], A[low], shares[:, low])
    likely = q + _DOUBT * _activity(q, power, _ACTIVITY_SECONDS * layout.rate / hop)
    if M == 2:
        v = np.sqrt(likely * (shares + _LEAK)) * power + floor
    else:
        v = sparse_powers(X, A, likely * power + floor, spread, floor)
    images = wiener(X, A, v, spread)
    dc = np.broadcast_to(spectra[:, :1] / M, (M, 2, 1, X.shape[2]))
    return istft(np.concatenate([dc, images * ears], axis=2), window, hop, n)


def separate_band(
    X: Spectra, envelopes: Array, hertz: Array, *, frames_a_second: float, in_room: bool = False
) -> tuple[Complex, float]:
    """Images (M, 2, F, T) that add up to spectra X (2, F, T), told by envelopes (M, T), and ε."""
    M = len(envelopes)
    if not X.any():
        return np.zeros((M, *X.shape), dtype=np.complex128), 0.0
    ears = np.sqrt(squared_size(X).mean(axis=2, keepdims=True))
    ears = np.maximum(ears, 1e-6 * float(ears.max()))
    X = X / ears
    power = squared_size(X).sum(axis=0)
    floor = _FLOOR * float(power.max())
    q = np.broadcast_to(shares_of(envelopes)[:, None], (M, *power.shape))
    A, spread, shares = principal(covariances(X, q**2)), _MORE, None
    if M == 2:
        v = envelopes + _PAUSE * envelopes.mean(axis=1, keepdims=True) + 1e-300
        start = apart(pair(X, np.broadcast_to(v[:, None], q.shape)))
        A, q = _in_order(X, start, q, hertz, floor)
        v = powers(X, A)
        shares = v / (v.sum(axis=0) + floor)
        clearest = _TYPICAL if in_room else _CLEAREST
        spread = _spread_of(float(np.quantile(_least_beside(X, A, shares), clearest)))
    likely = q + _DOUBT * _activity(q, power, _ACTIVITY_SECONDS * frames_a_second)
    if shares is not None:
        likely = np.sqrt(likely * (shares + _LEAK))
    return wiener(X, A, likely * power + floor, spread) * ears, spread


def shares_of(envelopes: Array) -> Array:
    """The part of each source (M, T) in the sum of all; alike where all are silent."""
    total = envelopes.sum(axis=0)
    heard = total > 0
    return np.where(heard, envelopes / np.where(heard, total, 1.0), 1 / len(envelopes))


def _on_grid(masks: Array, F: int, T: int, hops: float) -> Array:
    """Masks at F frequencies and T frames of another transform: those nearest."""
    rows = np.round((np.arange(F) + 1) * masks.shape[1] / F).astype(np.intp) - 1
    columns = np.minimum(np.round(np.arange(T) * hops), masks.shape[2] - 1).astype(np.intp)
    return masks[:, np.maximum(rows, 0)][:, :, columns].astype(np.float64)


def _activity(q: Array, power: Array, frames: float) -> Array:
    """How much each source is heard around a frame, from 0 to 1: (M, 1, T)."""
    from scipy.ndimage import uniform_filter1d

    heard = uniform_filter1d((q * power).sum(axis=1), max(round(frames), 1), axis=1)
    total = heard.sum(axis=0)
    share = heard / np.where(total > 0, total, 1.0)
    # A tenth of the energy is as good as all of it; a hundredth may be leakage of the masks.
    active: Array = np.clip((share - 0.01) / 0.09, 0.0, 1.0)[:, None]
    return active


def _in_order(
    X: Spectra, A: Complex, q: Array, hertz: Array, floor: float
) -> tuple[Complex, Array]:
    """Columns (F, 2, 2) of two sources made better from a start, and the masks in their order."""
    A = _independent(X, apart(A), _PLAN, floor)
    swap = exchanged(powers(X, A), q, hertz)
    A = np.where(swap[:, None, None], A[..., ::-1], A)
    return _independent(X, A, _AGAIN, floor), np.where(swap[:, None], q[::-1], q)


def _independent(X: Spectra, A: Complex, plan: Sequence[tuple[int, int]], floor: float) -> Complex:
    """Columns (F, 2, 2) made better step by step, powers smoothed as planned."""
    for size in plan:
        A = apart(pair(X, smoothed(powers(X, A), size, floor)))
    return A


def measured_spread(X: Spectra, A: Complex, shares: Array) -> float:
    """ε: what of a source is beside its column, where it is most alone; typical of F."""
    return _spread_of(float(np.median(_least_beside(X, A, shares))))


def _spread_of(beside: float) -> float:
    """ε where so much of a source is beside its column."""
    return min(_WIDER * max(beside, 1e-9), _MOST_SPREAD)


def _least_beside(X: Spectra, A: Complex, shares: Array) -> Array:
    """What of each source (M, F, 1) is beside its column, where it is most alone."""
    alone = np.where(shares > 0.5, beside(X, A), 1)
    counts = np.maximum((alone < 1).sum(axis=2), 1)
    rank = (_ALONE * (counts - 1)).astype(np.intp)
    return np.take_along_axis(np.sort(alone, axis=2), rank[..., None], axis=2)
