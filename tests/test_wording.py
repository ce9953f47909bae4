"""Text for directions, credible regions, durations and speeds."""

import numpy as np
import pytest

import earatlas as ea
from earatlas.geometry.alternatives import Alternative
from earatlas.geometry.lateral_angle import LateralAngle
from earatlas.geometry.spaces import Space
from earatlas.wording import (
    UNKNOWN_DIRECTION,
    format_alternatives,
    format_coordinates,
    format_direction,
    format_duration,
    format_one_decimal,
    format_position,
    format_radius,
    format_region,
    format_speed,
    is_unknown,
    repr_alternatives,
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
    """Left is positive; the zone is given unless it is obvious."""
    assert format_direction(direction) == words
    assert format_position(ea.Sphere(), np.array(direction)) == words


def test_positions_in_numbers() -> None:
    """Numbers have a minus sign, not a hyphen, and never -0; pixels have no degree sign."""
    assert format_coordinates(ea.Sphere(), [-63.74, -0.04]) == "azimuth −63.7°, elevation 0.0°"
    assert format_coordinates(ea.Plane(((-90, 90),)), [12.25]) == "azimuth 12.3°"
    assert format_coordinates(PIXELS, [101.26, 33]) == "101.3, 33.0"
    assert format_position(PIXELS, [101.26, 33]) == "at 101, 33"
    for exact in (-50.5465, -50.554, -50.55):  # the same with and without the rounding of JSON
        assert format_one_decimal(exact) == format_one_decimal(round(exact, 2)) == "-50.6"
        assert format_coordinates(ea.Circle(), [exact]) == "azimuth −50.6°"


@pytest.mark.parametrize(
    ("space", "radius", "size", "words"),
    [
        (ea.Sphere(), 4.2, 55.4, "within 4.2° (55 square degrees)"),
        (ea.Sphere(), 0.5, 0.785, "within 0.5° (0.8 square degrees)"),
        (ea.Cylinder(), 80.4, 5281.0, "within 80° (5,281 square degrees)"),
        (ea.Cylinder(), 120.4, 5281.0, "13 % of all directions"),
        (ea.Circle(), 4.2, 8.4, "within 4.2° (an arc of 8.4°)"),
        (ea.Plane(((-90, 90),)), 15.0, 30.0, "within 15° (an arc of 30°)"),
        (PIXELS, 9.96, 312.0, "within 10 (an area of 312)"),
        (ea.Plane(((0, 640),)), 2.5, 5.0, "within 2.5 (an interval of 5.0)"),
    ],
)
def test_regions_have_a_radius_or_a_size(
    space: Space, radius: float, size: float, words: str
) -> None:
    """The radius comes first, unless it is unknown; a circle has an arc instead of an area."""
    assert format_region(space, radius, size) == words


def test_precision_of_radii() -> None:
    """Radii have one decimal below 10° and none above; small ones are never 0."""
    assert [format_radius(ea.Sphere(), r) for r in (0.013, 0.26, 9.94, 9.96, 123.4)] == [
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
    """The text says "faster" or "as long as", because "× real time" is ambiguous."""
    assert format_speed(seconds, recording) == words


def test_durations_carry_over() -> None:
    """59.96 s is one minute, not 60.0 s."""
    assert [format_duration(s) for s in (0.1, 59.94, 59.96, 3599.6)] == [
        "0.1 s", "59.9 s", "1 min 0 s", "1 h 0 min",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("radius", "words"),
    [(4.2, "30° left, 10° up, front"), (90.0, "30° left, 10° up, front"),
     (90.1, "direction unknown"), (163.0, "direction unknown")],
)  # fmt: skip
def test_large_radii_mean_an_unknown_direction(radius: float, words: str) -> None:
    """A region that covers more than half of the sphere has no direction; pixels may be large."""
    assert format_direction([30.2, 10.4], radius) == words
    assert format_position(ea.Sphere(), [30.2, 10.4], radius) == words
    assert is_unknown(radius) == (words == UNKNOWN_DIRECTION)
    assert format_position(PIXELS, [101.26, 33], radius) == "at 101, 33"


def test_alternatives_of_an_unknown_direction_are_listed_if_few_and_narrow() -> None:
    """An unknown direction lists at most three alternatives, each within 40 degrees."""
    azimuths = (0.0, 180.0, 90.0, -90.0)
    narrow = [Alternative(np.array([a, 0.0]), 0.25, 12.0) for a in azimuths]
    wide = Alternative(np.array([90.0, 0.0]), 0.25, 41.0)
    text = format_alternatives(ea.Sphere(), narrow[:2], 120.0)
    assert text == (
        "possibly straight ahead, ear height (25 %), or straight behind, ear height (25 %)"
    )
    assert format_alternatives(ea.Sphere(), narrow, 120.0) is None
    assert format_alternatives(ea.Sphere(), [narrow[0], wide], 120.0) is None
    # A known direction lists all others.
    assert format_alternatives(ea.Sphere(), [narrow[0], wide], 80.0) == (
        "or 90° left, ear height, side (25 %)"
    )
    assert format_alternatives(ea.Sphere(), narrow[:1], 5.0) is None


def test_lateral_angle_of_an_uncertain_direction() -> None:
    """It is described if it is narrow, and the region of the direction is not."""
    one = [Alternative(np.array([30.0, 0.0]), 0.9, 70.0)]
    left, middle = LateralAngle(28.4, 8.2), LateralAngle(-0.3, 12.0)
    words = "28° left of the median plane, 90 % within 8.2°"
    assert format_alternatives(ea.Sphere(), one, 120.0, left) == words
    words = "in the median plane, 90 % within 12°"
    assert format_alternatives(ea.Circle(), one, 120.0, middle) == words
    assert repr_alternatives(one, 120.0, lateral_angle=left) == ", lateral angle 28 ± 8"
    assert format_alternatives(ea.Sphere(), one, 40.0, left) is None
    assert repr_alternatives(one, 40.0, lateral_angle=left) == ""
    assert format_alternatives(ea.Sphere(), one, 120.0, LateralAngle(28.0, 41.0)) is None
    narrow = [Alternative(np.array([30.0, 0.0]), 0.5, 12.0)]
    text = format_alternatives(ea.Sphere(), narrow, 120.0, left)
    words = "possibly 30° left, ear height, front (50 %); 28° left of the median plane, 90 % within"
    assert text == f"{words} 8.2°"
    assert repr_alternatives(narrow, 120.0, lateral_angle=left).endswith(", lateral angle 28 ± 8")


def test_alternatives_on_a_circle_have_no_elevation() -> None:
    """The second column of a circle is the elevation of the measurement, which is not shown."""
    both = [Alternative(np.array([a, 10.0]), 0.5, 12.0) for a in (30.0, 150.0)]
    assert format_alternatives(ea.Circle(), both, 80.0) == "or 150° left, behind (50 %)"
