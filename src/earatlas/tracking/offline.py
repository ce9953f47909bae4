"""Sources that move: whether there are any, and the way of each.

In: the onsets of a recording, and the places of its sources if all of them stand. Out: a `Way` a
source where somebody moves; none where standing explains what is heard.

A talker who walks sounds like a row of talkers who stand, one after the other. What tells the two
apart is how well they explain the onsets: places that stand miss what is between them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from earatlas.features.onset_detector import OnsetBins
from earatlas.geometry.angles import to_directions, to_vectors
from earatlas.localization.onset_likelihood import DirectSound
from earatlas.tracking.trajectory_hmm import WayGrid, smooth_way
from earatlas.tracking.trajectory_mixture import FASTEST, WAY_COST, FoundWays, Ways
from earatlas.types import Array, Indices, Mask, Single

__all__ = ["HOP_SECONDS", "Wanted", "Way", "all_ways", "ways_of"]

HOP_SECONDS = 0.25  # a window of a way
# Nats an onset that another place each second would gain, from which on ways are looked for: 0.01
# to 0.06 for talkers who stand, at once and in turns, in the open and in rooms; 0.1 to 0.8 for
# walkers, but where six standing ones stand for one of them (0.05).
_RESTLESS = 0.07
# Below, a walk is a few windows, and talkers in turns look like one: of ten mixtures of three who
# stand, 3 s each, one had a walker and 0.6 dB; none of 32 of 5 and 9 s, of two and three, had one.
_SHORTEST_SECONDS = 4.5
_MANY = 3  # sources that stand, from which on they are looked for anyway
# Nats an onset by which ways must explain more than places: 0.06 at most where all stood, 0.28 to
# 1.7 for walkers on cipic_021, 0.11 to 1.9 on kemar_full.
_BETTER = 0.1
_AS_GOOD = 0.02  # nats an onset that standing may cost: fewer sources move than seem to
_AROUND_DEGREES = 8.0  # of a way over coarse cells, in which it is looked at closely
_SMOOTH_WINDOWS = 2.0
# Added to the radius of what the onsets leave open: what interpolation and another unit of the head
# may be off. With 4 degrees 89 % of true directions were within, with 6 degrees 95 % (cipic_021).
_TURN_DEGREES = 6.0


@dataclass(frozen=True, eq=False)
class Way:
    """Where one source is over time, how sure that is, and what tells of it."""

    seconds: Array  # (W,) middle of each window
    vectors: Array  # (W, 3) unit vectors
    radius_90: Array  # (W,) degrees
    weights: Array  # (W,) onsets that tell of it
    moves: bool
    gain: float  # nats an onset of the recording that are gained by its being there
    onset_bins: float  # that are its own

    def at(self, seconds: ArrayLike) -> Array:
        """Directions (T, 2) at times (T,); before the first window and after the last it stands."""
        t = np.atleast_1d(np.asarray(seconds, dtype=np.float64))
        between = np.column_stack([np.interp(t, self.seconds, axis) for axis in self.vectors.T])
        return to_directions(between / np.linalg.norm(between, axis=1, keepdims=True))

    def radius_at(self, seconds: ArrayLike) -> Array:
        """Radii (T,) at times (T,)."""
        radii: Array = np.interp(np.atleast_1d(seconds), self.seconds, self.radius_90)
        return radii


@dataclass(frozen=True)
class Wanted:
    """What ways are asked for."""

    seconds: float  # of the recording
    n_sources: int | None  # None: find out
    most: int


def ways_of(sound: DirectSound, onsets: OnsetBins, places: Array, wanted: Wanted) -> list[Way]:
    """The ways of all sources if one of them moves; none if all stand in their places (M, C)."""
    if wanted.seconds < _SHORTEST_SECONDS or not len(onsets):
        return []
    heard = _Heard.of(sound, onsets, places, wanted.seconds)
    if len(places) < _MANY and heard.ways.restless(heard.standing) < _RESTLESS:
        return []
    found = heard.found(wanted)
    if heard.ways.score(found) - heard.ways.score(heard.standing) < _BETTER * heard.ways.total:
        return []
    found, moves = _settled(heard.ways, found)
    return heard.closely(found, moves) if moves.any() else []


def all_ways(sound: DirectSound, onsets: OnsetBins, places: Array, wanted: Wanted) -> list[Way]:
    """The ways of all sources, who may all stand; `places` (M, C) are among those looked at."""
    if not len(onsets):
        return []
    heard = _Heard.of(sound, onsets, places, wanted.seconds)
    return heard.closely(*_settled(heard.ways, heard.found(wanted)))


@dataclass(frozen=True, eq=False)
class _Heard:
    """Onsets made ready to look for ways, and sources that stand in their places."""

    sound: DirectSound
    onsets: OnsetBins
    ways: Ways
    standing: FoundWays
    looks: _Closely

    @classmethod
    def of(cls, sound: DirectSound, onsets: OnsetBins, places: Array, seconds: float) -> _Heard:
        """Of a recording of so many seconds."""
        windows = max(int(np.ceil(seconds / HOP_SECONDS)), 1)
        window = np.minimum(onsets.t * sound.gate.hop / sound.gate.rate / HOP_SECONDS, windows - 1)
        window = window.astype(np.intp)
        weights = _window_weights(onsets, window)
        # The places are among the cells, or ways would explain more by being nearer to them.
        coarse = sound.cells[0]
        exact = (to_vectors(sound.grid) @ to_vectors(places).T).argmax(axis=0)
        rows = np.concatenate([coarse, exact])
        grid = WayGrid.of(sound.grid[rows], FASTEST * HOP_SECONDS)
        ways = Ways(_densities(sound, onsets, rows), weights, window, windows, grid)
        standing = ways.standing(list(range(len(coarse), len(rows))))
        return cls(sound, onsets, ways, standing, _Closely(sound, onsets, weights, window, windows))

    def found(self, wanted: Wanted) -> FoundWays:
        """As many as are wanted, or as the onsets tell of."""
        M = wanted.n_sources
        return self.ways.counted(wanted.most) if M is None else self.ways.numbered(M)

    def closely(self, found: FoundWays, moves: Mask) -> list[Way]:
        """Each on the fine grid."""
        return [
            self.looks.way(self.ways, found, m, moves=bool(moves[m]))
            for m in range(len(found.cells))
        ]


def _settled(ways: Ways, found: FoundWays) -> tuple[FoundWays, Mask]:
    """The same sources, each who it was before it met another; and (M,) who moves.

    Of what explains nearly as much, most stand; then, whoever meets another goes on as before.
    """
    least = ways.score(found) - _AS_GOOD * ways.total
    others = ways.one_standing(found) if len(found.cells) > 1 else []
    likely = [each for each in others if ways.score(each) >= least]
    answers = [ways.standing_still(each) for each in (ways.untangled(found), found, *likely)]
    return min(answers, key=lambda answer: int(answer[1].sum()))


def _window_weights(onsets: OnsetBins, window: Indices) -> Array:
    """v (B,): 1 / (1 + bins of the same frequency in the same window)."""
    both = window * (int(onsets.f.max(initial=0)) + 1) + onsets.f
    weights: Array = 1 / (1.0 + np.bincount(both)[both])
    return weights


def _densities(sound: DirectSound, onsets: OnsetBins, rows: Indices) -> Single:
    """g (B, rows) of every onset around points of the grid."""
    out = np.empty((len(onsets), len(rows)), dtype=np.float32)
    for own, values in sound.read(np.exp(sound.log_densities), onsets, sound.points(rows)):
        out[own] = values
    return out


@dataclass(frozen=True, eq=False)
class _Closely:
    """Ways on the fine grid, around those on the coarse one."""

    sound: DirectSound
    onsets: OnsetBins
    weights: Array
    window: Indices
    windows: int

    def way(self, ways: Ways, found: FoundWays, m: int, *, moves: bool) -> Way:
        """Source m, the others where they are."""
        sound, v = self.sound, ways.grid.vectors
        along = v[np.unique(found.cells[m])]
        coarse, cell = sound.cells
        near = (v[: len(coarse)] @ along.T).max(axis=1) > np.cos(np.radians(_AROUND_DEGREES))
        rows = np.flatnonzero(near[cell])
        grid = WayGrid.of(sound.grid[rows], FASTEST * HOP_SECONDS)
        g = _densities(sound, self.onsets, rows)
        fine = Ways(g, self.weights, self.window, self.windows, grid)
        L = fine.likelihoods(ways.beside(found, m), found.shares[m])
        claims = ways.claims(found, m)
        told = ways.told(found, m)
        if moves:
            p = grid.marginals(L, WAY_COST)
            middle = smooth_way(p @ grid.vectors, told + 1e-3, _SMOOTH_WINDOWS)
        else:
            p = _softmax(L.sum(axis=0))[None]
            mean = p @ grid.vectors
            middle = np.repeat(mean / np.linalg.norm(mean), self.windows, axis=0)
            p = np.repeat(p, self.windows, axis=0)
        spread = _quantile(np.degrees(np.arccos(np.clip(middle @ grid.vectors.T, -1, 1))), p, 0.9)
        seconds = (np.arange(float(self.windows)) + 0.5) * HOP_SECONDS
        radius = np.hypot(spread, _TURN_DEGREES)
        gain, count = ways.gain(found, m), float(claims.sum())
        return Way(seconds, middle, radius, told, moves, gain, count)


def _softmax(logs: Array) -> Array:
    p = np.exp(logs - logs.max())
    return np.asarray(p / p.sum(), dtype=np.float64)


def _quantile(values: Array, p: Array, level: float) -> Array:
    """Of values (W, C) with probabilities (W, C): (W,)."""
    order = np.argsort(values, axis=1)
    below = np.cumsum(np.take_along_axis(p, order, axis=1), axis=1)
    place = np.minimum((below < level).sum(axis=1), values.shape[1] - 1)
    ranked = np.take_along_axis(values, order, axis=1)
    return np.asarray(ranked[np.arange(len(values)), place])
