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
- Two that come close are not told apart by their bins: each goes on as it moved before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from earatlas.learning.counting import CONE_DEGREES, SAME_CONE_WORTH, WORTH
from earatlas.live.arrivals import Arrivals
from earatlas.live.patch import Before, Fit, Patch
from earatlas.live.track import Track
from earatlas.space.angles import to_vectors
from earatlas.types import Array, Mask, Single

__all__ = ["Tracker", "Tracking"]


@dataclass(frozen=True)
class Tracking:
    """How tracks are kept.

    Chosen on 18 standing and 24 walking scenes of cipic_021 and kemar_full, in the open and in
    simulated rooms, by false tracks, swaps and misses; judged on other heads (docs/figures.md,
    "Live"). Where nothing is said, a number was set by hand and not tried alone.
    """

    most: int = 4  # confirmed at a time
    keep_seconds: float = 30.0  # of silence, until a track is dead
    # Nats a bin that one more must explain: of the second on as in a recording.
    worth: tuple[float, ...] = (0.25, *WORTH)
    cone_worth: float = SAME_CONE_WORTH
    going_on: float = 0.7  # of its worth, that a tentative one must go on explaining
    fewest_nats: float = 4.0  # in all, that a new one must explain
    confirm_hits: int = 3  # steps
    forget_steps: int = 4  # without a hit, until a tentative one is forgotten
    near_degrees: float = 12.0  # places that are one source's
    close_degrees: float = 12.0  # two walkers that are not told apart
    lag_seconds: float = 0.6  # of which bins tell where a walker is now, 1/e
    sway_degrees: float = 3.0  # that a walker may be from where it is expected
    sway_speed: float = 6.0  # degrees a second that its speed may change
    straight_seconds: float = 0.8  # of a walk that are told anew
    # That a walk must explain more than standing. False tracks of six pairs in rooms and of six
    # walkers in the open: 2 and 1 with 1 and 2.5, 1 and 2 with 4 (before tracks told the rest).
    walk_nats: float = 3.0
    # The same of one who stood until then. With 3, talkers of ku100 at T60 0.3 s walked over to the
    # other one: 7.2 dB (five scenes that were looked at), with 6 10.8, with 10 11.7. Walkers of
    # cipic_021 and kemar_full (12 scenes) were followed as well with 10 as with 3.
    start_nats: float = 10.0
    # Of what a speed differs from that of before, the part taken over in a step. With all of it
    # and a sway_speed of 10, walkers whom few bins told went off at any speed: two that cross, 12
    # scenes, had 6.7 false tracks and 6.1 swaps a minute; now 3.3 and 3.3.
    new_speed: float = 0.4
    jump_nats: float = 1.0  # that another place on its cone must explain more
    memory_steps: float = 80.0  # after which what fitted a place long ago counts 1/e
    new_every: int = 2  # steps, in which new ones are looked for; in the others, better places


