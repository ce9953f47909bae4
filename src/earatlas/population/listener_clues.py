"""What recordings say about the head of their listener, with or without reverberation.

Input: an atlas of a population, and recordings. Output: `ListenerClue`s. Without reverberation they
are those of the cues of the whole recording, in rooms those of its onsets. Recordings of several
sources at once give none: the cues of their onsets have errors that are as large as the differences
between people.

The cues of a whole reverberant recording are those of the room. Those of its onsets are nearly
unbiased, but have larger errors than anechoic cues, most of which all onsets share: first
reflections follow within the window. A population alone resolves directions from them badly; the
posterior of the onsets (`earatlas.population.listener_templates`) does better, so that it is the
E-step of an unknown listener, and the cues are only the M-step.

    f  frequencies of the detector    n_f  onset bins    e_d  error of the mean cue d

    ȳ_d = mean over the onset bins of the nearest frequency
    Q_d = σ_d² / (σ_d² + e_d² (1 + 1 / n_f)) / temperature     as in `earatlas.ppam.calibration`
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np

from earatlas.features.audio import Audio
from earatlas.features.layout import CueLayout
from earatlas.features.onset_detector import OnsetBins, OnsetDetectorSettings, detect_onsets
from earatlas.features.recording import MemoryRecording
from earatlas.features.statistics import CueStatistics, LevelStatistics
from earatlas.features.stft import stft
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.localization.detected_sources import DETECTION_SETTINGS, SourceDetector
from earatlas.numerics import logsumexp
from earatlas.population.adaptation import ListenerClue, is_observed
from earatlas.population.learned_population import LearnedPopulation
from earatlas.ppam.listener_model import ListenerPPAM
from earatlas.types import Array, Indices

__all__ = ["ClueMaker", "OnsetClueSettings", "UnusableSound", "recording_statistics"]


class UnusableSound(StrEnum):
    """Why a recording says nothing about its listener."""

    SILENT = "too little sound"
    FEW_ONSETS = "too few onsets in a room"
    SEVERAL_SOURCES = "several sources at once"


# Evidence: docs/figures/settings/population.md, "onset clues".
@dataclass(frozen=True)
class OnsetClueSettings:
    """Errors of the cues of onsets in rooms, as standard deviations at frequencies in Hz."""

    level_hz: tuple[float, ...] = (500.0, 2500.0, 6000.0)
    level_db: tuple[float, ...] = (1.5, 3.0, 5.0)
    phase_hz: tuple[float, ...] = (500.0, 1500.0)
    phase: tuple[float, ...] = (0.15, 0.3)  # of its cosine and of its sine


@dataclass(frozen=True, eq=False)
class ClueMaker:
    """Makes clues about the listener from recordings."""

    unknown: LearnedPopulation  # of an unknown listener
    settings: OnsetClueSettings = field(default_factory=OnsetClueSettings)

    def clue(self, audio: Audio, label: Array | None = None) -> ListenerClue | UnusableSound:
        """Return the clue of a recording at the rate of the layout.

        `label` is the direction of its source, if it is known.
        """
        head = self.unknown
        samples = _without_dc_offset(audio, head.layout)
        whole = _statistics(samples, head.layout)
        effective = head.calibration.effective_statistics(whole, self._prior.noise)
        if not is_observed(effective, head.calibration):
            return UnusableSound.SILENT
        onsets = self._onsets(samples)
        variance = float(head.calibration.relative_variances(CueStatistics.stack([whole]))[0])
        if onsets is not None:
            onsets = onsets.with_reverberation(cue_variance=variance)
        if onsets is None or not _has_room(onsets):
            return ListenerClue.of_cues(head.population, self._prior, effective, label)
        if not onsets.enough:
            return UnusableSound.FEW_ONSETS
        if self._has_several_sources(onsets):
            return UnusableSound.SEVERAL_SOURCES
        return self.onset_clue(onsets, head.posterior(whole, onsets), label)

    def onset_clue(
        self, onsets: OnsetBins, posterior: DirectionPosterior, label: Array | None = None
    ) -> ListenerClue:
        """Return the clue of the onsets of a source, given its posterior."""
        population = self.unknown.population
        logs = posterior.log_density(population.charts.centres)
        statistics = self.onset_statistics(onsets.strongest(self._detector.most_bins))
        return ListenerClue.of_onsets(
            population, self._prior, statistics, logs - logsumexp(logs), label
        )

    def onset_statistics(self, bins: OnsetBins) -> CueStatistics:
        """Return the effective statistics (D,) of the cues of onsets."""
        F = len(self._detector.frequencies_hz)
        weights = np.bincount(bins.f, bins.rise_db, F)

        def mean(values: Array) -> Array:
            means: Array = np.bincount(bins.f, bins.rise_db * values, F) / np.maximum(weights, 1e-9)
            return means[self._nearest]

        levels = np.maximum(np.abs(bins.z), 1e-12)
        phase = np.angle(bins.z[:, 1] * bins.z[:, 0].conj())
        kinds = self.unknown.layout.cue_kinds
        cues = np.select(
            [kinds == "ild", kinds == "ipd_cos"],
            [mean(20 * np.log10(levels[:, 1] / levels[:, 0])), mean(np.cos(phase))],
            mean(np.sin(phase)),
        )
        n = np.bincount(bins.f, minlength=F)[self._nearest]
        variance = self._errors**2 * (1 + 1 / np.maximum(n, 1))
        noise = self._prior.noise
        q = np.where(n > 0, noise / (noise + variance), 0.0) / self.unknown.calibration.temperature
        return CueStatistics(q, q * cues, q * cues**2, bins.frames)

    def _has_several_sources(self, onsets: OnsetBins) -> bool:
        """Whether several sources explain the onsets better than one."""
        localizer = self.unknown.reverberant_localizer
        assert localizer is not None
        strongest = onsets.by_frequency().strongest(DETECTION_SETTINGS.few_bins)
        return len(SourceDetector(localizer.direct_sound, strongest).mixture.count_sources(2)) > 1

    def _onsets(self, samples: Array) -> OnsetBins | None:
        """Return the onsets of samples (2, n); None without models for rooms."""
        if self.unknown.reverberant_localizer is None:
            return None
        return detect_onsets(samples, self._detector)

    @cached_property
    def _detector(self) -> OnsetDetectorSettings:
        """Settings of the onset detector."""
        assert self.unknown.reverberant_localizer is not None
        return self.unknown.reverberant_localizer.direct_sound.onset_settings

    @cached_property
    def _prior(self) -> ListenerPPAM:
        """The PPAM of an unknown listener."""
        return self.unknown.population.model()

    @cached_property
    def _cue_hz(self) -> Array:
        """Frequency (D,) of each cue."""
        layout = self.unknown.layout
        return np.asarray(layout.cue_frequencies * (layout.rate / layout.window), dtype=np.float64)

    @cached_property
    def _nearest(self) -> Indices:
        """Frequency (D,) of the detector that is nearest to each cue."""
        distance = np.abs(self._detector.frequencies_hz - self._cue_hz[:, None])
        return np.asarray(distance.argmin(axis=1), dtype=np.intp)

    @cached_property
    def _errors(self) -> Array:
        """e (D,): standard deviation of the error of each cue that all onsets share."""
        settings, hz = self.settings, self._cue_hz
        errors: Array = np.where(
            self.unknown.layout.cue_kinds == "ild",
            np.interp(hz, settings.level_hz, settings.level_db),
            np.interp(hz, settings.phase_hz, settings.phase),
        )
        return errors


def _has_room(onsets: OnsetBins) -> bool:
    """Whether the decays or the cues of single frames are not those of one anechoic source."""
    reverberation = onsets.reverberation
    return reverberation.reverberant or reverberation.scattered_cues


def recording_statistics(audio: Audio, layout: CueLayout) -> CueStatistics:
    """Return the cue statistics of a recording at the rate of the layout."""
    return _statistics(_without_dc_offset(audio, layout), layout)


def _without_dc_offset(audio: Audio, layout: CueLayout) -> Array:
    """Return samples (2, n) without the offset of each ear, which would begin with an onset."""
    blocks = MemoryRecording(audio).without_dc_offset().blocks(layout)
    return np.concatenate([block.samples for block in blocks], axis=1)


def _statistics(samples: Array, layout: CueLayout) -> CueStatistics:
    """Return the cue statistics of samples (2, n)."""
    levels = LevelStatistics(layout)
    levels.push(stft(samples, layout.window, layout.hop))
    return levels.statistics()
