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

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.head import Head, ImpulseResponses
from earatlas.hrtf.interaural_templates import LocalLinearInterpolation, correlation_lags
from earatlas.numerics import fast_fft_length
from earatlas.types import Array, Complex

__all__ = ["InterpolatedResponses", "check_covered", "interpolated_head"]


def interpolated_head(head: Head, directions: ArrayLike) -> Head:
    """Return a head at other directions, with interpolated impulse responses.

    Parameters
    ----------
    head : Head
        A head with impulse responses at three or more directions, without reverberation.
    directions : array_like of shape (G, 2)
        Azimuth and elevation in degrees, each at most 10 degrees from a measured direction.

    Returns
    -------
    Head
        The head at the new directions. Its provenance says that it was interpolated.

    Raises
    ------
    InputError
        If the head has no impulse responses or too few, or if a direction is not covered.

    Examples
    --------
    >>> import earatlas as ea
    >>> coarse = ea.simulated_head(ea.Sphere().grid(10.0))
    >>> ea.interpolated_head(coarse, [[3.0, 4.0], [-77.0, 12.0]])
    Head('simulated', 2 directions)
    """
    points = Sphere().check(directions, "directions")
    check_covered(head, points)
    rate = round(head.responses().rate)
    responses = InterpolatedResponses.of(head, rate).at(points)
    note = f"interpolated from {len(head)} directions"
    provenance = f"{head.provenance}; {note}" if head.provenance else note
    ears = ImpulseResponses(responses, float(rate))
    return replace(head, directions=points, ears=ears, provenance=provenance)


def check_covered(
    head: Head, directions: Array, name: str = "directions", *, max_gap_degrees: float = 10.0
) -> None:
    """Raise InputError for directions (G, 2) far from all measured ones; `name` is the argument."""
    nearest = Sphere().nearest(head.directions, directions)
    gap = Sphere().distance(head.directions[nearest], directions)
    if (gap > max_gap_degrees).any():
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
    # Measured directions per interpolated one. Evidence: docs/figures/settings/hrtf.md,
    # "interpolation".
    neighbours: int = 6

    @classmethod
    def of(cls, head: Head, rate: int) -> InterpolatedResponses:
        """Decompose the responses of a head, resampled to `rate` in Hz."""
        if len(head) < 3:  # a plane has three coefficients
            raise InputError(
                f"The head must have at least 3 directions to be interpolated, got {len(head)}. "
                "Choose a head that was measured more densely."
            )
        h = head.responses().at_rate(rate)
        taps = h.shape[-1] + 32  # a delay may shift a response beyond its end
        n = 2 * fast_fft_length(taps)  # even, so that F = n / 2 + 1
        H = np.fft.rfft(h, n)
        f = np.arange(n // 2 + 1, dtype=np.float64) * (rate / n)
        delay = _delays(H, f, n) / rate
        H *= np.exp(2j * np.pi * f * delay[..., None])
        magnitude = np.maximum(np.abs(H), np.finfo(np.float64).tiny)
        return cls(head, 20 * np.log10(magnitude), H / magnitude, delay, f, taps)

    def at(self, directions: Array) -> Array:
        """Return the responses (G, 2, taps) at directions (G, 2) in degrees."""
        known, spacing = self.head.directions, self.head.spacing_degrees
        interpolation = LocalLinearInterpolation.of(
            Sphere(), known, directions, neighbours=self.neighbours, spacing=spacing
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


def _delays(H: Complex, f: Array, n: int, bandwidth_hz: float = 4000.0) -> Array:
    """Return the delay (N, 2) in samples relative to the minimum-phase response.

    H (N, 2, F) are the transfer functions at the frequencies f of an FFT of length n. The delay is
    that of the frequencies that pass a Gaussian low-pass with the standard deviation
    `bandwidth_hz`. Evidence: docs/figures/settings/hrtf.md, "interpolation".
    """
    magnitude = np.abs(H)
    # The floor is -80 dB; without it, zeros give log(0), and no minimum phase exists.
    magnitude = np.maximum(magnitude, 1e-4 * magnitude.max(axis=-1, keepdims=True))
    cepstrum = np.fft.irfft(np.log(magnitude), n)
    cepstrum[..., 1 : n // 2] *= 2
    cepstrum[..., n // 2 + 1 :] = 0
    cross = H * np.exp(np.fft.rfft(cepstrum, n)).conj()
    # The minimum-phase response is the earliest with this magnitude, so lags are positive.
    return correlation_lags(cross, f / bandwidth_hz, min_lag=0.0, max_lag=n / 2 - 1)
