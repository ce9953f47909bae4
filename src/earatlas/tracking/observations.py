"""Places of a stream's arrivals beside its tracks: near one, on its cone, on its way.

And what the bins say of them. Two places to which sound comes with about the same level and delay
between the ears are on one cone of confusion, around the axis through the ears as the head is
turned now.

    G coarse places    B bins
"""

from __future__ import annotations

from collections import deque

import numpy as np

from earatlas.geometry.angles import to_directions, to_vectors
from earatlas.localization.source_counter import CONE_DEGREES, Counting
from earatlas.tracking.online_track import Track
from earatlas.tracking.onset_buffer import Arrivals
from earatlas.types import Array, Mask, Single

__all__ = ["Places"]

_BINS_AT_ONCE = 64  # whose logarithms stay in the cache


class Places:
    """The places that arrivals know, for a head that turns."""

    def __init__(self, arrivals: Arrivals, near_degrees: float) -> None:
        """Within so many degrees of a track a place is its own."""
        self.arrivals = arrivals
        self._cosine = float(np.cos(np.radians(near_degrees)))
        self.turn(0.0)

    def turn(self, yaw: float) -> None:
        """The head is turned by so many degrees now."""
        self._axis = to_vectors(np.array([yaw + 90.0, 0.0]))  # to the left ear

    def side(self, place: Array) -> float:
        """The lateral angle of a place (3,), as the head is turned now."""
        return float(np.degrees(np.arcsin(np.clip(place @ self._axis, -1, 1))))

    def share_cone(self, one: Track, other: Track) -> bool:
        """Whether two tracks are on one cone of confusion."""
        return self.fit_cone(one, other.place)

    def fit_cone(self, track: Track, place: Array) -> bool:
        """Whether a place (3,) is on the cone of a track."""
        return abs(self.side(place) - self.side(track.place)) < CONE_DEGREES

    def on_cone(self, track: Track) -> Mask:
        """(G,) the places on the cone of confusion of a track."""
        sides = np.degrees(np.arcsin(np.clip(self.arrivals.vectors @ self._axis, -1, 1)))
        on_cone: Mask = np.abs(sides - self.side(track.place)) < CONE_DEGREES
        return on_cone

    def is_at(self, track: Track, place: Array) -> bool:
        """Whether a place (3,) is the track's."""
        return bool(track.place @ place > self._cosine)

    def near(self, track: Track) -> Mask:
        """(G,) the places that are a track's."""
        near: Mask = self.arrivals.vectors @ track.place > self._cosine
        return near

    def on_way(self, track: Track) -> Mask:
        """(G,) the places that a walker passed lately."""
        gaps: Array = self.arrivals.vectors @ np.stack(track.passed).T
        return np.asarray((gaps > self._cosine).any(axis=1))

    def likelihoods(
        self, v: Array, others: Array, share: float, among: slice = slice(None)
    ) -> Single:
        """(G,) of a source with this share anywhere, beside what others explain (B,)."""
        g = self.arrivals.densities[among]
        weights, e = v.astype(np.float32), others.astype(np.float32)[:, None]
        L = np.zeros(g.shape[1], dtype=np.float32)
        for first in range(0, len(g), _BINS_AT_ONCE):
            some = slice(first, first + _BINS_AT_ONCE)
            mixed = g[some] * np.float32(share)
            mixed += e[some]
            L += weights[some] @ np.log(mixed, out=mixed)
        return L

    def best_two(self) -> Array:
        """(2, C) the places that explain most together, on one cone or not."""
        arrivals = self.arrivals
        weights = arrivals.weights.astype(np.float32)
        counting = Counting(arrivals.densities, weights, arrivals.places)
        best: Array = arrivals.places[counting.placed(2)]
        return best

    def at(self, place: Array) -> Single:
        """(B,) densities of all bins around a place (3,)."""
        column: Single = self.arrivals.at(to_directions(place)[None])[:, 0]
        return column

    def trail(self, column: Single) -> deque[Single]:
        """Densities (B,) of all bins, by their steps."""
        parts = np.split(column, np.cumsum(self.arrivals.lengths)[:-1])
        return deque(parts, maxlen=self.arrivals.most_steps)

    def lay(self, track: Track, densities: Single, seconds: float) -> None:
        """The trail of the last seconds, from densities (B,) of all bins."""
        ends = np.cumsum(self.arrivals.lengths)
        ages = self.arrivals.step_ages
        for s, part in enumerate(np.split(densities, ends[:-1])):
            if ages[s] <= seconds:
                track.trail[s] = part
