"""The model of one source in VESSL, and its variational posterior over direction and cues.

Input: a learned head (PPAM) and the statistics of the bins that are assigned to a source. Output:
q(x, z, w, s), the E-XZ step of VESSL. `earatlas.separation.vessl` describes the complete model and
its symbols.

    s_md | z_m = k, u, w         ~ N(A_k u + b_k + √g_k ∘ B w, ω σ_d² g_kd)

P_d is the precision of the mean ȳ_d of a source's bins. With s integrated out, ȳ_d has the
precision P / (1 + ω σ² g P) in chart k, and (u, w) is Gaussian (`earatlas.ppam.posterior`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from earatlas.errors import InputError
from earatlas.features.layout import CueLayout
from earatlas.features.statistics import CueStatistics
from earatlas.features.tf_bins import full_band_layout
from earatlas.geometry.chart_gaussians import gaussian_radius_90
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.ppam.model import PPAM
from earatlas.ppam.posterior import ChartPosteriors
from earatlas.types import Array, Indices, Mask

__all__ = ["SourceModel", "SourcePosterior", "VESSLSettings", "expected_log_likelihood"]

_PHASE_VARIANCE = 0.5  # prior variance of the cosine and sine of an unknown phase


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
    active_chart_nats : float, default 50.0
        Charts this far below the best one are skipped in most iterations, in nats.
    negligible_weight : float, default 1e-9
        Charts with a smaller weight, relative to the best one, are left out of a source's cues.
    given_radius : float, default 1.0
        90 % radius that is stated for a direction that was given and not estimated, in degrees.

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
    active_chart_nats: float = 50.0  # charts this far below the best one are skipped
    negligible_weight: float = 1e-9  # charts below are left out of a source's cues
    given_radius: float = 1.0  # degrees, stated for given directions

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
class SourceModel:
    """The generative model of one source: a PPAM, extended to the cues of a wider layout."""

    model: PPAM
    layout: CueLayout  # layout of the bins; its cues include the model's
    learned: Indices  # (D_model,) indices of the model's cues in the layout
    noise: Array  # (D,) initial v
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

        `charts` (K,) restricts the evaluation, and the posterior, to some charts.
        """
        Q, mean = statistics.counts, statistics.means
        P = self.frame_weight * Q / v  # (D,) precision of ȳ = R / Q
        k = np.ones(len(self.model.weights), dtype=bool) if charts is None else charts
        cues, squares = np.zeros(len(Q)), np.zeros(len(Q))
        fit, cues[self.learned], squares[self.learned] = self._learned_cues(
            k, P[self.learned], mean[self.learned]
        )
        free = np.ones(len(Q), dtype=bool)
        free[self.learned] = False
        keep = 1 / (1 + _PHASE_VARIANCE * P[free])
        cues[free] = (1 - keep) * mean[free]
        squares[free] = cues[free] ** 2 + _PHASE_VARIANCE * keep
        # log ∫ p(x, z, w, s) p(y | s)^τ; the KL divergence is τ E[log p(y | s)] minus this.
        scatter = Q * np.log(2 * np.pi * v) + statistics.scatter / v
        log_evidence = (
            float(fit.log_evidence[0])
            + 0.5 * (np.log(keep) - P[free] * keep * mean[free] ** 2).sum()
            - 0.5 * self.frame_weight * scatter.sum()
        )
        likelihood = self.frame_weight * expected_log_likelihood(statistics, cues, squares, v)
        active = np.zeros(len(k), dtype=bool)
        active[k] = fit.logs[:, 0] > fit.logs.max() - self.settings.active_chart_nats
        return SourcePosterior(fit[0], cues, squares, likelihood - log_evidence, active)

    def _learned_cues(self, k: Mask, P: Array, y: Array) -> tuple[ChartPosteriors, Array, Array]:
        """Return the posterior in the charts k, and E[s] and E[s²] (D_model,) of the learned cues.

        y are the mean cues ȳ, of precision P. With s integrated out, ȳ is distributed as
        N(A u + √g B w + b, ω σ² g + 1 / P), and s is between ȳ and the learned map.
        """
        charts = self.model.charts if k.all() else self.model.charts[k]
        offsets = self.settings.offset_variance * self.model.noise * self.model.spread[k]  # ω σ² g
        keep = 1 / (1 + offsets * P)  # (K, D) weight of the learned map against ȳ
        precisions = P * keep / charts.scales**2  # of cues that are divided by √g
        fit = charts.posterior_of_charts(precisions, y, 0.5 * np.log(keep).sum(axis=1))
        alpha = fit.weights[:, 0]
        used = alpha > self.settings.negligible_weight * alpha.max()
        a, own, keep = alpha[used] / alpha[used].sum(), charts[used], keep[used]
        means, V = own.joint_moments(precisions[used], y)
        maps = own.joint_maps
        mapped = ((maps @ means[..., None])[..., 0] + own.offsets) / own.scales + own.origin
        variance = (keep / own.scales) ** 2 * ((maps @ V) * maps).sum(axis=2)
        s = keep * mapped + (1 - keep) * y
        return fit, a @ s, a @ (s**2 + variance + offsets[used] * keep)

    def posterior_at(
        self, direction: Array, statistics: CueStatistics, v: Array
    ) -> SourcePosterior:
        """E-XZ of a source at a known direction (C,): only its cues are estimated.

        Its cues are N(μ, o) by the learned map, with ȳ of precision P observed:

            E[s] = κ μ + (1 - κ) ȳ      Var[s] = κ o      κ = 1 / (1 + o P)
        """
        cues, squares = (values[0] for values in self.expected(direction[None]))
        o = squares - cues**2
        keep = 1 / (1 + o * self.frame_weight * statistics.counts / v)
        s = keep * cues + (1 - keep) * statistics.means
        divergence = 0.5 * (keep - 1 - np.log(keep) + (s - cues) ** 2 / o).sum()
        space = self.model.space
        width = self.settings.given_radius / gaussian_radius_90(space.dims)
        posterior = DirectionPosterior(
            space, direction[None], np.ones(1), np.zeros((1, space.dims)),
            width**2 * np.eye(space.dims)[None],
        )  # fmt: skip
        charts = np.ones(len(self.model.weights), dtype=bool)
        return SourcePosterior(posterior, s, s**2 + keep * o, float(divergence), charts)

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
    return float(-0.5 * (Q * (np.log(2 * np.pi * v)) + errors / v).sum())
