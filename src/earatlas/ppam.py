"""Probabilistic piecewise affine mapping (PPAM): an atlas of affine charts from directions to cues.

In: training pairs of directions x and cue vectors y. Out: a `PPAM`, which maps directions to cues
(forward) and cues, complete or not, to beliefs about the direction (inverse).

    x_n (N, C)  directions           u_nk (N, K, L)  chart coordinates of x_n around centre c_k
    y_n (N, D)  cue vectors          r_nk (N, K)     responsibilities p(z_n = k | x_n, y_n)
    A_k (K, D, L), b_k (K, D)        affine maps     Γ_k (K, L, L)  where a chart is used
    σ_d² (D,)   noise                B (D, L_w)      latent coordinates' map, w ~ N(0, I)
    g_kd (K, D) spread: how many times the noise component k has in channel d (1 in the paper)

The model: u_k(x) | k ~ N(0, Γ_k) and y | x, k = A_k u_k(x) + b_k + √g_k ∘ (B w + e), e ~ N(0, Σ).
Since the latent part is the same for all k, w leaves only S = (Σ + B Bᵀ)⁻¹ in place of Σ⁻¹
(Woodbury). How it is learned stands in `earatlas.em`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from earatlas.directions import Space
from earatlas.errors import InputError
from earatlas.posterior import Calibration, ChartMixture

__all__ = ["PPAM", "Learning", "check_pairs", "latent_root"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Learning:
    """How EM is run. The defaults are what won on three measured heads (docs/figures.md)."""

    start: Literal["directions", "joint"] = "directions"  # k-means on x, or on [x; y]
    starts: int = 2  # the best after `warm_up` iterations goes on
    warm_up: int = 5
    iterations: int = 50
    tolerance: float = 5e-3  # nats a sample that an iteration must gain to go on
    temperature: float | None = None  # y counts as y / temperature; None: max(1, D / 25)
    least_samples: float | None = None  # components below are dropped; None: L + 2
    spread_prior: float | None = 3.0  # samples the shared noise is worth; None: the paper's g = 1
    block_megabytes: float = 24.0  # of work arrays; at most eight times that for a copy of y


@dataclass(frozen=True, eq=False)
class PPAM:
    """p(x, y) = sum_k weights[k] N(u_k(x); 0, gammas[k]) N(y; A[k] u_k(x) + b[k], S[k]).

    S[k] = sqrt(spread[k]) (diag(noise) + latent latent^T) sqrt(spread[k]), never formed.
    """

    space: Space
    centres: Array  # (K, C) degrees
    weights: Array  # (K,) sums to 1
    gammas: Array  # (K, L, L) square degrees
    A: Array  # (K, D, L) per degree
    b: Array  # (K, D)
    noise: Array  # (D,) variances
    latent: Array  # (D, L_w)
    spread: Array  # (K, D)
    log_likelihoods: tuple[float, ...] = field(default=(), repr=False)
    converged: bool = False

    def __post_init__(self) -> None:
        K, D, L = self.A.shape
        expected = {
            "centres": (K, self.space.columns),
            "weights": (K,),
            "gammas": (K, L, L),
            "b": (K, D),
            "noise": (D,),
            "latent": (D, self.latent.shape[-1]),
            "spread": (K, D),
        }
        for name, shape in expected.items():
            if getattr(self, name).shape != shape:
                raise InputError(
                    f"{name} must have shape {shape}, got {getattr(self, name).shape}. "
                    f"A has K, D, L = {K, D, L}."
                )
        if self.space.dims != L:
            raise InputError(
                f"A must have {self.space.dims} columns, one a chart coordinate, got {L}. "
                "Check the space."
            )

    def __repr__(self) -> str:
        K, D, L = self.A.shape
        name = type(self.space).__name__
        return f"PPAM({name}, K={K}, D={D}, L={L}, L_w={self.latent.shape[1]})"

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

        `latent` is L_w (None: 10, fewer for few channels or samples); `constrained` keeps the
        paper's equal weights and volumes. The log-likelihoods are those of the tempered model
        with g = 1; they never fall on the plane while no component is dropped.
        """
        how = learning or Learning()
        points, cues = check_pairs(space, x, y)
        N, L = len(points), space.dims
        least = L + 2.0 if how.least_samples is None else how.least_samples
        if not 1 <= components <= max(N // (L + 1), 1):
            raise InputError(
                f"components must be between 1 and {max(N // (L + 1), 1)} for {N} directions, got "
                f"{components}. About {max(N // 10, 1)} is good."
            )
        D, rng = cues.shape[1], np.random.default_rng(seed)
        L_w = min(10, D // 20, N // 40) if latent is None else latent
        if not 0 <= L_w < max(D, 1):
            raise InputError(f"latent must be from 0 to D - 1 = {D - 1}, got {L_w}. 10 is usual.")
        from earatlas.em import EM  # which builds on this class

        em = EM(space, points, cues, how, least, L_w, constrained)
        models = [em.start(components, rng) for _ in range(max(how.starts, 1))]
        if len(models) > 1:
            models = [em.run(model, how.warm_up) for model in models]
        best = max(models, key=lambda model: model.log_likelihoods[-1:])
        best = em.run(best, how.iterations)
        shifted = replace(best, b=best.b + em.offset)
        return shifted if how.spread_prior is None else em.with_spread(shifted, how.spread_prior)

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
        from earatlas.em import EM  # which builds on this class

        how = learning or Learning()
        points, cues = self.space.check(x, "x"), np.asarray(y, dtype=np.float64)
        least = self.space.dims + 2.0 if how.least_samples is None else how.least_samples
        em = EM(self.space, points, cues, how, least, self.latent.shape[1], constrained)
        local = replace(self, b=self.b - em.offset, spread=np.ones_like(self.spread))
        best = em.maximize(local.centres, em.moments(local), (local.noise, local.latent))
        shifted = replace(best, b=best.b + em.offset)
        return shifted if how.spread_prior is None else em.with_spread(shifted, how.spread_prior)

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
        """Expected cues (N, D) at directions (N, C), and how far a channel may be off: variances.

        The variances are those within the charts; a channel's errors hang together with the others'
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
            belief = ChartMixture(self.space, self.centres, w, m, covariances)
            best.append(belief.best)
        return np.stack(best)

    def inverse_density(self, y: ArrayLike) -> ChartMixture:
        """p(x | y) for one complete cue vector (D,)."""
        cue = np.asarray(y, dtype=np.float64)
        return self.posterior(np.ones_like(cue), cue, cue**2)

    def inverse_batch(self, y: ArrayLike) -> tuple[Array, Array, Array]:
        """p(x | y_n) for complete cues (N, D): weights (N, K), means (N, K, L), covs (K, L, L)."""
        quadratic, slopes, forms = self._residual_forms(np.asarray(y, dtype=np.float64))
        V = np.asarray(np.linalg.inv(np.linalg.inv(self.gammas) + forms), dtype=np.float64)
        means = np.einsum("klm,nkm->nkl", V, slopes)
        volume = np.linalg.slogdet(V)[1] - np.linalg.slogdet(self.gammas)[1]
        fit = quadratic - (slopes * means).sum(axis=-1)
        logs = np.log(self.weights) + 0.5 * (volume - fit - self.log_determinants)
        return np.exp(logs - logsumexp(logs, axis=1, keepdims=True)), means, V

    def posterior(self, Q: ArrayLike, R: ArrayLike, E: ArrayLike) -> ChartMixture:
        """p(x | observations) from Q_d = Σ_t w, R_d = Σ_t w y, E_d = Σ_t w y² (DESIGN §3).

        Where Q_d = 0 nothing was observed: R_d and E_d may hold anything. One w serves all frames.
        """
        q = np.asarray(Q, dtype=np.float64)
        seen = q > 0
        P = np.where(seen, q, 0.0) / self.noise
        # R over Q and the part of E that R does not explain: exact, and safe from cancellation.
        mean = np.where(seen, R, 0.0) / np.where(seen, q, 1.0)
        rest = np.where(seen, E, 0.0) - np.where(seen, q, 0.0) * mean**2
        maps, inverse_spread = self._scaled
        residual = (mean - self.b) * np.sqrt(inverse_spread)  # (K, D)
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
        fit = H[:, L, L] + inverse_spread @ (rest / self.noise) - (h * means).sum(axis=-1)
        volume = np.linalg.slogdet(V)[1] - np.linalg.slogdet(self.gammas)[1]
        spread = self._log_spread @ np.where(seen, q, 0.0)
        logs = np.log(self.weights) + 0.5 * (volume - fit - spread)
        weights = np.exp(logs - logsumexp(logs))
        return ChartMixture(self.space, self.centres, weights, means, V)

    def belief(
        self, Q: ArrayLike, R: ArrayLike, E: ArrayLike, calibration: Calibration
    ) -> ChartMixture:
        """The posterior made honest: saturated, tempered and blurred by the calibration.

        A sound that fits no direction as well as held-out sounds did (noise, a room that was not
        learned) is believed less, by as much as its misfit is larger.
        """
        counts, sums, squares = (np.asarray(s, dtype=np.float64) for s in (Q, R, E))
        q, r, e = calibration.statistics(counts, sums, squares, self.noise)
        belief = self.posterior(q, r, e)
        excess = self.misfit(q, r, belief.best) / calibration.misfit
        if excess > 1:
            calibration = calibration.relaxed(excess)
            belief = self.posterior(*calibration.statistics(counts, sums, squares, self.noise))
        return calibration.blur(belief)

    def misfit(self, Q: Array, R: Array, direction: Array) -> float:
        """Mean squared residual of observed cues at a direction, in units of the model's noise."""
        mean = R / np.where(Q > 0, Q, 1.0)
        residual = mean - self.forward_map(direction[None])[0]
        variance = self.noise + (self.latent**2).sum(axis=1)
        return float(Q @ (residual**2 / variance) / max(float(Q.sum()), 1e-300))

    # --- kernels -------------------------------------------------------------------------------

    @cached_property
    def _scaled(self) -> tuple[Array, Array]:
        """A_kᵀ / √g_k (K, L, D) and 1 / g (K, D)."""
        root = np.sqrt(self.spread)
        return np.ascontiguousarray(self.A.transpose(0, 2, 1)) / root[:, None], 1 / self.spread

    @cached_property
    def _log_spread(self) -> Array:
        """log g (K, D)."""
        return np.log(self.spread)

    @cached_property
    def log_determinants(self) -> Array:
        """log |2 pi S_k| (K,), by the determinant lemma."""
        B, D = self.latent, len(self.noise)
        inner = np.linalg.slogdet(np.eye(B.shape[1]) + B.T @ (B / self.noise[:, None]))[1]
        shared = D * np.log(2 * np.pi) + np.log(self.noise).sum() + inner
        total: Array = shared + self._log_spread.sum(axis=1)
        return total

    def _residual_forms(self, y: Array) -> tuple[Array, Array, Array]:
        """With e = y - b_k: eᵀS_k⁻¹e (N, K), A_kᵀS_k⁻¹e (N, K, L) and A_kᵀS_k⁻¹A_k (K, L, L)."""
        K, D, L = self.A.shape
        maps, inverse_spread = self._scaled
        root = np.sqrt(inverse_spread)
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


def latent_root(noise: Array, latent: Array) -> Array:
    """F (L_w, D) with (Σ + B Bᵀ)⁻¹ = Σ⁻¹ - Fᵀ F, from the Woodbury identity."""
    scaled = latent / noise[:, None]
    inner = np.eye(latent.shape[1]) + latent.T @ scaled
    root: Array = np.linalg.solve(np.linalg.cholesky(inner), scaled.T)
    return root


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
