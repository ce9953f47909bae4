"""The three parts of a live stream: tracks, masks and rendered signals, one hop at a time.

    TrackStage    samples ──▶ onsets ──▶ tracks               (a step of the tracker every few hops)
    MaskStage     samples ──▶ frame ──▶ masks of the rendered tracks
    RenderStage   samples, masks ──▶ separated signals, with a fixed latency

After each step the tracks are corrected by the directions that follow from the cues of the masks
and by the separated signals (`earatlas.streaming.speaker_split_merge`). Then cues, masks and
filters are updated for the tracks (`earatlas.streaming.stream` has the loop).

    hop, n   samples of a hop at the stream's rate, and at the head's rate
    B, F     bins of a frame, frequencies of the masks
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.geometry.angles import to_vectors
from earatlas.localization.diagnostics import Doubt
from earatlas.localization.reverberant_localizer import ReverberantLocalizer
from earatlas.parts import Parts, SpreadComputation
from earatlas.separation.separator import Separator
from earatlas.streaming.filterbank import Filterbank
from earatlas.streaming.hops import Hop
from earatlas.streaming.online_masks import OnlineMasks
from earatlas.streaming.renderer import LatencyProfile, RenderEstimate, StreamRenderer
from earatlas.streaming.speaker_split_merge import SpeakerSplitMerge, SpeakerTestSettings
from earatlas.streaming.track_posteriors import TrackPosteriors
from earatlas.tracking.front_end import TrackingFrontEnd
from earatlas.tracking.online_track import OnlineTrack
from earatlas.tracking.settings import TrackerSettings
from earatlas.types import Array, Complex

__all__ = [
    "MaskStage",
    "RenderSettings",
    "RenderStage",
    "TrackPositions",
    "TrackStage",
    "TrackStageSettings",
]


# Evidence: docs/figures/settings/streaming.md, "stages".
@dataclass(frozen=True, slots=True)
class TrackStageSettings:
    """Steps of the tracker, and a head that turns."""

    step_seconds: float = 0.128  # time between steps of the tracker
    static_head_seconds: float = 6.0  # time without rotation after which cues and signals are used
    static_head_degrees: float = 3.0  # smaller rotations do not count
    min_peak_ratio: float = 2.0  # probability of a peak over that at a track, which moves there


@dataclass(frozen=True, slots=True)
class RenderSettings:
    """Which tracks are rendered, and how often their filters are updated."""

    gain_decay_seconds: float = 1.0  # time constant (1/e) of a track's gain without a hit
    rendered_bonus: float = 1.5  # factor of the gain of a track that is rendered already
    active_seconds: float = 1.5  # time since the last hit within which a third track is rendered
    rendered_active_seconds: float = 4.0  # the same for a rendered one, unless it is reverberant
    reverberant_min_hits: int = 24  # hits that a third track needs in a reverberant room
    reverberant_gain_ratio: float = 1.5  # its gain over the gain that a new track needs
    update_interval_steps: int = 2  # between updates; doubled for known pairs and more tracks
    new_pair_updates: int = 8  # filter updates for which a pair is new
    moving_seconds: float = 1.5  # history of masks that is used while a source moves


@dataclass(frozen=True, eq=False, slots=True)
class TrackPositions:
    """Where the confirmed tracks are relative to the head, by track id."""

    directions: Mapping[int, Array]  # (C,) degrees
    forgetting: Mapping[int, float]  # 0 to 1, part of the signal statistics that motion voids

    def after(self, forgetting: Mapping[int, float]) -> TrackPositions:
        """Return the positions with the motion of an earlier interval added."""
        total = {i: f + (1 - f) * forgetting.get(i, 0.0) for i, f in self.forgetting.items()}
        return replace(self, forgetting=total)


class TrackStage:
    """Tracks the sources of a stream: from samples at the head's rate to confirmed tracks."""

    def __init__(
        self,
        separator: Separator,
        localizer: ReverberantLocalizer,
        filterbank: Filterbank,
        yaw_at: Callable[[Array], Array],
        *,
        max_sources: int,
    ) -> None:
        """Track up to `max_sources`; `yaw_at` returns the head's yaw at times in seconds."""
        self._settings = TrackStageSettings()
        self.space, self._yaws_at = separator.head.space, yaw_at
        self.front_end = TrackingFrontEnd(
            localizer, yaw_at, TrackerSettings(max_tracks=max_sources)
        )
        self.tracker = self.front_end.tracker
        self.speaker_test = SpeakerSplitMerge(
            self.space, separator.layout, filterbank, SpeakerTestSettings()
        )
        self.posteriors = TrackPosteriors(separator.head, localizer)
        self.doubts: tuple[Doubt, ...] = ()  # about the head
        self._hop_seconds = filterbank.hop_seconds
        self._hops_per_step = max(round(self._settings.step_seconds / self._hop_seconds), 1)
        self._samples: list[Array] = []  # since the last step, at the head's rate
        self._n_hops = 0
        self._reference_yaw, self._turned_at = 0.0, -np.inf  # degrees, seconds
        self._last_yaw = 0.0  # degrees, at the last call of `positions`

    @property
    def now(self) -> float:
        """Seconds of the stream that are processed."""
        return self._n_hops * self._hop_seconds

    @property
    def _yaw(self) -> float:
        """The head's current yaw in degrees."""
        return float(self._yaws_at(np.array([self.now]))[0])

    def push(self, hop: Hop, diffuse_ratio: float | None) -> bool:
        """Process a hop; return whether it completed a step, so that the tracks have changed.

        `diffuse_ratio` is the diffuse-to-direct ratio of two separated sources, if it is known.
        """
        self._n_hops += 1
        self._samples.append(hop.resampled)
        self.posteriors.advance(self.tracker)
        if self._n_hops % self._hops_per_step:
            return False
        samples, self._samples = np.concatenate(self._samples, axis=1), []
        seconds = self._hops_per_step * self._hop_seconds
        self.front_end.step(samples, self.now, seconds, diffuse_ratio)
        return True

    def correct(self, masks: MaskStage, rendered_ids: Sequence[int]) -> None:
        """Correct the tracks by directions from cues, and by the separated signals.

        Both need seconds of sound during which the head did not turn.
        """
        settings, now, yaw = self._settings, self.now, self._yaw
        step = self._n_hops // self._hops_per_step
        is_decision = step % self.tracker.settings.front_end.interval_steps == 0
        if is_decision and abs(yaw - self._reference_yaw) > settings.static_head_degrees:
            self._reference_yaw, self._turned_at = yaw, now
        static = now - self._turned_at >= settings.static_head_seconds
        statistics = masks.model.statistics() if static else {}
        self.posteriors.begin_updates(self.tracker, statistics, self.front_end.onsets, now, yaw)
        if is_decision:
            anechoic = self.front_end.reverberation.anechoic and static
            directions = masks.model.cue_directions() if anechoic else {}
            self.tracker.apply_cue_directions(self._probable_directions(directions, yaw))
            self.doubts = self._head_doubts()
        if static:
            self.speaker_test.check(
                step, now, self.front_end, rendered_ids, masks.model, masks.frames, yaw
            )

    def _probable_directions(self, cues: Mapping[int, Array], yaw: float) -> dict[int, Array]:
        """Return directions from cues, or those of a much more probable peak, by track id.

        `cues` are directions relative to the head, by track id. The posterior of one of several
        tracks is not certain enough to move it.
        """
        directions = {i: self.space.rotated(direction, yaw) for i, direction in cues.items()}
        tracks = self.tracker.confirmed
        for track in tracks:
            if len(tracks) == 1 and track.posterior is not None and not track.moving:
                vector = to_vectors(directions.get(track.id, track.direction))
                peak = track.posterior.more_probable(vector, self._settings.min_peak_ratio)
                if peak is not None:
                    directions[track.id] = peak
        return directions

    def _head_doubts(self) -> tuple[Doubt, ...]:
        """Return the doubt about the head, unless noise or reverberation explain its residual."""
        onsets = self.front_end.onsets
        if onsets is None or any(doubt.explains_mismatch for doubt in self.front_end.doubts):
            return ()
        fit = self.posteriors.head_fit(self.tracker.confirmed, onsets)
        return () if fit is None or not fit.other_head else tuple(fit.doubts())

    def positions(self) -> TrackPositions:
        """Return where the confirmed tracks are, and how they moved since the last call."""
        yaw, tracks = self._yaw, self.tracker.confirmed
        turn, self._last_yaw = yaw - self._last_yaw, yaw
        return TrackPositions(
            {t.id: self.space.rotated(t.direction[: self.space.columns], -yaw) for t in tracks},
            {track.id: track.motion_forgetting(turn) for track in tracks},
        )


