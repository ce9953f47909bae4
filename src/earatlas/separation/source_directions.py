"""Where sources of a mixture are: by the open-air model where it fits, by their onsets elsewhere.

In: what VESSL found, the onsets of the same recording, and the masks. Out: a posterior a source, and
what speaks for it.

Masks and filters need all bins and consistent directions; directions need the bins in which sound
arrives. Both name the sources in their own order: an onset's bin is in a mask too, so the pairs are
those that share most of their bins.

In a room the onsets of a mixture may nearly all be those of the louder talker. Once the sounds are
taken apart, each has onsets of its own. A source that gains nothing among the others is therefore
looked at by itself, as one sound. All others are better placed among all: of 200 sources of ku100
at T60 0.3 and 0.5 s, 16 gained 0.03 to 0.2 nats an onset; 5 of them were beyond 20 degrees by the
mixture, and 12 by themselves. So are all in noise, which filters colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.features.onset_detector import Gate, OnsetBins
from earatlas.features.tf_bins import HeardBins
from earatlas.localization.diagnostics import Doubt, conditions, unlike
from earatlas.localization.learned_head import LearnedHead
from earatlas.localization.multi_source_posterior import DOUBTFUL_GAIN, crowded_belief, unsure
from earatlas.localization.onset_likelihood import bin_weights
from earatlas.localization.onset_mixture import Heard
from earatlas.localization.source_counter import APART_DEGREES, NEARLY
from earatlas.separation.assembly import TakenApart
from earatlas.separation.result import Evidence, Placed
from earatlas.separation.separator import Arrivals, Separator
from earatlas.separation.vessl import State
from earatlas.types import Array

__all__ = [
    "CROWD",
    "MasksAtOnsets",
    "doubles_told",
    "drowned",
    "may_be_more",
    "may_not_exist",
    "misfits",
    "placed_sources",
    "scene_doubts",
]

_FEWEST_ONSETS = 20  # of a separated sound that tell anything
_TELLING_NATS = 0.3
_NO_SHARE = 1e-6  # of a bin: counts for nothing
# Median variance of cues over that of one sound in the open: 4 to 9 for two in the open, 40 to 100
# in noise at 20 dB, 150 to 500 in rooms, 700 in noise at -5 dB.
_SCATTER = 100.0
CROWD = 3.0  # among M sources, cues fit (M - 1) times so badly in the open


def misfits(separator: Separator, state: State, bins: HeardBins) -> Array:
    """(M,) how badly each source fits the open-air model; 1 is the most that it does in the open.

    The mean cues of a source may fit where no bin does: independent noise at the ears has level
    and phase differences of 0 in the mean. So bins must not scatter too much, either.
    """
    head, M = separator.head, len(state.sources)
    shares = state.assignments[:M]
    statistics = bins.narrowed(head.layout).statistics(np.where(shares > _NO_SHARE, shares, 0.0))
    usual = head.calibration.misfit * CROWD * max(M - 1, 1)
    scatter = float(np.median(state.noise / separator.source_model.noise)) / _SCATTER
    worst = []
    for m, source in enumerate(state.sources):
        believed = head.calibration.believable(statistics[m], head.model.noise)
        worst.append(max(head.model.misfit(believed, source.posterior.best) / usual, scatter))
    return np.array(worst)


class MasksAtOnsets:
    """The masks of all blocks in the bins of onsets."""

    def __init__(self, layout: CueLayout, gate: Gate, onsets: OnsetBins, n_sources: int) -> None:
        hz = gate.frequencies_hz[onsets.f]
        rows = np.round(hz * layout.window / layout.rate).astype(np.intp) - 1
        self._f = np.clip(rows, 0, layout.n_frequencies - 1)
        self._t = np.round(onsets.t * (gate.hop / layout.hop)).astype(np.intp)
        self._hop = layout.hop
        self.masks = np.full((n_sources, len(onsets)), 1 / n_sources)  # (M, B)

    def add(self, apart: TakenApart) -> None:
        """Take note of a block."""
        t = self._t - apart.block.start // self._hop
        inside = (t >= 0) & (t < apart.masks.shape[-1])
        self.masks[:, inside] = apart.masks[:, self._f[inside], t[inside]]


def drowned(misfit: Array, arrivals: Arrivals) -> bool:
    """Whether some source of a room is to be looked at by itself, once sounds are taken apart."""
    if arrivals.onsets is None or len(arrivals) < 2 or bool((misfit <= 1).all()):
        return False
    gains = (own.evidence for own in arrivals.sources)
    return arrivals.onsets.clear and min(gains) < DOUBTFUL_GAIN


def placed_sources(
    head: LearnedHead,
    state: State,
    misfit: Array,
    arrivals: Arrivals,
    whose: MasksAtOnsets | None,
) -> list[Placed]:
    """A posterior a source of VESSL, and what speaks for and against it."""
    M, rooms, onsets, heard = len(state.sources), head.rooms, arrivals.onsets, arrivals.sources
    crowded = head.calibration.relaxed(CROWD * max(M - 1, 1))
    opened = [crowded.blur(source.posterior) for source in state.sources]
    fits = bool((misfit <= 1).all())
    if rooms is None or whose is None or onsets is None or len(heard) != M:
        if rooms is not None and not fits:
            opened = [unsure(posterior) for posterior in opened]
        return [
            Placed(posterior, Evidence(float(f)), ())
            for posterior, f in zip(opened, misfit, strict=True)
        ]
    clear = onsets.clear
    answers = []
    for m, other in enumerate(_paired(whose.masks, heard, onsets)):
        own, alone = heard[other], arrivals.separated[m] if arrivals.separated else None
        direct = not (fits and clear)
        evidence = Evidence(float(misfit[m]), own.bins, own.nats, own.evidence, direct)
        posterior, doubtful = opened[m], own.evidence < DOUBTFUL_GAIN
        if not fits and clear and doubtful and alone is not None and len(alone) >= _FEWEST_ONSETS:
            look = rooms.sound.look(alone)
            posterior = rooms.trust.posterior(head.space, look)
            evidence = replace(evidence, nats_a_bin=float(look.features[0]))
            doubtful = evidence.nats_a_bin < _TELLING_NATS
        elif doubtful:  # it arrives as a copy of another: masks know better
            posterior, evidence = unsure(posterior), replace(evidence, direct=False)
        elif evidence.direct:
            posterior = crowded_belief(rooms, own)
        answers.append(
            Placed(posterior, evidence, (may_not_exist(own.evidence),) if doubtful else ())
        )
    return answers


def may_not_exist(gain: float) -> Doubt:
    """Of a source that gains so many nats an onset."""
    reason = (
        f"the others explain its onsets as well, but for {max(gain, 0):.2f}; 0.1 and more are usual"
    )
    return Doubt("may not exist", reason, gain)


def may_be_more(nearly: float) -> tuple[Doubt, ...]:
    """Of a scene in which one more source has so much of what it takes to be counted."""
    if nearly < NEARLY:
        return ()
    percent = min(100 * nearly, 99)
    reason = f"one further sound has {percent:.0f} % of what it takes to be counted"
    return (Doubt("may be more", reason, nearly),)


def doubles_told(placed: Sequence[Placed]) -> list[Placed]:
    """The same; a source that stands where another is, which has more bins, may not exist."""
    told: list[Placed] = []
    for own in placed:
        here, doubts = own.posterior.best, own.doubts
        gaps = [float(own.posterior.space.distance(here, other.posterior.best)) for other in told]
        if gaps and min(gaps) < APART_DEGREES and not doubts:
            reason = f"another is {min(gaps):.1f}° away; so near, one sound may be taken for two"
            doubts = (Doubt("may not exist", reason, min(gaps)),)
        told.append(replace(own, doubts=doubts))
    return told


def scene_doubts(
    head: LearnedHead, placed: Sequence[Placed], onsets: OnsetBins | None, seconds: float
) -> tuple[Doubt, ...]:
    """What makes all directions of a scene of several sounds doubtful."""
    misfit = max(own.evidence.misfit for own in placed)
    doubts = list(conditions(onsets, seconds, fits=misfit <= 1))
    if not doubts and misfit > 1:
        nats = max(own.evidence.nats_a_bin for own in placed)
        if head.rooms is None or onsets is None:
            doubts.extend(unlike(misfit))
        else:
            usual = head.rooms.trust.usual_nats
            doubts.extend(unlike(misfit, nats, usual, onsets.decay_seconds))
    return tuple(doubts)


def _paired(masks: Array, heard: Sequence[Heard], onsets: OnsetBins) -> list[int]:
    """For each source of the masks (M, B), which of the heard ones has most of its bins."""
    from scipy.optimize import linear_sum_assignment

    claims = np.stack([own.claims for own in heard]) * bin_weights(onsets.f)
    _, pairs = linear_sum_assignment(-(masks @ claims.T))
    return [int(i) for i in pairs]
