"""Interaural cues that the head predicts for two tracks, used for permutation alignment.

Filters separate two sources at each frequency, but their order is arbitrary
(`earatlas.separation.demixing.permutation_alignment`). The directions of the tracks determine it:
by the interaural ratio with its phase where phases were learned, and by its level elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.separation.demixing.permutation_alignment import (
    expected_steering_vectors,
    steering_vector_agreement,
)
from earatlas.separation.demixing.spatial_filtering import EXPECTED_STEERING_WEIGHT
from earatlas.types import Array, Complex, Indices

__all__ = ["ExpectedCues"]


@dataclass(frozen=True, eq=False)
class ExpectedCues:
    """Expected interaural cues of two tracks; NaN where they were not learned."""

    level_db: Array  # (2, F) interaural level, right over left
    phase_radians: Array  # (2, F) interaural phase, right over left

    def at(self, rows: Indices) -> ExpectedCues:
        """Return the cues at some of the frequencies."""
        return ExpectedCues(self.level_db[:, rows], self.phase_radians[:, rows])

    def agreement(self, A: Complex, ear_levels: Array) -> Array:
        """Return the agreement (F,), positive where A has the order of the tracks.

        The steering vectors A (F, 2, 2) are normalized by the `ear_levels` (2, F).
        """
        amplitudes = 10 ** (self.level_db / 20)
        expected, has_phase = expected_steering_vectors(
            amplitudes * np.exp(1j * self.phase_radians), ear_levels
        )
        expected_levels, has_level = expected_steering_vectors(
            amplitudes.astype(np.complex128), ear_levels
        )
        magnitudes = np.abs(A).astype(np.complex128)
        by_level = np.where(has_level, steering_vector_agreement(magnitudes, expected_levels), 0.0)
        by_phase = steering_vector_agreement(A, expected)
        return EXPECTED_STEERING_WEIGHT * np.where(has_phase, by_phase, by_level)
