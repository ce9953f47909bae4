"""A sound in frames, made ready for filters: every frequency of an ear at one level.

In: samples (2, n). Out: spectra X (2, F, T) without 0 Hz, each ear divided by its mean level at
each frequency, so that ε means the same in both; and the way back. All in single precision: filters
use half the time and memory, and sums are made whole in the samples' own (two talkers in the open:
SDR changes by less than 0.01 dB).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from earatlas.features.stft import istft, squared_size, stft
from earatlas.types import Array, Complex, Spectra

__all__ = ["FLOOR", "Frames", "level"]

FLOOR = 1e-9  # of the strongest bin: keeps silence from being divided by


def level(X: Spectra) -> tuple[Spectra, Array]:
    """Spectra (2, F, T), each ear at one level at every frequency, and the levels (2, F, 1)."""
    ears = np.sqrt(squared_size(X).mean(axis=2, keepdims=True))
    ears = np.maximum(ears, 1e-6 * float(ears.max()))
    return X / ears, ears


@dataclass(frozen=True, eq=False)
class Frames:
    """Spectra of samples (2, n), levelled; `sounds` goes back."""

    samples: Array  # (2, n)
    rate: int  # Hz
    window: int  # samples
    hop: int  # samples
    scale: float  # the greatest sample; levels and spectra are in units of it
    X: Spectra  # (2, F, T), F = window / 2: above 0 Hz
    ears: Array  # (2, F, 1) levels
    constant: Spectra  # (2, 1, T) at 0 Hz

    @classmethod
    def of(cls, samples: Array, rate: int, window: int, hops: int) -> Frames:
        """With so many hops a window; samples that are not silent."""
        hop = max(window // hops, 1)
        # At one level, whatever the recording's: single precision has no room for all of them.
        scale = np.abs(samples).max()
        # In rows of a frequency, as all that follows reads them.
        spectra = np.ascontiguousarray(stft((samples / scale).astype(np.float32), window, hop))
        X, ears = level(spectra[:, 1:])
        return cls(samples, rate, window, hop, float(scale), X, ears, spectra[:, :1])

    @cached_property
    def power(self) -> Array:
        """(F, T) of both ears."""
        power: Array = squared_size(self.X).sum(axis=0)
        return power

    def power_of(self, sound: Array) -> Array:
        """(F, T) of both ears of another sound (2, n), levelled alike."""
        spectra = stft((sound / self.scale).astype(np.float32), self.window, self.hop)
        power: Array = squared_size(spectra[:, 1:] / self.ears).sum(axis=0)
        return power

    @property
    def floor(self) -> float:
        """A power that is nothing."""
        return FLOOR * float(self.power.max())

    @property
    def hertz(self) -> Array:
        """(F,) the frequencies."""
        return (np.arange(self.X.shape[1]) + 1) * self.rate / self.window

    @property
    def a_second(self) -> float:
        """So many frames."""
        return self.rate / self.hop

    def sounds(self, images: Complex) -> Array:
        """Both ears (M, 2, n) of images (M, 2, F, T) of levelled spectra that add up to X.

        The last is what the others leave: so they add up to the samples.
        """
        M, n = len(images), self.samples.shape[1]
        sounds = np.empty((M, 2, n))
        for m, image in enumerate(images[:-1]):
            spectra = np.concatenate([self.constant / M, image * self.ears], axis=1)
            sounds[m] = self.scale * istft(spectra, self.window, self.hop, n)
        sounds[-1] = self.samples - sounds[:-1].sum(axis=0)
        return sounds
