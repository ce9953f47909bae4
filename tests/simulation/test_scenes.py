"""Scenes: parts add up to the mixture; levels, noise, overlap and directions are as requested."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import earatlas as ea
from earatlas.errors import EaratlasWarning, InputError
from earatlas.geometry.angles import great_circle_error
from earatlas.hrtf.head import Head, ImpulseResponses
from earatlas.simulation.overlap import overlap_share, starts_for_overlap
from earatlas.simulation.rendering import high_pass


@pytest.fixture
def sounds(rng: np.random.Generator) -> list[np.ndarray]:
    """Three dry sounds of different lengths and levels."""
    return [g * rng.normal(size=n) for n, g in ((16000, 1.0), (12000, 0.1), (9000, 3.0))]


DIRECTIONS = [[40.0, 0.0], [-50.0, 20.0], [170.0, -30.0]]


def test_images_and_noise_add_up(small_head: ea.Head, sounds: list[np.ndarray]) -> None:
    """mixture = sum_m images[m] + noise, up to rounding."""
    scene = ea.render_scene(small_head, sounds, DIRECTIONS, settings=ea.SceneSettings(snr_db=10))
    total = scene.images.sum(axis=0) + scene.noise
    np.testing.assert_allclose(scene.mixture.samples, total, atol=1e-15)
    assert np.abs(scene.mixture.samples).max() == pytest.approx(0.5)


def test_levels_and_noise_are_as_requested(small_head: ea.Head, sounds: list[np.ndarray]) -> None:
    """Powers of the images differ by levels_db; noise is snr_db below all sources together."""
    settings = ea.SceneSettings(levels_db=(0.0, -6.0, 3.0), snr_db=20.0)
    scene = ea.render_scene(small_head, sounds, DIRECTIONS, settings=settings)
    energy = (scene.images**2).sum(axis=(1, 2)) / [len(s) for s in sounds]
    np.testing.assert_allclose(10 * np.log10(energy / energy[0]), [0, -6, 3], atol=1e-9)
    clean = scene.images.sum(axis=0)
    assert 10 * np.log10((clean**2).mean() / (scene.noise**2).mean()) == pytest.approx(20.0)


def test_image_has_the_cues_of_its_direction(small_head: ea.Head, rng: np.random.Generator) -> None:
    """White noise from a direction has the mean cues of the head in that direction."""
    scene = ea.render_scene(
        small_head,
        [rng.normal(size=48000)],
        [[75.0, 10.0]],
        settings=ea.SceneSettings(snr_db=np.inf),
    )
    n = np.argmin(great_circle_error(small_head.directions, [75.0, 10.0]))
    np.testing.assert_array_equal(scene.directions[0], small_head.directions[n])
    difference = ea.mean_cues(scene.image(0)) - small_head.cues()[n]
    assert np.median(np.abs(difference[:400])) < 0.3
    assert not scene.noise.any()


def test_early_images_contain_the_first_50_ms(rng: np.random.Generator) -> None:
    """They are counted from where the response of either ear reaches half of the peak."""
    taps = rng.normal(size=(2, 2, 1500)) * np.exp(-np.arange(1500) / 800)
    taps[:, :, :40] = 0.0
    taps[0, 1, 40], taps[1, 0, 60] = 20.0, -20.0  # direct sound: at sample 40, and at 60
    head = Head("echoes", np.array([[30.0, 0.0], [-30.0, 0.0]]), ImpulseResponses(taps, 16_000))
    sounds = [rng.normal(size=900), rng.normal(size=700)]
    settings = ea.SceneSettings(levels_db=(0.0, -4.0), snr_db=np.inf)
    scene = ea.render_scene(head, sounds, head.directions, settings=settings)
    assert scene.is_reverberant
    for m, onset in enumerate((40, 60)):
        cut = taps[m].copy()
        cut[:, onset + 801 :] = 0.0
        late = taps[m] - cut
        whole, early, rest = (
            np.stack([np.convolve(high_pass(sounds[m], 16_000), ear) for ear in pair])
            for pair in (taps[m], cut, late)
        )
        n = whole.shape[1]
        gain = scene.images[m, 0, 500] / whole[0, 500]
        np.testing.assert_allclose(scene.images[m, :, :n], gain * whole, atol=1e-12)
        np.testing.assert_allclose(scene.early[m, :, :n], gain * early, atol=1e-12)
        assert np.abs(rest).max() > 0.01 * np.abs(whole).max()


def test_anechoic_scene_has_no_late_reverberation(
    small_head: ea.Head, sounds: list[np.ndarray]
) -> None:
    """The early images are the images, and are not written twice."""
    scene = ea.render_scene(small_head, sounds, DIRECTIONS)
    assert scene.early is scene.images
    assert not scene.is_reverberant
    assert "early_file" not in scene.to_dict()["sources"][0]


def test_overlap_is_as_requested(small_head: ea.Head, sounds: list[np.ndarray]) -> None:
    """Two sources overlap by the 60 % of the paper; the share is measured, not assumed."""
    starts = starts_for_overlap([16000, 12000], 0.6)
    assert overlap_share(starts, [16000, 12000]) == pytest.approx(0.6, abs=1e-6)
    scene = ea.render_scene(
        small_head, sounds[:2], DIRECTIONS[:2], settings=ea.SceneSettings(overlap=0.6)
    )
    assert scene.settings["overlap"] == pytest.approx(0.6, abs=1e-3)
    assert not scene.images[1, :, : int(scene.starts_seconds[1] * 16000)].any()


def test_overlap_that_grows_with_the_step() -> None:
    """[10, 2, 2] overlap by 0.2 without a step, by 0.3 with a step of 1, and by 0.4 at most."""
    np.testing.assert_allclose(starts_for_overlap([10, 2, 2], 0.3), [0, 1, 2], rtol=1e-9)
    np.testing.assert_allclose(starts_for_overlap([10, 2, 2], 0.4), [0, 2, 4], rtol=1e-9)
    with pytest.warns(EaratlasWarning, match=r"got 0\.6 and reached 0\.40"):
        np.testing.assert_allclose(starts_for_overlap([10, 2, 2], 0.6), [0, 2, 4], rtol=1e-9)


def test_no_step_comes_closer_to_the_requested_overlap(rng: np.random.Generator) -> None:
    """None of 200 steps comes closer, for two to five sounds of any lengths."""
    for _ in range(20):
        lengths = rng.uniform(1, 5, size=rng.integers(2, 6))
        lengths[0] += 5  # so that some shares grow with the step
        order = np.arange(len(lengths))
        scan = [overlap_share(order * s, lengths) for s in np.linspace(0, 10, 200)]
        requested = rng.uniform(0, max(scan))
        reached = overlap_share(starts_for_overlap(lengths, requested), lengths)
        assert abs(reached - requested) <= np.abs(np.array(scan) - requested).min() + 1e-12
        assert reached == pytest.approx(requested, abs=1e-9)


@pytest.mark.parametrize("lengths", [[10000, 1000], [5000]])
def test_unreachable_overlap_issues_a_warning(lengths: list[int]) -> None:
    """For a short sound beside a long one, or a single sound, the nearest share is used."""
    reached = 0.1 if len(lengths) > 1 else 0.0
    with pytest.warns(EaratlasWarning, match=f"reached {reached:.2f}"):
        starts = starts_for_overlap(lengths, 0.6)
    np.testing.assert_array_equal(starts, np.zeros(len(lengths)))


def test_overlap_share_by_hand() -> None:
    """Of [0, 4), [1, 3) and [2.5, 6), two or more are active in [1, 4) of [0, 6)."""
    assert overlap_share([0, 1, 2.5], [4, 2, 3.5]) == pytest.approx(0.5)
    assert overlap_share([0, 5], [1, 1]) == 0.0
    # A pause counts as time: two sounds in [1, 2) of [0, 12), none in [3, 10).
    assert overlap_share([0, 1, 10], [2, 2, 2]) == pytest.approx(1 / 12)


def test_starts_are_in_seconds_at_any_rate(small_head: ea.Head, rng: np.random.Generator) -> None:
    """Two sounds of n samples overlap by half if the second starts n / 3 later."""
    sounds = [rng.normal(size=12000) for _ in range(2)]
    scene = ea.render_scene(
        small_head, sounds, DIRECTIONS[:2], rate=24000, settings=ea.SceneSettings(overlap=0.5)
    )
    np.testing.assert_allclose(scene.starts_seconds, [0, 4000 / 24000], rtol=1e-12)
    assert not scene.images[1, :, :4000].any()
    assert scene.images[1, :, 4000:4200].any()


def test_scene_in_a_room(small_head: ea.Head, sounds: list[np.ndarray]) -> None:
    """A room makes images longer and is stored in the settings."""
    pytest.importorskip("pyroomacoustics", reason="pyroomacoustics is an extra")
    dry = ea.render_scene(small_head, sounds[:1], DIRECTIONS[:1])
    wet = ea.render_scene(small_head, sounds[:1], DIRECTIONS[:1], room=ea.Room(t60_seconds=0.3))
    assert wet.mixture.seconds > dry.mixture.seconds + 0.2
    assert wet.settings["room"]["t60_seconds"] == 0.3
    assert json.loads(json.dumps(wet.to_dict())) == wet.to_dict()
    late = slice(len(sounds[0]) + 1600, None)
    assert np.abs(wet.images[0, :, late]).max() > 10 * np.abs(dry.images[0, :, late]).max(initial=0)


@pytest.mark.parametrize("rate", [16_000, 24_000])
def test_fully_absorbing_room_is_anechoic(
    small_head: ea.Head, rng: np.random.Generator, rate: int
) -> None:
    """The image in such a room, with a head at 48 kHz, is the anechoic one 1 ms later."""
    pytest.importorskip("pyroomacoustics", reason="pyroomacoustics is an extra")
    room = ea.Room(t60_seconds=ea.Room().smallest_t60_seconds)
    arguments = (small_head, [rng.normal(size=4000)], [[70.0, 20.0]])
    clean = ea.SceneSettings(snr_db=np.inf)
    dry = ea.render_scene(*arguments, rate=rate, settings=clean).images[0]
    wet = ea.render_scene(*arguments, rate=rate, settings=clean, room=room).images[0]
    late = rate // 1000
    # -60 dB: the ringing of the resampling filter is truncated at different samples.
    np.testing.assert_allclose(wet[:, late : late + dry.shape[1]], dry, rtol=0, atol=5e-4)
    assert np.abs(wet[:, :late]).max() < 5e-4


def test_written_scene_reads_back(
    tmp_path: Path, small_head: ea.Head, sounds: list[np.ndarray]
) -> None:
    """The files contain the scene and its ground truth."""
    scene = ea.render_scene(small_head, sounds[:2], DIRECTIONS[:2], names=["ann", "b/ob"])
    files = scene.write(tmp_path / "out" / "scene")
    assert sorted(f.name for f in files) == [
        "image1_ann.wav", "image2_b_ob.wav", "mixture.wav", "noise.wav", "scene.json",
    ]  # fmt: skip
    ground_truth = json.loads((tmp_path / "out" / "scene" / "scene.json").read_text())
    np.testing.assert_allclose(
        [s["direction"] for s in ground_truth["sources"]], scene.directions, atol=1e-4
    )
    back = ea.read_audio(tmp_path / "out" / "scene" / ground_truth["sources"][1]["file"])
    np.testing.assert_allclose(back.samples, scene.images[1], atol=1e-7)


def test_unwritable_folder_leaves_nothing(
    tmp_path: Path, small_head: ea.Head, sounds: list[np.ndarray]
) -> None:
    """A file with the name of the folder raises an InputError and is kept."""
    (tmp_path / "taken").write_text("mine")
    scene = ea.render_scene(small_head, sounds[:1], DIRECTIONS[:1])
    with pytest.raises(InputError, match="writable"):
        scene.write(tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"


def test_new_scene_replaces_the_previous_one(
    tmp_path: Path, small_head: ea.Head, sounds: list[np.ndarray]
) -> None:
    """Images of the previous scene are removed; other files stay, whatever its JSON lists."""
    folder = tmp_path / "scene"
    ea.render_scene(small_head, sounds, DIRECTIONS).write(folder)
    for own in (folder / "image_mine.wav", folder / "notes.txt", tmp_path / "image_mine.wav"):
        own.write_text("mine")
    ground_truth = json.loads((folder / "scene.json").read_text())
    ground_truth["sources"] += [{"file": "../image_mine.wav"}, {"file": "notes.txt"}]
    (folder / "scene.json").write_text(json.dumps(ground_truth))
    written = ea.render_scene(small_head, sounds[:2], DIRECTIONS[:2], names=["a", "b"]).write(
        folder
    )
    left = {file.name for file in folder.iterdir()}
    assert left == {file.name for file in written} | {"image_mine.wav", "notes.txt"}
    assert (tmp_path / "image_mine.wav").exists()


@pytest.mark.parametrize("text", ["not JSON", "[3]", '{"sources": [{"file": 3}]}', "{}"])
def test_foreign_scene_file_is_replaced(
    tmp_path: Path, small_head: ea.Head, sounds: list[np.ndarray], text: str
) -> None:
    """A scene.json of another program is replaced without an error."""
    (tmp_path / "scene.json").write_text(text)
    ea.render_scene(small_head, sounds[:1], DIRECTIONS[:1]).write(tmp_path)
    assert json.loads((tmp_path / "scene.json").read_text())["rate"] == 16000


def test_failed_write_keeps_the_previous_scene(
    tmp_path: Path, small_head: ea.Head, sounds: list[np.ndarray]
) -> None:
    """If a folder has the name of the last file, the other files are restored."""
    ea.render_scene(small_head, sounds, DIRECTIONS).write(tmp_path)
    (tmp_path / "noise.wav").unlink()
    (tmp_path / "noise.wav").mkdir()
    (tmp_path / "noise.wav" / "mine").touch()
    before = {f.name: f.read_bytes() for f in tmp_path.iterdir() if f.is_file()}
    with pytest.raises(InputError, match="writable"):
        ea.render_scene(small_head, sounds[:2], DIRECTIONS[:2], names=["a", "b"]).write(tmp_path)
    assert {f.name: f.read_bytes() for f in tmp_path.iterdir() if f.is_file()} == before
    assert (tmp_path / "noise.wav" / "mine").exists()
    assert len(list(tmp_path.iterdir())) == len(before) + 1


def test_failed_write_removes_new_folders(
    tmp_path: Path,
    small_head: ea.Head,
    sounds: list[np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a full disk, neither the folder nor its new parents stay."""

    def full(self: ea.Audio, path: Path) -> Path:
        raise OSError(28, "No space left on device")

    scene = ea.render_scene(small_head, sounds[:1], DIRECTIONS[:1])
    monkeypatch.setattr(ea.Audio, "write", full)
    with pytest.raises(InputError, match="No space left"):
        scene.write(tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sounds": [], "directions": np.zeros((0, 2))}, "N >= 1"),
        ({"rate": 0}, "rate must be a positive whole number"),
        ({"rate": 16000.5}, "rate must be a positive whole number"),
        ({"names": ["a", "b"]}, "names must be as many as sounds, got 2 and 1"),
        ({"directions": DIRECTIONS[:2]}, "directions must be as many as sounds, got 2 and 1"),
        ({"sounds": [np.zeros(100)]}, "not silent"),
        ({"sounds": [np.array([1.0, np.nan])]}, "finite"),
        (
            {"settings": ea.SceneSettings(levels_db=(0.0, 1.0))},
            "levels_db must be as many as sounds, got 2 and 1",
        ),
    ],
)
def test_invalid_arguments_are_named(
    small_head: ea.Head, change: dict[str, Any], words: str
) -> None:
    """Each invalid argument is named in the error."""
    arguments = {"sounds": [np.ones(100)], "directions": DIRECTIONS[:1], **change}
    with pytest.raises(InputError, match=words):
        ea.render_scene(small_head, **arguments)


