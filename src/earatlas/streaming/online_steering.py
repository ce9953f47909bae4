"""Online estimation of the steering vectors (relative transfer functions) of tracks.

Inputs: frames of a stream, and masks of the recent ones for new tracks. Outputs: steering vectors
and the diffuse-to-direct ratio. The steps are those of a recording
(`earatlas.separation.demixing.spatial_filtering`): two sources begin with the principal
eigenvectors of their masked covariances, and are refined under the assumption of independence. The
covariances are those of the recent frames, and of older ones with decaying weight:

    V_m = Σ_recent x xᴴ / v_m + past_m
    past_m ← decay · past_m + (x xᴴ / v_m of the frames that leave the buffer)

Frequencies above the head's rate have no learned cues and no masks: there the envelope of the
powers v_m is that of the frequencies below.

    F, M, T      frequencies without 0 Hz, tracks, recent frames
    x (2,)       a bin of a frame
    q (M, F, T)  masks
    v (M, F, T)  powers of the sources for the newest steering vectors
    A (F, 2, M)  steering vectors of unit length
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from earatlas.features.stft import squared_magnitude
from earatlas.separation.demixing.frames import FLOOR
from earatlas.separation.demixing.permutation_alignment import (
    PermutationSettings,
    align_permutation,
)
from earatlas.separation.demixing.spatial_filtering import estimate_diffuse_to_direct
from earatlas.separation.demixing.steering_vectors import (
    SecondMoments,
    principal_steering_vectors,
    regularize_collinear,
    smooth_powers,
    steering_vectors_from_covariances,
)
from earatlas.streaming.expected_cues import ExpectedCues
from earatlas.streaming.filterbank import Filterbank
from earatlas.streaming.recent_frames import RecentFrames
from earatlas.types import Array, Complex, Indices, Mask

__all__ = [
    "RECENT_SECONDS",
    "STATIC_FORGETTING",
    "UNDERDETERMINED_DIFFUSE_RATIO",
    "OnlineSteeringVectors",
    "SteeringSettings",
]

_Smoothing = Sequence[tuple[int, int]]  # bins and frames, per iteration

# Evidence: docs/figures/settings/streaming.md, "online_steering".
UNDERDETERMINED_DIFFUSE_RATIO = 3e-3  # diffuse-to-direct ratio with more than two sources
STATIC_FORGETTING = 0.1  # with more forgetting between two updates, the tracks are moving
RECENT_SECONDS = 6.0  # frames whose powers follow the newest steering vectors
_DIFFUSE_RATIO_MAX_HZ = 1000.0  # the diffuse-to-direct ratio is estimated below it
_PAST_SECONDS = 60.0  # time constant (1/e) of older covariances
_LEVEL_SECONDS = 10.0  # time constant (1/e) of the level of an ear: longer than words and pauses
_MIN_FRAMES = 8  # four times the two unknowns of a steering vector
_RESTART_FORGETTING = 0.6  # accumulated forgetting from which on older frames are not used
_PERMUTABLE_UPDATES = 2  # updates of a pair after which masks do not swap its identities
_MOVING_FRAMES = 12.0  # frames that are used at a forgetting of 1: 0.2 s


@dataclass(frozen=True)
class SteeringSettings:
    """Settings of the estimation of steering vectors."""

    stride_hops: int  # hops from one kept frame to the next
    initial_smoothing: _Smoothing  # smoothing of powers in the iterations that begin with masks
    update_smoothing: _Smoothing  # the same in those that continue
    mask_updates: int  # updates of a pair that begin with masks
    estimate_diffuse_ratio: bool = False
    keep_identity: bool = False  # masks do not swap the identities of an established pair
    permutation: PermutationSettings = field(default_factory=PermutationSettings)


@dataclass(eq=False)
class _PairState:
    """Estimate of the steering vectors of two tracks."""

    vectors: Complex  # (F, 2, 2)
    past_covariances: Complex  # (2, F, 2, 2) weighted covariances of older frames
    ear_levels: Array  # (2, F) levels by which both are normalized
    permuted: Mask  # (F,) where the masks have the opposite order
    n_updates: int = 0
    updated_hop: int = 0  # hops of the stream at the last update

    def rescale(self, ear_levels: Array) -> None:
        """Normalize the estimate by other ear levels (2, F)."""
        ratio = (self.ear_levels / ear_levels).T  # (F, 2)
        self.vectors = _normalized(ratio[:, :, None] * self.vectors)
        self.past_covariances = ratio[:, :, None] * ratio[:, None, :] * self.past_covariances
        self.ear_levels = ear_levels


def _normalized(vectors: Complex) -> Complex:
    """Return vectors (F, 2, M) of unit length."""
    norms = np.sqrt(squared_magnitude(vectors).sum(axis=1, keepdims=True))
    scaled: Complex = vectors / norms
    return scaled


class OnlineSteeringVectors:
    """Steering vectors of the tracks of a stream, for one filterbank."""

    def __init__(
        self, filterbank: Filterbank, mask_frequencies_hz: Array, settings: SteeringSettings
    ) -> None:
        """Prepare for masks at equally spaced frequencies in Hz."""
        self._filterbank, self._settings = filterbank, settings
        self.frequencies_hz = filterbank.frequencies_hz[1:]
        F = len(self.frequencies_hz)
        highest, spacing = mask_frequencies_hz[-1], mask_frequencies_hz[1] - mask_frequencies_hz[0]
        self.n_mask_frequencies = int(np.searchsorted(self.frequencies_hz, highest, side="right"))
        nearest = np.round(self.frequencies_hz / spacing).astype(np.intp) - 1
        # (F,) row of the masks for each frequency
        self.mask_rows: Indices = np.clip(nearest, 0, len(mask_frequencies_hz) - 1)
        self._max_frames = round(RECENT_SECONDS / (settings.stride_hops * filterbank.hop_seconds))
        n_low = max(int(np.searchsorted(self.frequencies_hz, _DIFFUSE_RATIO_MAX_HZ)), 1)
        n_low = n_low if settings.estimate_diffuse_ratio else 0
        self._frames = RecentFrames(F, self._max_frames, n_low)
        self._ear_powers = np.zeros((2, F))  # smoothed
        self._hops = 0
        self._n_new_frames = 0  # since the last update
        self._static_since_hop = 0  # hop at which the last motion ended
        self._accumulated_forgetting = 0.0  # since the current motion began
        self._pairs: dict[tuple[int, ...], _PairState] = {}
        self.track_ids: tuple[int, ...] = ()
        self.ear_levels = np.ones((2, F))  # levels by which the vectors are normalized
        self.vectors: Complex | None = None  # A of `track_ids`; None with too few frames
        self.diffuse_ratio = UNDERDETERMINED_DIFFUSE_RATIO

    def advance(self) -> bool:
        """Count a hop; return whether its frame has to be appended."""
        self._hops += 1
        return self._hops % self._settings.stride_hops == 0

    def append(self, x: Complex) -> None:
        """Append the frame (2, F) of a hop."""
        self._frames.append(x)
        self._n_new_frames += 1
        seconds = self._settings.stride_hops * self._filterbank.hop_seconds
        decay = float(np.exp(-seconds / _LEVEL_SECONDS))
        self._ear_powers = decay * self._ear_powers + (1 - decay) * squared_magnitude(x)

    def kept_rows(self, hops: int) -> Indices:
        """Return which of the last hops, the oldest first, have a kept frame."""
        number = self._hops - np.arange(hops - 1, -1, -1)
        return np.flatnonzero(number % self._settings.stride_hops == 0)

    @property
    def kept_hops(self) -> Indices:
        """Hops (T,) at which the recent frames ended, relative to the present (0)."""
        stride_hops = self._settings.stride_hops
        return -(self._hops % stride_hops) - stride_hops * np.arange(len(self._frames) - 1, -1, -1)

    @property
    def permuted(self) -> Mask:
        """Frequencies (F,) at which the masks of the pair have the opposite order."""
        return self._pairs[self.track_ids].permuted

    def needs_masks(self, track_ids: Sequence[int]) -> bool:
        """Return whether an update for these tracks needs masks of the recent frames."""
        state = self._pairs.get(tuple(track_ids))
        return len(track_ids) > 2 or (
            len(track_ids) == 2 and (state is None or state.n_updates < self._settings.mask_updates)
        )

    def n_updates(self, track_ids: Sequence[int]) -> int:
        """Return the number of updates of a pair."""
        state = self._pairs.get(tuple(track_ids))
        return 0 if state is None else state.n_updates

    def register_motion(self, forgetting: float) -> None:
        """Accumulate the forgetting (0 to 1) of a motion of the rendered tracks.

        A static track is sometimes moving for a moment. Older frames are dropped only once the
        accumulated forgetting is large.
        """
        moving = forgetting > STATIC_FORGETTING
        kept = (1 - self._accumulated_forgetting) * (1 - forgetting)
        self._accumulated_forgetting = 1 - kept if moving else 0.0
        if self._accumulated_forgetting > _RESTART_FORGETTING:
            self._static_since_hop = self._hops

    def retain(self, track_ids: Sequence[int]) -> None:
        """Forget pairs with other tracks."""
        self._pairs = {ids: pair for ids, pair in self._pairs.items() if set(ids) <= set(track_ids)}

    def update(
        self,
        track_ids: Sequence[int],
        q: Array | None,
        forgetting: float,
        expected: ExpectedCues | None = None,
    ) -> None:
        """Update the steering vectors for tracks, with masks q (M, F, T) of the recent frames.

        Without masks, the estimate of a known pair is refined. `forgetting` (0 to 1) is the part of
        the statistics that the motion of the tracks voids. The `expected` cues of a pair, at the
        frequencies of the masks, determine its order.
        """
        self.track_ids = tuple(track_ids)
        # Frames from before a motion belong to other directions.
        self.register_motion(forgetting)
        n_recent = (self._hops - self._static_since_hop) // self._settings.stride_hops
        if forgetting > 0:
            n_moving = round(_MOVING_FRAMES / (self._settings.stride_hops * forgetting))
            n_recent = n_moving if forgetting > STATIC_FORGETTING else min(n_recent, n_moving)
        n_recent = min(len(self._frames), max(n_recent, _MIN_FRAMES))
        T = n_recent if q is None else min(q.shape[-1], n_recent)
        if len(track_ids) < 2 or T < _MIN_FRAMES:
            self.vectors, self._n_new_frames = None, 0
            return
        ear_levels = np.sqrt(self._ear_powers)
        self.ear_levels = np.maximum(ear_levels, 1e-6 * float(ear_levels.max()) + 1e-12)
        moments = self._frames.moments(T, self.ear_levels)
        masks: Array | None = None if q is None else np.asarray(q[..., -T:], dtype=np.float32)
        if len(track_ids) == 2:
            self.vectors = self._update_pair(moments, masks, forgetting, expected)
            self.diffuse_ratio = 0.0
            if self._settings.estimate_diffuse_ratio:
                self.diffuse_ratio = self._estimate_diffuse_ratio(moments, self.vectors)
        elif masks is not None:
            self.vectors = principal_steering_vectors(moments.covariances(masks**2))
            self.diffuse_ratio = UNDERDETERMINED_DIFFUSE_RATIO
        self._n_new_frames = 0

    def without_pairs(self) -> OnlineSteeringVectors:
        """Return a copy with the same frames in which no pair is known."""
        copied = copy.copy(self)
        copied._pairs, copied._static_since_hop, copied._accumulated_forgetting = {}, 0, 0.0
        return copied

    def covariances(self) -> Complex:
        """Return the covariances Φ (F + 1, 2, 2) of the recent frames, from 0 Hz on."""
        T = len(self._frames)
        moments = self._frames.moments(T, np.ones_like(self.ear_levels))
        (Phi,) = moments.covariances(np.full((1, len(self.frequencies_hz), T), 1 / T))
        return np.concatenate([Phi[:1], Phi])

    def power_fractions(self) -> Array:
        """Return the power fractions (2, F, T) of a pair in all recent frames."""
        assert self.vectors is not None
        moments = self._frames.moments(len(self._frames), self.ear_levels)
        return _power_fractions(moments.powers(self.vectors), _power_floor(moments))

    def _update_pair(
        self,
        moments: SecondMoments,
        q: Array | None,
        forgetting: float,
        expected: ExpectedCues | None,
    ) -> Complex:
        """Return A (F, 2, 2) of two sources; with masks q (2, F, T) the estimate restarts."""
        F, _, T = moments.values.shape
        state, settings, floor = self._pair_state(F), self._settings, _power_floor(moments)
        # Other tracks may have been rendered since the last update of this pair.
        idle_seconds = (self._hops - state.updated_hop) * self._filterbank.hop_seconds
        state.past_covariances *= (1 - forgetting) * np.exp(-idle_seconds / _PAST_SECONDS)
        A = state.vectors
        if q is not None:  # restart from the masks: estimates from few frames may be wrong
            state.past_covariances[:] = 0
            A = regularize_collinear(principal_steering_vectors(moments.covariances(q**2)))
            A = self._refine(moments, A, settings.initial_smoothing, state.past_covariances, floor)
            agreement: Array | float = 0.0
            if expected is not None:
                agreement = expected.at(self.mask_rows).agreement(A, self.ear_levels)
            permutation = self._permutation(moments.powers(A), q, agreement)
            identity_is_fixed = settings.keep_identity and state.n_updates >= _PERMUTABLE_UPDATES
            swapped = identity_is_fixed and _is_swapped(moments, A, permutation, state.vectors)
            state.permuted = permutation ^ swapped
            A = np.where(state.permuted[:, None, None], A[..., ::-1], A)
        A = self._refine(moments, A, settings.update_smoothing, state.past_covariances, floor)
        state.vectors, state.updated_hop = A, self._hops
        # A moving pair restarts, and is counted again once it is static.
        restarts = self._accumulated_forgetting > _RESTART_FORGETTING
        state.n_updates = 0 if restarts else state.n_updates + (forgetting == 0)
        if self._max_frames == T and self._n_new_frames:  # the oldest frames are the next to leave
            v = self._smoothed_powers(moments.powers(A), settings.update_smoothing[-1], floor)
            oldest = slice(0, self._n_new_frames)
            leaving = SecondMoments(moments.values[..., oldest])
            state.past_covariances += leaving.covariances(1 / v[..., oldest])
        return A

    def _estimate_diffuse_ratio(self, moments: SecondMoments, A: Complex) -> float:
        """Return the diffuse-to-direct ratio at the lower frequencies."""
        T, low = moments.values.shape[-1], slice(None, self._frames.n_low)
        powers = SecondMoments(moments.values[low]).powers(A[low])
        fractions = _power_fractions(powers, _power_floor(moments))
        spectra = self._frames.low_spectra(T, self.ear_levels)
        return estimate_diffuse_to_direct(spectra, A[low], fractions)

    def _pair_state(self, F: int) -> _PairState:
        """Return the state of the current pair, normalized by the current ear levels."""
        state = self._pairs.get(self.track_ids)
        if state is None:
            A = np.tile(np.eye(2, dtype=np.complex128), (F, 1, 1))
            zeros = np.zeros((2, F, 2, 2), dtype=np.complex128)
            state = _PairState(A, zeros, self.ear_levels, np.zeros(F, dtype=bool))
            self._pairs[self.track_ids] = state
        state.rescale(self.ear_levels)
        return state

    def _refine(
        self,
        moments: SecondMoments,
        A: Complex,
        smoothing: _Smoothing,
        past_covariances: Complex,
        floor: float,
    ) -> Complex:
        """Refine A (F, 2, 2), with one smoothing of the powers per iteration."""
        for size in smoothing:
            v = self._smoothed_powers(moments.powers(A), size, floor)
            V = (moments.covariances(1 / v) + past_covariances) / v.shape[-1]
            A = regularize_collinear(steering_vectors_from_covariances(V))
        return A

    def _permutation(self, v: Array, q: Array, agreement: Array | float) -> Mask:
        """Return where (F,) two sources are permuted; never above the masked frequencies."""
        masked = slice(None, self.n_mask_frequencies)
        permutation = np.zeros(v.shape[1], dtype=bool)
        expected = np.broadcast_to(agreement, permutation.shape)[masked]
        permutation[masked] = align_permutation(
            v[:, masked],
            q[:, masked],
            self.frequencies_hz[masked],
            expected,
            self._settings.permutation,
        )
        return permutation

    def _smoothed_powers(self, v: Array, size: tuple[int, int], floor: float) -> Array:
        """Return smoothed powers (2, F, T); above the masks, with the envelope from below."""
        n_masked = self.n_mask_frequencies
        out = smooth_powers(v[:, :n_masked], size, floor)
        if n_masked == v.shape[1]:
            return out
        level = v[:, :n_masked].mean(axis=2, keepdims=True) + floor
        envelopes = (v[:, :n_masked] / level).mean(axis=1)
        envelopes = envelopes + 1e-3 * envelopes.mean(axis=1, keepdims=True) + 1e-30
        upper = v[:, n_masked:].mean(axis=2, keepdims=True) * envelopes[:, None] + floor
        return np.concatenate([out, upper], axis=1)


def _is_swapped(moments: SecondMoments, A: Complex, permutation: Mask, previous: Complex) -> bool:
    """Return whether permuted A has the two signals of the previous vectors in opposite order."""
    fractions, previous_fractions = (
        _power_fractions(moments.powers(vectors), 1e-30)[0] for vectors in (A, previous)
    )
    fractions = np.where(permutation[:, None], 1 - fractions, fractions)
    power = moments.values[:, 0] + moments.values[:, 1]
    return float((power * (2 * fractions - 1) * (2 * previous_fractions - 1)).sum()) < 0


def _power_floor(moments: SecondMoments) -> float:
    """Return the floor of powers: a small part of the largest."""
    return FLOOR * float((moments.values[:, 0] + moments.values[:, 1]).max()) + 1e-30


def _power_fractions(v: Array, floor: float) -> Array:
    """Return the fraction of each source in the sum of powers v (M, F, T)."""
    fractions: Array = v / (v.sum(axis=0) + floor)
    return fractions
