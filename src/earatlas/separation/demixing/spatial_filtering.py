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

In a room a source reaches the ears over many ways: windows twice as long hold more of its answer
and let filters cancel more, but in few long frames masks tell too little to begin with. So there
the sources are parted as above first, and what comes out begins once more in long windows
(`in_long_windows`). In a room sound changes less from frame to frame, and powers are smoothed over
longer times. In the open all of that would lose up to 10 dB. Whether it is a room may be told;
where it is not, ε tells it: filters of the open miss little there.

A band in which no cue was learned has no masks. `separate_band` starts from envelopes instead: how
strong each source is in each frame, as a band below tells, is a power v_mt that gives filters at
once, and shares of it stand for masks.

    X (2, F, T) spectra    masks (M, F, T)    v (M, F, T) powers    A (F, 2, M) columns of length 1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.features.stft import squared_size
from earatlas.separation.demixing.frames import FLOOR, Frames, level
from earatlas.separation.demixing.permutation_alignment import (
    FINE,
    Ties,
    exchanged,
    expected_columns,
    likeness,
)
from earatlas.separation.demixing.steering_vectors import (
    Moments,
    apart,
    beside,
    columns_of,
    principal,
    smoothed,
    wiener,
)
from earatlas.separation.demixing.underdetermined import crowded_columns, voiced_powers
from earatlas.types import Array, Complex, Spectra

__all__ = [
    "TOLD",
    "activity",
    "in_long_windows",
    "measured_spread",
    "separate_band",
    "separate_spatially",
    "shares_of",
]

# What each of these does when it is changed alone: docs/figures.md, "Numbers in the code".
_LONGER = 4  # windows for cancelling, in those of the cues: 256 ms hold most of a room's answer
_HOPS = 8  # a window; 4 lose 2 dB in the open
# Bins and frames that powers are smoothed over, step by step. Over three frames, which are nearly
# one, SDR is 0.2 dB less (cipic_021), 0.6 (kemar_full), and with the atlas of another head 0.4
# (ku100) and 2.3 (cipic_021), 6 to 8 mixtures each. From every second frame it is the same, but
# masks that are wrong at many frequencies are not mended.
_PLAN, _AGAIN = ((65, 1), (65, 1), (5, 1), (5, 1)), ((5, 1), (5, 1))
_BROAD, _NARROW = (65, 3), (5, 3)  # of a band without masks
# In a room. Two talkers, SNR in dB and that of the worst of six, at T60 0.3 and 0.5 s: as in open
# 9.3, 3.3 and 6.9, 4.2; with these 10.3, 6.9 and 7.8, 6.6; then in long windows 12.5, 8.0 and 9.3,
# 7.2. Windows 6 or 12 times as long: 11.8 and 8.9, 11.0 and 9.1. The sources of a prediction over
# several frames (1 to 6 of them, jointly or after) were never above 9.8 and 7.3.
_ROOM_HOPS = 4
_LASTING, _LONG = (5, 5), (9, 3)
_ROOM_PLAN, _ROOM_AGAIN = (_BROAD, _BROAD, _LASTING, _LASTING), (_LASTING, _LASTING)
_ROOM_ROUNDS = 2  # of putting in order; the second gains 0.1 dB (docs/figures.md, "Which is which")
_LONGEST = 8  # windows of rooms, in those of the cues
# ε of filters of the open from which on it is a room. Two talkers, 32 each: up to 0.0042 in the
# open, 0.0062 and more at T60 0.16 to 0.33 s, where filters of rooms gain 3.2 dB (kemar_full and
# cipic_021, rooms of many shapes). Noise at 20 dB has 0.005 to 0.07, so it must not be asked there.
_ROOM_SPREAD = 0.006
# How much the expected columns count for the order of the sources, in the open. SDR in dB, mean and
# worst tenth, of 16 mixtures of cipic_021 with 0, 10, 20, 30: 29.8, 14.0; 30.2, 20.2; 30.6, 22.5;
# 30.6, 22.5. In rooms reflections turn the columns, and they are not asked: docs/figures.md.
TOLD = 20.0
_MORE = 3e-3  # ε of more than two sources in a band without masks, where none is surely alone
_ALONE = 0.05  # of a source's bins, those that fit best, are its alone; 0.2 loses 4 dB
_WIDER = 16.0  # ε in what they miss: they fit better than most
# Spectra have single precision, about 1e-7: a smaller ε would invert their rounding.
_LEAST_SPREAD, _MOST_SPREAD = 1e-6, 0.3
_SPREAD_HERTZ = 1000.0  # below it bins are heard well enough to measure
_DOUBT = 0.1  # of a bin's power that a source may have whatever its mask says
_LEAK = 0.02  # of a bin's power that the filters may have given to the wrong source
_ACTIVITY_SECONDS = 0.25
# Of the frequencies of a band without masks, those that tell ε: above 8 kHz most are near the
# recording's noise, which is no spread. With half of them it is up to 2.4 dB worse in the open. In
# a room, where all have spread, half of them (as below 1 kHz) is 1 dB better.
_CLEAREST, _TYPICAL = 0.1, 0.5
_PAUSE = 1e-3  # of its mean envelope that a silent source still has
_Sizes = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class _Plan:
    """How filters are made better: what powers are smoothed over, step by step."""

    first: _Sizes
    again: _Sizes  # once sources are in order
    ties: Ties = field(default_factory=Ties)  # by which they are put in order
    rounds: int = 1  # of putting in order and of making better


