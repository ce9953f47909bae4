"""Responsibilities of blocks of data, and the sufficient statistics accumulated from them.

n   rows of a block      K', K   components of a block, of the model      φ = (u, 1)   regressors
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from earatlas.types import Array, Indices

__all__ = ["ResponsibilityBlock", "SufficientStatistics", "accumulate"]


@dataclass(frozen=True, eq=False)
class ResponsibilityBlock:
    """A block of n rows of the data, with the responsibilities of the relevant components."""

    components: Indices  # (K',) indices of the relevant components
    y: Array  # (n, D) cues minus their mean
    u: Array  # (L, n, K') chart coordinates
    r: Array  # (n, K') responsibilities
    Fy: Array  # (n, L_w) with F as in `latent_root`
    log_likelihood: float  # tempered, of the block


@dataclass(frozen=True, eq=False)
class SufficientStatistics:
    """Expected sufficient statistics for the M-step, in the charts of the E-step."""

    counts: Array  # (K,) Σ_n r_nk
    grams: Array  # (K, L+1, L+1) Σ_n r_nk φ_nk φ_nkᵀ
    cross: Array  # (K, L+1, D) Σ_n r_nk φ_nk y_nᵀ
    projected: Array  # (D, L_w) Σ_n y_n (F y_n)ᵀ, F as in `latent_root`
    log_likelihood: float  # tempered


def accumulate(
    blocks: Iterable[ResponsibilityBlock], shape: tuple[int, int, int]
) -> SufficientStatistics:
    """Accumulate the sufficient statistics over blocks of the data; the shape is (K, D, L)."""
    (K, D, L), log_likelihood = shape, 0.0
    grams, cross = np.zeros((K, L + 1, L + 1)), np.zeros((K, L + 1, D))
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
    lower = np.tril_indices(L + 1, -1)
    grams[:, lower[1], lower[0]] = grams[:, lower[0], lower[1]]
    return SufficientStatistics(grams[:, L, L].copy(), grams, cross, projected, log_likelihood)
