"""Each track by itself, a frame at a time: filters that use both ears.

In: spectra of a stream, a frame at a time, and a mask a track. Out: what each track puts into both
ears; they add up to what was heard. As in a recording (`earatlas.separation.demixing.spatial_filtering`), two
sources are cancelled against each other by their columns (`earatlas.streaming.online_steering`), then a Wiener
filter shares out the rest; more than two take the Wiener filter alone.

    x (2, F) a frame    q (M, F) its masks    v (M, F, 1) powers    A (F, 2, M) columns of length 1
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from earatlas.features.stft import squared_size
from earatlas.separation.demixing.frames import FLOOR
from earatlas.separation.demixing.permutation_alignment import FINE
from earatlas.separation.demixing.steering_vectors import wiener
from earatlas.streaming.expected_cues import Expected
from earatlas.streaming.filterbank import Bank
from earatlas.streaming.online_steering import Columns, Looking
from earatlas.types import Array, Complex

__all__ = ["Filters"]

# As for a recording (`earatlas.separation.demixing.spatial_filtering`), where each has its meaning and evidence.
_BROAD, _NARROW, _LASTING = (65, 3), (5, 3), (5, 5)
_DOUBT, _LEAK = 0.1, 0.02
_ACTIVITY_SECONDS = 0.25
_BEGINS = 10  # updates, about 3 s
# Between frames that tell columns in the open. Eight pairs whose places were told, by filters that
# begin with them: 32.4 dB from all of them, 32.9 from every second (and half the early updates).
_OPEN_SECONDS = 0.032


def _looking(bank: Bank, in_room: bool) -> Looking:
    """How columns are looked for.

    Windows tell hardly more of a source each hop than each quarter of them. In rooms, finer ties
    gained 0.5, 1.1 and 0.2 dB, and of five more pairs nothing (cipic_021 and kemar_full, T60 0.22
    to 0.4 s).
    """
    if in_room:
        stride = max(bank.window_hops // 4, 1)
        plan = (_BROAD, _BROAD, _LASTING, _LASTING)
        return Looking(stride, plan, (_LASTING,), _BEGINS, measured=True, named=True, ties=FINE)
    plan = (_BROAD, _BROAD, _NARROW, _NARROW)
    stride = max(round(_OPEN_SECONDS / bank.hop_seconds), 1)
    return Looking(stride, plan, (_NARROW,), _BEGINS, measured=True, named=True)


class Filters:
    """Filters for the tracks of a stream."""

    def __init__(self, bank: Bank, mask_hertz: Array, *, in_room: bool = False) -> None:
        self._bank = bank
        self.columns = Columns(bank, mask_hertz, _looking(bank, in_room))
        F = len(self.columns.hertz)
        self._unmixing: Complex = np.zeros((F, 2, 2), dtype=np.complex128)
        self._lengths = np.ones((F, 2, 1))
        self._activity: dict[int, float] = {}

    def hear(self, spectra: Complex) -> None:
        """Take in a frame (2, F + 1)."""
        if self.columns.due():
            self.columns.keep(spectra[:, 1:])

    def images(self, spectra: Complex, masks: Array) -> Complex:
        """(M, 2, F + 1) of a frame (2, F + 1); masks (M, mask frequencies) of the ids."""
        M, A = len(self.columns.ids), self.columns.A
        if M <= 1 or A is None:
            return np.repeat(spectra[None] / max(M, 1), M, axis=0)
        ears = self.columns.ears
        X = (spectra[:, 1:] / ears)[..., None]
        power = squared_size(X).sum(axis=0)
        floor = FLOOR * float(power.max()) + 1e-30
        v = self._powers(X, masks[:, self.columns.row, None], power, floor)
        out = np.empty((M, *spectra.shape), dtype=np.complex128)
        out[:, :, 1:] = wiener(X, A, v, self.columns.spread)[..., 0] * ears
        out[:, :, 0] = spectra[:, 0] / M
        return out

    def update(
        self,
        ids: Sequence[int],
        masks: Array | None,
        moved: float,
        expected: Expected | None = None,
    ) -> None:
        """Columns for these tracks (`Columns.update`); masks (M, mask frequencies, T)."""
        q = None if masks is None else masks[:, self.columns.row]
        self.columns.update(ids, q, moved, expected)
        A = self.columns.A
        if len(ids) == 2 and A is not None:
            self._unmixing = np.asarray(np.linalg.inv(A), dtype=np.complex128)
            self._lengths = squared_size(A).sum(axis=1)[..., None]

    def forget(self, alive: Sequence[int]) -> None:
        """Drop what was known of tracks that are dead."""
        self._activity = {i: a for i, a in self._activity.items() if i in alive}
        self.columns.forget(alive)

    def _powers(self, X: Complex, q: Array, power: Array, floor: float) -> Array:
        """v (M, F, 1): between what masks and what filters say."""
        told, pair = self.columns.told, len(self.columns.ids) == 2
        if pair:
            q = np.where(self.columns.swapped[:, None], q[::-1], q)
        heard = (q[:, :told] * power[:told]).sum(axis=(1, 2))
        doubt = _DOUBT * self._active(heard)[:, None, None]
        likely = q + doubt
        if pair:
            own = self._own_powers(X)
            shares = own / (own.sum(axis=0) + floor)
            if told < len(power):
                envelopes = own[:, :told].sum(axis=1)
                upper = envelopes / max(float(envelopes.sum()), 1e-300)
                likely[:, told:] = upper[:, None] + doubt
            likely = np.sqrt(likely * (shares + _LEAK))
        return likely * power + floor

    def _own_powers(self, X: Complex) -> Array:
        """Of one frame, with columns that were inverted when they were found."""
        y = self._unmixing @ X.transpose(1, 0, 2)  # (F, 2, 1)
        own: Array = (squared_size(y) * self._lengths).transpose(1, 0, 2)
        return own

    def _active(self, heard: Array) -> Array:
        """(M,) how much each is heard lately, from 0 to 1."""
        ids = self.columns.ids
        fade = float(np.exp(-self._bank.hop_seconds / _ACTIVITY_SECONDS))
        for i, own in zip(ids, heard, strict=True):
            self._activity[i] = fade * self._activity.get(i, 0.0) + (1 - fade) * float(own)
        recent = np.array([self._activity[i] for i in ids])
        share = recent / max(float(recent.sum()), 1e-300)
        return np.clip((share - 0.01) / 0.09, 0.0, 1.0)
