"""What the head makes expect of two tracks, and so which of two sounds is which.

Filters part two sounds at each frequency, but do not know which is the first
(`earatlas.separation.demixing.permutation_alignment`). Where each track is tells: both ears' ratio at its place,
with its phase where phases were learned, elsewhere by its size alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.separation.demixing.permutation_alignment import expected_columns, likeness
from earatlas.separation.demixing.spatial_filtering import TOLD
from earatlas.types import Array, Complex, Indices

__all__ = ["Expected"]


@dataclass(frozen=True, eq=False)
class Expected:
    """Right ear over left of two tracks, NaN where it was not learned."""

    level_db: Array  # (2, F)
    phase_radians: Array  # (2, F)

    def at(self, rows: Indices) -> Expected:
        """At some of the frequencies."""
        return Expected(self.level_db[:, rows], self.phase_radians[:, rows])

    def order(self, A: Complex, ears: Array) -> Array:
        """(F,) for `exchanged`: above 0 where columns A (F, 2, 2) are in the order of the tracks.

        Columns are in units of the levels `ears` (2, F).
        """
        sizes = 10 ** (self.level_db / 20)
        columns, phased = expected_columns(sizes * np.exp(1j * self.phase_radians), ears)
        levels, known = expected_columns(sizes.astype(np.complex128), ears)
        by_level = np.where(known, likeness(np.abs(A).astype(np.complex128), levels), 0.0)
        return TOLD * np.where(phased, likeness(A, columns), by_level)
