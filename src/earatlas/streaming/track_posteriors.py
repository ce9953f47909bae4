"""Calibrated posteriors of the tracks of a stream, as of sources in a recording.

Inputs: the log-likelihood of the buffered onsets of a track, the cue statistics of its masks, and
the onsets of the whole stream, whose strongest ones replace those of the buffer if the track is the
only one in a room. Output: a `TrackPosterior` per confirmed, static track, by the same decisions as
for a recording (`earatlas.localization.learned_head`):

    anechoic model, where its residual is as small as that of the learned head;
    else the calibrated posterior of the onsets, for one source mixed with that of the cues;
    if another head made the recording, the posterior for its deviation.

Cues are not used while the head turns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from earatlas.features.onset_detector import OnsetBins
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.angles import apply_front_prior, to_vectors, wrap_degrees
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.localization.diagnostics import HeadFit
from earatlas.localization.learned_head import LearnedHead
from earatlas.localization.onset_likelihood import DirectionLogLikelihood
from earatlas.localization.reverberant_localizer import (
    ReverberantLocalizer,
    posterior_mixture,
    widen_posterior,
)
from earatlas.parts import Parts, SpreadComputation
from earatlas.tracking.online import OnlineTracker
from earatlas.tracking.online_track import OnlineTrack, TrackPosterior

__all__ = ["TrackPosteriorSettings", "TrackPosteriors"]


# Evidence: docs/figures/settings/streaming.md, "track_posteriors".
@dataclass(frozen=True, slots=True)
class TrackPosteriorSettings:
    """Posteriors of tracks."""

    interval_steps: int = 8  # steps between updates of one track
    max_turn_degrees: float = 1.0  # turn of the head since the first onset that voids earlier ones
    unsettled_seconds: float = 2.0  # active sound until another head is distinguished from a room
    unsettled_weight: float = 0.25  # of another head until then
    small_room_weight: float = 0.5  # of the mismatch if a small room would explain it, too
    min_cue_frames: float = 2.0  # observed frames from which on cues are used
    # Nats per onset, relative to what is typical, from which on several tracks are those of the
    # learned head: their cues contain each other's sound and cannot decide it.
    own_head_share: float = 0.75


@dataclass(frozen=True, eq=False)
class _Fit:
    """Posterior of one track relative to the head, and how well the head fits."""

    posterior: DirectionPosterior
    residual_ratio: float = math.nan
    nats_per_onset: float = math.nan
    mismatch: float = math.nan


class TrackPosteriors:
    """Updates the posteriors of confirmed tracks."""

    def __init__(self, head: LearnedHead, localizer: ReverberantLocalizer) -> None:
        self._head, self._localizer = head, localizer
        self._settings = TrackPosteriorSettings()
        self._other_head = False  # the tracks that determine a mismatch are those of another head
        self._pending: dict[int, SpreadComputation[TrackPosterior]] = {}  # by track id
        # Seconds, since when the yaw is constant and there is one track; that yaw
        self._alone_since, self._alone_yaw = -math.inf, 0.0
        if head.mismatch is not None:
            head.mismatch.heads.prepare()

    def use_head(self, head: LearnedHead) -> None:
        """Continue with another learned head."""
        self._head, self._other_head = head, False
        self._pending = {}
        if head.mismatch is not None:
            head.mismatch.heads.prepare()
        if head.reverberant_localizer is not None:
            self._localizer = head.reverberant_localizer

    def begin_updates(
        self,
        tracker: OnlineTracker,
        statistics: Mapping[int, CueStatistics],
        onsets: OnsetBins | None,
        now: float,
        yaw: float,
    ) -> None:
        """Begin the updates that are due, for the next hops.

        `statistics` (D,) are those of the cues, by track id; `onsets` those of the whole stream,
        `yaw` the yaw of the head in degrees.
        """
        confirmed = tracker.confirmed
        static = {track.id for track in confirmed if not track.moving}
        self._pending = {i: one for i, one in self._pending.items() if i in static}
        for track in confirmed:
            if track.moving:
                track.posterior = None
        self._other_head = self._is_other_head(confirmed)  # before the updates, which use it
        turn = float(np.abs(wrap_degrees(yaw - self._alone_yaw)))
        if len(confirmed) > 1 or turn > self._settings.max_turn_degrees:
            self._alone_since, self._alone_yaw = now, yaw
        for track in confirmed:
            if (
                not track.moving
                and track.id not in self._pending
                and (track.posterior is None or self._is_due(tracker, track))
            ):
                parts, cues = None, statistics.get(track.id)
                if track.misses == 0:
                    own = self._own_onsets(track, onsets, len(confirmed))
                    if own is not None:
                        parts = self._only_track_parts(own, cues, onsets, yaw)
                    elif likelihood := tracker.direction_log_likelihood(track, now):
                        parts = self._points_parts(likelihood, cues, onsets, len(confirmed), yaw)
                if parts is not None:
                    # One part per hop, which takes up to 20 ms for 2700 directions.
                    self._pending[track.id] = SpreadComputation(parts)

    def _own_onsets(
        self, track: OnlineTrack, onsets: OnsetBins | None, n_tracks: int
    ) -> OnsetBins | None:
        """Return the strongest onsets of the only track in a room, as of a recording.

        They are those since it is alone and static. None: there are other tracks, or too few
        onsets, or the sound is not reverberant.
        """
        if n_tracks > 1 or onsets is None or not onsets.reverberation.reverberant:
            return None
        settings = self._localizer.direct_sound.onset_settings
        since = max(track.static_since, self._alone_since)
        own = onsets[np.flatnonzero(onsets.t * settings.hop > since * settings.rate)]
        return own if own.enough else None

    def _only_track_parts(
        self, own: OnsetBins, cues: CueStatistics | None, onsets: OnsetBins | None, yaw: float
    ) -> Parts[TrackPosterior]:
        """Return the posterior of the only track as points, from its own onsets, in parts.

        The calibration is that of the strongest onsets of a recording. The buffer of the tracker
        has the last seconds alone, and as many onsets of each step: weak ones contain more
        reflections.
        """
        localizer = self._localizer
        yield 1.0
        likelihood = localizer.direct_sound.log_likelihood(own)
        directions = self._head.space.rotated(likelihood.directions, yaw)
        likelihood = replace(likelihood, directions=directions)
        return (yield from self._points_parts(likelihood, cues, onsets, 1, yaw))

    def advance(self, tracker: OnlineTracker) -> None:
        """Run the parts of a hop of the first update that is in progress."""
        if not self._pending:
            return
        track_id, update = next(iter(self._pending.items()))
        if update.advance():
            del self._pending[track_id]
            for track in tracker.confirmed:
                if track.id == track_id:
                    track.posterior = update.result

    def _is_other_head(self, tracks: Sequence[OnlineTrack]) -> bool:
        """Return whether the tracks deviate from the learned head; as before if none is known."""
        mismatch = self._head.mismatch
        known = [
            track.posterior.mismatch
            for track in tracks
            if track.posterior is not None and not math.isnan(track.posterior.mismatch)
        ]
        if mismatch is None or not known:
            return self._other_head
        return min(known) > mismatch.settings.max_same_unit

    def _is_due(self, tracker: OnlineTracker, track: OnlineTrack) -> bool:
        return (tracker.n_steps + track.id) % self._settings.interval_steps == 0

    def _points_parts(
        self,
        likelihood: DirectionLogLikelihood,
        cues: CueStatistics | None,
        onsets: OnsetBins | None,
        n_tracks: int,
        yaw: float,
    ) -> Parts[TrackPosterior]:
        """Return the posterior of a track as points relative to the room, in parts."""
        fit = yield from self._fit_parts(likelihood, cues, onsets, n_tracks, yaw)
        yield 1.0
        posterior = fit.posterior.rotated(yaw) if yaw else fit.posterior
        points = posterior.points
        return TrackPosterior(
            to_vectors(points),
            posterior.log_density(points),
            fit.residual_ratio,
            fit.nats_per_onset,
            fit.mismatch,
        )

    def _fit_parts(
        self,
        likelihood: DirectionLogLikelihood,
        cues: CueStatistics | None,
        onsets: OnsetBins | None,
        n_tracks: int,
        yaw: float,
    ) -> Parts[_Fit]:
        """Return the posterior relative to the head, with the prior of front before rear."""
        # Before the first part: the decision about the head may change until the next one.
        space, localizer, other_head = self._head.space, self._localizer, self._other_head
        yield 1.0
        likelihood = replace(likelihood, directions=space.rotated(likelihood.directions, -yaw))
        if n_tracks > 1:
            posterior = localizer.multi_source_posterior(likelihood)
        else:
            posterior = localizer.score_calibration.posterior(space, likelihood)
        fit = _Fit(posterior, nats_per_onset=float(likelihood.features[0]))
        if cues is not None and float(np.mean(cues.counts)) >= self._settings.min_cue_frames:
            fit = yield from self._with_cues_parts(fit, likelihood, cues, onsets, n_tracks)
        elif other_head:  # the onsets alone are those of a head that was not learned
            fit = replace(fit, posterior=widen_posterior(fit.posterior))
        room = onsets is not None and onsets.reverberation.certainly_reverberant
        mismatch = self._head.mismatch
        if mismatch is not None and mismatch.settings.other_weight and n_tracks == 1 and not room:
            # A population, as in a recording of one source: the head may be of another kind.
            other = mismatch.onset_posterior(mismatch.settings.magnitudes[-1], likelihood)
            weight = 1 - mismatch.settings.other_weight
            fit = replace(fit, posterior=posterior_mixture(fit.posterior, other, weight))
        return replace(fit, posterior=apply_front_prior(fit.posterior))

    def _with_cues_parts(
        self,
        fit: _Fit,
        likelihood: DirectionLogLikelihood,
        cues: CueStatistics,
        onsets: OnsetBins | None,
        n_tracks: int,
    ) -> Parts[_Fit]:
        """Return the fit of the anechoic model, of the onsets, or of another head."""
        yield 1.0
        head, localizer, mismatch = self._head, self._localizer, self._head.mismatch
        batch = head.calibration.calibrated_posteriors(head.model, CueStatistics.stack([cues]))
        ratio = float(batch.residual_ratios[0])
        (anechoic,) = batch.posteriors(np.arange(1))
        weight = 0.0
        if localizer.is_anechoic(ratio, onsets):
            weight = 1.0
        elif n_tracks == 1:
            weight = localizer.anechoic_weight(likelihood.features, ratio)
        mixed = posterior_mixture(anechoic, fit.posterior, weight)
        own = replace(fit, posterior=mixed, residual_ratio=ratio)
        if mismatch is None or mismatch.settings.other_weight:  # a population: see `_fit_parts`
            return own
        if ratio <= mismatch.settings.min_residual_ratio:
            return replace(own, mismatch=mismatch.settings.magnitudes[0])
        typical = localizer.score_calibration.typical_nats_per_onset
        if n_tracks > 1 and fit.nats_per_onset >= self._settings.own_head_share * typical:
            return replace(own, residual_ratio=math.nan)  # the residual is that of the masks
        determined = onsets is not None and onsets.is_clean and mismatch.is_possible(ratio, onsets)
        if not determined and not self._is_unsettled(onsets):
            return own
        found = yield from mismatch.heads.most_probable_parts(batch.effective)
        yield 1.0
        magnitude, (at_magnitude,) = found.magnitude, found.cue_posteriors
        if magnitude <= mismatch.settings.magnitudes[0]:
            return replace(own, mismatch=magnitude) if determined else own
        posterior = mismatch.mixture(magnitude, at_magnitude, likelihood)
        if determined and onsets is not None and not onsets.reverberation.any_room:
            return replace(
                own, posterior=posterior, mismatch=mismatch.heads.certain_magnitude(found)
            )
        settings = self._settings
        share = settings.small_room_weight if determined else settings.unsettled_weight
        return replace(own, posterior=posterior_mixture(posterior, own.posterior, share))

    def _is_unsettled(self, onsets: OnsetBins | None) -> bool:
        """Whether the stream is too short to distinguish another head from a room."""
        if onsets is None:
            return True
        reverberation = onsets.reverberation
        short = reverberation.active_seconds < self._settings.unsettled_seconds
        return not reverberation.reverberant and (short or not reverberation.anechoic)

    def head_fit(self, tracks: Sequence[OnlineTrack], onsets: OnsetBins) -> HeadFit | None:
        """Return how well the head fits: that of the track that fits best; None if unknown."""
        known = [
            track.posterior
            for track in tracks
            if track.posterior is not None and not math.isnan(track.posterior.residual_ratio)
        ]
        if not known:
            return None
        best = min(known, key=lambda one: one.residual_ratio)
        typical = self._localizer.score_calibration.typical_nats_per_onset
        return HeadFit.measure(
            best.residual_ratio,
            best.nats_per_onset,
            typical,
            onsets.reverberation,
            mismatch=best.mismatch,
        )
