"""Localization: recordings, tracks and streams agree and find the direction."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import earatlas as ea
from earatlas.atlas import Atlas
from earatlas.errors import InputError
from earatlas.features.audio import resample
from earatlas.features.recording import FileRecording, MemoryRecording
from earatlas.features.statistics import CueStatistics, LevelStatistics
from earatlas.features.stft import stft
from earatlas.geometry.angles import great_circle_error
from earatlas.localization.head_rotation import Pose
from earatlas.localization.localizer import localize_poses
from earatlas.localization.windowed import WindowedLocalizer, WindowSettings
from earatlas.simulation.synthetic_speech import synthetic_speech


@pytest.fixture(scope="module")
def recording(atlas_head: ea.Head) -> ea.SimulatedScene:
    """Three seconds of synthetic speech from the left, between the learned directions."""
    sound = synthetic_speech(3.0, 16000, np.random.default_rng(5))
    return ea.render_scene(ea.simulated_head([[63.0, 11.0]]), [sound], [[63.0, 11.0]])


def test_localize_finds_talkers(atlas: Atlas) -> None:
    """Five talkers between the learned directions are found within a few degrees."""
    directions = np.array(
        [[63.0, 11.0], [-20.0, 33.0], [150.0, -20.0], [-100.0, 5.0], [10.0, -40.0]]
    )
    errors = []
    for seed, direction in enumerate(directions):
        scene = ea.render_scene(
            ea.simulated_head([direction]), [synthetic_speech(3.0, seed=seed)], [direction]
        )
        errors.append(great_circle_error(atlas.localize(scene.mixture).direction, direction))
    assert 0.1 < np.median(errors) < 8.0


def test_localization_has_credible_regions(atlas: Atlas, recording: ea.SimulatedScene) -> None:
    """Regions grow with their level, and JSON values are those of the posterior."""
    result = atlas.localize(recording.mixture)
    assert great_circle_error(result.mean, [63.0, 11.0]) < 20.0
    assert 0.03 < result.observed_share < 0.4
    assert result.seconds == pytest.approx(3.0, abs=0.1)
    half, most = result.credible_region(0.5), result.credible_region(0.9)
    assert 0 < half.area < most.area < 10_000
    assert result.to_dict()["direction"] == [round(v, 2) for v in result.direction.tolist()]


def test_stream_equals_recording(atlas: Atlas, recording: ea.SimulatedScene) -> None:
    """A finished stream of blocks of any size has the posterior of the recording."""
    whole = atlas.localize(recording.mixture)
    stream = atlas.localizer()
    for part in np.array_split(recording.mixture.samples, 23, axis=1):
        stream.push(part)
    end = stream.finish()
    np.testing.assert_allclose(end.posterior.weights, whole.posterior.weights, atol=1e-9)
    np.testing.assert_allclose(end.direction, whole.direction, atol=1e-6)
    assert end.observed_share == pytest.approx(whole.observed_share)


def test_file_equals_recording(tmp_path: Path, atlas: Atlas, recording: ea.SimulatedScene) -> None:
    """A file that is read in blocks has the same posterior."""
    path = recording.mixture.write(tmp_path / "x.wav")
    whole, file = atlas.localize(ea.read_audio(path)), atlas.localize_file(path)
    np.testing.assert_allclose(file.direction, whole.direction, atol=1e-6)


def test_stream_at_another_rate(atlas: Atlas, recording: ea.SimulatedScene) -> None:
    """A live input at 48 kHz is resampled."""
    fast = resample(recording.mixture.samples, 16000, 48000)
    stream = atlas.localizer(rate=48000)
    for part in np.array_split(fast, 11, axis=1):
        stream.push(part)
    whole = atlas.localize(recording.mixture)
    assert great_circle_error(stream.finish().direction, whole.direction) < 2.0
    fast_whole = atlas.localize(ea.Audio(fast, 48000))
    np.testing.assert_allclose(stream.finish().direction, fast_whole.direction, atol=0.01)


def test_stream_forgets(atlas: Atlas) -> None:
    """With a short memory, the direction follows a source that has moved."""
    head = ea.simulated_head([[60.0, 0.0], [-70.0, 10.0]])
    rng = np.random.default_rng(2)
    parts = [
        ea.render_scene(head, [rng.normal(size=32_000)], [direction]).mixture.samples
        for direction in head.directions
    ]
    stream = atlas.localizer(memory_seconds=0.3)
    stream.push(parts[0])
    assert great_circle_error(stream.where().direction, [60.0, 0.0]) < 8.0
    stream.push(parts[1])
    assert great_circle_error(stream.where().direction, [-70.0, 10.0]) < 8.0


def test_track_follows_a_moving_source(atlas: Atlas) -> None:
    """Two directions in succession: early windows find the first, late ones the second."""
    head = ea.simulated_head([[60.0, 0.0], [-70.0, 10.0]])
    rng = np.random.default_rng(2)
    parts = [
        ea.render_scene(head, [rng.normal(size=24_000)], [direction]).mixture.samples
        for direction in head.directions
    ]
    audio = ea.Audio(np.concatenate(parts, axis=1), 16000)
    track = atlas.localize_frames(audio, window_seconds=0.4, hop_seconds=0.2)
    assert len(track) == len(track.times) == pytest.approx(14, abs=2)
    np.testing.assert_allclose(np.diff(track.times[:-1]), 0.2, atol=0.01)
    early, late = track.times < 1.2, track.times > 1.9
    assert great_circle_error(track.directions[early], [60.0, 0.0]).max() < 10.0
    assert great_circle_error(track.directions[late], [-70.0, 10.0]).max() < 10.0


def test_track_of_one_window_equals_localize(atlas: Atlas, recording: ea.SimulatedScene) -> None:
    """A window as long as the recording has the posterior of the recording."""
    whole = atlas.localize(recording.mixture)
    track = atlas.localize_frames(recording.mixture, window_seconds=60.0, hop_seconds=0.5)
    assert len(track) == 1
    np.testing.assert_allclose(track.directions[0], whole.direction, atol=1e-3)


def test_windowed_localizer_also_localizes_the_whole_recording(
    atlas: Atlas, recording: ea.SimulatedScene
) -> None:
    """The passes of the windows also give the result of `localize`, also for a rotating head."""
    seconds = recording.mixture.seconds
    for yaw in (0.0, 40.0, ea.Yaw([0.0, seconds], [0.0, 30.0])):
        expected = atlas.localize(recording.mixture, yaw=yaw)
        localizer = WindowedLocalizer(
            atlas, MemoryRecording(recording.mixture), WindowSettings(yaw=yaw)
        )
        next(iter(localizer))
        whole = localizer.whole()  # processes the remaining windows
        assert len(list(localizer)) > 9 if isinstance(yaw, ea.Yaw) else list(localizer) == []
        np.testing.assert_allclose(whole.direction, expected.direction, atol=1e-3)
        assert whole.radius_90 == pytest.approx(expected.radius_90, rel=1e-3)
        assert whole.observed_share == pytest.approx(expected.observed_share, rel=1e-6)
        assert whole.seconds == pytest.approx(expected.seconds, rel=1e-9)
        assert [doubt.word for doubt in whole.doubts] == [d.word for d in expected.doubts]


def test_recording_without_observed_bins_is_rejected(atlas: Atlas) -> None:
    """For clicks in one ear, windows have no direction, and the whole recording is an error."""
    samples = np.zeros((2, 16000))
    samples[0, ::400] = 0.5
    localizer = WindowedLocalizer(
        atlas, MemoryRecording(ea.Audio(samples, 16000)), WindowSettings()
    )
    with pytest.raises(InputError, match="in both ears at once"):
        localizer.whole()


def slow_track(
    atlas: Atlas, audio: ea.Audio, window: int, hop: int
) -> list[tuple[float, CueStatistics]]:
    """Return (time, statistics) of windows of `window` hops by slicing a spectrogram."""
    layout = atlas.layout
    spectra = stft(audio.samples, layout.window, layout.hop)
    levels = LevelStatistics(layout)
    levels.push(spectra)
    floors = levels.floors_db()
    power = (np.abs(spectra[:, 1:]) ** 2).min(axis=0) * (4 / layout.window) ** 2
    y = layout.stack(*spectra[:, 1:].swapaxes(-1, -2))
    seen = power.T[:, layout.cue_frequencies] >= 10.0 ** (floors / 10)
    T, out = len(y), []
    hops = -(-T // hop)
    for last in range(min(window, hops), hops + 1):
        span = slice(max(last - window, 0) * hop, min(last * hop, T))
        q, v = seen[span], np.where(seen[span], y[span], 0.0)
        sums = CueStatistics(q.sum(axis=0), v.sum(axis=0), (v**2).sum(axis=0), float(len(v)))
        middle = np.arange(T)[span].mean() * layout.hop / layout.rate
        out.append((middle, sums))
    return out


@pytest.mark.parametrize(("window", "hop"), [(5, 12), (1, 7), (3, 1000), (2, 3)])
def test_track_in_blocks_equals_a_sliced_spectrogram(
    atlas: Atlas,
    recording: ea.SimulatedScene,
    monkeypatch: pytest.MonkeyPatch,
    window: int,
    hop: int,
) -> None:
    """Blocks end within hops and windows; times and posteriors equal those of the slow method.

    Directions agree to single precision; radii and areas to the tolerances below, since fewer
    points are used.
    """
    atlas = replace(atlas, reverberant_localizer=None)  # onsets have a test of their own
    monkeypatch.setattr("earatlas.features.recording._BLOCK_SECONDS", 0.31)
    audio = ea.Audio(recording.mixture.samples[:, :40_001], 16000)
    frame = 128 / 16000
    track = atlas.localize_frames(
        audio, window_seconds=window * hop * frame, hop_seconds=hop * frame
    )
    slow = slow_track(atlas, audio, window, hop)
    np.testing.assert_allclose(track.times, [time for time, _ in slow], rtol=1e-12)
    for found, (_, sums) in zip(track.windows, slow, strict=True):
        expected = localize_poses(atlas, [Pose(0.0, sums)], None, np.zeros(0))
        assert found.observed_share == pytest.approx(expected.observed_share, rel=1e-12)
        assert found.seconds == pytest.approx(expected.seconds, rel=1e-12)
        # Windows with sound report the highest density, a localization the most probable peak.
        if found.observed_share > 0:
            vars(expected.posterior)["direction"] = expected.posterior.best
        np.testing.assert_allclose(found.direction, expected.direction, atol=2e-3)
        # Log-weights in single precision err by up to 0.03 nats, depending on the machine, which
        # moves the mean of two modes and the radius by a few percent of the radius.
        tolerance = max(0.02, 0.01 * expected.radius_90)
        np.testing.assert_allclose(found.mean, expected.mean, atol=tolerance)
        assert found.radius_90 == pytest.approx(expected.radius_90, rel=0.05)
        area = expected.posterior.credible_area()
        assert found.posterior.credible_area() == pytest.approx(area, rel=0.15)


def test_track_of_file_equals_track_of_samples(
    tmp_path: Path, atlas: Atlas, recording: ea.SimulatedScene
) -> None:
    """A file that is read in blocks has the track of its samples; channels can be swapped."""
    path = recording.mixture.write(tmp_path / "x.wav")
    whole = atlas.localize_frames(ea.read_audio(path), window_seconds=0.3)
    file = atlas.localize_file_frames(path, window_seconds=0.3)
    np.testing.assert_array_equal(file.times, whole.times)
    np.testing.assert_allclose(file.directions, whole.directions, atol=1e-9)
    assert list(file.rows()) == list(whole.rows())
    swapped = atlas.localize_file_frames(path, window_seconds=2.5, channels=(1, 0))
    assert np.nanmedian(swapped.directions[:, 0]) < 0 < np.nanmedian(file.directions[:, 0])


def test_file_windows_report_their_progress(
    tmp_path: Path, atlas: Atlas, recording: ea.SimulatedScene
) -> None:
    """Windows come one by one, and progress ends at the length of the file."""
    path = recording.mixture.write(tmp_path / "x.wav")
    seen: list[tuple[float, float]] = []
    file = FileRecording(path)
    settings = WindowSettings(1.0, 0.5)
    windows = iter(WindowedLocalizer(atlas, file, settings, progress=lambda *now: seen.append(now)))
    assert next(windows)[0] == pytest.approx(0.5, abs=0.02)
    assert len(list(windows)) >= 3
    assert seen[-1][0] == pytest.approx(seen[-1][1], abs=0.01)
    with pytest.raises(InputError, match="hop_seconds"):
        WindowedLocalizer(atlas, file, WindowSettings(0.1, 0.5))


def test_silent_windows_have_no_direction(atlas: Atlas, recording: ea.SimulatedScene) -> None:
    """In a pause, the track has NaN and no JSON direction."""
    quiet = np.pad(recording.mixture.samples, ((0, 0), (0, 32_000)))
    track = atlas.localize_frames(ea.Audio(quiet, 16000))
    assert np.isnan(track.directions[-1]).all()
    rows = list(track.rows())
    assert rows[-1]["direction"] is None
    assert rows[-1]["observed_share"] == 0
    assert rows[5]["direction"] is not None


def test_invalid_streams_raise_errors(atlas: Atlas) -> None:
    """Wrong shapes, silence, and invalid settings raise errors."""
    stream = atlas.localizer()
    with pytest.raises(InputError, match="shape"):
        stream.push(np.zeros((1, 9)))
    with pytest.raises(InputError, match="one window"):
        stream.finish()
    faint = atlas.localizer()
    faint.push(1e-9 * np.random.default_rng(0).normal(size=(2, 20_000)))
    with pytest.raises(InputError, match="in both ears at once"):
        faint.finish()
    with pytest.raises(InputError, match="before finish"):
        faint.push(np.zeros((2, 10)))
    with pytest.raises(InputError, match="memory_seconds"):
        atlas.localizer(memory_seconds=0.0)
    with pytest.raises(InputError, match=r"yaw must be .*finite"):
        atlas.localizer(yaw=1e300)
    with pytest.raises(InputError, match="two channels"):
        atlas.localize(ea.Audio(np.ones((3, 20_000)), 16000))
    with pytest.raises(InputError, match="must be an Audio"):
        atlas.localize(np.ones((2, 20_000)))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="hop_seconds"):
        atlas.localize_frames(ea.Audio(np.ones((2, 20_000)), 16000), hop_seconds=2.0)


def test_unusable_samples_do_not_end_a_stream(atlas: ea.Atlas, atlas_head: ea.Head) -> None:
    """They count as silence, with a doubt; the direction is that of the other samples."""
    sound = ea.synthetic_speech(1.0, seed=4)
    talker = ea.render_scene(atlas_head, [sound], [[40.0, 0.0]]).mixture.samples
    talker[0, 9000], talker[1, 9100] = np.nan, 1e160
    stream = atlas.localizer()
    stream.push(talker)
    found = stream.finish()
    assert ea.great_circle_error(found.direction, [40.0, 0.0]) < 10
    assert (found.doubts[0].word, found.doubts[0].value) == ("broken input", 2)


def test_uncertainty_grows_in_a_silent_stream(atlas: ea.Atlas, atlas_head: ea.Head) -> None:
    """In a pause the result gets a doubt and its radius grows; the next word resets both."""
    sound = ea.synthetic_speech(1.0, seed=4)
    talker = ea.render_scene(atlas_head, [sound], [[40.0, 0.0]]).mixture.samples
    stream = atlas.localizer(memory_seconds=1.0)
    stream.push(talker)
    recent = stream.where()
    ages, radii = [], []
    for _ in range(3):
        stream.push(np.zeros((2, 16_000)))
        old = stream.where()
        ages.append(old.age_seconds)
        radii.append(old.radius_90)
        assert old.doubts[-1].word == "silent"
    np.testing.assert_allclose(np.array(ages, dtype=float), [1, 2, 3], atol=0.3)
    assert recent.radius_90 < radii[0] < radii[1] < radii[2]
    assert old.to_dict()["age"] == pytest.approx(ages[-1], abs=0.01)
    stream.push(talker)
    assert not [doubt for doubt in stream.where().doubts if doubt.word == "silent"]
    assert "age" not in atlas.localize(ea.Audio(talker, 16_000)).to_dict()
