"""One source as it is followed: where it is, how it moves, and how sure that is.

    p (3,)   unit vector to where it is       u (3,)  its velocity, degrees a second, across p
    P (2, 2) covariance of (place, velocity) along any direction across p, in degrees

A Kalman filter with a velocity that dies away: most talkers stand, and one who walks stops.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from earatlas.space.angles import to_directions, to_vectors
from earatlas.types import Array

__all__ = ["Track"]

# Set by hand for people in a room: who walks past at 2 m makes 20 to 40 degrees a second. What each
# does alone was not measured, but for _RADIUS, which follows from the Gaussian.
_FIRST_DEGREES, _FIRST_SPEED = 6.0, 10.0  # how unsure a new one is, degrees and degrees a second
_ACCELERATION = 12.0  # degrees a second, a root second
_STOP_SECONDS = 3.0  # in which a walker who is not heard any more slows down by 1/e
_WANDER = 0.5  # degrees a root second that even who stands moves
_STANDING = 4.0  # degrees a second that the places of who stands seem to move
_VOID_DEGREES = 15.0  # after so far a way, what was known of a source's sound counts 1/e
_RADIUS = 2.15  # of a round Gaussian: what holds nine tenths


@dataclass(eq=False)
class Track:
    """A source that is followed."""

    id: int
    place: Array  # (3,)
    born: float  # seconds
    velocity: Array = field(default_factory=lambda: np.zeros(3))
    covariance: Array = field(default_factory=lambda: np.diag([_FIRST_DEGREES**2, _FIRST_SPEED**2]))
    heard_at: float = 0.0  # seconds, when it was heard last
    confirmed_at: float | None = None
    hits: int = 0  # steps in which it was heard
    misses: int = 0  # steps in a row in which it was not
    nats: float = 0.0  # that it explained so far
    gain: float = 0.0  # nats a bin lately
    share: float = 0.0  # of the onsets
    way: float = 0.0  # degrees that it moved since it was last asked

    def __post_init__(self) -> None:
        self.heard_at = self.born

    @property
    def confirmed(self) -> bool:
        """Whether it was heard for long enough to be believed."""
        return self.confirmed_at is not None

    @property
    def direction(self) -> Array:
        """(2,) degrees."""
        return to_directions(self.place)

    @property
    def speed(self) -> float:
        """Degrees a second."""
        return float(np.linalg.norm(self.velocity))

    @property
    def radius_90(self) -> float:
        """Degrees within which it is with a probability of nine tenths, if it is there at all."""
        return float(_RADIUS * np.sqrt(self.covariance[0, 0]))

    def predict(self, seconds: float) -> None:
        """Let time pass."""
        self.place = _moved(self.place, self.velocity * seconds)
        # A few degrees a second are what the places of a talker who stands seem to move.
        self.way += max(self.speed - _STANDING, 0.0) * seconds
        slower = float(np.exp(-seconds / _STOP_SECONDS))
        self.velocity = _across(self.place, self.velocity) * slower
        F = np.array([[1.0, seconds], [0.0, slower]])
        Q = np.diag([_WANDER**2 * seconds, _ACCELERATION**2 * seconds])
        self.covariance = F @ self.covariance @ F.T + Q

    def update(self, place: Array, degrees: float, lag_seconds: float) -> None:
        """Take in a measured place (3,), with its error, of so many seconds ago."""
        H = np.array([1.0, -lag_seconds])
        expected = _moved(self.place, -self.velocity * lag_seconds)
        miss = _between(expected, place)
        S = float(H @ self.covariance @ H) + degrees**2
        K = self.covariance @ H / S
        self.place = _moved(self.place, K[0] * miss)
        self.velocity = _across(self.place, self.velocity + K[1] * miss)
        self.covariance = self.covariance - np.outer(K, H @ self.covariance)

    def moved(self) -> float:
        """How much of what was known of its sound its way since the last call makes void."""
        way, self.way = self.way, 0.0
        return float(-np.expm1(-way / _VOID_DEGREES))

    def jump(self, place: Array) -> None:
        """Begin anew elsewhere."""
        self.place, self.velocity = place, np.zeros(3)
        self.covariance = np.diag([_FIRST_DEGREES**2, _FIRST_SPEED**2])

    def stay_at(self, elevation: float) -> None:
        """Keep to the one elevation that a head was measured at."""
        self.place = to_vectors(np.array([self.direction[0], elevation]))
        self.velocity = _across(self.place, self.velocity * np.array([1.0, 1.0, 0.0]))


def _moved(p: Array, degrees: Array) -> Array:
    """p after a way (3,) across it, along a great circle."""
    length = float(np.linalg.norm(degrees))
    if length < 1e-12:
        return p
    angle = np.radians(length)
    moved: Array = np.cos(angle) * p + np.sin(angle) * degrees / length
    return moved / np.linalg.norm(moved)


def _across(p: Array, u: Array) -> Array:
    """What of u (3,) is across p."""
    across: Array = u - (u @ p) * p
    return across


def _between(p: Array, q: Array) -> Array:
    """The way (3,) from p to q, in degrees, across p."""
    across = _across(p, q)
    length = float(np.linalg.norm(across))
    angle = np.degrees(np.arctan2(length, float(p @ q)))
    way: Array = across * (angle / max(length, 1e-12))
    return way
