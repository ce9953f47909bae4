"""Directions of the sources of a mixture: from the anechoic model where it fits, else from onsets.

Input: the VESSL state, the onsets of the same recording, and the masks. Output: one direction
posterior per source, the evidence for it, and doubts.

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

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.features.onset_detector import OnsetBins, OnsetDetectorSettings
from earatlas.features.tf_bins import ObservedBins
from earatlas.localization.diagnostics import (
    Doubt,
    DoubtKind,
    mismatch_doubts,
    recording_doubts,
)
from earatlas.localization.learned_head import LearnedHead
from earatlas.localization.multi_source_posterior import (
    LOW_EVIDENCE_NATS,
    detected_source_posterior,
    widen_posterior,
)
from earatlas.localization.onset_likelihood import bin_weights
from earatlas.localization.onset_mixture import DetectedSource
from earatlas.localization.source_counter import MAY_BE_MORE_RATIO, MIN_SEPARATION_DEGREES
from earatlas.separation.assembly import SeparatedBlock
from earatlas.separation.result import Evidence, LocatedSource
from earatlas.separation.separator import OnsetDetections, Separator
from earatlas.separation.vessl import VESSLState
from earatlas.types import Array

__all__ = [
    "MULTI_SOURCE_FACTOR",
    "OnsetMasks",
    "existence_doubt",
    "flag_colocated_sources",
    "locate_sources",
    "needs_source_onsets",
    "residual_ratios",
    "scene_doubts",
    "source_count_doubts",
]

# Evidence: docs/figures/settings/separation.md, "source_directions".
MULTI_SOURCE_FACTOR = 3.0  # normalized residual among M sources, per further source, anechoic
_MIN_ONSETS = 20  # onsets that a separated source needs to be localized by itself
_MIN_NATS_PER_BIN = 0.3  # directional information below which a separated source is doubtful
_NEGLIGIBLE_ASSIGNMENT = 1e-6  # assignment probability that is set to 0
_MAX_RELATIVE_VARIANCE = 100.0  # median of v, relative to a single anechoic source
_TYPICAL_GAIN_NATS = 0.1  # nats per onset that a source usually adds


def residual_ratios(separator: Separator, state: VESSLState, bins: ObservedBins) -> Array:
    """Return the residual ratio (M,) of the anechoic model; up to 1 it fits.

    The mean cues of a source may fit although single bins do not: independent noise at the ears has
    mean level and phase differences of 0. The variance of single bins is therefore limited as well.
    """
    head, M = separator.head, len(state.sources)
    q = state.assignments
    weights = np.where(q > _NEGLIGIBLE_ASSIGNMENT, q, 0.0)
    statistics = bins.restricted_to(head.layout).statistics(weights)
    typical = head.calibration.max_residual * MULTI_SOURCE_FACTOR * max(M - 1, 1)
    relative_variance = float(np.median(state.noise / separator.source_model.noise))
    scatter = relative_variance / _MAX_RELATIVE_VARIANCE
    ratios = []
    for m, source in enumerate(state.sources):
        effective = head.calibration.effective_statistics(statistics[m], head.model.noise)
        residual = head.model.normalized_residual(effective, source.posterior.best)
        ratios.append(max(residual / typical, scatter))
    return np.array(ratios)


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
        t = self._t - separated.block.start // self._hop
        inside = (t >= 0) & (t < separated.masks.shape[-1])
        self.masks[:, inside] = separated.masks[:, self._f[inside], t[inside]]


def needs_source_onsets(residual_ratios: Array, detections: OnsetDetections) -> bool:
    """Whether some source must be localized by itself, from the onsets of its separated signal."""
    if detections.onsets is None or len(detections) < 2 or bool((residual_ratios <= 1).all()):
        return False
    gains = (source.evidence for source in detections.sources)
    return detections.onsets.is_clean and min(gains) < LOW_EVIDENCE_NATS


def locate_sources(
    head: LearnedHead,
    state: VESSLState,
    residual_ratios: Array,
    detections: OnsetDetections,
    onset_masks: OnsetMasks | None,
) -> list[LocatedSource]:
    """Return the posterior of every source of VESSL, with evidence and doubts."""
    M, localizer, onsets = len(state.sources), head.reverberant_localizer, detections.onsets
    detected, source_onsets = detections.sources, detections.source_onsets
    calibration = head.calibration.relaxed(MULTI_SOURCE_FACTOR * max(M - 1, 1))
    anechoic = [calibration.blur(source.posterior) for source in state.sources]
    fits = bool((residual_ratios <= 1).all())
    if localizer is None or onset_masks is None or onsets is None or len(detected) != M:
        if localizer is not None and not fits:
            anechoic = [widen_posterior(posterior) for posterior in anechoic]
        return [
            LocatedSource(posterior, Evidence(float(ratio)), ())
            for posterior, ratio in zip(anechoic, residual_ratios, strict=True)
        ]
    clean = onsets.is_clean
    located = []
    for m, match in enumerate(_match_sources(onset_masks.masks, detected, onsets)):
        own, alone = detected[match], source_onsets[m] if source_onsets else None
        direct = not (fits and clean)
        evidence = Evidence(
            float(residual_ratios[m]), own.bins, own.nats_per_bin, own.evidence, direct
        )
        posterior, doubtful = anechoic[m], own.evidence < LOW_EVIDENCE_NATS
        if not fits and clean and doubtful and alone is not None and len(alone) >= _MIN_ONSETS:
            log_likelihood = localizer.direct_sound.log_likelihood(alone)
            posterior = localizer.score_calibration.posterior(head.space, log_likelihood)
            evidence = replace(evidence, nats_per_bin=float(log_likelihood.features[0]))
            doubtful = evidence.nats_per_bin < _MIN_NATS_PER_BIN
        elif doubtful:  # its onsets duplicate those of another source: use the masks' posterior
            posterior, evidence = widen_posterior(posterior), replace(evidence, direct=False)
        elif evidence.direct:
            posterior = detected_source_posterior(localizer, own)
        doubts = (existence_doubt(own.evidence),) if doubtful else ()
        located.append(LocatedSource(posterior, evidence, doubts))
    return located


def existence_doubt(gain: float) -> Doubt:
    """Return the doubt about a source that adds `gain` nats per onset."""
    reason = (
        f"it explains {max(gain, 0):.2f} nats per onset more than the other sources do; sources "
        f"that exist usually explain {_TYPICAL_GAIN_NATS} or more. It may be an echo of another "
        "source. Listen to it, or separate again with one source fewer."
    )
    return Doubt(DoubtKind.MAY_NOT_EXIST, reason, gain)


def source_count_doubts(next_source_ratio: float) -> tuple[Doubt, ...]:
    """Return a doubt if the evidence for one more source is close to the limit."""
    if next_source_ratio < MAY_BE_MORE_RATIO:
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
        direction, doubts = source.posterior.best, source.doubts
        distance = source.posterior.space.distance
        gaps = [float(distance(direction, other.posterior.best)) for other in flagged]
        if gaps and min(gaps) < MIN_SEPARATION_DEGREES and not doubts:
            reason = (
                f"another source is {min(gaps):.1f}° away; closer than "
                f"{MIN_SEPARATION_DEGREES:g}°, one sound may be counted as two. Listen to both, or "
                "separate again with one source fewer."
            )
            doubts = (Doubt(DoubtKind.MAY_NOT_EXIST, reason, min(gaps)),)
        flagged.append(replace(source, doubts=doubts))
    return flagged


def scene_doubts(
    head: LearnedHead, located: Sequence[LocatedSource], onsets: OnsetBins | None, seconds: float
) -> tuple[Doubt, ...]:
    """Return the doubts that concern all directions of a scene with several sources."""
    residual_ratio = max(source.evidence.residual_ratio for source in located)
    doubts = list(recording_doubts(onsets, seconds, fits=residual_ratio <= 1))
    if not doubts and residual_ratio > 1:
        nats_per_bin = max(source.evidence.nats_per_bin for source in located)
        if head.reverberant_localizer is None or onsets is None:
            doubts.extend(mismatch_doubts(residual_ratio))
        else:
            typical = head.reverberant_localizer.score_calibration.typical_nats_per_onset
            doubts.extend(
                mismatch_doubts(residual_ratio, nats_per_bin, typical, onsets.decay_seconds)
            )
    return tuple(doubts)


def _match_sources(
    masks: Array, detected: Sequence[DetectedSource], onsets: OnsetBins
) -> list[int]:
    """Return, for each source of the masks (M, B), the detected source with most common bins."""
    from scipy.optimize import linear_sum_assignment

    responsibilities = np.stack([source.responsibilities for source in detected])
    responsibilities = responsibilities * bin_weights(onsets.f)
    _, matches = linear_sum_assignment(-(masks @ responsibilities.T))
    return [int(i) for i in matches]
