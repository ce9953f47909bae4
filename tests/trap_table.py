"""Signal traps: broken and unusual recordings with the verdicts that are acceptable.

A trap is made from talkers at known directions of a head. `judge_localization`, `judge_scene` and
`judge_stream` compare an answer with the truth and with the doubts that name the right reason:

    right     every source is within its region, nothing else was found, and there is no doubt
    inside    the same, but with doubts, or the direction is stated to be unknown
    reason    a doubt names the right reason
    other     a doubt names another reason, and a source is outside its region
    wrong     there is no doubt, and a source is outside its region or does not exist
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

import earatlas as ea
from earatlas.features.audio import resample
from earatlas.features.input_plausibility import InputFault
from earatlas.localization.diagnostics import Doubt, DoubtKind
from earatlas.streaming.report import LiveReport
from earatlas.types import Array

__all__ = [
    "TRAPS",
    "Trap",
    "TrapSetup",
    "Verdict",
    "judge_localization",
    "judge_scene",
    "judge_stream",
]

RATE = 16_000
_MIN_RADIUS_DEGREES = 10.0  # smaller regions are compared as if they had this radius
_UNKNOWN_DEGREES = 80.0  # a larger radius states that the direction is unknown
Reason = InputFault | DoubtKind
Direction = tuple[float, float]


class Verdict(StrEnum):
    """How an answer to a trap is judged."""

    RIGHT = "right"
    INSIDE = "inside"
    REASON = "reason"
    OTHER = "other"
    WRONG = "wrong"


@dataclass(frozen=True, eq=False)
class TrapSetup:
    """A head and sounds from which traps are made."""

    head: ea.Head
    speech: Callable[[int], Array]  # a talker of about 4 s at 16 kHz, by number
    front: Direction = (35.0, 0.0)  # nominal directions; the nearest ones of the head are used
    back: Direction = (-60.0, 10.0)

    def at(self, direction: Direction) -> Array:
        """Return the nearest direction of the head."""
        directions = self.head.directions
        nearest: Array = directions[int(ea.great_circle_error(directions, direction).argmin())]
        return nearest

    def render(
        self,
        sounds: Sequence[Array],
        directions: Sequence[Direction],
        *,
        snr_db: float = 40.0,
        room: ea.Room | None = None,
    ) -> Array:
        """Return the samples (2, n) of sounds at directions."""
        settings = ea.SceneSettings(snr_db=snr_db, seed=1)
        at = [self.at(direction) for direction in directions]
        scene = ea.render_scene(self.head, list(sounds), at, settings=settings, room=room)
        return scene.mixture.samples

    def talker(self, **options: float) -> Array:
        """Return one talker at the front direction."""
        return self.render([self.speech(0)], [self.front], **options)  # type: ignore[arg-type]

    def pair(self) -> Array:
        """Return two talkers."""
        return self.render([self.speech(0), self.speech(1)], [self.front, self.back])

    def reverberant(self) -> Array:
        """Return one talker in a room."""
        room = ea.Room(t60_seconds=0.4)
        return self.render([self.speech(0)], [self.front], room=room)


@dataclass(frozen=True)
class Trap:
    """A recording, where its sources are, and which doubts name the right reason."""

    name: str
    make: Callable[[TrapSetup], Array]
    reasons: frozenset[Reason] = frozenset()
    sources: tuple[str, ...] = ("front",)  # attributes of the setup; none: there is no direction
    quick: bool = False  # part of the tests

    def truths(self, setup: TrapSetup) -> list[Array]:
        """Return the true directions."""
        return [setup.at(getattr(setup, name)) for name in self.sources]


def _noise(x: Array, level_db: float, seed: int = 2) -> Array:
    noise = np.random.default_rng(seed).normal(size=x.shape)
    noisy: Array = x + noise * (float(x.std()) * 10 ** (level_db / 20))
    return noisy


def _gain(x: Array, left_db: float, right_db: float) -> Array:
    scaled: Array = x * 10 ** (np.array([[left_db], [right_db]]) / 20)
    return scaled


def _late(x: Array, seconds: float) -> Array:
    n = round(seconds * RATE)
    return np.stack([x[0, n:], x[1, :-n]])


def _inverted(x: Array) -> Array:
    return np.stack([x[0], -x[1]])


def _at_wrong_rate(x: Array, true_rate: int, stated_rate: int) -> Array:
    """Return what is read from a recording at `true_rate` that is stated to have another one."""
    return resample(resample(x, RATE, true_rate), stated_rate, RATE)


def _interrupted(x: Array, seconds: float, every: float = 0.5) -> Array:
    x = x.copy()
    for start in range(RATE // 3, x.shape[1], round(every * RATE)):
        x[:, start : start + round(seconds * RATE)] = 0.0
    return x


def _tones(setup: TrapSetup, frequencies: Iterable[float]) -> Array:
    t = np.arange(3 * RATE) / RATE
    fade = np.minimum(1.0, np.minimum(t, t[-1] - t) / 0.05)
    tones = sum((np.sin(2 * np.pi * f * t) for f in frequencies), start=np.zeros(len(t)))
    return setup.render([0.1 * fade * tones], [setup.front], snr_db=60.0)


def _half_dead(x: Array) -> Array:
    x = x.copy()
    x[1, x.shape[1] // 2 :] = 0.0
    return x


def _drifting(x: Array, ppm: float) -> Array:
    right = resample(x[1], 1_000_000, 1_000_000 + round(ppm))
    n = min(x.shape[1], len(right))
    return np.stack([x[0, :n], right[:n]])


def _filtered(x: Array, low_hz: float, high_hz: float) -> Array:
    spectrum = np.fft.rfft(x)
    hz = np.fft.rfftfreq(x.shape[1], 1 / RATE)
    spectrum[:, (hz < low_hz) | (hz > high_hz)] = 0
    return np.fft.irfft(spectrum, x.shape[1])


def _hum(x: Array) -> Array:
    t = np.arange(x.shape[1]) / RATE
    with_hum: Array = x + float(x.std()) * np.sin(2 * np.pi * 50 * t)
    return with_hum


def _mono(x: Array, level_db: float | None, pan_db: float = 0.0) -> Array:
    both = _gain(np.stack([x[0], x[0]]), 0.0, pan_db)
    return both if level_db is None else _noise(both, level_db)


def _independent_noise(setup: TrapSetup) -> Array:
    return 0.05 * np.random.default_rng(3).normal(size=(2, 3 * RATE))


def _clipped(x: Array) -> Array:
    clipped: Array = np.clip(8 * x / np.abs(x).max(), -1.0, 1.0)
    return clipped


def _quantized(x: Array) -> Array:
    rounded: Array = np.round(100 * x / np.abs(x).max()) / 128
    return rounded


def _reasons(*reasons: Reason) -> frozenset[Reason]:
    return frozenset(reasons)


_DEAD = _reasons(InputFault.DEAD_CHANNEL)
_INVERTED = _reasons(InputFault.INVERTED_CHANNEL)
_GAINS = _reasons(InputFault.UNEQUAL_GAINS)
_LATE = _reasons(InputFault.LATE_CHANNEL)
_SAME = _reasons(InputFault.SAME_SIGNAL)
_TONAL = _reasons(InputFault.TONAL)
_GAPS = _reasons(InputFault.GAPS)
# A wrong rate is a late channel if it is far off, and may be like a head of another size.
_RATE_REASONS = _reasons(InputFault.WRONG_RATE, InputFault.LATE_CHANNEL, DoubtKind.HEAD_MISMATCH)
_NOTHING = _reasons(DoubtKind.NOT_DIRECTIONAL, DoubtKind.NOISY)
_MISMATCH = _reasons(DoubtKind.HEAD_MISMATCH, InputFault.UNEQUAL_GAINS)
_CLIPPED = _reasons(InputFault.CLIPPED)
_BOTH = ("front", "back")


def _wrong_rate(true_rate: int, stated_rate: int) -> Callable[[TrapSetup], Array]:
    return lambda s: _at_wrong_rate(s.talker(), true_rate, stated_rate)


TRAPS: tuple[Trap, ...] = (
    # One channel is dead
    Trap("right channel zero", lambda s: s.talker() * [[1.0], [0.0]], _DEAD, quick=True),
    Trap("left channel zero", lambda s: s.talker() * [[0.0], [1.0]], _DEAD),
    Trap("right channel self-noise", lambda s: _noise(s.talker() * [[1.0], [0.0]], -60.0), _DEAD),
    Trap("right channel dies", lambda s: _half_dead(s.talker()), _DEAD, quick=True),
    Trap("zero, two talkers", lambda s: s.pair() * [[0.0], [1.0]], _DEAD, _BOTH),
    Trap("zero, room", lambda s: s.reverberant() * [[1.0], [0.0]], _DEAD),
    # One channel is inverted
    Trap("inverted", lambda s: _inverted(s.talker()), _INVERTED, quick=True),
    Trap("inverted, 10 dB SNR", lambda s: _inverted(s.talker(snr_db=10.0)), _INVERTED),
    Trap("inverted, two talkers", lambda s: _inverted(s.pair()), _INVERTED, _BOTH),
    Trap("inverted, room", lambda s: _inverted(s.reverberant()), _INVERTED),
    # One channel is louder
    Trap("right +6 dB", lambda s: _gain(s.talker(), 0, 6), _GAINS, quick=True),
    Trap("left +6 dB", lambda s: _gain(s.talker(), 6, 0), _GAINS),
    Trap("right +12 dB", lambda s: _gain(s.talker(), 0, 12), _GAINS),
    Trap("left -20 dB", lambda s: _gain(s.talker(), -20, 0), _GAINS),
    Trap("left +4 dB", lambda s: _gain(s.talker(), 4, 0), _MISMATCH),
    Trap("right +2 dB", lambda s: _gain(s.talker(), 0, 2), _MISMATCH),
    Trap("right +6 dB, 10 dB SNR", lambda s: _gain(s.talker(snr_db=10.0), 0, 6), _GAINS),
    Trap("right +6 dB, two talkers", lambda s: _gain(s.pair(), 0, 6), _GAINS, _BOTH),
    Trap("left +6 dB, two talkers", lambda s: _gain(s.pair(), 6, 0), _GAINS, _BOTH),
    Trap("right +6 dB, room", lambda s: _gain(s.reverberant(), 0, 6), _GAINS),
    # One channel is late
    Trap("right 0.5 ms late", lambda s: _late(s.talker(), 5e-4), _LATE | _MISMATCH),
    Trap("right 2 ms late", lambda s: _late(s.talker(), 2e-3), _LATE),
    Trap("right 10 ms late", lambda s: _late(s.talker(), 1e-2), _LATE, quick=True),
    Trap("right 50 ms late", lambda s: _late(s.talker(), 0.05), _LATE),
    Trap("right 150 ms late", lambda s: _late(s.talker(), 0.15), _LATE),
    Trap("10 ms late, 10 dB SNR", lambda s: _late(s.talker(snr_db=10.0), 1e-2), _LATE),
    Trap("10 ms late, two talkers", lambda s: _late(s.pair(), 1e-2), _LATE, _BOTH),
    Trap("10 ms late, room", lambda s: _late(s.reverberant(), 1e-2), _LATE),
    Trap("clocks differ by 20 ppm", lambda s: _drifting(s.talker(), 20.0), _LATE | _MISMATCH),
    Trap("clocks differ by 1000 ppm", lambda s: _drifting(s.talker(), 1000.0), _LATE | _MISMATCH),
    # Wrong sampling rate
    Trap("48 kHz read as 16 kHz", _wrong_rate(48_000, 16_000), _RATE_REASONS),
    Trap("32 kHz read as 16 kHz", _wrong_rate(32_000, 16_000), _RATE_REASONS),
    Trap("48 kHz read as 44.1 kHz", _wrong_rate(48_000, 44_100), _RATE_REASONS),
    Trap("44.1 kHz read as 48 kHz", _wrong_rate(44_100, 48_000), _RATE_REASONS),
    Trap("16 kHz read as 32 kHz", _wrong_rate(16_000, 32_000), _RATE_REASONS),
    Trap("16 kHz read as 48 kHz", _wrong_rate(16_000, 48_000), _RATE_REASONS),
    # The same signal in both channels
    Trap("mono", lambda s: _mono(s.talker(), None), _SAME, (), quick=True),
    Trap("mono, noise -65 dB", lambda s: _mono(s.talker(), -65.0), _SAME, ()),
    Trap("mono, noise -50 dB", lambda s: _mono(s.talker(), -50.0), _SAME, ()),
    Trap("mono, noise -40 dB", lambda s: _mono(s.talker(), -40.0), _SAME, (), quick=True),
    Trap("mono, noise -30 dB", lambda s: _mono(s.talker(), -30.0), _SAME, ()),
    Trap("mono, noise -20 dB", lambda s: _mono(s.talker(), -20.0), _SAME, ()),
    Trap("panned by 6 dB", lambda s: _mono(s.talker(), None, -6.0), _SAME, (), quick=True),
    Trap("panned by 6 dB, noise -40 dB", lambda s: _mono(s.talker(), -40.0, -6.0), _SAME, ()),
    Trap("mono, two talkers, -40 dB", lambda s: _mono(s.pair(), -40.0), _SAME, ()),
    Trap("mono, room, -40 dB", lambda s: _mono(s.reverberant(), -40.0), _SAME, ()),
    # Unusual signals
    Trap("tone of 440 Hz", lambda s: _tones(s, [440.0]), _TONAL),
    Trap("tone of 1 kHz", lambda s: _tones(s, [1000.0]), _TONAL, quick=True),
    Trap("tone of 4 kHz", lambda s: _tones(s, [4000.0]), _TONAL),
    Trap("chord", lambda s: _tones(s, [262.0, 330.0, 392.0]), _TONAL),
    Trap("gaps of 5 ms", lambda s: _interrupted(s.talker(), 0.005), _GAPS, quick=True),
    Trap("gaps of 20 ms", lambda s: _interrupted(s.talker(), 0.02), _GAPS),
    Trap("gaps of 5 ms, two talkers", lambda s: _interrupted(s.pair(), 0.005), _GAPS, _BOTH),
    Trap("independent noise", _independent_noise, _NOTHING, ()),
    Trap("clipped by 18 dB", lambda s: _clipped(s.talker()), _CLIPPED),
    # Right recordings
    Trap("one talker", lambda s: s.talker(), quick=True),
    Trap("two talkers", lambda s: s.pair(), sources=_BOTH),
    Trap("room", lambda s: s.reverberant(), _reasons(DoubtKind.REVERBERANT)),
    Trap("10 dB SNR", lambda s: s.talker(snr_db=10.0), _reasons(DoubtKind.NOISY)),
    Trap("telephone band", lambda s: _filtered(s.talker(), 300.0, 3400.0), _MISMATCH),
    Trap("hum", lambda s: _hum(s.talker())),
    Trap("offset", lambda s: s.talker() + 0.05, quick=True),
    Trap("7 bits", lambda s: _quantized(s.talker()), _reasons(DoubtKind.NOISY)),
    Trap("level of -70 dB", lambda s: 3e-4 * s.talker() / np.abs(s.talker()).max()),
    Trap("level of +40 dB", lambda s: 100 * s.talker()),
)


def _doubted(doubts: Iterable[Doubt], reasons: frozenset[Reason]) -> Verdict | None:
    """Return whether doubts name a right reason or another one; None without doubts."""
    doubts = list(doubts)
    if any(doubt.word in reasons or doubt.fault in reasons for doubt in doubts):
        return Verdict.REASON
    return Verdict.OTHER if doubts else None


def _judge(
    reasons: frozenset[Reason],
    found: Sequence[tuple[Array, float]],
    doubts: Iterable[Doubt],
    truths: list[Array],
) -> Verdict:
    """Judge directions with their radii, and the doubts about them."""
    doubted = _doubted(doubts, reasons)
    if doubted is Verdict.REASON:
        return doubted
    unknown = all(radius > _UNKNOWN_DEGREES for _, radius in found)
    matched = bool(truths) and len(found) == len(truths)
    for truth in truths:
        inside = (
            float(ea.great_circle_error(direction, truth)) < max(radius, _MIN_RADIUS_DEGREES)
            for direction, radius in found
        )
        matched = matched and any(inside)
    if matched and doubted is None:
        return Verdict.RIGHT
    if matched or unknown:
        return Verdict.INSIDE
    return doubted or Verdict.WRONG


def judge_localization(trap: Trap, setup: TrapSetup, answer: ea.Localization) -> Verdict:
    """Judge the answer of `localize`; several sources are right if they are doubted."""
    truths = trap.truths(setup)
    several = _reasons(DoubtKind.SEVERAL_SOUNDS) if len(truths) > 1 else _reasons()
    found = [(answer.direction, answer.radius_90)]
    return _judge(trap.reasons | several, found, answer.doubts, truths)


def judge_scene(trap: Trap, setup: TrapSetup, scene: ea.Scene) -> Verdict:
    """Judge the answer of `separate`; sources that are doubted themselves are left out."""
    undoubted = [source for source in scene.sources if not source.doubts]
    found = [(source.direction, source.radius_90) for source in undoubted]
    return _judge(trap.reasons, found, scene.doubts, trap.truths(setup))


def judge_stream(trap: Trap, setup: TrapSetup, reports: Sequence[LiveReport]) -> Verdict:
    """Judge the last report of `listen --separate`; doubts may be raised in any of the last."""
    sources = [source for source in reports[-1].sources if source.confirmed]
    found = [(source.direction, source.radius_90) for source in sources]
    doubts = {str(doubt): doubt for report in reports for doubt in report.doubts}
    return _judge(trap.reasons, found, doubts.values(), trap.truths(setup))
