"""Mixture of sources with time-varying directions over the onset bins of a recording.

Inputs: the onset bins of a mixture (`earatlas.features.onset_detector`), and the density of each
around every direction (`earatlas.localization.onset_likelihood`). Output: a path over the cells of
a direction grid for each source. A static source has one cell x; a moving one has a cell per
window, x_1 … x_W. With g the density of an onset relative to diffuse sound, and w(n) its window,

    L(x_1 … x_M) = Σ_n v_n log (Σ_m π_m,w(n) g(s_n · s_x_m,w(n)) + π_0) - κ Σ_m path length of m

is maximized one source at a time, by the Viterbi path given the other sources
(`earatlas.tracking.trajectory_hmm`). Rest costs nothing, so the path of a static source is one
cell, and speeds are bounded.

    B, C, M, W  onset bins, cells, sources, windows
    g (B, C)    density of each onset around each cell
    π (M, W)    mixing weights per window
    v_n         weight of an onset
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from earatlas.localization.source_counter import (
    CONE_DEGREES,
    DIFFUSE_WEIGHT,
    MIN_GAIN_NATS,
    MIN_SEPARATION_DEGREES,
    SAME_CONE_GAIN_NATS,
)
from earatlas.tracking.identity_swaps import WINDOWS_PER_SECOND, resolve_identity_swaps
from earatlas.tracking.trajectory_hmm import DirectionGridHMM
from earatlas.types import Array, Indices, Mask, Single

__all__ = [
    "MAX_DEGREES_PER_SECOND",
    "PATH_PENALTY_NATS_PER_DEGREE",
    "TrajectoryFit",
    "TrajectoryMixture",
]

# Evidence: docs/figures/settings/tracking.md, "trajectory_mixture".
MAX_DEGREES_PER_SECOND = 60.0  # largest speed of a source
PATH_PENALTY_NATS_PER_DEGREE = 0.2  # κ, penalty of the path length
MIN_MOTION_GAIN = 0.03  # gain of motion over rest that makes a source moving, nats per onset
_COINCIDENCE_NATS = 1.0  # penalty of two sources in one direction, nats per window
_NEW_WEIGHTS = (0.5, 0.2)  # mixing weights that a new source is searched with
_MAX_ROUNDS = 3  # rounds in which each source is re-estimated given the others
_WEIGHT_ITERATIONS = 10  # EM iterations of the mixing weights
_WEIGHT_PRIOR_ONSETS = 4.0  # weight of the mean mixing weights in a window, weighted onsets


@dataclass(frozen=True, eq=False)
class TrajectoryFit:
    """Paths of several sources and their likelihood."""

    cells: Indices  # (M, W)
    mixing_weights: Array  # (M + 1, W), the last row is the diffuse component
    log_likelihood: float  # weighted by v, nats
    path_degrees: Array  # (M,) length of each path


class TrajectoryMixture:
    """The densities of the onsets of a recording in every cell, assigned to windows."""

    def __init__(
        self,
        densities: Single,
        weights: Array,
        window: Indices,
        n_windows: int,
        grid: DirectionGridHMM,
    ) -> None:
        """Take densities g (B, C), weights v (B,), and the window (B,) of each onset."""
        self._g, self._v = densities, weights.astype(np.float32)
        self._w, self._W, self.grid = window, n_windows, grid
        # Sorted by window, so that the onsets of a window are contiguous.
        self._order = np.argsort(window, kind="stable")
        self._starts = np.searchsorted(window[self._order], np.arange(self._W))
        self.total = float(self._v.sum())
        self._lateral = np.degrees(np.arcsin(np.clip(grid.vectors[:, 1], -1, 1)))

    def static_fit(self, cells: list[int]) -> TrajectoryFit:
        """Return the fit of static sources in the given cells."""
        return self._fit_weights(np.repeat(np.array(cells)[:, None], self._W, axis=1))

    def fit_unknown_count(self, max_sources: int) -> TrajectoryFit:
        """Fit sources one by one while the gain of one more exceeds the threshold."""
        fit = self.add_source(np.zeros((0, self._W), dtype=np.intp))
        while len(fit.cells) < max_sources:
            larger = self.add_source(fit.cells)
            threshold = MIN_GAIN_NATS[min(len(fit.cells), len(MIN_GAIN_NATS)) - 1] * self.total
            if self.score(larger) - self.score(fit) < threshold:
                break
            fit = larger
        return fit

    def fit_count(self, count: int) -> TrajectoryFit:
        """Fit `count` sources."""
        fit = self._fit_weights(np.zeros((0, self._W), dtype=np.intp))
        for _ in range(count):
            fit = self.add_source(fit.cells)
        return fit

    def score(self, fit: TrajectoryFit) -> float:
        """Return the log-likelihood minus penalties for path length and shared cones, in nats."""
        lateral = self._lateral[fit.cells]  # (M, W)
        same = np.abs(lateral[:, None] - lateral) < CONE_DEGREES
        pairs = np.triu(same.mean(axis=2), 1).sum()
        return float(
            fit.log_likelihood
            - PATH_PENALTY_NATS_PER_DEGREE * fit.path_degrees.sum()
            - SAME_CONE_GAIN_NATS * self.total * pairs
        )

    def add_source(self, cells: Indices) -> TrajectoryFit:
        """Add one source to those in cells (M, W), and re-estimate all."""
        candidates = []
        for start in self._initial_cells(cells):
            for weight in _NEW_WEIGHTS if len(cells) else (1 - DIFFUSE_WEIGHT,):
                candidates.append(self._refine(self._append_source(start, weight)))
        return max(candidates, key=self.score)

    def _initial_cells(self, cells: Indices) -> list[Indices]:
        """Return starts (M, W): the given paths, and the same with each source static in turn.

        A single path over two talkers would follow whichever is louder, from one to the other.
        """
        starts = [cells]
        for m in range(len(cells)):
            known = self._fit_weights(np.delete(cells, m, axis=0))
            weight = np.full(self._W, 0.5)
            other_likelihoods = self._mixture_likelihoods(
                known.cells, 0.5 * known.mixing_weights[:-1], known.mixing_weights[-1]
            )
            static = cells.copy()
            static[m] = int(self.log_likelihoods(other_likelihoods, weight).sum(axis=0).argmax())
            starts.append(static)
        return starts

    def _append_source(self, cells: Indices, weight: float) -> TrajectoryFit:
        """Append the best path of one more source with a mixing weight in all windows."""
        known = self._fit_weights(cells)
        mixing_weights = np.concatenate(
            [
                known.mixing_weights[:-1] * (1 - weight),
                np.full((1, self._W), weight),
                known.mixing_weights[-1:],
            ]
        )
        other_likelihoods = self._mixture_likelihoods(
            cells, mixing_weights[: len(cells)], mixing_weights[-1]
        )
        path = self._best_path(other_likelihoods, mixing_weights[-2], cells)
        return self._fit_weights(np.concatenate([cells, path[None]]))

    def _refine(self, fit: TrajectoryFit) -> TrajectoryFit:
        """Re-estimate all paths while the score improves."""
        for _ in range(_MAX_ROUNDS if len(fit.cells) > 1 else 0):
            refined = self._fit_weights(self._reestimate(fit))
            if self.score(refined) <= self.score(fit) + 1e-3 * self.total:
                break
            fit = refined
        return fit

    def residual_motion_gain(self, fit: TrajectoryFit) -> float:
        """Return the gain, in nats per onset, of one more source that may jump every second.

        It is large where a source moves and the fit has only static ones.
        """
        e = self._mixture_likelihoods(fit.cells, fit.mixing_weights[:-1], fit.mixing_weights[-1])
        second_of_onset = self._w // WINDOWS_PER_SECOND
        gain = 0.0
        for second in np.unique(second_of_onset):
            own = np.flatnonzero(second_of_onset == second)
            ratio = np.log(0.5 + 0.5 * self._g[own] / e[own, None])
            gain += float((self._v[own] @ ratio).max())
        return gain / self.total

    def _reestimate(self, fit: TrajectoryFit, fixed: int | None = None) -> Indices:
        """Return paths (M, W), each re-estimated given the others; source `fixed` is kept."""
        cells = fit.cells.copy()
        for m in set(range(len(cells))) - {fixed}:
            other_likelihoods = self.likelihoods_without(replace(fit, cells=cells), m)
            cells[m] = self._best_path(
                other_likelihoods, fit.mixing_weights[m], np.delete(cells, m, axis=0)
            )
        return cells

    def log_likelihoods(self, other_likelihoods: Single, weight: Array) -> Single:
        """Return L (W, C) of a source with mixing weights (W,), given the likelihoods of others."""
        out = np.zeros((self._W, self._g.shape[1]), dtype=np.float32)
        ends = np.append(self._starts[1:], len(self._order))
        for w, (begin, end) in enumerate(zip(self._starts, ends, strict=True)):
            own = self._order[begin:end]
            if not len(own):
                continue
            mixed = self._g[own] * np.float32(weight[w])
            mixed += other_likelihoods[own, None]
            ratio = np.log(mixed, out=mixed) - np.log(
                other_likelihoods[own, None] + np.float32(weight[w])
            )
            out[w] = self._v[own] @ ratio
        return out

    def _best_path(self, other_likelihoods: Single, weight: Array, other_cells: Indices) -> Indices:
        """Return the Viterbi path (W,) of a source, given likelihoods and cells of the others."""
        L = self.log_likelihoods(other_likelihoods, weight)
        min_cosine = np.cos(np.radians(MIN_SEPARATION_DEGREES))
        for cells in other_cells:
            cosines = np.einsum("wa,ca->wc", self.grid.vectors[cells], self.grid.vectors)
            L -= np.float32(_COINCIDENCE_NATS) * (cosines > min_cosine)
            L -= np.float32(SAME_CONE_GAIN_NATS * self.total / self._W) * (
                np.abs(self._lateral[cells][:, None] - self._lateral) < CONE_DEGREES
            )
        return self.grid.viterbi(L, PATH_PENALTY_NATS_PER_DEGREE)[0]

    def _mixture_likelihoods(
        self, cells: Indices, mixing_weights: Array, diffuse_weight: Array
    ) -> Single:
        """Return the likelihood (B,) of sources in cells (M, W) and the diffuse component."""
        total = diffuse_weight[self._w]
        rows = np.arange(len(self._w))
        for own, weight in zip(cells, mixing_weights, strict=True):
            total = total + weight[self._w] * self._g[rows, own[self._w]]
        return np.asarray(total, dtype=np.float32)

    def _fit_weights(self, cells: Indices) -> TrajectoryFit:
        """Fit the mixing weights of sources in cells (M, W) by EM."""
        M, rows = len(cells), np.arange(len(self._w))
        p = np.stack([*(self._g[rows, own[self._w]] for own in cells), np.ones(len(rows))])
        mixing_weights = np.full((M + 1, self._W), (1 - DIFFUSE_WEIGHT) / max(M, 1))
        mixing_weights[-1] = DIFFUSE_WEIGHT if M else 1.0
        mean = mixing_weights.mean(axis=1)
        for _ in range(_WEIGHT_ITERATIONS if M else 0):
            mixed = mixing_weights[:, self._w] * p
            mixed *= self._v / mixed.sum(axis=0)
            counts = np.stack([np.bincount(self._w, row, self._W) for row in mixed])
            mean = counts.sum(axis=1) / self.total
            smoothed_counts = counts + _WEIGHT_PRIOR_ONSETS * mean[:, None]
            mixing_weights = smoothed_counts / smoothed_counts.sum(axis=0)
        log_likelihood = float(self._v @ np.log((mixing_weights[:, self._w] * p).sum(axis=0)))
        v = self.grid.vectors[cells]
        cosines = np.einsum("mwa,mwa->mw", v[:, 1:], v[:, :-1])
        steps = np.degrees(np.arccos(np.clip(cosines, -1, 1)))
        same = cells[:, 1:] == cells[:, :-1]
        path_degrees = np.where(same, 0.0, steps).sum(axis=1)
        return TrajectoryFit(cells, mixing_weights, log_likelihood, path_degrees)

    def resolve_identity_swaps(self, fit: TrajectoryFit) -> TrajectoryFit:
        """Return the fit with identities assigned for smooth motion through encounters.

        See `earatlas.tracking.identity_swaps`.
        """
        onset_counts = np.stack([self.onset_counts(fit, m) for m in range(len(fit.cells))])
        assignment = resolve_identity_swaps(self.grid.vectors[fit.cells], onset_counts)
        permuted = self._fit_weights(np.take_along_axis(fit.cells, assignment, axis=0))
        # A swap may leave a jump that is faster than the largest speed: re-estimate the paths.
        return self._fit_weights(self._reestimate(permuted))

    def static_where_possible(self, fit: TrajectoryFit) -> tuple[TrajectoryFit, Mask]:
        """Replace paths without significant motion by one cell each.

        Return the fit and the mask (M,) of moving sources.
        """
        cells, moving = fit.cells.copy(), np.zeros(len(fit.cells), dtype=bool)
        for m in range(len(cells)):
            L = self.log_likelihoods(self.likelihoods_without(fit, m), fit.mixing_weights[m])
            cell = int(L.sum(axis=0).argmax())
            gain = self.grid.viterbi(L, PATH_PENALTY_NATS_PER_DEGREE)[1] - float(L[:, cell].sum())
            moving[m] = gain > MIN_MOTION_GAIN * self.total
            if not moving[m]:
                cells[m] = cell
        return self._fit_weights(cells), moving

    def with_one_static(self, fit: TrajectoryFit) -> list[TrajectoryFit]:
        """Return one fit per source, with this source static and the others re-estimated."""
        fits = []
        for m, start in enumerate(self._initial_cells(fit.cells)[1:]):
            static = self._fit_weights(start)
            for _ in range(_MAX_ROUNDS - 1):
                static = self._fit_weights(self._reestimate(static, fixed=m))
            fits.append(static)
        return fits

    def likelihoods_without(self, fit: TrajectoryFit, m: int) -> Single:
        """Return the likelihood (B,) of all components but source m."""
        cells = np.delete(fit.cells, m, axis=0)
        mixing_weights = np.delete(fit.mixing_weights[:-1], m, axis=0)
        return self._mixture_likelihoods(cells, mixing_weights, fit.mixing_weights[-1])

    def gain(self, fit: TrajectoryFit, m: int) -> float:
        """Return the gain, in nats per onset, of having source m."""
        reduced = self._fit_weights(np.delete(fit.cells, m, axis=0))
        return (fit.log_likelihood - reduced.log_likelihood) / max(self.total, 1e-9)

    def onset_counts(self, fit: TrajectoryFit, m: int) -> Array:
        """Return the weighted number of onsets (W,) of source m in each window."""
        responsibilities = self.responsibilities(fit, m)
        return np.bincount(self._w, self._v * responsibilities, self._W).astype(np.float64)

    def responsibilities(self, fit: TrajectoryFit, m: int) -> Array:
        """Return the responsibilities (B,) of source m for the onsets."""
        densities = self._g[np.arange(len(self._w)), fit.cells[m][self._w]]
        own = fit.mixing_weights[m][self._w] * densities
        return np.asarray(own / (own + self.likelihoods_without(fit, m)), dtype=np.float64)
