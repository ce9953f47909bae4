"""Reverberation of a recording: the decay time of its sound, and whether it is reverberant.

The input is the power of both ears, frame by frame (`DecayEstimator`). The output is a
`ReverberationEstimate`, which is made once per recording, or per decision interval of a stream, and
is used by all later steps: diagnostics, model order, demixing filters, tracking and rendering.

Speech stops abruptly many times per second; in a room its level cannot fall faster than the
reverberation. The decay time is that of the fastest tenth of all segments of 64 ms that begin well
above the quiet level of their band. The diffuse-to-direct ratio of two sources is known once they
are separated with anechoic filters; in noise (an SNR below 16.5 dB) it is larger for any room. The
first of these rules that applies decides:

    1. decay time below 0.20 s                                    anechoic
    2. stream that was reverberant                                reverberant
    3. decay time unknown                                         uncertain
    4. ratio above 0.006, and no noise or a decay from 0.24 s     reverberant
    5. ratio up to 0.006, and no noise                            anechoic
    6. decay time from 0.24 s; from 0.35 s as a stream begins     reverberant
    7. otherwise                                                  uncertain

The ratio of a recording is measured only if these rules are uncertain without it; a stream measures
it whenever two sources are separated with anechoic filters.

Cues that deviate from those of the learned head may have a weaker room than this as their reason.
The estimate decides that, too (`free_field`): by how much the cues of single bins vary, which a
room increases by far more than noise, and another head hardly at all. Decay times are less certain:
noise and several sources, which fill each other's pauses, make decays slower.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from enum import Enum
from typing import TypedDict

import numpy as np

from earatlas.features.statistics import NOISE_FLOOR, LevelTable
from earatlas.types import Array

__all__ = [
    "UNKNOWN_REVERBERATION",
    "DecayEstimator",
    "DecaySettings",
    "ReverberationEstimate",
    "ReverberationEvidence",
    "ReverberationSettings",
    "ReverberationState",
]


@dataclass(frozen=True, slots=True)
class ReverberationSettings:
    """Thresholds of the decision whether a recording is reverberant.

    Evidence: docs/figures/settings/features.md, "reverberation".
    """

    certainly_anechoic_seconds: float = 0.175  # decay time below which there is no room at all
    anechoic_seconds: float = 0.20  # decay time below which sound is anechoic
    reverberant_seconds: float = 0.24  # decay time from which sound is reverberant
    certainly_reverberant_seconds: float = 0.35  # the same if simultaneous sources fill the pauses
    reverberant_diffuse_ratio: float = 0.006  # diffuse-to-direct ratio above which a room is it
    min_snr_db: float = 16.5  # below, noise raises the ratio, then it needs a slow decay too
    settling_seconds: float = 4.0  # active sound of a stream until pauses are frequent enough
    max_cue_variance: float = 100.0  # of one static source without a room
    # The same for several sources, for decays that are those of the free field, and for slower ones
    max_mixture_cue_variances: tuple[float, float] = (480.0, 340.0)


class ReverberationState(Enum):
    """The decision."""

    ANECHOIC = "anechoic"
    UNCERTAIN = "uncertain"
    REVERBERANT = "reverberant"


class ReverberationEvidence(TypedDict, total=False):
    """Fields of a `ReverberationEstimate` that are known later than its onsets."""

    decay_seconds: float
    diffuse_ratio: float | None
    was_reverberant: bool
    active_seconds: float
    cue_variance: float | None
    n_sources: int


@dataclass(frozen=True, slots=True)
class ReverberationEstimate:
    """Evidence of reverberation, and the decision that follows from it."""

    decay_seconds: float = math.nan  # time in which the fastest decays fall by 60 dB; NaN: unknown
    snr_db: float = math.inf  # median of the onsets
    diffuse_ratio: float | None = None  # of two sources that were separated with anechoic filters
    was_reverberant: bool = False  # previous decision of a stream (hysteresis)
    active_seconds: float = math.inf  # active sound of a stream so far
    # 90th percentile of the variances of the cues of single bins, relative to one anechoic source
    # without noise; NaN: it cannot be known, None: it was not measured
    cue_variance: float | None = None
    n_sources: int = 1  # whose cues have this variance
    settings: ReverberationSettings = ReverberationSettings()

    @property
    def state(self) -> ReverberationState:
        """The decision; uncertain if neither the decay time nor the diffuse ratio decides."""
        decay, limits = self.decay_seconds, self.settings
        if decay < limits.anechoic_seconds:
            return ReverberationState.ANECHOIC
        if self.was_reverberant:
            return ReverberationState.REVERBERANT
        if math.isnan(decay):
            return ReverberationState.UNCERTAIN
        if self.diffuse_ratio is not None:
            clean = self.low_noise
            diffuse = self.diffuse_ratio > limits.reverberant_diffuse_ratio
            if diffuse and (clean or decay >= limits.reverberant_seconds):
                return ReverberationState.REVERBERANT
            if clean and not diffuse:
                return ReverberationState.ANECHOIC
        if decay >= self._reverberant_seconds:
            return ReverberationState.REVERBERANT
        return ReverberationState.UNCERTAIN

    @property
    def _reverberant_seconds(self) -> float:
        """Decay time from which the sound is reverberant.

        It is longer at the beginning of a stream. Simultaneous talkers fill each other's pauses,
        and few other pauses have occurred yet.
        """
        limits = self.settings
        unsettled = max(1 - self.active_seconds / limits.settling_seconds, 0.0)
        margin = limits.certainly_reverberant_seconds - limits.reverberant_seconds
        return limits.reverberant_seconds + unsettled * margin

    @property
    def reverberant(self) -> bool:
        """Whether the sound is reverberant; False if that is uncertain."""
        return self.state is ReverberationState.REVERBERANT

    @property
    def anechoic(self) -> bool:
        """Whether the sound is anechoic; False if that is uncertain."""
        return self.state is ReverberationState.ANECHOIC

    @property
    def slow_decay(self) -> bool:
        """Whether the sound is reverberant, or decays as slowly; its sources may be the reason."""
        return self.reverberant or self.decay_seconds >= self.settings.reverberant_seconds

    @property
    def certainly_reverberant(self) -> bool:
        """Whether decays are slow even for simultaneous sources."""
        return self.decay_seconds >= self.settings.certainly_reverberant_seconds

    @property
    def scattered_cues(self) -> bool:
        """Whether cues taken for those of one source vary more than in the free field."""
        if self.cue_variance is None or self.n_sources > 1:
            return False
        return self.cue_variance > self._max_cue_variance

    @property
    def free_field(self) -> bool:
        """Whether no room explains cues that deviate from those of the learned head.

        If the variance of the cues was not measured, as in streams, the decision above counts.
        """
        if self.certainly_reverberant:
            return False
        if self.cue_variance is None:
            return self.anechoic
        return self.cue_variance <= self._max_cue_variance

    @property
    def _max_cue_variance(self) -> float:
        """Variance of cues without a room; errors of the masks increase that of several sources."""
        limits = self.settings
        if self.n_sources == 1:
            return limits.max_cue_variance
        return limits.max_mixture_cue_variances[0 if self.anechoic else 1]

    @property
    def low_noise(self) -> bool:
        """Whether noise does not change the decision."""
        return self.snr_db >= self.settings.min_snr_db

    @property
    def any_room(self) -> bool:
        """Whether decays are slower than without any room; False if they are unknown."""
        return self.decay_seconds > self.settings.certainly_anechoic_seconds


UNKNOWN_REVERBERATION = ReverberationEstimate()


@dataclass(frozen=True, slots=True)
class DecaySettings:
    """Settings of the decay time.

    Evidence: docs/figures/settings/features.md, "reverberation".
    """

    band_edges_hz: tuple[float, ...] = (150.0, 400.0, 700.0, 1100.0, 1700.0, 2500.0, 3600.0, 5200.0)
    segment_seconds: float = 0.064  # duration over which a decay is measured
    above_quiet_db: float = 20.0  # a segment begins at least this much above the quiet level
    below_peak_db: float = 30.0  # and at most this much below the peak
    quiet_fraction: float = NOISE_FLOOR.quiet_fraction  # quietest fraction of the frames
    fastest_fraction: float = 0.1  # fastest fraction of the segments, which define the estimate
    min_segments: float = 20.0  # below, there is no estimate


_LOWEST_DB, _STEP_DB, _N_LEVELS = -160.0, 2.0, 120  # levels of the table
_DEEPEST_DB = 80  # largest decay of the table, which has steps of 1 dB


class DecayEstimator:
    """Histogram of decays within a segment, by band and by the level at which they begin.

    With `forgetting` = g < 1, a segment has the weight g^a after a further frames.
    """

    def __init__(
        self,
        frequencies_hz: Array,
        frame_seconds: float,
        *,
        forgetting: float = 1.0,
        settings: DecaySettings = DecaySettings(),  # noqa: B008
    ) -> None:
        self._settings, n_bands = settings, len(settings.band_edges_hz)
        band = np.searchsorted(settings.band_edges_hz, frequencies_hz, side="right") - 1
        edges = np.searchsorted(band, np.arange(n_bands + 1))
        self._bands = [slice(low, high) for low, high in itertools.pairwise(edges.tolist())]
        self._lag = max(round(settings.segment_seconds / frame_seconds), 1)
        self._lag_seconds = self._lag * frame_seconds
        self._last_levels = np.zeros((n_bands, 0))  # dB, of the last frames
        self._table = LevelTable(_N_LEVELS * (_DEEPEST_DB + 1), n_bands, forgetting=forgetting)

    def push(self, power: Array) -> None:
        """Add frames with powers (F, t)."""
        bands = np.stack([power[band].sum(axis=0) for band in self._bands])
        levels = np.hstack([self._last_levels, 10 * np.log10(bands + 1e-20)])
        new = levels.shape[1] - self._lag
        self._last_levels = levels[:, -self._lag :]
        if new <= 0:
            return
        start, end = levels[:, :new], levels[:, self._lag :]
        row = np.clip((start - _LOWEST_DB) / _STEP_DB, 0, _N_LEVELS - 1).astype(np.intp)
        decay_db = np.clip(start - end, 0, _DEEPEST_DB).astype(np.intp)
        self._table.add((row * (_DEEPEST_DB + 1) + decay_db).T, np.ones((new, 1)))

    def seconds(self) -> float:
        """Return the time in which the fastest decays fall by 60 dB; NaN if there are too few."""
        settings = self._settings
        table = self._table.sums[0].T.reshape(-1, _N_LEVELS, _DEEPEST_DB + 1)
        by_level = table.sum(axis=2)  # (bands, levels)
        cumulative = np.cumsum(by_level, axis=1)
        quiet = np.argmax(cumulative >= settings.quiet_fraction * cumulative[:, -1:], axis=1)
        occupied = by_level > 1e-3  # levels that have been forgotten are no peak any more
        peak = _N_LEVELS - 1 - np.argmax(occupied[:, ::-1], axis=1)
        lowest = np.maximum(
            quiet + settings.above_quiet_db / _STEP_DB, peak - settings.below_peak_db / _STEP_DB
        )
        valid = (np.arange(_N_LEVELS) >= lowest[:, None]) & occupied.any(axis=1, keepdims=True)
        decays = (table * valid[..., None]).sum(axis=(0, 1))  # segments per dB of decay
        if decays.sum() < settings.min_segments:
            return float("nan")
        at_least = np.cumsum(decays[::-1])[::-1]  # segments that decay by this much or more
        fast_db = int(np.flatnonzero(at_least >= settings.fastest_fraction * decays.sum())[-1])
        return 60.0 * self._lag_seconds / (fast_db + 0.5)
