"""Scenes of two made from a head, and the trust that is measured in them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import earatlas as ea
from earatlas.localization.onset_likelihood import DirectSound
from earatlas.simulation.synthetic_speech import SyntheticTalkers
from earatlas.training.scenes import Stage, mismatch, turned
from earatlas.training.source_pairs import _matched, learn_crowd


@pytest.fixture(scope="module")
def sound(atlas: ea.Atlas) -> DirectSound:
    """The direct sound of the shared head."""
    assert atlas.rooms is not None
    return atlas.rooms.sound


@pytest.fixture(scope="module")
def stage(atlas_head: ea.Head) -> Stage:
    """The shared head, ready for scenes."""
    return Stage.of(atlas_head, SyntheticTalkers(16_000, seed=3))


def test_two_sounds_are_apart_and_reproducible(stage: Stage) -> None:
    """The same seed is the same scene; another unit hears the same places a little otherwise."""
    for seed in range(6):
        rows, samples = stage.two(np.random.default_rng(seed), other_unit=False)
        again = stage.two(np.random.default_rng(seed), other_unit=False)
        other, spoilt = stage.two(np.random.default_rng(seed), other_unit=True)
        assert ea.Sphere().distance(*stage.directions[rows]) >= 15
        np.testing.assert_array_equal(samples, again[1])
        np.testing.assert_array_equal(rows, other)
        assert spoilt.shape == samples.shape
        assert not np.array_equal(spoilt, samples)
    assert stage.responses.shape[-1] < 200  # the silence around them is gone


def test_a_stage_is_not_spoilt_by_its_scenes(stage: Stage) -> None:
    """Another unit's responses are made from the head's, which stay."""
    before = stage.responses.copy()
    for seed in range(4):
        stage.two(np.random.default_rng(seed), other_unit=True)
    np.testing.assert_array_equal(stage.responses, before)


def test_other_units_differ_by_about_a_decibel(rng: np.random.Generator) -> None:
    """In level by 0.5 dB below and more above, in delay by some microseconds; turned by 2°."""
    f = np.array([500.0, 2000.0, 6000.0])
    wrong = np.array([mismatch(f, rng) for _ in range(400)])
    level = (20 * np.log10(np.abs(wrong))).std(axis=0)
    assert level[0] < level[1] < level[2]
    assert 0.2 < level[0] < 1.0 < level[2] < 2.5
    away = [ea.Sphere().distance([20.0, 40.0], turned(ea.Sphere(), np.array([20.0, 40.0]), rng))
            for _ in range(300)]  # fmt: skip
    assert 2.0 < np.sqrt(np.mean(np.square(away))) < 3.6


def test_left_out_directions_are_unknown(sound: DirectSound) -> None:
    """The patch is what a head without these directions has there, and nothing else changes."""
    rows = np.array([5, 300])
    patch, own = sound.left_out(rows)
    part = replace(sound, spacing_degrees=min(sound.spacing_degrees, 5.0))  # dense: all is gone
    dense, dense_own = part.left_out(rows)
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
    oracle = fewer.points_of(fewer.between(known, part.grid[dense.rows]))
    np.testing.assert_allclose(dense.points, oracle, atol=1e-6)
    at_rows = fewer.points_of(fewer.between(known, sound.templates.directions[rows]))
    np.testing.assert_allclose(dense_own, at_rows, atol=1e-9)
    used = np.isin(sound.interpolation.rows, rows).any(axis=1)
    np.testing.assert_array_equal(patch.rows, np.flatnonzero(used))
    assert own.shape == (len(sound.whiten), 3, 2)
    np.testing.assert_allclose(np.linalg.norm(own, axis=1), 1.0, atol=1e-9)


def test_places_are_matched_the_better_way_round() -> None:
    """Two truths and two places, straight and crossed; one place near both is one's only."""
    truths = np.array([[0.0, 0.0], [60.0, 10.0]])
    assert _matched(ea.Sphere(), truths, truths + 3) == (0, 1)
    assert _matched(ea.Sphere(), truths, truths[::-1] + 3) == (1, 0)
    assert _matched(ea.Sphere(), truths, np.array([[55.0, 10.0], [80.0, 0.0]])) == (0, 1)


def test_trust_of_pairs_is_of_two_looks_a_scene(stage: Stage, sound: DirectSound) -> None:
    """Both sources of every scene, the quiet ones and the drowned; the same seed is the same."""
    crowd = learn_crowd(stage, sound, scenes=6)
    assert len(crowd.features) == 12
    assert np.ptp(crowd.features[:, 1]) > 5  # dB above the quiet
    np.testing.assert_allclose(crowd.shares.sum(axis=(1, 2)), 1.0)
    again = learn_crowd(stage, sound, scenes=2)
    np.testing.assert_array_equal(again.features, crowd.features[:4])


def test_a_saved_atlas_has_it(tmp_path: Path, atlas: ea.Atlas) -> None:
    """Every number comes back; an atlas of before is read, and has none."""
    assert atlas.rooms is not None
    atlas.save(tmp_path / "now.atlas")
    now = ea.Atlas.load(tmp_path / "now.atlas").rooms
    assert now is not None
    assert now.crowd is not None
    assert atlas.rooms.crowd is not None
    np.testing.assert_array_equal(now.crowd.shares, atlas.rooms.crowd.shares)
    replace(atlas, rooms=replace(atlas.rooms, crowd=None)).save(tmp_path / "before.atlas")
    before = ea.Atlas.load(tmp_path / "before.atlas").rooms
    assert before is not None
    assert before.crowd is None
    wrong = replace(atlas.rooms.crowd, scale=np.zeros(3))
    replace(atlas, rooms=replace(atlas.rooms, crowd=wrong)).save(tmp_path / "wrong.atlas")
    with pytest.raises(ea.InputError, match="trust does not fit"):
        ea.Atlas.load(tmp_path / "wrong.atlas")
