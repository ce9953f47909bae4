"""Two who stand in a room, taken apart by filters as long as the room answers.

In a room a source reaches the ears over many ways. Windows that hold most of them tell filters that
cancel more, but what is made of a window is heard when it has ended. So long windows only tell the
filters, which are then applied to the samples themselves (`earatlas.live.firs`): all of the past
that they ask for, and of the future what the delay of the stream has.

In: hops (2, hop) of a stream, and to begin with, shares of two tracks that shorter windows parted.
Out: hops of what the first of the two puts into both ears; the rest is the other's.

    H = a_1 w_1ᵀ        A = (a_1, a_2) columns, w_1 the first row of A⁻¹; (F, 2, 2)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from earatlas.live.bank import Bank, WindowStream
from earatlas.live.columns import Columns, Looking
from earatlas.live.firs import Firs, taps_of
from earatlas.separation.sound.two_by_two import inverse
from earatlas.types import Array, Complex, Indices

__all__ = ["Lasting"]

_LONG = (9, 3)  # as in a recording (`earatlas.separation.sound.spatial`)
_FRAMES_A_WINDOW = 8
# Updates, about 5 s. Six pairs in rooms had 11.3 dB with 2.5 s of them, 12.2 with 5 s.
_BEGINS = 14


class Lasting:
    """Long filters for a pair of tracks that stand."""

    def __init__(self, bank: Bank, highest_hertz: float, window_hops: int) -> None:
        """For a stream in the windows of a bank; masks tell of frequencies up to the highest."""
        long = replace(bank, window_hops=window_hops, heard_hops=window_hops)
        stride = max(window_hops // _FRAMES_A_WINDOW, 1)
        looking = Looking(stride, (_LONG,) * 3, (_LONG,), _BEGINS)
        self._windows = WindowStream(long)
        self.columns = Columns(long, highest_hertz, looking)
        self._before = bank.heard - bank.hop
        self._firs = Firs(bank.hop, self._before + long.window // 2)
        # The middle of a long window is so many hops before that of what is heard of another.
        self._lag = (window_hops - bank.heard_hops) // 2

    @property
    def ready(self) -> bool:
        """Whether there are filters for the pair of the last update."""
        return self.columns.A is not None

    def hear(self, x: Array) -> None:
        """Take in a hop (2, hop)."""
        self._windows.hear(x)
        self._firs.hear(x)
        if self.columns.due():
            self.columns.keep(self._windows.spectra()[:, 1:])

    def sound(self) -> Array:
        """(2, hop) of the first of the pair, that the last hop completes."""
        return self._firs.sound()

    def forget(self, alive: Sequence[int]) -> None:
        """Drop what was known of tracks that are dead."""
        self.columns.forget(alive)

    def update(self, ids: Sequence[int], shorter: Columns | None, moved: float) -> None:
        """Filters for two tracks; with shorter windows that have parted them, from these anew."""
        q = None if shorter is None else self._begun(shorter)
        self.columns.update(ids, q, moved)
        A = self.columns.A
        if A is not None:
            self._firs.change(taps_of(self._filters(A), self._before))

    def _begun(self, shorter: Columns) -> Array:
        """Shares (2, F, T) in the long frames: those of the frames and frequencies nearest."""
        columns = _nearest(shorter.kept_hops, self.columns.kept_hops - self._lag)
        rows = _nearest(shorter.hertz, self.columns.hertz)
        return shorter.shares()[:, rows][:, :, columns]

    def _filters(self, A: Complex) -> Complex:
        """H (F + 1, 2, 2) of spectra as they are."""
        ears = self.columns.ears.T
        W = inverse(A)
        H = A[:, :, :1] * W[:, :1, :] * ears[:, :, None] / ears[:, None, :]
        return np.concatenate([0.5 * np.eye(2, dtype=np.complex128)[None], H])


def _nearest(values: Array | Indices, wanted: Array | Indices) -> Indices:
    """The rows of sorted values that are nearest to those wanted."""
    after = np.clip(np.searchsorted(values, wanted), 1, len(values) - 1)
    closer = wanted - values[after - 1] <= values[after] - wanted
    return np.asarray(after - closer, dtype=np.intp)
