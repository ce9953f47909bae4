"""Position update of one track: static or moving, from the onset bins around its direction.

Inputs: the likelihood of each bin under the other tracks and the diffuse component, and under the
track itself. Output: the track's direction, velocity, error and density history, changed in place.
A motion is accepted if it explains the recent bins better than rest by a threshold, and, for a
track that was static until now, better than a second source would.

    B  onset bins in the buffer
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from earatlas.tracking.local_search import LocalFit, LocalSearchGrid, MotionPrior
from earatlas.tracking.observations import OnsetObservations
from earatlas.tracking.online_track import OnlineTrack
from earatlas.tracking.settings import TrackerSettings
from earatlas.types import Array

__all__ = ["PositionUpdate"]


class PositionUpdate:
    """Updates the position and the velocity of tracks."""

    def __init__(self, observations: OnsetObservations, settings: TrackerSettings) -> None:
        self._observations, self._settings = observations, settings

    def update(
        self,
        tracks: Sequence[OnlineTrack],
        m: int,
        others: Array,
        densities: Array,
        weight: float,
        now: float,
    ) -> None:
        """Update track m.

        `others` (B,) is the likelihood of each bin without the track, `densities` (B,) its density
        along the track's history, `weight` the mixing weight of the track.
        """
        track, settings = tracks[m], self._settings
        max_innovation = 180.0
        if track.moving:
            grown = settings.innovation_degrees_per_second * track.coasting_seconds
            max_innovation = settings.max_innovation_degrees + grown
        grid = LocalSearchGrid(
            self._observations.buffer,
            track.direction,
            competitors=_competitors(tracks, track, now),
            max_innovation_degrees=max_innovation,
        )
        static_seconds = now - track.static_since
        prior = self._motion_prior(track)
        # The history of a static track is not used: a motion must explain all recent bins.
        # Otherwise a short fluctuation of the newest bins would already count as motion.
        history = densities if track.moving else np.zeros(len(densities))
        static, motion, gain = grid.fit(others, history, weight, static_seconds, prior)
        is_motion = gain > self._motion_threshold(track, now) and not track.crossing
        if is_motion and (
            track.moving or gain > self._second_source_gain(others, densities, weight)
        ):
            self._apply_fit(track, motion, settings.motion_rewrite_seconds)
            track.static_since = now
        else:
            if track.moving:
                track.static_since = now - settings.motion_memory_seconds
                static, _, _ = grid.fit(
                    others, history, weight, settings.motion_memory_seconds, prior
                )
            self._apply_fit(track, static, now - track.static_since)

    def _motion_threshold(self, track: OnlineTrack, now: float) -> float:
        """Return the gain of motion over rest, in nats, from which on a track is moving."""
        settings = self._settings
        if track.moving:
            return settings.keep_moving_nats
        confirmed = track.is_confirmed_by_signal(now, settings.signal_confirmation_seconds)
        return settings.start_moving_nats * (settings.signal_confirmed_factor if confirmed else 1.0)

    def _second_source_gain(self, others: Array, densities: Array, weight: float) -> float:
        """Return the gain, in nats, of a second source beside a static track over one source.

        A talker that begins elsewhere while this one pauses looks like a motion towards it.
        """
        memory = self._settings.motion_memory_seconds
        buffer, observations = self._observations.buffer, self._observations
        recent = buffer.bins_since(3 * memory)
        v = buffer.recent_weights(memory)[recent]
        with_track = others[recent] + 0.5 * weight * densities[recent]
        one = observations.log_likelihoods(v, others[recent], weight, recent).max()
        two = observations.log_likelihoods(v, with_track, 0.5 * weight, recent).max()
        return float(two - one)

    def _motion_prior(self, track: OnlineTrack) -> MotionPrior:
        """Return the prior of the motion: constant velocity for a moving track, flat otherwise."""
        settings = self._settings
        memory = settings.motion_memory_seconds
        if not track.moving:
            return MotionPrior(track.vector, np.inf, 0.0, np.inf, memory)
        error = float(np.hypot(track.error_degrees, settings.position_noise_degrees))
        speed = float(track.velocity[0])
        speed_error = settings.speed_noise_degrees_per_second
        return MotionPrior(track.vector, error, speed, speed_error, memory)

    def _apply_fit(self, track: OnlineTrack, fit: LocalFit, seconds: float) -> None:
        """Set position and velocity, and rewrite the last `seconds` of the density history."""
        velocity_gain = self._settings.velocity_gain if track.moving and fit.velocity.any() else 1.0
        track.velocity = track.velocity + velocity_gain * (fit.velocity - track.velocity)
        track.vector, track.error_degrees = fit.vector, fit.error_degrees
        self._observations.rewrite_history(track, fit.densities, seconds)


def _competitors(tracks: Sequence[OnlineTrack], track: OnlineTrack, now: float) -> Array:
    """Return the unit vectors (K, 3) of the other confirmed, active tracks.

    A direction that is nearer to one of them does not belong to the track.
    """
    vectors = [
        other.vector
        for other in tracks
        if other is not track and other.confirmed and other.is_active(now)
    ]
    return np.array(vectors).reshape(-1, 3)
