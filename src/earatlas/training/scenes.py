"""Training scenes simulated from a head: anechoic, noisy and reverberant synthetic speech.

Input: the impulse responses of a head. Output: two-channel samples of one source, or of two
simultaneous sources, from measured directions. No recordings and no measured rooms are needed
(`earatlas.simulation.random_reverberation`).

Some scenes simulate *another unit* of the same type of head: two measurements of one type differ in
level, delay and orientation. There the true direction is rotated a little.

    N  measured directions    F  frequencies of the onset detector    T  taps of a response
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from earatlas.geometry.spaces import Space, Sphere
from earatlas.hrtf.head import Head
from earatlas.simulation.random_reverberation import RandomReverberation, solid_angle_weights
from earatlas.simulation.synthetic_speech import SyntheticTalkers
from earatlas.types import Array, Complex, Indices

__all__ = ["TrainingScenes", "interaural_mismatch", "perturb_direction"]

# Evidence: docs/figures/settings/training.md, "scenes".
_KIND_PROBABILITIES = (0.15, 0.35, 0.5)  # anechoic, noisy, reverberant
_PAIR_KIND_PROBABILITIES = (0.15, 0.45, 0.4)  # the same for two sources
_MISMATCH_DB, _MISMATCH_SECONDS = 0.9, 9e-6  # standard deviations between two units of a head
_ROTATION_DEGREES = 2.0  # standard deviation of the orientation between two units
_KNOTS = 12  # knots of the smooth random error over frequency
_MAX_SECONDS = 3.0  # duration of a scene
_MIN_SEPARATION_DEGREES = 15.0  # smallest angle between two sources
_LEVEL_RANGE_DB = 3.0  # largest deviation of a source from equal levels
_PAIR_SNR_DB = (-9.0, -5.0, 25.0)  # least, most probable, greatest: errors vary most in much noise
_PAIR_T60_SECONDS = (0.15, 0.6)  # beyond, two sources cannot be localized


@dataclass(frozen=True, eq=False)
class TrainingScenes:
    """Simulator of training scenes from the responses of a head."""

    directions: Array  # (N, C) degrees
    responses: Array  # (N, 2, T) without common leading and trailing silence
    weights: Array  # (N,) fraction of the sphere that each direction represents; sum to 1
    synthetic_talkers: SyntheticTalkers

    @classmethod
    def of(cls, head: Head, synthetic_talkers: SyntheticTalkers) -> TrainingScenes:
        """Prepare scenes from a head with impulse responses."""
        responses = _trimmed(head.responses().at_rate(synthetic_talkers.rate))
        _ = synthetic_talkers.voices  # computed once, before the threads need them
        return cls(
            head.directions, responses, solid_angle_weights(head.directions), synthetic_talkers
        )

    @property
    def rate(self) -> int:
        """Sampling rate in Hz."""
        return self.synthetic_talkers.rate

    def single_source(self, rng: np.random.Generator) -> tuple[int, Array]:
        """Return the row of a random direction, and samples (2, n) of speech from there."""
        dry = self.synthetic_talkers.excerpt(rng.uniform(1.0, _MAX_SECONDS), rng)
        row = int(rng.choice(len(self.responses), p=self.weights))
        kind = rng.choice(3, p=_KIND_PROBABILITIES)
        response = self.responses[row]
        if kind == 2:
            response = RandomReverberation.sample(rng).response(
                self.responses, row, self.rate, self.weights, rng
            )
        snr_db = (60.0, rng.uniform(-3.0, 30.0), rng.uniform(20.0, 60.0))[kind]
        return row, _add_noise(_convolve(dry, response), snr_db, rng)

    def source_pair(self, rng: np.random.Generator, *, other_unit: bool) -> tuple[Indices, Array]:
        """Return the rows (2,) of two directions, and samples (2, n) of speech from both.

        The levels are similar. With `other_unit` each direction has its own interaural mismatch.
        """
        rows = self._separated_rows(rng)
        kind = rng.choice(3, p=_PAIR_KIND_PROBABILITIES)
        room = RandomReverberation.sample(rng)
        room = replace(room, t60_seconds=float(np.clip(room.t60_seconds, *_PAIR_T60_SECONDS)))
        seconds = rng.uniform(2.0, _MAX_SECONDS)
        total = np.zeros((2, int(seconds * self.rate)))
        for row in rows.tolist():
            response = self.responses[row]
            if kind == 2:
                response = room.response(self.responses, row, self.rate, self.weights, rng)
            if other_unit:
                response = response + _mismatch_response(
                    self.responses[row], response, self.rate, rng
                )
            sound = _convolve(self.synthetic_talkers.excerpt(seconds, rng), response)[
                :, : total.shape[1]
            ]
            level_db = rng.uniform(-_LEVEL_RANGE_DB, _LEVEL_RANGE_DB)
            total += sound / sound.std() * 10 ** (level_db / 20)
        snr_db = (60.0, rng.triangular(*_PAIR_SNR_DB), rng.uniform(20.0, 60.0))[kind]
        return rows, _add_noise(total, snr_db, rng)

    def _separated_rows(self, rng: np.random.Generator) -> Indices:
        """Return the rows (2,) of two directions with the minimum separation, if possible."""
        rows = rng.choice(len(self.responses), 2, p=self.weights, replace=False)
        for _ in range(100):  # a head that was measured in a small region has no such pair
            if Sphere().distance(*self.directions[rows]) >= _MIN_SEPARATION_DEGREES:
                break
            rows = rng.choice(len(self.responses), 2, p=self.weights, replace=False)
        return rows


def _convolve(dry: Array, response: Array) -> Array:
    """Convolve a sound (n,) with the responses of both ears (2, T)."""
    from scipy.signal import oaconvolve

    convolved: Array = oaconvolve(dry[None], response, axes=1)
    return convolved


def _add_noise(samples: Array, snr_db: float, rng: np.random.Generator) -> Array:
    """Add noise that is independent at the ears."""
    noisy: Array = samples + rng.normal(size=samples.shape) * samples.std() * 10 ** (-snr_db / 20)
    return noisy


def _trimmed(responses: Array) -> Array:
    """Remove the common leading and trailing silence of responses (N, 2, taps)."""
    energy = np.cumsum((responses**2).sum(axis=(0, 1)))
    first, last = np.searchsorted(energy / energy[-1], (1e-5, 1 - 1e-5))
    return responses[..., max(first - 4, 0) : last + 4]


def interaural_mismatch(frequencies_hz: Array, rng: np.random.Generator) -> Complex:
    """Return random factors (F,) by which the right ear of another unit may differ."""
    knots = np.linspace(0, _KNOTS - 1, len(frequencies_hz))
    level, phase = (np.interp(knots, np.arange(_KNOTS), k) for k in rng.normal(size=(2, _KNOTS)))
    growth = 0.5 + frequencies_hz / 4000
    delay = _MISMATCH_SECONDS * (rng.normal() + phase) / np.sqrt(2)
    mismatch: Complex = 10 ** (_MISMATCH_DB * growth * level / 20) * np.exp(
        -2j * np.pi * frequencies_hz * delay
    )
    return mismatch


def _mismatch_response(
    direct: Array, response: Array, rate: int, rng: np.random.Generator
) -> Array:
    """Return what must be added to a response (2, n) to change its direct sound (2, T).

    The direct sound at the right ear becomes that of another unit of the head.
    """
    taps = direct.shape[-1]
    spectrum = np.fft.rfft(direct[1], 2 * taps)
    spectrum *= interaural_mismatch(np.arange(len(spectrum)) * (rate / (2 * taps)), rng)
    right = np.fft.irfft(spectrum)[:taps]
    difference = np.zeros_like(response)
    difference[1, :taps] = right - direct[1]
    return difference


def perturb_direction(space: Space, direction: Array, rng: np.random.Generator) -> Array:
    """Return a direction (C,) displaced by the random orientation of another unit of the head."""
    step = rng.normal(0, _ROTATION_DEGREES, space.dims)
    displaced: Array = space.exp(direction[None], step[None])[0]
    return displaced
