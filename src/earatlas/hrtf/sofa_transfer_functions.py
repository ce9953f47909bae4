"""Impulse responses from transfer functions, for SOFA files in the frequency domain.

Input: complex spectra at frequencies of equal distance, as `SimpleFreeFieldHRTF` and
`FreeFieldHRTF` (data types TF and TF-E) have them. Output: impulse responses at twice the highest
frequency. The responses of numerical simulations are relative to the centre of the head, so those
of the near ear start before time 0: all responses are rotated by one common delay, which changes no
cue, so that none starts at the end.

    N  frequencies    K  bins from 0 Hz to half of the sampling rate    n  samples, 2 (K - 1)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.errors import InputError
from earatlas.types import Array, Complex

__all__ = ["TransferFunctionSettings", "responses_from_transfer_functions"]


@dataclass(frozen=True, slots=True)
class TransferFunctionSettings:
    """Which frequencies are accepted, and how responses are delayed.

    Evidence: docs/figures/settings/hrtf.md, "sofa_transfer_functions".
    """

    spacing_tolerance: float = 0.01  # largest deviation of a frequency, in units of the spacing
    max_missing_bins: int = 2  # bins below the lowest frequency that are extrapolated
    max_bins: int = 1 << 20  # of a spectrum, so that a wrong frequency allocates no memory
    quiet_share: float = 0.0625  # share of the response that is quietest and becomes its end


_SETTINGS = TransferFunctionSettings()


def responses_from_transfer_functions(
    frequencies_hz: Array, spectra: Complex, settings: TransferFunctionSettings = _SETTINGS
) -> tuple[Array, float]:
    """Return the impulse responses of transfer functions, and their sampling rate.

    Parameters
    ----------
    frequencies_hz : ndarray of shape (N,)
        Increasing frequencies at multiples of their distance.
    spectra : ndarray of complex, shape (..., N)
        Transfer functions. If the lowest frequencies are missing, they get the magnitude of the
        lowest given one and continue its phase.
    settings : TransferFunctionSettings, optional
        Accepted frequencies, and the share of a response that becomes its end.

    Returns
    -------
    responses : ndarray of shape (..., n)
        Impulse responses with a common delay.
    rate : float
        Sampling rate in Hz, twice the highest frequency.

    Raises
    ------
    InputError
        If the frequencies are not at multiples of their distance.

    Examples
    --------
    >>> import numpy as np
    >>> responses = np.zeros((1, 2, 8))
    >>> responses[:, :, 1] = 1.0, 0.5
    >>> spectra = np.fft.rfft(responses)
    >>> found, rate = responses_from_transfer_functions(np.arange(5) * 1000.0, spectra)
    >>> rate, found.max(axis=2).round(6).tolist()
    (8000.0, [[1.0, 0.5]])
    """
    first, bins = _first_bin(frequencies_hz, settings)
    full = np.zeros((*spectra.shape[:-1], bins), dtype=np.complex128)
    full[..., first:] = spectra
    if first:
        # The phase continues with the slope of the two lowest frequencies, which is exact for a
        # delay.
        lowest, slope = spectra[..., :1], np.angle(spectra[..., 1:2] * spectra[..., :1].conj())
        phase = np.angle(lowest) + slope * np.arange(-first, 0)
        full[..., :first] = np.abs(lowest) * np.exp(1j * phase)
        full[..., 0] = np.copysign(np.abs(lowest[..., 0]), full[..., 0].real)
    n = 2 * (bins - 1)
    responses: Array = np.fft.irfft(full, n)
    return _rotate_to_onset(responses, settings), 2.0 * float(frequencies_hz[-1])


def _first_bin(frequencies_hz: Array, settings: TransferFunctionSettings) -> tuple[int, int]:
    """Return the bin of the lowest frequency and the number of bins from 0 Hz on."""
    f = np.asarray(frequencies_hz, dtype=np.float64)
    steps = np.diff(f)
    if len(f) < 2 or not (np.isfinite(f).all() and (steps > 0).all() and f[0] >= 0):
        raise InputError(
            f"The frequencies must increase from 0 Hz or more, got {len(f)} that do not. Export "
            "the head as impulse responses (SimpleFreeFieldHRIR)."
        )
    spacing = (f[-1] - f[0]) / (len(f) - 1)
    places = f / spacing
    bins = np.round(places)
    # The last frequency determines the spacing, so that rounded frequencies are accepted.
    uneven = np.abs(places - bins).max() > settings.spacing_tolerance * max(1.0, bins[0])
    if uneven or not np.array_equal(np.diff(bins), np.ones(len(f) - 1)):
        raise InputError(
            f"The frequencies must be multiples of one distance, got {f[0]:g}, {f[1]:g}, …, "
            f"{f[-1]:g} Hz. Export the head as impulse responses (SimpleFreeFieldHRIR)."
        )
    first, count = int(bins[0]), int(bins[-1]) + 1
    if first > settings.max_missing_bins or count > settings.max_bins:
        raise InputError(
            f"The frequencies must begin near 0 Hz, got {f[0]:g} Hz as the lowest at a distance of "
            f"{spacing:g} Hz. Export the head as impulse responses (SimpleFreeFieldHRIR)."
        )
    return first, count


def _rotate_to_onset(responses: Array, settings: TransferFunctionSettings) -> Array:
    """Rotate all responses (..., n) alike, so that their quietest part comes last."""
    n = responses.shape[-1]
    flat = responses.reshape(-1, n)
    energy = np.einsum("mn,mn->n", flat, flat)
    width = max(int(settings.quiet_share * n), 1)
    padded = np.concatenate([energy, energy[: width - 1]]) if width > 1 else energy
    quiet = np.convolve(padded, np.ones(width), mode="valid")  # energy of n..n + width
    end = (int(np.argmin(quiet)) + width) % n
    return np.roll(responses, -end, axis=-1)
