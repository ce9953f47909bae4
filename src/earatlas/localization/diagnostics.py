"""Diagnosis of a localization, and doubts: reasons why it may be wrong, as plain sentences.

Input: numbers that the localizer measured. Output: flags, which decide how wide the posterior must
be, and `Doubt`s, which are made from the same numbers when the answer is complete. Nothing here
computes a posterior, and nothing depends on the text of a doubt: programs test its kind.

    RecordingDiagnosis   length, onsets, noise and reverberation of a recording
    HeadFit              whether its cues and onsets are those of the learned head
    SourceDiagnosis      both, and whether one source explains the onsets
    SceneDiagnosis       both, for several sources

An answer without doubts is not guaranteed to be right, and one with doubts may be right: its
posterior is as wide as such answers require. The thresholds lie between the conditions that were
measured in docs/figures/settings/localization.md, "diagnostics".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from earatlas.features.input_plausibility import FaultFinding, InputFault
from earatlas.features.onset_detector import OnsetBins
from earatlas.features.reverberation import UNKNOWN_REVERBERATION, ReverberationEstimate

__all__ = [
    "DIAGNOSIS_SETTINGS",
    "DiagnosisSettings",
    "Doubt",
    "DoubtKind",
    "HeadFit",
    "RecordingDiagnosis",
    "SceneDiagnosis",
    "SourceDiagnosis",
    "input_doubt",
    "with_findings",
]


class DoubtKind(StrEnum):
    """Kinds of doubts; the values are the first words of their texts."""

    REVERBERANT = "reverberant"
    NOISY = "noisy"
    SEVERAL_SOUNDS = "several sounds at once"
    HEAD_MISMATCH = "does not fit this head"
    DIRECTION_MISMATCH = "does not fit this direction"
    TOO_SHORT = "too short"
    NOT_DIRECTIONAL = "nothing directional"
    MAY_NOT_EXIST = "may not exist"
    MAY_BE_MORE = "may be more"
    SILENT = "silent"
    BROKEN_INPUT = "broken input"


class Doubt(str):
    """A doubt as text; `word` is its kind, with which it begins, `value` the measured value.

    `fault` is the fault of the input that it reports, if it reports one.
    """

    __slots__ = ("fault", "value", "word")
    word: DoubtKind
    value: float
    fault: InputFault | None

    def __new__(
        cls, word: DoubtKind, reason: str, value: float, fault: InputFault | None = None
    ) -> Doubt:
        """Return the doubt `word: reason`."""
        doubt = super().__new__(cls, f"{word}: {reason}")
        doubt.word, doubt.value, doubt.fault = DoubtKind(word), float(value), fault
        return doubt

    @property
    def explains_mismatch(self) -> bool:
        """Whether it explains that the sound does not fit the head.

        A wrong sampling rate does not, because a larger or smaller head resembles it.
        """
        return self.fault is not InputFault.WRONG_RATE

    def __getnewargs__(  # type: ignore[override]
        self,
    ) -> tuple[DoubtKind, str, float, InputFault | None]:
        """Return the arguments for copies and pickles."""
        return self.word, self.removeprefix(f"{self.word}: "), self.value, self.fault


def with_findings(findings: Iterable[FaultFinding], doubts: Iterable[Doubt]) -> tuple[Doubt, ...]:
    """Return the doubts after those about faults of the input that they do not name yet."""
    doubts = tuple(doubts)
    known = {doubt.fault for doubt in doubts}
    return (*(input_doubt(one) for one in findings if one.fault not in known), *doubts)


def input_doubt(finding: FaultFinding) -> Doubt:
    """Return the doubt about a fault of the input."""
    value = finding.value
    channel = {None: "one", 0: "the left", 1: "the right"}[finding.channel]
    kind = DoubtKind.BROKEN_INPUT
    match finding.fault:
        case InputFault.SAME_SIGNAL:
            kind = DoubtKind.NOT_DIRECTIONAL
            reason = (
                "both channels carry the same signal. It has no direction: record with one "
                "microphone per ear."
            )
        case InputFault.DEAD_CHANNEL:
            reason = (
                f"{channel} channel has no sound in {100 * value:.0f} % of the time in which the "
                "other one has. Check its microphone, cable and gain."
            )
        case InputFault.LATE_CHANNEL:
            reason = (
                f"{channel} channel is {1000 * value:.1f} ms later than the other one, more than "
                "any direction explains. Check that both are recorded by one device, and that the "
                "sampling rate is right."
            )
        case InputFault.INVERTED_CHANNEL:
            reason = (
                "the two channels have opposite polarity. Invert one of them, or swap the wires "
                "of one microphone."
            )
        case InputFault.UNEQUAL_GAINS:
            reason = (
                f"{channel} channel is {value:.0f} dB louder than any direction explains. Set both "
                "channels to the same gain."
            )
        case InputFault.WRONG_RATE:
            reason = (
                f"the channels fit this head better if their sampling rate is {value:.2f} times "
                "the stated one. Check the rate of the file or of the device, and the head."
            )
        case InputFault.GAPS:
            reason = (
                f"the sound is interrupted by {value:.0f} gaps of a few milliseconds, whose edges "
                "may count as sources. Check the recorder for lost samples."
            )
        case InputFault.UNUSABLE_SAMPLES:
            reason = (
                f"{value:.0f} samples were not finite or beyond 1e6 and were replaced by silence. "
                "Check the input device."
            )
        case InputFault.CLIPPED:
            reason = (
                f"{100 * value:.1f} % of the samples are at full scale, so level differences are "
                "partly wrong. Record at a lower level."
            )
        case InputFault.TONAL:
            kind = DoubtKind.NOT_DIRECTIONAL
            reason = (
                "the sound consists of a few frequencies, which do not determine directions or "
                "the number of sources. Use sound with many frequencies, such as speech."
            )
    return Doubt(kind, reason, value, finding.fault)


@dataclass(frozen=True, slots=True)
class DiagnosisSettings:
    """Thresholds between what is usual and what is doubted.

    Evidence: docs/figures/settings/localization.md, "diagnostics".
    """

    min_seconds: float = 0.45  # shortest sound without a doubt; a little less than a window
    noisy_snr_db: float = 13.0  # median SNR of the onsets below which a recording is noisy
    undirected_nats: float = 0.5  # nats per onset of the best direction
    second_source_nats: float = 0.22  # nats per onset that a second source adds
    max_residual_ratio: float = 2.0  # residual ratio of a sound of the learned head
    no_onset_residual_ratio: float = 5.0  # the same if onsets cannot confirm it
    typical_share: float = 0.97  # share of the typical nats from which it is not another head
    mismatch_share: float = 0.85  # share of the typical nats below which it is another head
    doubted_mismatch: float = 0.6  # magnitude of the deviation of another head (`head_mismatch`)


DIAGNOSIS_SETTINGS = _SETTINGS = DiagnosisSettings()


@dataclass(frozen=True, slots=True)
class RecordingDiagnosis:
    """What the onsets of a recording say about it, whatever its directions are."""

    seconds: float
    fits: bool  # the cues fit the learned head: noise and reverberation do not matter
    too_short: bool  # there is little evidence of any kind
    onsets: OnsetBins | None = None  # None: onsets were not analysed
    plausible: bool = True  # the two channels can be the ears of a head
    few_onsets: bool = False  # neither the cues nor the onsets determine a direction
    noisy: bool = False  # noise makes directions uncertain
    reverberant: bool = False  # reverberation makes directions uncertain

    @classmethod
    def measure(
        cls,
        onsets: OnsetBins | None,
        seconds: float,
        *,
        fits: bool,
        anechoic: bool = False,
        settings: DiagnosisSettings = _SETTINGS,
    ) -> RecordingDiagnosis:
        """Return the diagnosis of a recording with these onsets.

        `anechoic`: its cues scatter less than in any room, so slow decays have other reasons.
        """
        too_short = seconds < settings.min_seconds
        if onsets is None:
            return cls(seconds, fits, too_short)
        # Sound without pauses that fits may have a low SNR: its noise floor is the sound itself.
        plausible = not any(finding.fault.voids_direction for finding in onsets.input_faults)
        onsets_matter = onsets.enough and plausible and not (fits or too_short)
        noisy = onsets_matter and onsets.median_snr_db < settings.noisy_snr_db
        return cls(
            seconds,
            fits,
            too_short,
            onsets,
            plausible=plausible,
            few_onsets=not (onsets.enough or fits),
            noisy=noisy,
            reverberant=onsets_matter
            and not (noisy or anechoic)
            and onsets.reverberation.reverberant,
        )

    @property
    def directional(self) -> bool:
        """Whether the recording has directions at all."""
        return self.plausible and not self.few_onsets

    @property
    def only_reverberant(self) -> bool:
        """Whether there is no doubt about the recording, except its reverberation."""
        return self.directional and not (self.too_short or self.noisy)

    def doubts(self) -> Iterator[Doubt]:
        """Yield the doubts about the recording."""
        if self.too_short:
            reason = f"{self.seconds:.1f} s of sound is little evidence. Record one second or more."
            yield Doubt(DoubtKind.TOO_SHORT, reason, self.seconds)
        if self.onsets is None:
            return
        for finding in self.onsets.input_faults:
            yield input_doubt(finding)
        if self.plausible and self.few_onsets:
            reason = (
                f"{len(self.onsets)} onsets were detected where hundreds are usual. They do not "
                "determine a direction: record sound with clear onsets, such as speech."
            )
            yield Doubt(DoubtKind.NOT_DIRECTIONAL, reason, len(self.onsets))
        if self.noisy:
            snr_db = self.onsets.median_snr_db
            reason = (
                f"onsets are {snr_db:.0f} dB above the noise floor where 20 dB are usual. Noise "
                "makes directions uncertain: record closer to the source or with less noise."
            )
            yield Doubt(DoubtKind.NOISY, reason, snr_db)
        elif self.reverberant:
            yield _reverberant_doubt(self.onsets.reverberation)


@dataclass(frozen=True, slots=True)
class HeadFit:
    """How well a sound without noise fits the learned head."""

    residual_ratio: float  # residual of the anechoic model; above 1 it does not fit
    nats_per_onset: float  # of the best direction; NaN: onsets were not used
    typical_nats: float  # the same, as is typical for the learned head
    reverberation: ReverberationEstimate
    fits: bool  # neither the residual nor the onsets give a reason for doubt
    large_residual: bool  # the residual is too large, and the onsets do not contradict
    few_nats: bool  # onsets have far fewer nats than is typical
    deviation: float  # from one source at this head, from 0 to 1
    mismatch: float = math.nan  # magnitude of the deviation of the head; NaN: not determined
    deviating_head: bool = False  # the mismatch is that of another head
    scattered: bool = False  # the cues scatter more than those of one source at any head

    @classmethod
    def measure(
        cls,
        residual_ratio: float,
        nats_per_onset: float = math.nan,
        typical_nats: float = math.nan,
        reverberation: ReverberationEstimate = UNKNOWN_REVERBERATION,
        *,
        mismatch: float = math.nan,
        onsets_analysed: bool = True,
        settings: DiagnosisSettings = _SETTINGS,
    ) -> HeadFit:
        """Compare the residual and the onsets with what is usual for the learned head.

        `onsets_analysed`: False if no onsets can confirm a large residual. In a room, onsets have
        fewer nats for any head, and the score calibration accounts for it.
        """
        if onsets_analysed:
            max_residual_ratio = settings.max_residual_ratio
        else:
            max_residual_ratio = settings.no_onset_residual_ratio
        share = nats_per_onset / typical_nats
        few_nats = share < settings.mismatch_share
        if math.isnan(share):
            deviation = 1.0
        elif reverberation.any_room:
            deviation = 0.0
        else:
            width = settings.typical_share - settings.mismatch_share
            deviation = min(max((settings.typical_share - share) / width, 0.0), 1.0)
        deviating_head = mismatch >= settings.doubted_mismatch
        scattered = reverberation.scattered_cues
        return cls(
            residual_ratio,
            nats_per_onset,
            typical_nats,
            reverberation,
            fits=residual_ratio <= 1 and not (few_nats or deviating_head or scattered),
            large_residual=residual_ratio > max_residual_ratio
            and not share >= settings.typical_share,
            few_nats=few_nats,
            deviation=deviation,
            mismatch=mismatch,
            deviating_head=deviating_head,
            scattered=scattered,
        )

    @property
    def other_head(self) -> bool:
        """Whether the sound was recorded with another head; slow decays would explain it, too."""
        if not math.isnan(self.mismatch):
            return self.deviating_head
        explained = self.scattered or self.reverberation.any_room
        return (self.large_residual or self.few_nats) and not explained

    def doubts(self) -> Iterator[Doubt]:
        """Yield a doubt about the head, or about the room that explains the deviation."""
        remedy = (
            "Use the atlas of the head that made the recording (or adapt the atlas of people to "
            "it), and check the sampling rate. If this head made it, learn it for the same unit "
            "(`learn --unit same`), or from more directions."
        )
        if self.deviating_head:
            reason = (
                f"its cues deviate by {self.mismatch:.1f} times the difference between two people. "
                f"{remedy}"
            )
            yield Doubt(DoubtKind.HEAD_MISMATCH, reason, self.mismatch)
            return
        if not math.isnan(self.mismatch) or not (self.large_residual or self.few_nats):
            return
        if not self.other_head:
            yield _reverberant_doubt(self.reverberation)
        elif self.large_residual:
            ratio = self.residual_ratio
            times = f"{ratio:.1f} times" if math.isfinite(ratio) else "far above"
            reason = f"the cue residual is {times} what is usual for the learned head. {remedy}"
            yield Doubt(DoubtKind.HEAD_MISMATCH, reason, ratio)
        else:
            reason = (
                f"its onsets have {self.nats_per_onset:.2f} nats per bin where "
                f"{self.typical_nats:.1f} are usual. {remedy}"
            )
            yield Doubt(DoubtKind.HEAD_MISMATCH, reason, self.nats_per_onset)


@dataclass(frozen=True, slots=True)
class SourceDiagnosis:
    """Diagnosis of the localization of one source.

    Of the last five flags at most one holds, except that a second source and another head may both
    explain the same onsets.
    """

    recording: RecordingDiagnosis
    fit: HeadFit
    second_source_gain: float  # nats per onset that a second source adds; NaN: not tested
    second_source: bool  # two sources explain the onsets better than one
    scattered: bool  # several sources explain the scatter of the cues
    undirected: bool  # the onsets have no common direction
    other_head: bool  # the sound was recorded with another head
    small_room: bool  # the sound is not that of this head in the free field, but of a room

    @classmethod
    def measure(
        cls,
        recording: RecordingDiagnosis,
        fit: HeadFit,
        second_source_gain: float = math.nan,
        settings: DiagnosisSettings = _SETTINGS,
    ) -> SourceDiagnosis:
        """Find the reason why a sound does not fit."""
        undirected = other_head = small_room = False
        onsets, directed = recording.onsets, fit.nats_per_onset > settings.undirected_nats
        # The onsets of two sources may be those of one of them: where it is the louder one.
        # Rooms and faults of the input scatter cues as well.
        tested = not math.isnan(second_source_gain)
        explained = fit.reverberation.any_room or (onsets is not None and onsets.input_faults)
        limit = settings.second_source_nats * (1 if directed else 2)
        second_source = second_source_gain > limit
        scattered = not second_source and tested and directed and fit.scattered and not explained
        if second_source:
            # The onsets of one source at another head may resemble those of two sources.
            other_head = fit.deviating_head and second_source_gain < 2 * settings.second_source_nats
        elif not scattered and not fit.fits:
            undirected = recording.directional and fit.nats_per_onset < settings.undirected_nats
            explained = undirected or recording.reverberant or not recording.only_reverberant
            if fit.deviating_head:  # was determined in spite of the noise
                other_head = recording.directional and not undirected
            elif not explained and (onsets is None or (onsets.enough and onsets.is_clean)):
                other_head = fit.other_head
                small_room = (fit.large_residual or fit.few_nats) and not other_head
        return cls(
            recording,
            fit,
            second_source_gain,
            second_source,
            scattered,
            undirected,
            other_head,
            small_room,
        )

    @property
    def several_sources(self) -> bool:
        """Whether several sources explain the onsets or the cues better than one."""
        return self.second_source or self.scattered

    @property
    def directional(self) -> bool:
        """Whether there is a direction at all."""
        return self.recording.directional and not self.undirected

    def doubts(self) -> Iterator[Doubt]:
        """Yield all doubts about the localization."""
        # If one source begins as the other ends, decays are slow without reverberation.
        if not self.several_sources or self.fit.reverberation.certainly_reverberant:
            yield from self.recording.doubts()
        if self.several_sources:
            gain = self.second_source_gain
            scatter = (self.fit.reverberation.cue_variance or 0.0) ** 0.5
            if self.second_source:
                reason = (
                    "two sources explain the onsets better than one "
                    f"(+{gain:.1f} nats per onset). Use separate, number not given, to find "
                    "each source."
                )
            else:
                reason = (
                    f"the cues of single frames scatter by {scatter:.0f} times what is usual "
                    "for one source. Use separate, number not given, to find each source. A source "
                    "that moves and a small room have the same effect."
                )
            yield Doubt(DoubtKind.SEVERAL_SOUNDS, reason, gain)
        if self.undirected:
            nats = self.fit.nats_per_onset
            if math.isnan(self.second_source_gain):
                remedy = (
                    "several sounds at once are a frequent cause. Use separate, number not given, "
                    "to find them."
                )
            else:
                remedy = "check that the channels are the left and the right ear."
            reason = (
                f"the onsets have {max(nats, 0):.1f} nats per bin where 4 are usual without "
                f"reverberation. They do not determine a direction: {remedy}"
            )
            yield Doubt(DoubtKind.NOT_DIRECTIONAL, reason, nats)
        if self.other_head or self.small_room:
            yield from self.fit.doubts()


@dataclass(frozen=True, slots=True)
class SceneDiagnosis:
    """Diagnosis of all directions of a scene with several sources."""

    recording: RecordingDiagnosis
    fit: HeadFit  # of the source that fits worst

    def doubts(self) -> Iterator[Doubt]:
        """Yield the doubts that concern all directions."""
        recording = tuple(self.recording.doubts())
        yield from recording
        explained = any(doubt.explains_mismatch for doubt in recording)
        if not explained and not self.recording.fits:
            yield from self.fit.doubts()


def _reverberant_doubt(reverberation: ReverberationEstimate) -> Doubt:
    decay_seconds = reverberation.decay_seconds
    known = not math.isnan(decay_seconds)
    duration = f"is about {decay_seconds:.2f} s" if known else "was long before the pause"
    reason = (
        f"T60 {duration}. Reverberation makes directions uncertain; the radius accounts for it."
    )
    return Doubt(DoubtKind.REVERBERANT, reason, decay_seconds)
