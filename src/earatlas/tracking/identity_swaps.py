"""Who is who after two sources met: whoever walked goes on walking.

In: ways of several sources, and how much of each was heard when. Out: which of the ways each source
is on in every window. Where two are in one place nothing of their direction tells which is which,
and the sum of their ways is the same if they are exchanged. So each is seen before and after as
going along a line, at the place and speed of the windows in which it was heard; those that go on
most alike belong together.
"""

from __future__ import annotations

import numpy as np

from earatlas.types import Array, Indices

__all__ = ["A_SECOND", "untangled"]

A_SECOND = 4  # windows
# One that is silent while they meet is not seen to come as near as it does: with 20 degrees, the
# meeting of two walkers of whom one was silent for 2.5 s was not seen.
_MEETING_DEGREES = 45.0
_LINE_WINDOWS, _FARTHEST_WINDOWS = 8, 20  # that a line is drawn through, and how far from a meeting
_HEARD = 2.0  # onsets (weighted) of a window that tell where a source is


def untangled(vectors: Array, told: Array) -> Indices:
    """Which way (M, W) each source is on, of ways (M, W, 3) with so many onsets (M, W)."""
    M, W = told.shape
    whose = np.repeat(np.arange(M)[:, None], W, axis=1)
    told = told.copy()
    vectors = vectors.copy()
    for a in range(M):
        for b in range(a):
            pair, other = [a, b], [b, a]
            for w in _meetings(vectors[a], vectors[b]):
                if _exchanged(vectors[pair], told[pair], w):
                    for part in (whose, told, vectors):
                        part[pair, w:] = part[other, w:]
    return whose


def _meetings(a: Array, b: Array) -> list[int]:
    """Windows in which two ways (W, 3) are nearest, of each stretch in which they are near."""
    gap = np.degrees(np.arccos(np.clip(np.einsum("wa,wa->w", a, b), -1, 1)))
    stretches: list[list[int]] = []
    for w in np.flatnonzero(gap < _MEETING_DEGREES):
        if not stretches or w - stretches[-1][-1] > _LINE_WINDOWS:
            stretches.append([])
        stretches[-1].append(int(w))
    return [min(stretch, key=lambda w: float(gap[w])) for stretch in stretches]


def _exchanged(pair: Array, told: Array, w: int) -> bool:
    """Whether two ways (2, W, 3) go on more alike if they change places in window w."""
    lines = [
        _line(way, weights, w, side)
        for way, weights in zip(pair, told, strict=True)
        for side in (-1, 1)
    ]
    if not all(map(len, lines)):
        return False
    a, a_after, b, b_after = lines
    stay = ((a - a_after) ** 2).sum() + ((b - b_after) ** 2).sum()
    swap = ((a - b_after) ** 2).sum() + ((b - a_after) ** 2).sum()
    return bool(swap < stay)


def _line(way: Array, told: Array, w: int, side: int) -> Array:
    """Place and change in a second (2, 3) in window w, as seen from one side; empty if unheard."""
    after = np.arange(len(way)) - w
    apart = side * after
    rows = np.flatnonzero((told > _HEARD) & (apart > 0) & (apart <= _FARTHEST_WINDOWS))
    rows = rows[np.argsort(apart[rows])][:_LINE_WINDOWS]
    if len(rows) < 2:
        return np.zeros((0, 3))
    weights = np.sqrt(told[rows])[:, None]
    A = np.column_stack([np.ones(len(rows)), after[rows] / A_SECOND]) * weights
    # A second of standing still: few windows near each other do not tell a speed.
    A = np.concatenate([A, [[0.0, np.sqrt(_HEARD)]]])
    y = np.concatenate([way[rows] * weights, np.zeros((1, 3))])
    line: Array = np.linalg.lstsq(A, y, rcond=None)[0]
    return line
