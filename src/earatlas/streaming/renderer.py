"""The sounds of a stream's tracks, a hop at a time: windows, filters, and sound again.

In a room a source reaches the ears over many ways, and long windows hold more of them; in the open
they lose (`earatlas.separation.demixing.spatial_filtering`). Which it is shows after a while. Windows of both
kinds are heard in the same last samples and add up to 1 there, so that a stream can go from one
kind to the other between two hops; filters then begin again from the last seconds, which are kept.

Two who stand are taken apart by filters that are applied to the samples themselves, once they have
been parted by windows (`earatlas.streaming.fir_demixing`); while they are, nothing is made of the windows.

    x (2, hop) samples    masks (M, F) of a frame    sounds (M, 2, hop), `heard` samples later
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from earatlas.streaming.expected_cues import Expected
from earatlas.streaming.filterbank import Bank, OverlapAdd, WindowStream
from earatlas.streaming.fir_demixing import Lasting
from earatlas.streaming.online_demixing import Filters
from earatlas.streaming.online_steering import RECENT_SECONDS, STANDING
from earatlas.types import Array, Complex, Indices

__all__ = ["LOW", "USUAL", "Delay", "Parting"]


@dataclass(frozen=True)
class Delay:
    """Windows for one delay."""

    hop_seconds: float
    window_hops: int
    room_hops: int  # windows in a room
    heard_hops: int
    lasting_hops: int  # windows that tell long filters in a room
    open_hops: int  # and in the open

    def bank(self, rate: int) -> Bank:
        """Its windows of the open."""
        return Bank.of(
            rate,
            hop_seconds=self.hop_seconds,
            window_hops=self.window_hops,
            heard_hops=self.heard_hops,
        )

    def long_filters(self, bank: Bank, mask_hertz: Array, *, in_room: bool) -> Lasting:
        """New ones, for masks of frequencies `mask_hertz`."""
        hops = self.lasting_hops if in_room else self.open_hops
        return Lasting(bank, mask_hertz, hops, in_room=in_room)


# In rooms, two talkers at T60 0.2 to 0.45 s (three scenes of cipic_021 and kemar_full): 7.4 dB with
# 7 hops, 10.1 with 16, 9.6 with 24, 8.0 with 32. In the open 26.8 with 7 and 23.2 with 16 (two).
# Six of them whose places were told: 9.9 dB in windows of 16, 12.2 by long filters from windows of
# 24; with low delay 7.6 and 7.9. `separate` had 15.0. Since filters are fitted to the delay
# (`earatlas.streaming.fir_filters`), twelve such pairs have the same 13.0 dB from windows of 24 and of 32, in
# the ninth second 13.5 and 14.2; with low delay 9.6 from windows of 48 and 9.5 of 64. In the open
# (`earatlas.streaming.fir_demixing`) windows of 128 ms tell filters best: 31.3 dB, of 192 ms 30.4 and of
# 256 ms 28.6 (seven pairs, told too).
USUAL = Delay(0.016, 7, 16, 7, 32, 8)
LOW = Delay(0.008, 8, 32, 3, 48, 16)


class Parting:
    """Takes the tracks of a stream apart."""

    def __init__(self, rate: int, delay: Delay, mask_hertz: Array, sources: int) -> None:
        self._delay, self._mask_hertz, self._sources = delay, mask_hertz, sources
        self.bank = delay.bank(rate)
        self.in_room = False
        self._windows, self._adder = WindowStream(self.bank), OverlapAdd(self.bank, sources)
        self._framed = 0  # hops in a row that were taken apart in windows
        self.filters = Filters(self.bank, mask_hertz)
        self._lasting = self._lasting_of(in_room=False)
        self._stands = False  # whether the long filters are those of the tracks that are heard
        self._heard_by: Lasting | None = None  # None: all that is heard was made in windows
        # Rows of the two that are heard by long filters; None: it is dead.
        self._pair: tuple[int | None, int | None] = (None, None)
        count = round(RECENT_SECONDS / self.bank.hop_seconds) + delay.lasting_hops
        self._past: deque[Array] = deque(maxlen=count)

    @property
    def by_windows(self) -> bool:
        """Whether the next hop is taken apart in windows, for which it needs masks."""
        return not self._stands or self._heard_by is not self._lasting

    @property
    def missed(self) -> float | None:
        """ε of two sources in windows of the open; None where there is no such pair."""
        columns = self.filters.columns
        pair = len(columns.ids) == 2 and columns.A is not None
        return columns.spread if pair and not self.in_room else None

    def push(self, x: Array, masks: Array | None, rows: Sequence[int]) -> Array:
        """Sounds (sources, 2, hop); `rows` are the places of the masks (M, F) among the sources."""
        self._past.append(x)
        self._windows.hear(x)
        for lasting in _different(self._lasting, self._heard_by):
            lasting.hear(x)
        if masks is None:
            self._framed = 0
            if self.filters.columns.due():
                self.filters.columns.keep(self._windows.spectra()[:, 1:])
            return self._filtered()
        spectra = self._windows.spectra()
        self.filters.hear(spectra)
        return self._in_turn(self._framed_sounds(spectra, masks, rows))

    def _in_turn(self, framed: Array) -> Array:
        """What was made in windows (sources, 2, hop), or by long filters, or between the two."""
        if self._stands:  # from windows, or from the filters of the open to those of a room
            before = framed if self._heard_by is None else self._filtered()
            self._heard_by = self._lasting
            return _faded(before, self._filtered())
        if self._heard_by is None:
            return framed
        filtered = self._filtered()
        if self._framed <= self.bank.heard_hops:  # not all windows are there that add up
            return filtered
        self._heard_by = None
        return _faded(filtered, framed)

    def _framed_sounds(self, spectra: Complex, masks: Array, rows: Sequence[int]) -> Array:
        if not self._framed:
            self._adder = OverlapAdd(self.bank, self._sources)
        self._framed += 1
        images = np.zeros((self._sources, *spectra.shape), dtype=np.complex128)
        images[list(rows)] = self.filters.images(spectra, masks)
        return self._adder.push(images)

    def _filtered(self) -> Array:
        """By long filters: one of the pair, and what it leaves."""
        assert self._heard_by is not None
        first = self._heard_by.sound()
        rest = self._past[-self.bank.heard_hops] - first
        sounds = np.zeros((self._sources, 2, self.bank.hop))
        for row, sound in zip(self._pair, (first, rest), strict=True):
            if row is not None:
                sounds[row] = sound
        return sounds

    def clear(self, row: int) -> None:
        """Forget what waits of one sound: its place is another's."""
        self._adder.clear(row)
        if row in self._pair:
            first, second = self._pair
            self._pair = (None if first == row else first, None if second == row else second)
            self._stands = False

    def forget(self, alive: Sequence[int]) -> None:
        """Drop what was known of tracks that are dead."""
        self.filters.forget(alive)
        self._lasting.forget(alive)

    def enter(self, in_room: bool) -> None:
        """Go on with the windows of a room, or of the open."""
        delay = self._delay
        hops = delay.room_hops if in_room else delay.window_hops
        self.in_room, self.bank = in_room, replace(self.bank, window_hops=hops)
        self._windows, self._adder = WindowStream(self.bank), self._adder.with_bank(self.bank)
        self.filters = Filters(self.bank, self._mask_hertz, in_room=in_room)
        self._lasting = self._lasting_of(in_room=in_room)
        self._stands = False
        for x in self._past:
            self.filters.hear(self._windows.push(x))
            self._lasting.hear(x)

    def _lasting_of(self, *, in_room: bool) -> Lasting:
        return self._delay.long_filters(self.bank, self._mask_hertz, in_room=in_room)

    def needs_masks(self, ids: Sequence[int]) -> bool:
        """Whether an update for these tracks needs masks of the recent frames."""
        return any(part.columns.needs_masks(ids) for part in (self.filters, self._lasting))

    def updates(self, ids: Sequence[int]) -> int:
        """How often filters of these tracks were looked for; of more than two, not counted."""
        return max(part.columns.updates(ids) for part in (self.filters, self._lasting))

    def kept(self, frames: Sequence[Complex]) -> Complex:
        """Of the mask's frames of the last hops, those of the hops whose spectra are kept."""
        rows: Indices = self.filters.columns.kept_of(len(frames))
        return np.concatenate([frames[i] for i in rows], axis=-1)

    def update(
        self,
        tracks: Mapping[int, int],
        masks: Array | None,
        moved: float,
        expected: Expected | None = None,
    ) -> None:
        """New filters for tracks, by name with their rows; the rest as for `Filters.update`."""
        ids, lasting = list(tracks), self._lasting
        stood, self._stands = self._stands, False
        if masks is not None or not stood:
            self.filters.update(ids, masks, moved, expected)
        if len(ids) != 2:
            return
        rows = (tracks[ids[0]], tracks[ids[1]])
        if self._heard_by is lasting and rows != self._pair:
            return  # first windows take over: filters change over a hop, and rows at once
        if moved > STANDING:
            lasting.forget([])
            lasting.columns.move(moved)
        elif self.filters.columns.A is not None:
            shorter = self.filters.columns if masks is not None else None
            lasting.update(ids, shorter, moved, expected)
            self._stands = lasting.ready
            self._pair = rows


def _different(*lasting: Lasting | None) -> list[Lasting]:
    """Each once."""
    found: list[Lasting] = []
    for one in lasting:
        if one is not None and one not in found:
            found.append(one)
    return found


def _faded(one: Array, other: Array) -> Array:
    """From one to the other, over a hop."""
    rise = (np.arange(one.shape[-1]) + 0.5) / one.shape[-1]
    faded: Array = (1 - rise) * one + rise * other
    return faded
