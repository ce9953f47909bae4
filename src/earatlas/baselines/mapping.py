"""What the mapping baselines share: checks in one wording, and numbers that stand for directions.

A regression needs targets without a seam. On the plane they are the coordinates themselves, as in
the paper; anywhere else the unit vector, which knows neither the seam behind nor the poles.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.angles import to_directions, to_vectors
from earatlas.geometry.spaces import Plane, Space
from earatlas.types import Array

__all__ = ["InverseMap", "check_cues", "cue_scale", "from_targets", "to_targets"]


class InverseMap(Protocol):
    """Anything that, once fitted, turns cue vectors into directions; PPAM is one."""

    def inverse_map(self, y: ArrayLike) -> Array:
        """Directions (N, C) of cue vectors (N, D)."""


def check_cues(y: ArrayLike, n_cues: int) -> Array:
    """Cue vectors (N, D) to be mapped, or an InputError."""
    cues = np.asarray(y, dtype=np.float64)
    if cues.ndim != 2 or cues.shape[1] != n_cues or not np.isfinite(cues).all():
        raise InputError(
            f"y must be finite numbers of shape (N, {n_cues}), got shape {cues.shape}. "
            "Make the cues with the layout that was learned."
        )
    return cues


def cue_scale(cues: Array) -> Array:
    """Deviations (D,) of training cues: decibels and (cos, sin) then weigh alike.

    A cue that never changes tells nothing: its scale is infinite, its share 0.
    """
    deviation = cues.std(axis=0)
    return np.where(deviation > 0, deviation, np.inf)


def to_targets(space: Space, x: Array) -> Array:
    """What to regress (N, E) for directions (N, C)."""
    return x if isinstance(space, Plane) else to_vectors(x)


def from_targets(space: Space, targets: Array) -> Array:
    """Directions (N, C) of regressed targets (N, E), which need not be of length 1."""
    return targets if isinstance(space, Plane) else to_directions(targets)
