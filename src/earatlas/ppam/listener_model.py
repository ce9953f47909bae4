"""A PPAM of a head that is only partly known: its charts may deviate as people deviate.

Input: what is known about a listener. Output: `ListenerPPAM`, a PPAM whose posterior integrates
over the deviations of the head that made the recording from the expected one.

    z (J,)            deviation of the head at the direction of a recording, z ~ N(0, I)
    A_k, b_k          charts of the expected head (K, D, L), (K, D)
    β_k (K, H, J)     loadings: how the cues of band h change with z at chart k
    ψ_kd (K, D)       variance of what neither the charts nor z explain
    h(d)              band of cue d (`earatlas.ppam.cue_bands`)

    y_d | x, k, z ~ N(a_kd·u_k(x) + b_kd + β_k,h(d)·z, ψ_kd)

Integrating z out gives the covariance β_k β_kᵀ + ψ_k, which differs between charts: people differ
in other cues in front than behind. This is what resolves the cone of confusion for an unknown head;
one covariance for all charts does not (docs/figures/settings/population.md, "model").
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from earatlas.features.statistics import CueStatistics
from earatlas.numerics import half_solve
from earatlas.ppam.cue_bands import CueBands
from earatlas.ppam.model import PPAM
from earatlas.ppam.posterior import ChartPosteriors, ChartPriors
from earatlas.types import Array, Indices

__all__ = ["ListenerPPAM"]


# Evidence: docs/figures/settings/population.md, "model".
@dataclass(frozen=True, slots=True)
class ChartSelectionSettings:
    """Selection of the charts of many sounds; it changes the time, not the result."""

    coordinates: int = 8  # leading coordinates of z that select the charts
    max_gap_nats: float = 25.0  # charts that fall further behind the best one are left out
    sounds_at_once: int = 40  # sounds for which all charts are compared at once
    sounds_together: int = 8  # sounds of which the selected charts are evaluated together


_SELECTION = ChartSelectionSettings()


@dataclass(frozen=True, eq=False, repr=False)
class ListenerPPAM(PPAM):
    """PPAM with deviations of the head that are integrated out for every recording.

    p(x, y) = sum_k weights[k] N(u_k(x); 0, gammas[k]) N(y; A[k] u_k(x) + b[k], C[k]), with
    C[k] = diag(residual[k]) + E loadings[k] loadings[k]ᵀ Eᵀ, where E repeats the value of a band
    for all of its cues. `noise` and `spread` describe the diagonal of C, for everything that treats
    cues as independent.
    """

    bands: CueBands = field(kw_only=True)
    loadings: Array = field(kw_only=True)  # (K, H, J) β
    residual: Array = field(kw_only=True)  # (K, D) ψ

    def posteriors(self, statistics: CueStatistics, *, all_charts: bool = True) -> ChartPosteriors:
        """Return the posteriors of W sounds.

        Parameters
        ----------
        statistics : CueStatistics
            Statistics (W, D) of W sounds, as for `PPAM.posterior`.
        all_charts : bool, default True
            Whether to evaluate every chart. If not, charts that cannot have a noticeable
            probability have the weight 0.

        Returns
        -------
        ChartPosteriors
            A sequence of W posteriors. `logs` are log p(recording, k), but for constants that
            depend on the recording alone.
        """
        if all_charts:
            prior = ChartPriors(self.space, self.centres, self.weights, self.gammas)
            return prior.given(*self._forms(statistics))
        step = _SELECTION.sounds_at_once
        starts = range(0, len(statistics.counts), step)
        return ChartPosteriors.concatenate(
            [self._selected_posteriors(statistics[first : first + step]) for first in starts]
        )

    def log_joint(self, statistics: CueStatistics, charts: Indices) -> Array:
        """Return log p(recording, k) of one sound in some charts.

        Parameters
        ----------
        statistics : CueStatistics
            Statistics (D,) of one sound.
        charts : ndarray of int
            Indices k of the charts.

        Returns
        -------
        ndarray
            One value per chart, but for a constant that depends on the recording alone.
        """
        logs: Array = self._some_charts(CueStatistics.stack([statistics]), charts).logs[:, 0]
        return logs

    def with_deviation(self, magnitude: float) -> ListenerPPAM:
        """Return the model of a head that also deviates as no head of the population does.

        Parameters
        ----------
        magnitude : float
            Standard deviation of the deviation, relative to what the loadings do not explain.

        Returns
        -------
        ListenerPPAM
            The model with larger residual variances.
        """
        return replace(self, residual=self.residual * (1 + magnitude**2))

    def _some_charts(self, statistics: CueStatistics, charts: Indices) -> ChartPosteriors:
        """Return the posteriors of W sounds in some charts."""
        prior = self.space, self.centres[charts], self.weights[charts], self.gammas[charts]
        return ChartPriors(*prior).given(*self._forms(statistics, charts))

    def _selected_posteriors(self, statistics: CueStatistics) -> ChartPosteriors:
        """Return the posteriors, evaluated only for charts that may have a noticeable weight.

        The leading coordinates of z select the charts of each sound; the others are taken as
        independent errors of the cues.
        """
        settings, some = _SELECTION, self._with_leading_coordinates.posteriors(statistics)
        selected = some.logs > some.logs.max(axis=0) - settings.max_gap_nats
        # Sounds with similar numbers of charts share most of them.
        by_count = np.argsort(selected.sum(axis=0), kind="stable")
        groups = np.array_split(by_count, -(-len(by_count) // settings.sounds_together))
        return some.refined(
            selected, groups, lambda rows, charts: self._some_charts(statistics[rows], charts)
        )

    @cached_property
    def _with_leading_coordinates(self) -> ListenerPPAM:
        """The model with the leading principal coordinates of z; the others are errors of cues."""
        J = self.loadings.shape[2]
        by_cue = self.loadings.reshape(-1, J)
        axes = np.linalg.eigh(by_cue.T @ by_cue)[1][:, ::-1]
        leading = (by_cue @ axes[:, : _SELECTION.coordinates]).reshape(*self.loadings.shape[:2], -1)
        rest = (self.loadings**2).sum(axis=2) - (leading**2).sum(axis=2)
        residual = self.residual + self.bands.expand(np.maximum(rest, 0.0))
        return replace(self, loadings=leading, residual=residual)

    def _complete_forms(self, y: Array) -> tuple[Array, Array]:
        """Return H (L+1, L+1, K, N) of complete cues (N, D), and log|2π C_k| (K, N)."""
        parts = [
            self._forms(CueStatistics(np.ones_like(part), part, part**2))
            for part in np.array_split(y, -(-len(y) // _SELECTION.sounds_at_once))
        ]
        H, log_det = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
        return H, log_det + y.shape[1] * np.log(2 * np.pi)

    def _forms(
        self, statistics: CueStatistics, charts: Indices | slice = slice(None)
    ) -> tuple[Array, Array]:
        """Return H (L+1, L+1, K, W) and log-determinants (K, W) of W sounds.

        With P = Q / ψ, Z_k = (A_k, ȳ - b_k) and G_k = I + β_kᵀ Eᵀ P E β_k,
        H_k = Z_kᵀ P Z_k - N_k G_k⁻¹ N_kᵀ with N_k = Z_kᵀ P E β_k, as in `earatlas.ppam.posterior`;
        the determinant is that of G_k and of ψ_k in the observed cues. All sums over cues are
        linear in Q, in R = Q ȳ, and in E = Σ_t y², and therefore matrix products over the W sounds.
        """
        beta, L = self.loadings[charts], self.space.dims
        K, D = len(beta), self.b.shape[1]
        P1 = 1 / self.residual[charts]  # P of Q = 1
        Z = np.concatenate([self._slopes[charts], -self.b[charts][:, None]], axis=1)  # of ȳ = 0
        ZP = Z * P1[:, None]  # (K, L+1, D)
        Q = np.where(statistics.counts > 0, statistics.counts, 0.0)
        R = Q * statistics.means
        E = R * statistics.means + statistics.scatter
        W = len(Q)

        table = np.concatenate([ZP, P1[:, None]], axis=1).reshape(-1, D)
        in_bands = self.bands.weighted_sums(Q, table).reshape(W, K, L + 2, -1)
        in_bands[:, :, L] += self.bands.weighted_sums(R, P1)
        RZP = (R @ ZP.reshape(-1, D).T).reshape(W, K, L + 1)
        H = np.empty((W, K, L + 1, L + 1))
        for row, column in zip(*np.tril_indices(L + 1), strict=True):  # products fit in the cache
            H[..., row, column] = H[..., column, row] = Q @ (ZP[:, row] * Z[:, column]).T
        H[..., L, :] += RZP
        H[..., :, L] += RZP
        H[..., L, L] += E @ P1.T  # with the scatter around the mean
        log_det = Q @ self._log_residual[charts].T
        for w in range(W):
            G = np.eye(beta.shape[2]) + beta.mT @ (in_bands[w, :, L + 1, :, None] * beta)
            root, U = half_solve(G, (in_bands[w, :, : L + 1] @ beta).mT)  # (K, J, L+1)
            H[w] -= U.mT @ U
            log_det[w] += 2 * np.log(np.einsum("kjj->kj", root)).sum(axis=1)
        return np.moveaxis(H, (2, 3), (0, 1)).swapaxes(2, 3), log_det.T

    def normalized_residuals(self, statistics: CueStatistics, directions: Array) -> Array:
        """Return the normalized residuals of W sounds at directions.

        Parameters
        ----------
        statistics : CueStatistics
            Statistics (W, D) of W sounds.
        directions : ndarray of shape (W, C)
            One direction per sound, in degrees.

        Returns
        -------
        ndarray of shape (W,)
            Squared residual relative to the covariance of the nearest chart, per observed cue:
            about 1 if a head deviates from the expected one as the heads of the population do.
        """
        expected = self.forward_map(directions)
        nearest = np.argmax(self.log_gating(directions)[0], axis=1)
        Q = np.where(statistics.counts > 0, statistics.counts, 0.0)
        P = Q / self.residual[nearest]  # (W, D)
        beta, residual = self.loadings[nearest], statistics.means - expected
        G = np.eye(beta.shape[2]) + beta.mT @ (self.bands.sum(P)[..., None] * beta)
        N = np.einsum("whj,wh->wj", beta, self.bands.sum(P * residual))
        explained = np.einsum("wj,wj->w", N, np.linalg.solve(G, N[..., None])[..., 0])
        squared = (P * residual**2).sum(axis=1) - explained
        ratios: Array = squared / np.maximum(Q.sum(axis=1), 1e-300)
        return ratios

    @cached_property
    def _slopes(self) -> Array:
        """A_kᵀ (K, L, D)."""
        return np.ascontiguousarray(self.A.transpose(0, 2, 1))

    @cached_property
    def _log_residual(self) -> Array:
        """log ψ_kd (K, D)."""
        logs: Array = np.log(self.residual)
        return logs
