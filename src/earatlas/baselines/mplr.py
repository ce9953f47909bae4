"""MPLR: mixture of probabilistic linear regressions, from cues to directions.

The paper compares with it in section 7. K Gaussians on [x; y] have the conditional expectation

    E[x | y] = Σ_k p(k | y) (m_k + G_k (y - c_k)),    p(k | y) ∝ π_k N(y; c_k, S_k)

    m_k, c_k  means of x and of y          S_k  covariance of y in component k
    G_k       covariance of x with y in component k, times S_k⁻¹

A component has (D + L)² / 2 parameters, far more than the samples determine for D = 730. `MPLR.fit`
therefore reduces y to the principal components of its standardized cues, and selects a ridge for
all covariances on held-out directions. `MPLR.fit_plain` uses all cues, as the paper does; its
components have fewer samples than cues (`low_rank_gaussians`). Both use scikit-learn, which the
extra `earatlas[sklearn]` installs.

References
----------
.. [1] Y. Qiao and N. Minematsu, "Mixture of probabilistic linear regressions: a unified view of
   GMM-based mapping techniques", Proc. IEEE ICASSP, 2009.

"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from earatlas.baselines.low_rank_gaussians import (
    LowRankGaussians,
    fit_low_rank_gaussians,
    low_rank_precision,
    regression_matrix,
)
from earatlas.baselines.mapping import (
    check_cues,
    cue_scale,
    from_targets,
    select_ridge,
    to_targets,
)
from earatlas.errors import InputError, missing_extra
from earatlas.geometry.spaces import Space
from earatlas.numerics import logsumexp
from earatlas.ppam.model import check_pairs
from earatlas.types import Array

try:
    from sklearn.decomposition import PCA
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture
except ImportError as error:
    raise missing_extra("sklearn", "scikit-learn") from error

__all__ = ["MPLR"]


# Evidence: docs/figures/settings/baselines.md, "mplr".
@dataclass(frozen=True, slots=True)
class MPLRSettings:
    """Parameters of the fit."""

    # Candidates of the ridge, relative to unit variance
    ridges: tuple[float, ...] = (1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 1e-3)
    iterations: int = 50  # EM iterations of `fit`
    plain_ridge: float = 1e-3  # ridge of `fit_plain`, relative to the variance of a cue
    plain_iterations: int = 5  # EM iterations of `fit_plain`


_DEFAULTS = MPLRSettings()
_BLOCK_NUMBERS = 2**22  # numbers per work array (K, N, q), which bounds the memory


@dataclass(frozen=True, eq=False)
class MPLR:
    """Conditional expectation E[x | y] of K Gaussians on targets and reduced cues.

    Examples
    --------
    >>> import earatlas as ea
    >>> import numpy as np
    >>> x = np.random.default_rng(0).uniform(-50, 50, (60, 2))
    >>> y = x @ np.array([[1.0, 0.5, 0.2], [0.1, -1.0, 0.3]])
    >>> model = MPLR.fit(ea.Plane(), x, y, components=2, ridge=1e-6)
    >>> bool(np.abs(model.inverse_map(y) - x).max() < 0.1)
    True

    """

    space: Space
    offset: Array  # (D,) mean of y
    projection: Array  # (D, q) from y to reduced cues; the first has unit deviation
    log_weights: Array  # (K,) log π_k |S_k|^{-1/2}
    centres: Array  # (K, q) c_k
    roots: Array  # (K, q, r) V_k with V_k V_kᵀ = I / ridge - S_k⁻¹
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
        """Fit the model on principal components of the cues.

        Parameters
        ----------
        space : Space
            Space of the directions.
        x : array_like, shape (N, C)
            Directions in degrees.
        y : array_like, shape (N, D)
            Cue vectors.
        components : int
            Number of Gaussians K; the paper uses 64.
        reduced : int
            Number of principal components of the cues.
        ridge : float, optional
            Ridge on all covariances; by default it is selected on held-out directions.
        seed : int
            Seed of the split and of the initialization.

        Returns
        -------
        model : MPLR
            The fitted model.

        Raises
        ------
        InputError
            If a parameter is out of range.

        References
        ----------
        .. [1] Y. Qiao and N. Minematsu, "Mixture of probabilistic linear regressions: a unified
           view of GMM-based mapping techniques", Proc. IEEE ICASSP, 2009.

        """
        points, cues = check_pairs(space, x, y)
        _check_components(components, len(points))
        if reduced < 1:
            raise InputError(f"reduced must be at least 1, got {reduced}. The default is 40.")
        if ridge is None:
            ridges = _DEFAULTS.ridges

            def fit_ridges(x: Array, y: Array) -> list[Self]:
                K = min(components, max(len(x) // 2, 1))
                return [cls._fit_reduced(space, x, y, K, reduced, ridge, seed) for ridge in ridges]

            ridge = select_ridge(space, points, cues, ridges, fit_ridges, seed=seed)
        elif not ridge > 0:
            raise InputError(f"ridge must be positive, got {ridge}. Try 1e-4.")
        return cls._fit_reduced(space, points, cues, components, reduced, ridge, seed)

    @classmethod
    def _fit_reduced(
        cls,
        space: Space,
        x: Array,
        y: Array,
        components: int,
        reduced: int,
        ridge: float,
        seed: int,
    ) -> Self:
        """Fit the model on principal components of standardized cues, with a given ridge."""
        offset, scale = y.mean(axis=0), cue_scale(y)
        solver = "full" if min(y.shape) < 50 else "auto"
        pca = PCA(min(reduced, *y.shape), svd_solver=solver, random_state=seed)
        pca.fit((y - offset) / scale)
        first = np.sqrt(max(float(pca.explained_variance_[0]), 1e-300))
        projection = pca.components_.T / scale[:, None] / first
        targets = to_targets(space, x)
        offset_x, width = targets.mean(axis=0), np.maximum(targets.std(axis=0), 1e-12)
        joint = np.hstack([(targets - offset_x) / width, (y - offset) @ projection])
        mixture = _fit_gaussian_mixture(joint, components, ridge, _DEFAULTS.iterations, seed)
        return cls._from_mixture(space, mixture, offset, projection, (offset_x, width))

    @classmethod
    def fit_plain(
        cls, space: Space, x: ArrayLike, y: ArrayLike, *, components: int = 64, seed: int = 0
    ) -> Self:
        """Fit the model with full covariances of all D cues, as in the paper.

        The cues are standardized, so that the ridge has the same effect on each of them.

        Parameters
        ----------
        space : Space
            Space of the directions.
        x : array_like, shape (N, C)
            Directions in degrees.
        y : array_like, shape (N, D)
            Cue vectors.
        components : int
            Number of Gaussians K.
        seed : int
            Seed of the initialization.

        Returns
        -------
        model : MPLR
            The fitted model.

        """
        points, cues = check_pairs(space, x, y)
        _check_components(components, len(points))
        offset, scale = cues.mean(axis=0), cue_scale(cues)
        joint = np.hstack([to_targets(space, points), (cues - offset) / scale])
        mixture = fit_low_rank_gaussians(
            joint, components, _DEFAULTS.plain_ridge, _DEFAULTS.plain_iterations, seed
        )
        return cls._from_mixture(space, mixture, offset, np.diag(1 / scale), (0.0, 1.0))

    @classmethod
    def _from_mixture(
        cls,
        space: Space,
        mixture: LowRankGaussians,
        offset: Array,
        projection: Array,
        target_scaling: tuple[Array | float, Array | float],
    ) -> Self:
        """Create the model from Gaussians on scaled targets and projected cues.

        They are fitted to [(targets - offset_x) / width; (y - offset) @ projection].
        """
        offset_x, width = target_scaling
        q, ridge = projection.shape[1], mixture.ridge
        E = mixture.means.shape[1] - q
        precisions = [low_rank_precision(U[E:], ridge) for U in mixture.factors]
        log_determinants = np.array([log_determinant for _, log_determinant in precisions])
        roots = np.zeros((len(precisions), q, max(V.shape[1] for V, _ in precisions)))
        for k, (V, _) in enumerate(precisions):
            roots[k, :, : V.shape[1]] = V
        gains = np.stack([regression_matrix(U[E:], U[:E], ridge) for U in mixture.factors])
        return cls(
            space=space,
            offset=offset,
            projection=projection,
            log_weights=np.log(mixture.weights) - 0.5 * log_determinants,
            centres=mixture.means[:, E:],
            roots=roots,
            means=mixture.means[:, :E] * width + offset_x,
            gains=gains * width,
            ridge=ridge,
        )

    def inverse_map(self, y: ArrayLike) -> Array:
        """Return the directions (N, C) of complete cue vectors (N, D)."""
        reduced = (check_cues(y, len(self.offset)) - self.offset) @ self.projection
        block = max(_BLOCK_NUMBERS // max(self.centres.size, self.roots[:, 0].size), 1)
        parts = [
            self._conditional_mean(reduced[n : n + block])
            for n in range(0, max(len(reduced), 1), block)
        ]
        return from_targets(self.space, np.concatenate(parts))

    def _conditional_mean(self, z: Array) -> Array:
        """Return E[x | z] (N, E) for reduced cues (N, q)."""
        d = z - self.centres[:, None]  # (K, N, q)
        distances = (d**2).sum(axis=-1) / self.ridge - ((d @ self.roots) ** 2).sum(axis=-1)
        logs = self.log_weights[:, None] - 0.5 * distances
        r = np.exp(logs - logsumexp(logs, axis=0))
        expected: Array = np.einsum("kn,kne->ne", r, self.means[:, None] + d @ self.gains)
        return expected


def _check_components(components: int, N: int) -> None:
    if not 1 <= components <= N // 2:
        raise InputError(
            f"components must be between 1 and {N // 2} for {N} directions, got {components}. "
            f"Try about {max(N // 25, 1)}."
        )


def _fit_gaussian_mixture(
    joint: Array, components: int, ridge: float, iterations: int, seed: int
) -> LowRankGaussians:
    """Fit K Gaussians with full covariances to many samples (N, E + q) of few dimensions."""
    mixture = GaussianMixture(
        components, reg_covar=ridge, max_iter=iterations, random_state=seed, init_params="kmeans"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mixture.fit(joint)
    variances, axes = np.linalg.eigh(mixture.covariances_)
    scales = np.sqrt(np.maximum(variances - ridge, 0.0))
    factors = tuple(axes * scales[:, None, :])
    return LowRankGaussians(mixture.weights_, mixture.means_, factors, ridge)
