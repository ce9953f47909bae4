"""Rendering of separated sources: from masks to the image of each source at both ears.

Input: a mixture (2, n), its spectra (2, B, T), and soft masks (M, F, T) of the bins above 0 Hz.
Output: signals (M, 2, n) that sum to the mixture. There are three methods:

    spatial   demixing filters and a multichannel Wiener filter (`separate_spatially`); the default
    soft      soft masks, which sum to 1
    binary    each bin to its most probable source (the paper)

A mask can only attenuate a bin, whereas two microphones can also cancel a source (a beamformer with
a null in its direction). `separate_spatially` estimates the steering vectors of two sources
(`determined`), or of more than two, which cannot all be cancelled at once (`underdetermined`), and
applies a multichannel Wiener filter (`wiener`).

In reverberant recordings, longer windows capture more of the room response and the filters cancel
more, but the masks of few long frames are a poor initialization. The sources are therefore
separated as above first, and the result initializes further passes in longer and longer windows
(`refine_pair`), the longer the slower sound decays, as far as the recording has enough
of them. In anechoic recordings these settings would lose up to 10 dB. If it is unknown whether the
recording is reverberant, the diffuse-to-direct ratio ε of the anechoic filters decides. The
estimate that is completed with it is returned, so that the decision is made once: later blocks and
the band above the cues follow it.

    X (2, F, T) spectra    masks (M, F, T)    A (F, 2, M) steering vectors
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from earatlas.errors import InputError
from earatlas.features.layout import CueLayout
from earatlas.features.reverberation import UNKNOWN_REVERBERATION, ReverberationEstimate
from earatlas.features.stft import istft, squared_magnitude, stft
from earatlas.parts import complete
from earatlas.separation.demixing.determined import (
    REVERBERANT_SMOOTHING,
    DemixingSettings,
    SecondMoments,
    estimate_pair,
    iterative_projection,
    normalize_levels,
    regularize_collinear,
    smooth_powers,
    steering_vectors_from_covariances,
)
from earatlas.separation.demixing.masks import apply_masks, binary_masks
from earatlas.separation.demixing.permutation_alignment import ExpectedCues
from earatlas.separation.demixing.underdetermined import (
    UnderdeterminedSettings,
    nmf_source_powers,
    underdetermined_steering_vectors,
)
from earatlas.separation.demixing.wiener import (
    SourceCovariances,
    WienerSettings,
    estimate_diffuse_to_direct,
    multichannel_wiener_filter,
    source_activity,
    source_powers,
)
from earatlas.types import Array, Complex, Spectra

__all__ = [
    "NormalizedFrames",
    "Rendering",
    "SpatialFilterSettings",
    "check_rendering",
    "refine_in_long_windows",
    "refine_pair",
    "render_sources",
    "separate_spatially",
]

Rendering = Literal["spatial", "soft", "binary"]


# Evidence: docs/figures/settings/separation.md, "demixing.rendering".
@dataclass(frozen=True, slots=True)
class SpatialFilterSettings:
    """Settings of `separate_spatially`. Factors are in windows of the cue layout (64 ms)."""

    window_factor: int = 4  # window of the filters of two sources
    hops_per_window: int = 8  # window length, hops
    demixing: DemixingSettings = field(default_factory=DemixingSettings)
    reverberant_hops_per_window: int = 4  # window length in reverberant rooms, hops
    reverberant_demixing: DemixingSettings = field(
        default_factory=lambda: DemixingSettings(
            first_smoothing=REVERBERANT_SMOOTHING,
            second_smoothing=((5, 5), (5, 5)),
            alignments=2,
        )
    )
    long_window_seconds: tuple[float, ...] = (0.512, 1.024)  # further passes in these rooms
    hall_window_seconds: float = 1.536  # one more pass in halls
    hall_decay_seconds: float = 0.385  # decay time from which a room is a hall
    noisy_hall_decay_seconds: float = 0.45  # the same in noise, which makes decays slower
    min_long_windows: float = 3.5  # windows per recording; only the first pass has fewer
    long_window_smoothing_hz: float = 32.0  # averaging of the powers over frequency
    long_window_iterations: int = 3
    wiener: WienerSettings = field(default_factory=WienerSettings)
    underdetermined: UnderdeterminedSettings = field(default_factory=UnderdeterminedSettings)


def check_rendering(rendering: str) -> Rendering:
    """Return the name of a rendering method, or raise an InputError."""
    for name in get_args(Rendering):
        if rendering == name:
            return name  # type: ignore[no-any-return]
    raise InputError(
        f"rendering must be one of {', '.join(get_args(Rendering))}, got {rendering!r}. "
        "Use spatial (the default) for demixing filters, soft or binary for masks."
    )


def render_sources(
    samples: Array,
    spectra: Spectra,
    masks: Array,
    layout: CueLayout,
    rendering: Rendering,
    *,
    reverberation: ReverberationEstimate = UNKNOWN_REVERBERATION,
    expected: ExpectedCues | None = None,
) -> tuple[Array, ReverberationEstimate]:
    """Return the signals (M, 2, n) of all sources of samples (2, n) with spectra (2, B, T).

    See `separate_spatially` for `reverberation`, which is returned too, and `expected`.
    """
    if len(masks) == 1:
        return samples[None], reverberation
    match rendering:
        case "spatial":
            return separate_spatially(
                samples, masks, layout, reverberation=reverberation, expected=expected
            )
        case "soft":
            return apply_masks(spectra, masks, layout, samples.shape[1]), reverberation
        case "binary":
            binary = binary_masks(masks)
            return apply_masks(spectra, binary, layout, samples.shape[1]), reverberation


def separate_spatially(
    samples: Array,
    masks: Array,
    layout: CueLayout,
    *,
    reverberation: ReverberationEstimate = UNKNOWN_REVERBERATION,
    expected: ExpectedCues | None = None,
    long_windows: bool = True,
    settings: SpatialFilterSettings | None = None,
) -> tuple[Array, ReverberationEstimate]:
    """Separate the sources of a mixture by demixing filters and a multichannel Wiener filter.

    Parameters
    ----------
    samples : array of shape (2, n)
        The mixture at the rate of the layout.
    masks : array of shape (M, F, T)
        Soft masks in the layout's frames and bins above 0 Hz.
    layout : CueLayout
        Rate, window and hop of the masks.
    reverberation : ReverberationEstimate, optional
        Reverberation of the recording. If it is uncertain and the diffuse-to-direct ratio of two
        sources is not known from an earlier block, the ratio of these samples decides. More than
        two sources are treated alike in all conditions.
    expected : ExpectedCues, optional
        Cues of the sources at the F frequencies of the masks, which the head model predicts. They
        are used for two sources in anechoic recordings.
    long_windows : bool, default True
        Whether two sources in a room are refined in long windows (`refine_pair`).
    settings : SpatialFilterSettings, optional
        Windows, smoothing and Wiener filter.

    Returns
    -------
    images : array of shape (M, 2, n)
        Source images at both ears, which sum to `samples`.
    reverberation : ReverberationEstimate
        The estimate, completed with the diffuse-to-direct ratio if that was measured.

    Examples
    --------
    >>> import numpy as np
    >>> import earatlas as ea
    >>> layout = ea.CueLayout()
    >>> samples = np.random.default_rng(0).normal(size=(2, 4096))
    >>> masks = np.full((2, 512, 33), 0.5)
    >>> images, _ = separate_spatially(samples, masks, layout)
    >>> bool(np.allclose(images.sum(axis=0), samples))
    True
    """
    settings, M = settings or SpatialFilterSettings(), len(masks)
    if M == 1 or not samples.any():
        return np.repeat(samples[None], M, axis=0), reverberation
    if M > 2:
        frames = NormalizedFrames.from_samples(
            samples, layout.rate, layout.window, settings.hops_per_window
        )
        return _separate_underdetermined(frames, masks, layout, settings), reverberation
    window = settings.window_factor * layout.window
    if not reverberation.reverberant:
        frames = NormalizedFrames.from_samples(
            samples, layout.rate, window, settings.hops_per_window
        )
        model = _fit_pair(frames, masks, layout, settings.demixing, settings.wiener, expected)
        if reverberation.diffuse_ratio is None:
            reverberation = replace(reverberation, diffuse_ratio=model.diffuse_to_direct)
        if not reverberation.reverberant:
            return model.signals(), reverberation
    hops_per_window = settings.reverberant_hops_per_window
    frames = NormalizedFrames.from_samples(samples, layout.rate, window, hops_per_window)
    # Reflections change the cues from what is expected for a direction.
    model = _fit_pair(frames, masks, layout, settings.reverberant_demixing, settings.wiener, None)
    signals = model.signals()
    if long_windows:
        signals = refine_pair(samples, signals, layout, reverberation, settings)
    return signals, reverberation


def refine_pair(
    samples: Array,
    signals: Array,
    layout: CueLayout,
    reverberation: ReverberationEstimate,
    settings: SpatialFilterSettings | None = None,
) -> Array:
    """Separate two reverberant sources again from their signals (2, 2, n), in all long windows."""
    settings = settings or SpatialFilterSettings()
    for window in _long_windows(samples.shape[1], layout, reverberation, settings):
        signals = refine_in_long_windows(samples, signals, layout.rate, window, settings)
    return signals


@dataclass(frozen=True, eq=False)
class NormalizedFrames:
    """Spectra of samples (2, n), each ear at unit RMS level per frequency, and the inverse.

    Spectra are in single precision, which halves time and memory; the sum of the sources is
    restored in the precision of the samples.
    """

    samples: Array  # (2, n)
    rate: int  # Hz
    window: int  # samples
    hop: int  # samples
    scale: float  # the largest absolute sample; levels and spectra are in units of it
    X: Spectra  # (2, F, T), F = window / 2 bins above 0 Hz
    ear_levels: Array  # (2, F, 1) RMS level per ear and frequency
    dc: Spectra  # (2, 1, T) the 0 Hz bin

    @classmethod
    def from_samples(
        cls, samples: Array, rate: int, window: int, hops_per_window: int
    ) -> NormalizedFrames:
        """Transform samples that are not all zero, with `hops_per_window` hops per window."""
        hop = max(window // hops_per_window, 1)
        # Scaled to unit peak: single precision cannot represent the squares of all input levels.
        scale = np.abs(samples).max()
        # Contiguous in frequency rows, which is the access order of all later steps.
        spectra = np.ascontiguousarray(stft((samples / scale).astype(np.float32), window, hop))
        X, ear_levels = normalize_levels(spectra[:, 1:])
        return cls(samples, rate, window, hop, float(scale), X, ear_levels, spectra[:, :1])

    @cached_property
    def moments(self) -> SecondMoments:
        """Second moments of the spectra."""
        return SecondMoments.from_spectra(self.X)

    @property
    def frequencies_hz(self) -> Array:
        """Centre frequencies (F,) of the bins."""
        return (np.arange(self.X.shape[1]) + 1) * self.rate / self.window

    def power_of(self, signal: Array) -> Array:
        """Return the power (F, T) of another signal (2, n) in the same normalization."""
        spectra = stft((signal / self.scale).astype(np.float32), self.window, self.hop)
        power: Array = squared_magnitude(spectra[:, 1:] / self.ear_levels).sum(axis=0)
        return power

    def resample_masks(self, masks: Array, layout: CueLayout) -> Array:
        """Return masks of the layout's frames at the frames of these spectra, by the nearest."""
        _, F, T = self.X.shape
        rows = np.round((np.arange(F) + 1) * masks.shape[1] / F).astype(np.intp) - 1
        columns = np.round(np.arange(T) * self.hop / layout.hop).astype(np.intp)
        columns = np.minimum(columns, masks.shape[2] - 1)
        nearest = np.take(masks, columns, axis=2).astype(np.float32)  # the reduction comes first
        resampled: Array = np.take(nearest, np.maximum(rows, 0), axis=1)
        return resampled

    def expected(self, cues: ExpectedCues, layout: CueLayout) -> ExpectedCues:
        """Return cues of the layout's frequencies at those of the spectra, in their units."""
        rows = np.round(self.frequencies_hz * layout.window / layout.rate).astype(np.intp) - 1
        rows = np.clip(rows, 0, layout.n_frequencies - 1)
        return cues.at(rows, self.ear_levels[..., 0])

    def synthesize(self, images: Complex) -> Array:
        """Return signals (M, 2, n) from normalized images (M, 2, F, T) that sum to X.

        The last signal is the mixture minus all others, so the signals sum to the samples exactly.
        """
        M, n = len(images), self.samples.shape[1]
        signals = np.empty((M, 2, n))
        for m, image in enumerate(images[:-1]):
            spectra = np.concatenate([self.dc / M, image * self.ear_levels], axis=1)
            signals[m] = self.scale * istft(spectra, self.window, self.hop, n)
        signals[-1] = self.samples - signals[:-1].sum(axis=0)
        return signals


