"""Image source method: a reflection by hand, a slow oracle, the decay, and invalid input."""

import importlib.util
import itertools
import math
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from earatlas.errors import EaratlasWarning, InputError
from earatlas.geometry.angles import to_vectors
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.simulated import SPEED_OF_SOUND
from earatlas.simulation.image_source import ImageSourceSettings, Room, room_responses
from earatlas.types import Array

RATE = 44_100
Responses = tuple[Array, Array]  # directions (N, 2) and responses (N, 2, taps)
LEAD = round(ImageSourceSettings().lead_seconds * RATE)

needs_pyroomacoustics = pytest.mark.skipif(
    importlib.util.find_spec("pyroomacoustics") is None,
    reason="needs pyroomacoustics: pip install 'earatlas[rooms]'",
)


@pytest.fixture
def head() -> Responses:
    """Return directions (N, 2) and decaying random responses (N, 2, 7), all different."""
    directions = Sphere().grid(15.0)
    noise = np.random.default_rng(5).standard_normal((len(directions), 2, 7))
    return directions, noise * np.exp(-np.arange(7) / 3.0) * np.array([[1.0], [0.6]])


def nearest_response(head: Responses, vector: ArrayLike) -> Array:
    """Return the response in the measured direction nearest to a vector of any length."""
    directions, responses = head
    nearest: Array = responses[np.argmax(to_vectors(directions) @ np.asarray(vector))]
    return nearest


def mirror_images(
    room: Room, source: Sequence[float], reach_metres: float
) -> Iterator[tuple[Array, int]]:
    """Yield (offset from the listener, reflections) of all images up to a distance at least."""
    counts = (math.ceil(reach_metres / side) for side in room.size_metres)
    for cell in itertools.product(*(range(-n, n + 1) for n in counts)):
        image = [
            side * i + (place if i % 2 == 0 else side - place)
            for side, i, place in zip(room.size_metres, cell, source, strict=True)
        ]
        yield np.array(image) - room.listener_metres, sum(abs(i) for i in cell)


def number(pattern: str, message: object) -> float:
    """Return the number in a message."""
    found = re.search(pattern, str(message))
    assert found is not None, message
    return float(found[1])


def measured_t60(response: Array, rate: float) -> float:
    """Return T60 from the decay between -5 and -35 dB of the backward integral (Schroeder)."""
    left = np.cumsum(np.sum(response**2, axis=0)[::-1])[::-1]
    level_db = 10 * np.log10(left / left[0])
    used = (level_db < -5) & (level_db > -35)
    slope_db, _ = np.polyfit(np.flatnonzero(used) / rate, level_db[used], 1)
    return float(-60 / slope_db)


@needs_pyroomacoustics
def test_fully_absorbing_walls_leave_the_direct_sound(head: Responses) -> None:
    """At the smallest T60 the response is a lead, exactly that of the head, and silence."""
    room = Room(t60_seconds=Room().smallest_t60_seconds)
    directions = np.array([[40.0, 10.0], [-115.0, -20.0], [170.0, 35.0]])
    responses = room_responses(room, directions, *head, RATE, distance_metres=1.1)
    expected = np.zeros_like(responses)
    for m, vector in enumerate(to_vectors(directions)):
        expected[m, :, LEAD : LEAD + 7] = nearest_response(head, vector)
    np.testing.assert_array_equal(responses, expected)


@needs_pyroomacoustics
def test_reflection_from_the_left_wall(head: Responses) -> None:
    """The mirror image of a source ahead in the wall y = 5 arrives from the left, in time."""
    room = Room(t60_seconds=0.4, listener_metres=(2.7, 4.2, 1.3))
    (response,) = room_responses(room, [[0.0, 0.0]], *head, RATE, distance_metres=1.5)
    # The source is at (4.2, 4.2, 1.3), its image at (4.2, 2 * 5 - 4.2, 1.3).
    offset = np.array([1.5, 1.6, 0.0])
    distance = math.sqrt(1.5**2 + 1.6**2)
    start = LEAD + round((distance - 1.5) / 343.0 * RATE)
    gain = math.sqrt(1 - room.absorption) * 1.5 / distance
    np.testing.assert_allclose(
        response[:, start : start + 7], gain * nearest_response(head, offset), rtol=1e-6
    )


