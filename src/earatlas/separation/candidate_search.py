"""The scout: where sources may be, before any source is followed.

In: the surest bins of a mixture and what a learned head expects on a grid of directions. Out: sets
of M directions, the most probable first, for VESSL to start from.

    maximize  Σ_n log (Σ_g w_g p(y_n | x_g) + w_0 p_0(y_n))   over the weights w

is a convex problem: EM climbs to its one answer from anywhere, so nothing depends on a lucky start.
A single bin fits many directions (a cone of confusion, or its mirror image behind the head), so the
weights do not stand on the sources alone: they name candidates. Of those, the M that together
explain the bins best are taken: Σ_n log (Σ_m p(y_n | x_m) (1 - w_0) / M + w_0 p_0(y_n)).

    p (G, N)   likelihoods of bins under directions     w (G,)   weights of directions
    p_0 (N,)   of a bin that comes from nowhere         x (G, C) the grid

How far a bin may be from what a direction predicts is not known beforehand: little in the open,
much in a room. Two answers are tried, and the one that explains the bins better is kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from earatlas.errors import InputError
from earatlas.features.layout import CueLayout
from earatlas.features.tf_bins import HeardBins
from earatlas.ppam.model import PPAM
from earatlas.types import Array, Indices, Single

__all__ = ["Scout", "Scouting", "Sighting"]

_MOST_SETS = 20_000  # of candidates that are compared; fewer candidates for many sources
_PRUNE_EVERY = 4  # iterations
_LIVE = 0.03  # of an even weight: what a quarter of the bins must leave a direction to go on


@dataclass(frozen=True)
class Scouting:
    """How the scout works; tried on two and three talkers (docs/figures.md)."""

    spacing_degrees: float = 5.0  # of the grid
    bins: int = 4000  # at most
    frames: int = 4  # one bin a frequency in so many frames: half a window apart they repeat
    iterations: int = 40
    candidates: int = 16
    apart_degrees: float = 10.0  # candidates, at least
    nowhere: float = 0.1  # w_0
    noises: tuple[tuple[float, float], ...] = ((0.3, 0.005), (10.0, 0.15))  # ILD in dB², IPD

    def __post_init__(self) -> None:
        counts = (self.bins, self.frames, self.iterations, self.candidates)
        if min(counts) < 1 or self.spacing_degrees <= 0 or not 0 < self.nowhere < 1:
            raise InputError(
                "spacing_degrees, bins, frames, iterations and candidates must be above 0 and "
                f"nowhere between 0 and 1, got {self}. The defaults are a good start."
            )


@dataclass(frozen=True, eq=False)
class Sighting:
    """What the scout saw in one mixture."""

    candidates: Array  # (J, C) directions, the heaviest first
    likelihoods: Single  # (J, N) of the bins it looked at, up to a factor a bin
    nowhere: Single  # (N,) the same of the class without direction
    weights: Array  # (G,) of all directions
    share: float  # w_0

    def best_sets(self, n_sources: int, count: int) -> list[Array]:
        """The `count` most probable sets (M, C) of candidates."""
        M, J = n_sources, len(self.candidates)
        if M > J:
            raise InputError(
                f"n_sources must be at most the {J} directions to choose from, got {M}. "
                "Ask for fewer, or for more candidates."
            )
        while J > M and math.comb(J, M) > _MOST_SETS:
            J -= 1
        sets = np.array(list(combinations(range(J), M)))
        p = self.likelihoods
        scores = np.empty(len(sets))
        for i, chosen in enumerate(sets):
            mixed = p[chosen].sum(axis=0)
            mixed *= (1 - self.share) / M
            mixed += self.share * self.nowhere
            scores[i] = np.log(mixed, out=mixed).sum()
        order = np.argsort(-scores, kind="stable")[:count]
        return [self.candidates[sets[i]] for i in order]


class Scout:
    """Looks for sources with one head; what it expects on its grid is computed once."""

    def __init__(self, model: PPAM, layout: CueLayout, how: Scouting | None = None) -> None:
        self.how, self.layout, self.space = how or Scouting(), layout, model.space
        self.grid = model.space.grid(self.how.spacing_degrees)
        if model.space.columns > model.space.dims:  # a circle: where it was measured
            self.grid[:, 1:] = np.median(model.centres[:, 1:], axis=0)
        means, variances = model.expected_cues(self.grid)
        ild = layout.cue_kinds == "ild"
        self._forms = []
        for ild_noise, ipd_noise in self.how.noises:
            s = variances + np.where(ild, ild_noise, ipd_noise)
            forms = (-0.5 / s, means / s, -0.5 * (means**2 / s + np.log(2 * np.pi * s)))
            # (D, 3, G): log N(y; means, s) = forms · (y², y, 1)
            self._forms.append(np.stack(forms).transpose(2, 0, 1).astype(np.float32))

    def look(self, bins: HeardBins) -> Sighting:
        """Search the grid for what explains the loudest of the bins.

        A quarter of them chooses the noise and leaves out most of the grid; then all are used.
        """
        how = self.how
        chosen = bins.subset(loudest(bins, how.bins, how.frames)).narrowed(self.layout)
        everywhere = np.arange(len(self.grid))
        some = chosen.subset(np.arange(0, len(chosen), 4))
        trials = []
        for forms in self._forms:
            p, nowhere, scale = _likelihoods(some, forms, everywhere)
            weights, fit = convex_weights(p, nowhere, how.nowhere, how.iterations // 2)
            trials.append((fit + scale, forms, weights))
        _, forms, weights = max(trials, key=lambda trial: trial[0])
        live = np.flatnonzero(weights >= min(_LIVE / len(weights), weights.max()))
        p, nowhere, _ = _likelihoods(chosen, forms, live)
        weights = np.zeros(len(self.grid))
        weights[live], _ = convex_weights(p, nowhere, how.nowhere, how.iterations)
        peaks = self._peaks(weights)
        row = np.zeros(len(self.grid), dtype=np.intp)
        row[live] = np.arange(len(live))
        known = np.isin(peaks, live)
        likelihoods = np.empty((len(peaks), len(chosen)), dtype=np.float32)
        likelihoods[known] = p[row[peaks[known]]]
        if not known.all():  # fewer places than candidates: the others are far from all of them
            likelihoods[~known] = 0.0
        return Sighting(self.grid[peaks], likelihoods, nowhere, weights, how.nowhere)

    def _peaks(self, weights: Array) -> Indices:
        """The heaviest places, apart from each other; filled up with far ones if they are few."""
        how, distance = self.how, self.space.distance
        live = np.flatnonzero(weights >= min(weights.max(), 1e-30))
        apart = distance(self.grid[live][:, None], self.grid[live][None])
        mass = np.exp(-0.5 * (apart / how.spacing_degrees) ** 2) @ weights[live]
        peaks: list[int] = []
        while len(peaks) < how.candidates and (mass.max() > 0 or not peaks):
            best = int(mass.argmax())
            peaks.append(int(live[best]))
            mass[apart[best] < how.apart_degrees] = 0.0
        while len(peaks) < min(how.candidates, len(self.grid)):
            gaps = distance(self.grid[peaks][:, None], self.grid[None]).min(axis=0)
            peaks.append(int(gaps.argmax()))
        return np.array(peaks)


def loudest(bins: HeardBins, count: int, frames: int) -> Indices:
    """Places of the loudest bin of each frequency in each `frames` frames; `count` of these."""
    cell = bins.f * (bins.frames // frames + 1) + bins.t // frames
    order = np.lexsort((-bins.level_db, cell))
    first = np.diff(cell[order], prepend=-1) != 0
    rows = order[first]
    return np.sort(rows[np.argsort(-bins.level_db[rows], kind="stable")[:count]])


def convex_weights(
    p: Single, nowhere: Single, share: float, iterations: int
) -> tuple[Array, float]:
    """EM on the weights of directions from likelihoods (G, N): weights (G,) and log-likelihood.

    Directions that are losing are left out on the way, so that most iterations are cheap.
    """
    G, N = p.shape
    active, w = np.arange(G), np.full(G, (1 - share) / G, dtype=np.float32)
    rest = share
    for i in range(iterations):
        inverse = 1 / (w @ p + rest * nowhere)
        w = w * (p @ inverse) / N
        rest = rest * float(nowhere @ inverse) / N
        if i % _PRUNE_EVERY == _PRUNE_EVERY - 1 and i + 1 < iterations:
            keep = w > 0.01 / (G * (iterations - i))
            if keep.any() and keep.mean() < 0.8:  # bins that fit nowhere leave no direction
                w, active, p = w[keep], active[keep], p[keep]
    weights = np.zeros(G)
    weights[active] = w
    return weights, float(np.log(w @ p + rest * nowhere).sum())


def _likelihoods(bins: HeardBins, forms: Single, rows: Indices) -> tuple[Single, Single, float]:
    """p(y_n | x_g) (G, N) at some rows of the grid and p_0 (N,), both over the largest of a bin.

    The last is the sum of what they were divided by, in the log domain.
    """
    anywhere = bins.anywhere_log_likelihood().astype(np.float32)
    p = _log_likelihoods(bins, forms[:, :, rows])
    top = np.maximum(p.max(axis=0), anywhere)
    p -= top
    return np.exp(p, out=p), np.exp(anywhere - top), float(top.sum())


def _log_likelihoods(bins: HeardBins, forms: Single) -> Single:
    """log p(y_n | x_g) (G, N), a product of matrices a frequency."""
    # A row a bin: written by columns it takes twice the time.
    out = np.zeros((len(bins), forms.shape[2]), dtype=np.float32)
    begins = np.cumsum(bins.counts) - bins.counts
    for kind, y in zip(bins.kinds, bins.values, strict=True):
        powers = np.stack([y * y, y, np.ones_like(y)], axis=1).astype(np.float32)
        starts = np.cumsum(kind.counts) - kind.counts
        for i in np.flatnonzero(kind.counts):
            n, begin = kind.counts[i], begins[kind.first + i]
            own = powers[starts[i] : starts[i] + n]
            out[begin : begin + n] += own @ forms[kind.cues.start + i]
    return out.T
