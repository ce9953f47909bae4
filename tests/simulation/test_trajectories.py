"""Sources that move: where they are when, images without a seam, and paths that cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import earatlas as ea
from earatlas.errors import InputError
from earatlas.geometry.angles import great_circle_error
from earatlas.hrtf.head import Head, ImpulseResponses
from earatlas.hrtf.interpolation import ResponsesBetween
from earatlas.simulation.trajectories import moved, path_of
from earatlas.types import Array, field_values

RATE = 16_000


def test_a_way_is_walked_evenly() -> None:
    """Along great circles, also across 180 degrees; before and after it, the source stands."""
    trajectory = ea.Trajectory((1.0, 3.0, 4.0), ((160, 0), (-160, 0), (-160, 30)))
    times = np.array([0.0, 1.0, 1.5, 2.0, 2.9, 3.5, 9.0])
    expected = [(160, 0), (160, 0), (170, 0), (180, 0), (-162, 0), (-160, 15), (-160, 30)]
    assert great_circle_error(trajectory.at(times), expected).max() < 1e-6
    steps = trajectory.at(np.linspace(1, 3, 41))
    np.testing.assert_allclose(great_circle_error(steps[1:], steps[:-1]), 1.0, atol=1e-9)
    apart = great_circle_error(trajectory.checkpoints()[1:], trajectory.checkpoints()[:-1])
    assert apart.max() <= 1.0 + 1e-9
    assert repr(trajectory) == "Trajectory(3 waypoints, 3.0 s, from (160, 0) to (-160, 30) degrees)"
    assert trajectory.to_list()[1] == [3.0, -160.0, 0.0]
    np.testing.assert_array_equal(
        path_of("1,160,0/3,-160,0/4,-160,30").at(times), trajectory.at(times)
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0,40,0", "path must have two waypoints or more"),
        ("0,40,0/4", "path must be SECONDS,AZIMUTH,ELEVATION/"),
        ("0,40/4,-40", "path must be SECONDS,AZIMUTH,ELEVATION/"),
        ("0,40,0/4,left,0", "path must be SECONDS,AZIMUTH,ELEVATION/"),
        ("4,40,0/0,-40,0", r"path must have times from 0 on that grow, got \[4\.0, 0\.0\]"),
        ("0,40,0/0,-40,0", "path must have times from 0 on that grow"),
        ("-1,40,0/4,-40,0", "path must have times from 0 on that grow"),
        ("0,40,0/nan,-40,0", "path must have times from 0 on that grow"),
        ("0,40,0/0.1,-40,0", r"path must not jump, got 80 degrees from 0 to 0\.1 s"),
        ("0,90,0/5,-90,0", "path must say which way it goes"),
        ("0,40,0/5,0,100", "path must"),
    ],
)
def test_paths_that_cannot_be(text: str, words: str) -> None:
    """In the house wording, with what to do."""
    with pytest.raises(InputError, match=words) as error:
        path_of(text)
    assert str(error.value).count(". ") >= 1


@pytest.fixture(scope="module")
def places(atlas_head: ea.Head) -> ResponsesBetween:
    """The simulated head between its directions."""
    return ResponsesBetween.of(atlas_head, RATE)


def test_standing_still_is_one_response(places: ResponsesBetween, rng: np.random.Generator) -> None:
    """Frames that fade into each other leave no trace, whatever the length."""
    still = ea.Trajectory((0, 1), ((33, 14), (33, 14)))
    for n in (1, 79, 80, 81, 12_345):
        sound = rng.normal(size=n)
        image = moved(sound, places, still, start=0, rate=RATE)
        pair = places.at(np.array([[33.0, 14.0]]))[0]
        expected = np.stack([np.convolve(sound, ear) for ear in pair])
        np.testing.assert_allclose(image, expected, atol=1e-11 * np.abs(expected).max() + 1e-14)


def test_a_moving_source_is_heard_where_it_is(
    places: ResponsesBetween, rng: np.random.Generator
) -> None:
    """At 40 degrees a second, 20 ms of it are those of a source that stands at that place."""
    trajectory = ea.Trajectory((0, 3), ((60, 0), (-60, 0)))
    sound = rng.normal(size=3 * RATE)
    image = moved(sound, places, trajectory, start=0, rate=RATE)
    for second in (0.5, 1.5, 2.25):
        part = slice(int((second - 0.01) * RATE), int((second + 0.01) * RATE))
        errors = []
        for shift in (0.0, 3.0):  # there, and three degrees beside it
            place = trajectory.at(second)[0] + np.array([shift, 0.0])
            pair = places.at(place[None])[0]
            stands = np.stack([np.convolve(sound, ear) for ear in pair])[:, part]
            errors.append(((stands - image[:, part]) ** 2).sum() / (stands**2).sum())
        assert 10 * np.log10(errors[0]) < -18
        assert errors[1] > 4 * errors[0]


class Nearest(ResponsesBetween):
    """The response of the nearest measured direction, as if nothing were between them."""

    def at(self, directions: Array) -> Array:
        """Switched from one to the next."""
        return super().at(
            self.head.directions[ea.Sphere().nearest(self.head.directions, directions)]
        )


def test_nothing_is_switched(places: ResponsesBetween) -> None:
    """A tone that walks stays a tone: a switch clicks at all frequencies."""
    time = np.arange(2 * RATE) / RATE
    tone = np.sin(2 * np.pi * 3000 * time)
    clicks = []
    for way in (places, Nearest(**field_values(places))):
        image = moved(tone, way, ea.Trajectory((0, 2), ((40, 0), (-20, 10))), start=0, rate=RATE)
        inner = image[:, RATE // 4 : RATE // 4 + RATE] * np.hanning(RATE)
        power = np.abs(np.fft.rfft(inner)) ** 2  # a bin a Hz
        total = power.sum(axis=1)
        power[:, 2900:3100] = 0
        clicks.append(10 * np.log10((power.sum(axis=1) / total).max()))
    assert clicks[0] < -55
    assert clicks[0] < clicks[1] - 10


def test_the_start_of_a_sound_is_on_the_way(places: ResponsesBetween) -> None:
    """Times are those of the scene: a sound that begins late begins farther on."""
    trajectory = ea.Trajectory((0, 2), ((60, 0), (-60, 0)))
    pulse = np.zeros(100)
    pulse[0] = 1.0
    late = moved(pulse, places, trajectory, start=RATE, rate=RATE)
    expected = places.at(np.array([[0.0, 0.0]]))[0]
    np.testing.assert_allclose(late[:, : expected.shape[1]], expected, atol=1e-6)


def test_scenes_with_a_walker(tmp_path: Path, atlas_head: ea.Head) -> None:
    """Beside one that stands: both have their levels, and the truth says who was where."""
    sounds = [ea.synthetic_speech(2.0, seed=1), ea.synthetic_speech(1.5, seed=2)]
    trajectory = ea.Trajectory((0, 2), ((60, 0), (-20, 0)))
    settings = ea.SceneSettings(overlap=0.5, levels_db=(0.0, -6.0), snr_db=40)
    scene = ea.render_scene(atlas_head, sounds, [(-50.0, 10.0), trajectory], settings=settings)
    total = scene.images.sum(axis=0) + scene.noise
    np.testing.assert_allclose(scene.mixture.samples, total, atol=1e-15)
    energy = (scene.images**2).sum(axis=(1, 2)) / [len(s) for s in sounds]
    np.testing.assert_allclose(10 * np.log10(energy[1] / energy[0]), -6, atol=1e-9)
    begin = scene.starts_seconds[1]
    assert begin > 0.3
    np.testing.assert_allclose(scene.directions[1], trajectory.at(begin + 0.75)[0])
    track = scene.directions_at([0.0, 1.0, 5.0])
    assert track.shape == (2, 3, 2)
    np.testing.assert_allclose(track[1], trajectory.at([0.0, 1.0, 5.0]))
    np.testing.assert_array_equal(track[0], np.repeat(scene.directions[:1], 3, axis=0))
    assert scene.early is scene.images
    scene.write(tmp_path)
    written = json.loads((tmp_path / "scene.json").read_text())["sources"]
    assert written[1]["path"] == [[0.0, 60.0, 0.0], [2.0, -20.0, 0.0]]
    assert "path" not in written[0]


def test_between_the_measured_directions(atlas_head: ea.Head) -> None:
    """If asked for, at the wished place itself; a measured one is what it was."""
    sound = np.random.default_rng(0).normal(size=4000)
    wished = [[33.0, 14.0], atlas_head.directions[100].tolist()]
    exact, near = (
        ea.render_scene(
            atlas_head,
            [sound] * 2,
            wished,
            settings=ea.SceneSettings(between=between, snr_db=np.inf),
        )
        for between in (True, False)
    )
    np.testing.assert_array_equal(exact.directions, wished)
    assert great_circle_error(near.directions[0], wished[0]) > 0.5
    truth = ea.render_scene(
        ea.simulated_head(wished), [sound] * 2, wished, settings=ea.SceneSettings(snr_db=np.inf)
    )
    n = truth.images.shape[-1]
    ratios = []
    for scene in (exact, near):
        error = scene.images[0, :, :n] / np.abs(scene.images[0]).max()
        true = truth.images[0] / np.abs(truth.images[0]).max()
        ratios.append(10 * np.log10((true**2).sum() / ((true - error) ** 2).sum()))
    assert ratios[0] > ratios[1] + 5
    m = near.images.shape[-1]
    ours, theirs = exact.images[1, :, :m], near.images[1]
    np.testing.assert_allclose(ours / np.abs(ours).max(), theirs / np.abs(theirs).max(), atol=1e-12)


def reverberant() -> Head:
    """A head that was measured in a room."""
    x = ea.Sphere().grid(30.0)
    samples = np.random.default_rng(0).normal(size=(len(x), 2, 4000))
    return Head("room", x, ImpulseResponses(samples, RATE))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"room": ea.Room()}, "room must be None for sources that move"),
        ({"head": reverberant()}, "head must be measured in the open .* responses of 0.25 s"),
        ({"route": ((0, 2), ((40, 0), (-40, 0))), "front": True}, "path must be near measured"),
    ],
)
def test_walks_that_cannot_be_rendered(
    atlas_head: ea.Head, options: dict[str, Any], words: str
) -> None:
    """Through a room, round a head in a room, and out of what the head covers."""
    head = options.get("head", atlas_head)
    if options.get("front"):  # a gap in the middle of the way; both ends are measured
        head = head.subset(np.abs(head.directions[:, 0]) > 25)
    trajectory = ea.Trajectory(*options.get("route", ((0, 1), ((40, 0), (20, 0)))))
    with pytest.raises(InputError, match=words):
        ea.render_scene(head, [ea.synthetic_speech(0.5)], [trajectory], room=options.get("room"))
