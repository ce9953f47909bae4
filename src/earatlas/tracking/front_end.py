"""Front end of the online tracker: from samples at the head's rate to tracks, one step at a time.

Inputs: binaural samples and the head's yaw. Outputs: tracks in room coordinates, the decision
whether the sound is reverberant, and the doubts that concern all tracks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np

from earatlas.features.onset_detector import OnsetDetector
from earatlas.localization.diagnostics import Doubt, channels_identical, recording_doubts
from earatlas.localization.reverberant_localizer import ReverberantLocalizer
from earatlas.tracking.online import OnlineTracker
from earatlas.tracking.online_track import OnlineTrack
from earatlas.tracking.onset_buffer import OnsetBuffer
from earatlas.tracking.settings import TrackerSettings
from earatlas.types import Array

__all__ = ["TrackingFrontEnd"]

# Evidence: docs/figures/settings/tracking.md, "front_end".
_WINDOW_STEPS = 24  # length of the onset buffer: 3 s
_NOISE_FLOOR_SECONDS = 10.0  # time constant (1/e) of the noise floor and the peak
# Decay times (60 dB, fastest decays) of the decision reverberant or anechoic, seconds
_ENTER_DECAY_SECONDS = 0.24  # longer: becomes reverberant
_LEAVE_DECAY_SECONDS = 0.20  # shorter: is not reverberant any more
_ANECHOIC_DECAY_SECONDS = 0.22  # shorter: anechoic
_EARLY_MARGIN = 0.4  # relative increase of _ENTER_DECAY_SECONDS at the start
_EARLY_SECONDS = 4.0  # active sound until the margin is 0
# Diffuse-to-direct ratio of two sources that were separated with anechoic filters
_REVERBERANT_DIFFUSE_RATIO = 0.012  # larger: reverberant if the decay is long, too
_CLEARLY_REVERBERANT_DIFFUSE_RATIO = 0.03  # larger: reverberant unless the decay is short
_DIAGNOSTICS_INTERVAL_STEPS = 8  # steps between decisions


class TrackingFrontEnd:
    """Detects onsets in a stream, tracks its sources and diagnoses reverberation."""

    def __init__(
        self,
        localizer: ReverberantLocalizer,
        yaw_at: Callable[[Array], Array],
        settings: TrackerSettings,
    ) -> None:
        onset_settings = localizer.direct_sound.onset_settings
        self.sound = localizer.direct_sound
        self._frame_seconds = onset_settings.hop / onset_settings.rate
        forgetting = float(np.exp(-self._frame_seconds / _NOISE_FLOOR_SECONDS))
        self._onsets = OnsetDetector(onset_settings, forgetting=forgetting)
        self._buffer = OnsetBuffer(localizer.direct_sound, _WINDOW_STEPS)
        self._tracker = OnlineTracker(self._buffer, settings)
        self._yaw_at = yaw_at
        self._n_steps = self._n_frames = 0
        self._active_seconds = 0.0
        self.reverberant = self.anechoic = False  # both False: not decided yet
        self.slow_decay = False  # the decay so far is that of a reverberant room
        self.directional = True  # the two channels are not identical
        self.doubts: tuple[Doubt, ...] = ()

    @property
    def tracks(self) -> list[OnlineTrack]:
        """All tracks, tentative ones included."""
        return self._tracker.tracks

    @property
    def confirmed(self) -> list[OnlineTrack]:
        """The confirmed tracks."""
        return self._tracker.confirmed

    def apply_cue_directions(self, directions: Mapping[int, Array]) -> None:
        """Move tracks to directions (C,), by track id, estimated from long-window cues."""
        self._tracker.apply_cue_directions(directions)

    @property
    def maybe_reverberant(self) -> bool:
        """Whether the sound is reverberant, or its decay so far is slow."""
        return self.reverberant or self.slow_decay

    @property
    def max_tracks(self) -> int:
        """Largest number of confirmed tracks at a time."""
        return self._tracker.settings.max_tracks

    def best_pair(self) -> Array | None:
        """Return the two directions (2, C) that explain the onsets best; None without onsets."""
        return self._tracker.best_pair()

    def split(self, track: OnlineTrack, directions: Array, now: float) -> None:
        """Split a track into two at directions (2, C), because its signal has two speakers."""
        self._tracker.split(track, directions, now)

    def confirm_by_signal(self, ids: Collection[int], now: float) -> None:
        """Mark tracks as different speakers by their separated signals."""
        self._tracker.confirm_by_signal(ids, now)

    def register_hit(self, track_id: int, now: float) -> None:
        """Count a hit for a track whose separated signal is active."""
        self._tracker.register_hit(track_id, now)

    def merge(self, ids: Collection[int]) -> None:
        """Merge tracks that are one speaker."""
        self._tracker.merge(ids)

    def step(
        self, samples: Array, now: float, seconds: float, diffuse_ratio: float | None = None
    ) -> None:
        """Process the samples (2, n) of the last `seconds` before `now`.

        `diffuse_ratio` is the diffuse-to-direct ratio of two sources that were separated with
        anechoic filters; None if it is not known.
        """
        self._onsets.push(samples)
        new = self._onsets.onsets_since(self._n_frames)
        yaws = self._yaw_at(new.t.astype(np.float64) * self._frame_seconds)
        self._buffer.add(new, yaws, self._onsets.frames, seconds)
        self._tracker.step(now, seconds, float(self._yaw_at(np.array([now]))[0]))
        self._n_frames = self._onsets.frames
        self._n_steps += 1
        self._active_seconds += seconds if len(new) else 0.0
        if self._n_steps % _DIAGNOSTICS_INTERVAL_STEPS == 0:
            bins = self._onsets.bins()
            fits = len(bins) == 0  # silence is no reason for a doubt
            self.slow_decay = bins.decay_seconds > _ENTER_DECAY_SECONDS
            self.reverberant = self._decide_reverberant(bins.decay_seconds, diffuse_ratio)
            clearly_diffuse = (
                diffuse_ratio is not None and diffuse_ratio > _CLEARLY_REVERBERANT_DIFFUSE_RATIO
            )
            self.anechoic = bins.decay_seconds < _ANECHOIC_DECAY_SECONDS and not clearly_diffuse
            self.directional = not channels_identical(bins)
            self.doubts = tuple(recording_doubts(bins, now, fits=fits))

    def _decide_reverberant(self, decay_seconds: float, diffuse_ratio: float | None) -> bool:
        """Decide from the decay time and the diffuse-to-direct ratio, with hysteresis.

        Several talkers fill each other's pauses, which lengthens the decays at first: without a
        diffuse-to-direct ratio the threshold is higher in the first seconds.
        """
        if self.reverberant:
            return decay_seconds > _LEAVE_DECAY_SECONDS
        if diffuse_ratio is not None:
            if diffuse_ratio > _CLEARLY_REVERBERANT_DIFFUSE_RATIO:
                return decay_seconds > _LEAVE_DECAY_SECONDS
            return (
                decay_seconds > _ENTER_DECAY_SECONDS and diffuse_ratio > _REVERBERANT_DIFFUSE_RATIO
            )
        early = _EARLY_MARGIN * max(1 - self._active_seconds / _EARLY_SECONDS, 0.0)
        return decay_seconds > _ENTER_DECAY_SECONDS * (1 + early)
