"""PHAT-histogram: the delay between the ears, frame by frame, and the delays heard most often.

Aarabi 2002, as Mandel, Weiss and Ellis 2010 use it. In: a recording. Out: one delay a source; with
a head's training directions, the frontal azimuth that has this delay (paper, section 7: "the link
between TDOAs and azimuths is estimated using linear regression", frontal sources only).

    τ     (J,)      candidate delays in seconds; τ > 0: the right ear hears later, from the left
    g_τt  (J, T)    Σ_f Re exp(j 2π f τ) I_ft / |I_ft|: the cross-correlation of whitened ears
    h_τ   (J,)      in how many frames τ is the best
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from earatlas.baselines.mapping import check_cues
from earatlas.baselines.masking import MaskedMixture, check_sources
from earatlas.errors import InputError
from earatlas.features.audio import Audio
from earatlas.features.layout import CueLayout, phase_differences
from earatlas.geometry.spaces import Space
from earatlas.ppam.model import check_pairs
from earatlas.types import Array, Spectra

__all__ = ["PHAT", "delay_grid", "histogram_peaks", "phat_histogram", "whitened"]


_WIDEST_SECONDS = 15 / 16_000  # 0.94 ms: wider than any head


def delay_grid(count: int = 61, widest_seconds: float = _WIDEST_SECONDS) -> Array:
    """Even delays (J,) in seconds; the default ones are half a sample at 16 kHz apart."""
    if count < 3:
        raise InputError(f"delays must be at least 3, got {count}. 61 is the default.")
    return np.linspace(-widest_seconds, widest_seconds, count)


def whitened(spectra: Spectra) -> Spectra:
    """exp(j arg(R / L)) at all frequencies above 0 Hz, (F, T); 0 where an ear hears nothing."""
    cross = spectra[1, 1:] * spectra[0, 1:].conj()
    size = np.abs(cross)
    unit = np.empty_like(cross)
    phase_differences(cross, size, out=(unit.real, unit.imag))
    unit[size == 0] = 0  # no phase, not a phase of 0: silence must pull to no delay
    return unit


def correlation(phases: Spectra, frequencies_hz: Array, delays_seconds: Array) -> Array:
    """g (J, T): the whitened cross-correlation at delays (J,) of unit phases (F, T)."""
    turn = 2 * np.pi * np.outer(delays_seconds, frequencies_hz)
    correlated: Array = np.cos(turn) @ phases.real - np.sin(turn) @ phases.imag
    return correlated


def phat_histogram(phases: Spectra, frequencies_hz: Array, delays_seconds: Array) -> Array:
    """h (J,): in how many frames of unit phases (F, T) each delay correlates best."""
    heard = phases[:, np.any(phases != 0, axis=0)]
    best = np.argmax(correlation(heard, frequencies_hz, delays_seconds), axis=0)
    return np.bincount(best, minlength=len(delays_seconds)).astype(np.float64)


def histogram_peaks(
    histogram: Array, delays_seconds: Array, n_sources: int, *, apart_seconds: float = 1 / 16_000
) -> Array:
    """The delays (M,), ascending, of the highest peaks that are more than `apart_seconds` apart."""
    left, peaks = histogram.copy(), []
    for _ in range(n_sources):
        peaks.append(delays_seconds[np.argmax(left)])
        left[np.abs(delays_seconds - peaks[-1]) <= apart_seconds * (1 + 1e-9)] = -1.0
    return np.sort(np.array(peaks))


@dataclass(frozen=True, eq=False)
class PHAT:
    """azimuth = polynomial(delay), elevation unknown (NaN); frontal sources only."""

    space: Space
    layout: CueLayout  # its IPD band is what is correlated
    coefficients: Array  # (degree + 1,) degrees per millisecond to the power, highest first
    delays_seconds: Array  # (J,) candidates

    @classmethod
    def fit(
        cls,
        space: Space,
        x: ArrayLike,
        y: ArrayLike,
        *,
        layout: CueLayout,
        degree: int = 1,
        delays: int = 601,
    ) -> Self:
        """Regress azimuth on delay over the frontal ones of directions (N, C) with cues (N, D).

        `layout` is that of the cues and must have an IPD band; phases at all frequencies are
        what Aarabi takes: `CueLayout(ild_band_hz=None, ipd_band_hz=(0, 8000))`.
        """
        points, cues = check_pairs(space, x, y)
        grid = delay_grid(delays)
        frontal = np.abs(points[:, 0]) <= 90
        if cues.shape[1] != layout.n_cues or not len(layout.ipd_frequencies):
            raise InputError(
                f"layout must be that of y and have an IPD band, got {layout} for {cues.shape[1]} "
                "channels. Make the cues with the same layout."
            )
        if frontal.sum() <= degree:
            raise InputError(
                f"x must have more than {degree} frontal directions, got {frontal.sum()}. "
                "Give azimuths within 90 degrees of straight ahead."
            )
        found = _vector_delays(cues[frontal], layout, grid)
        coefficients = np.polyfit(1e3 * found, points[frontal, 0], degree)
        return cls(space, layout, coefficients, grid)

    def azimuths(self, delays_seconds: ArrayLike) -> Array:
        """Frontal azimuths in degrees of delays in seconds, of any shape."""
        delays = np.asarray(delays_seconds, dtype=np.float64)
        azimuth: Array = np.clip(np.polyval(self.coefficients, 1e3 * delays), -90.0, 90.0)
        return azimuth

    def inverse_map(self, y: ArrayLike) -> Array:
        """Directions (N, C) of cue vectors (N, D); all but the azimuth is NaN."""
        cues = check_cues(y, self.layout.n_cues)
        found = np.full((len(cues), self.space.columns), np.nan)
        found[:, 0] = self.azimuths(_vector_delays(cues, self.layout, self.delays_seconds))
        return found

    def localize(self, audio: Audio, n_sources: int = 1) -> Array:
        """Frontal azimuths (M,) in degrees, ascending, of the sources of a recording."""
        check_sources(n_sources)
        mixture = MaskedMixture.of(audio, self.layout)
        band = self.layout.ipd_frequencies
        phases = whitened(mixture.spectra)[band]
        # Half a sample is as fine as single frames tell: finer cells split a peak among them.
        coarse = delay_grid()
        histogram = phat_histogram(phases, self.layout.frequencies_hz[band], coarse)
        return np.sort(self.azimuths(histogram_peaks(histogram, coarse, n_sources)))


def _vector_delays(cues: Array, layout: CueLayout, delays_seconds: Array) -> Array:
    """The best delay (N,) of each cue vector (N, D), from its IPD cues."""
    ild, ipd = len(layout.ild_frequencies), len(layout.ipd_frequencies)
    phases = cues[:, ild : ild + ipd] + 1j * cues[:, ild + ipd :]
    g = correlation(phases.T, layout.frequencies_hz[layout.ipd_frequencies], delays_seconds)
    best: Array = delays_seconds[np.argmax(g, axis=0)]
    return best
