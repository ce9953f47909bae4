"""Trajectories: directions over time, images of moving sources, and invalid paths."""

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
from earatlas.hrtf.interpolation import InterpolatedResponses
from earatlas.simulation.trajectories import parse_trajectory, render_moving_source
from earatlas.types import Array, field_values

RATE = 16_000


def test_speed_is_constant_between_waypoints() -> None:
    """It is constant along great circles; a source is static before and after the waypoints."""
    trajectory = ea.Trajectory((1.0, 3.0, 4.0), ((160, 0), (-160, 0), (-160, 30)))
    times = np.array([0.0, 1.0, 1.5, 2.0, 2.9, 3.5, 9.0])
    expected = [(160, 0), (160, 0), (170, 0), (180, 0), (-162, 0), (-160, 15), (-160, 30)]
    assert great_circle_error(trajectory.at(times), expected).max() < 1e-6
    steps = trajectory.at(np.linspace(1, 3, 41))
    np.testing.assert_allclose(great_circle_error(steps[1:], steps[:-1]), 1.0, atol=1e-9)
    distances = great_circle_error(trajectory.checkpoints()[1:], trajectory.checkpoints()[:-1])
    assert distances.max() <= 1.0 + 1e-9
    assert repr(trajectory) == "Trajectory(3 waypoints, 3.0 s, from (160, 0) to (-160, 30) degrees)"
    assert trajectory.to_list()[1] == [3.0, -160.0, 0.0]
    np.testing.assert_array_equal(
        parse_trajectory("1,160,0/3,-160,0/4,-160,30").at(times), trajectory.at(times)
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,40,0", "path must have two waypoints or more"),
        ("0,40,0/4", "path must be SECONDS,AZIMUTH,ELEVATION/"),
        ("0,40/4,-40", "path must be SECONDS,AZIMUTH,ELEVATION/"),
        ("0,40,0/4,left,0", "path must be SECONDS,AZIMUTH,ELEVATION/"),
        ("4,40,0/0,-40,0", r"path must have times that increase from 0 on, got \[4\.0, 0\.0\]"),
        ("0,40,0/0,-40,0", "path must have times that increase from 0 on"),
        ("-1,40,0/4,-40,0", "path must have times that increase from 0 on"),
        ("0,40,0/nan,-40,0", "path must have times that increase from 0 on"),
        ("0,40,0/0.1,-40,0", r"path must not jump, got 80 degrees from 0 to 0\.1 s"),
        ("0,90,0/5,-90,0", "path must say which way it goes"),
        ("0,40,0/5,0,100", "path must"),
    ],
)
def test_invalid_paths_are_rejected(text: str, message: str) -> None:
    """The error states the rule, the value and a remedy."""
    with pytest.raises(InputError, match=message) as error:
        parse_trajectory(text)
    assert str(error.value).count(". ") >= 1


@pytest.fixture(scope="module")
def interpolated(atlas_head: ea.Head) -> InterpolatedResponses:
    """Interpolated responses of the simulated head."""
    return InterpolatedResponses.of(atlas_head, RATE)


def test_static_trajectory_equals_one_response(
    interpolated: InterpolatedResponses, rng: np.random.Generator
) -> None:
    """Overlapping frames add up to the plain convolution for any length."""
    static = ea.Trajectory((0, 1), ((33, 14), (33, 14)))
    for n in (1, 79, 80, 81, 12_345):
        sound = rng.normal(size=n)
        image = render_moving_source(sound, interpolated, static, start=0, rate=RATE)
        pair = interpolated.at(np.array([[33.0, 14.0]]))[0]
        expected = np.stack([np.convolve(sound, ear) for ear in pair])
        np.testing.assert_allclose(image, expected, atol=1e-11 * np.abs(expected).max() + 1e-14)


def test_moving_source_has_the_response_of_its_direction(
    interpolated: InterpolatedResponses, rng: np.random.Generator
) -> None:
    """At 40 degrees per second, 20 ms equal those of a static source in that direction."""
    trajectory = ea.Trajectory((0, 3), ((60, 0), (-60, 0)))
    sound = rng.normal(size=3 * RATE)
    image = render_moving_source(sound, interpolated, trajectory, start=0, rate=RATE)
    for second in (0.5, 1.5, 2.25):
        part = slice(int((second - 0.01) * RATE), int((second + 0.01) * RATE))
        errors = []
        for shift in (0.0, 3.0):  # in that direction, and three degrees off
            place = trajectory.at(second)[0] + np.array([shift, 0.0])
            pair = interpolated.at(place[None])[0]
            static = np.stack([np.convolve(sound, ear) for ear in pair])[:, part]
            errors.append(((static - image[:, part]) ** 2).sum() / (static**2).sum())
        assert 10 * np.log10(errors[0]) < -18
        assert errors[1] > 4 * errors[0]


