"""Separation by spatial filtering: from masks to the image of each source at both ears.

Input: a two-channel mixture and soft masks of its sources. Output: the two-channel image of every
source; the images sum to the mixture. A mask can only attenuate a bin, whereas two microphones can
also cancel a source (a beamformer with a null in its direction). For two sources with one steering
vector each, this is exact:

    x_ft (2,) = Σ_m a_mf y_mft           a_mf (2,) steering vector of source m at frequency f
    y = A⁻¹ x,  image of m = a_m y_m      A_f = (a_1f, a_2f)

1. Initialization: a_mf is the principal eigenvector of the mask-weighted spatial covariance.
2. Iterative projection: for sources with time-varying powers v_mft, the maximum-likelihood demixing
   filters are the generalized eigenvectors of the two covariances Σ_t x xᴴ / v_mft, as in AuxIVA
   [1]_ and ILRMA [2]_. Powers are smoothed over many frequencies at first, which keeps the
   frequencies of a source together, then over few.
3. Permutation alignment (`permutation_alignment`): where masks were wrong over a range of
   frequencies the sources come out swapped; the order is corrected and step 2 is repeated.
4. Multichannel Wiener filter: where both sources have similar steering vectors (at low frequencies,
   or on one cone of confusion), cancellation amplifies all model errors. Each source therefore has
   the covariance v_mft (a_m a_mᴴ + ε I), with v between the estimates of masks and filters. The
   diffuse-to-direct ratio ε is estimated from the energy orthogonal to a_m in bins with a single
   active source; it is small in anechoic and large in reverberant recordings.

More than two sources cannot all be cancelled at once: see `underdetermined`.

In reverberant recordings, longer windows capture more of the room response and the filters cancel
more, but the masks of few long frames are a poor initialization. The sources are therefore
separated as above first, and the result initializes a second pass in longer windows
(`refine_in_long_windows`). Powers are also smoothed over longer times. In anechoic recordings these
settings would lose up to 10 dB. If it is unknown whether the recording is reverberant, ε of the
anechoic filters decides.

A band in which no cues were learned has no masks. `separate_band` starts from envelopes instead:
the powers v_mt per frame, known from a lower band, give filters directly, and the relative
envelopes replace the masks.

    X (2, F, T) spectra    masks (M, F, T)    v (M, F, T) powers    A (F, 2, M) steering vectors

References
----------
.. [1] N. Ono, "Stable and fast update rules for independent vector analysis based on auxiliary
   function technique", WASPAA 2011.
.. [2] D. Kitamura, N. Ono, H. Sawada, H. Kameoka and H. Saruwatari, "Determined blind source
   separation unifying independent vector analysis and nonnegative matrix factorization", IEEE/ACM
   Trans. Audio, Speech, and Language Processing 24(9), 2016.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.features.stft import squared_magnitude
from earatlas.separation.demixing.frames import FLOOR, NormalizedFrames, normalize_levels
from earatlas.separation.demixing.permutation_alignment import (
    FINE_PERMUTATION,
    PermutationSettings,
    align_permutation,
    expected_steering_vectors,
    steering_vector_agreement,
)
from earatlas.separation.demixing.steering_vectors import (
    SecondMoments,
    multichannel_wiener_filter,
    orthogonal_fraction,
    principal_steering_vectors,
    regularize_collinear,
    smooth_powers,
    steering_vectors_from_moments,
)
from earatlas.separation.demixing.underdetermined import (
    nmf_source_powers,
    underdetermined_steering_vectors,
)
from earatlas.types import Array, Complex, Spectra

__all__ = [
    "ACTIVITY_SECONDS",
    "EXPECTED_STEERING_WEIGHT",
    "FILTER_LEAKAGE",
    "MASK_UNCERTAINTY",
    "estimate_diffuse_to_direct",
    "refine_in_long_windows",
    "relative_envelopes",
    "separate_band",
    "separate_spatially",
    "source_activity",
]

# Evidence: docs/figures/settings/separation.md, "demixing.spatial_filtering".
_WINDOW_FACTOR = 4  # demixing window in windows of the cue layout: 256 ms
_HOPS_PER_WINDOW = 8  # window length, hops
# Bins and frames over which powers are smoothed, one entry per iteration: before and after
# permutation alignment.
_FIRST_SMOOTHING, _SECOND_SMOOTHING = ((65, 1), (65, 1), (5, 1), (5, 1)), ((5, 1), (5, 1))
_BROAD_SMOOTHING, _NARROW_SMOOTHING = (65, 3), (5, 3)  # bins and frames in a band without masks
_REVERBERANT_HOPS_PER_WINDOW = 4  # window length in reverberant rooms, hops
# Bins and frames in reverberant rooms, and in the long windows of the second pass.
_REVERBERANT_SMOOTHING, _LONG_WINDOW_SMOOTHING = (5, 5), (9, 3)
_REVERBERANT_FIRST_SMOOTHING = (
    _BROAD_SMOOTHING,
    _BROAD_SMOOTHING,
    _REVERBERANT_SMOOTHING,
    _REVERBERANT_SMOOTHING,
)
_REVERBERANT_SECOND_SMOOTHING = (_REVERBERANT_SMOOTHING, _REVERBERANT_SMOOTHING)
_REVERBERANT_ROUNDS = 2  # rounds of permutation alignment
_LONG_WINDOW_FACTOR = 8  # second pass in reverberant rooms, in windows of the cue layout
_REVERBERANT_DIFFUSE_TO_DIRECT = 0.006  # ε of anechoic filters from which a room is reverberant
EXPECTED_STEERING_WEIGHT = 20.0  # w: weight of expected steering vectors in the alignment
_UNMASKED_DIFFUSE_TO_DIRECT = 3e-3  # ε of more than two sources in a band without masks
_SINGLE_SOURCE_QUANTILE = 0.05  # best-fitting fraction of a source's bins, taken as single-source
_DIFFUSE_SCALE = 16.0  # ε relative to the orthogonal energy of those bins, which fit above average
# Bounds of ε. A value near single precision (about 1e-7) would invert rounding errors.
_MIN_DIFFUSE_TO_DIRECT, _MAX_DIFFUSE_TO_DIRECT = 1e-6, 0.3
_DIFFUSE_MAX_HZ = 1000.0  # Hz, ε is estimated below, where bins have a good signal-to-noise ratio
MASK_UNCERTAINTY = 0.1  # fraction of a bin's power an active source may have despite its mask
FILTER_LEAKAGE = 0.02  # fraction of a bin's power that filters may assign to the wrong source
ACTIVITY_SECONDS = 0.25  # s, averaging time of the source activity
# Quantile over the frequencies of a band without masks that determines ε.
_ANECHOIC_QUANTILE, _REVERBERANT_QUANTILE = 0.1, 0.5
_ENVELOPE_FLOOR = 1e-3  # envelope of a silent source over its mean; without it, 1/v is infinite
_Sizes = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class _IterationPlan:
    """Smoothing of the powers in each iteration of the demixing filters."""

    first: _Sizes
    second: _Sizes  # after permutation alignment
    permutation: PermutationSettings = field(default_factory=PermutationSettings)
    rounds: int = 1  # rounds of permutation alignment and second iterations


def separate_spatially(
    samples: Array,
    masks: Array,
    layout: CueLayout,
    *,
    reverberant: bool | None = False,
    ratios: Complex | None = None,
) -> Array:
    """Separate the sources of a mixture by demixing filters and a multichannel Wiener filter.

    Parameters
    ----------
    samples : array of shape (2, n)
        The mixture at the rate of the layout.
    masks : array of shape (M, F, T)
        Soft masks in the layout's frames and bins above 0 Hz.
    layout : CueLayout
        Rate, window and hop of the masks.
    reverberant : bool or None, default False
        Whether the recording is reverberant. With None, the diffuse-to-direct ratio of two sources
        decides. More than two sources are treated alike in all conditions.
    ratios : complex array of shape (M, F), optional
        Expected interaural transfer functions (right over left), NaN where unknown. They are used
        for two sources in anechoic recordings.

    Returns
    -------
    array of shape (M, 2, n)
        Source images at both ears, which sum to `samples`.

    Examples
    --------
    >>> import numpy as np
    >>> import earatlas as ea
    >>> layout = ea.CueLayout()
    >>> samples = np.random.default_rng(0).normal(size=(2, 4096))
    >>> masks = np.full((2, 512, 33), 0.5)
    >>> images = separate_spatially(samples, masks, layout)
    >>> bool(np.allclose(images.sum(axis=0), samples))
    True
    """
    M = len(masks)
    if M == 1 or not samples.any():
        return np.repeat(samples[None], M, axis=0)
    if M > 2:
        frames = NormalizedFrames.from_samples(
            samples, layout.rate, layout.window, _HOPS_PER_WINDOW
        )
        return _separate_underdetermined(frames, masks, layout)
    window = _WINDOW_FACTOR * layout.window
    if not reverberant:
        frames = NormalizedFrames.from_samples(samples, layout.rate, window, _HOPS_PER_WINDOW)
        prior = _PermutationPrior.from_ratios(frames, ratios, layout)
        plan = _IterationPlan(_FIRST_SMOOTHING, _SECOND_SMOOTHING, FINE_PERMUTATION)
        demixer = _fit_pair(frames, masks, layout, plan, prior)
        if reverberant is not None or demixer.diffuse_to_direct < _REVERBERANT_DIFFUSE_TO_DIRECT:
            return demixer.signals()
    frames = NormalizedFrames.from_samples(
        samples, layout.rate, window, _REVERBERANT_HOPS_PER_WINDOW
    )
    plan = _IterationPlan(
        _REVERBERANT_FIRST_SMOOTHING,
        _REVERBERANT_SECOND_SMOOTHING,
        FINE_PERMUTATION,
        _REVERBERANT_ROUNDS,
    )
    prior = _PermutationPrior(frames.frequencies_hz)
    signals = _fit_pair(frames, masks, layout, plan, prior).signals()
    return refine_in_long_windows(samples, signals, layout)


@dataclass(frozen=True, eq=False)
class _PermutationPrior:
    """What is known about the order of two sources at each frequency besides the masks."""

    frequencies_hz: Array  # (F,)
    expected: Complex | None = None  # (F, 2, 2) expected steering vectors of unit length
    weight: Array | float = 0.0  # (F,) w, 0 where no steering vector is known

    @classmethod
    def from_ratios(
        cls, frames: NormalizedFrames, ratios: Complex | None, layout: CueLayout
    ) -> _PermutationPrior:
        """Take the interaural ratios (2, F) of the layout's nearest bins, in normalized units."""
        if ratios is None:
            return cls(frames.frequencies_hz)
        rows = np.round(frames.frequencies_hz * layout.window / layout.rate).astype(np.intp) - 1
        nearest = ratios[:, np.clip(rows, 0, ratios.shape[1] - 1)]
        vectors, known = expected_steering_vectors(nearest, frames.ear_levels[..., 0])
        return cls(frames.frequencies_hz, vectors, np.where(known, EXPECTED_STEERING_WEIGHT, 0.0))

    def evidence(self, A: Complex) -> Array | float:
        """Return w g (F,) of steering vectors A, for `align_permutation`."""
        if self.expected is None:
            return 0.0
        return self.weight * steering_vector_agreement(A, self.expected)


