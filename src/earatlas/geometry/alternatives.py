"""Alternatives of a direction: the separate peaks of a posterior, with their probabilities.

Input: a `DirectionPosterior`. Output: one `Alternative` per peak that holds enough probability, the
most probable first. On the cone of confusion a posterior often has one peak in front and another
behind; a single direction with a radius describes such a posterior badly.

Points of the posterior are clustered by quick shift [1]_: every point is linked to the nearest
point of higher density within a given distance, and the points that are linked to one root are the
points of one peak.

    n  points of the posterior    C  columns of a point

References
----------
.. [1] A. Vedaldi and S. Soatto, "Quick shift and kernel methods for mode seeking", ECCV 2008.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from earatlas.geometry.angles import cosines_to_degrees, to_directions
from earatlas.numerics import distinct, quantile
from earatlas.types import Array, Indices

if TYPE_CHECKING:
    from earatlas.geometry.direction_posterior import DirectionPosterior

__all__ = [
    "ALTERNATIVE_SETTINGS",
    "Alternative",
    "AlternativeSettings",
    "find_alternatives",
    "point_alternatives",
    "point_peaks",
]


# Evidence: docs/figures/settings/geometry.md, "alternatives".
@dataclass(frozen=True, slots=True)
class AlternativeSettings:
    """Settings of the search for alternatives."""

    min_radius_degrees: float = 20.0  # a posterior with a smaller 90 % radius has one peak
    link_degrees: float = 20.0  # largest distance to the next point of the same peak
    min_probability: float = 0.1  # a peak with less probability is no alternative
    n_points: int = 500  # quasi-random points of the posterior; 1 % of probability is five points
    n_candidates: int = 16  # component means at which the maximum of a peak is sought


ALTERNATIVE_SETTINGS = AlternativeSettings()


@dataclass(frozen=True, eq=False)
class Alternative:
    """One possible direction of a source.

    Attributes
    ----------
    direction : ndarray of shape (C,)
        Peak of the posterior in degrees.
    probability : float
        Probability that the source is at this peak. The probabilities of all alternatives sum to
        at most 1.
    radius_90 : float
        Radius around `direction` in degrees that contains 90 % of the probability of this peak.

    Examples
    --------
    >>> import numpy as np
    >>> from earatlas.geometry.alternatives import Alternative
    >>> Alternative(np.array([180.0, 5.0]), 0.3, 12.0)
    Alternative((180.0, 5.0), 0.30, radius_90 12.0)
    """

    direction: Array  # (C,) degrees
    probability: float
    radius_90: float

    def __repr__(self) -> str:
        place = ", ".join(f"{v:.1f}" for v in self.direction)
        return f"Alternative(({place}), {self.probability:.2f}, radius_90 {self.radius_90:.1f})"

    def to_dict(self) -> dict[str, Any]:
        """Return the alternative as JSON values.

        Returns
        -------
        dict
            Keys direction (degrees), probability and radius_90 (degrees).
        """
        return {
            "direction": [round(float(v), 2) for v in self.direction],
            "probability": round(self.probability, 3),
            "radius_90": round(self.radius_90, 2),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Alternative:
        """Return the alternative of JSON values, the inverse of `to_dict`.

        Parameters
        ----------
        values : dict
            Keys direction, probability and radius_90.

        Returns
        -------
        Alternative
            The alternative, with rounded values.
        """
        return cls(np.array(values["direction"]), values["probability"], values["radius_90"])


def find_alternatives(
    posterior: DirectionPosterior,
    points: Array,
    settings: AlternativeSettings = ALTERNATIVE_SETTINGS,
    *,
    best_first: bool = False,
) -> tuple[Alternative, ...]:
    """Return the peaks of a posterior, the most probable first.

    Parameters
    ----------
    posterior : DirectionPosterior
        The posterior.
    points : ndarray of shape (n, C)
        Points that are distributed like the posterior, in degrees.
    settings : AlternativeSettings, optional
        Distance of linked points and smallest probability.
    best_first : bool, default False
        The peak with `posterior.best` is the first one, whatever its probability.

    Returns
    -------
    tuple of Alternative
        At least one. The peak with `posterior.best` has that direction.
    """
    points = points[: settings.n_points]
    density = posterior.log_density(points)
    distances = posterior.space.distance(points[:, None], points[None])
    peak = _quick_shift(distances, density, settings)
    holds_best = peak[int(posterior.space.distance(points, posterior.best).argmin())]
    probabilities = {int(root): float(np.mean(peak == root)) for root in distinct(peak)}

    def rank(root: int) -> tuple[bool, float]:
        return not (best_first and root == holds_best), -probabilities[root]

    roots = sorted(probabilities, key=rank)
    alternatives = []
    for number, root in enumerate(roots):
        if number > 0 and probabilities[root] < settings.min_probability:
            continue
        direction = posterior.best
        if root != holds_best:
            direction = _maximum_near(posterior, points[root], settings)
        radius = quantile(posterior.space.distance(points[peak == root], direction), 0.9)
        alternatives.append(Alternative(direction, probabilities[root], radius))
    return tuple(alternatives)


def point_peaks(
    vectors: Array, log_densities: Array, settings: AlternativeSettings = ALTERNATIVE_SETTINGS
) -> Indices:
    """Return the peak of each point of a posterior, as the index of its densest point.

    Parameters
    ----------
    vectors : ndarray of shape (n, 3)
        Unit vectors that are distributed like the posterior.
    log_densities : ndarray of shape (n,)
        Logarithm of the density at each of them, up to a constant.
    settings : AlternativeSettings, optional
        Distance of linked points.

    Returns
    -------
    ndarray of shape (n,)
        Indices of points.
    """
    return _quick_shift(cosines_to_degrees(vectors @ vectors.T), log_densities, settings)


def point_alternatives(
    vectors: Array,
    peak: Indices,
    current: Array,
    settings: AlternativeSettings = ALTERNATIVE_SETTINGS,
) -> tuple[Alternative, ...]:
    """Return the peaks of points of a posterior, the peak of the current direction first.

    Parameters
    ----------
    vectors : ndarray of shape (n, 3)
        Unit vectors that are distributed like the posterior.
    peak : ndarray of shape (n,)
        Peak of each of them, by `point_peaks`.
    current : ndarray of shape (3,)
        Unit vector of the current direction.
    settings : AlternativeSettings, optional
        Smallest probability.

    Returns
    -------
    tuple of Alternative
        At least one. The first has the current direction, whatever its probability.
    """
    probabilities = np.bincount(peak, minlength=len(peak)) / len(peak)
    holds_current = int(peak[int((vectors @ current).argmax())])
    probable = np.flatnonzero(probabilities >= settings.min_probability)
    others = sorted(set(probable.tolist()) - {holds_current}, key=lambda n: -probabilities[n])
    alternatives = []
    for root in (holds_current, *others):
        place = current if root == holds_current else vectors[root]
        radius = float(np.quantile(cosines_to_degrees(vectors[peak == root] @ place), 0.9))
        alternatives.append(Alternative(to_directions(place), float(probabilities[root]), radius))
    return tuple(alternatives)


def _maximum_near(
    posterior: DirectionPosterior, root: Array, settings: AlternativeSettings
) -> Array:
    """Return the component mean (C,) of highest density that is close to a root (C,).

    If there is none, return the root.
    """
    means = posterior.space.exp(posterior.centres, posterior.means)
    near = np.flatnonzero(posterior.space.distance(means, root) < 0.5 * settings.link_degrees)
    heights = np.log(np.maximum(posterior.weights[near], 1e-300))  # finite if a weight is 0
    heights -= 0.5 * np.linalg.slogdet(posterior.covariances[near])[1]
    top = near[np.argsort(-heights, kind="stable")[: settings.n_candidates]]
    candidates = np.concatenate([root[None], means[top]])
    highest: Array = candidates[int(posterior.log_density(candidates).argmax())]
    return highest


def _quick_shift(distances: Array, density: Array, settings: AlternativeSettings) -> Indices:
    """Return the index (n,) of the root of each point, given distances (n, n) and densities (n,).

    The parent of a point is its nearest point of higher density; equal densities are ordered by
    index, so that there are no cycles.
    """
    order = np.lexsort((np.arange(len(density)), -density))
    rank = np.empty(len(order), dtype=np.intp)
    rank[order] = np.arange(len(order))
    candidates = np.where(rank[None] < rank[:, None], distances, np.inf)
    parent = candidates.argmin(axis=1)
    is_root = candidates.min(axis=1) > settings.link_degrees
    root = np.arange(len(density))
    for point in order:  # parents precede their children
        if not is_root[point]:
            root[point] = root[parent[point]]
    return root