@needs_pyroomacoustics
def test_direct_sound_keeps_the_cues_of_the_head(head: Responses) -> None:
    """Before the first reflection, the interaural ratio is that of the head."""
    direction = np.array([[-63.0, 12.0]])
    (response,) = room_responses(Room(t60_seconds=0.5), direction, *head, RATE)
    left, right = np.fft.rfft(response[:, LEAD : LEAD + 7], 64)
    head_left, head_right = np.fft.rfft(nearest_response(head, to_vectors(direction)[0]), 64)
    np.testing.assert_allclose(right / left, head_right / head_left, rtol=1e-12)


@needs_pyroomacoustics
def test_matches_images_mirrored_one_by_one(head: Responses) -> None:
    """A loop over all mirror images, from the formulas, gives the same response.

    Lengths are exact in binary, because pyroomacoustics uses single precision.
    """
    room = Room((4.0, 3.0, 2.5), 0.12, (1.75, 1.25, 1.0))
    directions = np.array([[0.0, 0.0], [90.0, 0.0]])
    responses = room_responses(room, directions, *head, RATE, distance_metres=1.25)
    last = LEAD + math.ceil(0.12 * RATE)
    assert responses.shape == (2, 2, last + 7)

    expected = np.zeros_like(responses)
    for m, source in enumerate(([3.0, 1.25, 1.0], [1.75, 2.5, 1.0])):
        for offset, order in mirror_images(room, source, 42.5):  # c T60 and the direct path
            distance = np.linalg.norm(offset)
            start = LEAD + round((distance - 1.25) / SPEED_OF_SOUND * RATE)
            if start <= last:
                gain = (1 - room.absorption) ** (order / 2) * 1.25 / distance
                expected[m, :, start : start + 7] += gain * nearest_response(head, offset)
    # The few images that are missing at the end are inaudible after so many reflections.
    np.testing.assert_allclose(responses, expected, atol=1e-7 * np.abs(expected).max(), rtol=0)


@needs_pyroomacoustics
@pytest.mark.parametrize("t60_seconds", [0.3, 0.5])
def test_decay_has_the_requested_t60(head: Responses, t60_seconds: float) -> None:
    """The measured T60 is the requested one within the accuracy of Sabine's formula (13 %)."""
    room = Room(t60_seconds=t60_seconds)
    (response,) = room_responses(room, [[35.0, 0.0]], *head, RATE)
    assert measured_t60(response, RATE) == pytest.approx(t60_seconds, rel=0.15)


def test_wall_distances_by_hand() -> None:
    """Distances from (2.7, 2.2, 1.5) to the walls of 6 x 5 x 3 m are those by hand."""
    directions = [[0, 0], [90, 0], [-90, 0], [180, 0], [0, 90], [77, -90], [45, 0]]
    np.testing.assert_allclose(
        Room().wall_distances(directions),
        [3.3, 2.8, 2.2, 2.7, 1.5, 1.5, 2.8 * math.sqrt(2)],
        rtol=1e-12,
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size_metres": (6.0, 0.0, 3.0)}, "size_metres must be three positive lengths"),
        ({"size_metres": (6.0, 5.0)}, "size_metres must be three positive lengths"),
        ({"listener_metres": (2.7, 5.0, 1.5)}, "listener_metres must be inside the room"),
        ({"listener_metres": (2.7, 2.2, math.nan)}, "listener_metres must be inside the room"),
        ({"t60_seconds": math.nan}, "t60_seconds must be at least"),
    ],
)
def test_impossible_rooms_are_rejected(fields: dict[str, Any], message: str) -> None:
    """A room without volume, a listener outside it, and a T60 of NaN are rejected."""
    with pytest.raises(InputError, match=message):
        Room(**fields)


