"""Calibrated posteriors of many sounds at once, such as the windows of a track.

Input: statistics (W, D) of W sounds. Output: the posteriors and normalized residuals of
`Calibration.calibrated_posterior`, in single precision. With P = Q' / σ² and ȳ = R' / Q' of the
effective statistics, everything that a posterior needs of the D cues is linear in P, P ȳ and P ȳ²:

    Z_k = [A_k / √g_k, (ȳ - b_k) / √g_k]
    H_k = Z_kᵀ P Z_k  (L+1, L+1)    N_k = Z_kᵀ P B  (L+1, L_w)    C = Bᵀ P B  (L_w, L_w)

so a few matrix products serve all windows. Tempering a sound scales all of them by one factor.

Few charts have a noticeable weight in a posterior. An eighth of the cues selects the candidates,
and only for these all cues are used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import logsumexp

from earatlas.features.statistics import CueStatistics
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Space
from earatlas.ppam.calibration import Calibration
from earatlas.ppam.model import PPAM
from earatlas.types import Array, Indices, Single

__all__ = ["CalibratedPosteriorBatch", "PosteriorBatch"]

# Evidence: docs/figures/settings/ppam.md, "posterior_batch".
_CUE_STEP = 8  # every eighth cue selects the candidate charts
_MIN_SELECTION_CUES = 60  # models with fewer selection cues use all charts
_MAX_GAP_NATS = 20.0  # charts that fall further behind the best one are left out
_FEW_CHARTS = 16  # sounds with at most so many candidates are processed together
_PEAKS, _NEIGHBOURS = 8, 32  # components tried as the maximum, and summed to compute the density
_LOG_NEGLIGIBLE = math.log(1e-9)  # weight of a component that is left out


@dataclass(frozen=True, eq=False)
class PosteriorBatch:
    """Computes posteriors of a model for batches of sounds; common arrays are computed once."""

    model: PPAM

    def calibrated_posterior(
        self, calibration: Calibration, statistics: CueStatistics
    ) -> CalibratedPosteriorBatch:
        """Return `Calibration.calibrated_posterior` for each row of statistics (W, D)."""
        model = self.model
        effective = calibration.effective_statistics(statistics, model.noise)
        cues = _WeightedCues(
            (effective.counts / model.noise).astype(np.float32),
            (effective.means - self._offset).astype(np.float32),
        )
        gaps = self._chart_gaps(cues, calibration)
        posteriors = self._grouped_posteriors(cues, gaps)
        residuals = self._normalized_residuals(effective, posteriors.best())
        residual_ratios = residuals / calibration.max_residual
        return CalibratedPosteriorBatch(self, calibration, residual_ratios, cues, gaps, posteriors)

    def _chart_gaps(self, cues: _WeightedCues, calibration: Calibration) -> Array:
        """Return by how many nats (W, K) charts fall behind the best one, by some of the cues.

        The gaps are divided by the residual ratio of the best chart if that exceeds 1, because
        a sound that fits no chart discriminates less between charts.
        """
        D = cues.P.shape[1]
        if D < _CUE_STEP * _MIN_SELECTION_CUES:
            return np.zeros((len(cues.P), len(self.model.weights)))
        some = _WeightedCues(np.float32(_CUE_STEP) * cues.P[:, ::_CUE_STEP], cues.y[:, ::_CUE_STEP])
        approximate = self._selection_charts.posteriors(some)
        best = np.argmax(approximate.log_weights, axis=0)
        columns = np.arange(len(best))
        fits = approximate.fits[best, columns]
        residuals = fits / (cues.P @ self.model.noise.astype(np.float32))
        residual_ratios = residuals / calibration.max_residual
        gaps = approximate.log_weights[best, columns] - approximate.log_weights
        scaled: Array = (gaps / np.maximum(residual_ratios, 1.0)).T
        return scaled

    def _grouped_posteriors(self, cues: _WeightedCues, gaps: Array) -> _PosteriorGroups:
        """Compute posteriors with the candidate charts, given their gaps (W, K) in nats.

        Most sounds need few charts, and those that need many need nearly all of them, so that two
        groups are enough.
        """
        candidates = gaps < _MAX_GAP_NATS
        few = candidates.sum(axis=1) <= _FEW_CHARTS
        groups = []
        for rows in (np.flatnonzero(few), np.flatnonzero(~few)):
            if len(rows):
                charts = self._charts.subset(np.flatnonzero(candidates[rows].any(axis=0)))
                groups.append((rows, charts.posteriors(cues[rows])))
        return _PosteriorGroups(groups)

    def _normalized_residuals(self, effective: CueStatistics, directions: Array) -> Array:
        """Return `PPAM.normalized_residual` (W,) at one direction (W, C) per sound."""
        model, Q = self.model, effective.counts
        residual = effective.means
        residual -= self._expected_cues(directions)
        residual *= residual
        residual *= Q
        total = residual @ (1 / (model.noise + (model.latent**2).sum(axis=1)))
        residuals: Array = total / np.maximum(Q.sum(axis=1), 1e-300)
        return residuals

    def _expected_cues(self, directions: Array) -> Array:
        """Return `PPAM.forward_map` (W, D), using only the charts with a noticeable weight."""
        model = self.model
        logs, u = model.log_gating(directions)
        logs -= logs.max(axis=1, keepdims=True)
        charts = np.flatnonzero((logs > _LOG_NEGLIGIBLE).any(axis=0))
        r = np.exp(logs[:, charts])
        r /= r.sum(axis=1, keepdims=True)
        slopes = (r[..., None] * u[:, charts]).reshape(len(r), -1)
        maps = model.A[charts].transpose(0, 2, 1).reshape(-1, model.A.shape[1])
        expected: Array = slopes @ maps + r @ model.b[charts]
        return expected

    @cached_property
    def _offset(self) -> Array:
        """Offset (D,) that is subtracted from all cues for numerical precision."""
        offset: Array = self.model.b.mean(axis=0)
        return offset

    @cached_property
    def _charts(self) -> _SingleCharts:
        return _SingleCharts.of_model(self.model, self._offset)

    @cached_property
    def _selection_charts(self) -> _SingleCharts:
        return self._charts.every(_CUE_STEP)


@dataclass(frozen=True, eq=False)
class CalibratedPosteriorBatch:
    """Normalized residuals of W sounds under the anechoic model, and posteriors on demand."""

    _batch: PosteriorBatch
    _calibration: Calibration
    residual_ratios: Array  # (W,) normalized residuals divided by `Calibration.max_residual`
    _cues: _WeightedCues
    _gaps: Array  # (W, K) nats by which charts fall behind the best one
    _unrelaxed: _PosteriorGroups

    def posteriors(self, rows: Indices) -> Iterator[DirectionPosterior]:
        """Yield the calibrated posteriors of some of the sounds."""
        excess = np.maximum(self.residual_ratios[rows], 1.0)
        exceeding = np.flatnonzero(excess > 1)
        relaxed = self._unrelaxed
        if len(exceeding):
            cues = self._cues[rows[exceeding]].scaled(1 / excess[exceeding])
            relaxed = self._batch._grouped_posteriors(cues, self._gaps[rows[exceeding]])
        index = np.cumsum(excess > 1) - 1
        widths = np.array(self._calibration.kernel_widths)
        weights = np.array(self._calibration.kernel_weights)
        for row, i, factor in zip(rows.tolist(), index.tolist(), excess.tolist(), strict=True):
            if factor > 1:
                yield relaxed.one(i, factor**0.5 * widths, weights)
            else:
                yield self._unrelaxed.one(row, widths, weights)


@dataclass(frozen=True, eq=False)
class _WeightedCues:
    """Effective statistics of W sounds."""

    P: Single  # (W, D) Q' / σ²
    y: Single  # (W, D) means, minus the offset

    def __getitem__(self, rows: Indices) -> _WeightedCues:
        return _WeightedCues(self.P[rows], self.y[rows])

    def scaled(self, factors: Array) -> _WeightedCues:
        """Return the cues with their precisions multiplied by factors (W,)."""
        return _WeightedCues(self.P * factors[:, None].astype(np.float32), self.y)


@dataclass(frozen=True, eq=False)
class _SingleCharts:
    """Some charts of a model and some of their cues, in single precision."""

    space: Space
    centres: Array  # (K, C)
    log_priors: Array  # (K,) log weights minus half the log determinants of Γ
    precisions: Single  # (K, L, L) Γ^-1
    maps: Single  # (K, L, D) A_kᵀ / √g_k
    root: Single  # (K, D) 1 / √g_k
    b: Single  # (K, D) b_k / √g_k
    spread: Single  # (K, D) log g_k σ²
    latent: Single  # (D, L_w) B

    @classmethod
    def of_model(cls, model: PPAM, offset: Array) -> _SingleCharts:
        """Return all charts of a model, with the offset (D,) subtracted from the cues."""
        root = 1 / np.sqrt(model.spread)
        single = (
            np.linalg.inv(model.gammas),
            model.A.transpose(0, 2, 1) * root[:, None],
            root,
            (model.b - offset) * root,
            model.log_spread * model.noise,
            model.latent,
        )
        return cls(
            model.space,
            model.centres,
            np.log(model.weights) - 0.5 * np.linalg.slogdet(model.gammas)[1],
            *(np.ascontiguousarray(part, dtype=np.float32) for part in single),
        )

    def subset(self, k: Indices) -> _SingleCharts:
        """Return some of the charts."""
        if len(k) == len(self.centres):
            return self
        return _SingleCharts(
            self.space, self.centres[k], self.log_priors[k], self.precisions[k], self.maps[k],
            self.root[k], self.b[k], self.spread[k], self.latent,
        )  # fmt: skip

    def every(self, step: int) -> _SingleCharts:
        """Return the charts with every `step`-th cue."""
        maps, root, b, spread = (
            np.ascontiguousarray(part[..., ::step])
            for part in (self.maps, self.root, self.b, self.spread)
        )
        latent = self.latent[::step]
        return replace(self, maps=maps, root=root, b=b, spread=spread, latent=latent)

    def posteriors(self, cues: _WeightedCues) -> _PosteriorArrays:
        """Return the posterior of each row, as `PPAM.posterior`."""
        H, spread = self._forms(cues)
        L = self.space.dims
        precisions = H[:L, :L] + self.precisions.transpose(1, 2, 0)[..., None]
        V, log_det = _inverses(precisions)
        means = (V * H[:L, L]).sum(axis=1)
        fit = H[L, L] - (H[:L, L] * means).sum(axis=0)
        logs = self.log_priors[:, None] - 0.5 * (log_det + fit + spread)
        logs -= logs.max(axis=0)
        logs -= np.log(np.exp(logs).sum(axis=0))
        return _PosteriorArrays(self.space, self.centres, logs, fit, means, V, precisions, -log_det)

    def _forms(self, cues: _WeightedCues) -> tuple[Single, Single]:
        """Return Z_kᵀ S Z_k (L+1, L+1, K, W), latent part integrated out, and Σ_d log g_kd Q_d."""
        W, (K, L, _) = len(cues.P), self.maps.shape
        P = np.ascontiguousarray(cues.P.T)
        y = np.ascontiguousarray(cues.y.T)
        constant, linear, quadratic = self._products
        one = (constant @ P).reshape(-1, K, W)
        two = (linear @ (P * y)).reshape(-1, K, W)
        H = np.empty((L + 1, L + 1, K, W), dtype=np.float32)
        for n, (i, j) in enumerate(zip(*np.tril_indices(L), strict=True)):
            H[i, j] = one[n]
        np.subtract(two[:L], one[-L - 2 : -2], out=H[L, :L])
        np.subtract(quadratic @ (P * y * y), 2 * two[L], out=H[L, L])
        H[L, L] += one[-2]
        if self.latent.shape[1]:
            U = self._latent_projections(P, y)
            for i, j in zip(*np.tril_indices(L + 1), strict=True):
                H[i, j] -= (U[i] * U[j]).sum(axis=1)
        for i, j in zip(*np.triu_indices(L + 1, 1), strict=True):
            H[i, j] = H[j, i]
        return H, one[-1]

    def _latent_projections(self, P: Single, y: Single) -> Single:
        """Return N_k C^(-1/2) (L+1, K, L_w, W), C = I + Bᵀ P B (Schur), of P and ȳ (D, W)."""
        (D, W), (K, L, _), latent = P.shape, self.maps.shape, self.latent.shape[1]
        pairs = (self.latent[:, :, None] * self.latent[:, None]).reshape(D, -1)
        C = np.eye(latent) + (pairs.T @ P).T.reshape(W, latent, latent)
        root = np.linalg.inv(np.linalg.cholesky(C)).astype(np.float32)
        first = (self.latent @ root.transpose(2, 1, 0).reshape(latent, -1)).reshape(D, latent, W)
        first *= P[:, None]
        second = first * y[:, None]
        U = np.empty((L + 1, K, latent, W), dtype=np.float32)
        rows = self._stacked
        np.matmul(rows[:-1], first.reshape(D, -1), out=U.reshape(L + 1, K, -1))
        U[L] *= -1
        U[L] += (rows[-1] @ second.reshape(D, -1)).reshape(K, latent, W)
        return U

    @cached_property
    def _stacked(self) -> Single:
        """The maps, b and 1 / √g, stacked to (L+2, K, D)."""
        return np.concatenate([self.maps.transpose(1, 0, 2), self.b[None], self.root[None]])

    @cached_property
    def _products(self) -> tuple[Single, Single, Single]:
        """Matrices (… K, D) that multiply P, P ȳ and P ȳ²."""
        maps, b, root = self._stacked[:-2], self.b, self.root
        rows, columns = np.tril_indices(len(maps))
        constant = [maps[rows] * maps[columns], maps * b, (b**2)[None], self.spread[None]]
        linear = [maps * root, (b * root)[None]]
        D = maps.shape[-1]
        one, two = (np.concatenate(parts).reshape(-1, D) for parts in (constant, linear))
        return one, two, root**2


@dataclass(frozen=True, eq=False)
class _PosteriorArrays:
    """Posteriors of W sounds over some charts."""

    space: Space
    centres: Array  # (K, C)
    log_weights: Array  # (K, W)
    fits: Single  # (K, W) squared residuals at the means, relative to the noise
    means: Single  # (L, K, W)
    covariances: Single  # (L, L, K, W)
    precisions: Single  # (L, L, K, W)
    log_volumes: Single  # (K, W) log-determinants of the covariances

    def one(self, row: int, kernel_widths: Array, kernel_weights: Array) -> DirectionPosterior:
        """Return the posterior of one sound, convolved with a kernel (J,).

        Components of negligible weight are left out.
        """
        logs = self.log_weights[:, row]
        kept = np.flatnonzero(logs >= min(_LOG_NEGLIGIBLE, float(logs.max())))
        weights = np.exp(logs[kept])
        weights /= weights.sum()
        repeated, L = np.concatenate([kept] * len(kernel_widths)), self.space.dims
        V = np.multiply.outer(kernel_widths**2, np.eye(L))[:, None] + np.zeros((len(kept), 1, 1))
        V += self.covariances[:, :, kept, row].transpose(2, 0, 1)
        return DirectionPosterior(
            self.space,
            self.centres[repeated],
            np.multiply.outer(kernel_weights / kernel_weights.sum(), weights).ravel(),
            self.means[:, repeated, row].T.astype(np.float64),
            V.reshape(-1, L, L),
        )

    def best(self) -> Array:
        """Return the best directions (W, C), as `DirectionPosterior.best`."""
        norms = np.ascontiguousarray((self.log_weights - 0.5 * self.log_volumes).T)
        count = min(_NEIGHBOURS, norms.shape[1])
        top = np.argpartition(-norms, count - 1, axis=1)[:, :count]
        rows = np.arange(len(top))[:, None]
        top = top[rows, np.argsort(-norms[rows, top], axis=1)]
        centres, means = self.centres[top], np.moveaxis(self.means[:, top, rows], 0, -1)
        points = self.space.exp(centres[:, :_PEAKS], means[:, :_PEAKS])
        r = self.space.log(centres[:, None], points[:, :, None]) - means[:, None]
        white = np.einsum("lmwk,wpkm->wpkl", self.precisions[:, :, top, rows], r)
        density = logsumexp(norms[rows, top][:, None] - 0.5 * (white * r).sum(axis=-1), axis=-1)
        best: Array = points[rows[:, 0], np.argmax(density, axis=1)]
        return best


@dataclass(frozen=True, eq=False)
class _PosteriorGroups:
    """Posteriors of sounds in groups, each with its own candidate charts."""

    groups: list[tuple[Indices, _PosteriorArrays]]  # rows (w,) of the sounds, and their posteriors

    def best(self) -> Array:
        """Return the best directions (W, C)."""
        rows = np.concatenate([rows for rows, _ in self.groups])
        directions = np.concatenate([posteriors.best() for _, posteriors in self.groups])
        best: Array = directions[np.argsort(rows)]
        return best

    def one(self, row: int, kernel_widths: Array, kernel_weights: Array) -> DirectionPosterior:
        """Return the posterior of one sound, convolved with a kernel (J,)."""
        posteriors, index = self._index[row]
        return posteriors.one(index, kernel_widths, kernel_weights)

    @cached_property
    def _index(self) -> dict[int, tuple[_PosteriorArrays, int]]:
        """The group of each sound, and its index in the group."""
        return {
            row: (posteriors, index)
            for rows, posteriors in self.groups
            for index, row in enumerate(rows.tolist())
        }


def _inverses(M: Single) -> tuple[Single, Single]:
    """Return inverses and log determinants of symmetric matrices (L, L, ...)."""
    if len(M) != 2:
        last = np.moveaxis(M, (0, 1), (-2, -1))
        inverses = np.moveaxis(np.linalg.inv(last), (-2, -1), (0, 1)).astype(np.float32)
        return inverses, np.linalg.slogdet(last)[1]
    (a, b), (_, c) = M
    det = a * c - b * b
    V = np.empty_like(M)
    np.divide(c, det, out=V[0, 0])
    np.divide(a, det, out=V[1, 1])
    np.divide(-b, det, out=V[0, 1])
    V[1, 0] = V[0, 1]
    return V, np.log(det)
