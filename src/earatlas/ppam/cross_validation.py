"""Cross-validated models: one refit of a PPAM without each fold of its directions.

Input: a fitted model, its directions and cues. Output: a `CrossValidation`, which holds one refit
per fold; the refit of a direction has not been trained on it.
Evidence for refits: docs/figures/settings/ppam.md, "cross_validation".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from earatlas.ppam.model import PPAM
from earatlas.types import Array, Indices

__all__ = ["CrossValidation"]


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """Refits of one model; direction `order[i]` is held out of `refits[i % len(refits)]`."""

    order: Indices  # (N,) permutation of the directions
    refits: tuple[PPAM, ...]

    @classmethod
    def of(
        cls,
        model: PPAM,
        x: Array,
        y: Array,
        *,
        n_folds: int = 10,
        constrained: bool = True,
        seed: int,
    ) -> CrossValidation:
        """Refit a model of directions (N, C) and cues (N, D) without each fold.

        Nine tenths of the directions are almost as dense as all of them.
        """
        order = cls.fold_order(len(x), seed)
        n_folds = min(n_folds, len(x))
        folds = [order[i::n_folds] for i in range(n_folds)]
        return cls(order, tuple(model.refits(x, y, folds, constrained=constrained)))

    @staticmethod
    def fold_order(directions: int, seed: int) -> Indices:
        """Return the permutation (N,) in which directions are assigned to folds."""
        return np.random.default_rng(seed).permutation(directions)

    @cached_property
    def _position(self) -> Indices:
        """Position (N,) of each direction in `order`."""
        return np.argsort(self.order)

    def refit_without(self, n: int) -> PPAM:
        """Return the refit that was not trained on direction n."""
        return self.refits[int(self._position[n]) % len(self.refits)]

    def by_refit(self, directions: Sequence[int]) -> Iterator[tuple[PPAM, Indices]]:
        """Yield each refit with the positions (n,) of its held-out directions in the argument.

        The refits are copies, so that what one has cached for inference is freed with it.
        """
        numbers = self._position[np.asarray(directions, dtype=np.intp)] % len(self.refits)
        for number in np.unique(numbers):
            yield replace(self.refits[number]), np.flatnonzero(numbers == number)
