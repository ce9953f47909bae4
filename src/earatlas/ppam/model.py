"""Probabilistic piecewise affine mapping (PPAM): an atlas of affine charts from directions to cues.

In: training pairs of directions x and cue vectors y. Out: a `PPAM`, which maps directions to cues
(forward) and cues, complete or not, to posteriors about the direction (inverse).

    x_n (N, C)  directions           u_nk (N, K, L)  chart coordinates of x_n around centre c_k
    y_n (N, D)  cue vectors          r_nk (N, K)     responsibilities p(z_n = k | x_n, y_n)
    A_k (K, D, L), b_k (K, D)        affine maps     Γ_k (K, L, L)  where a chart is used
    σ_d² (D,)   noise                B (D, L_w)      latent coordinates' map, w ~ N(0, I)
    g_kd (K, D) spread: how many times the noise component k has in cue d (1 in the paper)

The model: u_k(x) | k ~ N(0, Γ_k) and y | x, k = A_k u_k(x) + b_k + √g_k ∘ (B w + e), e ~ N(0, Σ).
Since the latent part is the same for all k, w leaves only S = (Σ + B Bᵀ)⁻¹ in place of Σ⁻¹
(Woodbury). How it is learned stands in `earatlas.ppam.em`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from earatlas.errors import InputError
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Space
from earatlas.ppam.em import Learning, fit, refit
from earatlas.ppam.parameters import Charts, latent_root
from earatlas.types import Array, field_values

__all__ = ["PPAM", "check_pairs"]


@dataclass(frozen=True, eq=False, repr=False)
class PPAM(Charts):
    """Learned charts that map directions to cues, and cues to posteriors about directions.

    p(x, y) = sum_k weights[k] N(u_k(x); 0, gammas[k]) N(y; A[k] u_k(x) + b[k], S[k]), as `Charts`.
    """

    @classmethod
    def fit(
        cls,
        space: Space,
        x: ArrayLike,
        y: ArrayLike,
        *,
        components: int,
        latent: int | None = None,
        constrained: bool = True,
        learning: Learning | None = None,
        seed: int | np.random.Generator = 0,
    ) -> PPAM:
        """Learn from directions (N, C) and cues (N, D); `log_likelihoods` tells how it went.

        `latent` is L_w (None: 10, fewer for few cues or samples); `constrained` keeps the paper's
        equal weights and volumes. The log-likelihoods are those of the tempered model with g = 1;
        they never fall on the plane while no component is dropped.
        """
        points, cues = check_pairs(space, x, y)
        learned = fit(
            space, points, cues, components=components, latent=latent, constrained=constrained,
            learning=learning, seed=seed,
        )  # fmt: skip
        return cls.of(learned)

    @classmethod
    def of(cls, charts: Charts) -> PPAM:
        """The model with these parameters."""
        return cls(**field_values(charts))

    def refitted(
        self,
        x: ArrayLike,
        y: ArrayLike,
        *,
        constrained: bool = True,
        learning: Learning | None = None,
    ) -> PPAM:
        """The same charts learned from other pairs: one E and M step from here, and the spread.

        With some of its own pairs left out, this is a model whose maps, noise and latent
        coordinates come from the others alone, in less than a tenth of the time that `fit` takes.
        """
        points, cues = check_pairs(self.space, x, y)
        return PPAM.of(refit(self, points, cues, constrained=constrained, learning=learning))

    # --- forward: directions to cues -----------------------------------------------------------

    def gates(self, x: ArrayLike) -> tuple[Array, Array]:
        """log p(x, z=k) (N, K) and the chart coordinates (N, K, L) of directions (N, C)."""
        u = self.space.charts(self.centres, self.space.check(x, "x"))
        precision = np.asarray(np.linalg.inv(self.gammas), dtype=np.float64)
        quadratic = _forms(precision, np.moveaxis(u, -1, 0))
        log_norm = np.linalg.slogdet(2 * np.pi * self.gammas)[1]
        return np.log(self.weights) - 0.5 * (quadratic + log_norm), u

    def forward_map(self, x: ArrayLike) -> Array:
        """Expected cues (N, D) at directions (N, C): E[y | x]."""
        logs, u = self.gates(x)
        r = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
        N, D = len(u), self.A.shape[1]
        slopes = (r[..., None] * u).reshape(N, -1)
        mapped: Array = slopes @ self.A.transpose(0, 2, 1).reshape(-1, D) + r @ self.b
        return mapped

    def expected_cues(self, x: ArrayLike) -> tuple[Array, Array]:
        """Expected cues (N, D) at directions (N, C), and how far a cue may be off: variances.

        The variances are those within the charts; a cue's errors hang together with the others'
        through the latent coordinates, which this leaves out.
        """
        logs, _ = self.gates(x)
        r = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
        variances: Array = (r @ self.spread) * (self.noise + (self.latent**2).sum(axis=1))
        return self.forward_map(x), variances

    def forward_log_density(self, x: ArrayLike, y: ArrayLike) -> Array:
        """log p(y | x) (N,) of cues (N, D) at directions (N, C)."""
        logs, u = self.gates(x)
        quadratic, slopes, forms = self._residual_forms(np.asarray(y, dtype=np.float64))
        quadratic = quadratic - 2 * (slopes * u).sum(axis=-1)
        quadratic = quadratic + _forms(forms, np.moveaxis(u, -1, 0))
        terms = logs - 0.5 * (quadratic + self.log_determinants)
        density: Array = logsumexp(terms, axis=1) - logsumexp(logs, axis=1)
        return density

    # --- inverse: cues to directions -----------------------------------------------------------

    def inverse_map(self, y: ArrayLike) -> Array:
        """Best directions (N, C) of complete cue vectors (N, D), as `posterior(...).best`."""
        weights, means, covariances = self.inverse_batch(y)
        best = []
        for w, m in zip(weights, means, strict=True):
            posterior = DirectionPosterior(self.space, self.centres, w, m, covariances)
            best.append(posterior.best)
        return np.stack(best)

    def inverse_density(self, y: ArrayLike) -> DirectionPosterior:
        """p(x | y) for one complete cue vector (D,)."""
        return self.posterior(CueStatistics.of_vector(y))

    def inverse_batch(self, y: ArrayLike) -> tuple[Array, Array, Array]:
        """p(x | y_n) for complete cues (N, D): weights (N, K), means (N, K, L), covs (K, L, L)."""
        quadratic, slopes, forms = self._residual_forms(np.asarray(y, dtype=np.float64))
        V = np.asarray(np.linalg.inv(np.linalg.inv(self.gammas) + forms), dtype=np.float64)
        means = np.einsum("klm,nkm->nkl", V, slopes)
        volume = np.linalg.slogdet(V)[1] - np.linalg.slogdet(self.gammas)[1]
        fit = quadratic - (slopes * means).sum(axis=-1)
        logs = np.log(self.weights) + 0.5 * (volume - fit - self.log_determinants)
        return np.exp(logs - logsumexp(logs, axis=1, keepdims=True)), means, V

    def posterior(self, statistics: CueStatistics) -> DirectionPosterior:
        """p(x | observations) from Q_d = Σ_t w, R_d = Σ_t w y, E_d = Σ_t w y² (docs/method.md).

        Where Q_d = 0 nothing was observed: R_d and E_d may hold anything. One w serves all frames.
        """
        Q = np.where(statistics.counts > 0, statistics.counts, 0.0)
        P = Q / self.noise
        maps, root, inverse_spread = self._scaled
        # R over Q, and below the part of E that R does not explain: safe from cancellation.
        residual = (statistics.means - self.b) * root  # (K, D)
        Z = np.concatenate([maps, residual[:, None]], axis=1)  # (K, L+1, D)
        ZP = Z * P
        H = ZP @ Z.mT
        if self.latent.shape[1]:
            # Schur complement: the latent block I + Bᵀ P B is the same for every component.
            G = np.eye(self.latent.shape[1]) + self.latent.T @ (P[:, None] * self.latent)
            U = np.linalg.solve(np.linalg.cholesky(G), (ZP @ self.latent).mT)
            H = H - U.mT @ U
        L = self.space.dims
        h = H[:, :L, L]
        V = np.linalg.inv(np.linalg.inv(self.gammas) + H[:, :L, :L])
        V = 0.5 * (V + V.mT)
        means = np.einsum("klm,km->kl", V, h)
        fit = (
            H[:, L, L]
            + inverse_spread @ (statistics.scatter / self.noise)
            - (h * means).sum(axis=-1)
        )
        volume = np.linalg.slogdet(V)[1] - np.linalg.slogdet(self.gammas)[1]
        spread = self.log_spread @ Q
        logs = np.log(self.weights) + 0.5 * (volume - fit - spread)
        weights = np.exp(logs - logsumexp(logs))
        return DirectionPosterior(self.space, self.centres, weights, means, V)

    def misfit(self, statistics: CueStatistics, direction: Array) -> float:
        """Mean squared residual of observed cues at a direction, in units of the model's noise."""
        Q = statistics.counts
        residual = statistics.means - self.forward_map(direction[None])[0]
        variance = self.noise + (self.latent**2).sum(axis=1)
        return float(Q @ (residual**2 / variance) / max(float(Q.sum()), 1e-300))

    # --- kernels -------------------------------------------------------------------------------

    @cached_property
    def _scaled(self) -> tuple[Array, Array, Array]:
        """A_kᵀ / √g_k (K, L, D), 1 / √g and 1 / g (K, D)."""
        root = 1 / np.sqrt(self.spread)
        maps = np.ascontiguousarray(self.A.transpose(0, 2, 1)) * root[:, None]
        return maps, root, 1 / self.spread

    def _residual_forms(self, y: Array) -> tuple[Array, Array, Array]:
        """With e = y - b_k: eᵀS_k⁻¹e (N, K), A_kᵀS_k⁻¹e (N, K, L) and A_kᵀS_k⁻¹A_k (K, L, L)."""
        K, D, L = self.A.shape
        maps, root, inverse_spread = self._scaled
        whiten = latent_root(self.noise, self.latent)  # (L_w, D): Σ⁻¹BG^{-1/2}, transposed
        forms = (maps / self.noise) @ maps.mT
        inner = maps @ whiten.T  # (K, L, L_w)
        forms = forms - inner @ inner.mT
        precision = inverse_spread / self.noise  # (K, D)
        linear = (maps / self.noise - inner @ whiten) * root[:, None]  # (K, L, D): A_kᵀ S_k⁻¹
        slopes = (y @ linear.reshape(K * L, D).T).reshape(len(y), K, L)
        slopes = slopes - np.einsum("kld,kd->kl", linear, self.b)
        quadratic = y**2 @ precision.T - 2 * y @ (precision * self.b).T
        quadratic = quadratic + (precision * self.b**2).sum(axis=1)
        for row in whiten:  # one latent coordinate at a time: (N, K), never (N, K, L_w)
            project = root * row
            quadratic -= (y @ project.T - (project * self.b).sum(axis=1)) ** 2
        return quadratic, slopes, forms


def check_pairs(space: Space, x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """Training directions (N, C) and cues (N, D) as arrays, or an InputError."""
    points, cues = space.check(x, "x"), np.asarray(y, dtype=np.float64)
    if cues.ndim != 2 or len(cues) != len(points) or not np.isfinite(cues).all():
        raise InputError(
            f"y must be finite numbers of shape (N, D) with N = {len(points)}, one row a "
            f"direction, got shape {cues.shape}. Leave out the rows with missing cues."
        )
    return points, cues


def _forms(matrices: Array, u: Array) -> Array:
    """uᵀ M_k u for matrices (K, L, L) and coordinates (L, N, K), coordinate by coordinate."""
    total = np.zeros(u.shape[1:])
    for i, a in enumerate(u):
        partial = matrices[:, i, i] * a
        for j in range(i):
            partial += (2 * matrices[:, i, j]) * u[j]
        partial *= a
        total += partial
    return total
