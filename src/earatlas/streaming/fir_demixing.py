"""Separation of two static tracks with FIR filters that are longer than the latency allows windows.

The output of a window is available only when the window has ended. Therefore long windows are used
only to estimate the filters, which are then applied to the samples (`fir_filters`): with all past
samples that they need, and with as much look-ahead as the latency of the stream allows. In a
reverberant room the filters are as long as the windows, to cover most reflections. In anechoic
sound they are short: taps far from the centre contain more estimation error than signal.

Inputs: hops (2, hop) of a stream, and at first masks of two tracks from shorter windows. Output:
hops of the image of the first track at both ears; the remainder is the second track.

    H = a_1 w_1ᵀ

    A = (a_1, a_2)  (F, 2, 2) steering vectors (relative transfer functions)
    w_1             first row of A⁻¹
    H               (F + 1, 2, 2) filter of the first track, from 0 Hz on
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.fft
import scipy.signal

from earatlas.separation.demixing.matrices_2x2 import inverse
from earatlas.separation.demixing.permutation_alignment import FINE_PERMUTATION, PermutationSettings
from earatlas.streaming.expected_cues import ExpectedCues
from earatlas.streaming.filterbank import AnalysisFrames, Filterbank
from earatlas.streaming.fir_filters import FirFilterBank, fit_taps, truncated_taps
from earatlas.streaming.online_steering import OnlineSteeringVectors, SteeringSettings
from earatlas.types import Array, Complex, Indices

__all__ = ["FirDemixer"]

# Evidence: docs/figures/settings/streaming.md, "fir_demixing".
# Bins and frames over which powers are smoothed, anechoic and reverberant: the values of
# `_SECOND_SMOOTHING` and `_LONG_WINDOW_SMOOTHING` in `separation.demixing.spatial_filtering`.
_NARROW_SMOOTHING, _WIDE_SMOOTHING = (5, 1), (9, 3)
_REVERBERANT_FRAMES, _ANECHOIC_FRAMES = 8, 4  # frames per window that are kept
_MASK_UPDATES = 14  # updates that begin with masks: about 5 s
_ANECHOIC_SECONDS = 0.048  # length of the filters on either side of the centre
_ANECHOIC_FADE, _REVERBERANT_FADE = 1.0, 1 / 6  # part of either side that is faded
_REVERBERANT_FIT_STEPS, _ANECHOIC_FIT_STEPS = 15, 0  # conjugate-gradient steps


class FirDemixer:
    """Long FIR filters for a pair of static tracks."""

    def __init__(
        self,
        filterbank: Filterbank,
        mask_frequencies_hz: Array,
        window_hops: int,
        *,
        reverberant: bool,
    ) -> None:
        """Prepare for a stream with a filterbank and masks at the given frequencies."""
        long_filterbank = replace(filterbank, window_hops=window_hops, synthesis_hops=window_hops)
        smoothing = _WIDE_SMOOTHING if reverberant else _NARROW_SMOOTHING
        frames = _REVERBERANT_FRAMES if reverberant else _ANECHOIC_FRAMES
        permutation = FINE_PERMUTATION if reverberant else PermutationSettings()
        settings = SteeringSettings(
            max(window_hops // frames, 1),
            (smoothing,) * 3,
            (smoothing,),
            _MASK_UPDATES,
            permutation=permutation,
        )
        self._frames = AnalysisFrames(long_filterbank)
        self.steering = OnlineSteeringVectors(long_filterbank, mask_frequencies_hz, settings)
        anechoic_taps = round(_ANECHOIC_SECONDS * filterbank.rate)
        self._past_taps = long_filterbank.window // 2 if reverberant else anechoic_taps
        self._future_taps = min(filterbank.latency_samples - filterbank.hop, self._past_taps)
        self._fade = _REVERBERANT_FADE if reverberant else _ANECHOIC_FADE
        self._fit_steps = _REVERBERANT_FIT_STEPS if reverberant else _ANECHOIC_FIT_STEPS
        delay = filterbank.latency_samples - filterbank.hop - self._future_taps
        self._fir = FirFilterBank(filterbank.hop, self._future_taps + self._past_taps, delay)
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

    def output(self) -> Array:
        """Return the hop (2, hop) of the first track that the last input completes."""
        return self._fir.output()

    def retain(self, track_ids: Sequence[int]) -> None:
        """Forget the steering vectors of pairs with other tracks."""
        self.steering.retain(track_ids)

    def update(
        self,
        track_ids: Sequence[int],
        shorter: OnlineSteeringVectors | None,
        forgetting: float,
        expected: ExpectedCues | None = None,
    ) -> None:
        """Update the filters of two tracks.

        With steering vectors from `shorter` windows, the estimation restarts from their masks.
        """
        q = None if shorter is None else self._initial_masks(shorter)
        self.steering.update(track_ids, q, forgetting, expected)
        if self.steering.vectors is not None:
            H = self._demixing_filters(self.steering)
            taps = truncated_taps(H, self._future_taps, self._past_taps, self._fade)
            if self._fit_steps:
                Phi = self.steering.covariances()
                taps = fit_taps(H, Phi, taps, self._future_taps, self._fit_steps)
            self._fir.set_taps(taps)

    def separate_offline(self, masks: Array, hops: Array | Indices, x: Array) -> Array:
        """Return the image (2, n) of the first of two sources in samples x (2, n).

        The masks (2, mask frequencies, T) belong to frames that ended at `hops` (T,), relative to
        the present (0). The state is not changed, and the whole look-ahead is used.
        """
        steering = self.steering.without_pairs()
        nearest = _nearest(hops, steering.kept_hops - self._lag)
        steering.update((0, 1), masks[:, steering.mask_rows][:, :, nearest], 0.0)
        if steering.vectors is None:
            return x / 2
        h = scipy.fft.fftshift(scipy.fft.irfft(self._demixing_filters(steering), axis=0), axes=0)
        convolved = (scipy.signal.fftconvolve(x[e, None], h[:, :, e].T, axes=1) for e in (0, 1))
        centre = len(h) // 2
        first: Array = np.sum(list(convolved), axis=0)[:, centre : centre + x.shape[1]]
        return first

    def _initial_masks(self, shorter: OnlineSteeringVectors) -> Array:
        """Return masks (2, F, T) of the long frames, from the nearest frames and frequencies."""
        columns = _nearest(shorter.kept_hops, self.steering.kept_hops - self._lag)
        rows = _nearest(shorter.frequencies_hz, self.steering.frequencies_hz)
        return shorter.power_fractions()[:, rows][:, :, columns]

    def _demixing_filters(self, steering: OnlineSteeringVectors) -> Complex:
        """Return H (F + 1, 2, 2) for spectra at their original levels."""
        A, ear_levels = steering.vectors, steering.ear_levels.T
        assert A is not None
        W = inverse(A)
        H = A[:, :, :1] * W[:, :1, :] * ear_levels[:, :, None] / ear_levels[:, None, :]
        return np.concatenate([0.5 * np.eye(2, dtype=np.complex128)[None], H])


def _nearest(values: Array | Indices, targets: Array | Indices) -> Indices:
    """Return the indices of the sorted values that are nearest to the targets."""
    after = np.clip(np.searchsorted(values, targets), 1, len(values) - 1)
    before_is_closer = targets - values[after - 1] <= values[after] - targets
    return np.asarray(after - before_is_closer, dtype=np.intp)