def separate_spatially(
    samples: Array,
    masks: Array,
    layout: CueLayout,
    *,
    in_room: bool | None = False,
    ratios: Complex | None = None,
) -> Array:
    """Both ears (M, 2, n) of every source of samples (2, n), from masks (M, F, T) in the layout.

    `in_room` None: it is not known, and ε of two sources is asked. `ratios` (M, F) are those of the
    right ear to the left that are expected of each source, NaN where none is known; they are for
    two in the open. More are treated alike everywhere.
    """
    M = len(masks)
    if M == 1 or not samples.any():
        return np.repeat(samples[None], M, axis=0)
    if M > 2:
        return _more_than_two(Frames.of(samples, layout.rate, layout.window, _HOPS), masks, layout)
    window = _LONGER * layout.window
    if not in_room:
        frames = Frames.of(samples, layout.rate, window, _HOPS)
        order = _Order.of(frames, ratios, layout)
        parted = _two(frames, masks, layout, _Plan(_PLAN, _AGAIN, FINE), order)
        if in_room is not None or parted.spread < _ROOM_SPREAD:
            return parted.sounds()
    frames = Frames.of(samples, layout.rate, window, _ROOM_HOPS)
    plan = _Plan(_ROOM_PLAN, _ROOM_AGAIN, FINE, _ROOM_ROUNDS)
    sounds = _two(frames, masks, layout, plan, _Order(frames.hertz)).sounds()
    return in_long_windows(samples, sounds, layout)


@dataclass(frozen=True, eq=False)
class _Order:
    """What tells which is which at each frequency, besides the masks."""

    hertz: Array  # (F,)
    expected: Complex | None = None  # (F, 2, 2) columns of length 1
    weight: Array | float = 0.0  # (F,) w, 0 where nothing is known

    @classmethod
    def of(cls, frames: Frames, ratios: Complex | None, layout: CueLayout) -> _Order:
        """By the ratios (2, F) of the layout that are nearest; columns are of levelled spectra."""
        if ratios is None:
            return cls(frames.hertz)
        rows = np.round(frames.hertz * layout.window / layout.rate).astype(np.intp) - 1
        own = ratios[:, np.clip(rows, 0, ratios.shape[1] - 1)]
        columns, known = expected_columns(own, frames.ears[..., 0])
        return cls(frames.hertz, columns, np.where(known, TOLD, 0.0))

    def told(self, A: Complex) -> Array | float:
        """(F,) for `exchanged`."""
        return 0.0 if self.expected is None else self.weight * likeness(A, self.expected)


