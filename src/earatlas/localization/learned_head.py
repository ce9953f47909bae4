"""A learned head: the models that localization and separation need.

Input: the result of `earatlas.training.learn_head` for a `Head`. Output: calibrated posteriors of
directions given cue statistics and onsets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.features.onset_detector import OnsetBins
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.angles import (
    apply_front_prior,
    azimuth_error,
    elevation_error,
    great_circle_error,
    wrap_degrees,
)
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Space
from earatlas.localization.head_mismatch import (
    POPULATION_MISMATCH,
    DeviatingHeads,
    HeadMismatch,
    Unit,
)
from earatlas.localization.reverberant_localizer import AnechoicPosteriors, ReverberantLocalizer
from earatlas.notebooks import HtmlView
from earatlas.ppam.calibration import CalibratedPosteriorBatch, Calibration
from earatlas.ppam.head_deviations import people_deviations
from earatlas.ppam.listener_model import ListenerPPAM
from earatlas.ppam.model import PPAM
from earatlas.types import Array
from earatlas.wording import rounded_repr

__all__ = ["MODEL_ARRAYS", "Accuracy", "CalibratedPosterior", "LearnedHead"]

# Arrays of the PPAM that are stored in an atlas file, in single precision
MODEL_ARRAYS = ("centres", "weights", "gammas", "A", "b", "noise", "latent", "spread")


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
        Mean absolute errors in azimuth and in elevation, or in x and y of an image.

    Notes
    -----
    Errors of positions in an image are in degrees of the field of view; `in_units` converts them.

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

    def __repr__(self) -> str:
        return rounded_repr(self)

    @classmethod
    def of(cls, true: Array, estimated: Array, space: Space | None = None) -> Self:
        """Return the accuracy of estimated directions.

        Parameters
        ----------
        true, estimated : ndarray of shape (N, 2)
            Azimuth and elevation in degrees.
        space : Space, optional
            Space of positions that are not directions.

        Returns
        -------
        Accuracy
            Statistics of the errors.
        """
        if space is None or space.holds_directions:
            angle = great_circle_error(true, estimated)
            azimuth, elevation = azimuth_error(true, estimated), elevation_error(true, estimated)
        else:
            angle = space.distance(true, estimated)
            azimuth, elevation = np.abs(space.log(true, estimated)).T
        return cls(
            held_out=len(true),
            median_degrees=float(np.median(angle)),
            mean_degrees=float(np.mean(angle)),
            beyond_30_share=float(np.mean(angle > 30)),
            mean_azimuth_degrees=float(np.mean(azimuth)),
            mean_elevation_degrees=float(np.mean(elevation)),
        )

    def in_units(self, space: Space) -> dict[str, float]:
        """Return the errors by name, in the unit of a space.

        Parameters
        ----------
        space : Space
            Space of the atlas.

        Returns
        -------
        dict
            The attributes; for an image `median_pixels`, `mean_pixels`, `mean_x_pixels` and
            `mean_y_pixels` instead of degrees.
        """
        if space.holds_directions or not space.unit_name:
            return dict(vars(self))
        scale, unit = space.unit_scale, space.unit_name
        return {
            "held_out": self.held_out,
            f"median_{unit}": scale * self.median_degrees,
            f"mean_{unit}": scale * self.mean_degrees,
            f"mean_x_{unit}": scale * self.mean_azimuth_degrees,
            f"mean_y_{unit}": scale * self.mean_elevation_degrees,
        }


@dataclass(frozen=True, eq=False)
class CalibratedPosterior:
    """A posterior of directions, and how well the sound fits the learned head."""

    posterior: DirectionPosterior
    residual_ratio: float  # residual of the anechoic model; above 1 it does not fit
    nats_per_onset: float = math.nan  # value at the best direction; NaN: onsets were not used
    mismatch: float = math.nan  # magnitude of the deviation of the head; NaN: not determined
    cue_variance: float = math.nan  # of single frames' cues (`ReverberationEstimate`)

    def rotated(self, degrees: float) -> CalibratedPosterior:
        """Return a copy with the posterior rotated to the left."""
        return replace(self, posterior=self.posterior.rotated(float(wrap_degrees(degrees))))


@dataclass(frozen=True, eq=False)
class LearnedHead(HtmlView):
    """A model of a head's cues, the layout of the cues, and the calibration of the model."""

    model: PPAM
    layout: CueLayout
    calibration: Calibration
    accuracy: Accuracy | None  # None: too few directions to hold some out
    about: dict[str, Any] = field(default_factory=dict)  # head, licence, provenance, directions
    # None: only for the acoustics in which the head was measured.
    reverberant_localizer: ReverberantLocalizer | None = None

    @property
    def n_heads(self) -> int:
        """Number of heads that it was learned from; its errors are those of other heads if many."""
        return 1

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.about.get('head', '?')!r}, K={len(self.model.weights)} "
            f"on the {self.space.name}, {self.layout})"
        )

    @property
    def space(self) -> Space:
        """Space of the directions."""
        return self.model.space

    @cached_property
    def deviating_heads(self) -> DeviatingHeads | None:
        """Heads that deviate from this one; None: it is not known for its cues how heads do."""
        if isinstance(self.model, ListenerPPAM):
            return DeviatingHeads(self.model, self.calibration, None, settings=POPULATION_MISMATCH)
        deviations = people_deviations()
        if deviations is None or not deviations.apply_to(self.model, self.layout):
            return None
        unit = Unit(self.about.get("unit", Unit.OTHER))
        own_nats = float(self.about.get("held_out_nats", 0.0))
        return DeviatingHeads(self.model, self.calibration, deviations, unit, own_nats)

    @cached_property
    def mismatch(self) -> HeadMismatch | None:
        """Posteriors of recordings of other heads; None: without models for rooms."""
        if self.reverberant_localizer is None or self.deviating_heads is None:
            return None
        return HeadMismatch(self.deviating_heads, self.reverberant_localizer)

    def posterior(
        self, statistics: CueStatistics, onsets: OnsetBins | None = None
    ) -> DirectionPosterior:
        """Return the calibrated posterior p(x | recording).

        Parameters
        ----------
        statistics : CueStatistics
            Statistics of the D cues of the layout.
        onsets : OnsetBins, optional
            Onsets of the recording; without them a reverberant recording is treated as anechoic.

        Returns
        -------
        DirectionPosterior
            The posterior.
        """
        return self.calibrated_posterior(statistics, onsets).posterior

    def calibrated_posterior(
        self, statistics: CueStatistics, onsets: OnsetBins | None = None
    ) -> CalibratedPosterior:
        """Return the calibrated posterior with the measures of fit.

        Parameters
        ----------
        statistics : CueStatistics
            Statistics of the D cues of the layout.
        onsets : OnsetBins, optional
            Onsets of the recording; without them a reverberant recording is treated as anechoic.

        Returns
        -------
        CalibratedPosterior
            The posterior, the residual of the anechoic model, and the nats per onset.
        """
        return self.calibrated_posteriors(CueStatistics.stack([statistics]), [onsets])[0]

    def calibrated_posteriors(
        self,
        statistics: CueStatistics,
        onsets: Sequence[OnsetBins | None],
        *,
        all_charts: bool = True,
    ) -> list[CalibratedPosterior]:
        """Return the calibrated posteriors of W sounds, such as the windows of a recording.

        Parameters
        ----------
        statistics : CueStatistics
            Statistics (W, D) of the cues of the layout.
        onsets : sequence of OnsetBins or None
            Onset bins of each sound, sorted by time if there are several. Either all sounds have
            onsets or none has.
        all_charts : bool, default True
            Whether to evaluate every chart; see `PPAM.posteriors`.

        Returns
        -------
        list of CalibratedPosterior
            The posterior, the residual of the anechoic model, and the nats per onset of each sound.
        """
        batch = self.calibration.calibrated_posteriors(
            self.model, statistics, all_charts=all_charts
        )
        combined = self.combine(batch.residual_ratios, batch.posteriors, onsets)
        variances = self.calibration.relative_variances(statistics)
        return [
            self._with_mismatch(replace(one, cue_variance=float(variances[n])), batch, n, own)
            for n, (one, own) in enumerate(zip(combined, onsets, strict=True))
        ]

    def _with_mismatch(
        self,
        combined: CalibratedPosterior,
        batch: CalibratedPosteriorBatch,
        n: int,
        onsets: OnsetBins | None,
    ) -> CalibratedPosterior:
        """Return the posterior of sound n if another head made the recording; the same if not."""
        mismatch = self.mismatch
        if mismatch is None or onsets is None:
            return combined
        onsets = onsets.with_reverberation(cue_variance=combined.cue_variance)
        if not mismatch.is_possible(combined.residual_ratio, onsets):
            return combined
        found = mismatch.posterior(combined.posterior, batch.effective[n], onsets)
        if found is None:
            return combined
        return replace(
            combined,
            posterior=found.posterior,
            nats_per_onset=found.nats_per_onset,
            mismatch=found.magnitude,
        )

    def combine(
        self,
        residual_ratios: Array,
        anechoic: AnechoicPosteriors,
        onsets: Sequence[OnsetBins | None],
        yaw: Array | None = None,
    ) -> list[CalibratedPosterior]:
        """Combine anechoic posteriors with the onsets and with the prior of front before rear.

        See `ReverberantLocalizer.combine` and `earatlas.geometry.angles`.

        Parameters
        ----------
        residual_ratios : ndarray of shape (W,)
            Residuals of the anechoic model for W sounds; above 1 it does not fit.
        anechoic : callable
            Returns the posteriors of the anechoic model for some of the sounds, given by index.
        onsets : sequence of OnsetBins or None
            Onset bins of each sound. Either all sounds have onsets or none has; then the anechoic
            posteriors are not changed by them.
        yaw : ndarray of shape (B,), optional
            Yaw of the head at each bin of a single sound in degrees; by default the head does not
            rotate.

        Returns
        -------
        list of CalibratedPosterior
            The combined posteriors with the measures of fit.
        """
        ratios = residual_ratios.tolist()
        given = [bins for bins in onsets if bins is not None]
        if self.reverberant_localizer is None or len(given) < len(onsets):
            posteriors = anechoic(np.arange(len(onsets)))
            return list(map(CalibratedPosterior, map(apply_front_prior, posteriors), ratios))
        combined = self.reverberant_localizer.combine(residual_ratios, anechoic, given, yaw)
        return [
            CalibratedPosterior(apply_front_prior(posterior), ratio, nats)
            for (posterior, nats), ratio in zip(combined, ratios, strict=True)
        ]
