"""State of one track of the online tracker: direction, velocity, uncertainty and score.

The density history holds, for each bin of the last seconds, its density around the direction that
the track had at the time of the bin.

    b, G  bins of a step, coarse directions of the onset buffer
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from earatlas.geometry.angles import to_directions, to_vectors
from earatlas.types import Array, Single

__all__ = ["OnlineTrack"]

# Evidence: docs/figures/settings/tracking.md, "online_track".
_GAUSSIAN_RADIUS_90 = 2.15  # radius of 90 % of an isotropic 2-D Gaussian, standard deviations
_MOVING_RADIUS_FACTOR = 1.6  # multiplies the radius of a moving track
_DIFFUSION_DEGREES = 1.0  # error that a coasting track gains, degrees per square root of a second
_FORGETTING_DEGREES = 15.0  # distance after which the statistics of the signal count 1/e
_MIN_MOTION_DEGREES = 4.0  # shorter motions discard nothing: they may be taken back
_INITIAL_ERROR_DEGREES = 6.0  # standard error of a new position
_DECELERATION_SECONDS = 1.5  # time constant (1/e) of the speed of a coasting track
_CONSTANT_SPEED_SECONDS = 0.3  # time without a hit after which a moving track decelerates
_MIN_DEGREES_PER_SECOND = 2.0  # a slower track is static
_SPEED_UNCERTAINTY = 0.5  # relative error of the speed of a coasting track
_RECOVERABLE_HITS = 8  # hits; a track with fewer can be recovered even if it is static
_MAX_CONE_SPEED_RATIO = 2.0  # largest factor of the speed when a track changes its cone position
_MAX_STRETCH_ELEVATION = 75.0  # degrees; azimuth steps are not stretched further above it
_ACTIVE_SECONDS = 1.0  # time since the last hit within which a track is active


@dataclass(eq=False)
class OnlineTrack:
    """One tracked source.

    See `earatlas.tracking.online` for the states of a track and their transitions.
    """

    id: int  # never reused
    vector: Array  # (3,) unit vector of the current direction
    initiated_at: float  # seconds
    density_history: deque[Single]  # (b,) per step: densities of its bins at the direction then
    vector_history: deque[Array]  # (3,) per step: unit vector then
    cone_memory: Single  # (G,) decayed log-likelihoods of all directions, nats
    error_degrees: float = _INITIAL_ERROR_DEGREES  # standard error of the direction
    velocity: Array = field(default_factory=lambda: np.zeros(2))  # (2,) left, up; degrees / s
    static_since: float = -np.inf  # seconds
    last_hit_at: float = 0.0  # seconds
    coasting_seconds: float = 0.0  # time since the last hit
    confirmed_at: float | None = None  # seconds; None while tentative
    deleted: bool = False  # removed at the end of the step
    located_by_cues: bool = False  # its position on the cone of confusion comes from cues
    crossing_since: float | None = None  # seconds, since when another track is close
    crossing: bool = False  # onsets do not separate it from another track
    hits: int = 0  # steps with a hit
    misses: int = 0  # steps without a hit since the last one
    gain: float = 0.0  # log-likelihood ratio over the buffered bins, nats per bin
    confirmed_by_signal_at: float = -np.inf  # seconds, when its signal was a speaker of its own
    total_gain: float = 0.0  # sum of the gain over all hits
    cone_radius_90: float = 0.0  # degrees around it with 90 % of the posterior on its cone
    last_hit_vector: Array = field(init=False)  # (3,) direction of the last hit
    low_likelihood_steps: int = 0  # hits with a low gain since the last higher gain
    recoverable: bool = False  # it was moving or new at the last hit
    reference_vector: Array = field(init=False)  # (3,) where its signal statistics are valid

    def __post_init__(self) -> None:
        self.last_hit_at, self.reference_vector = self.initiated_at, self.vector
        self.last_hit_vector = self.vector

    @property
    def confirmed(self) -> bool:
        """Whether the track had enough hits to be confirmed."""
        return self.confirmed_at is not None

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
        """Radius in degrees that holds the source with 90 % probability, if it exists."""
        drift = (
            _DIFFUSION_DEGREES * np.sqrt(self.coasting_seconds)
            + _SPEED_UNCERTAINTY * self.speed * self.coasting_seconds
        )
        scale = _GAUSSIAN_RADIUS_90 * (_MOVING_RADIUS_FACTOR if self.moving else 1.0)
        cone = 0.0 if self.located_by_cues or self.moving else self.cone_radius_90
        return float(np.hypot(max(scale * self.error_degrees, cone), scale * drift))

    def is_active(self, now: float) -> bool:
        """Return whether the last hit was less than a second ago."""
        return now - self.last_hit_at < _ACTIVE_SECONDS

    def is_settled(self, now: float, settled_seconds: float) -> bool:
        """Return whether the track has been static for more than `settled_seconds`."""
        return not self.moving and now - self.static_since > settled_seconds

    def is_confirmed_by_signal(self, now: float, valid_seconds: float) -> bool:
        """Return whether its signal was that of a separate speaker in the last `valid_seconds`."""
        return now - self.confirmed_by_signal_at < valid_seconds

    def register_hit(self, now: float) -> None:
        """Register a hit at the current direction."""
        self.last_hit_at, self.coasting_seconds, self.last_hit_vector = now, 0.0, self.vector
        self.recoverable = self.moving or self.hits < _RECOVERABLE_HITS

    def count_low_likelihood(self, hit: bool, low: bool) -> None:
        """Count a hit with a low gain; reset the count when the gain is higher."""
        self.low_likelihood_steps = self.low_likelihood_steps + hit if low else 0

    def absorb(self, other: OnlineTrack) -> None:
        """Take over the state of another track of the same source, and delete that one."""
        self.vector, self.error_degrees = other.vector, other.error_degrees
        self.velocity, self.cone_radius_90 = other.velocity, other.cone_radius_90
        self.density_history = other.density_history
        self.vector_history, self.cone_memory = other.vector_history, other.cone_memory
        self.static_since = other.static_since
        self.hits += other.hits
        self.gain, self.total_gain = other.gain, self.total_gain + other.total_gain
        self.low_likelihood_steps = 0
        self.misses = 0
        self.register_hit(other.last_hit_at)
        other.deleted = True

    def predict(self, seconds: float) -> None:
        """Predict the state after `seconds`.

        A moving track continues, and decelerates once it has had no hit for a while.
        """
        self.coasting_seconds += seconds
        if not self.moving:
            return
        azimuth, elevation = self.direction
        azimuth_step, elevation_step = self.velocity * seconds
        stretch = np.cos(np.radians(min(abs(elevation), _MAX_STRETCH_ELEVATION)))
        self.vector = to_vectors(
            np.array(
                [azimuth + azimuth_step / stretch, np.clip(elevation + elevation_step, -90, 90)]
            )
        )
        constant_speed = self.coasting_seconds <= _CONSTANT_SPEED_SECONDS or self.crossing
        deceleration = 1.0 if constant_speed else np.exp(-seconds / _DECELERATION_SECONDS)
        self.velocity = self.velocity * np.array([deceleration, 0.0])
        if self.speed < _MIN_DEGREES_PER_SECOND:
            self.velocity = np.zeros(2)

    def motion_forgetting(self, head_turn_degrees: float = 0.0) -> float:
        """Return the part (0 to 1) of the signal statistics that the last motion voids.

        The motion is that since the last call. `head_turn_degrees` is the head's rotation in that
        time, which moves the source relative to the ears. A motion of less than 4 degrees, or a
        refined position of a static track, does not count.
        """
        distance = float(np.degrees(np.arccos(np.clip(self.vector @ self.reference_vector, -1, 1))))
        if not self.moving or distance >= _MIN_MOTION_DEGREES:
            self.reference_vector = self.vector
        distance = distance if self.moving and distance >= _MIN_MOTION_DEGREES else 0.0
        return float(-np.expm1(-(distance + abs(head_turn_degrees)) / _FORGETTING_DEGREES))

    def reset(self, vector: Array) -> None:
        """Move the track to a unit vector (3,) and reset its motion and uncertainty."""
        self.vector, self.error_degrees, self.velocity = vector, _INITIAL_ERROR_DEGREES, np.zeros(2)
        self.cone_radius_90 = 0.0
        self.static_since, self.reference_vector = -np.inf, vector

    def move_on_cone(self, vector: Array) -> None:
        """Move the track to another unit vector (3,) on its cone of confusion.

        The lateral velocity is kept: behind the head the azimuth changes in the other direction.
        """
        before, after = (
            np.cos(np.radians(a)) for a in (self.direction[0], to_directions(vector)[0])
        )
        ratio = np.clip(
            before / after if after else 1.0, -_MAX_CONE_SPEED_RATIO, _MAX_CONE_SPEED_RATIO
        )
        self.vector, self.error_degrees, self.reference_vector = (
            vector,
            _INITIAL_ERROR_DEGREES,
            vector,
        )
        self.velocity = self.velocity * np.array([ratio, 0.0])
