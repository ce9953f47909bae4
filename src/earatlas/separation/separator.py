"""A learned head prepared for mixtures: selection of bins, model order, and fits of the sources.

Input: spectra and onsets of a recording. Output: the number and directions of its sources, the
fitted VESSL state, and soft masks. The steps are: coherent bins (`earatlas.features.tf_bins`),
sources by their onsets (`earatlas.localization.onset_mixture`) or by the candidate search
(`earatlas.separation.candidate_search`), VESSL (`earatlas.separation.vessl`), dense masks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from earatlas.features.layout import Threshold
from earatlas.features.onset_detector import OnsetBins, OnsetDetector
from earatlas.features.statistics import LevelStatistics
from earatlas.features.tf_bins import ObservedBins, interaural_coherence
from earatlas.localization.learned_head import LearnedHead
from earatlas.localization.multi_source_posterior import LOW_EVIDENCE_NATS
from earatlas.localization.onset_mixture import DetectedSource, OnsetMixture
from earatlas.ppam.calibration import TYPICAL_FRAME_NOISE
from earatlas.separation.candidate_search import (
    CandidateSearch,
    SourceCandidates,
)
from earatlas.separation.dense_masks import dense_masks
from earatlas.separation.source_model import SourceModel
from earatlas.separation.vessl import VESSL, VESSLState, cue_moments
from earatlas.tracking.offline import (
    EstimatedTrajectory,
    TrajectoryOptions,
    find_moving_trajectories,
)
from earatlas.tracking.stitching import stitch_tracks
from earatlas.training.source_pairs import COARSE_MAX_BINS, FINE_MAX_BINS
from earatlas.types import Array, Complex, Spectra

__all__ = [
    "MAX_SOURCES",
    "REVERBERANT_DECAY_SECONDS",
    "OnsetDetections",
    "Separator",
    "decay_is_reverberant",
]

# Evidence: docs/figures/settings/separation.md, "separator".
MAX_SOURCES = 6  # largest number of sources
REVERBERANT_DECAY_SECONDS = 0.25  # s per 60 dB, from which a recording counts as reverberant
_MIN_COHERENCE = 0.99  # interaural coherence that a single source usually exceeds
_MIN_KEPT_FRACTION = 0.5  # at least this fraction of the observed bins is kept
# A recording counts as clean if this fraction of bins exceeds the noise floor minus a margin.
_NOISE_MARGIN_DB, _CLEAN_FRACTION = 12.0, 0.75
_MIN_ONSETS = 20  # below, onsets are not analysed
_INITIALIZATIONS = 2  # sets of candidate directions that VESSL tries
_TRIAL_ITERATIONS = 4  # VESSL iterations of a trial
_MIN_GAIN_NATS = 0.1  # nats per bin that one more source must add to the free energy
_MIN_TRIAL_GAIN_NATS = -0.2  # nats per bin after a trial, below which the fit is not completed
_EXPLAINED_VARIANCE = 12.0  # 90th percentile of v, relative to one source, that needs no more


def decay_is_reverberant(onsets: OnsetBins) -> bool:
    """Whether sound decays as slowly as in a reverberant room."""
    return onsets.decay_seconds >= REVERBERANT_DECAY_SECONDS


@dataclass(frozen=True, eq=False)
class OnsetDetections:
    """Sources that were detected by their onsets, in an order of their own."""

    sources: tuple[DetectedSource, ...]
    onsets: OnsetBins | None  # onsets of the mixture
    source_onsets: tuple[OnsetBins, ...] = ()  # onsets of each separated source of VESSL
    next_source_ratio: float = 0.0  # evidence of one more source over the limit; 0: not evaluated

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def reliable(self) -> bool:
        """Whether every source adds enough evidence."""
        return min(source.evidence for source in self.sources) >= LOW_EVIDENCE_NATS

    @property
    def directions(self) -> Array:
        """Directions (M, C) in degrees."""
        return np.stack([source.direction for source in self.sources])


class Separator:
    """A learned head prepared for mixtures; holds everything that is independent of a recording."""

    def __init__(self, head: LearnedHead) -> None:
        layout, noise = head.layout, head.calibration.frame_noise
        if noise is None:
            noise = np.array([TYPICAL_FRAME_NOISE[str(kind)] for kind in layout.cue_kinds])
        self.head, self.layout = head, layout
        self.source_model = SourceModel.from_ppam(head.model, layout, noise)
        self.candidate_search = CandidateSearch(head.model, layout)

    # --- bins and onsets -----------------------------------------------------------------------

    def coherent_bins(self, spectra: Spectra, floor_db: float) -> ObservedBins:
        """Return the observed bins with the highest coherence, at least half of them."""
        layout = self.source_model.layout
        bins = ObservedBins.from_spectra(spectra, layout, np.full(layout.n_frequencies, floor_db))
        if not len(bins):
            return bins
        coherence = interaural_coherence(spectra)[bins.f, bins.t]
        threshold = min(_MIN_COHERENCE, float(np.quantile(coherence, 1 - _MIN_KEPT_FRACTION)))
        return bins.subset(np.flatnonzero(coherence >= threshold))

    def bins_above_noise(
        self, bins: ObservedBins, levels: LevelStatistics, threshold: Threshold
    ) -> ObservedBins:
        """Return the bins above the recording's noise floor, or all bins if it is clean."""
        floors = np.full(self.layout.n_frequencies, -np.inf)
        floors[self.layout.cue_frequencies] = levels.floors_db(threshold)
        above = bins.level_db - floors[bins.f]
        # Pauses of several talkers resemble noise, but then few bins are close to the floor.
        clean = np.mean(above >= -_NOISE_MARGIN_DB) > _CLEAN_FRACTION or not (above >= 0).any()
        return bins if clean else bins.subset(np.flatnonzero(above >= 0))

    def onset_detector(self, *, segments: bool = False) -> OnsetDetector | None:
        """Return an onset detector; None if the head has no model of reverberant rooms."""
        if self.head.reverberant_localizer is None:
            return None
        onset_settings = replace(
            self.head.reverberant_localizer.direct_sound.onset_settings, most_bins=FINE_MAX_BINS
        )
        return OnsetDetector(onset_settings, segments=segments)

    def detect_sources(self, onsets: OnsetBins | None, n_sources: int | None) -> OnsetDetections:
        """Detect sources by their onsets; none if there are too few onsets.

        The strongest onsets give the best directions. If all of them belong to one talker, more
        onsets are used.
        """
        if self.head.reverberant_localizer is None or onsets is None or len(onsets) < _MIN_ONSETS:
            return OnsetDetections((), onsets)
        sources: tuple[DetectedSource, ...] = ()
        for count in (COARSE_MAX_BINS, FINE_MAX_BINS):
            bins = onsets.strongest(count)
            mixture = OnsetMixture(self.head.reverberant_localizer.direct_sound, bins)
            if n_sources is None:
                cells = mixture.count_sources(MAX_SOURCES)
            else:
                cells = mixture.search_up_to(n_sources)[-1]
            sources = tuple(mixture.detected_sources(cells))
            if n_sources is None or min(own.evidence for own in sources) >= LOW_EVIDENCE_NATS:
                break
        # In anechoic recordings the free energy decides about further sources.
        evaluate = n_sources is None and decay_is_reverberant(onsets)
        ratio = mixture.next_source_ratio(cells) if evaluate else 0.0
        return OnsetDetections(sources, bins, next_source_ratio=ratio)

    # --- moving sources ------------------------------------------------------------------------

    def estimate_trajectories(
        self,
        onsets: OnsetBins | None,
        detections: OnsetDetections,
        n_sources: int | None,
        samples: int,
    ) -> list[EstimatedTrajectory]:
        """Return the trajectories of all sources if one of them moves, otherwise none."""
        if self.head.reverberant_localizer is None or onsets is None or not len(detections):
            return []
        options = TrajectoryOptions(samples / self.layout.rate, n_sources, MAX_SOURCES)
        return find_moving_trajectories(
            self.head.reverberant_localizer.direct_sound, onsets, detections.directions, options
        )

    def estimate_long_trajectories(
        self,
        segments: list[OnsetBins],
        detections: OnsetDetections,
        n_sources: int | None,
        samples: int,
    ) -> list[EstimatedTrajectory]:
        """Return the trajectories of a long recording from the onsets of successive segments."""
        if self.head.reverberant_localizer is None or not segments or not len(detections):
            return []
        options = TrajectoryOptions(samples / self.layout.rate, n_sources, MAX_SOURCES)
        return stitch_tracks(
            self.head.reverberant_localizer.direct_sound, segments, detections.directions, options
        )

    # --- VESSL ---------------------------------------------------------------------------------

    def fit_at(self, bins: ObservedBins, directions: Array) -> tuple[VESSL, VESSLState]:
        """Fit sources that are initialized at known directions (M, C)."""
        vessl = VESSL(self.source_model, bins)
        return vessl, _ordered(vessl.run(vessl.initialize_at(directions)))

    def fit(self, bins: ObservedBins, n_sources: int | None = None) -> tuple[VESSL, VESSLState]:
        """Fit sources at candidate directions; with None, the free energy selects their number."""
        vessl = VESSL(self.source_model, bins)
        candidates = self.candidate_search.search(bins)
        state = vessl.run(_best_trial(vessl, candidates, n_sources or 1))
        if n_sources is None:
            state = _add_sources(vessl, candidates, state, len(bins))
        return vessl, _ordered(state)

    def fit_more_sources(self, bins: ObservedBins, vessl: VESSL, state: VESSLState) -> VESSLState:
        """Add sources to a fit while the free energy supports them."""
        relative_variance = state.noise / self.source_model.noise
        if np.quantile(relative_variance, 0.9) < _EXPLAINED_VARIANCE:
            return state
        candidates = self.candidate_search.search(bins)
        return _ordered(_add_sources(vessl, candidates, state, len(bins)))

    def expected_interaural_ratios(self, state: VESSLState) -> Complex:
        """Return the expected interaural transfer functions (right over left) (M, F) of sources.

        They are NaN above the highest frequency with learned phase. Below it, gaps are filled with
        the source's own phase.
        """
        wide, learned = self.source_model.layout, self.layout.ipd_frequencies
        phases = np.arange(learned[-1] + 1 if len(learned) else 0)
        known = {
            kind: np.full((len(state.sources), wide.n_frequencies), np.nan)
            for kind in ("ild", "ipd_cos", "ipd_sin")
        }
        cues, _ = cue_moments(state.sources)
        for kind, values in known.items():
            own = wide.cue_kinds == kind
            values[:, wide.cue_frequencies[own]] = cues[:, own]
        phase = np.arctan2(known["ipd_sin"], known["ipd_cos"])
        ratios = np.full(phase.shape, np.nan, dtype=np.complex128)
        ratios[:, phases] = (10 ** (known["ild"] / 20) * np.exp(1j * phase))[:, phases]
        return ratios

    def masks(self, vessl: VESSL, state: VESSLState, spectra: Spectra) -> Array:
        """Return soft masks (M, F, T) of all bins, observed or not."""
        if len(state.sources) == 1:
            return np.ones((1, self.layout.n_frequencies, spectra.shape[-1]))
        return dense_masks(vessl, state, spectra)


def _best_trial(vessl: VESSL, candidates: SourceCandidates, count: int) -> VESSLState:
    """Return the best state of `count` sources after a few iterations from several starts."""
    starts = candidates.best_sets(count, _INITIALIZATIONS if count > 1 else 1)
    trials = [vessl.run(vessl.initialize_at(x), _TRIAL_ITERATIONS) for x in starts]
    return max(trials, key=lambda state: state.free_energy)


def _add_sources(
    vessl: VESSL, candidates: SourceCandidates, state: VESSLState, n_bins: int
) -> VESSLState:
    """Add one source at a time while the free energy increases enough."""
    for count in range(len(state.sources) + 1, MAX_SOURCES + 1):
        trial = _best_trial(vessl, candidates, count)
        if trial.free_energy < state.free_energy + _MIN_TRIAL_GAIN_NATS * n_bins:
            break
        trial = vessl.run(trial)
        if trial.free_energy <= state.free_energy + _MIN_GAIN_NATS * n_bins:
            break
        state = trial
    return state


def _ordered(state: VESSLState) -> VESSLState:
    """Return the state with the source that has most coherent bins first."""
    counts = state.assignments.sum(axis=1)
    return state.reordered(np.argsort(-counts, kind="stable"))
