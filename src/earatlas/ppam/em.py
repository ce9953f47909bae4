"""EM for PPAM: how the charts are learned.

In: directions x (N, C), cues y (N, D) and how to go about it. Out: `Charts`. Letters as in
`earatlas.ppam.model`.

One iteration is one pass over the data in blocks of n, each with the components that reach it
(`earatlas.ppam.data_blocks`): two matrix products of (n × D) with (D × K'(L+1)), and nothing that
carries N, K and D at once. Because all cues share the regressors
(u, 1), weighted least squares stays the maximizer of (A_k, b_k) whatever S is; the noise and the
latent map are then the factor analysis of what is left.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from earatlas.errors import InputError
from earatlas.geometry.direction_posterior import change_chart
from earatlas.geometry.spaces import Space
from earatlas.ppam.data_blocks import Reach, patches
from earatlas.ppam.parameters import Charts, latent_root
from earatlas.types import Array, Indices

__all__ = ["EM", "Learning", "Moments", "fit", "refit"]


@dataclass(frozen=True, eq=False)
class Block:
    """Some of the data, and the components that have something of it."""

    near: Indices  # (K',) which components
    y: Array  # (n, D) from the mean
    u: Array  # (L, n, K')
    r: Array  # (n, K')
    Fy: Array  # (n, L_w)
    log_likelihood: float


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
class Moments:
    """What an M-step needs of the responsibilities, in the charts that they were computed in."""

    counts: Array  # (K,) sum_n r_nk
    grams: Array  # (K, L+1, L+1) sum_n r_nk (u, 1)(u, 1)^T
    cross: Array  # (K, L+1, D) sum_n r_nk (u, 1) y^T
    projected: Array  # (D, L_w) sum_n y (F y)^T, F as in `latent_root`
    log_likelihood: float


@dataclass(frozen=True, eq=False)
class EM:
    """EM on one data set. Within, cues are counted from their mean, so that sums keep digits."""

    space: Space
    x: Array  # (N, C)
    y: Array  # (N, D)
    how: Learning
    L_w: int
    constrained: bool

    @cached_property
    def offset(self) -> Array:
        """Mean cues (D,)."""
        mean: Array = self.y.mean(axis=0)
        return mean

    @cached_property
    def _patches(self) -> tuple[Indices, Indices]:
        """Rows (N,) of the data patch by patch, and where each patch ends."""
        every = patches(self.space, self.x)
        return np.concatenate(every), np.cumsum([len(rows) for rows in every])

    @cached_property
    def _small(self) -> Array | None:
        """All centred cues (N, D) where the memory setting allows it: saves a pass over them."""
        fits = self.y.nbytes <= 8e6 * self.how.block_megabytes
        return self.y[self._patches[0]] - self.offset if fits else None

    def centred(self, s: slice) -> Array:
        """Cues (n, D) of a block, patch by patch, from their mean."""
        return self.y[self._patches[0][s]] - self.offset if self._small is None else self._small[s]

    @cached_property
    def squares(self) -> Array:
        """sum_n y_nd² (D,) about the mean."""
        total = np.zeros(self.y.shape[1])
        for s in self.slices(1):
            total += (self.centred(s) ** 2).sum(axis=0)
        return total

    @cached_property
    def temperature(self) -> float:
        """By default 25 cues count: so many independent ones a head's 730 residuals have."""
        given = self.how.temperature
        return max(1.0, self.y.shape[1] / 25) if given is None else given

    def slices(self, columns: int) -> Iterator[slice]:
        """Blocks of n for which about `columns` + 2 D numbers a row fit the memory setting."""
        N, D = self.y.shape
        size = max(int(self.how.block_megabytes * 1e6 / 8 / (columns + 2 * D)), 1)
        return (slice(i, min(i + size, N)) for i in range(0, N, size))

    def within_patches(self, columns: int) -> Iterator[tuple[slice, Indices]]:
        """The same, each within a patch, and the rows of the data (n,) that a block has."""
        rows, ends = self._patches
        for block in self.slices(columns):
            cuts = ends[(ends > block.start) & (ends < block.stop)].tolist()
            for start, stop in itertools.pairwise([block.start, *cuts, block.stop]):
                yield slice(start, stop), rows[start:stop]

    def run(self, model: Charts, iterations: int) -> Charts:
        """E and M steps until one gains next to nothing. A fall is never taken for convergence."""
        history, K = list(model.log_likelihoods), 0
        for step in range(iterations + 1):
            moments = self.moments(model)
            gain = moments.log_likelihood - history[-1] if history else np.inf
            same, K = len(model.weights) == K, len(model.weights)
            history.append(moments.log_likelihood)
            # At a fixed point the sum still trembles in its last digits; more than that is a fall.
            rounding = 1e-14 * (self.squares / model.noise).sum()
            converged = same and -rounding <= gain < self.how.tolerance * len(self.x)
            if converged or step == iterations:
                break
            model = self.maximize(model.centres, moments, (model.noise, model.latent))
        return replace(model, log_likelihoods=tuple(history), converged=converged)

    def finished(self, charts: Charts) -> Charts:
        """The charts with cues counted from zero again, and a spread of their own if wished."""
        shifted = replace(charts, b=charts.b + self.offset)
        prior = self.how.spread_prior
        return shifted if prior is None else self.with_spread(shifted, prior)

    def start(self, K: int, rng: np.random.Generator) -> Charts:
        """k-means with charts for differences, on x or on [x; leading coordinates of y]."""
        N, L = len(self.x), self.space.dims
        extra = np.zeros((N, 0))
        if self.how.start == "joint":
            axes, _ = self.principal(np.ones(self.y.shape[1]), min(10, *self.y.shape))
            extra = (self.y - self.offset) @ axes
            middle = self.space.log(self.space.mean(self.x), self.x)
            extra *= np.sqrt((middle**2).sum() / np.maximum((extra**2).sum(), 1e-300))
        chosen = [int(rng.integers(N))]
        nearest = np.full(N, np.inf)
        for _ in range(K - 1):  # k-means++: the next seed is drawn by squared distance
            last = chosen[-1]
            away = (self.space.log(self.x[last], self.x) ** 2).sum(axis=-1)
            nearest = np.minimum(nearest, away + ((extra - extra[last]) ** 2).sum(axis=-1))
            p = nearest / nearest.sum() if nearest.any() else np.full(N, 1 / N)
            chosen.append(int(rng.choice(N, p=p)))
        centres, means = self.x[chosen], extra[chosen]
        labels = np.zeros(N, dtype=np.intp)
        for _ in range(20):
            step, drift, counts = np.zeros((K, L)), np.zeros_like(means), np.full(K, 1e-9)
            for s in self.slices(4 * K * L):
                away = self.space.squared_distances(centres, self.x[s])
                away += (means**2).sum(axis=1) - 2 * extra[s] @ means.T
                labels[s] = own = np.argmin(away, axis=1)
                np.add.at(counts, own, 1.0)
                np.add.at(step, own, self.space.log(centres[own], self.x[s]))
                np.add.at(drift, own, extra[s] - means[own])
            centres = self.space.exp(centres, step / counts[:, None])
            means = means + drift / counts[:, None]
        return self.maximize(centres, self.summed(self.assigned(centres, labels), K), None)

    def assigned(self, centres: Array, labels: Indices) -> Iterator[Block]:
        """As `responsibilities`, for a hard assignment (N,)."""
        for s, rows in self.within_patches(3 * len(centres) * (self.space.dims + 1)):
            near = np.unique(labels[rows])
            u = np.moveaxis(self.space.charts(centres[near], self.x[rows]), -1, 0)
            r = (labels[rows, None] == near).astype(np.float64)
            yield Block(near, self.centred(s), u, r, np.zeros((len(r), 0)), 0.0)

    def responsibilities(self, model: Charts) -> Iterator[Block]:
        """Blocks of the data, with r_nk, F y and the log-likelihood."""
        (K, D, L), beat = model.A.shape, 1 / self.temperature
        maps = np.concatenate([model.A.transpose(2, 0, 1), model.b[None]])  # (L+1, K, D)
        F = latent_root(model.noise, model.latent)
        weighted = maps / model.noise - (maps @ F.T) @ F  # S (A_k, b_k)
        H = beat * np.einsum("lkd,mkd->klm", maps, weighted, optimize=True)
        product = (-2 * beat) * weighted
        forms = H[:, :L, :L] + np.linalg.inv(model.gammas)
        constant = (
            H[:, L, L]
            + np.linalg.slogdet(2 * np.pi * model.gammas)[1]
            - 2 * np.log(model.weights)
            + beat * model.log_determinants
        )
        white = (self.squares / model.noise).sum() / len(self.y)  # mean of yᵀΣ⁻¹y, block by block
        reach = Reach.of(model)
        for s, rows in self.within_patches(3 * K * (L + 1)):
            y, near = self.centred(s), reach.near(self.x[rows])
            u = np.moveaxis(self.space.charts(model.centres[near], self.x[rows]), -1, 0)
            maps = np.concatenate([product[:, near].reshape(-1, D), F]).T
            *YS, Fy = np.split(y @ maps, len(near) * np.arange(1, L + 2), axis=1)
            total = YS[L] + constant[near]
            own, slopes = forms[near], 2 * H[near, :, L]
            for i in range(L):
                partial = YS[i] + slopes[:, i]
                partial += own[:, i, i] * u[i]
                for j in range(i):
                    partial += (2 * own[:, i, j]) * u[j]
                partial *= u[i]
                total += partial
            total *= -0.5
            top = total.max(axis=1, keepdims=True)
            total -= top
            # e^-200 is nothing, but e^-720 is subnormal: the product below then takes ten times.
            np.maximum(total, -200.0, out=total)
            r = np.exp(total, out=total)
            norm = r.sum(axis=1, keepdims=True)
            r /= norm
            left = len(y) * white - (Fy**2).sum()
            gained = float((top + np.log(norm)).sum() - 0.5 * beat * left)
            yield Block(near, y, u, r, Fy, gained)

    def moments(self, model: Charts) -> Moments:
        """The E-step: responsibilities, summed up at once."""
        return self.summed(self.responsibilities(model), len(model.weights))

    def summed(self, blocks: Iterator[Block], K: int) -> Moments:
        """Moments of K components from blocks of the data."""
        (D, L), log_likelihood = (self.y.shape[1], self.space.dims), 0.0
        grams, cross = np.zeros((K, L + 1, L + 1)), np.zeros((K, L + 1, D))
        projected = np.zeros((D, 0))
        for block in blocks:
            r, u, near = block.r, block.u, block.near
            log_likelihood += block.log_likelihood
            rphi = np.hstack([*(r * coordinate for coordinate in u), r, block.Fy])
            product = rphi.T @ block.y
            moments, Fyy = np.split(product, [(L + 1) * len(near)])
            projected = projected + Fyy.T if projected.size else Fyy.T
            own = np.zeros((len(near), L + 1, L + 1))
            for i in range(L + 1):
                weighted = rphi[:, i * len(near) : (i + 1) * len(near)]
                cross[near, i] += moments[i * len(near) : (i + 1) * len(near)]
                own[:, L, i] = weighted.sum(axis=0)
                for j in range(i + 1 if i < L else 0):
                    own[:, i, j] = np.einsum("nk,nk->k", weighted, u[j])
            grams[near] += own
        lower = np.tril_indices(L + 1, -1)
        grams[:, lower[1], lower[0]] = grams[:, lower[0], lower[1]]
        return Moments(grams[:, L, L].copy(), grams, cross, projected, log_likelihood)

    def maximize(
        self, centres: Array, moments: Moments, before: tuple[Array, Array] | None
    ) -> Charts:
        """The M-step. `before` is the noise and latent map to improve on; None learns them anew."""
        given = self.how.least_samples
        least = self.space.dims + 2.0 if given is None else given
        keep = moments.counts >= min(least, moments.counts.max())
        counts, grams, cross = moments.counts[keep], moments.grams[keep], moments.cross[keep]
        N, L = len(self.x), self.space.dims
        shift = grams[:, :L, L] / counts[:, None]
        scatter = grams[:, :L, :L] / counts[:, None, None] - shift[:, :, None] * shift[:, None]
        values, vectors = np.linalg.eigh(0.5 * (scatter + scatter.mT))
        # Points on a line, or one point: no slope can be learned across, so it is zero there.
        flat = values < 1e-9 * np.maximum(values[:, -1:], 1e-300)
        inverse = np.where(flat, 0.0, 1 / np.where(flat, 1.0, values))
        b = cross[:, L] / counts[:, None]
        covariance = cross[:, :L] / counts[:, None, None] - shift[..., None] * b[:, None]
        along = vectors.mT @ covariance  # (K, L, D) in the scatter's own axes
        A = (vectors * inverse[:, None]) @ along
        # Without the floor a component of two equal directions gets a Γ of determinant zero.
        floor = 1e-6 * np.einsum("kll,k->", scatter, counts) / (L * N) + 1e-12
        new_centres = self.space.exp(centres[keep], shift)
        _, jacobian = change_chart(self.space, centres[keep], shift, new_centres)
        gammas = jacobian @ (scatter + floor * np.eye(L)) @ jacobian.mT
        A = np.linalg.solve(jacobian.mT, A).mT  # (K, D, L): A_k J⁻¹
        weights = counts / counts.sum()
        if self.constrained:
            roots = np.linalg.det(gammas) ** (1 / L)
            gammas = gammas * (weights @ roots / roots)[:, None, None]
            weights = np.full(len(counts), 1 / len(counts))
        explained = np.concatenate(
            [b, (along * np.sqrt(inverse)[..., None]).reshape(-1, b.shape[1])]
        )
        explained *= np.sqrt(np.concatenate([counts, np.repeat(counts, L)]))[:, None]
        noise, latent = self.factors(explained, before, moments.projected)
        return Charts(
            self.space, new_centres, weights, gammas, A, b, noise, latent, np.ones_like(b)
        )

    def factors(
        self, explained: Array, before: tuple[Array, Array] | None, projected: Array
    ) -> tuple[Array, Array]:
        """Noise (D,) and latent map (D, L_w): factor analysis of W = (YᵀY - explainedᵀ..) / N."""
        N = len(self.y)
        variance = (self.squares - (explained**2).sum(axis=0)) / N
        # A cue that never varies, or is affine throughout, would have infinite weight.
        floor = 1e-8 * self.squares / N + 1e-12 * self.squares.mean() / N + 1e-300
        variance = np.maximum(variance, floor)
        if self.L_w == 0:
            return variance, np.zeros((len(variance), 0))
        if before is None:
            axes, values = self.principal(np.sqrt(variance), self.L_w, explained)
            # Of white residuals the values are 1; what is more is common to several cues.
            latent = axes * np.sqrt(np.maximum(values - 1, 0.01)) * np.sqrt(variance)[:, None]
            noise = np.maximum(variance - (latent**2).sum(axis=1), 0.05 * variance)
        else:
            noise, latent = before
        for _ in range(8 if before is None else 1):
            inner = np.eye(self.L_w) + latent.T @ (latent / noise[:, None])
            gain: Array = np.linalg.solve(inner, (latent / noise[:, None]).T)  # G⁻¹BᵀΣ⁻¹ (L_w, D)
            if before is None:
                WG = self.residual_product(gain.T, explained)
            else:  # YᵀY Fᵀ came with the E-step, and gainᵀ = Fᵀ times the root of G⁻¹
                total = np.linalg.solve(np.linalg.cholesky(inner).T, projected.T).T
                WG = (total - explained.T @ (explained @ gain.T)) / N
            second = np.linalg.inv(inner) + gain @ WG
            latent = np.linalg.solve(second, WG.T).T
            noise = np.maximum(variance - (latent * WG).sum(axis=1), floor)
        return noise, latent

    def residual_product(self, P: Array, explained: Array | None = None) -> Array:
        """W P for P (D, J), with W (D, D) never formed."""
        total = np.zeros_like(P)
        for s in self.slices(P.shape[1]):
            y = self.centred(s)
            total += y.T @ (y @ P)
        if explained is not None:
            total -= explained.T @ (explained @ P)
        return total / len(self.y)

    def principal(
        self, scale: Array, n: int, explained: Array | None = None
    ) -> tuple[Array, Array]:
        """Leading axes (D, n) and values (n,) of W / scale scaleᵀ, by subspace iteration."""
        D, columns = len(scale), min(n + 10, len(scale))
        axes = np.random.default_rng(0).standard_normal((D, columns))
        values = np.zeros(columns)
        kept: Array = axes
        for _ in range(8):
            axes = np.asarray(np.linalg.qr(axes)[0], dtype=np.float64)
            product = self.residual_product(axes / scale[:, None], explained) / scale[:, None]
            values, turn = np.linalg.eigh(axes.T @ product)
            kept, axes = axes @ turn[:, ::-1], product @ turn[:, ::-1]
        return kept[:, :n], values[::-1][:n]

    def with_spread(self, model: Charts, prior: float) -> Charts:
        """g_kd from a last E-step: a component's own residual variance over the shared one.

        Each is shrunk to 1 as if by `prior` samples. Shrunk to its component's mean ratio instead,
        errors beyond 30 degrees rose from 0.1 to 3.8 % (cipic_003, K=110).
        """
        local = replace(model, b=model.b - self.offset)
        squares = np.zeros_like(model.b)

        def squared() -> Iterator[Block]:
            for block in self.responsibilities(local):
                squares[block.near] += block.r.T @ block.y**2
                yield block

        moments = self.summed(squared(), len(model.weights))
        W = np.concatenate([local.A.transpose(0, 2, 1), local.b[:, None]], axis=1)
        residual = squares + ((moments.grams @ W - 2 * moments.cross) * W).sum(axis=1)
        ratio = np.maximum(residual, 0.0) / (model.noise + (model.latent**2).sum(axis=1))
        return replace(model, spread=(prior + ratio) / (prior + moments.counts[:, None]))


