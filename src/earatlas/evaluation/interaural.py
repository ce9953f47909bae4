"""Errors of the interaural cues of separated sources.

The inputs are the true image of each source at both ears and its estimate. The outputs are the
errors of the interaural level and time differences in bands of 1 ERB, as used in hearing-aid
research:

    L, R  (n',)  spectra of the two ears over the whole signal     b  a band
    ILD_b = 10 log10 (Σ_b |R|² / Σ_b |L|²)   ΔILD = mean_b |ILD_b(estimate) - ILD_b(image)|
    C_b   = Σ_b R L*                         ΔITD = mean_b |arg C_b(estimate) C_b(image)*| / 2πf_b

f_b is the mean frequency of the image in the band. Level differences are evaluated from 200 Hz to
8 kHz, time differences from 200 Hz to 1.5 kHz, where hearing follows the fine structure. A gain or
a filter that is the same in both ears changes neither. The just noticeable differences are about
1 dB and 10 to 20 µs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.evaluation.assignment import Assignment, nan_mean
from earatlas.evaluation.quality import check_matched
from earatlas.features.audio import check_rate
from earatlas.features.stft import squared_magnitude
from earatlas.types import Array, Complex

__all__ = ["InterauralErrors", "InterauralMeans", "InterauralSettings", "interaural_errors"]


# Evidence: docs/figures/settings/evaluation.md, "interaural".
@dataclass(frozen=True, slots=True)
class InterauralSettings:
    """Frequency ranges and limits of the interaural errors."""

    lowest_hz: float = 200.0  # lower edge of the first band
    highest_hz: float = 8000.0  # upper edge of the last band
    highest_itd_hz: float = 1500.0  # hearing follows the fine structure up to here
    quiet_db: float = 40.0  # level below the strongest band at which a band is ignored
    min_seconds: float = 0.1  # in a shorter signal the lowest bands contain no frequency


_DEFAULTS = InterauralSettings()


class InterauralMeans(NamedTuple):
    """Means over the sources that were not missed."""

    ild_db: float
    itd_microseconds: float


@dataclass(frozen=True, eq=False, slots=True)
class InterauralErrors:
    """Errors of the interaural cues of each source, NaN for missed sources.

    Attributes
    ----------
    ild_db : array, shape (M,)
        Mean absolute error of the interaural level difference, in dB.
    itd_microseconds : array, shape (M,)
        Mean absolute error of the interaural time difference, in µs.

    """

    ild_db: Array  # (M,)
    itd_microseconds: Array  # (M,)

    def __repr__(self) -> str:
        ild, itd = self.mean()
        return f"InterauralErrors({len(self.ild_db)} sources, means: {ild:.2f} dB, {itd:.0f} µs)"

    def mean(self) -> InterauralMeans:
        """Return the means over the sources that were not missed."""
        return InterauralMeans(nan_mean(self.ild_db), nan_mean(self.itd_microseconds))


def interaural_errors(
    images: ArrayLike,
    estimates: ArrayLike,
    *,
    rate: int,
    assignment: Assignment | None = None,
    settings: InterauralSettings = _DEFAULTS,
) -> InterauralErrors:
    """Compute the errors of the interaural cues of separated sources.

    Parameters
    ----------
    images : array_like, shape (M, 2, n)
        True image of each source at both ears.
    estimates : array_like, shape (J, 2, n)
        Estimated images.
    rate : int
        Sampling rate in Hz.
    assignment : Assignment, optional
        Which estimate belongs to which source; by default both are in the same order.
    settings : InterauralSettings, optional
        Frequency ranges of the errors.

    Returns
    -------
    errors : InterauralErrors
        ILD and ITD errors of each source, NaN for missed and silent sources.

    Raises
    ------
    InputError
        If the signals are shorter than 0.1 s or do not match.

    References
    ----------
    .. [1] T. Van den Bogaert, S. Doclo, J. Wouters and M. Moonen, "The effect of multimicrophone
       noise reduction systems on sound source localization by users of binaural hearing aids", J.
       Acoust. Soc. Am., 124(1), 2008.
    .. [2] B. Cornelis et al., "Theoretical analysis of binaural multimicrophone noise reduction
       techniques", IEEE Trans. Audio, Speech, Lang. Process., 18(2), 2010.
    .. [3] B. R. Glasberg and B. C. J. Moore, "Derivation of auditory filter shapes from
       notched-noise data", Hearing Research, 47, 1990.

    Examples
    --------
    >>> import earatlas as ea
    >>> import numpy as np
    >>> speech = ea.synthetic_speech(0.5, seed=0)
    >>> image = np.stack([speech, 0.5 * speech])
    >>> louder = np.stack([speech, speech])
    >>> interaural_errors([image], [louder], rate=16_000)
    InterauralErrors(1 sources, means: 6.02 dB, 0 µs)

    """
    true, estimated, order = check_matched(images, estimates, assignment)
    rate = check_rate(rate)
    if true.shape[-1] < settings.min_seconds * rate:
        raise InputError(
            f"images must be at least {settings.min_seconds:g} s long, got "
            f"{true.shape[-1] / rate:.3f} s. Give longer signals."
        )
    hertz = np.arange(true.shape[-1] // 2 + 1) * (rate / true.shape[-1])
    errors = [
        (np.nan, np.nan) if j < 0 else _source_errors(image, estimated[j], hertz, settings)
        for image, j in zip(true, order, strict=True)
    ]
    ild, itd = np.array(errors).T
    return InterauralErrors(ild, itd)


def _source_errors(
    image: Array, estimate: Array, hertz: Array, settings: InterauralSettings
) -> tuple[float, float]:
    """Return ΔILD in dB and ΔITD in µs of one source."""
    if not estimate.any(axis=1).all():
        return np.nan, np.nan
    (power, cross, frequency), (other_power, other_cross, _) = (
        _band_spectra(x, hertz, settings) for x in (image, estimate)
    )
    loudest = power.max(axis=0)
    active = loudest > 10 ** (-settings.quiet_db / 10) * loudest.max()
    with np.errstate(divide="ignore", invalid="ignore"):  # the estimate may be silent in a band
        ild = 10 * np.log10(other_power[1] / other_power[0]) - 10 * np.log10(power[1] / power[0])
    level = np.abs(ild[active & np.isfinite(ild)])
    low = active & (frequency < settings.highest_itd_hz)
    time = np.abs(np.angle(other_cross[low] * cross[low].conj())) / (2 * np.pi * frequency[low])
    return nan_mean(level), 1e6 * nan_mean(time)


def _band_spectra(
    ears: Array, hertz: Array, settings: InterauralSettings
) -> tuple[Array, Complex, Array]:
    """Return powers (2, B), cross-spectra (B,) and mean frequencies (B,) of both ears (2, n)."""
    edges = _band_edges(settings.lowest_hz, min(settings.highest_hz, float(hertz[-1])))
    first = np.searchsorted(hertz, edges)
    left, right = np.fft.rfft(ears)[:, first[0] : first[-1]]
    starts = first[:-1] - first[0]
    weight = np.abs(right * left)
    f = hertz[first[0] : first[-1]]
    powers = np.stack([np.add.reduceat(squared_magnitude(ear), starts) for ear in (left, right)])
    cross = np.add.reduceat(right * left.conj(), starts)
    total = np.add.reduceat(weight, starts)
    frequency = np.add.reduceat(weight * f, starts) / np.where(total > 0, total, 1.0)
    return powers, cross, np.where(total > 0, frequency, np.inf)


def _band_edges(lowest: float, highest: float) -> Array:
    """Return the edges in Hz of bands that are 1 ERB wide."""
    numbers = 21.4 * np.log10(1 + 0.00437 * np.array([lowest, highest]))
    steps = np.arange(np.floor(numbers[1] - numbers[0]) + 1) + numbers[0]
    edges: Array = (10 ** (steps / 21.4) - 1) / 0.00437
    return edges
