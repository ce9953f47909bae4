"""A learned head: the models that localization and separation need.

Input: the result of `earatlas.training.learn_head` for a `Head`. Output: calibrated posteriors of
directions given cue statistics and onsets.
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
from earatlas.localization.reverberant_localizer import ReverberantLocalizer
from earatlas.ppam.calibration import Calibration
from earatlas.ppam.model import PPAM
from earatlas.ppam.posterior_batch import CalibratedPosteriorBatch
from earatlas.types import Array

__all__ = ["Accuracy", "CalibratedPosterior", "LearnedHead"]


@dataclass(frozen=True)
class Accuracy:
    """Localization errors for full-spectrum sounds from directions that were held out.

    Attributes
    ----------
    held_out : int
        Number of held-out directions.
    median_degrees, mean_degrees : float
        Median and mean great-circle error.
    beyond_30_share : float
        Share of errors above 30 degrees.
    mean_azimuth_degrees, mean_elevation_degrees : float
        Mean absolute errors in azimuth and in elevation.

    Examples
    --------
    >>> import earatlas as ea
    >>> atlas = ea.example_atlas()
    >>> atlas.accuracy.median_degrees < 5
    True

    """

    held_out: int
    median_degrees: float
    mean_degrees: float
    beyond_30_share: float
    mean_azimuth_degrees: float
    mean_elevation_degrees: float

    @classmethod
    def of(cls, true: Array, estimated: Array) -> Self:
        """Return the accuracy of estimated directions.

        Parameters
        ----------
        true, estimated : ndarray of shape (N, 2)
            Azimuth and elevation in degrees.

        Returns
        -------
        Accuracy
            Statistics of the errors.

        """
        angle = great_circle_error(true, estimated)
        return cls(
            held_out=len(true),
            median_degrees=float(np.median(angle)),
            mean_degrees=float(np.mean(angle)),
            beyond_30_share=float(np.mean(angle > 30)),
            mean_azimuth_degrees=float(np.mean(azimuth_error(true, estimated))),
            mean_elevation_degrees=float(np.mean(elevation_error(true, estimated))),
        )


@dataclass(frozen=True, eq=False)
class CalibratedPosterior:
    """A posterior of directions, and how well the sound fits the learned head."""

    posterior: DirectionPosterior
    misfit: float  # normalized residual of the anechoic model; 1 is the calibrated limit
    nats_per_onset: float = math.nan  # of the best direction; NaN: onsets were not used

    def rotated(self, degrees: float) -> CalibratedPosterior:
        """Return a copy with the posterior rotated to the left."""
        return replace(self, posterior=self.posterior.rotated(float(wrap_degrees(degrees))))


@dataclass(frozen=True, eq=False)
class LearnedHead:
    """A model of a head's cues, the layout of the cues, and the calibration of the model."""

    model: PPAM
    layout: CueLayout
    calibration: Calibration
    accuracy: Accuracy | None  # None: too few directions to hold some out
    about: dict[str, Any] = field(default_factory=dict)  # head, licence, provenance, directions
    rooms: ReverberantLocalizer | None = None  # None: for the acoustics it was learned in only

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.about.get('head', '?')!r}, K={len(self.model.weights)} "
            f"on the {self.space.name}, {self.layout})"
        )

    @property
    def space(self) -> Space:
        """Space of the directions."""
        return self.model.space

    def posterior(
        self, statistics: CueStatistics, onsets: OnsetBins | None = None
    ) -> DirectionPosterior:
        """Return the calibrated posterior p(x | recording); rooms require the onsets."""
        return self.calibrated_posterior(statistics, onsets).posterior

    def calibrated_posterior(
        self, statistics: CueStatistics, onsets: OnsetBins | None = None
    ) -> CalibratedPosterior:
        """Return the calibrated posterior with the measures of fit."""
        anechoic, misfit = self.calibration.calibrated_posterior(self.model, statistics)
        return self.combine(anechoic, misfit, onsets)

    def combine(
        self,
        anechoic: DirectionPosterior,
        misfit: float,
        onsets: OnsetBins | None,
        yaw: Array | None = None,
    ) -> CalibratedPosterior:
        """Combine the anechoic posterior with the onsets; see `ReverberantLocalizer.combine`."""
        if self.rooms is None or onsets is None:
            return CalibratedPosterior(anechoic, misfit)
        posterior, nats = self.rooms.combine(anechoic, misfit, onsets, yaw)
        return CalibratedPosterior(posterior, misfit, nats)

    def combine_batch(
        self, anechoic: CalibratedPosteriorBatch, onsets: Sequence[OnsetBins | None]
    ) -> list[CalibratedPosterior]:
        """Do the same for many overlapping sounds of one recording.

        Either all sounds have onsets or none has. They are complete and sorted by time.
        """
        given = [bins for bins in onsets if bins is not None]
        if self.rooms is None or len(given) < len(onsets):
            posteriors = anechoic.posteriors(np.arange(len(onsets)))
            return list(map(CalibratedPosterior, posteriors, anechoic.misfits.tolist()))
        combined = self.rooms.combine_batch(anechoic, given)
        return [
            CalibratedPosterior(posterior, misfit, nats)
            for (posterior, nats), misfit in zip(combined, anechoic.misfits.tolist(), strict=True)
        ]
