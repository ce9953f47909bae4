"""What `Calibration.judged` says of one sound, of many at once: the windows of a track.

In: statistics (W, D) of W sounds. Out: the same beliefs and misfits, in single precision. With
P = Q' / σ² and ȳ the means of what may be believed, all that a posterior needs of D cues is linear
in P, P ȳ and P ȳ²:

    Z_k = [A_k / √g_k, (ȳ - b_k) / √g_k]
    H_k = Z_kᵀ P Z_k  (L+1, L+1)    N_k = Z_kᵀ P B  (L+1, L_w)    C = Bᵀ P B  (L_w, L_w)

so a few products of matrices serve all windows. For a sound that is believed s times as much, all
of them are those of before times s.

Few charts have a part in a belief. An eighth of the cues tells which may have one, and only for
these charts are all cues looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import logsumexp

from earatlas.hearing.statistics import CueStatistics
from earatlas.learning.calibration import Calibration
from earatlas.learning.ppam import PPAM
from earatlas.space.belief import ChartMixture
from earatlas.space.spaces import Space
from earatlas.types import Array, Indices, Single

__all__ = ["Judged", "Posteriors"]

_EVERY = 8  # cue tells which charts may have a part
_FEWEST_CUES = 60  # that tell it: models with less are looked at whole
# Nats: a chart that is further behind by these cues is left out. With 15 and more, directions of
# 3,600 windows in the open and in a room are those of all charts to 0.001°; with 8, one is not.
_BEHIND = 20.0
_FEW_CHARTS = 16
_PEAKS, _AROUND = 8, 32  # parts at which a density may be greatest, and that it may be made of
_NEGLIGIBLE = 1e-9  # weight of a part


@dataclass(frozen=True, eq=False)
class Posteriors:
    """A model that is asked for many posteriors; what these share is made once."""

    model: PPAM

    def judged(self, calibration: Calibration, statistics: CueStatistics) -> Judged:
        """As `Calibration.judged` for each row of statistics (W, D)."""
        model = self.model
        believed = calibration.believable(statistics, model.noise)
        heard = _Heard(
            (believed.counts / model.noise).astype(np.float32),
            (believed.means - self._middle).astype(np.float32),
        )
        behind = self._behind(heard, calibration)
        beliefs = self._beliefs(heard, behind)
        misfits = self._misfits(believed, beliefs.best()) / calibration.misfit
        return Judged(self, calibration, misfits, heard, behind, beliefs)

    def _behind(self, heard: _Heard, calibration: Calibration) -> Array:
        """Nats (W, K) that charts are behind the best one by some of the cues.

        In units of how badly that one fits: what fits nowhere tells little of where it does not.
        """
        D = heard.P.shape[1]
        if D < _EVERY * _FEWEST_CUES:
            return np.zeros((len(heard.P), len(self.model.weights)))
        some = _Heard(np.float32(_EVERY) * heard.P[:, ::_EVERY], heard.y[:, ::_EVERY])
        rough = self._some_cues.beliefs(some)
        best = np.argmax(rough.log_weights, axis=1)
        fits = rough.fits[np.arange(len(best)), best]
        misfits = fits / (heard.P @ self.model.noise.astype(np.float32)) / calibration.misfit
        gaps = rough.log_weights.max(axis=1, keepdims=True) - rough.log_weights
        behind: Array = gaps / np.maximum(misfits, 1.0)[:, None]
        return behind

    def _beliefs(self, heard: _Heard, behind: Array) -> _Groups:
        """By the charts that may have a part, given how far (W, K) they are behind.

        Nearly all sounds need few charts, and those that need many need nearly all of them.
        """
        near = behind < _BEHIND
        few = near.sum(axis=1) <= _FEW_CHARTS
        groups = []
        for rows in (np.flatnonzero(few), np.flatnonzero(~few)):
            if len(rows):
                charts = self._all_cues.of(np.flatnonzero(near[rows].any(axis=0)))
                groups.append((rows, charts.beliefs(heard[rows])))
        return _Groups(groups)

    def _misfits(self, believed: CueStatistics, directions: Array) -> Array:
        """As `PPAM.misfit` (W,), at a direction (W, C) each."""
        model, Q = self.model, believed.counts
        residual = believed.means - model.forward_map(directions)
        variance = model.noise + (model.latent**2).sum(axis=1)
        total = (Q * residual**2 / variance).sum(axis=1)
        misfits: Array = total / np.maximum(Q.sum(axis=1), 1e-300)
        return misfits

    @cached_property
    def _middle(self) -> Array:
        """(D,) cues are told from here on: squares of small numbers cancel less."""
        middle: Array = self.model.b.mean(axis=0)
        return middle

    @cached_property
    def _all_cues(self) -> _Charts:
        return _Charts.of_model(self.model, self._middle)

    @cached_property
    def _some_cues(self) -> _Charts:
        return self._all_cues.every(_EVERY)


@dataclass(frozen=True, eq=False)
class Judged:
    """What the open-air model says of W sounds; their beliefs are made where they are wanted."""

    _posteriors: Posteriors
    _calibration: Calibration
    misfits: Array  # (W,) in units of what is usual
    _heard: _Heard
    _behind: Array  # (W, K) how far charts are behind
    _plain: _Groups

    def beliefs(self, rows: Indices) -> Iterator[ChartMixture]:
        """Honest beliefs of some of the sounds, as those of `Calibration.judged`."""
        excess = np.maximum(self.misfits[rows], 1.0)
        much = np.flatnonzero(excess > 1)
        relaxed: Iterator[ChartMixture] = iter(())
        if len(much):
            by, own = 1 / excess[much], rows[much]
            heard = self._heard[own].scaled(by)
            found = self._posteriors._beliefs(heard, self._behind[own])
            relaxed = (found.one(n) for n in range(len(much)))
        for row, factor in zip(rows, excess, strict=True):
            belief = next(relaxed) if factor > 1 else self._plain.one(row)
            yield self._calibration.relaxed(factor).blur(belief)


@dataclass(frozen=True, eq=False)
class _Heard:
    """What may be believed of W sounds."""

    P: Single  # (W, D) Q' / σ²
    y: Single  # (W, D) means, from the middle on

    def __getitem__(self, rows: Indices) -> _Heard:
        return _Heard(self.P[rows], self.y[rows])

    def scaled(self, by: Array) -> _Heard:
        """Of sounds that are believed so many (W,) times as much."""
        return _Heard(self.P * by[:, None].astype(np.float32), self.y)


@dataclass(frozen=True, eq=False)
class _Charts:
    """Some charts of a model, in single precision, and some of their cues."""

    space: Space
    centres: Array  # (K, C)
    log_priors: Array  # (K,) with the volumes of Γ
    precisions: Single  # (K, L, L) Γ^-1
    maps: Single  # (K, L, D) A_kᵀ / √g_k
    root: Single  # (K, D) 1 / √g_k
    b: Single  # (K, D) b_k / √g_k
    spread: Single  # (K, D) log g_k σ²
    latent: Single  # (D, L_w) B

    @classmethod
    def of_model(cls, model: PPAM, middle: Array) -> _Charts:
        """All of a model's, with cues told from the middle (D,) on."""
        root = 1 / np.sqrt(model.spread)
        single = (
            np.linalg.inv(model.gammas),
            model.A.transpose(0, 2, 1) * root[:, None],
            root,
            (model.b - middle) * root,
            model.log_spread * model.noise,
            model.latent,
        )
        return cls(
            model.space,
            model.centres,
            np.log(model.weights) - 0.5 * np.linalg.slogdet(model.gammas)[1],
            *(np.ascontiguousarray(part, dtype=np.float32) for part in single),
        )

    def of(self, k: Indices) -> _Charts:
        """Some of the charts."""
        if len(k) == len(self.centres):
            return self
        return _Charts(
            self.space, self.centres[k], self.log_priors[k], self.precisions[k], self.maps[k],
            self.root[k], self.b[k], self.spread[k], self.latent,
        )  # fmt: skip

    def every(self, step: int) -> _Charts:
        """By some of the cues."""
        maps, root, b, spread = (
            np.ascontiguousarray(part[..., ::step])
            for part in (self.maps, self.root, self.b, self.spread)
        )
        latent = self.latent[::step]
        return replace(self, maps=maps, root=root, b=b, spread=spread, latent=latent)

    def beliefs(self, heard: _Heard) -> _Beliefs:
        """The posterior of each row, as `PPAM.posterior`."""
        H, spread = self._forms(heard)
        L = self.space.dims
        precisions = self.precisions + H[..., :L, :L]
        V, log_det = _inverses(precisions)
        h = H[..., :L, L]
        means = (V @ h[..., None])[..., 0]
        fit = H[..., L, L] - (h * means).sum(axis=-1)
        logs = self.log_priors - 0.5 * (log_det + fit + spread)
        logs -= logsumexp(logs, axis=1, keepdims=True)
        return _Beliefs(self.space, self.centres, logs, fit, means, V, precisions, -log_det)

    def _forms(self, heard: _Heard) -> tuple[Single, Single]:
        """Z_kᵀ S Z_k (W, K, L+1, L+1), latent coordinates integrated out, and Σ_d log g_kd Q_d."""
        (W, _), (K, L, _) = heard.P.shape, self.maps.shape
        P, Py = heard.P, heard.P * heard.y
        linear, middles, squares = self._products
        one = (P @ linear).reshape(W, K, -1)
        two = (Py @ middles).reshape(W, K, -1)
        U = self._with_latent(P, Py)
        H: Single = U @ U.mT
        np.negative(H, out=H)
        for n, (i, j) in enumerate(zip(*np.tril_indices(L), strict=True)):
            H[..., i, j] += one[..., n]
            if i != j:
                H[..., j, i] = H[..., i, j]
        linear_part = two[..., :L] - one[..., -L - 2 : -2]
        H[..., :L, L] += linear_part
        H[..., L, :L] = H[..., :L, L]
        H[..., L, L] += (Py * heard.y) @ squares - 2 * two[..., L] + one[..., -2]
        return H, one[..., -1]

    def _with_latent(self, P: Single, Py: Single) -> Single:
        """N_k C^(-1/2) (W, K, L+1, L_w), with C = I + Bᵀ P B (Schur): most of the work."""
        (W, D), (K, L, _), latent = P.shape, self.maps.shape, self.latent.shape[1]
        first, second = (
            (part.T[..., None] * self.latent[:, None]).reshape(D, W * latent) for part in (P, Py)
        )
        C = np.eye(latent)[:, None] + (self.latent.T @ first).reshape(latent, W, latent)
        N = np.empty((K, L + 1, W, latent), dtype=np.float32)
        N[:, :L] = (self.maps.reshape(K * L, D) @ first).reshape(K, L, W, latent)
        N[:, L] = (self.root @ second - self.b @ first).reshape(K, W, latent)
        root = np.linalg.inv(np.linalg.cholesky(C.swapaxes(0, 1))).astype(np.float32)
        U = N.transpose(2, 0, 1, 3).reshape(W, K * (L + 1), latent) @ root.mT
        return U.reshape(W, K, L + 1, latent)

    @cached_property
    def _products(self) -> tuple[Single, Single, Single]:
        """Matrices (D, …) that P, P ȳ and P ȳ² are multiplied with, for each k in a row."""
        maps, root, b = self.maps, self.root, self.b
        rows, columns = np.tril_indices(maps.shape[1])
        linear = [maps[:, rows] * maps[:, columns], maps * b[:, None], (b**2)[:, None],
                  self.spread[:, None]]  # fmt: skip
        middles = [maps * root[:, None], (b * root)[:, None]]
        D = maps.shape[-1]
        one, two = (np.concatenate(parts, axis=1).reshape(-1, D).T for parts in (linear, middles))
        return one, two, (root**2).T


