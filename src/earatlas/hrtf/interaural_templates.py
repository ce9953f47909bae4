"""Interaural templates: the ratio of both ears in a form that can be interpolated.

The input is the impulse responses of a head. The output is `InterauralTemplates`: level difference
in dB, interaural delay, and the phase that remains without the delay. All three vary slowly with
direction, whereas cosine and sine of the total phase vary too fast to be interpolated.

    r_xf = R_xf / L_xf = 10^(level_xf / 20) · exp(j phase_xf) · exp(-j 2π f delay_x)

    N  measured directions    G  directions in between    F  frequencies    k  neighbours
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earatlas.features.impulse_responses import transfer_functions
from earatlas.geometry.angles import to_vectors
from earatlas.geometry.neighbours import nearest_neighbours
from earatlas.geometry.spaces import Space
from earatlas.hrtf.head import Head
from earatlas.numerics import decibels_to_amplitude, unit_phasors
from earatlas.types import Array, Complex, Indices

__all__ = ["InterauralTemplates", "LocalLinearInterpolation", "correlation_lags", "response_delays"]


@dataclass(frozen=True, eq=False)
class LocalLinearInterpolation:
    """Interpolation at G points: v(x_g) = Σ_j weights[g, j] v[rows[g, j]]."""

    rows: Indices  # (G, k), indices of the neighbours
    weights: Array  # (G, k), sum to 1 over j

    @classmethod
    def of(
        cls,
        space: Space,
        known: Array,
        wanted: Array,
        *,
        neighbours: int,
        spacing: float,
        ridge: float = 0.005,
    ) -> LocalLinearInterpolation:
        """Fit a local linear model to the nearest known directions of each wanted direction.

        `known` (N, C) and `wanted` (G, C) are in degrees, `spacing` is that of the known ones. The
        relative `ridge` of the slopes keeps the model of collinear neighbours regular. Evidence:
        docs/figures/settings/hrtf.md, "interaural_templates".
        """
        chord, rows = nearest_neighbours(to_vectors(known), to_vectors(wanted), neighbours)
        degrees = np.degrees(2 * np.arcsin(np.minimum(chord / 2, 1.0)))
        width = np.maximum(0.6 * spacing, 0.75 * degrees[:, :1])
        w = np.exp(-0.5 * (degrees / width) ** 2) + 1e-9
        u = space.log(wanted[:, None], known[rows]) / width[..., None]  # (G, k, L)
        A = np.concatenate([np.ones((*w.shape, 1)), u], axis=-1)
        M = np.einsum("gk,gka,gkb->gab", w, A, A)
        slopes = np.arange(1, A.shape[-1])
        M[:, slopes, slopes] += ridge * w.sum(axis=1)[:, None]
        M += 1e-9 * np.eye(A.shape[-1])
        value = np.linalg.inv(M)[:, 0]  # (G, L + 1), the row of the intercept
        return cls(rows.astype(np.intp), np.einsum("ga,gka,gk->gk", value, A, w))

    def __getitem__(self, rows: slice | Indices) -> LocalLinearInterpolation:
        return LocalLinearInterpolation(self.rows[rows], self.weights[rows])


@dataclass(frozen=True, eq=False)
class InterauralTemplates:
    """Interaural ratio at N directions and F frequencies: level, delay and remaining phase."""

    directions: Array  # (N, C), degrees
    frequencies_hz: Array  # (F,)
    level_db: Array  # (N, F), right over left
    delay_seconds: Array  # (N,), of the right ear relative to the left
    phase_radians: Array  # (N, F), without the delay

    @classmethod
    def of(cls, head: Head, frequencies_hz: Array) -> InterauralTemplates:
        """Compute the templates of the impulse responses of a head."""
        ears = head.responses()
        left, right = np.moveaxis(transfer_functions(ears.samples, ears.rate, frequencies_hz), 1, 0)
        ratio = right / left
        delay = response_delays(ears.samples, ears.rate)
        phase = np.angle(ratio * np.exp(2j * np.pi * frequencies_hz * delay[:, None]))
        level = 20 * np.log10(np.abs(ratio))
        return cls(head.directions, frequencies_hz, level, delay, phase)

    @cached_property
    def _phasors(self) -> Complex:
        """Phases (N, F) as points on the unit circle."""
        return unit_phasors(self.phase_radians)

    @property
    def measured_ratios(self) -> Complex:
        """Interaural ratios r (N, F) at the measured directions."""
        angle = self.phase_radians - 2 * np.pi * self.frequencies_hz * self.delay_seconds[:, None]
        return decibels_to_amplitude(self.level_db) * unit_phasors(angle)

    def ratios(self, at: LocalLinearInterpolation) -> Complex:
        """Return the interaural ratios r (G, F) at interpolated directions."""
        rows, w = at.rows, at.weights
        level = np.einsum("gk,gkf->gf", w, self.level_db[rows])
        delay = np.einsum("gk,gk->g", w, self.delay_seconds[rows])
        parts = self._phasors.view(np.float64)  # (N, 2 F): real and imaginary
        mean = np.angle(np.einsum("gk,gkf->gf", np.maximum(w, 0.0), parts[rows]).view(complex))
        # Phases of neighbours are similar, so their deviations from the mean can be averaged.
        deviation = self.phase_radians[rows] - mean[:, None]
        deviation -= 2 * np.pi * np.rint(deviation / (2 * np.pi))
        angle = mean + np.einsum("gk,gkf->gf", w, deviation)
        angle -= 2 * np.pi * self.frequencies_hz * delay[:, None]
        return decibels_to_amplitude(level) * unit_phasors(angle)


def response_delays(
    responses: Array,
    rate: float,
    *,
    max_delay_seconds: float = 1.1e-3,
    min_hz: float = 100.0,
    bandwidth_hz: float = 1800.0,
    rows_at_once: int = 128,
) -> Array:
    """Return the delay (N,) in seconds of the right ear: the peak of the cross-correlation.

    The delay is that of the frequencies above `min_hz` that pass a Gaussian low-pass with the
    standard deviation `bandwidth_hz`. Evidence: docs/figures/settings/hrtf.md,
    "interaural_templates". Correlations have 32 times the length of the responses: those of
    `rows_at_once` directions are in memory together.
    """
    n = 4 * responses.shape[-1]
    f = np.fft.rfftfreq(n, 1 / rate)
    max_lag = max_delay_seconds * rate
    lags = np.empty(len(responses))
    for start in range(0, len(responses), rows_at_once):
        rows = slice(start, start + rows_at_once)
        left, right = np.moveaxis(np.fft.rfft(responses[rows], n), 1, 0)
        cross = right * left.conj() * (f > min_hz)
        lags[rows] = correlation_lags(cross, f / bandwidth_hz, min_lag=-max_lag, max_lag=max_lag)
    return lags / rate


def correlation_lags(
    cross: Complex, f: NDArray[np.floating[Any]], *, min_lag: float, max_lag: float
) -> Array:
    """Return the lag in samples, to 1/8, at which a correlation is largest.

    `cross` (..., F) are cross spectra of an even FFT length, `f` (F,) their frequencies relative to
    the standard deviation of a Gaussian low-pass. Partial whitening, half-way to PHAT, reduces the
    influence of both resonances and noise.
    """
    oversampling = 8  # lags per sample
    size = oversampling * 2 * (cross.shape[-1] - 1)
    # The floor prevents 0 / 0 where one spectrum is zero.
    weights = np.exp(-0.5 * f**2) / np.sqrt(np.maximum(np.abs(cross), np.finfo(np.float64).tiny))
    correlation = np.fft.irfft(cross * weights, size)
    first, last = int(oversampling * min_lag), int(oversampling * max_lag)
    correlation[..., last + 1 : size + first] = -np.inf  # negative lags are at the end
    peak = correlation.argmax(axis=-1)
    lags: Array = np.where(peak > last, peak - size, peak) / oversampling
    return lags
