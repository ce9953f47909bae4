"""Bins of a sound that may be heard, before all of it is known: those above what is known so far.

The floor of a recording never falls while it is listened to, since it goes with the peak; a bin
that is below it then is below it at the end. Of speech one bin in twenty is left, so a recording of
any length need not be transformed twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.hearing.layout import level_differences, phase_differences
from earatlas.hearing.transform import squared_size
from earatlas.types import Array, Complex, Indices, Spectra

__all__ = ["LoudBins"]


@dataclass(frozen=True, eq=False, slots=True)
class LoudBins:
    """b bins of some frames in a row, in order of time, as small as a file wants them."""

    frames: int  # that they are of
    t: Indices  # (b,) frame, from the first of them on
    f: Indices  # (b,) frequency, from the layout's first on
    z: Complex  # (2, b) spectra of the left and the right ear

    def __len__(self) -> int:
        return len(self.t)

    @classmethod
    def above(cls, spectra: Spectra, power: Array, floor: float) -> LoudBins:
        """Those of spectra (2, B, t) whose power (t, F) in the weaker ear is no less."""
        t, f = np.divmod(np.flatnonzero(power >= power.dtype.type(floor)), power.shape[1])
        z = spectra[:, 1 + f, t]
        return cls(len(power), t.astype(np.int32), f.astype(np.int16), z)

    @property
    def power(self) -> Array:
        """(b,) of the weaker ear, as spectra have it."""
        return np.asarray(np.minimum(*squared_size(self.z)))

    def cues(self) -> Array:
        """ILD, cos and sin of IPD (3, b)."""
        (left, right), powers = self.z, squared_size(self.z)
        y = np.empty((3, len(left)), dtype=powers.dtype)
        level_differences(*powers, out=y[0])
        phase_differences(right * left.conj(), np.sqrt(powers[0] * powers[1]), out=(y[1], y[2]))
        return y