@dataclass(frozen=True, eq=False)
class _Beliefs:
    """p(x) of W sounds over some charts."""

    space: Space
    centres: Array  # (K, C)
    log_weights: Array  # (W, K)
    fits: Single  # (W, K) squared residuals at the means, in units of the noise
    means: Single  # (W, K, L)
    covariances: Single  # (W, K, L, L)
    precisions: Single  # (W, K, L, L)
    log_volumes: Single  # (W, K) log-determinants of the covariances

    def one(self, row: int) -> ChartMixture:
        """Of one sound, without the parts that have no weight to speak of."""
        logs = self.log_weights[row]
        own = np.flatnonzero(logs >= min(np.log(_NEGLIGIBLE), float(logs.max())))
        weights = np.exp(logs[own])
        return ChartMixture(
            self.space,
            self.centres[own],
            weights / weights.sum(),
            self.means[row, own].astype(np.float64),
            self.covariances[row, own].astype(np.float64),
        )

    def best(self) -> Array:
        """(W, C) the means at which the densities are greatest, as `ChartMixture.best`."""
        norms = self.log_weights - 0.5 * self.log_volumes
        most = min(_AROUND, norms.shape[1])
        top = np.argpartition(-norms, most - 1, axis=1)[:, :most]
        rows = np.arange(len(top))[:, None]
        top = top[rows, np.argsort(-norms[rows, top], axis=1)]
        centres, means = self.centres[top], self.means[rows, top]
        points = self.space.exp(centres[:, :_PEAKS], means[:, :_PEAKS])
        r = self.space.log(centres[:, None], points[:, :, None]) - means[:, None]
        white = np.einsum("wklm,wpkm->wpkl", self.precisions[rows, top], r)
        density = logsumexp(norms[rows, top][:, None] - 0.5 * (white * r).sum(axis=-1), axis=-1)
        best: Array = points[rows[:, 0], np.argmax(density, axis=1)]
        return best


