"""Tracks of sources: levels by loops, silence without a direction, and a bounded size."""

import json

import numpy as np
import pytest
from made_scenes import belief_at

import earatlas as ea
from earatlas.separation.source_track import (
    MOST_ROWS,
    LevelMeter,
    Levels,
    SourceTrack,
    standing_track,
)


def metered(sounds: np.ndarray, rate: int, cuts: list[int]) -> Levels:
    """Levels of sounds (M, 2, n) that come cut up."""
    meter = LevelMeter(len(sounds), samples=sounds.shape[-1], rate=rate)
    for part in np.split(sounds, cuts, axis=-1):
        meter.add(part)
    return meter.levels()


def test_levels_are_those_of_each_row() -> None:
    """As a loop says, however the sounds are cut up; the last row may be shorter."""
    rng = np.random.default_rng(1)
    rate, n = 400, 730  # rows of 100 samples
    sounds = rng.normal(size=(3, 2, n)) * np.array([1.0, 0.1, 0.01])[:, None, None]
    levels = metered(sounds, rate, [1, 99, 350])
    assert levels.level_db.shape == (3, 8)
    for m in range(3):
        for w in range(8):
            part = sounds[m, :, 100 * w : 100 * (w + 1)]
            expected = 10 * np.log10((part**2).mean(axis=1).sum())
            assert levels.level_db[m, w] == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(levels.seconds, 0.125 + 0.25 * np.arange(8))


def test_full_scale_sine_has_no_decibels() -> None:
    """0 dB in both ears; digital silence has a floor, and is not heard."""
    sine = np.sin(2 * np.pi * 50 * np.arange(800) / 800)
    sounds = np.stack([np.stack([sine, sine]), np.zeros((2, 800))])
    levels = metered(sounds, 800, [])
    np.testing.assert_allclose(levels.level_db[0], 0.0, atol=1e-9)
    assert levels.heard.tolist() == [[True] * 4, [False] * 4]


def test_long_recordings_have_longer_rows() -> None:
    """Never more than so many, and all of the sound is in them."""
    sounds = np.ones((1, 2, 10 * MOST_ROWS + 7))
    levels = metered(sounds, 4, [5000])
    assert MOST_ROWS / 2 < levels.level_db.shape[1] <= MOST_ROWS
    np.testing.assert_allclose(levels.level_db, 10 * np.log10(2.0))
    assert levels.seconds[-1] <= sounds.shape[-1] / 4 + levels.seconds[0]


def test_what_leaks_is_not_heard() -> None:
    """Neither far below a source's loudest rows nor far below the others is it there."""
    levels = Levels(np.arange(4.0), np.array([[-20.0, -20, -51, -49], [-30, -41, -39, -61]]))
    assert levels.heard.tolist() == [[True, True, False, True], [True, False, True, False]]


def test_standing_source_is_in_one_place() -> None:
    """Where its posterior says, wherever it is heard; nothing where it is silent."""
    posterior = belief_at(ea.Sphere(), (30, 10))
    levels = Levels(np.array([0.1, 0.3, 0.5]), np.array([[-9.0, -9, -9], [-20, -70, -21]]))
    track = standing_track(posterior, levels, 1)
    np.testing.assert_allclose(track.directions[[0, 2]], np.tile(posterior.best, (2, 1)))
    assert np.isnan(track.directions[1]).all()
    assert np.isnan(track.radius_90[1])
    assert track.radius_90[0] == posterior.radius_90
    assert not track.moves
    assert repr(track) == "SourceTrack(3 rows, heard in 2, stands)"
    rows = json.loads(json.dumps(track.rows(), allow_nan=False))
    assert rows[1] == {"time": 0.3, "direction": None, "radius_90": None, "level_db": -70.0}
    assert rows[2]["direction"] == [round(float(v), 2) for v in posterior.best]
    assert rows[2]["radius_90"] == round(float(track.radius_90[2]), 2)


def test_moving_source_says_so() -> None:
    """In words."""
    nothing = np.zeros(0)
    track = SourceTrack(nothing, np.zeros((0, 2)), nothing, nothing, moves=True)
    assert repr(track) == "SourceTrack(0 rows, heard in 0, moves)"
