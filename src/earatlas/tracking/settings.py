"""Settings of the online tracker: thresholds for initiation, confirmation, motion and deletion."""

from __future__ import annotations

from dataclasses import dataclass

from earatlas.localization.source_counter import MIN_GAIN_NATS, SAME_CONE_GAIN_NATS

__all__ = ["TrackerSettings"]


# Evidence: docs/figures/settings/tracking.md, "settings".
@dataclass(frozen=True)
class TrackerSettings:
    """Settings of `earatlas.tracking.online.OnlineTracker`.

    A gain is a log-likelihood ratio in nats: how much better the onset bins are explained with a
    track (or a motion, or another position) than without it. A step is one call of
    `OnlineTracker.step`; in a live stream it lasts 0.128 s.
    """

    # Initiation, confirmation and deletion
    max_tracks: int = 4  # confirmed tracks at a time
    max_coast_seconds: float = (
        30.0  # longest time without a hit before a confirmed track is deleted
    )
    # Gain that the first, second, third and each further track needs, nats per bin
    initiation_nats_per_bin: tuple[float, ...] = (0.25, *MIN_GAIN_NATS)
    same_cone_nats_per_bin: float = SAME_CONE_GAIN_NATS  # added on the cone of another track
    tentative_gain_ratio: float = 0.7  # part of the required gain that a tentative track must keep
    min_initiation_nats: float = 4.0  # total gain of a new track, nats
    confirm_hits: int = 3  # hits until a track is confirmed
    strong_confirm_hits: int = 2  # the same for a track above strong_gain_ratio
    strong_gain_ratio: float = 2.0  # gain over the required gain
    max_tentative_misses: int = 4  # consecutive misses; with more a tentative track is deleted
    max_update_misses: int = 2  # consecutive misses; with more the position is not updated
    min_weight: float = (
        0.02  # smallest mixing weight of a track, so that it can become active again
    )
    low_likelihood_ratio: float = 0.4  # gain over the required gain that counts as low
    max_low_likelihood_steps: int = 10  # hits in a row with a low gain before deletion

    # Data association
    gate_degrees: float = 12.0  # directions this close to a track belong to it
    crossing_degrees: float = 12.0  # distance of two tracks that onsets cannot distinguish
    max_crossing_seconds: float = 2.5  # longest time that two crossing tracks coast

    # Motion
    motion_memory_seconds: float = 0.6  # time constant (1/e) of the bins that locate a moving track
    position_noise_degrees: float = 3.0  # standard deviation of the predicted position
    max_innovation_degrees: float = 12.0  # largest correction of a moving track's position
    innovation_degrees_per_second: float = 20.0  # added to it per second without a hit
    speed_noise_degrees_per_second: float = 6.0  # standard deviation of the predicted speed
    motion_rewrite_seconds: float = 0.8  # history that a fitted motion replaces
    keep_moving_nats: float = 3.0  # gain of motion over rest for a moving track
    start_moving_nats: float = 8.0  # the same for a static track
    signal_confirmed_factor: float = 3.0  # multiplies start_moving_nats if confirmed by its signal
    signal_confirmation_seconds: float = 4.0  # for so long a confirmation by signal is valid
    velocity_gain: float = 0.4  # part of the velocity innovation that is applied per step

    # Position on the cone of confusion
    cone_jump_nats: float = 1.0  # gain of another position on the cone for a settled track
    moving_cone_jump_nats: float = 12.0  # the same for a track that is moving or moved recently
    established_hits: int = 16  # hits; with more only a settled track may change its cone position
    settled_seconds: float = 2.0  # static for so long: all buffered bins locate the track
    cone_memory_steps: float = 80.0  # time constant (1/e) of log-likelihoods on the cone, steps

    # Recovery of a track that was lost while it moved or was new
    recovery_gain_ratio: float = 0.3  # largest gain of the lost track over that of the new one
    recovery_seconds: float = 1.5  # longest time from the last hit to the new track
    recovery_degrees: float = 20.0  # largest difference of lateral angles

    # Schedule
    settled_interval_steps: int = 2  # between updates of an established, settled track
    initiation_interval_steps: int = 2  # between searches for new tracks
