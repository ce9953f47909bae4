"""Position of a track on its cone of confusion, from onsets or from long-window cues.

Onsets determine the lateral angle of a source well, and its position on the cone of confusion much
worse. Therefore the whole cone is searched repeatedly: for a settled track with all that was
observed of it, for a moving one with the most recent bins and only while it is new. In anechoic
sound the cues of long windows determine the position better than onsets; they are applied unless
the onsets contradict them (`apply_cue_directions`).

    B, M, G  onset bins, tracks, coarse directions
    L (G,)   log-likelihood of each direction, nats; for decisions with the prior of front before
             rear (`earatlas.geometry.front_prior`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from earatlas.geometry.angles import to_vectors
from earatlas.localization.onset_mixture import SourceMixture
from earatlas.tracking.online_track import OnlineTrack
from earatlas.tracking.onset_buffer import OnsetBuffer
from earatlas.tracking.settings import TrackerSettings
from earatlas.types import Array, Single

__all__ = ["ConeDisambiguation"]


class ConeDisambiguation:
    """Moves tracks to better positions on their cones of confusion."""

    def __init__(self, buffer: OnsetBuffer, settings: TrackerSettings) -> None:
        self._buffer, self._settings = buffer, settings

    def search_cone(
        self, tracks: Sequence[OnlineTrack], m: int, mixture: SourceMixture, *, settled: bool
    ) -> None:
        """Move track m if another direction on its cone has a higher likelihood.

        `mixture` is that of all tracks; `settled` says whether the track has been static for long.
        """
        track, buffer, settings = tracks[m], self._buffer, self._settings
        if not settled:
            track.cone_memory *= 0
        established = not settled and track.hits > settings.motion.established_hits
        unobserved = track.misses > settings.motion.max_update_misses
        if track.located_by_cues or track.crossing or established or unobserved:
            return
        v, other_likelihoods = mixture.weights, mixture.without(m)
        share = v @ mixture.responsibilities(m) / v.sum()
        weight = float(np.clip(share, settings.initiation.mixture.min_weight, 1.0))
        if settled:
            likelihood = self._static_log_likelihoods(
                track, len(tracks), v, other_likelihoods, weight
            )
        else:
            likelihood = self._moving_log_likelihoods(other_likelihoods, weight)
        L = likelihood + buffer.log_prior
        own_gate = L[buffer.gate_mask(track)]
        allowed = buffer.cone_mask(track) if track.confirmed else np.ones(len(L), dtype=bool)
        for other in tracks:
            allowed &= ~buffer.gate_mask(other)
        L = np.where(allowed, L, -np.inf)
        best = int(L.argmax())
        min_gain = settings.cone.jump_nats if settled else settings.cone.moving_jump_nats
        if len(own_gate) and L[best] < own_gate.max() + min_gain:
            return
        vector, densities = buffer.vectors[best], buffer.densities[:, best]
        if settled:
            track.reset(vector)
            track.density_history = buffer.split_by_step(densities)
        else:
            track.move_on_cone(vector)
            buffer.rewrite_history(track, densities, settings.motion.memory_seconds)

    def _static_log_likelihoods(
        self, track: OnlineTrack, M: int, v: Array, other_likelihoods: Array, weight: float
    ) -> Single:
        """Return L (G,) for a settled track, one of M, from the buffered bins and its memory."""
        L = self._buffer.log_likelihoods(v, other_likelihoods, weight)
        L -= L.max()
        steps = M * self._settings.initiation.interval_steps  # between two searches of a track
        rate = steps / self._buffer.max_steps
        decay = np.exp(-steps / self._settings.cone.memory_steps)
        with_memory: Single = L + decay * track.cone_memory
        track.cone_memory = rate * L + decay * track.cone_memory
        return with_memory

    def _moving_log_likelihoods(self, other_likelihoods: Array, weight: float) -> Single:
        """Return L (G,) for a moving track, from the most recent bins."""
        buffer, memory = self._buffer, self._settings.motion.memory_seconds
        v, recent = buffer.recent_weights(memory), buffer.bins_since(2 * memory)
        return buffer.log_likelihoods(v[recent], other_likelihoods[recent], weight, recent)

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
            if self._buffer.is_in_gate(track, vector):
                continue
            history = self._buffer.history_at(vector)
            here, there = self._onset_gain(track.density_history), self._onset_gain(history)
            # Without onsets there is evidence neither for nor against the direction.
            ratio = self._settings.cone.cue_support_ratio
            track.located_by_cues = len(self._buffer) > 0 and there >= min(here, ratio * here)
            if track.located_by_cues:
                track.reset(vector)
                track.density_history = history

    def _onset_gain(self, history: Sequence[Single]) -> float:
        """Return the gain, in nats, of one source with a density history over diffuse sound."""
        g, weight = np.concatenate(list(history)), self._settings.initiation.first_weight
        mixing_weights = np.array([[weight], [1 - weight]])
        return SourceMixture(g[:, None], mixing_weights, self._buffer.weights).log_likelihood

    def _is_unoccupied(
        self, tracks: Sequence[OnlineTrack], track: OnlineTrack, vector: Array
    ) -> bool:
        """Return whether a unit vector (3,) is on a track's cone and in no other track's gate."""
        return self._buffer.is_on_cone(track, vector) and not any(
            self._buffer.is_in_gate(other, vector) for other in tracks if other is not track
        )
