"""Doubts: reasons why a localization may be wrong, as plain sentences with the measured values.

Input: the onsets of a recording and its `CalibratedPosterior`. Output: `Doubt`s, each a text that
begins with one of the words of `DoubtKind`. An answer without doubts is not guaranteed to be right,
and one with doubts may be right: its posterior is as wide as such answers require.

The thresholds lie between the conditions that were measured in
docs/figures/settings/localization.md, "diagnostics".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum

from earatlas.features.onset_detector import OnsetBins
from earatlas.localization.learned_head import CalibratedPosterior, LearnedHead
from earatlas.localization.onset_mixture import OnsetMixture

__all__ = [
    "Doubt",
    "DoubtKind",
    "channels_identical",
    "head_mismatch",
    "localization_doubts",
    "mismatch_doubts",
    "recording_doubts",
    "with_onset_score",
]

# Evidence: docs/figures/settings/localization.md, "diagnostics".
_MIN_SECONDS = 0.45  # shortest sound without a doubt, s; slightly less than the default window
_NOISY_DB = 13.0  # median SNR of the onsets
_REVERBERANT_SECONDS = 0.22  # T60 from which a recording is reverberant
_CERTAINLY_REVERBERANT_SECONDS = 0.35  # T60 from which it is, even with overlapping sources
_ANECHOIC_SECONDS = 0.175  # T60 above which a bad fit is due to a room, not to another head
_IDENTICAL_FRACTION = 1e-7  # fraction of the energy that differs between identical ears, at most
_MIN_ONSETS = 20  # fewest onsets for any statement about them
_UNDIRECTED_NATS = 0.5  # nats per onset of the best direction
_SECOND_SOURCE_NATS = 0.22  # nats per onset that a second source adds
_MAX_RESIDUAL_RATIO = 2.0  # residual ratio of a sound of the learned head
_TYPICAL_RATIO = 0.97  # nats per onset over the typical ones from which it is not another head
_MISMATCH_RATIO = 0.85  # nats per onset over the typical ones below which it is another head
_NO_ONSET_SCALE = 2.5  # factor of the residual limit if onsets cannot be used

# The texts hold for a direction with a large radius and for an unknown one.
_HEAD_REMEDY = "Use the atlas of the head that made the recording."


class DoubtKind(StrEnum):
    """Kinds of doubts; the values are the first words of their texts."""

    REVERBERANT = "reverberant"
    NOISY = "noisy"
    SEVERAL_SOUNDS = "several sounds at once"
    HEAD_MISMATCH = "does not fit this head"
    TOO_SHORT = "too short"
    NOT_DIRECTIONAL = "nothing directional"
    MAY_NOT_EXIST = "may not exist"
    MAY_BE_MORE = "may be more"
    SILENT = "silent"
    BROKEN_INPUT = "broken input"


class Doubt(str):
    """A doubt as text; `word` is its kind, with which it begins, `value` the measured value."""

    __slots__ = ("value", "word")
    word: DoubtKind
    value: float

    def __new__(cls, word: DoubtKind, reason: str, value: float) -> Doubt:
        """Return the doubt `word: reason`."""
        doubt = super().__new__(cls, f"{word}: {reason}")
        doubt.word, doubt.value = DoubtKind(word), float(value)
        return doubt

    def __getnewargs__(self) -> tuple[DoubtKind, str, float]:  # type: ignore[override]
        """Return the arguments for copies and pickles."""
        return self.word, self.removeprefix(f"{self.word}: "), self.value


def channels_identical(onsets: OnsetBins) -> bool:
    """Whether both channels have the same signal, as from one microphone."""
    return onsets.interaural_difference < _IDENTICAL_FRACTION


def recording_doubts(onsets: OnsetBins | None, seconds: float, *, fits: bool) -> Iterator[Doubt]:
    """Yield doubts about the recording itself; `fits`: its cues fit the learned head."""
    if seconds < _MIN_SECONDS:
        reason = f"{seconds:.1f} s of sound is little evidence. Record one second or more."
        yield Doubt(DoubtKind.TOO_SHORT, reason, seconds)
    if onsets is None:
        return
    if channels_identical(onsets):
        reason = (
            "both channels carry the same signal. It has no direction: record with one "
            "microphone per ear."
        )
        yield Doubt(DoubtKind.NOT_DIRECTIONAL, reason, onsets.interaural_difference)
    elif len(onsets) < _MIN_ONSETS and not fits:
        reason = (
            f"{len(onsets)} onsets were detected where hundreds are usual. They do not "
            "determine a direction: record sound with clear onsets, such as speech."
        )
        yield Doubt(DoubtKind.NOT_DIRECTIONAL, reason, len(onsets))
    if fits or len(onsets) < _MIN_ONSETS or seconds < _MIN_SECONDS:
        return  # sound without pauses that fits may have a low SNR: its noise floor is the sound
    snr_db = onsets.median_snr_db
    if snr_db < _NOISY_DB:
        reason = (
            f"onsets are {snr_db:.0f} dB above the noise floor where 20 dB are usual. Noise "
            "makes directions uncertain: record closer to the source or with less noise."
        )
        yield Doubt(DoubtKind.NOISY, reason, snr_db)
    elif onsets.decay_seconds > _REVERBERANT_SECONDS:
        yield _reverberant(onsets.decay_seconds)


def localization_doubts(
    head: LearnedHead,
    calibrated: CalibratedPosterior,
    onsets: OnsetBins | None,
    seconds: float,
    *,
    static_onsets: OnsetBins | None = None,
) -> tuple[Doubt, ...]:
    """Return the doubts about the localization of one source.

    `static_onsets` are onsets during which the head did not rotate. They are tested for several
    sources, which takes as long as the localization. None: the test is left out.
    """
    localizer, typical = head.reverberant_localizer, math.nan
    if localizer is not None:
        typical = localizer.score_calibration.typical_nats_per_onset
    nats = calibrated.nats_per_onset
    fits = calibrated.residual_ratio <= 1 and not nats < _MISMATCH_RATIO * typical
    doubts = list(recording_doubts(onsets, seconds, fits=fits))
    if fits:
        return tuple(doubts)
    if localizer is None or onsets is None:
        mismatch = mismatch_doubts(calibrated.residual_ratio, residual_scale=_NO_ONSET_SCALE)
        return tuple(doubts) or tuple(mismatch)
    only_reverberant = not _words(doubts) - {DoubtKind.REVERBERANT}
    if only_reverberant and static_onsets is not None and len(static_onsets) >= _MIN_ONSETS:
        gain = OnsetMixture(localizer.direct_sound, static_onsets).second_source_gain()
        required = _SECOND_SOURCE_NATS if nats > _UNDIRECTED_NATS else 2 * _SECOND_SOURCE_NATS
        if gain > required:
            reason = (
                f"two sources explain the onsets better than one (+{gain:.1f} nats per onset). "
                "Use separate to find each source."
            )
            # If one source begins as the other ends, decays are slow without reverberation.
            doubts = [doubt for doubt in doubts if doubt.value > _CERTAINLY_REVERBERANT_SECONDS]
            return (*doubts, Doubt(DoubtKind.SEVERAL_SOUNDS, reason, gain))
    if DoubtKind.NOT_DIRECTIONAL not in _words(doubts) and nats < _UNDIRECTED_NATS:
        reason = (
            f"the onsets have {max(nats, 0):.1f} nats per bin where 4 are usual without "
            "reverberation. They do not determine a direction: check that the channels are the "
            "left and the right ear."
        )
        doubts.append(Doubt(DoubtKind.NOT_DIRECTIONAL, reason, nats))
    if doubts or len(onsets) < _MIN_ONSETS or not onsets.is_clean:
        return tuple(doubts)
    return tuple(mismatch_doubts(calibrated.residual_ratio, nats, typical, onsets.decay_seconds))


def with_onset_score(
    head: LearnedHead, calibrated: CalibratedPosterior, onsets: OnsetBins | None
) -> CalibratedPosterior:
    """Add the nats per onset if the anechoic model fitted, so that onsets were not used.

    The anechoic model of a head with large residuals also fits two talkers and loud noise; their
    onsets reveal them.
    """
    localizer = head.reverberant_localizer
    if localizer is None or onsets is None or len(onsets) < _MIN_ONSETS:
        return calibrated
    if not math.isnan(calibrated.nats_per_onset):
        return calibrated
    likelihood = localizer.direct_sound.log_likelihood(onsets)
    return replace(calibrated, nats_per_onset=float(likelihood.features[0]))


def _reverberant(decay_seconds: float) -> Doubt:
    reason = (
        f"T60 is about {decay_seconds:.2f} s. Reverberation makes directions uncertain; the radius "
        "accounts for it."
    )
    return Doubt(DoubtKind.REVERBERANT, reason, decay_seconds)


def _words(doubts: list[Doubt]) -> set[DoubtKind]:
    return {doubt.word for doubt in doubts}


def mismatch_doubts(
    residual_ratio: float,
    nats: float = math.nan,
    typical_nats: float = math.nan,
    decay_seconds: float = math.nan,
    *,
    residual_scale: float = 1.0,
) -> Iterator[Doubt]:
    """Yield a doubt if sound without noise and reverberation was recorded with another head.

    Two tests are made: of the residual ratio against its limit, which is multiplied by
    `residual_scale`, and of the nats per onset against the typical value. A slow decay is
    attributed to a room instead.
    """
    large_residual = residual_ratio / residual_scale > _MAX_RESIDUAL_RATIO
    large_residual = large_residual and not nats >= _TYPICAL_RATIO * typical_nats
    if not large_residual and not nats < _MISMATCH_RATIO * typical_nats:
        return
    if decay_seconds > _ANECHOIC_SECONDS:
        yield _reverberant(decay_seconds)
    elif large_residual:
        ratio = f"{residual_ratio:.1f} times" if math.isfinite(residual_ratio) else "far above"
        reason = f"the cue residual is {ratio} what is usual for the learned head. {_HEAD_REMEDY}"
        yield Doubt(DoubtKind.HEAD_MISMATCH, reason, residual_ratio)
    else:
        reason = (
            f"its onsets have {nats:.2f} nats per bin where {typical_nats:.1f} are usual. "
            f"{_HEAD_REMEDY}"
        )
        yield Doubt(DoubtKind.HEAD_MISMATCH, reason, nats)


def head_mismatch(
    head: LearnedHead, calibrated: CalibratedPosterior, onsets: OnsetBins | None
) -> float:
    """Return how much a doubted sound deviates from one source at this head, from 0 to 1.

    In a room, onsets have fewer nats for any head, and the score calibration accounts for it.
    """
    localizer = head.reverberant_localizer
    if localizer is None or onsets is None or math.isnan(calibrated.nats_per_onset):
        return 1.0
    if onsets.decay_seconds > _ANECHOIC_SECONDS:
        return 0.0
    share = calibrated.nats_per_onset / localizer.score_calibration.typical_nats_per_onset
    deviation = (_TYPICAL_RATIO - share) / (_TYPICAL_RATIO - _MISMATCH_RATIO)
    return min(max(deviation, 0.0), 1.0)
