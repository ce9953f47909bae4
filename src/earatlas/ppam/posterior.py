"""The posterior of directions given cues (paper, eqs. 12 to 15), for one sound or for many.

Input: the charts of a PPAM and, for each of W sounds, the mean ȳ_d of every cue and its precision
P_d (Q_d / σ_d² for Q_d frames; 0 where nothing was observed). Output: for each sound and chart the
Gaussian posterior of the chart coordinates u, and the probability of the chart. A recording is a
batch of one, and a complete cue vector has P = 1 / σ².

Divided by √g_k, the cues of all charts have the same noise: (ȳ - b_k) / √g_k is distributed as
A_k u / √g_k + B w + e with e ~ N(0, P⁻¹). With Z_k = [A_k / √g_k, (ȳ - b_k) / √g_k], integrating
w ~ N(0, I) out gives

    H_k = Z_kᵀ P Z_k - N_k C⁻¹ N_kᵀ              N_k = Z_kᵀ P B,  C = I + Bᵀ P B
    V_k = (Γ_k⁻¹ + H_uu)⁻¹                       covariance of u (eq. 14)
    m_k = V_k H_ur                               mean of u (eq. 13)
    log ρ_k = log π_k + ½ (log|V_k| - log|Γ_k| - log|C| - H_rr + H_urᵀ m_k)       (eq. 15)

where u stands for the first L and r for the last of the L+1 rows of H_k. Z_k is affine in ȳ, so
that H_k and N_k are matrix products of P, P ȳ and P ȳ² with matrices of the charts.

`ChartPriors.posteriors` computes V, m and ρ from H and log|C|, for any covariance of the cues.
`Charts` computes H for latent coordinates that all charts share, and
`earatlas.ppam.listener_model` for the deviations of an unknown head, which each chart has its own.

Few charts have a noticeable probability. For many sounds, a cheap approximation selects the charts
that are evaluated exactly (`ChartPosteriors.refined`): here, an eighth of the cues.

    W   sounds    K   charts    D   cues    L   chart coordinates    L_w   latent coordinates
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Space
from earatlas.numerics import logsumexp
from earatlas.types import Array, Indices, Mask

__all__ = ["ChartPosteriors", "ChartPriors", "Charts", "PosteriorSettings"]


# Evidence: docs/figures/settings/ppam.md, "posterior".
@dataclass(frozen=True, slots=True)
class PosteriorSettings:
    """Settings of the posteriors of many sounds; they change the time, not the result."""

    cue_step: int = 8  # every eighth cue selects the charts
    min_selection_cues: int = 60  # with fewer, all charts are evaluated
    max_gap_nats: float = 20.0  # charts that fall further behind the best one are left out
    few_charts: int = 16  # sounds with at most so many charts are evaluated together
    block_numbers: int = 1_000_000  # numbers in the largest array, 8 megabytes
    peaks: int = 8  # component means that are tried as the maximum of the density
    neighbours: int = 32  # components of which the density is summed there


@dataclass(frozen=True, eq=False)
class ChartPriors:
    """The prior of K charts: chart k has the probability π_k, and u is from N(0, Γ_k)."""

    space: Space
    centres: Array  # (K, C) c_k, degrees
    weights: Array  # (K,) π_k
    gammas: Array  # (K, L, L) Γ_k, square degrees

    def given(
        self,
        H: Array,
        log_det: Array,
        log_factors: Array | float = 0.0,
        settings: PosteriorSettings = PosteriorSettings(),  # noqa: B008
    ) -> ChartPosteriors:
        """Return the posteriors of W sounds given H (L+1, L+1, K, W) and log|C|, (W,) or (K, W).

        `log_factors` are other log-likelihoods of the charts, (K, W) or (K, 1).
        """
        L = len(H) - 1
        prior = np.linalg.inv(self.gammas).transpose(1, 2, 0)[..., None]
        V, log_volumes = _inverses(prior + H[:L, :L])
        means = (V * H[:L, L]).sum(axis=1)
        distances = H[L, L] - (H[:L, L] * means).sum(axis=0)
        log_priors = np.log(self.weights) - 0.5 * np.linalg.slogdet(self.gammas)[1]
        logs = log_priors[:, None] + 0.5 * (log_volumes - log_det - distances) + log_factors
        return ChartPosteriors(self.space, self.centres, logs, means, V, settings)


@dataclass(frozen=True, eq=False)
class Charts(ChartPriors):
    """Charts of a PPAM with shared latent coordinates, the cues of each divided by √g_k."""

    maps: Array  # (L, K, D) A_kᵀ / √g_k
    offsets: Array  # (K, D) b_k / √g_k
    scales: Array  # (K, D) 1 / √g_k
    log_spread: Array  # (K, D) log g_k
    latent: Array  # (D, L_w) B
    origin: Array  # (D,) subtracted from all cues, also from b_k, for numerical precision
    settings: PosteriorSettings = PosteriorSettings()

    def __getitem__(self, k: Indices | Mask) -> Charts:
        """Return some of the charts."""
        per_chart = ("centres", "weights", "gammas", "offsets", "scales", "log_spread")
        chosen = {name: getattr(self, name)[k] for name in per_chart}
        return replace(self, maps=self.maps[:, k], **chosen)

    def posteriors(self, P: Array, y: Array, log_factors: Array | float = 0.0) -> ChartPosteriors:
        """Return the posteriors of sounds with mean cues y (W, D) and precisions P.

        P has the shape (W, D), or (1, D) if it is the same for all sounds. `log_factors`, (W, K) or
        (1, K), are other log-likelihoods of the charts.
        """
        H, log_det = self.forms(P, y)
        return self.given(H, log_det, np.transpose(log_factors), self.settings)

    def forms(self, P: Array, y: Array) -> tuple[Array, Array]:
        """Return H (L+1, L+1, K, W) and log|C| (W,) of sounds, computed in blocks of sounds."""
        (L, K, D), L_w, W = self.maps.shape, self.latent.shape[1], len(y)
        H, log_det = np.empty((L + 1, L + 1, K, W)), np.empty(W)
        size = max(self.settings.block_numbers // (max((L + 1) * K, D) * max(L_w, 1)), 1)
        for start in range(0, W, size):
            rows = slice(start, start + size)
            own = P if len(P) == 1 else P[rows]
            H[..., rows], log_det[rows] = self._forms(own.T, (y[rows] - self.origin).T)
        return H, log_det

    def selected_posteriors(self, P: Array, y: Array, log_factors: Array) -> ChartPosteriors:
        """Return `posteriors`, evaluated only for charts that may have a noticeable weight.

        All arguments have W rows. The other charts have the weight 0. The sums over latent
        coordinates have single precision, which changes the logarithms by at most 0.002 nats.
        """
        settings, step = self.settings, self.settings.cue_step
        if y.shape[1] < step * settings.min_selection_cues:
            return self.posteriors(P, y, log_factors)
        single = self._single
        some = single._some_cues.posteriors(step * P[:, ::step], y[:, ::step], log_factors)
        selected = some.logs > some.logs.max(axis=0) - settings.max_gap_nats
        few = selected.sum(axis=0) <= settings.few_charts

        def exact(rows: Indices, k: Indices) -> ChartPosteriors:
            charts = single if len(k) == len(selected) else single[k]
            return charts.posteriors(P[rows], y[rows], log_factors[np.ix_(rows, k)])

        return some.refined(selected, (np.flatnonzero(few), np.flatnonzero(~few)), exact)

    @cached_property
    def _single(self) -> Charts:
        """The charts with latent coordinates in single precision, which take half the time."""
        return replace(self, latent=self.latent.astype(np.float32))

    @cached_property
    def _some_cues(self) -> Charts:
        """The charts with every eighth cue."""
        step = self.settings.cue_step
        own = {
            name: getattr(self, name)[..., ::step]
            for name in ("maps", "offsets", "scales", "log_spread")
        }
        return replace(self, latent=self.latent[::step], origin=self.origin[::step], **own)

    def posterior_of_charts(self, P: Array, y: Array, log_factors: Array) -> ChartPosteriors:
        """Return the posterior of one sound y (D,) whose precision P (K, D) depends on the chart.

        P is the precision of cues that are divided by √g_k; `log_factors` has the shape (K,).
        """
        L_w = self.latent.shape[1]
        Z = np.concatenate([self.maps, self._residuals(y)[None]])  # (L+1, K, D)
        ZP = (Z * P).transpose(1, 0, 2)  # (K, L+1, D)
        H = ZP @ Z.transpose(1, 2, 0)
        N = ZP @ self.latent
        C = np.eye(L_w) + (P @ self._latent_pairs).reshape(len(P), L_w, L_w)
        H = H - N @ np.linalg.solve(C, N.mT)
        log_det = np.linalg.slogdet(C)[1][:, None]
        H = H.transpose(1, 2, 0)[..., None]
        return self.given(H, log_det, log_factors[:, None], self.settings)

    def joint_moments(self, P: Array, y: Array) -> tuple[Array, Array]:
        """Return means (K, L + L_w) and covariances of (u, w) in each chart, for P (K, D)."""
        L, J = len(self.maps), len(self.maps) + self.latent.shape[1]
        M, residual = self.joint_maps, self._residuals(y)
        precision = np.broadcast_to(np.eye(J), (len(M), J, J)).copy()
        precision[:, :L, :L] = np.linalg.inv(self.gammas)
        precision += M.mT @ (P[..., None] * M)
        V = np.linalg.inv(precision)
        V = 0.5 * (V + V.mT)
        means = V @ (M.mT @ (P * residual)[..., None])
        return means[..., 0], V

    def _residuals(self, y: Array) -> Array:
        """Return (ȳ - b_k) / √g_k of shape (K, D), given y (D,)."""
        residuals: Array = self.scales * (y - self.origin) - self.offsets
        return residuals

    @property
    def joint_maps(self) -> Array:
        """Maps (K, D, L + L_w) of (u, w) to cues that are divided by √g_k."""
        latent = np.broadcast_to(self.latent, (len(self.centres), *self.latent.shape))
        return np.concatenate([self.maps.transpose(1, 2, 0), latent], axis=2)

    def _forms(self, P: Array, y: Array) -> tuple[Array, Array]:
        """Return H (L+1, L+1, K, W) and log|C|, given P (D, W) or (D, 1) and y (D, W)."""
        (L, K, _), Py = self.maps.shape, P * y
        constant, linear = self._products
        # Z_kᵀ P Z_k, with the product of (A_k, ȳ - b_k) / √g_k multiplied out
        one = (constant @ P).reshape(-1, K, P.shape[1])
        maps_maps, maps_b, b_b = np.split(one, [-L - 1, -1])
        maps_y, b_y = np.split((linear @ Py).reshape(L + 1, K, -1), [L])
        H = np.empty((L + 1, L + 1, K, y.shape[1]))
        H[np.tril_indices(L)] = maps_maps
        H[L, :L] = maps_y - maps_b
        H[L, L] = (self.scales**2 @ (Py * y)) - 2 * b_y[0] + b_b[0]
        U, log_det = self._latent_forms(P, y)
        for i, j in zip(*np.tril_indices(L + 1), strict=True):
            H[i, j] -= np.einsum("klw,klw->kw", U[i], U[j])  # N_k C⁻¹ N_kᵀ
            H[j, i] = H[i, j]
        return H, log_det

    def _latent_forms(self, P: Array, y: Array) -> tuple[Array, Array]:
        """Return N_k C^(-1/2) of shape (L+1, K, L_w, W), and log|C| of shape (W,).

        The products have the precision of the latent matrix B.
        """
        (L, K, D), (_, L_w), W = self.maps.shape, self.latent.shape, P.shape[1]
        kind = self.latent.dtype
        C = np.eye(L_w) + (P.T @ self._latent_pairs).reshape(W, L_w, L_w)
        root = np.linalg.cholesky(C)
        log_det = 2 * np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
        inverse = np.linalg.inv(root).transpose(2, 1, 0).reshape(L_w, L_w * W)
        whitened = self.latent @ inverse.astype(kind)
        PB = whitened.reshape(D, L_w, W) * P[:, None].astype(kind)  # P B C^(-1/2)
        PBy = PB * y[:, None].astype(kind)
        U = np.empty((L + 1, K, L_w, y.shape[1]), dtype=kind)
        U[:] = (self._fixed @ PB.reshape(D, -1)).reshape(L + 1, K, L_w, W)
        U[L] += (self.scales.astype(kind) @ PBy.reshape(D, -1)).reshape(U[L].shape)
        return U, log_det

    @cached_property
    def _fixed(self) -> Array:
        """Rows ((L+1) K, D) of Z_k that do not depend on ȳ, in the precision of B."""
        fixed = np.concatenate([self.maps, -self.offsets[None]])
        return fixed.reshape(-1, fixed.shape[-1]).astype(self.latent.dtype)

    @cached_property
    def _latent_pairs(self) -> Array:
        """Products (D, L_w²) of two columns of B."""
        B = self.latent.astype(np.float64)
        return (B[:, :, None] * B[:, None]).reshape(len(B), B.shape[1] ** 2)

    @cached_property
    def _products(self) -> tuple[Array, Array]:
        """Products of the charts' matrices (… K, D) that multiply P and P ȳ."""
        (L, _, D), maps, b = self.maps.shape, self.maps, self.offsets
        i, j = np.tril_indices(L)
        constant = np.concatenate([maps[i] * maps[j], maps * b, (b * b)[None]])
        linear = np.concatenate([maps, b[None]]) * self.scales
        return constant.reshape(-1, D), linear.reshape(-1, D)


