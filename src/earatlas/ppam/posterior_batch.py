"""What `Calibration.judged` says of one sound, of many at once: the windows of a track.

In: statistics (W, D) of W sounds. Out: the same posteriors and misfits, in single precision. With
P = Q' / σ² and ȳ the means of what may be believed, all that a posterior needs of D cues is linear
in P, P ȳ and P ȳ²:

    Z_k = [A_k / √g_k, (ȳ - b_k) / √g_k]
    H_k = Z_kᵀ P Z_k  (L+1, L+1)    N_k = Z_kᵀ P B  (L+1, L_w)    C = Bᵀ P B  (L_w, L_w)

so a few products of matrices serve all windows. For a sound that is believed s times as much, all
of them are those of before times s.

Few charts have a part in a posterior. An eighth of the cues tells which may have one, and only for
these charts are all cues looked at.
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

__all__ = ["Judged", "Posteriors"]

_EVERY = 8  # cue tells which charts may have a part
_FEWEST_CUES = 60  # that tell it: models with less are looked at whole
# Nats: a chart that is further behind by these cues is left out. With 15 and more, directions of
# 3,600 windows in the open and in a room are those of all charts to 0.001°; with 8, one is not.
_BEHIND = 20.0
_FEW_CHARTS = 16
_PEAKS, _AROUND = 8, 32  # parts at which a density may be greatest, and that it may be made of
_LOG_NEGLIGIBLE = math.log(1e-9)  # of a part's weight


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
        posteriors = self._beliefs(heard, behind)
        misfits = self._misfits(believed, posteriors.best()) / calibration.misfit
        return Judged(self, calibration, misfits, heard, behind, posteriors)

    def _behind(self, heard: _Heard, calibration: Calibration) -> Array:
        """Nats (W, K) that charts are behind the best one by some of the cues.

        In units of how badly that one fits: what fits nowhere tells little of where it does not.
        """
        D = heard.P.shape[1]
        if D < _EVERY * _FEWEST_CUES:
            return np.zeros((len(heard.P), len(self.model.weights)))
        some = _Heard(np.float32(_EVERY) * heard.P[:, ::_EVERY], heard.y[:, ::_EVERY])
        rough = self._some_cues.posteriors(some)
        best = np.argmax(rough.log_weights, axis=0)
        columns = np.arange(len(best))
        fits = rough.fits[best, columns]
        misfits = fits / (heard.P @ self.model.noise.astype(np.float32)) / calibration.misfit
        gaps = rough.log_weights[best, columns] - rough.log_weights
        behind: Array = (gaps / np.maximum(misfits, 1.0)).T
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
                groups.append((rows, charts.posteriors(heard[rows])))
        return _Groups(groups)

    def _misfits(self, believed: CueStatistics, directions: Array) -> Array:
        """As `PPAM.misfit` (W,), at a direction (W, C) each."""
        model, Q = self.model, believed.counts
        residual = believed.means
        residual -= self._expected(directions)
        residual *= residual
        residual *= Q
        total = residual @ (1 / (model.noise + (model.latent**2).sum(axis=1)))
        misfits: Array = total / np.maximum(Q.sum(axis=1), 1e-300)
        return misfits

    def _expected(self, directions: Array) -> Array:
        """As `PPAM.forward_map` (W, D), by the charts that have a part in any of them."""
        model = self.model
        logs, u = model.gates(directions)
        logs -= logs.max(axis=1, keepdims=True)
        own = np.flatnonzero((logs > _LOG_NEGLIGIBLE).any(axis=0))
        r = np.exp(logs[:, own])
        r /= r.sum(axis=1, keepdims=True)
        slopes = (r[..., None] * u[:, own]).reshape(len(r), -1)
        maps = model.A[own].transpose(0, 2, 1).reshape(-1, model.A.shape[1])
        expected: Array = slopes @ maps + r @ model.b[own]
        return expected

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
    """What the open-air model says of W sounds; their posteriors are made where they are wanted."""

    _posteriors: Posteriors
    _calibration: Calibration
    misfits: Array  # (W,) in units of what is usual
    _heard: _Heard
    _behind: Array  # (W, K) how far charts are behind
    _plain: _Groups

    def posteriors(self, rows: Indices) -> Iterator[DirectionPosterior]:
        """Honest posteriors of some of the sounds, as those of `Calibration.judged`."""
        excess = np.maximum(self.misfits[rows], 1.0)
        much = np.flatnonzero(excess > 1)
        relaxed = self._plain
        if len(much):
            heard = self._heard[rows[much]].scaled(1 / excess[much])
            relaxed = self._posteriors._beliefs(heard, self._behind[rows[much]])
        place = np.cumsum(excess > 1) - 1
        widths, shares = (np.array(v) for v in (self._calibration.widths, self._calibration.shares))
        for row, own, factor in zip(rows.tolist(), place.tolist(), excess.tolist(), strict=True):
            if factor > 1:
                yield relaxed.one(own, factor**0.5 * widths, shares)
            else:
                yield self._plain.one(row, widths, shares)


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

    def posteriors(self, heard: _Heard) -> _Beliefs:
        """The posterior of each row, as `PPAM.posterior`."""
        H, spread = self._forms(heard)
        L = self.space.dims
        precisions = H[:L, :L] + self.precisions.transpose(1, 2, 0)[..., None]
        V, log_det = _inverses(precisions)
        means = (V * H[:L, L]).sum(axis=1)
        fit = H[L, L] - (H[:L, L] * means).sum(axis=0)
        logs = self.log_priors[:, None] - 0.5 * (log_det + fit + spread)
        logs -= logs.max(axis=0)
        logs -= np.log(np.exp(logs).sum(axis=0))
        return _Beliefs(self.space, self.centres, logs, fit, means, V, precisions, -log_det)

    def _forms(self, heard: _Heard) -> tuple[Single, Single]:
        """Z_kᵀ S Z_k (L+1, L+1, K, W), latent coordinates integrated out, and Σ_d log g_kd Q_d."""
        W, (K, L, _) = len(heard.P), self.maps.shape
        P = np.ascontiguousarray(heard.P.T)
        y = np.ascontiguousarray(heard.y.T)
        linear, middles, squares = self._products
        one = (linear @ P).reshape(-1, K, W)
        two = (middles @ (P * y)).reshape(-1, K, W)
        H = np.empty((L + 1, L + 1, K, W), dtype=np.float32)
        for n, (i, j) in enumerate(zip(*np.tril_indices(L), strict=True)):
            H[i, j] = one[n]
        np.subtract(two[:L], one[-L - 2 : -2], out=H[L, :L])
        np.subtract(squares @ (P * y * y), 2 * two[L], out=H[L, L])
        H[L, L] += one[-2]
        if self.latent.shape[1]:
            U = self._with_latent(P, y)
            for i, j in zip(*np.tril_indices(L + 1), strict=True):
                H[i, j] -= (U[i] * U[j]).sum(axis=1)
        for i, j in zip(*np.triu_indices(L + 1, 1), strict=True):
            H[i, j] = H[j, i]
        return H, one[-1]

    def _with_latent(self, P: Single, y: Single) -> Single:
        """N_k C^(-1/2) (L+1, K, L_w, W), with C = I + Bᵀ P B (Schur), of P and ȳ (D, W)."""
        (D, W), (K, L, _), latent = P.shape, self.maps.shape, self.latent.shape[1]
        pairs = (self.latent[:, :, None] * self.latent[:, None]).reshape(D, -1)
        C = np.eye(latent) + (pairs.T @ P).T.reshape(W, latent, latent)
        root = np.linalg.inv(np.linalg.cholesky(C)).astype(np.float32)
        first = (self.latent @ root.transpose(2, 1, 0).reshape(latent, -1)).reshape(D, latent, W)
        first *= P[:, None]
        second = first * y[:, None]
        U = np.empty((L + 1, K, latent, W), dtype=np.float32)
        rows = self._rows
        np.matmul(rows[:-1], first.reshape(D, -1), out=U.reshape(L + 1, K, -1))
        U[L] *= -1
        U[L] += (rows[-1] @ second.reshape(D, -1)).reshape(K, latent, W)
        return U

    @cached_property
    def _rows(self) -> Single:
        """(L+2, K, D): the maps, b and 1 / √g, an axis after the other."""
        return np.concatenate([self.maps.transpose(1, 0, 2), self.b[None], self.root[None]])

    @cached_property
    def _products(self) -> tuple[Single, Single, Single]:
        """Matrices (… K, D) that P, P ȳ and P ȳ² are multiplied with."""
        maps, b, root = self._rows[:-2], self.b, self.root
        rows, columns = np.tril_indices(len(maps))
        linear = [maps[rows] * maps[columns], maps * b, (b**2)[None], self.spread[None]]
        middles = [maps * root, (b * root)[None]]
        D = maps.shape[-1]
        one, two = (np.concatenate(parts).reshape(-1, D) for parts in (linear, middles))
        return one, two, root**2


@dataclass(frozen=True, eq=False)
class _Beliefs:
    """p(x) of W sounds over some charts."""

    space: Space
    centres: Array  # (K, C)
    log_weights: Array  # (K, W)
    fits: Single  # (K, W) squared residuals at the means, in units of the noise
    means: Single  # (L, K, W)
    covariances: Single  # (L, L, K, W)
    precisions: Single  # (L, L, K, W)
    log_volumes: Single  # (K, W) log-determinants of the covariances

    def one(self, row: int, widths: Array, shares: Array) -> DirectionPosterior:
        """Of one sound, as `Calibration.blur` has it with these widths and shares (J,).

        Parts that have no weight to speak of are left out.
        """
        logs = self.log_weights[:, row]
        own = np.flatnonzero(logs >= min(_LOG_NEGLIGIBLE, float(logs.max())))
        weights = np.exp(logs[own])
        weights /= weights.sum()
        every, L = np.concatenate([own] * len(widths)), self.space.dims
        V = np.multiply.outer(widths**2, np.eye(L))[:, None] + np.zeros((len(own), 1, 1))
        V += self.covariances[:, :, own, row].transpose(2, 0, 1)
        return DirectionPosterior(
            self.space,
            self.centres[every],
            np.multiply.outer(shares / shares.sum(), weights).ravel(),
            self.means[:, every, row].T.astype(np.float64),
            V.reshape(-1, L, L),
        )

    def best(self) -> Array:
        """(W, C) the means at which the densities are greatest, as `DirectionPosterior.best`."""
        norms = np.ascontiguousarray((self.log_weights - 0.5 * self.log_volumes).T)
        most = min(_AROUND, norms.shape[1])
        top = np.argpartition(-norms, most - 1, axis=1)[:, :most]
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
class _Groups:
    """Beliefs of sounds in groups that have charts of their own: rows (w,), and theirs."""

    groups: list[tuple[Indices, _Beliefs]]

    def best(self) -> Array:
        """(W, C) as `_Beliefs.best`."""
        rows = np.concatenate([rows for rows, _ in self.groups])
        found = np.concatenate([posteriors.best() for _, posteriors in self.groups])
        best: Array = found[np.argsort(rows)]
        return best

    def one(self, row: int, widths: Array, shares: Array) -> DirectionPosterior:
        """Of one sound, as `_Beliefs.one`."""
        posteriors, place = self._places[row]
        return posteriors.one(place, widths, shares)

    @cached_property
    def _places(self) -> dict[int, tuple[_Beliefs, int]]:
        """The group of each sound, and which of it that is."""
        return {
            row: (posteriors, place)
            for rows, posteriors in self.groups
            for place, row in enumerate(rows.tolist())
        }


def _inverses(M: Single) -> tuple[Single, Single]:
    """Inverses of symmetric matrices (L, L, ...), and log-determinants: by hand for two axes."""
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
