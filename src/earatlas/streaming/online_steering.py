"""How the tracks of a stream reach the ears: columns from its last seconds, what is older fades.

In: frames of a stream, and masks of the last of them where tracks are new. Out: columns, and how
much of a source is beside them. The steps are those of a recording
(`earatlas.separation.demixing.spatial_filtering`): two sources begin with the strongest directions of their
masks, and independence improves them. Here the frames are those of the last seconds:

    V_m = Σ_recent x xᴴ / v_m + past_m        v_m powers by the newest columns
    past ← fade past + (x xᴴ / v_m of what is recent no longer)

Bands in which no cue was learned (above the head's rate) have no masks: there v_m is how strong the
track is in the frame, as the bands below tell.

    X (2, F, T) recent frames    q (M, F, T) masks    A (F, 2, M) columns of length 1
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from earatlas.features.stft import squared_size
from earatlas.separation.demixing.frames import FLOOR
from earatlas.separation.demixing.permutation_alignment import Ties, exchanged
from earatlas.separation.demixing.spatial_filtering import measured_spread
from earatlas.separation.demixing.steering_vectors import (
    Moments,
    apart,
    columns_of_pair,
    principal,
    smoothed,
)
from earatlas.streaming.expected_cues import Expected
from earatlas.streaming.filterbank import Bank
from earatlas.streaming.recent_frames import Recent
from earatlas.types import Array, Complex, Indices, Mask

__all__ = ["MORE", "RECENT_SECONDS", "STANDING", "Columns", "Looking"]

MORE = 3e-3  # ε of more than two sources, as in a recording
# Of what was known of two, that their motion makes void between updates: with more they walk.
STANDING = 0.1
_Sizes = Sequence[tuple[int, int]]
_SPREAD_HERTZ = 1000.0
# Whose powers follow the newest columns; memory and time grow with it. Six pairs in the open whose
# places were told had 26.6 dB with 3 s, after which what was older counted 1/e in 8 s; with 6 s and
# 60 s 27.8, 6 s alone 27.8: columns of before make the frames count most that fitted them.
RECENT_SECONDS = 6.0
# Of streams alone, set by hand on cipic_021 and kemar_full.
_PAST_SECONDS = 60.0  # after which what is older counts 1/e
_LEVEL_SECONDS = 10.0  # over which the level of an ear is a mean: slower than words and pauses
_FEWEST_FRAMES = 8  # four times the two unknowns of a column
# Of what was known, that a motion must make void until what was heard before it is not used after
# it. With a tenth (all that is not standing) six pairs of ku100 in the open lost 0.4 dB, where one
# is taken for a walker for a moment. At T60 0.3 s a track that went from one talker to the other
# costs one pair of twelve 8 dB with either.
_WALKED = 0.6
# Updates of a pair after which a sound stays with its name, whatever masks say: on one cone of a
# room they took one for the other now and then, in 12 of 52 pairs in rooms, up to four times. To
# exchange the places once masks insist (four updates in a row) was right in three pairs on one
# cone, and wrong in three others of 40: it is not done.
_FIRST_ORDERS = 2
_MOVING_FRAMES = 12.0  # that are used while all that was known is void: 0.2 s


@dataclass(frozen=True)
class Looking:
    """How columns are looked for."""

    stride: int  # hops from one frame that is kept to the next
    anew: _Sizes  # bins and frames that powers are smoothed over, in each step from masks
    again: _Sizes  # and in those from columns that are known
    begins: int  # updates of a pair that are from masks anew
    measured: bool = False  # whether ε is asked for
    named: bool = False  # whether a sound stays with its name, whatever masks say
    ties: Ties = field(default_factory=Ties)  # by which frequencies are put in order


@dataclass(eq=False)
class _Pair:
    """How two tracks reach the ears."""

    columns: Complex  # (F, 2, 2)
    past: Complex  # (2, F, 2, 2)
    ears: Array  # (2, F) levels in whose units both are
    swapped: Mask  # (F,) where the masks take one for the other
    updates: int = 0
    updated: int = 0  # hops of the stream that were heard by then

    def in_units_of(self, ears: Array) -> None:
        """The same with other levels of the ears."""
        change = (self.ears / ears).T  # (F, 2)
        self.columns = _unit(change[:, :, None] * self.columns)
        self.past = change[:, :, None] * change[:, None, :] * self.past
        self.ears = ears


def _unit(columns: Complex) -> Complex:
    length = np.sqrt(squared_size(columns).sum(axis=1, keepdims=True))
    scaled: Complex = columns / length
    return scaled


class Columns:
    """The columns of a stream's tracks, in windows of one kind."""

    def __init__(self, bank: Bank, mask_hertz: Array, looking: Looking) -> None:
        """Masks tell of frequencies `mask_hertz`, which are evenly spaced."""
        self._bank, self._looking = bank, looking
        self.hertz = bank.hertz[1:]
        F = len(self.hertz)
        self.told = int(np.searchsorted(self.hertz, mask_hertz[-1], side="right"))  # frequencies
        nearest = np.round(self.hertz / (mask_hertz[1] - mask_hertz[0])).astype(np.intp) - 1
        self.row: Indices = np.clip(nearest, 0, len(mask_hertz) - 1)  # (F,) of the masks
        self._length = round(RECENT_SECONDS / (looking.stride * bank.hop_seconds))
        low = max(int(np.searchsorted(self.hertz, _SPREAD_HERTZ)), 1) if looking.measured else 0
        self._frames = Recent(F, self._length, low)
        self._power = np.zeros((2, F))  # of either ear, lately
        self._hops = 0
        self._unused = 0  # frames since the last update
        self._still_since = 0  # hops by when who is heard last moved
        self._void = 0.0  # of what was known when a motion began, that it has made void by now
        self._pairs: dict[tuple[int, ...], _Pair] = {}
        self.ids: tuple[int, ...] = ()
        self.ears = np.ones((2, F))  # levels in whose units the columns are
        self.A: Complex | None = None  # of the tracks `ids`; None: too little was heard
        self.spread = MORE  # ε

    def due(self) -> bool:
        """Count one more hop; whether its frame is one to `keep`."""
        self._hops += 1
        return self._hops % self._looking.stride == 0

    def keep(self, x: Complex) -> None:
        """Take in the frame (2, F) of a hop."""
        self._frames.keep(x)
        self._unused += 1
        seconds = self._looking.stride * self._bank.hop_seconds
        fade = float(np.exp(-seconds / _LEVEL_SECONDS))
        self._power = fade * self._power + (1 - fade) * squared_size(x)

    def kept_of(self, hops: int) -> Indices:
        """Which of the last hops, the oldest first, are kept."""
        number = self._hops - np.arange(hops - 1, -1, -1)
        return np.flatnonzero(number % self._looking.stride == 0)

    @property
    def kept_hops(self) -> Indices:
        """(T,) the hops that the recent frames ended with, in hops before now, which is 0."""
        stride = self._looking.stride
        return -(self._hops % stride) - stride * np.arange(len(self._frames) - 1, -1, -1)

    @property
    def swapped(self) -> Mask:
        """(F,) where the masks take one of a pair for the other."""
        return self._pairs[self.ids].swapped

    def needs_masks(self, ids: Sequence[int]) -> bool:
        """Whether an update for these tracks needs masks of the recent frames."""
        known = self._pairs.get(tuple(ids))
        return len(ids) > 2 or (
            len(ids) == 2 and (known is None or known.updates < self._looking.begins)
        )

    def updates(self, ids: Sequence[int]) -> int:
        """How often columns of a pair were looked for."""
        known = self._pairs.get(tuple(ids))
        return 0 if known is None else known.updates

    def move(self, moved: float) -> None:
        """Who is heard has moved, so that `moved` (0 to 1) of what was known is void.

        One who stands is taken for a walker for a moment now and then: it must go on until
        what was heard before tells nothing any more.
        """
        self._void = 1 - (1 - self._void) * (1 - moved) if moved > STANDING else 0.0
        if self._void > _WALKED:
            self._still_since = self._hops

    def forget(self, alive: Sequence[int]) -> None:
        """Drop what was known of tracks that are dead."""
        self._pairs = {ids: pair for ids, pair in self._pairs.items() if set(ids) <= set(alive)}

    def update(
        self, ids: Sequence[int], q: Array | None, moved: float, expected: Expected | None = None
    ) -> None:
        """Columns for these tracks; q (M, F, T) of the recent frames.

        Without masks, those of a pair that is known are improved. `moved`, from 0 to 1, is how
        much of what was known their motion has made void. What is expected of a pair, at
        the masks' frequencies, tells which is which.
        """
        self.ids = tuple(ids)
        # Frames from before a motion tell of other places.
        self.move(moved)
        recent = (self._hops - self._still_since) // self._looking.stride
        if moved > 0:
            fewer = round(_MOVING_FRAMES / (self._looking.stride * moved))
            recent = fewer if moved > STANDING else min(recent, fewer)
        recent = min(len(self._frames), max(recent, _FEWEST_FRAMES))
        T = recent if q is None else min(q.shape[-1], recent)
        if len(ids) < 2 or T < _FEWEST_FRAMES:
            self.A, self._unused = None, 0
            return
        ears = np.sqrt(self._power)
        self.ears = np.maximum(ears, 1e-6 * float(ears.max()) + 1e-12)
        moments = self._frames.moments(T, self.ears)
        own: Array | None = None if q is None else np.asarray(q[..., -T:], dtype=np.float32)
        if len(ids) == 2:
            self.A = self._pair(moments, own, moved, expected)
            self.spread = self._spread(moments, self.A) if self._looking.measured else 0.0
        elif own is not None:
            self.A, self.spread = principal(moments.covariances(own**2)), MORE
        self._unused = 0

    def anew(self) -> Columns:
        """The same frames, of which no pair is known yet."""
        other = copy.copy(self)
        other._pairs, other._still_since, other._void = {}, 0, 0.0
        return other

    def heard(self) -> Complex:
        """Φ (F + 1, 2, 2) covariances of the frames that are kept, from 0 Hz on."""
        T = len(self._frames)
        moments = self._frames.moments(T, np.ones_like(self.ears))
        (Phi,) = moments.covariances(np.full((1, len(self.hertz), T), 1 / T))
        return np.concatenate([Phi[:1], Phi])

    def shares(self) -> Array:
        """(2, F, T) of a pair in all frames that are kept."""
        assert self.A is not None
        moments = self._frames.moments(len(self._frames), self.ears)
        return _shares(moments.powers(self.A), _floor(moments))

    def _pair(
        self, moments: Moments, q: Array | None, moved: float, expected: Expected | None
    ) -> Complex:
        """Columns of two sources; masks q (2, F, T) where they are to begin anew."""
        F, _, T = moments.values.shape
        known, looking, floor = self._known_pair(F), self._looking, _floor(moments)
        old = (self._hops - known.updated) * self._bank.hop_seconds  # others may have been heard
        known.past *= (1 - moved) * np.exp(-old / _PAST_SECONDS)
        A = known.columns
        if q is not None:  # what few frames told may have been wrong: from the masks anew
            known.past[:] = 0
            A = apart(principal(moments.covariances(q**2)))
            A = self._independent(moments, A, looking.anew, known.past, floor)
            order = 0.0 if expected is None else expected.at(self.row).order(A, self.ears)
            swap = self._exchanged(moments.powers(A), q, order)
            ordered = looking.named and known.updates >= _FIRST_ORDERS
            turned = ordered and _are_turned(moments, A, swap, known.columns)
            known.swapped = swap ^ turned
            A = np.where(known.swapped[:, None, None], A[..., ::-1], A)
        A = self._independent(moments, A, looking.again, known.past, floor)
        known.columns, known.updated = A, self._hops
        # Who walks begins anew, and goes on when it stands.
        known.updates = 0 if self._void > _WALKED else known.updates + (moved == 0)
        if self._length == T and self._unused:  # the first frames of all are the next to go
            v = self._smoothed(moments.powers(A), looking.again[-1], floor)
            leaving = slice(0, self._unused)
            known.past += Moments(moments.values[..., leaving]).covariances(1 / v[..., leaving])
        return A

    def _spread(self, moments: Moments, A: Complex) -> float:
        """ε, from the lower frequencies."""
        T, low = moments.values.shape[-1], slice(None, self._frames.low)
        shares = _shares(Moments(moments.values[low]).powers(A[low]), _floor(moments))
        return measured_spread(self._frames.lower(T, self.ears), A[low], shares)

    def _known_pair(self, F: int) -> _Pair:
        """What is known of the two that are heard, in the units of now."""
        known = self._pairs.get(self.ids)
        if known is None:
            A = np.tile(np.eye(2, dtype=np.complex128), (F, 1, 1))
            nothing = np.zeros((2, F, 2, 2), dtype=np.complex128)
            known = _Pair(A, nothing, self.ears, np.zeros(F, dtype=bool))
            self._pairs[self.ids] = known
        known.in_units_of(self.ears)
        return known

    def _independent(
        self, moments: Moments, A: Complex, plan: _Sizes, past: Complex, floor: float
    ) -> Complex:
        """Columns (F, 2, 2) made better step by step, powers smoothed as planned."""
        for size in plan:
            v = self._smoothed(moments.powers(A), size, floor)
            A = apart(columns_of_pair((moments.covariances(1 / v) + past) / v.shape[-1]))
        return A

    def _exchanged(self, v: Array, q: Array, order: Array | float) -> Mask:
        """(F,) where two sources came out exchanged; above what masks tell, nowhere."""
        told = slice(None, self.told)
        swap = np.zeros(v.shape[1], dtype=bool)
        known = np.broadcast_to(order, swap.shape)[told]
        ties = self._looking.ties
        swap[told] = exchanged(v[:, told], q[:, told], self.hertz[told], known, ties)
        return swap

    def _smoothed(self, v: Array, size: tuple[int, int], floor: float) -> Array:
        """v (2, F, T) smoothed; above what is told, those of the bands below, at their level."""
        told = self.told
        out = smoothed(v[:, :told], size, floor)
        if told == v.shape[1]:
            return out
        level = v[:, :told].mean(axis=2, keepdims=True) + floor
        envelopes = (v[:, :told] / level).mean(axis=1)
        envelopes = envelopes + 1e-3 * envelopes.mean(axis=1, keepdims=True) + 1e-30
        upper = v[:, told:].mean(axis=2, keepdims=True) * envelopes[:, None] + floor
        return np.concatenate([out, upper], axis=1)


def _are_turned(moments: Moments, A: Complex, swap: Mask, before: Complex) -> bool:
    """Whether columns A, exchanged where `swap` says so, have the two sounds of before in turn."""
    now, then = (_shares(moments.powers(columns), 1e-30)[0] for columns in (A, before))
    now = np.where(swap[:, None], 1 - now, now)
    power = moments.values[:, 0] + moments.values[:, 1]
    return float((power * (2 * now - 1) * (2 * then - 1)).sum()) < 0


def _floor(moments: Moments) -> float:
    return FLOOR * float((moments.values[:, 0] + moments.values[:, 1]).max()) + 1e-30


def _shares(v: Array, floor: float) -> Array:
    shares: Array = v / (v.sum(axis=0) + floor)
    return shares