class NearestResponses(InterpolatedResponses):
    """Responses of the nearest measured directions, without interpolation."""

    def at(self, directions: Array) -> Array:
        """Return the responses of the nearest directions."""
        return super().at(
            self.head.directions[ea.Sphere().nearest(self.head.directions, directions)]
        )


def test_interpolation_avoids_clicks(interpolated: InterpolatedResponses) -> None:
    """A moving tone stays a tone; switching between responses clicks at all frequencies."""
    time = np.arange(2 * RATE) / RATE
    tone = np.sin(2 * np.pi * 3000 * time)
    clicks = []
    for responses in (interpolated, NearestResponses(**field_values(interpolated))):
        image = render_moving_source(
            tone, responses, ea.Trajectory((0, 2), ((40, 0), (-20, 10))), start=0, rate=RATE
        )
        inner = image[:, RATE // 4 : RATE // 4 + RATE] * np.hanning(RATE)
        power = np.abs(np.fft.rfft(inner)) ** 2  # one bin per Hz
        total = power.sum(axis=1)
        power[:, 2900:3100] = 0
        clicks.append(10 * np.log10((power.sum(axis=1) / total).max()))
    assert clicks[0] < -55
    assert clicks[0] < clicks[1] - 10


def test_trajectory_times_are_those_of_the_scene(interpolated: InterpolatedResponses) -> None:
    """A sound that starts later starts further along the trajectory."""
    trajectory = ea.Trajectory((0, 2), ((60, 0), (-60, 0)))
    pulse = np.zeros(100)
    pulse[0] = 1.0
    late = render_moving_source(pulse, interpolated, trajectory, start=RATE, rate=RATE)
    expected = interpolated.at(np.array([[0.0, 0.0]]))[0]
    np.testing.assert_allclose(late[:, : expected.shape[1]], expected, atol=1e-6)


def test_scene_with_a_moving_source(tmp_path: Path, atlas_head: ea.Head) -> None:
    """Beside a static source, levels are as requested, and the truth has the trajectory."""
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


def test_interpolated_static_sources(atlas_head: ea.Head) -> None:
    """Interpolated sources are exactly in their directions; measured ones are unchanged."""
    sound = np.random.default_rng(0).normal(size=4000)
    requested = [[33.0, 14.0], atlas_head.directions[100].tolist()]
    exact, near = (
        ea.render_scene(
            atlas_head,
            [sound] * 2,
            requested,
            settings=ea.SceneSettings(interpolate=interpolate, snr_db=np.inf),
        )
        for interpolate in (True, False)
    )
    np.testing.assert_array_equal(exact.directions, requested)
    assert great_circle_error(near.directions[0], requested[0]) > 0.5
    truth = ea.render_scene(
        ea.simulated_head(requested),
        [sound] * 2,
        requested,
        settings=ea.SceneSettings(snr_db=np.inf),
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
    """Return a head that was measured in a room."""
    x = ea.Sphere().grid(30.0)
    samples = np.random.default_rng(0).normal(size=(len(x), 2, 4000))
    return Head("room", x, ImpulseResponses(samples, RATE))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"room": ea.Room()}, "room must be None for sources that move"),
        ({"head": reverberant()}, "head must be anechoic .* responses of 0.25 s"),
        ({"waypoints": ((0, 2), ((40, 0), (-40, 0))), "front": True}, "path must be near measured"),
    ],
)
def test_moving_sources_that_cannot_be_rendered(
    atlas_head: ea.Head, options: dict[str, Any], message: str
) -> None:
    """Rooms, reverberant heads and unmeasured directions raise errors for moving sources."""
    head = options.get("head", atlas_head)
    if options.get("front"):  # a gap in the middle of the path; both ends are measured
        head = head.subset(np.abs(head.directions[:, 0]) > 25)
    trajectory = ea.Trajectory(*options.get("waypoints", ((0, 1), ((40, 0), (20, 0)))))
    with pytest.raises(InputError, match=message):
        ea.render_scene(head, [ea.synthetic_speech(0.5)], [trajectory], room=options.get("room"))