@dataclass(frozen=True, eq=False)
class _WienerModel:
    """Parameters of the multichannel Wiener filter of one mixture."""

    frames: NormalizedFrames
    A: Complex  # (F, 2, M) steering vectors
    v: Array  # (M, F, T) source powers
    diffuse_to_direct: float  # ε

    @classmethod
    def from_masks(
        cls, frames: NormalizedFrames, A: Complex, q: Array, settings: WienerSettings
    ) -> _WienerModel:
        """Combine masks q (M, F, T) and, for two sources, the powers of the demixing filters."""
        moments = frames.moments
        fractions = moments.power_fractions(A) if len(q) == 2 else None
        frames_per_second = frames.rate / frames.hop
        activity = source_activity(q, moments.power, settings.activity_seconds * frames_per_second)
        v = source_powers(moments, q, activity, settings, fractions=fractions)
        low = slice(None, max(int(np.searchsorted(frames.frequencies_hz, settings.max_hz)), 1))
        shares = q if fractions is None else fractions
        ratio = estimate_diffuse_to_direct(
            SecondMoments(moments.values[low]), A[low], shares[:, low], settings
        )
        return cls(frames, A, v, ratio)

    def signals(self) -> Array:
        """Return the images (M, 2, n) of all sources."""
        images = multichannel_wiener_filter(self.frames.X, self.A, self.v, self.diffuse_to_direct)
        return self.frames.synthesize(images)


