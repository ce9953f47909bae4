"""Localization with no positions told: PPAM on the manifold's own coordinates (paper, conclusion).

In: cue vectors of unknown directions. Out: an `IntrinsicMap` that gives new cues coordinates near
which near sounds lie; a few labelled vectors turn those into directions.

    y_n (N, D)  cue vectors      t_n (N, Q)  coordinates (`earatlas.manifold.ltsa`), in place of x_n
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.angles import to_directions, to_vectors
from earatlas.geometry.spaces import Plane, Sphere
from earatlas.manifold.ltsa import Manifold, checked_vectors, ltsa
from earatlas.ppam.model import PPAM
from earatlas.types import Array

__all__ = ["CalibratedMap", "IntrinsicMap", "learn_unlabelled"]


@dataclass(frozen=True, eq=False)
class IntrinsicMap:
    """Localization with no position ever told: PPAM on the manifold's own coordinates.

    Coordinates are scaled so that a round surface has a radius of 57.3: one unit is about a degree.
    """

    manifold: Manifold
    model: PPAM

    def locate(self, y: ArrayLike) -> Array:
        """Coordinates (n, Q) of cue vectors (n, D): the posterior means."""
        weights, means, _ = self.model.inverse_batch(checked_vectors(y))
        found: Array = np.einsum("nk,nkq->nq", weights, means + self.model.centres)
        return found

    def calibrated(self, y: ArrayLike, directions: ArrayLike) -> CalibratedMap:
        """The map with directions to its coordinates, from a few labelled vectors (n, D)."""
        cues, points = checked_vectors(y), Sphere().check(directions)
        Q = self.manifold.coordinates.shape[1]
        if len(cues) != len(points) or len(cues) < Q + 2:
            raise InputError(
                f"y and directions must be as many and at least {Q + 2}, got {len(cues)} and "
                f"{len(points)}. Label more recordings."
            )
        from scipy.interpolate import RBFInterpolator  # slow to import, and only needed here

        # Some smoothing: two vectors with all but the same coordinates would bend it without end.
        bend = RBFInterpolator(
            self.locate(cues), to_vectors(points), kernel="thin_plate_spline", smoothing=1.0
        )
        return CalibratedMap(self, bend)


@dataclass(frozen=True, eq=False)
class CalibratedMap:
    """From cues to directions through intrinsic coordinates: affine, bent to the labelled ones."""

    intrinsic: IntrinsicMap
    bend: Callable[[Array], Array]  # coordinates (n, Q) -> vectors (n, 3), a thin plate

    def localize(self, y: ArrayLike) -> Array:
        """Directions (n, 2) in degrees of cue vectors (n, D)."""
        return to_directions(self.bend(self.intrinsic.locate(y)))


def learn_unlabelled(
    y: ArrayLike,
    *,
    neighbours: int = 10,
    candidates: int = 9,
    whiten: int | None = 30,
    components: int | None = None,
    seed: int = 0,
) -> IntrinsicMap:
    """Learn to localize from cue vectors (N, D) of unknown directions (the paper's conclusion).

    Take the cues below 2 kHz, `CueLayout(ild_band_hz=(0, 2000))`: in the open those above tear the
    surface (docs/figures.md).
    """
    cues = checked_vectors(y)
    manifold = ltsa(cues, neighbours=neighbours, candidates=candidates, whiten=whiten)
    M, Q = manifold.coordinates.shape
    t = manifold.coordinates * (np.degrees(1.0) / np.sqrt(Q))
    bounds = tuple((float(low), float(high)) for low, high in zip(t.min(0), t.max(0), strict=True))
    heard = cues[manifold.kept]
    model = PPAM.fit(Plane(bounds), t, heard, components=components or max(M // 10, 1), seed=seed)
    return IntrinsicMap(manifold, model)
