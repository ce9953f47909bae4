"""Band extension: separation at the recording's own rate, above the band of the cues.

Input: a recording (2, n') at any rate, and its sources (M, 2, n) separated at the rate of the cues.
Output: the sources (M, 2, n') at the recording's rate; they sum to the recording.

    recording = Σ_m up(source_m) + residual

`up` changes the rate, so the residual is what the rate of the cues cannot represent; nearly all of
it lies above half that rate. No cues were learned there, but a fricative above 8 kHz also has
energy between 4 and 8 kHz: the envelopes of the sources in a lower band indicate their activity in
the next. In `separate_band`, these powers v_mt per frame give filters directly, and the relative
envelopes replace the masks; the other steps are those of `determined` and `wiener`. Bands are
processed from low to high, one at a time, so memory does not grow with their number. Anechoic
responses are short and need short windows; in reverberant recordings, windows are four times as
long. Whether the recording is reverberant has been decided below (`rendering`). The last source is
the recording minus all others, which equals its own filter output.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from earatlas.features.audio import resample
from earatlas.features.layout import CueLayout
from earatlas.features.reverberation import UNKNOWN_REVERBERATION, ReverberationEstimate
from earatlas.features.stft import istft, squared_magnitude, stft
from earatlas.numerics import fast_fft_length
from earatlas.parts import complete
from earatlas.separation.demixing.determined import (
    DemixingSettings,
    SecondMoments,
    estimate_pair,
    normalize_levels,
    principal_steering_vectors,
    steering_vectors_from_covariances,
)
from earatlas.separation.demixing.masks import binary_masks
from earatlas.separation.demixing.permutation_alignment import PermutationSettings
from earatlas.separation.demixing.rendering import Rendering
from earatlas.separation.demixing.wiener import (
    WienerSettings,
    estimate_diffuse_to_direct,
    multichannel_wiener_filter,
    source_activity,
    source_powers,
)
from earatlas.types import Array, Complex, Spectra

__all__ = ["BandExtensionSettings", "extend_band"]


# Evidence: docs/figures/settings/separation.md, "demixing.band_extension".
@dataclass(frozen=True, slots=True)
class BandExtensionSettings:
    """Settings of the separation above the band of the cues."""

    hops_per_window: int = 4  # window length, hops
    anechoic_factor: int = 1  # window length in windows of the cues (64 ms)
    reverberant_factor: int = 4
    envelope_band_start: float = 0.5  # lower edge of the first envelope band over the cue band
    residual_start: float = 0.875  # lower edge of the residual; resampling passes all below 0.91
    # Quantile over the frequencies of a band that determines ε
    anechoic_quantile: float = 0.1
    reverberant_quantile: float = 0.5
    demixing: DemixingSettings = field(
        default_factory=lambda: DemixingSettings(
            first_smoothing=((65, 3), (65, 3), (5, 3), (5, 3)),
            second_smoothing=((5, 3), (5, 3)),
            permutation=PermutationSettings(),
        )
    )
    wiener: WienerSettings = field(default_factory=WienerSettings)


def extend_band(
    recording: Array,
    signals: Array,
    layout: CueLayout,
    rate: int,
    rendering: Rendering,
    reverberation: ReverberationEstimate = UNKNOWN_REVERBERATION,
    settings: BandExtensionSettings | None = None,
) -> Array:
    """Return sources (M, 2, n') at `rate` that sum to the recording (2, n').

    `signals` (M, 2, n) are the sources at the layout's rate, aligned with the recording, and
    `reverberation` is the estimate that was completed when they were separated.
    """
    settings, M, n = settings or BandExtensionSettings(), len(signals), recording.shape[1]
    if M == 1:
        return recording[None]
    out = _fit_length(resample(signals, layout.rate, rate), n)
    residual = recording - out.sum(axis=0)
    edge_hz = min(rate, layout.rate) / 2  # the sources are known up to here
    reverberant = rendering == "spatial" and reverberation.reverberant
    factor = settings.reverberant_factor if reverberant else settings.anechoic_factor
    transform = _Transform.from_layout(layout, rate, factor, settings.hops_per_window)
    separator = _ResidualSeparator(transform, edge_hz, rendering, reverberant, settings)
    out[:-1] += separator.separate(residual, out)
    out[-1] = recording - out[:-1].sum(axis=0)
    return out


@dataclass(frozen=True, slots=True)
class _Transform:
    """An STFT at the rate of the recording."""

    rate: int  # Hz
    window: int  # samples
    hop: int  # samples

    @classmethod
    def from_layout(
        cls, layout: CueLayout, rate: int, factor: int, hops_per_window: int
    ) -> _Transform:
        """Scale the layout's window by `factor`, rounded up to a fast FFT length."""
        hop = round(factor * layout.window * rate / (layout.rate * hops_per_window))
        hop = fast_fft_length(max(hop, 2))
        return cls(rate, hops_per_window * hop, hop)

    def spectra(self, signal: Array) -> Spectra:
        """Return the spectra (2, B, T) of a signal (2, n)."""
        return stft(signal, self.window, self.hop)


