"""Trajectories of moving sources, and the binaural image of a source that moves along one.

Input: waypoints of a source, its dry sound and a head. Output: the binaural image (2, n). Responses
are interpolated between the measured directions (`earatlas.hrtf.interpolation`), never switched:
the sound s is cut into short overlapping frames, and each frame is filtered with the response of
its own direction.

    s(t) = Σ_i w_i(t) s(t),   Σ_i w_i = 1      image = Σ_i h_i * (w_i s)

    w_i   window of frame i, a raised cosine     h_i   (2, taps) response at the centre of frame i
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.interpolation import InterpolatedResponses
from earatlas.numerics import fast_fft_length
from earatlas.types import Array

__all__ = ["Trajectory", "parse_trajectory", "render_moving_source"]


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Direction of a source over time: great circles between waypoints, each at constant speed.

    The source stays at the first waypoint before it and at the last waypoint after it.

    Parameters
    ----------
    seconds : array_like of shape (W,)
        Times of the waypoints since the beginning of the scene, increasing from 0 or later.
    directions : array_like of shape (W, 2)
        Azimuth and elevation of the waypoints in degrees.

    Raises
    ------
    InputError
        If there are fewer than two waypoints, if the times do not increase, if the source would
        move faster than 360 degrees per second, or if two consecutive waypoints are opposite.

    Examples
    --------
    >>> import earatlas as ea
    >>> trajectory = ea.Trajectory(seconds=(0, 4), directions=((40, 0), (-40, 0)))
    >>> trajectory
    Trajectory(2 waypoints, 4.0 s, from (40, 0) to (-40, 0) degrees)
    >>> trajectory.at([1.0, 9.0]).round(6).tolist()
    [[20.0, 0.0], [-40.0, 0.0]]

    """

    seconds: Array  # (W,)
    directions: Array  # (W, 2)

    def __init__(self, seconds: ArrayLike, directions: ArrayLike) -> None:
        times = np.atleast_1d(np.asarray(seconds, dtype=np.float64))
        waypoints = Sphere().check(directions, "path")
        if times.ndim != 1 or len(times) != len(waypoints) or len(times) < 2:
            raise InputError(
                f"path must have two waypoints or more, each with its time, got {times.size} times "
                f"and {len(waypoints)} directions. Give, for example, 0,40,0/4,-40,0."
            )
        if not np.isfinite(times).all() or (np.diff(times) <= 0).any() or times[0] < 0:
            raise InputError(
                f"path must have times that increase from 0 on, got {times.tolist()}. "
                "Sort the waypoints by time."
            )
        object.__setattr__(self, "seconds", times)
        object.__setattr__(self, "directions", waypoints)
        self._check_speed()

    def _check_speed(self, max_degrees_per_second: float = 360.0) -> None:
        """Raise an InputError for a path that jumps or that is ambiguous.

        Evidence: docs/figures/settings/simulation.md, "trajectories".
        """
        legs = Sphere().distance(self.directions[:-1], self.directions[1:])
        for (begin, end), degrees in zip(pairwise(self.seconds), legs, strict=True):
            if degrees > max_degrees_per_second * (end - begin):
                raise InputError(
                    f"path must not jump, got {degrees:.0f} degrees from {begin:g} to {end:g} s. "
                    f"Allow more time: at most {max_degrees_per_second:g} degrees per second."
                )
            if degrees > 179.0:  # the shortest path between opposite directions is ambiguous
                raise InputError(
                    f"path must say which way it goes, got opposite directions at {begin:g} and "
                    f"{end:g} s. Add a waypoint between them."
                )

    def __repr__(self) -> str:
        first, last = (
            "(" + ", ".join(f"{v:.0f}" for v in self.directions[i] + 0.0) + ")" for i in (0, -1)
        )
        length = self.seconds[-1] - self.seconds[0]
        return (
            f"Trajectory({len(self.seconds)} waypoints, {length:.1f} s, "
            f"from {first} to {last} degrees)"
        )

    def at(self, seconds: ArrayLike) -> Array:
        """Return the directions at given times.

        Parameters
        ----------
        seconds : array_like of shape (T,)
            Times since the beginning of the scene.

        Returns
        -------
        ndarray of shape (T, 2)
            Azimuth and elevation in degrees.

        """
        t = np.clip(np.atleast_1d(seconds), self.seconds[0], self.seconds[-1])
        leg = np.clip(np.searchsorted(self.seconds, t, "right") - 1, 0, len(self.seconds) - 2)
        begin, end = self.directions[leg], self.directions[leg + 1]
        fraction = (t - self.seconds[leg]) / (self.seconds[leg + 1] - self.seconds[leg])
        space = Sphere()
        return space.exp(begin, fraction[:, None] * space.log(begin, end))

    def checkpoints(self) -> Array:
        """Return directions along the whole trajectory, at most one degree apart.

        Returns
        -------
        ndarray of shape (P, 2)
            Azimuth and elevation in degrees.

        """
        legs = Sphere().distance(self.directions[:-1], self.directions[1:])
        counts = np.ceil(legs).astype(np.intp) + 1
        spans = zip(pairwise(self.seconds), counts, strict=True)
        return self.at(np.concatenate([np.linspace(a, b, count) for (a, b), count in spans]))

    def to_list(self) -> list[list[float]]:
        """Return the waypoints as JSON values.

        Returns
        -------
        list of list of float
            One row [seconds, azimuth, elevation] per waypoint.

        """
        rows = np.column_stack([self.seconds, self.directions])
        return [[round(float(v), 4) for v in row] for row in rows]