def fit(
    space: Space,
    x: Array,
    y: Array,
    *,
    components: int,
    latent: int | None = None,
    constrained: bool = True,
    learning: Learning | None = None,
    seed: int | np.random.Generator = 0,
) -> Charts:
    """Charts learned from directions (N, C) and cues (N, D): the best of several starts."""
    how = learning or Learning()
    N, L, D = len(x), space.dims, y.shape[1]
    most = max(N // (L + 1), 1)
    if not 1 <= components <= most:
        raise InputError(
            f"components must be between 1 and {most} for {N} directions, got {components}. "
            f"About {max(N // 10, 1)} is good."
        )
    L_w = min(10, D // 20, N // 40) if latent is None else latent
    if not 0 <= L_w < max(D, 1):
        raise InputError(f"latent must be from 0 to D - 1 = {D - 1}, got {L_w}. 10 is usual.")
    em, rng = EM(space, x, y, how, L_w, constrained), np.random.default_rng(seed)
    starts = [em.start(components, rng) for _ in range(max(how.starts, 1))]
    if len(starts) > 1:
        starts = [em.run(charts, how.warm_up) for charts in starts]
    best = max(starts, key=lambda charts: charts.log_likelihoods[-1:])
    return em.finished(em.run(best, how.iterations))


def refit(
    charts: Charts, x: Array, y: Array, *, constrained: bool, learning: Learning | None = None
) -> Charts:
    """The same charts after one E and M step on other pairs, and their spread."""
    how = learning or Learning()
    em = EM(charts.space, x, y, how, charts.latent.shape[1], constrained)
    local = replace(charts, b=charts.b - em.offset, spread=np.ones_like(charts.spread))
    before = (local.noise, local.latent)
    return em.finished(em.maximize(local.centres, em.moments(local), before))
