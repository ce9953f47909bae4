"""Rooms made from a head itself: no geometry, no dependency, as different as one likes.

In: a head's responses in the open. Out: what its ears get from one direction in a random room.
Reflections come after the direct sound at random times, as dense as the images of a room, each from
a random direction of the head:

    h_room(t) = h_x(t) + Σ_i g_i h_{x_i}(t - τ_i)
    g(τ) = t_0 / (t_0 + τ) · 10^(-3 τ / T60) · 10^(-drop / 20),   t_0 = distance / c
    4 π c³ (t_0 + τ)² / V  images a second in a room of volume V
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from earatlas.geometry.angles import to_vectors
from earatlas.geometry.spaces import Sphere
from earatlas.types import Array

__all__ = ["OwnRoom", "even_weights"]

_SPEED_OF_SOUND = 343.0  # metres a second
_MOST_IMAGES = 3000.0  # a second; a thinner train of the same energy sounds alike
_FIRST_SECONDS = 0.7e-3  # nothing comes back sooner: a wall or a table is 10 cm away at least
_LONGEST_SECONDS = 0.8


@dataclass(frozen=True)
class OwnRoom:
    """A room in four numbers."""

    t60_seconds: float
    volume_cubic_metres: float
    distance_metres: float
    drop_db: float  # by which walls and a talker's directivity weaken what comes back

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Self:
        """A room at random: dry to reverberant, small to large, near to far."""
        return cls(
            t60_seconds=float(np.exp(rng.uniform(np.log(0.12), np.log(0.9)))),
            volume_cubic_metres=float(np.exp(rng.uniform(np.log(25.0), np.log(250.0)))),
            distance_metres=float(rng.uniform(0.8, 3.0)),
            drop_db=float(rng.uniform(0.0, 14.0)),
        )

    def response(
        self, responses: Array, direct: int, rate: int, weights: Array, rng: np.random.Generator
    ) -> Array:
        """(2, n) of a source at row `direct` of the responses (N, 2, taps).

        `weights` (N,) say how much of all directions each stands for, and sum to 1.
        """
        n, taps = int(rate * min(self.t60_seconds, _LONGEST_SECONDS)), responses.shape[-1]
        t0 = self.distance_metres / _SPEED_OF_SOUND
        tau = (np.arange(n) + 0.5) / rate
        density = 4 * np.pi * _SPEED_OF_SOUND**3 * (t0 + tau) ** 2 / self.volume_cubic_metres
        density[tau < _FIRST_SECONDS] = 0.0
        used = np.minimum(density, _MOST_IMAGES)
        arrive = np.flatnonzero(rng.random(n) < used / rate)
        gain = t0 / (t0 + tau[arrive]) * 10 ** (-3 * tau[arrive] / self.t60_seconds)
        gain *= 10 ** (-self.drop_db / 20) * np.sqrt(density[arrive] / used[arrive])
        rows = rng.choice(len(responses), len(arrive), p=weights)
        place = (arrive[:, None] + np.arange(taps)).ravel()
        out = np.zeros((2, n + taps))
        for ear in range(2):
            echoes = (gain[:, None] * responses[rows, ear]).ravel()
            out[ear] = np.bincount(place, echoes, n + taps)
            out[ear, :taps] += responses[direct, ear]
        return out


def even_weights(directions: Array) -> Array:
    """How much of all directions each of these (N, 2) stands for; sums to 1."""
    from scipy.spatial import cKDTree

    near = cKDTree(to_vectors(directions)).query(to_vectors(Sphere().grid(6.0)))[1]
    counts = np.bincount(near, minlength=len(directions)).astype(np.float64)
    weights: Array = counts / counts.sum()
    return weights
