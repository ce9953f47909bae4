"""PPAM as a scikit-learn regressor: from cues (or any high-dimensional data) to positions.

In: X (N, D) observations, y (N,) or (N, L) positions on a plane. Out: an estimator for pipelines,
grid search and cross-validation. Mind the letters: scikit-learn's X is the paper's y, and its y is
the paper's x. Needs the extra `earatlas[sklearn]`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from earatlas.directions import Plane
from earatlas.errors import missing_extra
from earatlas.posterior import ChartMixture
from earatlas.ppam import PPAM

try:
    from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise missing_extra("sklearn", "scikit-learn") from error

__all__ = ["PPAMRegressor"]

Array = NDArray[np.float64]


class PPAMRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A probabilistic piecewise affine map, inverted: `predict` is the posterior mean.

    `n_components` is K (None: one for ten samples, at most 64), `n_latent` is L_w, `constrained`
    keeps the paper's equal weights and volumes.
    """

    def __init__(
        self,
        n_components: int | None = None,
        n_latent: int | None = None,
        constrained: bool = True,
        random_state: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_latent = n_latent
        self.constrained = constrained
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
        return self

    def predict(self, X: Any) -> Array:
        """Posterior means (N,) or (N, L)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        weights, means, _ = self.model_.inverse_batch(X)
        positions: Array = np.einsum("nk,nkl->nl", weights, means + self.model_.centres)
        return positions.reshape(len(X), *self.y_shape_)

    def predict_density(self, X: Any) -> list[ChartMixture]:
        """The whole posterior of each observation: density, samples, credible regions."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return [self.model_.inverse_density(row) for row in X]
