"""One source as it is followed: where it is, how it moves, and how sure that is.

The trail keeps how well each bin of the last seconds fits the place that the source had then.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from earatlas.geometry.angles import to_directions, to_vectors
from earatlas.types import Array, Single

__all__ = ["Track"]

_RADIUS = 2.15  # of a round Gaussian: what holds nine tenths
# Of walkers so many times as much. In 36 scenes of cipic_021 and kemar_full with walkers in the
# open, 74 % of the steps of a walk were within the radius without it, 90 % with it; who stood 90 %.
_WALKING = 1.6
_WANDER = 1.0  # degrees a root second: what is not known of who is silent
_VOID_DEGREES = 15.0  # after so far a way, what was known of a source's sound counts 1/e
# Degrees. One who stood was taken for a walker for a moment: columns began anew from 0.8 s, and the
# sound had 6.6 dB where it has 18.
_LEAST_WAY = 4.0
_FIRST_ERROR = 6.0  # degrees
_STOP_SECONDS = 1.5  # in which a walker who is not heard any more slows down by 1/e
_PAUSE_SECONDS = 0.3  # after which it is not heard any more
_SLOWEST = 2.0  # degrees a second; slower, it stands
_SWERVE = 0.5  # of its speed, that a walker may have changed while it was silent
_NEW_HITS = 8  # steps in which it was heard
_STEEPER = 2.0  # times as fast, at most, elsewhere on a cone
_STEEPEST = 75.0  # degrees of elevation; beyond, azimuth is stretched no more


@dataclass(eq=False)
class Track:
    """A source that is followed."""

    id: int
    place: Array  # (3,) unit vector to where it is
    born: float  # seconds
    trail: deque[Single]  # (b,) of each step: densities of its bins around where it was
    passed: deque[Array]  # (3,) of each step: where it was
    memory: Single  # (G,) nats of what fitted each place, long ago
    error: float = _FIRST_ERROR  # degrees
    velocity: Array = field(default_factory=lambda: np.zeros(2))  # to the left and upwards
    standing_since: float = -np.inf  # seconds
    heard_at: float = 0.0  # seconds, when it was heard last
    silent_seconds: float = 0.0
    confirmed_at: float | None = None
    dead: bool = False
    told: bool = False  # where on its cone it is, by its cues
    met_at: float | None = None  # seconds, since when another one is where it is
    meets: bool = False  # and it goes on as it did
    hits: int = 0  # steps in which it was heard
    misses: int = 0  # steps in a row in which it was not
    gain: float = 0.0  # nats a bin of the last seconds, that it explains beside the others
    upheld_at: float = -np.inf  # seconds, when its sound was a voice of its own
    explained: float = 0.0  # the same, summed over the steps in which it was heard
    cone_radius: float = 0.0  # degrees around it that hold nine tenths of its cone, by onsets
    heard_place: Array = field(init=False)  # (3,) where it was heard last
    little: int = 0  # steps in which it was heard and explained little, since it explained more
    strayed: bool = False  # it walked, or was hardly known, when it was heard last
    known_at: Array = field(init=False)  # (3,) where what is known of its sound was heard

    def __post_init__(self) -> None:
        self.heard_at, self.known_at = self.born, self.place
        self.heard_place = self.place

    @property
    def confirmed(self) -> bool:
        """Whether it was heard for long enough to be believed."""
        return self.confirmed_at is not None

    @property
    def direction(self) -> Array:
        """(2,) degrees."""
        return to_directions(self.place)

    @property
    def walks(self) -> bool:
        """Whether it moves."""
        return bool(self.velocity.any())

    @property
    def speed(self) -> float:
        """Degrees a second."""
        return float(np.hypot(*self.velocity))

    @property
    def radius_90(self) -> float:
        """Degrees within which it is with a probability of nine tenths, if it is there at all."""
        unsure = _WANDER * np.sqrt(self.silent_seconds) + _SWERVE * self.speed * self.silent_seconds
        sure = _RADIUS * (_WALKING if self.walks else 1.0)
        cone = 0.0 if self.told or self.walks else self.cone_radius
        return float(np.hypot(max(sure * self.error, cone), sure * unsure))

    def hear(self, now: float) -> None:
        """It is heard where it is."""
        self.heard_at, self.silent_seconds, self.heard_place = now, 0.0, self.place
        self.strayed = self.walks or self.hits < _NEW_HITS

    def count_little(self, heard: bool, little: bool) -> None:
        """A step in which it is heard or not, and explains little or more."""
        self.little = self.little + heard if little else 0

    def become(self, other: Track) -> None:
        """Be where another one is that is the same source, which is dead then."""
        self.place, self.error, self.velocity = other.place, other.error, other.velocity
        self.cone_radius = other.cone_radius
        self.trail, self.passed, self.memory = other.trail, other.passed, other.memory
        self.standing_since = other.standing_since
        self.hits += other.hits
        self.gain, self.explained = other.gain, self.explained + other.explained
        self.little = 0
        self.misses = 0
        self.hear(other.heard_at)
        other.dead = True

    def predict(self, seconds: float) -> None:
        """Let time pass; a walker goes on, and ever slower once it is not heard."""
        self.silent_seconds += seconds
        if not self.walks:
            return
        azimuth, elevation = self.direction
        left, up = self.velocity * seconds
        stretch = np.cos(np.radians(min(abs(elevation), _STEEPEST)))
        self.place = to_vectors(
            np.array([azimuth + left / stretch, np.clip(elevation + up, -90, 90)])
        )
        coasts = self.silent_seconds <= _PAUSE_SECONDS or self.meets
        slower = 1.0 if coasts else np.exp(-seconds / _STOP_SECONDS)
        self.velocity = self.velocity * np.array([slower, 0.0])
        if self.speed < _SLOWEST:
            self.velocity = np.zeros(2)

    def moved(self, turned: float = 0.0) -> float:
        """How much of what was known of its sound its way since the last call makes void.

        `turned`: by how many degrees the head was turned meanwhile, which moves it around the ears.
        A step that is taken back, or a better place of one who stands, is no way.
        """
        way = float(np.degrees(np.arccos(np.clip(self.place @ self.known_at, -1, 1))))
        if not self.walks or way >= _LEAST_WAY:
            self.known_at = self.place
        way = way if self.walks and way >= _LEAST_WAY else 0.0
        return float(-np.expm1(-(way + abs(turned)) / _VOID_DEGREES))

    def jump(self, place: Array) -> None:
        """Begin anew elsewhere."""
        self.place, self.error, self.velocity = place, _FIRST_ERROR, np.zeros(2)
        self.cone_radius = 0.0
        self.standing_since, self.known_at = -np.inf, place

    def turn_over(self, place: Array) -> None:
        """Go on elsewhere on its cone; who walks there goes to the same side."""
        before, after = (
            np.cos(np.radians(a)) for a in (self.direction[0], to_directions(place)[0])
        )
        along = np.clip(before / after if after else 1.0, -_STEEPER, _STEEPER)
        self.place, self.error, self.known_at = place, _FIRST_ERROR, place
        self.velocity = self.velocity * np.array([along, 0.0])
