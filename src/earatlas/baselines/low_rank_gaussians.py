"""Mixtures of Gaussians with full covariances of more dimensions than samples, fitted by EM.

The inputs are samples z (N, D) and a ridge; the outputs are weights, means and covariances. With a
few dozen samples per component and hundreds of dimensions, a covariance is a ridge plus a product
of thin matrices, whose inverse and determinant need factorizations of n_k instead of D rows:

    S_k = ridge I + U_k U_kᵀ,    U_k = (sqrt(r_nk / n_k) (z_n - m_k)) over the samples with r_nk > 0
    S_k⁻¹ = I / ridge - V_k V_kᵀ,    V_k = U_k L_k⁻ᵀ,    L_k L_kᵀ = ridge (ridge I + U_kᵀ U_k)

EM has the start, the updates and the stopping rule of `sklearn.mixture.GaussianMixture`, and gives
the same results.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from earatlas.numerics import logsumexp
from earatlas.types import Array

__all__ = [
    "LowRankGaussians",
    "fit_low_rank_gaussians",
    "low_rank_precision",
    "regression_matrix",
]

_TOLERANCE = 1e-3  # nats per sample between iterations, the default of scikit-learn
_NEGLIGIBLE = 1e-20  # responsibility that changes no digit of a covariance


@dataclass(frozen=True, eq=False)
class LowRankGaussians:
    """Gaussians with covariances ridge I + U_k U_kᵀ."""

    weights: Array  # (K,), sums to 1
    means: Array  # (K, D)
    factors: tuple[Array, ...]  # K arrays U_k (D, n_k)
    ridge: float

    def log_densities(self, z: Array) -> Array:
        """Return log π_k N(z_n; m_k, S_k), (K, N)."""
        N, D = z.shape
        logs = np.empty((len(self.weights), N))
        for k, (mean, U) in enumerate(zip(self.means, self.factors, strict=True)):
            V, log_determinant = low_rank_precision(U, self.ridge)
            d = z - mean
            distances = np.einsum("nd,nd->n", d, d) / self.ridge - ((d @ V) ** 2).sum(axis=1)
            logs[k] = -0.5 * (distances + log_determinant + D * np.log(2 * np.pi))
        with np.errstate(divide="ignore"):  # components without samples
            return logs + np.log(self.weights)[:, None]


def low_rank_precision(U: Array, ridge: float) -> tuple[Array, float]:
    """Return V (D, r) with V Vᵀ = I / ridge - S⁻¹, and log |S|, for S = ridge I + U Uᵀ."""
    D, n = U.shape
    if n > D:
        variances, axes = np.linalg.eigh(U @ U.T)
        variances = np.maximum(variances, 0.0)
        V = axes * np.sqrt(variances / (ridge * (ridge + variances)))
        return V, float(np.log(ridge + variances).sum())
    root = np.linalg.cholesky(U.T @ U + ridge * np.eye(n))
    V = solve_triangular(root, U.T, lower=True, check_finite=False).T / np.sqrt(ridge)
    return V, 2 * float(np.log(np.diagonal(root)).sum()) + (D - n) * float(np.log(ridge))


def regression_matrix(U: Array, targets: Array, ridge: float) -> Array:
    """Return S⁻¹ U targetsᵀ (D, E) for S = ridge I + U Uᵀ and targets (E, n)."""
    D, n = U.shape
    if n > D:
        return np.asarray(np.linalg.solve(U @ U.T + ridge * np.eye(D), U @ targets.T))
    return U @ np.linalg.solve(U.T @ U + ridge * np.eye(n), targets.T)


def fit_low_rank_gaussians(
    z: Array, components: int, ridge: float, iterations: int, seed: int
) -> LowRankGaussians:
    """Fit K Gaussians with full covariances to samples (N, D), starting from k-means."""
    from sklearn.cluster import KMeans  # scikit-learn is an extra

    labels = KMeans(components, n_init=1, random_state=seed).fit(z).labels_
    model = _m_step(z, (labels == np.arange(components)[:, None]).astype(np.float64), ridge)
    before = -np.inf
    for _ in range(iterations):
        logs = model.log_densities(z)
        evidence = logsumexp(logs, axis=0)
        model = _m_step(z, np.exp(logs - evidence), ridge)
        likelihood = float(evidence.mean())
        if abs(likelihood - before) < _TOLERANCE:
            break
        before = likelihood
    return model


def _m_step(z: Array, r: Array, ridge: float) -> LowRankGaussians:
    """Return the Gaussians with the largest expected likelihood for responsibilities (K, N)."""
    counts = r.sum(axis=1) + 10 * np.finfo(np.float64).eps  # a component may have no samples
    means = r @ z / counts[:, None]
    factors = []
    for k, mean in enumerate(means):
        own = np.flatnonzero(r[k] > _NEGLIGIBLE)
        factors.append(((z[own] - mean) * np.sqrt(r[k, own] / counts[k])[:, None]).T)
    return LowRankGaussians(counts / counts.sum(), means, tuple(factors), ridge)
