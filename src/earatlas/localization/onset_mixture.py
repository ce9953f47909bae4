"""Several sounds at once, by the bins in which each arrives.

In: onsets of a mixture (`earatlas.features.onset_detector`) and what a head's direct sound is like
(`earatlas.localization.onset_likelihood`). Out: where M sounds are, how likely each place is for each of them,
and how much each of them explains.

A bin that rises is mostly one sound's. With g the density of a bin around a direction, relative to
diffuse sound, and x_1 … x_M the places,

    L(x_1 … x_M) = Σ_n v_n log (Σ_m π_m g(s_n · s_x_m) + w_0)      Σ_m π_m = 1 - w_0

is climbed one source at a time over the whole grid, so that no start is needed and none can be bad:
the first alone, the next beside those that are known, and then each again beside the others. What
is believed of source m is L as a function of x_m alone, the others where they are: bins that the
others explain say little of it, and where it is behind or in front stays open if the bins leave it
open. Its evidence is what L gains over the others alone, who then have its share of the bins too.

    v_n   weight of a bin: a frequency has about one vote       w_0   share of bins from nowhere
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from earatlas.features.onset_detector import OnsetBins
from earatlas.geometry.angles import to_vectors
from earatlas.localization.mixture_scan import LogSums
from earatlas.localization.onset_likelihood import DirectSound, Look, Patch, bin_weights
from earatlas.localization.source_counter import APART_DEGREES, NOWHERE, Counting
from earatlas.types import Array, Indices, Mask, Single

__all__ = ["Heard", "Several"]

_SHARE_STEPS = 15
_SELDOM, _LEAST_SHARE = 0.1, 0.03  # of the onsets: a talker who is drowned by another has 5 %
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
        self._table = np.exp(sound.log_densities)
        self._coarse, self._cell = sound.cells
        self._densities = self._at(self._coarse, sound.coarse_points)
        self._sums = LogSums(self._densities, self._weights)

    def _at(self, rows: Indices, points: Single) -> Single:
        """g (B, rows) of every bin around points (F, 3, rows) of the grid."""
        out = np.empty((len(self.bins), len(rows)), dtype=np.float32)
        for own, densities in self.sound.read(self._table, self.bins, points):
            out[own] = densities
        if self._patch is not None:
            hit, patched = self._patch.of(rows)
            for own, densities in self.sound.read(self._table, self.bins, patched):
                out[own, hit] = densities
        return out

    def _likelihoods(self, densities: Single, others: Single, share: float) -> Single:
        """L (G,) of a source at G places, looked at once, beside what the others explain (B,)."""
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
        """One more source, and all placed again beside the others.

        Talkers rise unequally often: one more that rises as often as the others and one that does
        so seldom are both tried, and the one that explains more is taken.
        """
        M = len(cells) + 1
        tried: list[list[int]] = []
        seen: dict[tuple[int, ...], list[int]] = {}  # from where it went on, and where it ended
        for share in ((1 - NOWHERE) / M, _SELDOM) if cells else (1 - NOWHERE,):
            shares = np.append(self.shares(cells) * (1 - NOWHERE - share) / (1 - NOWHERE), share)
            chosen = [*cells, self._best(cells, shares[:-1], share)]
            if tuple(chosen) not in seen:
                seen[tuple(chosen)] = self._placed_again(chosen) if M > 1 else chosen
            tried.append(seen[tuple(chosen)])
        return max(tried, key=self.score)

    def _placed_again(self, cells: list[int]) -> list[int]:
        """Each in turn where it explains most beside the others."""
        chosen = list(cells)
        for _ in range(_ROUNDS):
            before, shares = list(chosen), self.shares(chosen)
            for m in range(len(chosen)):
                others = chosen[:m] + chosen[m + 1 :]
                chosen[m] = self._best(others, np.delete(shares, m), shares[m])
            if chosen == before:
                break
        return chosen

    def shares(self, cells: list[int]) -> Array:
        """(M,) shares of the onsets that explain most; they sum to 1 - w_0."""
        if not cells:
            return np.zeros(0)
        p, v = self._densities[:, cells], self._weights / max(float(self._weights.sum()), 1e-9)
        w = np.full(len(cells), (1 - NOWHERE) / len(cells))
        for _ in range(_SHARE_STEPS):
            w = np.maximum(w * (v / (p @ w + NOWHERE) @ p), _LEAST_SHARE)
            w *= (1 - NOWHERE) / w.sum()
        return w

    def _best(self, others: list[int], shares: Array, share: float) -> int:
        """The cell of one more source beside others."""
        L = self._sums.at(share, self._explained(others, shares))
        grid, coarse = self.sound.grid, self._coarse
        L[_too_near(grid[coarse], grid[coarse[others]])] = -np.inf
        return int(L.argmax())

    def _explained(self, cells: list[int], shares: Array) -> Single:
        """(B,) by sources in these cells, and by nowhere."""
        explained: Single = (self._densities[:, cells] @ shares + NOWHERE).astype(np.float32)
        return explained

    def counted(self, most: int) -> list[int]:
        """Cells of as many sources as the onsets tell of."""
        return self._counting.cells(most)

    def nearly(self, cells: list[int]) -> float:
        """What one more source beside those in these cells has of what it takes to be counted."""
        return self._counting.nearly(cells)

    @cached_property
    def _counting(self) -> Counting:
        return Counting(self._densities, self._weights, self.sound.grid[self._coarse])

    def second_gain(self) -> float:
        """Nats an onset that a second source explains beside the first."""
        one, two = self.placed(2)
        return self.score(two) - self.score(one)

    def score(self, cells: list[int]) -> float:
        """L of sources in these cells, a (weighted) bin, with the shares that explain most."""
        logs = np.log(self._explained(cells, self.shares(cells)))
        return float(self._weights @ logs / max(float(self._weights.sum()), 1e-9))

    def heard(self, cells: list[int]) -> list[Heard]:
        """The sources in these cells, each looked at closely beside the others."""
        M, shares = len(cells), self.shares(cells)
        own = [shares[m] * np.take(self._densities, cell, axis=1) for m, cell in enumerate(cells)]
        places = [self.sound.grid[self._coarse[cell]] for cell in cells]
        rows: list[Indices] = []
        fine: list[Single] = []
        for turn in range(_FINE_ROUNDS):
            for m in range(M):
                others = _beside(own, m)
                if turn == 0:
                    coarse = self._sums.at(shares[m], others)
                    rows.append(self._close(coarse))
                    fine.append(self._at(rows[m], self.sound.points(rows[m])))
                L = self._likelihoods(fine[m], others, shares[m])
                beside = np.array(places[:m] + places[m + 1 :])
                L[_too_near(self.sound.grid[rows[m]], beside)] = -np.inf
                best = int(L.argmax())
                own[m] = shares[m] * np.take(fine[m], best, axis=1)
                places[m] = self.sound.grid[rows[m][best]]
        return [self._one(own, m, shares[m], rows[m], fine[m], places) for m in range(M)]

    def _close(self, L: Single) -> Indices:
        """Rows of the grid in the likeliest cells."""
        count = min(_CLOSELY, len(L))
        close = np.zeros(len(L), dtype=bool)
        close[np.argpartition(-L, count - 1)[:count]] = True
        return np.flatnonzero(close[self._cell])

    def _one(
        self,
        every: list[Single],
        m: int,
        share: float,
        rows: Indices,
        fine: Single,
        places: list[Array],
    ) -> Heard:
        """What is known of one source; L is counted from where its share came from nowhere."""
        v, grid, coarse = self._weights, self.sound.grid, self._coarse
        own, others = every[m], _beside(every, m)
        left = 1 - NOWHERE - share  # for the others, who have its share too if it is not there
        alone = (others - NOWHERE) * ((1 - NOWHERE) / left) + NOWHERE if left > 1e-6 else 1.0
        evidence = float(v @ np.log((others + own) / alone)) / max(float(v.sum()), 1e-9)
        nothing = float(v @ np.log(others + share))
        near = self._likelihoods(fine, others, share).astype(np.float64) - nothing
        far = np.setdiff1d(np.arange(len(coarse)), self._cell[rows])
        L = self._sums.at(share, others)[far].astype(np.float64) - nothing
        sizes = np.bincount(self._cell, minlength=len(coarse))[far]
        claims = (own / (own + others)).astype(np.float64)
        count, weight = float(claims.sum()), float(v @ claims)
        nats = float(near.max()) / max(weight, 1e-9)
        every_place = np.concatenate([grid[rows], grid[coarse[far]]])
        likelihoods = np.concatenate([near, L])
        # Where another stands, it is not; else both are believed to be the louder one.
        likelihoods[_too_near(every_place, np.array(places[:m] + places[m + 1 :]))] = -np.inf
        look = Look(
            every_place,
            likelihoods,
            np.concatenate([np.ones(len(rows)), sizes]),
            np.array([nats, _median(self.bins.snr_db, claims), np.log2(max(count, 1.0))]),
        )
        return Heard(look, places[m], count, nats, evidence, claims)


def _too_near(places: Array, others: Array) -> Mask:
    """(G,) whether another source stands where one would."""
    if not len(others):
        return np.zeros(len(places), dtype=bool)
    cosines = to_vectors(places) @ to_vectors(others).T
    near: Mask = (cosines > np.cos(np.radians(APART_DEGREES))).any(axis=1)
    return near


def _beside(own: list[Single], m: int) -> Single:
    """(B,) what all sources but m explain, and nowhere."""
    total = np.full(len(own[m]), NOWHERE, dtype=np.float32)
    for k, explained in enumerate(own):
        if k != m:
            total += explained
    return total


def _median(values: Array, weights: Array) -> float:
    """Of weighted values, at most 60."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    middle = int(np.searchsorted(below, 0.5 * below[-1]))
    return min(float(values[order[min(middle, len(values) - 1)]]), 60.0)