@dataclass(frozen=True, eq=False)
class _WienerDemixer:
    """Parameters of the multichannel Wiener filter of one mixture."""

    frames: NormalizedFrames
    steering_vectors: Complex  # (F, 2, M)
    powers: Array  # (M, F, T)
    diffuse_to_direct: float  # ε

    def signals(self) -> Array:
        """Return the images (M, 2, n) of all sources."""
        images = multichannel_wiener_filter(
            self.frames.X, self.steering_vectors, self.powers, self.diffuse_to_direct
        )
        return self.frames.synthesize(images)


def _fit_pair(
    frames: NormalizedFrames,
    masks: Array,
    layout: CueLayout,
    plan: _IterationPlan,
    prior: _PermutationPrior,
) -> _WienerDemixer:
    """Estimate steering vectors, powers and ε of two sources from their masks."""
    moments = SecondMoments.from_spectra(frames.X)
    q = _resample_masks(masks, frames, layout)
    initial = principal_steering_vectors(moments.covariances(q**2))
    A, q = _aligned_steering_vectors(moments, initial, q, prior, frames.floor, plan)
    fractions = _power_fractions(moments.powers(A), frames.floor)
    return _WienerDemixer(frames, A, *_source_powers(frames, A, q, fractions))


def refine_in_long_windows(samples: Array, signals: Array, layout: CueLayout) -> Array:
    """Separate two reverberant sources again in long windows, from their signals (2, 2, n)."""
    frames = NormalizedFrames.from_samples(
        samples, layout.rate, _LONG_WINDOW_FACTOR * layout.window, _REVERBERANT_HOPS_PER_WINDOW
    )
    moments = SecondMoments.from_spectra(frames.X)
    v = np.stack([frames.power_of(signal) for signal in signals]) + frames.floor
    smooth = smooth_powers(v, _LONG_WINDOW_SMOOTHING, frames.floor)
    initial = regularize_collinear(steering_vectors_from_moments(moments, smooth))
    A = _iterative_projection(moments, initial, (_LONG_WINDOW_SMOOTHING,) * 3, frames.floor)
    fractions = _power_fractions(moments.powers(A), frames.floor)
    powers, diffuse_to_direct = _source_powers(frames, A, v / v.sum(axis=0), fractions)
    return _WienerDemixer(frames, A, powers, diffuse_to_direct).signals()


