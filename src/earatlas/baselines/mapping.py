"""Shared parts of the mapping baselines: input checks, cue scaling and regression targets.

Regression targets must be continuous. On the plane they are the coordinates themselves, as in the
paper; in other spaces they are unit vectors, which have neither a seam behind the head nor poles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.angles import to_directions, to_vectors
from earatlas.geometry.spaces import Plane, Space
from earatlas.types import Array

__all__ = [
    "InverseMap",
    "check_cues",
    "cue_scale",
    "from_targets",
    "select_ridge",
    "to_targets",
]


class InverseMap(Protocol):
    """A fitted model that maps cue vectors to directions, such as PPAM."""

    def inverse_map(self, y: ArrayLike) -> Array:
        """Return the directions (N, C) of cue vectors (N, D)."""


def check_cues(y: ArrayLike, n_cues: int) -> Array:
    """Return cue vectors (N, D), or raise InputError."""
    cues = np.asarray(y, dtype=np.float64)
    if cues.ndim != 2 or cues.shape[1] != n_cues or not np.isfinite(cues).all():
        raise InputError(
            f"y must be finite numbers of shape (N, {n_cues}), got shape {cues.shape}. "
            "Compute the cues with the layout of the training data."
        )
    return cues


def cue_scale(cues: Array) -> Array:
    """Return the standard deviations (D,) of training cues, to balance decibels and (cos, sin).

    A constant cue carries no information and gets an infinite scale, which is a weight of 0.
    """
    deviation = cues.std(axis=0)
    return np.where(deviation > 0, deviation, np.inf)


def select_ridge(
    space: Space,
    x: Array,
    y: Array,
    ridges: Sequence[float],
    fit: Callable[[Array, Array], Sequence[InverseMap]],
    *,
    seed: int,
) -> float:
    """Return the ridge with the least mean error on a held-out fifth of the directions x (N, C).

    `fit` returns one model per ridge for the directions and cues (N', D) of the other four fifths.
    """
    order = np.random.default_rng(seed).permutation(len(x))
    cut = max(int(0.2 * len(x)), 1)
    held_out, training = order[:cut], order[cut:]
    errors = [
        space.distance(x[held_out], model.inverse_map(y[held_out])).mean()
        for model in fit(x[training], y[training])
    ]
    return ridges[int(np.argmin(errors))]


def to_targets(space: Space, x: Array) -> Array:
    """Return the regression targets (N, E) of directions (N, C)."""
    return x if isinstance(space, Plane) else to_vectors(x)


def from_targets(space: Space, targets: Array) -> Array:
    """Return the directions (N, C) of regressed targets (N, E), which need not have unit length."""
    return targets if isinstance(space, Plane) else to_directions(targets)