@dataclass(frozen=True, eq=False)
class _Parted:
    """Filters of the sources, before they are applied."""

    frames: Frames
    columns: Complex  # (F, 2, M)
    powers: Array  # (M, F, T)
    spread: float  # ε

    def sounds(self) -> Array:
        """Both ears (M, 2, n) of every source."""
        return self.frames.sounds(wiener(self.frames.X, self.columns, self.powers, self.spread))


def _two(
    frames: Frames,
    masks: Array,
    layout: CueLayout,
    plan: _Plan,
    order: _Order,
) -> _Parted:
    """Two sources by filters that independence has made better."""
    moments = Moments.of(frames.X)
    q = _on_grid(masks, frames, layout)
    start = principal(moments.covariances(q**2))
    A, q = _in_order(moments, start, q, order, frames.floor, plan)
    shares = _shares(moments.powers(A), frames.floor)
    return _Parted(frames, A, *_likely(frames, A, q, shares))


def in_long_windows(samples: Array, sounds: Array, layout: CueLayout) -> Array:
    """Two sources (2, 2, n) of a room parted better, from how they came out in shorter windows."""
    frames = Frames.of(samples, layout.rate, _LONGEST * layout.window, _ROOM_HOPS)
    moments = Moments.of(frames.X)
    v = np.stack([frames.power_of(sound) for sound in sounds]) + frames.floor
    start = apart(columns_of(moments, smoothed(v, _LONG, frames.floor)))
    A = _independent(moments, start, (_LONG,) * 3, frames.floor)
    shares = _shares(moments.powers(A), frames.floor)
    return frames.sounds(wiener(frames.X, A, *_likely(frames, A, v / v.sum(axis=0), shares)))


def _more_than_two(frames: Frames, masks: Array, layout: CueLayout) -> Array:
    """Sources of which some are silent, now these and now those."""
    X, floor = frames.X, frames.floor
    q = _on_grid(masks, frames, layout)
    _, highest = layout.ipd_band_hz or (0.0, 0.0)
    A = crowded_columns(X, q, int(np.searchsorted(frames.hertz, highest, "right")))
    v, spread = _likely(frames, A, q, q)
    return frames.sounds(wiener(X, A, voiced_powers(X, A, v, spread, floor), spread))


def _likely(frames: Frames, A: Complex, q: Array, shares: Array) -> tuple[Array, float]:
    """Powers (M, F, T) between masks q and what filters say, and ε."""
    low = slice(None, max(int(np.searchsorted(frames.hertz, _SPREAD_HERTZ)), 1))
    spread = measured_spread(frames.X[:, low], A[low], shares[:, low])
    likely = q + _DOUBT * activity(q, frames.power, _ACTIVITY_SECONDS * frames.a_second)
    if shares is not q:
        likely = np.sqrt(likely * (shares + _LEAK))
    likely *= frames.power
    likely += frames.floor
    return likely, spread


def separate_band(
    X: Spectra, envelopes: Array, hertz: Array, *, frames_a_second: float, in_room: bool = False
) -> tuple[Complex, float]:
    """Images (M, 2, F, T) that add up to spectra X (2, F, T), told by envelopes (M, T), and ε."""
    M = len(envelopes)
    if not X.any():
        return np.zeros((M, *X.shape), dtype=np.complex128), 0.0
    X, ears = level(X)
    power, moments = squared_size(X).sum(axis=0), Moments.of(X)
    floor = FLOOR * float(power.max())
    q = np.broadcast_to(shares_of(envelopes)[:, None], (M, *power.shape))
    A, spread, shares = principal(moments.covariances(q**2)), _MORE, None
    if M == 2:
        v = envelopes + _PAUSE * envelopes.mean(axis=1, keepdims=True) + 1e-300
        start = columns_of(moments, np.broadcast_to(v[:, None], q.shape))
        plan = _Plan((_BROAD, _BROAD, _NARROW, _NARROW), (_NARROW, _NARROW))
        A, q = _in_order(moments, start, q, _Order(hertz), floor, plan)
        shares = _shares(moments.powers(A), floor)
        clearest = _TYPICAL if in_room else _CLEAREST
        spread = _spread_of(float(np.quantile(_least_beside(X, A, shares), clearest)))
    likely = q + _DOUBT * activity(q, power, _ACTIVITY_SECONDS * frames_a_second)
    if shares is not None:
        likely = np.sqrt(likely * (shares + _LEAK))
    return wiener(X, A, likely * power + floor, spread) * ears, spread


