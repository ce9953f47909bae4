"""Front end of the online tracker: from samples at the head's rate to tracks, one step at a time.

Inputs: binaural samples and the head's yaw. Outputs: tracks in room coordinates, the decision
whether the sound is reverberant, and the doubts that concern all tracks.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from earatlas.features.onset_detector import OnsetBins, OnsetDetector
from earatlas.features.reverberation import UNKNOWN_REVERBERATION
from earatlas.localization.diagnostics import Doubt, RecordingDiagnosis, input_doubt
from earatlas.localization.reverberant_localizer import ReverberantLocalizer
from earatlas.tracking.online import OnlineTracker
from earatlas.tracking.onset_buffer import OnsetBuffer
from earatlas.tracking.settings import TrackerSettings
from earatlas.types import Array

__all__ = ["TrackingFrontEnd"]


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
        forgetting = float(np.exp(-self._frame_seconds / settings.front_end.noise_floor_seconds))
        self._onsets = OnsetDetector(
            onset_settings, forgetting=forgetting, limits=self.sound.interaural_limits
        )
        self.sound.prepare()
        buffer = OnsetBuffer(localizer.direct_sound, settings.buffer)
        self.tracker = OnlineTracker(buffer, settings)
        self._yaw_at, self._interval_steps = yaw_at, settings.front_end.interval_steps
        self._n_steps = self._n_frames = 0
        self._active_seconds = 0.0
        self.reverberation = UNKNOWN_REVERBERATION
        self.directional = True  # the two channels can be the ears of a head
        self.onsets: OnsetBins | None = None  # of the whole stream, at the last decision
        self.doubts: tuple[Doubt, ...] = ()

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
        self.tracker.buffer.add(new, yaws, self._onsets.frames, seconds)
        self.tracker.step(now, seconds, float(self._yaw_at(np.array([now]))[0]))
        self._n_frames = self._onsets.frames
        self._n_steps += 1
        self._active_seconds += seconds if len(new) else 0.0
        if self._n_steps < self._interval_steps:
            self._find_first_faults()
        elif self._n_steps % self._interval_steps == 0:
            bins = self._onsets.bins()
            fits = len(bins) == 0  # silence is no reason for a doubt
            bins = self.onsets = bins.with_reverberation(
                diffuse_ratio=diffuse_ratio,
                was_reverberant=self.reverberation.reverberant,
                active_seconds=self._active_seconds,
            )
            self.reverberation = bins.reverberation
            diagnosis = RecordingDiagnosis.measure(bins, now, fits=fits)
            self.directional = diagnosis.plausible
            self.doubts = tuple(diagnosis.doubts())

    def _find_first_faults(self) -> None:
        """Find faults that void directions before the first decision, as a dead channel does."""
        faults = [one for one in self._onsets.input_faults() if one.fault.voids_direction]
        self.directional, self.doubts = not faults, tuple(map(input_doubt, faults))