class MaskStage:
    """Masks of the rendered tracks: the frames of a stream at the head's rate, and their cues."""

    def __init__(
        self, separator: Separator, filterbank: Filterbank, latency: LatencyProfile
    ) -> None:
        layout = separator.layout
        self.model = OnlineMasks(separator, filterbank.hop_seconds)
        # Masks belong to the centre of the synthesis window, or as near to it as theirs reaches.
        centre = round(filterbank.synthesis_samples / 2 / filterbank.rate * layout.rate)
        lag = max(centre - layout.window // 2, 0)
        self._window = layout.window
        self._samples = np.zeros((2, layout.window + lag))
        self.frames: list[Complex] = []  # spectra (2, B, 1) of the last seconds
        self._delay_hops = filterbank.delay_hops
        self._max_frames = round(latency.steering.recent_seconds / filterbank.hop_seconds)

    def push(self, hop: Hop, ids: Sequence[int] | None) -> Array | None:
        """Process a hop; return the masks (M, F) of tracks, or None without ids.

        They belong to the frame of the window that is synthesized.
        """
        n = hop.resampled.shape[1]
        self._samples = np.concatenate([self._samples[:, n:], hop.resampled], axis=1)
        self.model.append(self._samples[:, : self._window])
        self.frames.append(self.model.latest_frame)
        del self.frames[: -self._max_frames]
        if ids is None:
            return None
        synthesized = self.frames[max(len(self.frames) - 1 - self._delay_hops, 0)]
        return self.model.masks_of(synthesized, ids)[..., 0]


class _UpdateStep(Enum):
    """Steps of an update of the filters, in their order."""

    WINDOWS = auto()  # for other sound, if they are new
    CUES = auto()  # of the masks
    FILTERS = auto()


@dataclass(eq=False, slots=True)
class _FilterUpdate:
    """An update of the filters that is in progress."""

    ids: tuple[int, ...]  # tracks that are separated from each other
    positions: TrackPositions  # of all confirmed tracks, at its begin
    reverberant: bool
    step: _UpdateStep
    computation: SpreadComputation[Any] | None = None  # of the step; None: it begins next


class RenderStage:
    """Renders the signals of the tracks. Each confirmed track has a row of the renderer."""

    def __init__(
        self, rate: int, latency: LatencyProfile, layout: CueLayout, max_sources: int
    ) -> None:
        self._settings, self._max_sources = RenderSettings(), max_sources
        _, max_phase_hz = layout.ipd_band_hz or (0.0, 0.0)
        self.renderer = StreamRenderer(
            rate, latency, layout.frequencies_hz, max_sources, max_phase_hz=max_phase_hz
        )
        self.ids: tuple[int, ...] = ()  # tracks that are separated from each other
        self._rows: dict[int, int] = {}  # row of the renderer, by track id
        self._n_steps = 0
        self._selected: tuple[int, ...] = ()  # tracks for which the filters are updated
        self._is_due = False  # an update begins with the next step
        self._update: _FilterUpdate | None = None  # in progress
        self._missed_motion: Mapping[int, float] = {}  # forgetting of an update that was dropped

    @property
    def mask_ids(self) -> tuple[int, ...] | None:
        """Tracks whose masks the next hop needs; None if it needs none."""
        return self.ids if self.renderer.needs_frame_masks else None

    def push(self, hop: Hop, masks: Array | None) -> dict[int, Array]:
        """Process a hop; return the signal (2, hop) of each confirmed track."""
        rendered = self.renderer.push(hop.samples, masks, [self._rows[i] for i in self.ids])
        return {i: rendered[row] for i, row in self._rows.items()}

    def select(self, tracks: Sequence[OnlineTrack], now: float, *, reverberant: bool) -> bool:
        """Assign rows to the confirmed tracks and select those that are separated.

        Return whether an update of the filters is due; `begin_update` begins it.
        """
        settings, renderer = self._settings, self.renderer
        self._n_steps += 1
        ids = {track.id for track in tracks}
        removed = set(self._rows) - ids
        for track_id in removed:
            renderer.clear_row(self._rows.pop(track_id))
        renderer.retain([track.id for track in tracks])
        for added in sorted(ids - set(self._rows)):
            self._rows[added] = min(set(range(self._max_sources)) - set(self._rows.values()))
        if removed & set(self.ids):
            self.ids = tuple(i for i in self.ids if i in ids)
            renderer.keep_only(self.ids)
        before, self._selected = self._selected, self._ranked(tracks, now, reverberant=reverberant)
        windows = renderer.newest_windows
        interval = settings.update_interval_steps
        several = len(self._selected) > 2
        if several or windows.n_updates(self._selected) >= settings.new_pair_updates:
            interval *= 2
        changed = self._selected != before or reverberant != windows.reverberant
        self._is_due |= changed or self._n_steps % interval == 0
        update = self._update
        if update is not None and (update.reverberant != reverberant or removed & set(update.ids)):
            self._update = None
            if update.step is not _UpdateStep.FILTERS:  # the cues have not been updated
                self._missed_motion = update.positions.forgetting
        return self._is_due and self._update is None

    def begin_update(self, positions: TrackPositions, *, reverberant: bool) -> None:
        """Begin an update of the filters of the selected tracks, for the next hops."""
        renderer, self._is_due = self.renderer, False
        positions, self._missed_motion = positions.after(self._missed_motion), {}
        self._update = update = _FilterUpdate(
            self._selected, positions, reverberant, _UpdateStep.CUES
        )
        if reverberant != renderer.newest_windows.reverberant:
            renderer.prepare(None)
            if reverberant != renderer.newest_windows.reverberant:
                parts = renderer.recent_windows_parts(reverberant=reverberant)
                update.step = _UpdateStep.WINDOWS
                update.computation = SpreadComputation(parts, renderer.hop_budget)

    def advance(self, masks: MaskStage) -> None:
        """Run the parts of an update that belong to a hop, if one is in progress."""
        update, renderer = self._update, self.renderer
        if update is None:
            return
        if update.computation is None:
            update.computation = self._begin_step(update, masks)
            if update.step is _UpdateStep.FILTERS:
                return  # the masks of the recent frames were computed in this hop
        if not update.computation.advance():
            return
        result, update.computation = update.computation.result, None
        match update.step:
            case _UpdateStep.WINDOWS:
                renderer.prepare(*result)
                update.step = _UpdateStep.CUES
            case _UpdateStep.CUES:
                masks.model.apply(result)
                update.step = _UpdateStep.FILTERS
            case _UpdateStep.FILTERS:
                renderer.apply(result)
                self.ids, self._update = update.ids, None

    def _begin_step(self, update: _FilterUpdate, masks: MaskStage) -> SpreadComputation[Any]:
        """Begin the update of the cues or of the filters."""
        if update.step is _UpdateStep.CUES:
            places = update.positions
            cues = masks.model.update_parts(places.directions, places.forgetting, masks.frames)
            return SpreadComputation(cues)
        return SpreadComputation(self._filter_parts(masks, update), self.renderer.hop_budget)

    def _ranked(
        self, tracks: Sequence[OnlineTrack], now: float, *, reverberant: bool
    ) -> tuple[int, ...]:
        """Return the ids of the tracks that are separated: the two with the largest gain, and more.

        Further tracks are added while they are active. A ranking by the last hit alone would let
        reflections alternate with talkers.
        """
        settings = self._settings

        def order(track: OnlineTrack) -> tuple[float, float, int]:
            age = now - track.last_hit_at
            bonus = settings.rendered_bonus if track.id in self._selected else 1.0
            gain = bonus * track.gain * np.exp(-age / settings.gain_decay_seconds)
            return -max(gain, 0.0), age, track.id

        ranked = sorted(tracks, key=order)
        chosen = ranked[:2]
        for track in ranked[2:]:
            # A talker beside two others has a hit only now and then. Without its own signal its
            # sound is that of the others.
            stays = not reverberant and track.id in self._selected
            seconds = settings.rendered_active_seconds if stays else settings.active_seconds
            active = now - track.last_hit_at < seconds
            # In a reverberant room a third track may be a reflection, which would take sound from
            # the other two, and end their demixing: it needs more hits and a larger gain.
            bonus = settings.rendered_bonus if track.id in self._selected else 1.0
            is_clear = not reverberant or (
                track.hits >= settings.reverberant_min_hits
                and bonus * track.gain_ratio >= settings.reverberant_gain_ratio
            )
            if active and is_clear and (stays or not track.low_likelihood_steps):
                chosen.append(track)
        return tuple(sorted(track.id for track in chosen))

    def _filter_parts(self, masks: MaskStage, update: _FilterUpdate) -> Parts[RenderEstimate]:
        """Return the parts of an update of the filters."""
        renderer, ids = self.renderer, update.ids
        windows = renderer.newest_windows
        forgetting = max((update.positions.forgetting[i] for i in ids), default=0.0)
        recent_masks = expected = None
        if windows.needs_masks(ids) and masks.frames:
            n_moving = round(self._settings.moving_seconds / renderer.filterbank.hop_seconds)
            frames = masks.frames[-n_moving:] if forgetting else masks.frames
            recent_masks = masks.model.masks_of(windows.select_kept(frames), ids)
            # Reflections change the interaural ratio from what is expected for the direction.
            if len(ids) == 2 and not windows.reverberant:
                expected = masks.model.expected_cues(ids)
        rows = {i: self._rows[i] for i in ids}
        return renderer.update_parts(rows, recent_masks, forgetting, expected)
