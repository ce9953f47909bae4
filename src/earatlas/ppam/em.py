"""Expectation-maximization (EM) for PPAM (paper, section 5.1).

Input: directions x (N, C), cues y (N, D) and `EMSettings`. Output: `PPAMParameters`. The symbols
are those of `earatlas.ppam.model`; in addition

    r_nk (N, K)       responsibilities      φ_nk = (u_nk, 1)   regressors (L+1)
    S = (Σ + B Bᵀ)⁻¹  noise precision       M_k = (A_k, b_k)   affine maps (D, L+1)
    β                 inverse temperature   n, K'              rows of a block, charts that matter

The algorithm (`EM.run`) alternates

    E-step  r_nk ∝ w_k N(u_nk; 0, Γ_k) N(y_n; M_k φ_nk, S⁻¹)^β             eqs. 4, 5 and 8
            Σ_n r_nk, Σ_n r_nk φ_nk φ_nkᵀ, Σ_n r_nk φ_nk y_nᵀ              `earatlas.ppam.e_step`
    M-step  c_k, Γ_k, w_k; (A_k, b_k) by weighted least squares            eqs. 6 and 10
            Σ and B by factor analysis of the residuals                    eq. 10 for L_w = 0

All cues share the regressors φ, so weighted least squares maximizes over (A_k, b_k) for any S. One
iteration is one pass over the data (`earatlas.ppam.data_blocks`): for each block two matrix
products of (n × D) with (D × K'(L+1)), and no array over N, K and D at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from earatlas.errors import InputError
from earatlas.geometry.chart_gaussians import change_chart
from earatlas.geometry.spaces import Space
from earatlas.ppam.data_blocks import BlockSettings, ChartSupport, TrainingData
from earatlas.ppam.e_step import (
    LogJoint,
    ResponsibilityBlock,
    SufficientStatistics,
    normalize,
)
from earatlas.ppam.parameters import PPAMParameters
from earatlas.types import Array, Indices, Mask

__all__ = ["EM", "EMSettings", "fit", "refits"]


@dataclass(frozen=True)
class EMSettings:
    """Settings of EM for PPAM.

    Evidence: docs/figures/settings/ppam.md, "em".
    """

    n_starts: int = 2  # initializations; the best one after `warm_up` iterations continues
    warm_up: int = 5  # iterations
    max_iterations: int = 50
    tolerance: float = 5e-3  # smallest gain per iteration, nats per sample
    temperature: float | None = None  # divides the log-likelihood of y; None: max(1, D / 25)
    min_samples: float | None = None  # components with fewer are dropped; None: L + 2
    spread_prior: float | None = 3.0  # pseudo-samples of the common noise; None: g = 1 (paper)
    blocks: BlockSettings = field(default_factory=BlockSettings)


@dataclass(frozen=True, eq=False)
class EM:
    """EM on one data set. Internally the mean of the cues is subtracted for numerical precision."""

    space: Space
    x: Array  # (N, C) directions, degrees
    y: Array  # (N, D) cues
    settings: EMSettings
    L_w: int  # number of latent coordinates
    constrained: bool  # equal weights and chart volumes, as in the paper

    @cached_property
    def data(self) -> TrainingData:
        """The data in blocks."""
        return TrainingData(self.space, self.x, self.y, self.settings.blocks)

    @cached_property
    def temperature(self) -> float:
        """Temperature of the log-likelihood; the default corresponds to 25 independent cues."""
        given = self.settings.temperature
        return max(1.0, self.y.shape[1] / 25) if given is None else given

    def run(
        self,
        model: PPAMParameters,
        max_iterations: int,
        statistics: SufficientStatistics | None = None,
    ) -> tuple[PPAMParameters, SufficientStatistics]:
        """Alternate E- and M-steps until the gain is below the tolerance.

        A decrease beyond rounding errors does not count as convergence. Returns the model and the
        statistics of its E-step, with which a later call can continue.
        """
        history, converged = list(model.log_likelihoods), False
        if statistics is None:
            statistics = self.e_step(model)
            history.append(statistics.log_likelihood)
        for _ in range(max_iterations):
            K = len(model.weights)
            model = self.m_step(model.centres, statistics, (model.noise, model.latent))
            statistics = self.e_step(model)
            history.append(statistics.log_likelihood)
            # A dropped component changes the likelihood.
            converged = len(model.weights) == K and self._has_converged(history, model)
            if converged:
                break
        return replace(model, log_likelihoods=tuple(history), converged=converged), statistics

    def _has_converged(self, history: list[float], model: PPAMParameters) -> bool:
        """Return whether the gain of the last iteration is below the tolerance."""
        gain = history[-1] - history[-2]
        # At a fixed point the sum still varies in its last digits.
        rounding = 1e-14 * float((self.data.squares / model.noise).sum())
        return -rounding <= gain < self.settings.tolerance * len(self.data)

    def finalize(self, model: PPAMParameters, without: Mask | None = None) -> PPAMParameters:
        """Add the mean of the cues again, and estimate the spread unless it is fixed to 1.

        `without` (N,) are rows that are left out.
        """
        shifted = replace(model, b=model.b + self.data.offset)
        prior = self.settings.spread_prior
        return shifted if prior is None else self.estimate_spread(shifted, prior, without)

    def initialize(self, K: int, rng: np.random.Generator) -> PPAMParameters:
        """Initialize by k-means of the directions, in charts."""
        N, L = len(self.x), self.space.dims
        chosen, nearest = [int(rng.integers(N))], np.full(N, np.inf)
        squared_distances = self.space.distances_from(self.x)
        for _ in range(K - 1):  # k-means++: draw the next seed by squared distance
            nearest = np.minimum(nearest, squared_distances(chosen[-1]))
            p = nearest / nearest.sum() if nearest.any() else np.full(N, 1 / N)
            chosen.append(int(rng.choice(N, p=p)))
        centres = self.x[chosen]
        labels = np.zeros(N, dtype=np.intp)
        for _ in range(20):
            step, counts = np.zeros((K, L)), np.full(K, 1e-9)
            for s in self.data.slices(4 * K * L):
                labels[s] = label = self.space.nearest(centres, self.x[s])
                np.add.at(counts, label, 1.0)
                np.add.at(step, label, self.space.log(centres[label], self.x[s]))
            centres = self.space.exp(centres, step / counts[:, None])
        blocks = self.hard_assignments(centres, labels)
        statistics = SufficientStatistics.of(blocks, (K, self.y.shape[1], L))
        return self.m_step(centres, statistics, None)

    def hard_assignments(self, centres: Array, labels: Indices) -> Iterator[ResponsibilityBlock]:
        """Yield blocks as `responsibilities` does, for hard assignments (N,)."""
        for block in self.data.blocks(3 * len(centres) * (self.space.dims + 1)):
            own = labels[block.rows]
            k = np.unique(own)
            u = np.moveaxis(self.space.charts(centres[k], block.x), -1, 0)
            r = (own[:, None] == k).astype(np.float64)
            yield ResponsibilityBlock(block.rows, k, block.y, u, r, np.zeros((len(r), 0)), 0.0)

    def responsibilities(self, model: PPAMParameters) -> Iterator[ResponsibilityBlock]:
        """Yield blocks of the data with r_nk, F y and the log-likelihood."""
        (K, _, L), beta = model.A.shape, 1 / self.temperature
        log_joint = LogJoint.of(model, beta)
        support = ChartSupport.of(model, self.settings.blocks)
        # Mean of yᵀ Σ⁻¹ y over all rows; summed over all blocks this gives the exact total.
        mean_square = (self.data.squares / model.noise).sum() / len(self.data)
        for block in self.data.blocks(3 * K * (L + 1)):
            k = support.relevant_components(block)
            u = np.moveaxis(self.space.charts(model.centres[k], block.x), -1, 0)
            logs, Fy = log_joint(k, u, block.y)
            r, log_sums = normalize(logs)  # r_nk = p(z_n = k | x_n, y_n)
            ySy = len(block.y) * mean_square - (Fy**2).sum()  # Σ_n y_nᵀ S y_n
            log_likelihood = float(log_sums.sum() - 0.5 * beta * ySy)
            yield ResponsibilityBlock(block.rows, k, block.y, u, r, Fy, log_likelihood)

    def e_step(self, model: PPAMParameters) -> SufficientStatistics:
        """Compute the responsibilities and accumulate the sufficient statistics."""
        return SufficientStatistics.of(self.responsibilities(model), model.A.shape)

    def m_step(
        self,
        centres: Array,
        statistics: SufficientStatistics,
        before: tuple[Array, Array] | None,
    ) -> PPAMParameters:
        """Maximize the expected log-likelihood (eq. 10), in charts around new centres.

        `before` holds the noise and the latent map of the previous iteration, which are improved by
        one EM step of factor analysis; None estimates them from scratch. The spread is 1 if the
        statistics do not contain the squares of the cues of each component.
        """
        given = self.settings.min_samples
        min_samples = self.space.dims + 2.0 if given is None else given
        keep = statistics.counts >= min(min_samples, statistics.counts.max())
        counts, grams = statistics.counts[keep], statistics.grams[keep]  # r_k = Σ_n r_nk
        cross = statistics.cross[keep]
        N, L = statistics.samples, self.space.dims
        # ū_k = Σ_n r_nk u_nk / r_k
        shift = grams[:, :L, L] / counts[:, None]
        # C_k = Σ_n r_nk u_nk u_nkᵀ / r_k - ū_k ū_kᵀ
        scatter = grams[:, :L, :L] / counts[:, None, None] - shift[:, :, None] * shift[:, None]
        values, vectors = np.linalg.eigh(0.5 * (scatter + scatter.mT))
        # Directions on a line, or equal ones, determine no slope across: it is set to zero there.
        flat = values < 1e-9 * np.maximum(values[:, -1:], 1e-300)
        inverse = np.where(flat, 0.0, 1 / np.where(flat, 1.0, values))
        # b_k = Σ_n r_nk y_n / r_k, the cues at the new centre
        b = cross[:, L] / counts[:, None]
        # cov_k = Σ_n r_nk u_nk y_nᵀ / r_k - ū_k b_kᵀ
        covariance = cross[:, :L] / counts[:, None, None] - shift[..., None] * b[:, None]
        along = vectors.mT @ covariance  # (K, L, D) in the eigenvectors of C_k
        A = (vectors * inverse[:, None]) @ along  # A_kᵀ = C_k⁻¹ cov_k (weighted least squares)
        # Without the floor a component of two equal directions gets a Γ of determinant zero.
        floor = 1e-6 * np.einsum("kll,k->", scatter, counts) / (L * N) + 1e-12
        # c_k' = exp_{c_k}(ū_k); J_k is the Jacobian of the change from the chart of c_k to c_k'.
        new_centres = self.space.exp(centres[keep], shift)
        _, jacobian = change_chart(self.space, centres[keep], shift, new_centres)
        gammas = jacobian @ (scatter + floor * np.eye(L)) @ jacobian.mT  # Γ_k = J_k C_k J_kᵀ
        A = np.linalg.solve(jacobian.mT, A).mT  # (K, D, L): A_k J_k⁻¹
        weights = counts / counts.sum()  # w_k = r_k / N
        if self.constrained:
            # Eq. 6: |Γ_k|^(1/L) = Σ_j w_j |Γ_j|^(1/L) for all k, and w_k = 1 / K
            roots = np.linalg.det(gammas) ** (1 / L)
            gammas = gammas * (weights @ roots / roots)[:, None, None]
            weights = np.full(len(counts), 1 / len(counts))
        # explainedᵀ explained = Σ_n r_nk M_k φ φᵀ M_kᵀ, the part of Σ_n y yᵀ that the maps explain
        explained = np.concatenate([b[:, None], along * np.sqrt(inverse)[..., None]], axis=1)
        explained *= np.sqrt(counts)[:, None, None]  # (K, L+1, D)
        noise, latent = self.factor_analysis(explained.reshape(-1, b.shape[1]), before, statistics)
        spread = np.ones_like(b)
        return PPAMParameters(self.space, new_centres, weights, gammas, A, b, noise, latent, spread)

    def factor_analysis(
        self,
        explained: Array,
        before: tuple[Array, Array] | None,
        statistics: SufficientStatistics,
    ) -> tuple[Array, Array]:
        """Return noise (D,) and latent map (D, L_w) by factor analysis of the residual covariance.

        The residual covariance W = (Yᵀ Y - explainedᵀ explained) / N (D, D) is never formed.
        """
        own = statistics.component_squares
        N, squares = statistics.samples, self.data.squares if own is None else own.sum(axis=0)
        # diag W
        variance = (squares - (explained**2).sum(axis=0)) / N
        # Without the floor, a cue that is constant or exactly affine would have infinite weight.
        floor = 1e-8 * squares / N + 1e-12 * squares.mean() / N + 1e-300
        variance = np.maximum(variance, floor)
        if self.L_w == 0:
            return variance, np.zeros((len(variance), 0))
        if before is None:
            axes, values = self.principal_axes(np.sqrt(variance), self.L_w, explained)
            # White residuals have eigenvalues of 1; the excess is common to several cues.
            latent = axes * np.sqrt(np.maximum(values - 1, 0.01)) * np.sqrt(variance)[:, None]
            noise = np.maximum(variance - (latent**2).sum(axis=1), 0.05 * variance)
        else:
            noise, latent = before
        for _ in range(8 if before is None else 1):
            inner = np.eye(self.L_w) + latent.T @ (latent / noise[:, None])  # G = I + Bᵀ Σ⁻¹ B
            # E[w | e] = G⁻¹ Bᵀ Σ⁻¹ e, the gain (L_w, D)
            gain: Array = np.linalg.solve(inner, (latent / noise[:, None]).T)
            if before is None:
                WG = self.residual_product(gain.T, explained)
            else:  # the E-step has accumulated Yᵀ Y Fᵀ, and gainᵀ = Fᵀ G^(-1/2)
                total = np.linalg.solve(np.linalg.cholesky(inner).T, statistics.projected.T).T
                WG = (total - explained.T @ (explained @ gain.T)) / N
            # E[w wᵀ] = G⁻¹ + gain W gainᵀ;  B = W gainᵀ E[w wᵀ]⁻¹;  Σ = diag(W - B gain W)
            second = np.linalg.inv(inner) + gain @ WG
            latent = np.linalg.solve(second, WG.T).T
            noise = np.maximum(variance - (latent * WG).sum(axis=1), floor)
        return noise, latent

    def residual_product(self, P: Array, explained: Array) -> Array:
        """Return W P for P (D, J), without forming W (D, D)."""
        product = self.data.gram_product(P) - explained.T @ (explained @ P)
        return product / len(self.data)

    def principal_axes(self, scale: Array, n: int, explained: Array) -> tuple[Array, Array]:
        """Return leading eigenvectors (D, n) and eigenvalues (n,) of W / (scale scaleᵀ).

        Computed by subspace iteration.
        """
        D, columns = len(scale), min(n + 10, len(scale))
        axes = np.random.default_rng(0).standard_normal((D, columns))
        values = np.zeros(columns)
        kept: Array = axes
        for _ in range(8):
            axes = np.asarray(np.linalg.qr(axes)[0], dtype=np.float64)
            product = self.residual_product(axes / scale[:, None], explained) / scale[:, None]
            values, rotation = np.linalg.eigh(axes.T @ product)
            kept, axes = axes @ rotation[:, ::-1], product @ rotation[:, ::-1]
        return kept[:, :n], values[::-1][:n]

    def estimate_spread(
        self, model: PPAMParameters, prior: float, without: Mask | None = None
    ) -> PPAMParameters:
        """Estimate the spread g_kd from a last E-step, without some of the rows (N,).

        It is the residual variance of a component over the common one, shrunk towards 1 as if by
        `prior` samples.
        """
        local = replace(model, b=model.b - self.data.offset)
        blocks: Iterable[ResponsibilityBlock] = self.responsibilities(local)
        if without is not None:
            blocks = (block.take(np.flatnonzero(~without[block.rows])) for block in blocks)
        statistics = SufficientStatistics.of(blocks, model.A.shape, squares=True)
        assert statistics.component_squares is not None
        M = np.concatenate([local.A.transpose(0, 2, 1), local.b[:, None]], axis=1)  # (K, L+1, D)
        # Σ_n r_nk (y - M_k φ)² = Σ_n r_nk y² + (M_k Σ r φφᵀ - 2 Σ r y φᵀ) M_kᵀ, per cue
        explained = ((2 * statistics.cross - statistics.grams @ M) * M).sum(axis=1)
        residual = statistics.component_squares - explained
        spread = _shrunk_spread(residual, statistics.counts, model.noise, model.latent, prior)
        return replace(model, spread=spread)


def _shrunk_spread(
    residual: Array, counts: Array, noise: Array, latent: Array, prior: float
) -> Array:
    """Return g (K, D) = (prior + ratio) / (prior + Σ_n r_nk).

    The ratio is that of the residual squares (K, D) to the common variance σ_d² + Σ_l B_dl².
    """
    ratio = np.maximum(residual, 0.0) / (noise + (latent**2).sum(axis=1))
    spread: Array = (prior + ratio) / (prior + counts[:, None])
    return spread


def fit(
    space: Space,
    x: Array,
    y: Array,
    *,
    components: int,
    latent: int | None = None,
    constrained: bool = True,
    settings: EMSettings | None = None,
    seed: int | np.random.Generator = 0,
) -> PPAMParameters:
    """Fit the parameters to directions (N, C) and cues (N, D), from the best of several starts."""
    settings = settings or EMSettings()
    N, L, D = len(x), space.dims, y.shape[1]
    max_components = max(N // (L + 1), 1)
    if not 1 <= components <= max_components:
        raise InputError(
            f"components must be between 1 and {max_components} for {N} directions, got "
            f"{components}. About {max(N // 10, 1)} is good."
        )
    L_w = min(10, D // 20, N // 40) if latent is None else latent
    if not 0 <= L_w < max(D, 1):
        raise InputError(f"latent must be from 0 to D - 1 = {D - 1}, got {L_w}. 10 is usual.")
    em, rng = EM(space, x, y, settings, L_w, constrained), np.random.default_rng(seed)
    starts = [em.initialize(components, rng) for _ in range(max(settings.n_starts, 1))]
    warm_up = settings.warm_up if len(starts) > 1 else 0
    candidates = [em.run(model, warm_up) for model in starts]
    best, statistics = max(candidates, key=lambda candidate: candidate[1].log_likelihood)
    return em.finalize(em.run(best, settings.max_iterations, statistics)[0])


def refits(
    model: PPAMParameters,
    x: Array,
    y: Array,
    folds: Iterable[Indices],
    *,
    constrained: bool,
    settings: EMSettings | None = None,
) -> Iterator[PPAMParameters]:
    """Yield the parameters after one EM iteration on all rows but those of each fold.

    The responsibilities of a row do not depend on the other rows. So one E-step serves all folds:
    the statistics of the other rows are those of all rows minus those of the fold.
    """
    settings = settings or EMSettings()
    em = EM(model.space, x, y, settings, model.latent.shape[1], constrained)
    local = replace(model, b=model.b - em.data.offset, spread=np.ones_like(model.spread))
    blocks = list(em.responsibilities(local))
    whole = SufficientStatistics.of(blocks, model.A.shape, squares=True)
    for fold in folds:
        inside = np.zeros(len(x), dtype=bool)
        inside[fold] = True
        own = [block.take(np.flatnonzero(inside[block.rows])) for block in blocks]
        others = whole - SufficientStatistics.of(own, model.A.shape, squares=True)
        refitted = em.m_step(local.centres, others, (local.noise, local.latent))
        yield em.finalize(refitted, without=inside)
