"""What was learned of a head: all that hearing with it needs.

In: what `earatlas.training.learn_head` makes of a `Head`. Localization and separation read nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.features.onset_detector import OnsetBins
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.angles import (
    azimuth_error,
    elevation_error,
    great_circle_error,
    wrap_degrees,
)
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Space
from earatlas.localization.reverberant_localizer import RoomHearing
from earatlas.ppam.calibration import Calibration
from earatlas.ppam.model import PPAM
from earatlas.ppam.posterior_batch import Judged
from earatlas.types import Array

__all__ = ["Accuracy", "Judgement", "LearnedHead"]


@dataclass(frozen=True)
class Accuracy:
    """Errors in degrees of full-spectrum sounds from directions that were held out."""

    held_out: int  # how many directions
    median_degrees: float
    mean_degrees: float
    beyond_30_share: float
    mean_azimuth_degrees: float
    mean_elevation_degrees: float

    @classmethod
    def of(cls, true: Array, found: Array) -> Self:
        """The errors of found (N, 2) directions."""
        angle = great_circle_error(true, found)
        return cls(
            held_out=len(true),
            median_degrees=float(np.median(angle)),
            mean_degrees=float(np.mean(angle)),
            beyond_30_share=float(np.mean(angle > 30)),
            mean_azimuth_degrees=float(np.mean(azimuth_error(true, found))),
            mean_elevation_degrees=float(np.mean(elevation_error(true, found))),
        )


@dataclass(frozen=True, eq=False)
class Judgement:
    """What is believed of a sound, and how well it fits what was learned."""

    posterior: DirectionPosterior
    misfit: float  # of the open-air model, in units of what is usual
    nats_an_onset: float = math.nan  # of the best direction; NaN: onsets were not asked

    def turned(self, degrees: float) -> Judgement:
        """The same with a posterior turned to the left."""
        return replace(self, posterior=self.posterior.turned(float(wrap_degrees(degrees))))


@dataclass(frozen=True, eq=False)
class LearnedHead:
    """A model of a head's cues, their layout, and how sure the model may be."""

    model: PPAM
    layout: CueLayout
    calibration: Calibration
    accuracy: Accuracy | None  # None: too few directions to hold some out
    about: dict[str, Any] = field(default_factory=dict)  # head, licence, provenance, directions
    rooms: RoomHearing | None = None  # None: for the open, or the room that it was learned in

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.about.get('head', '?')!r}, K={len(self.model.weights)} "
            f"on the {self.space.name}, {self.layout})"
        )

    @property
    def space(self) -> Space:
        """Where the directions live."""
        return self.model.space

    def posterior(
        self, statistics: CueStatistics, onsets: OnsetBins | None = None
    ) -> DirectionPosterior:
        """p(x | a recording), calibrated; with its onsets, it holds in rooms too."""
        return self.judged(statistics, onsets).posterior

    def judged(self, statistics: CueStatistics, onsets: OnsetBins | None = None) -> Judgement:
        """That posterior, and how well the sound fits."""
        opened, misfit = self.calibration.judged(self.model, statistics)
        return self.joined(opened, misfit, onsets)

    def joined(
        self,
        opened: DirectionPosterior,
        misfit: float,
        onsets: OnsetBins | None,
        turns: Array | None = None,
    ) -> Judgement:
        """The open-air posterior joined with what onsets say; see `RoomHearing.joined`."""
        if self.rooms is None or onsets is None:
            return Judgement(opened, misfit)
        posterior, nats = self.rooms.joined(opened, misfit, onsets, turns)
        return Judgement(posterior, misfit, nats)

    def joined_many(self, opened: Judged, onsets: Sequence[OnsetBins | None]) -> list[Judgement]:
        """The same of many sounds that overlap; those of one recording have onsets, or none has.

        Onsets are given in order of time, and all of them.
        """
        heard = [bins for bins in onsets if bins is not None]
        if self.rooms is None or len(heard) < len(onsets):
            posteriors = opened.posteriors(np.arange(len(onsets)))
            return list(map(Judgement, posteriors, opened.misfits.tolist()))
        joined = self.rooms.joined_many(opened, heard)
        return [
            Judgement(posterior, misfit, nats)
            for (posterior, nats), misfit in zip(joined, opened.misfits.tolist(), strict=True)
        ]
