"""Speaker split and merge test: correct the number of tracks by their separated signals.

Two talkers on one cone of confusion are often one track, especially in a reverberant room, or a
track that seems to move back and forth between them. Therefore the signal of a single track is
separated from time to time as if there were two sources, at the two directions that explain the
onsets best. If the two signals are different speakers
(`earatlas.separation.demixing.speaker_similarity`), the track is split. The signals of two tracks
are compared in the same way: different speakers stay separate tracks, whatever the onsets suggest,
and one speaker becomes one track.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.geometry.spaces import Space
from earatlas.parts import Parts, SpreadComputation
from earatlas.separation.demixing.speaker_similarity import (
    SimilaritySettings,
    SpeakerSimilarity,
    speaker_similarity,
)
from earatlas.streaming.filterbank import Filterbank
from earatlas.streaming.online_masks import OnlineMasks
from earatlas.streaming.renderer import DEFAULT_LATENCY
from earatlas.tracking.front_end import TrackingFrontEnd
from earatlas.tracking.online_track import OnlineTrack
from earatlas.types import Array, Complex, Single

__all__ = ["SpeakerSplitMerge", "SpeakerTestSettings"]


# Evidence: docs/figures/settings/streaming.md, "speaker_split_merge".
@dataclass(frozen=True, slots=True)
class SpeakerTestSettings:
    """When signals are compared, and what follows."""

    interval_steps: int = 8  # steps between tests
    recheck_steps: int = 4  # steps until a split is confirmed by a second test
    rare_interval_steps: int = 16  # steps between tests after single_checks with one speaker
    single_checks: int = 4  # tests in a row with one speaker
    merge_checks: int = 3  # tests in a row with one speaker for two tracks, until they are merged
    min_seconds: float = 2.0  # duration of the signals that are compared, at least
    anechoic_max_similarity: float = 0.4  # ρ below which an anechoic track has two speakers
    active_seconds: float = 0.5  # time since the last hit within which a track is active
    active_power_ratio: float = 0.1  # power of the newest signal over its mean, while active
    mask_stride_hops: int = 4  # hops of the filterbank from one mask frame to the next
    hops_per_part: int = 64  # hops whose frames are computed in one hop of the stream


@dataclass(frozen=True, eq=False, slots=True)
class _SplitTest:
    """A test of one track that is in progress."""

    track_id: int
    step: int  # of the tracker, at its begin
    directions: Array  # (2, C) of the two speakers, relative to the room
    reverberant: bool
    similarity: SpreadComputation[SpeakerSimilarity]


class SpeakerSplitMerge:
    """Tests whether tracks are one or two speakers. Signals for a split are at the head's rate."""

    def __init__(
        self,
        space: Space,
        layout: CueLayout,
        stream_filterbank: Filterbank,
        settings: SpeakerTestSettings,
    ) -> None:
        """Prepare for a stream with the rate and the hops of `stream_filterbank`."""
        self._space, self._layout, self._settings = space, layout, settings
        hop_seconds = stream_filterbank.hop_seconds
        self._rate, self._hop_seconds = stream_filterbank.rate, hop_seconds
        self._similarity = SimilaritySettings()
        self._filterbank = DEFAULT_LATENCY.filterbank(layout.rate)
        self._signals: deque[dict[int, Single]] = deque(
            maxlen=round(self._similarity.seconds / hop_seconds)
        )
        self._recent_samples: deque[Single] = deque(
            maxlen=round(DEFAULT_LATENCY.history_seconds / hop_seconds)
        )
        self._test: _SplitTest | None = None  # in progress
        self._split_candidate: int | None = None  # track with two speakers in the last test
        # A pair of tracks, and its number of tests in a row with one speaker
        self._merge_count: tuple[frozenset[int], int] = (frozenset(), 0)
        self._n_single = 0  # tests of one track in a row with one speaker
        self._next_step = 2 * self._settings.interval_steps

    def append(self, resampled: Array, signals: Mapping[int, Array]) -> None:
        """Append a hop of the input at the head's rate, and the signal (2, hop) of each track."""
        self._recent_samples.append(resampled.astype(np.float32))
        own = signals if len(signals) > 1 else {}
        self._signals.append({i: signal.astype(np.float32) for i, signal in own.items()})

    def check(
        self,
        step: int,
        now: float,
        front_end: TrackingFrontEnd,
        rendered_ids: Collection[int],
        masks: OnlineMasks,
        mask_frames: Sequence[Complex],
        yaw: float,
    ) -> None:
        """Run the test if it is due, and split, merge or confirm tracks of the front end.

        `mask_frames` are the recent spectra (2, B, 1) of the masks, `yaw` is the head's in degrees.
        """
        tracks = {track.id: track for track in front_end.tracker.confirmed}
        active = [t for t in tracks.values() if now - t.last_hit_at < self._settings.active_seconds]
        if self._test is not None:
            if self._test.similarity.finished:
                test, self._test = self._test, None
                if [track.id for track in active] == [test.track_id]:
                    self._decide_split(test, now, front_end, active[0])
            return
        if step < self._next_step:
            return
        self._next_step = step + self._settings.interval_steps
        pair = frozenset(rendered_ids) & tracks.keys()
        if len(pair) == 2 and self._keep_pair(front_end, pair, now):
            self._split_candidate, self._n_single = None, 0
        elif len(active) == 1 and front_end.tracker.settings.max_tracks > 1:
            self._begin_split_test(step, front_end, active[0], masks, mask_frames, yaw)
        else:
            self._split_candidate = None

    def advance(self) -> None:
        """Run the parts of a test that belong to a hop, if one is in progress."""
        if self._test is not None and not self._test.similarity.finished:
            self._test.similarity.advance()

    def _keep_pair(self, front_end: TrackingFrontEnd, pair: frozenset[int], now: float) -> bool:
        """Test two tracks; return whether they are two speakers or cannot be tested."""
        signals = {i: self._recent_signal(i) for i in pair}
        n = min(signal.shape[1] for signal in signals.values())
        tracks = [track for track in front_end.tracker.confirmed if track.id in pair]
        # In anechoic sound onsets show motion, and filters of static sources do not separate it.
        may_have_moved = not (front_end.reverberation.slow_decay or self._all_static(tracks, now))
        if may_have_moved or n < self._settings.min_seconds * self._rate:
            return True
        first, second = (signal[:, -n:] for signal in signals.values())
        similarity = speaker_similarity(first, second, self._rate, self._similarity)
        previous_pair, count = self._merge_count
        count = count + 1 if previous_pair == pair else 1
        self._merge_count = (pair, count if similarity.same_speaker else 0)
        if similarity.different_speakers:
            front_end.tracker.confirm_by_signal(pair, now)
            for i, signal in signals.items():
                newest = signal[:, -round(self._settings.active_seconds * self._rate) :]
                if np.mean(newest**2) > self._settings.active_power_ratio * np.mean(signal**2):
                    front_end.tracker.register_hit(i, now)
        elif self._merge_count[1] >= self._settings.merge_checks:
            front_end.tracker.merge(pair)
            self._merge_count = (frozenset(), 0)
        return similarity.different_speakers

    def _begin_split_test(
        self,
        step: int,
        front_end: TrackingFrontEnd,
        track: OnlineTrack,
        masks: OnlineMasks,
        mask_frames: Sequence[Complex],
        yaw: float,
    ) -> None:
        """Begin the test of one track."""
        directions = front_end.tracker.buffer.best_pair()
        if directions is None or not mask_frames:
            return
        relative = np.stack([self._space.rotated(direction, -yaw) for direction in directions])
        reverberant = front_end.reverberation.slow_decay
        parts = self._split_similarity_parts(masks, mask_frames, relative, reverberant=reverberant)
        similarity = SpreadComputation(parts)  # those of demixing cost their bins: one per hop
        self._test = _SplitTest(track.id, step, directions, reverberant, similarity)

    def _decide_split(
        self, test: _SplitTest, now: float, front_end: TrackingFrontEnd, track: OnlineTrack
    ) -> None:
        """Split a track if its test has found two speakers."""
        settings, similarity = self._settings, test.similarity.result
        if test.reverberant:
            is_two = similarity.different_speakers and not track.moving
        else:
            is_two = (
                similarity.different_speakers
                and similarity.correlation < settings.anechoic_max_similarity
                and self._all_static(front_end.tracker.confirmed, now)
            )
        self._n_single = 0 if similarity.different_speakers else self._n_single + 1
        clearly_two = test.reverberant and similarity.clearly_different_speakers
        if (is_two and self._split_candidate == track.id) or clearly_two:
            front_end.tracker.split(track, test.directions, now)
            self._split_candidate = None
            return
        self._split_candidate = track.id if is_two else None
        rarely = self._n_single >= settings.single_checks
        interval = settings.rare_interval_steps if rarely else settings.interval_steps
        self._next_step = test.step + (settings.recheck_steps if is_two else interval)

    def _split_similarity_parts(
        self,
        masks: OnlineMasks,
        mask_frames: Sequence[Complex],
        directions: Array,
        *,
        reverberant: bool,
    ) -> Parts[SpeakerSimilarity]:
        """Separate the last seconds into signals at directions (2, C) of the head, in parts."""
        filterbank = self._filterbank
        stride = round(self._settings.mask_stride_hops * filterbank.hop_seconds / self._hop_seconds)
        rows = np.arange(len(mask_frames) - 1, -1, -stride)[::-1]
        spectra = np.concatenate([mask_frames[i] for i in rows], axis=-1)
        trial = copy.copy(masks)
        fir_demixer = DEFAULT_LATENCY.fir_demixer(
            filterbank, self._layout.frequencies_hz, reverberant=reverberant
        )
        x = np.concatenate(list(self._recent_samples), axis=1).astype(np.float64)
        hop_ratio = self._hop_seconds / filterbank.hop_seconds  # stream over filterbank
        ends = np.asarray(hop_ratio * (rows - len(mask_frames) + 1), dtype=np.float64)
        recent = x[:, -round(self._similarity.seconds * self._layout.rate) :]
        yield 1.0
        q = trial.masks_at_directions(spectra, directions)
        hop = filterbank.hop
        for number, end in enumerate(range(x.shape[1] % hop + hop, x.shape[1] + 1, hop)):
            if number % self._settings.hops_per_part == 0:
                yield 1.0
            fir_demixer.append(x[:, end - hop : end])
        first = yield from fir_demixer.separate_offline_parts(q, ends, recent)
        yield 1.0
        return speaker_similarity(first, recent - first, self._layout.rate, self._similarity)

    def _recent_signal(self, track_id: int) -> Single:
        """Return the most recent signal (2, n) of a track without gaps."""
        hops: list[Single] = []
        for signals in reversed(self._signals):
            if track_id not in signals:
                break
            hops.append(signals[track_id])
        return np.concatenate([np.zeros((2, 0), dtype=np.float32), *hops[::-1]], axis=1)

    def _all_static(self, tracks: Sequence[OnlineTrack], now: float) -> bool:
        """Return whether all tracks were static for as long as the signals that are compared."""
        seconds = self._similarity.seconds
        return all(not t.moving and now - t.static_since > seconds for t in tracks)
