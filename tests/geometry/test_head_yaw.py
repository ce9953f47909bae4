"""Tests of head yaw: interpolation, rotated posteriors, rotating heads, and invalid input."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests_support import refused

import earatlas as ea
from earatlas.atlas import Atlas
from earatlas.features.onset_detector import OnsetBins, OnsetDetector, OnsetDetectorSettings
from earatlas.features.statistics import CueStatistics, LevelStatistics
from earatlas.features.stft import stft
from earatlas.geometry.angles import great_circle_error, wrap_degrees
from earatlas.localization.head_rotation import (
    Pose,
    PoseStatistics,
    _share_statistics,
    merge_poses,
    rotating_head_posterior,
)
from earatlas.localization.onset_likelihood import (
    N_CLASSES,
    N_TABLE_STEPS,
    SHARPNESS,
    DirectSoundModel,
)
from earatlas.training.reverberant import sharpness_components, untrained_model
from earatlas.types import Array

Run = Callable[..., subprocess.CompletedProcess[str]]
RATE = 16_000
DIRECTION = np.array([40.0, 12.0])  # degrees, in world coordinates


def render_rotating_head(degrees: Array, seconds: float = 2.0) -> tuple[ea.Audio, ea.Yaw]:
    """Render speech at DIRECTION with equally long segments of constant yaw, faded in 20 ms."""
    dry = ea.synthetic_speech(seconds, seed=5)
    edges = np.linspace(0, seconds, len(degrees) + 1)
    t, total, times, yaws = np.arange(len(dry)) / RATE, np.zeros((2, len(dry))), [], []
    for k, yaw in enumerate(degrees):
        relative = ea.Sphere().rotated(DIRECTION, -yaw)
        image = ea.simulated_head([relative]).responses().at_rate(RATE)[0]
        begin = edges[k] if k else -1.0
        end = edges[k + 1] if k + 1 < len(degrees) else seconds + 1
        gain = np.clip((t - begin) / 0.02 + 0.5, 0, 1) * np.clip((end - t) / 0.02 + 0.5, 0, 1)
        convolved = np.stack([np.convolve(dry, ear)[: len(dry)] for ear in image])
        total += gain * convolved
        times += [max(begin, 0.0) + 0.01, min(end, seconds) - 0.01]
        yaws += [yaw, yaw]
    total += 1e-4 * total.std() * np.random.default_rng(0).normal(size=total.shape)
    return ea.Audio(total, RATE), ea.Yaw(times, yaws)


@pytest.fixture(scope="module")
def rotating() -> tuple[ea.Audio, ea.Yaw]:
    """Return a recording and a yaw of up to 20° to the left and 20° to the right."""
    return render_rotating_head(np.array([0.0, 10.0, 20.0, 10.0, 0.0, -10.0, -20.0, -10.0]))


def test_yaw_is_interpolated_linearly() -> None:
    """The yaw passes ±180 degrees, and is constant beyond its ends."""
    yaw = ea.Yaw([0.5, 1.0, 2.0], [170.0, -170.0, -150.0])
    np.testing.assert_allclose(yaw.at([0.0, 0.75, 1.5, 9.0]), [170.0, 180.0, 200.0, 210.0])
    np.testing.assert_allclose(ea.Yaw.of([[0.0, 5.0], [1.0, 7.0]]).at([0.5]), [6.0])
    assert ea.Yaw.of(yaw) is yaw
    np.testing.assert_allclose(ea.Yaw.of(20).at([-5.0, 0.0, 3600.0]), 20.0)


@pytest.mark.parametrize(
    ("yaw", "message"),
    [
        ([1.0, 2.0, 3.0], "must have one time per value"),
        (np.zeros((4, 3)), "must have one time per value"),
        ("left", "must be a number, or times with degrees"),
        (float("nan"), "must be finite"),
        (
            [[0.0, 1.0], [1.0, float("nan")], [2.0, 1.0]],
            r"must be finite and between -1e\+06 and 1e\+06 degrees, got nan at 1\.0 s in row 1",
        ),
        ([[0.0, 1e300], [1.0, 2.0]], r"got 1e\+300 at 0\.0 s in row 0"),
        (
            [[1763379161.2, 3.0], [1763379162.2, 4.0]],
            r"times in seconds from the sound's start.*got 1763379161\.2 s in row 0\. Subtract",
        ),
        ([[0.0, 1.0], [float("nan"), 3.0]], r"times in seconds .*, got nan s in row 1\."),
        ([[0.0, 1.0], [2.0, 3.0], [2.0, 4.0]], "times that increase, got 2 s after 2 s in row 2"),
        ([[0.0, 1.0], [2.0, 3.0], [1.0, 4.0]], "times that increase"),
        (
            [[0.0, 0.0], [1.0, 3.0], [1.01, 30.0]],
            "must not jump, got 27 degrees between 1 and 1.01",
        ),
        ([[0.0, 1.0]], "at least two values"),
    ],
)
def test_invalid_yaw_is_reported(atlas: Atlas, yaw: object, message: str) -> None:
    """All entry points report an invalid yaw."""
    audio = ea.Audio(np.random.default_rng(0).normal(size=(2, RATE)), RATE)
    for call in (
        lambda: atlas.localize(audio, yaw=yaw),  # type: ignore[arg-type]
        lambda: atlas.localize_frames(audio, yaw=yaw),  # type: ignore[arg-type]
        lambda: atlas.localizer(yaw=yaw),  # type: ignore[arg-type]
    ):
        with pytest.raises(ea.InputError, match=message):
            call()


def test_yaw_must_cover_the_recording(atlas: Atlas) -> None:
    """A yaw that starts late or ends early is refused, with a tolerance of 0.1 s."""
    audio = ea.Audio(np.random.default_rng(0).normal(size=(2, RATE)), RATE)
    early, late = ea.Yaw([0, 0.6], [0, 5]), ea.Yaw([0.3, 2], [0, 5])
    for call in (atlas.localize, atlas.localize_frames):
        with pytest.raises(ea.InputError, match=r"as long as the sound \(1 s\), .* ends at 0.6 s"):
            call(audio, yaw=early)
        with pytest.raises(ea.InputError, match=r"starts 0\.3 s after"):
            call(audio, yaw=late)
    stream = atlas.localizer(yaw=early)
    stream.push(audio.samples[:, : RATE // 2])
    with pytest.raises(ea.InputError, match=r"ends at 0\.6 s"):
        stream.push(audio.samples[:, RATE // 2 :])
    atlas.localize(audio, yaw=ea.Yaw([0.05, 0.95], [0, 5]))


def test_constant_yaw_rotates_the_result(atlas: Atlas, rotating: tuple[ea.Audio, ea.Yaw]) -> None:
    """A constant yaw rotates posteriors, tracks and streams to the left."""
    audio = rotating[0]
    plain, rotated = atlas.localize(audio), atlas.localize(audio, yaw=30.0)
    np.testing.assert_allclose(
        rotated.direction, plain.direction + np.array([30.0, 0.0]), atol=1e-9
    )
    np.testing.assert_array_equal(rotated.posterior.weights, plain.posterior.weights)
    a = atlas.localize_frames(audio).directions
    b = atlas.localize_frames(audio, yaw=-170.0).directions
    np.testing.assert_allclose(wrap_degrees(b - a - (-170.0, 0.0)), 0.0, atol=1e-4)
    stream = atlas.localizer()
    stream.push(audio.samples, yaw=30.0)
    np.testing.assert_allclose(stream.finish().direction, rotated.direction, atol=1e-9)


def test_rotated_posterior(atlas: Atlas, rotating: tuple[ea.Audio, ea.Yaw]) -> None:
    """p'(x) = p(x - yaw); azimuths are wrapped on circle and sphere, but not on the plane."""
    posterior = atlas.localize(rotating[0]).posterior
    points = np.array([[30.0, 10.0], [-150.0, 70.0], [100.0, -89.0]])
    rotated = posterior.rotated(77.0).log_density(posterior.space.rotated(points, 77.0))
    np.testing.assert_allclose(rotated, posterior.log_density(points), rtol=1e-9)
    np.testing.assert_allclose(ea.Plane().rotated([[150.0, 3.0]], 40.0), [[190.0, 3.0]])
    np.testing.assert_allclose(ea.Circle().rotated([[150.0, 3.0]], 40.0), [[-170.0, 3.0]])


