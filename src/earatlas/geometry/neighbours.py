"""Nearest neighbours of points on the unit sphere, by a cell list or a k-d tree.

Inputs are unit vectors (N, 3); outputs are chords (straight distances) and row numbers. Cubic
cells of a given side divide the space; all points within one side of a target are in the 27 cells
around it. The import of `scipy.spatial.cKDTree` takes longer than this search among a few thousand
directions. The tree is used for points that are so dense in places that cells have too many.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from earatlas.types import Array, Indices

__all__ = ["NeighbourSettings", "nearest_neighbours", "pairs_within"]


# Evidence: docs/figures/settings/geometry.md, "neighbours".
@dataclass(frozen=True, slots=True)
class NeighbourSettings:
    """When the cell list is used."""

    max_pairs: int = 4_000_000  # pairs in adjacent cells, which take 70 bytes each


_SETTINGS = NeighbourSettings()
_DIAMETER = 2.0  # largest chord
# Cells per axis on each side of the sphere, so that cells around a target always exist
_MARGIN = 2


def nearest_neighbours(
    points: Array,
    targets: Array,
    k: int = 1,
    *,
    max_chord: float = _DIAMETER,
    settings: NeighbourSettings = _SETTINGS,
) -> tuple[Array, Indices]:
    """Return chords (T, k) and rows (T, k) of the k points (N, 3) nearest to each target (T, 3).

    Neighbours are sorted by distance; k is at most N. Targets with fewer than k neighbours within
    `max_chord` have infinite chords there.

    >>> chords, rows = nearest_neighbours(np.eye(3), np.array([[0.6, 0.8, 0.0]]), k=2)
    >>> rows.tolist(), chords.round(3).tolist()
    ([[1, 0]], [[0.632, 0.894]])
    """
    k = min(k, len(points))
    chords = np.full((len(targets), k), np.inf)
    rows = np.zeros((len(targets), k), dtype=np.intp)
    remaining = np.arange(len(targets))
    # Points that cover the sphere evenly have 2 k neighbours within one side.
    side = min(np.sqrt(8 * k / len(points)), max_chord)
    while len(remaining):
        cells = _CellList(points, targets[remaining], side)
        if cells.n_pairs > settings.max_pairs:
            return _search_tree(points, targets, k, max_chord)
        target, row, chord = cells.pairs()
        counts = np.bincount(target, minlength=len(remaining))
        rank = np.arange(len(target)) - np.repeat(np.cumsum(counts) - counts, counts)
        shape = len(remaining), max(int(counts.max(initial=0)), k)
        chord_table, row_table = np.full(shape, np.inf), np.zeros(shape, dtype=np.intp)
        chord_table[target, rank], row_table[target, rank] = chord, row
        best = np.argpartition(chord_table, k - 1, axis=1)[:, :k]
        near = np.take_along_axis(chord_table, best, axis=1)
        order = np.argsort(near, axis=1, kind="stable")
        chords[remaining] = np.take_along_axis(near, order, axis=1)
        best = np.take_along_axis(best, order, axis=1)
        rows[remaining] = np.take_along_axis(row_table, best, axis=1)
        if side >= max_chord:
            chords[chords > max_chord] = np.inf
            break
        # Points outside of the adjacent cells are farther away than one side.
        remaining = remaining[chords[remaining, -1] > side]
        side = min(2 * side, max_chord)
    return chords, rows


def _search_tree(points: Array, targets: Array, k: int, max_chord: float) -> tuple[Array, Indices]:
    """Return the chords and rows of `nearest_neighbours`."""
    from scipy.spatial import cKDTree  # imported here because it takes 0.3 s

    chords, rows = cKDTree(points).query(targets, np.arange(1, k + 1))
    chords[chords > max_chord] = np.inf
    return chords, rows.astype(np.intp)


def pairs_within(vectors: Array, chord: float) -> tuple[Indices, Indices]:
    """Return the pairs (P,), (P,) of rows of (N, 3) that are at most a chord apart.

    Each pair is listed in both orders, and each row with itself; the first rows are sorted.

    >>> [rows.tolist() for rows in pairs_within(np.eye(3)[[0, 0, 1]], 0.1)]
    [[0, 0, 1, 1, 2], [0, 1, 0, 1, 2]]
    """
    first, second, distances = _CellList(vectors, vectors, chord).pairs()
    near = distances <= chord
    return first[near], second[near]


class _CellList:
    """Points sorted by cell, and where the cells around each target begin and end."""

    def __init__(self, points: Array, targets: Array, side: float) -> None:
        side = max(side, 0.01)  # smaller cells would need a large table
        per_axis = int(_DIAMETER / side) + 1 + 2 * _MARGIN
        strides = np.array([per_axis * per_axis, per_axis, 1])

        def cell(vectors: Array) -> Indices:
            number: Indices = (np.floor((vectors + 1) / side).astype(np.intp) + _MARGIN) @ strides
            return number

        own = cell(points)
        self._points, self._targets = points, targets
        self._order = np.argsort(own, kind="stable")
        end = np.cumsum(np.bincount(own, minlength=per_axis**3))  # of each cell, in `_order`
        # Three adjacent cells along the last axis are contiguous.
        columns = np.array(list(product((-1, 0, 1), repeat=2))) @ strides[:2]
        middle = cell(targets)[:, None] + columns
        self._starts = end[middle - 2]  # (T, 9)
        self._counts = end[middle + 1] - self._starts

    @property
    def n_pairs(self) -> int:
        """Number of pairs in adjacent cells."""
        return int(self._counts.sum())

    def pairs(self) -> tuple[Indices, Indices, Array]:
        """Return target, point and chord of all pairs in adjacent cells, sorted by target."""
        counts = self._counts.ravel()
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        row = self._order[np.repeat(self._starts.ravel(), counts) + within]
        target = np.repeat(np.arange(len(self._targets)), self._counts.sum(axis=1))
        difference = self._points[row] - self._targets[target]
        return target, row, np.sqrt(np.einsum("pa,pa->p", difference, difference))
