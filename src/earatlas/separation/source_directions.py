"""Directions of the sources of a mixture: from the anechoic model where it fits, else from onsets.

Input: the VESSL state, the onsets of the same recording, and the masks. Output: a `LocatedSource`
per source, with its posterior, trajectory, evidence and doubts. A static source has a constant
trajectory, a moving one that of the tracker.

Masks and filters need all bins and consistent directions; directions are best estimated from the
onset bins. VESSL and the onset mixture have their sources in different orders. Each onset bin also
has masks, so sources are matched by the onset bins that they share.

In a reverberant room nearly all onsets of a mixture may belong to the louder talker. After the
separation each source has onsets of its own, so a source that adds no evidence to the others is
localized by itself. All other sources are localized in the mixture, and so are all sources in
noise, because the filters colour the noise. Evidence: docs/figures/settings/separation.md,
"source_directions".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.features.onset_detector import OnsetBins, OnsetDetectorSettings
from earatlas.geometry.angles import apply_front_prior
from earatlas.geometry.chart_gaussians import gaussian_radius_90
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Space
from earatlas.localization.detected_sources import (
    DETECTION_SETTINGS,
    DetectedSource,
)
from earatlas.localization.diagnostics import (
    Doubt,
    DoubtKind,
    HeadFit,
    RecordingDiagnosis,
    SceneDiagnosis,
)
from earatlas.localization.head_mismatch import HeadMismatch, MagnitudeEstimate
from earatlas.localization.learned_head import LearnedHead
from earatlas.localization.onset_likelihood import bin_weights
from earatlas.localization.onset_mixture import MIXTURE_SETTINGS
from earatlas.localization.result import uninformative_posterior
from earatlas.localization.reverberant_localizer import widen_posterior
from earatlas.numerics import linear_assignment
from earatlas.ppam.listener_model import ListenerPPAM
from earatlas.separation.initialization import SourceFit
from earatlas.separation.result import Evidence
from earatlas.separation.source_masks import SeparatedBlock
from earatlas.tracking.offline import EstimatedTrajectory
from earatlas.types import Array
from earatlas.wording import format_error, format_radius

__all__ = [
    "ConstantTrajectory",
    "LocatedSource",
    "OnsetMasks",
    "SceneMismatch",
    "SourceDirectionSettings",
    "Trajectory",
    "diagnose_scene",
    "existence_doubt",
    "flag_colocated_sources",
    "locate_given_sources",
    "locate_moving_source",
    "locate_static_sources",
    "needs_source_onsets",
    "scene_mismatch",
    "source_count_doubts",
]


# Evidence: docs/figures/settings/separation.md, "source_directions".
@dataclass(frozen=True, slots=True)
class SourceDirectionSettings:
    """Settings of the directions of separated sources."""

    min_nats_per_bin: float = 0.3  # information below which a separated source is doubtful
    min_window_onsets: float = 1.0  # weighted onsets of a window that determine a direction
    max_components: int = 240  # of the posterior of a moving source: one minute of windows


class OnsetMasks:
    """The masks of all blocks at the onset bins of the mixture."""

    def __init__(
        self,
        layout: CueLayout,
        onset_settings: OnsetDetectorSettings,
        onsets: OnsetBins,
        n_sources: int,
    ) -> None:
        frequencies_hz = onset_settings.frequencies_hz[onsets.f]
        rows = np.round(frequencies_hz * layout.window / layout.rate).astype(np.intp) - 1
        self._f = np.clip(rows, 0, layout.n_frequencies - 1)
        self._t = np.round(onsets.t * (onset_settings.hop / layout.hop)).astype(np.intp)
        self._hop = layout.hop
        self.masks = np.full((n_sources, len(onsets)), 1 / n_sources)  # (M, B)

    def add(self, separated: SeparatedBlock) -> None:
        """Read the masks of a block at its onset bins."""
        t = self._t - separated.observed.block.start // self._hop
        inside = (t >= 0) & (t < separated.masks.shape[-1])
        self.masks[:, inside] = separated.masks[:, self._f[inside], t[inside]]


def needs_source_onsets(fit: SourceFit) -> bool:
    """Whether some source must be localized by itself, from the onsets of its separated signal."""
    detections = fit.detections
    if detections.onsets is None or len(detections) < 2 or fit.anechoic:
        return False
    return detections.onsets.is_clean and not detections.reliable


@dataclass(frozen=True, eq=False)
class SceneMismatch:
    """How much the head that made a recording of several sources deviates from the learned one."""

    model: HeadMismatch
    estimate: MagnitudeEstimate  # the sources share the head, and so its deviation

    @property
    def magnitude(self) -> float:
        """Magnitude of the deviation; the smallest one if errors of the masks may explain it."""
        required = self.model.required_nats(len(self.estimate.cue_posteriors), clean=True)
        if self.estimate.gain_nats < required:
            return self.model.settings.magnitudes[0]
        return self.estimate.magnitude

    @property
    def other_head(self) -> bool:
        """Whether the sources deviate more than another set-up of the learned head does."""
        return self.magnitude > self.model.settings.max_same_unit

    def posterior(self, m: int, own: DetectedSource) -> DirectionPosterior:
        """Return the posterior of source m, given its onsets."""
        cues = self.estimate.cue_posteriors[m]
        return self.model.mixture(self.magnitude, cues, own.log_likelihood)


def scene_mismatch(head: LearnedHead, fit: SourceFit) -> SceneMismatch | None:
    """Return the mismatch of the head; None if the head fits, or if noise or a room explain it.

    The reverberation of the fit must be complete (`SourceFit.with_reverberation`).
    """
    mismatch, onsets = head.mismatch, fit.detections.onsets
    if mismatch is None or onsets is None or fit.n_sources < 2:
        return None
    if mismatch.settings.other_weight:  # a population, measured with recordings of one source only
        return None
    ratio = float(fit.residual_ratios.max())
    if not mismatch.is_possible(ratio, onsets):
        return None
    return SceneMismatch(mismatch, mismatch.heads.most_probable(fit.effective))


def _anechoic_posteriors(head: LearnedHead, fit: SourceFit) -> Iterable[DirectionPosterior]:
    """Return the posterior of each source by the anechoic model, before it is calibrated.

    VESSL treats the deviations of an unknown listener as independent between cues, which makes its
    posteriors too narrow. `ListenerPPAM` integrates over them, as for a single source.
    """
    if isinstance(head.model, ListenerPPAM):
        return head.model.posteriors(fit.effective)
    return [source.posterior for source in fit.state.sources]


def locate_static_sources(
    head: LearnedHead,
    fit: SourceFit,
    source_onsets: Sequence[OnsetBins],
    onset_masks: OnsetMasks | None,
    mismatch: SceneMismatch | None = None,
    settings: SourceDirectionSettings | None = None,
) -> list[LocatedSource]:
    """Return the posterior of every source of VESSL, with evidence and doubts.

    `source_onsets` are the onsets of each separated signal, if some source needs them. If another
    head made the recording (`mismatch`), its deviation is part of the posteriors.
    """
    settings = settings or SourceDirectionSettings()
    localizer, onsets = head.reverberant_localizer, fit.detections.onsets
    detected = fit.detections.sources
    calibration = head.calibration.relaxed(fit.residual_factor)
    anechoic = [calibration.blur(posterior) for posterior in _anechoic_posteriors(head, fit)]
    no_match = onset_masks is None or onsets is None or len(detected) != fit.n_sources
    if localizer is None or onset_masks is None or onsets is None or no_match:
        if localizer is not None and not fit.anechoic:
            anechoic = [widen_posterior(posterior) for posterior in anechoic]
        return [
            LocatedSource.static(apply_front_prior(posterior), Evidence(float(ratio)))
            for posterior, ratio in zip(anechoic, fit.residual_ratios, strict=True)
        ]
    clean = onsets.is_clean
    located = []
    for m, match in enumerate(_match_sources(onset_masks.masks, detected, onsets)):
        own, alone = detected[match], source_onsets[m] if source_onsets else None
        evidence = Evidence(
            float(fit.residual_ratios[m]),
            own.bins,
            own.nats_per_bin,
            own.evidence,
            direct=not (fit.anechoic and clean),
        )
        posterior, doubtful = anechoic[m], own.evidence < DETECTION_SETTINGS.low_evidence_nats
        if not fit.anechoic and clean and doubtful and alone is not None and alone.enough:
            log_likelihood = localizer.direct_sound.log_likelihood(alone)
            posterior = localizer.score_calibration.posterior(head.space, log_likelihood)
            evidence = replace(evidence, nats_per_bin=float(log_likelihood.features[0]))
            doubtful = evidence.nats_per_bin < settings.min_nats_per_bin
        elif doubtful:  # its onsets duplicate those of another source: use the masks' posterior
            posterior, evidence = widen_posterior(posterior), replace(evidence, direct=False)
        elif evidence.direct:
            posterior = localizer.multi_source_posterior(own.log_likelihood)
        if mismatch is not None and mismatch.other_head and not doubtful:
            posterior = mismatch.posterior(m, own)
        doubts = (existence_doubt(own.evidence),) if doubtful else ()
        located.append(LocatedSource.static(apply_front_prior(posterior), evidence, doubts))
    return located


def locate_given_sources(fit: SourceFit, recording: RecordingDiagnosis) -> list[LocatedSource]:
    """Return the sources at their given directions, with doubts about those that do not fit.

    Noise and reverberation increase the residuals at the right directions as well.
    """
    located = []
    explained = recording.noisy or fit.detections.reverberation.any_room
    for source, ratio in zip(fit.state.sources, fit.residual_ratios.tolist(), strict=True):
        one = LocatedSource.static(source.posterior, Evidence(ratio))
        doubts: tuple[Doubt, ...] = ()
        if HeadFit.measure(ratio).large_residual and not explained:
            doubts = (_given_direction_doubt(ratio),)
        located.append(replace(one, doubts=doubts, given=True))
    return located


def _given_direction_doubt(residual_ratio: float) -> Doubt:
    """Return the doubt about a given direction."""
    reason = (
        f"the cue residual of its sound is {residual_ratio:.1f} times what is usual at the given "
        "direction. Give another direction, or let it be estimated."
    )
    return Doubt(DoubtKind.DIRECTION_MISMATCH, reason, residual_ratio)


def locate_moving_source(
    space: Space, trajectory: EstimatedTrajectory, settings: SourceDirectionSettings | None = None
) -> LocatedSource:
    """Return a source whose posterior is a mixture over all windows with enough onsets.

    The posterior of a trajectory that does not move has a single component.
    """
    settings = settings or SourceDirectionSettings()
    if trajectory.moves:
        windows = np.flatnonzero(trajectory.weights > settings.min_window_onsets)
    else:
        windows = np.zeros(1, dtype=np.intp)
    windows = windows if len(windows) else np.array([int(trajectory.weights.argmax())])
    windows = windows[:: -(-len(windows) // settings.max_components)]
    width = trajectory.radius_90[windows] / gaussian_radius_90(space.dims)
    posterior = DirectionPosterior(
        space,
        trajectory.at(trajectory.seconds)[windows],
        np.full(len(windows), 1 / len(windows)),
        np.zeros((len(windows), space.dims)),
        (width**2)[:, None, None] * np.eye(space.dims),
    )
    evidence = Evidence(math.nan, trajectory.onset_bins, gain=trajectory.gain, direct=True)
    doubtful = trajectory.gain < DETECTION_SETTINGS.low_evidence_nats
    doubts = (existence_doubt(trajectory.gain),) if doubtful else ()
    return LocatedSource(posterior, trajectory, evidence, doubts)


def existence_doubt(gain: float) -> Doubt:
    """Return the doubt about a source that adds `gain` nats per onset."""
    reason = (
        f"it explains {max(gain, 0):.2f} nats per onset more than the other sources do; sources "
        f"that exist usually explain 0.1 or more. It may be an echo of another "
        "source. Listen to it, or separate again with one source fewer."
    )
    return Doubt(DoubtKind.MAY_NOT_EXIST, reason, gain)


def source_count_doubts(next_source_ratio: float) -> tuple[Doubt, ...]:
    """Return a doubt if the evidence for one more source is close to the limit."""
    if next_source_ratio < MIXTURE_SETTINGS.may_be_more_ratio:
        return ()
    percent = min(100 * next_source_ratio, 99)
    reason = (
        f"the evidence for one more source is {percent:.0f} % of what is required. A source may be "
        "missing. If you know the number of sources, give it."
    )
    return (Doubt(DoubtKind.MAY_BE_MORE, reason, next_source_ratio),)


def flag_colocated_sources(located: Sequence[LocatedSource]) -> list[LocatedSource]:
    """Add a doubt to every source that is close to an earlier one, which has more bins."""
    flagged: list[LocatedSource] = []
    for source in located:
        direction, doubts, space = source.posterior.direction, source.doubts, source.posterior.space
        gaps = [float(space.distance(direction, other.posterior.direction)) for other in flagged]
        least = MIXTURE_SETTINGS.min_separation_degrees
        if gaps and min(gaps) < least and not doubts:
            reason = (
                f"another source is {format_error(space, space.unit_scale * min(gaps))} away; "
                f"closer than {format_radius(space, space.unit_scale * least)}, one sound may be "
                "counted as two. Listen to both, or separate again with one source fewer."
            )
            doubts = (Doubt(DoubtKind.MAY_NOT_EXIST, reason, min(gaps)),)
        flagged.append(replace(source, doubts=doubts))
    return flagged


def diagnose_scene(
    head: LearnedHead,
    located: Sequence[LocatedSource],
    onsets: OnsetBins | None,
    seconds: float,
    mismatch: SceneMismatch | None = None,
) -> SceneDiagnosis:
    """Return the diagnosis that concerns all directions of a scene with several sources.

    The residual of moving sources is not known (NaN), so noise and reverberation matter, but
    nothing is said about the head.
    """
    residual_ratio = float(np.max([source.evidence.residual_ratio for source in located]))
    fit = HeadFit.measure(residual_ratio)
    if head.reverberant_localizer is not None and onsets is not None:
        nats_per_bin = max(source.evidence.nats_per_bin for source in located)
        typical = head.reverberant_localizer.score_calibration.typical_nats_per_onset
        magnitude = math.nan if mismatch is None else mismatch.magnitude
        fit = HeadFit.measure(
            residual_ratio, nats_per_bin, typical, onsets.reverberation, mismatch=magnitude
        )
    fits = residual_ratio <= 1 and not fit.deviating_head
    recording = RecordingDiagnosis.measure(onsets, seconds, fits=fits, anechoic=fit.deviating_head)
    return SceneDiagnosis(recording, fit)


def _match_sources(
    masks: Array, detected: Sequence[DetectedSource], onsets: OnsetBins
) -> list[int]:
    """Return, for each source of the masks (M, B), the detected source with most common bins."""
    responsibilities = np.stack([source.responsibilities for source in detected])
    responsibilities = responsibilities * bin_weights(onsets.f)
    _, matches = linear_assignment(-(masks @ responsibilities.T))
    return [int(i) for i in matches]


class Trajectory(Protocol):
    """The direction of a source over time."""

    @property
    def moves(self) -> bool:
        """Whether the direction changes."""

    def at(self, seconds: Array) -> Array:
        """Return directions (T, C) in degrees at times (T,)."""

    def radius_at(self, seconds: Array) -> Array:
        """Return the radii (T,) that hold the source with a probability of 90 %, in degrees."""


@dataclass(frozen=True, eq=False)
class ConstantTrajectory:
    """The trajectory of a static source."""

    direction: Array  # (C,) degrees
    radius_90: float  # degrees

    @property
    def moves(self) -> bool:
        """Whether the direction changes: no."""
        return False

    def at(self, seconds: Array) -> Array:
        """Return the direction (T, C) at times (T,)."""
        return np.broadcast_to(self.direction, (len(seconds), len(self.direction)))

    def radius_at(self, seconds: Array) -> Array:
        """Return the radius (T,) at times (T,)."""
        return np.full(len(seconds), self.radius_90)


@dataclass(frozen=True, eq=False)
class LocatedSource:
    """The direction of one source, with the evidence for it and doubts about it."""

    posterior: DirectionPosterior  # over the whole recording
    trajectory: Trajectory
    evidence: Evidence
    doubts: tuple[Doubt, ...] = ()
    given: bool = False  # the direction was given, not estimated

    @classmethod
    def static(
        cls, posterior: DirectionPosterior, evidence: Evidence, doubts: tuple[Doubt, ...] = ()
    ) -> LocatedSource:
        """Return a source with the same direction at all times."""
        trajectory = ConstantTrajectory(posterior.direction, posterior.radius_90)
        return cls(posterior, trajectory, evidence, doubts)

    def without_direction(self) -> LocatedSource:
        """Return the source with an uninformative posterior."""
        posterior = uninformative_posterior(self.posterior)
        return LocatedSource.static(posterior, self.evidence, self.doubts)
