"""Sources that move: the way of each, by the bins in which it is heard to arrive.

In: the onsets of a mixture (`earatlas.features.onset_detector`) and what a head's direct sound is like
(`earatlas.localization.onset_likelihood`). Out: for each source a posterior over places in every window of time.

A source that stands is a place x; one that moves is a place a window, x_1 … x_W. With g the density
of an onset around a place, relative to diffuse sound, and w(n) its window,

    L(x_1 … x_M) = Σ_n v_n log (Σ_m π_m,w(n) g(s_n · s_x_m,w(n)) + π_0) - κ Σ_m way of m in degrees

is climbed one source at a time, each by the best way over the cells of the grid beside the others
(Viterbi). Standing still costs nothing, so whoever stands has a way of one place; nobody goes
faster than so many degrees a second. What is believed of a source in a window is the posterior of
that chain of places, the others where they are.

    g (B, C)   onsets under cells    π (M, W)   shares of a window    v_n   weight of an onset
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from earatlas.localization.source_counter import (
    APART_DEGREES,
    CONE_DEGREES,
    NOWHERE,
    SAME_CONE_WORTH,
    WORTH,
)
from earatlas.tracking.identity_swaps import A_SECOND, untangled
from earatlas.tracking.trajectory_hmm import WayGrid
from earatlas.types import Array, Indices, Mask, Single

__all__ = ["FASTEST", "WAY_COST", "FoundWays", "Ways"]

FASTEST = 60.0  # degrees a second: three times as fast as somebody who walks by
# κ, nats a degree. With 0.1 and 0.3 errors were the same; with 0.1 standing sources went 86 degrees
# to and fro in 10 s, with 0.3 one of four walkers beside a standing talker became two sources.
WAY_COST = 0.2
MOVES = 0.03  # nats an onset that a source must gain by moving
_TOGETHER = 1.0  # nats a window for two in one place: ways may cross, but hardly go together
_NEW_SHARES = (0.5, 0.2)  # that a new source is looked for with, of what the others have
_ROUNDS = 3  # in which each source is placed again beside the others
_SHARE_STEPS = 10
_SHARE_WEIGHT = 4.0  # onsets (weighted) that the mean share of a source is worth in a window


@dataclass(frozen=True, eq=False)
class FoundWays:
    """Sources on their ways, and how much they explain."""

    cells: Indices  # (M, W)
    shares: Array  # (M + 1, W) the last is nowhere's
    explained: float  # nats, weighted
    way_degrees: Array  # (M,) how far each went


class Ways:
    """The onsets of a mixture under every cell and window of time."""

    def __init__(
        self, densities: Single, weights: Array, window: Indices, windows: int, grid: WayGrid
    ) -> None:
        """`densities` g (B, C), `weights` v (B,), `window` (B,) of each onset, so many in all."""
        self._g, self._v = densities, weights.astype(np.float32)
        self._w, self._W, self.grid = window, windows, grid
        # In order of windows, so that sums over a window are sums over a stretch.
        self._order = np.argsort(window, kind="stable")
        self._starts = np.searchsorted(window[self._order], np.arange(self._W))
        self.total = float(self._v.sum())
        self._lateral = np.degrees(np.arcsin(np.clip(grid.vectors[:, 1], -1, 1)))

    def standing(self, cells: list[int]) -> FoundWays:
        """Sources that stand in these cells."""
        return self._with_shares(np.repeat(np.array(cells)[:, None], self._W, axis=1))

    def counted(self, most: int) -> FoundWays:
        """As many as the onsets tell of, one more while it is worth it."""
        found = self.placed(np.zeros((0, self._W), dtype=np.intp))
        while len(found.cells) < most:
            more = self.placed(found.cells)
            worth = WORTH[min(len(found.cells), len(WORTH)) - 1] * self.total
            if self.score(more) - self.score(found) < worth:
                break
            found = more
        return found

    def numbered(self, count: int) -> FoundWays:
        """So many."""
        found = self._with_shares(np.zeros((0, self._W), dtype=np.intp))
        for _ in range(count):
            found = self.placed(found.cells)
        return found

    def score(self, found: FoundWays) -> float:
        """What they explain, less the cost of their ways and of each two on one cone."""
        lateral = self._lateral[found.cells]  # (M, W)
        same = np.abs(lateral[:, None] - lateral) < CONE_DEGREES
        pairs = np.triu(same.mean(axis=2), 1).sum()
        return float(
            found.explained
            - WAY_COST * found.way_degrees.sum()
            - SAME_CONE_WORTH * self.total * pairs
        )

    def placed(self, cells: Indices) -> FoundWays:
        """One more source beside those in cells (M, W), and all placed again."""
        tried = []
        for start in self._starts_beside(cells):
            for share in _NEW_SHARES if len(cells) else (1 - NOWHERE,):
                tried.append(self._improved(self._with_new(start, share)))
        return max(tried, key=self.score)

    def _starts_beside(self, cells: Indices) -> list[Indices]:
        """The known ways, and each of them as if it stood where it explains most.

        One source alone goes wherever it is loudest, from one talker to the other.
        """
        starts = [cells]
        for m in range(len(cells)):
            known = self._with_shares(np.delete(cells, m, axis=0))
            share = np.full(self._W, 0.5)
            others = self._explained(known.cells, 0.5 * known.shares[:-1], known.shares[-1])
            still = cells.copy()
            still[m] = int(self.likelihoods(others, share).sum(axis=0).argmax())
            starts.append(still)
        return starts

    def _with_new(self, cells: Indices, share: float) -> FoundWays:
        """One more source that has such a share of every window."""
        known = self._with_shares(cells)
        shares = np.concatenate(
            [known.shares[:-1] * (1 - share), np.full((1, self._W), share), known.shares[-1:]]
        )
        others = self._explained(cells, shares[: len(cells)], shares[-1])
        way = self._best(others, shares[-2], cells)
        return self._with_shares(np.concatenate([cells, way[None]]))

    def _improved(self, found: FoundWays) -> FoundWays:
        """All placed again, while it helps."""
        for _ in range(_ROUNDS if len(found.cells) > 1 else 0):
            again = self._with_shares(self._placed_again(found))
            if self.score(again) <= self.score(found) + 1e-3 * self.total:
                break
            found = again
        return found

    def restless(self, found: FoundWays) -> float:
        """Nats an onset that one more source would gain if it could be elsewhere every second."""
        e = self._explained(found.cells, found.shares[:-1], found.shares[-1])
        seconds = self._w // A_SECOND
        gain = 0.0
        for second in np.unique(seconds):
            own = np.flatnonzero(seconds == second)
            ratio = np.log(0.5 + 0.5 * self._g[own] / e[own, None])
            gain += float((self._v[own] @ ratio).max())
        return gain / self.total

    def _placed_again(self, found: FoundWays, but: int | None = None) -> Indices:
        """Each in turn on its best way beside the others; one may be left where it is."""
        cells = found.cells.copy()
        for m in set(range(len(cells))) - {but}:
            others = self.beside(replace(found, cells=cells), m)
            cells[m] = self._best(others, found.shares[m], np.delete(cells, m, axis=0))
        return cells

    def likelihoods(self, others: Single, share: Array) -> Single:
        """L (W, C) of a source with shares (W,) beside what others explain (B,)."""
        out = np.zeros((self._W, self._g.shape[1]), dtype=np.float32)
        ends = np.append(self._starts[1:], len(self._order))
        for w, (begin, end) in enumerate(zip(self._starts, ends, strict=True)):
            own = self._order[begin:end]
            if not len(own):
                continue
            mixed = self._g[own] * np.float32(share[w])
            mixed += others[own, None]
            ratio = np.log(mixed, out=mixed) - np.log(others[own, None] + np.float32(share[w]))
            out[w] = self._v[own] @ ratio
        return out

    def _best(self, others: Single, share: Array, beside: Indices) -> Indices:
        """The cells (W,) of a source beside others in their cells (M, W)."""
        L = self.likelihoods(others, share)
        near = np.cos(np.radians(APART_DEGREES))
        for cells in beside:
            cosines = np.einsum("wa,ca->wc", self.grid.vectors[cells], self.grid.vectors)
            L -= np.float32(_TOGETHER) * (cosines > near)
            L -= np.float32(SAME_CONE_WORTH * self.total / self._W) * (
                np.abs(self._lateral[cells][:, None] - self._lateral) < CONE_DEGREES
            )
        return self.grid.best_way(L, WAY_COST)[0]

    def _explained(self, cells: Indices, shares: Array, nowhere: Array) -> Single:
        """(B,) by sources in these cells, and by nowhere."""
        total = nowhere[self._w]
        rows = np.arange(len(self._w))
        for own, share in zip(cells, shares, strict=True):
            total = total + share[self._w] * self._g[rows, own[self._w]]
        return np.asarray(total, dtype=np.float32)

    def _with_shares(self, cells: Indices) -> FoundWays:
        """Sources in these cells with the shares of each window that explain most."""
        M, rows = len(cells), np.arange(len(self._w))
        p = np.stack([*(self._g[rows, own[self._w]] for own in cells), np.ones(len(rows))])
        shares = np.full((M + 1, self._W), (1 - NOWHERE) / max(M, 1))
        shares[-1] = NOWHERE if M else 1.0
        mean = shares.mean(axis=1)
        for _ in range(_SHARE_STEPS if M else 0):
            mixed = shares[:, self._w] * p
            mixed *= self._v / mixed.sum(axis=0)
            counts = np.stack([np.bincount(self._w, row, self._W) for row in mixed])
            mean = counts.sum(axis=1) / self.total
            drawn = counts + _SHARE_WEIGHT * mean[:, None]
            shares = drawn / drawn.sum(axis=0)
        explained = float(self._v @ np.log((shares[:, self._w] * p).sum(axis=0)))
        v = self.grid.vectors[cells]
        cosines = np.einsum("mwa,mwa->mw", v[:, 1:], v[:, :-1])
        way = np.degrees(np.arccos(np.clip(cosines, -1, 1)))
        same = cells[:, 1:] == cells[:, :-1]
        return FoundWays(cells, shares, explained, np.where(same, 0.0, way).sum(axis=1))

    def untangled(self, found: FoundWays) -> FoundWays:
        """The same ways, each going on after it met another as it went before.

        Where two are at one place nothing tells which is which, and the sum of their ways is the
        same if they are exchanged: who walked goes on walking.
        """
        told = np.stack([self.told(found, m) for m in range(len(found.cells))])
        whose = untangled(self.grid.vectors[found.cells], told)
        exchanged = self._with_shares(np.take_along_axis(found.cells, whose, axis=0))
        # Nobody can go from the one way to the other at once.
        return self._with_shares(self._placed_again(exchanged))

    def standing_still(self, found: FoundWays) -> tuple[FoundWays, Mask]:
        """The same with those that are not heard to move in one place each; and (M,) who moves."""
        cells, moves = found.cells.copy(), np.zeros(len(found.cells), dtype=bool)
        for m in range(len(cells)):
            L = self.likelihoods(self.beside(found, m), found.shares[m])
            place = int(L.sum(axis=0).argmax())
            gain = self.grid.best_way(L, WAY_COST)[1] - float(L[:, place].sum())
            moves[m] = gain > MOVES * self.total
            if not moves[m]:
                cells[m] = place
        return self._with_shares(cells), moves

    def one_standing(self, found: FoundWays) -> list[FoundWays]:
        """For each source, the same as if it stood where it explains most, and the others moved."""
        answers = []
        for m, start in enumerate(self._starts_beside(found.cells)[1:]):
            still = self._with_shares(start)
            for _ in range(_ROUNDS - 1):
                still = self._with_shares(self._placed_again(still, but=m))
            answers.append(still)
        return answers

    def beside(self, found: FoundWays, m: int) -> Single:
        """(B,) what all but source m explain."""
        cells, shares = np.delete(found.cells, m, axis=0), np.delete(found.shares[:-1], m, axis=0)
        return self._explained(cells, shares, found.shares[-1])

    def gain(self, found: FoundWays, m: int) -> float:
        """Nats an onset that are gained by source m being there."""
        without = self._with_shares(np.delete(found.cells, m, axis=0))
        return (found.explained - without.explained) / max(self.total, 1e-9)

    def told(self, found: FoundWays, m: int) -> Array:
        """(W,) how many (weighted) onsets of each window are source m's."""
        return np.bincount(self._w, self._v * self.claims(found, m), self._W).astype(np.float64)

    def claims(self, found: FoundWays, m: int) -> Array:
        """(B,) the share of each onset that is source m's."""
        own = found.shares[m][self._w] * self._g[np.arange(len(self._w)), found.cells[m][self._w]]
        return np.asarray(own / (own + self.beside(found, m)), dtype=np.float64)
