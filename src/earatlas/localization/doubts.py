"""Doubts: reasons why a localization may be wrong, as plain sentences.

Input: what was measured (`earatlas.localization.diagnostics`), or a fault of the input. Output: a
`Doubt`, whose kind programs can test without reading its text.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from earatlas.features.input_plausibility import FaultFinding, InputFault

__all__ = ["Doubt", "DoubtKind", "input_doubt", "with_findings"]


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
