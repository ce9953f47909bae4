"""PPAM and binaural manifolds for scikit-learn: pipelines, grid search, cross-validation.

`PPAMRegressor` takes X (N, D) observations and y (N,) or (N, L) positions on a plane. Mind the
letters: scikit-learn's X is the paper's y, and its y is the paper's x. `BinauralManifold` unrolls
the surface that vectors X (N, D) lie on (`earatlas.manifold.ltsa`) and places new vectors on it
through the tangent map of the nearest training vector. Needs the extra `earatlas[sklearn]`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from earatlas.errors import missing_extra
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Plane
from earatlas.manifold.ltsa import ltsa
from earatlas.ppam.calibration import KERNEL_WIDTHS, Calibration
from earatlas.ppam.em import Learning
from earatlas.ppam.model import PPAM
from earatlas.types import Array

try:
    from sklearn.base import (
        BaseEstimator,
        ClassNamePrefixFeaturesOutMixin,
        MultiOutputMixin,
        RegressorMixin,
        TransformerMixin,
    )
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise missing_extra("sklearn", "scikit-learn") from error

__all__ = ["BinauralManifold", "PPAMRegressor"]

_FEWEST_IN_A_FOLD = 8
_MOST_HELD_OUT = 240  # as `learn`: of 240 levels the share below one half is right within 3 %


class PPAMRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A probabilistic piecewise affine map, inverted: `predict` is the posterior mean.

    `n_components` is K (None: one for ten samples, at most 64), `n_latent` is L_w, `constrained`
    keeps the paper's equal weights and volumes. `n_folds` times it is learned without some samples,
    to find out how sure `predict_density` may be; with 0 its densities are as the model has them,
    far too sure, and fitting takes a third of the time.
    """

    def __init__(
        self,
        n_components: int | None = None,
        n_latent: int | None = None,
        constrained: bool = True,
        n_folds: int = 8,
        random_state: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_latent = n_latent
        self.constrained = constrained
        self.n_folds = n_folds
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> PPAMRegressor:
        """Learn the map from positions y to observations X."""
        X, y = validate_data(
            self, X, y, multi_output=True, y_numeric=True, dtype=np.float64, ensure_min_samples=2
        )
        positions = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        low, high = positions.min(axis=0), positions.max(axis=0)
        margin = np.maximum(0.1 * (high - low), 1e-6)
        bounds = zip(low - margin, high + margin, strict=True)
        space = Plane(tuple((float(a), float(b)) for a, b in bounds))
        most = max(len(positions) // (space.dims + 1), 1)
        chosen = self.n_components or min(max(len(positions) // 10, 1), 64)
        self.model_ = PPAM.fit(
            space,
            positions,
            X,
            components=min(chosen, most),
            latent=self.n_latent,
            constrained=self.constrained,
            seed=self.random_state,
        )
        self.y_shape_ = np.shape(y)[1:]
        self.widths_, self.shares_ = self._kernel(positions, X)
        return self

    def _kernel(self, positions: Array, X: Array) -> tuple[Array, Array]:
        """The blur that makes positions most probable that were held out, a fold at a time.

        Learned anew without each fold: one step from the whole model, as `learn` takes, forgets too
        little here, where no sound adds its own noise (cipic_021: 79 % in the 90 % regions).
        """
        folds = min(self.n_folds, len(positions) // _FEWEST_IN_A_FOLD)
        spread = float(np.sqrt(positions.var(axis=0).sum())) or 1.0
        widths = spread / 60 * KERNEL_WIDTHS  # made for a sphere in degrees: a spread of about 60
        if folds < 2:
            return np.zeros(1), np.ones(1)
        order = np.random.default_rng(self.random_state).permutation(len(positions))
        posteriors, truths = [], []
        for fold in range(folds):
            held = order[fold::folds]
            known = np.setdiff1d(order, held)
            model = PPAM.fit(
                self.model_.space,
                positions[known],
                X[known],
                components=max(len(self.model_.weights) * (folds - 1) // folds, 1),
                latent=self.n_latent,
                constrained=self.constrained,
                learning=Learning(starts=1, iterations=15),
                seed=self.random_state,
            )
            for n in held[: _MOST_HELD_OUT // folds]:
                posteriors.append(model.inverse_density(X[n]))
                truths.append(positions[n])
        widths, shares, _ = Calibration.kernel(posteriors, np.array(truths), widths)
        return widths, shares

    def predict(self, X: Any) -> Array:
        """Posterior means (N,) or (N, L)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        weights, means, _ = self.model_.inverse_batch(X)
        positions: Array = np.einsum("nk,nkl->nl", weights, means + self.model_.centres)
        return positions.reshape(len(X), *self.y_shape_)

    def predict_density(self, X: Any) -> list[DirectionPosterior]:
        """The whole posterior of each observation: density, samples, credible regions.

        As wide as the errors on samples that were held out: 90 % regions hold about 90 % of them.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return [self.model_.inverse_density(row).blurred(self.widths_, self.shares_) for row in X]


class BinauralManifold(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Local tangent space alignment with symmetric neighbourhoods (paper, section 4).

    `n_components` is Q, the number of coordinates; `n_dims` is L, the dimension of the surface
    (None: Q - 1, a closed surface, but at least 1); `n_neighbors` at most the number of samples
    less one. `n_candidates` and `whiten`: see `earatlas.manifold.ltsa`. After fitting, `manifold_`
    says which samples were left out; these too are placed by `transform`.
    """

    def __init__(
        self,
        n_components: int = 3,
        n_dims: int | None = None,
        n_neighbors: int = 20,
        symmetric: bool = True,
        n_candidates: int | None = None,
        whiten: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.n_dims = n_dims
        self.n_neighbors = n_neighbors
        self.symmetric = symmetric
        self.n_candidates = n_candidates
        self.whiten = whiten

    def fit(self, X: Any, y: Any = None) -> BinauralManifold:
        """Unroll the surface of X; y is ignored."""
        X = validate_data(
            self, X, dtype=np.float64, ensure_min_samples=self.n_components + 3,
            ensure_min_features=2,
        )  # fmt: skip
        self.manifold_ = ltsa(
            X,
            dims=max(self.n_components - 1, 1) if self.n_dims is None else self.n_dims,
            coordinates=self.n_components,
            neighbours=min(self.n_neighbors, len(X) - 1),
            symmetric=self.symmetric,
            candidates=self.n_candidates,
            whiten=self.whiten,
        )
        self._n_features_out = self.n_components
        return self

    def transform(self, X: Any) -> Array:
        """Coordinates (N, Q)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return self.manifold_.embed(X)
