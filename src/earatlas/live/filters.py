"""Each track by itself, hop by hop: filters that use both ears, from statistics that fade.

In: spectra of a stream, a frame at a time, and a mask a track. Out: what each track puts into both
ears; they add up to what was heard. The steps are those of a recording
(`earatlas.separation.sound.spatial`): two sources are cancelled against each other by columns a_m
that independence improves, then a Wiener filter shares out the rest; more than two take the Wiener
filter alone. Here the columns come from the last seconds, and what is older fades:

    V_m = Σ_recent x xᴴ / v_m + past_m        v_m powers by the newest columns
    past ← fade past + (x xᴴ / v_m of what is recent no longer)

Bands in which no cue was learned (above the head's rate) have no masks: there v_m is how strong the
track is in the frame, as the bands below tell.

    X (2, F, T) recent frames    q (M, F, T) masks    A (F, 2, M) columns of length 1
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from earatlas.hearing.transform import squared_size
from earatlas.live.bank import Bank
from earatlas.separation.sound.demixing import (
    Moments,
    apart,
    columns_of_pair,
    covariances,
    principal,
    smoothed,
    wiener,
)
from earatlas.separation.sound.frames import FLOOR
from earatlas.separation.sound.permutation import exchanged
from earatlas.separation.sound.spatial import measured_spread
from earatlas.types import Array, Complex, Indices, Mask

__all__ = ["RECENT_SECONDS", "Filters"]

# As for a recording (`earatlas.separation.sound.spatial`), where each has its meaning and evidence.
_BROAD, _NARROW = (65, 3), (5, 3)
_LASTING = (5, 5)
_Sizes = Sequence[tuple[int, int]]
_IN_OPEN = (_BROAD, _BROAD, _NARROW, _NARROW), (_NARROW,)  # anew, and going on
_IN_ROOM = (_BROAD, _BROAD, _LASTING, _LASTING), (_LASTING,)
_SPREAD_HERTZ = 1000.0
_MORE = 3e-3
_DOUBT, _LEAK = 0.1, 0.02
_ACTIVITY_SECONDS = 0.25
# Of streams alone. Set by hand on cipic_021 and kemar_full: what each does alone was not measured.
RECENT_SECONDS = 3.0  # whose powers follow the newest columns; memory and time grow with it
_PAST_SECONDS = 8.0  # after which what is older counts 1/e
_LEVEL_SECONDS = 10.0  # over which the level of an ear is a mean: slower than words and pauses
_ORDERED = 10  # updates (2.5 s) of a pair after which its frequencies are in order
_FEWEST_FRAMES = 8  # four times the two unknowns of a column
_MOVING_FRAMES = 12.0  # that are used while all that was known is void: 0.2 s


@dataclass(eq=False)
class _Pair:
    """How two tracks reach the ears."""

    columns: Complex  # (F, 2, 2)
    past: Complex  # (2, F, 2, 2)
    ears: Array  # (2, F) levels in whose units both are
    swapped: Mask  # (F,) where the masks take one for the other
    updates: int = 0
    updated: int = 0  # frames of the stream that were heard by then

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


class Filters:
    """Filters for the tracks of a stream."""

    def __init__(self, bank: Bank, mask_hertz: Array, *, in_room: bool = False) -> None:
        self._bank = bank
        # Long windows tell hardly more of a source each hop than each quarter of them.
        self._stride = max(bank.window_hops // 4, 1) if in_room else 1
        self._plans = _IN_ROOM if in_room else _IN_OPEN
        self._hertz = bank.hertz[1:]
        step = mask_hertz[1] - mask_hertz[0]
        row = np.round(self._hertz / step).astype(np.intp) - 1
        self._row = np.clip(row, 0, len(mask_hertz) - 1)
        self._told = int(np.searchsorted(self._hertz, mask_hertz[-1], side="right"))
        self._length = round(RECENT_SECONDS / (self._stride * bank.hop_seconds))
        F = len(self._hertz)
        self._frames: deque[Complex] = deque(maxlen=self._length)
        self._power = np.zeros((2, F))  # of either ear, lately
        self._ears = np.ones((2, F))  # levels in whose units the columns are
        self._heard = 0  # frames in all
        self._unused = 0  # frames since the last update
        self._ids: tuple[int, ...] = ()
        self._pairs: dict[tuple[int, ...], _Pair] = {}
        self._A: Complex | None = None
        self._unmixing: Complex = np.zeros((F, 2, 2), dtype=np.complex128)
        self._lengths = np.ones((F, 2, 1))
        self._spread = _MORE
        self._activity: dict[int, float] = {}

    def push(self, spectra: Complex, masks: Array) -> Complex:
        """Images (M, 2, F + 1) of a frame (2, F + 1); masks (M, mask frequencies) of the ids."""
        x = spectra[:, 1:]
        self._keep(x)
        M = len(self._ids)
        if M <= 1 or self._A is None:
            return np.repeat(spectra[None] / max(M, 1), M, axis=0)
        ears = self._ears
        X = (x / ears)[..., None]
        q = masks[:, self._row, None]
        power = squared_size(X).sum(axis=0)
        floor = FLOOR * float(power.max()) + 1e-30
        v = self._powers_of_frame(X, q, power, floor)
        images = wiener(X, self._A, v, self._spread)[..., 0] * ears
        out = np.empty((M, *spectra.shape), dtype=np.complex128)
        out[:, :, 1:] = images
        out[:, :, 0] = spectra[:, 0] / M
        return out

    def hear(self, spectra: Complex) -> None:
        """Take in a frame (2, F + 1) of before."""
        self._keep(spectra[:, 1:])

    def kept_of(self, hops: int) -> Indices:
        """Which of the last hops, the oldest first, are kept."""
        number = self._heard - np.arange(hops - 1, -1, -1)
        return np.flatnonzero(number % self._stride == 0)

    def _keep(self, x: Complex) -> None:
        self._heard += 1
        if self._heard % self._stride == 0:
            self._frames.append(x)
            self._unused += 1
        fade = float(np.exp(-self._bank.hop_seconds / _LEVEL_SECONDS))
        self._power = fade * self._power + (1 - fade) * squared_size(x)

    def _level(self) -> Array:
        ears = np.sqrt(self._power)
        return np.maximum(ears, 1e-6 * float(ears.max()) + 1e-12)

    def _powers_of_frame(self, X: Complex, q: Array, power: Array, floor: float) -> Array:
        """v (M, F, 1): between what masks and what filters say."""
        assert self._A is not None
        told = self._told
        heard = (q[:, :told] * power[:told]).sum(axis=(1, 2))
        if len(self._ids) == 2:
            swapped = self._pairs[self._ids].swapped[:, None]
            q = np.where(swapped, q[::-1], q)
        likely = q + _DOUBT * self._active(heard)[:, None, None]
        if len(self._ids) == 2:
            own = self._own_powers(X)
            shares = own / (own.sum(axis=0) + floor)
            if told < len(power):
                envelopes = own[:, :told].sum(axis=1)
                upper = envelopes / max(float(envelopes.sum()), 1e-300)
                likely[:, told:] = upper[:, None] + _DOUBT * self._active(heard)[:, None, None]
            likely = np.sqrt(likely * (shares + _LEAK))
        return likely * power + floor

    def _own_powers(self, X: Complex) -> Array:
        """`powers` of one frame, with columns that were inverted when they were found."""
        y = self._unmixing @ X.transpose(1, 0, 2)  # (F, 2, 1)
        own: Array = (squared_size(y) * self._lengths).transpose(1, 0, 2)
        return own

    def _active(self, heard: Array) -> Array:
        """(M,) how much each is heard lately, from 0 to 1."""
        fade = float(np.exp(-self._bank.hop_seconds / _ACTIVITY_SECONDS))
        for i, own in zip(self._ids, heard, strict=True):
            self._activity[i] = fade * self._activity.get(i, 0.0) + (1 - fade) * float(own)
        recent = np.array([self._activity[i] for i in self._ids])
        share = recent / max(float(recent.sum()), 1e-300)
        return np.clip((share - 0.01) / 0.09, 0.0, 1.0)

    def needs_masks(self, ids: Sequence[int]) -> bool:
        """Whether an update for these tracks needs masks of the recent frames."""
        known = self._pairs.get(tuple(ids))
        return len(ids) > 2 or (len(ids) == 2 and (known is None or known.updates < _ORDERED))

    def update(self, ids: Sequence[int], masks: Array | None, moved: float) -> None:
        """Columns for these tracks; masks (M, mask frequencies, T) of the recent frames.

        Without masks, those of a pair that is known are improved. `moved`, from 0 to 1, is how
        much of what was known their motion has made void.
        """
        self._ids = tuple(ids)
        recent = len(self._frames)
        if moved > 0:  # frames from before the motion tell of other places
            recent = min(
                recent, max(round(_MOVING_FRAMES / (self._stride * moved)), _FEWEST_FRAMES)
            )
        T = recent if masks is None else min(masks.shape[-1], recent)
        if len(ids) < 2 or T < _FEWEST_FRAMES:
            self._A, self._unused = None, 0
            return
        self._ears = self._level()
        frames = np.stack([self._frames[t] for t in range(-T, 0)], axis=-1)
        X: Complex = (frames / self._ears[..., None]).astype(np.complex128, copy=False)
        q = None if masks is None else masks[:, self._row, -T:]
        if len(ids) == 2:
            self._A, self._spread = self._pair(X, q, moved)
            self._unmixing = np.asarray(np.linalg.inv(self._A), dtype=np.complex128)
            self._lengths = squared_size(self._A).sum(axis=1)[..., None]
        elif q is not None:
            self._A, self._spread = principal(covariances(X, q**2)), _MORE
        self._unused = 0

    def forget(self, alive: Sequence[int]) -> None:
        """Drop what was known of tracks that are dead."""
        self._activity = {i: a for i, a in self._activity.items() if i in alive}
        self._pairs = {ids: pair for ids, pair in self._pairs.items() if set(ids) <= set(alive)}

    def _pair(self, X: Complex, q: Array | None, moved: float) -> tuple[Complex, float]:
        """Columns of two sources, and ε; masks q (2, F, T) where they are to begin anew."""
        known, moments = self._known_pair(X.shape[1]), Moments.of(X)
        floor = FLOOR * float(squared_size(X).sum(axis=0).max()) + 1e-30
        old = (self._heard - known.updated) * self._bank.hop_seconds  # others may have been heard
        known.past *= (1 - moved) * np.exp(-old / _PAST_SECONDS)
        A, (anew, again) = known.columns, self._plans
        if q is not None:  # what few frames told may have been wrong: from the masks anew
            A = apart(principal(moments.covariances(q**2)))
            A = self._independent(moments, A, anew, known.past, floor)
            known.swapped = swap = self._exchanged(moments.powers(A), q)
            A = np.where(swap[:, None, None], A[..., ::-1], A)
            known.past[:, swap] = known.past[::-1, swap]
        A = self._independent(moments, A, again, known.past, floor)
        known.columns, known.updates, known.updated = A, known.updates + 1, self._heard
        own = moments.powers(A)
        if X.shape[-1] == self._length:  # the first frames of all that are kept are the next to go
            leaving = slice(0, self._unused)
            v = self._smoothed(own, again[-1], floor)
            known.past += covariances(X[..., leaving], 1 / v[..., leaving])
        shares = own / (own.sum(axis=0) + floor)
        low = slice(None, max(int(np.searchsorted(self._hertz, _SPREAD_HERTZ)), 1))
        return A, measured_spread(X[:, low], A[low], shares[:, low])

    def _known_pair(self, F: int) -> _Pair:
        """What is known of the two that are heard, in the units of now."""
        known = self._pairs.get(self._ids)
        if known is None:
            A = np.tile(np.eye(2, dtype=np.complex128), (F, 1, 1))
            nothing = np.zeros((2, F, 2, 2), dtype=np.complex128)
            known = _Pair(A, nothing, self._ears, np.zeros(F, dtype=bool))
            self._pairs[self._ids] = known
        known.in_units_of(self._ears)
        return known

    def _independent(
        self, moments: Moments, A: Complex, plan: _Sizes, past: Complex, floor: float
    ) -> Complex:
        """Columns (F, 2, 2) made better step by step, powers smoothed as planned."""
        for size in plan:
            v = self._smoothed(moments.powers(A), size, floor)
            A = apart(columns_of_pair((moments.covariances(1 / v) + past) / v.shape[-1]))
        return A

    def _exchanged(self, v: Array, q: Array) -> Mask:
        """(F,) where two sources came out exchanged; above what masks tell, nowhere."""
        told = slice(None, self._told)
        swap = np.zeros(v.shape[1], dtype=bool)
        swap[told] = exchanged(v[:, told], q[:, told], self._hertz[told])
        return swap

    def _smoothed(self, v: Array, size: tuple[int, int], floor: float) -> Array:
        """v (2, F, T) smoothed; above what is told, those of the bands below, at their level."""
        told = self._told
        out = smoothed(v[:, :told], size, floor)
        if told == v.shape[1]:
            return out
        level = v[:, :told].mean(axis=2, keepdims=True) + floor
        envelopes = (v[:, :told] / level).mean(axis=1)
        envelopes = envelopes + 1e-3 * envelopes.mean(axis=1, keepdims=True) + 1e-30
        upper = v[:, told:].mean(axis=2, keepdims=True) * envelopes[:, None] + floor
        return np.concatenate([out, upper], axis=1)
