"""What is compared: PPAM as the paper has it, ours, and the paper's rivals, by name.

In: training pairs on the plane. Out: anything with `inverse_map`, from cue vectors to directions.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from earatlas.baselines.lookup import LookUp
from earatlas.baselines.mapping import InverseMap, channel_scale
from earatlas.baselines.sir import SIR
from earatlas.learning.em import Learning
from earatlas.learning.ppam import PPAM
from earatlas.space.spaces import Plane
from earatlas.types import Array

__all__ = ["METHODS", "fitted", "paper_ppam", "plain_mplr"]


METHODS = (
    *("PPAM", "MPLR, plain", "SIR-1", "SIR-2"),  # the paper's
    *("PPAM, ours", "PPAM, ours, K = N/10", "MPLR, reduced", "look-up"),
)
_MPLR_RIDGE = 3e-6  # what MPLR itself chooses for most heads and cues
# Of a channel's variance. On a split of ku100 the best of 0.001, 0.01 and 0.1 with phases, and a
# tenth of a degree behind the best with all cues.
_PLAIN_RIDGE = 1e-3
_PLAIN_ITERATIONS = 5  # a minute each with 4,800 vectors of 730 channels; 20 are no better


def paper_ppam(x: Array, y: Array, components: int, seed: int = 0) -> PPAM:
    """No latent coordinates, one noise for all charts, every channel counts in full."""
    how = Learning(spread_prior=None, temperature=1.0)
    K = min(components, max(len(x) // 3, 1))
    return PPAM.fit(Plane(), x, y, components=K, latent=0, learning=how, seed=seed)


@dataclass(frozen=True, eq=False)
class _InBlocks:
    """A few vectors at a time: the plain mixture needs K x D numbers for each."""

    model: InverseMap

    def inverse_map(self, y: ArrayLike) -> Array:
        """Directions (N, 2) of cue vectors (N, D)."""
        cues = np.asarray(y, dtype=np.float64)
        parts = [self.model.inverse_map(cues[i : i + 128]) for i in range(0, len(cues), 128)]
        return np.concatenate(parts)


def plain_mplr(x: Array, y: Array, components: int, seed: int = 0) -> InverseMap:
    """The joint mixture on [x; y]: full covariances of D + 2 dimensions, and a ridge.

    Channels are standardized, which changes nothing but what the ridge means for each.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    from earatlas.baselines.mplr import MPLR

    offset, unit = y.mean(axis=0), channel_scale(y)
    mixture = GaussianMixture(
        components, reg_covar=_PLAIN_RIDGE, max_iter=_PLAIN_ITERATIONS, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mixture.fit(np.hstack([x, (y - offset) / unit]))
    S = mixture.covariances_[:, 2:, 2:]
    roots = np.linalg.cholesky(S)
    half_logs = np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
    model = MPLR(
        space=Plane(),
        offset=offset,
        projection=np.diag(1 / unit),
        log_weights=np.log(mixture.weights_) - half_logs,
        centres=mixture.means_[:, 2:],
        whiteners=np.linalg.inv(roots).transpose(0, 2, 1),
        means=mixture.means_[:, :2],
        gains=np.linalg.solve(S, mixture.covariances_[:, 2:, :2]),
        ridge=_PLAIN_RIDGE,
    )
    return _InBlocks(model)


def fitted(
    method: str, x: Array, y: Array, components: int, *, seed: int = 0, tuned: bool = False
) -> InverseMap:
    """The method of that name, learned from directions (N, 2) and cues (N, D).

    `tuned` lets the reduced MPLR find its ridge on held-out directions: seven fits instead of one.
    """
    plane = Plane()
    match method:
        case "PPAM":
            return paper_ppam(x, y, components, seed)
        case "PPAM, ours":
            return PPAM.fit(plane, x, y, components=components, seed=seed)
        case "PPAM, ours, K = N/10":
            return PPAM.fit(plane, x, y, components=len(x) // 10, seed=seed)
        case "MPLR, plain":
            return plain_mplr(x, y, components, seed)
        case "MPLR, reduced":
            from earatlas.baselines.mplr import MPLR  # scikit-learn is an extra

            ridge = None if tuned else _MPLR_RIDGE
            return MPLR.fit(plane, x, y, components=components, ridge=ridge, seed=seed)
        case "SIR-1":
            return SIR.fit(plane, x, y, axes=1, seed=seed)
        case "SIR-2":
            return SIR.fit(plane, x, y, axes=2, seed=seed)
        case _:
            return LookUp.fit(plane, x, y)
