"""Adaptation of a population to one listener, from recordings with or without known directions.

Input: a `Population` and what recordings of one listener say about its head. Output: a `Listener`.
EM over the directions of the recordings: they are hidden; the listener coordinates w are shared.

    n  recordings (N)    k  possible directions (K)    j  listener coordinates (J)
    q_nk                 p(direction k | recording n, w), the E-step
    Λ_nk, η_nk           precision (J, J) and information (J,) of recording n about z
    ρ_j                  share of each coordinate that is common to all directions
    z_n = w + v_n        v_n ~ N(0, R), R = I - diag ρ, is integrated out
    w ~ N(0, diag ρ)     is estimated

    M:  V_w⁻¹ = diag(1/ρ) + Σ_nk q_nk S_nk,    ŵ = V_w Σ_nk q_nk (I + Λ_nk R)⁻¹ η_nk
        S_nk = (I + Λ_nk R)⁻¹ Λ_nk

A first assignment to directions may be wrong, so the responsibilities are tempered at first and V_w
is part of the E-step: an uncertain listener makes uncertain directions, and these change w little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from earatlas.features.statistics import CueStatistics
from earatlas.numerics import logsumexp
from earatlas.population.deviation_information import DeviationInformation, cue_information
from earatlas.population.population import Listener, Population
from earatlas.ppam.calibration import Calibration
from earatlas.ppam.listener_model import ListenerPPAM
from earatlas.types import Array, Indices

__all__ = ["AdaptationSettings", "ListenerClue", "adapt_listener", "is_observed"]


@dataclass(frozen=True)
class AdaptationSettings:
    """Settings of the adaptation.

    Evidence: docs/figures/settings/population.md, "adaptation".
    """

    iterations: int = 8
    start_temperature: float = 4.0  # of the responsibilities in the first iteration
    annealing_iterations: int = 4  # after which the temperature is 1
    max_directions: int = 40  # possible directions of a recording
    max_gap_nats: float = 12.0  # less probable directions are impossible
    label_degrees: float = 3.0  # standard deviation of given directions
    min_observed: float = 40.0  # observed cues of a usable recording, in effective cues


@dataclass(frozen=True, eq=False)
class ListenerClue:
    """What one recording says about w, at its possible directions."""

    found: DeviationInformation
    log_labels: Array  # (K,) log density of the given direction at each direction, or 0
    shares: Array  # (J,) ρ of the population
    label_gain: float = np.nan  # log Bayes factor of the given direction against any direction
    mirrored_gain: float = np.nan  # the same of its mirror image
    # Effective statistics of a whole recording; None: those of its onsets were used
    cues: CueStatistics | None = None

    @classmethod
    def of_cues(
        cls,
        population: Population,
        prior: ListenerPPAM,
        sound: CueStatistics,
        label: Array | None = None,
        settings: AdaptationSettings | None = None,
    ) -> ListenerClue:
        """Return the clue of effective cue statistics; `prior` is the PPAM of an unknown one."""
        settings = settings or AdaptationSettings()
        every = np.arange(len(prior.weights))
        logs = prior.log_joint(sound, every)
        directions = DeviationInformation(prior.centres, logs, np.zeros((0, 0)), np.zeros((0, 0)))
        labels = cls._labels(directions, logs, label, population, settings)
        charts = _likely(logs + labels.log_labels, settings)
        found = cue_information(population, prior, sound, charts)
        return replace(labels, found=found, log_labels=labels.log_labels[charts], cues=sound)

    @classmethod
    def of_onsets(
        cls,
        population: Population,
        prior: ListenerPPAM,
        onsets: CueStatistics,
        log_posterior: Array,
        label: Array | None = None,
        settings: AdaptationSettings | None = None,
    ) -> ListenerClue:
        """Return the clue of effective statistics of onsets in a room.

        `log_posterior` (K,) is that of the directions for an unknown listener. It replaces what the
        statistics say about them, which is less; relative to it, they say how likely a listener is.
        """
        settings = settings or AdaptationSettings()
        none = np.zeros((0, 0))
        every = DeviationInformation(prior.centres, log_posterior, none, none)
        labels = cls._labels(every, log_posterior, label, population, settings)
        charts = _likely(log_posterior + labels.log_labels, settings)
        found = cue_information(population, prior, onsets, charts)
        # The evidence for an unknown listener becomes the posterior.
        constants = found.constants + log_posterior[charts] - found.log_evidence()
        found = replace(found, constants=constants)
        return replace(labels, found=found, log_labels=labels.log_labels[charts])

    @classmethod
    def _labels(
        cls,
        found: DeviationInformation,
        logs: Array,
        label: Array | None,
        population: Population,
        settings: AdaptationSettings,
    ) -> ListenerClue:
        """Return a clue at all directions, with log evidence (K,), and the gains of its label."""
        if label is None:
            return cls(found, np.zeros(len(logs)), population.shares)
        width = float(np.hypot(population.charts.width_degrees / 2, settings.label_degrees))
        given = found.label_log_density(label, width)
        mirrored = found.label_log_density(np.asarray(label) * (-1.0, 1.0), width)
        total = logsumexp(logs)
        return cls(
            found, given, population.shares,
            float(logsumexp(logs + given) - total), float(logsumexp(logs + mirrored) - total),
        )  # fmt: skip

    def logs(self, listener: Listener | None = None) -> Array:
        """Return log p(recording, label, x_k | listener) (K,)."""
        return self.found.log_evidence(listener, self.shares) + self.log_labels

    def log_evidence(self, listener: Listener | None = None) -> float:
        """Return log p(recording, label | listener); None: an unknown listener."""
        return float(logsumexp(self.logs(listener)))

    @cached_property
    def best(self) -> Array:
        """Most probable direction (2,) for an unknown listener."""
        direction: Array = self.found.directions[int(np.argmax(self.logs()))]
        return direction

    @cached_property
    def entropy(self) -> float:
        """Entropy in nats of the direction, for an unknown listener."""
        logs = self.logs() - self.log_evidence()
        return float(-(np.exp(logs) * logs).sum())

    @cached_property
    def message(self) -> tuple[Array, Array]:
        """S (K, J, J) and (I + Λ R)⁻¹ η (K, J)."""
        Lambda, eta = self.found.precisions, self.found.information
        inner = np.eye(Lambda.shape[-1]) + Lambda * (1 - self.shares)
        both = np.linalg.solve(inner, np.concatenate([Lambda, eta[..., None]], axis=2))
        return both[..., :-1], both[..., -1]


def adapt_listener(
    population: Population,
    clues: Sequence[ListenerClue],
    *,
    settings: AdaptationSettings | None = None,
) -> Listener:
    """Return the listener coordinates given the clues of N recordings."""
    settings = settings or AdaptationSettings()
    listener, J = population.unknown_listener, population.n_coordinates
    for step in range(settings.iterations):
        remaining = max(1 - step / settings.annealing_iterations, 0.0)
        temperature = settings.start_temperature**remaining
        precision, information = np.diag(1 / population.shares), np.zeros(J)
        for clue in clues:
            logs = clue.found.log_evidence(listener, clue.shares) / temperature + clue.log_labels
            q, (precisions, informations) = np.exp(logs - logsumexp(logs)), clue.message
            precision += np.einsum("k,kij->ij", q, precisions)
            information += q @ informations
        covariance = np.asarray(np.linalg.inv(0.5 * (precision + precision.T)), dtype=np.float64)
        listener = Listener(covariance @ information, covariance)
    return listener


def is_observed(
    effective: CueStatistics, calibration: Calibration, settings: AdaptationSettings | None = None
) -> bool:
    """Whether the effective statistics (D,) of a recording contain enough sound."""
    settings = settings or AdaptationSettings()
    return float(effective.counts.sum()) * calibration.temperature >= settings.min_observed


def _likely(logs: Array, settings: AdaptationSettings) -> Indices:
    """Return the rows (k,) of the most probable directions."""
    count = min(settings.max_directions, len(logs))
    top = np.argpartition(-logs, count - 1)[:count]
    rows: Indices = top[logs[top] > logs.max() - settings.max_gap_nats]
    return rows
