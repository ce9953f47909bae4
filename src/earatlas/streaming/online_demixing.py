"""Separation of tracks in the STFT domain, one frame at a time.

Inputs: spectra of a stream, one frame at a time, and a mask per track. Output: the image of each
track at both ears; the images add up to the input. As in a recording
(`earatlas.separation.demixing.spatial_filtering`), two sources are separated with their steering
vectors (`earatlas.streaming.online_steering`) and a multichannel Wiener filter; for more than two
sources only the Wiener filter is used.

    F, M         frequencies without 0 Hz, tracks
    X (2, F, 1)  a frame
    q (M, F, 1)  masks of the frame
    v (M, F, 1)  powers of the tracks
    A (F, 2, M)  steering vectors (relative transfer functions) of unit length
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from earatlas.features.stft import squared_magnitude
from earatlas.separation.demixing.frames import FLOOR
from earatlas.separation.demixing.permutation_alignment import FINE_PERMUTATION
from earatlas.separation.demixing.spatial_filtering import (
    ACTIVITY_SECONDS,
    FILTER_LEAKAGE,
    MASK_UNCERTAINTY,
)
from earatlas.separation.demixing.steering_vectors import multichannel_wiener_filter
from earatlas.streaming.expected_cues import ExpectedCues
from earatlas.streaming.filterbank import Filterbank
from earatlas.streaming.online_steering import OnlineSteeringVectors, SteeringSettings
from earatlas.types import Array, Complex

__all__ = ["OnlineDemixer"]

# Evidence: docs/figures/settings/streaming.md, "online_demixing".
# Bins and frames over which powers are smoothed: first and later iterations, later ones in rooms.
# Earlier values of recordings. Not tuned again since these use (65, 1) and (5, 1) if anechoic.
_BROAD_SMOOTHING, _NARROW_SMOOTHING, _LONG_SMOOTHING = (65, 3), (5, 3), (5, 5)
_MASK_UPDATES = 10  # updates that begin with masks: about 3 s
_ANECHOIC_STRIDE_SECONDS = 0.032  # time between the frames that are kept, anechoic


def _steering_settings(filterbank: Filterbank, reverberant: bool) -> SteeringSettings:
    """Return the settings of the estimation of steering vectors.

    In a reverberant room a frame per quarter of a window is sufficient, and a finer permutation
    alignment is used.
    """
    if reverberant:
        stride_hops = max(filterbank.window_hops // 4, 1)
        initial = (_BROAD_SMOOTHING, _BROAD_SMOOTHING, _LONG_SMOOTHING, _LONG_SMOOTHING)
        return SteeringSettings(
            stride_hops,
            initial,
            (_LONG_SMOOTHING,),
            _MASK_UPDATES,
            estimate_diffuse_ratio=True,
            keep_identity=True,
            permutation=FINE_PERMUTATION,
        )
    initial = (_BROAD_SMOOTHING, _BROAD_SMOOTHING, _NARROW_SMOOTHING, _NARROW_SMOOTHING)
    stride_hops = max(round(_ANECHOIC_STRIDE_SECONDS / filterbank.hop_seconds), 1)
    return SteeringSettings(
        stride_hops,
        initial,
        (_NARROW_SMOOTHING,),
        _MASK_UPDATES,
        estimate_diffuse_ratio=True,
        keep_identity=True,
    )


class OnlineDemixer:
    """Multichannel Wiener filters for the tracks of a stream."""

    def __init__(
        self, filterbank: Filterbank, mask_frequencies_hz: Array, *, reverberant: bool = False
    ) -> None:
        self._filterbank = filterbank
        self.steering = OnlineSteeringVectors(
            filterbank, mask_frequencies_hz, _steering_settings(filterbank, reverberant)
        )
        F = len(self.steering.frequencies_hz)
        self._unmixing: Complex = np.zeros((F, 2, 2), dtype=np.complex128)
        self._squared_norms = np.ones((F, 2, 1))
        self._activity: dict[int, float] = {}

    def append(self, spectra: Complex) -> None:
        """Append a frame (2, F + 1)."""
        if self.steering.advance():
            self.steering.append(spectra[:, 1:])

    def images(self, spectra: Complex, masks: Array) -> Complex:
        """Return images (M, 2, F + 1) of a frame (2, F + 1); masks are (M, mask frequencies)."""
        M, A = len(self.steering.track_ids), self.steering.vectors
        if M <= 1 or A is None:
            return np.repeat(spectra[None] / max(M, 1), M, axis=0)
        levels = self.steering.ear_levels
        X = (spectra[:, 1:] / levels)[..., None]
        power = squared_magnitude(X).sum(axis=0)
        floor = FLOOR * float(power.max()) + 1e-30
        v = self._powers(X, masks[:, self.steering.mask_rows, None], power, floor)
        out = np.empty((M, *spectra.shape), dtype=np.complex128)
        images = multichannel_wiener_filter(X, A, v, self.steering.diffuse_ratio)
        out[:, :, 1:] = images[..., 0] * levels
        out[:, :, 0] = spectra[:, 0] / M
        return out

    def update(
        self,
        track_ids: Sequence[int],
        masks: Array | None,
        forgetting: float,
        expected: ExpectedCues | None = None,
    ) -> None:
        """Update the steering vectors of tracks; masks are (M, mask frequencies, T).

        See `OnlineSteeringVectors.update` for the other parameters.
        """
        q = None if masks is None else masks[:, self.steering.mask_rows]
        self.steering.update(track_ids, q, forgetting, expected)
        A = self.steering.vectors
        if len(track_ids) == 2 and A is not None:
            self._unmixing = np.asarray(np.linalg.inv(A), dtype=np.complex128)
            self._squared_norms = squared_magnitude(A).sum(axis=1)[..., None]

    def retain(self, track_ids: Sequence[int]) -> None:
        """Forget all other tracks."""
        self._activity = {i: a for i, a in self._activity.items() if i in track_ids}
        self.steering.retain(track_ids)

    def _powers(self, X: Complex, q: Array, power: Array, floor: float) -> Array:
        """Return v (M, F, 1): the geometric mean of masks and demixed powers for a pair."""
        n_masked, pair = self.steering.n_mask_frequencies, len(self.steering.track_ids) == 2
        if pair:
            q = np.where(self.steering.permuted[:, None], q[::-1], q)
        mask_powers = (q[:, :n_masked] * power[:n_masked]).sum(axis=(1, 2))
        mask_floor = MASK_UNCERTAINTY * self._relative_activity(mask_powers)[:, None, None]
        prior = q + mask_floor
        if pair:
            demixed = self._demixed_powers(X)
            fractions = demixed / (demixed.sum(axis=0) + floor)
            if n_masked < len(power):
                envelopes = demixed[:, :n_masked].sum(axis=1)
                upper = envelopes / max(float(envelopes.sum()), 1e-300)
                prior[:, n_masked:] = upper[:, None] + mask_floor
            prior = np.sqrt(prior * (fractions + FILTER_LEAKAGE))
        return prior * power + floor

    def _demixed_powers(self, X: Complex) -> Array:
        """Return the powers (2, F, 1) of a frame after demixing with the inverse of A."""
        y = self._unmixing @ X.transpose(1, 0, 2)  # (F, 2, 1)
        demixed: Array = (squared_magnitude(y) * self._squared_norms).transpose(1, 0, 2)
        return demixed

    def _relative_activity(self, mask_powers: Array) -> Array:
        """Return the recent activity (M,) of each track, from 0 to 1."""
        track_ids = self.steering.track_ids
        decay = float(np.exp(-self._filterbank.hop_seconds / ACTIVITY_SECONDS))
        for i, power in zip(track_ids, mask_powers, strict=True):
            self._activity[i] = decay * self._activity.get(i, 0.0) + (1 - decay) * float(power)
        activity = np.array([self._activity[i] for i in track_ids])
        fraction = activity / max(float(activity.sum()), 1e-300)
        return np.clip((fraction - 0.01) / 0.09, 0.0, 1.0)