def _separate_underdetermined(frames: NormalizedFrames, masks: Array, layout: CueLayout) -> Array:
    """Separate more than two sources, which are not all active at once."""
    X, floor = frames.X, frames.floor
    q = _resample_masks(masks, frames, layout)
    _, max_phase_hz = layout.ipd_band_hz or (0.0, 0.0)
    n_phase_bins = int(np.searchsorted(frames.frequencies_hz, max_phase_hz, "right"))
    A = underdetermined_steering_vectors(X, q, n_phase_bins)
    v, diffuse_to_direct = _source_powers(frames, A, q, q)
    v = nmf_source_powers(X, A, v, diffuse_to_direct, floor)
    return _WienerDemixer(frames, A, v, diffuse_to_direct).signals()


def _source_powers(
    frames: NormalizedFrames, A: Complex, q: Array, fractions: Array
) -> tuple[Array, float]:
    """Return powers (M, F, T) between masks q and power fractions of the filters, and ε."""
    low = slice(None, max(int(np.searchsorted(frames.frequencies_hz, _DIFFUSE_MAX_HZ)), 1))
    diffuse_to_direct = estimate_diffuse_to_direct(frames.X[:, low], A[low], fractions[:, low])
    averaging = ACTIVITY_SECONDS * frames.frames_per_second
    powers = q + MASK_UNCERTAINTY * source_activity(q, frames.power, averaging)
    if fractions is not q:
        powers = np.sqrt(powers * (fractions + FILTER_LEAKAGE))
    powers *= frames.power
    powers += frames.floor
    return powers, diffuse_to_direct


