"""Training scenes simulated from a head: anechoic, noisy and reverberant synthetic speech.

Input: the impulse responses of a head. Output: two-channel samples of one source, or of two
simultaneous sources, from measured directions. No recordings and no measured rooms are needed
(`earatlas.simulation.random_reverberation`).

Some scenes simulate *another unit* of the same type of head: two measurements of one type differ in
level, delay and orientation. There the true direction is rotated a little.

    N  measured directions    F  frequencies of the onset detector    T  taps of a response
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from earatlas.geometry.spaces import Space, Sphere
from earatlas.hrtf.head import Head
from earatlas.numerics import convolve
from earatlas.simulation.random_reverberation import RandomReverberation, solid_angle_weights
from earatlas.simulation.synthetic_speech import SyntheticTalkers
from earatlas.types import Array, Complex, Indices

__all__ = ["TrainingSceneSettings", "TrainingScenes", "UnitMismatch"]


# Evidence: docs/figures/settings/training.md, "scenes".
@dataclass(frozen=True, slots=True)
class TrainingSceneSettings:
    """Random parameters of training scenes; ranges are uniform."""

    kind_probabilities: tuple[float, ...] = (0.15, 0.35, 0.5)  # anechoic, noisy, reverberant
    seconds: tuple[float, float] = (1.0, 3.0)  # duration of a scene
    noisy_snr_db: tuple[float, float] = (-3.0, 30.0)
    reverberant_snr_db: tuple[float, float] = (20.0, 60.0)

    # Scenes of two sources
    pair_kind_probabilities: tuple[float, ...] = (0.15, 0.45, 0.4)
    pair_seconds: tuple[float, float] = (2.0, 3.0)
    pair_snr_db: tuple[float, float, float] = (-9.0, -5.0, 25.0)  # least, mode, greatest
    pair_t60_seconds: tuple[float, float] = (0.15, 0.6)  # beyond, two cannot be localized
    min_separation_degrees: float = 15.0  # smallest angle between two sources
    level_range_db: float = 3.0  # largest deviation of a source from equal levels


# Evidence: docs/figures/settings/training.md, "scenes".
@dataclass(frozen=True, slots=True)
class UnitMismatch:
    """Standard deviations between two units of the same type of head."""

    level_db: float = 0.9
    delay_seconds: float = 9e-6
    rotation_degrees: float = 2.0
    knots: int = 12  # of the smooth random error over frequency

    def interaural_factors(self, frequencies_hz: Array, rng: np.random.Generator) -> Complex:
        """Return random factors (F,) by which the right ear of another unit may differ."""
        knots = np.linspace(0, self.knots - 1, len(frequencies_hz))
        level, phase = (
            np.interp(knots, np.arange(self.knots), k) for k in rng.normal(size=(2, self.knots))
        )
        growth = 0.5 + frequencies_hz / 4000
        delay = self.delay_seconds * (rng.normal() + phase) / np.sqrt(2)
        factors: Complex = 10 ** (self.level_db * growth * level / 20) * np.exp(
            -2j * np.pi * frequencies_hz * delay
        )
        return factors

    def displaced(self, space: Space, direction: Array, rng: np.random.Generator) -> Array:
        """Return a direction (C,), displaced by the random orientation of another unit."""
        step = rng.normal(0, self.rotation_degrees, space.dims)
        displaced: Array = space.exp(direction[None], step[None])[0]
        return displaced


@dataclass(frozen=True, eq=False)
class TrainingScenes:
    """Simulator of training scenes from the responses of a head."""

    directions: Array  # (N, C) degrees
    responses: Array  # (N, 2, T) without common leading and trailing silence
    weights: Array  # (N,) fraction of the sphere that each direction represents; sum to 1
    synthetic_talkers: SyntheticTalkers
    settings: TrainingSceneSettings = field(default_factory=TrainingSceneSettings)
    unit_mismatch: UnitMismatch = field(default_factory=UnitMismatch)

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
        settings = self.settings
        dry = self.synthetic_talkers.excerpt(rng.uniform(*settings.seconds), rng)
        row = int(rng.choice(len(self.responses), p=self.weights))
        kind = rng.choice(3, p=settings.kind_probabilities)
        response = self.responses[row]
        if kind == 2:
            response = RandomReverberation.sample(rng).response(
                self.responses, row, self.rate, self.weights, rng
            )
        noisy, reverberant = settings.noisy_snr_db, settings.reverberant_snr_db
        snr_db = (60.0, rng.uniform(*noisy), rng.uniform(*reverberant))[kind]
        return row, _add_noise(convolve(dry, response), snr_db, rng)

    def source_pair(self, rng: np.random.Generator, *, other_unit: bool) -> tuple[Indices, Array]:
        """Return the rows (2,) of two directions, and samples (2, n) of speech from both.

        The levels are similar. With `other_unit` each direction has its own interaural mismatch.
        """
        settings, rows = self.settings, self._separated_rows(rng)
        kind = rng.choice(3, p=settings.pair_kind_probabilities)
        room = RandomReverberation.sample(rng)
        t60_seconds = float(np.clip(room.t60_seconds, *settings.pair_t60_seconds))
        room = replace(room, t60_seconds=t60_seconds)
        seconds = rng.uniform(*settings.pair_seconds)
        total = np.zeros((2, int(seconds * self.rate)))
        for row in rows.tolist():
            response = self.responses[row]
            if kind == 2:
                response = room.response(self.responses, row, self.rate, self.weights, rng)
            if other_unit:
                response = response + self._mismatch_response(row, response, rng)
            sound = convolve(self.synthetic_talkers.excerpt(seconds, rng), response)[
                :, : total.shape[1]
            ]
            level_db = rng.uniform(-settings.level_range_db, settings.level_range_db)
            total += sound / sound.std() * 10 ** (level_db / 20)
        noisy, reverberant = settings.pair_snr_db, settings.reverberant_snr_db
        snr_db = (60.0, rng.triangular(*noisy), rng.uniform(*reverberant))[kind]
        return rows, _add_noise(total, snr_db, rng)

    def _separated_rows(self, rng: np.random.Generator) -> Indices:
        """Return the rows (2,) of two directions with the minimum separation, if possible."""
        rows = rng.choice(len(self.responses), 2, p=self.weights, replace=False)
        for _ in range(100):  # a head that was measured in a small region has no such pair
            if Sphere().distance(*self.directions[rows]) >= self.settings.min_separation_degrees:
                break
            rows = rng.choice(len(self.responses), 2, p=self.weights, replace=False)
        return rows

    def _mismatch_response(self, row: int, response: Array, rng: np.random.Generator) -> Array:
        """Return what must be added to a response (2, n) to change its direct sound.

        The direct sound of direction `row` at the right ear becomes that of another unit.
        """
        direct = self.responses[row]
        taps = direct.shape[-1]
        spectrum = np.fft.rfft(direct[1], 2 * taps)
        frequencies_hz = np.arange(len(spectrum)) * (self.rate / (2 * taps))
        spectrum *= self.unit_mismatch.interaural_factors(frequencies_hz, rng)
        right = np.fft.irfft(spectrum)[:taps]
        difference = np.zeros_like(response)
        difference[1, :taps] = right - direct[1]
        return difference


def _add_noise(samples: Array, snr_db: float, rng: np.random.Generator) -> Array:
    """Add noise that is independent at the ears."""
    noisy: Array = samples + rng.normal(size=samples.shape) * samples.std() * 10 ** (-snr_db / 20)
    return noisy


def _trimmed(responses: Array) -> Array:
    """Remove the common leading and trailing silence of responses (N, 2, taps)."""
    energy = np.cumsum((responses**2).sum(axis=(0, 1)))
    first, last = np.searchsorted(energy / energy[-1], (1e-5, 1 - 1e-5))
    return responses[..., max(first - 4, 0) : last + 4]
