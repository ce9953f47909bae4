"""Processing of one hop of a live stream: tracking, masks, filters and rendered signals.

Input: a hop (2, hop) of samples. Output: the rendered signal (2, hop) of each confirmed track, by
track id, `latency_samples` after the input. In a hop:

    samples ──▶ window ──▶ spectra ─────────────────────▶ filters ──▶ signals, with a fixed latency
       └──▶ resampling to the head's rate ──▶ masks of a frame ──┘
                 └──▶ onsets ──▶ tracks       (every few hops, and with them cues and filters)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from earatlas.features.dc_offset import DCOffsetFilter
from earatlas.localization.reverberant_localizer import ReverberantLocalizer
from earatlas.separation.separator import Separator
from earatlas.streaming.online_masks import OnlineMasks
from earatlas.streaming.online_steering import RECENT_SECONDS
from earatlas.streaming.renderer import LatencyProfile, StreamRenderer
from earatlas.streaming.resampling import Resampler
from earatlas.streaming.speaker_split_merge import SpeakerSplitMerge
from earatlas.tracking.front_end import TrackingFrontEnd
from earatlas.tracking.online_track import OnlineTrack
from earatlas.tracking.settings import TrackerSettings
from earatlas.types import Array, Complex

__all__ = ["HopProcessor"]

# Evidence: docs/figures/settings/streaming.md, "hop_processor".
_RENDER_SECONDS = 1.5  # time since the last hit within which a third track is rendered
_GAIN_DECAY_SECONDS = 1.0  # time constant (1/e) of a track's gain without a hit
_RENDERED_BONUS = 1.5  # factor of the gain of a track that is rendered already
_REVERBERANT_MIN_HITS = 24  # hits that a third track needs in a reverberant room
_STEP_SECONDS = 0.128  # time between steps of the tracker
_FILTER_INTERVAL_STEPS = 2  # steps between filter updates of a new pair; twice that later
_NEW_PAIR_UPDATES = 8  # filter updates for which a pair is new
_MOVING_SECONDS = 1.5  # history of masks that is used while a source moves
_LEVEL_SECONDS = 0.3  # time constant (1/e) of the level of a source
_CUE_INTERVAL_STEPS = 8  # steps between updates of directions from cues
_STATIC_HEAD_SECONDS = 6.0  # time without head rotation after which cues are used
_STATIC_HEAD_DEGREES = 3.0  # smaller rotations do not count


class HopProcessor:
    """Tracks and renders the sources of a stream, one hop at a time."""

    def __init__(
        self,
        separator: Separator,
        localizer: ReverberantLocalizer,
        latency: LatencyProfile,
        *,
        rate: int,
        max_sources: int,
        yaw_at: Callable[[Array], Array],
    ) -> None:
        """Process a stream at `rate` Hz; `yaw_at` returns the head's yaw at times in seconds."""
        head = separator.head
        layout = head.layout
        self._renderer = StreamRenderer(rate, latency, layout.frequencies_hz, max_sources)
        filterbank = self._renderer.filterbank
        self.hop, self.hop_seconds = filterbank.hop, filterbank.hop_seconds
        self.latency_samples = filterbank.latency_samples
        self._space, self._layout, self._max_sources = head.space, layout, max_sources
        self._yaws_at = yaw_at
        self._offset = DCOffsetFilter(rate, filterbank.hop)
        self._resampler = Resampler(rate, layout.rate)
        settings = TrackerSettings(max_tracks=max_sources)
        self.front_end = TrackingFrontEnd(localizer, yaw_at, settings)
        self.masks = OnlineMasks(separator, filterbank.hop_seconds)
        self.split_merge = SpeakerSplitMerge(head.space, layout, rate, filterbank.hop_seconds)
        # Masks belong to the centre of the synthesis window, or as near to it as theirs reaches.
        centre = round(filterbank.latency_samples / 2 / rate * layout.rate)
        mask_lag = max(centre - layout.window // 2, 0)
        self._mask_samples = np.zeros((2, layout.window + mask_lag))  # at the head's rate
        self._step_samples: list[Array] = []  # since the last step, at the head's rate
        self._mask_frames: list[Complex] = []  # spectra (2, B, 1) of the last seconds
        self._n_hops = self._n_steps = 0
        self._n_moving_frames = round(_MOVING_SECONDS / filterbank.hop_seconds)
        self._hops_per_step = max(round(_STEP_SECONDS / filterbank.hop_seconds), 1)
        self._rendered_ids: tuple[int, ...] = ()
        self._slots: dict[int, int] = {}  # row of the renderer, by track id
        self._powers: dict[int, float] = {}  # smoothed power of the signal, by track id
        self._reference_yaw, self._turned_at = 0.0, -np.inf  # degrees, seconds
        self._filter_yaw = 0.0  # degrees, at the last filter update

    @property
    def now(self) -> float:
        """Seconds of the stream that are processed."""
        return self._n_hops * self.hop_seconds

    @property
    def dc_offset(self) -> Array:
        """The constant offset (2, 1) of the converter that is removed from the input."""
        return self._offset.current_offset

    @property
    def at_step_end(self) -> bool:
        """Whether the last hop completed a step of the tracker."""
        return self._n_hops % self._hops_per_step == 0

    def level_db(self, track_id: int) -> float:
        """Return the level of a track's signal in dB re full scale; -inf without a signal."""
        power = self._powers.get(track_id, 0.0)
        return 10 * float(np.log10(power)) if power > 0 else -np.inf

    def retain_levels(self, track_ids: set[int]) -> None:
        """Forget the levels of all other tracks."""
        self._powers = {i: power for i, power in self._powers.items() if i in track_ids}

    def push(self, x: Array) -> dict[int, Array]:
        """Process a hop (2, hop); return the signal (2, hop) of each track that is rendered."""
        ids, x = self._rendered_ids, self._offset.push(x)
        resampled = self._resampler.push(x)
        self._step_samples.append(resampled)
        n = resampled.shape[1]
        self._mask_samples = np.concatenate([self._mask_samples[:, n:], resampled], axis=1)
        self.masks.append(self._mask_samples[:, : self._layout.window])
        self._mask_frames.append(self.masks.latest_frame)
        del self._mask_frames[: -round(RECENT_SECONDS / self.hop_seconds)]
        masks = self.masks.latest_masks(ids) if self._renderer.needs_frame_masks else None
        rendered = self._renderer.push(x, masks, [self._slots[i] for i in ids])
        signals = {i: rendered[slot] for i, slot in self._slots.items()}
        self.split_merge.append(resampled, signals)
        decay = float(np.exp(-self.hop_seconds / _LEVEL_SECONDS))
        for i, signal in signals.items():
            power = float(np.mean(signal**2))
            self._powers[i] = decay * self._powers.get(i, 0.0) + (1 - decay) * power
        self._n_hops += 1
        if self.at_step_end:
            self._step()
        return signals

    def _step(self) -> None:
        """Update the tracks, the rows of the renderer, and the filters if they are due."""
        seconds, now = self._hops_per_step * self.hop_seconds, self.now
        samples = np.concatenate(self._step_samples, axis=1)
        self.front_end.step(samples, now, seconds, self._renderer.diffuse_ratio)
        self._step_samples = []
        self._n_steps += 1
        if self._n_steps % _CUE_INTERVAL_STEPS == 0:
            self._apply_cue_directions(now)
        self._check_speakers(now)
        tracks = {track.id: track for track in self.front_end.confirmed}
        for removed in set(self._slots) - set(tracks):
            self._renderer.clear_row(self._slots.pop(removed))
        self._renderer.retain(list(tracks))
        for added in sorted(set(tracks) - set(self._slots)):
            self._slots[added] = min(set(range(self._max_sources)) - set(self._slots.values()))
        environment_changed = self.front_end.reverberant != self._renderer.reverberant
        if environment_changed:
            self._renderer.set_reverberant(self.front_end.reverberant)
        before = self._rendered_ids
        self._rendered_ids = self._select_rendered(list(tracks.values()), now)
        new_pair = self._renderer.n_updates(self._rendered_ids) < _NEW_PAIR_UPDATES
        interval = _FILTER_INTERVAL_STEPS if new_pair else 2 * _FILTER_INTERVAL_STEPS
        if environment_changed or self._rendered_ids != before or self._n_steps % interval == 0:
            self._update_filters(tracks, now)

    def _yaw_at(self, now: float) -> float:
        """Return the head's yaw in degrees."""
        return float(self._yaws_at(np.array([now]))[0])

    def _check_speakers(self, now: float) -> None:
        """Test whether tracks have to be split or merged, unless the head turned recently."""
        if now - self._turned_at >= _STATIC_HEAD_SECONDS:
            self.split_merge.check(
                self._n_steps,
                now,
                self.front_end,
                self._rendered_ids,
                self.masks,
                self._mask_frames,
                self._yaw_at(now),
            )

    def _apply_cue_directions(self, now: float) -> None:
        """Apply directions from cues, if the sound is anechoic and the head did not turn."""
        yaw = self._yaw_at(now)
        if abs(yaw - self._reference_yaw) > _STATIC_HEAD_DEGREES:
            self._reference_yaw, self._turned_at = yaw, now
        directions = {}
        if self.front_end.anechoic and now - self._turned_at >= _STATIC_HEAD_SECONDS:
            directions = self.masks.cue_directions()
        self.front_end.apply_cue_directions(
            {i: self._space.rotated(direction, yaw) for i, direction in directions.items()}
        )

    def _select_rendered(self, tracks: list[OnlineTrack], now: float) -> tuple[int, ...]:
        """Return the ids of the tracks that are rendered: the two with the largest gain, and more.

        Further tracks are rendered while they are active. A ranking by the last hit alone would
        let reflections alternate with talkers.
        """

        def order(track: OnlineTrack) -> tuple[float, float, int]:
            age = now - track.last_hit_at
            bonus = _RENDERED_BONUS if track.id in self._rendered_ids else 1.0
            return -max(bonus * track.gain * np.exp(-age / _GAIN_DECAY_SECONDS), 0.0), age, track.id

        ranked = sorted(tracks, key=order)
        chosen = ranked[:2]
        # In a reverberant room a third track may be a reflection, which would take sound from the
        # other two: it needs more hits.
        min_hits = _REVERBERANT_MIN_HITS if self.front_end.reverberant else 0
        for track in ranked[2:]:
            active = now - track.last_hit_at < _RENDER_SECONDS
            if active and track.hits >= min_hits and not track.low_likelihood_steps:
                chosen.append(track)
        return tuple(sorted(track.id for track in chosen))

    def _update_filters(self, tracks: dict[int, OnlineTrack], now: float) -> None:
        """Update cues, masks and filters of the tracks."""
        yaw, n_coordinates = self._yaw_at(now), self._space.columns
        directions = {
            i: self._space.rotated(track.direction[:n_coordinates], -yaw)
            for i, track in tracks.items()
        }
        turn, self._filter_yaw = yaw - self._filter_yaw, yaw
        forgetting = {i: track.motion_forgetting(turn) for i, track in tracks.items()}
        self.masks.update(directions, forgetting)
        ids = self._rendered_ids
        largest = max((forgetting[i] for i in ids), default=0.0)
        masks = expected = None
        if self._renderer.needs_masks(ids) and self._mask_frames:
            frames = self._mask_frames[-self._n_moving_frames :] if largest else self._mask_frames
            masks = self.masks.masks_of(self._renderer.select_kept(frames), ids)
            # Reflections change the interaural ratio from what is expected for the direction.
            if len(ids) == 2 and not self._renderer.reverberant:
                expected = self.masks.expected_cues(ids)
        rows = {i: self._slots[i] for i in ids}
        self._renderer.update(rows, masks, largest, expected)
