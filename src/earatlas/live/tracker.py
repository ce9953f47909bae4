"""Who is where: tracks that are born, confirmed, silent and dead, from what arrives.

Each step, the onsets of the last seconds are shared out among the tracks (each explains bins that
fit the place it had then) and diffuse sound:

    L = Σ_n v_n log(Σ_m π_m g_n(x_m(t_n)) + π_0)     g density of bin n around a place, π shares

- A track stands where it explains most beside the others, or walks, if that explains more.
- A place that would explain much that no track does is a new one, tentative at first; on the cone
  of confusion of another it must explain much more, since reflections do that too
  (`earatlas.learning.counting`). What fits a track that is silent is that track again.
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
from collections.abc import Mapping

import numpy as np

from earatlas.learning.counting import CONE_DEGREES
from earatlas.live.arrivals import Arrivals
from earatlas.live.patch import Before, Fit, Patch
from earatlas.live.track import Track
from earatlas.live.tracking import Tracking
from earatlas.space.angles import to_directions, to_vectors
from earatlas.types import Array, Mask, Single

__all__ = ["Tracker"]


# Shares as in a recording (`earatlas.learning.counting`); the rest by hand, as `Tracking`.
_NOWHERE = 0.1  # share of bins to begin with
_NEW_SHARE = 0.2  # that a new source is looked for with
# The first may be one of two that speak at once: with 0.8 two in a room were not born for 4 s.
_FIRST_SHARE = 0.3
_SHARE_STEPS = 10
# Of what the onsets tell of where a track is, that they must tell of where its cues put it: they
# leave its cone open, but a talker behind who was put at the zenith lost its name there.
_TOLD_PART = 0.5
_LEAST_SHARE = 0.02  # of a track that is silent, so that it can come back
_HIT_GAIN = 0.03  # nats a bin lately: it is heard
_LEAST_GAIN = 0.02  # nats a bin of the last seconds, that a track that is heard explains
_AUDIBLE_SECONDS = 1.0
_BINS_AT_ONCE = 64  # whose logarithms stay in the cache
_LOST_STEPS = 2  # without a hit, after which a track is not placed


class Tracker:
    """The tracks of a stream."""

    def __init__(self, arrivals: Arrivals, how: Tracking) -> None:
        self.how, self._arrivals = how, arrivals
        self.tracks: list[Track] = []
        self._next = 1
        self._steps = 0
        self._axis = np.array([0.0, 1.0, 0.0])  # to the left ear

    @property
    def confirmed(self) -> list[Track]:
        """Those that are believed."""
        return [track for track in self.tracks if track.confirmed and not track.dead]

    def step(self, now: float, seconds: float, yaw: float = 0.0) -> None:
        """Move on by `seconds`, with the bins that arrived; `yaw` is how the head is turned."""
        self._axis = to_vectors(np.array([yaw + 90.0, 0.0]))
        self._steps += 1
        for track in self.tracks:
            track.predict(seconds)
        if len(self._arrivals):
            v = self._arrivals.weights
            heard = self._follow(v, now)
            if self._steps % self.how.new_every == 0:
                self._give_birth(v, heard, now)
            else:
                self._look_elsewhere(v, heard, now)
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
        shares = _shares(own, v)
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
            if track.misses > _LOST_STEPS or v @ (explained[:, m] / total) < 1.0:
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
        if more > (how.walk_nats if track.walks else how.start_nats) and not track.meets:
            self._set(track, walks, how.straight_seconds)
            track.standing_since = now
        else:
            if track.walks:
                track.standing_since = now - how.lag_seconds
                stands, _, _ = patch.fits(others, trail, share, how.lag_seconds, before)
            self._set(track, stands, now - track.standing_since)

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
        self._lay(track, fit.densities, seconds)

    def _lay(self, track: Track, densities: Single, seconds: float) -> None:
        """The trail of the last seconds, from densities (B,) of all bins."""
        ends = np.cumsum(self._arrivals.lengths)
        ages = self._arrivals.step_ages
        for s, part in enumerate(np.split(densities, ends[:-1])):
            if ages[s] <= seconds:
                track.trail[s] = part

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
        gap = abs(self._side(lost.heard_place) - self._side(track.place))
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
            twins = [other for other in others if self._share_cone(other, track)]
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
        if any(self._share_cone(other, track) for other in others):
            return least + self.how.cone_worth
        return least

    def _least(self, others: int) -> float:
        """Nats a bin that one more beside so many others must explain."""
        return self.how.worth[min(others, len(self.how.worth) - 1)]

    def _side(self, place: Array) -> float:
        """The lateral angle of a place (3,), as the head is turned now."""
        return float(np.degrees(np.arcsin(np.clip(place @ self._axis, -1, 1))))

    def _share_cone(self, one: Track, other: Track) -> bool:
        """Whether two tracks are on one cone of confusion."""
        return abs(self._side(one.place) - self._side(other.place)) < CONE_DEGREES

    def _look_elsewhere(self, v: Array, explained: Array, now: float) -> None:
        """Whether another place on its cone explains more than that of one track, in turn."""
        if not self.tracks:
            return
        m = (self._steps // self.how.new_every) % len(self.tracks)
        track = self.tracks[m]
        settled = self._is_settled(track, now)
        if not settled:
            track.memory *= 0
        known = not settled and track.hits > self.how.young_hits
        if track.told or track.meets or known or track.misses > _LOST_STEPS:
            return
        total = explained.sum(axis=1)
        share = float(np.clip(v @ (explained[:, m] / total) / v.sum(), _LEAST_SHARE, 1.0))
        others = total - explained[:, m]
        if settled:
            both = self._stander_at(track, v, others, share)
        else:
            both = self._walker_at(others, share)
        here = both[self._near(track)]
        allowed = self._on_cone(track) if track.confirmed else np.ones(len(both), dtype=bool)
        for other in self.tracks:
            allowed &= ~self._near(other)
        both = np.where(allowed, both, -np.inf)
        best = int(both.argmax())
        more = self.how.jump_nats if settled else self.how.walker_jump_nats
        if len(here) and both[best] < here.max() + more:
            return
        place, column = self._arrivals.vectors[best], self._arrivals.densities[:, best]
        if settled:
            track.jump(place)
            track.trail = self._trail(column)
        else:
            track.turn_over(place)
            self._lay(track, column, self.how.lag_seconds)

    def _stander_at(self, track: Track, v: Array, others: Array, share: float) -> Single:
        """(G,) nats of places of one who stands, by the last seconds and what was before."""
        L = self._likelihoods(v, others, share)
        L -= L.max()
        rate = len(self.tracks) * self.how.new_every / self._arrivals.most_steps
        fade = np.exp(-rate * self._arrivals.most_steps / self.how.memory_steps)
        both: Single = L + fade * track.memory
        track.memory = rate * L + fade * track.memory
        return both

    def _walker_at(self, others: Array, share: float) -> Single:
        """(G,) nats of places of one who walks, by the last moments."""
        v = self._arrivals.recent_weights(self.how.lag_seconds)
        late = self._arrivals.since(2 * self.how.lag_seconds)
        return self._likelihoods(v[late], others[late], share, late)

    def tell(self, places: Mapping[int, Array]) -> None:
        """Take in places (C,) by name that are surer than onsets about where on its cone one is."""
        for track in self.tracks:
            place = to_vectors(places[track.id]) if track.id in places else None
            track.told = place is not None and self._fits_cone(track, place)
            if place is None or not track.told or track.walks or self._is_at(track, place):
                continue
            column = self._arrivals.at(to_directions(place)[None])[:, 0]
            here = self._told_by_onsets(np.concatenate(list(track.trail)))
            track.told = self._told_by_onsets(column) >= _TOLD_PART * here
            if track.told:
                track.jump(place)
                track.trail = self._trail(column)

    def _told_by_onsets(self, g: Single) -> float:
        """Nats that one source with densities (B,) explains of all bins."""
        return float(self._arrivals.weights @ np.log1p(_FIRST_SHARE * (g - 1.0)))

    def _fits_cone(self, track: Track, place: Array) -> bool:
        """Whether a place (3,) is on the cone of a track, and no other's."""
        gap = abs(self._side(place) - self._side(track.place))
        return gap < CONE_DEGREES and not any(
            self._is_at(other, place) for other in self.tracks if other is not track
        )

    def _is_at(self, track: Track, place: Array) -> bool:
        """Whether a place (3,) is the track's."""
        return bool(track.place @ place > np.cos(np.radians(self.how.near_degrees)))

    def _trail(self, column: Single) -> deque[Single]:
        """Densities (B,) of all bins, by their steps."""
        parts = np.split(column, np.cumsum(self._arrivals.lengths)[:-1])
        return deque(parts, maxlen=self._arrivals.most_steps)

    def _likelihoods(
        self, v: Array, others: Array, share: float, among: slice = slice(None)
    ) -> Single:
        """(G,) of a source with this share anywhere, beside what others explain (B,)."""
        g = self._arrivals.densities[among]
        weights, e = v.astype(np.float32), others.astype(np.float32)[:, None]
        L = np.zeros(g.shape[1], dtype=np.float32)
        for first in range(0, len(g), _BINS_AT_ONCE):
            some = slice(first, first + _BINS_AT_ONCE)
            mixed = g[some] * np.float32(share)
            mixed += e[some]
            L += weights[some] @ np.log(mixed, out=mixed)
        return L

    def _on_cone(self, track: Track) -> Mask:
        """(G,) the places on the cone of confusion of a track."""
        sides = np.degrees(np.arcsin(np.clip(self._arrivals.vectors @ self._axis, -1, 1)))
        on_cone: Mask = np.abs(sides - self._side(track.place)) < CONE_DEGREES
        return on_cone

    def _near(self, track: Track) -> Mask:
        """(G,) the places that are a track's."""
        cosine = np.cos(np.radians(self.how.near_degrees))
        near: Mask = self._arrivals.vectors @ track.place > cosine
        return near

    def _on_way(self, track: Track) -> Mask:
        """(G,) the places that a walker passed lately."""
        cosine = np.cos(np.radians(self.how.near_degrees))
        passed: Mask = (self._arrivals.vectors @ np.stack(track.passed).T > cosine).any(axis=1)
        return passed

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
        gains = self._likelihoods(v, (1 - share) * heard, share) - base
        weight = float(v.sum())
        cost = np.zeros(len(gains))
        for track in audible:
            cost[self._on_cone(track)] = how.cone_worth
        for track in self.tracks:
            cost[self._near(track)] = np.inf
            if track.walks:
                cost[self._on_way(track)] = np.inf
        worth = gains / max(weight, 1e-9) - cost
        best = int(worth.argmax())
        if worth[best] < self._least(len(audible)) or gains[best] < how.fewest_nats:
            return
        place = self._arrivals.vectors[best]
        track = Track(
            self._next,
            place,
            now,
            self._trail(self._arrivals.densities[:, best]),
            deque([place], maxlen=self._arrivals.most_steps),
            np.zeros(len(gains), dtype=np.float32),
        )
        track.hits = 1
        self._next += 1
        self.tracks.append(track)

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


def _shares(g: Array, v: Array) -> Array:
    """(M + 1,) shares of sources with densities g (B, M), and of nowhere, that explain most."""
    M = g.shape[1]
    p = np.concatenate([g, np.ones((len(g), 1))], axis=1)
    w = np.append(np.full(M, (1 - _NOWHERE) / max(M, 1)), _NOWHERE)
    v = v / max(float(v.sum()), 1e-9)
    for _ in range(_SHARE_STEPS):
        w = np.maximum(w * (v / (p @ w) @ p), _LEAST_SHARE)
        w /= w.sum()
    return w
