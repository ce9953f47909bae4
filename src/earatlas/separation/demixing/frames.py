"""STFT frames of a two-channel signal, normalized per ear and frequency, and the inverse transform.

Input: samples (2, n). Output: spectra X (2, F, T) without the 0 Hz bin, each ear divided by its
RMS level at each frequency, so that the diffuse-to-direct ratio ε has the same meaning in both
ears; `NormalizedFrames.synthesize` goes back to samples. Spectra are in single precision, which
halves time and memory; the sum of the sources is restored in the precision of the samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from earatlas.features.stft import istft, squared_magnitude, stft
from earatlas.types import Array, Complex, Spectra

__all__ = ["FLOOR", "NormalizedFrames", "normalize_levels"]

FLOOR = 1e-9  # power relative to the strongest bin; avoids division by zero in silence


def normalize_levels(X: Spectra) -> tuple[Spectra, Array]:
    """Return spectra (2, F, T) with unit RMS per ear and frequency, and the levels (2, F, 1)."""
    levels = np.sqrt(squared_magnitude(X).mean(axis=2, keepdims=True))
    levels = np.maximum(levels, 1e-6 * float(levels.max()))
    return X / levels, levels


@dataclass(frozen=True, eq=False)
class NormalizedFrames:
    """Normalized spectra of samples (2, n); `synthesize` is the inverse transform."""

    samples: Array  # (2, n)
    rate: int  # Hz
    window: int  # samples
    hop: int  # samples
    scale: float  # the largest absolute sample; levels and spectra are in units of it
    X: Spectra  # (2, F, T), F = window / 2 bins above 0 Hz
    ear_levels: Array  # (2, F, 1) RMS level per ear and frequency
    dc: Spectra  # (2, 1, T) the 0 Hz bin

    @classmethod
    def from_samples(
        cls, samples: Array, rate: int, window: int, hops_per_window: int
    ) -> NormalizedFrames:
        """Transform samples that are not all zero, with `hops_per_window` hops per window."""
        hop = max(window // hops_per_window, 1)
        # Scaled to unit peak: single precision cannot represent the squares of all input levels.
        scale = np.abs(samples).max()
        # Contiguous in frequency rows, which is the access order of all later steps.
        spectra = np.ascontiguousarray(stft((samples / scale).astype(np.float32), window, hop))
        X, ear_levels = normalize_levels(spectra[:, 1:])
        return cls(samples, rate, window, hop, float(scale), X, ear_levels, spectra[:, :1])

    @cached_property
    def power(self) -> Array:
        """Power (F, T), summed over both ears."""
        power: Array = squared_magnitude(self.X).sum(axis=0)
        return power

    def power_of(self, signal: Array) -> Array:
        """Return the power (F, T) of another signal (2, n) in the same normalization."""
        spectra = stft((signal / self.scale).astype(np.float32), self.window, self.hop)
        power: Array = squared_magnitude(spectra[:, 1:] / self.ear_levels).sum(axis=0)
        return power

    @property
    def floor(self) -> float:
        """A power that is negligible against the strongest bin."""
        return FLOOR * float(self.power.max())

    @property
    def frequencies_hz(self) -> Array:
        """Centre frequencies (F,) of the bins."""
        return (np.arange(self.X.shape[1]) + 1) * self.rate / self.window

    @property
    def frames_per_second(self) -> float:
        """Frame rate in Hz."""
        return self.rate / self.hop

    def synthesize(self, images: Complex) -> Array:
        """Return signals (M, 2, n) from normalized images (M, 2, F, T) that sum to X.

        The last signal is the mixture minus all others, so the signals sum to the samples exactly.
        """
        M, n = len(images), self.samples.shape[1]
        signals = np.empty((M, 2, n))
        for m, image in enumerate(images[:-1]):
            spectra = np.concatenate([self.dc / M, image * self.ear_levels], axis=1)
            signals[m] = self.scale * istft(spectra, self.window, self.hop, n)
        signals[-1] = self.samples - signals[:-1].sum(axis=0)
        return signals
