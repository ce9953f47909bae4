"""How faithful an embedding is to directions: trustworthiness, continuity and agreement.

Input: directions x (N, C) of a space and coordinates t (N, Q). Output: a `Faithfulness`.
"""

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
    """Measures of whether coordinates are a homeomorphic image of directions.

    Trustworthiness is 1 if neighbours in coordinates are neighbours in direction (no crossings, no
    ambiguities). Continuity is 1 if neighbours in direction are neighbours in coordinates (no
    tears). Random coordinates have 0.5 for both. `faithfulness` computes the measures.

    Attributes
    ----------
    trustworthiness, continuity : float
        Measures from 0 to 1.
    agreement : float
        Share of the neighbours in coordinates that are neighbours in direction.
    jump_degrees : float
        Median angle between a point and its nearest neighbour in coordinates, in degrees.
    beyond_30_share : float
        Share of these angles above 30 degrees.

    Examples
    --------
    >>> import earatlas as ea
    >>> ea.Faithfulness(0.99, 0.97, 0.8, 4.0, 0.0).homeomorphic
    True
    """

    trustworthiness: float
    continuity: float
    agreement: float  # fraction of the neighbours in coordinates that are neighbours in direction
    jump_degrees: float  # median angle between a point and its nearest neighbour in coordinates
    beyond_30_share: float  # fraction of these angles above 30 degrees

    HOMEOMORPHIC_THRESHOLD: ClassVar[float] = 0.95

    @property
    def homeomorphic(self) -> bool:
        """Whether trustworthiness and continuity are at least 0.95."""
        return min(self.trustworthiness, self.continuity) >= self.HOMEOMORPHIC_THRESHOLD


def faithfulness(
    space: Space,
    directions: ArrayLike,
    coordinates: ArrayLike,
    *,
    neighbours: int = 10,
    max_points: int = 2000,
    seed: int = 0,
) -> Faithfulness:
    """Measure how well coordinates, or cues, agree with directions.

    Parameters
    ----------
    space : Space
        The space of the directions.
    directions : array_like of shape (N, C)
        Directions in degrees.
    coordinates : array_like of shape (N, Q)
        Coordinates, or cues, of the same N points.
    neighbours : int, default 10
        Size of the neighbourhoods, less than half the number of points.
    max_points : int, default 2000
        Trustworthiness, continuity and agreement need all pairwise distances and are computed on
        a random sample of at most this many points.
    seed : int, default 0
        Seed of the random sample.

    Returns
    -------
    Faithfulness
        The measures.

    Raises
    ------
    InputError
        If there are not as many coordinates as directions, or too few for the neighbourhoods.
    MissingExtraError
        If scikit-learn is not installed.

    References
    ----------
    .. [1] J. Venna and S. Kaski, "Neighborhood preservation in nonlinear projection methods: an
       experimental study", ICANN 2001.

    Examples
    --------
    >>> import earatlas as ea
    >>> space = ea.Plane(((-1, 1), (-1, 1)))
    >>> x = space.grid(0.2)
    >>> ea.faithfulness(space, x, 3 * x).homeomorphic
    True
    """
    try:
        from sklearn.manifold import trustworthiness
    except ImportError as error:
        raise missing_extra("sklearn", "scikit-learn") from error
    points, t = space.check(directions), checked_vectors(coordinates)
    if len(points) != len(t) or not 1 <= neighbours < min(len(t), max_points) / 2:
        raise InputError(
            f"coordinates must be as many as directions and more than twice the neighbours, got "
            f"{len(t)} coordinates, {len(points)} directions and {neighbours} neighbours. Remove "
            "the directions of vectors that the embedding has left out."
        )
    x = _euclidean(space, points)
    sample = np.random.default_rng(seed).permutation(len(t))[:max_points]
    near_x, near_t = (nearest_neighbours(v[sample], neighbours) for v in (x, t))
    jumps = space.distance(points, points[nearest_neighbours(t, 1)[:, 0]])
    return Faithfulness(
        trustworthiness=float(trustworthiness(x[sample], t[sample], n_neighbors=neighbours)),
        continuity=float(trustworthiness(t[sample], x[sample], n_neighbors=neighbours)),
        agreement=float((near_t[:, :, None] == near_x[:, None]).any(axis=2).mean()),
        jump_degrees=float(np.median(jumps)),
        beyond_30_share=float((jumps > 30).mean()),
    )


def _euclidean(space: Space, points: Array) -> Array:
    """Embed points such that Euclidean distances equal those of the space for near points."""
    if isinstance(space, Plane):
        return points
    if isinstance(space, Cylinder):
        angles = np.radians(points)
        return np.stack([np.cos(angles[:, 0]), np.sin(angles[:, 0]), angles[:, 1]], axis=1)
    return to_vectors(points)