def _fit_pair(
    frames: NormalizedFrames,
    masks: Array,
    layout: CueLayout,
    demixing: DemixingSettings,
    wiener: WienerSettings,
    expected: ExpectedCues | None,
) -> _WienerModel:
    """Estimate the Wiener filter of two sources from their masks."""
    q = frames.resample_masks(masks, layout)
    cues = None if expected is None else frames.expected(expected, layout)
    A, permuted = complete(
        estimate_pair(frames.moments, q, frames.frequencies_hz, demixing, expected=cues)
    )
    q = np.where(permuted[:, None], q[::-1], q)
    return _WienerModel.from_masks(frames, A, q, wiener)


def _long_windows(
    n: int, layout: CueLayout, reverberation: ReverberationEstimate, settings: SpatialFilterSettings
) -> list[int]:
    """Return the long windows for n samples, in samples; they are multiples of the cues' window."""
    seconds = settings.long_window_seconds
    clean = reverberation.low_noise
    hall_seconds = settings.hall_decay_seconds if clean else settings.noisy_hall_decay_seconds
    if reverberation.decay_seconds >= hall_seconds:
        seconds = (*seconds, settings.hall_window_seconds)
    factors = (max(round(s * layout.rate / layout.window), 1) for s in seconds)
    first, *longer = (factor * layout.window for factor in factors)
    return [first, *(window for window in longer if settings.min_long_windows * window <= n)]


