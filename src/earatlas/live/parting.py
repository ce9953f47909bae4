"""The sounds of a stream's tracks, a hop at a time: windows, filters, and sound again.

In a room a source reaches the ears over many ways, and long windows hold more of them; in the open
they lose (`earatlas.separation.sound.spatial`). Which it is shows after a while. Windows of both
kinds are heard in the same last samples and add up to 1 there, so that a stream can go from one
kind to the other between two hops; filters then begin again from the last seconds, which are kept.

    x (2, hop) samples    masks (M, F) of a frame    sounds (M, 2, hop), `heard` samples later
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from earatlas.live.bank import Bank, OverlapAdd, WindowStream
from earatlas.live.filters import RECENT_SECONDS, Filters
from earatlas.types import Array, Complex, Indices

__all__ = ["LOW", "USUAL", "Delay", "Parting"]


@dataclass(frozen=True)
class Delay:
    """Windows for one delay."""

    hop_seconds: float
    window_hops: int
    room_hops: int  # windows in a room
    heard_hops: int


# In rooms, two talkers at T60 0.2 to 0.45 s (three scenes of cipic_021 and kemar_full): 7.4 dB with
# 7 hops, 10.1 with 16, 9.6 with 24, 8.0 with 32. In the open 26.8 with 7 and 23.2 with 16 (two).
USUAL = Delay(0.016, 7, 16, 7)
LOW = Delay(0.008, 8, 32, 3)


class Parting:
    """Takes the tracks of a stream apart."""

    def __init__(self, rate: int, delay: Delay, mask_hertz: Array, sources: int) -> None:
        self._delay, self._mask_hertz = delay, mask_hertz
        self.bank = Bank.of(
            rate,
            hop_seconds=delay.hop_seconds,
            window_hops=delay.window_hops,
            heard_hops=delay.heard_hops,
        )
        self.in_room = False
        self._windows, self._adder = WindowStream(self.bank), OverlapAdd(self.bank, sources)
        self.filters = Filters(self.bank, mask_hertz)
        count = round(RECENT_SECONDS / self.bank.hop_seconds) + delay.room_hops
        self._past: deque[Array] = deque(maxlen=count)

    def push(self, x: Array, masks: Array, rows: Sequence[int], sources: int) -> Array:
        """Sounds (sources, 2, hop); `rows` are the places of the masks among the sources."""
        self._past.append(x)
        images = self.filters.push(self._windows.push(x), masks)
        spectra = np.zeros((sources, 2, images.shape[-1]), dtype=np.complex128)
        spectra[list(rows)] = images
        return self._adder.push(spectra)

    def clear(self, row: int) -> None:
        """Forget what waits of one sound: its place is another's."""
        self._adder.clear(row)

    def enter(self, in_room: bool) -> None:
        """Go on with the windows of a room, or of the open."""
        delay = self._delay
        hops = delay.room_hops if in_room else delay.window_hops
        self.in_room, self.bank = in_room, replace(self.bank, window_hops=hops)
        self._windows, self._adder = WindowStream(self.bank), self._adder.with_bank(self.bank)
        self.filters = Filters(self.bank, self._mask_hertz, in_room=in_room)
        for x in self._past:
            self.filters.hear(self._windows.push(x))

    def kept(self, frames: Sequence[Complex]) -> Complex:
        """Of the mask's frames of the last hops, those of the hops whose spectra are kept."""
        rows: Indices = self.filters.kept_of(len(frames))
        return np.concatenate([frames[i] for i in rows], axis=-1)
