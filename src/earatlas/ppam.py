"""Probabilistic piecewise affine mapping (PPAM): an atlas of affine charts from directions to cues.

In: training pairs of directions x and cue vectors y. Out: a `PPAM`, which maps directions to cues
(forward) and cues, complete or not, to beliefs about the direction (inverse).

    x_n (N, C)  directions           u_nk (N, K, L)  chart coordinates of x_n around centre c_k
    y_n (N, D)  cue vectors          r_nk (N, K)     responsibilities p(z_n = k | x_n, y_n)
    A_k (K, D, L), b_k (K, D)        affine maps     Γ_k (K, L, L)  where a chart is used
    σ_d² (D,)   noise                B (D, L_w)      latent coordinates' map, w ~ N(0, I)
    g_kd (K, D) spread: how many times the noise component k has in channel d (1 in the paper)

The model: u_k(x) | k ~ N(0, Γ_k) and y | x, k = A_k u_k(x) + b_k + √g_k ∘ (B w + e), e ~ N(0, Σ).
One EM iteration is one pass over the data in blocks of n: two matrix products of (N × D) with
(D × K(L+1)), and nothing that carries N, K and D at once. Since the latent part is the same for
all k, w leaves only S = (Σ + B Bᵀ)⁻¹ in place of Σ⁻¹ (Woodbury), and because all channels share
the regressors (u, 1), weighted least squares stays the maximizer of (A_k, b_k) whatever S is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from earatlas.directions import Space
from earatlas.errors import InputError
from earatlas.posterior import Calibration, ChartMixture, change_chart

__all__ = ["PPAM", "Learning", "Moments"]

Array = NDArray[np.float64]
_Block = tuple[Array, Array, Array, Array, float]


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
    projected: Array  # (D, L_w) sum_n y (F y)^T, F as in `_latent_root`
    log_likelihood: float


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
        points, cues = space.check(x, "x"), np.asarray(y, dtype=np.float64)
        N, L = len(points), space.dims
        if cues.ndim != 2 or len(cues) != N or not np.isfinite(cues).all():
            raise InputError(
                f"y must be finite numbers of shape (N, D) with N = {N}, one row a direction, "
                f"got shape {cues.shape}. Leave out the rows with missing cues."
            )
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
        em = _EM(space, points, cues, how, least, L_w, constrained)
        models = [em.start(components, rng) for _ in range(max(how.starts, 1))]
        if len(models) > 1:
            models = [em.run(model, how.warm_up) for model in models]
        best = max(models, key=lambda model: model.log_likelihoods[-1:])
        best = em.run(best, how.iterations)
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

    def forward_log_density(self, x: ArrayLike, y: ArrayLike) -> Array:
        """log p(y | x) (N,) of cues (N, D) at directions (N, C)."""
        logs, u = self.gates(x)
        quadratic, slopes, forms = self._residual_forms(np.asarray(y, dtype=np.float64))
        quadratic = quadratic - 2 * (slopes * u).sum(axis=-1)
        quadratic = quadratic + _forms(forms, np.moveaxis(u, -1, 0))
        terms = logs - 0.5 * (quadratic + self._log_determinants)
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
        logs = np.log(self.weights) + 0.5 * (volume - fit - self._log_determinants)
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
        q, r, e = (np.asarray(s, dtype=np.float64) for s in (Q, R, E))
        q, r, e = calibration.statistics(q, r, e, self.noise)
        belief = self.posterior(q, r, e)
        excess = self.misfit(q, r, belief.best) / calibration.misfit
        if excess > 1:
            belief = self.posterior(q / excess, r / excess, e / excess)
            calibration = calibration.relaxed(excess)
        return calibration.blur(belief)

    def misfit(self, Q: Array, R: Array, direction: Array) -> float:
        """Mean squared residual of observed cues at a direction, in units of the model's noise."""
        mean = R / np.where(Q > 0, Q, 1.0)
        residual = mean - self.forward_map(direction[None])[0]
        variance = self.noise + (self.latent**2).sum(axis=1)
        return float(Q @ (residual**2 / variance) / max(float(Q.sum()), 1e-300))

    def calibrated(
        self, x: ArrayLike, statistics: tuple[Array, Array, Array], calibration: Calibration
    ) -> Calibration:
        """Temperature and blur that make held-out truths (N, C) most probable, and their misfit.

        `statistics` are Q, R, E (N, D) of sounds from those directions, which the model must not
        have been learned from; `calibration` gives the frame constants.
        """
        truths = self.space.check(x, "x")
        best, best_score = calibration, -np.inf
        for temperature in 2.0 ** np.arange(0, 8.5, 1.0):
            trial = replace(calibration, temperature=float(temperature))
            Q, R, E = trial.statistics(*statistics, self.noise)
            beliefs = [self.posterior(*row) for row in zip(Q, R, E, strict=True)]
            widths, shares, score = Calibration.kernel(beliefs, truths)
            if score > best_score:
                best_score = score
                best = replace(
                    trial, widths=tuple(map(float, widths)), shares=tuple(map(float, shares))
                )
                misfits = [
                    self.misfit(q, r, belief.best)
                    for q, r, belief in zip(Q, R, beliefs, strict=True)
                ]
        return replace(best, misfit=2 * float(np.median(misfits)))

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
    def _log_determinants(self) -> Array:
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
        whiten = _latent_root(self.noise, self.latent)  # (L_w, D): Σ⁻¹BG^{-1/2}, transposed
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


