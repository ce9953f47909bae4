"""Prior over directions: a source is more probable in front of the head than behind it.

Input: a `DirectionPosterior` relative to the head. Output: the posterior with the prior applied.

On the median plane of a nearly symmetric head, and in rooms, cues often do not distinguish front
from back. Without a prior, small differences between the learned and the recording head then decide
between the two. The prior is

    log p(x) = 1/2 log(odds) x_1 + constant,

where x_1, from -1 (straight behind) to 1 (straight ahead), is the front component of the unit
vector of x. It decides ties, and is negligible wherever cues distinguish front from back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from earatlas.types import Array

if TYPE_CHECKING:
    from earatlas.geometry.direction_posterior import DirectionPosterior

__all__ = ["FRONT_PRIOR", "FrontPrior", "apply_front_prior"]


# Evidence: docs/figures/settings/geometry.md, "front_prior".
@dataclass(frozen=True, slots=True)
class FrontPrior:
    """The prior of front before rear."""

    odds: float = 2.0  # prior probability straight ahead over that straight behind

    def log_density(self, front: Array) -> Array:
        """Return the log prior (N,) at front components x_1 (N,), 0 on the frontal plane."""
        log_prior: Array = 0.5 * np.log(self.odds) * front
        return log_prior


FRONT_PRIOR = FrontPrior()


def apply_front_prior(
    posterior: DirectionPosterior, prior: FrontPrior = FRONT_PRIOR
) -> DirectionPosterior:
    """Multiply a posterior, relative to the head, by the prior of front before rear.

    The prior is nearly constant over a chart, so only the weights of the components change, by the
    prior at their chart centres. A posterior over coordinates that are no directions is returned
    unchanged.
    """
    if not posterior.space.holds_directions:
        return posterior
    # The front component of a unit vector; faster than the whole vector.
    front = np.cos(np.radians(posterior.centres)).prod(axis=1)
    weights = posterior.weights * np.exp(prior.log_density(front))
    return replace(posterior, weights=weights / weights.sum())