def test_error_for_unreachable_t60_names_a_reachable_one() -> None:
    """The smallest T60 is that of Sabine, 0.161 V / S, and the stated one works."""
    with pytest.raises(InputError, match="t60_seconds must be at least") as refusal:
        Room(t60_seconds=0.05)
    named = number(r"at least ([\d.]+)", refusal.value)
    assert 0 < named - 0.161 * 90 / 126 < 0.0015
    Room(t60_seconds=named)


@needs_pyroomacoustics
def test_error_for_source_outside_the_room_names_a_distance_that_fits(head: Responses) -> None:
    """The source behind a wall is named, and the stated distance works."""
    directions = [[0.0, 0.0], [-90.0, 0.0]]
    with pytest.raises(InputError, match=r"distance_metres must .*\[-90.0, 0.0\]") as refusal:
        room_responses(Room(), directions, *head, RATE, distance_metres=2.5)
    named = number(r"at most ([\d.]+) m", refusal.value)
    assert named == pytest.approx(2.2, abs=0.011)
    room_responses(Room(), directions, *head, RATE, distance_metres=named)


def test_invalid_heads_and_rooms_are_rejected(head: Responses) -> None:
    """Responses of another number, NaN, a zero rate, and too many images are rejected."""
    directions, responses = head
    broken = np.where(np.arange(7) == 3, np.nan, responses)
    cases: list[tuple[Any, str]] = [
        ((Room(), [[0, 0]], directions[1:], responses, RATE), "head_responses must have the shape"),
        ((Room(), [[0, 0]], directions, responses[:, 0], RATE), "head_responses must have the"),
        ((Room(), [[0, 0]], directions, broken, RATE), "head_responses must be finite"),
        ((Room(), [[0, 0]], directions, responses, 0), "rate must be positive"),
        ((Room(), [0, 0], directions, responses, RATE), "directions must be an array of shape"),
        ((Room(t60_seconds=3.0), [[0, 0]], *head, RATE), "room must need at most"),
    ]
    for arguments, message in cases:
        with pytest.raises(InputError, match=message):
            room_responses(*arguments)


@needs_pyroomacoustics
def test_reflections_from_unmeasured_directions_issue_a_warning(head: Responses) -> None:
    """For a head without low elevations, the stated mean angle is that of a slow loop."""
    directions, responses = head
    seen = directions[:, 1] > -15
    room = Room((4.0, 3.0, 2.5), 0.12, (1.75, 1.25, 1.0))
    with pytest.warns(EaratlasWarning, match="degrees from") as record:
        room_responses(
            room, [[0.0, 0.0]], directions[seen], responses[seen], RATE, distance_metres=1.25
        )
    angles, weights = [], []
    for offset, order in mirror_images(room, (3.0, 1.25, 1.0), 42.5):
        distance = np.linalg.norm(offset)
        if order > 0 and distance - 1.25 <= SPEED_OF_SOUND * room.t60_seconds:
            cosine = np.max(to_vectors(directions[seen]) @ offset) / distance
            angles.append(math.degrees(math.acos(min(cosine, 1.0))))
            weights.append((1 - room.absorption) ** order / distance**2)
    assert len(record) == 1
    named = number(r"([\d.]+) degrees from", record[0].message)
    assert named == pytest.approx(np.average(angles, weights=weights), abs=0.06)
    assert named > 10


def test_heads_with_one_elevation_are_rejected(head: Responses) -> None:
    """One elevation does not cover reflections of floor and ceiling."""
    azimuths = np.arange(-180.0, 180.0, 10.0)
    circle = np.column_stack([azimuths, np.full(36, 12.0)])
    with pytest.raises(InputError, match=r"floor and ceiling .* not measured"):
        room_responses(Room(), [[0.0, 12.0]], circle, head[1][:36], RATE)


def test_missing_package_error_names_the_command(
    head: Responses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without pyroomacoustics, the error contains the command to install it."""
    monkeypatch.setitem(sys.modules, "pyroomacoustics", None)
    with pytest.raises(InputError, match=r"pip install 'earatlas\[rooms\]'"):
        room_responses(Room(), [[0.0, 0.0]], *head, RATE)