def _latent_root(noise: Array, latent: Array) -> Array:
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


@dataclass(frozen=True, eq=False)
class _EM:
    """EM on one data set. Within, cues are counted from their mean, so that sums keep digits."""

    space: Space
    x: Array  # (N, C)
    y: Array  # (N, D)
    how: Learning
    least: float
    L_w: int
    constrained: bool

    @cached_property
    def offset(self) -> Array:
        """Mean cues (D,)."""
        mean: Array = self.y.mean(axis=0)
        return mean

    @cached_property
    def _small(self) -> Array | None:
        """All centred cues (N, D) where the memory setting allows it: saves a pass over them."""
        fits = self.y.nbytes <= 8e6 * self.how.block_megabytes
        return self.y - self.offset if fits else None

    def centred(self, s: slice) -> Array:
        """Cues (n, D) of a block, from their mean."""
        return self.y[s] - self.offset if self._small is None else self._small[s]

    @cached_property
    def squares(self) -> Array:
        """sum_n y_nd² (D,) about the mean."""
        total = np.zeros(self.y.shape[1])
        for s in self.slices(1):
            total += (self.centred(s) ** 2).sum(axis=0)
        return total

    @cached_property
    def temperature(self) -> float:
        """By default 25 channels count: so many independent ones a head's 730 residuals have."""
        given = self.how.temperature
        return max(1.0, self.y.shape[1] / 25) if given is None else given

    def slices(self, columns: int) -> Iterator[slice]:
        """Blocks of n for which about `columns` + 2 D numbers a row fit the memory setting."""
        N, D = self.y.shape
        size = max(int(self.how.block_megabytes * 1e6 / 8 / (columns + 2 * D)), 1)
        return (slice(i, i + size) for i in range(0, N, size))

    def run(self, model: PPAM, iterations: int) -> PPAM:
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

    def start(self, K: int, rng: np.random.Generator) -> PPAM:
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
                u = self.space.charts(centres, self.x[s])
                away = (u**2).sum(axis=-1) - 2 * extra[s] @ means.T + (means**2).sum(axis=1)
                labels[s] = own = np.argmin(away, axis=1)
                np.add.at(counts, own, 1.0)
                np.add.at(step, own, u[np.arange(len(u)), own])
                np.add.at(drift, own, extra[s] - means[own])
            centres = self.space.exp(centres, step / counts[:, None])
            means = means + drift / counts[:, None]
        return self.maximize(centres, self.summed(self.assigned(centres, labels), K), None)

    def assigned(self, centres: Array, labels: NDArray[np.intp]) -> Iterator[_Block]:
        """As `responsibilities`, for a hard assignment (N,)."""
        K = len(centres)
        for s in self.slices(3 * K * (self.space.dims + 1)):
            u = np.moveaxis(self.space.charts(centres, self.x[s]), -1, 0)
            r = (labels[s, None] == np.arange(K)).astype(np.float64)
            yield self.centred(s), u, r, np.zeros((len(r), 0)), 0.0

    def responsibilities(self, model: PPAM) -> Iterator[_Block]:
        """Blocks of: y (n, D), u (L, n, K), r (n, K), F y (n, L_w) and the log-likelihood."""
        (K, D, L), beat = model.A.shape, 1 / self.temperature
        maps = np.concatenate([model.A.transpose(2, 0, 1), model.b[None]])  # (L+1, K, D)
        F = _latent_root(model.noise, model.latent)
        weighted = maps / model.noise - (maps @ F.T) @ F  # S (A_k, b_k)
        H = beat * np.einsum("lkd,mkd->klm", maps, weighted, optimize=True)
        product = np.hstack([(-2 * beat) * weighted.reshape(-1, D).T, F.T])
        forms = H[:, :L, :L] + np.linalg.inv(model.gammas)
        constant = (
            H[:, L, L]
            + np.linalg.slogdet(2 * np.pi * model.gammas)[1]
            - 2 * np.log(model.weights)
            + beat * model._log_determinants
        )
        white = (self.squares / model.noise).sum() / len(self.y)  # mean of yᵀΣ⁻¹y, block by block
        for s in self.slices(3 * K * (L + 1)):
            y = self.centred(s)
            u = np.moveaxis(self.space.charts(model.centres, self.x[s]), -1, 0)
            *YS, Fy = np.split(y @ product, K * np.arange(1, L + 2), axis=1)
            total = YS[L] + constant
            for i in range(L):
                partial = YS[i] + 2 * H[:, i, L]
                partial += forms[:, i, i] * u[i]
                for j in range(i):
                    partial += (2 * forms[:, i, j]) * u[j]
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
            own = len(y) * white - (Fy**2).sum()
            yield y, u, r, Fy, float((top + np.log(norm)).sum() - 0.5 * beat * own)

    def moments(self, model: PPAM) -> Moments:
        """The E-step: responsibilities, summed up at once."""
        return self.summed(self.responsibilities(model), len(model.weights))

    def summed(self, blocks: Iterator[_Block], K: int) -> Moments:
        """Moments of K components from blocks of y, u, r and log-likelihood."""
        D, L = self.y.shape[1], self.space.dims
        grams, cross, log_likelihood = np.zeros((K, L + 1, L + 1)), np.zeros((D, 0)), 0.0
        for y, u, r, Fy, gained in blocks:
            log_likelihood += gained
            rphi = np.hstack([*(r * coordinate for coordinate in u), r, Fy])
            product = y.T @ rphi
            cross = cross + product if cross.size else product
            for i in range(L + 1):
                weighted = rphi[:, i * K : (i + 1) * K]
                grams[:, L, i] += weighted.sum(axis=0)
                for j in range(i + 1 if i < L else 0):
                    grams[:, i, j] += np.einsum("nk,nk->k", weighted, u[j])
        lower = np.tril_indices(L + 1, -1)
        grams[:, lower[1], lower[0]] = grams[:, lower[0], lower[1]]
        cross, projected = np.split(cross, [(L + 1) * K], axis=1)
        cross = np.ascontiguousarray(cross.reshape(D, L + 1, K).transpose(2, 1, 0))
        return Moments(grams[:, L, L].copy(), grams, cross, projected, log_likelihood)

    def maximize(
        self, centres: Array, moments: Moments, before: tuple[Array, Array] | None
    ) -> PPAM:
        """The M-step. `before` is the noise and latent map to improve on; None learns them anew."""
        keep = moments.counts >= min(self.least, moments.counts.max())
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
        return PPAM(self.space, new_centres, weights, gammas, A, b, noise, latent, np.ones_like(b))

    def factors(
        self, explained: Array, before: tuple[Array, Array] | None, projected: Array
    ) -> tuple[Array, Array]:
        """Noise (D,) and latent map (D, L_w): factor analysis of W = (YᵀY - explainedᵀ..) / N."""
        N = len(self.y)
        variance = (self.squares - (explained**2).sum(axis=0)) / N
        # A channel that never varies, or is affine throughout, would have infinite weight.
        floor = 1e-8 * self.squares / N + 1e-12 * self.squares.mean() / N + 1e-300
        variance = np.maximum(variance, floor)
        if self.L_w == 0:
            return variance, np.zeros((len(variance), 0))
        if before is None:
            axes, values = self.principal(np.sqrt(variance), self.L_w, explained)
            # Of white residuals the values are 1; what is more is common to several channels.
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

    def with_spread(self, model: PPAM, prior: float) -> PPAM:
        """g_kd from a last E-step: a component's own residual variance over the shared one.

        Each is shrunk to 1 as if by `prior` samples. Shrunk to its component's mean ratio instead,
        errors beyond 30 degrees rose from 0.1 to 3.8 % (cipic_003, K=110).
        """
        local = replace(model, b=model.b - self.offset)
        squares, moments = np.zeros_like(model.b), self.moments(local)
        for y, _, r, _, _ in self.responsibilities(local):
            squares += r.T @ y**2
        W = np.concatenate([local.A.transpose(0, 2, 1), local.b[:, None]], axis=1)
        residual = squares + ((moments.grams @ W - 2 * moments.cross) * W).sum(axis=1)
        ratio = np.maximum(residual, 0.0) / (model.noise + (model.latent**2).sum(axis=1))
        return replace(model, spread=(prior + ratio) / (prior + moments.counts[:, None]))
