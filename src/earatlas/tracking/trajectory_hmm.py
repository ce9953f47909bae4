"""Ways over cells of directions: the best one, what is believed of each window, and a smooth line.

In: how likely each cell is in each window of time (W, C), in nats. Out: ways of a source that is in
one cell a window, goes no further than it can, and pays for every degree that it goes. Standing
costs nothing: who is not heard to move stands.

    near (C, K)   cells that can be reached from a cell in one window    κ   nats a degree
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from earatlas.geometry.angles import to_vectors
from earatlas.types import Array, Indices, Single

__all__ = ["WayGrid", "smooth_way"]

_SLOPE = 0.05  # keeps a slope that a single window tells from being believed


@dataclass(frozen=True, eq=False)
class WayGrid:
    """Cells of directions, and which of them can be reached from one window to the next."""

    vectors: Array  # (C, 3)
    reach_degrees: float

    @classmethod
    def of(cls, directions: Array, reach_degrees: float) -> WayGrid:
        """From directions (C, 2) of the cells."""
        return cls(to_vectors(directions), reach_degrees)

    @cached_property
    def _reached(self) -> tuple[Indices, Single]:
        """(C, K) the cells in reach, itself first, and how far they are.

        Where there are no more, cell 0, infinitely far. Made when it is asked for: most recordings
        have nobody who moves.
        """
        from scipy.spatial import cKDTree

        v = self.vectors
        chord = 2 * np.sin(np.radians(min(self.reach_degrees, 179.0)) / 2)
        lists = cKDTree(v).query_ball_point(v, chord)
        counts = np.array([len(others) for others in lists])
        cell, other = np.repeat(np.arange(len(v)), counts), np.concatenate(lists).astype(np.intp)
        cosines = np.clip(np.einsum("na,na->n", v[cell], v[other]), -1, 1)
        apart = np.where(cell == other, 0.0, np.degrees(np.arccos(cosines)))
        order = np.lexsort((apart, cell != other, cell))
        place = np.arange(len(cell)) - np.repeat(np.cumsum(counts) - counts, counts)
        near = np.zeros((len(v), counts.max()), dtype=np.intp)
        degrees = np.full(near.shape, np.inf, dtype=np.float32)
        near[cell, place], degrees[cell, place] = other[order], apart[order]
        return near, degrees

    @property
    def near(self) -> Indices:
        """(C, K) the cell itself first, then those in reach, then cell 0 for want of more."""
        return self._reached[0]

    @property
    def degrees(self) -> Single:
        """(C, K) how far these are; infinite where there are no more."""
        return self._reached[1]

    def best_way(self, L: Single, cost: float) -> tuple[Indices, float]:
        """The cells (W,) with the largest sum of L (W, C) less the cost of the way, and that."""
        price = np.float32(cost) * self.degrees
        score, back = L[0], []
        for row in L[1:]:
            reached = score[self.near] - price
            choice = reached.argmax(axis=1)
            back.append(np.take_along_axis(self.near, choice[:, None], axis=1)[:, 0])
            score = np.take_along_axis(reached, choice[:, None], axis=1)[:, 0] + row
        cells = [int(score.argmax())]
        for came in reversed(back):
            cells.append(int(came[cells[-1]]))
        return np.array(cells[::-1]), float(score.max())

    def marginals(self, L: Single, cost: float) -> Array:
        """(W, C) where it is believed to be in each window, all others known."""
        price = np.float32(cost) * self.degrees
        forward = self._messages(L, price)
        backward = self._messages(L[::-1], price)[::-1]
        logs = forward + backward + L
        p = np.exp(logs - logs.max(axis=1, keepdims=True)).astype(np.float64)
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def _messages(self, L: Single, price: Single) -> Single:
        """log of what all windows before each tell of it (W, C)."""
        out = np.zeros_like(L)
        for w in range(1, len(L)):
            before = out[w - 1] + L[w - 1]
            before = before - before.max()
            reached = before[self.near] - price
            top = reached.max(axis=1)
            out[w] = top + np.log(np.exp(reached - top[:, None]).sum(axis=1))
        return out


def smooth_way(vectors: Array, weights: Array, width: float) -> Array:
    """Unit vectors (W, 3) of a way drawn through those of its windows (W, 3), weights (W,).

    In each window a line in time is fitted to the others, those near by counting most: whoever goes
    on at one speed is not held back by it.
    """
    t = np.arange(len(vectors), dtype=np.float64)
    out = np.empty_like(vectors)
    for w in range(len(t)):
        d = (t - t[w]) / width
        k = weights * np.exp(-0.5 * d**2) + 1e-12
        s0, s1, s2 = k.sum(), k @ d, k @ d**2
        level = s2 + _SLOPE * s0
        line = k * (level - s1 * d) / (s0 * level - s1**2)
        out[w] = line @ vectors
    way: Array = out / np.linalg.norm(out, axis=1, keepdims=True)
    return way