def shares_of(envelopes: Array) -> Array:
    """The part of each source (M, T) in the sum of all; alike where all are silent."""
    total = envelopes.sum(axis=0)
    heard = total > 0
    return np.where(heard, envelopes / np.where(heard, total, 1.0), 1 / len(envelopes))


def _on_grid(masks: Array, frames: Frames, layout: CueLayout) -> Array:
    """Masks at the frequencies and frames of another transform: those nearest."""
    _, F, T = frames.X.shape
    rows = np.round((np.arange(F) + 1) * masks.shape[1] / F).astype(np.intp) - 1
    columns = np.round(np.arange(T) * frames.hop / layout.hop).astype(np.intp)
    columns = np.minimum(columns, masks.shape[2] - 1)
    nearest = np.take(masks, columns, axis=2).astype(np.float32)  # fewer first, then more
    on_grid: Array = np.take(nearest, np.maximum(rows, 0), axis=1)
    return on_grid


def _shares(v: Array, floor: float) -> Array:
    """Of powers (M, F, T), the part of each source."""
    shares: Array = v / (v.sum(axis=0) + floor)
    return shares


def activity(q: Array, power: Array, frames: float) -> Array:
    """How much each source is heard around a frame, from 0 to 1: (M, 1, T)."""
    from scipy.ndimage import uniform_filter1d

    heard = uniform_filter1d((q * power).sum(axis=1), max(round(frames), 1), axis=1)
    total = heard.sum(axis=0)
    share = heard / np.where(total > 0, total, 1.0)
    # A tenth of the energy is as good as all of it; a hundredth may be leakage of the masks.
    active: Array = np.clip((share - 0.01) / 0.09, 0.0, 1.0)[:, None]
    return active


def _in_order(
    moments: Moments,
    A: Complex,
    q: Array,
    order: _Order,
    floor: float,
    plan: _Plan,
) -> tuple[Complex, Array]:
    """Columns (F, 2, 2) of two sources made better from a start, and the masks in their order."""
    A = _independent(moments, apart(A), plan.first, floor)
    for _ in range(plan.rounds):
        swap = exchanged(moments.powers(A), q, order.hertz, order.told(A), plan.ties)
        A, q = np.where(swap[:, None, None], A[..., ::-1], A), np.where(swap[:, None], q[::-1], q)
        A = _independent(moments, A, plan.again, floor)
    return A, q


def _independent(moments: Moments, A: Complex, sizes: _Sizes, floor: float) -> Complex:
    """Columns (F, 2, 2) made better step by step, powers smoothed as planned."""
    for size in sizes:
        A = apart(columns_of(moments, smoothed(moments.powers(A), size, floor)))
    return A


def measured_spread(X: Spectra, A: Complex, shares: Array) -> float:
    """ε: what of a source is beside its column, where it is most alone; typical of F."""
    return _spread_of(float(np.median(_least_beside(X, A, shares))))


def _spread_of(beside: float) -> float:
    """ε where so much of a source is beside its column."""
    return min(max(_WIDER * beside, _LEAST_SPREAD), _MOST_SPREAD)


def _least_beside(X: Spectra, A: Complex, shares: Array) -> Array:
    """What of each source (M, F, 1) is beside its column, where it is most alone."""
    alone = np.where(shares > 0.5, beside(X, A), 1)
    counts = np.maximum((alone < 1).sum(axis=2), 1)
    rank = (_ALONE * (counts - 1)).astype(np.intp)
    return np.take_along_axis(np.sort(alone, axis=2), rank[..., None], axis=2)
