"""Tracklet stitching: trajectories of a long recording from overlapping segments."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import earatlas as ea
from earatlas.atlas import Atlas
from earatlas.features.onset_detector import OnsetBins, OnsetDetector, OnsetDetectorSettings
from earatlas.geometry.angles import great_circle_error, to_vectors
from earatlas.tracking import stitching
from earatlas.tracking.offline import EstimatedTrajectory, TrajectoryOptions
from earatlas.tracking.stitching import (
    _assign,
    _overlapping_segments,
    _StitchedTrack,
    stitch_tracks,
)
from earatlas.tracking.trajectory_mixture import TrajectorySettings

RATE = 16_000
SETTINGS = TrajectorySettings()
SECONDS = 24.0
THERE_AND_BACK = ea.Trajectory((0, 8, 16, 24), ((70, 5), (-60, 5), (65, 5), (-40, 5)))
STATIC = (-80.0, 0.0)
SOUND: Any = SimpleNamespace(onset_settings=OnsetDetectorSettings())  # only its settings are used
NO_DIRECTIONS = np.zeros((0, 2))


def trajectory(
    azimuths: np.ndarray, *, moves: bool = False, onsets: float = 5.0
) -> EstimatedTrajectory:
    """Return a trajectory with the given azimuth in each window."""
    W = len(azimuths)
    vectors = to_vectors(np.column_stack([azimuths, np.zeros(W)]))
    seconds = (np.arange(float(W)) + 0.5) * SETTINGS.window_seconds
    return EstimatedTrajectory(
        seconds, vectors, np.full(W, 7.0), np.full(W, onsets), moves, 0.5, onsets * W
    )


def test_tracks_are_continued_in_any_order() -> None:
    """A moving and a static source are continued over three segments in different orders."""
    moving, static = np.linspace(80, -80, 40), np.full(40, -30.0)
    tracks: list[_StitchedTrack] = []
    for first, reverse in ((0, False), (12, True), (24, False)):
        trajectories = [
            trajectory(moving[first : first + 16], moves=True),
            trajectory(static[first : first + 16] + 0.1),
        ]
        _assign(tracks, first, trajectories[::-1] if reverse else trajectories, SETTINGS)
    assert len(tracks) == 2
    moving_source, static_source = (track.stitched(40, SETTINGS) for track in tracks)
    assert moving_source.moves
    assert not static_source.moves
    np.testing.assert_allclose(moving_source.at(moving_source.seconds)[:, 0], moving, atol=1e-6)
    assert np.ptp(static_source.at(static_source.seconds)[:, 0]) < 1e-9


def test_silent_track_coasts_at_its_last_direction() -> None:
    """A track without a segment waits; a trajectory far from all tracks is a new one."""
    tracks: list[_StitchedTrack] = []
    _assign(tracks, 0, [trajectory(np.full(16, 50.0)), trajectory(np.full(16, -50.0))], SETTINGS)
    _assign(tracks, 12, [trajectory(np.full(16, 50.0))], SETTINGS)
    _assign(tracks, 24, [trajectory(np.full(16, 50.0)), trajectory(np.full(16, -48.0))], SETTINGS)
    assert [len(track.segments) for track in tracks] == [3, 2]
    _assign(tracks, 36, [trajectory(np.full(16, 50.0)), trajectory(np.full(16, 170.0))], SETTINGS)
    assert [len(track.segments) for track in tracks] == [4, 2, 1]
    silent = tracks[1].stitched(52, SETTINGS)
    # In the gap the last direction is held, without onsets.
    np.testing.assert_allclose(silent.at(4.5)[0, 0], -50.0, atol=2.1)
    assert silent.weights[18] == 0.0


@pytest.mark.parametrize(("onsets", "continued"), [(0.25, 0), (4.0, 1)])
def test_track_with_more_onsets_is_continued(onsets: float, continued: int) -> None:
    """Of two waiting tracks, a nearer one with few onsets is not continued."""
    tracks: list[_StitchedTrack] = []
    _assign(
        tracks,
        0,
        [trajectory(np.full(16, 40.0)), trajectory(np.full(16, 45.0), onsets=onsets)],
        SETTINGS,
    )
    _assign(tracks, 40, [trajectory(np.full(16, 44.0))], SETTINGS)
    assert [len(track.segments) for track in tracks] == [2 - continued, 1 + continued]


def test_assignment_uses_the_whole_overlap() -> None:
    """A path begins at a source that falls silent, and then follows a moving one."""
    moving, static = np.linspace(0, -60, 16), np.full(16, -80.0)
    early = np.array([5.0] * 4 + [0.0] * 12)
    static_source = replace(trajectory(static), weights=early)
    moving_source = replace(trajectory(moving, moves=True), weights=5.0 - 0.8 * early)
    tracks: list[_StitchedTrack] = []
    _assign(tracks, 0, [static_source, moving_source], SETTINGS)
    _assign(tracks, 0, [trajectory(np.concatenate([static[:4], moving[4:]]), moves=True)], SETTINGS)
    assert [len(track.segments) for track in tracks] == [1, 2]


def onset_blocks(ends: list[float], silent: set[int], every: int = 1) -> list[OnsetBins]:
    """Return blocks that end at the given seconds, with an onset in every n-th frame or none."""
    onset_settings, begin, out = OnsetDetectorSettings(), 0, []
    for k, seconds in enumerate(ends):
        end = int(seconds * onset_settings.rate / onset_settings.hop)
        t = np.arange(begin, begin if k in silent else end, every)
        n, begin = len(t), end
        z = np.zeros((n, 2), dtype=np.complex128)
        out.append(OnsetBins(np.zeros(n, dtype=np.intp), t, z, np.ones(n), np.ones(n), float(end)))
    return out


def test_segments_cover_silent_blocks() -> None:
    """Segments of 44 s with silent blocks, and with the last onset long before the end."""
    for silent in (set[int](), {1, 2}, {0}):
        blocks = onset_blocks([12, 22, 32, 44], silent)
        options = TrajectoryOptions(44.0, None, 6)
        segments = list(_overlapping_segments(SOUND, blocks, options))
        spans = [(segment.first * SETTINGS.window_seconds, segment.seconds) for segment in segments]
        assert spans == [(0.0, 12.0), (8.0, 14.0), (18.0, 14.0), (28.0, 16.0)]
    blocks = onset_blocks([12.1, 22], set(), every=7)
    first, second = list(_overlapping_segments(SOUND, blocks, TrajectoryOptions(22.0, None, 6)))
    # The last onset is in a window that has begun: the window belongs to the segment.
    assert first.seconds == 12.25
    assert int(first.onsets.t.max() * 128 / RATE / SETTINGS.window_seconds) == 48
    assert second.first == 49 - 16
    assert second.onsets.t.min() * 128 / RATE < 0.06


PATH = np.concatenate([np.linspace(80, -40, 72), np.linspace(-40, 80, 104)])  # 44 s


def fake_trajectories(
    monkeypatch: pytest.MonkeyPatch, others: dict[int, list[EstimatedTrajectory]]
) -> None:
    """Replace the search: a moving source of 44 s in every segment, and others in some.

    If a number of sources is given, spurious ones fill it up.
    """
    firsts = iter([0, 32, 72, 112] * 2)

    def fake(
        _sound: object, _onsets: object, _directions: object, options: TrajectoryOptions
    ) -> list[EstimatedTrajectory]:
        first, W = next(firsts), round(options.seconds / SETTINGS.window_seconds)
        found = [trajectory(PATH[first : first + W], moves=True), *others.get(first, [])]
        if options.n_sources is None:
            return found[: options.max_sources]
        spurious = (np.full(W, 180.0 - 40 * k + first) for k in range(options.n_sources))
        return [*found, *(trajectory(s, onsets=0.01) for s in spurious)][: options.n_sources]

    monkeypatch.setattr(stitching, "find_moving_trajectories", fake)
    monkeypatch.setattr(stitching, "find_trajectories", fake)


def stitched(n_sources: int | None, max_sources: int = 6) -> list[EstimatedTrajectory]:
    """Stitch the fake trajectories of four blocks of 44 s."""
    blocks = onset_blocks([12, 22, 32, 44], set())
    options = TrajectoryOptions(44.0, n_sources, max_sources)
    return stitch_tracks(SOUND, blocks, NO_DIRECTIONS, options)


def test_given_number_does_not_split_a_moving_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other source is present in the first 12 s only, and no spurious one continues it."""
    fake_trajectories(monkeypatch, {0: [trajectory(np.full(48, -80.0))]})
    moving_source, static_source = stitched(2)
    np.testing.assert_allclose(moving_source.at(moving_source.seconds)[:, 0], PATH, atol=1e-6)
    np.testing.assert_allclose(static_source.at(static_source.seconds)[:, 0], -80.0)
    assert not static_source.moves
    assert static_source.weights[48:].max() == 0.0


