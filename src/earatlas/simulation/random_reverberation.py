"""Random reverberation made from a head's own anechoic responses, without room geometry.

Input: a head's anechoic responses. Output: the binaural response of one direction in a random room.
Reflections follow the direct sound at random times, as dense as the image sources of a room, and
each comes from a random direction of the head:

    h_room(t) = h_x(t) + Σ_i g_i h_{x_i}(t - τ_i)
    g(τ) = t_0 / (t_0 + τ) · 10^(-3 τ / T60) · 10^(-drop / 20),   t_0 = distance / c
    4 π c³ (t_0 + τ)² / V  image sources per second in a room of volume V
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.simulated import SPEED_OF_SOUND
from earatlas.types import Array

__all__ = ["RandomReverberation", "solid_angle_weights"]


# Evidence: docs/figures/settings/simulation.md, "random_reverberation".
@dataclass(frozen=True)
class RandomReverberation:
    """Parameters of a random room."""

    t60_seconds: float
    volume_cubic_metres: float
    distance_metres: float  # distance of the source from the head
    drop_db: float  # attenuation of reflections by the walls and by the talker's directivity
    first_reflection_seconds: float = 0.7e-3  # a wall or a table is at least 10 cm away
    max_image_rate: float = 3000.0  # images per second; denser ones are replaced at equal energy
    max_seconds: float = 0.8  # longest reverberation that is rendered

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Self:
        """Draw a room: dry to reverberant, small to large, with a near or far source."""
        return cls(
            t60_seconds=float(np.exp(rng.uniform(np.log(0.12), np.log(0.9)))),
            volume_cubic_metres=float(np.exp(rng.uniform(np.log(25.0), np.log(250.0)))),
            distance_metres=float(rng.uniform(0.8, 3.0)),
            drop_db=float(rng.uniform(0.0, 14.0)),
        )

    def response(
        self, responses: Array, direct: int, rate: int, weights: Array, rng: np.random.Generator
    ) -> Array:
        """Return the response (2, n) of a source at row `direct` of the responses (N, 2, taps).

        `weights` (N,) are the probabilities of the directions of reflections; they sum to 1.
        """
        n, taps = int(rate * min(self.t60_seconds, self.max_seconds)), responses.shape[-1]
        t0 = self.distance_metres / SPEED_OF_SOUND
        tau = (np.arange(n) + 0.5) / rate
        density = 4 * np.pi * SPEED_OF_SOUND**3 * (t0 + tau) ** 2 / self.volume_cubic_metres
        density[tau < self.first_reflection_seconds] = 0.0
        rendered = np.minimum(density, self.max_image_rate)
        arrivals = np.flatnonzero(rng.random(n) < rendered / rate)
        gain = t0 / (t0 + tau[arrivals]) * 10 ** (-3 * tau[arrivals] / self.t60_seconds)
        gain *= 10 ** (-self.drop_db / 20) * np.sqrt(density[arrivals] / rendered[arrivals])
        rows = rng.choice(len(responses), len(arrivals), p=weights)
        samples = (arrivals[:, None] + np.arange(taps)).ravel()
        out = np.zeros((2, n + taps))
        for ear in range(2):
            reflections = (gain[:, None] * responses[rows, ear]).ravel()
            out[ear] = np.bincount(samples, reflections, n + taps)
            out[ear, :taps] += responses[direct, ear]
        return out


def solid_angle_weights(directions: Array) -> Array:
    """Return the share (N,) of the sphere that is nearest to each direction (N, 2); sums to 1."""
    nearest = Sphere().nearest(directions, Sphere().grid(6.0))
    counts = np.bincount(nearest, minlength=len(directions)).astype(np.float64)
    weights: Array = counts / counts.sum()
    return weights
