"""Source tracks: levels against loops, no direction in silence, bounded number of rows."""

import json
from dataclasses import replace

import numpy as np
import pytest
from made_scenes import posterior_at

import earatlas as ea
from earatlas.separation.assembly import LevelMeter, SourceLevels, SpectrogramSettings
from earatlas.separation.result import Evidence, SourceSummary, SourceTrack
from earatlas.separation.source_directions import LocatedSource


def measure_levels(signals: np.ndarray, rate: int, cuts: list[int]) -> SourceLevels:
    """Return the levels of signals (M, 2, n) that are added in parts."""
    meter = LevelMeter(len(signals), signals.shape[-1], rate, SpectrogramSettings())
    for part in np.split(signals, cuts, axis=-1):
        meter.add(part)
    return meter.levels()


def test_levels_are_those_of_each_row() -> None:
    """Levels equal those of a loop for any division into parts; the last row may be shorter."""
    rng = np.random.default_rng(1)
    rate, n = 400, 730  # rows of 100 samples
    signals = rng.normal(size=(3, 2, n)) * np.array([1.0, 0.1, 0.01])[:, None, None]
    levels = measure_levels(signals, rate, [1, 99, 350])
    assert levels.level_db.shape == (3, 8)
    for m in range(3):
        for w in range(8):
            part = signals[m, :, 100 * w : 100 * (w + 1)]
            expected = 10 * np.log10((part**2).mean(axis=1).sum())
            assert levels.level_db[m, w] == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(levels.seconds, 0.125 + 0.25 * np.arange(8))


def test_full_scale_sine_has_0_db() -> None:
    """A sine has 0 dB in both ears; digital silence has a floor and is inactive."""
    sine = np.sin(2 * np.pi * 50 * np.arange(800) / 800)
    signals = np.stack([np.stack([sine, sine]), np.zeros((2, 800))])
    levels = measure_levels(signals, 800, [])
    np.testing.assert_allclose(levels.level_db[0], 0.0, atol=1e-9)
    assert levels.active.tolist() == [[True] * 4, [False] * 4]


def test_long_recordings_have_longer_rows() -> None:
    """The number of rows is bounded, and the rows cover the whole signal."""
    max_rows = SpectrogramSettings().max_times
    signals = np.ones((1, 2, 10 * max_rows + 7))
    levels = measure_levels(signals, 4, [5000])
    assert max_rows / 2 < levels.level_db.shape[1] <= max_rows
    np.testing.assert_allclose(levels.level_db, 10 * np.log10(2.0))
    assert levels.seconds[-1] <= signals.shape[-1] / 4 + levels.seconds[0]


def test_leakage_is_inactive() -> None:
    """A source is inactive far below its loudest rows and far below the other sources."""
    levels = SourceLevels(np.arange(4.0), np.array([[-20.0, -20, -51, -49], [-30, -41, -39, -61]]))
    assert levels.active.tolist() == [[True, True, False, True], [True, False, True, False]]


def test_static_source_has_one_direction() -> None:
    """The direction is that of the posterior in active rows, and NaN in silent ones."""
    posterior = posterior_at(ea.Sphere(), (30, 10))
    levels = SourceLevels(np.array([0.1, 0.3, 0.5]), np.array([[-9.0, -9, -9], [-20, -70, -21]]))
    source = LocatedSource.static(posterior, Evidence(1.0))
    track = levels.track(source.trajectory, 1)
    np.testing.assert_allclose(track.directions[[0, 2]], np.tile(posterior.best, (2, 1)))
    assert np.isnan(track.directions[1]).all()
    assert np.isnan(track.radius_90[1])
    assert track.radius_90[0] == posterior.radius_90
    assert not track.moves
    assert repr(track) == "SourceTrack(3 rows, active in 2, static)"
    rows = json.loads(json.dumps(track.rows(), allow_nan=False))
    assert rows[1] == {"time": 0.3, "direction": None, "radius_90": None, "level_db": -70.0}
    assert rows[2]["direction"] == [round(float(v), 2) for v in posterior.best]
    assert rows[2]["radius_90"] == round(float(track.radius_90[2]), 2)


def test_repr_of_a_moving_source() -> None:
    """The repr names the motion."""
    empty = np.zeros(0)
    track = SourceTrack(empty, np.zeros((0, 2)), empty, empty, moves=True)
    assert repr(track) == "SourceTrack(0 rows, active in 0, moving)"


def test_direction_of_a_moving_source_is_known_along_its_path() -> None:
    """The posterior covers the whole path; the radii along it decide whether it is known."""
    directions = np.array([[80.0, 0.0], [0.0, 0.0], [-80.0, 0.0]])
    covariances = np.tile(9 * np.eye(2), (3, 1, 1))
    posterior = ea.DirectionPosterior(
        ea.Sphere(), directions, np.full(3, 1 / 3), np.zeros((3, 2)), covariances
    )
    track = SourceTrack(np.arange(3.0), directions, np.full(3, 8.0), np.zeros(3), moves=True)
    source = SourceSummary("source1", posterior, 1.0, track=track)
    assert source.radius_90 > 90
    assert source.direction_known
    assert source.describe_place() == "80° left, ear height, side → 80° right, ear height, side"
    static = replace(source, track=replace(track, moves=False))
    assert not static.direction_known
