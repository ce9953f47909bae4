"""Words: a direction is said in one way, a size is a radius first, and slow is not said as fast."""

import numpy as np
import pytest

import earatlas as ea
from earatlas.geometry.spaces import Space
from earatlas.wording import (
    direction_words,
    length_words,
    number_words,
    one_digit,
    place_words,
    radius_words,
    speed_words,
    sure_words,
)

PIXELS = ea.Plane(((0, 640), (0, 480)))


@pytest.mark.parametrize(
    ("direction", "words"),
    [
        ([30.4, 9.6], "30° left, 10° up, front"),
        ([-90, -45], "90° right, 45° down, side"),
        ([-179.8, 0.2], "straight behind, ear height"),
        ([179.0, 3], "179° left, 3° up, behind"),
        ([0.2, 30], "straight ahead, 30° up"),
        ([120, -90], "straight below"),
        ([76.0], "76° left, side"),
    ],
)
def test_directions_in_words(direction: list[float], words: str) -> None:
    """Left is positive; the zone is said unless it is plain."""
    assert direction_words(direction) == words
    assert place_words(ea.Sphere(), np.array(direction)) == words


def test_places_in_numbers() -> None:
    """A minus, not a hyphen, and never before a zero; pixels have no degrees."""
    assert number_words(ea.Sphere(), [-63.74, -0.04]) == "azimuth −63.7°, elevation 0.0°"
    assert number_words(ea.Plane(((-90, 90),)), [12.25]) == "azimuth 12.3°"
    assert number_words(PIXELS, [101.26, 33]) == "101.3, 33.0"
    assert place_words(PIXELS, [101.26, 33]) == "at 101, 33"
    for exact in (-50.5465, -50.554, -50.55):  # one rounding, whether JSON came between or not
        assert one_digit(exact) == one_digit(round(exact, 2)) == "-50.6"
        assert number_words(ea.Circle(), [exact]) == "azimuth −50.6°"


@pytest.mark.parametrize(
    ("space", "radius", "size", "words"),
    [
        (ea.Sphere(), 4.2, 55.4, "within 4.2° (55 square degrees)"),
        (ea.Sphere(), 0.5, 0.785, "within 0.5° (0.8 square degrees)"),
        (ea.Cylinder(), 120.4, 5281.0, "within 120° (5,281 square degrees)"),
        (ea.Circle(), 4.2, 8.4, "within 4.2° (an arc of 8.4°)"),
        (ea.Plane(((-90, 90),)), 15.0, 30.0, "within 15° (an arc of 30°)"),
        (PIXELS, 9.96, 312.0, "within 10 (an area of 312)"),
        (ea.Plane(((0, 640),)), 2.5, 5.0, "within 2.5 (a stretch of 5.0)"),
    ],
)
def test_sizes_are_radii(space: Space, radius: float, size: float, words: str) -> None:
    """In every space the radius comes first; on a circle there is no area."""
    assert sure_words(space, radius, size) == words


def test_radii_keep_what_counts() -> None:
    """A decimal below ten, none above, and a needle is not said to have no width."""
    assert [radius_words(ea.Sphere(), r) for r in (0.013, 0.26, 9.94, 9.96, 123.4)] == [
        "0.01°", "0.3°", "9.9°", "10°", "123°",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "recording", "words"),
    [
        (2.4, 1.33, "2.4 s, 1.8 times as long as the recording"),
        (1.0, 5.6, "1.0 s, 5.6 times faster than real time"),
        (1.0, 1.04, "1.0 s, as long as the recording"),
        (600.0, 3600.0, "10 min 0 s, 6.0 times faster than real time"),
        (7200.0, 3.0, "2 h 0 min, 2,400 times as long as the recording"),
        (0.0, 4.0, "under 0.1 s, 4,000,000 times faster than real time"),
    ],
)
def test_speed_says_slower_or_faster(seconds: float, recording: float, words: str) -> None:
    """Never "× real time", which reads as fast when it is slow."""
    assert speed_words(seconds, recording) == words


def test_lengths_carry_over() -> None:
    """59.96 s is a minute, not 60.0 s."""
    assert [length_words(s) for s in (0.1, 59.94, 59.96, 3599.6)] == [
        "0.1 s", "59.9 s", "1 min 0 s", "1 h 0 min",
    ]  # fmt: skip
