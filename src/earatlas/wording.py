"""Text for directions, credible regions, durations and speeds, as shown to users.

Commands, figures, reports and the studio all use these functions. The returned text needs no
escaping.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
from numpy.typing import ArrayLike

from earatlas.geometry.alternatives import Alternative
from earatlas.geometry.lateral_angle import LateralAngle
from earatlas.geometry.spaces import Space

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = [
    "UNKNOWN_DIRECTION",
    "UNKNOWN_RADIUS_DEGREES",
    "coordinate_names",
    "format_alternatives",
    "format_coordinates",
    "format_direction",
    "format_duration",
    "format_error",
    "format_one_decimal",
    "format_percent",
    "format_position",
    "format_radius",
    "format_region",
    "format_sampling_rate",
    "format_speed",
    "is_unknown",
    "listed_alternatives",
    "repr_alternatives",
    "repr_doubts",
    "rounded_repr",
    "unit_field",
]

# A region of a larger radius (degrees) covers more than half of the sphere or circle.
UNKNOWN_RADIUS_DEGREES = 90.0
UNKNOWN_DIRECTION = "direction unknown"


@dataclass(frozen=True, slots=True)
class ListedAlternatives:
    """When the alternatives of an unknown direction are listed, and lateral angles stated."""

    max_count: int = 3  # more alternatives are not informative
    # Each of them, and a stated lateral angle, is at most this wide; the direction is wider.
    max_radius_degrees: float = 40.0


_LISTED = ListedAlternatives()


def is_unknown(radius: float, space: Space | None = None) -> bool:
    """Whether a 90 % credible radius, in degrees, is so large that the direction is unknown.

    A position in a `space` that has no directions, such as pixels, is never unknown.
    """
    return (space is None or space.holds_directions) and radius > UNKNOWN_RADIUS_DEGREES


def format_direction(direction: ArrayLike, radius: float = 0.0) -> str:
    """Describe a direction (azimuth, elevation), or an azimuth alone, in words.

    All angles are in degrees. `radius` is the 90 % credible radius of an estimate.

    >>> format_direction([30.2, 10.4])
    '30° left, 10° up, front'
    >>> format_direction([-150.0, 0.0])
    '150° right, ear height, behind'
    >>> format_direction([0.3, -20.0]), format_direction([12.0, 88.0])
    ('straight ahead, 20° down', 'straight above')
    >>> format_direction([30.2, 10.4], radius=163.0)
    'direction unknown'
    """
    if is_unknown(radius):
        return UNKNOWN_DIRECTION
    x = np.asarray(direction, dtype=np.float64)
    azimuth = round(float(x[0]))
    side = "left" if azimuth > 0 else "right"
    horizontal = {0: "straight ahead", 180: "straight behind"}.get(
        abs(azimuth), f"{abs(azimuth)}° {side}"
    )
    zone = [] if abs(azimuth) in (0, 180) else [_zone(abs(azimuth))]
    if len(x) == 1:
        return ", ".join([horizontal, *zone])
    elevation = round(float(x[1]))
    if abs(elevation) >= 85:
        return "straight above" if elevation > 0 else "straight below"
    height = f"{abs(elevation)}° {'up' if elevation > 0 else 'down'}" if elevation else "ear height"
    return ", ".join([horizontal, height, *zone])


def listed_alternatives(
    alternatives: Sequence[Alternative], radius: float, space: Space | None = None
) -> list[Alternative]:
    """Return the alternatives that are shown besides a direction of a 90 % credible radius.

    They are all but the first one. If the direction is unknown they are all, provided that there
    are at most three and each is narrow; otherwise none.
    """
    if not is_unknown(radius, space):
        return list(alternatives[1:])
    few = len(alternatives) <= _LISTED.max_count
    narrow = all(one.radius_90 <= _LISTED.max_radius_degrees for one in alternatives)
    return list(alternatives) if few and narrow else []


def format_alternatives(
    space: Space,
    alternatives: Sequence[Alternative],
    radius: float,
    lateral_angle: LateralAngle | None = None,
) -> str | None:
    """Describe the alternatives of a direction of a 90 % credible radius; None if there are none.

    If the radius is large, a narrow lateral angle follows.

    >>> from earatlas.geometry.spaces import Sphere
    >>> both = [Alternative(np.array([a, 0.0]), p, 9.0) for a, p in ((0, 0.6), (180, 0.3))]
    >>> format_alternatives(Sphere(), both, 70.0)
    'or straight behind, ear height (30 %)'
    >>> format_alternatives(Sphere(), both, 170.0)
    'possibly straight ahead, ear height (60 %), or straight behind, ear height (30 %)'
    >>> format_alternatives(Sphere(), both, 70.0, LateralAngle(-0.2, 8.0))
    'or straight behind, ear height (30 %); in the median plane, 90 % within 8.0°'
    """
    texts = [
        f"{format_position(space, one.direction[: space.dims])} ({format_percent(one.probability)})"
        for one in listed_alternatives(alternatives, radius, space)
    ]
    prefix = "possibly " if is_unknown(radius, space) else "or "
    parts = [prefix + ", or ".join(texts)] if texts else []
    if _is_informative(lateral_angle, radius):
        parts.append(_format_lateral_angle(space, lateral_angle))
    return "; ".join(parts) or None


def _is_informative(lateral_angle: LateralAngle | None, radius: float) -> TypeGuard[LateralAngle]:
    """Whether a lateral angle is known well enough to be stated, and its direction is not."""
    limit = _LISTED.max_radius_degrees
    return lateral_angle is not None and lateral_angle.radius_90 <= limit < radius


def _format_lateral_angle(space: Space, lateral_angle: LateralAngle) -> str:
    """Describe a lateral angle."""
    angle = round(lateral_angle.angle)
    side = f"{abs(angle)}° {'left' if angle > 0 else 'right'} of" if angle else "in"
    return f"{side} the median plane, 90 % within {format_radius(space, lateral_angle.radius_90)}"


def repr_alternatives(
    alternatives: Sequence[Alternative],
    radius: float,
    space: Space | None = None,
    lateral_angle: LateralAngle | None = None,
) -> str:
    """Return what `format_alternatives` describes as numbers for a repr; empty if nothing."""
    places = [
        f"({', '.join(f'{v:.1f}' for v in one.direction)}) {format_percent(one.probability)}"
        for one in listed_alternatives(alternatives, radius, space)
    ]
    text = f", or {' or '.join(places)}" if places else ""
    if _is_informative(lateral_angle, radius):
        text += f", lateral angle {lateral_angle.angle:.0f} ± {lateral_angle.radius_90:.0f}"
    return text


def repr_doubts(kinds: Iterable[str]) -> str:
    """Return the kinds of doubts, each once, for a repr; empty if there are none.

    >>> repr_doubts(["too short", "noisy", "noisy"]), repr_doubts([])
    (', doubts: too short, noisy', '')
    """
    text = ", ".join(dict.fromkeys(kinds))
    return f", doubts: {text}" if text else ""


def coordinate_names(space: Space) -> tuple[str, ...]:
    """Return the column names of positions in tables.

    >>> from earatlas.geometry.spaces import Plane, Sphere
    >>> coordinate_names(Sphere()), coordinate_names(Plane(((0, 640), (0, 480))))
    (('azimuth', 'elevation'), ('x1', 'x2'))
    >>> coordinate_names(Plane.image(640, 480))
    ('x', 'y')
    """
    if space.holds_directions:
        return ("azimuth", "elevation")[: space.columns]
    if space.unit_name and space.columns <= 2:
        return ("x", "y")[: space.columns]
    return tuple(f"x{c + 1}" for c in range(space.columns))


def unit_field(space: Space) -> dict[str, str]:
    """Return the unit of positions and radii as a JSON field, unless it is degrees.

    >>> from earatlas.geometry.spaces import Plane, Sphere
    >>> unit_field(Sphere()), unit_field(Plane.image(640, 480))
    ({}, {'unit': 'pixels'})
    """
    unit = space.unit_name
    return {"unit": unit} if unit not in ("", "degrees") else {}


def _zone(azimuth: float) -> str:
    """Return front, side or behind for an absolute azimuth in degrees."""
    return "front" if azimuth <= 75 else "side" if azimuth < 105 else "behind"


def format_position(space: Space, position: ArrayLike, radius: float = 0.0) -> str:
    """Describe a position in words, or by its coordinates if the space has no directions.

    `radius` is the 90 % credible radius of an estimate, as for `format_direction`.
    """
    if space.holds_directions:
        return format_direction(position, radius)
    place = ", ".join(_whole(v) for v in np.asarray(position, dtype=np.float64))
    return f"at {place} {space.unit_name}".rstrip()


def format_coordinates(space: Space, position: ArrayLike) -> str:
    """Format a position as numbers with one decimal."""
    numbers = [_number(v) for v in np.asarray(position, dtype=np.float64)]
    if not space.holds_directions:
        return f"{', '.join(numbers)} {space.unit_name}".rstrip()
    named = zip(("azimuth", "elevation"), numbers, strict=False)
    return ", ".join(f"{name} {number}°" for name, number in named)


def format_one_decimal(value: float) -> str:
    """Round to one decimal, by way of the two decimals in JSON, so that both agree.

    >>> format_one_decimal(-50.5465), format_one_decimal(-50.55), format_one_decimal(-0.04)
    ('-50.6', '-50.6', '0.0')
    """
    hundredths = round(100 * float(value))
    tenths = (abs(hundredths) + 5) // 10
    return f"{(-tenths if hundredths < 0 else tenths) / 10 + 0.0:.1f}"


def rounded_repr(instance: DataclassInstance) -> str:
    """Return the repr of a dataclass with numbers rounded to three decimals."""
    values = ((field.name, getattr(instance, field.name)) for field in fields(instance))
    text = ", ".join(f"{name}={_rounded(value)!r}" for name, value in values)
    return f"{type(instance).__name__}({text})"


def _rounded(value: object) -> object:
    """Return a number, or the numbers of a tuple, rounded to three decimals."""
    if isinstance(value, tuple):
        return tuple(map(_rounded, value))
    return round(float(value), 3) + 0.0 if isinstance(value, float) else value


def _whole(value: float) -> str:
    """Format an integer with a minus sign instead of a hyphen, and never -0."""
    return f"{round(float(value)) + 0}".replace("-", "−")


def _number(value: float) -> str:
    """Format a number with one decimal and a minus sign instead of a hyphen, and never -0."""
    return format_one_decimal(value).replace("-", "−")


def format_radius(space: Space, radius: float) -> str:
    """Format a credible radius in the units of the space.

    >>> from earatlas.geometry.spaces import Circle, Plane, Sphere
    >>> format_radius(Sphere(), 4.17), format_radius(Circle(), 12.6), format_radius(Circle(), 0.013)
    ('4.2°', '13°', '0.01°')
    >>> format_radius(Plane(((0, 640), (0, 480))), 4.17)
    '4.2'
    >>> format_radius(Plane.image(640, 480), 41.7)
    '42 pixels'
    """
    number = f"{radius:.1g}" if radius < 0.1 else f"{radius:.{int(round(radius, 1) < 10)}f}"
    return f"{number}{_unit_suffix(space)}"


def _unit_suffix(space: Space) -> str:
    """Return what follows a number in the unit of a space."""
    return "°" if space.holds_directions else f" {space.unit_name}".rstrip()


def format_region(space: Space, radius: float, size: float) -> str:
    """Describe a credible region by its radius and its size (area or length).

    That of an unknown direction, which may be a ring or several parts, has a size alone.

    >>> from earatlas.geometry.spaces import Circle, Sphere
    >>> format_region(Sphere(), 4.17, 54.0)
    'within 4.2° (54 square degrees)'
    >>> format_region(Circle(), 4.23, 8.4)
    'within 4.2° (an arc of 8.4°)'
    >>> format_region(Sphere(), 120.0, 3041.0)
    '7 % of all directions'
    """
    if is_unknown(radius, space):
        return f"{format_percent(size / space.max_region_area)} of all directions"
    within = f"within {format_radius(space, radius)}"
    if space.dims == 1:
        kind = "an arc" if space.holds_directions else "an interval"
        return f"{within} ({kind} of {format_radius(space, size)})"
    rounded = f"{size:.1f}" if size < 10 else f"{size:,.0f}"
    if space.unit_name:
        return f"{within} ({rounded} square {space.unit_name})"
    return f"{within} (an area of {rounded})"


def format_error(space: Space, error: float) -> str:
    """Format a localization error in the units of the space."""
    return f"{error:.1f}{_unit_suffix(space)}"


def format_percent(fraction: float) -> str:
    """Format a fraction as a percentage; a small positive one is not rounded to 0.

    >>> format_percent(0.317), format_percent(0.003), format_percent(0.0)
    ('32 %', 'under 1 %', '0 %')
    """
    return "under 1 %" if 0 < fraction < 0.005 else f"{100 * fraction:.0f} %"


def format_duration(seconds: float) -> str:
    """Format a duration.

    >>> format_duration(0.04), format_duration(3.04), format_duration(61.2), format_duration(3700)
    ('under 0.1 s', '3.0 s', '1 min 1 s', '1 h 1 min')
    """
    if seconds < 0.1:
        return "under 0.1 s"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {whole % 60} s"


def format_sampling_rate(rate: int) -> str:
    """Format a sampling rate given in Hz.

    >>> format_sampling_rate(16_000), format_sampling_rate(44_100), format_sampling_rate(22_050)
    ('16 kHz', '44.1 kHz', '22.05 kHz')
    """
    return f"{rate / 1000:.9g} kHz"


def format_speed(seconds: float, recording_seconds: float) -> str:
    """Describe a processing time, relative to the duration of the recording.

    >>> format_speed(2.4, 1.33), format_speed(0.5, 2.8)
    ('2.4 s, 1.8 times as long as the recording', '0.5 s, 5.6 times faster than real time')
    >>> format_speed(2.0, 2.04)
    '2.0 s, as long as the recording'
    """
    duration = format_duration(seconds)
    # The floors avoid a division by zero; they are below the resolution of any clock.
    slower = max(seconds, 1e-6) / max(recording_seconds, 1e-6)
    if 0.95 < slower < 1.05:
        return f"{duration}, as long as the recording"
    if slower > 1:
        return f"{duration}, {_times(slower)} times as long as the recording"
    return f"{duration}, {_times(1 / slower)} times faster than real time"


def _times(factor: float) -> str:
    """Format a factor with one decimal below 10 and none above."""
    return f"{factor:.1f}" if factor < 9.95 else f"{factor:,.0f}"