def render_moving_source(
    sound: Array,
    responses: InterpolatedResponses,
    trajectory: Trajectory,
    *,
    start: int,
    rate: int,
    hop_seconds: float = 0.005,
) -> Array:
    """Return the image (2, n + taps - 1) of a dry sound (n,) that begins at sample `start`.

    The direction changes with every frame, after `hop_seconds`.
    """
    hop = max(round(hop_seconds * rate), 1)
    count = -(-len(sound) // hop) + 1  # frame i is centred on sample i * hop
    padded = np.pad(sound, (hop, (count + 1) * hop - len(sound)))
    window = 0.5 - 0.5 * np.cos(np.pi * np.arange(2 * hop) / hop)
    frames = np.lib.stride_tricks.sliding_window_view(padded, 2 * hop)[::hop][:count]
    directions = trajectory.at((start + hop * np.arange(count)) / rate)
    taps = responses.taps
    size = fast_fft_length(2 * hop + taps - 1)
    out = np.zeros((2, (count - 1) * hop + size))
    n_batch = 128  # frames per batch: a few megabytes of spectra
    for first in range(0, count, n_batch):
        batch = slice(first, min(first + n_batch, count))
        H = np.fft.rfft(responses.at(directions[batch]), size)
        filtered = np.fft.irfft(H * np.fft.rfft(window * frames[batch], size)[:, None], size)
        for i, frame in enumerate(filtered, start=first):
            out[:, i * hop : i * hop + size] += frame
    return out[:, hop : hop + len(sound) + taps - 1]


def parse_trajectory(text: str) -> Trajectory:
    """Parse SECONDS,AZIMUTH,ELEVATION/SECONDS,AZIMUTH,ELEVATION/… into a trajectory."""
    try:
        rows = [[float(part) for part in point.split(",")] for point in text.split("/")]
        seconds, *directions = (np.array(column) for column in zip(*rows, strict=True))
        if len(directions) != 2:
            raise ValueError
    except ValueError:
        raise InputError(
            f"path must be SECONDS,AZIMUTH,ELEVATION/… with two waypoints or more, got '{text}'. "
            "Give, for example, 0,40,0/4,-40,0."
        ) from None
    return Trajectory(seconds, np.column_stack(directions))
