"""Settings of the online tracker, one class per algorithm.

A gain is a log-likelihood ratio in nats: how much better the onset bins are explained with a track
(or a motion, or another position) than without it. A hit is a step in which a track explains the
newest bins, a miss is any other step; in a live stream a step lasts 0.128 s.
"""

from __future__ import annotations

from dataclasses import dataclass

from earatlas.localization.onset_mixture import MIXTURE_SETTINGS, OnsetMixtureSettings

__all__ = [
    "ConeSettings",
    "ConfirmationSettings",
    "DeletionSettings",
    "FrontEndSettings",
    "InitiationSettings",
    "LocalSearchSettings",
    "MotionSettings",
    "OnsetBufferSettings",
    "RecoverySettings",
    "TrackSettings",
    "TrackerSettings",
]

# Evidence: docs/figures/settings/tracking.md, "settings".


@dataclass(frozen=True, slots=True)
class FrontEndSettings:
    """Onset detection in a stream, and decisions that concern all tracks."""

    noise_floor_seconds: float = 10.0  # time constant (1/e) of the noise floor and the peak
    interval_steps: int = 8  # between decisions about reverberation and doubts


@dataclass(frozen=True, slots=True)
class OnsetBufferSettings:
    """Which onset bins are kept, and which directions belong together."""

    max_steps: int = 24  # length of the buffer: 3 s
    max_bins_per_step: int = 50  # bins with the largest rise that are kept per step
    yaw_group_degrees: float = 2.0  # bins whose head yaws differ by less are evaluated together
    fine_cells: int = 24  # coarse directions that are refined for the posterior of a track
    gate_degrees: float = 12.0  # directions this close to a track belong to it
    # Mixture of the bins in the buffer: mixing weights, required gains and cones of confusion
    mixture: OnsetMixtureSettings = MIXTURE_SETTINGS


@dataclass(frozen=True, slots=True)
class InitiationSettings:
    """Birth of a tentative track."""

    first_nats_per_bin: float = 0.25  # gain that the first track needs; others: see the mixture
    min_nats: float = 4.0  # total gain of a new track
    first_weight: float = 0.3  # mixing weight that the first source is searched with
    new_weight: float = 0.2  # the same for any further source
    interval_steps: int = 2  # between searches for new tracks


@dataclass(frozen=True, slots=True)
class ConfirmationSettings:
    """Hits, and the confirmation of a tentative track."""

    hit_nats_per_bin: float = 0.03  # gain of the newest bins in a hit
    buffered_nats_per_bin: float = 0.02  # gain of all buffered bins in a hit
    tentative_gain_ratio: float = 0.7  # part of the required gain that a tentative track must keep
    hits: int = 3  # hits until a track is confirmed
    strong_hits: int = 2  # the same for a track above strong_gain_ratio
    strong_gain_ratio: float = 2.0  # gain over the required gain
    signal_seconds: float = 4.0  # for so long a confirmation by the separated signal is valid


@dataclass(frozen=True, slots=True)
class DeletionSettings:
    """Death of a track."""

    max_tentative_misses: int = 4  # consecutive misses; with more a tentative track is deleted
    coast_seconds_per_hit: float = 0.5  # for so long per earlier hit a confirmed track may coast
    min_coast_seconds: float = 5.0  # but at least for so long
    max_coast_seconds: float = 30.0  # and at most for so long
    low_likelihood_ratio: float = 0.4  # gain over the required gain that counts as low
    max_low_likelihood_steps: int = 10  # hits in a row with a low gain before deletion


@dataclass(frozen=True, slots=True)
class RecoverySettings:
    """Recovery of a track that was lost while it moved or was new, by a tentative one."""

    gain_ratio: float = 0.3  # largest gain of the lost track over that of the new one
    max_seconds: float = 1.5  # longest time from the last hit to the new track
    max_degrees: float = 20.0  # largest difference of lateral angles


