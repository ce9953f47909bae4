"""VESSL: localize and separate several sources by variational EM (paper, section 6).

In: the heard bins of a mixture and a learned head. Out: for every source a posterior about its
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
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp

from earatlas.features.statistics import CueStatistics
from earatlas.features.tf_bins import HeardBins
from earatlas.separation.source_model import (
    LOG_2PI,
    SourceModel,
    SourcePosterior,
    expected_log_likelihood,
)
from earatlas.types import Array, Indices

__all__ = ["VESSL", "State", "moments", "share_cells"]

_ALL_CHARTS = 1  # first steps that look at every chart


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
        return np.stack([source.posterior.best for source in self.sources])

    @property
    def free_energy(self) -> float:
        """The last one; -inf before any step."""
        return self.free_energies[-1] if self.free_energies else -np.inf


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
        return self._start(len(sources), *moments(sources), noise)

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
        cues, squares = moments(sources)
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
        constant = -0.5 * (LOG_2PI + np.log(v) + squares / v)
        logs = bins.quadratic(np.broadcast_to(-0.5 / v, cues.shape), cues / v, constant)
        if not self.how.garbage:
            return logs
        return np.concatenate([logs, bins.anywhere_log_likelihood()[None]])

    def posterior_masks(self, state: State, bins: HeardBins) -> Array:
        """Soft masks (M, N) of any bins of the same frames, heard or not; they sum to 1."""
        M = len(state.sources)
        logs = self.log_likelihoods(*moments(state.sources), state.noise, bins)[:M]
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


def moments(sources: Sequence[SourcePosterior]) -> tuple[Array, Array]:
    """E[s] and E[s²] (M, D) of all sources."""
    return np.stack([s.cues for s in sources]), np.stack([s.squares for s in sources])


def share_cells(bins: HeardBins, bands: int | None) -> tuple[Indices, int]:
    """The cell (N,) of every bin, and how many there are: frequencies, or bands of frames."""
    F = bins.layout.n_frequencies
    if bands is None:
        return bins.f, F
    return bins.t * bands + bins.f * bands // F, bins.frames * bands