@dataclass(frozen=True, slots=True)
class _ResidualSeparator:
    """Separates the residual of a recording, band by band."""

    transform: _Transform
    edge_hz: float  # the sources are known below
    rendering: Rendering
    reverberant: bool
    settings: BandExtensionSettings

    def separate(self, residual: Array, signals: Array) -> Array:
        """Return the parts (M - 1, 2, n) of all sources but the last in the residual."""
        transform, settings = self.transform, self.settings
        M, spectra = len(signals), transform.spectra(residual)
        frequencies_hz = np.arange(spectra.shape[1]) * transform.rate / transform.window
        start_hz = settings.envelope_band_start * self.edge_hz
        known = slice(*np.searchsorted(frequencies_hz, [start_hz, self.edge_hz]))
        envelopes = _envelopes(
            np.stack(
                [squared_magnitude(transform.spectra(s)[:, known]).sum(axis=0) for s in signals]
            )
        )
        # Below the first band there are only rounding errors and edge effects of the blocks.
        images = np.repeat(spectra[None] / M, M - 1, axis=0)
        for band in self._bands(frequencies_hz):
            X = spectra[:, band]
            if self.rendering == "spatial":
                band_images = separate_band(
                    X,
                    envelopes,
                    frequencies_hz[band],
                    frames_per_second=transform.rate / transform.hop,
                    reverberant=self.reverberant,
                    settings=settings,
                )
            else:
                masks = relative_envelopes(envelopes)
                masks = binary_masks(masks) if self.rendering == "binary" else masks
                band_images = masks[:, None, None] * X
            images[:, :, band] = band_images[:-1]
            envelopes = _envelopes(squared_magnitude(band_images).sum(axis=1))
        n = residual.shape[1]
        return np.stack([istft(image, transform.window, transform.hop, n) for image in images])

    def _bands(self, frequencies_hz: Array) -> Iterator[slice]:
        """Yield the bins of the residual in bands as wide as the band of the cues."""
        edge_hz = self.edge_hz
        count = max(int(np.ceil(frequencies_hz[-1] / edge_hz)), 2)
        edges = [self.settings.residual_start * edge_hz, *(edge_hz * np.arange(2, count)), np.inf]
        for begin, end in pairwise(np.searchsorted(frequencies_hz, edges)):
            if end > begin:
                yield slice(int(begin), int(end))


def separate_band(
    X: Spectra,
    envelopes: Array,
    frequencies_hz: Array,
    *,
    frames_per_second: float,
    reverberant: bool,
    settings: BandExtensionSettings,
) -> Complex:
    """Separate a band without masks, from the envelopes of the sources.

    Returns images (M, 2, F, T) that sum to spectra X (2, F, T), given envelopes (M, T).
    """
    M, wiener = len(envelopes), settings.wiener
    if not X.any():
        return np.zeros((M, *X.shape), dtype=np.complex128)
    X, ear_levels = normalize_levels(X)
    moments = SecondMoments.from_spectra(X)
    q = np.broadcast_to(relative_envelopes(envelopes)[:, None], (M, *X.shape[1:]))
    if M == 2:
        # The floor of a silent source: without it, the weights 1 / v are infinite.
        v = envelopes + 1e-3 * envelopes.mean(axis=1, keepdims=True) + 1e-300
        V = moments.covariances(np.broadcast_to(1 / v[:, None], q.shape)) / X.shape[-1]
        initial = steering_vectors_from_covariances(V)
        A, permuted = complete(
            estimate_pair(moments, q, frequencies_hz, settings.demixing, initial=initial)
        )
        q = np.where(permuted[:, None], q[::-1], q)
        fractions = moments.power_fractions(A)
        quantile = settings.reverberant_quantile if reverberant else settings.anechoic_quantile
        ratio = estimate_diffuse_to_direct(moments, A, fractions, wiener, quantile=quantile)
    else:
        A, fractions = principal_steering_vectors(moments.covariances(q**2)), None
        ratio = wiener.underdetermined_diffuse_to_direct
    activity = source_activity(q, moments.power, wiener.activity_seconds * frames_per_second)
    v = source_powers(moments, q, activity, wiener, fractions=fractions)
    images: Complex = multichannel_wiener_filter(X, A, v, ratio) * ear_levels
    return images


def relative_envelopes(envelopes: Array) -> Array:
    """Return the envelopes (M, T) divided by their sum; equal fractions where all are silent."""
    total = envelopes.sum(axis=0)
    audible = total > 0
    return np.where(audible, envelopes / np.where(audible, total, 1.0), 1 / len(envelopes))


def _fit_length(signals: Array, n: int) -> Array:
    """Crop or zero-pad signals (M, 2, …) to n samples; resampling may differ by one sample."""
    fitted = np.zeros((*signals.shape[:-1], n))
    length = min(n, signals.shape[-1])
    fitted[..., :length] = signals[..., :length]
    return fitted


def _envelopes(powers: Array) -> Array:
    """Return envelopes (M, T) of powers (M, F, T), each frequency normalized to unit level."""
    level = powers.sum(axis=0).mean(axis=1)
    level = np.maximum(level, max(1e-9 * float(level.max(initial=0.0)), 1e-300))  # silent bins
    envelopes: Array = (powers / level[:, None]).mean(axis=1)
    return envelopes