@pytest.mark.parametrize("n_sources", [1, 3, 5])
def test_given_number_of_sources_is_returned(
    monkeypatch: pytest.MonkeyPatch, n_sources: int
) -> None:
    """All are returned, even with few onsets; the moving source is one over all windows."""
    fake_trajectories(monkeypatch, {})
    trajectories = stitched(n_sources)
    assert len(trajectories) == n_sources
    np.testing.assert_allclose(trajectories[0].at(trajectories[0].seconds)[:, 0], PATH, atol=1e-6)


def test_surplus_track_continues_one_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A distant new trajectory is another source, unless the number of sources is given."""
    others = {0: [trajectory(np.full(48, -80.0))], 112: [trajectory(np.full(64, -120.0))]}
    fake_trajectories(monkeypatch, others)
    assert len(stitched(None)) == 3
    fake_trajectories(monkeypatch, others)
    moving_source, other = stitched(2)
    np.testing.assert_allclose(moving_source.at(moving_source.seconds)[:, 0], PATH, atol=1e-6)
    np.testing.assert_allclose(other.at([1.0, 27.0, 29.0])[:, 0], [-80.0, -80.0, -120.0])


def test_spurious_tracks_do_not_replace_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """With at most two sources, those with the most onsets are kept, not the earliest."""
    late = trajectory(np.full(64, -120.0))
    fake_trajectories(monkeypatch, {0: [trajectory(np.full(48, 170.0), onsets=0.1)], 112: [late]})
    trajectories = stitched(None, max_sources=2)
    assert [float(own.at(40.0)[0, 0]) for own in trajectories[1:]] == pytest.approx([-120.0])


def test_segments_are_joined_in_the_middle_of_the_overlap() -> None:
    """Of eight shared windows, four are from the first segment and four from the second."""
    tracks: list[_StitchedTrack] = []
    _assign(tracks, 0, [trajectory(np.full(16, 10.0), moves=True)], SETTINGS)
    _assign(tracks, 8, [trajectory(np.full(16, 20.0), moves=True)], SETTINGS)
    whole = tracks[0].stitched(24, SETTINGS)
    np.testing.assert_allclose(whole.at(whole.seconds)[:, 0], [10.0] * 12 + [20.0] * 12)
    assert whole.onset_bins == 160.0


def test_segments_of_the_detector_have_the_onsets_of_their_time(atlas: Atlas) -> None:
    """Each segment has the onsets since the last one, and reading it changes nothing else."""
    localizer = atlas.reverberant_localizer
    assert localizer is not None
    onset_settings = replace(localizer.direct_sound.onset_settings, most_bins=300)
    sound = np.stack([ea.synthetic_speech(3.0, seed=1), ea.synthetic_speech(3.0, seed=2)])
    segmented, plain = OnsetDetector(onset_settings, segments=True), OnsetDetector(onset_settings)
    parts, ends = [], [0]
    for segment in np.split(sound, 3, axis=1):
        segmented.push(segment)
        plain.push(segment)
        parts.append(segmented.onsets_since_last_call())
        ends.append(segmented.frames)
        assert parts[-1].frames == segmented.frames
    for begin, end, part in zip(ends[:-1], ends[1:], parts, strict=True):
        assert 20 < len(part) <= 300
        assert begin <= part.t.min()
        assert part.t.max() < end
    for detector in (segmented, plain):
        detector.finish()
    np.testing.assert_array_equal(segmented.bins().t, plain.bins().t)
    np.testing.assert_allclose(parts[0].to_single_precision().z, parts[0].z, rtol=1e-6)


def test_benchmark_trajectories_last_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source moves until the end, also if that is between two stops."""
    benchmarks = Path(__file__).parents[2] / "benchmarks"
    monkeypatch.syspath_prepend(benchmarks)
    draw_trajectories = runpy.run_path(str(benchmarks / "motion.py"))["draw_trajectories"]
    for seconds, stops in ((10.0, 3), (12.0, 4), (30.0, 7), (33.5, 8)):
        (moving,) = draw_trajectories("one moving", np.random.default_rng(0), seconds)
        assert len(moving.seconds) == stops
        assert great_circle_error(*moving.at([seconds - 1, seconds])) > 15


