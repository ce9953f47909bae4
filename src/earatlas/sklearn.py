"""Scikit-learn estimators: PPAM regression and manifold embedding.

They work in pipelines, grid searches and cross-validation, and need the extra `earatlas[sklearn]`.
Note the letters: X of scikit-learn is the paper's y, and y of scikit-learn is the paper's x.
"""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np

from earatlas.errors import missing_extra
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Plane
from earatlas.manifold.ltsa import ltsa
from earatlas.ppam.calibration import KERNEL_WIDTHS_DEGREES, Calibration
from earatlas.ppam.em import EMSettings
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

# Evidence: docs/figures/settings/ppam.md, "sklearn".
_MAX_KERNEL_SAMPLES = 240  # held-out samples that the kernel is fitted to, as in `earatlas.learn`


class PPAMRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Regression by a probabilistic piecewise affine map (PPAM), inverted.

    The model maps positions y to observations X; predictions are posterior means of y given X.

    Parameters
    ----------
    n_components : int, optional
        Number K of affine charts; by default one per ten samples, at most 64.
    n_latent : int, optional
        Number L_w of latent coordinates; by default 10, fewer for few features or samples.
    constrained : bool, default True
        Whether all charts have equal weights and volumes, as in the paper.
    n_folds : int, default 8
        Number of models that are fitted without some of the samples to calibrate
        `predict_density`. With 0 its densities are far too narrow, and `fit` takes a third of the
        time.
    random_state : int, default 0
        Seed of the initialization and of the folds.

    Attributes
    ----------
    model_ : PPAM
        The fitted model.
    kernel_widths_, kernel_weights_ : ndarray of shape (J,)
        Standard deviations and weights of the calibration kernel.

    References
    ----------
    .. [1] A. Deleforge, F. Forbes and R. Horaud, "Acoustic space learning for sound-source
       separation and localization on binaural manifolds", International Journal of Neural
       Systems, 25(1), 2015, section 5.

    Examples
    --------
    >>> import numpy as np
    >>> from earatlas.sklearn import PPAMRegressor
    >>> y = np.linspace(-1, 1, 100)
    >>> X = np.stack([y, y**3], axis=1)
    >>> regressor = PPAMRegressor(n_folds=0).fit(X, y)
    >>> bool(regressor.score(X, y) > 0.99)
    True
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
        """Fit the map from positions to observations.

        Parameters
        ----------
        X : array_like of shape (N, D)
            Observations.
        y : array_like of shape (N,) or (N, L)
            Positions.

        Returns
        -------
        PPAMRegressor
            The fitted estimator.
        """
        X, y = validate_data(
            self, X, y, multi_output=True, y_numeric=True, dtype=np.float64, ensure_min_samples=2
        )
        positions = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        low, high = positions.min(axis=0), positions.max(axis=0)
        margin = np.maximum(0.1 * (high - low), 1e-6)
        bounds = zip(low - margin, high + margin, strict=True)
        space = Plane(tuple((float(a), float(b)) for a, b in bounds))
        max_components = max(len(positions) // (space.dims + 1), 1)
        components = self.n_components or min(max(len(positions) // 10, 1), 64)
        self.model_ = PPAM.fit(
            space,
            positions,
            X,
            components=min(components, max_components),
            latent=self.n_latent,
            constrained=self.constrained,
            seed=self.random_state,
        )
        self.y_shape_ = np.shape(y)[1:]
        self.kernel_widths_, self.kernel_weights_ = self._kernel(positions, X)
        return self

    def _kernel(self, positions: Array, X: Array) -> tuple[Array, Array]:
        """Fit the calibration kernel to held-out samples, with one new model per fold.

        One EM iteration from the whole model, as in `earatlas.learn`, forgets the held-out samples
        too little here. Evidence: docs/figures/settings/ppam.md, "sklearn".
        """
        n_folds = min(self.n_folds, len(positions) // 8)  # at least 8 samples per fold
        deviation = float(np.sqrt(positions.var(axis=0).sum())) or 1.0
        widths = deviation / 60 * KERNEL_WIDTHS_DEGREES  # relative to a sphere in degrees
        if n_folds < 2:
            return np.zeros(1), np.ones(1)
        order = np.random.default_rng(self.random_state).permutation(len(positions))
        posteriors, truths = [], []
        for fold in range(n_folds):
            held_out = order[fold::n_folds]
            training = np.setdiff1d(order, held_out)
            model = PPAM.fit(
                self.model_.space,
                positions[training],
                X[training],
                components=max(len(self.model_.weights) * (n_folds - 1) // n_folds, 1),
                latent=self.n_latent,
                constrained=self.constrained,
                settings=EMSettings(n_starts=1, max_iterations=15),
                seed=self.random_state,
            )
            for n in held_out[: _MAX_KERNEL_SAMPLES // n_folds]:
                posteriors.append(model.inverse_density(X[n]))
                truths.append(positions[n])
        widths, weights, _ = Calibration.kernel(posteriors, np.array(truths), widths)
        return widths, weights

    @overload
    def predict(self, X: Any, return_std: Literal[False] = False) -> Array: ...

    @overload
    def predict(self, X: Any, return_std: Literal[True]) -> tuple[Array, Array]: ...

    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Predict positions as posterior means.

        Parameters
        ----------
        X : array_like of shape (N, D)
            Observations.
        return_std : bool, default False
            Whether to return also the standard deviations of the calibrated posteriors, as
            `GaussianProcessRegressor` does.

        Returns
        -------
        positions : ndarray of shape (N,) or (N, L)
            Positions, of the shape that `fit` was given.
        deviations : ndarray of shape (N,) or (N, L)
            Standard deviation of each coordinate, only with `return_std`. `predict_density` returns
            the whole posterior, which may have several peaks.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        weights, means, covariances = self.model_.inverse_batch(X)
        points = means + self.model_.centres
        positions: Array = np.einsum("nk,nkl->nl", weights, points)
        shape = (len(X), *self.y_shape_)
        if not return_std:
            return positions.reshape(shape)
        within = np.diagonal(covariances, axis1=-2, axis2=-1)  # of each component and coordinate
        within = within + self.kernel_weights_ @ self.kernel_widths_**2 / self.kernel_weights_.sum()
        spread = within + (points - positions[:, None]) ** 2
        deviations = np.sqrt(np.einsum("nk,nkl->nl", weights, spread))
        return positions.reshape(shape), deviations.reshape(shape)

    def predict_density(self, X: Any) -> list[DirectionPosterior]:
        """Return the calibrated posterior of each observation.

        Parameters
        ----------
        X : array_like of shape (N, D)
            Observations.

        Returns
        -------
        list of DirectionPosterior
            Posteriors with density, samples and credible regions. They are as wide as the errors
            on held-out samples: 90 % regions contain about 90 % of the true positions.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return [
            self.model_.inverse_density(row).blurred(self.kernel_widths_, self.kernel_weights_)
            for row in X
        ]


class BinauralManifold(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Embedding by local tangent space alignment with symmetric neighbourhoods.

    New vectors are embedded through the tangent map of the nearest training vector.

    Parameters
    ----------
    n_components : int, default 3
        Number Q of coordinates.
    n_dims : int, optional
        Dimension L of the surface; by default Q - 1, as for a closed surface, but at least 1.
    n_neighbors : int, default 20
        Size of the neighbourhoods, at most the number of samples minus one.
    symmetric : bool, default True
        Whether two samples are neighbours only if each is among the nearest of the other.
    n_candidates : int, optional
        Number of eigenvectors among which the most faithful are selected; see `earatlas.ltsa`.
    whiten : int, optional
        Number of whitened principal components among which neighbours are found.

    Attributes
    ----------
    manifold_ : Manifold
        The fitted manifold. Samples in `manifold_.left_out` do not take part in the fit, but
        `transform` embeds them, too.

    References
    ----------
    .. [1] A. Deleforge, F. Forbes and R. Horaud, "Acoustic space learning for sound-source
       separation and localization on binaural manifolds", International Journal of Neural
       Systems, 25(1), 2015, section 4.

    Examples
    --------
    >>> import numpy as np
    >>> from earatlas.sklearn import BinauralManifold
    >>> angle = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    >>> X = np.stack([np.cos(angle), np.sin(angle), np.ones(60)], axis=1)
    >>> BinauralManifold(n_components=2, n_neighbors=6).fit_transform(X).shape
    (60, 2)
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
        """Fit the embedding.

        Parameters
        ----------
        X : array_like of shape (N, D)
            Vectors.
        y : object, optional
            Ignored.

        Returns
        -------
        BinauralManifold
            The fitted estimator.
        """
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
        """Embed vectors.

        Parameters
        ----------
        X : array_like of shape (N, D)
            Vectors.

        Returns
        -------
        ndarray of shape (N, Q)
            Coordinates.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return self.manifold_.embed(X)
