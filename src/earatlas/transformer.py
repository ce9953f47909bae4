"""Binaural manifolds as a scikit-learn transformer: from cues to the coordinates of their surface.

In: X (N, D) vectors. Out: an estimator for pipelines that unrolls the surface they lie on
(`earatlas.manifold.ltsa`) and places new vectors on it through the tangent map of the nearest
training vector. Needs the extra `earatlas[sklearn]`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from earatlas.errors import missing_extra
from earatlas.manifold import ltsa

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise missing_extra("sklearn", "scikit-learn") from error

__all__ = ["BinauralManifold"]

Array = NDArray[np.float64]


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
