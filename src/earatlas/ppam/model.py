"""Probabilistic piecewise affine mapping (PPAM; paper, section 5).

Input: training pairs of directions x and cue vectors y. Output: a `PPAM`, which maps directions to
cues (forward) and cues, complete or incomplete, to posteriors over directions (inverse).

    x_n (N, C)  directions           u_nk (N, K, L)  chart coordinates of x_n around centre c_k
    y_n (N, D)  cue vectors          r_nk (N, K)     responsibilities p(z_n = k | x_n, y_n)
    A_k (K, D, L), b_k (K, D)        affine maps     Γ_k (K, L, L)   chart covariances
    σ_d² (D,)   noise variances      B (D, L_w)      factor loadings of the latent w ~ N(0, I)
    g_kd (K, D) spread: noise of component k in cue d relative to σ_d² (1 in the paper)

The model: u_k(x) | k ~ N(0, Γ_k) and y | x, k = A_k u_k(x) + b_k + √g_k ∘ (B w + e), e ~ N(0, Σ).
The latent part is the same for all k, so integrating w out replaces Σ⁻¹ by S = (Σ + B Bᵀ)⁻¹
(Woodbury). EM is in `earatlas.ppam.em`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Space
from earatlas.numerics import logsumexp
from earatlas.ppam.parameters import PPAMParameters
from earatlas.ppam.posterior import ChartPosteriors, Charts
from earatlas.types import Array, Indices, field_values

if TYPE_CHECKING:  # EM is needed for fitting only
    from earatlas.ppam.em import EMSettings

__all__ = ["PPAM", "check_pairs"]


@dataclass(frozen=True, eq=False, repr=False)
class PPAM(PPAMParameters):
    """Probabilistic piecewise affine mapping between directions and cues.

    p(x, y) = sum_k weights[k] N(u_k(x); 0, gammas[k]) N(y; A[k] u_k(x) + b[k], S[k]), with u_k the
    chart centred at c_k and S[k] = sqrt(spread[k]) (diag(noise) + latent latentᵀ) sqrt(spread[k])
    [1]_. Use `PPAM.fit` to learn a model.

    Parameters
    ----------
    space : Space
        The space of the directions, with C columns per point and L chart coordinates.
    centres : ndarray of shape (K, C)
        Chart centres c_k, in degrees for a head.
    weights : ndarray of shape (K,)
        Mixture weights, which sum to 1.
    gammas : ndarray of shape (K, L, L)
        Chart covariances Γ_k in square degrees.
    A : ndarray of shape (K, D, L)
        Slopes of the affine maps, cues per degree.
    b : ndarray of shape (K, D)
        Offsets of the affine maps, the expected cues at the centres.
    noise : ndarray of shape (D,)
        Noise variances σ_d², the same for all components.
    latent : ndarray of shape (D, L_w)
        Factor loadings B of the latent coordinates.
    spread : ndarray of shape (K, D)
        Noise variance of each component relative to the common one.
    log_likelihoods : tuple of float, default ()
        Log-likelihood after each iteration of EM.
    converged : bool, default False
        Whether EM stopped before its last iteration.

    Raises
    ------
    InputError
        If the shapes do not match.

    References
    ----------
    .. [1] A. Deleforge, F. Forbes and R. Horaud, "Acoustic space learning for sound-source
       separation and localization on binaural manifolds", International Journal of Neural
       Systems, 25(1), 2015, section 5.

    Examples
    --------
    >>> import earatlas as ea, numpy as np
    >>> x = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    >>> y = np.stack([np.sin(x[:, 0]), x[:, 1], x.sum(axis=1)], axis=1)
    >>> model = ea.PPAM.fit(ea.Plane(((-1, 1), (-1, 1))), x, y, components=8)
    >>> bool(np.abs(model.inverse_map(y[:5]) - x[:5]).max() < 0.05)
    True
    """

    @classmethod
    def fit(
        cls,
        space: Space,
        x: ArrayLike,
        y: ArrayLike,
        *,
        components: int,
        latent: int | None = None,
        constrained: bool = True,
        settings: EMSettings | None = None,
        seed: int | np.random.Generator = 0,
    ) -> PPAM:
        """Fit a model to directions and cues by EM.

        Parameters
        ----------
        space : Space
            The space of the directions.
        x : array_like of shape (N, C)
            Directions, in degrees for a head.
        y : array_like of shape (N, D)
            Cue vectors without missing values.
        components : int
            Number K of affine charts, at most N / (L + 1).
        latent : int, optional
            Number L_w of latent coordinates; by default 10, fewer for few cues or samples.
        constrained : bool, default True
            Whether all charts have equal weights and volumes, as in the paper.
        settings : EMSettings, optional
            Settings of EM.
        seed : int or numpy.random.Generator, default 0
            Seed of the initializations.

        Returns
        -------
        PPAM
            The model. Its `log_likelihoods` are those of the tempered model with spread 1, one per
            iteration; on the plane they never decrease while no component is dropped.

        Raises
        ------
        InputError
            If x and y do not match or are not finite, or if `components` or `latent` is too large.
        """
        from earatlas.ppam.em import fit

        points, cues = check_pairs(space, x, y)
        fitted = fit(
            space, points, cues, components=components, latent=latent, constrained=constrained,
            settings=settings, seed=seed,
        )  # fmt: skip
        return cls.from_parameters(fitted)

    @classmethod
    def from_parameters(cls, parameters: PPAMParameters) -> PPAM:
        """Return the model with given parameters.

        Parameters
        ----------
        parameters : PPAMParameters
            Parameters of the joint density, such as the result of EM.

        Returns
        -------
        PPAM
            The model.
        """
        return cls(**field_values(parameters))

    def refit(
        self,
        x: ArrayLike,
        y: ArrayLike,
        *,
        constrained: bool = True,
        settings: EMSettings | None = None,
    ) -> PPAM:
        """Return the model after one EM iteration on other data.

        With a subset of the training data this gives a model whose maps, noise, latent map and
        spread depend on that subset only, in less than a tenth of the time of `fit`.

        Parameters
        ----------
        x : array_like of shape (N, C)
            Directions, in degrees for a head.
        y : array_like of shape (N, D)
            Cue vectors without missing values.
        constrained : bool, default True
            Whether all charts have equal weights and volumes.
        settings : EMSettings, optional
            Settings of EM.

        Returns
        -------
        PPAM
            The new model.
        """
        none: Indices = np.zeros(0, dtype=np.intp)
        return next(self.refits(x, y, [none], constrained=constrained, settings=settings))

    def refits(
        self,
        x: ArrayLike,
        y: ArrayLike,
        folds: Iterable[Indices],
        *,
        constrained: bool = True,
        settings: EMSettings | None = None,
    ) -> Iterator[PPAM]:
        """Yield a refit without each of some folds of the data.

        Each is that of `refit` with the other rows; all of them together need a single E-step.

        Parameters
        ----------
        x : array_like of shape (N, C)
            Directions, in degrees for a head.
        y : array_like of shape (N, D)
            Cue vectors without missing values.
        folds : iterable of int arrays
            The rows that each refit leaves out.
        constrained : bool, default True
            Whether all charts have equal weights and volumes.
        settings : EMSettings, optional
            Settings of EM.

        Yields
        ------
        PPAM
            One model per fold.
        """
        from earatlas.ppam.em import refits

        points, cues = check_pairs(self.space, x, y)
        for fitted in refits(self, points, cues, folds, constrained=constrained, settings=settings):
            yield PPAM.from_parameters(fitted)

    # --- forward: directions to cues -----------------------------------------------------------

    def log_gating(self, x: ArrayLike) -> tuple[Array, Array]:
        """Return the log joint density of directions and components.

        Parameters
        ----------
        x : array_like of shape (N, C)
            Directions, in degrees for a head.

        Returns
        -------
        log_densities : ndarray of shape (N, K)
            log p(x_n, z = k) in nats, without normalization over k.
        coordinates : ndarray of shape (N, K, L)
            Chart coordinates of the directions around each centre.
        """
        u = self.space.charts(self.centres, self.space.check(x, "x"))
        precision = np.asarray(np.linalg.inv(self.gammas), dtype=np.float64)
        quadratic = _forms(precision, np.moveaxis(u, -1, 0))
        log_norm = np.linalg.slogdet(2 * np.pi * self.gammas)[1]
        return np.log(self.weights) - 0.5 * (quadratic + log_norm), u

    def forward_map(self, x: ArrayLike) -> Array:
        """Return the expected cues E[y | x] at directions.

        Parameters
        ----------
        x : array_like of shape (N, C)
            Directions.

        Returns
        -------
        ndarray of shape (N, D)
            Expected cue vectors.
        """
        logs, u = self.log_gating(x)
        r = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
        N, D = len(u), self.A.shape[1]
        slopes = (r[..., None] * u).reshape(N, -1)
        mapped: Array = slopes @ self.A.transpose(0, 2, 1).reshape(-1, D) + r @ self.b
        return mapped

    def expected_cues(self, x: ArrayLike) -> tuple[Array, Array]:
        """Return expected cues and their variances at directions.

        Parameters
        ----------
        x : array_like of shape (N, C)
            Directions.

        Returns
        -------
        means, variances : ndarray of shape (N, D)
            Expected cues, and the variance of each cue within the charts. The correlations that
            the latent coordinates cause between cues are not returned.
        """
        logs, _ = self.log_gating(x)
        r = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
        variances: Array = (r @ self.spread) * (self.noise + (self.latent**2).sum(axis=1))
        return self.forward_map(x), variances

    def forward_log_density(self, x: ArrayLike, y: ArrayLike) -> Array:
        """Return the log density of cues given their directions.

        Parameters
        ----------
        x : array_like of shape (N, C)
            Directions, in degrees for a head.
        y : array_like of shape (N, D)
            Cue vectors without missing values, one per direction.

        Returns
        -------
        ndarray of shape (N,)
            log p(y_n | x_n) in nats.
        """
        logs, u = self.log_gating(x)
        cues = np.asarray(y, dtype=np.float64)
        H, log_norms = self._complete_forms(cues)
        v = np.concatenate([-np.moveaxis(u, (0, 1, 2), (2, 1, 0)), np.ones((1, *logs.T.shape))])
        squared = np.einsum("ikn,ijkn,jkn->nk", v, H, v, optimize=True)
        terms = logs - 0.5 * (squared + log_norms.T)
        density: Array = logsumexp(terms, axis=1) - logsumexp(logs, axis=1)
        return density

    # --- inverse: cues to directions -----------------------------------------------------------

    def inverse_map(self, y: ArrayLike) -> Array:
        """Return the best direction of each complete cue vector.

        Parameters
        ----------
        y : array_like of shape (N, D)
            Cue vectors without missing values.

        Returns
        -------
        ndarray of shape (N, C)
            The direction of the highest posterior density, as `DirectionPosterior.best`.
        """
        return np.stack([posterior.best for posterior in self._inverse(y)])

    def inverse_density(self, y: ArrayLike) -> DirectionPosterior:
        """Return the posterior p(x | y) of one complete cue vector.

        Parameters
        ----------
        y : array_like of shape (D,)
            Cue vector without missing values.

        Returns
        -------
        DirectionPosterior
            The posterior.
        """
        return self.posterior(CueStatistics.from_vector(y))

    def inverse_batch(self, y: ArrayLike) -> tuple[Array, Array, Array]:
        """Return the posteriors p(x | y_n) of complete cue vectors as arrays.

        Parameters
        ----------
        y : array_like of shape (N, D)
            Cue vectors without missing values.

        Returns
        -------
        weights : ndarray of shape (N, K)
            Weights of the components; each row sums to 1.
        means : ndarray of shape (N, K, L)
            Means in chart coordinates.
        covariances : ndarray of shape (K, L, L)
            Covariances in chart coordinates, the same for all vectors.
        """
        posteriors = self._inverse(y)
        covariances = posteriors.covariances[..., 0].transpose(2, 0, 1)
        return posteriors.weights.T, posteriors.means.transpose(2, 1, 0), covariances

    def _inverse(self, y: ArrayLike) -> ChartPosteriors:
        """Return the posteriors of complete cue vectors (N, D)."""
        return self.charts.given(*self._complete_forms(np.asarray(y, dtype=np.float64)))

    def _complete_forms(self, y: Array) -> tuple[Array, Array]:
        """Return H (L+1, L+1, K, N) of complete cues (N, D), and log|2π S_k| (K, N).

        Subclasses whose cues have another covariance S_k override it, and `posteriors`.
        """
        H, log_det = self.charts.forms(1 / self.noise[None], y)
        log_norms = np.log(2 * np.pi * self.noise).sum() + self.charts.log_spread.sum(axis=1)
        return H, log_norms[:, None] + log_det

    def posterior(self, statistics: CueStatistics) -> DirectionPosterior:
        """Return the posterior p(x | observations) of a recording (docs/method.md).

        Parameters
        ----------
        statistics : CueStatistics
            Q_d = Σ_t w_dt, R_d = Σ_t w_dt y_dt and E_d = Σ_t w_dt y_dt² over the frames t. Where
            Q_d = 0 nothing was observed, and R_d and E_d are ignored.

        Returns
        -------
        DirectionPosterior
            The posterior; all frames share one latent vector w.
        """
        return self.posteriors(CueStatistics.stack([statistics]))[0]

    def posteriors(self, statistics: CueStatistics, *, all_charts: bool = True) -> ChartPosteriors:
        """Return the posteriors of many sounds at once.

        Parameters
        ----------
        statistics : CueStatistics
            Statistics (W, D) of W sounds, as for `posterior`.
        all_charts : bool, default True
            Whether to evaluate all charts. Otherwise only those are evaluated that may have a
            noticeable weight, which takes less time for many sounds.

        Returns
        -------
        ChartPosteriors
            A sequence of W posteriors.
        """
        Q = np.where(statistics.counts > 0, statistics.counts, 0.0)
        # The squares E enter only through the scatter around the mean cues.
        squared = (statistics.scatter / self.noise) @ (self.charts.scales**2).T
        log_factors = -0.5 * (squared + Q @ self.charts.log_spread.T)
        charts = self.charts
        infer = charts.posteriors if all_charts else charts.selected_posteriors
        return infer(Q / self.noise, statistics.means, log_factors)

    def normalized_residuals(self, statistics: CueStatistics, directions: Array) -> Array:
        """Return the normalized residuals of the cues of W sounds at one direction each.

        This is the mean squared residual divided by the model's noise variance.

        Parameters
        ----------
        statistics : CueStatistics
            Statistics (W, D) of the cues.
        directions : ndarray of shape (W, C)
            Directions, in degrees for a head.

        Returns
        -------
        ndarray of shape (W,)
            About 1 if the cues deviate from the model by as much as its noise; more if they do not
            fit.
        """
        Q = statistics.counts
        residuals = statistics.means - self.forward_map(directions)
        variances = self.noise + (self.latent**2).sum(axis=1)
        total = (Q * residuals**2) @ (1 / variances)
        normalized: Array = total / np.maximum(Q.sum(axis=1), 1e-300)
        return normalized

    @cached_property
    def charts(self) -> Charts:
        """The charts in the form that posteriors need."""
        scales, origin = 1 / np.sqrt(self.spread), self.b.mean(axis=0)
        return Charts(
            space=self.space,
            centres=self.centres,
            weights=self.weights,
            gammas=self.gammas,
            maps=np.ascontiguousarray(self.A.transpose(2, 0, 1)) * scales,
            offsets=(self.b - origin) * scales,
            scales=scales,
            log_spread=np.log(self.spread),
            latent=self.latent,
            origin=origin,
        )


def check_pairs(space: Space, x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """Return training directions (N, C) and cues (N, D) as arrays, or raise an InputError."""
    points, cues = space.check(x, "x"), np.asarray(y, dtype=np.float64)
    if cues.ndim != 2 or len(cues) != len(points) or not np.isfinite(cues).all():
        raise InputError(
            f"y must be finite numbers of shape (N, D) with N = {len(points)}, one row per "
            f"direction, got shape {cues.shape}. Remove the rows with missing cues."
        )
    return points, cues


def _forms(matrices: Array, u: Array) -> Array:
    """Return uᵀ M_k u (N, K) for matrices (K, L, L) and coordinates (L, N, K)."""
    total = np.zeros(u.shape[1:])
    for i, a in enumerate(u):
        partial = matrices[:, i, i] * a
        for j in range(i):
            partial += (2 * matrices[:, i, j]) * u[j]
        partial *= a
        total += partial
    return total
