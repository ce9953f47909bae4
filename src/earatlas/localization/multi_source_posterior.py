"""Posterior of one of several sources, and posteriors of estimates without support.

Input: a `DetectedSource` (`earatlas.localization.onset_mixture`). Output: a posterior with the
spread that was measured for similar sources in simulated scenes of two sources
(`earatlas.training.source_pairs`), or a wider one if the source has little evidence.
"""

from __future__ import annotations

from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.localization.onset_mixture import DetectedSource
from earatlas.localization.reverberant_localizer import ReverberantLocalizer

__all__ = ["LOW_EVIDENCE_NATS", "detected_source_posterior", "widen_posterior"]

# Evidence: docs/figures/settings/localization.md, "multi_source_posterior".
LOW_EVIDENCE_NATS = 0.03  # nats per onset below which a source may not exist
_WIDENED_FRACTION = 0.7  # fraction of an unsupported posterior that is blurred
_WIDENED_DEGREES = 30.0  # standard deviation of that blur


def detected_source_posterior(
    localizer: ReverberantLocalizer, source: DetectedSource
) -> DirectionPosterior:
    """Return the calibrated posterior of one of several sources."""
    space = localizer.direct_sound.space
    if localizer.multi_source_calibration is None:
        # The calibration for a single source is overconfident here.
        return widen_posterior(localizer.score_calibration.posterior(space, source.log_likelihood))
    return localizer.multi_source_calibration.posterior(space, source.log_likelihood)


def widen_posterior(posterior: DirectionPosterior, amount: float = 1.0) -> DirectionPosterior:
    """Blur a posterior that no other evidence supports, by an amount from 0 to 1 (fully)."""
    return posterior.blurred(
        [0.0, _WIDENED_DEGREES], [1 - amount * _WIDENED_FRACTION, amount * _WIDENED_FRACTION]
    )
