"""DUET: separation by one delay and one attenuation per source, from the peaks of a histogram.

The inputs are a recording and the number of sources. The output is a binary mask per source.

    δ_ft = -arg(R/L) / ω          delay of the right ear, in seconds
    α_ft = |R/L| - |L/R|          symmetric attenuation
    h(α, δ) = Σ_ft |L R|^p ω^q    at (α_ft, δ_ft): its peaks are the sources
    m(f, t) = argmin_m |a_m exp(-j ω δ_m) L - R|² / (1 + a_m²)

DUET assumes microphones so close that phases never wrap. The ears are farther apart, so this is the
"big delay" variant of [2]_ (tiling): a bin contributes to the histogram at every delay δ + k / f
that a head allows, and only the true delays coincide at all frequencies.

References
----------
.. [1] O. Yilmaz and S. Rickard, "Blind separation of speech mixtures via time-frequency masking",
   IEEE Trans. Signal Process., 52(7), 2004.
.. [2] S. Rickard, "The DUET blind source separation algorithm", in Blind Speech Separation, 2007.

"""

from __future__ import annotations

import numpy as np
from scipy.ndimage import gaussian_filter

from earatlas.baselines.masking import MaskedMixture, Separation, check_n_sources
from earatlas.baselines.phat import delay_grid
from earatlas.features.audio import Audio
from earatlas.features.layout import CueLayout
from earatlas.separation.demixing.masks import binary_masks
from earatlas.types import Array, Indices, Spectra

__all__ = ["histogram", "peaks", "separate"]


def attenuation_grid(count: int = 35, max_attenuation: float = 1.0) -> Array:
    """Return evenly spaced symmetric attenuations (A,), by default up to 4 dB.

    Larger values count at the edge of the histogram. Evidence:
    docs/figures/settings/baselines.md, "duet".
    """
    return np.linspace(-max_attenuation, max_attenuation, count)


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
    """Return h (A, J) of spectra (F, T) on even grids of attenuation (A,) and delay (J,)."""
    size = np.abs(left) * np.abs(right)
    f, t = np.nonzero(size > 1e-24 * size.max())  # the ratio is undefined in silent bins
    hz, ratio = frequencies_hz[f], right[f, t] / left[f, t]
    weight = size[f, t] ** p * (2 * np.pi * hz) ** q
    level = np.abs(ratio)
    row = _nearest_cell(np.clip(level - 1 / level, attenuation[0], attenuation[-1]), attenuation)
    delay = -np.angle(ratio) / (2 * np.pi * hz)
    cells = np.zeros(len(attenuation) * len(delays_seconds))
    step = delays_seconds[1] - delays_seconds[0]
    widest = delays_seconds[-1] + 0.5 * step
    max_wraps = int(np.ceil(widest * frequencies_hz[-1]))
    for k in range(-max_wraps, max_wraps + 1):
        tiled = delay + k / hz
        inside = np.abs(tiled) < widest
        column = _nearest_cell(tiled[inside], delays_seconds)
        cell = row[inside] * len(delays_seconds) + column
        cells += np.bincount(cell, weights=weight[inside], minlength=len(cells))
    return cells.reshape(len(attenuation), -1)


def _nearest_cell(values: Array, grid: Array) -> Indices:
    """Return the index of the nearest point of an evenly spaced grid."""
    cell: Indices = np.rint((values - grid[0]) / (grid[1] - grid[0])).astype(np.intp)
    return cell


def peaks(
    smooth: Array, n_sources: int, min_separation: tuple[int, int] = (5, 4)
) -> tuple[Indices, Indices]:
    """Return row and column (M,) of the highest cells that are `min_separation` cells apart."""
    remaining = smooth.copy()
    rows, columns = np.empty(n_sources, dtype=np.intp), np.empty(n_sources, dtype=np.intp)
    for m in range(n_sources):
        rows[m], columns[m] = np.unravel_index(np.argmax(remaining), remaining.shape)
        near = np.ix_(
            np.abs(np.arange(len(remaining)) - rows[m]) < min_separation[0],
            np.abs(np.arange(remaining.shape[1]) - columns[m]) < min_separation[1],
        )
        remaining[near] = -1.0
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
    """Separate a mixture with DUET.

    Parameters
    ----------
    audio : Audio
        Two-channel recording.
    n_sources : int
        Number of sources.
    layout : CueLayout, optional
        Window and hop of the short-time Fourier transform.
    delays : int
        Number of candidate delays.
    p, q : float
        Exponents of power and frequency in the weights of the histogram.

    Returns
    -------
    separation : Separation
        Binary masks and delays of the sources, in ascending order of delay (right to left).

    Raises
    ------
    InputError
        If `n_sources` is less than 1, or if a channel is silent.

    References
    ----------
    .. [1] O. Yilmaz and S. Rickard, "Blind separation of speech mixtures via time-frequency
       masking", IEEE Trans. Signal Process., 52(7), 2004.

    Examples
    --------
    >>> import earatlas as ea
    >>> import numpy as np
    >>> speech = ea.synthetic_speech(0.5, seed=0)
    >>> audio = ea.Audio(np.stack([speech, np.roll(speech, 4)]), 16_000)
    >>> separate(audio, 1)
    Separation(1 sources, 512 frequencies, 63 frames; delays 250 microseconds)

    """
    check_n_sources(n_sources)
    mixture = MaskedMixture.of(audio, layout)
    left, right = mixture.spectra[:, 1:]
    grid, attenuation = delay_grid(delays), attenuation_grid()
    frequencies = mixture.layout.frequencies_hz
    h = histogram(left, right, frequencies, delays_seconds=grid, attenuation=attenuation, p=p, q=q)
    rows, columns = peaks(gaussian_filter(h, 1.0, mode="constant"), n_sources)  # 1.0 cells
    order = np.argsort(grid[columns], kind="stable")
    alpha, delay = attenuation[rows[order]], grid[columns[order]]
    gain = 0.5 * (alpha + np.sqrt(alpha**2 + 4))  # a - 1/a = α
    masks = assign(left, right, frequencies, gain, delay)
    return Separation(masks, delay, mixture)


def assign(
    left: Spectra, right: Spectra, frequencies_hz: Array, gains: Array, delays_seconds: Array
) -> Array:
    """Return binary masks (M, F, T) that give each bin to the source that fits both ears best."""
    costs = np.empty((len(gains), *left.shape))
    for m, (a, delay) in enumerate(zip(gains, delays_seconds, strict=True)):
        model = a * np.exp(-2j * np.pi * frequencies_hz * delay)
        error = model[:, None] * left - right
        costs[m] = (error.real**2 + error.imag**2) / (1 + a**2)
    return binary_masks(-costs)