def separate_band(
    X: Spectra,
    envelopes: Array,
    frequencies_hz: Array,
    *,
    frames_per_second: float,
    reverberant: bool = False,
) -> tuple[Complex, float]:
    """Separate a band without masks, from the envelopes of the sources.

    Returns images (M, 2, F, T) that sum to spectra X (2, F, T), given envelopes (M, T), and ε.
    """
    M = len(envelopes)
    if not X.any():
        return np.zeros((M, *X.shape), dtype=np.complex128), 0.0
    X, ear_levels = normalize_levels(X)
    power, moments = squared_magnitude(X).sum(axis=0), SecondMoments.from_spectra(X)
    floor = FLOOR * float(power.max())
    q = np.broadcast_to(relative_envelopes(envelopes)[:, None], (M, *power.shape))
    A = principal_steering_vectors(moments.covariances(q**2))
    diffuse_to_direct, fractions = _UNMASKED_DIFFUSE_TO_DIRECT, None
    if M == 2:
        v = envelopes + _ENVELOPE_FLOOR * envelopes.mean(axis=1, keepdims=True) + 1e-300
        initial = steering_vectors_from_moments(moments, np.broadcast_to(v[:, None], q.shape))
        plan = _IterationPlan(
            (_BROAD_SMOOTHING, _BROAD_SMOOTHING, _NARROW_SMOOTHING, _NARROW_SMOOTHING),
            (_NARROW_SMOOTHING, _NARROW_SMOOTHING),
        )
        prior = _PermutationPrior(frequencies_hz)
        A, q = _aligned_steering_vectors(moments, initial, q, prior, floor, plan)
        fractions = _power_fractions(moments.powers(A), floor)
        quantile = _REVERBERANT_QUANTILE if reverberant else _ANECHOIC_QUANTILE
        orthogonal = _single_source_orthogonal_fraction(X, A, fractions)
        diffuse_to_direct = _scaled_diffuse_to_direct(float(np.quantile(orthogonal, quantile)))
    powers = q + MASK_UNCERTAINTY * source_activity(q, power, ACTIVITY_SECONDS * frames_per_second)
    if fractions is not None:
        powers = np.sqrt(powers * (fractions + FILTER_LEAKAGE))
    images = multichannel_wiener_filter(X, A, powers * power + floor, diffuse_to_direct)
    return images * ear_levels, diffuse_to_direct


