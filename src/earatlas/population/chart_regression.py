"""Weighted least squares of one head in charts that all heads share.

Input: directions and cues of a head. Output: `ChartRegression`, the affine map of every chart.
Because the charts are common, heads with different grids become comparable, and a head that covers
a part of the sphere contributes the charts of that part.

    n  directions (N)    k  charts (K)    φ = (u, 1)  regressors (L + 1)
    g_nk ∝ N(u_k(x_n); 0, Γ_k)            gating by direction alone, the same for all heads
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.geometry.angles import to_vectors
from earatlas.geometry.spaces import Sphere
from earatlas.types import Array, Mask

__all__ = ["ChartRegression", "SharedCharts"]

# Evidence: docs/figures/settings/population.md, "charts".
_OVERLAP = 0.5  # standard deviation of a chart over the distance between charts
_RIDGE = 0.05  # of the slopes, relative to the mean square of u; sparse grids need it
_MIN_DIRECTIONS = 2.0  # effective directions of a head that determine a chart


@dataclass(frozen=True, eq=False)
class SharedCharts:
    """Charts of equal size, spread evenly over the directions that heads cover."""

    centres: Array  # (K, 2) degrees
    width_degrees: float  # standard deviation of u in every chart

    @classmethod
    def covering(cls, directions: Array, spacing_degrees: float) -> SharedCharts:
        """Return charts with centres near any of the directions (N, 2)."""
        from scipy.spatial import cKDTree

        grid = Sphere().grid(spacing_degrees)
        chord = cKDTree(to_vectors(directions)).query(to_vectors(grid))[0]
        near = np.degrees(chord) < 0.6 * spacing_degrees
        return cls(grid[near], _OVERLAP * spacing_degrees)

    def __len__(self) -> int:
        return len(self.centres)

    def subset(self, keep: Mask) -> SharedCharts:
        """Return some of the charts."""
        return SharedCharts(self.centres[keep], self.width_degrees)

    def gating(self, directions: Array) -> tuple[Array, Array]:
        """Return g (N, K), which sums to 1 over k, and the chart coordinates u (N, K, L)."""
        u = Sphere().charts(self.centres, directions)
        logs = -0.5 * (u**2).sum(axis=-1) / self.width_degrees**2
        g = np.exp(logs - logs.max(axis=1, keepdims=True))
        return g / g.sum(axis=1, keepdims=True), u


@dataclass(frozen=True, eq=False)
class ChartRegression:
    """The affine maps of a head: y(x) = Σ_k g_k(x) maps[k]ᵀ (u_k(x), 1)."""

    maps: Array  # (K, L+1, D), slopes first; 0 where the head has no directions
    covered: Mask  # (K,) charts that the head determines
    residual: Array  # (K, D) mean squared deviation of the head from its own maps

    @classmethod
    def of(cls, charts: SharedCharts, directions: Array, cues: Array) -> ChartRegression:
        """Fit the maps to cues (N, D) at directions (N, 2)."""
        g, u = charts.gating(directions)
        K, D, L = len(charts), cues.shape[1], u.shape[-1]
        maps, residual = np.zeros((K, L + 1, D)), np.zeros((K, D))
        counts = g.sum(axis=0)
        ridge = np.diag([_RIDGE * charts.width_degrees**2] * L + [0.0])
        for k in np.flatnonzero(counts >= _MIN_DIRECTIONS):
            rows = np.flatnonzero(g[:, k] > 1e-4)
            r, phi = g[rows, k], np.column_stack([u[rows, k], np.ones(len(rows))])
            gram = (phi * r[:, None]).T @ phi + counts[k] * ridge
            maps[k] = np.linalg.solve(gram, (phi * r[:, None]).T @ cues[rows])
            residual[k] = r @ (cues[rows] - phi @ maps[k]) ** 2 / counts[k]
        return cls(maps, counts >= _MIN_DIRECTIONS, residual)