# Shares as in a recording (`earatlas.learning.counting`); the rest by hand, as `Tracking`.
_NOWHERE = 0.1  # share of bins to begin with
_NEW_SHARE = 0.2  # that a new source is looked for with
_FIRST_SHARE = 0.8
_SHARE_STEPS = 10
_LEAST_SHARE = 0.02  # of a track that is silent, so that it can come back
_HIT_GAIN = 0.03  # nats a bin lately: it is heard
_LEAST_GAIN = 0.02  # nats a bin of the last seconds, that a track that is heard explains
_AUDIBLE_SECONDS = 1.0
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
                self._look_elsewhere(v, heard)
        else:
            for track in self.tracks:
                track.trail.append(np.zeros(0, dtype=np.float32))
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
            self._hear(track, v * np.log(total / alone), v, now)
            if track.misses > _LOST_STEPS or v @ (explained[:, m] / total) < 1.0:
                continue  # of who is silent, nothing is learned
            self._place(m, others, own[:, m], float(shares[m]), now)
            explained[:, m] = shares[m] * np.concatenate(list(track.trail))
        return explained

    def _place(self, m: int, others: Array, own: Array, share: float, now: float) -> None:
        """Measure where it is beside what others explain (B,), with its own densities (B,)."""
        track, how = self.tracks[m], self.how
        if track.walks and self._is_close(m):
            return
        patch = Patch(self._arrivals, track.direction)
        stood = now - track.standing_since
        before = self._before(track)
        # Of who stands, a walk must explain all: else any haste of the last moments is one.
        trail = own if track.walks else np.zeros(len(own))
        stands, walks, more = patch.fits(others, trail, share, stood, before)
        if more > (how.walk_nats if track.walks else how.start_nats):
            self._set(track, walks, how.straight_seconds)
            track.standing_since = now
        else:
            if track.walks:
                track.standing_since = now - how.lag_seconds
                stands, _, _ = patch.fits(others, trail, share, how.lag_seconds, before)
            self._set(track, stands, now - track.standing_since)

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
        ends = np.cumsum(self._arrivals.lengths)
        ages = self._arrivals.step_ages
        for s, part in enumerate(np.split(fit.densities, ends[:-1])):
            if ages[s] <= seconds:
                track.trail[s] = part

    def _hear(self, track: Track, gains: Array, v: Array, now: float) -> None:
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
            track.misses = 0
            track.heard_at, track.silent_seconds = now, 0.0
        else:
            track.misses += 1
        wanted = track.hits >= self.how.confirm_hits and heard
        if wanted and not track.confirmed and track.gain > self._worth(track, now):
            self._confirm(track, now)

    def _confirm(self, track: Track, now: float) -> None:
        """Believe in a track; of too many, the one that was heard longest ago goes."""
        others = self.confirmed
        if len(others) >= self.how.most:
            oldest = min(others, key=lambda other: other.heard_at)
            if now - oldest.heard_at < _AUDIBLE_SECONDS:
                return
            oldest.dead = True
        track.confirmed_at = now

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
        if any(abs(self._side(o) - self._side(track)) < CONE_DEGREES for o in others):
            return least + self.how.cone_worth
        return least

    def _least(self, others: int) -> float:
        """Nats a bin that one more beside so many others must explain."""
        return self.how.worth[min(others, len(self.how.worth) - 1)]

    def _side(self, track: Track) -> float:
        """The lateral angle of a track, as the head is turned now."""
        return float(np.degrees(np.arcsin(np.clip(track.place @ self._axis, -1, 1))))

    def _look_elsewhere(self, v: Array, explained: Array) -> None:
        """Whether another place on its cone explains more than that of one track, in turn."""
        if not self.tracks:
            return
        m = (self._steps // self.how.new_every) % len(self.tracks)
        track = self.tracks[m]
        if track.walks:
            track.memory *= 0
        if track.walks or track.told or track.misses > _LOST_STEPS:
            return
        total = explained.sum(axis=1)
        share = float(np.clip(v @ (explained[:, m] / total) / v.sum(), _LEAST_SHARE, 1.0))
        L = self._likelihoods(v, total - explained[:, m], share)
        L -= L.max()
        rate = len(self.tracks) * self.how.new_every / self._arrivals.most_steps
        fade = np.exp(-rate * self._arrivals.most_steps / self.how.memory_steps)
        both = L + fade * track.memory
        track.memory = rate * L + fade * track.memory
        here = both[self._near(track)]
        allowed = self._on_cone(track) if track.confirmed else np.ones(len(L), dtype=bool)
        for other in self.tracks:
            allowed &= ~self._near(other)
        both = np.where(allowed, both, -np.inf)
        best = int(both.argmax())
        if len(here) and both[best] < here.max() + self.how.jump_nats:
            return
        track.jump(self._arrivals.vectors[best])
        track.trail = self._trail(self._arrivals.densities[:, best])

    def tell(self, places: Mapping[int, Array]) -> None:
        """Take in places (C,) by name that are surer than onsets about where on its cone one is."""
        for track in self.tracks:
            place = to_vectors(places[track.id]) if track.id in places else None
            track.told = place is not None and self._fits_cone(track, place)
            if place is None or not track.told or track.walks or self._is_at(track, place):
                continue
            track.jump(place)
            track.trail = self._trail(self._arrivals.at(track.direction[None])[:, 0])

    def _fits_cone(self, track: Track, place: Array) -> bool:
        """Whether a place (3,) is on the cone of a track, and no other's."""
        gap = np.degrees(np.arcsin(np.clip(place @ self._axis, -1, 1))) - self._side(track)
        return abs(float(gap)) < CONE_DEGREES and not any(
            self._is_at(other, place) for other in self.tracks if other is not track
        )

    def _is_at(self, track: Track, place: Array) -> bool:
        """Whether a place (3,) is the track's."""
        return bool(track.place @ place > np.cos(np.radians(self.how.near_degrees)))

    def _trail(self, column: Single) -> deque[Single]:
        """Densities (B,) of all bins, by their steps."""
        parts = np.split(column, np.cumsum(self._arrivals.lengths)[:-1])
        return deque(parts, maxlen=self._arrivals.most_steps)

    def _likelihoods(self, v: Array, others: Array, share: float) -> Single:
        """(G,) of a source with this share anywhere, beside what others explain (B,)."""
        mixed = self._arrivals.densities * np.float32(share)
        mixed += others.astype(np.float32)[:, None]
        L: Single = v.astype(np.float32) @ np.log(mixed, out=mixed)
        return L

    def _on_cone(self, track: Track) -> Mask:
        """(G,) the places on the cone of confusion of a track."""
        sides = np.degrees(np.arcsin(np.clip(self._arrivals.vectors @ self._axis, -1, 1)))
        on_cone: Mask = np.abs(sides - self._side(track)) < CONE_DEGREES
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

    def _is_close(self, m: int) -> bool:
        """Whether another confirmed track is where this one is."""
        track = self.tracks[m]
        cosine = np.cos(np.radians(self.how.close_degrees))
        return any(
            other is not track and other.confirmed and float(other.place @ track.place) > cosine
            for other in self.tracks
        )

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
