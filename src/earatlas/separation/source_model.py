"""The model of one source in VESSL, and its variational posterior over direction and cues.

Input: a learned head (PPAM) and the statistics of the bins that are assigned to a source. Output:
q(x, z, w, s), the E-XZ step of VESSL. `earatlas.separation.vessl` describes the complete model and
its symbols.

    s_md | z_m = k, u, w         ~ N(A_k u + b_k + √g_k ∘ B w, ω σ_d² g_kd)

P_d is the precision of the mean ȳ_d of a source's bins. With s integrated out, (u, w) is Gaussian
in every chart, with precision Γ_k⁻¹ ⊕ I + Σ_d p_kd a_kd a_kdᵀ and p = P / (1 + ω σ² g P); a_kd is
the row of (A_k, √g_k ∘ B). The latent block of that sum is a weighted sum of B_dᵀ B_d, which is one
matrix product for all charts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np

from earatlas.errors import InputError
from earatlas.features.layout import CueLayout
from earatlas.features.statistics import CueStatistics
from earatlas.features.tf_bins import full_band_layout
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.ppam.model import PPAM
from earatlas.types import Array, Indices, Mask

__all__ = ["SourceModel", "SourcePosterior", "VESSLSettings", "expected_log_likelihood"]

LOG_2PI = float(np.log(2 * np.pi))  # log 2π of Gaussian log densities, nats
_PHASE_VARIANCE = 0.5  # prior variance of the cosine and sine of an unknown phase
_NEGLIGIBLE_WEIGHT = 1e-9  # relative weight of a chart that is left out of a source's cues
_ACTIVE_CHART_NATS = 50.0  # a chart this far below the best one is skipped in most iterations


# Evidence: docs/figures/settings/separation.md, "source_model".
@dataclass(frozen=True)
class VESSLSettings:
    """Settings of VESSL, the variational EM for localization and separation of several sources.

    Parameters
    ----------
    offset_variance : float, default 1.0
        ω, variance of a source's cues around the learned map, in units of the map's own residual
        variance. 0 fixes the cues to the map, as in the paper.
    frame_weight : float or None, default None
        τ, effective weight of a frame, which accounts for the overlap of neighbouring frames. None
        selects twice the hop divided by the window (1/4 for the default layout).
    unlearned_phases : bool, default True
        Whether to use phase differences at frequencies at which no map was learned.
    weight_bands : int or None, default 4
        Number of frequency bands per frame that share mixing weights λ. None selects one λ per
        frequency, as in the paper.
    noise_prior_frames : float, default 5.0
        Weight of the initial noise variances, in frames.
    weight_prior_bins : float, default 1.0
        Weight of uniform mixing weights, in bins per cell.
    max_iterations : int, default 20
        Largest number of iterations.
    tolerance : float, default 0.01
        Smallest increase of the free energy per iteration, in nats per bin.

    Raises
    ------
    InputError
        If a value is out of range.

    Examples
    --------
    >>> VESSLSettings(max_iterations=5).weight_bands
    4
    >>> VESSLSettings.paper().offset_variance
    0.0
    """

    offset_variance: float = 1.0  # ω, in units of the map's residual variance
    frame_weight: float | None = None  # τ; None: twice the hop divided by the window
    unlearned_phases: bool = True  # use phase where no map was learned
    weight_bands: int | None = 4  # cells of λ per frame; None: one cell per frequency (the paper)
    noise_prior_frames: float = 5.0  # weight of the initial noise, in frames
    weight_prior_bins: float = 1.0  # weight of uniform mixing weights, in bins per cell
    max_iterations: int = 20
    tolerance: float = 0.01  # nats per bin

    def __post_init__(self) -> None:
        smallest = min(
            self.offset_variance, self.noise_prior_frames, self.weight_prior_bins, self.tolerance
        )
        if smallest < 0 or self.max_iterations < 1:
            raise InputError(
                "offset_variance, noise_prior_frames, weight_prior_bins and tolerance must be at "
                f"least 0, and max_iterations at least 1, got {self}. Start from the defaults."
            )
        if self.weight_bands is not None and self.weight_bands < 1:
            raise InputError(
                "weight_bands must be at least 1, or None for one cell per frequency as in the "
                f"paper, got {self.weight_bands}. The default is 4."
            )
        if self.frame_weight is not None and not 0 < self.frame_weight <= 1:
            raise InputError(
                f"frame_weight must be above 0 and at most 1, got {self.frame_weight}. "
                "Use None to derive it from hop and window."
            )

    @classmethod
    def paper(cls) -> Self:
        """Return the settings of the paper, with its misprints corrected (docs/paper.md)."""
        return cls(
            offset_variance=0.0,
            frame_weight=1.0,
            unlearned_phases=False,
            weight_bands=None,
            noise_prior_frames=0.0,
            weight_prior_bins=0.0,
        )


@dataclass(frozen=True, eq=False)
class SourcePosterior:
    """q(x, z, w, s) of one source: its direction and its cues."""

    posterior: DirectionPosterior
    cues: Array  # (D,) E[s]
    squares: Array  # (D,) E[s²]
    kl_divergence: float  # KL_m from the prior, nats
    active_charts: Mask  # (K,) charts with non-negligible weight


@dataclass(frozen=True, eq=False)
class _ChartParameters:
    """Parameters of the PPAM charts in the form that the E-XZ step needs."""

    weights: Array  # (K,)
    A: Array  # (K, D, L)
    b: Array  # (K, D)
    root: Array  # (K, D) √g
    latent: Array  # (D, L_w) B
    latent_products: Array  # (D, L_w²) products of two columns of B
    offset_variances: Array  # (K, D) ω σ² g
    precisions: Array  # (K, L + L_w, L + L_w) prior precision of (u, w)
    log_determinants: Array  # (K,) of the prior precisions

    @classmethod
    def from_ppam(cls, model: PPAM, omega: float) -> _ChartParameters:
        """Return the charts of a model with offset variance ω."""
        K, D, L = model.A.shape
        L_w = model.latent.shape[1]
        precisions = np.zeros((K, L + L_w, L + L_w))
        precisions[:, :L, :L] = np.linalg.inv(model.gammas)
        precisions[:, range(L, L + L_w), range(L, L + L_w)] = 1.0
        return cls(
            weights=model.weights,
            A=model.A,
            b=model.b,
            root=np.sqrt(model.spread),
            latent=model.latent,
            latent_products=(model.latent[:, :, None] * model.latent[:, None]).reshape(
                D, L_w * L_w
            ),
            offset_variances=omega * model.noise * model.spread,
            precisions=precisions,
            log_determinants=np.linalg.slogdet(precisions)[1],
        )

    def __getitem__(self, k: Mask) -> _ChartParameters:
        """Return a subset of the charts."""
        per_chart = (
            "weights", "A", "b", "root", "offset_variances", "precisions", "log_determinants",
        )  # fmt: skip
        return replace(self, **{name: getattr(self, name)[k] for name in per_chart})

    @property
    def maps(self) -> Array:
        """Affine maps (K, D, L + L_w) from (u, w) to cues."""
        return np.concatenate([self.A, self.root[:, :, None] * self.latent], axis=2)

    def normal_equations(self, p: Array, residual: Array) -> tuple[Array, Array]:
        """Return precision (K, L + L_w, L + L_w) and linear term (K, L + L_w) of (u, w).

        `residual` (K, D) is ȳ - b, with weights p (K, D).
        """
        L, L_w, B = self.A.shape[2], self.latent.shape[1], self.latent
        rooted, weighted = p * self.root, p[:, None] * self.A.mT  # (K, D), (K, L, D)
        H = self.precisions.copy()
        H[:, :L, :L] += weighted @ self.A
        cross = (weighted * self.root[:, None]) @ B
        H[:, :L, L:] += cross
        H[:, L:, :L] += cross.mT
        H[:, L:, L:] += ((rooted * self.root) @ self.latent_products).reshape(len(p), L_w, L_w)
        linear = (weighted @ residual[:, :, None])[..., 0]
        return H, np.concatenate([linear, (rooted * residual) @ B], axis=1)


@dataclass(frozen=True, eq=False)
class _ChartPosteriors:
    """q(u, w, s | z = k) of one source in each evaluated chart."""

    logs: Array  # (K,) log α up to a constant
    means: Array  # (K, L + L_w) of (u, w)
    V: Array  # (K, L + L_w, L + L_w) covariances of (u, w)
    map_weight: Array  # (K, D) weight of the learned map against the source's own mean cues
    charts: _ChartParameters

    @property
    def alpha(self) -> Array:
        """Chart probabilities α (K,)."""
        alpha: Array = np.exp(self.logs - self.log_evidence)
        return alpha

    @cached_property
    def log_evidence(self) -> float:
        """log Σ_k exp(logs)."""
        # Written out: the overhead of scipy's logsumexp took a quarter of an iteration.
        top = float(self.logs.max())
        return top + float(np.log(np.exp(self.logs - top).sum()))

    def cues(self, y: Array) -> tuple[Array, Array]:
        """Return E[s] and E[s²] (D,) of the learned cues, given their observed means y (D,)."""
        alpha = self.alpha
        used = alpha > _NEGLIGIBLE_WEIGHT * alpha.max()
        charts = self.charts[used]
        a, keep, maps = alpha[used] / alpha[used].sum(), self.map_weight[used], charts.maps
        mapped = np.einsum("kdl,kl->kd", maps, self.means[used]) + charts.b
        variance = keep**2 * ((maps @ self.V[used]) * maps).sum(axis=2)
        s = keep * mapped + (1 - keep) * y
        return a @ s, a @ (s**2 + variance + charts.offset_variances * keep)


@dataclass(frozen=True, eq=False)
class SourceModel:
    """The generative model of one source: a PPAM, extended to the cues of a wider layout."""

    model: PPAM
    layout: CueLayout  # layout of the bins; its cues include the model's
    learned: Indices  # (D_model,) indices of the model's cues in the layout
    noise: Array  # (D,) initial v
    charts: _ChartParameters
    settings: VESSLSettings = field(default_factory=VESSLSettings)

    @classmethod
    def from_ppam(
        cls, model: PPAM, layout: CueLayout, noise: Array, settings: VESSLSettings | None = None
    ) -> SourceModel:
        """Return the model of a source from a PPAM of cues in `layout`.

        `noise` (D,) is the variance of the cues of a single bin around their mean.
        """
        settings = settings or VESSLSettings()
        if settings.frame_weight is None:
            settings = replace(settings, frame_weight=min(2 * layout.hop / layout.window, 1.0))
        wide = full_band_layout(layout) if settings.unlearned_phases else layout
        learned, kinds = layout.indices_in(wide), layout.cue_kinds
        wide_noise = np.empty(wide.n_cues)
        for kind in np.unique(wide.cue_kinds):
            own = kinds == kind
            # An unlearned phase has the typical variance of learned ones; 0.1 if there are none.
            wide_noise[wide.cue_kinds == kind] = np.median(noise[own]) if own.any() else 0.1
        wide_noise[learned] = noise
        return cls(
            model=model,
            layout=wide,
            learned=learned,
            noise=wide_noise,
            charts=_ChartParameters.from_ppam(model, settings.offset_variance),
            settings=settings,
        )

    @property
    def frame_weight(self) -> float:
        """τ, the effective weight of a frame."""
        assert self.settings.frame_weight is not None  # set by `from_ppam`
        return self.settings.frame_weight

    def posterior(
        self, statistics: CueStatistics, v: Array, charts: Mask | None = None
    ) -> SourcePosterior:
        """E-XZ: return the posterior of a source from bin statistics (D,) and noise v (D,).

        `charts` (K,) restricts the evaluation to some charts; all others get no weight.
        """
        Q, mean = statistics.counts, statistics.means
        P = self.frame_weight * Q / v  # (D,) precision of ȳ = R / Q
        k = np.ones(len(self.model.weights), dtype=bool) if charts is None else charts
        fit = self._chart_posteriors(k, P[self.learned], mean[self.learned])
        cues, squares = np.zeros(len(Q)), np.zeros(len(Q))
        cues[self.learned], squares[self.learned] = fit.cues(mean[self.learned])
        free = np.ones(len(Q), dtype=bool)
        free[self.learned] = False
        keep = 1 / (1 + _PHASE_VARIANCE * P[free])
        cues[free] = (1 - keep) * mean[free]
        squares[free] = cues[free] ** 2 + _PHASE_VARIANCE * keep
        # log ∫ p(x, z, w, s) p(y | s)^τ; the KL divergence is τ E[log p(y | s)] minus this.
        scatter = Q * (LOG_2PI + np.log(v)) + statistics.scatter / v
        log_evidence = (
            fit.log_evidence
            + 0.5 * (np.log(keep) - P[free] * keep * mean[free] ** 2).sum()
            - 0.5 * self.frame_weight * scatter.sum()
        )
        likelihood = self.frame_weight * expected_log_likelihood(statistics, cues, squares, v)
        active = np.zeros(len(k), dtype=bool)
        active[k] = fit.logs > fit.logs.max() - _ACTIVE_CHART_NATS
        direction = self._direction_posterior(k, fit)
        return SourcePosterior(direction, cues, squares, likelihood - log_evidence, active)

    def _chart_posteriors(self, k: Mask, P: Array, y: Array) -> _ChartPosteriors:
        """Return the posterior in each chart k from learned mean cues ȳ (D_model,) of precision P.

        With s integrated out, ȳ is N(A u + √g B w + b, ω σ² g + 1 / P).
        """
        charts = self.charts if k.all() else self.charts[k]
        keep, residual = 1 / (1 + charts.offset_variances * P), y - charts.b
        H, h = charts.normal_equations(P * keep, residual)
        V = np.linalg.inv(H)
        V = 0.5 * (V + V.mT)
        means = np.einsum("klm,km->kl", V, h)
        distance = np.einsum("kd,kd->k", P * keep, residual**2) - (h * means).sum(axis=1)
        log_volume = charts.log_determinants - np.linalg.slogdet(H)[1]
        logs = np.log(charts.weights) + 0.5 * (log_volume - distance + np.log(keep).sum(axis=1))
        return _ChartPosteriors(logs, means, V, keep, charts)

    def _direction_posterior(self, k: Mask, fit: _ChartPosteriors) -> DirectionPosterior:
        """Return p(x) over all charts; charts that were not evaluated have weight 0."""
        model, L = self.model, self.model.space.dims
        weights, means = np.zeros(len(k)), np.zeros((len(k), L))
        covariances = model.gammas.copy()
        weights[k], means[k], covariances[k] = fit.alpha, fit.means[:, :L], fit.V[:, :L, :L]
        return DirectionPosterior(model.space, model.centres, weights, means, covariances)

    def expected(self, directions: Array) -> tuple[Array, Array]:
        """Return E[s] and E[s²] (M, D) of sources at known directions (M, C)."""
        means, variances = self.model.expected_cues(directions)
        cues = np.zeros((len(means), self.layout.n_cues))
        squares = np.full_like(cues, _PHASE_VARIANCE)
        cues[:, self.learned] = means
        squares[:, self.learned] = means**2 + variances
        return cues, squares


def expected_log_likelihood(
    statistics: CueStatistics, cues: Array, squares: Array, v: Array
) -> float:
    """Return Σ q E[log N(y; s, v)] over all bins and cues, from their statistics."""
    Q, errors = statistics.counts, statistics.expected_squared_errors(cues, squares)
    return float(-0.5 * (Q * (LOG_2PI + np.log(v)) + errors / v).sum())
