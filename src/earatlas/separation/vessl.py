"""VESSL: localize and separate several sources by variational EM (paper, section 6).

In: the heard bins of a mixture and a learned head. Out: for every source a belief about its
direction and the cues it is expected to have, and for every bin the probabilities that it belongs
to each source. `VESSL` is the problem, `State` the variational posterior; `start_at` or
`start_with` make a first one, `step` improves it, `run` steps until nothing is gained.

    y_n | bin n is of source m   ~ N(s_md, v_d) for the cues d of the bin
    s_md | z_m = k, u, w         ~ N(A_k u + b_k + √g_k ∘ B w, ω σ_d² g_kd)
    u | z_m = k                  ~ N(0, Γ_k),   w ~ N(0, I)

    q_mn (M, N)   assignments: bin n belongs to source m      λ_mc (M, C)  their prior in a cell c
    v_d (D,)      variance of a bin's cues                    s_md (M, D)  cues of source m
    α_mk (M, K)   which chart holds source m                  τ            frame_share

Three things go beyond the paper, besides weak priors of v and λ and a garbage class that is off;
`Inference.paper()` is without them.

- Cues of a source are its own: s_md may leave the learned map by as much as the map erred on what
  it was learned from (ω = 1; 0 in the paper). So each source adapts to what is heard.
- Phases that no direction predicts (above 2 kHz) are cues whose s_md is unknown at first,
  s ~ N(0, 1/2); the bins that level and low phase are sure of tell it, and it helps with the rest.
- λ belongs to a cell of a frame and a band, not to a frequency: a voice that is heard in a frame is
  expected in the neighbouring bins of that frame. With a cell a frequency (the paper), sources get
  exchanged between frequencies; on three talkers that costs 0.9 dB of SDR.

Overlapping frames repeat each other: with τ < 1 each counts as that share of a frame for what is
believed of a source. The free energy is then Σ q (log λ p(y) / q) - Σ_m KL_m / τ; with τ = 1 it is
the paper's, and it is never above it. No step lowers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from scipy.special import logsumexp

from earatlas.errors import InputError
from earatlas.hearing.heard_bins import HeardBins, wide_layout
from earatlas.hearing.layout import CueLayout
from earatlas.hearing.statistics import CueStatistics
from earatlas.learning.ppam import PPAM
from earatlas.space.belief import ChartMixture
from earatlas.types import Array, Indices, Mask

__all__ = [
    "VESSL",
    "Inference",
    "SourceModel",
    "SourcePosterior",
    "State",
    "multiscale",
    "share_cells",
]

_LOG_2PI = float(np.log(2 * np.pi))
_PHASE_VARIANCE = 0.5  # of the cosine and the sine of a phase that may be anything
_NEGLIGIBLE = 1e-9  # weight of a chart that adds nothing to a source's cues
_OUT_OF_REACH = 50.0  # nats: a chart so far behind its source's best is not looked at every time
_ALL_CHARTS = 1  # first steps that look at every chart


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
    tolerance: float = 2e-3  # nats a bin that a step must gain to go on

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

    belief: ChartMixture
    cues: Array  # (D,) E[s]
    squares: Array  # (D,) E[s²]
    divergence: float  # KL_m, from the prior
    charts: Mask  # (K,) those within reach


@dataclass(frozen=True, eq=False)
class State:
    """The variational posterior after a step; masks are `assignments` spread over the bins."""

    assignments: Array  # (M, N), or (M + 1, N) with a garbage class: sums to 1 over the first axis
    noise: Array  # (D,) v
    shares: Array  # (M or M + 1, cells) λ
    sources: tuple[SourcePosterior, ...] = ()
    free_energies: tuple[float, ...] = ()  # one a step

    def __repr__(self) -> str:
        last = f"{self.free_energies[-1]:.6g}" if self.free_energies else "none yet"
        return f"State({len(self.sources)} sources, free energy {last})"

    def reordered(self, order: Indices) -> State:
        """The same with the sources in another order; a garbage class stays last."""
        rows = np.concatenate([order, np.arange(len(order), len(self.assignments))])
        return replace(
            self,
            assignments=self.assignments[rows],
            shares=self.shares[rows],
            sources=tuple(self.sources[m] for m in order),
        )

    @property
    def directions(self) -> Array:
        """(M, C) the most probable one of each source."""
        return np.stack([source.belief.best for source in self.sources])

    @property
    def free_energy(self) -> float:
        """The last one; -inf before any step."""
        return self.free_energies[-1] if self.free_energies else -np.inf


@dataclass(frozen=True, eq=False)
class _Found:
    """q(u, w, s | z = k) of one source in each of the charts that were looked at."""

    logs: Array  # (K,) log of α, up to a constant
    place: Array  # (K, L + L_w) means of (u, w)
    V: Array  # (K, L + L_w, L + L_w) their covariances
    keep: Array  # (K, D) how much of the map the source's own cues keep
    maps: Array  # (K, D, L + L_w)
    b: Array  # (K, D)
    offsets: Array  # (K, D)

    @property
    def alpha(self) -> Array:
        """(K,) which chart holds the source."""
        alpha: Array = np.exp(self.logs - logsumexp(self.logs))
        return alpha

    def cues(self, y: Array) -> tuple[Array, Array]:
        """E[s] and E[s²] (D,) of the learned cues, heard as y (D,) in the mean."""
        alpha = self.alpha
        used = alpha > _NEGLIGIBLE * alpha.max()
        a, keep, maps = alpha[used] / alpha[used].sum(), self.keep[used], self.maps[used]
        mapped = np.einsum("kdl,kl->kd", maps, self.place[used]) + self.b[used]
        spread = keep**2 * ((maps @ self.V[used]) * maps).sum(axis=2)
        s = keep * mapped + (1 - keep) * y
        return a @ s, a @ (s**2 + spread + self.offsets[used] * keep)


@dataclass(frozen=True, eq=False)
class SourceModel:
    """What one source may sound like: a PPAM, made ready for cues on a wider layout."""

    model: PPAM
    layout: CueLayout  # of the bins; its cues hold the model's
    learned: Indices  # (D_model,) where the model's cues stand in the layout
    noise: Array  # (D,) v to start with
    offsets: Array  # (K, D_model) ω σ² g
    maps: Array  # (K, D_model, L + L_w) [A, √g B]
    precisions: Array  # (K, L + L_w, L + L_w) of the prior of (u, w)
    how: Inference = field(default_factory=Inference)

    @classmethod
    def of(
        cls, model: PPAM, layout: CueLayout, noise: Array, how: Inference | None = None
    ) -> SourceModel:
        """From a model of cues in `layout`, and the variance (D,) of a bin's cues around them."""
        how = how or Inference()
        if how.frame_share is None:
            how = replace(how, frame_share=min(2 * layout.hop / layout.window, 1.0))
        K, _, L = model.A.shape
        L_w = model.latent.shape[1]
        latent = np.sqrt(model.spread)[:, :, None] * model.latent
        precisions = np.zeros((K, L + L_w, L + L_w))
        precisions[:, :L, :L] = np.linalg.inv(model.gammas)
        precisions[:, range(L, L + L_w), range(L, L + L_w)] = 1.0
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
            offsets=how.offsets * model.noise * model.spread,
            maps=np.concatenate([model.A, latent], axis=2),
            precisions=precisions,
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
        scatter = Q * (_LOG_2PI + np.log(v)) + statistics.scatter / v
        evidence = (
            logsumexp(found.logs)
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
        keep = 1 / (1 + self.offsets[k] * P)
        maps, residual = self.maps[k], y - self.model.b[k]
        weighted = maps * (P * keep)[:, :, None]
        H = self.precisions[k] + weighted.mT @ maps
        h = np.einsum("kdl,kd->kl", weighted, residual)
        V = np.linalg.inv(H)
        V = 0.5 * (V + V.mT)
        place = np.einsum("klm,km->kl", V, h)
        fit = np.einsum("kd,kd->k", P * keep, residual**2) - (h * place).sum(axis=1)
        volume = np.linalg.slogdet(self.precisions[k])[1] - np.linalg.slogdet(H)[1]
        logs = np.log(self.model.weights[k]) + 0.5 * (volume - fit + np.log(keep).sum(axis=1))
        return _Found(logs, place, V, keep, maps, self.model.b[k], self.offsets[k])

    def _belief(self, k: Mask, found: _Found) -> ChartMixture:
        """p(x) over all charts; those that were not looked at have no weight."""
        model, L = self.model, self.model.space.dims
        weights, means = np.zeros(len(k)), np.zeros((len(k), L))
        covariances = model.gammas.copy()
        weights[k], means[k], covariances[k] = found.alpha, found.place[:, :L], found.V[:, :L, :L]
        return ChartMixture(model.space, model.centres, weights, means, covariances)

    def expected(self, directions: Array) -> tuple[Array, Array]:
        """E[s] and E[s²] (M, D) of sources at known directions (M, C)."""
        means, variances = self.model.expected_cues(directions)
        cues = np.zeros((len(means), self.layout.n_cues))
        squares = np.full_like(cues, _PHASE_VARIANCE)
        cues[:, self.learned] = means
        squares[:, self.learned] = means**2 + variances
        return cues, squares


class VESSL:
    """The heard bins of a recording and what its sources may sound like."""

    def __init__(
        self, source_model: SourceModel, bins: HeardBins, *, anchor: CueStatistics | None = None
    ) -> None:
        self.source_model, self.how = source_model, source_model.how
        self.bins, self.anchor = bins, anchor
        self.cells, self.n_cells = share_cells(bins, self.how.bands)

    # --- starts --------------------------------------------------------------------------------

    def start_at(self, directions: Array) -> State:
        """Assignments by the cues that are expected of sources at directions (M, C)."""
        cues, squares = self.source_model.expected(directions)
        return self._start(len(directions), cues, squares, self.source_model.noise)

    def start_from(self, sources: tuple[SourcePosterior, ...], noise: Array) -> State:
        """Assignments by what is known of the sources from another stretch or another scale."""
        return self._start(len(sources), *_moments(sources), noise)

    def start_with(self, assignments: Array) -> State:
        """The state that `step` improves from given assignments (M, N)."""
        M = len(assignments)
        q = assignments
        if self.how.garbage:
            q = np.concatenate(
                [q * (1 - self.how.garbage), np.full((1, q.shape[1]), self.how.garbage)]
            )
        return State(q, self.source_model.noise, self.shares(q, M))

    def _start(self, M: int, cues: Array, squares: Array, noise: Array) -> State:
        rows = M + (self.how.garbage > 0)
        shares = np.full((rows, self.n_cells), (1 - self.how.garbage) / M)
        if self.how.garbage:
            shares[-1] = self.how.garbage
        q, _ = self._assign(cues, squares, noise, shares, None)
        return State(q, noise, shares)

    # --- steps ---------------------------------------------------------------------------------

    def step(self, state: State, *, blocks: int | None = None, all_charts: bool = False) -> State:
        """E-XZ, noise, E-W and λ, in this order: the free energy does not fall.

        With `blocks`, the bins of each of so many blocks of a frame are assigned together
        (progressive masking); the free energy may fall when their number grows.
        """
        how, bins, model = self.how, self.bins, self.source_model
        garbage = how.garbage > 0
        M = len(state.assignments) - garbage
        heard = bins.statistics(state.assignments[:M])
        known = heard if self.anchor is None else heard + self.anchor
        everything = all_charts or len(state.free_energies) < _ALL_CHARTS
        charts = [None if everything or not state.sources else s.charts for s in state.sources]
        charts = charts or [None] * M
        sources = tuple(model.posterior(known[m], state.noise, charts[m]) for m in range(M))
        cues, squares = _moments(sources)
        v = self._noise(known, cues, squares)
        q, evidence = self._assign(cues, squares, v, state.shares, blocks)
        free = evidence - sum(s.divergence for s in sources) / model.frame_share
        free -= 0.5 * how.noise_frames * float((np.log(v) + model.noise / v).sum())
        free += self.share_prior(state.shares, M)
        if self.anchor is not None:
            free += expected_log_likelihood(self.anchor, cues, squares, v)
        return State(q, v, self.shares(q, M), sources, (*state.free_energies, free))

    def run(self, state: State, steps: int | None = None) -> State:
        """Step until a step gains too little or `steps` are done; the last one sees all charts."""
        most = self.how.most_steps if steps is None else steps
        for done in range(1, most):
            before, state = state.free_energy, self.step(state)
            gain = state.free_energy - before
            if done > _ALL_CHARTS and gain < self.how.tolerance * len(self.bins):
                break
        return self.step(state, all_charts=True)

    # --- kernels -------------------------------------------------------------------------------

    def log_likelihoods(self, cues: Array, squares: Array, v: Array, bins: HeardBins) -> Array:
        """E[log p(y_n | s_m)] (M, N), with a last row for the garbage class if there is one."""
        constant = -0.5 * (_LOG_2PI + np.log(v) + squares / v)
        logs = bins.quadratic(np.broadcast_to(-0.5 / v, cues.shape), cues / v, constant)
        if not self.how.garbage:
            return logs
        return np.concatenate([logs, bins.anywhere_log_likelihood()[None]])

    def posterior_masks(self, state: State, bins: HeardBins) -> Array:
        """Soft masks (M, N) of any bins of the same frames, heard or not; they sum to 1."""
        M = len(state.sources)
        logs = self.log_likelihoods(*_moments(state.sources), state.noise, bins)[:M]
        cells, _ = share_cells(bins, self.how.bands)
        logs += np.log(np.maximum(state.shares[:M], 1e-300))[:, cells]
        logs -= logs.max(axis=0)
        q: Array = np.exp(logs, out=logs)
        q /= q.sum(axis=0)
        return q

    def _assign(
        self, cues: Array, squares: Array, v: Array, shares: Array, blocks: int | None
    ) -> tuple[Array, float]:
        """E-W: q (M, N), and Σ_n log Σ_m λ p(y_n | m)."""
        logs = self.log_likelihoods(cues, squares, v, self.bins)
        logs += np.log(np.maximum(shares, 1e-300))[:, self.cells]
        if blocks is not None:
            F = self.bins.layout.n_frequencies
            block = self.bins.t * blocks + self.bins.f * blocks // F
            tied = np.stack([np.bincount(block, row) for row in logs])
            top = logsumexp(tied, axis=0)
            heard = np.bincount(block) > 0
            return np.exp(tied - top)[:, block], float(top[heard].sum())
        top = logs.max(axis=0)
        logs -= top
        q: Array = np.exp(logs, out=logs)
        total = q.sum(axis=0)
        q /= total
        return q, float((top + np.log(total)).sum())

    def _noise(self, known: CueStatistics, cues: Array, squares: Array) -> Array:
        """v (D,): the mean squared distance of bins from their sources, drawn towards the start."""
        how, start = self.how, self.source_model.noise
        misses = np.maximum(known.misses(cues, squares), 0.0).sum(axis=0)
        weight = known.counts.sum(axis=0) + how.noise_frames
        mean = (misses + how.noise_frames * start) / np.where(weight > 0, weight, 1.0)
        return np.where(weight > 0, mean, start)

    def shares(self, q: Array, M: int) -> Array:
        """λ: the mean of the assignments in a cell, drawn towards even shares by a few bins."""
        counts = [np.bincount(self.cells, row, self.n_cells) for row in q[:M]]
        total = np.array(counts, dtype=np.float64) + self.how.share_bins
        sums = total.sum(axis=0)
        shares = np.where(sums > 0, total / np.where(sums > 0, sums, 1.0), 1.0 / M)
        if not self.how.garbage:
            return shares
        fixed = np.full((1, self.n_cells), self.how.garbage)
        return np.concatenate([shares * (1 - self.how.garbage), fixed])

    def share_prior(self, shares: Array, M: int) -> float:
        """What the prior of λ says of the cells in which anything was heard."""
        if not self.how.share_bins:
            return 0.0
        heard = np.bincount(self.cells, minlength=self.n_cells) > 0
        return self.how.share_bins * float(np.log(shares[:M, heard]).sum())


def multiscale(
    source_models: Sequence[SourceModel],
    bins: HeardBins,
    n_sources: int,
    *,
    seed: int | np.random.Generator = 0,
) -> State:
    """The paper's start: from random masks at the coarsest scale to the finest, handing masks on.

    At every scale masking is progressive: a frame is first one block, then 2, 4, … F blocks whose
    bins are assigned together. λ stays even as long: whoever has more of the whole frames would
    have more of every frequency, so more of the next frames, and soon all of them. The free
    energies are those of the last scale, from the release on.
    """
    rng = np.random.default_rng(seed)
    frames = rng.dirichlet(np.ones(n_sources), size=bins.frames).T
    assignments = frames[:, bins.t]
    for model in source_models:
        vessl = VESSL(model, bins)
        even = vessl.start_with(np.full_like(assignments, 1 / n_sources)).shares
        state = replace(vessl.start_with(assignments), shares=even)
        blocks = 1
        while blocks < bins.layout.n_frequencies:
            state = vessl.step(state, blocks=blocks, all_charts=True)
            state = replace(state, shares=even)
            blocks *= 2
        state = vessl.run(replace(state, free_energies=()))
        assignments = state.assignments[:n_sources]
    return state


def _moments(sources: Sequence[SourcePosterior]) -> tuple[Array, Array]:
    """E[s] and E[s²] (M, D) of all sources."""
    return np.stack([s.cues for s in sources]), np.stack([s.squares for s in sources])


def share_cells(bins: HeardBins, bands: int | None) -> tuple[Indices, int]:
    """The cell (N,) of every bin, and how many there are: frequencies, or bands of frames."""
    F = bins.layout.n_frequencies
    if bands is None:
        return bins.f, F
    return bins.t * bands + bins.f * bands // F, bins.frames * bands


def expected_log_likelihood(
    statistics: CueStatistics, cues: Array, squares: Array, v: Array
) -> float:
    """Σ over bins and cues of q E[log N(y; s, v)], from their statistics."""
    Q, misses = statistics.counts, statistics.misses(cues, squares)
    return float(-0.5 * (Q * (_LOG_2PI + np.log(v)) + misses / v).sum())
