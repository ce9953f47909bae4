"""One track of the online tracker: its state, direction, velocity, uncertainty and score.

**States.** A track is in one of four states, and `TRANSITIONS` lists what each event does:

    event       tentative  confirmed  coasting   meaning
    HIT         tentative  confirmed  confirmed  it explains the newest bins, or its signal is
                                                 active, or it takes over another track
    MISS        tentative  coasting   coasting   it does not: its position is predicted
    OCCLUDED    -          coasting   coasting   the same while it crosses another track
    CONFIRMED   confirmed  -          -          enough hits with the required gain
    BY_SIGNAL   confirmed  confirmed  coasting   its signal is that of a separate speaker
    ABSORBED    deleted    deleted    deleted    another track continues it
    REDUNDANT   -          deleted    deleted    its gain was low for long, beside a better track
    REPLACED    -          -          deleted    a new track takes its place among `max_tracks`
    TIMED_OUT   deleted    -          deleted    too many misses, or too long without a hit

A deleted track stays deleted. An event that is not listed for a state is an error.

The density history holds, for each bin of the last seconds, its density around the direction that
the track had at the time of the bin.

**Posterior.** A `TrackPosterior` holds the calibrated one of `earatlas.streaming.track_posteriors`
as quasi-random points: the radius around the current direction that holds 90 % of them, and the
possible directions. A track moves between two updates of its posterior; the points remain valid.

    b, G  bins of a step, coarse directions of the onset buffer    n  points
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import cached_property
from types import MappingProxyType

import numpy as np

from earatlas.geometry.alternatives import (
    ALTERNATIVE_SETTINGS,
    Alternative,
    point_alternatives,
    point_peaks,
)
from earatlas.geometry.angles import cosines_to_degrees, to_directions, to_vectors
from earatlas.geometry.chart_gaussians import gaussian_radius_90
from earatlas.tracking.settings import TrackSettings
from earatlas.types import Array, Indices, Single

__all__ = [
    "TRANSITIONS",
    "OnlineTrack",
    "TrackEvent",
    "TrackPosterior",
    "TrackState",
    "parallel_scale",
]


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


class TrackState(Enum):
    """State of a track."""

    TENTATIVE = auto()
    CONFIRMED = auto()
    COASTING = auto()
    DELETED = auto()


class TrackEvent(Enum):
    """What can happen to a track."""

    HIT = auto()
    MISS = auto()
    OCCLUDED = auto()
    CONFIRMED = auto()
    BY_SIGNAL = auto()
    ABSORBED = auto()
    REDUNDANT = auto()
    REPLACED = auto()
    TIMED_OUT = auto()


TRANSITIONS: Mapping[TrackState, Mapping[TrackEvent, TrackState]] = MappingProxyType(
    {
        TrackState.TENTATIVE: {
            TrackEvent.HIT: TrackState.TENTATIVE,
            TrackEvent.MISS: TrackState.TENTATIVE,
            TrackEvent.CONFIRMED: TrackState.CONFIRMED,
            TrackEvent.BY_SIGNAL: TrackState.CONFIRMED,
            TrackEvent.ABSORBED: TrackState.DELETED,
            TrackEvent.TIMED_OUT: TrackState.DELETED,
        },
        TrackState.CONFIRMED: {
            TrackEvent.HIT: TrackState.CONFIRMED,
            TrackEvent.MISS: TrackState.COASTING,
            TrackEvent.OCCLUDED: TrackState.COASTING,
            TrackEvent.BY_SIGNAL: TrackState.CONFIRMED,
            TrackEvent.ABSORBED: TrackState.DELETED,
            TrackEvent.REDUNDANT: TrackState.DELETED,
        },
        TrackState.COASTING: {
            TrackEvent.HIT: TrackState.CONFIRMED,
            TrackEvent.MISS: TrackState.COASTING,
            TrackEvent.OCCLUDED: TrackState.COASTING,
            TrackEvent.BY_SIGNAL: TrackState.COASTING,
            TrackEvent.ABSORBED: TrackState.DELETED,
            TrackEvent.REDUNDANT: TrackState.DELETED,
            TrackEvent.REPLACED: TrackState.DELETED,
            TrackEvent.TIMED_OUT: TrackState.DELETED,
        },
        TrackState.DELETED: dict.fromkeys(TrackEvent, TrackState.DELETED),
    }
)


@dataclass(eq=False)
class OnlineTrack:
    """One tracked source."""

    id: int  # never reused
    vector: Array  # (3,) unit vector of the current direction
    initiated_at: float  # seconds
    density_history: deque[Single]  # (b,) per step: densities of its bins at the direction then
    vector_history: deque[Array]  # (3,) per step: unit vector then
    cone_memory: Single  # (G,) decayed log-likelihoods of all directions, nats
    settings: TrackSettings
    state: TrackState = TrackState.TENTATIVE
    error_degrees: float = field(init=False)  # standard error of the direction
    velocity: Array = field(default_factory=lambda: np.zeros(2))  # (2,) left, up; degrees / s
    static_since: float = -np.inf  # seconds
    last_hit_at: float = field(init=False)  # seconds
    last_hit_vector: Array = field(init=False)  # (3,) direction of the last hit
    coasting_seconds: float = 0.0  # time since the last hit
    located_by_cues: bool = False  # its position on the cone of confusion comes from cues
    crossing_since: float | None = None  # seconds, since when another track is close
    crossing: bool = False  # onsets do not separate it from another track
    hits: int = 0  # steps with a hit
    misses: int = 0  # steps without a hit since the last one, apart from crossings
    gain: float = 0.0  # log-likelihood ratio over the buffered bins, nats per bin
    band_excess: float = 0.0  # while tentative: what bands explain better, nats per bin
    gain_ratio: float = 0.0  # gain without it, over what a new track needs beside the others
    total_gain: float = 0.0  # sum of the gain over all hits
    low_likelihood_steps: int = 0  # hits with a low gain since the last higher gain
    confirmed_by_signal_at: float = -np.inf  # seconds, when its signal was a speaker of its own
    posterior: TrackPosterior | None = None  # of a static track; None: not known yet
    recoverable: bool = False  # it was moving or new at the last hit
    reference_vector: Array = field(init=False)  # (3,) where its signal statistics are valid

    def __post_init__(self) -> None:
        self.last_hit_at, self.error_degrees = (
            self.initiated_at,
            self.settings.initial_error_degrees,
        )
        self.last_hit_vector = self.reference_vector = self.vector

    # --- state ------------------------------

    def handle(self, event: TrackEvent) -> None:
        """Change the state as `TRANSITIONS` says."""
        if event not in TRANSITIONS[self.state]:
            raise ValueError(f"{event.name} must not occur in state {self.state.name}")
        self.state = TRANSITIONS[self.state][event]

    @property
    def confirmed(self) -> bool:
        """Whether the track is confirmed, be it coasting or not."""
        return self.state in (TrackState.CONFIRMED, TrackState.COASTING)

    def register_hit(self, now: float) -> None:
        """Register a hit at the current direction."""
        self.handle(TrackEvent.HIT)
        self.misses = 0
        self.last_hit_at, self.coasting_seconds, self.last_hit_vector = now, 0.0, self.vector
        self.recoverable = self.moving or self.hits < self.settings.new_hits

    def register_miss(self, *, occluded: bool = False) -> None:
        """Register a step without a hit; one while the track crosses another is excused."""
        self.handle(TrackEvent.OCCLUDED if occluded else TrackEvent.MISS)
        self.misses = 0 if occluded else self.misses + 1

    def confirm_by_signal(self, now: float) -> None:
        """Register that the separated signal is that of a separate speaker."""
        self.handle(TrackEvent.BY_SIGNAL)
        self.confirmed_by_signal_at, self.low_likelihood_steps = now, 0

    def count_low_likelihood(self, hit: bool, low: bool) -> None:
        """Count a hit with a low gain; reset the count when the gain is higher."""
        self.low_likelihood_steps = self.low_likelihood_steps + hit if low else 0

    def absorb(self, other: OnlineTrack) -> None:
        """Continue as another track of the same source, which is deleted."""
        self.vector, self.error_degrees = other.vector, other.error_degrees
        self.velocity, self.posterior = other.velocity, other.posterior
        self.density_history = other.density_history
        self.vector_history, self.cone_memory = other.vector_history, other.cone_memory
        self.static_since = other.static_since
        self.hits += other.hits
        self.gain, self.total_gain = other.gain, self.total_gain + other.total_gain
        self.low_likelihood_steps = 0
        self.register_hit(other.last_hit_at)
        other.handle(TrackEvent.ABSORBED)

    def is_active(self, now: float) -> bool:
        """Return whether the last hit was less than a second ago."""
        return now - self.last_hit_at < self.settings.active_seconds

    def is_confirmed_by_signal(self, now: float, valid_seconds: float) -> bool:
        """Return whether its signal was that of a separate speaker in the last `valid_seconds`."""
        return now - self.confirmed_by_signal_at < valid_seconds

    # --- position and motion ------------------------------

    @property
    def direction(self) -> Array:
        """The direction (2,) in degrees: azimuth, elevation."""
        return to_directions(self.vector)

    @property
    def moving(self) -> bool:
        """Whether the velocity is not zero."""
        return bool(self.velocity.any())

    @property
    def speed(self) -> float:
        """The speed in degrees per second."""
        return float(np.hypot(*self.velocity))

    @property
    def radius_90(self) -> float:
        """Radius in degrees that holds the source with 90 % probability, if it exists.

        A static track without a posterior is not settled: its radius is wide.
        """
        if self.moving:
            return self.radius_with_drift(0.0)
        if self.posterior is None:
            return self.radius_with_drift(self.settings.unsettled_radius_degrees)
        return self.radius_with_drift(self.posterior.radius_90(self.vector))

    def radius_with_drift(self, posterior_radius_90: float) -> float:
        """Return the radius that follows from that of the posterior and from the motion."""
        settings = self.settings
        drift = (
            settings.diffusion_degrees * np.sqrt(self.coasting_seconds)
            + settings.speed_uncertainty * self.speed * self.coasting_seconds
        )
        scale = gaussian_radius_90(2) * (settings.moving_radius_factor if self.moving else 1.0)
        return float(np.hypot(max(scale * self.error_degrees, posterior_radius_90), scale * drift))

    @property
    def possible_directions(self) -> tuple[Alternative, ...]:
        """The alternatives of the direction, which is that of the first one.

        There is one if the track is moving or 90 % of its posterior are close to it.
        """
        found: tuple[Alternative, ...] = ()
        if not self.moving and self.posterior is not None:
            found = self.posterior.alternatives(self.vector)
        if not found:
            return (Alternative(self.direction, 1.0, self.radius_90),)
        return tuple(replace(one, radius_90=self.radius_with_drift(one.radius_90)) for one in found)

    def is_settled(self, now: float, settled_seconds: float) -> bool:
        """Return whether the track has been static for more than `settled_seconds`."""
        return not self.moving and now - self.static_since > settled_seconds

    def predict(self, seconds: float) -> None:
        """Predict the position after `seconds`.

        A moving track continues, and decelerates once it has had no hit for a while.
        """
        settings = self.settings
        self.coasting_seconds += seconds
        if not self.moving:
            return
        azimuth, elevation = self.direction
        azimuth_step, elevation_step = self.velocity * seconds
        self.vector = to_vectors(
            np.array(
                [
                    azimuth + azimuth_step / parallel_scale(elevation),
                    np.clip(elevation + elevation_step, -90, 90),
                ]
            )
        )
        constant_speed = self.coasting_seconds <= settings.constant_speed_seconds or self.crossing
        deceleration = 1.0 if constant_speed else np.exp(-seconds / settings.deceleration_seconds)
        self.velocity = self.velocity * np.array([deceleration, 0.0])
        if self.speed < settings.min_degrees_per_second:
            self.velocity = np.zeros(2)

    def motion_forgetting(self, head_turn_degrees: float = 0.0) -> float:
        """Return the part (0 to 1) of the signal statistics that the last motion voids.

        The motion is that since the last call. `head_turn_degrees` is the head's rotation in that
        time, which moves the source relative to the ears. A motion of less than 4 degrees, or a
        refined position of a static track, does not count.
        """
        distance = float(cosines_to_degrees(self.vector @ self.reference_vector))
        is_far = distance >= self.settings.min_motion_degrees
        if not self.moving or is_far:
            self.reference_vector = self.vector
        distance = distance if self.moving and is_far else 0.0
        turned = distance + abs(head_turn_degrees)
        return float(-np.expm1(-turned / self.settings.forgetting_degrees))

    def reset(self, vector: Array) -> None:
        """Move the track to a unit vector (3,) and reset its motion and uncertainty."""
        self.vector, self.velocity = vector, np.zeros(2)
        self.error_degrees = self.settings.initial_error_degrees
        self.static_since, self.reference_vector = -np.inf, vector

    def move_on_cone(self, vector: Array) -> None:
        """Move the track to another unit vector (3,) on its cone of confusion.

        The lateral velocity is kept: behind the head the azimuth changes in the other direction.
        """
        before, after = (
            np.cos(np.radians(a)) for a in (self.direction[0], to_directions(vector)[0])
        )
        limit = self.settings.max_cone_speed_ratio
        ratio = np.clip(before / after if after else 1.0, -limit, limit)
        self.vector, self.reference_vector = vector, vector
        self.error_degrees = self.settings.initial_error_degrees
        self.velocity = self.velocity * np.array([ratio, 0.0])


def parallel_scale(elevation: float) -> float:
    """Return the length of a degree of azimuth at an elevation, relative to that at elevation 0.

    It is constant above 75 degrees, where a step in azimuth would become arbitrarily large.
    """
    return float(np.cos(np.radians(min(abs(elevation), 75.0))))
