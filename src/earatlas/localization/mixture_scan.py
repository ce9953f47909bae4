"""What one more sound explains beside others, at every place at once.

In: densities of bins under places, and weights of bins of which many are alike. Out, for a share π
of the bins and what others explain of each,

    L_x = Σ_n v_n log (π g_nx + e_n)

Most of the time would go into logarithms. Bins of one weight are therefore multiplied, four at a
time, before the logarithm is taken: 2.5 times as fast, and the same to rounding.

    g (B, G) densities    v (B,) weights    e (B,) what others explain
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from earatlas.types import Indices, Single

__all__ = ["LogSums"]

# Factors of a product. A factor is from 1e-6 to 1000: any product of four fits in single precision.
_TOGETHER = 4
_ROWS = 64  # products at once, so that they stay in the cache


class LogSums:
    """Bins under every place; made ready when it is first asked."""

    def __init__(self, densities: Single, weights: Single) -> None:
        """`densities` g (B, G) and `weights` v (B,)."""
        self._g, self._v = densities, weights

    @cached_property
    def _groups(self) -> tuple[Indices, Single, Single]:
        """Bins (4, n) of one weight, -1 for want of more, their densities (4, n, G) and weights."""
        groups = []
        for weight in np.unique(self._v):
            own = np.flatnonzero(self._v == weight)
            missing = np.full(-len(own) % _TOGETHER, -1)
            groups.append(np.append(own, missing).reshape(-1, _TOGETHER))
        rows = np.concatenate(groups).T
        g = self._g[rows]
        g[rows < 0] = 0.0  # a factor of 1, as what others explain of it is set to 1
        return rows, g, self._v[rows[0]]

    def at(self, share: float, others: Single) -> Single:
        """L (G,) of a sound with this share beside what others explain (B,)."""
        rows, g, v = self._groups
        pi, e = np.float32(share), np.where(rows < 0, np.float32(1), others[rows])
        L = np.zeros(self._g.shape[1], dtype=np.float32)
        product, factor = np.empty((2, _ROWS, len(L)), dtype=np.float32)
        for first in range(0, len(v), _ROWS):
            part = slice(first, min(first + _ROWS, len(v)))
            own, other = (buffer[: part.stop - first] for buffer in (product, factor))
            for i, (densities, explained) in enumerate(zip(g[:, part], e[:, part], strict=True)):
                to = other if i else own
                np.multiply(densities, pi, out=to)
                to += explained[:, None]
                if i:
                    own *= other
            L += v[part] @ np.log(own, out=own)
        return L