def test_rotating_head_localizes_in_world_coordinates(
    atlas: Atlas, rotating: tuple[ea.Audio, ea.Yaw]
) -> None:
    """With the yaw the direction is correct and the radius smaller than without."""
    audio, yaw = rotating
    with_yaw, without = atlas.localize(audio, yaw=yaw), atlas.localize(audio)
    assert great_circle_error(with_yaw.direction, DIRECTION) < 4
    assert with_yaw.posterior.credible_level(DIRECTION) < 0.95
    assert with_yaw.radius_90 < without.radius_90
    assert with_yaw.observed_share == pytest.approx(without.observed_share, rel=0.2)
    assert with_yaw.seconds == pytest.approx(without.seconds)


def test_rotating_head_does_not_suggest_several_sources(atlas: Atlas) -> None:
    """A source has three directions relative to the head, but only one per pose."""
    audio, yaw = render_rotating_head(np.array([-20.0, 0.0, 20.0]))
    strict = replace(atlas, calibration=replace(atlas.calibration, max_residual=1e-9))
    doubts = [{doubt.word for doubt in strict.localize(audio, yaw=y).doubts} for y in (0.0, yaw)]
    assert "several sounds at once" in doubts[0]
    assert "several sounds at once" not in doubts[1]


def test_stream_does_not_depend_on_block_size(
    atlas: Atlas, rotating: tuple[ea.Audio, ea.Yaw]
) -> None:
    """A stream gives the result of the recording, also with memory or with the yaw per block."""
    audio, yaw = rotating
    whole = atlas.localize(audio, yaw=yaw)
    ends = []
    for memory, size in ((None, 700), (0.8, 700), (0.8, 4000)):
        stream = atlas.localizer(yaw=yaw, memory_seconds=memory)
        for start in range(0, audio.samples.shape[1], size):
            stream.push(audio.samples[:, start : start + size])
        ends.append(stream.finish())
    np.testing.assert_allclose(ends[0].direction, whole.direction, atol=1e-6)
    np.testing.assert_allclose(ends[1].direction, ends[2].direction, atol=1e-6)
    np.testing.assert_allclose(ends[1].posterior.weights, ends[2].posterior.weights, atol=1e-6)
    live = atlas.localizer()
    for start in range(0, audio.samples.shape[1], 160):
        block = audio.samples[:, start : start + 160]
        live.push(block, yaw=float(yaw.at([(start + block.shape[1]) / RATE])[0]))
    assert great_circle_error(live.finish().direction, whole.direction) < 1.0


