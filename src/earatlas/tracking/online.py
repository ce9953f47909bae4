"""Online multi-target tracker: tracks of the sources of a stream, from onset bins.

Inputs: the buffered onset bins of the last seconds (`OnsetBuffer`), one step at a time. Output: a
list of `OnlineTrack`. In each step the bins are explained by a mixture of the tracks, each at the
direction that it had at the time of the bin, and a diffuse component:

    L = Σ_n v_n log(Σ_m π_m g_n(x_m(t_n)) + π_0)

    B, M      bins in the buffer, tracks
    v_n       weight of bin n: bins of one frequency share about one vote
    g_n(x)    density of bin n around direction x, relative to diffuse sound
    π_m, π_0  mixing weights of the tracks and of the diffuse component
    gain      log-likelihood ratio of a track: L with it minus L without it, in nats per bin

**States of a track.** A hit is a step in which the gain of the newest bins and of all buffered bins
is above a threshold; any other step is a miss.

    state      from       transition
    tentative  (none)     initiated where a new source has the largest gain, outside of all gates;
                          more gain is required on the cone of confusion of an active track
    confirmed  tentative  enough hits (`confirm_hits`, fewer if the gain is high) at the required
                          gain; or `split` by its signal; the oldest coasting track is deleted if
                          there are already `max_tracks`
    coasting   confirmed  misses: the position is predicted, and the radius grows with time
    confirmed  coasting   a hit, or a tentative track that continues it (recovery)
    deleted    tentative  more than `max_tentative_misses` misses in a row, or absorbed (recovery)
    deleted    coasting   no hit for half a second per earlier hit (at least 5 s, at most
                          `max_coast_seconds`); or replaced as the oldest one
    deleted    confirmed  a low gain for `max_low_likelihood_steps` hits while another track has a
                          higher gain (merged with that track if both are on one cone), or `merge`

A confirmed track is static or moving (`earatlas.tracking.position_update`). Two tracks of which one
is moving are *crossing* while they are close: onsets cannot distinguish them, so a moving one keeps
its velocity. Where on its cone of confusion a track is, long-window cues tell better than onsets in
anechoic sound (`apply_cue_directions`, `earatlas.tracking.cone_disambiguation`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

import numpy as np

from earatlas.geometry.angles import to_vectors
from earatlas.tracking.cone_disambiguation import ConeDisambiguation
from earatlas.tracking.observations import OnsetObservations
from earatlas.tracking.online_track import OnlineTrack
from earatlas.tracking.onset_buffer import OnsetBuffer
from earatlas.tracking.position_update import PositionUpdate
from earatlas.tracking.settings import TrackerSettings
from earatlas.types import Array, Single

__all__ = ["OnlineTracker"]


# Evidence: docs/figures/settings/tracking.md, "online".
_INITIAL_DIFFUSE_WEIGHT = 0.1  # mixing weight of the diffuse component before the iterations
_NEW_WEIGHT = 0.2  # mixing weight that a new source is searched with
_FIRST_WEIGHT = 0.3  # the same while there is no track
_WEIGHT_ITERATIONS = 10  # EM iterations of the mixing weights
_HIT_GAIN = 0.03  # gain of the newest bins in a hit, nats per bin
_MIN_GAIN = 0.02  # gain of all buffered bins in a hit, nats per bin


class OnlineTracker:
    """The tracks of a stream."""

    def __init__(self, buffer: OnsetBuffer, settings: TrackerSettings) -> None:
        self.settings, self._buffer = settings, buffer
        self.tracks: list[OnlineTrack] = []
        self._next_id = 1
        self._n_steps = 0
        self._observations = OnsetObservations(buffer, settings.gate_degrees)
        self._cone_disambiguation = ConeDisambiguation(self._observations, settings)
        self._position_update = PositionUpdate(self._observations, settings)

    @property
    def confirmed(self) -> list[OnlineTrack]:
        """The confirmed tracks, including those that are coasting."""
        return [track for track in self.tracks if track.confirmed and not track.deleted]

    def apply_cue_directions(self, directions: Mapping[int, Array]) -> None:
        """Move tracks to directions (C,), by track id, estimated from long-window cues."""
        self._cone_disambiguation.apply_cue_directions(self.tracks, directions)

    def best_pair(self) -> Array | None:
        """Return the two directions (2, C) that explain the onsets best; None without onsets."""
        return self._observations.best_pair() if len(self._buffer) else None

    def split(self, track: OnlineTrack, directions: Array, now: float) -> None:
        """Split a track into two at directions (2, C), because its signal has two speakers."""
        vectors = to_vectors(directions)
        kept = int((vectors @ track.vector).argmax())
        vector = vectors[1 - kept]
        others = [
            t for t in self.confirmed if t is not track and self._observations.is_on_cone(t, vector)
        ]
        if not others and len(self.confirmed) >= self.settings.max_tracks:
            return
        self.tracks = self.confirmed
        self._relocate(track, vectors[kept])
        if others:
            other = min(others, key=lambda t: t.id)
            self._relocate(other, vector)
        else:
            other = self._new_track(vector, self._observations.densities_at(vector), now)
        other.confirmed_at = now if other.confirmed_at is None else other.confirmed_at
        track.gain = other.gain = track.gain / 2
        self.confirm_by_signal((track.id, other.id), now)
        for one in (track, other):
            one.register_hit(now)

    def confirm_by_signal(self, ids: Collection[int], now: float) -> None:
        """Mark tracks as different speakers by their separated signals, whatever onsets suggest."""
        for track in self.tracks:
            if track.id in ids:
                track.confirmed_by_signal_at, track.low_likelihood_steps = now, 0

    def register_hit(self, track_id: int, now: float) -> None:
        """Count a hit for a track whose separated signal is active, whatever onsets suggest."""
        for track in self.tracks:
            if track.id == track_id:
                track.misses = 0
                track.register_hit(now)

    def merge(self, ids: Collection[int]) -> None:
        """Merge tracks that are one speaker: keep the one with the largest total gain."""
        merged = [track for track in self.tracks if track.id in ids]
        if len(merged) < 2:
            return
        kept = max(merged, key=lambda track: track.total_gain)
        for track in merged:
            track.deleted, track.confirmed_by_signal_at = track is not kept, -np.inf
        self.tracks = [track for track in self.tracks if not track.deleted]

    def _relocate(self, track: OnlineTrack, vector: Array) -> None:
        """Move a track to a unit vector (3,), with a history as if it had always been there."""
        track.reset(vector)
        densities = self._observations.densities_at(vector)
        track.density_history = self._observations.split_by_step(densities)
        track.located_by_cues = False
        track.cone_memory = np.zeros_like(track.cone_memory)

    def step(self, now: float, seconds: float, yaw: float = 0.0) -> None:
        """Predict and update all tracks for a step that lasts `seconds` and ends at `now`.

        `yaw` is the head's yaw in degrees at the end of the step.
        """
        self._observations.set_yaw(yaw)
        self._n_steps += 1
        for track in self.tracks:
            track.predict(seconds)
        if len(self._buffer):
            v = self._buffer.weights
            likelihoods = self._update_tracks(v, now)
            interval = self.settings.initiation_interval_steps
            if self._n_steps % interval == 0:
                self._initiate_track(v, likelihoods, now)
            elif self.tracks:
                m = (self._n_steps // interval) % len(self.tracks)
                settled = self.tracks[m].is_settled(now, self.settings.settled_seconds)
                self._cone_disambiguation.search_cone(
                    self.tracks, m, v, likelihoods, settled=settled
                )
        else:
            for track in self.tracks:
                track.density_history.append(np.zeros(0, dtype=np.float32))
        self._merge_redundant(now)
        self._prune(now)

    # --- update of the existing tracks ---------------------------------------------------------

    def _update_tracks(self, v: Array, now: float) -> Array:
        """Update score and position of each track.

        Return the likelihoods (B, M + 1): π_m g_n of each track, and π_0 of the diffuse component.
        """
        tracks, buffer, settings = self.tracks, self._buffer, self.settings
        if tracks:
            newest = buffer.densities_at(
                np.stack([track.direction for track in tracks]), buffer.newest
            )
            for m, track in enumerate(tracks):
                track.density_history.append(newest[:, m])
                track.vector_history.append(track.vector)
        densities = np.array(
            [np.concatenate(list(track.density_history)) for track in tracks], dtype=np.float64
        )
        densities = densities.reshape(len(tracks), len(v)).T  # (B, M)
        weights = _mixing_weights(densities, v, settings.min_weight)
        likelihoods = np.concatenate([densities, np.ones((len(v), 1))], axis=1) * weights
        for m, track in enumerate(tracks):
            total = likelihoods.sum(axis=1)
            others = total - likelihoods[:, m]
            # Without the track, its mixing weight goes to the others and the diffuse component.
            without = others / max(1 - weights[m], 1e-3)
            crossing = self._update_crossing(m, now)
            self._update_score(track, v * np.log(total / without), v, now, crossing)
            if crossing and track.moving:
                continue
            too_few_bins = v @ (likelihoods[:, m] / total) < 1.0
            if track.misses > settings.max_update_misses or too_few_bins:
                continue  # no bins locate a track that is coasting
            established = track.hits > settings.established_hits and track.is_settled(
                now, settings.settled_seconds
            )
            if established and (self._n_steps + track.id) % settings.settled_interval_steps:
                continue
            self._position_update.update(tracks, m, others, densities[:, m], float(weights[m]), now)
            likelihoods[:, m] = weights[m] * np.concatenate(list(track.density_history))
        return likelihoods

    def _update_score(
        self, track: OnlineTrack, gains: Array, v: Array, now: float, crossing: bool
    ) -> None:
        """Count a hit or a miss from the gain of each bin (B,), in nats; confirm if due."""
        settings, new = self.settings, self._buffer.newest
        new_weight = max(float(v[new].sum()), 1e-9)
        new_gain = float(gains[new].sum())
        track.gain = float(gains.sum()) / max(float(v.sum()), 1e-9)
        hit_now = new_gain / new_weight > _HIT_GAIN and len(gains[new]) > 0
        hit = hit_now and track.gain > _MIN_GAIN
        if not track.confirmed:  # a tentative track must keep most of the gain that it began with
            required = self._required_gain(track, now)
            hit = hit_now and track.gain > settings.tentative_gain_ratio * required
        if hit:
            track.hits += 1
            track.total_gain += track.gain
            track.misses = 0
            track.register_hit(now)
        elif crossing:
            track.misses = 0
        else:
            track.misses += 1
        ratio = track.gain / self._required_gain(track, now)
        track.count_low_likelihood(hit, ratio < settings.low_likelihood_ratio)
        strong = ratio > settings.strong_gain_ratio
        min_hits = settings.strong_confirm_hits if strong else settings.confirm_hits
        if hit and not track.confirmed and ratio > 1 and track.hits >= min_hits:
            self._confirm(track, now)

    def _confirm(self, track: OnlineTrack, now: float) -> None:
        """Confirm a tentative track, or give it to a lost track that it continues.

        With `max_tracks` confirmed ones, the track with the oldest hit is replaced if it coasts.
        """
        lost = [other for other in self.confirmed if self._is_recovery(other, track)]
        if lost:
            min(lost, key=lambda other: other.id).absorb(track)
            return
        others = self.confirmed
        if len(others) >= self.settings.max_tracks:
            oldest = min(others, key=lambda other: other.last_hit_at)
            if oldest.is_active(now):
                return
            oldest.deleted = True
        track.confirmed_at = now

    def _is_recovery(self, lost: OnlineTrack, track: OnlineTrack) -> bool:
        """Return whether a track may continue one that was lost while moving or when new."""
        settings, lateral_angle = self.settings, self._observations.lateral_angle
        away_seconds = track.initiated_at - lost.last_hit_at
        if not lost.misses or lost.gain > settings.recovery_gain_ratio * track.gain:
            return False
        if away_seconds > settings.recovery_seconds or not lost.recoverable:
            return False
        distance = abs(lateral_angle(lost.last_hit_vector) - lateral_angle(track.vector))
        grown = settings.innovation_degrees_per_second * max(away_seconds, 0.0)
        return distance < settings.recovery_degrees + grown

    def _merge_redundant(self, now: float) -> None:
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
            is_low = track.low_likelihood_steps > self.settings.max_low_likelihood_steps
            if track.deleted or not is_low or not others:
                continue
            same_cone = [other for other in others if self._observations.share_cone(other, track)]
            strongest = max(same_cone or [track], key=lambda other: other.gain)
            if strongest is not track and track.total_gain > strongest.total_gain:
                track.absorb(strongest)
            else:
                track.deleted = True

    def _required_gain(self, track: OnlineTrack, now: float) -> float:
        """Return the gain, in nats per bin, that a track needs beside the active tracks."""
        others = [
            t
            for t in self.tracks
            if t is not track and t.is_active(now) and (t.confirmed or t.id < track.id)
        ]
        threshold = self._initiation_threshold(len(others))
        shared = any(self._observations.share_cone(other, track) for other in others)
        seconds = self.settings.signal_confirmation_seconds
        if shared and not track.is_confirmed_by_signal(now, seconds):
            return threshold + self.settings.same_cone_nats_per_bin
        return threshold

    def _initiation_threshold(self, n_others: int) -> float:
        """Return the gain, in nats per bin, that one more track needs beside `n_others`."""
        thresholds = self.settings.initiation_nats_per_bin
        return thresholds[min(n_others, len(thresholds) - 1)]

    def _update_crossing(self, m: int, now: float) -> bool:
        """Set and return whether track m crosses another one, so that bins do not separate them."""
        track, settings = self.tracks[m], self.settings
        cosine = np.cos(np.radians(settings.crossing_degrees))
        close = track.confirmed and any(
            other is not track
            and other.confirmed
            and (other.moving or track.moving)
            and (other.crossing or other.is_active(now))
            and float(other.vector @ track.vector) > cosine
            for other in self.tracks
        )
        if not close:
            track.crossing_since = None
        elif track.crossing_since is None:
            track.crossing_since = now
        since = track.crossing_since
        track.crossing = since is not None and now - since < settings.max_crossing_seconds
        return track.crossing

    # --- initiation and deletion ---------------------------------------------------------------

    def _initiate_track(self, v: Array, likelihoods: Array, now: float) -> None:
        """Initiate a tentative track at the direction with the largest gain over all tracks."""
        settings, observations = self.settings, self._observations
        active = [t for t in self.tracks if t.is_active(now)]
        if sum(not t.confirmed for t in self.tracks) >= settings.max_tracks:
            return
        total = likelihoods.sum(axis=1)
        base = float(v @ np.log(total))
        weight = _NEW_WEIGHT if self.tracks else _FIRST_WEIGHT
        gains = observations.log_likelihoods(v, (1 - weight) * total, weight) - base
        penalty = np.zeros(len(gains))
        for track in active:
            penalty[observations.cone_mask(track)] = settings.same_cone_nats_per_bin
        for track in self.tracks:
            penalty[observations.gate_mask(track)] = np.inf
            if track.moving:
                penalty[observations.path_mask(track)] = np.inf
        net_gains = gains / max(float(v.sum()), 1e-9) - penalty
        best = int(net_gains.argmax())
        too_low = net_gains[best] < self._initiation_threshold(len(active))
        if too_low or gains[best] < settings.min_initiation_nats:
            return
        self._new_track(self._buffer.vectors[best], self._buffer.densities[:, best], now)

    def _new_track(self, vector: Array, densities: Single, now: float) -> OnlineTrack:
        """Append a tentative track at a unit vector (3,) with densities (B,) of all bins."""
        track = OnlineTrack(
            self._next_id,
            vector,
            now,
            self._observations.split_by_step(densities),
            deque([vector], maxlen=self._buffer.max_steps),
            np.zeros(len(self._buffer.directions), dtype=np.float32),
        )
        track.hits = 1
        self._next_id += 1
        self.tracks.append(track)
        return track

    def _prune(self, now: float) -> None:
        """Remove deleted tracks, tentative ones with misses, and those that coasted too long."""
        self.tracks = [t for t in self.tracks if not t.deleted and self._survives(t, now)]

    def _survives(self, track: OnlineTrack, now: float) -> bool:
        """Return whether a track is kept after its last misses.

        A confirmed track coasts for half a second per hit, at least 5 s.
        """
        if not track.confirmed:
            return track.misses <= self.settings.max_tentative_misses
        coast_limit = min(max(0.5 * track.hits, 5.0), self.settings.max_coast_seconds)
        return now - track.last_hit_at <= coast_limit


def _mixing_weights(g: Array, v: Array, min_weight: float) -> Array:
    """Fit the mixing weights (M + 1,) of tracks with densities g (B, M); the last is diffuse."""
    M = g.shape[1]
    p = np.concatenate([g, np.ones((len(g), 1))], axis=1)
    w = np.append(np.full(M, (1 - _INITIAL_DIFFUSE_WEIGHT) / max(M, 1)), _INITIAL_DIFFUSE_WEIGHT)
    v = v / max(float(v.sum()), 1e-9)
    for _ in range(_WEIGHT_ITERATIONS):
        w = np.maximum(w * (v / (p @ w) @ p), min_weight)
        w /= w.sum()
    return w
