"""Separation of two static tracks with FIR filters that are longer than the latency allows windows.

The output of a window is available only when the window has ended. Therefore long windows are used
only to estimate the filters, which are then applied to the samples: with all past samples that they
need, and with as much look-ahead as the latency of the stream allows. In a reverberant room the
filters are as long as the windows, to cover most reflections. In anechoic sound they are short:
taps far from the centre contain more estimation error than signal.

Inputs: hops (2, hop) of a stream, and at first masks of two tracks from shorter windows. Output:
hops of the image of the first track at both ears; the remainder is the second track.

    H = a_1 w_1ᵀ                    w_1 the first row of A⁻¹
    y(n) = Σ_l h(l) x(n - l)        l from -n_future to n_past - 1

Filters H that are estimated at each frequency separately need more look-ahead than the latency
allows, and truncating them degrades the separation. Among all h with the allowed look-ahead, the
best is the one whose output is closest to that of H for signals with the observed covariances:

    J(h) = Σ_f tr (H_f - ĥ_f) Φ_f (H_f - ĥ_f)ᴴ

Samples beyond the look-ahead are thereby predicted from the others, which works since speech is far
from white. J is a least-squares problem whose products are FFTs, so that a few steps of conjugate
gradients are cheap.

With enough delay and sound, steering vectors are estimated once more in twice as long windows, from
the powers of the separated signals, as those of recordings.

    N     length of the FFT in which H was estimated
    A     (F, 2, 2) steering vectors (relative transfer functions)
    h     (n_future + n_past, 2, 2) taps
    H, ĥ  (N / 2 + 1, 2, 2) filters, and the transform of h, from 0 Hz on
    Φ     (N / 2 + 1, 2, 2) covariances of the two channels
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.fft
import scipy.signal

from earatlas.numerics import fast_fft_length
from earatlas.parts import Parts
from earatlas.separation.demixing.determined import DemixingSettings, inverse
from earatlas.separation.demixing.permutation_alignment import ExpectedCues, PermutationSettings
from earatlas.streaming.filterbank import AnalysisFrames, Filterbank, crossfade
from earatlas.streaming.online_steering import (
    OnlineSteeringVectors,
    SteeringEstimate,
    SteeringSettings,
    SteeringUpdate,
)
from earatlas.types import Array, Complex, Indices

__all__ = [
    "FirDemixer",
    "FirEstimate",
    "FirFilterBank",
    "FirSettings",
    "fit_taps_parts",
    "truncated_taps",
]


# Evidence: docs/figures/settings/streaming.md, "fir_demixing".
@dataclass(frozen=True, slots=True)
class FirSettings:
    """Settings of FIR filters, for anechoic or for reverberant sound."""

    demixing: DemixingSettings
    frames_per_window: int  # frames that are kept
    side_seconds: float  # largest length of the filters on either side of the centre
    fade_fraction: float  # part of either side that is faded
    fit_steps: int  # conjugate-gradient steps of `fit_taps_parts`
    refined_frames_per_window: int = 4  # frames that are kept of still longer windows
    refined_seconds: float = 12.0  # time for which they are kept
    min_refined_frames: int = 20  # number from which on they are used
    refined_iterations: int = 3
    mask_updates: int = 14  # updates that begin with masks: about 5 s
    fit_step_cost: float = 20.0  # of a conjugate-gradient step, in bins per frequency


_ANECHOIC = FirSettings(
    DemixingSettings(((5, 1),) * 3, ((5, 1),), permutation=PermutationSettings()),
    frames_per_window=4,
    side_seconds=0.048,
    fade_fraction=1.0,
    fit_steps=0,
)
_REVERBERANT = FirSettings(
    DemixingSettings(((17, 1),) * 3, ((17, 1),)),
    frames_per_window=8,
    side_seconds=np.inf,  # half of the windows from which they are estimated
    fade_fraction=1 / 6,
    fit_steps=15,
)


@dataclass(frozen=True, eq=False, slots=True)
class FirEstimate:
    """Result of an update: steering vectors, and the taps (n, 2, 2) of filters."""

    steering: SteeringEstimate
    taps: Array | None


class FirDemixer:
    """Long FIR filters for a pair of static tracks."""

    def __init__(
        self,
        filterbank: Filterbank,
        mask_frequencies_hz: Array,
        window_hops: int,
        settings: SteeringSettings,
        *,
        reverberant: bool,
        refined_hops: int = 0,
    ) -> None:
        """Prepare for a stream with a filterbank and masks at the given frequencies.

        Filters are refined in windows of `refined_hops`, if there are any.
        """
        long_filterbank = replace(
            filterbank, window_hops=window_hops, synthesis_hops=window_hops, delay_hops=0
        )
        self._settings = fir = _REVERBERANT if reverberant else _ANECHOIC
        self._frames = AnalysisFrames(long_filterbank)
        self.steering = OnlineSteeringVectors(
            long_filterbank,
            mask_frequencies_hz,
            settings,
            fir.demixing,
            stride_hops=max(window_hops // fir.frames_per_window, 1),
            mask_updates=fir.mask_updates,
            keep_identity=False,  # the masks are those of steering vectors that keep it
        )
        window, look_ahead = long_filterbank.window, filterbank.latency_samples - filterbank.hop
        self._n_past = round(min(fir.side_seconds * filterbank.rate, window // 2))
        self._n_future = min(look_ahead, self._n_past)
        self._refined_n_past = self._n_past  # taps of refined filters
        self._refined: OnlineSteeringVectors | None = None
        if refined_hops:
            refined_filterbank = replace(
                long_filterbank, window_hops=refined_hops, synthesis_hops=refined_hops
            )
            self._refined_frames = AnalysisFrames(refined_filterbank)
            # The same averaging in Hz
            n_bins = fir.demixing.second_smoothing[-1][0] * refined_hops // window_hops | 1
            sizes = ((n_bins, 1),) * fir.refined_iterations
            self._refined = OnlineSteeringVectors(
                refined_filterbank,
                mask_frequencies_hz,
                replace(settings, recent_seconds=fir.refined_seconds),
                replace(fir.demixing, second_smoothing=sizes),
                stride_hops=refined_hops // fir.refined_frames_per_window,
            )
            self._refined_n_past = refined_filterbank.window // 2
        n_taps = self._n_future + self._refined_n_past
        self._fir = FirFilterBank(filterbank.hop, n_taps, look_ahead - self._n_future)
        # Hops from the centre of a long window to that of a synthesis window that ends with it
        self._lag = (window_hops - filterbank.synthesis_hops) // 2

    @property
    def ready(self) -> bool:
        """Whether there are filters for the pair of the last update."""
        return self.steering.vectors is not None

    def append(self, x: Array) -> None:
        """Append a hop (2, hop)."""
        self._frames.append(x)
        self._fir.append(x)
        if self.steering.advance():
            self.steering.append(self._frames.spectra()[:, 1:])
        if self._refined is not None:
            self._refined_frames.append(x)
            if self._refined.advance():
                self._refined.append(self._refined_frames.spectra()[:, 1:])

    def output(self) -> Array:
        """Return the hop (2, hop) of the first track that the last input completes."""
        return self._fir.output()

    def retain(self, track_ids: Sequence[int]) -> None:
        """Forget the steering vectors of pairs with other tracks."""
        self.steering.retain(track_ids)

    def register_motion(self, forgetting: float) -> None:
        """Void the filters of tracks that have moved, and frames before the motion."""
        self.retain([])
        for steering in (self.steering, self._refined):
            if steering is not None:
                steering.register_motion(forgetting)

    def begin_refinement(
        self, track_ids: Sequence[int], forgetting: float
    ) -> SteeringUpdate | None:
        """Return what the refinement of an update depends on; None without enough frames."""
        if self._refined is None:
            return None
        update = self._refined.begin_update(track_ids, forgetting)
        return update if update.n_valid >= self._settings.min_refined_frames else None

    def estimate_parts(
        self,
        update: SteeringUpdate,
        shorter: SteeringUpdate | None,
        A: Complex | None,
        expected: ExpectedCues | None = None,
        refinement: SteeringUpdate | None = None,
    ) -> Parts[FirEstimate]:
        """Estimate the filters of two tracks in parts.

        With steering vectors A (F', 2, 2) from an update with `shorter` windows that began at the
        same hop, the estimation restarts from their masks.
        """
        q = None
        if shorter is not None and A is not None:
            yield shorter.n_bins
            rows = _nearest(shorter.frequencies_hz, update.frequencies_hz)
            q = self._long_masks(update, shorter.power_fractions(A)[:, rows], shorter.kept_hops)
        steering = yield from update.estimate_parts(q, expected)
        if steering.vectors is None:
            return FirEstimate(steering, None)
        yield update.n_bins
        H, n_past, settings = _demixing_filters(steering), self._n_past, self._settings
        if refinement is not None:
            A = yield from refinement.refine_parts(_longer_filters(H, refinement.frequencies_hz))
            yield refinement.n_bins
            refined = replace(steering, vectors=A, ear_levels=refinement.ear_levels)
            H, n_past, update = _demixing_filters(refined), self._refined_n_past, refinement
        taps = truncated_taps(H, self._n_future, n_past, settings.fade_fraction)
        if settings.fit_steps:
            Phi, cost = update.covariances(), settings.fit_step_cost
            taps = yield from fit_taps_parts(
                H, Phi, taps, self._n_future, settings.fit_steps, step_cost=cost
            )
        padding = np.zeros((self._refined_n_past - n_past, 2, 2))
        return FirEstimate(steering, np.concatenate([taps, padding]))

    def apply(self, estimate: FirEstimate) -> None:
        """Use the result of an update for the next hops."""
        self.steering.apply(estimate.steering)
        if estimate.taps is not None:
            self._fir.set_taps(estimate.taps)

    def separate_offline_parts(self, masks: Array, hops: Array | Indices, x: Array) -> Parts[Array]:
        """Return the image (2, n) of the first of two sources in samples x (2, n), in parts.

        The masks (2, mask frequencies, T) belong to frames that ended at `hops` (T,), relative to
        the present (0). The state is not changed, and the whole look-ahead is used.
        """
        update = self.steering.without_pairs().begin_update((0, 1), 0.0)
        q = self._long_masks(update, masks[:, self.steering.mask_rows], hops)
        steering = yield from update.estimate_parts(q, None)
        if steering.vectors is None:
            return x / 2
        yield update.n_bins
        h = scipy.fft.fftshift(scipy.fft.irfft(_demixing_filters(steering), axis=0), axes=0)
        convolved = []
        for ear in (0, 1):
            yield update.n_bins
            convolved.append(scipy.signal.fftconvolve(x[ear, None], h[:, :, ear].T, axes=1))
        centre = len(h) // 2
        first: Array = (convolved[0] + convolved[1])[:, centre : centre + x.shape[1]]
        return first

    def _long_masks(self, update: SteeringUpdate, masks: Array, hops: Array | Indices) -> Array:
        """Return the masks (2, F, T) of the long frames, from those that ended nearest to them."""
        return masks[:, :, _nearest(hops, update.kept_hops - self._lag)]


def _demixing_filters(steering: SteeringEstimate) -> Complex:
    """Return H (F + 1, 2, 2) for spectra at their original levels."""
    A, ear_levels = steering.vectors, steering.ear_levels.T
    assert A is not None
    W = inverse(A)
    H = A[:, :, :1] * W[:, :1, :] * ear_levels[:, :, None] / ear_levels[:, None, :]
    return np.concatenate([0.5 * np.eye(2, dtype=np.complex128)[None], H])


def _longer_filters(H: Complex, frequencies_hz: Array) -> Complex:
    """Return the same filters (F + 1, 2, 2) at more frequencies (F',), without 0 Hz."""
    h = scipy.fft.irfft(H, axis=0)
    half, n = len(h) // 2, 2 * len(frequencies_hz)
    longer = np.zeros((n, 2, 2))
    longer[:half], longer[n - half :] = h[:half], h[half:]
    return np.asarray(scipy.fft.rfft(longer, axis=0)[1:])


def _nearest(values: Array | Indices, targets: Array | Indices) -> Indices:
    """Return the indices of the sorted values that are nearest to the targets."""
    after = np.clip(np.searchsorted(values, targets), 1, len(values) - 1)
    before_is_closer = targets - values[after - 1] <= values[after] - targets
    return np.asarray(after - before_is_closer, dtype=np.intp)


def truncated_taps(spectrum: Complex, n_future: int, n_past: int, fade_fraction: float) -> Array:
    """Return h (n_future + n_past, 2, 2), truncated from filters (N / 2 + 1, 2, 2).

    The outer `fade_fraction` of either side is faded to avoid ringing.
    """
    h = scipy.fft.irfft(spectrum, axis=0)
    taps: Array = np.concatenate([h[len(h) - n_future :], h[:n_past]])
    for n_taps, edge in ((n_future, taps), (n_past, taps[::-1])):
        n_fade = int(fade_fraction * n_taps)
        fade = np.sin(0.5 * np.pi * (np.arange(n_fade) + 0.5) / max(n_fade, 1)) ** 2
        edge[:n_fade] *= fade[:, None, None]
    return taps


def fit_taps_parts(
    spectrum: Complex,
    Phi: Complex,
    start: Array,
    n_future: int,
    n_steps: int,
    *,
    step_cost: float = 1.0,
) -> Parts[Array]:
    """Minimize J by conjugate gradients from `start` (n_future + n_past, 2, 2), in parts.

    `spectrum` and the covariances Phi are (N / 2 + 1, 2, 2). Each step decreases J; its cost per
    frequency is `step_cost`. Inside, samples are on the last axis: transforms are contiguous.
    """
    N, n_past = 2 * (len(spectrum) - 1), len(start) - n_future
    power = np.trace(Phi, axis1=1, axis2=2).real
    # Loaded relative to the mean power, so that silent frequencies stay determined.
    loaded_covariances = Phi / max(float(power.mean()), 1e-300) + 1e-4 * np.eye(2)
    (left, cross), (_, right) = loaded_covariances.transpose(1, 2, 0)
    left, right, conjugate = left.real.copy(), right.real.copy(), cross.conj()
    padded = np.zeros((2, 2, N))

    def restrict(values: Complex) -> Array:
        """Return the taps within the look-ahead of filters (2, 2, N / 2 + 1) times Φ."""
        product = np.empty_like(values)
        product[:, 0] = values[:, 0] * left + values[:, 1] * conjugate
        product[:, 1] = values[:, 0] * cross + values[:, 1] * right
        h = scipy.fft.irfft(product, n=N, axis=-1)
        return np.concatenate([h[..., N - n_future :], h[..., :n_past]], axis=-1)

    def transform(h: Array) -> Complex:
        """Return the transform (2, 2, N / 2 + 1) of taps."""
        padded[..., N - n_future :], padded[..., :n_past] = h[..., :n_future], h[..., n_future:]
        return np.asarray(scipy.fft.rfft(padded, axis=-1))

    h = np.ascontiguousarray(start.transpose(1, 2, 0))
    residual = restrict(spectrum.transpose(1, 2, 0) - transform(h))  # negative gradient
    direction, size = residual, _inner_products(residual, residual)
    for _ in range(n_steps):
        yield step_cost * len(spectrum)
        image = restrict(transform(direction))
        step = size / (_inner_products(direction, image) + 1e-300)
        h = h + step * direction
        residual = residual - step * image
        previous_size, size = size, _inner_products(residual, residual)
        direction = residual + (size / (previous_size + 1e-300)) * direction
    return h.transpose(2, 0, 1)


def _inner_products(first: Array, second: Array) -> Array:
    """Return the inner products (2, 1, 1) of taps (2, 2, n), one per output channel."""
    products: Array = np.einsum("oin,oin->o", first, second)[:, None, None]
    return products


class FirFilterBank:
    """Applies 2 × 2 FIR filters to a stream, hop by hop (overlap-save).

    The output is `n_future` samples late or more. A change of taps is crossfaded over a hop.
    """

    def __init__(self, hop: int, n_taps: int, delay: int = 0) -> None:
        """Prepare for filters of `n_taps` samples, with `delay` samples of extra latency."""
        self._hop = hop
        self._size = fast_fft_length(n_taps + hop - 1)
        self._samples = np.zeros((2, self._size + delay))
        self._filter: Complex | None = None  # (F, 2, 2), current
        self._next: Complex | None = None  # (F, 2, 2), from the next hop on

    def append(self, x: Array) -> None:
        """Append a hop (2, hop)."""
        self._samples = np.concatenate([self._samples[:, self._hop :], x], axis=1)

    def set_taps(self, taps: Array) -> None:
        """Use other taps (n_taps, 2, 2) from the next output on."""
        self._next = scipy.fft.rfft(taps, n=self._size, axis=0)

    def output(self) -> Array:
        """Return the hop (2, hop) that the last input completes."""
        X = scipy.fft.rfft(self._samples[:, : self._size], axis=-1)
        old, self._filter = self._filter, self._filter if self._next is None else self._next
        self._next = None
        assert self._filter is not None, "set_taps must be called first"
        y = self._filtered(X, self._filter)
        if old is None or old is self._filter:
            return y
        return crossfade(self._filtered(X, old), y)

    def _filtered(self, X: Complex, H: Complex) -> Array:
        """Return the last hop of the filtered samples, from spectra X (2, F)."""
        Y = np.einsum("fei,if->ef", H, X)
        y: Array = scipy.fft.irfft(Y, n=self._size, axis=-1)[:, -self._hop :]
        return y