@dataclass(frozen=True, eq=False)
class ChartPosteriors:
    """Posteriors of W sounds: p_w(x) = Σ_k ρ_kw N(u_k(x); m_kw, V_kw)."""

    space: Space
    centres: Array  # (K, C) c_k, degrees
    logs: Array  # (K, W) log ρ, not normalized
    means: Array  # (L, K, W) m, degrees
    covariances: Array  # (L, L, K, W) V, square degrees
    settings: PosteriorSettings = PosteriorSettings()

    def __len__(self) -> int:
        return len(self.logs.T)

    def __getitem__(self, n: int) -> DirectionPosterior:
        """Return the posterior of one sound."""
        return DirectionPosterior(
            self.space,
            self.centres,
            self.weights[:, n],
            self.means[..., n].T,
            self.covariances[..., n].transpose(2, 0, 1),
        )

    def __iter__(self) -> Iterator[DirectionPosterior]:
        return (self[n] for n in range(len(self)))

    def refined(
        self,
        selected: Mask,
        groups: Iterable[Indices],
        exact: Callable[[Indices, Indices], ChartPosteriors],
    ) -> ChartPosteriors:
        """Return the exact posteriors of the selected charts (K, W); the others have the weight 0.

        `exact(w, k)` returns those of some sounds and charts; it is called for each group of sounds
        and all charts that one of them selects.
        """
        logs = np.full_like(self.logs, -np.inf)
        means, covariances = self.means.copy(), self.covariances.copy()
        for rows in groups:
            k = np.flatnonzero(selected[:, rows].any(axis=1))
            if len(rows):
                found = exact(rows, k)
                logs[k[:, None], rows] = found.logs
                means[:, k[:, None], rows] = found.means
                covariances[:, :, k[:, None], rows] = found.covariances
        return replace(self, logs=logs, means=means, covariances=covariances)

    @classmethod
    def concatenate(cls, parts: Sequence[ChartPosteriors]) -> ChartPosteriors:
        """Return the posteriors of the sounds of all parts."""
        logs, means, covariances = (
            np.concatenate([getattr(part, name) for part in parts], axis=-1)
            for name in ("logs", "means", "covariances")
        )
        return replace(parts[0], logs=logs, means=means, covariances=covariances)

    @cached_property
    def log_evidence(self) -> Array:
        """log Σ_k exp(logs) (W,)."""
        top = self.logs.max(axis=0)
        evidence: Array = top + np.log(np.exp(self.logs - top).sum(axis=0))
        return evidence

    @cached_property
    def weights(self) -> Array:
        """ρ (K, W), which sums to 1 over the charts."""
        weights: Array = np.exp(self.logs - self.log_evidence)
        return weights

    def best(self) -> Array:
        """Return the best direction of each sound (W, C), as `DirectionPosterior.best`."""
        V, log_volumes = _inverses(self.covariances)
        norms = np.where(self.weights >= 1e-9, self.logs + 0.5 * log_volumes, -np.inf).T
        count = min(self.settings.neighbours, norms.shape[1])
        top = np.argpartition(-norms, count - 1, axis=1)[:, :count]
        rows = np.arange(len(top))[:, None]
        top = top[rows, np.argsort(-norms[rows, top], axis=1)]
        peaks = slice(0, self.settings.peaks)
        centres, means = self.centres[top], np.moveaxis(self.means[:, top, rows], 0, -1)
        points = self.space.exp(centres[:, peaks], means[:, peaks])
        r = self.space.log(centres[:, None], points[:, :, None]) - means[:, None]
        squared = np.einsum("wpkl,lmwk,wpkm->wpk", r, V[:, :, top, rows], r)
        norms = norms[rows, top]
        density = logsumexp(norms[:, None] - 0.5 * squared, axis=-1)
        density[np.isneginf(norms[:, peaks])] = -np.inf  # the mean of a negligible component
        best: Array = points[rows[:, 0], np.argmax(density, axis=1)]
        return best


def _inverses(M: Array) -> tuple[Array, Array]:
    """Return inverses of symmetric matrices (L, L, ...), and the log determinants of these."""
    if len(M) != 2:
        last = np.moveaxis(M, (0, 1), (-2, -1))
        V = np.moveaxis(np.linalg.inv(last), (-2, -1), (0, 1))
        return 0.5 * (V + V.swapaxes(0, 1)), -np.linalg.slogdet(last)[1]
    (a, b), (_, c) = M
    det = a * c - b * b
    return np.stack([np.stack([c, -b]), np.stack([-b, a])]) / det, -np.log(det)
