"""Demixing of the tracks of a stream, one frame at a time, in the STFT domain.

Inputs: spectra of a stream, one frame at a time, a mask per track, and masks of the recent frames
for new tracks. Output: the image of each track at both ears; the images add up to the input. The
equations are those of a recording: steering vectors of `earatlas.separation.demixing.determined`
and the Wiener filter of `earatlas.separation.demixing.wiener`. Their statistics are those of the
recent frames, and of older ones with decaying weight:

    V_m = Σ_recent x xᴴ / v_m + past_m + n₀ T_min / T I
    past_m ← decay · past_m + (x xᴴ / v_m of the frames that leave the buffer)

At first, n₀ frames of diffuse sound count as observed for each source of a pair. At frequencies at
which one of them has had no sound yet, its steering vector is not determined by the frames: without
the prior it may become nearly collinear with that of the other source, and amplify the next sound.
With more frames T than the fewest, T_min, the prior becomes weaker, because it would also separate
steering vectors that are nearly collinear (low frequencies, sources on one cone of confusion).

    F, M, T      frequencies without 0 Hz, tracks, recent frames
    X (2, F, 1)  a frame
    q (M, F, T)  masks
    v (M, F, T)  powers of the sources for the newest steering vectors
    A (F, 2, M)  steering vectors (relative transfer functions) of unit length

For more than two tracks, the steering vectors are the principal eigenvectors of their masked
covariances.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from earatlas.features.stft import squared_magnitude
from earatlas.separation.demixing.determined import (
    REVERBERANT_SMOOTHING,
    DemixingSettings,
    SecondMoments,
    estimate_pair,
    iterative_projection,
    principal_steering_vectors,
    smooth_powers,
)
from earatlas.separation.demixing.permutation_alignment import ExpectedCues, PermutationSettings
from earatlas.separation.demixing.wiener import (
    WienerSettings,
    estimate_diffuse_to_direct,
    multichannel_wiener_filter,
    relative_activity,
    source_powers,
)
from earatlas.streaming.filterbank import Filterbank
from earatlas.types import Array, Complex, Indices, Mask, Single

__all__ = ["OnlineDemixer", "OnlineSteeringVectors", "RecentFrames", "SteeringSettings"]


# Evidence: docs/figures/settings/streaming.md, "online_demixing".
@dataclass(frozen=True, slots=True)
class SteeringSettings:
    """Settings of the online estimation of steering vectors."""

    permutable_updates: int = 2  # updates after which a pair is established
    recent_seconds: float = 6.0  # frames whose powers follow the newest steering vectors
    past_seconds: float = 60.0  # time constant (1/e) of older covariances
    level_seconds: float = 10.0  # time constant (1/e) of the level of an ear: longer than pauses
    diffuse_prior_frames: float = 0.1  # n₀, with `min_frames` frames
    min_frames: int = 8  # four times the two unknowns of a steering vector
    moving_frames: float = 12.0  # frames that are used at a forgetting of 1: 0.2 s
    static_forgetting: float = 0.1  # with more forgetting between updates, the tracks are moving
    restart_forgetting: float = 0.6  # accumulated forgetting that voids older frames


_ANECHOIC = DemixingSettings(second_smoothing=((5, 1),), permutation=PermutationSettings())
_REVERBERANT = DemixingSettings(
    first_smoothing=REVERBERANT_SMOOTHING, second_smoothing=REVERBERANT_SMOOTHING[-1:]
)
_ANECHOIC_STRIDE_SECONDS = 0.032  # time between the frames that are kept, anechoic


class RecentFrames:
    """Ring buffer of up to `max_frames` frames of F frequencies, as second moments.

    The moments are computed once per frame and stored by frequency in single precision.
    """

    def __init__(self, F: int, max_frames: int) -> None:
        self._max_frames = max_frames
        # Twice the capacity: the kept frames stay contiguous and are moved rarely.
        self._moments: Single = np.zeros((F, 4, 2 * max_frames), dtype=np.float32)
        self._end = self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, x: Complex) -> None:
        """Append a frame (2, F)."""
        if self._end == 2 * self._max_frames:
            self._moments[..., : self._max_frames] = self._moments[..., self._max_frames :]
            self._end = self._max_frames
        self._moments[..., self._end] = SecondMoments.from_spectra(x[..., None]).values[..., 0]
        self._end += 1
        self._count = min(self._count + 1, self._max_frames)

    def moments(self, T: int, ear_levels: Array) -> SecondMoments:
        """Return the moments of the last T frames at the lowest F' frequencies.

        They are normalized by the ear levels (2, F').
        """
        left, right = 1 / ear_levels
        scale = np.stack([left**2, right**2, left * right, left * right], axis=1)[..., None]
        last = self._moments[: len(scale), :, self._end - T : self._end]
        values: Array = np.multiply(last, scale, dtype=np.float32, casting="same_kind")
        return SecondMoments(values)


@dataclass(eq=False, slots=True)
class _PairState:
    """Estimate of the steering vectors of two tracks."""

    vectors: Complex  # (F, 2, 2)
    past: Complex  # (2, F, 2, 2) weighted covariances of older frames
    ear_levels: Array  # (2, F) levels by which both are normalized
    permuted: Mask  # (F,) where the masks have the opposite order
    n_updates: int = 0
    updated_hop: int = 0  # hops of the stream at the last update

    def rescale(self, ear_levels: Array) -> None:
        """Normalize the estimate by other ear levels (2, F)."""
        ratio = (self.ear_levels / ear_levels).T  # (F, 2)
        vectors = ratio[:, :, None] * self.vectors
        self.vectors = vectors / np.sqrt(squared_magnitude(vectors).sum(axis=1, keepdims=True))
        self.past = ratio[:, :, None] * ratio[:, None, :] * self.past
        self.ear_levels = ear_levels


class OnlineSteeringVectors:
    """Steering vectors of the tracks of a stream, for one filterbank."""

    def __init__(
        self,
        filterbank: Filterbank,
        mask_frequencies_hz: Array,
        settings: SteeringSettings,
        demixing: DemixingSettings,
        *,
        stride_hops: int = 1,
        mask_updates: int = 10,
        keep_identity: bool = True,
    ) -> None:
        """Prepare for masks at equally spaced frequencies in Hz.

        Every `stride_hops`-th frame is kept. The first `mask_updates` updates of a pair begin with
        masks (10: about 3 s). With `keep_identity`, masks do not swap the identities of an
        established pair.
        """
        self.settings, self._demixing = settings, demixing
        self._stride_hops, self._mask_updates = stride_hops, mask_updates
        self._keep_identity = keep_identity
        self.frequencies_hz = filterbank.frequencies_hz[1:]
        F = len(self.frequencies_hz)
        highest, spacing = mask_frequencies_hz[-1], mask_frequencies_hz[1] - mask_frequencies_hz[0]
        self.n_mask_frequencies = int(np.searchsorted(self.frequencies_hz, highest, side="right"))
        nearest = np.round(self.frequencies_hz / spacing).astype(np.intp) - 1
        # (F,) row of the masks for each frequency
        self.mask_rows: Indices = np.clip(nearest, 0, len(mask_frequencies_hz) - 1)
        self._hop_seconds = filterbank.hop_seconds
        self._frame_seconds = stride_hops * filterbank.hop_seconds
        self._max_frames = round(settings.recent_seconds / self._frame_seconds)
        self._frames = RecentFrames(F, self._max_frames)
        self._ear_powers = np.zeros((2, F))  # smoothed
        self._hops = 0
        self._n_new_frames = 0  # since the last update
        self._n_used_frames = 0  # of the last update
        self._static_since_hop = 0  # hop at which the last motion ended
        self._accumulated_forgetting = 0.0  # since the current motion began
        self._pairs: dict[tuple[int, ...], _PairState] = {}
        self.track_ids: tuple[int, ...] = ()
        self.ear_levels = np.ones((2, F))  # levels by which the vectors are normalized
        self.vectors: Complex | None = None  # A of `track_ids`; None with too few frames

    def advance(self) -> bool:
        """Count a hop; return whether its frame has to be appended."""
        self._hops += 1
        return self._hops % self._stride_hops == 0

    def append(self, x: Complex) -> None:
        """Append the frame (2, F) of a hop."""
        self._frames.append(x)
        self._n_new_frames += 1
        decay = float(np.exp(-self._frame_seconds / self.settings.level_seconds))
        self._ear_powers = decay * self._ear_powers + (1 - decay) * squared_magnitude(x)

    def kept_rows(self, hops: int) -> Indices:
        """Return which of the last hops, the oldest first, have a kept frame."""
        number = self._hops - np.arange(hops - 1, -1, -1)
        return np.flatnonzero(number % self._stride_hops == 0)

    @property
    def kept_hops(self) -> Indices:
        """Hops (T,) at which the recent frames ended, relative to the present (0)."""
        stride_hops = self._stride_hops
        return -(self._hops % stride_hops) - stride_hops * np.arange(len(self._frames) - 1, -1, -1)

    @property
    def permuted(self) -> Mask:
        """Frequencies (F,) at which the masks of the pair have the opposite order."""
        return self._pairs[self.track_ids].permuted

    def needs_masks(self, track_ids: Sequence[int]) -> bool:
        """Return whether an update for these tracks needs masks of the recent frames."""
        few_updates = self.n_updates(track_ids) < self._mask_updates
        return len(track_ids) > 2 or (len(track_ids) == 2 and few_updates)

    def n_updates(self, track_ids: Sequence[int]) -> int:
        """Return the number of updates of a pair."""
        state = self._pairs.get(tuple(track_ids))
        return 0 if state is None else state.n_updates

    def register_motion(self, forgetting: float) -> None:
        """Accumulate the forgetting (0 to 1) of a motion of the rendered tracks.

        A static track is sometimes moving for a moment. Older frames are dropped only once the
        accumulated forgetting is large.
        """
        moving = forgetting > self.settings.static_forgetting
        kept = (1 - self._accumulated_forgetting) * (1 - forgetting)
        self._accumulated_forgetting = 1 - kept if moving else 0.0
        if self._accumulated_forgetting > self.settings.restart_forgetting:
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
        self.register_motion(forgetting)
        T = self._n_valid_frames(forgetting)
        T = T if q is None else min(q.shape[-1], T)
        if len(track_ids) < 2 or self.settings.min_frames > T:
            self.vectors, self._n_new_frames = None, 0
            return
        ear_levels = np.sqrt(self._ear_powers)
        self.ear_levels = np.maximum(ear_levels, 1e-6 * float(ear_levels.max()) + 1e-12)
        moments, self._n_used_frames = self._frames.moments(T, self.ear_levels), T
        masks: Array | None = None if q is None else np.asarray(q[..., -T:], dtype=np.float32)
        if len(track_ids) == 2:
            self.vectors = self._update_pair(moments, masks, forgetting, expected)
        elif masks is not None:
            self.vectors = principal_steering_vectors(moments.covariances(masks**2))
        self._n_new_frames = 0

    def _n_valid_frames(self, forgetting: float) -> int:
        """Return the number of recent frames since the last motion."""
        settings = self.settings
        n_valid = (self._hops - self._static_since_hop) // self._stride_hops
        if forgetting > 0:
            n_moving = round(settings.moving_frames / (self._stride_hops * forgetting))
            moving = forgetting > settings.static_forgetting
            n_valid = n_moving if moving else min(n_valid, n_moving)
        return min(len(self._frames), max(n_valid, settings.min_frames))

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
        return moments.power_fractions(self.vectors)

    def diffuse_to_direct(self, settings: WienerSettings) -> float:
        """Return the diffuse-to-direct ratio ε of a pair, after its update."""
        assert self.vectors is not None
        n_low = max(int(np.searchsorted(self.frequencies_hz, settings.max_hz)), 1)
        moments = self._frames.moments(self._n_used_frames, self.ear_levels[:, :n_low])
        A = self.vectors[:n_low]
        return estimate_diffuse_to_direct(moments, A, moments.power_fractions(A), settings)

    def _update_pair(
        self,
        moments: SecondMoments,
        q: Array | None,
        forgetting: float,
        expected: ExpectedCues | None,
    ) -> Complex:
        """Return A (F, 2, 2) of two sources; with masks q (2, F, T) the estimate restarts."""
        state, settings, T = self._pair_state(), self.settings, moments.values.shape[-1]
        n_masked, sizes = self.n_mask_frequencies, self._demixing.second_smoothing
        # Other tracks may have been rendered since the last update of this pair.
        idle_seconds = (self._hops - state.updated_hop) * self._hop_seconds
        prior_frames = settings.diffuse_prior_frames * settings.min_frames / T
        prior = prior_frames * np.eye(2, dtype=np.complex128)
        state.past *= (1 - forgetting) * np.exp(-idle_seconds / settings.past_seconds)
        if q is None:
            past = state.past + prior
            A = iterative_projection(moments, state.vectors, sizes, n_masked, past)
        else:  # restart from the masks: estimates from few frames may be wrong
            state.past[:] = 0
            masked = slice(None, n_masked)
            if expected is not None:
                expected = expected.at(self.mask_rows[masked], self.ear_levels[:, masked])
            A, permuted = estimate_pair(
                moments,
                q,
                self.frequencies_hz[masked],
                self._demixing,
                expected=expected,
                prior=prior,
            )
            established = state.n_updates >= settings.permutable_updates
            if self._keep_identity and established and _is_swapped(moments, A, state.vectors):
                A, permuted = A[..., ::-1], ~permuted
            state.permuted = permuted
        state.vectors, state.updated_hop = A, self._hops
        # A moving pair restarts, and is counted again once it is static.
        restarts = self._accumulated_forgetting > settings.restart_forgetting
        state.n_updates = 0 if restarts else state.n_updates + (forgetting == 0)
        if self._max_frames == T and self._n_new_frames:  # the oldest frames are the next to leave
            v = smooth_powers(moments.powers(A), sizes[-1], moments.floor, n_masked)
            oldest = slice(0, self._n_new_frames)
            state.past += SecondMoments(moments.values[..., oldest]).covariances(1 / v[..., oldest])
        return A

    def _pair_state(self) -> _PairState:
        """Return the state of the current pair, normalized by the current ear levels."""
        state = self._pairs.get(self.track_ids)
        if state is None:
            F = len(self.frequencies_hz)
            A = np.tile(np.eye(2, dtype=np.complex128), (F, 1, 1))
            zeros = np.zeros((2, F, 2, 2), dtype=np.complex128)
            state = _PairState(A, zeros, self.ear_levels, np.zeros(F, dtype=bool))
            self._pairs[self.track_ids] = state
        state.rescale(self.ear_levels)
        return state


def _is_swapped(moments: SecondMoments, A: Complex, previous: Complex) -> bool:
    """Return whether A has the two signals of the previous vectors in opposite order."""
    fractions, previous_fractions = (
        moments.power_fractions(vectors)[0] for vectors in (A, previous)
    )
    return float((moments.power * (2 * fractions - 1) * (2 * previous_fractions - 1)).sum()) < 0


class OnlineDemixer:
    """Multichannel Wiener filters for the tracks of a stream."""

    def __init__(
        self,
        filterbank: Filterbank,
        mask_frequencies_hz: Array,
        settings: SteeringSettings,
        *,
        reverberant: bool = False,
    ) -> None:
        stride_seconds = _ANECHOIC_STRIDE_SECONDS
        if reverberant:  # a frame per quarter of a window is sufficient
            stride_seconds = filterbank.window_hops // 4 * filterbank.hop_seconds
        self.steering = OnlineSteeringVectors(
            filterbank,
            mask_frequencies_hz,
            settings,
            _REVERBERANT if reverberant else _ANECHOIC,
            stride_hops=max(round(stride_seconds / filterbank.hop_seconds), 1),
        )
        self._wiener = WienerSettings()
        self._decay = float(np.exp(-filterbank.hop_seconds / self._wiener.activity_seconds))
        self._activity: dict[int, float] = {}  # recent energy of each track
        self.diffuse_to_direct = self._wiener.underdetermined_diffuse_to_direct  # ε

    def append(self, spectra: Complex) -> None:
        """Append a frame (2, F + 1)."""
        if self.steering.advance():
            self.steering.append(spectra[:, 1:])

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
        self.diffuse_to_direct = self._wiener.underdetermined_diffuse_to_direct
        if len(track_ids) == 2 and self.steering.vectors is not None:
            self.diffuse_to_direct = self.steering.diffuse_to_direct(self._wiener)

    def retain(self, track_ids: Sequence[int]) -> None:
        """Forget all other tracks."""
        self._activity = {i: a for i, a in self._activity.items() if i in track_ids}
        self.steering.retain(track_ids)

    def images(self, spectra: Complex, masks: Array) -> Complex:
        """Return images (M, 2, F + 1) of a frame (2, F + 1); masks are (M, mask frequencies)."""
        M, A = len(self.steering.track_ids), self.steering.vectors
        if M <= 1 or A is None:
            return np.repeat(spectra[None] / max(M, 1), M, axis=0)
        levels = self.steering.ear_levels
        X = (spectra[:, 1:] / levels)[..., None]
        v = self._powers(SecondMoments.from_spectra(X), A, masks[:, self.steering.mask_rows, None])
        out = np.empty((M, *spectra.shape), dtype=np.complex128)
        images = multichannel_wiener_filter(X, A, v, self.diffuse_to_direct)
        out[:, :, 1:] = images[..., 0] * levels
        out[:, :, 0] = spectra[:, 0] / M
        return out

    def _powers(self, moments: SecondMoments, A: Complex, q: Array) -> Array:
        """Return the powers v (M, F, 1) of a frame with masks q (M, F, 1)."""
        n_masked, fractions = self.steering.n_mask_frequencies, None
        if len(q) == 2:
            q = np.where(self.steering.permuted[:, None], q[::-1], q)
            fractions = moments.power_fractions(A)
        masked = slice(None, n_masked)
        activity = self._recent_activity((q[:, masked] * moments.power[masked]).sum(axis=(1, 2)))
        if fractions is not None and n_masked < q.shape[1]:  # without masks: the mean fraction
            demixed = (fractions * moments.power)[:, masked].sum(axis=1)
            q[:, n_masked:] = (demixed / max(float(demixed.sum()), 1e-300))[:, None]
        return source_powers(moments, q, activity[:, None, None], self._wiener, fractions=fractions)

    def _recent_activity(self, energies: Array) -> Array:
        """Return the recent activity (M,) of each track, from 0 to 1."""
        for i, energy in zip(self.steering.track_ids, energies, strict=True):
            previous = self._activity.get(i, 0.0)
            self._activity[i] = self._decay * previous + (1 - self._decay) * float(energy)
        return relative_activity(np.array([self._activity[i] for i in self.steering.track_ids]))