@dataclass(frozen=True, slots=True)
class TrackSettings:
    """Prediction and uncertainty of one track, and the memory of its signal."""

    active_seconds: float = 1.0  # time since the last hit within which a track is active
    new_hits: int = 8  # a track with fewer hits can be recovered even if it is static
    initial_error_degrees: float = 6.0  # standard error of a new position
    unsettled_radius_degrees: float = 40.0  # smallest radius of a track without a posterior
    diffusion_degrees: float = 1.0  # error that coasting adds, per square root of a second
    speed_uncertainty: float = 0.5  # relative error of the speed of a coasting track
    moving_radius_factor: float = 1.6  # multiplies the radius of a moving track
    constant_speed_seconds: float = 0.3  # time without a hit after which a track decelerates
    deceleration_seconds: float = 1.5  # time constant (1/e) of the speed of a coasting track
    min_degrees_per_second: float = 2.0  # a slower track is static
    max_cone_speed_ratio: float = 2.0  # largest factor of the speed after a move on the cone
    forgetting_degrees: float = 15.0  # motion after which statistics of the signal count 1/e
    min_motion_degrees: float = 4.0  # shorter motions discard nothing: they may be taken back


@dataclass(frozen=True, slots=True)
class LocalSearchSettings:
    """Lattice of directions and velocities around a track."""

    cell_degrees: float = 2.0  # distance of neighbouring cells
    azimuth_cells: int = 10  # cells on either side of the centre
    elevation_cells: int = 3  # cells above and below the centre
    max_snap_degrees: float = 4.0  # farther from a measured direction, a cell is not used
    horizontal_degrees_per_second: tuple[float, ...] = (-48.0, -32.0, -16.0, 0.0, 16.0, 32.0, 48.0)
    refinement_degrees_per_second: float = 8.0  # offset of the second search from the best of them
    vertical_degrees_per_second: tuple[float, ...] = (-16.0, -8.0, 8.0, 16.0)  # upward speeds
    vertical_motion_nats: float = 1.0  # penalty: talkers mostly move horizontally
    max_motion_seconds: float = 1.6  # duration that is modelled as motion at constant velocity
    min_error_degrees: float = 1.5  # smallest standard error of an estimated position


@dataclass(frozen=True, slots=True)
class MotionSettings:
    """Update of the position: static or moving, and crossing tracks."""

    memory_seconds: float = 0.6  # time constant (1/e) of the bins that locate a moving track
    position_noise_degrees: float = 3.0  # standard deviation of the predicted position
    max_innovation_degrees: float = 12.0  # largest correction of a moving track's position
    innovation_degrees_per_second: float = 20.0  # added to it per second without a hit
    speed_noise_degrees_per_second: float = 6.0  # standard deviation of the predicted speed
    rewrite_seconds: float = 0.8  # history that a fitted motion replaces
    keep_moving_nats: float = 3.0  # gain of motion over rest for a moving track
    start_moving_nats: float = 8.0  # the same for a static track
    signal_confirmed_factor: float = 3.0  # multiplies start_moving_nats if confirmed by its signal
    velocity_gain: float = 0.4  # part of the velocity innovation that is applied per step
    max_update_misses: int = 2  # consecutive misses; with more the position is not updated
    established_hits: int = 16  # a track with more hits is established
    settled_seconds: float = 2.0  # static for so long: all buffered bins locate the track
    settled_interval_steps: int = 2  # between updates of an established, settled track
    max_crossing_seconds: float = 2.5  # longest time for which a crossing excuses misses


@dataclass(frozen=True, slots=True)
class ConeSettings:
    """Position of a track on its cone of confusion."""

    jump_nats: float = 1.0  # gain of another position on the cone for a settled track
    moving_jump_nats: float = 12.0  # the same for a track that is moving or moved recently
    memory_steps: float = 80.0  # time constant (1/e) of log-likelihoods on the cone, steps
    cue_support_ratio: float = 0.5  # onset gain at a direction from cues over that at the track


@dataclass(frozen=True, slots=True)
class TrackerSettings:
    """Settings of `earatlas.tracking.online.OnlineTracker`."""

    max_tracks: int = 4  # confirmed tracks at a time
    front_end: FrontEndSettings = FrontEndSettings()
    buffer: OnsetBufferSettings = OnsetBufferSettings()
    initiation: InitiationSettings = InitiationSettings()
    confirmation: ConfirmationSettings = ConfirmationSettings()
    deletion: DeletionSettings = DeletionSettings()
    recovery: RecoverySettings = RecoverySettings()
    track: TrackSettings = TrackSettings()
    search: LocalSearchSettings = LocalSearchSettings()
    motion: MotionSettings = MotionSettings()
    cone: ConeSettings = ConeSettings()
