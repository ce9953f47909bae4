"""Whether a separated source still comes from its place: errors of its interaural cues.

In: each source's true image at both ears, and the estimate of it. Out: by how much level and time
differences between the ears are off, in bands as wide as those of the ear (1 ERB, Glasberg and
Moore 1990), as hearing-aid research has it (Van den Bogaert et al. 2008; Cornelis et al. 2010):

    L, R  (n',)  spectra of the two ears over the whole sound     b  a band
    ILD_b = 10 log10 (Σ_b |R|² / Σ_b |L|²)   ΔILD = mean_b |ILD_b(estimate) - ILD_b(image)|
    C_b   = Σ_b R L*                         ΔITD = mean_b |arg C_b(estimate) C_b(image)*| / 2πf_b

f_b is the mean frequency of the image in the band. Level differences count from 200 Hz to 8 kHz,
time differences from 200 to 1500 Hz, where the ear follows the waveform. A gain, or a filter that
is the same in both ears, changes neither. Just noticed are about 1 dB and 10 to 20 µs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.evaluation.assignment import Assignment, known_mean
from earatlas.evaluation.quality import check_order
from earatlas.features.audio import checked_rate
from earatlas.features.stft import squared_size
from earatlas.types import Array, Complex

__all__ = ["InterauralErrors", "InterauralMeans", "interaural_errors"]

_LOWEST_HERTZ, _HIGHEST_HERTZ, _HIGHEST_ITD_HERTZ = 200.0, 8000.0, 1500.0
_QUIET_DB = 40.0  # below the strongest band a source has no cues there, only what leaks into it
_SHORTEST = 0.1  # seconds: shorter, the lowest bands have no frequency of their own


class InterauralMeans(NamedTuple):
    """Means over the sources that were found."""

    ild_db: float
    itd_microseconds: float


@dataclass(frozen=True, eq=False, slots=True)
class InterauralErrors:
    """By how much the cues of each estimate are off; NaN for a source that was missed."""

    ild_db: Array  # (M,)
    itd_microseconds: Array  # (M,)

    def __repr__(self) -> str:
        ild, itd = self.mean()
        return f"InterauralErrors({len(self.ild_db)} sources, means: {ild:.2f} dB, {itd:.0f} µs)"

    def mean(self) -> InterauralMeans:
        """Means over the sources that were found."""
        return InterauralMeans(known_mean(self.ild_db), known_mean(self.itd_microseconds))


def interaural_errors(
    images: ArrayLike, estimates: ArrayLike, *, rate: int, assignment: Assignment | None = None
) -> InterauralErrors:
    """Errors of estimates (J, 2, n) of the true images (M, 2, n), at `rate` in Hz.

    Without an assignment they are in the same order. Missed and silent sources have NaN.
    """
    true, found, order = check_order(images, estimates, assignment)
    rate = checked_rate(rate)
    if true.shape[-1] < _SHORTEST * rate:
        raise InputError(
            f"images must be at least {_SHORTEST:g} s long, got {true.shape[-1] / rate:.3f} s. "
            "Give longer sounds."
        )
    hertz = np.arange(true.shape[-1] // 2 + 1) * (rate / true.shape[-1])
    errors = [
        (np.nan, np.nan) if j < 0 else _errors(image, found[j], hertz)
        for image, j in zip(true, order, strict=True)
    ]
    ild, itd = np.array(errors).T
    return InterauralErrors(ild, itd)


def _errors(image: Array, estimate: Array, hertz: Array) -> tuple[float, float]:
    """ΔILD in dB and ΔITD in µs of one source."""
    if not estimate.any(axis=1).all():
        return np.nan, np.nan
    (power, cross, middle), (other, found, _) = (_bands(x, hertz) for x in (image, estimate))
    loudest = power.max(axis=0)
    heard = loudest > 10 ** (-_QUIET_DB / 10) * loudest.max()
    with np.errstate(divide="ignore", invalid="ignore"):  # a band that only the image has
        ild = 10 * np.log10(other[1] / other[0]) - 10 * np.log10(power[1] / power[0])
    level = np.abs(ild[heard & np.isfinite(ild)])
    low = heard & (middle < _HIGHEST_ITD_HERTZ)
    time = np.abs(np.angle(found[low] * cross[low].conj())) / (2 * np.pi * middle[low])
    return known_mean(level), 1e6 * known_mean(time)


def _bands(ears: Array, hertz: Array) -> tuple[Array, Complex, Array]:
    """Powers (2, B) and cross-spectra (B,) of both ears (2, n), and the bands' mean frequencies."""
    edges = _edges(min(_HIGHEST_HERTZ, float(hertz[-1])))
    first = np.searchsorted(hertz, edges)
    left, right = np.fft.rfft(ears)[:, first[0] : first[-1]]
    starts = first[:-1] - first[0]
    weight = np.abs(right * left)
    f = hertz[first[0] : first[-1]]
    powers = np.stack([np.add.reduceat(squared_size(ear), starts) for ear in (left, right)])
    cross = np.add.reduceat(right * left.conj(), starts)
    total = np.add.reduceat(weight, starts)
    middle = np.add.reduceat(weight * f, starts) / np.where(total > 0, total, 1.0)
    return powers, cross, np.where(total > 0, middle, np.inf)


def _edges(highest: float) -> Array:
    """Edges in Hz of bands that are 1 ERB wide."""
    numbers = 21.4 * np.log10(1 + 0.00437 * np.array([_LOWEST_HERTZ, highest]))
    steps = np.arange(np.floor(numbers[1] - numbers[0]) + 1) + numbers[0]
    edges: Array = (10 ** (steps / 21.4) - 1) / 0.00437
    return edges
