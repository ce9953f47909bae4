"""MPLR: directions from cues by Gaussians on both together.

Mixture of probabilistic linear regressions (Qiao and Minematsu 2009), the paper's main rival in
section 7: K Gaussians on [x; y] and their conditional expectation,

    E[x | y] = Σ_k p(k | y) (m_k + G_k (y - c_k)),    p(k | y) ∝ π_k N(y; c_k, S_k)

    m_k, c_k  means of x and of y          S_k  covariance of y in component k
    G_k       covariance of x with y in component k, times S_k⁻¹

A component has (D + L)² / 2 parameters, far more than there are samples for D = 730. So `MPLR.fit`
first reduces y to the principal components of its standardized cues, and chooses a ridge on
every covariance on held-out directions. Scales count: on KU100's plane azimuth is off by 1.4
degrees, by 2.8 if the cues are not standardized, and by 8 or more if components are whitened
instead. `MPLR.fit_plain` reduces nothing, as the paper did. scikit-learn does the learning. Needs
the extra `earatlas[sklearn]`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from earatlas.baselines.mapping import (
    check_cues,
    cue_scale,
    from_targets,
    to_targets,
)
from earatlas.errors import InputError, missing_extra
from earatlas.geometry.spaces import Space
from earatlas.ppam.model import check_pairs
from earatlas.types import Array

try:
    from sklearn.decomposition import PCA
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture
except ImportError as error:
    raise missing_extra("sklearn", "scikit-learn") from error

__all__ = ["MPLR"]


_RIDGES = (1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 1e-3)  # of the variance of x and of y's first component
_HELD_OUT = 0.2
_NUMBERS = 2**22  # in a work array (K, N, q): so many cue vectors at a time
_ITERATIONS = 50  # enough for the error, if not for the likelihood's last digits
# Of a cue's variance. On a split of ku100 the best of 0.001, 0.01 and 0.1 with phases, and a
# tenth of a degree behind the best with all cues.
_PLAIN_RIDGE = 1e-3
_PLAIN_ITERATIONS = 5  # a minute each with 4,800 vectors of 730 cues; 20 are no better


@dataclass(frozen=True, eq=False)
class MPLR:
    """E[x | y] of K Gaussians on targets and reduced cues together."""

    space: Space
    offset: Array  # (D,) mean of y
    projection: Array  # (D, q) from y to its reduced form, whose first column has deviation 1
    log_weights: Array  # (K,) log π_k |S_k|^{-1/2}
    centres: Array  # (K, q) c_k
    whiteners: Array  # (K, q, q) W_k with W_k W_kᵀ = S_k⁻¹
    means: Array  # (K, E) m_k
    gains: Array  # (K, q, E) G_kᵀ
    ridge: float

    def __repr__(self) -> str:
        K, q, E = self.gains.shape
        return f"MPLR({type(self.space).__name__}, K={K}, D={len(self.offset)} as {q}, L={E})"

    @classmethod
    def fit(
        cls,
        space: Space,
        x: ArrayLike,
        y: ArrayLike,
        *,
        components: int = 64,
        reduced: int = 40,
        ridge: float | None = None,
        seed: int = 0,
    ) -> Self:
        """Learn from directions (N, C) and cues (N, D); `ridge` None: the best of a few.

        `components` is K, the paper's 64; `reduced` is the number of principal components.
        """
        points, cues = check_pairs(space, x, y)
        _check_components(components, len(points))
        if reduced < 1:
            raise InputError(f"reduced must be at least 1, got {reduced}. 40 is the default.")
        if ridge is None:
            ridge = cls._tuned(space, points, cues, components, reduced, seed)
        elif not ridge > 0:
            raise InputError(f"ridge must be positive, got {ridge}. Such as 1e-4.")
        return cls._learned(space, points, cues, components, reduced, ridge, seed)

    @classmethod
    def _tuned(
        cls, space: Space, x: Array, y: Array, components: int, reduced: int, seed: int
    ) -> float:
        """The ridge with the least mean error on a held-out fifth of the directions."""
        order = np.random.default_rng(seed).permutation(len(x))
        cut = max(int(_HELD_OUT * len(x)), 1)
        asked, known = order[:cut], order[cut:]
        K = min(components, max(len(known) // 2, 1))
        errors = []
        for ridge in _RIDGES:
            model = cls._learned(space, x[known], y[known], K, reduced, ridge, seed)
            errors.append(space.distance(x[asked], model.inverse_map(y[asked])).mean())
        return _RIDGES[int(np.argmin(errors))]

    @classmethod
    def _learned(
        cls,
        space: Space,
        x: Array,
        y: Array,
        components: int,
        reduced: int,
        ridge: float,
        seed: int,
    ) -> Self:
        offset, unit = y.mean(axis=0), cue_scale(y)
        solver = "full" if min(y.shape) < 50 else "auto"
        pca = PCA(min(reduced, *y.shape), svd_solver=solver, random_state=seed)
        pca.fit((y - offset) / unit)
        first = np.sqrt(max(float(pca.explained_variance_[0]), 1e-300))
        projection = pca.components_.T / unit[:, None] / first
        targets = to_targets(space, x)
        middle, width = targets.mean(axis=0), np.maximum(targets.std(axis=0), 1e-12)
        joint = np.hstack([(targets - middle) / width, (y - offset) @ projection])
        found = _gaussians(joint, components, ridge, _ITERATIONS, seed)
        return cls._of(space, found, offset, projection, moved=(middle, width))

    @classmethod
    def fit_plain(
        cls, space: Space, x: ArrayLike, y: ArrayLike, *, components: int = 64, seed: int = 0
    ) -> Self:
        """Learn from directions (N, C) and cues (N, D) with full covariances of all D cues.

        Channels are standardized, which changes nothing but what the ridge means for each.
        """
        points, cues = check_pairs(space, x, y)
        _check_components(components, len(points))
        offset, unit = cues.mean(axis=0), cue_scale(cues)
        joint = np.hstack([to_targets(space, points), (cues - offset) / unit])
        found = _gaussians(joint, components, _PLAIN_RIDGE, _PLAIN_ITERATIONS, seed)
        return cls._of(space, found, offset, np.diag(1 / unit), moved=(0.0, 1.0))

    @classmethod
    def _of(
        cls,
        space: Space,
        found: GaussianMixture,
        offset: Array,
        projection: Array,
        *,
        moved: tuple[Array | float, Array | float],
    ) -> Self:
        """From Gaussians on [(targets - middle) / width; (y - offset) @ projection]."""
        middle, width = moved
        E = found.means_.shape[1] - projection.shape[1]
        S = found.covariances_[:, E:, E:]
        roots = np.linalg.cholesky(S)
        half_logs = np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
        return cls(
            space=space,
            offset=offset,
            projection=projection,
            log_weights=np.log(found.weights_) - half_logs,
            centres=found.means_[:, E:],
            whiteners=np.linalg.inv(roots).transpose(0, 2, 1),
            means=found.means_[:, :E] * width + middle,
            gains=np.linalg.solve(S, found.covariances_[:, E:, :E]) * width,
            ridge=found.reg_covar,
        )

    def inverse_map(self, y: ArrayLike) -> Array:
        """Directions (N, C) of complete cue vectors (N, D)."""
        reduced = (check_cues(y, len(self.offset)) - self.offset) @ self.projection
        block = max(_NUMBERS // self.centres.size, 1)
        parts = [
            self._expected(reduced[n : n + block]) for n in range(0, max(len(reduced), 1), block)
        ]
        return from_targets(self.space, np.concatenate(parts))

    def _expected(self, z: Array) -> Array:
        """E[x | z] (N, E) for reduced cues (N, q)."""
        d = z - self.centres[:, None]  # (K, N, q)
        logs = self.log_weights[:, None] - 0.5 * ((d @ self.whiteners) ** 2).sum(axis=-1)
        r = np.exp(logs - logsumexp(logs, axis=0))
        expected: Array = np.einsum("kn,kne->ne", r, self.means[:, None] + d @ self.gains)
        return expected


def _check_components(components: int, N: int) -> None:
    if not 1 <= components <= N // 2:
        raise InputError(
            f"components must be between 1 and {N // 2} for {N} directions, got {components}. "
            f"About {max(N // 25, 1)} is good."
        )


def _gaussians(
    joint: Array, components: int, ridge: float, iterations: int, seed: int
) -> GaussianMixture:
    """K Gaussians with full covariances on (N, E + q) numbers."""
    found = GaussianMixture(
        components, reg_covar=ridge, max_iter=iterations, random_state=seed, init_params="kmeans"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return found.fit(joint)
