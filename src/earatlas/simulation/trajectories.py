"""Sources that move: where one is when, and what it puts into both ears on its way.

In: waypoints of a source, its dry sound, and a head. Out: its image (2, n). Responses are
interpolated between the measured directions (`heads.between`), never switched: the sound is cut
into short frames that fade into each other, and each goes through the response of its own place.

    s(t) = Σ_i w_i(t) s(t),   Σ_i w_i = 1      image = Σ_i h_i * (w_i s)
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.fft
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.interpolation import ResponsesBetween
from earatlas.types import Array

__all__ = ["Trajectory", "moved", "path_of"]

_FASTEST = 360.0  # degrees a second: nobody walks round a head in less than a second
_OPPOSITE = 179.0  # degrees: from there on, the shortest way is any way
# Seconds from frame to frame: at the highest speed 1.8 degrees or about 16 µs between the ears,
# at 20 degrees a second 0.1 degrees or 1 µs, a turn of 0.1 rad at 20 kHz.
_STEP_SECONDS = 0.005
_AT_ONCE = 128  # frames: some megabytes of spectra


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Where a source is when: great circles between waypoints, each at an even speed.

    Before the first waypoint it stands there, after the last one as well.

    >>> Trajectory(seconds=(0, 4), directions=((40, 0), (-40, 0)))
    Trajectory(2 waypoints, 4.0 s, from (40, 0) to (-40, 0) degrees)
    """

    seconds: Array  # (W,) since the scene began
    directions: Array  # (W, 2) degrees

    def __init__(self, seconds: ArrayLike, directions: ArrayLike) -> None:
        times = np.atleast_1d(np.asarray(seconds, dtype=np.float64))
        places = Sphere().check(directions, "path")
        if times.ndim != 1 or len(times) != len(places) or len(times) < 2:
            raise InputError(
                f"path must have two waypoints or more, each with its time, got {times.size} times "
                f"and {len(places)} directions. Such as 0,40,0/4,-40,0."
            )
        if not np.isfinite(times).all() or (np.diff(times) <= 0).any() or times[0] < 0:
            raise InputError(
                f"path must have times from 0 on that grow, got {times.tolist()}. "
                "Put the waypoints in their order."
            )
        object.__setattr__(self, "seconds", times)
        object.__setattr__(self, "directions", places)
        self._check_speed()

    def _check_speed(self) -> None:
        """Refuse a path that jumps, or whose way cannot be known."""
        way = Sphere().distance(self.directions[:-1], self.directions[1:])
        for (begin, end), degrees in zip(pairwise(self.seconds), way, strict=True):
            if degrees > _FASTEST * (end - begin):
                raise InputError(
                    f"path must not jump, got {degrees:.0f} degrees from {begin:g} to {end:g} s. "
                    f"Give it time: at most {_FASTEST:g} degrees a second."
                )
            if degrees > _OPPOSITE:
                raise InputError(
                    f"path must say which way it goes, got opposite directions at {begin:g} and "
                    f"{end:g} s. Add a waypoint between them."
                )

    def __repr__(self) -> str:
        first, last = (
            "(" + ", ".join(f"{v:.0f}" for v in self.directions[i] + 0.0) + ")" for i in (0, -1)
        )
        length = self.seconds[-1] - self.seconds[0]
        return f"Trajectory({len(self.seconds)} waypoints, {length:.1f} s, from {first} to {last} degrees)"

    def at(self, seconds: ArrayLike) -> Array:
        """Directions (T, 2) at times (T,)."""
        t = np.clip(np.atleast_1d(seconds), self.seconds[0], self.seconds[-1])
        leg = np.clip(np.searchsorted(self.seconds, t, "right") - 1, 0, len(self.seconds) - 2)
        begin, end = self.directions[leg], self.directions[leg + 1]
        share = (t - self.seconds[leg]) / (self.seconds[leg + 1] - self.seconds[leg])
        space = Sphere()
        return space.exp(begin, share[:, None] * space.log(begin, end))

    def checkpoints(self) -> Array:
        """Directions (P, 2) along all of the way, a degree apart or less."""
        way = Sphere().distance(self.directions[:-1], self.directions[1:])
        counts = np.ceil(way).astype(np.intp) + 1
        legs = zip(pairwise(self.seconds), counts, strict=True)
        return self.at(np.concatenate([np.linspace(a, b, count) for (a, b), count in legs]))

    def to_list(self) -> list[list[float]]:
        """Rows of seconds, azimuth and elevation."""
        rows = np.column_stack([self.seconds, self.directions])
        return [[round(float(v), 4) for v in row] for row in rows]


def moved(
    sound: Array, places: ResponsesBetween, trajectory: Trajectory, *, start: int, rate: int
) -> Array:
    """Image (2, n + taps - 1) of a dry sound (n,) that begins at sample `start` of a scene."""
    hop = max(round(_STEP_SECONDS * rate), 1)
    count = -(-len(sound) // hop) + 1  # frame i is centred on sample i * hop
    padded = np.pad(sound, (hop, (count + 1) * hop - len(sound)))
    window = 0.5 - 0.5 * np.cos(np.pi * np.arange(2 * hop) / hop)
    frames = np.lib.stride_tricks.sliding_window_view(padded, 2 * hop)[::hop][:count]
    directions = trajectory.at((start + hop * np.arange(count)) / rate)
    taps = places.taps
    size = scipy.fft.next_fast_len(2 * hop + taps - 1, True)
    out = np.zeros((2, (count - 1) * hop + size))
    for first in range(0, count, _AT_ONCE):
        part = slice(first, min(first + _AT_ONCE, count))
        H = scipy.fft.rfft(places.at(directions[part]), size)
        pieces = scipy.fft.irfft(H * scipy.fft.rfft(window * frames[part], size)[:, None], size)
        for i, piece in enumerate(pieces, start=first):
            out[:, i * hop : i * hop + size] += piece
    return out[:, hop : hop + len(sound) + taps - 1]


def path_of(text: str) -> Trajectory:
    """A route in words: SECONDS,AZIMUTH,ELEVATION/SECONDS,AZIMUTH,ELEVATION/…."""
    try:
        rows = [[float(part) for part in point.split(",")] for point in text.split("/")]
        seconds, *directions = (np.array(column) for column in zip(*rows, strict=True))
        if len(directions) != 2:
            raise ValueError
    except ValueError:
        raise InputError(
            f"path must be SECONDS,AZIMUTH,ELEVATION/… with two points or more, got '{text}'. "
            "Such as 0,40,0/4,-40,0."
        ) from None
    return Trajectory(seconds, np.column_stack(directions))
