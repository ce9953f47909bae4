"""What a learned head says of one sound: a posterior, and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from earatlas.features.cues import nothing_heard
from earatlas.features.layout import CueLayout
from earatlas.features.onset_detector import OnsetBins
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.direction_posterior import CredibleRegion, DirectionPosterior
from earatlas.localization.diagnostics import Doubt, asked, doubts_of, strangeness
from earatlas.localization.head_rotation import turning_judgement
from earatlas.localization.learned_head import Judgement, LearnedHead
from earatlas.localization.multi_source_posterior import unsure
from earatlas.localization.pose_statistics import Pose, total_statistics
from earatlas.types import Array

__all__ = [
    "Localization",
    "answer",
    "anywhere",
    "heard",
    "observed_shares",
    "rested",
    "turning_answer",
]

_PAUSE_SECONDS = 0.5  # between words: nobody doubts an answer for these
# Of a posterior without ground: how much of it goes how far. The rest keeps its direction the best.
_ANYWHERE, _ANYWHERE_DEGREES = 0.95, 90.0
_DRIFT = 5.0  # degrees a second that who is not heard may have moved; walkers do 10 to 20
_POSE_DEGREES = 6.0  # of yaw that are one pose


@dataclass(frozen=True, eq=False)
class Localization:
    """Where one sound is believed to be."""

    posterior: DirectionPosterior
    observed_share: float  # of the time-frequency bins
    seconds: float  # of sound it rests on
    doubts: tuple[Doubt, ...] = ()  # what speaks against it
    age_seconds: float | None = None  # since the sound of a stream that forgets was heard last

    def __repr__(self) -> str:
        place = ", ".join(f"{v:.1f}" for v in self.direction)
        return f"Localization(({place}) degrees, {100 * self.observed_share:.0f} % observed)"

    @cached_property
    def direction(self) -> Array:
        """The most probable direction (C,), in degrees."""
        return self.posterior.best

    @cached_property
    def mean(self) -> Array:
        """The mean direction (C,), in degrees."""
        return self.posterior.mean

    def credible_region(self, level: float = 0.9) -> CredibleRegion:
        """The smallest region that holds the direction with probability `level`."""
        return self.posterior.credible_region(level)

    @cached_property
    def radius_90(self) -> float:
        """Radius around `direction`, in degrees, that contains the source with 90 % probability."""
        return self.posterior.radius_90

    def aged(self, seconds: float) -> Localization:
        """The same so many seconds after the sound was heard last: ever less sure."""
        if seconds <= _PAUSE_SECONDS:
            return replace(self, age_seconds=seconds)
        posterior = self.posterior.blurred([_DRIFT * seconds], [1.0])
        reason = f"not heard for {seconds:.1f} s; it may have moved"
        doubts = (*self.doubts, Doubt("silent", reason, seconds))
        return replace(self, posterior=posterior, doubts=doubts, age_seconds=seconds)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        radius, area = self.posterior.credible_digits(0.9)
        age = {} if self.age_seconds is None else {"age": round(self.age_seconds, 2)}
        return {
            "direction": [round(float(v), 2) for v in self.direction],
            "mean": [round(float(v), 2) for v in self.mean],
            "radius_90": radius,
            "credible_90_area": area,
            "observed_share": round(self.observed_share, 4),
            "doubts": [str(doubt) for doubt in self.doubts],
            **age,
        }

    def to_row(self, time: float) -> dict[str, Any]:
        """The same for the window of a track around `time`; a silent one has no direction."""
        fields = self.to_dict() if self.observed_share > 0 else _SILENT
        return {"time": round(time, 4), **fields}


_SILENT: dict[str, Any] = {
    "direction": None,
    "mean": None,
    "radius_90": None,
    "credible_90_area": None,
    "observed_share": 0.0,
    "doubts": [],
}


def answer(
    head: LearnedHead, statistics: CueStatistics, onsets: OnsetBins | None = None
) -> Localization:
    """The posterior, with the share of bins and the seconds that it rests on."""
    return _rested(head, head.judged(statistics, onsets), statistics, onsets, still=onsets)


def turning_answer(
    head: LearnedHead,
    poses: Sequence[Pose],
    onsets: OnsetBins | None,
    yaw_of_bins: Array,
    *,
    thorough: bool = True,
) -> Localization:
    """The same of a turning head, in the room's frame: see `earatlas.localization.head_rotation`.

    `thorough` is how it is doubted: see `earatlas.localization.diagnostics`.
    """
    judged = turning_judgement(head, poses, onsets, yaw_of_bins)
    still = None if onsets is None or not thorough else _of_one_pose(onsets, yaw_of_bins)
    return _rested(head, judged, total_statistics(poses), onsets, still=still)


def _of_one_pose(onsets: OnsetBins, yaw_of_bins: Array) -> OnsetBins:
    """Those of the pose with most of them: to a head that turns one sound is in many places."""
    number = np.floor(yaw_of_bins / _POSE_DEGREES + 0.5)
    values, counts = np.unique(number, return_counts=True)
    return onsets if len(values) < 2 else onsets[number == values[counts.argmax()]]


def heard(found: Localization) -> Localization:
    """The same, or an InputError if nothing was heard."""
    if found.observed_share == 0:
        raise nothing_heard()
    return found


def anywhere(posterior: DirectionPosterior) -> DirectionPosterior:
    """A posterior without ground: the sound may be anywhere."""
    return posterior.blurred([0.0, _ANYWHERE_DEGREES], [1 - _ANYWHERE, _ANYWHERE])


def rested(
    head: LearnedHead,
    judged: Judgement,
    onsets: OnsetBins | None,
    *,
    share: float,
    seconds: float,
    still: OnsetBins | None = None,
) -> Localization:
    """The answer of what is judged, from a share of the bins of so many seconds.

    `still`: see `earatlas.localization.diagnostics.doubts_of`.
    """
    posterior = judged.posterior
    doubts: tuple[Doubt, ...] = ()
    if share > 0:
        judged = asked(head, judged, still)
        doubts = doubts_of(head, judged, onsets, seconds, still=still)
    words = {doubt.word for doubt in doubts}
    if words & {"does not fit this head", "several sounds at once"}:
        posterior = unsure(posterior, strangeness(head, judged, onsets))
    if "nothing directional" in words:
        posterior = anywhere(posterior)
    return Localization(posterior, share, seconds, doubts)


def observed_shares(layout: CueLayout, counts: Array, frames: Array) -> Array:
    """How much (W,) of the bins that have cues was observed, of counts (W, D) and frames (W,)."""
    _, once = np.unique(layout.cue_frequencies, return_index=True)
    shares: Array = counts[:, once].mean(axis=1) / np.maximum(frames, 1e-300)
    return shares


def _rested(
    head: LearnedHead,
    judged: Judgement,
    statistics: CueStatistics,
    onsets: OnsetBins | None,
    *,
    still: OnsetBins | None = None,
) -> Localization:
    layout, frames = head.layout, np.array([statistics.frames])
    share = float(observed_shares(layout, statistics.counts[None], frames)[0])
    seconds = statistics.frames * layout.hop / layout.rate
    return rested(head, judged, onsets, share=share, seconds=seconds, still=still)
