"""What arrived lately: onsets of the last moments, and how well each fits every direction.

In: onsets (`earatlas.hearing.onsets`) as they come, and how the head was turned then. Out: the
density of each around places of the room, relative to diffuse sound (`earatlas.learning.direct`).

Places are the room's. A bin that was heard with the head turned by ψ tells of place x what it tells
a still head of x - ψ; with a head that stays at 0 the two are the same.

    B bins of the last moments    G coarse places, all round    P fine places around a track
"""

from __future__ import annotations

import numpy as np

from earatlas.hearing.onsets import OnsetBins
from earatlas.learning.direct import DirectSound, bin_weights
from earatlas.space.angles import to_vectors
from earatlas.types import Array, Indices, Single

__all__ = ["Arrivals"]

_TURN_DEGREES = 2.0  # bins of a turning head that are closer go together
_MOST = 500  # bins


class Arrivals:
    """The onsets of the last `seconds`."""

    def __init__(self, sound: DirectSound, seconds: float) -> None:
        from scipy.spatial import cKDTree

        self._sound = sound
        self._keep = round(seconds * sound.gate.rate / sound.gate.hop)
        self._table = np.exp(sound.log_densities)
        self.places = sound.grid[sound.cells[0]]  # (G, C)
        self.vectors = to_vectors(self.places)
        self._fine_vectors = to_vectors(sound.grid)
        self._tree = cKDTree(self._fine_vectors)
        self._coarse = sound.points(sound.cells[0])  # (F, 3, G) of a still head
        self.bins: OnsetBins | None = None
        self.densities: Single = np.zeros((0, len(self.places)), dtype=np.float32)
        self._turns = np.zeros(0)

    def add(self, new: OnsetBins, turns: Array, now: int) -> None:
        """Take in bins in order of frequency, with the head's yaw (b,) in each; `now` in frames."""
        densities = self._read(new, turns, self.places)
        if self.bins is not None:
            held = self.bins.t >= now - self._keep
            # What was loud is told by its density already: of too many, the newest stay.
            joined = OnsetBins.joined([self.bins[held], new])
            order = np.lexsort(
                (
                    np.concatenate([self.bins.t[held], new.t]),
                    np.concatenate([self.bins.f[held], new.f]),
                )
            )
            densities = np.concatenate([self.densities[held], densities])[order]
            turns = np.concatenate([self._turns[held], turns])[order]
            new = joined
        if len(new) > _MOST:
            newest = np.sort(np.argsort(-new.t, kind="stable")[:_MOST])
            new, densities, turns = new[newest], densities[newest], turns[newest]
        self.bins, self.densities, self._turns = new, densities, turns

    def __len__(self) -> int:
        return 0 if self.bins is None else len(self.bins)

    @property
    def ages(self) -> Array:
        """(B,) frames before the newest."""
        if self.bins is None or not len(self.bins):
            return np.zeros(0)
        ages: Array = (self.bins.t.max() - self.bins.t).astype(np.float64)
        return ages

    def weights(self) -> Array:
        """v (B,): a frequency has about one vote."""
        return bin_weights(self.bins.f) if self.bins is not None else np.zeros(0)

    def around(self, place: Array, degrees: float) -> Array:
        """Fine places (P, C) of the head's grid near a place."""
        near = self._tree.query_ball_point(to_vectors(place), 2 * np.sin(np.radians(degrees) / 2))
        rows: Indices = np.sort(np.asarray(near, dtype=np.intp))
        if not len(rows):
            rows = self._nearest(place[None])
        places: Array = self._sound.grid[rows]
        return places

    def at(self, places: Array) -> Single:
        """Densities (B, P) around fine places (P, C)."""
        if self.bins is None:
            return np.zeros((0, len(places)), dtype=np.float32)
        return self._read(self.bins, self._turns, places)

    def _nearest(self, places: Array) -> Indices:
        return np.asarray(self._tree.query(to_vectors(places))[1], dtype=np.intp)

    def _read(self, bins: OnsetBins, turns: Array, places: Array) -> Single:
        out = np.empty((len(bins), len(places)), dtype=np.float32)
        number = np.round(turns / _TURN_DEGREES)
        for n in np.unique(number):
            own = np.flatnonzero(number == n)
            turn = float(np.mean(turns[own]))
            if turn == 0 and places is self.places:
                points = self._coarse
            else:
                heard = self._sound.space.turned(places, -turn)
                points = self._sound.points(self._nearest(heard))
            some = bins[own]
            for rows, densities in self._sound.read(self._table, some, points):
                out[own[rows]] = densities
        return out
