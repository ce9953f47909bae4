"""What a recording says about the head that made it, at each possible direction.

Input: the cue statistics of a recording. Output: `DeviationInformation`, from which listeners are
estimated (`earatlas.population.adaptation`) and with which the deviations of a head are integrated
out in rooms (`earatlas.population.listener_templates`).

    k  possible directions (K)    j  coordinates (J)    z = w + v    deviation of the head at x_k

    log p(recording, x_k | z) = c_k + η_k·z - z·Λ_k z / 2
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.features.statistics import CueStatistics
from earatlas.geometry.spaces import Sphere
from earatlas.numerics import half_solve
from earatlas.population.population import Listener, Population
from earatlas.ppam.listener_model import ListenerPPAM
from earatlas.types import Array, Indices

__all__ = ["DeviationInformation", "cue_information"]


@dataclass(frozen=True, eq=False)
class DeviationInformation:
    """Gaussian log-likelihood of the deviation z of a head, for each possible direction."""

    directions: Array  # (K, 2) degrees
    constants: Array  # (K,) c
    information: Array  # (K, J) η
    precisions: Array  # (K, J, J) Λ

    def __len__(self) -> int:
        return len(self.directions)

    def __getitem__(self, rows: Indices) -> DeviationInformation:
        """Return the information at some of the directions."""
        return DeviationInformation(
            self.directions[rows], self.constants[rows], self.information[rows],
            self.precisions[rows],
        )  # fmt: skip

    def log_evidence(self, listener: Listener | None = None, shares: Array | None = None) -> Array:
        """Return log p(recording, x_k) (K,) for a listener; None: for any head, z ~ N(0, I).

        `shares` (J,) are ρ of the population: z ~ N(ŵ, V_w + I - diag ρ).
        """
        J = self.information.shape[1]
        constants, information, precisions = self.constants, self.information, self.precisions
        if listener is not None and shares is not None:
            mean = listener.mean
            root = np.linalg.cholesky(listener.covariance + np.diag(1 - shares))
            slope = precisions @ mean
            constants = constants + (information - 0.5 * slope) @ mean
            information = (information - slope) @ root
            precisions = root.T @ precisions @ root
        factor, u = half_solve(np.eye(J) + precisions, information[..., None])
        log_det = np.log(np.einsum("kjj->kj", factor)).sum(axis=1)
        evidence: Array = constants + 0.5 * (u**2).sum(axis=(1, 2)) - log_det
        return evidence

    def label_log_density(self, label: Array, width_degrees: float) -> Array:
        """Return log p(label | x_k) - log p(label) (K,), with labels of this standard deviation."""
        squared = Sphere().distance(self.directions, np.asarray(label)[None]) ** 2
        logs = -0.5 * squared / width_degrees**2
        density: Array = logs - np.log(np.maximum(np.exp(logs).mean(), 1e-300))
        return density


def cue_information(
    population: Population, model: ListenerPPAM, statistics: CueStatistics, charts: Indices
) -> DeviationInformation:
    """Return the information of effective cue statistics in some charts, with u integrated out.

    `model` is that of an unknown listener, so that z includes all of w.
    """
    Q = np.where(statistics.counts > 0, statistics.counts, 0.0)
    P = Q / model.residual[charts]
    A, residual = model.A[charts], statistics.means - model.b[charts]
    beta = population.deviations[charts]  # (k, H, J)
    bands = population.bands
    precision = np.linalg.inv(model.gammas[charts]) + A.mT @ (P[..., None] * A)  # of u
    cross = bands.sum(A.mT * P[:, None]) @ beta  # (k, L, J): Aᵀ P β
    gain = np.linalg.solve(precision, cross)
    Lambda = beta.mT @ (bands.sum(P)[..., None] * beta) - cross.mT @ gain
    slope = np.einsum("kdl,kd->kl", A, P * residual)
    eta = np.einsum("khj,kh->kj", beta, bands.sum(P * residual))
    eta = eta - np.einsum("klj,kl->kj", gain, slope)
    found = DeviationInformation(model.centres[charts], np.zeros(len(charts)), eta, Lambda)
    # The constants follow from the evidence, which the model computes.
    constants = model.log_joint(statistics, charts) - found.log_evidence()
    return DeviationInformation(found.directions, constants, eta, Lambda)
