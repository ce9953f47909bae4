"""DUET: one delay and one attenuation a source, from the peaks of a histogram of all bins.

Yilmaz and Rickard, "Blind separation of speech mixtures via time-frequency masking", IEEE TSP
52(7), 2004. In: a recording and the number of sources. Out: binary masks.

    δ_ft = -arg(R/L) / ω          delay by which the right ear hears later, in seconds
    α_ft = |R/L| - |L/R|          symmetric attenuation
    h(α, δ) = Σ_ft |L R|^p ω^q    at (α_ft, δ_ft): its peaks are the sources
    m(f, t) = argmin_m |a_m exp(-j ω δ_m) L - R|² / (1 + a_m²)

DUET asks that microphones be so near that phases never wrap. Ears are not, so this is its "big
delay" form (Rickard 2007, section on tiling): a bin enters the histogram at every delay
δ + k / f that a head allows, and only the true ones meet at all frequencies.
"""

from __future__ import annotations

import numpy as np
from scipy.ndimage import gaussian_filter

from earatlas.baselines.masking import MaskedMixture, Separation, check_sources
from earatlas.baselines.phat import delay_grid
from earatlas.features.audio import Audio
from earatlas.features.layout import CueLayout
from earatlas.separation.demixing.masking import binary_masks
from earatlas.types import Array, Indices, Spectra

__all__ = ["histogram", "peaks", "separate"]


# |α| up to here (4 dB); more counts at the edge. With 3, SDR is 3 dB less on KU100 pairs.
_ATTENUATION = 1.0
_SMOOTHING = (1.0, 1.0)  # cells of attenuation and delay


def attenuations(count: int = 35) -> Array:
    """Even symmetric attenuations (A,)."""
    return np.linspace(-_ATTENUATION, _ATTENUATION, count)


def histogram(
    left: Spectra,
    right: Spectra,
    frequencies_hz: Array,
    *,
    delays_seconds: Array,
    attenuation: Array,
    p: float = 1.0,
    q: float = 0.0,
) -> Array:
    """h (A, J) of spectra (F, T) on even grids of attenuation (A,) and delay (J,)."""
    size = np.abs(left) * np.abs(right)
    f, t = np.nonzero(size > 1e-24 * size.max())  # elsewhere the ratio means nothing
    hz, ratio = frequencies_hz[f], right[f, t] / left[f, t]
    weight = size[f, t] ** p * (2 * np.pi * hz) ** q
    level = np.abs(ratio)
    row = _cell(np.clip(level - 1 / level, attenuation[0], attenuation[-1]), attenuation)
    delay = -np.angle(ratio) / (2 * np.pi * hz)
    cells = np.zeros(len(attenuation) * len(delays_seconds))
    step = delays_seconds[1] - delays_seconds[0]
    widest = delays_seconds[-1] + 0.5 * step
    turns = int(np.ceil(widest * frequencies_hz[-1]))
    for k in range(-turns, turns + 1):
        tiled = delay + k / hz
        inside = np.abs(tiled) < widest
        column = _cell(tiled[inside], delays_seconds)
        place = row[inside] * len(delays_seconds) + column
        cells += np.bincount(place, weights=weight[inside], minlength=len(cells))
    return cells.reshape(len(attenuation), -1)


def _cell(values: Array, grid: Array) -> Indices:
    """The nearest point of an even grid."""
    cell: Indices = np.rint((values - grid[0]) / (grid[1] - grid[0])).astype(np.intp)
    return cell


def peaks(
    smooth: Array, n_sources: int, apart: tuple[int, int] = (5, 4)
) -> tuple[Indices, Indices]:
    """Row and column (M,) of the highest cells that are `apart` in rows or in columns."""
    left = smooth.copy()
    rows, columns = np.empty(n_sources, dtype=np.intp), np.empty(n_sources, dtype=np.intp)
    for m in range(n_sources):
        rows[m], columns[m] = np.unravel_index(np.argmax(left), left.shape)
        near = np.ix_(
            np.abs(np.arange(len(left)) - rows[m]) < apart[0],
            np.abs(np.arange(left.shape[1]) - columns[m]) < apart[1],
        )
        left[near] = -1.0
    return rows, columns


def separate(
    audio: Audio,
    n_sources: int,
    *,
    layout: CueLayout | None = None,
    delays: int = 61,
    p: float = 1.0,
    q: float = 0.0,
) -> Separation:
    """Binary masks and delays of `n_sources` sources, ordered by delay (right to left)."""
    check_sources(n_sources)
    mixture = MaskedMixture.of(audio, layout)
    left, right = mixture.spectra[:, 1:]
    grid, attenuation = delay_grid(delays), attenuations()
    frequencies = mixture.layout.frequencies_hz
    h = histogram(left, right, frequencies, delays_seconds=grid, attenuation=attenuation, p=p, q=q)
    rows, columns = peaks(gaussian_filter(h, _SMOOTHING, mode="constant"), n_sources)
    order = np.argsort(grid[columns], kind="stable")
    alpha, delay = attenuation[rows[order]], grid[columns[order]]
    gain = 0.5 * (alpha + np.sqrt(alpha**2 + 4))  # a - 1/a = α
    masks = assign(left, right, frequencies, gain, delay)
    return Separation(masks, delay, mixture)


def assign(
    left: Spectra, right: Spectra, frequencies_hz: Array, gains: Array, delays_seconds: Array
) -> Array:
    """Binary masks (M, F, T): each bin to the source that explains both ears best."""
    costs = np.empty((len(gains), *left.shape))
    for m, (a, delay) in enumerate(zip(gains, delays_seconds, strict=True)):
        model = a * np.exp(-2j * np.pi * frequencies_hz * delay)
        error = model[:, None] * left - right
        costs[m] = (error.real**2 + error.imag**2) / (1 + a**2)
    return binary_masks(-costs)
