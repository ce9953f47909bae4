"""Scenes: the parts add up to the mixture, and levels, noise, overlap and places are as asked."""

import json
from pathlib import Path

import numpy as np
import pytest

import earatlas as ea
from earatlas.directions import great_circle_error
from earatlas.errors import InputError
from earatlas.scenes import overlap_share, starts_for_overlap


@pytest.fixture
def sounds(rng: np.random.Generator) -> list[np.ndarray]:
    """Three dry sounds of different lengths and levels."""
    return [g * rng.normal(size=n) for n, g in ((16000, 1.0), (12000, 0.1), (9000, 3.0))]


PLACES = [[40.0, 0.0], [-50.0, 20.0], [170.0, -30.0]]


def test_images_and_noise_add_up(small_head: ea.Head, sounds: list[np.ndarray]) -> None:
    """mixture = sum_m images[m] + noise, to the last bit that addition keeps."""
    scene = ea.render_scene(small_head, sounds, PLACES, staging=ea.Staging(snr_db=10))
    total = scene.images.sum(axis=0) + scene.noise
    np.testing.assert_allclose(scene.mixture.samples, total, atol=1e-15)
    assert np.abs(scene.mixture.samples).max() == pytest.approx(0.5)


def test_levels_and_noise_are_as_asked(small_head: ea.Head, sounds: list[np.ndarray]) -> None:
    """Image powers differ by levels_db while on; noise is snr_db below all sources together."""
    staging = ea.Staging(levels_db=(0.0, -6.0, 3.0), snr_db=20.0)
    scene = ea.render_scene(small_head, sounds, PLACES, staging=staging)
    energy = (scene.images**2).sum(axis=(1, 2)) / [len(s) for s in sounds]
    np.testing.assert_allclose(10 * np.log10(energy / energy[0]), [0, -6, 3], atol=1e-9)
    clean = scene.images.sum(axis=0)
    assert 10 * np.log10((clean**2).mean() / (scene.noise**2).mean()) == pytest.approx(20.0)


def test_image_has_the_cues_of_its_direction(small_head: ea.Head, rng: np.random.Generator) -> None:
    """White noise from a direction has the mean cues that the head has there."""
    scene = ea.render_scene(
        small_head, [rng.normal(size=48000)], [[75.0, 10.0]], staging=ea.Staging(snr_db=np.inf)
    )
    n = np.argmin(great_circle_error(small_head.directions, [75.0, 10.0]))
    np.testing.assert_array_equal(scene.directions[0], small_head.directions[n])
    difference = ea.mean_cues(scene.image(0)) - small_head.cues()[n]
    assert np.median(np.abs(difference[:400])) < 0.3
    assert not scene.noise.any()


def test_overlap_is_as_asked(small_head: ea.Head, sounds: list[np.ndarray]) -> None:
    """The paper's 60 % for two sources, and the share is measured, not assumed."""
    starts = starts_for_overlap([16000, 12000], 0.6)
    assert overlap_share(starts, [16000, 12000]) == pytest.approx(0.6, abs=1e-6)
    scene = ea.render_scene(small_head, sounds[:2], PLACES[:2], staging=ea.Staging(overlap=0.6))
    assert scene.settings["overlap"] == pytest.approx(0.6, abs=1e-3)
    assert not scene.images[1, :, : int(scene.starts_seconds[1] * 16000)].any()
    # A short sound beside a long one cannot: both start together.
    np.testing.assert_array_equal(starts_for_overlap([10000, 1000], 0.6), [0, 0])


def test_overlap_share_by_hand() -> None:
    """[0, 4) and [1, 3) and [2.5, 6): two or more in [1, 4) of [0, 6)."""
    assert overlap_share([0, 1, 2.5], [4, 2, 3.5]) == pytest.approx(0.5)
    assert overlap_share([0, 5], [1, 1]) == 0.0


def test_scene_in_a_room(small_head: ea.Head, sounds: list[np.ndarray]) -> None:
    """A room makes images longer and less coherent, and is written into the settings."""
    pytest.importorskip("pyroomacoustics", reason="pyroomacoustics is an extra")
    dry = ea.render_scene(small_head, sounds[:1], PLACES[:1])
    wet = ea.render_scene(small_head, sounds[:1], PLACES[:1], room=ea.Room(t60_seconds=0.3))
    assert wet.mixture.seconds > dry.mixture.seconds + 0.2
    assert wet.settings["room"]["t60_seconds"] == 0.3
    late = slice(len(sounds[0]) + 1600, None)
    assert np.abs(wet.images[0, :, late]).max() > 10 * np.abs(dry.images[0, :, late]).max(initial=0)


def test_written_scene_reads_back(
    tmp_path: Path, small_head: ea.Head, sounds: list[np.ndarray]
) -> None:
    """Files, truth and sum: what is on disk is the scene."""
    scene = ea.render_scene(small_head, sounds[:2], PLACES[:2], names=["ann", "b/ob"])
    files = scene.write(tmp_path / "out" / "scene")
    assert sorted(f.name for f in files) == [
        "image1_ann.wav", "image2_b_ob.wav", "mixture.wav", "noise.wav", "scene.json",
    ]  # fmt: skip
    truth = json.loads((tmp_path / "out" / "scene" / "scene.json").read_text())
    np.testing.assert_allclose(
        [s["direction"] for s in truth["sources"]], scene.directions, atol=1e-4
    )
    back = ea.read_audio(tmp_path / "out" / "scene" / truth["sources"][1]["file"])
    np.testing.assert_allclose(back.samples, scene.images[1], atol=1e-7)


def test_unwritable_folder_leaves_nothing(
    tmp_path: Path, small_head: ea.Head, sounds: list[np.ndarray]
) -> None:
    """A file in the place of the folder is an error in words."""
    (tmp_path / "taken").write_text("mine")
    scene = ea.render_scene(small_head, sounds[:1], PLACES[:1])
    with pytest.raises(InputError, match="writable"):
        scene.write(tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"directions": PLACES[:2]}, "as many"),
        ({"sounds": [np.zeros(100)]}, "not silent"),
        ({"sounds": [np.array([1.0, np.nan])]}, "finite"),
        ({"staging": ea.Staging(levels_db=(0.0, 1.0))}, "one a sound"),
    ],
)
def test_bad_scenes_are_explained(small_head: ea.Head, change: dict, words: str) -> None:
    """Each wrong argument is named."""
    arguments = {"sounds": [np.ones(100)], "directions": PLACES[:1], **change}
    with pytest.raises(InputError, match=words):
        ea.render_scene(small_head, **arguments)


def test_far_directions_are_refused(small_head: ea.Head) -> None:
    """A direction that the head does not cover is refused, with the gap."""
    front = small_head.subset(small_head.directions[:, 1] > 0)
    with pytest.raises(InputError, match="from the nearest of 'simulated'"):
        ea.render_scene(front, [np.ones(100)], [[0.0, -80.0]])


def test_bad_staging_is_explained() -> None:
    """Overlap outside 0…1 and a NaN ratio."""
    with pytest.raises(InputError, match="between 0 and 1"):
        ea.Staging(overlap=1.5)
    with pytest.raises(InputError, match="snr_db"):
        ea.Staging(snr_db=float("nan"))
