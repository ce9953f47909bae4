"""What speaks against an answer, in plain words with the numbers behind them.

In: how a recording sounded (its onsets) and how well it fitted (a `Judgement`). Out: `Doubt`s, each
a text that begins with one of the words below. An answer without doubts is no proof; one with
doubts may be right, and its posterior is as wide as such answers need.

The limits lie between what was measured on one talker of 3 s, ku100 (10th and 90th percentile):

                        in the open   noise 20 dB  noise 0 dB  T60 0.3 s    two talkers  other head
    dB above the quiet  23 … 37       13 … 18      8 … 10      19 … 31      19 … 25      20 … 37
    decay of 60 dB, s   0.13 … 0.19   0.14 … 0.20  –           0.27 … 0.31  0.16 … 0.18  0.13 … 0.19
    nats an onset       3.7 … 4.4     2.8 … 3.7    2.0 … 2.3   1.9 … 3.5    0.8 … 3.5    2.3 … 3.7
    a second sound      up to 0.17    up to 0.10   up to 0.07  up to 0.08   0.6 (median) up to 0.28
    misfit              0.2 … 2.4     0.4 … 4.6    4 … 20      7 … 76       1.3 … 38     2.7 … 230
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from earatlas.features.onset_detector import OnsetBins
from earatlas.localization.learned_head import Judgement, LearnedHead
from earatlas.localization.onset_mixture import Several

__all__ = ["Doubt", "asked", "conditions", "doubts_of", "one_sound", "strangeness", "unlike"]

_SHORT_SECONDS = 0.45  # a window of half a second, which tracks have, is a little less
_NOISY_DB = 13.0  # onsets above the quiet
_REVERBERANT_SECONDS, _SURELY_REVERBERANT_SECONDS = 0.22, 0.35
# What fits badly is a room's from there on, another head's below: by an atlas of ku100, 0.18 s and
# more in 19 of 20 of its own talkers at T60 0.2 s, less in 34 of 40 of two KEMARs in the open.
_OPEN_SECONDS = 0.175
_SAME = 1e-7  # of an ear's energy is not the other's; noise at -60 dB alone is more
_FEW_ONSETS = 20
_UNDIRECTED_NATS = 0.5  # an onset: 0.2 and less for a panned sound
_SECOND_GAIN = 0.22  # nats an onset that a second sound explains
_MISFIT, _USUAL_SHARE = 2.0, 0.97  # of the nats that onsets tell in the open
# Of one talker in the open, by an atlas of ku100 whose onsets usually tell 3.9 nats: 3.5 to 4.4 of
# ku100 as others might have measured it (errors of 2.3 degrees, 30 talkers), 2.2 to 3.7 of KEMARs
# (errors of 20 degrees within radii of 5 to 10; 24 talkers).
_STRANGE_SHARE = 0.85  # of the usual nats: fully another head's
_WITHOUT_ONSETS = 2.5  # times that misfit, where they tell nothing: in the open it may be 2.4


class Doubt(str):
    """A doubt in plain words; `word` is what it begins with, `value` the number behind it."""

    __slots__ = ("value", "word")
    word: str
    value: float

    def __new__(cls, word: str, reason: str, value: float) -> Doubt:
        """`word: reason`."""
        doubt = super().__new__(cls, f"{word}: {reason}")
        doubt.word, doubt.value = word, float(value)
        return doubt

    def __getnewargs__(self) -> tuple[str, str, float]:  # type: ignore[override]
        """For copies and pickles."""
        return self.word, self.removeprefix(f"{self.word}: "), self.value


def one_sound(onsets: OnsetBins) -> bool:
    """Whether both ears have the same, as of one microphone: it tells no direction."""
    return onsets.difference < _SAME


def conditions(onsets: OnsetBins | None, seconds: float, *, fits: bool) -> Iterator[Doubt]:
    """What makes any answer of a recording doubtful; `fits`: it sounds as it was learned."""
    if seconds < _SHORT_SECONDS:
        yield Doubt("too short", f"{seconds:.1f} s of sound; a second or more is surer", seconds)
    if onsets is None:
        return
    if one_sound(onsets):
        yield Doubt("nothing directional", "both channels have one sound", onsets.difference)
    elif len(onsets) < _FEW_ONSETS and not fits:
        reason = f"onsets that stand out: {len(onsets)}; hundreds are usual"
        yield Doubt("nothing directional", reason, len(onsets))
    if fits or len(onsets) < _FEW_ONSETS or seconds < _SHORT_SECONDS:
        return  # what fits may be above its quiet by little: without pauses that is its own
    above = onsets.above_quiet_db
    if above < _NOISY_DB:
        reason = f"onsets are {above:.0f} dB above the quiet; 20 and more are usual"
        yield Doubt("noisy", reason, above)
    elif onsets.decay_seconds > _REVERBERANT_SECONDS:
        yield _reverberant(onsets.decay_seconds)


def doubts_of(
    head: LearnedHead,
    judged: Judgement,
    onsets: OnsetBins | None,
    seconds: float,
    *,
    still: OnsetBins | None = None,
) -> tuple[Doubt, ...]:
    """What speaks against the answer to where one sound is.

    `still` are onsets of a head that did not turn, by which it is asked whether there are several
    sounds; that takes as long as the answer. None: it is not asked.
    """
    usual = math.nan if head.rooms is None else head.rooms.trust.usual_nats
    fits = judged.misfit <= 1 and not judged.nats_an_onset < _STRANGE_SHARE * usual
    doubts = list(conditions(onsets, seconds, fits=fits))
    if fits:
        return tuple(doubts)
    if head.rooms is None or onsets is None:
        return tuple(doubts) or tuple(unlike(judged.misfit / _WITHOUT_ONSETS))
    nats = judged.nats_an_onset
    heard_well = not _words(doubts) - {"reverberant"}
    if heard_well and still is not None and len(still) >= _FEW_ONSETS:
        gain = Several(head.rooms.sound, still).second_gain()
        if gain > (_SECOND_GAIN if nats > _UNDIRECTED_NATS else 2 * _SECOND_GAIN):
            reason = (
                f"onsets fit two directions better than one, by {gain:.1f}; one sound that stands "
                "still, by 0.1"
            )
            # Where one begins as the other ends, nothing decays fast.
            doubts = [doubt for doubt in doubts if doubt.value > _SURELY_REVERBERANT_SECONDS]
            return (*doubts, Doubt("several sounds at once", reason, gain))
    if not _words(doubts) & {"nothing directional"} and nats < _UNDIRECTED_NATS:
        reason = f"onsets hardly agree on a direction: by {max(nats, 0):.1f}; in the open, by 4"
        doubts.append(Doubt("nothing directional", reason, nats))
    if doubts or len(onsets) < _FEW_ONSETS or not onsets.clear:
        return tuple(doubts)
    return tuple(unlike(judged.misfit, nats, usual, onsets.decay_seconds))


def asked(head: LearnedHead, judged: Judgement, onsets: OnsetBins | None) -> Judgement:
    """The judgement with what onsets tell, where they were not asked: the open-air model fits.

    Of a head whose own sounds fit loosely two talkers and loud noise do, too: of kemar_full 35 of
    100 and 30 of 100; what their onsets tell is 0.2 to 0.7 of the usual.
    """
    if head.rooms is None or onsets is None or len(onsets) < _FEW_ONSETS:
        return judged
    if not math.isnan(judged.nats_an_onset):
        return judged
    return replace(judged, nats_an_onset=float(head.rooms.sound.look(onsets).features[0]))


def _reverberant(decay_seconds: float) -> Doubt:
    reason = f"the fastest decays take {decay_seconds:.2f} s for 60 dB"
    return Doubt("reverberant", reason, decay_seconds)


def _words(doubts: list[Doubt]) -> set[str]:
    return {doubt.word for doubt in doubts}


def unlike(
    misfit: float,
    nats: float = math.nan,
    usual_nats: float = math.nan,
    decay_seconds: float = math.nan,
) -> Iterator[Doubt]:
    """Whether sound that is neither noisy nor surely reverberant comes by way of another head.

    What dies away a little slowly comes from a dry room rather.
    """
    loose = misfit > _MISFIT and not nats >= _USUAL_SHARE * usual_nats
    if not loose and not nats < _STRANGE_SHARE * usual_nats:
        return
    if decay_seconds > _OPEN_SECONDS:
        yield _reverberant(decay_seconds)
    else:
        many = f"{misfit:.0f}" if math.isfinite(misfit) else "many"
        yield Doubt("does not fit this head", f"it fits {many} times as badly as usual", misfit)


def strangeness(head: LearnedHead, judged: Judgement, onsets: OnsetBins | None) -> float:
    """How strange a sound is that is doubted to be one sound by way of this head: 0 to 1.

    In a room onsets tell less whatever the head is; how sure one may be there was measured.
    """
    if head.rooms is None or onsets is None or math.isnan(judged.nats_an_onset):
        return 1.0
    if onsets.decay_seconds > _OPEN_SECONDS:
        return 0.0
    share = judged.nats_an_onset / head.rooms.trust.usual_nats
    return min(max((_USUAL_SHARE - share) / (_USUAL_SHARE - _STRANGE_SHARE), 0.0), 1.0)
