"""Who is where: tracks that are born, confirmed, silent and dead, from what arrives.

Each step, the onsets of the last seconds are shared out among the tracks (each explains bins that
fit the place it had then) and diffuse sound:

    L = Σ_n v_n log(Σ_m π_m g_n(x_m(t_n)) + π_0)     g density of bin n around a place, π shares

- A track stands where it explains most beside the others, or walks, if that explains more.
- A place that would explain much that no track does is a new one, tentative at first; on the cone
  of confusion of another it must explain much more, since reflections do that too
  (`earatlas.localization.source_counter`). What fits a track that is silent is that track again.
- A tentative one that goes on explaining is confirmed; one that stops is forgotten. A confirmed one
  that is silent is kept for a while, ever less sure of its place, and then dead.
- Where on its cone one is, cues of long windows tell better than onsets in the open (`tell`).
- Each keeps to its side of the middle between it and others that are heard. Two that come close are
  not told apart by their bins: each goes on as it moved before.
- A new one that comes up where a walker was lost is that walker. One that explains little for long
  is dead; beside one on its cone the two are one, with the name of who has explained more in all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

import numpy as np

from earatlas.geometry.angles import to_vectors
from earatlas.tracking.cone_disambiguation import Elsewhere
from earatlas.tracking.local_search import Before, Fit, Patch
from earatlas.tracking.observations import Places
from earatlas.tracking.online_track import Track
from earatlas.tracking.onset_buffer import Arrivals
from earatlas.tracking.settings import Tracking
from earatlas.types import Array, Single

__all__ = ["Tracker"]


# Shares as in a recording (`earatlas.localization.source_counter`); the rest by hand, as `Tracking`.
_NOWHERE = 0.1  # share of bins to begin with
_NEW_SHARE = 0.2  # that a new source is looked for with
# The first may be one of two that speak at once: with 0.8 two in a room were not born for 4 s.
_FIRST_SHARE = 0.3
_SHARE_STEPS = 10
_HIT_GAIN = 0.03  # nats a bin lately: it is heard
_LEAST_GAIN = 0.02  # nats a bin of the last seconds, that a track that is heard explains
_AUDIBLE_SECONDS = 1.0


class Tracker:
    """The tracks of a stream."""

    def __init__(self, arrivals: Arrivals, how: Tracking) -> None:
        self.how, self._arrivals = how, arrivals
        self.tracks: list[Track] = []
        self._next = 1
        self._steps = 0
        self._places = Places(arrivals, how.near_degrees)
        self._elsewhere = Elsewhere(self._places, how)

    @property
    def confirmed(self) -> list[Track]:
        """Those that are believed."""
        return [track for track in self.tracks if track.confirmed and not track.dead]

    def tell(self, places: Mapping[int, Array]) -> None:
        """Take in places (C,) by name that are surer than onsets about where on its cone one is."""
        self._elsewhere.tell(self.tracks, places)

    def best_two(self) -> Array | None:
        """(2, C) where two would be who are one track yet; None: nothing arrived lately."""
        return self._places.best_two() if len(self._arrivals) else None

    def split(self, track: Track, places: Array, now: float) -> None:
        """One track is two, whose sounds are two voices, at these places (2, C)."""
        vectors = to_vectors(places)
        stays = int((vectors @ track.place).argmax())
        place = vectors[1 - stays]
        others = [t for t in self.confirmed if t is not track and self._places.fit_cone(t, place)]
        if not others and len(self.confirmed) >= self.how.most:
            return
        self.tracks = self.confirmed
        self._put(track, vectors[stays])
        if others:
            other = min(others, key=lambda t: t.id)
            self._put(other, place)
        else:
            other = self._born(place, self._places.at(place), now)
        other.confirmed_at = now if other.confirmed_at is None else other.confirmed_at
        track.gain = other.gain = track.gain / 2
        self.uphold((track.id, other.id), now)
        for one in (track, other):
            one.hear(now)

    def uphold(self, ids: Collection[int], now: float) -> None:
        """These are voices of their own, whatever onsets say."""
        for track in self.tracks:
            if track.id in ids:
                track.upheld_at, track.little = now, 0

    def hear(self, track: int, now: float) -> None:
        """One is heard now, whatever onsets say."""
        for own in self.tracks:
            if own.id == track:
                own.misses = 0
                own.hear(now)

    def join(self, ids: Collection[int]) -> None:
        """These are one voice: who has explained most stays."""
        own = [track for track in self.tracks if track.id in ids]
        if len(own) < 2:
            return
        stays = max(own, key=lambda track: track.explained)
        for track in own:
            track.dead, track.upheld_at = track is not stays, -np.inf
        self.tracks = [track for track in self.tracks if not track.dead]

    def _put(self, track: Track, place: Array) -> None:
        """A track to a place (3,), as if it had always been there."""
        track.jump(place)
        track.trail, track.told = self._places.trail(self._places.at(place)), False
        track.memory = np.zeros_like(track.memory)

    def step(self, now: float, seconds: float, yaw: float = 0.0) -> None:
        """Move on by `seconds`, with the bins that arrived; `yaw` is how the head is turned."""
        self._places.turn(yaw)
        self._steps += 1
        for track in self.tracks:
            track.predict(seconds)
        if len(self._arrivals):
            v = self._arrivals.weights
            heard = self._follow(v, now)
            if self._steps % self.how.new_every == 0:
                self._give_birth(v, heard, now)
            elif self.tracks:
                m = (self._steps // self.how.new_every) % len(self.tracks)
                settled = self._is_settled(self.tracks[m], now)
                self._elsewhere.look(self.tracks, m, v, heard, settled=settled)
        else:
            for track in self.tracks:
                track.trail.append(np.zeros(0, dtype=np.float32))
        self._merge(now)
        self._bury(now)

    # --- those that are known ------------------------------------------------------------------

    def _follow(self, v: Array, now: float) -> Array:
        """Each track to where it explains most; out: (B, M + 1) what each explains, and nowhere."""
        tracks, arrivals = self.tracks, self._arrivals
        if tracks:
            here = arrivals.at(np.stack([track.direction for track in tracks]), arrivals.new)
            for m, track in enumerate(tracks):
                track.trail.append(here[:, m])
                track.passed.append(track.place)
        own = np.array([np.concatenate(list(track.trail)) for track in tracks], dtype=np.float64)
        own = own.reshape(len(tracks), len(v)).T  # (B, M)
        shares = _shares(own, v, self.how.least_share)
        explained = np.concatenate([own, np.ones((len(v), 1))], axis=1) * shares
        for m, track in enumerate(tracks):
            total = explained.sum(axis=1)
            others = total - explained[:, m]
            # Without it, the others and nowhere have its share.
            alone = others / max(1 - shares[m], 1e-3)
            meets = self._meets(m, now)
            self._hear(track, v * np.log(total / alone), v, now, meets)
            if meets and track.walks:
                continue
            if track.misses > self.how.lost_steps or v @ (explained[:, m] / total) < 1.0:
                continue  # of who is silent, nothing is learned
            known = track.hits > self.how.young_hits and self._is_settled(track, now)
            if known and (self._steps + track.id) % self.how.settled_every:
                continue
            self._place(m, others, own[:, m], float(shares[m]), now)
            explained[:, m] = shares[m] * np.concatenate(list(track.trail))
        return explained

    def _place(self, m: int, others: Array, own: Array, share: float, now: float) -> None:
        """Measure where it is beside what others explain (B,), with its own densities (B,)."""
        track, how = self.tracks[m], self.how
        reach = how.reach_degrees + how.reach_speed * track.silent_seconds if track.walks else 180.0
        patch = Patch(
            self._arrivals, track.direction, beside=self._rivals(track, now), reach_degrees=reach
        )
        stood = now - track.standing_since
        before = self._before(track)
        # Of who stands, a walk must explain all: else any haste of the last moments is one.
        trail = own if track.walks else np.zeros(len(own))
        stands, walks, more = patch.fits(others, trail, share, stood, before)
        goes = more > self._walk_nats(track, now) and not track.meets
        if goes and (track.walks or more > self._two_explain(others, own, share)):
            self._set(track, walks, how.straight_seconds)
            track.standing_since = now
        else:
            if track.walks:
                track.standing_since = now - how.lag_seconds
                stands, _, _ = patch.fits(others, trail, share, how.lag_seconds, before)
            self._set(track, stands, now - track.standing_since)

    def _walk_nats(self, track: Track, now: float) -> float:
        """That a walk must explain more than standing."""
        if track.walks:
            return self.how.walk_nats
        return self.how.start_nats * (self.how.steady if self._is_upheld(track, now) else 1.0)

    def _two_explain(self, others: Array, own: Array, share: float) -> float:
        """Nats of the last moments that one more beside one who stays explains, over one place.

        A talker who begins elsewhere while this one pauses looks like a walk to there.
        """
        late = self._arrivals.since(3 * self.how.lag_seconds)
        v = self._arrivals.recent_weights(self.how.lag_seconds)[late]
        beside = others[late] + 0.5 * share * own[late]
        one = self._places.likelihoods(v, others[late], share, late).max()
        two = self._places.likelihoods(v, beside, 0.5 * share, late).max()
        return float(two - one)

    def _is_settled(self, track: Track, now: float) -> bool:
        """Whether it has stood for long."""
        return not track.walks and now - track.standing_since > self.how.settled_seconds

    def _rivals(self, track: Track, now: float) -> Array:
        """(K, 3) places of others that are heard: what is nearer to one of them is not its own."""
        places = [
            t.place
            for t in self.tracks
            if t is not track and t.confirmed and now - t.heard_at < _AUDIBLE_SECONDS
        ]
        return np.array(places).reshape(-1, 3)

    def _before(self, track: Track) -> Before:
        """What is expected of a walk: of who walks already, that it goes on."""
        how = self.how
        if not track.walks:
            return Before(track.place, np.inf, 0.0, np.inf, how.lag_seconds)
        error = float(np.hypot(track.error, how.sway_degrees))
        speed = float(track.velocity[0])
        return Before(track.place, error, speed, how.sway_speed, how.lag_seconds)

    def _set(self, track: Track, fit: Fit, seconds: float) -> None:
        """Where a track is now, and was for so many seconds."""
        taken = self.how.new_speed if track.walks and fit.velocity.any() else 1.0
        track.velocity = track.velocity + taken * (fit.velocity - track.velocity)
        track.place, track.error = fit.place, fit.error
        self._places.lay(track, fit.densities, seconds)

    def _hear(self, track: Track, gains: Array, v: Array, now: float, meets: bool) -> None:
        new = self._arrivals.new
        weight = max(float(v[new].sum()), 1e-9)
        gain = float(gains[new].sum())
        track.gain = float(gains.sum()) / max(float(v.sum()), 1e-9)
        lately = gain / weight > _HIT_GAIN and len(gains[new]) > 0
        heard = lately and track.gain > _LEAST_GAIN
        if not track.confirmed:  # it must go on being worth what it was when it was born
            heard = lately and track.gain > self.how.going_on * self._worth(track, now)
        if heard:
            track.hits += 1
            track.explained += track.gain
            track.misses = 0
            track.hear(now)
        elif meets:
            track.misses = 0
        else:
            track.misses += 1
        worth = track.gain / self._worth(track, now)
        track.count_little(heard, worth < self.how.little)
        hits = self.how.sure_hits if worth > self.how.sure else self.how.confirm_hits
        if heard and not track.confirmed and worth > 1 and track.hits >= hits:
            self._confirm(track, now)

    def _confirm(self, track: Track, now: float) -> None:
        """Believe in a track; of too many, the one that was heard longest ago goes.

        One that was lost a moment ago, where it may have gone from there, is found again.
        """
        lost = [other for other in self.confirmed if self._is_found(other, track)]
        if lost:
            min(lost, key=lambda other: other.id).become(track)
            return
        others = self.confirmed
        if len(others) >= self.how.most:
            oldest = min(others, key=lambda other: other.heard_at)
            if now - oldest.heard_at < _AUDIBLE_SECONDS:
                return
            oldest.dead = True
        track.confirmed_at = now

    def _is_found(self, lost: Track, track: Track) -> bool:
        """Whether a track may be one that was lost while it walked, or before it was well known."""
        how = self.how
        away = track.born - lost.heard_at
        if not lost.misses or lost.gain > how.lost_gain * track.gain:
            return False
        if away > how.lost_seconds or not lost.strayed:
            return False
        gap = abs(self._places.side(lost.heard_place) - self._places.side(track.place))
        return gap < how.found_degrees + how.reach_speed * max(away, 0.0)

    def _merge(self, now: float) -> None:
        """Who has explained little for long is dead; beside one on its cone, both are that one.

        The name of the one stays that has explained more since it was born.
        """
        for track in self.confirmed:
            others = [
                other
                for other in self.confirmed
                if now - other.heard_at < _AUDIBLE_SECONDS and other.gain > track.gain
            ]
            if track.dead or track.little <= self.how.little_steps or not others:
                continue
            twins = [other for other in others if self._places.share_cone(other, track)]
            twin = max(twins or [track], key=lambda other: other.gain)
            if twin is not track and track.explained > twin.explained:
                track.become(twin)
            else:
                track.dead = True

    def _worth(self, track: Track, now: float) -> float:
        """Nats a bin that a track must explain to be believed beside those that are heard."""
        others = [
            t
            for t in self.tracks
            if t is not track
            and now - t.heard_at < _AUDIBLE_SECONDS
            and (t.confirmed or t.id < track.id)
        ]
        least = self._least(len(others))
        shared = any(self._places.share_cone(other, track) for other in others)
        if shared and not self._is_upheld(track, now):
            return least + self.how.cone_worth
        return least

    def _is_upheld(self, track: Track, now: float) -> bool:
        """Whether its sound was a voice of its own lately."""
        return now - track.upheld_at < self.how.upheld_seconds

    def _least(self, others: int) -> float:
        """Nats a bin that one more beside so many others must explain."""
        return self.how.worth[min(others, len(self.how.worth) - 1)]

    def _meets(self, m: int, now: float) -> bool:
        """Whether another confirmed track is where this one is, so that bins do not part them."""
        track, how = self.tracks[m], self.how
        cosine = np.cos(np.radians(how.close_degrees))
        close = track.confirmed and any(
            other is not track
            and other.confirmed
            and (other.walks or track.walks)
            and (other.meets or now - other.heard_at < _AUDIBLE_SECONDS)
            and float(other.place @ track.place) > cosine
            for other in self.tracks
        )
        if not close:
            track.met_at = None
        elif track.met_at is None:
            track.met_at = now
        track.meets = track.met_at is not None and now - track.met_at < how.meeting_seconds
        return track.meets

    # --- those that are new --------------------------------------------------------------------

    def _give_birth(self, v: Array, explained: Array, now: float) -> None:
        """One new track, where most is explained that no track explains."""
        how = self.how
        audible = [t for t in self.tracks if now - t.heard_at < _AUDIBLE_SECONDS]
        if sum(not t.confirmed for t in self.tracks) >= how.most:
            return
        heard = explained.sum(axis=1)
        base = float(v @ np.log(heard))
        share = _NEW_SHARE if self.tracks else _FIRST_SHARE
        gains = self._places.likelihoods(v, (1 - share) * heard, share) - base
        weight = float(v.sum())
        cost = np.zeros(len(gains))
        for track in audible:
            cost[self._places.on_cone(track)] = how.cone_worth
        for track in self.tracks:
            cost[self._places.near(track)] = np.inf
            if track.walks:
                cost[self._places.on_way(track)] = np.inf
        worth = gains / max(weight, 1e-9) - cost
        best = int(worth.argmax())
        if worth[best] < self._least(len(audible)) or gains[best] < how.fewest_nats:
            return
        self._born(self._arrivals.vectors[best], self._arrivals.densities[:, best], now)

    def _born(self, place: Array, column: Single, now: float) -> Track:
        """A new track at a place (3,) that has these densities (B,)."""
        track = Track(
            self._next,
            place,
            now,
            self._places.trail(column),
            deque([place], maxlen=self._arrivals.most_steps),
            np.zeros(len(self._arrivals.places), dtype=np.float32),
        )
        track.hits = 1
        self._next += 1
        self.tracks.append(track)
        return track

    def _bury(self, now: float) -> None:
        how = self.how
        self.tracks = [
            t
            for t in self.tracks
            if not t.dead
            and (now - t.heard_at <= self._kept(t) if t.confirmed else t.misses <= how.forget_steps)
        ]

    def _kept(self, track: Track) -> float:
        """Seconds of silence that a track outlives: longer, the longer it was heard.

        With 2 s at the least, one who had said a word lost its name in the other's first sentence.
        """
        return min(max(0.5 * track.hits, 5.0), self.how.keep_seconds)


def _shares(g: Array, v: Array, least: float) -> Array:
    """(M + 1,) shares of sources with densities g (B, M), and of nowhere, that explain most."""
    M = g.shape[1]
    p = np.concatenate([g, np.ones((len(g), 1))], axis=1)
    w = np.append(np.full(M, (1 - _NOWHERE) / max(M, 1)), _NOWHERE)
    v = v / max(float(v.sum()), 1e-9)
    for _ in range(_SHARE_STEPS):
        w = np.maximum(w * (v / (p @ w) @ p), least)
        w /= w.sum()
    return w
