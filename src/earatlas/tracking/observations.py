"""Geometry of the buffered onset bins relative to tracks: gates, cones of confusion, likelihoods.

Two directions from which sound arrives with about the same interaural level and time difference are
on one cone of confusion around the interaural axis. The axis follows the head's yaw.

    B, G  onset bins in the buffer, coarse directions
"""

from __future__ import annotations

from collections import deque

import numpy as np

from earatlas.geometry.angles import to_directions, to_vectors
from earatlas.localization.source_counter import CONE_DEGREES, SourceCounter
from earatlas.tracking.online_track import OnlineTrack
from earatlas.tracking.onset_buffer import OnsetBuffer
from earatlas.types import Array, Mask, Single

__all__ = ["OnsetObservations"]

_BINS_AT_ONCE = 64  # bins per block, so that the logarithms stay in the cache


class OnsetObservations:
    """Gating and likelihoods over the directions of an onset buffer, for a head that may turn."""

    def __init__(self, buffer: OnsetBuffer, gate_degrees: float) -> None:
        """Use directions within `gate_degrees` of a track as its gate."""
        self.buffer = buffer
        self._cosine = float(np.cos(np.radians(gate_degrees)))
        self.set_yaw(0.0)

    def set_yaw(self, yaw: float) -> None:
        """Set the head's yaw in degrees."""
        self._axis = to_vectors(np.array([yaw + 90.0, 0.0]))  # towards the left ear

    def lateral_angle(self, vector: Array) -> float:
        """Return the lateral angle of a unit vector (3,), in degrees, for the current yaw."""
        return float(np.degrees(np.arcsin(np.clip(vector @ self._axis, -1, 1))))

    def share_cone(self, one: OnlineTrack, other: OnlineTrack) -> bool:
        """Return whether two tracks are on one cone of confusion."""
        return self.is_on_cone(one, other.vector)

    def is_on_cone(self, track: OnlineTrack, vector: Array) -> bool:
        """Return whether a unit vector (3,) is on the cone of confusion of a track."""
        return abs(self.lateral_angle(vector) - self.lateral_angle(track.vector)) < CONE_DEGREES

    def cone_mask(self, track: OnlineTrack) -> Mask:
        """Return the mask (G,) of directions on the cone of confusion of a track."""
        lateral_angles = np.degrees(np.arcsin(np.clip(self.buffer.vectors @ self._axis, -1, 1)))
        on_cone: Mask = np.abs(lateral_angles - self.lateral_angle(track.vector)) < CONE_DEGREES
        return on_cone

    def is_in_gate(self, track: OnlineTrack, vector: Array) -> bool:
        """Return whether a unit vector (3,) is in the gate of a track."""
        return bool(track.vector @ vector > self._cosine)

    def gate_mask(self, track: OnlineTrack) -> Mask:
        """Return the mask (G,) of directions in the gate of a track."""
        in_gate: Mask = self.buffer.vectors @ track.vector > self._cosine
        return in_gate

    def path_mask(self, track: OnlineTrack) -> Mask:
        """Return the mask (G,) of directions in the gates along the recent path of a track."""
        cosines: Array = self.buffer.vectors @ np.stack(track.vector_history).T
        return np.asarray((cosines > self._cosine).any(axis=1))

    def log_likelihoods(
        self, v: Array, other_likelihoods: Array, weight: float, rows: slice = slice(None)
    ) -> Single:
        """Return L (G,) = Σ_n v_n log(weight g_n(x) + other_likelihoods_n) for each direction x.

        `weight` is the mixing weight of the source, `rows` selects bins; `v` and
        `other_likelihoods` (B,) are those of the selected bins.
        """
        g = self.buffer.densities[rows]
        weights, e = v.astype(np.float32), other_likelihoods.astype(np.float32)[:, None]
        L = np.zeros(g.shape[1], dtype=np.float32)
        for first in range(0, len(g), _BINS_AT_ONCE):
            block = slice(first, first + _BINS_AT_ONCE)
            mixed = g[block] * np.float32(weight)
            mixed += e[block]
            L += weights[block] @ np.log(mixed, out=mixed)
        return L

    def best_pair(self) -> Array:
        """Return the two directions (2, C) that explain the bins best together, on any cone."""
        buffer = self.buffer
        weights = buffer.weights.astype(np.float32)
        counter = SourceCounter(buffer.densities, weights, buffer.directions)
        best: Array = buffer.directions[counter.search(2)]
        return best

    def densities_at(self, vector: Array) -> Single:
        """Return the densities (B,) of all bins around a unit vector (3,)."""
        densities: Single = self.buffer.densities_at(to_directions(vector)[None])[:, 0]
        return densities

    def split_by_step(self, densities: Single) -> deque[Single]:
        """Split densities (B,) of all bins into one array per step."""
        parts = np.split(densities, np.cumsum(self.buffer.bins_per_step)[:-1])
        return deque(parts, maxlen=self.buffer.max_steps)

    def rewrite_history(self, track: OnlineTrack, densities: Single, seconds: float) -> None:
        """Replace the last `seconds` of a track's density history by densities (B,) of all bins."""
        ends = np.cumsum(self.buffer.bins_per_step)
        ages = self.buffer.step_ages
        for s, part in enumerate(np.split(densities, ends[:-1])):
            if ages[s] <= seconds:
                track.density_history[s] = part
