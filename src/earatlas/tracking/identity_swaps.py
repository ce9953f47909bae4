"""Resolution of identity swaps after two trajectories have met.

Inputs: the trajectories of several sources, and the number of onsets per source and window. Output:
the trajectory that each source follows in each window. Where two sources are in one direction,
onsets do not determine which is which, and the likelihood is the same if the identities are swapped
from there on. Therefore a line (position and velocity) is fitted to each trajectory before and
after the encounter, and the assignment with the smaller change of both is chosen.

    M, W  sources, windows
"""

from __future__ import annotations

import numpy as np

from earatlas.types import Array, Indices

__all__ = ["WINDOWS_PER_SECOND", "resolve_identity_swaps"]

# Evidence: docs/figures/settings/tracking.md, "identity_swaps".
WINDOWS_PER_SECOND = 4  # windows of a trajectory
_ENCOUNTER_DEGREES = 45.0  # distance within which two sources may swap identities
_LINE_WINDOWS = 8  # windows that a line is fitted to
_MAX_LINE_DISTANCE = 20  # largest distance of these windows from the encounter, windows
_MIN_ONSETS = 2.0  # weighted onsets of a window that is used


def resolve_identity_swaps(vectors: Array, onset_counts: Array) -> Indices:
    """Return the index (M, W) of the trajectory that each source follows in each window.

    `vectors` (M, W, 3) are the trajectories, `onset_counts` (M, W) their weighted onsets per
    window.
    """
    M, W = onset_counts.shape
    assignment = np.repeat(np.arange(M)[:, None], W, axis=1)
    onset_counts = onset_counts.copy()
    vectors = vectors.copy()
    for a in range(M):
        for b in range(a):
            pair, swapped = [a, b], [b, a]
            for w in _closest_approaches(vectors[a], vectors[b]):
                if _swap_is_smoother(vectors[pair], onset_counts[pair], w):
                    for array in (assignment, onset_counts, vectors):
                        array[pair, w:] = array[swapped, w:]
    return assignment


def _closest_approaches(a: Array, b: Array) -> list[int]:
    """Return the window of the smallest distance of each encounter of two paths (W, 3)."""
    distance = np.degrees(np.arccos(np.clip(np.einsum("wa,wa->w", a, b), -1, 1)))
    encounters: list[list[int]] = []
    for w in np.flatnonzero(distance < _ENCOUNTER_DEGREES):
        if not encounters or w - encounters[-1][-1] > _LINE_WINDOWS:
            encounters.append([])
        encounters[-1].append(int(w))
    return [min(encounter, key=lambda w: float(distance[w])) for encounter in encounters]


def _swap_is_smoother(pair: Array, onset_counts: Array, w: int) -> bool:
    """Return whether swapping two trajectories (2, W, 3) from window w on is smoother."""
    lines = [
        _fit_line(trajectory, weights, w, side)
        for trajectory, weights in zip(pair, onset_counts, strict=True)
        for side in (-1, 1)
    ]
    if not all(map(len, lines)):
        return False
    a, a_after, b, b_after = lines
    kept_cost = ((a - a_after) ** 2).sum() + ((b - b_after) ** 2).sum()
    swapped_cost = ((a - b_after) ** 2).sum() + ((b - a_after) ** 2).sum()
    return bool(swapped_cost < kept_cost)


def _fit_line(trajectory: Array, onset_counts: Array, w: int, side: int) -> Array:
    """Fit position and velocity (2, 3) at window w to the windows on one side of it.

    The velocity is per second. The result is empty with fewer than two windows that have onsets.
    """
    offset = np.arange(len(trajectory)) - w
    distance = side * offset
    rows = np.flatnonzero(
        (onset_counts > _MIN_ONSETS) & (distance > 0) & (distance <= _MAX_LINE_DISTANCE)
    )
    rows = rows[np.argsort(distance[rows])][:_LINE_WINDOWS]
    if len(rows) < 2:
        return np.zeros((0, 3))
    weights = np.sqrt(onset_counts[rows])[:, None]
    A = np.column_stack([np.ones(len(rows)), offset[rows] / WINDOWS_PER_SECOND]) * weights
    # A prior of zero velocity: a few neighbouring windows do not determine a speed.
    A = np.concatenate([A, [[0.0, np.sqrt(_MIN_ONSETS)]]])
    y = np.concatenate([trajectory[rows] * weights, np.zeros((1, 3))])
    line: Array = np.linalg.lstsq(A, y, rcond=None)[0]
    return line
