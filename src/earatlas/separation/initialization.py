"""Starts of VESSL in one recording: detections by onsets, or the candidate search.

Input: the coherent bins and the onsets of a recording. Output: `OnsetDetections`, states of VESSL
that start at given or at candidate directions, and the `SourceFit` of a state. Which start is taken
and how many sources there are is decided in `earatlas.separation.model_order`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from earatlas.features.onset_detector import OnsetBins
from earatlas.features.reverberation import UNKNOWN_REVERBERATION, ReverberationEstimate
from earatlas.features.statistics import CueStatistics
from earatlas.features.tf_bins import ObservedBins
from earatlas.localization.detected_sources import (
    DETECTION_SETTINGS,
    DetectedSource,
    SourceDetector,
)
from earatlas.separation.candidate_search import SourceCandidates
from earatlas.separation.separator import MAX_SOURCES, Separator
from earatlas.separation.vessl import VESSL, VESSLState
from earatlas.types import Array

__all__ = ["Initialization", "InitializationSettings", "OnsetDetections", "SourceFit"]


# Evidence: docs/figures/settings/separation.md, "initialization".
@dataclass(frozen=True, slots=True)
class InitializationSettings:
    """Settings of the starts of VESSL, and of the test whether the anechoic model fits."""

    candidate_sets: int = 2  # sets of candidate directions that VESSL tries
    trial_iterations: int = 4  # VESSL iterations of a trial
    multi_source_factor: float = 3.0  # normalized residual among M sources, per further source
    max_median_variance: float = 100.0  # median of v, relative to a single anechoic source

    def residual_factor(self, n_sources: int) -> float:
        """Return the tolerance of the residuals of M sources, relative to one source."""
        return self.multi_source_factor * max(n_sources - 1, 1)


@dataclass(frozen=True, eq=False)
class OnsetDetections:
    """Sources that were detected by their onsets, in an order of their own."""

    sources: tuple[DetectedSource, ...]
    onsets: OnsetBins | None  # onsets of the mixture
    next_source_ratio: float = 0.0  # evidence of one more source over the limit; 0: not evaluated

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def reverberation(self) -> ReverberationEstimate:
        """Reverberation of the mixture; unknown if there are no onsets."""
        return UNKNOWN_REVERBERATION if self.onsets is None else self.onsets.reverberation

    @property
    def min_evidence(self) -> float:
        """Smallest evidence of a source, in nats per onset; inf without sources."""
        return min((source.evidence for source in self.sources), default=np.inf)

    @property
    def reliable(self) -> bool:
        """Whether every source adds enough evidence."""
        return self.min_evidence >= DETECTION_SETTINGS.low_evidence_nats

    @property
    def directions(self) -> Array:
        """Directions (M, C) in degrees."""
        return np.stack([source.direction for source in self.sources])


@dataclass(frozen=True, eq=False)
class SourceFit:
    """The static sources of a recording, as fitted by VESSL and as detected by onsets."""

    vessl: VESSL
    state: VESSLState  # the source with most coherent bins comes first
    residual_ratios: Array  # (M,) of the anechoic model; above 1 it does not fit
    detections: OnsetDetections
    settings: InitializationSettings
    effective: CueStatistics  # (M, D) of each source, saturated and tempered

    @property
    def n_sources(self) -> int:
        """Number of sources M."""
        return len(self.state.sources)

    @property
    def residual_factor(self) -> float:
        """Tolerance of the residuals of M sources, relative to one source."""
        return self.settings.residual_factor(self.n_sources)

    @property
    def relative_variance(self) -> float:
        """90th percentile of the cue variances of single bins, relative to one anechoic source."""
        return float(np.quantile(self.state.noise / self.vessl.source_model.noise, 0.9))

    def with_reverberation(self, decided: ReverberationEstimate) -> SourceFit:
        """Return the fit with the reverberation that was decided when the signals were made.

        The variance of the cues of the M sources completes its evidence.
        """
        onsets = self.detections.onsets
        if onsets is None:
            return self
        completed = replace(decided, cue_variance=self.relative_variance, n_sources=self.n_sources)
        onsets = replace(onsets, reverberation=completed)
        return replace(self, detections=replace(self.detections, onsets=onsets))

    @property
    def anechoic(self) -> bool:
        """Whether the anechoic model fits all sources."""
        return bool((self.residual_ratios <= 1).all())


class Initialization:
    """The starts of VESSL in one recording; the candidate search is done once, if it is needed."""

    def __init__(
        self,
        separator: Separator,
        bins: ObservedBins,
        onsets: OnsetBins | None = None,
        settings: InitializationSettings | None = None,
        directions: Array | None = None,
    ) -> None:
        """Take the bins and onsets, and the directions (M, C) of the sources if they are given."""
        self.separator, self.onsets = separator, onsets
        self.settings = settings or InitializationSettings()
        self.vessl = VESSL(separator.source_model, bins, directions=directions)

    def detect_sources(self, n_sources: int | None) -> OnsetDetections:
        """Detect sources by their onsets; none if there are too few onsets.

        The strongest onsets give the best directions. If all of them belong to one talker, more
        onsets are used.
        """
        localizer, onsets = self.separator.head.reverberant_localizer, self.onsets
        if localizer is None or onsets is None or not onsets.enough:
            return OnsetDetections((), onsets)
        for count in (DETECTION_SETTINGS.few_bins, DETECTION_SETTINGS.many_bins):
            bins = onsets.strongest(count)
            detector = SourceDetector(localizer.direct_sound, bins)
            if n_sources is None:
                fit = detector.mixture.count_sources(MAX_SOURCES)
            else:
                fit = detector.mixture.search(n_sources)[-1]
            detections = OnsetDetections(tuple(detector.sources(fit)), bins)
            if n_sources is None or detections.reliable:
                break
        # In anechoic recordings the free energy decides about further sources.
        if n_sources is None and onsets.reverberation.reverberant:
            ratio = detector.mixture.next_source_ratio(fit)
            return OnsetDetections(detections.sources, bins, next_source_ratio=ratio)
        return detections

    def alternate(self, detections: OnsetDetections, directions: Array) -> bool:
        """Return whether sources in directions (M, C) have onsets at the same frequencies.

        One talker, recorded by another head than the learned one, resembles several sources that
        have frequencies of their own.
        """
        localizer, onsets = self.separator.head.reverberant_localizer, detections.onsets
        if localizer is None or onsets is None:
            return True
        return SourceDetector(localizer.direct_sound, onsets).alternates(directions)

    def at_given_directions(self, directions: Array) -> SourceFit:
        """Return the fit of sources at given directions (M, C), in the given order."""
        state = self.at_directions(directions)
        return self._fit(state, OnsetDetections((), self.onsets))

    def at_directions(self, directions: Array) -> VESSLState:
        """Return the converged state of sources that start at known directions (M, C)."""
        return self.vessl.run(self.vessl.initialize_at(directions))

    def at_candidates(self, n_sources: int) -> VESSLState:
        """Return the converged state of sources that start at the best candidate directions."""
        return self.vessl.run(self.trial(n_sources))

    def trial(self, n_sources: int) -> VESSLState:
        """Return the best state after a few iterations from several sets of candidates."""
        sets = self._candidates.best_sets(
            n_sources, self.settings.candidate_sets if n_sources > 1 else 1
        )
        starts = (self.vessl.initialize_at(directions) for directions in sets)
        trials = [self.vessl.run(start, self.settings.trial_iterations) for start in starts]
        return max(trials, key=lambda state: state.free_energy)

    @cached_property
    def _candidates(self) -> SourceCandidates:
        return self.separator.candidate_search.search(self.vessl.bins)

    def source_fit(self, state: VESSLState, detections: OnsetDetections) -> SourceFit:
        """Return the fit of a state, with its sources in order of their numbers of bins."""
        counts = state.assignments.sum(axis=1)
        return self._fit(state.reordered(np.argsort(-counts, kind="stable")), detections)

    def _fit(self, state: VESSLState, detections: OnsetDetections) -> SourceFit:
        ratios, effective = self._residual_ratios(state)
        return SourceFit(self.vessl, state, ratios, detections, self.settings, effective)

    def _residual_ratios(self, state: VESSLState) -> tuple[Array, CueStatistics]:
        """Return the residual ratio (M,) of the anechoic model, and the effective statistics.

        Up to a ratio of 1 the model fits.

        The mean cues of a source may fit although single bins do not: independent noise at the ears
        has mean level and phase differences of 0. The variance of single bins is therefore limited
        as well.
        """
        head, q = self.separator.head, state.assignments
        weights = np.where(q > 1e-6, q, 0.0)  # negligible assignments do not count
        statistics = self.vessl.bins.restricted_to(head.layout).statistics(weights)
        median_variance = float(np.median(state.noise / self.separator.source_model.noise))
        scatter = median_variance / self.settings.max_median_variance
        limit = head.calibration.max_residual * self.settings.residual_factor(len(state.sources))
        effective = head.calibration.effective_statistics(statistics, head.model.noise)
        residuals = head.model.normalized_residuals(effective, state.directions)
        return np.maximum(residuals / limit, scatter), effective
