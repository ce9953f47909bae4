"""Verdict about a learned head: what its atlas is good for, what it is not good for, and why.

Input: a `LearnedHead`. Output: an `AtlasVerdict` with the uses of the atlas and its limitations, as
enums with values. The command line makes the words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from earatlas.geometry.spaces import Circle, Space
from earatlas.hrtf.diagnosis import largest_gap
from earatlas.hrtf.label_plausibility import LabelReading
from earatlas.localization.learned_head import LearnedHead
from earatlas.types import Array

__all__ = [
    "AtlasVerdict",
    "Limitation",
    "LimitationKind",
    "Use",
    "VerdictSettings",
    "covered_fraction",
    "describe_gap",
    "directions_needed",
]


class Use(StrEnum):
    """What an atlas can be used for."""

    SINGLE_SOURCES = "one source without reverberation"
    MIXTURES = "mixtures"
    ROOMS = "reverberant rooms"
    STREAMS = "live separation"
    ALL_DIRECTIONS = "sources in all directions"


class LimitationKind(StrEnum):
    """Why an atlas is not good for a use."""

    LABELS = "directions do not fit the responses"
    LARGE_ERRORS = "held-out errors are large"
    CONE_CONFUSIONS = "front and back, or up and down, are often confused"
    UNTESTED = "too few directions to measure errors"
    NO_ROOM_MODEL = "no model of reverberant rooms"
    PARTIAL_COVERAGE = "a part of the directions was measured"
    GAP = "the measured directions have a gap"


# Evidence: docs/figures/settings/training.md, "verdict".
@dataclass(frozen=True, slots=True)
class VerdictSettings:
    """Thresholds of the verdict."""

    max_median_degrees: float = 10.0  # held-out error of a useful atlas
    max_unmeasured_median_degrees: float = 15.0  # the same of a population, for other heads
    max_beyond_30: float = 0.2  # fraction of held-out errors beyond 30 degrees
    useful_spacing_degrees: float = 12.0  # spacing of directions with such errors
    min_covered: float = 0.75  # fraction of the sphere, or of the circle
    cover_degrees: float = 15.0  # distance from a measured direction that is covered
    max_gap_degrees: float = 30.0  # radius of a cap without measured directions


_SETTINGS = VerdictSettings()


@dataclass(frozen=True, slots=True)
class Limitation:
    """A limitation, the measured value behind it, and how many directions would remove it."""

    kind: LimitationKind
    value: float = math.nan  # degrees or fraction, depending on the kind
    directions: int | None = None  # number that is needed; None: more of them do not help
    detail: str = ""  # for the reader, such as the reading of labels that fits
    heads: int | None = None  # number in a population, more of which reduce the errors
    centre: tuple[float, float] | None = None  # azimuth and elevation of a gap, degrees


@dataclass(frozen=True, slots=True)
class AtlasVerdict:
    """What an atlas is good for, and its limitations."""

    good_for: tuple[Use, ...]
    not_for: tuple[Use, ...]
    limitations: tuple[Limitation, ...]

    @classmethod
    def of(cls, head: LearnedHead, settings: VerdictSettings = _SETTINGS) -> AtlasVerdict:
        """Return the verdict about a learned head."""
        limitations = tuple(_limitations(head, settings))
        bad: set[Use] = set()
        for limitation in limitations:
            bad |= _PREVENTED[limitation.kind]
        good = tuple(use for use in Use if use not in bad)
        return cls(good, tuple(use for use in Use if use in bad), limitations)


_EVERYTHING = frozenset(Use)
_PREVENTED: dict[LimitationKind, frozenset[Use]] = {
    LimitationKind.LABELS: _EVERYTHING,
    LimitationKind.LARGE_ERRORS: _EVERYTHING,
    LimitationKind.CONE_CONFUSIONS: frozenset({Use.ALL_DIRECTIONS}),
    LimitationKind.UNTESTED: frozenset(),
    LimitationKind.NO_ROOM_MODEL: frozenset({Use.ROOMS, Use.STREAMS}),
    LimitationKind.PARTIAL_COVERAGE: frozenset({Use.ALL_DIRECTIONS}),
    LimitationKind.GAP: frozenset(),
}


def _limitations(head: LearnedHead, settings: VerdictSettings) -> list[Limitation]:
    about, accuracy, found = head.about, head.accuracy, []
    readings = {reading.name.lower(): reading for reading in LabelReading}
    reading = readings.get(str(about.get("labels")), LabelReading.DEGREES)
    if reading is not LabelReading.DEGREES:
        found.append(Limitation(LimitationKind.LABELS, detail=str(reading)))
    covered = _covered(head, settings)
    needed = directions_needed(head.space, 1.0 if math.isnan(covered) else covered, settings)
    more = needed if needed > about.get("directions", 0) else None
    heads = None if head.n_heads == 1 else head.n_heads
    max_median = settings.max_median_degrees
    if heads is not None:
        max_median = settings.max_unmeasured_median_degrees
    if accuracy is None:
        # The errors of an adapted atlas are not known either, however many directions it has.
        if "adaptation" not in about:
            found.append(Limitation(LimitationKind.UNTESTED, about.get("directions", 0), more))
    elif accuracy.median_degrees > max_median:
        kind = LimitationKind.LARGE_ERRORS
        found.append(Limitation(kind, accuracy.median_degrees, more, heads=heads))
    elif accuracy.beyond_30_share > settings.max_beyond_30:
        kind = LimitationKind.CONE_CONFUSIONS
        found.append(Limitation(kind, accuracy.beyond_30_share, more, heads=heads))
    if head.reverberant_localizer is None:
        detail = str(about.get("room_obstacle", ""))
        found.append(Limitation(LimitationKind.NO_ROOM_MODEL, detail=detail))
    if covered < settings.min_covered:
        whole = directions_needed(head.space, 1.0, settings)
        found.append(Limitation(LimitationKind.PARTIAL_COVERAGE, covered, whole))
    elif (gap := _gap(head)) is not None and gap[2] > settings.max_gap_degrees:
        found.append(Limitation(LimitationKind.GAP, gap[2], centre=(gap[0], gap[1])))
    return found


def _covered(head: LearnedHead, settings: VerdictSettings) -> float:
    """Return the covered fraction of the space; NaN if an old atlas does not tell."""
    if "covered_fraction" in head.about or head.reverberant_localizer is None:
        return float(head.about.get("covered_fraction", math.nan))
    sound = head.reverberant_localizer.direct_sound
    directions = sound.templates.directions
    return covered_fraction(head.space, directions, sound.spacing_degrees, settings)


def _gap(head: LearnedHead) -> Sequence[float] | None:
    """Return azimuth, elevation and radius of the largest gap; None if an old atlas lacks it."""
    if "largest_gap" in head.about or head.reverberant_localizer is None:
        return head.about.get("largest_gap")
    return describe_gap(head.space, head.reverberant_localizer.direct_sound.templates.directions)


def describe_gap(space: Space, directions: Array) -> list[float]:
    """Return azimuth, elevation and radius in degrees of the largest gap, as JSON values."""
    centre, radius = largest_gap(space, directions)
    return [round(float(value), 1) for value in (*centre, radius)]


def directions_needed(space: Space, fraction: float, settings: VerdictSettings = _SETTINGS) -> int:
    """Return the number of directions at the useful spacing on a fraction of a space."""
    spacing = settings.useful_spacing_degrees
    if isinstance(space, Circle):
        return math.ceil(fraction * 360 / spacing)
    # A triangular grid has one point per spacing² √3 / 2.
    area = 41_253 if space.holds_directions else space.area
    return 10 * math.ceil(fraction * area / (spacing**2 * math.sqrt(3) / 2) / 10)


def covered_fraction(
    space: Space, directions: Array, spacing_degrees: float, settings: VerdictSettings = _SETTINGS
) -> float:
    """Return the fraction of a space that is near a measured direction."""
    grid = space.grid(5.0)  # degrees; an accuracy of a percent is enough
    gaps = space.distance(grid, directions[space.nearest(directions, grid)])
    return float(np.mean(gaps <= max(settings.cover_degrees, spacing_degrees)))
