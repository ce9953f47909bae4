"""Online multi-target tracker: tracks of the sources of a stream, from onset bins.

Inputs: the buffered onset bins of the last seconds (`OnsetBuffer`), one step at a time. Output: a
list of `OnlineTrack`. In each step the bins are explained by a mixture of the tracks, each at the
direction that it had at the time of the bin, and a diffuse component (`SourceMixture`):

    L = Σ_n v_n log(Σ_m π_m g_n(x_m(t_n)) + π_0)

    B, M, G   bins in the buffer, tracks, coarse directions
    v_n       weight of bin n: bins of one frequency share about one vote
    g_n(x)    density of bin n around direction x, relative to diffuse sound
    π_m, π_0  mixing weights of the tracks and of the diffuse component
    gain      log-likelihood ratio of a track: L with it minus L without it, in nats per bin

A track is tentative, confirmed, coasting or deleted; `earatlas.tracking.online_track` has the table
of transitions. What causes them, with settings of `earatlas.tracking.settings`:

    gating        `OnsetBuffer.gate_mask`: no track begins in the gate of another
    birth         `_initiate_track`: where one more source has the largest gain, if that exceeds
                  the required gain (`_required_gain`), which is larger on the cone of confusion of
                  an active track
    hit or miss   `_is_hit`: the gain of the newest bins and of all buffered bins
    confirmation  `_is_due`: enough hits at the required gain; what whole frequency bands of a
                  static track explain better is subtracted from the gain (`_band_excess`). A track
                  that continues a lost one is absorbed by it (`_continues`); if there are
                  `max_tracks`, the one with the oldest hit is replaced if it coasts
    death         `_has_timed_out`: too many misses of a tentative track, too long without a hit;
                  `_delete_redundant`: a low gain for long beside a track with a higher gain

The separated signals confirm, split and merge tracks, too (`confirm_by_signal`, `split`, `merge`).
A confirmed track is static or moving (`earatlas.tracking.position_update`). Two tracks of which one
is moving are *crossing* while they are close: onsets cannot distinguish them, so a moving one keeps
its velocity. Where on its cone of confusion a track is, long-window cues tell better than onsets in
anechoic sound (`apply_cue_directions`, `earatlas.tracking.position_update`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from earatlas.geometry.angles import to_vectors
from earatlas.localization.onset_likelihood import DirectionLogLikelihood
from earatlas.localization.onset_mixture import SourceMixture
from earatlas.tracking.online_track import OnlineTrack, TrackEvent, TrackState
from earatlas.tracking.onset_buffer import OnsetBuffer
from earatlas.tracking.position_update import ConeDisambiguation, PositionUpdate
from earatlas.tracking.settings import TrackerSettings
from earatlas.types import Array, Single

__all__ = ["OnlineTracker"]


class OnlineTracker:
    """The tracks of a stream."""

    def __init__(self, buffer: OnsetBuffer, settings: TrackerSettings) -> None:
        self.settings, self.buffer = settings, buffer
        self.tracks: list[OnlineTrack] = []  # without deleted ones, between two steps
        self._next_id = 1
        self.n_steps = 0  # so far
        self._cone_disambiguation = ConeDisambiguation(buffer, settings)
        self._position_update = PositionUpdate(buffer, settings)

    @property
    def confirmed(self) -> list[OnlineTrack]:
        """The confirmed tracks, including those that are coasting."""
        return [track for track in self.tracks if track.confirmed]

    def step(self, now: float, seconds: float, yaw: float = 0.0) -> None:
        """Predict and update all tracks for a step that lasts `seconds` and ends at `now`.

        `yaw` is the head's yaw in degrees at the end of the step.
        """
        self.buffer.set_yaw(yaw)
        self.n_steps += 1
        for track in self.tracks:
            track.predict(seconds)
        if len(self.buffer):
            mixture = self._update_tracks(now)
            interval = self.settings.initiation.interval_steps
            if self.n_steps % interval == 0:
                self._initiate_track(mixture, now)
            elif self.tracks:
                m = (self.n_steps // interval) % len(self.tracks)
                settled = self.tracks[m].is_settled(now, self.settings.motion.settled_seconds)
                self._cone_disambiguation.search_cone(self.tracks, m, mixture, settled=settled)
        else:
            for track in self.tracks:
                track.density_history.append(np.zeros(0, dtype=np.float32))
                track.register_miss()
        self._delete_redundant(now)
        self._prune(now)

    # --- update of the existing tracks ------------------------------

    def _update_tracks(self, now: float) -> SourceMixture:
        """Update score and position of each track, and return their mixture over the bins."""
        tracks, motion, v = self.tracks, self.settings.motion, self.buffer.weights
        mixture = self._fit_mixture(self._density_histories())
        for m, track in enumerate(tracks):
            crossing = self._update_crossing(m, now)
            tentative = track.state is TrackState.TENTATIVE and not track.moving
            track.band_excess = self._band_excess(mixture, m, now) if tentative else 0.0
            self._update_score(track, mixture.gains(m), v, now, crossing)
            if crossing and track.moving:
                continue
            too_few_bins = v @ mixture.responsibilities(m) < 1.0
            if track.misses > motion.max_update_misses or too_few_bins:
                continue  # no bins locate a track that is coasting
            established = track.hits > motion.established_hits and track.is_settled(
                now, motion.settled_seconds
            )
            if established and (self.n_steps + track.id) % motion.settled_interval_steps:
                continue
            self._position_update.update(tracks, mixture, m, now)
            mixture = mixture.relocated(m, np.concatenate(list(track.density_history)))
        return mixture

    def _fit_mixture(self, densities: Array) -> SourceMixture:
        """Return the mixture of tracks with densities (B, M) along their histories."""
        return SourceMixture.fit(densities, self.buffer.weights, self.settings.buffer.mixture)

    def _band_excess(self, mixture: SourceMixture, m: int, now: float) -> float:
        """Return by how much bands of track m or a static one explain the bins better, nats."""
        static = [
            j
            for j, other in enumerate(self.tracks)
            if other.confirmed and other.is_active(now) and not other.moving
        ]
        settings = self.settings.buffer.mixture
        return mixture.band_excess(m, static, self.buffer.frequencies, settings)

    def _density_histories(self) -> Array:
        """Append the newest bins to the history of each track; return all densities (B, M)."""
        tracks, buffer = self.tracks, self.buffer
        if tracks:
            directions = np.stack([track.direction for track in tracks])
            newest = buffer.densities_at(directions, buffer.newest)
            for m, track in enumerate(tracks):
                track.density_history.append(newest[:, m])
                track.vector_history.append(track.vector)
        return self._densities(tracks)

    def _densities(self, tracks: Sequence[OnlineTrack]) -> Array:
        """Return the densities (B, M) of all bins along the histories of tracks."""
        histories = [np.concatenate(list(track.density_history)) for track in tracks]
        return np.array(histories, dtype=np.float64).reshape(len(tracks), len(self.buffer)).T

    def _update_score(
        self, track: OnlineTrack, gains: Array, v: Array, now: float, crossing: bool
    ) -> None:
        """Register a hit or a miss from the gain of each bin (B,), in nats; confirm if due."""
        new = self.buffer.newest
        new_gain = float(gains[new].sum()) / max(float(v[new].sum()), 1e-9)
        track.gain = float(gains.sum()) / max(float(v.sum()), 1e-9)
        hit = len(gains[new]) > 0 and self._is_hit(track, new_gain, now)
        if hit:
            track.hits += 1
            track.total_gain += track.gain
            track.register_hit(now)
        else:
            track.register_miss(occluded=crossing)
        track.gain_ratio = (track.gain - track.band_excess) / self._required_gain(track, now)
        track.count_low_likelihood(
            hit, track.gain_ratio < self.settings.deletion.low_likelihood_ratio
        )
        if hit and track.state is TrackState.TENTATIVE and self._is_due(track):
            self._confirm(track, now)

    def _is_hit(self, track: OnlineTrack, new_gain: float, now: float) -> bool:
        """Return whether a track explains the newest bins, with `new_gain` nats per bin.

        It must explain the buffered bins, too; a tentative one with most of the required gain.
        """
        settings = self.settings.confirmation
        if track.state is TrackState.TENTATIVE:
            min_gain = settings.tentative_gain_ratio * self._required_gain(track, now)
        else:
            min_gain = settings.buffered_nats_per_bin
        return new_gain > settings.hit_nats_per_bin and track.gain > min_gain

    def _is_due(self, track: OnlineTrack) -> bool:
        """Return whether a tentative track is confirmed."""
        settings = self.settings.confirmation
        strong = track.gain_ratio > settings.strong_gain_ratio
        hits = settings.strong_hits if strong else settings.hits
        return track.gain_ratio > 1 and track.hits >= hits

    def _confirm(self, track: OnlineTrack, now: float) -> None:
        """Confirm a tentative track, or give it to a lost track that it continues.

        With `max_tracks` confirmed ones, the track with the oldest hit is replaced if it coasts.
        """
        lost = [other for other in self.confirmed if self._continues(track, other)]
        if lost:
            min(lost, key=lambda other: other.id).absorb(track)
            return
        others = self.confirmed
        if len(others) >= self.settings.max_tracks:
            oldest = min(others, key=lambda other: other.last_hit_at)
            if oldest.state is not TrackState.COASTING or oldest.is_active(now):
                return
            oldest.handle(TrackEvent.REPLACED)
        track.handle(TrackEvent.CONFIRMED)

    def _continues(self, track: OnlineTrack, lost: OnlineTrack) -> bool:
        """Return whether a track may continue one that was lost while moving or when new."""
        settings, lateral_angle = self.settings.recovery, self.buffer.lateral_angle
        away_seconds = track.initiated_at - lost.last_hit_at
        if not lost.misses or lost.gain > settings.gain_ratio * track.gain:
            return False
        if away_seconds > settings.max_seconds or not lost.recoverable:
            return False
        distance = abs(lateral_angle(lost.last_hit_vector) - lateral_angle(track.vector))
        speed = self.settings.motion.innovation_degrees_per_second
        return bool(distance < settings.max_degrees + speed * max(away_seconds, 0.0))

    def _required_gain(self, track: OnlineTrack, now: float) -> float:
        """Return the gain, in nats per bin, that a track needs beside the active tracks."""
        others = [
            t
            for t in self.tracks
            if t is not track and t.is_active(now) and (t.confirmed or t.id < track.id)
        ]
        shared = any(self.buffer.is_on_cone(other, track.vector) for other in others)
        if track.is_confirmed_by_signal(now, self.settings.confirmation.signal_seconds):
            shared = False
        penalty = self.settings.buffer.mixture.same_cone_nats if shared else 0.0
        return self._initiation_threshold(len(others)) + penalty

    def _initiation_threshold(self, n_others: int) -> float:
        """Return the gain, in nats per bin, that one more track needs beside `n_others`."""
        if n_others == 0:
            return self.settings.initiation.first_nats_per_bin
        return self.settings.buffer.mixture.required_gain(n_others)

    def _update_crossing(self, m: int, now: float) -> bool:
        """Set and return whether track m crosses another one, so that bins do not separate them."""
        track = self.tracks[m]
        close = track.confirmed and any(
            other is not track
            and other.confirmed
            and (other.moving or track.moving)
            and (other.crossing or other.is_active(now))
            and self.buffer.is_in_gate(other, track.vector)
            for other in self.tracks
        )
        if not close:
            track.crossing_since = None
        elif track.crossing_since is None:
            track.crossing_since = now
        since, limit = track.crossing_since, self.settings.motion.max_crossing_seconds
        track.crossing = since is not None and now - since < limit
        return track.crossing

    # --- initiation and deletion ------------------------------

    def _initiate_track(self, mixture: SourceMixture, now: float) -> None:
        """Initiate a tentative track at the direction with the largest gain over all tracks."""
        settings, buffer = self.settings.initiation, self.buffer
        tentative = [track for track in self.tracks if track.state is TrackState.TENTATIVE]
        if len(tentative) >= self.settings.max_tracks:
            return
        weight = settings.new_weight if self.tracks else settings.first_weight
        gains = mixture.one_more(buffer.densities, weight)
        n_bins = max(float(mixture.weights.sum()), 1e-9)
        active = [track for track in self.tracks if track.is_active(now)]
        penalty = np.zeros(len(gains))
        for track in active:
            penalty[buffer.cone_mask(track)] = self.settings.buffer.mixture.same_cone_nats
        for track in self.tracks:
            penalty[buffer.gate_mask(track)] = np.inf
            if track.moving:
                penalty[buffer.path_mask(track)] = np.inf
        net_gains = gains / n_bins - penalty
        # The prior of front before rear decides ties, and not whether there is a source.
        best = int((net_gains + buffer.log_prior / n_bins).argmax())
        too_low = net_gains[best] < self._initiation_threshold(len(active))
        if not too_low and gains[best] >= settings.min_nats:
            history = buffer.split_by_step(buffer.densities[:, best])
            self._new_track(buffer.vectors[best], history, now)

    def _new_track(self, vector: Array, history: deque[Single], now: float) -> OnlineTrack:
        """Append a tentative track at a unit vector (3,) with a density history."""
        track = OnlineTrack(
            self._next_id,
            vector,
            now,
            history,
            deque([vector], maxlen=self.buffer.max_steps),
            np.zeros(len(self.buffer.directions), dtype=np.float32),
            self.settings.track,
            hits=1,
        )
        self._next_id += 1
        self.tracks.append(track)
        return track

    def _delete_redundant(self, now: float) -> None:
        """Delete confirmed tracks whose gain was low for long while others have a higher gain.

        If such a track shares the cone of confusion with one of them, the two are merged, and the
        id of the one with the larger total gain is kept.
        """
        for track in self.confirmed:
            others = [
                other
                for other in self.confirmed
                if other.is_active(now) and other.gain > track.gain
            ]
            is_low = track.low_likelihood_steps > self.settings.deletion.max_low_likelihood_steps
            if track.state is TrackState.DELETED or not is_low or not others:
                continue
            same_cone = [other for other in others if self.buffer.is_on_cone(other, track.vector)]
            strongest = max(same_cone or [track], key=lambda other: other.gain)
            if strongest is not track and track.total_gain > strongest.total_gain:
                track.absorb(strongest)
            else:
                track.handle(TrackEvent.REDUNDANT)

    def _prune(self, now: float) -> None:
        """Delete tracks without hits for too long, and remove all deleted ones."""
        for track in self.tracks:
            if self._has_timed_out(track, now):
                track.handle(TrackEvent.TIMED_OUT)
        self._remove_deleted()

    def _remove_deleted(self) -> None:
        """Remove the deleted tracks."""
        self.tracks = [track for track in self.tracks if track.state is not TrackState.DELETED]

    def _has_timed_out(self, track: OnlineTrack, now: float) -> bool:
        """Return whether a track has had too many misses, or has coasted for too long."""
        settings = self.settings.deletion
        if track.state is TrackState.TENTATIVE:
            return track.misses > settings.max_tentative_misses
        limit = max(settings.coast_seconds_per_hit * track.hits, settings.min_coast_seconds)
        limit = min(limit, settings.max_coast_seconds)
        return track.state is TrackState.COASTING and now - track.last_hit_at > limit

    # --- corrections by cues and by the separated signals ------------------------------

    def direction_log_likelihood(
        self, track: OnlineTrack, now: float
    ) -> DirectionLogLikelihood | None:
        """Return the log-likelihood of a static track beside the other confirmed ones.

        None: there are no bins since it is static. Beside no other track, all bins are its own.
        """
        tracks = [track, *(other for other in self.confirmed if other is not track)]
        if len(tracks) > 1:
            mixture = self._fit_mixture(self._densities(tracks))
        else:
            only = np.array([[1.0], [0.0]])
            mixture = SourceMixture(self._densities(tracks), only, self.buffer.weights)
        return self.buffer.direction_log_likelihood(mixture, 0, now - track.static_since)

    def apply_cue_directions(self, directions: Mapping[int, Array]) -> None:
        """Move tracks to directions (C,), by track id, estimated from long-window cues."""
        self._cone_disambiguation.apply_cue_directions(self.tracks, directions)

    def confirm_by_signal(self, ids: Collection[int], now: float) -> None:
        """Mark tracks as different speakers by their separated signals, whatever onsets suggest."""
        for track in self.tracks:
            if track.id in ids:
                track.confirm_by_signal(now)

    def register_hit(self, track_id: int, now: float) -> None:
        """Count a hit for a track whose separated signal is active, whatever onsets suggest."""
        for track in self.tracks:
            if track.id == track_id:
                track.register_hit(now)

    def split(self, track: OnlineTrack, directions: Array, now: float) -> None:
        """Split a track into two at directions (2, C), because its signal has two speakers."""
        vectors = to_vectors(directions)
        kept = int((vectors @ track.vector).argmax())
        vector = vectors[1 - kept]
        others = [t for t in self.confirmed if t is not track and self.buffer.is_on_cone(t, vector)]
        if not others and len(self.confirmed) >= self.settings.max_tracks:
            return
        for tentative in self.tracks:
            if not tentative.confirmed:
                tentative.handle(TrackEvent.ABSORBED)
        self._remove_deleted()
        self._relocate(track, vectors[kept])
        if others:
            other = min(others, key=lambda t: t.id)
            self._relocate(other, vector)
        else:
            other = self._new_track(vector, self.buffer.history_at(vector), now)
        track.gain = other.gain = track.gain / 2
        for one in (track, other):
            one.confirm_by_signal(now)
            one.register_hit(now)

    def merge(self, ids: Collection[int]) -> None:
        """Merge tracks that are one speaker: keep the one with the largest total gain."""
        merged = [track for track in self.tracks if track.id in ids]
        if len(merged) < 2:
            return
        kept = max(merged, key=lambda track: track.total_gain)
        kept.confirmed_by_signal_at = -np.inf
        for track in merged:
            if track is not kept:
                track.handle(TrackEvent.ABSORBED)
        self._remove_deleted()

    def _relocate(self, track: OnlineTrack, vector: Array) -> None:
        """Move a track to a unit vector (3,), with a history as if it had always been there."""
        track.reset(vector)
        track.density_history = self.buffer.history_at(vector)
        track.located_by_cues, track.posterior = False, None
        track.cone_memory = np.zeros_like(track.cone_memory)
