"""Impulse responses between the measured directions.

In: a head's responses and any directions near measured ones. Out: responses there. Two responses
that are added as they are cancel each other where their delays differ: at 10 kHz neighbours that
are 4 degrees apart turn against each other. So each ear's response is taken apart first, as in
`templates`, and each part is read off a local line:

    H_xf = 10^(level_xf / 20) · phase_xf · exp(-j 2π f delay_x)

    delay   of an ear: where its response is most like the one of least phase with the same levels
    level   in dB: sums of spectra would fill notches that move
    phase   that of the sum of the aligned spectra

200 directions of the KU100 that were left out, 4 degrees from their neighbours: 20.8 dB of signal
to error (the nearest neighbour 6.8, sums of responses as they are 14.2), 1.9 dB off in level (2.8,
5.4), 2.7 µs in time between the ears (31, 2.6).

    N  measured directions    G  wished ones    k  neighbours    F  frequencies
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.fft

from earatlas.errors import InputError
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.head import Head
from earatlas.hrtf.interaural_templates import Interpolation
from earatlas.types import Array, Complex

__all__ = ["FARTHEST_DEGREES", "ResponsesBetween", "check_near"]

FARTHEST_DEGREES = 10.0  # from a measured direction
_FEWEST = 3  # directions: with fewer there is nothing between them
_NEIGHBOURS = 6  # 9 and 12 are as good in level, and 0.2 and 0.4 dB worse in signal to error
_DELAY_HERTZ = 4000.0  # Gaussian; with all frequencies the worst tenth is 1.6 dB worse
_FINER = 8  # steps of the delay a sample
_TAIL = 32  # samples that a delay may move a response beyond its end
_QUIETEST = 1e-4  # of the strongest frequency: what has no level has no least phase


def check_near(head: Head, directions: Array, name: str = "directions") -> None:
    """Refuse directions (G, 2) that the head does not cover."""
    found = Sphere().nearest(head.directions, directions)
    gap = Sphere().distance(head.directions[found], directions)
    if (gap > FARTHEST_DEGREES).any():
        m = int(np.argmax(gap))
        place = [round(float(v), 2) + 0.0 for v in directions[m]]
        raise InputError(
            f"{name} must be near measured ones, got {place}, which is {gap[m]:.0f} degrees "
            f"from the nearest of '{head.name}'. Choose a direction that the head covers (earatlas "
            "info shows which)."
        )


@dataclass(frozen=True, eq=False)
class ResponsesBetween:
    """A head's responses in a form that can be interpolated, at one rate."""

    head: Head
    level_db: Array  # (N, 2, F)
    phase: Complex  # (N, 2, F) of size 1, without the delay
    delay_seconds: Array  # (N, 2)
    frequencies_hz: Array  # (F,)
    taps: int

    @classmethod
    def of(cls, head: Head, rate: int) -> ResponsesBetween:
        """Those of a head, resampled to `rate`."""
        if len(head) < _FEWEST:
            raise InputError(
                f"head must have at least {_FEWEST} directions for others between them, got "
                f"{len(head)}. Choose one that was measured more densely."
            )
        h = head.responses().at_rate(rate)
        n = scipy.fft.next_fast_len(2 * (h.shape[-1] + _TAIL), True)
        H = np.fft.rfft(h, n)
        f = np.arange(n // 2 + 1) * (rate / n)
        delay = _delays(H, f, n) / rate
        H *= np.exp(2j * np.pi * f * delay[..., None])
        size = np.maximum(np.abs(H), np.finfo(np.float64).tiny)
        return cls(head, 20 * np.log10(size), H / size, delay, f, h.shape[-1] + _TAIL)

    def at(self, directions: Array) -> Array:
        """Responses (G, 2, taps) at directions (G, 2)."""
        known, spacing = self.head.directions, self.head.spacing_degrees
        between = Interpolation.of(
            Sphere(), known, directions, neighbours=_NEIGHBOURS, spacing=spacing
        )
        rows, w = between.rows, between.weights
        level = np.einsum("gk,gkef->gef", w, self.level_db[rows])
        aligned = 10 ** (self.level_db[rows] / 20) * self.phase[rows]
        mean = np.einsum("gk,gkef->gef", w, aligned)
        delay = np.einsum("gk,gke->ge", w, self.delay_seconds[rows])
        turn = np.exp(-2j * np.pi * self.frequencies_hz * delay[..., None])
        size = np.maximum(np.abs(mean), np.finfo(np.float64).tiny)
        n = 2 * (len(self.frequencies_hz) - 1)
        responses = np.fft.irfft(10 ** (level / 20) * mean / size * turn, n)
        return responses[..., : self.taps]


def _delays(H: Complex, f: Array, n: int) -> Array:
    """In samples (N, 2): where each response is most like that of least phase, at low frequency."""
    size = np.abs(H)
    size = np.maximum(size, _QUIETEST * size.max(axis=-1, keepdims=True))
    cepstrum = np.fft.irfft(np.log(size), n)
    cepstrum[..., 1 : n // 2] *= 2
    cepstrum[..., n // 2 + 1 :] = 0
    cross = H * np.exp(np.fft.rfft(cepstrum, n)).conj()
    # Half-way to a phase transform, as `templates` has it.
    cross /= np.sqrt(np.maximum(np.abs(cross), np.finfo(np.float64).tiny))
    cross *= np.exp(-0.5 * (f / _DELAY_HERTZ) ** 2)
    correlation = np.fft.irfft(cross, _FINER * n)
    delays: Array = correlation[..., : _FINER * n // 2].argmax(axis=-1) / _FINER
    return delays
