"""Adaptation with a test of whether it helps: cross-validated evidence, and a verdict.

Input: a `Population`, its calibration, and recordings of one listener. Output: an `Adaptation`.
Half of the recordings adapt the listener and the other half judge, in both ways: the listener is
accepted only if recordings that were not used became significantly more probable, and by enough for
how uncertain their directions are: the directions of a head that is not a member stay ambiguous.
Recordings of one listener after those of another one are refused, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from earatlas.features.statistics import CueStatistics
from earatlas.geometry.angles import to_vectors
from earatlas.geometry.spaces import Sphere
from earatlas.population.adaptation import (
    AdaptationSettings,
    ListenerClue,
    adapt_listener,
    is_observed,
)
from earatlas.population.population import Listener, Population
from earatlas.ppam.calibration import Calibration
from earatlas.ppam.listener_model import ListenerPPAM
from earatlas.types import Array

__all__ = [
    "Adaptation",
    "AdaptationVerdict",
    "VerdictSettings",
    "adapt_to_clues",
    "adapt_to_recordings",
]


class AdaptationVerdict(StrEnum):
    """What became of an adaptation."""

    ADAPTED = "adapted"
    NO_GAIN = "recordings that were held out did not become more probable"
    OTHER_HEAD = "the recordings fit no head of this population, or have several sources at once"
    TOO_FEW = "too few recordings with sound of one source"
    ONE_DIRECTION = "all recordings come from one direction"
    SMALL_GAIN = "the recordings gain less than those of a head of this population would"
    WORSE_FIT = "the recordings deviate more from the adapted listener than from an unknown one"
    TWO_LISTENERS = "the first and the second half of the recordings have different listeners"
    MIRRORED_LABELS = "the labels fit better with left and right exchanged"
    WRONG_LABELS = "the labels do not fit the recordings"


@dataclass(frozen=True)
class VerdictSettings:
    """Settings of the verdict. Evidence: docs/figures/settings/population.md, "verdict"."""

    min_recordings: int = 5  # usable ones
    max_residual_ratio: float = 2.0  # median over the recordings; above, it is another head
    max_residual_growth: float = 1.04  # median of the residual after over that before
    min_residual_ratio: float = 0.05  # smaller residuals fit in any case
    max_coordinate: float = 1.5  # RMS of w in standard deviations; 1.0 ± 0.1 for a known member
    min_gain_errors: float = 2.0  # gain over its standard error
    min_gain_per_entropy: float = 1.5  # gain over the entropy of the direction, at least
    full_gain_per_entropy: float = 2.7  # the same with very many recordings
    half_gain_recordings: float = 9.0  # number of recordings with which half of that is required
    min_onset_gain_per_entropy: float = 0.38  # the same in rooms; KU100 up to 0.36
    min_range_degrees: float = 15.0  # median distance of best directions from their centre
    max_mirrored_gain: float = 1.0  # nats per label by which its mirror image may fit better
    min_label_gain: float = 0.0  # nats per label; a random direction has less than 0
    min_half: int = 8  # recordings of each half, for the comparison of their listeners
    max_half_distance: float = 0.4  # between the mean unit vectors of the halves' directions
    max_half_errors: float = 3.0  # advantage of the own half over its standard error


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
        Median normalized residual of recordings without reverberation, as a ratio to the largest
        usual one; NaN if there are none.
    reverberant : int
        Number of usable recordings or segments that are reverberant, of which the onsets are used.
    several_sources : int
        Number of recordings or segments that were left out: their onsets are those of several
        sources.
    few_onsets : int
        Number of reverberant recordings or segments that were left out: they have too few onsets.

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
    residual_before: float  # median ratio to the largest usual residual; NaN: not measured
    residual_after: float
    reverberant: int = 0  # usable recordings that are reverberant
    several_sources: int = 0  # recordings that were left out: several sources at once
    few_onsets: int = 0  # reverberant recordings that were left out: too few onsets

    def __repr__(self) -> str:
        text = f"{self.verdict.name}, {self.recordings} recordings, {self.gain_nats:+.2f} nats"
        if not np.isnan(self.residual_before):
            text += f", residual {self.residual_before:.2f} to {self.residual_after:.2f}"
        return f"Adaptation({text})"

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict and the measures as JSON values; NaN becomes None.

        Returns
        -------
        dict
            `verdict`, `segments`, `reverberant`, `several_sources`, `few_onsets`, `gain_nats`,
            `fit_before` and `fit_after`.
        """
        fits = (self.residual_before, self.residual_after)
        before, after = (None if np.isnan(fit) else round(fit, 3) for fit in fits)
        return {
            "verdict": self.verdict.name.lower(),
            "segments": self.recordings,
            "reverberant": self.reverberant,
            "several_sources": self.several_sources,
            "few_onsets": self.few_onsets,
            "gain_nats": round(self.gain_nats, 3),
            "fit_before": before,
            "fit_after": after,
        }

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
    prior = population.model()
    labels = [None] * len(sounds) if directions is None else list(directions)
    clues = []
    for sound, label in zip(sounds, labels, strict=True):
        effective = calibration.effective_statistics(sound, prior.noise)
        if is_observed(effective, calibration, settings):
            clues.append(ListenerClue.of_cues(population, prior, effective, label, settings))
    return adapt_to_clues(population, calibration, clues, settings=settings, limits=limits)


