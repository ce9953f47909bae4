"""Band extension: separation at the recording's own rate, above the band of the cues.

Input: a recording (2, n') at any rate, and its sources (M, 2, n) separated at the rate of the cues.
Output: the sources (M, 2, n') at the recording's rate; they sum to the recording.

    recording = Σ_m up(source_m) + residual

`up` changes the rate, so the residual is what the rate of the cues cannot represent; nearly all of
it lies above half that rate. No cues were learned there, but a fricative above 8 kHz also has
energy between 4 and 8 kHz: the envelopes of the sources in a lower band indicate their activity in
the next (`spatial_filtering.separate_band`). Bands are processed from low to high, one at a time,
so memory does not grow with their number. Anechoic responses are short and need short windows; if
the diffuse-to-direct ratio ε of the first band indicates reverberation, windows four times as long
are used. The last source is the recording minus all others, which equals its own filter output.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.fft

from earatlas.features.audio import resample
from earatlas.features.layout import CueLayout
from earatlas.features.stft import istft, squared_magnitude, stft
from earatlas.separation.demixing.masking import binary_masks
from earatlas.separation.demixing.rendering import Rendering
from earatlas.separation.demixing.spatial_filtering import relative_envelopes, separate_band
from earatlas.types import Array, Complex, Spectra

__all__ = ["extend_band"]

# Evidence: docs/figures/settings/separation.md, "demixing.band_extension".
_HOPS_PER_WINDOW = 4  # window length, hops
_ANECHOIC_FACTOR, _REVERBERANT_FACTOR = 1, 4  # window length in windows of the cues (64 ms)
_MAX_ANECHOIC_DIFFUSE_TO_DIRECT = 0.02  # ε of the first band above which a room is reverberant
_ENVELOPE_BAND_START = 0.5  # lower edge of the first envelope band, relative to the cue band
_RESIDUAL_START = 0.875  # lower edge of the residual; resampling is transparent below 0.91


def extend_band(
    recording: Array, signals: Array, layout: CueLayout, rate: int, rendering: Rendering
) -> Array:
    """Return sources (M, 2, n') at `rate` that sum to the recording (2, n').

    `signals` (M, 2, n) are the sources at the layout's rate, aligned with the recording.
    """
    M, n = len(signals), recording.shape[1]
    if M == 1:
        return recording[None]
    out = _fit_length(resample(signals, layout.rate, rate), n)
    residual = recording - out.sum(axis=0)
    edge_hz = min(rate, layout.rate) / 2  # the sources are known up to here
    for factor in (_ANECHOIC_FACTOR, _REVERBERANT_FACTOR):
        transform = _Transform.from_layout(layout, rate, factor)
        parts = _separate_residual(residual, out, transform, edge_hz, rendering)
        if parts is not None:
            out[:-1] += parts
            break
    out[-1] = recording - out[:-1].sum(axis=0)
    return out


@dataclass(frozen=True)
class _Transform:
    """An STFT at the rate of the recording."""

    rate: int  # Hz
    hop: int  # samples
    factor: int  # window length in windows of the cues

    @classmethod
    def from_layout(cls, layout: CueLayout, rate: int, factor: int) -> _Transform:
        """Scale the layout's window by `factor`, rounded up to a fast FFT length."""
        hop = round(factor * layout.window * rate / (layout.rate * _HOPS_PER_WINDOW))
        return cls(rate, scipy.fft.next_fast_len(max(hop, 2), True), factor)

    @property
    def window(self) -> int:
        """Window length in samples."""
        return _HOPS_PER_WINDOW * self.hop

    def spectra(self, signal: Array) -> Spectra:
        """Return the spectra (2, B, T) of a signal (2, n)."""
        return stft(signal, self.window, self.hop)


def _separate_residual(
    residual: Array, signals: Array, transform: _Transform, edge_hz: float, rendering: Rendering
) -> Array | None:
    """Return the parts (M - 1, 2, n) of all sources but the last in the residual.

    Return None if the windows are anechoic ones and the first band is reverberant.
    """
    M, spectra = len(signals), transform.spectra(residual)
    frequencies_hz = np.arange(spectra.shape[1]) * transform.rate / transform.window
    known = slice(*np.searchsorted(frequencies_hz, [_ENVELOPE_BAND_START * edge_hz, edge_hz]))
    envelopes = _envelopes(
        np.stack([squared_magnitude(transform.spectra(s)[:, known]).sum(axis=0) for s in signals])
    )
    # Below the first band there are only rounding errors and edge effects of the blocks.
    images = np.repeat(spectra[None] / M, M - 1, axis=0)
    reverberant = transform.factor == _REVERBERANT_FACTOR
    for number, band in enumerate(_bands(frequencies_hz, edge_hz)):
        X = spectra[:, band]
        if rendering == "spatial":
            band_images, diffuse_to_direct = separate_band(
                X,
                envelopes,
                frequencies_hz[band],
                frames_per_second=transform.rate / transform.hop,
                reverberant=reverberant,
            )
            too_diffuse = diffuse_to_direct > _MAX_ANECHOIC_DIFFUSE_TO_DIRECT
            if number == 0 and not reverberant and too_diffuse:
                return None
        else:
            band_images = _masked(X, envelopes, binary=rendering == "binary")
        images[:, :, band] = band_images[:-1]
        envelopes = _envelopes(squared_magnitude(band_images).sum(axis=1))
    n = residual.shape[1]
    return np.stack([istft(image, transform.window, transform.hop, n) for image in images])


def _fit_length(signals: Array, n: int) -> Array:
    """Crop or zero-pad signals (M, 2, …) to n samples; resampling may differ by one sample."""
    fitted = np.zeros((*signals.shape[:-1], n))
    length = min(n, signals.shape[-1])
    fitted[..., :length] = signals[..., :length]
    return fitted


def _bands(frequencies_hz: Array, edge_hz: float) -> Iterator[slice]:
    """Yield the bins of the residual in bands as wide as the band of the cues."""
    count = max(int(np.ceil(frequencies_hz[-1] / edge_hz)), 2)
    edges = [_RESIDUAL_START * edge_hz, *(edge_hz * np.arange(2, count)), np.inf]
    for begin, end in pairwise(np.searchsorted(frequencies_hz, edges)):
        if end > begin:
            yield slice(int(begin), int(end))


def _envelopes(powers: Array) -> Array:
    """Return envelopes (M, T) of powers (M, F, T), each frequency normalized to unit level."""
    level = powers.sum(axis=0).mean(axis=1)
    level = np.maximum(level, max(1e-9 * float(level.max(initial=0.0)), 1e-300))  # silent bins
    envelopes: Array = (powers / level[:, None]).mean(axis=1)
    return envelopes


def _masked(X: Spectra, envelopes: Array, *, binary: bool) -> Complex:
    """Return images (M, 2, F, T) by one mask per frame for all frequencies."""
    masks = relative_envelopes(envelopes)
    masks = binary_masks(masks) if binary else masks
    images: Complex = masks[:, None, None] * X
    return images
