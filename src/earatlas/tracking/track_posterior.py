"""Posterior of the direction of one track, as quasi-random points: its radius and alternatives.

Input: a calibrated posterior of directions (`earatlas.streaming.track_posteriors`). Output: the
radius around the current direction of a track that holds 90 % of the posterior, and the possible
directions. A track moves between two updates of its posterior; the points remain valid.

    n  points
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from earatlas.geometry.alternatives import (
    ALTERNATIVE_SETTINGS,
    Alternative,
    point_alternatives,
    point_peaks,
)
from earatlas.geometry.angles import cosines_to_degrees
from earatlas.types import Array, Indices

__all__ = ["TrackPosterior"]


@dataclass(frozen=True, eq=False)
class TrackPosterior:
    """Points that are distributed like the posterior of a track, and the fit of the head."""

    vectors: Array  # (n, 3) unit vectors, relative to the room
    log_densities: Array  # (n,)
    residual_ratio: float = math.nan  # of the anechoic model; above 1 it does not fit
    nats_per_onset: float = math.nan  # of the best direction
    mismatch: float = math.nan  # magnitude of the deviation of the head; NaN: not determined

    def radius_90(self, vector: Array) -> float:
        """Return the radius in degrees around a unit vector (3,) that holds 90 %."""
        key = vector.tobytes()
        if key not in self._radii:
            angles = cosines_to_degrees(self.vectors @ vector)
            self._radii[key] = float(np.quantile(angles, 0.9))
        return self._radii[key]

    def alternatives(self, vector: Array) -> tuple[Alternative, ...]:
        """Return the peaks, that of a unit vector (3,) first; empty if 90 % are close to it."""
        if self.radius_90(vector) <= ALTERNATIVE_SETTINGS.min_radius_degrees:
            return ()
        key = vector.tobytes()
        if key not in self._alternatives:
            self._alternatives[key] = point_alternatives(self._few, self._peaks, vector)
        return self._alternatives[key]

    @cached_property
    def _radii(self) -> dict[bytes, float]:
        """The radius around each vector so far; a report needs it several times per source."""
        return {}

    @cached_property
    def _alternatives(self) -> dict[bytes, tuple[Alternative, ...]]:
        """The alternatives of each vector so far; a block is reported more often than it moves."""
        return {}

    @property
    def _few(self) -> Array:
        """The first points (m, 3), which suffice for the peaks."""
        return self.vectors[: ALTERNATIVE_SETTINGS.n_points]

    @cached_property
    def _peaks(self) -> Indices:
        """The peak (m,) of each of them, which takes milliseconds."""
        return point_peaks(self._few, self.log_densities[: len(self._few)])

    def more_probable(self, vector: Array, min_ratio: float) -> Array | None:
        """Return the direction (2,) of the most probable peak; None if it is that of a vector (3,).

        It must have `min_ratio` times the probability of the peak to which the vector belongs.
        """
        here, *others = self.alternatives(vector) or (None,)
        if here is None or not others or others[0].probability < min_ratio * here.probability:
            return None
        return others[0].direction