@pytest.fixture(scope="module")
def long_scene(atlas_head: ea.Head) -> ea.SimulatedScene:
    """24 s of a source that moves to and fro, and a static one."""
    sounds = [ea.synthetic_speech(SECONDS, seed=m) for m in (4, 5)]
    return ea.render_scene(atlas_head, sounds, [THERE_AND_BACK, STATIC])


def test_long_moving_source_is_one_source(
    atlas: Atlas, long_scene: ea.SimulatedScene, tmp_path: Path
) -> None:
    """A moving source is one source over several blocks, and the outputs add up to the mixture."""
    path = long_scene.mixture.write(tmp_path / "long.wav")
    scene, files = atlas.separate_file(path, tmp_path / "out")
    assert sorted(source.moves for source in scene.sources) == [False, True]
    moving_source, static_source = sorted(scene.sources, key=lambda source: not source.moves)
    track = moving_source.track
    errors = great_circle_error(THERE_AND_BACK.at(track.seconds), track.directions)[track.active]
    assert 0.1 < np.median(errors) < 6.0
    assert track.seconds[track.active].max() > 22
    directions = static_source.track.directions[static_source.track.active]
    assert np.ptp(directions, axis=0).max() == 0.0
    assert great_circle_error(np.array(STATIC), directions[0]) < 8.0
    assert np.diff(scene.free_energies).min() > 0
    total = sum(ea.read_audio(file).samples for file in files)
    np.testing.assert_allclose(total, ea.read_audio(path).samples, atol=2e-4)
    quality = []
    order = [scene.sources.index(source) for source in (moving_source, static_source)]
    for image, m in zip(long_scene.images, order, strict=True):
        found = ea.read_audio(files[m]).samples
        quality.append(10 * np.log10((image**2).sum() / ((image - found) ** 2).sum()))
    assert min(quality) > 6.0
    assert max(quality) < 40.0


def test_long_static_sources_are_not_changed_by_the_search(
    atlas: Atlas, atlas_head: ea.Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without motion, the search for trajectories changes no bit of the result."""
    sounds = [ea.synthetic_speech(20.0, seed=m) for m in (1, 2)]
    scene = ea.render_scene(atlas_head, sounds, [(55.0, 10.0), (-40.0, -5.0)])
    found = atlas.separate(scene.mixture)
    monkeypatch.setattr("earatlas.separation.pipeline.stitch_tracks", lambda *_: [])
    without_search = atlas.separate(scene.mixture)
    assert not any(source.moves for source in found.sources)
    for a, b in zip(found.sources, without_search.sources, strict=True):
        np.testing.assert_array_equal(a.audio.samples, b.audio.samples)
        np.testing.assert_array_equal(a.direction, b.direction)
