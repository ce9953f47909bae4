"""Assignment of estimated sources to true sources."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from earatlas.numerics import linear_assignment
from earatlas.types import Array, Indices

__all__ = ["Assignment", "best_assignment", "nan_mean"]


@dataclass(frozen=True, eq=False, slots=True)
class Assignment:
    """One-to-one assignment of estimated sources to true sources.

    Parameters
    ----------
    found : array of int, shape (M,)
        Index of the estimated source that belongs to each true source, -1 if it was missed.
    n_found : int
        Number of estimated sources.

    Examples
    --------
    >>> import numpy as np
    >>> assignment = Assignment(np.array([2, -1, 0]), n_found=3)
    >>> assignment
    Assignment(true 0: estimate 2, true 1: missed, true 2: estimate 0, false: estimate 1)
    >>> assignment.take([10.0, 20.0, 30.0])
    array([30., nan, 10.])

    """

    found: Indices  # (M,) index of the estimated source, -1 if the true source was missed
    n_found: int

    def __repr__(self) -> str:
        pairs = [
            f"true {m}: missed" if j < 0 else f"true {m}: estimate {j}"
            for m, j in enumerate(self.found)
        ]
        return f"Assignment({', '.join(pairs + [f'false: estimate {j}' for j in self.false])})"

    @property
    def missed(self) -> tuple[int, ...]:
        """Indices of the true sources without an estimate."""
        return tuple(np.flatnonzero(self.found < 0).tolist())

    @property
    def false(self) -> tuple[int, ...]:
        """Indices of the estimates that belong to no true source."""
        return tuple(np.setdiff1d(np.arange(self.n_found), self.found).tolist())

    def take(self, values: ArrayLike) -> Array:
        """Reorder values of the estimates to the order of the true sources.

        Parameters
        ----------
        values : array_like, shape (J, ...)
            One value per estimated source.

        Returns
        -------
        ordered : array, shape (M, ...)
            One value per true source, NaN for missed sources.

        """
        v = np.asarray(values, dtype=np.float64)
        out = np.full((len(self.found), *v.shape[1:]), np.nan)
        hit = self.found >= 0
        out[hit] = v[self.found[hit]]
        return out


def best_assignment(cost: Array) -> Assignment:
    """Return the assignment with the least total cost (M, J), by the Hungarian algorithm."""
    m, j = linear_assignment(cost)
    found = np.full(len(cost), -1, dtype=np.intp)
    found[m] = j
    return Assignment(found, cost.shape[1])


def nan_mean(values: Array) -> float:
    """Return the mean of the values that are not NaN, or NaN if there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")