def test_yaw_is_given_with_all_blocks_or_none(atlas: Atlas) -> None:
    """Missing, repeated and jumping yaws of blocks are refused."""
    block = np.random.default_rng(0).normal(size=(2, 1600))
    stream = atlas.localizer()
    stream.push(block, yaw=0.0)
    with pytest.raises(ea.InputError, match="every block or with none"):
        stream.push(block)
    stream = atlas.localizer()
    stream.push(block)
    with pytest.raises(ea.InputError, match="every block or with none"):
        stream.push(block, yaw=3.0)
    stream = atlas.localizer(yaw=2.0)
    with pytest.raises(ea.InputError, match="with the localizer or with its blocks"):
        stream.push(block, yaw=2.0)
    stream = atlas.localizer()
    stream.push(block, yaw=0.0)
    with pytest.raises(ea.InputError, match="must not jump"):
        stream.push(block, yaw=150.0)
    with pytest.raises(ea.InputError, match="must be finite"):
        atlas.localizer().push(block, yaw=float("nan"))


def test_track_of_rotating_head(atlas: Atlas, rotating: tuple[ea.Audio, ea.Yaw]) -> None:
    """Windows are in world coordinates while the head rotates by 40 degrees."""
    audio, yaw = rotating
    with_yaw = atlas.localize_frames(audio, yaw=yaw)
    without = atlas.localize_frames(audio)
    np.testing.assert_allclose(with_yaw.times, without.times)
    errors = [np.abs(wrap_degrees(t.directions[:, 0] - DIRECTION[0])) for t in (with_yaw, without)]
    assert np.nanmedian(errors[0]) < 3
    assert np.nanmedian(errors[1]) > 2 * np.nanmedian(errors[0])


def test_pose_statistics_sum_to_total(rotating: tuple[ea.Audio, ea.Yaw]) -> None:
    """Statistics of poses sum to those of the recording for any blocks; yaws are means."""
    audio, yaw = rotating
    layout = ea.CueLayout()
    spectra = stft(audio.samples, layout.window, layout.hop)
    at = yaw.at(np.arange(spectra.shape[-1]) * layout.hop / layout.rate)
    whole = LevelStatistics(layout)
    whole.push(spectra)
    poses = PoseStatistics(layout)
    for part in np.array_split(np.arange(len(at)), 9):
        poses.push(spectra[..., part], at[part])
    found = poses.poses()
    expected = whole.statistics()
    for name in ("counts", "sums", "squares"):
        total = np.sum([getattr(pose.statistics, name) for pose in found], axis=0)
        np.testing.assert_allclose(total, getattr(expected, name), rtol=1e-9, atol=1e-6)
    assert sum(pose.statistics.frames for pose in found) == pytest.approx(expected.frames)
    yaws = np.sort([wrap_degrees(pose.yaw_degrees) for pose in found])
    np.testing.assert_allclose(yaws, [-20.0, -10.0, 0.0, 10.0, 20.0], atol=1.5)


