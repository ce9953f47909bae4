"""Who is where: tracks that are born, confirmed, silent and dead, from what arrives.

Each step, the onsets of the last moments are shared out among the tracks (each explains bins that
fit its place) and diffuse sound:

    L = Σ_n v_n log(Σ_m π_m g_n(x_m) + π_0)      g density of bin n around a place, π shares

- A track moves to where it explains most beside the others, near where it was expected.
- A place that would explain much that no track does is a new one, tentative at first; on the cone
  of confusion of another it must explain much more, since reflections do that too
  (`earatlas.learning.counting`). What fits a track that is silent is that track again.
- A tentative one that goes on explaining is confirmed; one that stops is forgotten. A confirmed one
  that is silent is kept for a while, ever less sure of its place, and then dead.
- Two that come close are not told apart by their bins: each goes on as it moved before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.learning.counting import CONE_DEGREES, SAME_CONE_WORTH
from earatlas.live.arrivals import Arrivals
from earatlas.live.track import Track
from earatlas.space.angles import to_vectors
from earatlas.types import Array, Mask, Single

__all__ = ["Tracker", "Tracking"]


@dataclass(frozen=True)
class Tracking:
    """How tracks are kept.

    Set by hand on streams of cipic_021 and kemar_full, in the open and in simulated rooms, and
    judged on other heads (docs/figures.md, "Live"); what each does alone was not measured. More is
    asked of one more than in a recording (`earatlas.learning.counting`), because of false tracks in
    rooms.
    """

    most: int = 4  # confirmed at a time
    keep_seconds: float = 30.0  # of silence, until a track is dead
    worth: tuple[float, ...] = (0.25, 0.10, 0.08, 0.08)  # nats a bin that one more must explain
    fewest_nats: float = 4.0  # in all, that a new one must explain
    confirm_nats: float = 14.0  # in all, that confirm a track
    confirm_hits: int = 3  # steps
    settled_hits: int = 10  # steps, until then a better place anywhere is taken
    forget_steps: int = 4  # without a hit, until a tentative one is forgotten
    near_degrees: float = 12.0  # places that are one source's
    close_degrees: float = 12.0  # two tracks that are not told apart
    reach_degrees: float = 12.0  # of a track, from step to step
    lag_seconds: float = 0.35  # of which bins tell where it is now, 1/e


# Shares as in a recording (`earatlas.learning.counting`); the rest by hand, as `Tracking`.
_NOWHERE = 0.1  # share of bins to begin with
_NEW_SHARES = (0.1, 0.3)  # that a new source is looked for with
_SHARE_STEPS = 10
_LEAST_SHARE = 0.02  # of a track that is silent, so that it can come back
_HIT_GAIN = 0.03  # nats a bin lately: it is heard
_ELSEWHERE_NATS = 1.0  # that another place must explain more, for a young track to go there
_BETA = 0.5  # sharpness of what bins tell: they err together
_LEAST_ERROR = 1.5  # degrees, of a measured place


class Tracker:
    """The tracks of a stream."""

    def __init__(self, arrivals: Arrivals, frame_seconds: float, how: Tracking) -> None:
        self.how, self._arrivals = how, arrivals
        self._frame_seconds = frame_seconds
        self.tracks: list[Track] = []
        self._next = 1
        self.caution = 1.0  # times what a track must explain to be believed
        lateral = np.degrees(np.arcsin(np.clip(arrivals.vectors[:, 1], -1, 1)))
        self._lateral = lateral
        elevations = np.unique(arrivals.places[:, 1])
        self._elevation = float(elevations[0]) if len(elevations) == 1 else None

    @property
    def confirmed(self) -> list[Track]:
        """Those that are believed."""
        return [track for track in self.tracks if track.confirmed]

    def step(self, now: float, seconds: float, new: Mask) -> None:
        """Move on by `seconds`; `new` (B,) are the bins that came since the last step."""
        for track in self.tracks:
            track.predict(seconds)
        if len(self._arrivals):
            v = self._arrivals.weights()
            heard = self._follow(v, new, now)
            self._give_birth(v, heard, new, now)
        self._bury(now)

    # --- those that are known ------------------------------------------------------------------

    def _follow(self, v: Array, new: Mask, now: float) -> Single:
        """Each track to where it explains most; out: (B,) what all explain together."""
        tracks, arrivals = self.tracks, self._arrivals
        if not tracks:
            return np.ones(len(v), dtype=np.float32)
        fine = [arrivals.around(t.direction, self.how.reach_degrees) for t in tracks]
        densities = arrivals.at(np.concatenate([*fine, [t.direction for t in tracks]]))
        edges = np.cumsum([0, *map(len, fine)])
        own = densities[:, edges[-1] :].astype(np.float64)  # (B, M)
        shares = _shares(own, v)
        explained = own * shares[:-1]
        total = explained.sum(axis=1) + shares[-1]
        recent = np.exp(-arrivals.ages * self._frame_seconds / self.how.lag_seconds)
        for m, track in enumerate(tracks):
            others = total - explained[:, m]
            # Without it, the others and nowhere have its share.
            alone = others / max(1 - shares[m], 1e-3)
            gains = v * np.log(total / alone)
            self._hear(track, gains, v, new, now)
            track.share = float(shares[m])
            claims = explained[:, m] / total
            w = v * recent * claims
            if track.hits < self.how.settled_hits and self._begins_anew(
                track, v, others, shares[m]
            ):
                continue
            if w.sum() < 1.0 or self._is_close(m):
                continue
            self._place(
                track,
                densities[:, edges[m] : edges[m + 1]],
                fine[m],
                (v * recent, others, shares[m], w),
            )
        together: Single = total.astype(np.float32)
        return together

    def _hear(self, track: Track, gains: Array, v: Array, new: Mask, now: float) -> None:
        weight = max(float(v[new].sum()), 1e-9)
        gain = float(gains[new].sum())
        track.nats += max(gain, 0.0)
        track.gain = gain / weight if new.any() else 0.0
        least = _HIT_GAIN
        if not track.confirmed:  # it must go on being worth what it was when it was born
            least = 0.7 * self._worth(track, now)
            heard = float(gains.sum()) / max(float(v.sum()), 1e-9) > least and gain > 0.3
        else:
            heard = track.gain > least and gain > 0.3
        if new.any() and heard:
            track.hits += 1
            track.misses = 0
            track.heard_at = now
        else:
            track.misses += 1
        wanted = (
            track.nats >= self.caution * self.how.confirm_nats
            and track.hits >= self.how.confirm_hits
        )
        if wanted and not track.confirmed and len(self.confirmed) < self.how.most:
            track.confirmed_at = now

    def _worth(self, track: Track, now: float) -> float:
        """Nats a bin that a track must explain to be believed beside those that are heard."""
        others = [
            t
            for t in self.tracks
            if t is not track and now - t.heard_at < 1.0 and (t.confirmed or t.id < track.id)
        ]
        lateral = np.degrees(np.arcsin(np.clip(track.place[1], -1, 1)))
        least = self._least(len(others))
        for other in others:
            side = np.degrees(np.arcsin(np.clip(other.place[1], -1, 1)))
            if abs(side - lateral) < CONE_DEGREES:
                return least + SAME_CONE_WORTH
        return least

    def _least(self, others: int) -> float:
        """Nats a bin that one more beside so many others must explain."""
        worth = self.how.worth[min(others, len(self.how.worth) - 1)]
        return worth * self.caution if others else worth

    def _place(
        self, track: Track, near: Single, places: Array, beside: tuple[Array, Array, float, Array]
    ) -> None:
        """Measure where it is among fine places (P, C) with densities (B, P)."""
        v, others, share, w = beside
        mixed = near * np.float32(share)
        mixed += others.astype(np.float32)[:, None]
        L = v.astype(np.float32) @ np.log(mixed, out=mixed)
        vectors = to_vectors(places)
        p = np.exp(_BETA * 2 * (L - L.max()))
        p /= p.sum()
        mean = p @ vectors
        mean /= np.linalg.norm(mean)
        gap = np.degrees(np.arccos(np.clip(vectors @ mean, -1, 1)))
        error = float(np.hypot(np.sqrt(p @ gap**2 / 2), _LEAST_ERROR))
        lag = float(w @ self._arrivals.ages / w.sum()) * self._frame_seconds
        track.update(mean, error, lag)
        if self._elevation is not None:
            track.stay_at(self._elevation)

    def _begins_anew(self, track: Track, v: Array, others: Array, share: float) -> bool:
        """Whether another place altogether explains more; a young track then goes there."""
        L = self._likelihoods(v, others, share)
        L[~self._on_cone(track)] = -np.inf  # from another side it is another talker
        for other in self.tracks:
            if other is not track:
                L[self._near(other)] = -np.inf
        best = int(L.argmax())
        here = L[self._near(track)]
        if self._near(track)[best] or (len(here) and L[best] < here.max() + _ELSEWHERE_NATS):
            return False
        track.jump(self._arrivals.vectors[best])
        return True

    def _likelihoods(self, v: Array, others: Array | Single, share: float) -> Single:
        """(G,) of a source with this share anywhere, beside what others explain (B,)."""
        mixed = self._arrivals.densities * np.float32(share)
        mixed += others.astype(np.float32)[:, None]
        L: Single = v.astype(np.float32) @ np.log(mixed, out=mixed)
        return L

    def _on_cone(self, track: Track) -> Mask:
        """(G,) the places on the cone of confusion of a track."""
        lateral = np.degrees(np.arcsin(np.clip(track.place[1], -1, 1)))
        on_cone: Mask = np.abs(self._lateral - lateral) < CONE_DEGREES
        return on_cone

    def _near(self, track: Track) -> Mask:
        """(G,) the places that are a track's."""
        cosine = np.cos(np.radians(self.how.near_degrees))
        near: Mask = self._arrivals.vectors @ track.place > cosine
        return near

    def _is_close(self, m: int) -> bool:
        """Whether another confirmed track is where this one is."""
        track = self.tracks[m]
        cosine = np.cos(np.radians(self.how.close_degrees))
        return any(
            other is not track and other.confirmed and float(other.place @ track.place) > cosine
            for other in self.tracks
        )

    # --- those that are new --------------------------------------------------------------------

    def _give_birth(self, v: Array, heard: Single, new: Mask, now: float) -> None:
        """One new track, where most is explained that no track explains."""
        how, g = self.how, self._arrivals.densities
        audible = [t for t in self.tracks if now - t.heard_at < 1.0]
        if sum(not t.confirmed for t in self.tracks) >= how.most:
            return
        base = float(v @ np.log(heard))
        gains = np.full(g.shape[1], -np.inf)
        for share in _NEW_SHARES if self.tracks else (0.8,):
            gains = np.maximum(
                gains, self._likelihoods(v, np.float32(1 - share) * heard, share) - base
            )
        weight = float(v.sum())
        cost = np.zeros(g.shape[1])
        for track in audible:
            cost[self._on_cone(track)] = SAME_CONE_WORTH
        for track in self.tracks:
            cost[self._near(track)] = np.inf
        worth = gains / max(weight, 1e-9) - cost
        best = int(worth.argmax())
        least = self._least(len(audible))
        if worth[best] < least or gains[best] < how.fewest_nats:
            return
        place = self._arrivals.vectors[best]
        track = Track(self._next, place, now)
        track.hits, track.nats = 1, float(gains[best]) / 2
        self._next += 1
        self.tracks.append(track)

    def _bury(self, now: float) -> None:
        how = self.how
        self.tracks = [
            t
            for t in self.tracks
            if (now - t.heard_at <= self._kept(t) if t.confirmed else t.misses <= how.forget_steps)
        ]

    def _kept(self, track: Track) -> float:
        """Seconds of silence that a track outlives: longer, the longer it was heard."""
        return min(max(float(track.hits), 2.0), self.how.keep_seconds)


def _shares(g: Array, v: Array) -> Array:
    """(M + 1,) shares of sources with densities g (B, M), and of nowhere, that explain most."""
    M = g.shape[1]
    p = np.concatenate([g, np.ones((len(g), 1))], axis=1)
    w = np.append(np.full(M, (1 - _NOWHERE) / M), _NOWHERE)
    v = v / max(float(v.sum()), 1e-9)
    for _ in range(_SHARE_STEPS):
        w = np.maximum(w * (v / (p @ w) @ p), _LEAST_SHARE)
        w /= w.sum()
    return w
