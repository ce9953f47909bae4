"""VESSL: variational EM for sound source separation and localization (paper, section 6).

Input: the observed time-frequency bins of a mixture and a learned head. Output: for every source a
posterior of its direction and its expected cues, and for every bin the probabilities that it
belongs to each source. `VESSL` is the problem, `VESSLState` the variational posterior;
`initialize_at` or `initialize_with` makes the first state, `step` is one EM iteration, `run`
iterates until convergence.

    y_n | bin n is of source m   ~ N(s_md, v_d) for the cues d of the bin
    s_md | z_m = k, u, w         ~ N(A_k u + b_k + √g_k ∘ B w, ω σ_d² g_kd)
    u | z_m = k                  ~ N(0, Γ_k),   w ~ N(0, I)

    q_mn (M, N)   assignment of bin n to source m             λ_mc (M, C)  mixing weights in cell c
    v_d (D,)      noise variance of the cues of a bin         s_md (M, D)  cues of source m
    α_mk (M, K)   probability of chart k for source m         τ            frame_weight

The model extends the paper in three points, besides weak priors of v and λ;
`VESSLSettings.paper()` disables all of them.

- The cues s_md of a source may deviate from the learned map by the residual variance of the map
  (ω = 1; 0 in the paper), so each source adapts to the observed cues.
- Phase differences at frequencies without a learned map (above 2 kHz) are cues with unknown mean,
  s ~ N(0, 1/2). Bins that level and low-frequency phase assign reliably determine it, and it helps
  to assign the others.
- λ belongs to a cell of one frame and one band, not to a frequency: neighbouring bins of a frame
  tend to belong to one talker. With one cell per frequency (the paper), sources are permuted
  between frequencies.

Overlapping frames are dependent: with τ < 1, each counts as that fraction of a frame in the
posterior of a source. The free energy is then F_τ = Σ q (log λ p(y) / q) - Σ_m KL_m / τ. With τ = 1
this is the paper's free energy F_1; for τ < 1, F_τ ≤ F_1. No iteration decreases F_τ.

References
----------
.. [1] A. Deleforge, F. Forbes and R. Horaud, "Acoustic space learning for sound-source separation
   and localization on binaural manifolds", International Journal of Neural Systems 25(1), 2015.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from earatlas.features.statistics import CueStatistics
from earatlas.features.tf_bins import ObservedBins
from earatlas.separation.bin_assignment import (
    CueDensities,
    WeightCells,
    dense_masks,
    responsibilities,
)
from earatlas.separation.source_model import (
    SourceModel,
    SourcePosterior,
    expected_log_likelihood,
)
from earatlas.types import Array, Indices, Mask, Spectra

__all__ = ["VESSL", "VESSLState", "cue_moments"]


@dataclass(frozen=True, eq=False)
class VESSLState:
    """The variational posterior after an iteration."""

    assignments: Array  # (M, N) q; sums to 1 over the sources
    noise: Array  # (D,) v
    mixing_weights: Array  # (M, cells) λ
    sources: tuple[SourcePosterior, ...] = ()
    free_energies: tuple[float, ...] = ()  # one per iteration, nats

    def __repr__(self) -> str:
        last = f"{self.free_energies[-1]:.6g}" if self.free_energies else "none yet"
        return f"VESSLState({len(self.sources)} sources, free energy {last})"

    def reordered(self, order: Indices) -> VESSLState:
        """Return the state with the sources in another order."""
        return replace(
            self,
            assignments=self.assignments[order],
            mixing_weights=self.mixing_weights[order],
            sources=tuple(self.sources[m] for m in order),
        )

    @property
    def directions(self) -> Array:
        """Most probable directions (M, C), in degrees."""
        return np.stack([source.posterior.best for source in self.sources])

    @property
    def free_energy(self) -> float:
        """The last free energy in nats; -inf before the first iteration."""
        return self.free_energies[-1] if self.free_energies else -np.inf


class VESSL:
    """Variational EM for the sources of one recording.

    Parameters
    ----------
    source_model : SourceModel
        Model of a single source, from a learned head.
    bins : ObservedBins
        Observed time-frequency bins of the mixture, N in total.
    prior_statistics : CueStatistics of shape (M, D), optional
        Cue statistics of the sources from other parts of the recording. They count like bins that
        are assigned to the sources.
    directions : array of shape (M, C), optional
        Known directions of the sources in degrees. Only their cues are then estimated.

    References
    ----------
    .. [1] A. Deleforge, F. Forbes and R. Horaud, "Acoustic space learning for sound-source
       separation and localization on binaural manifolds", International Journal of Neural Systems
       25(1), 2015.

    Examples
    --------
    >>> import earatlas as ea
    >>> atlas = ea.example_atlas()
    >>> voices = [ea.synthetic_speech(0.5, seed=m) for m in range(2)]
    >>> head = ea.simulated_head([[-40, 0], [40, 0]])
    >>> mixture = ea.render_scene(head, voices, [[-40, 0], [40, 0]]).mixture
    >>> spectra = ea.stft(mixture.samples, atlas.layout.window, atlas.layout.hop)
    >>> bins = atlas.separator.coherent_bins(spectra, floor_db=-60.0)
    >>> vessl = VESSL(atlas.separator.source_model, bins)
    >>> state = vessl.run(vessl.initialize_at([[-30, 0], [30, 0]]), steps=3)
    >>> len(state.sources), len(state.free_energies)
    (2, 3)
    """

    def __init__(
        self,
        source_model: SourceModel,
        bins: ObservedBins,
        *,
        prior_statistics: CueStatistics | None = None,
        directions: Array | None = None,
    ) -> None:
        self.source_model, self.settings = source_model, source_model.settings
        self.bins, self.prior_statistics, self.directions = bins, prior_statistics, directions
        self.cells = WeightCells(bins.layout.n_frequencies, bins.frames, self.settings.weight_bands)
        self.cell = self.cells.of(bins.f, bins.t)  # (N,)

    # --- initialization ------------------------------------------------------------------------

    def initialize_at(self, directions: Array) -> VESSLState:
        """Return a state with assignments by the expected cues of sources at given directions.

        Parameters
        ----------
        directions : array of shape (M, C)
            Directions of the sources, in degrees.

        Returns
        -------
        VESSLState
            Assignments for uniform mixing weights.
        """
        cues, squares = self.source_model.expected(directions)
        return self._initialize(cues, squares, self.source_model.noise)

    def initialize_from(self, sources: tuple[SourcePosterior, ...], noise: Array) -> VESSLState:
        """Return a state with assignments by known source posteriors.

        Parameters
        ----------
        sources : tuple of SourcePosterior
            Posteriors from another part or scale of the recording.
        noise : array of shape (D,)
            Noise variances v.

        Returns
        -------
        VESSLState
            Assignments for uniform mixing weights.
        """
        return self._initialize(*cue_moments(sources), noise)

    def initialize_with(self, assignments: Array) -> VESSLState:
        """Return a state with given assignments.

        Parameters
        ----------
        assignments : array of shape (M, N)
            Probability that bin n belongs to source m; sums to 1 over the sources.

        Returns
        -------
        VESSLState
            State with the mixing weights of these assignments.
        """
        noise, mixing_weights = self.source_model.noise, self.mixing_weights(assignments)
        return VESSLState(assignments, noise, mixing_weights)

    def _initialize(self, cues: Array, squares: Array, noise: Array) -> VESSLState:
        """Return assignments by cue moments (M, D), with uniform mixing weights."""
        M = len(cues)
        mixing_weights = np.full((M, len(self.cells)), 1 / M)
        q, _ = self._assign(cues, squares, noise, mixing_weights, None)
        return VESSLState(q, noise, mixing_weights)

    # --- iterations ----------------------------------------------------------------------------

    def step(
        self, state: VESSLState, *, blocks: int | None = None, all_charts: bool = False
    ) -> VESSLState:
        """Run one iteration: E-XZ, noise, E-W and λ, in this order.

        The free energy does not decrease, except when the number of blocks grows.

        Parameters
        ----------
        state : VESSLState
            State before the iteration.
        blocks : int, optional
            Progressive masking: each frame is divided into so many blocks of frequencies, and the
            bins of a block are assigned together; λ counts once per block. By default every bin is
            assigned on its own.
        all_charts : bool, default False
            Whether to evaluate every chart instead of the active ones.

        Returns
        -------
        VESSLState
            State after the iteration, with one more free energy.
        """
        bins, model = self.bins, self.source_model
        observed = bins.statistics(state.assignments)
        statistics = observed if self.prior_statistics is None else observed + self.prior_statistics
        every_chart = all_charts or not state.free_energies  # the first iteration does
        # E-XZ: q(s_m, u_m, z_m) ∝ p(s_m, u_m, z_m) exp(τ Σ_n q_mn log p(y_n | s_m))
        sources = self._source_posteriors(statistics, state, every_chart=every_chart)
        cues, squares = cue_moments(sources)  # E[s_m], E[s_m²]
        # M: v_d = (Σ_mn q_mn E[(y_nd - s_md)²] + n_v v_0d) / (Σ_mn q_mn + n_v)
        errors = statistics.expected_squared_errors(cues, squares)
        v = self.noise_variances(errors, statistics.counts)
        # E-W: q_mn ∝ λ_mc exp E[log p(y_n | s_m)]
        q, evidence = self._assign(cues, squares, v, state.mixing_weights, blocks)
        # F_τ = Σ_n log Σ_m λ_mc exp E[log p(y_n | s_m)] - Σ_m KL_m / τ + log p(v, λ)
        free_energy = evidence - sum(s.kl_divergence for s in sources) / model.frame_weight
        free_energy += self.log_prior(v, state.mixing_weights)
        if self.prior_statistics is not None:
            free_energy += expected_log_likelihood(self.prior_statistics, cues, squares, v)
        free_energies = (*state.free_energies, free_energy)
        # M: λ_mc ∝ Σ_(n in cell c) q_mn + n_λ
        counted = q if blocks is None else q * self._blocks(blocks)[1]  # once per block
        return VESSLState(q, v, self.mixing_weights(counted), sources, free_energies)

    def _source_posteriors(
        self, statistics: CueStatistics, state: VESSLState, *, every_chart: bool
    ) -> tuple[SourcePosterior, ...]:
        """E-XZ: return the posterior of each source from statistics (M, D)."""
        model, v, M = self.source_model, state.noise, len(state.assignments)
        if self.directions is not None:
            places = enumerate(self.directions)
            return tuple(model.posterior_at(x, statistics[m], v) for m, x in places)
        charts: list[Mask | None] = [None] * M
        if not every_chart:
            charts = [source.active_charts for source in state.sources]
        return tuple(model.posterior(statistics[m], v, c) for m, c in enumerate(charts))

    def run(self, state: VESSLState, steps: int | None = None) -> VESSLState:
        """Iterate until the free energy converges.

        Parameters
        ----------
        state : VESSLState
            Initial state.
        steps : int, optional
            Largest number of iterations. The default is `VESSLSettings.max_iterations`.

        Returns
        -------
        VESSLState
            Final state. The last iteration evaluates every chart.
        """
        max_steps = self.settings.max_iterations if steps is None else steps
        for done in range(1, max_steps):
            before, state = state.free_energy, self.step(state)
            gain = state.free_energy - before
            if done > 1 and gain < self.settings.tolerance * len(self.bins):
                break
        return self.step(state, all_charts=True)

    def masks(self, state: VESSLState, spectra: Spectra) -> Array:
        """Return the soft masks of all bins, observed or not.

        Parameters
        ----------
        state : VESSLState
            Posterior of the sources.
        spectra : array of shape (2, B, T)
            Spectra of both ears in the frames of the bins.

        Returns
        -------
        array of shape (M, F, T)
            Masks of the bins above 0 Hz, which sum to 1 over the sources.
        """
        if len(state.sources) == 1:
            return np.ones((1, spectra.shape[1] - 1, spectra.shape[2]))
        densities = CueDensities.from_moments(*cue_moments(state.sources), state.noise)
        weights, layout = state.mixing_weights, self.bins.layout
        return dense_masks([densities], np.array([0]), self.cells, weights, spectra, layout)

    # --- E-W and M -----------------------------------------------------------------------------

    def _assign(
        self, cues: Array, squares: Array, v: Array, mixing_weights: Array, blocks: int | None
    ) -> tuple[Array, float]:
        """E-W: return q (M, N) and Σ_n log Σ_m λ p(y_n | m)."""
        logs = CueDensities.from_moments(cues, squares, v).of_bins(self.bins)
        log_weights = np.log(np.maximum(mixing_weights, 1e-300))[:, self.cell]
        if blocks is None:
            q, evidence = responsibilities(logs + log_weights)
            return q, float(evidence.sum())
        # Progressive masking: the bins of a block have one assignment, whose prior probability
        # counts once. It is the geometric mean of λ in the block.
        block, share = self._blocks(blocks)
        logs += log_weights * share
        tied = np.array([np.bincount(block, row) for row in logs], dtype=np.float64)
        q, evidence = responsibilities(tied)
        return q[:, block], float(evidence.sum())

    def _blocks(self, blocks: int) -> tuple[Indices, Array]:
        """Return the block (N,) of each observed bin, and the share (N,) of the bin in it."""
        block = self.bins.t * blocks + self.bins.f * blocks // self.bins.layout.n_frequencies
        sizes = np.bincount(block)
        rank = np.cumsum(sizes > 0) - 1  # blocks without observed bins are left out
        return rank[block], 1.0 / sizes[block]

    def noise_variances(self, errors: Array, counts: Array) -> Array:
        """Return v (D,): the mean squared error of bins, with a prior at the initial variances.

        `errors` (M, D) are sums over the bins of each source, `counts` (M, D) their numbers.
        """
        frames, initial = self.settings.noise_prior_frames, self.source_model.noise
        weight = counts.sum(axis=0) + frames
        total = np.maximum(errors, 0.0).sum(axis=0) + frames * initial
        return np.where(weight > 0, total / np.where(weight > 0, weight, 1.0), initial)

    def mixing_weights(self, q: Array) -> Array:
        """Return λ (M, cells): the mean of the assignments per cell, with a uniform prior."""
        return self.cells.mean(q, self.cell, self.settings.weight_prior_bins)

    def log_prior(self, v: Array, mixing_weights: Array) -> float:
        """Return the log priors of v, and of λ in the cells with observed bins, up to constants."""
        frames, bins = self.settings.noise_prior_frames, self.settings.weight_prior_bins
        log_prior = -0.5 * frames * float((np.log(v) + self.source_model.noise / v).sum())
        if bins:
            observed = np.bincount(self.cell, minlength=len(self.cells)) > 0
            log_prior += bins * float(np.log(mixing_weights[:, observed]).sum())
        return log_prior


def cue_moments(sources: Sequence[SourcePosterior]) -> tuple[Array, Array]:
    """Return E[s] and E[s²] (M, D) of all sources."""
    return np.stack([s.cues for s in sources]), np.stack([s.squares for s in sources])