def test_poses_share_effective_statistics(atlas: Atlas, rotating: tuple[ea.Audio, ea.Yaw]) -> None:
    """All poses together have the effective statistics of a head that does not rotate."""
    rng = np.random.default_rng(3)
    D = atlas.layout.n_cues
    counts, means = rng.uniform(1, 9, size=(3, D)), rng.normal(size=D)
    parts = [CueStatistics(q, q * means, q * (means**2 + 0.5), 30.0) for q in counts]
    shared = _share_statistics(atlas.calibration, parts, atlas.model.noise)
    total = parts[0] + parts[1] + parts[2]
    static = atlas.calibration.effective_statistics(total, atlas.model.noise)
    np.testing.assert_allclose(sum(s.counts for s in shared), static.counts, rtol=1e-9)
    np.testing.assert_allclose(sum(s.sums for s in shared), static.sums, rtol=1e-9)
    # Three almost equal poses give the posterior of one pose, but for the sum over charts.
    whole = PoseStatistics(atlas.layout)
    spectra = stft(
        render_rotating_head(np.zeros(1))[0].samples, atlas.layout.window, atlas.layout.hop
    )
    whole.push(spectra, np.zeros(spectra.shape[-1]))
    pose = whole.poses()[0]
    thirds = [Pose(0.01 * n, pose.statistics.scaled(1 / 3)) for n in range(3)]
    one = rotating_head_posterior(atlas, [pose], None, np.zeros(0)).posterior
    three = rotating_head_posterior(atlas, thirds, None, np.zeros(0)).posterior
    assert great_circle_error(one.best, three.best) < 1.5
    assert three.radius_90 == pytest.approx(one.radius_90, rel=0.25)
    assert [p.yaw_degrees for p in merge_poses(thirds)] == pytest.approx([0.01])


@pytest.fixture(scope="module")
def sound(small_head: ea.Head) -> DirectSoundModel:
    """Return a direct-sound model with the same informative density in all classes."""
    density = np.log(
        sharpness_components((np.arange(N_TABLE_STEPS) + 0.5) / N_TABLE_STEPS * 2 - 1)[:, 4]
    )
    untrained = untrained_model(small_head, ea.Sphere(), OnsetDetectorSettings())
    assert SHARPNESS[4] == 0.9
    return untrained.with_densities(np.tile(density, (N_CLASSES, 1)).astype(np.float32))


def detect_bins(audio: ea.Audio) -> OnsetBins:
    """Return the onset bins of a recording."""
    detector = OnsetDetector(OnsetDetectorSettings())
    detector.push(audio.samples)
    detector.finish()
    return detector.bins()


def test_rotated_log_likelihood(sound: DirectSoundModel, rotating: tuple[ea.Audio, ea.Yaw]) -> None:
    """Rotation by zero, by a constant and over time give the expected directions."""
    static = render_rotating_head(np.zeros(1))[0]
    bins = detect_bins(static)
    plain, same = (
        sound.log_likelihood(bins),
        sound.rotated_log_likelihood(bins, np.zeros(len(bins))),
    )
    a, b = (
        log_likelihood.directions[np.argmax(log_likelihood.log_likelihoods)]
        for log_likelihood in (plain, same)
    )
    assert great_circle_error(a, b) < 2.5
    assert same.log_likelihoods.max() == pytest.approx(plain.log_likelihoods.max(), rel=0.05)
    moved = sound.rotated_log_likelihood(bins, np.full(len(bins), 31.0))
    best = moved.directions[np.argmax(moved.log_likelihoods)]
    assert great_circle_error(best, sound.space.rotated(a, 31.0)) < 3
    audio, yaw = rotating
    bins = detect_bins(audio)
    log_likelihood = sound.rotated_log_likelihood(
        bins, yaw.at(bins.t * (OnsetDetectorSettings().hop / RATE))
    )
    best = log_likelihood.directions[np.argmax(log_likelihood.log_likelihoods)]
    assert great_circle_error(best, DIRECTION) < 8
    without = sound.log_likelihood(bins)
    assert log_likelihood.log_likelihoods.max() > without.log_likelihoods.max()