def adapt_to_clues(
    population: Population,
    calibration: Calibration,
    clues: Sequence[ListenerClue],
    *,
    settings: AdaptationSettings | None = None,
    limits: VerdictSettings | None = None,
) -> Adaptation:
    """Adapt to what recordings say about their listener."""
    limits, unknown = limits or VerdictSettings(), population.unknown_listener
    reverberant = sum(clue.cues is None for clue in clues)

    def refused(verdict: AdaptationVerdict, gain: float, before: float, after: float) -> Adaptation:
        return Adaptation(verdict, unknown, len(clues), gain, before, after, reverberant)

    if len(clues) < limits.min_recordings:
        return refused(AdaptationVerdict.TOO_FEW, 0.0, np.nan, np.nan)
    unadapted = _residual_ratios(population.model(), calibration, clues)
    before = _median(unadapted)
    problem = _label_problem(clues, limits)
    if problem is None and _range_degrees(clues) < limits.min_range_degrees:
        problem = AdaptationVerdict.ONE_DIRECTION
    if problem is not None:
        return refused(problem, 0.0, before, before)
    if _halves_differ(population, clues, settings, limits):
        return refused(AdaptationVerdict.TWO_LISTENERS, 0.0, before, before)
    gains = []
    for half in (0, 1):
        own, held_out = clues[half::2], clues[1 - half :: 2]
        listener = adapt_listener(population, own, settings=settings)
        gains += [clue.log_evidence(listener) - clue.log_evidence() for clue in held_out]
    gain, standard_error = float(np.mean(gains)), float(np.std(gains) / np.sqrt(len(gains)))
    listener = adapt_listener(population, clues, settings=settings)
    adapted = _residual_ratios(population.model(listener), calibration, clues)
    # Without the floor, a residual of nearly 0, of a simulated head, could grow by any factor.
    growth = _median(adapted / np.maximum(unadapted, limits.min_residual_ratio))
    after = _median(adapted)
    coordinates = listener.mean / np.sqrt(population.shares)
    outside = float(np.sqrt(np.mean(coordinates**2))) > limits.max_coordinate
    if outside or after > limits.max_residual_ratio:
        return refused(AdaptationVerdict.OTHER_HEAD, gain, before, after)
    if gain <= limits.min_gain_errors * standard_error:
        return refused(AdaptationVerdict.NO_GAIN, gain, before, after)
    if growth > limits.max_residual_growth:
        return refused(AdaptationVerdict.WORSE_FIT, gain, before, after)
    anechoic = len(clues) - reverberant
    if gain <= np.mean([_required_gain(clue, anechoic, limits) for clue in clues]):
        return refused(AdaptationVerdict.SMALL_GAIN, gain, before, after)
    verdict = AdaptationVerdict.ADAPTED
    return Adaptation(verdict, listener, len(clues), gain, before, after, reverberant)