def relative_envelopes(envelopes: Array) -> Array:
    """Return the envelopes (M, T) divided by their sum; equal fractions where all are silent."""
    total = envelopes.sum(axis=0)
    audible = total > 0
    return np.where(audible, envelopes / np.where(audible, total, 1.0), 1 / len(envelopes))


def _resample_masks(masks: Array, frames: NormalizedFrames, layout: CueLayout) -> Array:
    """Return masks on the time-frequency grid of `frames`, by nearest neighbours."""
    _, F, T = frames.X.shape
    rows = np.round((np.arange(F) + 1) * masks.shape[1] / F).astype(np.intp) - 1
    columns = np.round(np.arange(T) * frames.hop / layout.hop).astype(np.intp)
    columns = np.minimum(columns, masks.shape[2] - 1)
    nearest = np.take(masks, columns, axis=2).astype(np.float32)  # the reduction comes first
    resampled: Array = np.take(nearest, np.maximum(rows, 0), axis=1)
    return resampled


def _power_fractions(v: Array, floor: float) -> Array:
    """Return the fraction of each source in the sum of powers (M, F, T)."""
    fractions: Array = v / (v.sum(axis=0) + floor)
    return fractions


def source_activity(q: Array, power: Array, frames: float) -> Array:
    """Return the activity (M, 1, T) of each source around a frame, from 0 to 1."""
    from scipy.ndimage import uniform_filter1d

    energy = uniform_filter1d((q * power).sum(axis=1), max(round(frames), 1), axis=1)
    total = energy.sum(axis=0)
    fraction = energy / np.where(total > 0, total, 1.0)
    # 10 % of the energy counts as fully active; 1 % may be leakage of the masks.
    activity: Array = np.clip((fraction - 0.01) / 0.09, 0.0, 1.0)[:, None]
    return activity


def _aligned_steering_vectors(
    moments: SecondMoments,
    A: Complex,
    q: Array,
    prior: _PermutationPrior,
    floor: float,
    plan: _IterationPlan,
) -> tuple[Complex, Array]:
    """Return refined steering vectors (F, 2, 2) of two sources, and the masks in their order."""
    A = _iterative_projection(moments, regularize_collinear(A), plan.first, floor)
    for _ in range(plan.rounds):
        swap = align_permutation(
            moments.powers(A), q, prior.frequencies_hz, prior.evidence(A), plan.permutation
        )
        A, q = np.where(swap[:, None, None], A[..., ::-1], A), np.where(swap[:, None], q[::-1], q)
        A = _iterative_projection(moments, A, plan.second, floor)
    return A, q


def _iterative_projection(
    moments: SecondMoments, A: Complex, sizes: _Sizes, floor: float
) -> Complex:
    """Refine steering vectors (F, 2, 2), with one smoothing size of the powers per iteration."""
    for size in sizes:
        v = smooth_powers(moments.powers(A), size, floor)
        A = regularize_collinear(steering_vectors_from_moments(moments, v))
    return A


def estimate_diffuse_to_direct(X: Spectra, A: Complex, fractions: Array) -> float:
    """Estimate ε from bins with a single active source; the median over sources and frequencies.

    `fractions` (M, F, T) are the fractions of the sources in the power of each bin.
    """
    return _scaled_diffuse_to_direct(
        float(np.median(_single_source_orthogonal_fraction(X, A, fractions)))
    )


def _scaled_diffuse_to_direct(orthogonal: float) -> float:
    """Return ε for an orthogonal energy fraction of single-source bins, within its limits."""
    return min(max(_DIFFUSE_SCALE * orthogonal, _MIN_DIFFUSE_TO_DIRECT), _MAX_DIFFUSE_TO_DIRECT)


def _single_source_orthogonal_fraction(X: Spectra, A: Complex, fractions: Array) -> Array:
    """Return the orthogonal energy fraction (M, F, 1) of each source's best-fitting bins."""
    orthogonal = np.where(fractions > 0.5, orthogonal_fraction(X, A), 1)
    counts = np.maximum((orthogonal < 1).sum(axis=2), 1)
    rank = (_SINGLE_SOURCE_QUANTILE * (counts - 1)).astype(np.intp)
    return np.take_along_axis(np.sort(orthogonal, axis=2), rank[..., None], axis=2)
