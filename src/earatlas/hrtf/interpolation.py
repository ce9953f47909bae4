"""Interpolation of impulse responses between the measured directions of a head.

Summing neighbouring responses directly would cancel high frequencies, because their delays differ.
Each response is therefore decomposed, and each part is interpolated by a local linear model:

    H_xf = 10^(level_xf / 20) · phase_xf · exp(-j 2π f delay_x)

    delay   lag of the maximum correlation with the minimum-phase response of the same magnitude
    level   in dB, because averaging spectra would fill notches that move with direction
    phase   that of the sum of the aligned spectra

    N  measured directions    G  directions in between    k  neighbours    F  frequencies
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.fft

from earatlas.errors import InputError
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.head import Head
from earatlas.hrtf.interaural_templates import LocalLinearInterpolation
from earatlas.types import Array, Complex

__all__ = ["MAX_GAP_DEGREES", "InterpolatedResponses", "check_covered"]

# Evidence: docs/figures/settings/hrtf.md, "interpolation".
MAX_GAP_DEGREES = 10.0  # largest distance from a measured direction
_MIN_DIRECTIONS = 3  # fewer cannot be interpolated
_NEIGHBOURS = 6  # measured directions per interpolated one
_DELAY_BANDWIDTH_HZ = 4000.0  # standard deviation of the Gaussian low-pass for the delay
_OVERSAMPLING = 8  # delay steps per sample
_TAIL = 32  # samples by which a delay may shift a response beyond its end
_MIN_MAGNITUDE = 1e-4  # floor relative to the strongest frequency; without it, zeros give log(0)


def check_covered(head: Head, directions: Array, name: str = "directions") -> None:
    """Raise InputError for directions (G, 2) far from all measured ones; `name` is the argument."""
    nearest = Sphere().nearest(head.directions, directions)
    gap = Sphere().distance(head.directions[nearest], directions)
    if (gap > MAX_GAP_DEGREES).any():
        m = int(np.argmax(gap))
        direction = [round(float(v), 2) + 0.0 for v in directions[m]]
        raise InputError(
            f"{name} must be near measured ones, got {direction}, which is {gap[m]:.0f} degrees "
            f"from the nearest of '{head.name}'. Choose a direction that the head covers."
        )


@dataclass(frozen=True, eq=False)
class InterpolatedResponses:
    """Impulse responses of a head at one sampling rate, decomposed for interpolation."""

    head: Head
    level_db: Array  # (N, 2, F)
    phase: Complex  # (N, 2, F), of magnitude 1, without the delay
    delay_seconds: Array  # (N, 2)
    frequencies_hz: Array  # (F,)
    taps: int  # length of the interpolated responses, samples

    @classmethod
    def of(cls, head: Head, rate: int) -> InterpolatedResponses:
        """Decompose the responses of a head, resampled to `rate` in Hz."""
        if len(head) < _MIN_DIRECTIONS:
            raise InputError(
                f"The head must have at least {_MIN_DIRECTIONS} directions to be interpolated, got "
                f"{len(head)}. Choose a head that was measured more densely."
            )
        h = head.responses().at_rate(rate)
        n = scipy.fft.next_fast_len(2 * (h.shape[-1] + _TAIL), True)
        H = np.fft.rfft(h, n)
        f = np.arange(n // 2 + 1) * (rate / n)
        delay = _delays(H, f, n) / rate
        H *= np.exp(2j * np.pi * f * delay[..., None])
        magnitude = np.maximum(np.abs(H), np.finfo(np.float64).tiny)
        return cls(head, 20 * np.log10(magnitude), H / magnitude, delay, f, h.shape[-1] + _TAIL)

    def at(self, directions: Array) -> Array:
        """Return the responses (G, 2, taps) at directions (G, 2) in degrees."""
        known, spacing = self.head.directions, self.head.spacing_degrees
        interpolation = LocalLinearInterpolation.of(
            Sphere(), known, directions, neighbours=_NEIGHBOURS, spacing=spacing
        )
        rows, w = interpolation.rows, interpolation.weights
        level = np.einsum("gk,gkef->gef", w, self.level_db[rows])
        aligned = 10 ** (self.level_db[rows] / 20) * self.phase[rows]
        mean = np.einsum("gk,gkef->gef", w, aligned)
        delay = np.einsum("gk,gke->ge", w, self.delay_seconds[rows])
        shift = np.exp(-2j * np.pi * self.frequencies_hz * delay[..., None])
        magnitude = np.maximum(np.abs(mean), np.finfo(np.float64).tiny)
        n = 2 * (len(self.frequencies_hz) - 1)
        responses = np.fft.irfft(10 ** (level / 20) * mean / magnitude * shift, n)
        return responses[..., : self.taps]


def _delays(H: Complex, f: Array, n: int) -> Array:
    """Return the delay (N, 2) in samples relative to the minimum-phase response.

    H (N, 2, F) are the transfer functions at the frequencies f of an FFT of length n.
    """
    magnitude = np.abs(H)
    magnitude = np.maximum(magnitude, _MIN_MAGNITUDE * magnitude.max(axis=-1, keepdims=True))
    cepstrum = np.fft.irfft(np.log(magnitude), n)
    cepstrum[..., 1 : n // 2] *= 2
    cepstrum[..., n // 2 + 1 :] = 0
    cross = H * np.exp(np.fft.rfft(cepstrum, n)).conj()
    # Partial whitening, as in `interaural_templates`.
    cross /= np.sqrt(np.maximum(np.abs(cross), np.finfo(np.float64).tiny))
    cross *= np.exp(-0.5 * (f / _DELAY_BANDWIDTH_HZ) ** 2)
    correlation = np.fft.irfft(cross, _OVERSAMPLING * n)
    half = _OVERSAMPLING * n // 2  # positive lags
    delays: Array = correlation[..., :half].argmax(axis=-1) / _OVERSAMPLING
    return delays