def _required_gain(clue: ListenerClue, anechoic: int, limits: VerdictSettings) -> float:
    """Return the gain in nats that a recording requires for how uncertain its direction is.

    The more anechoic recordings there are, the better is a member of the population known, and the
    better are its recordings explained; those of another kind of head gain less.
    """
    if clue.cues is None:
        return limits.min_onset_gain_per_entropy * clue.entropy
    share = anechoic / (anechoic + limits.half_gain_recordings)
    return max(limits.min_gain_per_entropy, limits.full_gain_per_entropy * share) * clue.entropy


def _residual_ratios(
    model: ListenerPPAM, calibration: Calibration, clues: Sequence[ListenerClue]
) -> Array:
    """Return the residual ratio of each anechoic recording (N,)."""
    sounds = [clue.cues for clue in clues if clue.cues is not None]
    if not sounds:
        return np.zeros(0)
    stacked = CueStatistics.stack(sounds)
    residuals = model.normalized_residuals(stacked, model.posteriors(stacked).best())
    return np.asarray(residuals / calibration.max_residual, dtype=np.float64)


def _median(values: Array) -> float:
    """Return the median; NaN if there are no values."""
    return float(np.median(values)) if len(values) else float("nan")


def _label_problem(
    clues: Sequence[ListenerClue], limits: VerdictSettings
) -> AdaptationVerdict | None:
    """Compare the given directions with their mirror images, and with random directions.

    Without labels, exchanged ears are not recognizable: they are those of a mirrored head.
    """
    gains = [clue.label_gain for clue in clues if not np.isnan(clue.label_gain)]
    if not gains:
        return None
    given = float(np.mean(gains))
    mirrored = float(np.mean([c.mirrored_gain for c in clues if not np.isnan(c.mirrored_gain)]))
    if mirrored > max(given + limits.max_mirrored_gain, limits.min_label_gain):
        return AdaptationVerdict.MIRRORED_LABELS
    if given < limits.min_label_gain:
        return AdaptationVerdict.WRONG_LABELS
    return None


def _halves_differ(
    population: Population,
    clues: Sequence[ListenerClue],
    settings: AdaptationSettings | None,
    limits: VerdictSettings,
) -> bool:
    """Whether the first and the second half of the recordings have different listeners.

    Every quarter adapts a listener. Recordings of one listener are as probable with the other
    quarter of their half as with those of the other half. Halves with different directions cannot
    be compared, because neighbouring directions of one head deviate alike.
    """
    middle = len(clues) // 2
    if middle < limits.min_half:
        return False
    directions = to_vectors(np.array([clue.best for clue in clues]))
    distance = np.linalg.norm(directions[:middle].mean(axis=0) - directions[middle:].mean(axis=0))
    if distance > limits.max_half_distance:
        return False
    quarters = [half[start::2] for half in (clues[:middle], clues[middle:]) for start in (0, 1)]
    listeners = [adapt_listener(population, quarter, settings=settings) for quarter in quarters]
    advantages = []
    for n, quarter in enumerate(quarters):
        same, others = listeners[n ^ 1], listeners[2:] if n < 2 else listeners[:2]
        for clue in quarter:
            other = np.mean([clue.log_evidence(listener) for listener in others])
            advantages.append(clue.log_evidence(same) - other)
    standard_error = float(np.std(advantages) / np.sqrt(len(advantages)))
    return float(np.mean(advantages)) > limits.max_half_errors * standard_error


def _range_degrees(clues: Sequence[ListenerClue]) -> float:
    """Return the median distance of the best directions from the one that is nearest to all."""
    directions = np.array([clue.best for clue in clues])
    distances = Sphere().distance(directions[:, None], directions[None])
    return float(np.median(distances, axis=1).min())
