"""Look-up: the direction of the training vector that is nearest to the heard one.

The simplest localizer there is, and what a table of HRTFs with exhaustive search does. It cannot
answer between the measured directions. Channels count in units of their deviation over the head:
decibels alone would drown the phases (on KU100's plane 5.3 degrees instead of 6.8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from earatlas.baselines.mapping import check_cues, cue_scale
from earatlas.geometry.spaces import Space
from earatlas.ppam.model import check_pairs
from earatlas.types import Array

__all__ = ["LookUp"]


_BLOCK = 1024  # cue vectors at a time: the distances stay small


@dataclass(frozen=True, eq=False)
class LookUp:
    """x(y) = x_n with n = argmin_n Σ_d (y_d - y_nd)² / scale_d²."""

    space: Space
    directions: Array  # (N, C)
    cues: Array  # (N, D)
    scale: Array  # (D,)

    def __repr__(self) -> str:
        N, D = self.cues.shape
        return f"LookUp({type(self.space).__name__}, N={N}, D={D})"

    @classmethod
    def fit(cls, space: Space, x: ArrayLike, y: ArrayLike) -> Self:
        """Keep directions (N, C) and cues (N, D)."""
        points, cues = check_pairs(space, x, y)
        return cls(space, points, cues, cue_scale(cues))

    def inverse_map(self, y: ArrayLike) -> Array:
        """Directions (N, C) of complete cue vectors (N, D)."""
        asked = check_cues(y, self.cues.shape[1])
        # About the mean, |a - b|² = |a|² + |b|² - 2 a·b loses no digits to a common offset.
        middle = self.cues.mean(axis=0)
        known = (self.cues - middle) / self.scale
        squares = (known**2).sum(axis=1)
        found = [
            np.argmin(
                squares - 2 * ((asked[n : n + _BLOCK] - middle) / self.scale) @ known.T, axis=1
            )
            for n in range(0, max(len(asked), 1), _BLOCK)
        ]
        nearest: Array = self.directions[np.concatenate(found)]
        return nearest