def test_directions_far_from_measured_ones_are_rejected(small_head: ea.Head) -> None:
    """A direction that the head does not cover is rejected, and the gap is stated."""
    front = small_head.subset(small_head.directions[:, 1] > 0)
    azimuth, lowest = front.directions[np.argmin(front.directions[:, 1])]
    click = np.eye(100)[50]
    ea.render_scene(front, [click], [[azimuth, lowest - 9.9]])
    with pytest.raises(InputError, match=r"1\d degrees from the nearest of 'simulated'"):
        ea.render_scene(front, [click], [[azimuth, -10.1]])
    with pytest.raises(InputError, match="must have energy above 20 Hz, got almost none"):
        ea.render_scene(front, [np.ones(100)], [[azimuth, lowest]])


def test_one_array_is_not_a_list_of_sounds(small_head: ea.Head) -> None:
    """One array instead of a list with one array is refused."""
    with pytest.raises(InputError, match=r"got one array. Pass \[sound\]"):
        ea.render_scene(small_head, np.eye(100)[50], [small_head.directions[0]])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"overlap": 1.5}, "overlap must be between 0 and 1"),
        ({"overlap": np.nan}, "overlap must be between 0 and 1"),
        ({"snr_db": np.nan}, "snr_db must be"),
        ({"snr_db": -np.inf}, "snr_db must be"),
        ({"snr_db": -1e4}, "snr_db must be"),
        ({"levels_db": (0.0, np.nan)}, "levels_db must be"),
        ({"levels_db": (-np.inf,)}, "levels_db must be"),
        ({"levels_db": (1e4,)}, "levels_db must be"),
        ({"distance_metres": 0.0}, "distance_metres must be positive"),
        ({"distance_metres": np.nan}, "distance_metres must be positive"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_invalid_settings_are_rejected(fields: dict[str, Any], words: str) -> None:
    """NaN, and values outside their range, are rejected."""
    with pytest.raises(InputError, match=words):
        ea.SceneSettings(**fields)


def test_dc_offset_affects_neither_level_nor_reverberation(small_head: ea.Head) -> None:
    """A talker with a DC offset has the same image, also in a room."""
    pytest.importorskip("pyroomacoustics")
    voice = ea.synthetic_speech(0.8, seed=3)
    voice *= 0.05 / np.abs(voice).max()
    room = ea.Room((4.0, 3.5, 2.6), t60_seconds=0.2, listener_metres=(2.0, 1.5, 1.2))
    settings = ea.SceneSettings(snr_db=np.inf, distance_metres=0.8)

    def render(sound: np.ndarray, room: ea.Room | None) -> np.ndarray:
        scene = ea.render_scene(small_head, [sound], [[40, 0]], settings=settings, room=room)
        image: np.ndarray = scene.images[0] / np.abs(scene.images[0]).max()
        return image

    clean, offset = (render(sound, room) for sound in (voice, voice + 0.01))
    low = np.abs(np.fft.rfft(offset)) ** 2
    below = np.fft.rfftfreq(offset.shape[1], 1 / 16_000) < 5
    assert low[:, below].sum() < 0.01 * low.sum()
    np.testing.assert_allclose(offset, clean, atol=1e-6)
    np.testing.assert_allclose(render(voice + 0.01, None), render(voice, None), atol=1e-6)
