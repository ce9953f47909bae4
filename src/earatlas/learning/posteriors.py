"""What `Calibration.judged` says of one sound, of many at once: the windows of a track.

In: statistics (W, D) of W sounds. Out: the same beliefs and misfits. With P = Q' / σ² and ȳ the
means of what may be believed, all that a posterior needs of D cues is linear in P, P ȳ and P ȳ²:

    Z_k = [A_k / √g_k, (ȳ - b_k) / √g_k]
    H_k = Z_kᵀ P Z_k  (L+1, L+1)    N_k = Z_kᵀ P B  (L+1, L_w)    C = Bᵀ P B  (L_w, L_w)

so a few products of matrices serve all windows. P enters nothing else: for a sound that is believed
s times as much, H, N and C are those of before times s, and cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import logsumexp

from earatlas.hearing.statistics import CueStatistics
from earatlas.learning.calibration import Calibration
from earatlas.learning.ppam import PPAM
from earatlas.space.belief import ChartMixture
from earatlas.types import Array, Indices

__all__ = ["Posteriors"]


@dataclass(frozen=True, eq=False)
class Posteriors:
    """A model that is asked for many posteriors; what these share is made once."""

    model: PPAM

    def judged(
        self, calibration: Calibration, statistics: CueStatistics
    ) -> list[tuple[ChartMixture, float]]:
        """As `Calibration.judged` for each row of statistics (W, D)."""
        model = self.model
        believed = calibration.believable(statistics, model.noise)
        forms = self._forms(believed)
        beliefs = self._beliefs(forms)
        best = np.stack([belief.best for belief in beliefs])
        excesses = self._misfits(believed, best) / calibration.misfit
        much = np.flatnonzero(excesses > 1)
        relaxed = self._beliefs(forms[much].scaled(1 / excesses[much]))
        for row, belief in zip(much, relaxed, strict=True):
            beliefs[row] = belief
        return [
            (calibration.relaxed(max(excess, 1.0)).blur(belief), excess)
            for belief, excess in zip(beliefs, map(float, excesses), strict=True)
        ]

    def _beliefs(self, forms: _Forms) -> list[ChartMixture]:
        """The posterior of each row, as `PPAM.posterior`."""
        model, L = self.model, self.model.space.dims
        H = forms.joint()
        V = np.linalg.inv(self._prior_precisions + H[..., :L, :L])
        V = 0.5 * (V + V.mT)
        h = H[..., :L, L]
        means = np.einsum("wklm,wkm->wkl", V, h)
        fit = H[..., L, L] - (h * means).sum(axis=-1)
        logs = self._prior_logs + 0.5 * (np.linalg.slogdet(V)[1] - fit - forms.spread)
        weights = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
        return [
            ChartMixture(model.space, model.centres, *parts)
            for parts in zip(weights, means, V, strict=True)
        ]

    def _forms(self, believed: CueStatistics) -> _Forms:
        model, (K, _, L) = self.model, self.model.A.shape
        P = believed.counts / model.noise
        y = believed.means - self._middle
        W = len(P)
        linear, middles, squares = self._forms_of_cues
        one = (P @ linear).reshape(W, K, -1)
        two = ((P * y) @ middles).reshape(W, K, -1)
        H = np.empty((W, K, L + 1, L + 1))
        rows, columns = np.tril_indices(L)
        pairs = len(rows)
        H[..., rows, columns] = H[..., columns, rows] = one[..., :pairs]
        H[..., :L, L] = H[..., L, :L] = two[..., :L] - one[..., pairs : pairs + L]
        H[..., L, L] = (P * y**2) @ squares - 2 * two[..., L] + one[..., pairs + L]
        PB = P[..., None] * model.latent  # (W, D, L_w)
        return _Forms(H, self._with_latent(PB, y), model.latent.T @ PB, one[..., -1])

    def _with_latent(self, PB: Array, y: Array) -> Array:
        """N (W, K, L+1, L_w): half of the work."""
        K, D, L = self.model.A.shape
        W, _, latent = PB.shape
        maps, root, b = self._parts
        first, second = (
            part.transpose(1, 0, 2).reshape(D, W * latent) for part in (PB, PB * y[..., None])
        )
        N = np.empty((K, L + 1, W, latent))
        N[:, :L] = (maps.reshape(K * L, D) @ first).reshape(K, L, W, latent)
        N[:, L] = (root @ second - b @ first).reshape(K, W, latent)
        return N.transpose(2, 0, 1, 3)

    def _misfits(self, believed: CueStatistics, directions: Array) -> Array:
        """As `PPAM.misfit` (W,), at a direction (W, C) each."""
        model, Q = self.model, believed.counts
        residual = believed.means - model.forward_map(directions)
        variance = model.noise + (model.latent**2).sum(axis=1)
        total = (Q * residual**2 / variance).sum(axis=1)
        misfits: Array = total / np.maximum(Q.sum(axis=1), 1e-300)
        return misfits

    # --- what all windows share --------------------------------------------------------------

    @cached_property
    def _middle(self) -> Array:
        """(D,) cues are told from here on: squares of small numbers cancel less."""
        middle: Array = self.model.b.mean(axis=0)
        return middle

    @cached_property
    def _parts(self) -> tuple[Array, Array, Array]:
        """A_kᵀ / √g_k (K, L, D), 1 / √g_k and b_k / √g_k (K, D)."""
        root = 1 / np.sqrt(self.model.spread)
        maps = self.model.A.transpose(0, 2, 1) * root[:, None]
        return maps, root, (self.model.b - self._middle) * root

    @cached_property
    def _forms_of_cues(self) -> tuple[Array, Array, Array]:
        """Matrices (D, …) that P, P ȳ and P ȳ² are multiplied with, for each k in a row."""
        maps, root, b = self._parts
        rows, columns = np.tril_indices(maps.shape[1])
        spread = self.model.log_spread * self.model.noise
        linear = [maps[:, rows] * maps[:, columns], maps * b[:, None], (b**2)[:, None],
                  spread[:, None]]  # fmt: skip
        middles = [maps * root[:, None], (b * root)[:, None]]
        D = maps.shape[-1]
        one, two = (
            np.ascontiguousarray(np.concatenate(parts, axis=1).reshape(-1, D).T)
            for parts in (linear, middles)
        )
        return one, two, np.ascontiguousarray((root**2).T)

    @cached_property
    def _prior_precisions(self) -> Array:
        return np.asarray(np.linalg.inv(self.model.gammas), dtype=np.float64)

    @cached_property
    def _prior_logs(self) -> Array:
        logs: Array = np.log(self.model.weights) - 0.5 * np.linalg.slogdet(self.model.gammas)[1]
        return logs


@dataclass(frozen=True, eq=False)
class _Forms:
    """H, N, C of W windows, and what the spread of each component costs."""

    H: Array  # (W, K, L+1, L+1)
    N: Array  # (W, K, L+1, L_w)
    C: Array  # (W, L_w, L_w)
    spread: Array  # (W, K) Σ_d log g_kd Q_d

    def __getitem__(self, rows: Indices) -> _Forms:
        return _Forms(self.H[rows], self.N[rows], self.C[rows], self.spread[rows])

    def scaled(self, by: Array) -> _Forms:
        """Of windows that are believed so many (W,) times as much."""
        each = by[:, None, None, None]
        return _Forms(self.H * each, self.N * each, self.C * by[:, None, None],
                      self.spread * by[:, None])  # fmt: skip

    def joint(self) -> Array:
        """Z_kᵀ S Z_k (W, K, L+1, L+1), with the latent coordinates integrated out (Schur)."""
        W, K, n, latent = self.N.shape
        root = np.linalg.inv(np.linalg.cholesky(np.eye(latent) + self.C))
        U = (self.N.reshape(W, K * n, latent) @ root.mT).reshape(W, K, n, latent)
        return self.H - U @ U.mT
