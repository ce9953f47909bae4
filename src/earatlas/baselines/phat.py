"""PHAT histogram: interaural delays by generalized cross-correlation, frame by frame.

The input is a recording. The output is one delay per source and, given the training directions of a
head, the frontal azimuth with this delay (paper, section 7: "the link between TDOAs and azimuths is
estimated using linear regression", frontal sources only). The histogram is used as in [2]_.

    τ     (J,)      candidate delays in seconds; τ > 0: the right ear lags, the source is left
    g_τt  (J, T)    Σ_f Re exp(j 2π f τ) I_ft / |I_ft|, the PHAT-weighted cross-correlation
    h_τ   (J,)      number of frames in which τ has the largest correlation

References
----------
.. [1] P. Aarabi, "Self-localizing dynamic microphone arrays", IEEE Trans. Syst., Man, Cybern. C,
   32(4), 2002.
.. [2] M. I. Mandel, R. J. Weiss and D. P. W. Ellis, "Model-based expectation-maximization source
   separation and localization", IEEE Trans. Audio, Speech, Lang. Process., 18(2), 2010.

"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from earatlas.baselines.mapping import check_cues
from earatlas.baselines.masking import MaskedMixture, check_n_sources
from earatlas.errors import InputError
from earatlas.features.audio import Audio
from earatlas.features.layout import CueLayout, phase_differences
from earatlas.geometry.spaces import Space
from earatlas.ppam.model import check_pairs
from earatlas.types import Array, Spectra

__all__ = [
    "PHAT",
    "delay_grid",
    "gcc_phat",
    "histogram_peaks",
    "phat_histogram",
    "whitened_cross_spectrum",
]


def delay_grid(count: int = 61, max_seconds: float = 15 / 16_000) -> Array:
    """Return evenly spaced delays (J,) in seconds, by default half a sample at 16 kHz apart.

    The default maximum, 0.94 ms, is larger than the interaural delay of any head.
    """
    if count < 3:
        raise InputError(f"delays must be at least 3, got {count}. The default is 61.")
    return np.linspace(-max_seconds, max_seconds, count)


def whitened_cross_spectrum(spectra: Spectra) -> Spectra:
    """Return exp(j arg(R / L)) (F, T) at all frequencies above 0 Hz, 0 in silent bins."""
    cross = spectra[1, 1:] * spectra[0, 1:].conj()
    size = np.abs(cross)
    unit = np.empty_like(cross)
    phase_differences(cross, size, out=(unit.real, unit.imag))
    unit[size == 0] = 0  # silence has no phase; a phase of 0 would favour the delay 0
    return unit


def gcc_phat(phases: Spectra, frequencies_hz: Array, delays_seconds: Array) -> Array:
    """Return the PHAT-weighted cross-correlation g (J, T) at delays (J,) of phases (F, T)."""
    phase = 2 * np.pi * np.outer(delays_seconds, frequencies_hz)
    correlation: Array = np.cos(phase) @ phases.real - np.sin(phase) @ phases.imag
    return correlation


def phat_histogram(phases: Spectra, frequencies_hz: Array, delays_seconds: Array) -> Array:
    """Return the number h (J,) of frames of unit phases (F, T) in which each delay is the best."""
    active = phases[:, np.any(phases != 0, axis=0)]
    best = np.argmax(gcc_phat(active, frequencies_hz, delays_seconds), axis=0)
    return np.bincount(best, minlength=len(delays_seconds)).astype(np.float64)


def histogram_peaks(
    histogram: Array,
    delays_seconds: Array,
    n_sources: int,
    *,
    min_separation_seconds: float = 1 / 16_000,
) -> Array:
    """Return the delays (M,), ascending, of the highest peaks that keep a minimum separation."""
    remaining, peaks = histogram.copy(), []
    for _ in range(n_sources):
        peaks.append(delays_seconds[np.argmax(remaining)])
        remaining[np.abs(delays_seconds - peaks[-1]) <= min_separation_seconds * (1 + 1e-9)] = -1.0
    return np.sort(np.array(peaks))


@dataclass(frozen=True, eq=False)
class PHAT:
    """Frontal azimuth as a polynomial of the interaural delay; the elevation is NaN.

    References
    ----------
    .. [1] P. Aarabi, "Self-localizing dynamic microphone arrays", IEEE Trans. Syst., Man, Cybern.
       C, 32(4), 2002.

    Examples
    --------
    >>> import earatlas as ea
    >>> import numpy as np
    >>> layout = ea.CueLayout(ild_band_hz=None, ipd_band_hz=(0, 8000))
    >>> x = np.array([[azimuth, 0.0] for azimuth in range(-90, 91, 30)])
    >>> head = ea.simulated_head(x)
    >>> model = PHAT.fit(ea.Plane(), x, head.cues(layout), layout=layout)
    >>> scene = ea.render_scene(head, [ea.synthetic_speech(0.5, seed=0)], [[30.0, 0.0]])
    >>> bool(abs(model.localize(scene.mixture)[0] - 30) < 15)
    True

    """

    space: Space
    layout: CueLayout  # layout of the cues; its IPD band is correlated
    coefficients: Array  # (degree + 1,) degrees per power of a millisecond, highest first
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
        """Regress azimuth on delay over the frontal training directions.

        Parameters
        ----------
        space : Space
            Space of the directions.
        x : array_like, shape (N, C)
            Directions in degrees.
        y : array_like, shape (N, D)
            Cue vectors.
        layout : CueLayout
            Layout of the cues, which must have an IPD band; Aarabi uses phases at all frequencies:
            `CueLayout(ild_band_hz=None, ipd_band_hz=(0, 8000))`.
        degree : int
            Degree of the polynomial.
        delays : int
            Number of candidate delays.

        Returns
        -------
        model : PHAT
            The fitted model.

        Raises
        ------
        InputError
            If the layout does not match the cues, or if there are too few frontal directions.

        """
        points, cues = check_pairs(space, x, y)
        grid = delay_grid(delays)
        frontal = np.abs(points[:, 0]) <= 90
        if cues.shape[1] != layout.n_cues or not len(layout.ipd_frequencies):
            raise InputError(
                f"layout must be that of y and have an IPD band, got {layout} for {cues.shape[1]} "
                "channels. Compute the cues with the same layout."
            )
        if frontal.sum() <= degree:
            raise InputError(
                f"x must have more than {degree} frontal directions, got {frontal.sum()}. "
                "Give azimuths within 90 degrees of straight ahead."
            )
        found = _cue_delays(cues[frontal], layout, grid)
        coefficients = np.polyfit(1e3 * found, points[frontal, 0], degree)
        return cls(space, layout, coefficients, grid)

    def azimuths(self, delays_seconds: ArrayLike) -> Array:
        """Return frontal azimuths in degrees of delays in seconds, of any shape."""
        delays = np.asarray(delays_seconds, dtype=np.float64)
        azimuth: Array = np.clip(np.polyval(self.coefficients, 1e3 * delays), -90.0, 90.0)
        return azimuth

    def inverse_map(self, y: ArrayLike) -> Array:
        """Return directions (N, C) of cue vectors (N, D); all but the azimuth is NaN."""
        cues = check_cues(y, self.layout.n_cues)
        found = np.full((len(cues), self.space.columns), np.nan)
        found[:, 0] = self.azimuths(_cue_delays(cues, self.layout, self.delays_seconds))
        return found

    def localize(self, audio: Audio, n_sources: int = 1) -> Array:
        """Localize the sources of a recording.

        Parameters
        ----------
        audio : Audio
            Two-channel recording.
        n_sources : int
            Number of sources.

        Returns
        -------
        azimuths : array, shape (M,)
            Frontal azimuths in degrees, ascending.

        """
        check_n_sources(n_sources)
        mixture = MaskedMixture.of(audio, self.layout)
        band = self.layout.ipd_frequencies
        phases = whitened_cross_spectrum(mixture.spectra)[band]
        # Single frames resolve about half a sample; a finer grid would split a peak.
        coarse = delay_grid()
        histogram = phat_histogram(phases, self.layout.frequencies_hz[band], coarse)
        return np.sort(self.azimuths(histogram_peaks(histogram, coarse, n_sources)))


def _cue_delays(cues: Array, layout: CueLayout, delays_seconds: Array) -> Array:
    """Return the best delay (N,) of each cue vector (N, D), from its IPD cues."""
    ild, ipd = len(layout.ild_frequencies), len(layout.ipd_frequencies)
    phases = cues[:, ild : ild + ipd] + 1j * cues[:, ild + ipd :]
    g = gcc_phat(phases.T, layout.frequencies_hz[layout.ipd_frequencies], delays_seconds)
    best: Array = delays_seconds[np.argmax(g, axis=0)]
    return best
