"""Nearest-neighbour look-up: the direction of the training vector closest to the observed vector.

This is exhaustive search in a table of HRTF cues; it cannot return directions between the measured
ones. Channels are scaled by their standard deviation over the head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from earatlas.baselines.mapping import check_cues, cue_scale
from earatlas.geometry.spaces import Space
from earatlas.ppam.model import check_pairs
from earatlas.types import Array

__all__ = ["LookUp"]


@dataclass(frozen=True, eq=False)
class LookUp:
    """Nearest-neighbour inverse map: x(y) = x_n with n = argmin_n Σ_d (y_d - y_nd)² / scale_d².

    Examples
    --------
    >>> import earatlas as ea
    >>> import numpy as np
    >>> x = np.array([[0.0, 0.0], [30.0, 0.0]])
    >>> model = LookUp.fit(ea.Plane(), x, [[0.0, 1.0], [5.0, 2.0]])
    >>> model.inverse_map([[4.0, 2.0]])
    array([[30.,  0.]])

    """

    space: Space
    directions: Array  # (N, C)
    cues: Array  # (N, D)
    scale: Array  # (D,)

    def __repr__(self) -> str:
        N, D = self.cues.shape
        return f"LookUp({type(self.space).__name__}, N={N}, D={D})"

    @classmethod
    def fit(cls, space: Space, x: ArrayLike, y: ArrayLike) -> Self:
        """Store training pairs.

        Parameters
        ----------
        space : Space
            Space of the directions.
        x : array_like, shape (N, C)
            Directions in degrees.
        y : array_like, shape (N, D)
            Cue vectors.

        Returns
        -------
        model : LookUp
            The fitted model.

        """
        points, cues = check_pairs(space, x, y)
        return cls(space, points, cues, cue_scale(cues))

    def inverse_map(self, y: ArrayLike) -> Array:
        """Return the directions (N, C) of complete cue vectors (N, D)."""
        queries = check_cues(y, self.cues.shape[1])
        # Centred, |a - b|² = |a|² + |b|² - 2 a·b does not lose digits to a common offset.
        offset = self.cues.mean(axis=0)
        table = (self.cues - offset) / self.scale
        squares = (table**2).sum(axis=1)
        size = 1024  # cue vectors per block, which bounds the memory of the distances
        indices = [
            np.argmin(
                squares - 2 * ((queries[n : n + size] - offset) / self.scale) @ table.T, axis=1
            )
            for n in range(0, max(len(queries), 1), size)
        ]
        nearest: Array = self.directions[np.concatenate(indices)]
        return nearest
