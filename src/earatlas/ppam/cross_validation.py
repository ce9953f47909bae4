"""Models that have not learned what they are asked: one refit without each tenth of the directions.

Before, one model was learned anew without a tenth. It errs more than the final model, by as much as
chance has it, so posteriors were too cautious: over six splits of ku100 the 50 % region held 50 to
68 % of the truths. Errors measured on refits are those of new directions (medians over the same
splits: 0.73 and 0.74 degrees), so they do not remember what was left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from earatlas.ppam.model import PPAM
from earatlas.threads import side_by_side
from earatlas.types import Array, Indices

__all__ = ["Folds"]

_FOLDS = 10  # what is left without one is almost as dense as the whole


@dataclass(frozen=True, eq=False)
class Folds:
    """Refits of one model; direction `order[i]` is left out of `refits[i % len(refits)]`."""

    order: Indices  # (N,) of the directions
    refits: tuple[PPAM, ...]

    @classmethod
    def of(cls, model: PPAM, x: Array, y: Array, *, constrained: bool = True, seed: int) -> Folds:
        """Of a model of directions (N, C) and cues (N, D)."""
        order = cls.order_of(len(x), seed)
        folds = min(_FOLDS, len(x))
        parts = [order[i::folds] for i in range(folds)]

        def refitted(part: Indices) -> PPAM:
            known = np.delete(x, part, axis=0), np.delete(y, part, axis=0)
            return model.refitted(*known, constrained=constrained)

        return cls(order, tuple(side_by_side(refitted, parts)))

    @staticmethod
    def order_of(directions: int, seed: int) -> Indices:
        """(N,) the order in which directions are left out."""
        return np.random.default_rng(seed).permutation(directions)

    @cached_property
    def _place(self) -> Indices:
        """(N,) where each direction stands in the order."""
        return np.argsort(self.order)

    def without(self, n: int) -> PPAM:
        """The refit that has not learned direction n."""
        return self.refits[int(self._place[n]) % len(self.refits)]
