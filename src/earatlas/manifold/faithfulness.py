"""How faithful coordinates are to directions: trustworthiness, continuity, agreement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError, missing_extra
from earatlas.geometry.angles import to_vectors
from earatlas.geometry.spaces import Cylinder, Plane, Space
from earatlas.manifold.ltsa import checked_vectors, nearest_neighbours
from earatlas.types import Array

__all__ = ["Faithfulness", "faithfulness"]


@dataclass(frozen=True)
class Faithfulness:
    """Whether coordinates are a homeomorphic image of the directions, in numbers.

    Trustworthiness (Venna and Kaski 2001) is 1 if neighbours by coordinates are neighbours by
    direction: no crossings, no ambiguities. Continuity is 1 if neighbours by direction stay
    neighbours: no tears. 0.5 is chance for both.
    """

    trustworthiness: float
    continuity: float
    agreement: float  # share of the nearest by coordinates that are of the nearest by direction
    jump_degrees: float  # median angle between a point and its nearest by coordinates
    beyond_30_share: float  # of those angles

    LEAST: ClassVar[float] = 0.95

    @property
    def homeomorphic(self) -> bool:
        """Trustworthiness and continuity of 0.95 or more."""
        return min(self.trustworthiness, self.continuity) >= self.LEAST


def faithfulness(
    space: Space,
    directions: ArrayLike,
    coordinates: ArrayLike,
    *,
    neighbours: int = 10,
    most: int = 2000,
    seed: int = 0,
) -> Faithfulness:
    """How well coordinates (N, Q), or cues, agree with directions (N, C) of a space.

    Trustworthiness, continuity and agreement are those of a random sample of `most` points: they
    need all their distances, and like numbers of points make heads comparable.
    """
    try:
        from sklearn.manifold import trustworthiness
    except ImportError as error:
        raise missing_extra("sklearn", "scikit-learn") from error
    points, t = space.check(directions), checked_vectors(coordinates)
    if len(points) != len(t) or not 1 <= neighbours < min(len(t), most) / 2:
        raise InputError(
            f"coordinates must be as many as directions and more than twice the neighbours, got "
            f"{len(t)}, {len(points)} and {neighbours}. Leave out the directions of vectors that "
            "were left out."
        )
    x = _flat(space, points)
    some = np.random.default_rng(seed).permutation(len(t))[:most]
    near_x, near_t = (nearest_neighbours(v[some], neighbours) for v in (x, t))
    jumps = space.distance(points, points[nearest_neighbours(t, 1)[:, 0]])
    return Faithfulness(
        trustworthiness=float(trustworthiness(x[some], t[some], n_neighbors=neighbours)),
        continuity=float(trustworthiness(t[some], x[some], n_neighbors=neighbours)),
        agreement=float((near_t[:, :, None] == near_x[:, None]).any(axis=2).mean()),
        jump_degrees=float(np.median(jumps)),
        beyond_30_share=float((jumps > 30).mean()),
    )


def _flat(space: Space, points: Array) -> Array:
    """The points where straight lines measure them: near ones at their true distance."""
    if isinstance(space, Plane):
        return points
    if isinstance(space, Cylinder):
        turn = np.radians(points)
        return np.stack([np.cos(turn[:, 0]), np.sin(turn[:, 0]), turn[:, 1]], axis=1)
    return to_vectors(points)
