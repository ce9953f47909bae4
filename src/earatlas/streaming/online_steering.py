"""Steering vectors of the tracks of a stream, from its recent frames.

Inputs: spectra of a stream, one frame at a time, and masks of the recent frames for new tracks.
Output: the steering vectors of the tracks. The equations are those of a recording
(`earatlas.separation.demixing.determined`). Their statistics are those of the recent frames, and of
older ones with decaying weight:

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

For more than two tracks, the steering vectors are those of an underdetermined recording
(`earatlas.separation.demixing.underdetermined`).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from earatlas.features.stft import squared_magnitude
from earatlas.parts import Parts
from earatlas.separation.demixing.determined import (
    DemixingSettings,
    SecondMoments,
    estimate_pair,
    iterative_projection,
    regularize_collinear,
    smooth_powers,
    steering_vectors_from_covariances,
)
from earatlas.separation.demixing.permutation_alignment import ExpectedCues, count_bands
from earatlas.separation.demixing.underdetermined import (
    UnderdeterminedSettings,
    underdetermined_steering_vectors,
)
from earatlas.separation.demixing.wiener import WienerSettings, estimate_diffuse_to_direct
from earatlas.streaming.filterbank import Filterbank
from earatlas.streaming.recent_frames import FrameMoments, RecentFrames
from earatlas.types import Array, Complex, Indices, Mask

__all__ = [
    "OnlineSteeringVectors",
    "SteeringEstimate",
    "SteeringSettings",
    "SteeringUpdate",
]


# Evidence: docs/figures/settings/streaming.md, "online_steering".
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
    band_pair_cost: float = 3.0  # of a permutation alignment per pair of bands, in bins
    restart_forgetting: float = 0.6  # accumulated forgetting that voids older frames


@dataclass(frozen=True, eq=False, slots=True)
class _PairState:
    """Estimate of the steering vectors of two tracks."""

    vectors: Complex  # (F, 2, 2)
    past: Complex  # (2, F, 2, 2) weighted covariances of older frames
    ear_levels: Array  # (2, F) levels by which both are normalized
    permuted: Mask  # (F,) where the masks have the opposite order
    n_updates: int = 0
    updated_hop: int = 0  # hops of the stream at the last update

    @classmethod
    def unknown(cls, ear_levels: Array) -> _PairState:
        """Return the state of a pair before its first update."""
        F = ear_levels.shape[1]
        A = np.tile(np.eye(2, dtype=np.complex128), (F, 1, 1))
        zeros = np.zeros((2, F, 2, 2), dtype=np.complex128)
        return cls(A, zeros, ear_levels, np.zeros(F, dtype=bool))

    def rescaled(self, ear_levels: Array) -> _PairState:
        """Return the estimate normalized by other ear levels (2, F)."""
        ratio = (self.ear_levels / ear_levels).T  # (F, 2)
        vectors = ratio[:, :, None] * self.vectors
        vectors = vectors / np.sqrt(squared_magnitude(vectors).sum(axis=1, keepdims=True))
        past = ratio[:, :, None] * ratio[:, None, :] * self.past
        return replace(self, vectors=vectors, past=past, ear_levels=ear_levels)


@dataclass(frozen=True, eq=False, slots=True)
class SteeringEstimate:
    """Steering vectors of some tracks, from an update."""

    track_ids: tuple[int, ...]
    vectors: Complex | None  # A (F, 2, M); None with too few frames
    ear_levels: Array  # (2, F) levels by which the vectors are normalized
    pair: _PairState | None = None  # of two tracks
    n_new: int = 0  # frames since the update before


@dataclass(frozen=True, eq=False, slots=True)
class SteeringUpdate:
    """What an update of the steering vectors depends on, at the hop at which it begins."""

    track_ids: tuple[int, ...]
    settings: SteeringSettings
    demixing: DemixingSettings
    frequencies_hz: Array  # (F,)
    mask_rows: Indices  # (F,) row of the masks for each frequency
    n_masked: int  # frequencies with masks
    keep_identity: bool
    max_phase_hz: float  # frequency up to which the masks rest on phases
    frames: FrameMoments  # of all T recent frames
    kept_hops: Indices  # (T,) hops at which they ended, relative to the present (0)
    n_valid: int  # frames since the last motion
    n_new: int  # frames since the last update that was applied
    max_frames: int  # if there are as many, the oldest of them leave with the next ones
    ear_levels: Array  # (2, F)
    forgetting: float  # 0 to 1
    restarts: bool  # older frames are void
    hop: int  # hops of the stream
    idle_seconds: float  # since the last update of this pair
    known: _PairState | None  # estimate of the same pair, if there is one

    def estimate_parts(
        self, q: Array | None, expected: ExpectedCues | None
    ) -> Parts[SteeringEstimate]:
        """Estimate the steering vectors in parts, with masks q (M, F, T) of the recent frames.

        Without masks, the estimate of a known pair is refined. The `expected` cues of a pair, at
        the frequencies of the masks, determine its order.
        """
        T = self.n_used(q)
        if len(self.track_ids) < 2 or self.settings.min_frames > T:
            return SteeringEstimate(self.track_ids, None, self.ear_levels, n_new=self.n_new)
        yield len(self.frequencies_hz) * T
        moments = self.moments(T)
        masks: Array | None = None if q is None else np.asarray(q[..., -T:], dtype=np.float32)
        pair, vectors = None, None
        if len(self.track_ids) == 2:
            pair = yield from self._pair_parts(moments, masks, expected)
            vectors = pair.vectors
        elif masks is not None:
            n_phase_bins = int(np.searchsorted(self.frequencies_hz, self.max_phase_hz, "right"))
            vectors = yield from underdetermined_steering_vectors(
                moments, masks, n_phase_bins, UnderdeterminedSettings()
            )
        return SteeringEstimate(self.track_ids, vectors, self.ear_levels, pair, self.n_new)

    def _pair_parts(
        self, moments: SecondMoments, q: Array | None, expected: ExpectedCues | None
    ) -> Parts[_PairState]:
        """Estimate the vectors of two sources; with masks q (2, F, T) the estimate restarts."""
        settings, T, n_masked = self.settings, moments.values.shape[-1], self.n_masked
        sizes = self.demixing.second_smoothing
        state = self.known or _PairState.unknown(self.ear_levels)
        state = state.rescaled(self.ear_levels)
        prior = self._diffuse_prior(T)
        # Other tracks may have been rendered since the last update of this pair.
        decay = (1 - self.forgetting) * np.exp(-self.idle_seconds / settings.past_seconds)
        past, permuted = decay * state.past, state.permuted
        if q is None:
            A = yield from iterative_projection(
                moments, state.vectors, sizes, n_masked, past + prior
            )
        else:  # restart from the masks: estimates from few frames may be wrong
            past = np.zeros_like(past)
            masked = slice(None, n_masked)
            if expected is not None:
                expected = expected.at(self.mask_rows[masked], self.ear_levels[:, masked])
            A, permuted = yield from estimate_pair(
                moments,
                q,
                self.frequencies_hz[masked],
                self.demixing,
                expected=expected,
                prior=prior,
                alignment_cost=self._alignment_cost,
            )
            established = state.n_updates >= settings.permutable_updates
            if self.keep_identity and established and _is_swapped(moments, A, state.vectors):
                A, permuted = A[..., ::-1], ~permuted
        if self.max_frames == T and self.n_new:
            v = smooth_powers(moments.powers(A), sizes[-1], moments.floor, n_masked)
            oldest = slice(0, self.n_new)
            leaving = SecondMoments(moments.values[..., oldest])
            past = past + leaving.covariances(1 / v[..., oldest])
        # A moving pair restarts, and is counted again once it is static.
        n_updates = 0 if self.restarts else state.n_updates + (self.forgetting == 0)
        return _PairState(A, past, self.ear_levels, permuted, n_updates, self.hop)

    def refine_parts(self, H: Complex) -> Parts[Complex]:
        """Estimate the steering vectors (F, 2, 2) of a pair from filters of shorter windows.

        The filters H (F, 2, 2), for spectra at their original levels, return the image of the first
        source. The estimate begins with the powers of this image and of the remainder, as that of a
        recording in long windows (`earatlas.separation.demixing.rendering`).
        """
        yield self.n_bins
        T, sizes = self.n_valid, self.demixing.second_smoothing
        moments, ear_levels = self.moments(T), self.ear_levels.T
        H = H * ear_levels[:, None, :] / ear_levels[:, :, None]
        v = np.stack([moments.filtered_powers(each) for each in (H, np.eye(2) - H)])
        yield self.n_bins
        smooth = smooth_powers(v, sizes[0], moments.floor, self.n_masked)
        prior = self._diffuse_prior(T)
        V = (moments.covariances(1 / smooth) + prior) / T
        A = regularize_collinear(steering_vectors_from_covariances(V))
        return (yield from iterative_projection(moments, A, sizes, self.n_masked, prior))

    def _diffuse_prior(self, T: int) -> Complex:
        """Return the covariance (2, 2) of the diffuse sound that counts as observed."""
        settings = self.settings
        frames = settings.diffuse_prior_frames * settings.min_frames / T
        return frames * np.eye(2, dtype=np.complex128)

    @property
    def _alignment_cost(self) -> float:
        """Cost of a permutation alignment, in bins."""
        masked = self.frequencies_hz[: self.n_masked]
        n_bands = count_bands(masked, self.demixing.permutation)
        return self.settings.band_pair_cost * n_bands**2

    @property
    def n_bins(self) -> int:
        """Number of bins of all recent frames: the cost of a computation with them."""
        return len(self.frequencies_hz) * len(self.kept_hops)

    def n_used(self, q: Array | None) -> int:
        """Return the number of frames that an estimate with masks q (M, F, T) uses."""
        return self.n_valid if q is None else min(q.shape[-1], self.n_valid)

    def moments(self, T: int, n_low: int | None = None) -> SecondMoments:
        """Return the normalized moments of the last T frames, at the lowest `n_low` frequencies."""
        return self.frames.last(T, n_low).normalized(self.ear_levels[:, :n_low])

    def power_fractions(self, A: Complex) -> Array:
        """Return the power fractions (2, F, T) of a pair in all recent frames."""
        return self.moments(len(self.kept_hops)).power_fractions(A)

    def covariances(self) -> Complex:
        """Return the covariances Φ (F + 1, 2, 2) of the recent frames, from 0 Hz on."""
        F, T = len(self.frequencies_hz), len(self.kept_hops)
        Phi = np.zeros((F, 2, 2), dtype=np.complex128)
        for part in self.frames.parts:
            moments, weights = (
                SecondMoments(np.asarray(part)),
                np.full((1, F, part.shape[-1]), 1 / T),
            )
            Phi += moments.covariances(weights)[0]
        return np.concatenate([Phi[:1], Phi])

    def diffuse_to_direct(self, A: Complex, T: int, settings: WienerSettings) -> float:
        """Return the diffuse-to-direct ratio ε of a pair, from the last T frames."""
        n_low = max(int(np.searchsorted(self.frequencies_hz, settings.max_hz)), 1)
        moments, A = self.moments(T, n_low), A[:n_low]
        return estimate_diffuse_to_direct(moments, A, moments.power_fractions(A), settings)


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
        max_phase_hz: float = np.inf,
    ) -> None:
        """Prepare for masks at equally spaced frequencies in Hz, from phases up to `max_phase_hz`.

        Every `stride_hops`-th frame is kept. The first `mask_updates` updates of a pair begin with
        masks (10: about 3 s). With `keep_identity`, masks do not swap the identities of an
        established pair.
        """
        self.settings, self._demixing = settings, demixing
        self._stride_hops, self._mask_updates = stride_hops, mask_updates
        self._keep_identity, self._max_phase_hz = keep_identity, max_phase_hz
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
        self._n_new_frames = 0  # since the last update that was applied
        self._static_since_hop = 0  # hop at which the last motion ended
        self._accumulated_forgetting = 0.0  # since the current motion began
        self._pairs: dict[tuple[int, ...], _PairState] = {}
        self.current = SteeringEstimate((), None, np.ones((2, F)))

    @property
    def max_bins(self) -> int:
        """Number of bins of all recent frames, once there are as many as are kept."""
        return len(self.frequencies_hz) * self._max_frames

    @property
    def track_ids(self) -> tuple[int, ...]:
        """Tracks whose steering vectors were estimated last."""
        return self.current.track_ids

    @property
    def vectors(self) -> Complex | None:
        """Steering vectors A (F, 2, M) of these tracks; None with too few frames."""
        return self.current.vectors

    @property
    def ear_levels(self) -> Array:
        """Levels (2, F) by which they are normalized."""
        return self.current.ear_levels

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
        pair = self.current.pair
        return np.zeros(len(self.frequencies_hz), dtype=bool) if pair is None else pair.permuted

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

    def begin_update(self, track_ids: Sequence[int], forgetting: float) -> SteeringUpdate:
        """Return what an update with the frames so far depends on.

        `forgetting` (0 to 1) is the part of the statistics that the motion of the tracks voids.
        """
        ids, known = tuple(track_ids), self._pairs.get(tuple(track_ids))
        self.register_motion(forgetting)
        ear_levels = np.sqrt(self._ear_powers)
        idle_hops = 0 if known is None else self._hops - known.updated_hop
        return SteeringUpdate(
            track_ids=ids,
            settings=self.settings,
            demixing=self._demixing,
            frequencies_hz=self.frequencies_hz,
            mask_rows=self.mask_rows,
            n_masked=self.n_mask_frequencies,
            keep_identity=self._keep_identity,
            max_phase_hz=self._max_phase_hz,
            frames=self._frames.moments,
            kept_hops=self.kept_hops,
            n_valid=self._n_valid_frames(forgetting),
            n_new=self._n_new_frames,
            max_frames=self._max_frames,
            ear_levels=np.maximum(ear_levels, 1e-6 * float(ear_levels.max()) + 1e-12),
            forgetting=forgetting,
            restarts=self._accumulated_forgetting > self.settings.restart_forgetting,
            hop=self._hops,
            idle_seconds=idle_hops * self._hop_seconds,
            known=known,
        )

    def apply(self, estimate: SteeringEstimate) -> None:
        """Use the result of an update."""
        self.current = estimate
        self._n_new_frames -= estimate.n_new
        if estimate.pair is not None:
            self._pairs[estimate.track_ids] = estimate.pair

    def keep_only(self, track_ids: Sequence[int]) -> None:
        """Keep the steering vectors of some of the current tracks, without those of others."""
        vectors, ids = self.vectors, self.track_ids
        rows = [m for m, i in enumerate(ids) if i in track_ids]
        left = vectors is not None and len(rows) >= 2
        self.current = SteeringEstimate(
            tuple(ids[m] for m in rows),
            vectors[:, :, rows] if vectors is not None and left else None,
            self.current.ear_levels,
        )

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


def _is_swapped(moments: SecondMoments, A: Complex, previous: Complex) -> bool:
    """Return whether A has the two signals of the previous vectors in opposite order."""
    fractions, previous_fractions = (
        moments.power_fractions(vectors)[0] for vectors in (A, previous)
    )
    return float((moments.power * (2 * fractions - 1) * (2 * previous_fractions - 1)).sum()) < 0
