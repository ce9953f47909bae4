"""Mismatch of the head: how much the head that made a recording deviates from the learned one.

Input: the cue statistics and the onsets of one source or of several, and a learned head. Output:
the magnitude α of the deviation with the largest evidence (`MagnitudeEstimate`), and posteriors of
directions if the head deviates by as much (`MismatchedPosterior`).

    p(recording | α)        product over the sources of the evidence of a PPAM whose charts deviate
                            by α (`ppam.head_deviations`)
    p(x | recording, α)     π PPAM at α, convolved with the error of placement,
                            + (1 - π) onsets, with a tempered likelihood

The learned head itself has the smallest α, the same head that was set up again about 0.3, another
unit or laboratory 0.6 to 1, and another person 1 to 1.5. Noise and reverberation change cues as
well: α is determined only without reverberation, and in noise only if the evidence of another head
is larger than noise explains. All sources of a recording have the same α. Errors of their masks
change cues, too, so several sources require more evidence than one.

Between the directions of a sparsely measured head, its own cues deviate from the model as those of
other heads do. The doubt therefore requires more evidence than directions reach that were held out
when the head was learned (`held_out_nats`). The posterior is as wide as α requires in any case.

A population already contains the differences between its heads. There α is an additional deviation,
beyond those differences: 0 for a member, 1 for a head of another kind. The cues of one recording
seldom decide between the two, because another kind of head resembles a member at a wrong direction.
Another kind of head, whose posterior is that of tempered onsets, therefore has a constant weight in
the posterior of one source. The evidence of α = 1 only decides about the doubt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

import numpy as np

from earatlas.features.onset_detector import OnsetBins
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.angles import apply_front_prior
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.localization.onset_likelihood import DirectionLogLikelihood
from earatlas.localization.reverberant_localizer import ReverberantLocalizer, posterior_mixture
from earatlas.localization.score_calibration import tempered_posterior
from earatlas.parts import Parts, complete
from earatlas.ppam.calibration import Calibration
from earatlas.ppam.head_deviations import HeadDeviations
from earatlas.ppam.listener_model import ListenerPPAM
from earatlas.ppam.model import PPAM
from earatlas.ppam.posterior import ChartPosteriors
from earatlas.threads import parallel_map
from earatlas.types import Array, Indices

__all__ = [
    "POPULATION_MISMATCH",
    "DeviatingHeads",
    "HeadMismatch",
    "MagnitudeEstimate",
    "MismatchSettings",
    "MismatchedPosterior",
    "Unit",
    "held_out_nats",
]


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
    min_snr_db: float = 10.0  # median SNR of the onsets below which α is not determined
    clean_nats: float = 0.0  # evidence against the learned head that one source requires
    noisy_nats: float = 10.0  # the same in noise
    max_same_unit: float = 0.3  # largest α of the same unit
    held_out_quantile: float = 0.9  # of the evidence of other heads for held-out directions
    held_out_sounds: int = 60  # that are compared when a head is learned
    held_out_charts: int = 16  # most probable charts whose evidence is summed then; saves time
    doubt_nats: float = 4.0  # least evidence of another head that a doubt requires
    fit_share: float = 1 / 3  # of the held-out evidence, above which a compared head does not fit
    undecided_own_weight: float = 0.5  # of the own posterior, if the own head reaches the evidence
    min_person: float = 0.6  # smallest α of another person
    person_nats: float = 3.0  # by which the larger ones are preferred if it is known to be one

    # Several sources
    min_mixture_residual_ratio: float = 1.0  # as above; their limit accounts for errors of masks
    pair_nats: float = 40.0  # evidence against the learned head that two sources require
    further_source_nats: float = 10.0  # and every further source

    # Posterior of the cues: error of placement, and its tail
    placement_degrees: tuple[float, float] = (4.0, 12.0)  # standard deviations
    placement_weights: tuple[float, float] = (0.9, 0.1)

    # Posterior of the onsets, for the same unit and for other heads
    onset_betas: tuple[float, float] = (0.08, 0.03)  # inverse temperatures
    onset_degrees: tuple[float, float] = (1.0, 3.0)  # standard deviations
    tail_degrees: float = 3.0  # standard deviation of the tail
    tail_weight: float = 0.2
    cue_weights: tuple[float, float] = (0.1, 0.5)  # π

    # Weight of another kind of head in all posteriors of one source; 0: the evidence decides
    other_weight: float = 0.0


# Evidence: docs/figures/settings/population.md, "mismatch".
POPULATION_MISMATCH = MismatchSettings(
    magnitudes=(0.0, 1.0),
    min_residual_ratio=0.0,
    onset_betas=(0.01, 0.01),
    clean_nats=3.0,
    doubt_nats=0.0,
    other_weight=0.06,
)


@dataclass(frozen=True, eq=False)
class MagnitudeEstimate:
    """The most probable magnitude of the deviation, given the cues of M sources."""

    magnitude: float  # α
    gain_nats: float  # log-evidence of α relative to the learned head
    other_head_nats: float  # of the best α beyond the same unit, relative to the best up to it
    cue_posteriors: ChartPosteriors  # of the M sources, at α


@dataclass(frozen=True, eq=False)
class MismatchedPosterior:
    """The posterior of a recording that the learned head does not fit, or may not fit."""

    posterior: DirectionPosterior
    magnitude: float  # α that is certain; NaN: not determined
    nats_per_onset: float


@dataclass(frozen=True, eq=False)
class DeviatingHeads:
    """The learned head at all magnitudes of the deviation; models are made when needed."""

    model: PPAM
    calibration: Calibration
    deviations: HeadDeviations | None  # None: the model is that of a population
    unit: Unit = Unit.OTHER
    # Evidence of another head that the head itself reaches, by errors of interpolation
    own_nats: float = 0.0
    settings: MismatchSettings = field(default_factory=MismatchSettings)

    def most_probable(self, effective: CueStatistics) -> MagnitudeEstimate:
        """Return the most probable α given the effective statistics (M, D) of M sources."""
        return complete(self.most_probable_parts(effective))

    def most_probable_parts(self, effective: CueStatistics) -> Parts[MagnitudeEstimate]:
        """Run `most_probable` in parts: the models, and one magnitude each."""
        yield 1.0
        scaled = effective.scaled(self.calibration.temperature / self.settings.temperature)
        found = []
        for model in self._models:
            yield 1.0
            found.append(model.posteriors(scaled))
        evidence = np.array([one.log_evidence.sum() for one in found]) + self._log_prior
        best = int(evidence.argmax())
        gain = float(evidence[best] - evidence[0])
        magnitude, other_head = self.settings.magnitudes[best], self._other_head_nats(evidence)
        return MagnitudeEstimate(magnitude, gain, other_head, found[best])

    def is_certain(self, found: MagnitudeEstimate, min_nats: float = 0.0) -> bool:
        """Whether α is not that of another head, or the own one does not reach its evidence."""
        same = found.magnitude <= self.settings.max_same_unit
        return same or found.other_head_nats > max(self.own_nats, min_nats)

    def certain_magnitude(self, found: MagnitudeEstimate) -> float:
        """Return α, but not that of another head if the own one may reach its evidence.

        One in ten directions of the own head exceeds `own_nats`, hence another limit.
        """
        certain = self.is_certain(found, self.settings.doubt_nats)
        return found.magnitude if certain else self.settings.max_same_unit

    def other_head_nats(self, effective: CueStatistics) -> float:
        """Return the log-evidence of another head relative to this one, for one sound (D,).

        The most probable charts of this head have nearly all of it.
        """
        charts = np.argsort(-self.model.posterior(effective).weights)
        likely = charts[: self.settings.held_out_charts]
        heads = replace(self, model=_with_charts(self.model, likely))
        scaled = effective.scaled(self.calibration.temperature / self.settings.temperature)
        sound = CueStatistics.stack([scaled])
        evidence = [float(model.posteriors(sound).log_evidence[0]) for model in heads._models]
        return self._other_head_nats(np.array(evidence))

    def _other_head_nats(self, evidence: Array) -> float:
        other = np.array(self.settings.magnitudes) > self.settings.max_same_unit
        return float(evidence[other].max() - evidence[~other].max())

    def fits(self, effective: CueStatistics) -> bool:
        """Whether one sound (D,) without noise and reverberation may be that of this head.

        A doubt must not accuse the own head, and nine of ten held-out sounds stay below its limit.
        Which of several heads made a recording is another question: a head that fits although it
        is a different one is as wrong as a head that does not fit itself, so the limit is lower.
        """
        settings, population = self.settings, isinstance(self.model, ListenerPPAM)
        limit = settings.clean_nats if population else settings.fit_share * self.own_nats
        return self.other_head_nats(effective) <= limit

    def prepare(self) -> None:
        """Make the models of all magnitudes, which takes up to half a second, before their use."""
        _ = self._models

    @cached_property
    def _models(self) -> list[ListenerPPAM]:
        """The model of each magnitude."""
        magnitudes, model = self.settings.magnitudes, self.model
        if isinstance(model, ListenerPPAM):
            return [model.with_deviation(magnitude) for magnitude in magnitudes]
        assert self.deviations is not None
        return [self.deviations.deviating(model, magnitude) for magnitude in magnitudes]

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


def _with_charts(model: PPAM, charts: Indices) -> PPAM:
    """Return a model with some of its charts, which keep their weights."""
    per_chart = ["centres", "weights", "gammas", "A", "b", "spread"]
    if isinstance(model, ListenerPPAM):
        per_chart += ["loadings", "residual"]
    return replace(model, **{name: getattr(model, name)[charts] for name in per_chart})


def held_out_nats(
    refits: Sequence[PPAM],
    held_out: CueStatistics,
    calibration: Calibration,
    deviations: HeadDeviations,
    settings: MismatchSettings | None = None,
) -> float:
    """Return the evidence of another head that nearly all held-out sounds (N, D) stay below.

    `refits[n]` must not have been trained on the direction of sound n. Between the directions of a
    sparsely measured head, cues deviate from the model as much as those of another unit do.
    """
    settings = settings or MismatchSettings()
    count = min(settings.held_out_sounds, len(refits))
    sounds: dict[int, list[int]] = {}  # of each refit
    for n in range(count):
        sounds.setdefault(id(refits[n]), []).append(n)

    def compare(rows: list[int]) -> list[float]:
        refit = replace(refits[rows[0]])  # a copy: what it caches for inference is freed with it
        heads = DeviatingHeads(refit, calibration, deviations, settings=settings)
        effective = calibration.effective_statistics(held_out[np.array(rows)], heads.model.noise)
        return [heads.other_head_nats(effective[i]) for i in range(len(rows))]

    nats = np.concatenate(parallel_map(compare, sounds.values()))
    return max(float(np.quantile(nats, settings.held_out_quantile)), 0.0)


@dataclass(frozen=True, eq=False)
class HeadMismatch:
    """Posteriors of recordings that another head may have made."""

    heads: DeviatingHeads
    localizer: ReverberantLocalizer

    @property
    def settings(self) -> MismatchSettings:
        """Settings of the mismatch."""
        return self.heads.settings

    def is_possible(self, residual_ratio: float, onsets: OnsetBins) -> bool:
        """Whether a residual may be due to the head, but not to noise or reverberation.

        Except in streams, the reverberation of the onsets includes the variance of the cues.
        """
        settings, reverberation = self.settings, onsets.reverberation
        onset_settings = self.localizer.direct_sound.onset_settings
        seconds = onsets.frames * onset_settings.hop / onset_settings.rate
        if seconds < settings.min_seconds or not onsets.enough:
            return False
        if reverberation.n_sources == 1:
            fits = residual_ratio <= settings.min_residual_ratio
            loud = onsets.median_snr_db >= settings.min_snr_db
        else:
            fits = residual_ratio <= settings.min_mixture_residual_ratio
            loud = reverberation.low_noise
        return loud and not fits and reverberation.free_field

    def required_nats(self, n_sources: int, *, clean: bool) -> float:
        """Return the gain of evidence from which the head of M sources is another one."""
        if n_sources == 1:
            return self.settings.clean_nats if clean else self.settings.noisy_nats
        return self.settings.pair_nats + self.settings.further_source_nats * (n_sources - 2)

    def posterior(
        self, own: DirectionPosterior, effective: CueStatistics, onsets: OnsetBins
    ) -> MismatchedPosterior | None:
        """Return the posterior of one source; None if the learned head explains it best.

        `own` is its posterior if the learned head made the recording. Both have the prior of front
        before rear.
        """
        found = self.heads.most_probable(CueStatistics.stack([effective]))
        magnitude, (cues,) = found.magnitude, found.cue_posteriors
        required = self.required_nats(1, clean=onsets.is_clean)
        decided = magnitude > self.settings.magnitudes[0] and found.gain_nats >= required
        other_weight = self.settings.other_weight
        if not (decided or other_weight):
            return None
        direct_sound = self.localizer.direct_sound
        strongest = onsets.by_frequency().strongest(direct_sound.onset_settings.most_bins)
        likelihood = direct_sound.log_likelihood(strongest)
        if other_weight:
            other = apply_front_prior(
                self.onset_posterior(self.settings.magnitudes[-1], likelihood)
            )
            posterior = posterior_mixture(own, other, 1 - other_weight)
        else:
            posterior = apply_front_prior(self.mixture(magnitude, cues, likelihood))
            if not self.heads.is_certain(found):
                posterior = posterior_mixture(own, posterior, self.settings.undecided_own_weight)
        nats = float(likelihood.features[0])
        certain = self.heads.certain_magnitude(found) if decided else math.nan
        return MismatchedPosterior(posterior, certain, nats)

    def mixture(
        self, magnitude: float, cues: DirectionPosterior, likelihood: DirectionLogLikelihood
    ) -> DirectionPosterior:
        """Return the posterior at α, given that of the cues and the likelihood of the onsets."""
        settings = self.settings
        return posterior_mixture(
            cues.blurred(settings.placement_degrees, settings.placement_weights),
            self.onset_posterior(magnitude, likelihood),
            settings.cue_weights[int(magnitude > settings.max_same_unit)],
        )

    def onset_posterior(
        self, magnitude: float, likelihood: DirectionLogLikelihood
    ) -> DirectionPosterior:
        """Return the posterior of the onsets at α, with a tempered likelihood."""
        settings = self.settings
        kind = int(magnitude > settings.max_same_unit)
        beta, width = settings.onset_betas[kind], settings.onset_degrees[kind]
        direct = tempered_posterior(self.heads.model.space, likelihood, beta, width)
        tail = settings.tail_weight
        return direct.blurred([0.0, settings.tail_degrees], [1 - tail, tail])
