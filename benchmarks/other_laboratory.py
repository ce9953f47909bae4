"""A head as another laboratory, or another unit of it, would be: for the benchmarks of heads.

Input: a head with impulse responses. Output: the head with ears that are equalized differently,
another size, a scaled interaural delay and a slightly different orientation.
"""

from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

import earatlas as ea
from earatlas.geometry.angles import to_vectors
from earatlas.hrtf.head import ImpulseResponses
from earatlas.types import Array, Complex

TAPS, EARLIER = 512, 40  # samples of a response, and before its first one
OCTAVES = 0.7  # correlation length of the equalization


@dataclass(frozen=True)
class Deviations:
    """How much laboratories differ."""

    ear_db: float = 1.0  # standard deviation of the equalization of each ear
    size: tuple[float, float] = (0.03, 0.08)  # change of all frequencies
    delay: tuple[float, float] = (0.02, 0.05)  # change of the interaural delay
    degrees: float = 3.0  # standard deviation of the rotation about each axis


MILD = Deviations()
STRONG = Deviations(ear_db=2.0, size=(0.05, 0.10), delay=(0.03, 0.07), degrees=3.5)


def in_other_laboratory(head: ea.Head, seed: int, deviations: Deviations = MILD) -> ea.Head:
    """Return the head as another laboratory would measure it."""
    rng = np.random.default_rng((77, seed))
    ears = head.responses()
    H = np.fft.rfft(ears.samples, TAPS, axis=-1)
    f = np.linspace(0.0, ears.rate / 2, TAPS // 2 + 1)
    octaves = np.log2(np.maximum(f, 100.0))
    knots = np.linspace(octaves[0], octaves[-1], 16)
    covariance = np.exp(-0.5 * ((knots[:, None] - knots) / OCTAVES) ** 2) + 1e-6 * np.eye(16)
    for ear in (0, 1):
        level_db = deviations.ear_db * rng.multivariate_normal(np.zeros(16), covariance)
        H[:, ear] *= 10 ** (np.interp(octaves, knots, level_db) / 20)
    later = (change(rng, deviations.delay) - 1) * _delays(H, f)
    H[:, 1] *= np.exp(-2j * np.pi * later[:, None] * f)
    H *= np.exp(-2j * np.pi * f * EARLIER / ears.rate)
    samples = np.fft.irfft(H, TAPS, axis=-1)
    turn = Rotation.from_euler("xyz", rng.normal(scale=deviations.degrees, size=3), degrees=True)
    x, y, z = turn.apply(to_vectors(head.directions)).T
    where = np.degrees(np.column_stack([np.arctan2(y, x), np.arcsin(np.clip(z, -1, 1))]))
    rate = round(ears.rate * change(rng, deviations.size))
    return ea.Head(f"{head.name} elsewhere", where, ImpulseResponses(samples, rate))


def change(rng: np.random.Generator, limits: tuple[float, float]) -> float:
    """Return a factor that is larger or smaller than 1 by an amount within limits."""
    return float(1 + rng.choice([-1, 1]) * rng.uniform(*limits))


def _delays(H: Complex, f: Array) -> Array:
    """Return by how much the right ear (n,) is later, from the phases below 1.5 kHz."""
    low = (f > 200) & (f < 1500)
    phases = np.unwrap(np.angle(H[:, 1, low] * H[:, 0, low].conj()), axis=1)
    delays: Array = -(phases @ f[low]) / (f[low] @ f[low]) / (2 * np.pi)
    return delays
