"""Mismatch of the head: how much the head that made a recording deviates from the learned one.

Input: the cue statistics and the onsets of one source, and a learned head. Output: a
`MismatchedPosterior`: the magnitude α of the deviation with the largest evidence, and the posterior
of directions if the head deviates by as much.

    p(recording | α)        evidence of a PPAM whose charts deviate by α (`ppam.head_deviations`)
    p(x | recording, α)     π PPAM at α, convolved with the error of placement,
                            + (1 - π) onsets, with a tempered likelihood

The learned head itself has the smallest α, the same head that was set up again about 0.3, another
unit or laboratory 0.6 to 1, and another person 1 to 1.5. Noise and reverberation change cues as
well: α is determined only where there is hardly any noise and no reverberation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np

from earatlas.features.onset_detector import OnsetBins
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.localization.onset_likelihood import DirectionLogLikelihood
from earatlas.localization.reverberant_localizer import ReverberantLocalizer, posterior_mixture
from earatlas.localization.score_calibration import tempered_posterior
from earatlas.ppam.calibration import Calibration
from earatlas.ppam.head_deviations import HeadDeviations
from earatlas.ppam.listener_model import ListenerPPAM
from earatlas.ppam.model import PPAM
from earatlas.types import Array

__all__ = ["HeadMismatch", "MismatchSettings", "MismatchedPosterior", "Unit"]


class Unit(StrEnum):
    """Which head makes the recordings, compared with the one that was measured."""

    SAME = "same"  # the measured head, perhaps set up again
    OTHER = "other"  # perhaps another unit, or a head measured in another laboratory
    PERSON = "person"  # another person


# Evidence: docs/figures/settings/localization.md, "head_mismatch".
@dataclass(frozen=True, slots=True)
class MismatchSettings:
    """Settings of the mismatch of the head."""

    # Evidence
    magnitudes: tuple[float, ...] = (0.08, 0.15, 0.3, 0.6, 1.0, 1.5)  # α; the first: no mismatch
    temperature: float = 24.0  # divisor of the statistics
    min_seconds: float = 1.0  # shorter sounds, such as windows of a track, do not determine α
    min_residual_ratio: float = 0.4  # below, the learned head fits and α is not determined
    max_same_unit: float = 0.3  # largest α of the same unit
    min_person: float = 0.6  # smallest α of another person
    person_nats: float = 3.0  # by which the larger ones are preferred if it is known to be one

    # Posterior of the cues: error of placement, and its tail
    placement_degrees: tuple[float, float] = (4.0, 12.0)  # standard deviations
    placement_weights: tuple[float, float] = (0.9, 0.1)

    # Posterior of the onsets, for the same unit and for other heads
    onset_betas: tuple[float, float] = (0.08, 0.03)  # inverse temperatures
    onset_degrees: tuple[float, float] = (1.0, 3.0)  # standard deviations
    tail_degrees: float = 3.0  # standard deviation of the tail
    tail_weight: float = 0.2
    cue_weights: tuple[float, float] = (0.1, 0.5)  # π
    small_room_weight: float = 0.5  # of the mismatch if a small room would explain it, too


@dataclass(frozen=True, eq=False)
class MismatchedPosterior:
    """The posterior of a recording that the learned head does not fit."""

    posterior: DirectionPosterior
    magnitude: float  # α
    nats_per_onset: float


@dataclass(frozen=True, eq=False)
class HeadMismatch:
    """The learned head at all magnitudes of the deviation; models are made when needed."""

    model: PPAM
    calibration: Calibration
    deviations: HeadDeviations
    localizer: ReverberantLocalizer
    unit: Unit = Unit.OTHER
    settings: MismatchSettings = field(default_factory=MismatchSettings)

    def is_possible(self, residual_ratio: float, onsets: OnsetBins) -> bool:
        """Whether a residual may be due to the head, but not to noise or reverberation."""
        onset_settings = self.localizer.direct_sound.onset_settings
        seconds = onsets.frames * onset_settings.hop / onset_settings.rate
        return (
            residual_ratio > self.settings.min_residual_ratio
            and seconds >= self.settings.min_seconds
            and onsets.enough
            and onsets.is_clean
            and onsets.reverberation.anechoic
        )

    def is_possible_in_mixture(self, onsets: OnsetBins) -> bool:
        """Whether the residuals of several sources may be due to the head."""
        reverberation = onsets.reverberation
        return onsets.enough and reverberation.low_noise and reverberation.anechoic

    def magnitude(self, effective: CueStatistics) -> float:
        """Return the most probable α given the effective statistics (D,) of one source."""
        return self.most_probable(effective)[0]

    def posterior(self, effective: CueStatistics, onsets: OnsetBins) -> MismatchedPosterior | None:
        """Return the posterior of one source; None if the learned head explains it best."""
        magnitude, cues = self.most_probable(effective)
        if magnitude <= self.settings.magnitudes[0]:
            return None
        direct_sound = self.localizer.direct_sound
        strongest = onsets.by_frequency().strongest(direct_sound.onset_settings.most_bins)
        likelihood = direct_sound.log_likelihood(strongest)
        mixture = self.mixture(magnitude, cues, likelihood)
        return MismatchedPosterior(mixture, magnitude, float(likelihood.features[0]))

    def mixture(
        self, magnitude: float, cues: DirectionPosterior, likelihood: DirectionLogLikelihood
    ) -> DirectionPosterior:
        """Return the posterior at α, given that of the cues and the likelihood of the onsets."""
        settings = self.settings
        kind = int(magnitude > settings.max_same_unit)
        beta, width = settings.onset_betas[kind], settings.onset_degrees[kind]
        direct = tempered_posterior(cues.space, likelihood, beta, width)
        tail = settings.tail_weight
        return posterior_mixture(
            cues.blurred(settings.placement_degrees, settings.placement_weights),
            direct.blurred([0.0, settings.tail_degrees], [1 - tail, tail]),
            settings.cue_weights[kind],
        )

    def most_probable(self, effective: CueStatistics) -> tuple[float, DirectionPosterior]:
        """Return the most probable α, and the posterior of the PPAM for it."""
        scaled = effective.scaled(self.calibration.temperature / self.settings.temperature)
        sound = CueStatistics.stack([scaled])
        found = [model.posteriors(sound) for model in self._models]
        evidence = np.array([float(one.log_evidence[0]) for one in found]) + self._log_prior
        best = int(evidence.argmax())
        return self.settings.magnitudes[best], found[best][0]

    @cached_property
    def _models(self) -> list[ListenerPPAM]:
        """The model of each magnitude."""
        magnitudes = self.settings.magnitudes
        return [self.deviations.deviating(self.model, magnitude) for magnitude in magnitudes]

    @cached_property
    def _log_prior(self) -> Array:
        """Unnormalized log-probability of each magnitude for the kind of unit."""
        magnitudes = np.array(self.settings.magnitudes)
        prior = np.zeros(len(magnitudes))
        if self.unit is Unit.SAME:
            prior[magnitudes > self.settings.max_same_unit] = -np.inf
        elif self.unit is Unit.PERSON:
            prior[magnitudes >= self.settings.min_person] = self.settings.person_nats
        return prior
