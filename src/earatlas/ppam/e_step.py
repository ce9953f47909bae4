"""The E-step of EM for PPAM (paper, section 5.1): responsibilities and sufficient statistics.

Input: a model and blocks of the data. Output: the log of the joint density of a block (`LogJoint`,
eqs. 4 and 8), from which the responsibilities follow, and the sums over all blocks that the M-step
needs (`SufficientStatistics`). The symbols are those of `earatlas.ppam.em`.

    n   rows of a block    K', K   components of a block, of the model    φ = (u, 1)   regressors
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from earatlas.ppam.parameters import PPAMParameters, latent_root
from earatlas.types import Array, Indices

__all__ = ["LogJoint", "ResponsibilityBlock", "SufficientStatistics", "normalize"]


@dataclass(frozen=True, eq=False)
class LogJoint:
    """log w_k N(u; 0, Γ_k) N(y; M_k φ, S⁻¹)^β of each component k, as a polynomial in u and y.

    With H_k = β M_kᵀ S M_k, -2 times this is

        uᵀ Γ_k⁻¹ u + φᵀ H_k φ - 2β yᵀ S M_k φ + β yᵀ S y
        + log|2π Γ_k| - 2 log w_k + β log|2π S⁻¹|
    """

    F: Array  # (L_w, D), S = Σ⁻¹ - Fᵀ F
    products: Array  # (L+1, K, D) -2β S M_k
    forms: Array  # (K, L, L) Γ_k⁻¹ + β A_kᵀ S A_k
    slopes: Array  # (K, L) 2β A_kᵀ S b_k
    constants: Array  # (K,) β b_kᵀ S b_k and the last line

    @classmethod
    def of(cls, model: PPAMParameters, beta: float) -> LogJoint:
        """Compute the coefficients of a model."""
        L = model.A.shape[2]
        M = np.concatenate([model.A.transpose(2, 0, 1), model.b[None]])  # (L+1, K, D)
        F = latent_root(model.noise, model.latent)
        SM = M / model.noise - (M @ F.T) @ F
        H = beta * np.einsum("lkd,mkd->klm", M, SM, optimize=True)
        constants = (
            H[:, L, L]
            + np.linalg.slogdet(2 * np.pi * model.gammas)[1]
            - 2 * np.log(model.weights)
            + beta * model.log_determinants
        )
        forms = H[:, :L, :L] + np.linalg.inv(model.gammas)
        return cls(F, (-2 * beta) * SM, forms, 2 * H[:, :L, L], constants)

    def __call__(self, k: Indices, u: Array, y: Array) -> tuple[Array, Array]:
        """Return the log joint (n, K') of components k, but for -β yᵀ S y / 2, and F y (n, L_w).

        The arguments are chart coordinates u (L, n, K') and centred cues y (n, D).
        """
        L, D = len(u), y.shape[1]
        maps = np.concatenate([self.products[:, k].reshape(-1, D), self.F]).T
        # yS[i] (n, K') = -2β yᵀ S M_k, column i of M_k
        *yS, Fy = np.split(y @ maps, len(k) * np.arange(1, L + 2), axis=1)
        total = yS[L] + self.constants[k]
        forms, slopes = self.forms[k], self.slopes[k]
        # total += Σ_i u_i (yS_i + slopes_i + forms_ii u_i + Σ_{j<i} 2 forms_ij u_j)
        for i in range(L):
            partial = yS[i] + slopes[:, i]
            partial += forms[:, i, i] * u[i]
            for j in range(i):
                partial += (2 * forms[:, i, j]) * u[j]
            partial *= u[i]
            total += partial
        total *= -0.5
        return total, Fy


def normalize(logs: Array) -> tuple[Array, Array]:
    """Return exp(logs) / Σ_k exp(logs) and log Σ_k exp(logs) (n,); overwrites logs (n, K')."""
    top = logs.max(axis=1, keepdims=True)
    logs -= top
    # Without this floor, subnormal numbers make the following product ten times as slow.
    np.maximum(logs, -200.0, out=logs)
    r = np.exp(logs, out=logs)
    norm = r.sum(axis=1, keepdims=True)
    r /= norm
    return r, (top + np.log(norm))[:, 0]


@dataclass(frozen=True, eq=False)
class ResponsibilityBlock:
    """A block of n rows of the data, with the responsibilities of the relevant components."""

    rows: Indices  # (n,) rows of the data
    components: Indices  # (K',) indices of the relevant components
    y: Array  # (n, D) cues minus their mean
    u: Array  # (L, n, K') chart coordinates
    r: Array  # (n, K') responsibilities
    Fy: Array  # (n, L_w) with F as in `latent_root`
    log_likelihood: float  # tempered, of the block

    def take(self, own: Indices) -> ResponsibilityBlock:
        """Return some of the rows, without their log-likelihood."""
        return ResponsibilityBlock(
            self.rows[own], self.components, self.y[own], self.u[:, own], self.r[own],
            self.Fy[own], math.nan,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class SufficientStatistics:
    """Expected sufficient statistics for the M-step, in the charts of the E-step."""

    counts: Array  # (K,) Σ_n r_nk
    grams: Array  # (K, L+1, L+1) Σ_n r_nk φ_nk φ_nkᵀ
    cross: Array  # (K, L+1, D) Σ_n r_nk φ_nk y_nᵀ
    projected: Array  # (D, L_w) Σ_n y_n (F y_n)ᵀ, F as in `latent_root`
    log_likelihood: float  # tempered
    component_squares: Array | None = None  # (K, D) Σ_n r_nk y_nd², if they were requested

    @property
    def samples(self) -> float:
        """Number N of rows, because the responsibilities of each sum to 1."""
        return float(self.counts.sum())

    def __sub__(self, other: SufficientStatistics) -> SufficientStatistics:
        """Return the statistics without some of the rows."""
        squares, others = self.component_squares, other.component_squares
        return SufficientStatistics(
            self.counts - other.counts,
            self.grams - other.grams,
            self.cross - other.cross,
            self.projected - other.projected,
            self.log_likelihood - other.log_likelihood,
            None if squares is None or others is None else squares - others,
        )

    @classmethod
    def of(
        cls,
        blocks: Iterable[ResponsibilityBlock],
        shape: tuple[int, int, int],
        *,
        squares: bool = False,
    ) -> SufficientStatistics:
        """Accumulate the statistics over blocks of the data; the shape is (K, D, L).

        `squares` adds those of the cues of each component, which takes a sixth of the time more.
        """
        (K, D, L), log_likelihood = shape, 0.0
        grams, cross = np.zeros((K, L + 1, L + 1)), np.zeros((K, L + 1, D))
        component_squares = np.zeros((K, D)) if squares else None
        projected = np.zeros((D, 0))
        for block in blocks:
            r, u, components = block.r, block.u, block.components
            log_likelihood += block.log_likelihood
            # r_nk φ_nk (n, (L+1) K') and F y (n, L_w), in one product with y
            rphi = np.hstack([*(r * coordinate for coordinate in u), r, block.Fy])
            product = rphi.T @ block.y
            block_cross, Fyy = np.split(product, [(L + 1) * len(components)])
            projected = projected + Fyy.T if projected.size else Fyy.T  # Σ_n y (F y)ᵀ
            block_grams = np.zeros((len(components), L + 1, L + 1))
            for i in range(L + 1):
                columns = slice(i * len(components), (i + 1) * len(components))
                weighted = rphi[:, columns]  # r_nk φ_nki
                cross[components, i] += block_cross[columns]  # Σ_n r_nk φ_nki y_nᵀ
                block_grams[:, L, i] = weighted.sum(axis=0)  # Σ_n r_nk φ_nki
                for j in range(i + 1 if i < L else 0):
                    # Σ_n r_nk u_nki u_nkj
                    block_grams[:, i, j] = np.einsum("nk,nk->k", weighted, u[j])
            grams[components] += block_grams
            if component_squares is not None:
                component_squares[components] += r.T @ block.y**2
        lower = np.tril_indices(L + 1, -1)
        grams[:, lower[1], lower[0]] = grams[:, lower[0], lower[1]]
        counts = grams[:, L, L].copy()
        return cls(counts, grams, cross, projected, log_likelihood, component_squares)