def refine_in_long_windows(
    samples: Array, signals: Array, rate: int, window: int, settings: SpatialFilterSettings
) -> Array:
    """Separate two reverberant sources again in long windows, from their signals (2, 2, n)."""
    frames = NormalizedFrames.from_samples(
        samples, rate, window, settings.reverberant_hops_per_window
    )
    moments = frames.moments
    size = (round(settings.long_window_smoothing_hz * window / rate) | 1, 1)  # bins, frames
    v = np.stack([frames.power_of(signal) for signal in signals]) + moments.floor
    V = moments.covariances(1 / smooth_powers(v, size, moments.floor)) / v.shape[-1]
    A = regularize_collinear(steering_vectors_from_covariances(V))
    A = complete(iterative_projection(moments, A, (size,) * settings.long_window_iterations))
    return _WienerModel.from_masks(frames, A, v / v.sum(axis=0), settings.wiener).signals()


def _separate_underdetermined(
    frames: NormalizedFrames, masks: Array, layout: CueLayout, settings: SpatialFilterSettings
) -> Array:
    """Separate more than two sources, which are not all active at once."""
    q = frames.resample_masks(masks, layout)
    _, max_phase_hz = layout.ipd_band_hz or (0.0, 0.0)
    n_phase_bins = int(np.searchsorted(frames.frequencies_hz, max_phase_hz, "right"))
    step = settings.underdetermined.frame_step
    moments = SecondMoments.from_spectra(frames.X[:, :, ::step])
    A = complete(
        underdetermined_steering_vectors(
            moments, q[:, :, ::step], n_phase_bins, settings.underdetermined
        )
    )
    model = _WienerModel.from_masks(frames, A, q, settings.wiener)
    R = SourceCovariances.from_steering_vectors(A.astype(frames.X.dtype), model.diffuse_to_direct)
    v = nmf_source_powers(frames.X, R, model.v, frames.moments.floor, settings.underdetermined)
    return replace(model, v=v).signals()
