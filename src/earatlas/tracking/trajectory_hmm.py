"""Hidden Markov model of the trajectory of one source over a grid of directions.

Inputs: the log-likelihood of each cell in each window, in nats. Outputs: the most probable path
(Viterbi) and the posterior of each window (forward-backward). From one window to the next the
source moves at most `max_step_degrees`; a move costs κ nats per degree, so a source is static
unless the onsets show a motion.

    log p(x_w | x_{w-1}) = -κ · distance(x_{w-1}, x_w) + constant

    W, C  windows, cells
    K     largest number of cells within reach of a cell
    L     (W, C) log-likelihoods, nats

References
----------
L. R. Rabiner, A tutorial on hidden Markov models and selected applications in speech recognition,
Proceedings of the IEEE 77, 257-286, 1989.

"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from earatlas.geometry.neighbours import pairs_within
from earatlas.types import Array, Indices, Single

__all__ = ["DirectionGridHMM", "smooth_trajectory"]


@dataclass(frozen=True, eq=False)
class DirectionGridHMM:
    """p(x_w | x_{w-1}) ∝ exp(-κ distance) within the largest step; any first cell is equal."""

    vectors: Array  # (C, 3) unit vectors of the cells
    max_step_degrees: float  # largest distance from one window to the next
    nats_per_degree: float  # κ, cost of the distance

    @cached_property
    def _neighbourhood(self) -> tuple[Indices, Single]:
        """Return the cells (C, K) within reach, itself first, and their distances in degrees.

        Rows with fewer than K neighbours are padded with cell 0 at an infinite distance. Computed
        when it is needed: in most recordings no source moves.
        """
        v = self.vectors
        chord = 2 * np.sin(np.radians(min(self.max_step_degrees, 179.0)) / 2)
        cell, other = pairs_within(v, chord)
        counts = np.bincount(cell, minlength=len(v))
        cosines = np.clip(np.einsum("na,na->n", v[cell], v[other]), -1, 1)
        distances = np.where(cell == other, 0.0, np.degrees(np.arccos(cosines)))
        order = np.lexsort((distances, cell != other, cell))
        rank = np.arange(len(cell)) - np.repeat(np.cumsum(counts) - counts, counts)
        neighbours = np.zeros((len(v), counts.max()), dtype=np.intp)
        neighbour_degrees = np.full(neighbours.shape, np.inf, dtype=np.float32)
        neighbours[cell, rank], neighbour_degrees[cell, rank] = other[order], distances[order]
        return neighbours, neighbour_degrees

    @property
    def neighbours(self) -> Indices:
        """Cells (C, K) within reach: the cell itself first; padded with cell 0."""
        return self._neighbourhood[0]

    @property
    def neighbour_degrees(self) -> Single:
        """Distances (C, K) of the neighbours in degrees; infinite where padded."""
        return self._neighbourhood[1]

    def viterbi(self, L: Single) -> tuple[Indices, float]:
        """Return the most probable path (W,) for L (W, C), and its score in nats."""
        penalty = np.float32(self.nats_per_degree) * self.neighbour_degrees
        # (K, C) in memory: the largest of K values is found for all cells at once.
        from_cells, costs = self.neighbours.T.copy(), penalty.T.copy()
        scores = [L[0]]
        for row in L[1:]:
            candidates = scores[-1].take(from_cells)
            candidates -= costs
            scores.append(candidates.max(axis=0) + row)
        # The predecessors are needed along the path only.
        cells = [int(scores[-1].argmax())]
        for score in reversed(scores[:-1]):
            reachable = self.neighbours[cells[-1]]
            cells.append(int(reachable[(score[reachable] - penalty[cells[-1]]).argmax()]))
        return np.array(cells[::-1]), float(scores[-1].max())

    def forward_backward(self, L: Single) -> Array:
        """Return the posterior (W, C) of the cells in each window for L (W, C)."""
        penalty = np.float32(self.nats_per_degree) * self.neighbour_degrees
        forward = self._forward_messages(L, penalty)
        backward = self._forward_messages(L[::-1], penalty)[::-1]
        logs = forward + backward + L
        p = np.exp(logs - logs.max(axis=1, keepdims=True)).astype(np.float64)
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def _forward_messages(self, L: Single, penalty: Single) -> Single:
        """Return the log of the forward messages (W, C), without the likelihood of the window."""
        out = np.zeros_like(L)
        for w in range(1, len(L)):
            previous = out[w - 1] + L[w - 1]
            previous = previous - previous.max()
            candidates = previous[self.neighbours] - penalty
            top = candidates.max(axis=1)
            out[w] = top + np.log(np.exp(candidates - top[:, None]).sum(axis=1))
        return out


def smooth_trajectory(vectors: Array, weights: Array, width: float) -> Array:
    """Smooth unit vectors (W, 3) with weights (W,) by local linear regression in time.

    The kernel is a Gaussian with a standard deviation of `width` windows. A constant velocity is
    reproduced without lag.
    """
    t = np.arange(len(vectors), dtype=np.float64)
    out = np.empty_like(vectors)
    for w in range(len(t)):
        d = (t - t[w]) / width
        k = weights * np.exp(-0.5 * d**2) + 1e-12
        s0, s1, s2 = k.sum(), k @ d, k @ d**2
        moment = s2 + 0.05 * s0  # regularized: a slope that one window suggests is not followed
        kernel = k * (moment - s1 * d) / (s0 * moment - s1**2)
        out[w] = kernel @ vectors
    trajectory: Array = out / np.linalg.norm(out, axis=1, keepdims=True)
    return trajectory
