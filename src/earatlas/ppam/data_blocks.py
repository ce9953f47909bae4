"""Directions in patches: what lies together is learned together, with the few charts that reach it.

In: directions x (N, C). Out: rows of x, patch by patch, and for each patch the components whose
charts count there. A chart is used within some ten degrees of its centre; of 270 on the sphere
about 40 reach a patch, and EM on those alone takes a quarter of the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from earatlas.geometry.spaces import Space
from earatlas.ppam.parameters import Charts
from earatlas.types import Array, Indices

__all__ = ["Reach", "patches"]

_ROWS = 80  # of a patch, about: with fewer the calls take longer than the products
_MOST = 64  # patches; beyond, the charts' own reach is what counts
_NOTHING = 40.0  # nats: a responsibility of e^-40 changes no digit of a sum


def patches(space: Space, x: Array) -> list[Indices]:
    """Rows of directions (N, C), each in one patch; few directions are one patch, in order."""
    count = min(len(x) // _ROWS, _MOST)
    if count < 2:
        return [np.arange(len(x))]
    hubs = list(_far_apart(space, x, count))
    nearest = space.squared_distances(x[hubs], x).argmin(axis=1)
    return [own for hub in range(count) if len(own := np.flatnonzero(nearest == hub))]


def _far_apart(space: Space, x: Array, count: int) -> Iterator[int]:
    """Rows of directions, each as far as can be from those before it."""
    chosen, gap = 0, np.full(len(x), np.inf)
    for _ in range(count):
        yield chosen
        gap = np.minimum(gap, space.squared_distances(x[chosen][None], x)[:, 0])
        chosen = int(gap.argmax())


@dataclass(frozen=True, eq=False)
class Reach:
    """How far each of K charts reaches, by where it is used alone.

    Γ_k lies between its eigenvalues: at its best a chart far away has less than e^-40 of what the
    nearest has at its worst. What cues say is left out; they speak against a far chart, too.
    """

    space: Space
    centres: Array  # (K, C)
    scale: Array  # (K,) log density of a chart at its centre, but for what all have
    widest: Array  # (K,) eigenvalues of Γ_k
    narrowest: Array  # (K,)

    @classmethod
    def of(cls, model: Charts) -> Reach:
        """That of a model's charts."""
        values = np.asarray(np.linalg.eigvalsh(model.gammas), dtype=np.float64)
        scale = np.log(model.weights) - 0.5 * np.log(values).sum(axis=1)
        return cls(model.space, model.centres, scale, values[:, -1], values[:, 0])

    def near(self, x: Array) -> Indices:
        """Components that may have something of directions (n, C)."""
        half = 0.5 * self.space.squared_distances(self.centres, x)
        least = (self.scale - half / self.narrowest).max(axis=1, keepdims=True)
        near = self.scale - half / self.widest > least - _NOTHING
        return np.flatnonzero(near.any(axis=0))
