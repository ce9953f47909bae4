"""What one source may sound like, and what is believed of it: its direction and its cues.

In: a learned head and the statistics of the bins that are a source's. Out: q(x, z, w, s), E-XZ of
VESSL (`earatlas.separation.vessl`, which has the model and its letters).

    s_md | z_m = k, u, w         ~ N(A_k u + b_k + √g_k ∘ B w, ω σ_d² g_kd)

With P_d the precision of the mean ȳ_d of a source's bins and s integrated out, (u, w) is Gaussian
in every chart, with the precision Γ_k⁻¹ ⊕ I + Σ_d p_kd a_kd a_kdᵀ, p = P / (1 + ω σ² g P) and a_kd
the row of (A_k, √g_k ∘ B). The latent part of that sum is B_dᵀ B_d weighted, one product of
matrices for all charts: a sixth of what is read otherwise, and most of the time of a step.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np

from earatlas.errors import InputError
from earatlas.features.layout import CueLayout
from earatlas.features.statistics import CueStatistics
from earatlas.features.tf_bins import wide_layout
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.ppam.model import PPAM
from earatlas.types import Array, Indices, Mask

__all__ = ["Inference", "SourceModel", "SourcePosterior", "expected_log_likelihood"]

LOG_2PI = float(np.log(2 * np.pi))
_PHASE_VARIANCE = 0.5  # of the cosine and the sine of a phase that may be anything
_NEGLIGIBLE = 1e-9  # weight of a chart that adds nothing to a source's cues
_OUT_OF_REACH = 50.0  # nats: a chart so far behind its source's best is not looked at every time


@dataclass(frozen=True)
class Inference:
    """How VESSL is run. The defaults are what won on two and three talkers (docs/figures.md)."""

    offsets: float = 1.0  # ω: own cues of a source, in units of the map's variance
    frame_share: float | None = None  # τ; None: hop / window times two, 1/4 as a rule
    phases: bool = True  # use phase where it was not learned
    bands: int | None = 4  # cells of λ a frame; None: a cell is a frequency (the paper)
    garbage: float = 0.0  # prior share of bins that no source explains; 0: no such class
    noise_frames: float = 5.0  # how many frames the noise of the start is worth
    share_bins: float = 1.0  # how many bins an even share is worth, a cell
    most_steps: int = 20
    # Nats a bin that a step must gain to go on. With 0.002, two and three talkers of ku100 and
    # cipic_021 (10 and 5 mixtures each) take a quarter more steps and come out alike to 0.1 dB.
    tolerance: float = 0.01

    def __post_init__(self) -> None:
        least = min(self.offsets, self.noise_frames, self.share_bins, self.tolerance)
        if least < 0 or not 0 <= self.garbage < 1 or self.most_steps < 1:
            raise InputError(
                "offsets, noise_frames, share_bins and tolerance must be at least 0, garbage below "
                f"1 and most_steps at least 1, got {self}. The defaults are a good start."
            )
        if self.bands is not None and self.bands < 1:
            raise InputError(
                f"bands must be at least 1, or None for the paper's cells, got {self.bands}. "
                "4 is the default."
            )
        if self.frame_share is not None and not 0 < self.frame_share <= 1:
            raise InputError(
                f"frame_share must be above 0 and at most 1, got {self.frame_share}. "
                "None takes it from hop and window."
            )

    @classmethod
    def paper(cls) -> Self:
        """As printed, with the misprints put right (docs/paper.md)."""
        return cls(
            offsets=0.0, frame_share=1.0, phases=False, bands=None, noise_frames=0.0, share_bins=0.0
        )


@dataclass(frozen=True, eq=False)
class SourcePosterior:
    """q(x, z, w, s) of one source: its direction and its cues."""

    posterior: DirectionPosterior
    cues: Array  # (D,) E[s]
    squares: Array  # (D,) E[s²]
    divergence: float  # KL_m, from the prior
    charts: Mask  # (K,) those within reach


@dataclass(frozen=True, eq=False)
class _Charts:
    """Charts of the model, as a source needs them."""

    weights: Array  # (K,)
    A: Array  # (K, D, L)
    b: Array  # (K, D)
    root: Array  # (K, D) √g
    latent: Array  # (D, L_w) B
    pairs: Array  # (D, L_w²) products of two columns of B
    offsets: Array  # (K, D) ω σ² g
    precisions: Array  # (K, L + L_w, L + L_w) of the prior of (u, w)
    volumes: Array  # (K,) log of their determinants

    @classmethod
    def of(cls, model: PPAM, omega: float) -> _Charts:
        """All of a model, with cues of a source's own worth ω."""
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
            pairs=(model.latent[:, :, None] * model.latent[:, None]).reshape(D, L_w * L_w),
            offsets=omega * model.noise * model.spread,
            precisions=precisions,
            volumes=np.linalg.slogdet(precisions)[1],
        )

    def __getitem__(self, k: Mask) -> _Charts:
        """Some of them."""
        some = ("weights", "A", "b", "root", "offsets", "precisions", "volumes")
        return replace(self, **{name: getattr(self, name)[k] for name in some})

    @property
    def maps(self) -> Array:
        """(K, D, L + L_w) from (u, w) to cues."""
        return np.concatenate([self.A, self.root[:, :, None] * self.latent], axis=2)

    def normal_equations(self, p: Array, residual: Array) -> tuple[Array, Array]:
        """Precision (K, L + L_w, L + L_w) and pull (K, L + L_w) of (u, w).

        Cues are off by `residual` (K, D), with weights p (K, D).
        """
        L, L_w, B = self.A.shape[2], self.latent.shape[1], self.latent
        rooted, weighted = p * self.root, p[:, None] * self.A.mT  # (K, D), (K, L, D)
        H = self.precisions.copy()
        H[:, :L, :L] += weighted @ self.A
        across = (weighted * self.root[:, None]) @ B
        H[:, :L, L:] += across
        H[:, L:, :L] += across.mT
        H[:, L:, L:] += ((rooted * self.root) @ self.pairs).reshape(len(p), L_w, L_w)
        pull = (weighted @ residual[:, :, None])[..., 0]
        return H, np.concatenate([pull, (rooted * residual) @ B], axis=1)


