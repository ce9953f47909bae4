"""Training data in blocks of neighbouring directions, and the charts that are relevant to a block.

Input: directions x (N, C) and cues y (N, D). Output: blocks of rows that fit into memory, with
centred cues, and sums over all rows. A chart matters within some ten degrees of its centre, so that
only a fraction of the components enters the E-step of a block. The equations of EM are in
`earatlas.ppam.em`.

    N   directions      K   components      C   columns of a point      Γ_k   chart covariances
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from earatlas.geometry.spaces import Space
from earatlas.ppam.parameters import PPAMParameters
from earatlas.types import Array, Indices

__all__ = ["BlockSettings", "ChartSupport", "TrainingBlock", "TrainingData"]


# Evidence: docs/figures/settings/ppam.md, "data_blocks".
@dataclass(frozen=True, slots=True)
class BlockSettings:
    """Settings of the blocks; they change time and memory, not the result."""

    megabytes: float = 24.0  # size of work arrays, MB; a copy of y may have eight times that
    rows: int = 80  # approximate number of directions per spatial block
    max_blocks: int = 64  # more would not reduce the number of charts per block
    negligible_nats: float = 40.0  # a responsibility of e^-40 changes no digit of a sum


@dataclass(frozen=True, eq=False, slots=True)
class TrainingBlock:
    """Some rows of the training data, whose directions are within a circle."""

    rows: Indices  # (n,) rows of the data
    x: Array  # (n, C) directions, degrees
    y: Array  # (n, D) cues minus their mean
    middle: Array  # (1, C) centre of the circle
    radius: float  # of the circle, degrees


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Directions and cues; the mean of the cues is subtracted for numerical precision."""

    space: Space
    x: Array  # (N, C) directions, degrees
    y: Array  # (N, D) cues
    settings: BlockSettings

    def __len__(self) -> int:
        return len(self.x)

    @cached_property
    def offset(self) -> Array:
        """Mean cues (D,)."""
        mean: Array = self.y.mean(axis=0)
        return mean

    @cached_property
    def squares(self) -> Array:
        """Σ_n y_nd² (D,) of the centred cues."""
        total = np.zeros(self.y.shape[1])
        for s in self.slices(1):
            total += (self._centred(s) ** 2).sum(axis=0)
        return total

    def gram_product(self, P: Array) -> Array:
        """Return Yᵀ Y P of the centred cues for P (D, J)."""
        total = np.zeros_like(P)
        for s in self.slices(P.shape[1]):
            y = self._centred(s)
            total += y.T @ (y @ P)
        return total

    def blocks(self, columns: int) -> Iterator[TrainingBlock]:
        """Yield all rows in spatial blocks; `columns` + 2 D numbers per row fit into memory."""
        order, ends = self._spatial_order
        for block in self.slices(columns):
            cuts = ends[(ends > block.start) & (ends < block.stop)].tolist()
            for start, stop in itertools.pairwise([block.start, *cuts, block.stop]):
                rows, circle = order[start:stop], self._circles[int(ends.searchsorted(stop))]
                yield TrainingBlock(rows, self.x[rows], self._centred(slice(start, stop)), *circle)

    def slices(self, columns: int) -> Iterator[slice]:
        """Yield slices of rows; `columns` + 2 D numbers per row fit into memory."""
        N, D = self.y.shape
        size = max(int(self.settings.megabytes * 1e6 / 8 / (columns + 2 * D)), 1)
        return (slice(i, min(i + size, N)) for i in range(0, N, size))

    @cached_property
    def spatial_blocks(self) -> list[Indices]:
        """Partition of the rows by direction; few directions form one block, in their order."""
        space, x = self.space, self.x
        count = min(len(x) // self.settings.rows, self.settings.max_blocks)
        if count < 2:
            return [np.arange(len(x))]
        seeds = list(_farthest_points(space, x, count))
        nearest = space.nearest(x[seeds], x)
        return [rows for seed in range(count) if len(rows := np.flatnonzero(nearest == seed))]

    @cached_property
    def _spatial_order(self) -> tuple[Indices, Indices]:
        """Rows (N,) of the data sorted by spatial block, and the end of each block."""
        blocks = self.spatial_blocks
        return np.concatenate(blocks), np.cumsum([len(rows) for rows in blocks])

    @cached_property
    def _circles(self) -> list[tuple[Array, float]]:
        """Centre (1, C) and radius in degrees of a circle around each spatial block."""
        circles, space = [], self.space
        for rows in self.spatial_blocks:
            x = self.x[rows]
            middle = space.exp(x[:1], space.log(x[0], x).mean(axis=0)[None])
            circles.append((middle, float(np.sqrt(space.squared_distances(middle, x).max()))))
        return circles

    @cached_property
    def _centred_cues(self) -> Array | None:
        """All centred cues (N, D) in spatial order, or None if they exceed the memory setting."""
        fits = self.y.nbytes <= 8e6 * self.settings.megabytes
        return self.y[self._spatial_order[0]] - self.offset if fits else None

    def _centred(self, s: slice) -> Array:
        """Return the centred cues (n, D) of some rows in spatial order."""
        if self._centred_cues is None:
            return self.y[self._spatial_order[0][s]] - self.offset
        return self._centred_cues[s]


def _farthest_points(space: Space, x: Array, count: int) -> Iterator[int]:
    """Yield rows of directions, each as far as possible from all previous ones."""
    chosen, gap = 0, np.full(len(x), np.inf)
    squared_distances = space.distances_from(x)
    for _ in range(count):
        yield chosen
        gap = np.minimum(gap, squared_distances(chosen))
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
    negligible_nats: float

    @classmethod
    def of(cls, model: PPAMParameters, settings: BlockSettings) -> ChartSupport:
        """Return the support of a model's charts."""
        values = np.asarray(np.linalg.eigvalsh(model.gammas), dtype=np.float64)
        log_peak = np.log(model.weights) - 0.5 * np.log(values).sum(axis=1)
        return cls(
            model.space, model.centres, log_peak, values[:, -1], values[:, 0],
            settings.negligible_nats,
        )  # fmt: skip

    def relevant_components(self, block: TrainingBlock) -> Indices:
        """Return the components that matter for at least one of the directions of a block."""
        near = self._near_circle(block)
        log_peak = self.log_peak[near]
        half = 0.5 * self.space.squared_distances(self.centres[near], block.x)
        lower = (log_peak - half / self.min_variances[near]).max(axis=1, keepdims=True)
        relevant = log_peak - half / self.max_variances[near] > lower - self.negligible_nats
        chosen: Indices = near[relevant.any(axis=0)]
        return chosen

    def _near_circle(self, block: TrainingBlock) -> Indices:
        """Return the components that may matter within the circle around the directions.

        By the triangle inequality, the distance of a centre from any of the directions differs from
        that from the centre of the circle by at most its radius.
        """
        distance = np.sqrt(self.space.squared_distances(self.centres, block.middle)[0])
        farthest, least = distance + block.radius, np.maximum(distance - block.radius, 0.0)
        lower = (self.log_peak - 0.5 * farthest**2 / self.min_variances).max()
        upper = self.log_peak - 0.5 * least**2 / self.max_variances
        return np.flatnonzero(upper > lower - self.negligible_nats)
