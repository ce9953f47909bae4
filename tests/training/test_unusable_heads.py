"""Heads from which nothing can be learned give an InputError, not a traceback."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import earatlas as ea
from earatlas.features.statistics import CueStatistics
from earatlas.hrtf.head import ImpulseResponses
from earatlas.localization.score_calibration import ScoreCalibration
from earatlas.training.reverberant import DirectSoundTraining

RING = np.column_stack([np.arange(-180.0, 180.0, 15.0), np.zeros(24)])


@pytest.mark.parametrize("alike", ["ears", "directions"])
def test_cues_that_do_not_depend_on_the_direction(alike: str) -> None:
    """Identical ears, and one response for all directions, are refused before learning."""
    responses = ea.simulated_head(RING).responses()
    samples = responses.samples.copy()
    if alike == "ears":
        samples[:, 1] = samples[:, 0]
    else:
        samples[:] = samples[3]
    head = ea.Head("same", RING, ImpulseResponses(samples, responses.rate))
    with pytest.raises(ea.InputError, match="got the same ones for all 24 directions"):
        ea.learn(head, rooms=False)


def test_rooms_without_poor_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the anechoic model fits every training scene, the weights keep their first values.

    This happens with responses of pure noise, whose calibrated variances accept anything.
    """
    made: list[tuple[Any, ...]] = []

    def localizer(*arguments: Any) -> Any:
        made.append(arguments)
        return SimpleNamespace(rounded=lambda: "localizer")

    monkeypatch.setattr("earatlas.training.reverberant.ReverberantLocalizer", localizer)
    statistics = CueStatistics.from_vector([0.0])
    scenes = [(SimpleNamespace(row=0, statistics=statistics, truth=RING[0]), None)] * 3
    scores = ScoreCalibration(
        np.zeros((1, 3)), np.ones(3), np.ones((1, 9, 7)) / 63, np.array([-30.0, 0.0, 0.0, 0.0])
    )
    training = cast(DirectSoundTraining, SimpleNamespace(
        direct_sound=SimpleNamespace(space=ea.Circle()), weight_scenes=scenes,
        score_calibration=scores, multi_source_calibration=None,
    ))  # fmt: skip
    folds: Any = SimpleNamespace(by_refit=lambda rows: [(None, np.arange(len(rows)))])
    posterior = SimpleNamespace(log_density=lambda points: np.zeros(len(points)))
    batch = SimpleNamespace(
        residual_ratios=np.full(3, 0.5), posteriors=lambda rows: [posterior] * len(rows)
    )
    calibration: Any = SimpleNamespace(calibrated_posteriors=lambda *_: batch)
    found = DirectSoundTraining.localizer(training, folds, calibration, residual_threshold=1.0)
    assert cast(str, found) == "localizer"
    assert made == [(training.direct_sound, scores, None, 1.0)]
