"""How many sounds there are: one more while the onsets gain by it, and more on a cone than off it.

In: the onsets of a mixture under every direction (`earatlas.localization.onset_mixture`). Out: as many places
as there are sounds.

    J(x_1 … x_M) = max_π Σ_n v_n log (Σ_m π_m g(s_n · s_x_m) + π_0) - cost(x_1 … x_M)

Shares π are free: talkers rise unequally often, and with equal shares two places of the loud one
explain more than one place of each. The cost tells reflections from talkers. What a room adds to
one talker looks like the same talker from elsewhere on its cone of confusion: the floor and the
ceiling send from about the same side, a blurred direct sound leaves front, above and behind open,
and the level and phase that tell the side hold longest. So a source on the cone of another must
gain much more than one at another side.

    v_n   weight of a bin, all together 1      π_0   share of bins from nowhere
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.geometry.angles import to_vectors
from earatlas.localization.mixture_scan import LogSums
from earatlas.types import Array, Mask, Single

__all__ = ["Counting"]

# Nats a (weighted) bin that a second, a third and each further source must gain. On 120 scenes each
# of cipic_021 and kemar_full, T60 0.2 to 0.5 s, the best one off all cones gained, at the upper
# tenth if false and the lower if true, 0.07 and 0.13 as the second, 0.05 and 0.065 as the third.
WORTH = (0.075, 0.055, 0.05)
# And more for each two on one cone: a false one there gained 0.01 to 0.22 in rooms (cipic_021, 40
# talkers alone, nine tenths of them). 0.14 and 0.3: alike in rooms, one of 60 worse in the open.
SAME_CONE_WORTH = 0.2
CONE_DEGREES = 10.0  # between lateral angles; of cipic_021, 7 and 14 counted 6 and 1 % worse
APART_DEGREES = 10.0  # two sources, at least
NOWHERE = 0.1  # share of bins to begin with
# Of what is asked of one more source: from there on there may be one. Two talkers of ku100, one of
# them 6 or 10 dB softer, T60 0.3 and 0.4 s: of 10 that were taken for one 7 had this much, of 29
# scenes with one talker 5.
NEARLY = 0.6
_NEAR = float(np.cos(np.radians(APART_DEGREES)))
_NEW_SHARES = (0.1, 0.3)  # that a new source is looked for with
_FIRST_SHARE = 0.8
_ROUNDS = 2  # in which each source is placed again beside the others
_SHARE_STEPS = 15


@dataclass(frozen=True, eq=False)
class _Found:
    """Sources, and how much they explain together."""

    cells: list[int]
    shares: Array  # (M + 1,) the last is nowhere's
    densities: Array  # (B, M + 1) of each bin; the last is 1
    explained: float  # nats a (weighted) bin


class Counting:
    """Sounds counted in bins that are known under every place.

    `densities` (B, G) of a bin around a place relative to diffuse sound, `weights` (B,) of bins,
    `places` (G, C) in degrees.
    """

    def __init__(self, densities: Single, weights: Single, places: Array) -> None:
        self._g = densities
        self._v = (weights / max(float(weights.sum()), 1e-9)).astype(np.float32)
        self._sums = LogSums(densities, self._v)
        self._vectors = to_vectors(places)
        self._lateral = np.degrees(np.arcsin(np.clip(self._vectors[:, 1], -1, 1)))

    def cells(self, most: int) -> list[int]:
        """Rows of `places` of as many sources as there are, at most so many."""
        found = self._first()
        while len(found.cells) < most:
            more = self._with_one_more(found)
            worth = WORTH[min(len(found.cells), len(WORTH)) - 1]
            if self._worth(more) - self._worth(found) < worth:
                break
            found = more
        return found.cells

    def placed(self, count: int) -> list[int]:
        """Rows of `places` of so many sources, on one cone or not."""
        found = self._first()
        while len(found.cells) < count:
            found = self._with_one_more(found, 0.0)
        return found.cells

    def nearly(self, cells: list[int]) -> float:
        """What one more source beside these would gain, of what it would have to."""
        found = self._with_shares(cells)
        more = self._with_one_more(found, NEARLY * SAME_CONE_WORTH)
        cones = self._pairs(more) - self._pairs(found)
        asked = WORTH[min(len(cells), len(WORTH)) - 1] + SAME_CONE_WORTH * max(cones, 0)
        return (more.explained - found.explained) / asked

    def _first(self) -> _Found:
        """The one source that explains most."""
        diffuse = np.full(len(self._g), 1 - _FIRST_SHARE)
        return self._with_shares([self._best(diffuse, _FIRST_SHARE, [])[0]])

    def _worth(self, found: _Found) -> float:
        """J, but for the cost that depends on the number alone."""
        return found.explained - SAME_CONE_WORTH * self._pairs(found)

    def _pairs(self, found: _Found) -> int:
        """How many two of the sources are on one cone."""
        lateral = self._lateral[found.cells]
        return int(np.triu(np.abs(lateral[:, None] - lateral) < CONE_DEGREES, 1).sum())

    def _with_one_more(self, found: _Found, cone_worth: float = SAME_CONE_WORTH) -> _Found:
        """One more source, and all placed again beside the others."""
        known = found.densities @ found.shares
        looks = [
            self._best((1 - share) * known, share, found.cells, cone_worth) for share in _NEW_SHARES
        ]
        cell, _ = max(looks, key=lambda look: look[1])
        more = self._with_shares([*found.cells, cell])
        for _ in range(_ROUNDS):
            cells = self._placed_again(more, cone_worth)
            if cells == more.cells:
                break
            more = self._with_shares(cells)
        return more

    def _placed_again(self, found: _Found, cone_worth: float) -> list[int]:
        """Each source in turn where it explains most beside the others."""
        cells, p = list(found.cells), found.densities.copy()
        for m in range(len(cells)):
            others = p @ found.shares - p[:, m] * found.shares[m]
            beside = cells[:m] + cells[m + 1 :]
            cells[m], _ = self._best(others, float(found.shares[m]), beside, cone_worth)
            p[:, m] = self._g[:, cells[m]]
        return cells

    def _best(
        self,
        others: Array,
        share: float,
        beside: list[int],
        cone_worth: float = SAME_CONE_WORTH,
    ) -> tuple[int, float]:
        """The cell of a source with this share beside what others explain (B,), and its J."""
        J = self._sums.at(share, others.astype(np.float32))
        J -= np.float32(cone_worth) * self._on_cones(beside)
        J[(self._vectors @ self._vectors[beside].T > _NEAR).any(axis=1)] = -np.inf
        best = int(J.argmax())
        return best, float(J[best])

    def _on_cones(self, cells: list[int]) -> Mask:
        """(G,) whether a place is on the cone of one of these."""
        gaps = np.abs(self._lateral[:, None] - self._lateral[cells])
        on_cones: Mask = (gaps < CONE_DEGREES).any(axis=1)
        return on_cones

    def _with_shares(self, cells: list[int]) -> _Found:
        """Sources in these cells, with the shares that explain most: EM, which cannot fall."""
        nowhere = np.ones((len(self._g), 1))
        p = np.concatenate([self._g[:, cells], nowhere], axis=1)
        shares = np.append(np.full(len(cells), (1 - NOWHERE) / len(cells)), NOWHERE)
        for _ in range(_SHARE_STEPS):
            shares = shares * (self._v / (p @ shares) @ p)
        return _Found(cells, shares, p, float(self._v @ np.log(p @ shares)))
