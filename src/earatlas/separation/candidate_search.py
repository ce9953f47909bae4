"""Candidate search: directions of possible sources, which initialize VESSL.

Input: coherent bins of a mixture and the cues that a learned head expects on a grid of directions.
Output: sets of M directions, the most likely first.

    maximize  Σ_n log (Σ_g w_g p(y_n | x_g) + w_0 p_0(y_n))   over the weights w

is a convex problem, so EM converges to the global maximum from any initialization. A single bin
fits many directions (a cone of confusion), so the weights are not concentrated on the sources, but
their peaks are candidates. Of these, the M directions that jointly explain the bins best are
selected: Σ_n log (Σ_m p(y_n | x_m) (1 - w_0) / M + w_0 p_0(y_n)).

    p (G, N)   likelihood of bin n under direction g       w (G,)    weights of the directions
    p_0 (N,)   likelihood of a diffuse bin                 w_0       weight of the diffuse component
    x (G, C)   the grid of directions

The variance of single bins around the expected cues is small in anechoic and large in reverberant
recordings. Two values are tried, and the one with the higher likelihood is kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from earatlas.errors import InputError
from earatlas.features.layout import CueLayout
from earatlas.features.tf_bins import ObservedBins
from earatlas.ppam.model import PPAM
from earatlas.types import Array, Indices, Single

__all__ = ["CandidateSearch", "CandidateSearchSettings", "SourceCandidates"]


# Evidence: docs/figures/settings/separation.md, "candidate_search".
@dataclass(frozen=True)
class CandidateSearchSettings:
    """Settings of the candidate search."""

    spacing_degrees: float = 5.0  # grid spacing
    bins: int = 4000  # largest number of bins
    frames: int = 4  # at most one bin per frequency in so many frames, since frames overlap
    iterations: int = 40  # EM iterations
    candidates: int = 16  # number of candidate directions
    separation_degrees: float = 10.0  # smallest distance between candidates
    diffuse_weight: float = 0.1  # w_0
    noises: tuple[tuple[float, float], ...] = ((0.3, 0.005), (10.0, 0.15))  # ILD in dB², IPD
    max_sets: int = 20_000  # sets that are compared; limits the candidates of many sources
    prune_interval: int = 4  # EM iterations between prunings of the grid
    active_weight: float = 0.03  # relative to a uniform weight: directions below are left out
    subsampling: int = 4  # every fourth bin is used for the choice of the variance

    def __post_init__(self) -> None:
        counts = (self.bins, self.frames, self.iterations, self.candidates)
        if min(counts) < 1 or self.spacing_degrees <= 0 or not 0 < self.diffuse_weight < 1:
            raise InputError(
                "spacing_degrees, bins, frames, iterations and candidates must be above 0, and "
                f"diffuse_weight between 0 and 1, got {self}. Start from the defaults."
            )


@dataclass(frozen=True, eq=False)
class SourceCandidates:
    """Candidate directions of one mixture."""

    candidates: Array  # (J, C) directions in degrees, in order of decreasing weight
    likelihoods: Single  # (J, N) of the selected bins, up to a factor per bin
    diffuse_likelihood: Single  # (N,) of the diffuse component, up to the same factor
    weights: Array  # (G,) of all directions of the grid
    settings: CandidateSearchSettings

    def best_sets(self, n_sources: int, count: int) -> list[Array]:
        """Return the `count` most likely sets (M, C) of candidates."""
        M, J = n_sources, len(self.candidates)
        if M > J:
            raise InputError(
                f"n_sources must be at most the number of candidate directions, {J}, got {M}. "
                "Ask for fewer sources, or set more candidates."
            )
        while J > M and math.comb(J, M) > self.settings.max_sets:
            J -= 1
        sets = np.array(list(combinations(range(J), M)))
        p, diffuse_weight = self.likelihoods, self.settings.diffuse_weight
        scores = np.empty(len(sets))
        for i, chosen in enumerate(sets):
            mixture = p[chosen].sum(axis=0)
            mixture *= (1 - diffuse_weight) / M
            mixture += diffuse_weight * self.diffuse_likelihood
            scores[i] = np.log(mixture, out=mixture).sum()
        order = np.argsort(-scores, kind="stable")[:count]
        return [self.candidates[sets[i]] for i in order]


class CandidateSearch:
    """Search for source directions with one head; the expected cues of its grid are cached."""

    def __init__(
        self, model: PPAM, layout: CueLayout, settings: CandidateSearchSettings | None = None
    ) -> None:
        self.settings, self.layout = settings or CandidateSearchSettings(), layout
        self.space = model.space
        self.grid = model.space.grid(self.settings.spacing_degrees)
        if model.space.columns > model.space.dims:  # a circle: use the elevation of the data
            self.grid[:, 1:] = np.median(model.centres[:, 1:], axis=0)
        means, variances = model.expected_cues(self.grid)
        ild = layout.cue_kinds == "ild"
        self._coefficients = []
        for ild_noise, ipd_noise in self.settings.noises:
            s = variances + np.where(ild, ild_noise, ipd_noise)
            terms = (-0.5 / s, means / s, -0.5 * (means**2 / s + np.log(2 * np.pi * s)))
            # (D, 3, G): log N(y; means, s) = coefficients · (y², y, 1)
            self._coefficients.append(np.stack(terms).transpose(2, 0, 1).astype(np.float32))

    def search(self, bins: ObservedBins) -> SourceCandidates:
        """Find the directions that explain the loudest bins.

        A quarter of the bins selects the variance and prunes the grid; then all bins are used.
        """
        settings = self.settings
        chosen = bins.subset(loudest(bins, settings.bins, settings.frames))
        chosen = chosen.restricted_to(self.layout)
        all_directions = np.arange(len(self.grid))
        subsample = chosen.subset(np.arange(0, len(chosen), settings.subsampling))
        trials = []
        for coefficients in self._coefficients:
            p, diffuse, scale = _likelihoods(subsample, coefficients, all_directions)
            weights, log_likelihood = convex_weights(p, diffuse, settings, settings.iterations // 2)
            trials.append((log_likelihood + scale, coefficients, weights))
        _, coefficients, weights = max(trials, key=lambda trial: trial[0])
        active = np.flatnonzero(
            weights >= min(settings.active_weight / len(weights), weights.max())
        )
        p, diffuse, _ = _likelihoods(chosen, coefficients, active)
        weights = np.zeros(len(self.grid))
        weights[active], _ = convex_weights(p, diffuse, settings, settings.iterations)
        peaks = self._peaks(weights)
        row = np.zeros(len(self.grid), dtype=np.intp)
        row[active] = np.arange(len(active))
        known = np.isin(peaks, active)
        likelihoods = np.empty((len(peaks), len(chosen)), dtype=np.float32)
        likelihoods[known] = p[row[peaks[known]]]
        if not known.all():  # directions that only fill up the candidates explain no bins
            likelihoods[~known] = 0.0
        return SourceCandidates(self.grid[peaks], likelihoods, diffuse, weights, settings)

    def _peaks(self, weights: Array) -> Indices:
        """Return grid indices of the largest weights, at least `separation_degrees` apart.

        If there are too few, the directions farthest from all others are added.
        """
        settings, distance = self.settings, self.space.distance
        active = np.flatnonzero(weights >= min(weights.max(), 1e-30))
        distances = distance(self.grid[active][:, None], self.grid[active][None])
        mass = np.exp(-0.5 * (distances / settings.spacing_degrees) ** 2) @ weights[active]
        peaks: list[int] = []
        while len(peaks) < settings.candidates and (mass.max() > 0 or not peaks):
            best = int(mass.argmax())
            peaks.append(int(active[best]))
            mass[distances[best] < settings.separation_degrees] = 0.0
        while len(peaks) < min(settings.candidates, len(self.grid)):
            gaps = distance(self.grid[peaks][:, None], self.grid[None]).min(axis=0)
            peaks.append(int(gaps.argmax()))
        return np.array(peaks)


def loudest(bins: ObservedBins, count: int, frames: int) -> Indices:
    """Return indices of at most `count` loud bins: one per frequency in each `frames` frames."""
    cell = bins.f * (bins.frames // frames + 1) + bins.t // frames
    order = np.lexsort((-bins.level_db, cell))
    first = np.diff(cell[order], prepend=-1) != 0
    rows = order[first]
    return np.sort(rows[np.argsort(-bins.level_db[rows], kind="stable")[:count]])


def convex_weights(
    p: Single, diffuse: Single, settings: CandidateSearchSettings, iterations: int
) -> tuple[Array, float]:
    """Return the EM estimate of the weights (G,) from likelihoods (G, N), and the log-likelihood.

    Directions with decaying weights are pruned on the way, so most iterations are cheap.
    """
    (G, N), w_0, interval = p.shape, settings.diffuse_weight, settings.prune_interval
    active, w = np.arange(G), np.full(G, (1 - w_0) / G, dtype=np.float32)
    for i in range(iterations):
        inverse = 1 / (w @ p + w_0 * diffuse)  # 1 / p_n with p_n = Σ_g w_g p_gn + w_0 p_0n
        w = w * (p @ inverse) / N  # w_g ← mean_n w_g p_gn / p_n
        w_0 = w_0 * float(diffuse @ inverse) / N
        if i % interval == interval - 1 and i + 1 < iterations:
            keep = w > 0.01 / (G * (iterations - i))
            if keep.any() and keep.mean() < 0.8:  # if all bins are diffuse, no direction remains
                w, active, p = w[keep], active[keep], p[keep]
    weights = np.zeros(G)
    weights[active] = w
    return weights, float(np.log(w @ p + w_0 * diffuse).sum())


def _likelihoods(
    bins: ObservedBins, coefficients: Single, rows: Indices
) -> tuple[Single, Single, float]:
    """Return p(y_n | x_g) (G, N) at some rows of the grid and p_0 (N,), scaled per bin.

    Both are divided by the largest value of a bin; the last result is the sum of the logarithms of
    these factors.
    """
    diffuse = bins.diffuse_log_likelihood().astype(np.float32)
    p = _log_likelihoods(bins, coefficients[:, :, rows])
    top = np.maximum(p.max(axis=0), diffuse)
    p -= top
    return np.exp(p, out=p), np.exp(diffuse - top), float(top.sum())


def _log_likelihoods(bins: ObservedBins, coefficients: Single) -> Single:
    """Return log p(y_n | x_g) (G, N), by one matrix product per frequency."""
    # One row per bin; column-wise writes would take twice the time.
    out = np.zeros((len(bins), coefficients.shape[2]), dtype=np.float32)
    begins = np.cumsum(bins.counts) - bins.counts
    for kind, y in zip(bins.kinds, bins.values, strict=True):
        powers = np.stack([y * y, y, np.ones_like(y)], axis=1).astype(np.float32)
        starts = np.cumsum(kind.counts) - kind.counts
        for i in np.flatnonzero(kind.counts):
            n, begin = kind.counts[i], begins[kind.first + i]
            own = powers[starts[i] : starts[i] + n]
            out[begin : begin + n] += own @ coefficients[kind.cues.start + i]
    return out.T
