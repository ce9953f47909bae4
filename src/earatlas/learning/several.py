"""Several sounds at once, by the bins in which each arrives.

In: onsets of a mixture (`earatlas.hearing.onsets`) and what a head's direct sound is like
(`earatlas.learning.direct`). Out: where M sounds are, how likely each place is for each of them,
and how much each of them explains.

A bin that rises is mostly one sound's. With g the density of a bin around a direction, relative to
diffuse sound, and x_1 … x_M the places,

    L(x_1 … x_M) = Σ_n v_n log (Σ_m π g(s_n · s_x_m) + w_0)      π = (1 - w_0) / M

is climbed one source at a time over the whole grid, so that no start is needed and none can be bad:
the first alone, the next beside those that are known, and then each again beside the others. What
is believed of source m is L as a function of x_m alone, the others where they are: bins that the
others explain say little of it, and where it is behind or in front stays open if the bins leave it
open. Its evidence is what L gains over the others alone, who then have its share of the bins too.

    v_n   weight of a bin: a frequency has about one vote       w_0   share of bins from nowhere
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.hearing.onsets import OnsetBins
from earatlas.learning.direct import LEVELS, DirectSound, Look, Patch, bin_class, bin_weights
from earatlas.space.angles import to_vectors
from earatlas.types import Array, Indices, Mask, Single

__all__ = ["Heard", "Several"]

NOWHERE = 0.1  # w_0
# Nats a (weighted) bin that a second, a third and each further source must gain. On 12 scenes each
# of cipic_021 and kemar_full in T60 0.3 s a false second one gained 0.10 at the upper tenth and a
# true one 0.13 to 0.20 at the lower; right in 96, 90 and 50 % of the scenes of 1, 2 and 3 talkers.
WORTH = (0.12, 0.07, 0.10)
_SHARE_STEPS = 15
_APART_DEGREES = 10.0  # two sources, at least
_ROUNDS = 3  # in which each source is placed again beside the others
_CLOSELY = 60  # cells whose fine points are looked at, a source
_FINE_ROUNDS = 2


@dataclass(frozen=True, eq=False)
class Heard:
    """One of several sounds, as its onsets tell it."""

    look: Look  # how likely each place is, beside the other sources
    place: Array  # (C,) the likeliest
    bins: float  # onsets that are its own
    nats: float  # that it explains over diffuse sound, a (weighted) bin of its own
    evidence: float  # nats a (weighted) bin of all that are gained by its being there
    claims: Array  # (B,) the share of each onset that is its own


class Several:
    """The onsets of a mixture under every direction."""

    def __init__(self, sound: DirectSound, bins: OnsetBins, patch: Patch | None = None) -> None:
        self.sound, self.bins, self._patch = sound, bins, patch
        self._weights = bin_weights(bins.f).astype(np.float32)
        self._seen = sound.seen(bins)
        self._classes = bin_class(bins.rise_db, sound.gate.frequencies_hz[bins.f])
        self._table = np.exp(sound.log_densities).ravel()
        self._coarse, self._cell = sound.cells
        self._densities = self._at(self._coarse)

    def _at(self, rows: Indices) -> Single:
        """g (B, rows) of every bin around points of the grid."""
        points, bins = self.sound.points(rows, self._patch), self.bins
        out = np.empty((len(bins), len(rows)), dtype=np.float32)
        edges = np.searchsorted(bins.f, np.arange(len(points) + 1))
        half, last = np.float32(LEVELS / 2), np.float32(LEVELS - 0.5)
        for f in np.unique(bins.f):
            own = slice(edges[f], edges[f + 1])
            u = self._seen[own] @ points[f]
            u *= half
            u += half
            np.clip(u, 0, last, out=u)
            u += (self._classes[own] * LEVELS).astype(np.float32)[:, None]
            out[own] = self._table.take(u.astype(np.int32))
        return out

    def _likelihoods(self, densities: Single, others: Single, share: float) -> Single:
        """L (G,) of a source at G places beside what the others explain (B,)."""
        mixed = densities * np.float32(share)
        mixed += others[:, None]
        likelihoods: Single = self._weights @ np.log(mixed, out=mixed)
        return likelihoods

    def placed(self, count: int) -> list[list[int]]:
        """Cells of 1, 2, … `count` sources, each list the best that was found for its number."""
        answers: list[list[int]] = []
        for _ in range(count):
            answers.append(self._with_one_more(answers[-1] if answers else []))
        return answers

    def _with_one_more(self, cells: list[int]) -> list[int]:
        """One more source, and all placed again beside the others."""
        M = len(cells) + 1
        chosen = [*cells, self._best(cells, M)]
        for _ in range(_ROUNDS if M > 1 else 0):
            before = list(chosen)
            for m in range(M):
                chosen[m] = self._best(chosen[:m] + chosen[m + 1 :], M)
            if chosen == before:
                break
        return chosen

    def _best(self, others: list[int], M: int) -> int:
        """The cell of one more source beside others."""
        share = (1 - NOWHERE) / M
        L = self._likelihoods(self._densities, self._explained(others, share), share)
        grid, coarse = self.sound.grid, self._coarse
        L[_too_near(grid[coarse], grid[coarse[others]])] = -np.inf
        return int(L.argmax())

    def _explained(self, cells: list[int], share: float) -> Single:
        """(B,) by sources in these cells, and by nowhere."""
        explained: Single = share * self._densities[:, cells].sum(axis=1) + np.float32(NOWHERE)
        return explained.astype(np.float32)

    def counted(self, most: int) -> list[int]:
        """Cells of as many sources as the onsets tell of: one more while it gains enough."""
        cells = self.placed(1)[-1]
        while len(cells) < most:
            more = self._with_one_more(cells)
            worth = WORTH[min(len(cells), len(WORTH)) - 1]
            if self._gained(more) - self._gained(cells) < worth:
                break
            cells = more
        return cells

    def second_gain(self) -> float:
        """Nats an onset that a second source explains beside the first."""
        one, two = self.placed(2)
        return self.score(two) - self.score(one)

    def score(self, cells: list[int]) -> float:
        """L of sources in these cells, a (weighted) bin."""
        share = (1 - NOWHERE) / len(cells)
        logs = np.log(self._explained(cells, share))
        return float(self._weights @ logs / max(float(self._weights.sum()), 1e-9))

    def _gained(self, cells: list[int]) -> float:
        """`score` with the shares that explain most: talkers rise unequally often."""
        nowhere = np.ones((len(self.bins), 1), dtype=np.float32)
        p = np.concatenate([self._densities[:, cells], nowhere], axis=1)
        v = self._weights / max(float(self._weights.sum()), 1e-9)
        w = np.append(np.full(len(cells), (1 - NOWHERE) / len(cells)), NOWHERE)
        for _ in range(_SHARE_STEPS):
            w = w * (v / (p @ w) @ p)
        return float(v @ np.log(p @ w))

    def heard(self, cells: list[int]) -> list[Heard]:
        """The sources in these cells, each looked at closely beside the others."""
        M = len(cells)
        share = (1 - NOWHERE) / M
        own = [np.take(self._densities, cell, axis=1) for cell in cells]
        places = [self.sound.grid[self._coarse[cell]] for cell in cells]
        rows: list[Indices] = []
        fine: list[Single] = []
        for turn in range(_FINE_ROUNDS):
            for m in range(M):
                others = _beside(own, m, share)
                if turn == 0:
                    rows.append(self._close(self._likelihoods(self._densities, others, share)))
                    fine.append(self._at(rows[m]))
                L = self._likelihoods(fine[m], others, share)
                beside = np.array(places[:m] + places[m + 1 :])
                L[_too_near(self.sound.grid[rows[m]], beside)] = -np.inf
                best = int(L.argmax())
                own[m] = np.take(fine[m], best, axis=1)
                places[m] = self.sound.grid[rows[m][best]]
        return [self._one(own, m, rows[m], fine[m], places[m]) for m in range(M)]

    def _close(self, L: Single) -> Indices:
        """Rows of the grid in the likeliest cells."""
        count = min(_CLOSELY, len(L))
        close = np.zeros(len(L), dtype=bool)
        close[np.argpartition(-L, count - 1)[:count]] = True
        return np.flatnonzero(close[self._cell])

    def _one(self, every: list[Single], m: int, rows: Indices, fine: Single, place: Array) -> Heard:
        """What is known of one source; L is counted from where its share came from nowhere."""
        v, grid, coarse, M = self._weights, self.sound.grid, self._coarse, len(every)
        share = (1 - NOWHERE) / M
        own, others = every[m], _beside(every, m, share)
        alone = (others - NOWHERE) * (M / (M - 1)) + NOWHERE if M > 1 else np.ones_like(others)
        evidence = float(v @ np.log((others + share * own) / alone)) / max(float(v.sum()), 1e-9)
        nothing = float(v @ np.log(others + share))
        near = self._likelihoods(fine, others, share).astype(np.float64) - nothing
        far = np.setdiff1d(np.arange(len(coarse)), self._cell[rows])
        L = self._likelihoods(self._densities[:, far], others, share).astype(np.float64) - nothing
        sizes = np.bincount(self._cell, minlength=len(coarse))[far]
        claims = (share * own / (share * own + others)).astype(np.float64)
        count, weight = float(claims.sum()), float(v @ claims)
        nats = float(near.max()) / max(weight, 1e-9)
        look = Look(
            np.concatenate([grid[rows], grid[coarse[far]]]),
            np.concatenate([near, L]),
            np.concatenate([np.ones(len(rows)), sizes]),
            np.array([nats, _median(self.bins.snr_db, claims), np.log2(max(count, 1.0))]),
        )
        return Heard(look, place, count, nats, evidence, claims)


def _too_near(places: Array, others: Array) -> Mask:
    """(G,) whether another source stands where one would."""
    if not len(others):
        return np.zeros(len(places), dtype=bool)
    cosines = to_vectors(places) @ to_vectors(others).T
    near: Mask = (cosines > np.cos(np.radians(_APART_DEGREES))).any(axis=1)
    return near


def _beside(own: list[Single], m: int, share: float) -> Single:
    """(B,) what all sources but m explain, and nowhere."""
    total = np.full(len(own[m]), NOWHERE, dtype=np.float32)
    for k, densities in enumerate(own):
        if k != m:
            total += share * densities
    return total


def _median(values: Array, weights: Array) -> float:
    """Of weighted values, at most 60."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    middle = int(np.searchsorted(below, 0.5 * below[-1]))
    return min(float(values[order[min(middle, len(values) - 1)]]), 60.0)
