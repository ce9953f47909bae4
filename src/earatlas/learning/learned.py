"""What was learned of a head: all that hearing with it needs.

In: what `earatlas.learning.learn` makes of a `Head`. Localization and separation read nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from earatlas.hearing.layout import CueLayout
from earatlas.hearing.onsets import OnsetBins
from earatlas.hearing.statistics import CueStatistics
from earatlas.learning.calibration import Calibration
from earatlas.learning.ppam import PPAM
from earatlas.learning.rooms import RoomHearing
from earatlas.space.angles import azimuth_error, elevation_error, great_circle_error
from earatlas.space.belief import ChartMixture
from earatlas.space.spaces import Space
from earatlas.types import Array

__all__ = ["Accuracy", "LearnedHead"]


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

    def belief(self, statistics: CueStatistics, onsets: OnsetBins | None = None) -> ChartMixture:
        """p(x | a recording), calibrated; with its onsets, it holds in rooms too."""
        opened, misfit = self.calibration.judged(self.model, statistics)
        if self.rooms is None or onsets is None:
            return opened
        return self.rooms.joined(opened, misfit, onsets)
