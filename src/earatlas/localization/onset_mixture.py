"""Mixture of sources over onset bins: mixing weights, one more source, placement, model order.

Inputs: the density g of each onset bin at each cell of a direction grid, relative to diffuse sound
(`earatlas.localization.onset_likelihood`), and a weight of each bin. Output: one path over the
cells for each source. The bins are divided into W windows; a source has a cell per window, so that
a static source has a constant path, and a static scene is the case of one window. Most onset bins
are dominated by one source: with w(n) the window of bin n,

    L(x_1 … x_M) = Σ_n v_n log (Σ_m π_m,w(n) g_n(x_m,w(n)) + π_0,w(n))      Σ_m π_m + π_0 = 1

is maximized one source at a time over the whole grid, so the result does not depend on an
initialization: first one source alone, then one more given the others, then each again given the
others. The mixing weights are those of maximum likelihood, because talkers have unequal numbers of
onsets: with equal weights, two directions of a loud talker explain more than one direction of each.
The number of sources maximizes

    J(x_1 … x_M) = L / Σ_n v_n - cost per source - cost per pair on one cone of confusion

What a room adds to one talker resembles the same talker elsewhere on the cone of confusion: floor
and ceiling reflect from about the same lateral angle, and a blurred direct sound leaves front,
above and behind open. A source on the cone of another must therefore gain much more.

The cues of another head than the learned one also make one talker resemble two directions, but one
of them at some frequencies and the other one at others, at all times, while each of two talkers has
onsets at the same frequencies. A further source m is therefore compared with another explanation,
whole frequency bands b that belong either to it or to another source j:

    Δ_mj = 1 / B Σ_n log (π_m g_n(x_m) + π_j g_n(x_j) + e_n)
         - 1 / B Σ_b log (p_m Π_n∈b (π g_n(x_m) + e_n) + p_j Π_n∈b (π g_n(x_j) + e_n))

with π = π_m + π_j, p = π_m / π and π_j / π, and e_n the likelihood of all other components. This is
the logarithm of a Bayes factor per bin. Where it is negative, bands explain the bins better, and
the difference (the *band excess*) is subtracted from the gain of the source in J.

`SourceMixture` does what does not depend on where the sources are: weights, likelihoods of the
other components, gains, and Δ. Recordings and streams use it: `OnsetMixture` for sources in cells
of a grid (`earatlas.localization.detected_sources`), its subclass
`earatlas.tracking.trajectory_mixture.TrajectoryMixture` for moving ones, and the online tracker for
tracks, with the density of each bin at the direction that the track had at the time of the bin.

    B, C, M, W  onset bins, cells, sources, windows
    g (B, C)    densities           π (M + 1, W)  mixing weights; the last row is diffuse sound
    v (B,)      weights of bins     e (B,)        likelihood of the other components
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, starmap

import numpy as np

from earatlas.geometry.lateral_angle import lateral_angles
from earatlas.localization.onset_likelihood import DirectionLogLikelihood, DirectSoundModel
from earatlas.numerics import weighted_median
from earatlas.types import Array, Indices, Mask, Single

__all__ = [
    "MIXTURE_SETTINGS",
    "MixtureFit",
    "OnsetMixture",
    "OnsetMixtureSettings",
    "SourceMixture",
    "alternation",
    "fit_mixing_weights",
    "source_log_likelihoods",
]


# Evidence: docs/figures/settings/localization.md, "onset_mixture".
@dataclass(frozen=True, slots=True)
class OnsetMixtureSettings:
    """Settings of an onset mixture, for recordings and streams."""

    # Mixing weights
    diffuse_weight: float = 0.1  # initial weight of the diffuse component
    em_iterations: int = 10
    min_weight: float = 0.02  # smallest weight of a component, so that it can grow again
    window_prior_bins: float = 4.0  # weighted bins by which a window is drawn to the mean weights

    # Search
    new_weights: tuple[float, ...] = (0.1, 0.3)  # weights that a further source is searched with
    refinement_rounds: int = 3  # most rounds in which each source is placed again
    min_improvement_nats: float = 1e-3  # nats per bin that a round must gain
    min_separation_degrees: float = 10.0  # closer directions coincide
    coincidence_nats: float = np.inf  # cost of two sources in one direction, nats per window

    # Model order
    min_gain_nats: tuple[float, ...] = (0.075, 0.055, 0.05)  # per bin: 2nd, 3rd, further sources
    same_cone_nats: float = 0.2  # additional gain of each pair on one cone, nats per bin
    cone_degrees: float = 10.0  # difference of lateral angles of two directions on one cone
    may_be_more_ratio: float = 0.6  # part of the required gain from which one more may exist
    band_frequencies: int = 3  # neighbouring frequencies of a band

    def required_gain(self, n_sources: int) -> float:
        """Return the gain of one more source beside `n_sources`, off all cones, nats per bin."""
        return self.min_gain_nats[min(n_sources, len(self.min_gain_nats)) - 1]


MIXTURE_SETTINGS = OnsetMixtureSettings()


def fit_mixing_weights(
    densities: Array,
    weights: Array,
    settings: OnsetMixtureSettings,
    window: Indices | None = None,
    n_windows: int = 1,
) -> Array:
    """Return the mixing weights π (M + 1, W) of sources with densities g (B, M), by EM.

        r_nm = π_m,w(n) g_nm / Σ_k π_k,w(n) g_nk                       E-step; g = 1 if diffuse
        N_mw = Σ_n v_n r_nm over the bins of window w                  M-step
        π_mw ∝ N_mw + (Σ_w N_mw / Σ_n v_n) window_prior_bins           at least `min_weight`

    `weights` v (B,) are those of the bins, and `window` (B,) is the window of each bin. The prior
    has no effect with one window. Without sources, all weight is diffuse.
    """
    B, M = densities.shape
    g = np.concatenate([densities.T, np.ones((1, B))])
    pi = np.full((M + 1, n_windows), (1 - settings.diffuse_weight) / max(M, 1))
    pi[-1] = settings.diffuse_weight if M else 1.0
    v, total = weights, max(float(weights.sum()), 1e-9)
    for _ in range(settings.em_iterations if M else 0):
        at_bins = pi if window is None else pi[:, window]
        scaled = g * (v / (at_bins * g).sum(axis=0))  # r v / π
        if window is None:
            counts = pi * scaled.sum(axis=1, keepdims=True)
        else:
            counts = pi * np.stack([np.bincount(window, row, n_windows) for row in scaled])
        counts += settings.window_prior_bins / total * counts.sum(axis=1, keepdims=True)
        pi = np.maximum(counts / np.maximum(counts.sum(axis=0), 1e-300), settings.min_weight)
        pi /= pi.sum(axis=0)
    return pi


def source_log_likelihoods(
    densities: Single, weights: Array, others: Array, weight: float
) -> Single:
    """Return L (C,) = Σ_n v_n log (π g_n(x) + e_n) of one more source in each cell x.

    `densities` g (B, C), `weights` v (B,), `others` e (B,), `weight` π.
    """
    block_size = 64  # bins per block, so that the logarithms stay in the cache
    v, e = weights.astype(np.float32), others.astype(np.float32)[:, None]
    L = np.zeros(densities.shape[1], dtype=np.float32)
    for first in range(0, len(densities), block_size):
        block = slice(first, first + block_size)
        mixed = densities[block] * np.float32(weight)
        mixed += e[block]
        L += v[block] @ np.log(mixed, out=mixed)
    return L


def alternation(
    densities: Array,
    mixing_weights: Array,
    pair: tuple[int, int],
    frequencies: Indices,
    settings: OnsetMixtureSettings = MIXTURE_SETTINGS,
) -> float:
    """Return Δ_mj of a pair (m, j) of sources, in nats per bin.

    `densities` g (B, M), `mixing_weights` π (M + 1,), `frequencies` (B,): indices of frequencies.
    """
    g, pi, both = densities, mixing_weights, list(pair)
    band = frequencies // settings.band_frequencies
    e = np.delete(g, both, axis=1) @ np.delete(pi[:-1], both) + pi[-1]
    total = pi[both].sum()
    by_bin = np.log(g[:, both] @ pi[both] + e).sum()
    whole = np.stack([np.bincount(band, np.log(total * g[:, k] + e)) for k in both])
    by_band = np.logaddexp(*(whole + np.log(pi[both] / total)[:, None])).sum()
    return float(by_bin - by_band) / max(len(g), 1)


@dataclass(frozen=True, eq=False)
class SourceMixture:
    """M sources and diffuse sound as the components of onset bins, wherever each source is.

    `log_likelihoods` and `band_excess` use the mixing weight of a source averaged over the windows,
    which is exact with one window.
    """

    densities: Array  # (B, M) g of each bin at the direction of each source at its time
    mixing_weights: Array  # (M + 1, W) π; the last row is diffuse sound
    weights: Array  # (B,) v
    window: Indices | None = None  # (B,) of each bin; None: there is one window

    @classmethod
    def fit(cls, densities: Array, weights: Array, settings: OnsetMixtureSettings) -> SourceMixture:
        """Return the mixture of sources with densities (B, M), with weights fitted to all bins."""
        return cls(densities, fit_mixing_weights(densities, weights, settings), weights)

    @cached_property
    def likelihoods(self) -> Array:
        """π_m g_n of each source, and π_0 (M + 1, B)."""
        g = np.concatenate([self.densities.T, np.ones((1, len(self.densities)))])
        return g * self._at_bins(self.mixing_weights)

    def _at_bins(self, pi: Array) -> Array:
        """Return weights (..., W) of windows at their bins, (..., B) or (..., 1)."""
        return pi if self.window is None else pi[..., self.window]

    @cached_property
    def total(self) -> Array:
        """Likelihood (B,) of all components."""
        total: Array = self.likelihoods.sum(axis=0)
        return total

    @property
    def log_likelihood(self) -> float:
        """L in nats."""
        return float(self.weights @ np.log(self.total))

    def weight(self, m: int) -> float:
        """Return π_m of source m, averaged over the windows."""
        return float(self.mixing_weights[m].mean())

    def without(self, m: int) -> Array:
        """Return e (B,), the likelihood of all components but source m."""
        others: Array = np.delete(self.likelihoods, m, axis=0).sum(axis=0)
        return others

    def responsibilities(self, m: int) -> Array:
        """Return the posterior probability (B,) that each bin belongs to source m."""
        responsibilities: Array = self.likelihoods[m] / self.total
        return responsibilities

    def log_likelihoods(self, m: int, densities: Single) -> Single:
        """Return L (C,) of source m at directions where the bins have densities (B, C)."""
        return source_log_likelihoods(densities, self.weights, self.without(m), self.weight(m))

    def direction_log_likelihood(
        self,
        m: int,
        model: DirectSoundModel,
        fine: tuple[Indices, Single],
        coarse: Single,
        snr_db: Array,
    ) -> DirectionLogLikelihood:
        """Return the log-likelihood of the direction of source m, given the other components.

        `fine` are grid points near the source and the densities (B, G) there, `coarse` those in all
        coarse cells. The values are relative to diffuse sound of the same mixing weight, for a
        `ScoreCalibration`. The features are those of `DirectSoundModel.log_likelihood`, for the
        bins of the source.
        """
        v, responsibilities = self.weights, self.responsibilities(m)
        diffuse = float(v @ np.log(self.without(m) + self.weight(m)))
        near, far = (
            self.log_likelihoods(m, g).astype(np.float64) - diffuse for g in (fine[1], coarse)
        )
        features = [
            float(near.max()) / max(float(v @ responsibilities), 1e-9),
            min(weighted_median(snr_db, responsibilities), 60.0),
            np.log2(max(float(responsibilities.sum()), 1.0)),
        ]
        return model.adaptive_log_likelihood(fine[0], near, far, np.array(features))

    def gains(self, m: int) -> Array:
        """Return the gain (B,) of having source m in nats, which sums to a difference of L.

        Without the source, its mixing weight goes to the other components.
        """
        others = np.maximum(1 - self.mixing_weights[m], 1e-3)
        without = self.without(m) / self._at_bins(others)
        gains: Array = self.weights * np.log(self.total / without)
        return gains

    def diluted(self, weight: float) -> Array:
        """Return the likelihood (B,) of all components if one more source has a mixing weight."""
        return (1 - weight) * self.total

    def one_more(self, densities: Single, weight: float) -> Single:
        """Return the gain (C,) of one more source, with a mixing weight, in nats.

        The bins have densities (B, C) at its possible directions.
        """
        diluted = self.diluted(weight)
        L = source_log_likelihoods(densities, self.weights, diluted, weight)
        return L - np.float32(self.log_likelihood)

    def subset(self, rows: Indices, weights: Array) -> SourceMixture:
        """Return the components of some bins, which have weights v (b,)."""
        window = None if self.window is None else self.window[rows]
        return SourceMixture(self.densities[rows], self.mixing_weights, weights, window)

    def relocated(self, m: int, densities: Array | Single) -> SourceMixture:
        """Return the mixture with source m elsewhere, where the bins have densities (B,)."""
        g = self.densities.copy()
        g[:, m] = densities
        return replace(self, densities=g)

    def band_excess(
        self,
        m: int,
        others: Iterable[int],
        frequencies: Indices,
        settings: OnsetMixtureSettings,
    ) -> float:
        """Return by how much bands of source m or j explain the bins better, nats per bin.

        It is the largest -Δ_mj of all j, and 0 if single bins are explained better.
        """
        g, pi = self.densities, self.mixing_weights.mean(axis=1)
        deltas = [alternation(g, pi, (m, j), frequencies, settings) for j in others if j != m]
        return max(-min(deltas, default=0.0), 0.0)


@dataclass(frozen=True, eq=False)
class MixtureFit:
    """Paths of several sources, their mixing weights and their likelihood."""

    cells: Indices  # (M, W)
    mixing_weights: Array  # (M + 1, W); the last row is the diffuse component
    log_likelihood: float  # L, nats

    def __len__(self) -> int:
        return len(self.cells)


class OnsetMixture:
    """The onset bins of a recording, as a mixture of sources on a grid of directions."""

    def __init__(
        self,
        densities: Single,
        weights: Array,
        vectors: Array,
        settings: OnsetMixtureSettings = MIXTURE_SETTINGS,
        window: Indices | None = None,
        n_windows: int = 1,
        frequencies: Indices | None = None,
    ) -> None:
        """Take g (B, C), v (B,), unit vectors (C, 3), and the window (B,) of each bin, ascending.

        `frequencies` (B,) are the indices of the bins' frequencies; without them, Δ is not
        evaluated.
        """
        self.densities, self.vectors, self.settings = densities, vectors, settings
        self._frequencies = frequencies
        self.window, self.n_windows = window, n_windows
        self.weights = weights
        self.total = max(float(self.weights.sum()), 1e-9)
        self._lateral = lateral_angles(vectors)
        ends = [0, len(weights)]
        if window is not None:
            ends = np.searchsorted(window, np.arange(n_windows + 1)).tolist()
        self._rows = list(starmap(slice, pairwise(ends)))  # the bins of each window

    # --- one fit -------------------------------------------------------------------------------

    def fit_weights(self, cells: Indices) -> MixtureFit:
        """Return the fit of sources in cells (M, W)."""
        g = self.densities_along(cells)
        pi = fit_mixing_weights(g, self.weights, self.settings, self.window, self.n_windows)
        return MixtureFit(cells, pi, self._components(g, pi).log_likelihood)

    def components(self, fit: MixtureFit) -> SourceMixture:
        """Return the likelihoods of the components of a fit."""
        return self._components(self.densities_along(fit.cells), fit.mixing_weights)

    def _components(self, g: Array, pi: Array) -> SourceMixture:
        """Return the components of sources with densities g (B, M) and weights (M + 1, W)."""
        return SourceMixture(g, pi, self.weights, self.window)

    def fit_static(self, cells: list[int]) -> MixtureFit:
        """Return the fit of static sources in these cells."""
        paths = np.repeat(np.array(cells, dtype=np.intp)[:, None], self.n_windows, axis=1)
        return self.fit_weights(paths)

    def densities_along(self, cells: Indices) -> Array:
        """Return g (B, M) of the bins along paths (M, W)."""
        if self.window is None:
            g = self.densities[:, cells[:, 0]]
        else:
            g = self.densities[np.arange(len(self.window)), cells[:, self.window]].T
        return g.astype(np.float64)

    def gain(self, fit: MixtureFit, m: int) -> float:
        """Return the gain of having source m, in nats per bin; the others are fitted again."""
        without = self.fit_weights(np.delete(fit.cells, m, axis=0))
        return (fit.log_likelihood - without.log_likelihood) / self.total

    def band_excess(self, fit: MixtureFit, m: int) -> float:
        """Return by how much whole frequency bands explain source m better, in nats per bin."""
        if self._frequencies is None or len(fit) < 2:
            return 0.0
        others = range(len(fit))
        return self.components(fit).band_excess(m, others, self._frequencies, self.settings)

    # --- search --------------------------------------------------------------------------------

    def search(self, count: int) -> list[MixtureFit]:
        """Return the best fits of 1, 2, …, `count` sources, which may be on one cone."""
        fits = [self.add_source(self.fit_static([]), same_cone_nats=0.0)]
        while len(fits) < count:
            fits.append(self.add_source(fits[-1], same_cone_nats=0.0))
        return fits

    def count_sources(self, max_sources: int) -> MixtureFit:
        """Return the fit of as many sources as the bins support, at most `max_sources`."""
        fit = self.add_source(self.fit_static([]))
        while len(fit) < max_sources:
            more = self.add_source(fit)
            gain = self.score(more) - self.score(fit) - self.band_excess(more, len(fit))
            if gain < self.settings.required_gain(len(fit)):
                break
            fit = more
        return fit

    def next_source_ratio(self, fit: MixtureFit) -> float:
        """Return the gain of one more source, as a ratio of the gain that is required."""
        settings = self.settings
        more = self.add_source(fit, settings.may_be_more_ratio * settings.same_cone_nats)
        gain = (more.log_likelihood - fit.log_likelihood) / self.total
        required = settings.required_gain(len(fit)) + settings.same_cone_nats * max(
            self._cone_pairs(more) - self._cone_pairs(fit), 0.0
        )
        return max(gain - self.band_excess(more, len(fit)), 0.0) / required

    def score(self, fit: MixtureFit, same_cone_nats: float | None = None) -> float:
        """Return J in nats per bin, without the cost that depends on the number alone."""
        cost = self.settings.same_cone_nats if same_cone_nats is None else same_cone_nats
        return fit.log_likelihood / self.total - cost * self._cone_pairs(fit)

    def add_source(self, fit: MixtureFit, same_cone_nats: float | None = None) -> MixtureFit:
        """Add one source, and place all sources again given the others.

        Sources have unequal numbers of onsets: several mixing weights of the new source are tried.
        """
        cost = self.settings.same_cone_nats if same_cone_nats is None else same_cone_nats
        candidates: dict[bytes, MixtureFit] = {}  # by their cells, which may be the same
        for start in self._starts(fit):
            components = self.components(start)
            first = (1 - self.settings.diffuse_weight,)
            for weight in self.settings.new_weights if len(fit) else first:
                pi = np.full(self.n_windows, weight)
                path = self._place(components.diluted(weight), pi, start.cells, cost)
                cells = np.concatenate([start.cells, path[None]])
                if cells.tobytes() not in candidates:
                    candidates[cells.tobytes()] = self._refine(self.fit_weights(cells), cost)
        return max(candidates.values(), key=lambda candidate: self.score(candidate, cost))

    def _starts(self, fit: MixtureFit) -> Iterator[MixtureFit]:
        """Yield the fits to which one more source is added."""
        yield fit

    def _refine(self, fit: MixtureFit, same_cone_nats: float) -> MixtureFit:
        """Place each source again given the others, while J increases."""
        for _ in range(self.settings.refinement_rounds if len(fit) > 1 else 0):
            refined = self.fit_weights(self.placed_again(fit, same_cone_nats))
            improvement = self.score(refined, same_cone_nats) - self.score(fit, same_cone_nats)
            if improvement <= self.settings.min_improvement_nats:
                break
            fit = refined
        return fit

    def placed_again(
        self, fit: MixtureFit, same_cone_nats: float, fixed: int | None = None
    ) -> Indices:
        """Return paths (M, W), each placed again given the others; source `fixed` is kept."""
        cells = fit.cells.copy()
        for m in set(range(len(cells))) - {fixed}:
            e = self.components(replace(fit, cells=cells)).without(m)
            occupied = np.delete(cells, m, axis=0)
            cells[m] = self._place(e, fit.mixing_weights[m], occupied, same_cone_nats)
        return cells

    def _place(self, e: Array, pi: Array, occupied: Indices, same_cone_nats: float) -> Indices:
        """Return the best path (W,) of a source, given the likelihoods and paths of the others."""
        settings = self.settings
        L = self.log_likelihoods(e, pi)
        min_cosine = np.cos(np.radians(settings.min_separation_degrees))
        for cells in occupied:
            L[self.vectors[cells] @ self.vectors.T > min_cosine] -= settings.coincidence_nats
            L[self._on_cone(cells)] -= same_cone_nats * self.total / self.n_windows
        return self.best_path(L)

    def log_likelihoods(self, e: Array, pi: Array) -> Single:
        """Return L (W, C) of a source with mixing weights (W,), given e (B,) of the others."""
        g, v = self.densities, self.weights
        return np.stack(
            [
                source_log_likelihoods(g[rows], v[rows], e[rows], float(weight))
                for rows, weight in zip(self._rows, pi, strict=True)
            ]
        )

    def best_path(self, L: Single) -> Indices:
        """Return the best path (W,) for L (W, C): one cell for all windows."""
        return np.full(self.n_windows, L.sum(axis=0).argmax())

    def _on_cone(self, cells: Indices) -> Mask:
        """Return which (W, C) cells are on the cone of confusion of a path (W,)."""
        gaps = np.abs(self._lateral[cells][:, None] - self._lateral)
        on_cone: Mask = gaps < self.settings.cone_degrees
        return on_cone

    def _cone_pairs(self, fit: MixtureFit) -> float:
        """Return the number of pairs of sources on one cone, averaged over the windows."""
        lateral = self._lateral[fit.cells]
        same = np.abs(lateral[:, None] - lateral) < self.settings.cone_degrees
        return float(np.triu(same.mean(axis=2), 1).sum())
