"""Demixing of the tracks of a stream, one frame at a time, in the STFT domain.

Inputs: spectra of a stream, one frame at a time, a mask per track, and masks of the recent frames
for new tracks. Output: the image of each track at both ears; the images add up to the input. The
steering vectors are those of `earatlas.streaming.online_steering`, the Wiener filter is that of
recordings (`earatlas.separation.demixing.wiener`).

    F, M, T      frequencies without 0 Hz, tracks, recent frames
    X (2, F, 1)  a frame
    q (M, F, T)  masks
    v (M, F, T)  powers of the sources for the newest steering vectors
    A (F, 2, M)  steering vectors (relative transfer functions) of unit length
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from earatlas.parts import Parts
from earatlas.separation.demixing.determined import (
    REVERBERANT_SMOOTHING,
    DemixingSettings,
    SecondMoments,
)
from earatlas.separation.demixing.permutation_alignment import ExpectedCues, PermutationSettings
from earatlas.separation.demixing.underdetermined import UnderdeterminedSettings, em_source_powers
from earatlas.separation.demixing.wiener import (
    SourceCovariances,
    WienerSettings,
    multichannel_wiener_filter,
    relative_activity,
    source_powers,
)
from earatlas.streaming.filterbank import AnalysisFrames, Filterbank
from earatlas.streaming.online_steering import (
    OnlineSteeringVectors,
    SteeringEstimate,
    SteeringSettings,
    SteeringUpdate,
)
from earatlas.types import Array, Complex

__all__ = ["DemixingEstimate", "OnlineDemixer"]

# Evidence: docs/figures/settings/streaming.md, "online_steering".
_ANECHOIC = DemixingSettings(second_smoothing=((5, 1),), permutation=PermutationSettings())
_REVERBERANT = DemixingSettings(
    first_smoothing=REVERBERANT_SMOOTHING, second_smoothing=REVERBERANT_SMOOTHING[-1:]
)
_ANECHOIC_STRIDE_SECONDS = 0.032  # time between the frames that are kept, anechoic
# Powers of more than two tracks, in a single frame
_POWERS = UnderdeterminedSettings(power_neighbourhood=(3, 1))


@dataclass(frozen=True, eq=False, slots=True)
class DemixingEstimate:
    """Result of an update: steering vectors, and the diffuse-to-direct ratio ε."""

    steering: SteeringEstimate
    diffuse_to_direct: float


class OnlineDemixer:
    """Multichannel Wiener filters for the tracks of a stream."""

    def __init__(
        self,
        filterbank: Filterbank,
        mask_frequencies_hz: Array,
        settings: SteeringSettings,
        *,
        reverberant: bool = False,
        max_phase_hz: float = np.inf,
    ) -> None:
        """Prepare for a stream; `max_phase_hz` is where the masks no longer rest on phases."""
        stride_seconds = _ANECHOIC_STRIDE_SECONDS
        if reverberant:  # a frame per quarter of a window is sufficient
            stride_seconds = filterbank.window_hops // 4 * filterbank.hop_seconds
        self.steering = OnlineSteeringVectors(
            filterbank,
            mask_frequencies_hz,
            settings,
            _REVERBERANT if reverberant else _ANECHOIC,
            stride_hops=max(round(stride_seconds / filterbank.hop_seconds), 1),
            max_phase_hz=max_phase_hz,
        )
        self._wiener = WienerSettings()
        self._decay = float(np.exp(-filterbank.hop_seconds / self._wiener.activity_seconds))
        self._activity: dict[int, float] = {}  # recent energy of each track
        self.diffuse_to_direct = self._wiener.underdetermined_diffuse_to_direct  # ε

    def append(self, frames: AnalysisFrames) -> None:
        """Append the newest frame, if it is one of those that are kept."""
        if self.steering.advance():
            self.steering.append(frames.spectra()[:, 1:])

    def estimate_parts(
        self, update: SteeringUpdate, masks: Array | None, expected: ExpectedCues | None = None
    ) -> Parts[DemixingEstimate]:
        """Estimate the filters in parts; masks are (M, mask frequencies, T).

        See `SteeringUpdate.estimate_parts` for the parameters.
        """
        q = None if masks is None else masks[:, self.steering.mask_rows]
        steering = yield from update.estimate_parts(q, expected)
        ratio = self._wiener.underdetermined_diffuse_to_direct
        if len(update.track_ids) == 2 and steering.vectors is not None:
            ratio = update.diffuse_to_direct(steering.vectors, update.n_used(q), self._wiener)
        return DemixingEstimate(steering, ratio)

    def apply(self, estimate: DemixingEstimate) -> None:
        """Use the result of an update for the next frames."""
        self.steering.apply(estimate.steering)
        self.diffuse_to_direct = estimate.diffuse_to_direct

    def retain(self, track_ids: Sequence[int]) -> None:
        """Forget all other tracks."""
        self._activity = {i: a for i, a in self._activity.items() if i in track_ids}
        self.steering.retain(track_ids)

    def images(self, spectra: Complex, masks: Array) -> Complex:
        """Return images (M, 2, F + 1) of a frame (2, F + 1); masks are (M, mask frequencies)."""
        M, A = len(masks), self.steering.vectors
        if M <= 1 or A is None:
            return np.repeat(spectra[None] / max(M, 1), M, axis=0)
        levels = self.steering.ear_levels
        X = (spectra[:, 1:] / levels)[..., None]
        v = self._powers(X, A, masks[:, self.steering.mask_rows, None])
        out = np.empty((M, *spectra.shape), dtype=np.complex128)
        images = multichannel_wiener_filter(X, A, v, self.diffuse_to_direct)
        out[:, :, 1:] = images[..., 0] * levels
        out[:, :, 0] = spectra[:, 0] / M
        return out

    def _powers(self, X: Complex, A: Complex, q: Array) -> Array:
        """Return the powers v (M, F, 1) of a frame X (2, F, 1) with masks q (M, F, 1)."""
        moments = SecondMoments.from_spectra(X)
        n_masked, fractions = self.steering.n_mask_frequencies, None
        if len(q) == 2:
            q = np.where(self.steering.permuted[:, None], q[::-1], q)
            fractions = moments.power_fractions(A)
        masked = slice(None, n_masked)
        activity = self._recent_activity((q[:, masked] * moments.power[masked]).sum(axis=(1, 2)))
        if fractions is not None and n_masked < q.shape[1]:  # without masks: the mean fraction
            demixed = (fractions * moments.power)[:, masked].sum(axis=1)
            q[:, n_masked:] = (demixed / max(float(demixed.sum()), 1e-300))[:, None]
        v = source_powers(moments, q, activity[:, None, None], self._wiener, fractions=fractions)
        if fractions is not None:
            return v
        # Two ears do not determine the powers of more sources; the likelihood does to some extent.
        R = SourceCovariances.from_steering_vectors(A, self.diffuse_to_direct)
        return em_source_powers(
            X, R, v, moments.floor, _POWERS.power_neighbourhood, _POWERS.power_iterations
        )

    def _recent_activity(self, energies: Array) -> Array:
        """Return the recent activity (M,) of each track, from 0 to 1."""
        for i, energy in zip(self.steering.track_ids, energies, strict=True):
            previous = self._activity.get(i, 0.0)
            self._activity[i] = self._decay * previous + (1 - self._decay) * float(energy)
        return relative_activity(np.array([self._activity[i] for i in self.steering.track_ids]))
