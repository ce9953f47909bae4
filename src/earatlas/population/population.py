"""A population of heads: the expected head, and how heads deviate from it.

Input: the chart regressions of many heads. Output: `Population`.

    s  heads (S)         k  charts (K)         j  listener coordinates (J)
    θ_sk (K, L+1, D)     affine maps of head s, slopes first (`population.chart_regression`)
    μ_k                  mean over heads;  β_k (K, H, J) components of the offsets, in bands
    γ (H, C)             components of the equalization (`population.equalization`)

    θ_sk = μ_k + (0, E (β_k, γ) z_s(k)) + residual   E: from bands to cues; slopes do not deviate
    z_s(k) = w_s + v_s(k),   w_s ~ N(0, diag ρ),   v_s(k) ~ N(0, I - diag ρ)

w is shared by all directions of a listener and can be learned from recordings (adaptation); v is
the part of a head that says nothing about other directions: principal components of thirty heads do
not contain a new head entirely. Both have the same shape, the covariance of people at a direction.
The transfer functions of microphones are the same for all directions, so ρ is 1 for γ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from earatlas.errors import InputError
from earatlas.geometry.spaces import Sphere
from earatlas.population.chart_regression import ChartRegression, SharedCharts
from earatlas.ppam.cue_bands import CueBands
from earatlas.ppam.listener_model import ListenerPPAM
from earatlas.types import Array, Mask

__all__ = ["Listener", "Population", "fit_population"]

# Evidence: docs/figures/settings/population.md, "population".
_MIN_COVERAGE = 0.2  # share of the heads that a chart needs
_IMPUTATIONS = 4  # iterations in which charts that a head lacks are filled from its coordinates


@dataclass(frozen=True, eq=False)
class Listener:
    """What is known about the coordinates of a listener: w ~ N(mean, covariance)."""

    mean: Array  # (J,)
    covariance: Array  # (J, J)

    @classmethod
    def unknown(cls, shares: Array) -> Listener:
        """Return the prior N(0, diag ρ) with shares ρ (J + C,)."""
        return cls(np.zeros(len(shares)), np.diag(shares))


@dataclass(frozen=True, eq=False)
class Population:
    """The expected head and the deviations of heads from it."""

    charts: SharedCharts
    bands: CueBands
    mean: Array  # (K, L+1, D) μ
    loadings: Array  # (K, H, J) β
    residual: Array  # (K, D) ψ, variance within charts and outside of the components
    shared: float  # ρ of β, share of the deviation that is common to all directions
    equalization: Array  # (H, C) γ

    def __repr__(self) -> str:
        K, H, J = len(self.charts), len(self.bands), self.n_coordinates
        return f"Population(K={K}, H={H}, J={J})"

    @property
    def n_coordinates(self) -> int:
        """Number J + C of listener coordinates."""
        return int(self.loadings.shape[-1] + self.equalization.shape[-1])

    @cached_property
    def deviations(self) -> Array:
        """(β, γ) (K, H, J + C): how the cues change with each listener coordinate."""
        everywhere = np.broadcast_to(
            self.equalization, (len(self.charts), *self.equalization.shape)
        )
        return np.concatenate([self.loadings, everywhere], axis=-1)

    @cached_property
    def shares(self) -> Array:
        """ρ (J + C,) of each listener coordinate."""
        return np.repeat([self.shared, 1.0], [self.loadings.shape[-1], self.equalization.shape[-1]])

    @property
    def unknown_listener(self) -> Listener:
        """The prior of an unknown listener."""
        return Listener.unknown(self.shares)

    def model(self, listener: Listener | None = None) -> ListenerPPAM:
        """Return the PPAM of a listener; by default of an unknown one."""
        listener = listener or self.unknown_listener
        K, L = len(self.charts), self.mean.shape[1] - 1
        offsets = self.mean[:, L] + self.bands.expand(self.deviations @ listener.mean)
        local = self.local_loadings(listener)
        total = self.residual + self.bands.expand((local**2).sum(axis=-1))
        # The saturation of cues over frames depends on what no coordinate explains.
        noise = self.residual.mean(axis=0)
        return ListenerPPAM(
            Sphere(),
            self.charts.centres,
            np.full(K, 1 / K),
            np.tile(self.charts.width_degrees**2 * np.eye(L), (K, 1, 1)),
            np.ascontiguousarray(self.mean[:, :L].transpose(0, 2, 1)),
            offsets,
            noise,
            np.zeros((len(noise), 0)),
            total / noise,
            bands=self.bands,
            loadings=local,
            residual=self.residual,
        )

    def local_loadings(self, listener: Listener | None = None) -> Array:
        """Return the loadings (K, H, J + C) of a listener in unit deviations.

        z ~ N(ŵ, V_w + I - diag ρ), a root of whose covariance multiplies (β, γ); by default of an
        unknown listener.
        """
        listener = listener or self.unknown_listener
        covariance = listener.covariance + np.diag(1 - self.shares)
        local: Array = self.deviations @ np.linalg.cholesky(covariance)
        return local

    def rounded(self) -> Population:
        """Return a copy rounded to float16, so that saving it at a quarter of the size is exact."""
        mean, loadings, residual, equalization = (
            array.astype(np.float16).astype(np.float64)
            for array in (self.mean, self.loadings, self.residual, self.equalization)
        )
        # Without the floor, a variance below the smallest float16 would become 0.
        residual = np.maximum(residual, 2.0**-14)
        return replace(
            self, mean=mean, loadings=loadings, residual=residual, equalization=equalization
        )


def fit_population(
    charts: SharedCharts,
    bands: CueBands,
    heads: Iterable[ChartRegression],
    *,
    coordinates: int,
    shared: float,
    unexplained_share: float,
    equalization: Array,
) -> Population:
    """Fit mean and principal components to heads, which may lack charts.

    `unexplained_share` is the part of the variance between heads that is attributed to ψ, and
    `equalization` (H, C) is γ.
    """
    total, within = np.zeros(1), np.zeros(1)
    banded, masks = [], []
    for head in heads:  # one at a time: a head has K (L+1) D numbers, its offsets in bands K H
        total, within = total + head.maps, within + head.residual
        banded.append(bands.mean(head.maps[:, -1]).astype(np.float32))
        masks.append(head.covered)
    covered = np.stack(masks)  # (S, K)
    # Charts that few heads cover would have a variance between heads that is too small.
    keep = covered.sum(axis=0) >= max(2, _MIN_COVERAGE * len(covered))
    if not keep.any():
        raise InputError(
            f"heads must have directions in common, got {len(covered) // 2} without a common part "
            "of the sphere that is measured densely. Use heads that were measured at similar "
            "directions, about 5° apart."
        )
    charts, covered = charts.subset(keep), covered[:, keep]
    counts = covered.sum(axis=0)
    mean = total[keep] / counts[:, None, None]
    deviations = np.stack([maps[keep] for maps in banded]) - bands.mean(mean[:, -1])  # (S, K, H)
    deviations[~covered] = 0.0
    # In units of the standard deviation between heads; a decibel is not a phase.
    scale = np.sqrt((deviations**2).mean(axis=(0, 1)))  # (H,)
    scores, components = _principal_components(deviations / scale, covered, coordinates)
    loadings = np.moveaxis(components * scale, 0, -1)  # (K, H, J)
    left = deviations - np.einsum("sj,khj->skh", scores, loadings)
    left[~covered] = 0.0
    outside = (left**2).sum(axis=0) / counts[:, None]  # (K, H)
    between = (loadings**2).sum(axis=-1) + outside
    residual = within[keep] / counts[:, None]
    residual = residual + bands.expand(outside + unexplained_share * between)
    loadings = np.sqrt(1 - unexplained_share) * loadings
    return Population(charts, bands, mean, loadings, residual, shared, equalization)


def _principal_components(
    deviations: Array, covered: Mask, coordinates: int
) -> tuple[Array, Array]:
    """Return scores (S, J) of unit variance and components (J, K, H) of deviations (S, K, H).

    Charts that a head does not cover are filled from its scores, in a few iterations.
    """
    S, J = len(deviations), min(coordinates, len(deviations) - 1)

    def fit(filled: Array) -> tuple[Array, Array]:
        flat = filled.reshape(S, -1)
        _, vectors = np.linalg.eigh((flat @ flat.T).astype(np.float64))
        scores = vectors[:, ::-1][:, :J] * np.sqrt(S)
        return scores, (scores.T @ flat / S).reshape(J, *filled.shape[1:])

    scores, components = fit(deviations)
    for _ in range(0 if covered.all() else _IMPUTATIONS):
        fitted = np.tensordot(scores, components, axes=1)
        scores, components = fit(np.where(covered[..., None], deviations, fitted))
    return scores, components
