"""Directions, sizes and lengths in the words of a page.

In: numbers. Out: text that needs no escaping.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from earatlas.space.spaces import Space
from earatlas.types import Array

__all__ = [
    "direction_words",
    "length_words",
    "number_words",
    "percent_words",
    "place_words",
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


def place_words(space: Space, place: Array) -> str:
    """A place in words, or its coordinates where it is no direction."""
    if space.holds_directions:
        return direction_words(place)
    return "at " + ", ".join(f"{v:.0f}" for v in place)


def number_words(space: Space, place: Array) -> str:
    """A place in numbers."""
    if not space.holds_directions:
        return ", ".join(f"{v:.1f}" for v in place)
    named = zip(("azimuth", "elevation"), place, strict=False)
    return ", ".join(f"{name} {v:.1f}°".replace("-", "−") for name, v in named)


def sure_words(space: Space, area: float) -> str:
    """The size of a credible region."""
    if space.dims == 1:
        return f"{area:.0f}{'° of azimuth' if space.holds_directions else ''}"
    if not space.holds_directions:
        return f"an area of {area:.4g}"
    return f"{area:,.0f} square degrees, as a circle of ±{np.sqrt(area / np.pi):.1f}°"


def percent_words(share: float) -> str:
    """A share, of which something is left however small it is."""
    return "under 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def length_words(seconds: float) -> str:
    """A length of time.

    >>> length_words(3.04), length_words(61.2), length_words(3700)
    ('3.0 s', '1 min 1 s', '1 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {whole % 60} s"
