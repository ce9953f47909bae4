"""Tests of simulated scenes of two sources, and of the score calibration fitted to them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import earatlas as ea
from earatlas.localization.onset_likelihood import DirectSoundModel
from earatlas.simulation.synthetic_speech import SyntheticTalkers
from earatlas.training.reverberant import (
    ReverberantTrainingSettings,
    fit_pair_calibration,
    match_pair,
)
from earatlas.training.scenes import TrainingScenes, UnitMismatch


@pytest.fixture(scope="module")
def sound(atlas: ea.Atlas) -> DirectSoundModel:
    """Return the direct-sound model of the shared atlas."""
    assert atlas.reverberant_localizer is not None
    return atlas.reverberant_localizer.direct_sound


@pytest.fixture(scope="module")
def simulator(atlas_head: ea.Head) -> TrainingScenes:
    """Return the scene simulator of the shared head."""
    return TrainingScenes.of(atlas_head, SyntheticTalkers(16_000, seed=3))


def test_pairs_are_separated_and_reproducible(simulator: TrainingScenes) -> None:
    """A seed determines the scene; another unit has the same directions and other samples."""
    for seed in range(6):
        rows, samples = simulator.source_pair(np.random.default_rng(seed), other_unit=False)
        again = simulator.source_pair(np.random.default_rng(seed), other_unit=False)
        other, mismatched = simulator.source_pair(np.random.default_rng(seed), other_unit=True)
        assert ea.Sphere().distance(*simulator.directions[rows]) >= 15
        np.testing.assert_array_equal(samples, again[1])
        np.testing.assert_array_equal(rows, other)
        assert mismatched.shape == samples.shape
        assert not np.array_equal(mismatched, samples)
    assert simulator.responses.shape[-1] < 200  # common silence is removed


def test_simulation_does_not_change_responses(simulator: TrainingScenes) -> None:
    """Simulating another unit does not modify the responses of the head."""
    before = simulator.responses.copy()
    for seed in range(4):
        simulator.source_pair(np.random.default_rng(seed), other_unit=True)
    np.testing.assert_array_equal(simulator.responses, before)


def test_mismatch_of_other_units(rng: np.random.Generator) -> None:
    """Levels differ by about 1 dB, more at high frequencies, and directions by about 2°."""
    f = np.array([500.0, 2000.0, 6000.0])
    mismatch = np.array([UnitMismatch().interaural_factors(f, rng) for _ in range(400)])
    level = (20 * np.log10(np.abs(mismatch))).std(axis=0)
    assert level[0] < level[1] < level[2]
    assert 0.2 < level[0] < 1.0 < level[2] < 2.5
    sphere, true = ea.Sphere(), np.array([20.0, 40.0])
    distances = [
        sphere.distance(true, UnitMismatch().displaced(sphere, true, rng)) for _ in range(300)
    ]
    assert 2.0 < np.sqrt(np.mean(np.square(distances))) < 3.6


def test_held_out_directions_are_not_used(sound: DirectSoundModel) -> None:
    """Leave-one-out templates equal those of a head without these directions."""
    rows = np.array([5, 300])
    leave_one_out, own = sound.without_directions(rows)
    part = replace(
        sound, spacing_degrees=min(sound.spacing_degrees, 5.0)
    )  # dense enough to remove all influence
    dense, dense_own = part.without_directions(rows)
    known = np.delete(sound.templates.directions, rows, axis=0)
    fewer = replace(
        part,
        templates=replace(
            sound.templates,
            directions=known,
            level_db=np.delete(sound.templates.level_db, rows, axis=0),
            delay_seconds=np.delete(sound.templates.delay_seconds, rows),
            phase_radians=np.delete(sound.templates.phase_radians, rows, axis=0),
        ),
    )
    oracle = fewer.interpolated_points(fewer.interpolation_for(known, part.grid[dense.rows]))
    np.testing.assert_allclose(dense.points, oracle, atol=1e-6)
    at_rows = fewer.interpolated_points(
        fewer.interpolation_for(known, sound.templates.directions[rows])
    )
    np.testing.assert_allclose(dense_own, at_rows, atol=1e-9)
    used = np.isin(sound.interpolation.rows, rows).any(axis=1)
    np.testing.assert_array_equal(leave_one_out.rows, np.flatnonzero(used))
    assert own.shape == (len(sound.whitening), 3, 2)
    np.testing.assert_allclose(np.linalg.norm(own, axis=1), 1.0, atol=1e-9)


def test_match_pair_minimizes_total_error() -> None:
    """Estimates are matched in order or crossed, and each is used once."""
    truths = np.array([[0.0, 0.0], [60.0, 10.0]])
    assert match_pair(ea.Sphere(), truths, truths + 3) == (0, 1)
    assert match_pair(ea.Sphere(), truths, truths[::-1] + 3) == (1, 0)
    assert match_pair(ea.Sphere(), truths, np.array([[55.0, 10.0], [80.0, 0.0]])) == (0, 1)


def test_pair_calibration_uses_both_sources(
    simulator: TrainingScenes, sound: DirectSoundModel
) -> None:
    """Every scene contributes two sources, and a seed determines the result."""
    multi_source_calibration = fit_pair_calibration(
        simulator, sound, ReverberantTrainingSettings(scenes=18)
    )
    assert len(multi_source_calibration.features) == 12
    assert np.ptp(multi_source_calibration.features[:, 1]) > 5  # dB above the noise floor
    np.testing.assert_allclose(multi_source_calibration.mixture_weights.sum(axis=(1, 2)), 1.0)
    again = fit_pair_calibration(simulator, sound, ReverberantTrainingSettings(scenes=6))
    np.testing.assert_array_equal(again.features, multi_source_calibration.features[:4])


def test_saved_atlas_contains_pair_calibration(tmp_path: Path, atlas: ea.Atlas) -> None:
    """Values are exact after loading; atlases without the calibration are read."""
    assert atlas.reverberant_localizer is not None
    atlas.save(tmp_path / "current.atlas")
    loaded = ea.Atlas.load(tmp_path / "current.atlas").reverberant_localizer
    assert loaded is not None
    assert loaded.multi_source_calibration is not None
    assert atlas.reverberant_localizer.multi_source_calibration is not None
    np.testing.assert_array_equal(
        loaded.multi_source_calibration.mixture_weights,
        atlas.reverberant_localizer.multi_source_calibration.mixture_weights,
    )
    replace(
        atlas,
        reverberant_localizer=replace(atlas.reverberant_localizer, multi_source_calibration=None),
    ).save(tmp_path / "earlier.atlas")
    earlier = ea.Atlas.load(tmp_path / "earlier.atlas").reverberant_localizer
    assert earlier is not None
    assert earlier.multi_source_calibration is None
    invalid = replace(atlas.reverberant_localizer.multi_source_calibration, scale=np.zeros(3))
    replace(
        atlas,
        reverberant_localizer=replace(
            atlas.reverberant_localizer, multi_source_calibration=invalid
        ),
    ).save(tmp_path / "invalid.atlas")
    with pytest.raises(ea.InputError, match="score calibration do not fit"):
        ea.Atlas.load(tmp_path / "invalid.atlas")
