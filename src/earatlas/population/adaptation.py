"""Adaptation of a population to one listener, from recordings with or without known directions.

Input: a `Population` and the cue statistics of recordings of one listener. Output: a `Listener`.
EM over the directions of the recordings: they are hidden; the listener coordinates w are shared.

    n  recordings (N)    k  charts (K)    j  listener coordinates (J)
    q_nk                 p(chart k | recording n, w), the E-step
    Λ_nk, η_nk           precision (J, J) and information (J,) of recording n about z in chart k
    z_n = w + v_n        v_n ~ N(0, (1 - ρ) I) is integrated out, w ~ N(0, ρ I) is estimated

    M:  V_w⁻¹ = I/ρ + Σ_nk q_nk S_nk,    ŵ = V_w Σ_nk q_nk (I + (1 - ρ) Λ_nk)⁻¹ η_nk
        S_nk = (I + (1 - ρ) Λ_nk)⁻¹ Λ_nk

A first assignment to charts may be wrong, so the responsibilities are tempered at first and V_w is
part of the E-step: an uncertain listener makes uncertain directions, and these change w little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from earatlas.features.statistics import CueStatistics
from earatlas.population.population import Listener, Population
from earatlas.ppam.listener_model import ListenerPPAM
from earatlas.types import Array, Indices

__all__ = ["AdaptationSettings", "adapt_listener"]


@dataclass(frozen=True)
class AdaptationSettings:
    """Settings of the adaptation.

    Evidence: docs/figures/settings/population.md, "adaptation".
    """

    iterations: int = 8
    start_temperature: float = 4.0  # of the responsibilities in the first iteration
    annealing_iterations: int = 4  # after which the temperature is 1
    max_charts: int = 40  # possible charts of a recording
    max_gap_nats: float = 12.0  # less probable charts are impossible
    label_degrees: float = 3.0  # standard deviation of given directions


def adapt_listener(
    population: Population,
    sounds: Sequence[CueStatistics],
    directions: Sequence[Array | None] | None = None,
    *,
    settings: AdaptationSettings | None = None,
) -> Listener:
    """Return the listener coordinates given effective statistics of N recordings.

    `directions` holds one direction (2,) in degrees or None per recording.
    """
    settings = settings or AdaptationSettings()
    labels = [None] * len(sounds) if directions is None else list(directions)
    listener, J = population.unknown_listener, population.n_coordinates
    prior = population.model(listener)
    clues = [
        _Clue.of(prior, population, sound, label, settings)
        for sound, label in zip(sounds, labels, strict=True)
    ]
    for step in range(settings.iterations):
        model = population.model(listener)
        remaining = max(1 - step / settings.annealing_iterations, 0.0)
        temperature = settings.start_temperature**remaining
        precision, information = np.eye(J) / population.shared, np.zeros(J)
        for clue in clues:
            q = clue.responsibilities(model, temperature)
            precision += np.einsum("k,kij->ij", q, clue.precisions)
            information += q @ clue.information
        covariance = np.asarray(np.linalg.inv(0.5 * (precision + precision.T)), dtype=np.float64)
        listener = Listener(covariance @ information, covariance)
    return listener


@dataclass(frozen=True, eq=False)
class _Clue:
    """What one recording says about w in each of its possible charts."""

    sound: CueStatistics  # effective
    charts: Indices  # (k,) possible charts
    log_gates: Array  # (k,) log p(label | k), 0 without a label
    precisions: Array  # (k, J, J) S_nk
    information: Array  # (k, J) (I + (1 - ρ) Λ)⁻¹ η

    @classmethod
    def of(
        cls,
        prior: ListenerPPAM,
        population: Population,
        sound: CueStatistics,
        label: Array | None,
        settings: AdaptationSettings,
    ) -> _Clue:
        every = np.arange(len(prior.weights))
        gates = np.zeros(len(every)) if label is None else _label_log_gates(prior, label, settings)
        logs = prior.log_joint(sound, every) + gates
        count = min(settings.max_charts, len(every))
        top = np.argpartition(-logs, count - 1)[:count]
        charts = top[logs[top] > logs.max() - settings.max_gap_nats]
        Lambda, eta = deviation_information(prior, population, sound, charts)
        inner = np.eye(Lambda.shape[-1]) + (1 - population.shared) * Lambda
        message = np.linalg.solve(inner, np.concatenate([Lambda, eta[..., None]], axis=2))
        return cls(sound, charts, gates[charts], message[..., :-1], message[..., -1])

    def responsibilities(self, model: ListenerPPAM, temperature: float) -> Array:
        """Return q (k,), tempered."""
        logs = model.log_joint(self.sound, self.charts) / temperature + self.log_gates
        q = np.exp(logs - logs.max())
        tempered: Array = q / q.sum()
        return tempered


def _label_log_gates(model: ListenerPPAM, label: Array, settings: AdaptationSettings) -> Array:
    """Return log p(label | k) (K,), up to a constant: charts far from a label are impossible."""
    u = model.space.charts(model.centres, np.asarray(label, dtype=np.float64)[None])[0]
    variance = model.gammas[:, 0, 0] / 4 + settings.label_degrees**2
    gates: Array = -0.5 * (u**2).sum(axis=-1) / variance
    return gates


def deviation_information(
    model: ListenerPPAM, population: Population, statistics: CueStatistics, used: Indices
) -> tuple[Array, Array]:
    """Return Λ (k, J, J) and η (k, J) about z in some charts, with u integrated out.

    `model` is that of the expected head, so that z includes all of w.
    """
    Q = np.where(statistics.counts > 0, statistics.counts, 0.0)
    P = Q / model.residual[used]
    A, residual = model.A[used], statistics.means - model.b[used]
    beta = population.loadings[used]  # (k, H, J)
    bands = population.bands
    precision = np.linalg.inv(model.gammas[used]) + A.mT @ (P[..., None] * A)  # of u
    cross = bands.sum(A.mT * P[:, None]) @ beta  # (k, L, J): Aᵀ P β
    gain = np.linalg.solve(precision, cross)
    Lambda = beta.mT @ (bands.sum(P)[..., None] * beta) - cross.mT @ gain
    slope = np.einsum("kdl,kd->kl", A, P * residual)
    eta = np.einsum("khj,kh->kj", beta, bands.sum(P * residual))
    eta = eta - np.einsum("klj,kl->kj", gain, slope)
    return Lambda, eta
