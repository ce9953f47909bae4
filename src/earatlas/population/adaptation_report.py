"""Adaptation with a test of whether it helps: cross-validated evidence, and a verdict.

Input: a `Population`, its calibration, and recordings of one listener. Output: an `Adaptation`.
Half of the recordings adapt the listener and the other half judge, in both ways: the listener is
accepted only if recordings that were not used became significantly more probable, and by enough for
how uncertain their directions are: the directions of a head that is not a member stay ambiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from earatlas.features.statistics import CueStatistics
from earatlas.geometry.spaces import Sphere
from earatlas.population.adaptation import AdaptationSettings, adapt_listener
from earatlas.population.population import Listener, Population
from earatlas.ppam.calibration import Calibration
from earatlas.ppam.listener_model import ListenerPPAM
from earatlas.types import Array

__all__ = ["Adaptation", "AdaptationVerdict", "VerdictSettings", "adapt_to_recordings"]


class AdaptationVerdict(StrEnum):
    """What became of an adaptation."""

    ADAPTED = "adapted"
    NO_GAIN = "recordings that were held out did not become more probable"
    OTHER_HEAD = "the recordings do not fit any head of this population"
    TOO_FEW = "too few recordings with sound"
    ONE_DIRECTION = "all recordings come from one direction"


@dataclass(frozen=True)
class VerdictSettings:
    """Settings of the verdict. Evidence: docs/figures/settings/population.md, "verdict"."""

    min_recordings: int = 5  # usable ones
    min_observed: float = 40.0  # observed cues of a usable recording, in effective cues
    max_residual_ratio: float = 2.0  # median over the recordings; above, it is another head
    min_gain_errors: float = 2.0  # gain over its standard error
    min_gain_per_entropy: float = 0.38  # gain over the entropy of the direction; KU100 0.32
    min_range_degrees: float = 15.0  # median distance of best directions from their centre


@dataclass(frozen=True, eq=False)
class Adaptation:
    """The listener that was estimated, and how much better held-out recordings fit.

    Attributes
    ----------
    verdict : AdaptationVerdict
        What became of the adaptation.
    listener : Listener
        Coordinates of the listener; those of an unknown listener unless the verdict is ADAPTED.
    recordings : int
        Number of usable recordings or segments.
    gain_nats : float
        Mean log evidence of a held-out recording, after minus before.
    residual_before, residual_after : float
        Median normalized residual, as a ratio to the largest usual one.

    Examples
    --------
    >>> import earatlas as ea
    >>> scene = ea.render_scene(ea.simulated_head([[40, 0]]), [ea.synthetic_speech(1.0)], [[40, 0]])
    >>> atlas, adaptation = ea.people_atlas().adapt([scene.mixture])
    >>> adaptation.verdict.name
    'TOO_FEW'
    """

    verdict: AdaptationVerdict
    listener: Listener  # the unknown listener unless the verdict is ADAPTED
    recordings: int  # usable ones
    gain_nats: float  # mean log evidence of a held-out recording, after minus before
    residual_before: float  # median ratio to the largest usual residual
    residual_after: float

    def __repr__(self) -> str:
        return (
            f"Adaptation({self.verdict.name}, {self.recordings} recordings, "
            f"{self.gain_nats:+.2f} nats, residual {self.residual_before:.2f} to "
            f"{self.residual_after:.2f})"
        )

    @property
    def adapted(self) -> bool:
        """Whether the listener differs from the unknown one."""
        return self.verdict is AdaptationVerdict.ADAPTED


def adapt_to_recordings(
    population: Population,
    calibration: Calibration,
    sounds: Sequence[CueStatistics],
    directions: Sequence[Array | None] | None = None,
    *,
    settings: AdaptationSettings | None = None,
    limits: VerdictSettings | None = None,
) -> Adaptation:
    """Adapt to the statistics (D,) of recordings, with directions where they are known."""
    limits = limits or VerdictSettings()
    unknown, prior = population.unknown_listener, population.model()
    labels = [None] * len(sounds) if directions is None else list(directions)
    effective = [calibration.effective_statistics(sound, prior.noise) for sound in sounds]
    usable = [
        n for n, one in enumerate(effective)
        if one.counts.sum() * calibration.temperature >= limits.min_observed
    ]  # fmt: skip
    effective, labels = [effective[n] for n in usable], [labels[n] for n in usable]

    def refused(verdict: AdaptationVerdict, gain: float, before: float, after: float) -> Adaptation:
        return Adaptation(verdict, unknown, len(usable), gain, before, after)

    if len(usable) < limits.min_recordings:
        return refused(AdaptationVerdict.TOO_FEW, 0.0, np.nan, np.nan)
    before, best = _fit(prior, calibration, effective)
    if _range_degrees(best) < limits.min_range_degrees:
        return refused(AdaptationVerdict.ONE_DIRECTION, 0.0, before, before)
    gains = []
    for half in (0, 1):
        own = [n for n in range(len(usable)) if n % 2 == half]
        others = [n for n in range(len(usable)) if n % 2 != half]
        listener = adapt_listener(
            population, [effective[n] for n in own], [labels[n] for n in own], settings=settings
        )
        held_out = CueStatistics.stack([effective[n] for n in others])
        adapted = population.model(listener).posteriors(held_out).log_evidence
        gains.append(adapted - prior.posteriors(held_out).log_evidence)
    of_recording = np.concatenate(gains)
    gain = float(of_recording.mean())
    standard_error = float(of_recording.std() / np.sqrt(len(of_recording)))
    listener = adapt_listener(population, effective, labels, settings=settings)
    after, _ = _fit(population.model(listener), calibration, effective)
    if after > limits.max_residual_ratio:
        return refused(AdaptationVerdict.OTHER_HEAD, gain, before, after)
    if gain <= max(
        limits.min_gain_errors * standard_error,
        limits.min_gain_per_entropy * _mean_entropy(prior, effective),
    ):
        return refused(AdaptationVerdict.NO_GAIN, gain, before, after)
    verdict = AdaptationVerdict.ADAPTED
    return Adaptation(verdict, listener, len(usable), gain, before, after)


def _fit(
    model: ListenerPPAM, calibration: Calibration, sounds: Sequence[CueStatistics]
) -> tuple[float, Array]:
    """Return the median residual ratio and the best directions (N, 2)."""
    stacked = CueStatistics.stack(sounds)
    best = model.posteriors(stacked).best()
    residuals = model.normalized_residuals(stacked, best)
    return float(np.median(residuals) / calibration.max_residual), best


def _mean_entropy(model: ListenerPPAM, sounds: Sequence[CueStatistics]) -> float:
    """Return the mean entropy of the posterior over charts, in nats."""
    posteriors = model.posteriors(CueStatistics.stack(sounds))
    weights = [posterior.weights[posterior.weights > 0] for posterior in posteriors]
    return float(np.mean([-(w * np.log(w)).sum() for w in weights]))


def _range_degrees(directions: Array) -> float:
    """Return the median distance of directions (N, 2) from the one that is nearest to all."""
    distances = Sphere().distance(directions[:, None], directions[None])
    return float(np.median(distances, axis=1).min())
