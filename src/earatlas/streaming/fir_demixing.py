"""Two who stand, taken apart by filters that are longer than windows within the delay could be.

What is made of a window is heard when it has ended. So longer windows only tell the filters, which
are then applied to the samples themselves (`earatlas.streaming.fir_filters`): all of the past that they ask
for, and of the future what the delay of the stream has. In a room a source reaches the ears over
many ways, and filters are as long as windows that hold most of them. In the open they are short:
taps far from the middle hold more of what was guessed wrong than of the head.

In: hops (2, hop) of a stream, and to begin with, shares of two tracks that shorter windows parted.
Out: hops of what the first of the two puts into both ears; the rest is the other's.

    H = a_1 w_1ᵀ        A = (a_1, a_2) columns, w_1 the first row of A⁻¹; (F, 2, 2)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.fft
import scipy.signal

from earatlas.separation.demixing.matrices_2x2 import inverse
from earatlas.separation.demixing.permutation_alignment import FINE, Ties
from earatlas.streaming.expected_cues import Expected
from earatlas.streaming.filterbank import Bank, WindowStream
from earatlas.streaming.fir_filters import Firs, fitted, taps_of
from earatlas.streaming.online_steering import Columns, Looking
from earatlas.types import Array, Complex, Indices

__all__ = ["Lasting"]

_NARROW, _LONG = (
    (5, 1),
    (9, 3),
)  # as in a recording (`earatlas.separation.demixing.spatial_filtering`)
_ROOM_FRAMES, _OPEN_FRAMES = 8, 4  # a window; 8 in the open 32.9 dB, 4 32.7 at 0.85 of the cost
# Updates, about 5 s. Six pairs in rooms had 11.3 dB with 2.5 s of them, 12.2 with 5 s.
_BEGINS = 14
# Of filters on either side, and the part of it over which they fade. Eight pairs in the open whose
# places were told (cipic_021, kemar_full): 48 ms of which a sixth fades 30.9 dB, half 31.7, all
# 32.4; 32 ms of which half fades 32.0; in windows without such filters 30.1, `separate` 34.9. Seven
# of them by all of the 128 ms of the windows 31.3, where 48 ms have 32.1.
_OPEN_SECONDS, _OPEN_FADED = 0.048, 1.0
_ROOM_FADED = 1 / 6
# Of fitting taps to the future that is heard. Twelve pairs whose places were told, T60 0.22 to
# 0.4 s (the same heads): cut off 12.3 dB, with 15 steps 13.0 and with 30 the same; with low delay
# 7.2 and 9.6. From the taps of before it was 10.3: filters change much between two updates. In
# the open, where the fade keeps guesses out, fitting loses 0.9 dB (four pairs).
_ROOM_STEPS, _OPEN_STEPS = 15, 0


class Lasting:
    """Long filters for a pair of tracks that stand."""

    def __init__(self, bank: Bank, mask_hertz: Array, window_hops: int, *, in_room: bool) -> None:
        """For a stream in the windows of a bank; masks tell of frequencies `mask_hertz`."""
        long = replace(bank, window_hops=window_hops, heard_hops=window_hops)
        size, frames = (_LONG, _ROOM_FRAMES) if in_room else (_NARROW, _OPEN_FRAMES)
        ties = FINE if in_room else Ties()
        looking = Looking(max(window_hops // frames, 1), (size,) * 3, (size,), _BEGINS, ties=ties)
        self._windows = WindowStream(long)
        self.columns = Columns(long, mask_hertz, looking)
        self._after = long.window // 2 if in_room else round(_OPEN_SECONDS * bank.rate)
        self._before = min(bank.heard - bank.hop, self._after)
        self._faded = _ROOM_FADED if in_room else _OPEN_FADED
        self._steps = _ROOM_STEPS if in_room else _OPEN_STEPS
        waits = bank.heard - bank.hop - self._before
        self._firs = Firs(bank.hop, self._before + self._after, waits)
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

    def update(
        self,
        ids: Sequence[int],
        shorter: Columns | None,
        moved: float,
        expected: Expected | None = None,
    ) -> None:
        """Filters for two tracks; with shorter windows that have parted them, from these anew."""
        q = None if shorter is None else self._begun(shorter)
        self.columns.update(ids, q, moved, expected)
        if self.columns.A is not None:
            H = self._filters(self.columns)
            taps = taps_of(H, self._before, self._after, self._faded)
            if self._steps:
                taps = fitted(H, self.columns.heard(), taps, self._before, self._steps)
            self._firs.change(taps)

    def tried(self, masks: Array, hops: Array | Indices, x: Array) -> Array:
        """What the first of two that masks (2, mask frequencies, T) part puts into samples (2, n).

        The masks are of frames that ended so many `hops` (T,) before now, which is 0. Nothing is
        kept of it; it has all of the future, too.
        """
        columns = self.columns.anew()
        near = _nearest(hops, columns.kept_hops - self._lag)
        columns.update((0, 1), masks[:, columns.row][:, :, near], 0.0)
        if columns.A is None:
            return x / 2
        h = scipy.fft.fftshift(scipy.fft.irfft(self._filters(columns), axis=0), axes=0)
        parts = (scipy.signal.fftconvolve(x[e, None], h[:, :, e].T, axes=1) for e in (0, 1))
        middle = len(h) // 2
        first: Array = np.sum(list(parts), axis=0)[:, middle : middle + x.shape[1]]
        return first

    def _begun(self, shorter: Columns) -> Array:
        """Shares (2, F, T) in the long frames: those of the frames and frequencies nearest."""
        columns = _nearest(shorter.kept_hops, self.columns.kept_hops - self._lag)
        rows = _nearest(shorter.hertz, self.columns.hertz)
        return shorter.shares()[:, rows][:, :, columns]

    def _filters(self, columns: Columns) -> Complex:
        """H (F + 1, 2, 2) of spectra as they are."""
        A, ears = columns.A, columns.ears.T
        assert A is not None
        W = inverse(A)
        H = A[:, :, :1] * W[:, :1, :] * ears[:, :, None] / ears[:, None, :]
        return np.concatenate([0.5 * np.eye(2, dtype=np.complex128)[None], H])


def _nearest(values: Array | Indices, wanted: Array | Indices) -> Indices:
    """The rows of sorted values that are nearest to those wanted."""
    after = np.clip(np.searchsorted(values, wanted), 1, len(values) - 1)
    closer = wanted - values[after - 1] <= values[after] - wanted
    return np.asarray(after - closer, dtype=np.intp)
