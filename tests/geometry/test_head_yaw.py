"""A turning head: the yaw over time, posteriors that are turned back and multiplied, bad yaws."""

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
from earatlas.features.onset_detector import Gate, OnsetBins, OnsetStream
from earatlas.features.statistics import CueStatistics, LevelStatistics
from earatlas.features.stft import stft
from earatlas.geometry.angles import great_circle_error, wrap_degrees
from earatlas.localization.head_rotation import _shared, turning_judgement
from earatlas.localization.onset_likelihood import LEVELS, N_CLASSES, SHARPNESS, DirectSound
from earatlas.localization.pose_statistics import Pose, PoseStatistics, joined_poses
from earatlas.training.reverberant import _parts, _untold
from earatlas.types import Array

Run = Callable[..., subprocess.CompletedProcess[str]]
RATE = 16_000
PLACE = np.array([40.0, 12.0])  # in the room


def turning_sound(degrees: Array, seconds: float = 2.0) -> tuple[ea.Audio, ea.Yaw]:
    """A synthetic_speech at PLACE heard with a head that stands at each yaw for as long, faded in 20 ms."""
    dry = ea.synthetic_speech(seconds, seed=5)
    edges = np.linspace(0, seconds, len(degrees) + 1)
    t, total, times, yaws = np.arange(len(dry)) / RATE, np.zeros((2, len(dry))), [], []
    for k, yaw in enumerate(degrees):
        place = ea.Sphere().turned(PLACE, -yaw)
        image = ea.simulated_head([place]).responses().at_rate(RATE)[0]
        begin = edges[k] if k else -1.0
        end = edges[k + 1] if k + 1 < len(degrees) else seconds + 1
        gain = np.clip((t - begin) / 0.02 + 0.5, 0, 1) * np.clip((end - t) / 0.02 + 0.5, 0, 1)
        heard = np.stack([np.convolve(dry, ear)[: len(dry)] for ear in image])
        total += gain * heard
        times += [max(begin, 0.0) + 0.01, min(end, seconds) - 0.01]
        yaws += [yaw, yaw]
    total += 1e-4 * total.std() * np.random.default_rng(0).normal(size=total.shape)
    return ea.Audio(total, RATE), ea.Yaw(times, yaws)


@pytest.fixture(scope="module")
def turning() -> tuple[ea.Audio, ea.Yaw]:
    """To 20° left, then to 20° right and back."""
    return turning_sound(np.array([0.0, 10.0, 20.0, 10.0, 0.0, -10.0, -20.0, -10.0]))


def test_yaw_is_a_line_between_its_times() -> None:
    """It goes on through ±180, and stays at its ends."""
    yaw = ea.Yaw([0.5, 1.0, 2.0], [170.0, -170.0, -150.0])
    np.testing.assert_allclose(yaw.at([0.0, 0.75, 1.5, 9.0]), [170.0, 180.0, 200.0, 210.0])
    np.testing.assert_allclose(ea.Yaw.of([[0.0, 5.0], [1.0, 7.0]]).at([0.5]), [6.0])
    assert ea.Yaw.of(yaw) is yaw
    np.testing.assert_allclose(ea.Yaw.of(20).at([-5.0, 0.0, 3600.0]), 20.0)


