"""Directions, sizes, lengths and speeds in words: one wording for commands, pictures and pages.

In: numbers. Out: text that needs no escaping.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from earatlas.geometry.spaces import Space

__all__ = [
    "direction_words",
    "error_words",
    "length_words",
    "number_words",
    "one_digit",
    "percent_words",
    "place_words",
    "radius_words",
    "rate_words",
    "speed_words",
    "sure_words",
]


def direction_words(direction: ArrayLike) -> str:
    """A direction (azimuth, elevation), or an azimuth alone, as one would say it.

    >>> direction_words([30.2, 10.4])
    '30° left, 10° up, front'
    >>> direction_words([-150.0, 0.0])
    '150° right, ear height, behind'
    >>> direction_words([0.3, -20.0]), direction_words([12.0, 88.0])
    ('straight ahead, 20° down', 'straight above')
    """
    x = np.asarray(direction, dtype=np.float64)
    azimuth = round(float(x[0]))
    side = "left" if azimuth > 0 else "right"
    across = {0: "straight ahead", 180: "straight behind"}.get(
        abs(azimuth), f"{abs(azimuth)}° {side}"
    )
    zone = [] if abs(azimuth) in (0, 180) else [_zone(abs(azimuth))]
    if len(x) == 1:
        return ", ".join([across, *zone])
    elevation = round(float(x[1]))
    if abs(elevation) >= 85:
        return "straight above" if elevation > 0 else "straight below"
    height = f"{abs(elevation)}° {'up' if elevation > 0 else 'down'}" if elevation else "ear height"
    return ", ".join([across, height, *zone])


def _zone(azimuth: float) -> str:
    return "front" if azimuth <= 75 else "side" if azimuth < 105 else "behind"


def place_words(space: Space, place: ArrayLike) -> str:
    """A place in words, or its coordinates where it is no direction."""
    if space.holds_directions:
        return direction_words(place)
    return "at " + ", ".join(_whole(v) for v in np.asarray(place, dtype=np.float64))


def number_words(space: Space, place: ArrayLike) -> str:
    """A place in numbers."""
    numbers = [_number(v) for v in np.asarray(place, dtype=np.float64)]
    if not space.holds_directions:
        return ", ".join(numbers)
    named = zip(("azimuth", "elevation"), numbers, strict=False)
    return ", ".join(f"{name} {number}°" for name, number in named)


def one_digit(value: float) -> str:
    """With one digit, by way of the two that JSON has: so it is the same wherever it is read.

    >>> one_digit(-50.5465), one_digit(-50.55), one_digit(-0.04)
    ('-50.6', '-50.6', '0.0')
    """
    hundredths = round(100 * float(value))
    tenths = (abs(hundredths) + 5) // 10
    return f"{(-tenths if hundredths < 0 else tenths) / 10 + 0.0:.1f}"


def _whole(value: float) -> str:
    """A whole number with that sign; never -0."""
    return f"{round(float(value)) + 0}".replace("-", "−")


def _number(value: float) -> str:
    """A number with one digit and the sign that belongs in a sentence; never -0."""
    return one_digit(value).replace("-", "−")


def radius_words(space: Space, radius: float) -> str:
    """How far a posterior reaches from its best place, in the units of the space.

    >>> from earatlas.geometry.spaces import Circle, Plane, Sphere
    >>> radius_words(Sphere(), 4.17), radius_words(Circle(), 12.6), radius_words(Circle(), 0.013)
    ('4.2°', '13°', '0.01°')
    >>> radius_words(Plane(((0, 640), (0, 480))), 4.17)
    '4.2'
    """
    number = f"{radius:.1g}" if radius < 0.1 else f"{radius:.{int(round(radius, 1) < 10)}f}"
    return f"{number}{'°' if space.holds_directions else ''}"


def sure_words(space: Space, radius: float, size: float) -> str:
    """How far a posterior reaches, and how large its credible region is.

    >>> from earatlas.geometry.spaces import Circle, Sphere
    >>> sure_words(Sphere(), 4.17, 54.0)
    'within 4.2° (54 square degrees)'
    >>> sure_words(Circle(), 4.23, 8.4)
    'within 4.2° (an arc of 8.4°)'
    """
    within = f"within {radius_words(space, radius)}"
    if space.dims == 1:
        kind = "an arc" if space.holds_directions else "a stretch"
        return f"{within} ({kind} of {radius_words(space, size)})"
    rounded = f"{size:.1f}" if size < 10 else f"{size:,.0f}"
    if space.holds_directions:
        return f"{within} ({rounded} square degrees)"
    return f"{within} (an area of {rounded})"


def error_words(space: Space, error: float) -> str:
    """How far a place is off, in the units of the space."""
    return f"{error:.1f}{'°' if space.holds_directions else ''}"


def percent_words(share: float) -> str:
    """A share, of which something is left however small it is.

    >>> percent_words(0.317), percent_words(0.003), percent_words(0.0)
    ('32 %', 'under 1 %', '0 %')
    """
    return "under 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def length_words(seconds: float) -> str:
    """A length of time.

    >>> length_words(0.04), length_words(3.04), length_words(61.2), length_words(3700)
    ('under 0.1 s', '3.0 s', '1 min 1 s', '1 h 1 min')
    """
    if seconds < 0.1:
        return "under 0.1 s"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {whole % 60} s"


def rate_words(rate: int) -> str:
    """A sampling rate.

    >>> rate_words(16_000), rate_words(44_100), rate_words(22_050)
    ('16 kHz', '44.1 kHz', '22.05 kHz')
    """
    return f"{rate / 1000:.9g} kHz"


def speed_words(seconds: float, recording_seconds: float) -> str:
    """How long the work on a recording took, and whether that is fast.

    >>> speed_words(2.4, 1.33), speed_words(0.5, 2.8)
    ('2.4 s, 1.8 times as long as the recording', '0.5 s, 5.6 times faster than real time')
    >>> speed_words(2.0, 2.04)
    '2.0 s, as long as the recording'
    """
    taken = length_words(seconds)
    # What rounds to 1.0 is no factor; the floors are below any clock's step and any recording.
    slower = max(seconds, 1e-6) / max(recording_seconds, 1e-6)
    if 0.95 < slower < 1.05:
        return f"{taken}, as long as the recording"
    if slower > 1:
        return f"{taken}, {_times(slower)} times as long as the recording"
    return f"{taken}, {_times(1 / slower)} times faster than real time"


def _times(factor: float) -> str:
    return f"{factor:.1f}" if factor < 9.95 else f"{factor:,.0f}"
