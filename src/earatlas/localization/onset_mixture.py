"""Directions of several simultaneous sources: a mixture model of onset bins.

Input: onset bins of a mixture (`earatlas.features.onset_detector`) and a head's `DirectSoundModel`
(`earatlas.localization.onset_likelihood`). Output: the directions of M sources, a log-likelihood of
directions for each source, and the evidence for each source.

Most onset bins are dominated by one source. With g the density of a bin given a direction, relative
to diffuse sound, and x_1 … x_M the directions,

    L(x_1 … x_M) = Σ_n v_n log (Σ_m π_m g(s_n · s_x_m) + w_0)      Σ_m π_m = 1 - w_0

is maximized one source at a time over the whole grid, so the result does not depend on an
initialization: first one source alone, then each further source given the previous ones, and then
each source again given the others. The log-likelihood of source m is L as a function of x_m with
the other directions fixed: bins that the others explain carry little information about it, and a
front-back ambiguity remains if the bins leave it open. The evidence of a source is the increase of
L over the other sources alone, to which its mixing weight is then distributed.

    v_n   weight of a bin: about one vote per frequency       w_0   weight of the diffuse component
    B  onset bins    G  directions    M  sources
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from earatlas.features.onset_detector import OnsetBins
from earatlas.geometry.angles import to_vectors
from earatlas.localization.mixture_scan import MixtureScan
from earatlas.localization.onset_likelihood import (
    DirectionLogLikelihood,
    DirectSoundModel,
    LeaveOneOutTemplates,
    bin_weights,
)
from earatlas.localization.source_counter import (
    DIFFUSE_WEIGHT,
    MIN_SEPARATION_DEGREES,
    SourceCounter,
)
from earatlas.types import Array, Indices, Mask, Single

__all__ = ["DetectedSource", "OnsetMixture"]

# Evidence: docs/figures/settings/localization.md, "onset_mixture".
_EM_STEPS = 15  # EM iterations of the mixing weights
_RARE_WEIGHT = 0.1  # initial mixing weight of a further source with few onsets
_MIN_WEIGHT = 0.03  # smallest mixing weight
_REFINEMENT_ROUNDS = 3  # rounds in which each source is placed again given the others
_N_FINE_CELLS = 60  # coarse cells per source that are evaluated on the fine grid
_FINE_ROUNDS = 2  # rounds of refinement on the fine grid


@dataclass(frozen=True, eq=False)
class DetectedSource:
    """One of several sources, estimated from its onsets."""

    log_likelihood: DirectionLogLikelihood  # given the directions of the other sources
    direction: Array  # (C,) of the maximum
    bins: float  # expected number of its onset bins
    nats_per_bin: float  # per (weighted) bin of its own, over diffuse sound
    evidence: float  # nats per (weighted) bin of all bins that the source adds
    responsibilities: Array  # (B,) posterior probability that a bin belongs to the source


class OnsetMixture:
    """Mixture model of the onsets of several sources, on a grid of directions."""

    def __init__(
        self,
        model: DirectSoundModel,
        bins: OnsetBins,
        leave_one_out: LeaveOneOutTemplates | None = None,
    ) -> None:
        self.model, self.bins, self._leave_one_out = model, bins, leave_one_out
        self._weights = bin_weights(bins.f).astype(np.float32)
        self._table = np.exp(model.log_densities)
        self._coarse, self._cell = model.cells
        self._densities = self._densities_at(self._coarse, model.coarse_points)
        self._scan = MixtureScan(self._densities, self._weights)

    def _densities_at(self, rows: Indices, points: Single) -> Single:
        """Return g (B, rows) of every bin at points (F, 3, rows) of the grid."""
        out = np.empty((len(self.bins), len(rows)), dtype=np.float32)
        for own, densities in self.model.iter_table_values(self._table, self.bins, points):
            out[own] = densities
        if self._leave_one_out is not None:
            hit, replaced = self._leave_one_out.of(rows)
            for own, densities in self.model.iter_table_values(self._table, self.bins, replaced):
                out[own, hit] = densities
        return out

    def _likelihoods(self, densities: Single, others: Single, weight: float) -> Single:
        """Return L (G,) of a source at G directions, given the density of the others (B,)."""
        mixed = densities * np.float32(weight)
        mixed += others[:, None]
        likelihoods: Single = self._weights @ np.log(mixed, out=mixed)
        return likelihoods

    def search_up_to(self, count: int) -> list[list[int]]:
        """Return the best cells found for 1, 2, …, `count` sources."""
        fits: list[list[int]] = []
        for _ in range(count):
            fits.append(self._add_source(fits[-1] if fits else []))
        return fits

    def _add_source(self, cells: list[int]) -> list[int]:
        """Add one source, and place all sources again given the others.

        Sources have unequal numbers of onsets: the new source is tried both with the same mixing
        weight as the others and with a small one, and the better fit is taken.
        """
        M = len(cells) + 1
        tried: list[list[int]] = []
        refined: dict[tuple[int, ...], list[int]] = {}  # results by their starting cells
        for weight in ((1 - DIFFUSE_WEIGHT) / M, _RARE_WEIGHT) if cells else (1 - DIFFUSE_WEIGHT,):
            before = self.mixing_weights(cells)
            weights = np.append(
                before * (1 - DIFFUSE_WEIGHT - weight) / (1 - DIFFUSE_WEIGHT), weight
            )
            chosen = [*cells, self._best_cell(cells, weights[:-1], weight)]
            if tuple(chosen) not in refined:
                refined[tuple(chosen)] = self._refine(chosen) if M > 1 else chosen
            tried.append(refined[tuple(chosen)])
        return max(tried, key=self.score)

    def _refine(self, cells: list[int]) -> list[int]:
        """Move each source in turn to its best cell given the others."""
        chosen = list(cells)
        for _ in range(_REFINEMENT_ROUNDS):
            before, weights = list(chosen), self.mixing_weights(chosen)
            for m in range(len(chosen)):
                others = chosen[:m] + chosen[m + 1 :]
                chosen[m] = self._best_cell(others, np.delete(weights, m), weights[m])
            if chosen == before:
                break
        return chosen

    def mixing_weights(self, cells: list[int]) -> Array:
        """Return the maximum-likelihood mixing weights (M,), by EM; they sum to 1 - w_0."""
        if not cells:
            return np.zeros(0)
        p, v = self._densities[:, cells], self._weights / max(float(self._weights.sum()), 1e-9)
        w = np.full(len(cells), (1 - DIFFUSE_WEIGHT) / len(cells))
        for _ in range(_EM_STEPS):
            w = np.maximum(w * (v / (p @ w + DIFFUSE_WEIGHT) @ p), _MIN_WEIGHT)
            w *= (1 - DIFFUSE_WEIGHT) / w.sum()
        return w

    def _best_cell(self, others: list[int], weights: Array, weight: float) -> int:
        """Return the best cell of a further source given the others."""
        L = self._scan.at(weight, self._mixture_density(others, weights))
        grid, coarse = self.model.grid, self._coarse
        L[_too_near(grid[coarse], grid[coarse[others]])] = -np.inf
        return int(L.argmax())

    def _mixture_density(self, cells: list[int], weights: Array) -> Single:
        """Return the density (B,) of sources in these cells and the diffuse component."""
        density: Single = (self._densities[:, cells] @ weights + DIFFUSE_WEIGHT).astype(np.float32)
        return density

    def count_sources(self, max_sources: int) -> list[int]:
        """Return the cells of as many sources as the onsets support."""
        return self._counter.count(max_sources)

    def next_source_ratio(self, cells: list[int]) -> float:
        """Return the gain of one more source, as a ratio of the gain that is required."""
        return self._counter.next_source_ratio(cells)

    @cached_property
    def _counter(self) -> SourceCounter:
        return SourceCounter(self._densities, self._weights, self.model.grid[self._coarse])

    def second_source_gain(self) -> float:
        """Return the nats per onset by which two sources fit better than one."""
        one, two = self.search_up_to(2)
        return self.score(two) - self.score(one)

    def score(self, cells: list[int]) -> float:
        """Return L per (weighted) bin of sources in these cells, at the best mixing weights."""
        logs = np.log(self._mixture_density(cells, self.mixing_weights(cells)))
        return float(self._weights @ logs / max(float(self._weights.sum()), 1e-9))

    def detected_sources(self, cells: list[int]) -> list[DetectedSource]:
        """Return the sources in these cells, refined on the fine grid given the others."""
        M, weights = len(cells), self.mixing_weights(cells)
        own = [weights[m] * np.take(self._densities, cell, axis=1) for m, cell in enumerate(cells)]
        directions = [self.model.grid[self._coarse[cell]] for cell in cells]
        rows: list[Indices] = []
        fine: list[Single] = []
        for round_number in range(_FINE_ROUNDS):
            for m in range(M):
                others = _others(own, m)
                if round_number == 0:
                    coarse = self._scan.at(weights[m], others)
                    rows.append(self._fine_rows(coarse))
                    fine.append(self._densities_at(rows[m], self.model.points(rows[m])))
                L = self._likelihoods(fine[m], others, weights[m])
                occupied = np.array(directions[:m] + directions[m + 1 :])
                L[_too_near(self.model.grid[rows[m]], occupied)] = -np.inf
                best = int(L.argmax())
                own[m] = weights[m] * np.take(fine[m], best, axis=1)
                directions[m] = self.model.grid[rows[m][best]]
        return [self._source(own, m, weights[m], rows[m], fine[m], directions) for m in range(M)]

    def _fine_rows(self, L: Single) -> Indices:
        """Return the grid rows in the cells of largest L."""
        count = min(_N_FINE_CELLS, len(L))
        best = np.zeros(len(L), dtype=bool)
        best[np.argpartition(-L, count - 1)[:count]] = True
        return np.flatnonzero(best[self._cell])

    def _source(
        self,
        every: list[Single],
        m: int,
        weight: float,
        rows: Indices,
        fine: Single,
        directions: list[Array],
    ) -> DetectedSource:
        """Assemble source m; its L is relative to a diffuse component of the same weight."""
        v, grid, coarse = self._weights, self.model.grid, self._coarse
        own, others = every[m], _others(every, m)
        rest = 1 - DIFFUSE_WEIGHT - weight  # without source m, the others take over its weight
        without = np.ones_like(others)
        if rest > 1e-6:
            without = (others - DIFFUSE_WEIGHT) * ((1 - DIFFUSE_WEIGHT) / rest) + DIFFUSE_WEIGHT
        evidence = float(v @ np.log((others + own) / without)) / max(float(v.sum()), 1e-9)
        diffuse = float(v @ np.log(others + weight))
        near = self._likelihoods(fine, others, weight).astype(np.float64) - diffuse
        far = np.setdiff1d(np.arange(len(coarse)), self._cell[rows])
        L = self._scan.at(weight, others)[far].astype(np.float64) - diffuse
        sizes = np.bincount(self._cell, minlength=len(coarse))[far]
        responsibilities = (own / (own + others)).astype(np.float64)
        count, own_weight = float(responsibilities.sum()), float(v @ responsibilities)
        nats_per_bin = float(near.max()) / max(own_weight, 1e-9)
        every_direction = np.concatenate([grid[rows], grid[coarse[far]]])
        likelihoods = np.concatenate([near, L])
        # Exclude the directions of the others; otherwise both posteriors peak at the louder source.
        occupied = np.array(directions[:m] + directions[m + 1 :])
        likelihoods[_too_near(every_direction, occupied)] = -np.inf
        snr_db = _weighted_median(self.bins.snr_db, responsibilities)
        log_likelihood = DirectionLogLikelihood(
            every_direction,
            likelihoods,
            np.concatenate([np.ones(len(rows)), sizes]),
            np.array([nats_per_bin, snr_db, np.log2(max(count, 1.0))]),
        )
        return DetectedSource(
            log_likelihood, directions[m], count, nats_per_bin, evidence, responsibilities
        )


def _too_near(directions: Array, others: Array) -> Mask:
    """Return which (G,) directions are too close to those of other sources."""
    if not len(others):
        return np.zeros(len(directions), dtype=bool)
    cosines = to_vectors(directions) @ to_vectors(others).T
    near: Mask = (cosines > np.cos(np.radians(MIN_SEPARATION_DEGREES))).any(axis=1)
    return near


def _others(own: list[Single], m: int) -> Single:
    """Return the density (B,) of all sources but m, and of the diffuse component."""
    total = np.full(len(own[m]), DIFFUSE_WEIGHT, dtype=np.float32)
    for k, density in enumerate(own):
        if k != m:
            total += density
    return total


def _weighted_median(values: Array, weights: Array) -> float:
    """Return the weighted median of the values, at most 60."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    middle = int(np.searchsorted(below, 0.5 * below[-1]))
    return min(float(values[order[min(middle, len(values) - 1)]]), 60.0)