@dataclass(frozen=True, eq=False)
class _Found:
    """q(u, w, s | z = k) of one source in each of the charts that were looked at."""

    logs: Array  # (K,) log of α, up to a constant
    place: Array  # (K, L + L_w) means of (u, w)
    V: Array  # (K, L + L_w, L + L_w) their covariances
    keep: Array  # (K, D) how much of the map the source's own cues keep
    charts: _Charts

    @property
    def alpha(self) -> Array:
        """(K,) which chart holds the source."""
        alpha: Array = np.exp(self.logs - self.evidence)
        return alpha

    @cached_property
    def evidence(self) -> float:
        """log Σ_k of what `logs` are the logarithms of."""
        # By hand: scipy's logsumexp took a quarter of a step, most of it before it began.
        top = float(self.logs.max())
        return top + float(np.log(np.exp(self.logs - top).sum()))

    def cues(self, y: Array) -> tuple[Array, Array]:
        """E[s] and E[s²] (D,) of the learned cues, heard as y (D,) in the mean."""
        alpha = self.alpha
        used = alpha > _NEGLIGIBLE * alpha.max()
        charts = self.charts[used]
        a, keep, maps = alpha[used] / alpha[used].sum(), self.keep[used], charts.maps
        mapped = np.einsum("kdl,kl->kd", maps, self.place[used]) + charts.b
        spread = keep**2 * ((maps @ self.V[used]) * maps).sum(axis=2)
        s = keep * mapped + (1 - keep) * y
        return a @ s, a @ (s**2 + spread + charts.offsets * keep)


