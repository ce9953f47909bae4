"""Which found source is which true one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from earatlas.types import Array, Indices

__all__ = ["Assignment", "best_assignment", "known_mean"]


@dataclass(frozen=True, eq=False, slots=True)
class Assignment:
    """Which found source is which true one, each used at most once.

    >>> Assignment(np.array([2, -1, 0]), n_found=3)
    Assignment(0 is found 2, 1 is missed, 2 is found 0, found 1 is false)
    """

    found: Indices  # (M,) index of the found source, -1 where the true one was missed
    n_found: int

    def __repr__(self) -> str:
        pairs = [
            f"{m} is missed" if j < 0 else f"{m} is found {j}" for m, j in enumerate(self.found)
        ]
        return f"Assignment({', '.join(pairs + [f'found {j} is false' for j in self.false])})"

    @property
    def missed(self) -> tuple[int, ...]:
        """True sources that nothing was found for."""
        return tuple(np.flatnonzero(self.found < 0).tolist())

    @property
    def false(self) -> tuple[int, ...]:
        """Found sources that are no true one."""
        return tuple(np.setdiff1d(np.arange(self.n_found), self.found).tolist())

    def take(self, values: ArrayLike) -> Array:
        """Values (J, ...) of the found sources in the order of the true ones, NaN for missed."""
        v = np.asarray(values, dtype=np.float64)
        out = np.full((len(self.found), *v.shape[1:]), np.nan)
        hit = self.found >= 0
        out[hit] = v[self.found[hit]]
        return out


def best_assignment(cost: Array) -> Assignment:
    """The pairs of least total cost (M, J), as many as there can be."""
    from scipy.optimize import linear_sum_assignment

    m, j = linear_sum_assignment(cost)
    found = np.full(len(cost), -1, dtype=np.intp)
    found[m] = j
    return Assignment(found, cost.shape[1])


def known_mean(values: Array) -> float:
    """Mean of what is not NaN; NaN if nothing is left."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")
