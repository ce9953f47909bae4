"""Score calibration for sources that sound at the same time as others.

Input: the direct-sound model of a head, and simulated scenes of two talkers
(`earatlas.training.scenes`). Output: the `ScoreCalibration` of a source in the presence of another.
Each scene is decomposed by its onsets, like a recording (`earatlas.localization.onset_mixture`), as
if neither direction had been measured, and the log-likelihood of each source is compared with its
true direction.

Three and more sources use the calibration of two with equally many and equally informative onsets.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from earatlas.features.onset_detector import OnsetBins, OnsetDetector, OnsetDetectorSettings
from earatlas.geometry.spaces import Space
from earatlas.localization.onset_likelihood import DirectionLogLikelihood, DirectSoundModel
from earatlas.localization.onset_mixture import OnsetMixture
from earatlas.localization.score_calibration import ScoreCalibration, fit_score_calibration
from earatlas.threads import parallel_map
from earatlas.training.scenes import TrainingScenes, perturb_direction
from earatlas.types import Array

__all__ = ["COARSE_MAX_BINS", "FINE_MAX_BINS", "detect_onsets", "fit_pair_calibration"]

# Evidence: docs/figures/settings/training.md, "source_pairs".
COARSE_MAX_BINS, FINE_MAX_BINS = 800, 1500  # strongest onset bins for few and for many sources
_OTHER_UNIT_FRACTION = 0.5  # fraction of the scenes with another unit of the head
_MIN_BINS = 20  # scenes with fewer onset bins are skipped

_LabelledLikelihood = tuple[DirectionLogLikelihood, Array]  # with the true direction (C,)


def fit_pair_calibration(
    simulator: TrainingScenes, sound: DirectSoundModel, *, n_scenes: int
) -> ScoreCalibration:
    """Fit the score calibration of a source in the presence of another one."""
    onset_settings = replace(sound.onset_settings, most_bins=COARSE_MAX_BINS)

    def localize(n: int) -> list[_LabelledLikelihood]:
        # Every scene has its own generator, because scenes are simulated in parallel.
        rng = np.random.default_rng((simulator.synthetic_talkers.seed, n, 2))
        other_unit = rng.random() < _OTHER_UNIT_FRACTION
        rows, samples = simulator.source_pair(rng, other_unit=other_unit)
        bins = detect_onsets(samples, onset_settings)
        if len(bins) < _MIN_BINS:
            return []
        truths = simulator.directions[rows]
        if other_unit:
            truths = np.stack([perturb_direction(sound.space, truth, rng) for truth in truths])
        mixture = OnsetMixture(sound, bins, sound.without_directions(rows)[0])
        sources = mixture.detected_sources(mixture.search_up_to(2)[-1])
        estimates = np.stack([source.direction for source in sources])
        return [
            (sources[m].log_likelihood, truth)
            for m, truth in zip(match_pair(sound.space, truths, estimates), truths, strict=True)
        ]

    scenes = parallel_map(localize, range(n_scenes))
    likelihoods, truths = zip(*(source for scene in scenes for source in scene), strict=True)
    return fit_score_calibration(sound.space, likelihoods, np.stack(truths))


def detect_onsets(samples: Array, onset_settings: OnsetDetectorSettings) -> OnsetBins:
    """Detect the onset bins of a whole recording (2, n)."""
    detector = OnsetDetector(onset_settings)
    detector.push(samples)
    detector.finish()
    return detector.bins()


def match_pair(space: Space, truths: Array, estimates: Array) -> tuple[int, int]:
    """Return the estimate (2, C) of each of two true directions, minimizing the total error."""
    errors = space.distance(truths[:, None], estimates[None])
    straight, crossed = np.trace(errors), np.trace(errors[:, ::-1])
    return (0, 1) if straight <= crossed else (1, 0)