@dataclass(frozen=True, eq=False)
class SourceModel:
    """What one source may sound like: a PPAM, made ready for cues on a wider layout."""

    model: PPAM
    layout: CueLayout  # of the bins; its cues hold the model's
    learned: Indices  # (D_model,) where the model's cues stand in the layout
    noise: Array  # (D,) v to start with
    charts: _Charts
    how: Inference = field(default_factory=Inference)

    @classmethod
    def of(
        cls, model: PPAM, layout: CueLayout, noise: Array, how: Inference | None = None
    ) -> SourceModel:
        """From a model of cues in `layout`, and the variance (D,) of a bin's cues around them."""
        how = how or Inference()
        if how.frame_share is None:
            how = replace(how, frame_share=min(2 * layout.hop / layout.window, 1.0))
        wide = wide_layout(layout) if how.phases else layout
        learned, kinds = layout.indices_in(wide), layout.cue_kinds
        everywhere = np.empty(wide.n_cues)
        for kind in np.unique(wide.cue_kinds):
            own = kinds == kind
            # A phase that was not learned varies as those that were; without any, 0.3 radians.
            everywhere[wide.cue_kinds == kind] = np.median(noise[own]) if own.any() else 0.1
        everywhere[learned] = noise
        return cls(
            model=model,
            layout=wide,
            learned=learned,
            noise=everywhere,
            charts=_Charts.of(model, how.offsets),
            how=how,
        )

    @property
    def frame_share(self) -> float:
        """τ: the share of a frame that is new, its neighbours overlapping it."""
        assert self.how.frame_share is not None  # `of` has seen to it
        return self.how.frame_share

    def posterior(
        self, statistics: CueStatistics, v: Array, charts: Mask | None = None
    ) -> SourcePosterior:
        """E-XZ: what is believed of a source whose bins have the statistics (D,), noise v (D,)."""
        Q, mean = statistics.counts, statistics.means
        P = self.frame_share * Q / v  # (D,) precision of ȳ = R / Q
        k = np.ones(len(self.model.weights), dtype=bool) if charts is None else charts
        found = self._found(k, P[self.learned], mean[self.learned])
        cues, squares = np.zeros(len(Q)), np.zeros(len(Q))
        cues[self.learned], squares[self.learned] = found.cues(mean[self.learned])
        free = np.ones(len(Q), dtype=bool)
        free[self.learned] = False
        keep = 1 / (1 + _PHASE_VARIANCE * P[free])
        cues[free] = (1 - keep) * mean[free]
        squares[free] = cues[free] ** 2 + _PHASE_VARIANCE * keep
        # log ∫ p(x, z, w, s) p(y | s)^τ, and from it KL = τ E[log p(y | s)] - that.
        scatter = Q * (LOG_2PI + np.log(v)) + statistics.scatter / v
        evidence = (
            found.evidence
            + 0.5 * (np.log(keep) - P[free] * keep * mean[free] ** 2).sum()
            - 0.5 * self.frame_share * scatter.sum()
        )
        likelihood = self.frame_share * expected_log_likelihood(statistics, cues, squares, v)
        reach = np.zeros(len(k), dtype=bool)
        reach[k] = found.logs > found.logs.max() - _OUT_OF_REACH
        return SourcePosterior(self._belief(k, found), cues, squares, likelihood - evidence, reach)

    def _found(self, k: Mask, P: Array, y: Array) -> _Found:
        """Where a source is in each of the charts k, from learned cues ȳ (D_model,) of precision P.

        With s integrated out, ȳ is N(A u + √g B w + b, ω σ² g + 1 / P).
        """
        charts = self.charts if k.all() else self.charts[k]
        keep, residual = 1 / (1 + charts.offsets * P), y - charts.b
        H, h = charts.normal_equations(P * keep, residual)
        V = np.linalg.inv(H)
        V = 0.5 * (V + V.mT)
        place = np.einsum("klm,km->kl", V, h)
        fit = np.einsum("kd,kd->k", P * keep, residual**2) - (h * place).sum(axis=1)
        volume = charts.volumes - np.linalg.slogdet(H)[1]
        logs = np.log(charts.weights) + 0.5 * (volume - fit + np.log(keep).sum(axis=1))
        return _Found(logs, place, V, keep, charts)

    def _belief(self, k: Mask, found: _Found) -> DirectionPosterior:
        """p(x) over all charts; those that were not looked at have no weight."""
        model, L = self.model, self.model.space.dims
        weights, means = np.zeros(len(k)), np.zeros((len(k), L))
        covariances = model.gammas.copy()
        weights[k], means[k], covariances[k] = found.alpha, found.place[:, :L], found.V[:, :L, :L]
        return DirectionPosterior(model.space, model.centres, weights, means, covariances)

    def expected(self, directions: Array) -> tuple[Array, Array]:
        """E[s] and E[s²] (M, D) of sources at known directions (M, C)."""
        means, variances = self.model.expected_cues(directions)
        cues = np.zeros((len(means), self.layout.n_cues))
        squares = np.full_like(cues, _PHASE_VARIANCE)
        cues[:, self.learned] = means
        squares[:, self.learned] = means**2 + variances
        return cues, squares


def expected_log_likelihood(
    statistics: CueStatistics, cues: Array, squares: Array, v: Array
) -> float:
    """Σ over bins and cues of q E[log N(y; s, v)], from their statistics."""
    Q, misses = statistics.counts, statistics.misses(cues, squares)
    return float(-0.5 * (Q * (LOG_2PI + np.log(v)) + misses / v).sum())
