"""Model order of an onset mixture: the number of sources, and their directions.

Input: densities of the onset bins of a mixture at every direction
(`earatlas.localization.onset_mixture`). Output: grid cells, one per source. Sources are added while
the penalized likelihood increases:

    J(x_1 … x_M) = max_π Σ_n v_n log (Σ_m π_m g(s_n · s_x_m) + π_0) - cost(x_1 … x_M)

The mixing weights π are free, because talkers have unequal numbers of onsets: with equal weights,
two directions of the loud talker explain more than one direction of each. The cost distinguishes
reflections from talkers. What a room adds to one talker resembles the same talker elsewhere on the
cone of confusion: floor and ceiling reflect from about the same lateral angle, a blurred direct
sound leaves front, above and behind open, and the cues of the lateral angle are the most robust. A
source on the cone of another must therefore gain much more than one at another lateral angle.

    v_n   weight of a bin, all sum to 1      π_0   weight of the diffuse component
    B  onset bins    G  directions    M  sources
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.geometry.angles import to_vectors
from earatlas.localization.mixture_scan import MixtureScan
from earatlas.types import Array, Mask, Single

__all__ = [
    "CONE_DEGREES",
    "DIFFUSE_WEIGHT",
    "MAY_BE_MORE_RATIO",
    "MIN_GAIN_NATS",
    "MIN_SEPARATION_DEGREES",
    "SAME_CONE_GAIN_NATS",
    "SourceCounter",
]

# Evidence: docs/figures/settings/localization.md, "source_counter".
MIN_GAIN_NATS = (0.075, 0.055, 0.05)  # nats per bin that the 2nd, 3rd and each further source add
SAME_CONE_GAIN_NATS = 0.2  # additional nats per bin for each pair on one cone of confusion
CONE_DEGREES = 10.0  # difference of lateral angles below which two directions are on one cone
MIN_SEPARATION_DEGREES = 10.0  # smallest angle between two sources
DIFFUSE_WEIGHT = 0.1  # initial mixing weight of the diffuse component
MAY_BE_MORE_RATIO = 0.6  # gain over the required gain from which a further source may exist
_MIN_SEPARATION_COSINE = float(np.cos(np.radians(MIN_SEPARATION_DEGREES)))
_NEW_WEIGHTS = (0.1, 0.3)  # mixing weights with which a further source is searched
_FIRST_WEIGHT = 0.8  # mixing weight with which the first source is searched
_REFINEMENT_ROUNDS = 2  # rounds in which each source is placed again given the others
_EM_STEPS = 15  # EM iterations of the mixing weights


@dataclass(frozen=True, eq=False)
class _MixtureFit:
    """Sources and the log-likelihood of their mixture."""

    cells: list[int]
    mixing_weights: Array  # (M + 1,) the last is that of the diffuse component
    densities: Array  # (B, M + 1) of each bin; the last column is 1
    log_likelihood: float  # nats per (weighted) bin


class SourceCounter:
    """Search for the number of sources and their directions.

    `densities` (B, G) of the bins at each direction, relative to diffuse sound; `weights` (B,) of
    the bins; `directions` (G, C) in degrees.
    """

    def __init__(self, densities: Single, weights: Single, directions: Array) -> None:
        self._g = densities
        self._v = (weights / max(float(weights.sum()), 1e-9)).astype(np.float32)
        self._scan = MixtureScan(densities, self._v)
        self._vectors = to_vectors(directions)
        self._lateral = np.degrees(np.arcsin(np.clip(self._vectors[:, 1], -1, 1)))

    def count(self, max_sources: int) -> list[int]:
        """Return the cells of as many sources as the bins support, at most `max_sources`."""
        fit = self._first_source()
        while len(fit.cells) < max_sources:
            more = self._add_source(fit)
            required = MIN_GAIN_NATS[min(len(fit.cells), len(MIN_GAIN_NATS)) - 1]
            if self._penalized(more) - self._penalized(fit) < required:
                break
            fit = more
        return fit.cells

    def search(self, count: int) -> list[int]:
        """Return the cells of a known number of sources, which may be on one cone."""
        fit = self._first_source()
        while len(fit.cells) < count:
            fit = self._add_source(fit, 0.0)
        return fit.cells

    def next_source_ratio(self, cells: list[int]) -> float:
        """Return the gain of one more source, as a ratio of the gain that is required."""
        fit = self._fit_weights(cells)
        more = self._add_source(fit, MAY_BE_MORE_RATIO * SAME_CONE_GAIN_NATS)
        cones = self._cone_pairs(more) - self._cone_pairs(fit)
        required = MIN_GAIN_NATS[min(len(cells), len(MIN_GAIN_NATS)) - 1]
        required += SAME_CONE_GAIN_NATS * max(cones, 0)
        return (more.log_likelihood - fit.log_likelihood) / required

    def _first_source(self) -> _MixtureFit:
        """Return the best single source."""
        diffuse = np.full(len(self._g), 1 - _FIRST_WEIGHT)
        return self._fit_weights([self._best_cell(diffuse, _FIRST_WEIGHT, [])[0]])

    def _penalized(self, fit: _MixtureFit) -> float:
        """Return J without the cost that depends on the number of sources alone."""
        return fit.log_likelihood - SAME_CONE_GAIN_NATS * self._cone_pairs(fit)

    def _cone_pairs(self, fit: _MixtureFit) -> int:
        """Return the number of pairs of sources on one cone of confusion."""
        lateral = self._lateral[fit.cells]
        return int(np.triu(np.abs(lateral[:, None] - lateral) < CONE_DEGREES, 1).sum())

    def _add_source(self, fit: _MixtureFit, cone_cost: float = SAME_CONE_GAIN_NATS) -> _MixtureFit:
        """Add one source, and place all sources again given the others."""
        known = fit.densities @ fit.mixing_weights
        candidates = [
            self._best_cell((1 - weight) * known, weight, fit.cells, cone_cost)
            for weight in _NEW_WEIGHTS
        ]
        cell, _ = max(candidates, key=lambda candidate: candidate[1])
        more = self._fit_weights([*fit.cells, cell])
        for _ in range(_REFINEMENT_ROUNDS):
            cells = self._refine(more, cone_cost)
            if cells == more.cells:
                break
            more = self._fit_weights(cells)
        return more

    def _refine(self, fit: _MixtureFit, cone_cost: float) -> list[int]:
        """Move each source in turn to its best cell given the others."""
        cells, p = list(fit.cells), fit.densities.copy()
        for m in range(len(cells)):
            others = p @ fit.mixing_weights - p[:, m] * fit.mixing_weights[m]
            occupied = cells[:m] + cells[m + 1 :]
            weight = float(fit.mixing_weights[m])
            cells[m], _ = self._best_cell(others, weight, occupied, cone_cost)
            p[:, m] = self._g[:, cells[m]]
        return cells

    def _best_cell(
        self,
        others: Array,
        weight: float,
        occupied: list[int],
        cone_cost: float = SAME_CONE_GAIN_NATS,
    ) -> tuple[int, float]:
        """Return the best cell of a source given the density of the others (B,), and its J."""
        J = self._scan.at(weight, others.astype(np.float32))
        J -= np.float32(cone_cost) * self._on_cones(occupied)
        cosines = self._vectors @ self._vectors[occupied].T
        J[(cosines > _MIN_SEPARATION_COSINE).any(axis=1)] = -np.inf
        best = int(J.argmax())
        return best, float(J[best])

    def _on_cones(self, cells: list[int]) -> Mask:
        """Return which (G,) directions are on the cone of one of these cells."""
        gaps = np.abs(self._lateral[:, None] - self._lateral[cells])
        on_cones: Mask = (gaps < CONE_DEGREES).any(axis=1)
        return on_cones

    def _fit_weights(self, cells: list[int]) -> _MixtureFit:
        """Fit the mixing weights of sources in these cells by EM."""
        diffuse = np.ones((len(self._g), 1))
        p = np.concatenate([self._g[:, cells], diffuse], axis=1)
        weights = np.append(np.full(len(cells), (1 - DIFFUSE_WEIGHT) / len(cells)), DIFFUSE_WEIGHT)
        for _ in range(_EM_STEPS):
            weights = weights * (self._v / (p @ weights) @ p)
        return _MixtureFit(cells, weights, p, float(self._v @ np.log(p @ weights)))