def test_unmeasured_directions_are_uninformative() -> None:
    """Directions that a pose did not measure have the log-likelihood 0 of the diffuse component."""
    arc = ea.simulated_head([[float(a), 0.0] for a in range(-90, 91, 10)])
    sound = untrained_model(arc, ea.Circle(), OnsetDetectorSettings())
    sound = sound.with_densities(np.full((N_CLASSES, N_TABLE_STEPS), -1.0, dtype=np.float32))
    bins = detect_bins(render_rotating_head(np.zeros(1))[0])
    log_likelihood = sound.rotated_log_likelihood(bins, np.full(len(bins), 30.0))
    outside = log_likelihood.directions[:, 0] < -61
    assert outside.any()
    np.testing.assert_array_equal(log_likelihood.log_likelihoods[outside], 0.0)
    assert (log_likelihood.log_likelihoods[log_likelihood.directions[:, 0] > -59] < 0).all()


@pytest.fixture(scope="module")
def folder(
    tmp_path_factory: pytest.TempPathFactory, atlas: Atlas, rotating: tuple[ea.Audio, ea.Yaw]
) -> Path:
    """Return a folder with an atlas, a recording of a rotating head, and yaw files."""
    folder = tmp_path_factory.mktemp("yaw")
    atlas.save(folder / "head.atlas")
    audio, yaw = rotating
    loud = ea.Audio(0.5 * audio.samples / np.abs(audio.samples).max(), RATE)
    loud.write(folder / "talker.wav")
    (loud.samples.T * 32767).astype("<i2").tofile(folder / "talker.raw")
    rows = [f"{t},0,{d}" for t, d in zip(yaw.times, yaw.degrees, strict=True)]
    (folder / "yaw.csv").write_text("\n".join(["Time, pitch, Yaw", *rows]))
    (folder / "short.csv").write_text("time,yaw\n0,0\n1,5")
    (folder / "nan.csv").write_text("time,yaw\n0,0\n1,nan\n3,0")
    (folder / "jump.csv").write_text("time,yaw\n0,0\n1,0\n1.001,50\n3,50")
    (folder / "back.csv").write_text("time,yaw\n0,0\n2,0\n1,0\n3,50")
    (folder / "columns.csv").write_text("t,angle\n0,0\n2,0")
    (folder / "commas.csv").write_text("time,yaw\n0,0,1,5\n2,0,3,0")
    (folder / "words.csv").write_text("time,yaw\n0,0\n2,left")
    (folder / "empty.csv").write_text("time,yaw\n")
    return folder


def test_yaw_on_the_command_line(run: Run, folder: Path) -> None:
    """`localize`, tracks and `listen` accept a number or a file."""
    call = ("localize", folder / "head.atlas", folder / "talker.wav", "--json")
    plain, rotated, from_file = (
        np.array(json.loads(run(*call, *more).stdout)["direction"])
        for more in ((), ("--yaw", "-20"), ("--yaw", folder / "yaw.csv"))
    )
    np.testing.assert_allclose(rotated, plain - (20.0, 0.0), atol=0.011)
    assert great_circle_error(from_file, DIRECTION) < 4
    track = folder / "track.json"
    run(*call, "--yaw", folder / "yaw.csv", "--track", track)
    rows = [row["direction"][0] for row in json.loads(track.read_text()) if row["direction"]]
    assert abs(np.median(rows) - DIRECTION[0]) < 4
    raw = (folder / "talker.raw").read_bytes()
    listen = ("listen", folder / "head.atlas", "--stdin", "--rate", RATE, "--json", "--memory", 5)
    result = run(*listen, "--yaw", folder / "yaw.csv", stdin=raw)
    last = json.loads(result.stdout.splitlines()[-1])
    assert great_circle_error(last["direction"], DIRECTION) < 5


@pytest.mark.parametrize(
    ("yaw", "message"),
    [
        ("short.csv", "as long as the sound"),
        ("nan.csv", "must be finite"),
        ("jump.csv", "must not jump"),
        ("back.csv", "times that increase"),
        ("columns.csv", "columns time, yaw, got t, angle"),
        ("commas.csv", "decimal points"),
        ("words.csv", "numbers for time and yaw"),
        ("empty.csv", "at least two values"),
        ("gone.csv", "existing file"),
        ("left", "degrees or a .csv file"),
        ("nan", "must be finite"),
        ("4000", "from -360 to 360 degrees, got 4000"),
    ],
)
def test_invalid_yaw_on_the_command_line(run: Run, folder: Path, yaw: str, message: str) -> None:
    """The error is one sentence, and the exit code is 2."""
    refused(run("localize", "head.atlas", "talker.wav", "--yaw", yaw, cwd=folder), message)
