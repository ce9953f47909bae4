"""Position of a track on its cone of confusion, from onsets or from long-window cues.

Onsets determine the lateral angle of a source well, and its position on the cone of confusion much
worse. Therefore the whole cone is searched repeatedly: for a settled track with all that was
observed of it, for a moving one with the most recent bins and only while it is new. In anechoic
sound the cues of long windows determine the position better than onsets; they are applied unless
the onsets contradict them (`apply_cue_directions`).

    B, M, G  onset bins, tracks, coarse directions
    L (G,)   log-likelihood of each direction, nats
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from earatlas.geometry.angles import to_vectors
from earatlas.tracking.local_search import INVERSE_TEMPERATURE
from earatlas.tracking.observations import OnsetObservations
from earatlas.tracking.online_track import OnlineTrack
from earatlas.tracking.settings import TrackerSettings
from earatlas.types import Array, Single

__all__ = ["ConeDisambiguation"]

# Evidence: docs/figures/settings/tracking.md, "cone_disambiguation".
_CUE_SUPPORT_RATIO = 0.5  # onset gain at the direction from cues over that at the track, at least
_CUE_WEIGHT = 0.3  # mixing weight of a source at either direction: as for a first source


class ConeDisambiguation:
    """Moves tracks to better positions on their cones of confusion."""

    def __init__(self, observations: OnsetObservations, settings: TrackerSettings) -> None:
        self._observations, self._settings = observations, settings

    def search_cone(
        self, tracks: Sequence[OnlineTrack], m: int, v: Array, likelihoods: Array, *, settled: bool
    ) -> None:
        """Move track m if another direction on its cone has a higher likelihood.

        `likelihoods` (B, M + 1) are those of the tracks and the diffuse component, `v` (B,) the
        weights of the bins; `settled` says whether the track has been static for long.
        """
        track, observations = tracks[m], self._observations
        if not settled:
            track.cone_memory *= 0
        established = not settled and track.hits > self._settings.established_hits
        coasting = track.misses > self._settings.max_update_misses
        if track.located_by_cues or track.crossing or established or coasting:
            return
        total = likelihoods.sum(axis=1)
        weight = float(
            np.clip(v @ (likelihoods[:, m] / total) / v.sum(), self._settings.min_weight, 1.0)
        )
        other_likelihoods = total - likelihoods[:, m]
        if settled:
            L = self._static_log_likelihoods(track, len(tracks), v, other_likelihoods, weight)
        else:
            L = self._moving_log_likelihoods(other_likelihoods, weight)
        own_gate = L[observations.gate_mask(track)]
        allowed = observations.cone_mask(track) if track.confirmed else np.ones(len(L), dtype=bool)
        if track.confirmed and not track.moving:
            track.cone_radius_90 = self._cone_radius_90(track, np.where(allowed, L, -np.inf))
        for other in tracks:
            allowed &= ~observations.gate_mask(other)
        L = np.where(allowed, L, -np.inf)
        best = int(L.argmax())
        min_gain = (
            self._settings.cone_jump_nats if settled else self._settings.moving_cone_jump_nats
        )
        if len(own_gate) and L[best] < own_gate.max() + min_gain:
            return
        vector, densities = (
            observations.buffer.vectors[best],
            observations.buffer.densities[:, best],
        )
        if settled:
            track.reset(vector)
            track.density_history = observations.split_by_step(densities)
        else:
            track.move_on_cone(vector)
            observations.rewrite_history(track, densities, self._settings.motion_memory_seconds)

    def _cone_radius_90(self, track: OnlineTrack, L: Single) -> float:
        """Return the radius in degrees around a track with 90 % of the posterior from L (G,)."""
        p = np.exp(2 * INVERSE_TEMPERATURE * (L - L.max()))
        cosines = self._observations.buffer.vectors @ track.vector
        distances = np.degrees(np.arccos(np.clip(cosines, -1, 1)))
        order = np.argsort(distances)
        mass = np.cumsum(p[order]) / p.sum()
        return float(distances[order[int(np.searchsorted(mass, 0.9))]])

    def _static_log_likelihoods(
        self, track: OnlineTrack, M: int, v: Array, other_likelihoods: Array, weight: float
    ) -> Single:
        """Return L (G,) for a settled track, one of M, from the buffered bins and its memory."""
        L = self._observations.log_likelihoods(v, other_likelihoods, weight)
        L -= L.max()
        max_steps = self._observations.buffer.max_steps
        rate = M * self._settings.initiation_interval_steps / max_steps
        decay = np.exp(-rate * max_steps / self._settings.cone_memory_steps)
        with_memory: Single = L + decay * track.cone_memory
        track.cone_memory = rate * L + decay * track.cone_memory
        return with_memory

    def _moving_log_likelihoods(self, other_likelihoods: Array, weight: float) -> Single:
        """Return L (G,) for a moving track, from the most recent bins."""
        v = self._observations.buffer.recent_weights(self._settings.motion_memory_seconds)
        recent = self._observations.buffer.bins_since(2 * self._settings.motion_memory_seconds)
        return self._observations.log_likelihoods(
            v[recent], other_likelihoods[recent], weight, recent
        )

    def apply_cue_directions(
        self, tracks: Sequence[OnlineTrack], directions: Mapping[int, Array]
    ) -> None:
        """Move tracks to directions (C,), by track id, that were estimated from long-window cues.

        A direction is applied if it is on the cone of the track, in no other track's gate, and if
        the onsets support it at least half as much as the current direction.
        """
        for track in tracks:
            vector = to_vectors(directions[track.id]) if track.id in directions else None
            track.located_by_cues = vector is not None and self._is_unoccupied(
                tracks, track, vector
            )
            if vector is None or not track.located_by_cues or track.moving:
                continue
            if self._observations.is_in_gate(track, vector):
                continue
            densities = self._observations.densities_at(vector)
            here = self._onset_gain(np.concatenate(list(track.density_history)))
            there = self._onset_gain(densities)
            # Without onsets there is evidence neither for nor against the direction.
            track.located_by_cues = len(densities) > 0 and there >= min(
                here, _CUE_SUPPORT_RATIO * here
            )
            if track.located_by_cues:
                track.reset(vector)
                track.density_history = self._observations.split_by_step(densities)

    def _onset_gain(self, g: Single) -> float:
        """Return the gain, in nats, of one source with densities g (B,) over diffuse sound."""
        return float(self._observations.buffer.weights @ np.log1p(_CUE_WEIGHT * (g - 1.0)))

    def _is_unoccupied(
        self, tracks: Sequence[OnlineTrack], track: OnlineTrack, vector: Array
    ) -> bool:
        """Return whether a unit vector (3,) is on a track's cone and in no other track's gate."""
        return self._observations.is_on_cone(track, vector) and not any(
            self._observations.is_in_gate(other, vector) for other in tracks if other is not track
        )
