"""Partition of the training directions into compact blocks, and the charts relevant to each.

Input: directions x (N, C). Output: the rows of each block, and the components whose charts matter
there. A chart matters within some ten degrees of its centre, so that only a fraction of the
components enters the E-step of a block.

    N   directions      K   components      C   columns of a point      Γ_k   chart covariances
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from earatlas.geometry.spaces import Space
from earatlas.ppam.parameters import PPAMParameters
from earatlas.types import Array, Indices

__all__ = ["ChartSupport", "spatial_blocks"]

# Evidence: docs/figures/settings/ppam.md, "data_blocks".
_BLOCK_ROWS = 80  # approximate number of directions per block
_MAX_BLOCKS = 64  # most blocks; more would not reduce the number of charts per block
_NEGLIGIBLE_NATS = 40.0  # a responsibility of e^-40 changes no digit of a sum


def spatial_blocks(space: Space, x: Array) -> list[Indices]:
    """Partition directions (N, C) into blocks of rows; few directions form one block, in order."""
    count = min(len(x) // _BLOCK_ROWS, _MAX_BLOCKS)
    if count < 2:
        return [np.arange(len(x))]
    seeds = list(_farthest_points(space, x, count))
    nearest = space.squared_distances(x[seeds], x).argmin(axis=1)
    return [rows for seed in range(count) if len(rows := np.flatnonzero(nearest == seed))]


def _farthest_points(space: Space, x: Array, count: int) -> Iterator[int]:
    """Yield rows of directions, each as far as possible from all previous ones."""
    chosen, gap = 0, np.full(len(x), np.inf)
    for _ in range(count):
        yield chosen
        gap = np.minimum(gap, space.squared_distances(x[chosen][None], x)[:, 0])
        chosen = int(gap.argmax())


@dataclass(frozen=True, eq=False)
class ChartSupport:
    """The region in which each of K charts can have a responsibility that matters.

    The quadratic form of Γ_k is bounded by its eigenvalues: a component is left out where its upper
    bound is less than e^-40 of the lower bound of the best component. Cues are ignored; they can
    only count further against a distant chart.
    """

    space: Space
    centres: Array  # (K, C)
    log_peak: Array  # (K,) log density at the centre, up to a common constant
    max_variances: Array  # (K,) largest eigenvalue of Γ_k
    min_variances: Array  # (K,) smallest eigenvalue of Γ_k

    @classmethod
    def of(cls, model: PPAMParameters) -> ChartSupport:
        """Return the support of a model's charts."""
        values = np.asarray(np.linalg.eigvalsh(model.gammas), dtype=np.float64)
        log_peak = np.log(model.weights) - 0.5 * np.log(values).sum(axis=1)
        return cls(model.space, model.centres, log_peak, values[:, -1], values[:, 0])

    def relevant_components(self, x: Array) -> Indices:
        """Return the components that matter for at least one of the directions (n, C)."""
        half = 0.5 * self.space.squared_distances(self.centres, x)
        lower = (self.log_peak - half / self.min_variances).max(axis=1, keepdims=True)
        relevant = self.log_peak - half / self.max_variances > lower - _NEGLIGIBLE_NATS
        return np.flatnonzero(relevant.any(axis=0))