@pytest.mark.parametrize(
    ("yaw", "words"),
    [
        ([1.0, 2.0, 3.0], "must have a time for each value"),
        (np.zeros((4, 3)), "must have a time for each value"),
        ("left", "must be a number, or times with degrees"),
        (float("nan"), "must be finite"),
        (
            [[0.0, 1.0], [1.0, float("nan")], [2.0, 1.0]],
            r"must be finite and at most 1e\+06 either way, got nan at 1\.0 s in row 1",
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
def test_bad_yaws(atlas: Atlas, yaw: object, words: str) -> None:
    """One sentence each, wherever they go in."""
    audio = ea.Audio(np.random.default_rng(0).normal(size=(2, RATE)), RATE)
    for call in (
        lambda: atlas.localize(audio, yaw=yaw),  # type: ignore[arg-type]
        lambda: atlas.localize_frames(audio, yaw=yaw),  # type: ignore[arg-type]
        lambda: atlas.localizer(yaw=yaw),  # type: ignore[arg-type]
    ):
        with pytest.raises(ea.InputError, match=words):
            call()


def test_a_yaw_lasts_as_long_as_the_sound(atlas: Atlas) -> None:
    """One that starts late or ends early is refused; a tenth of a second is a tracker's."""
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


def test_a_number_turns_the_answer(atlas: Atlas, turning: tuple[ea.Audio, ea.Yaw]) -> None:
    """The same posterior, and every window of a track and a stream, turned to the left."""
    audio = turning[0]
    plain, turned = atlas.localize(audio), atlas.localize(audio, yaw=30.0)
    np.testing.assert_allclose(turned.direction, plain.direction + np.array([30.0, 0.0]), atol=1e-9)
    np.testing.assert_array_equal(turned.posterior.weights, plain.posterior.weights)
    a = atlas.localize_frames(audio).directions
    b = atlas.localize_frames(audio, yaw=-170.0).directions
    np.testing.assert_allclose(wrap_degrees(b - a - (-170.0, 0.0)), 0.0, atol=1e-4)
    stream = atlas.localizer()
    stream.push(audio.samples, yaw=30.0)
    np.testing.assert_allclose(stream.finish().direction, turned.direction, atol=1e-9)


def test_turned_beliefs(atlas: Atlas, turning: tuple[ea.Audio, ea.Yaw]) -> None:
    """p'(x) = p(x - yaw), on the sphere as on a plane, which does not close behind."""
    posterior = atlas.localize(turning[0]).posterior
    points = np.array([[30.0, 10.0], [-150.0, 70.0], [100.0, -89.0]])
    turned = posterior.turned(77.0).log_density(posterior.space.turned(points, 77.0))
    np.testing.assert_allclose(turned, posterior.log_density(points), rtol=1e-9)
    np.testing.assert_allclose(ea.Plane().turned([[150.0, 3.0]], 40.0), [[190.0, 3.0]])
    np.testing.assert_allclose(ea.Circle().turned([[150.0, 3.0]], 40.0), [[-170.0, 3.0]])


def test_a_turning_head_finds_the_place_in_the_room(
    atlas: Atlas, turning: tuple[ea.Audio, ea.Yaw]
) -> None:
    """Told its yaw it is right and sure; not told, it is neither."""
    audio, yaw = turning
    told, untold = atlas.localize(audio, yaw=yaw), atlas.localize(audio)
    assert great_circle_error(told.direction, PLACE) < 4
    assert told.posterior.level_of(PLACE) < 0.95
    assert told.radius_90 < untold.radius_90
    assert told.observed_share == pytest.approx(untold.observed_share, rel=0.2)
    assert told.seconds == pytest.approx(untold.seconds)


def test_one_sound_is_one_to_a_head_that_turns(atlas: Atlas) -> None:
    """In the head's frame it is in three places; in each pose it is in one."""
    audio, yaw = turning_sound(np.array([-20.0, 0.0, 20.0]))
    strict = replace(atlas, calibration=replace(atlas.calibration, misfit=1e-9))
    told = [{doubt.word for doubt in strict.localize(audio, yaw=y).doubts} for y in (0.0, yaw)]
    assert "several sounds at once" in told[0]
    assert "several sounds at once" not in told[1]


def test_blocks_of_any_size(atlas: Atlas, turning: tuple[ea.Audio, ea.Yaw]) -> None:
    """A stream has the recording's answer, with a memory too, and with the yaw of each block."""
    audio, yaw = turning
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


def test_yaw_with_blocks_or_without(atlas: Atlas) -> None:
    """Either each block brings its yaw, or none does; a jump between blocks is refused."""
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


def test_tracks_of_a_turning_head(atlas: Atlas, turning: tuple[ea.Audio, ea.Yaw]) -> None:
    """Every window is in the room's frame, though the head turns by 40 degrees."""
    audio, yaw = turning
    told = atlas.localize_frames(audio, yaw=yaw)
    untold = atlas.localize_frames(audio)
    np.testing.assert_allclose(told.times, untold.times)
    off = [np.abs(wrap_degrees(t.directions[:, 0] - PLACE[0])) for t in (told, untold)]
    assert np.nanmedian(off[0]) < 3
    assert np.nanmedian(off[1]) > 2 * np.nanmedian(off[0])


def test_poses_keep_all_that_was_heard(turning: tuple[ea.Audio, ea.Yaw]) -> None:
    """The poses' statistics add up to those of the whole, however it is cut; yaws are the means."""
    audio, yaw = turning
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


def test_evidence_is_shared_not_added(atlas: Atlas, turning: tuple[ea.Audio, ea.Yaw]) -> None:
    """Poses together may be believed as much as a still head that heard all of it."""
    rng = np.random.default_rng(3)
    D = atlas.layout.n_cues
    counts, means = rng.uniform(1, 9, size=(3, D)), rng.normal(size=D)
    parts = [CueStatistics(q, q * means, q * (means**2 + 0.5), 30.0) for q in counts]
    shared = _shared(atlas.calibration, parts, atlas.model.noise)
    total = parts[0] + parts[1] + parts[2]
    still = atlas.calibration.believable(total, atlas.model.noise)
    np.testing.assert_allclose(sum(s.counts for s in shared), still.counts, rtol=1e-9)
    np.testing.assert_allclose(sum(s.sums for s in shared), still.sums, rtol=1e-9)
    # Three poses that are all but the same believe what one does, but for the sum over charts.
    whole = PoseStatistics(atlas.layout)
    spectra = stft(turning_sound(np.zeros(1))[0].samples, atlas.layout.window, atlas.layout.hop)
    whole.push(spectra, np.zeros(spectra.shape[-1]))
    pose = whole.poses()[0]
    thirds = [Pose(0.01 * n, pose.statistics.scaled(1 / 3)) for n in range(3)]
    one = turning_judgement(atlas, [pose], None, np.zeros(0)).posterior
    three = turning_judgement(atlas, thirds, None, np.zeros(0)).posterior
    assert great_circle_error(one.best, three.best) < 1.5
    assert three.radius_90 == pytest.approx(one.radius_90, rel=0.25)
    assert [p.yaw_degrees for p in joined_poses(thirds)] == pytest.approx([0.01])


@pytest.fixture(scope="module")
def sound(small_head: ea.Head) -> DirectSound:
    """A direct sound whose bins tell something, in any class."""
    told = np.log(_parts((np.arange(LEVELS) + 0.5) / LEVELS * 2 - 1)[:, 4])
    untold = _untold(small_head, ea.Sphere(), Gate())
    assert SHARPNESS[4] == 0.9
    return untold.with_densities(np.tile(told, (N_CLASSES, 1)).astype(np.float32))


def bins_of(audio: ea.Audio) -> OnsetBins:
    """The onsets of a recording."""
    stream = OnsetStream(Gate())
    stream.push(audio.samples)
    stream.finish()
    return stream.bins()


def test_turned_looks(sound: DirectSound, turning: tuple[ea.Audio, ea.Yaw]) -> None:
    """Not turned it is the look; turned alike all over, the look turned; turning, the place."""
    still = turning_sound(np.zeros(1))[0]
    bins = bins_of(still)
    plain, same = sound.look(bins), sound.turned_look(bins, np.zeros(len(bins)))
    a, b = (look.places[np.argmax(look.log_likelihoods)] for look in (plain, same))
    assert great_circle_error(a, b) < 2.5
    assert same.log_likelihoods.max() == pytest.approx(plain.log_likelihoods.max(), rel=0.05)
    moved = sound.turned_look(bins, np.full(len(bins), 31.0))
    best = moved.places[np.argmax(moved.log_likelihoods)]
    assert great_circle_error(best, sound.space.turned(a, 31.0)) < 3
    audio, yaw = turning
    bins = bins_of(audio)
    look = sound.turned_look(bins, yaw.at(bins.t * (Gate().hop / RATE)))
    best = look.places[np.argmax(look.log_likelihoods)]
    assert great_circle_error(best, PLACE) < 8
    unaware = sound.look(bins)
    assert look.log_likelihoods.max() > unaware.log_likelihoods.max()


def test_what_was_not_measured_says_nothing() -> None:
    """Of an arc, turned: places that a pose did not know have the likelihood of nowhere, 0."""
    arc = ea.simulated_head([[float(a), 0.0] for a in range(-90, 91, 10)])
    sound = _untold(arc, ea.Circle(), Gate())
    sound = sound.with_densities(np.full((N_CLASSES, LEVELS), -1.0, dtype=np.float32))
    bins = bins_of(turning_sound(np.zeros(1))[0])
    look = sound.turned_look(bins, np.full(len(bins), 30.0))
    outside = look.places[:, 0] < -61
    assert outside.any()
    np.testing.assert_array_equal(look.log_likelihoods[outside], 0.0)
    assert (look.log_likelihoods[look.places[:, 0] > -59] < 0).all()


@pytest.fixture(scope="module")
def folder(
    tmp_path_factory: pytest.TempPathFactory, atlas: Atlas, turning: tuple[ea.Audio, ea.Yaw]
) -> Path:
    """An atlas, a recording with a turning head, raw samples of it, and its yaw."""
    folder = tmp_path_factory.mktemp("yaw")
    atlas.save(folder / "head.atlas")
    audio, yaw = turning
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
    """A number turns the answer; a file makes it the room's; tracks and `listen` take it too."""
    call = ("localize", folder / "head.atlas", folder / "talker.wav", "--json")
    plain, turned, told = (
        np.array(json.loads(run(*call, *more).stdout)["direction"])
        for more in ((), ("--yaw", "-20"), ("--yaw", folder / "yaw.csv"))
    )
    np.testing.assert_allclose(turned, plain - (20.0, 0.0), atol=0.011)
    assert great_circle_error(told, PLACE) < 4
    track = folder / "track.json"
    run(*call, "--yaw", folder / "yaw.csv", "--track", track)
    rows = [row["direction"][0] for row in json.loads(track.read_text()) if row["direction"]]
    assert abs(np.median(rows) - PLACE[0]) < 4
    raw = (folder / "talker.raw").read_bytes()
    listen = ("listen", folder / "head.atlas", "--stdin", "--rate", RATE, "--json", "--memory", 5)
    result = run(*listen, "--yaw", folder / "yaw.csv", stdin=raw)
    last = json.loads(result.stdout.splitlines()[-1])
    assert great_circle_error(last["direction"], PLACE) < 5


@pytest.mark.parametrize(
    ("yaw", "words"),
    [
        ("short.csv", "as long as the sound"),
        ("nan.csv", "must be finite"),
        ("jump.csv", "must not jump"),
        ("back.csv", "times that increase"),
        ("columns.csv", "columns time, yaw, got t, angle"),
        ("commas.csv", "decimals with points"),
        ("words.csv", "numbers for time and yaw"),
        ("empty.csv", "at least two values"),
        ("gone.csv", "existing file"),
        ("left", "degrees or a .csv file"),
        ("nan", "must be finite"),
    ],
)
def test_bad_yaws_on_the_command_line(run: Run, folder: Path, yaw: str, words: str) -> None:
    """One sentence, exit code 2."""
    refused(run("localize", "head.atlas", "talker.wav", "--yaw", yaw, cwd=folder), words)