@dataclass(frozen=True, eq=False)
class _Groups:
    """Beliefs of sounds in groups that have charts of their own: rows (w,), and theirs."""

    groups: list[tuple[Indices, _Beliefs]]

    def best(self) -> Array:
        """(W, C) as `_Beliefs.best`."""
        rows = np.concatenate([rows for rows, _ in self.groups])
        found = np.concatenate([beliefs.best() for _, beliefs in self.groups])
        best: Array = found[np.argsort(rows)]
        return best

    def one(self, row: int) -> ChartMixture:
        """Of one sound."""
        for rows, beliefs in self.groups:
            place = int(np.searchsorted(rows, row))
            if place < len(rows) and rows[place] == row:
                return beliefs.one(place)
        raise IndexError(row)


def _inverses(M: Single) -> tuple[Single, Single]:
    """Inverses (..., L, L) of symmetric matrices, and log-determinants: by hand for two axes."""
    if M.shape[-1] != 2:
        inverses: Single = np.linalg.inv(M).astype(np.float32)
        return inverses, np.linalg.slogdet(M)[1]
    a, b, c = M[..., 0, 0], M[..., 0, 1], M[..., 1, 1]
    det = a * c - b * b
    V = np.empty_like(M)
    V[..., 0, 0], V[..., 1, 1] = c / det, a / det
    V[..., 0, 1] = V[..., 1, 0] = -b / det
    return V, np.log(det)
