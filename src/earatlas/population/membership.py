"""Heads that do not belong to a population: wrong way round, mirrored, equalized, or of other kind.

Input: heads, and the expected head of a population as a PPAM. Output: a `Membership` per head, with
its distance from the expected head and what is wrong with it.

    distance = RMS over directions and cues of (y - E[y | x]) / s_d     s_d: deviation between heads

The distance is computed for the head as it is and after each correction (ears swapped, azimuths
negated, turned by 180°): a head that is much closer after one of them has that error. A dummy head
may be as close to people as they are to each other, but it is far more symmetric:

    asymmetry = RMS over directions and low frequencies of ILD(x) + ILD(mirror image of x)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from earatlas.features.impulse_responses import transfer_functions
from earatlas.features.layout import CueLayout
from earatlas.geometry.angles import wrap_degrees
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.head import Head, ImpulseResponses
from earatlas.ppam.model import PPAM
from earatlas.types import Array, Mask

__all__ = ["HeadProblem", "Membership", "MembershipSettings", "check_membership"]


class HeadProblem(StrEnum):
    """Reasons why a head does not belong to a population."""

    EARS_SWAPPED = "its ears or its azimuths are the wrong way round"
    FACES_BACK = "it faces backwards"
    MIRRORED = "one ear is a copy of the other"
    EQUALIZED = (
        "it is equalized (directional transfer functions): the ears' common response is gone"
    )
    SYMMETRIC = "it is far more symmetric than the other heads, as a dummy head among people is"
    OTHER_KIND = "it differs from the other heads by more than they differ from each other"


@dataclass(frozen=True)
class MembershipSettings:
    """Settings of the test. Evidence: docs/figures/settings/population.md, "membership"."""

    max_directions: int = 300  # of a head that are compared
    closer_ratio: float = 0.75  # distance after a correction over that before it
    far_ratio: float = 2.5  # distance over the median of all heads; people reach 1.6
    equalized_db: float = 0.4  # deviation of the diffuse-field level; DTFs 0.1, KU100 1, people 3
    mirrored_db: float = 0.05  # RMS of ILD(x) + ILD(mirror image of x)
    asymmetry_hz: float = 2000.0  # largest frequency of the asymmetry
    asymmetry_ratio: float = 0.4  # asymmetry over the median of all heads; KU100 0.22, people 0.68
    min_asymmetry_db: float = 1.5  # median of all heads; set-ups of one dummy head may have less


@dataclass(frozen=True)
class Membership:
    """How well a head belongs to a population."""

    name: str
    distance: float  # about 1 for a member
    problem: HeadProblem | None  # None: it belongs


def check_membership(
    expected: PPAM,
    layout: CueLayout,
    heads: Sequence[Head],
    settings: MembershipSettings | None = None,
) -> tuple[Membership, ...]:
    """Return the membership of each head, relative to the others."""
    settings = settings or MembershipSettings()
    measures = [_Measures.of(expected, layout, head, settings) for head in heads]
    typical = float(np.median([m.distance for m in measures]))
    measured = [m.asymmetry_db for m in measures if np.isfinite(m.asymmetry_db)]
    asymmetry_db = float(np.median(measured)) if measured else 0.0

    def problem(m: _Measures) -> HeadProblem | None:
        if m.mirror_level_db < settings.mirrored_db:
            return HeadProblem.MIRRORED
        if min(m.swapped, m.turned) < settings.closer_ratio * m.distance:
            swapped = m.swapped < m.turned
            return HeadProblem.EARS_SWAPPED if swapped else HeadProblem.FACES_BACK
        if m.distance > settings.far_ratio * typical:
            return HeadProblem.OTHER_KIND
        symmetric = m.asymmetry_db < settings.asymmetry_ratio * asymmetry_db
        if symmetric and asymmetry_db >= settings.min_asymmetry_db:
            return HeadProblem.SYMMETRIC
        if m.diffuse_level_db < settings.equalized_db:
            return HeadProblem.EQUALIZED
        return None

    return tuple(
        Membership(head.name, m.distance / typical, problem(m))
        for head, m in zip(heads, measures, strict=True)
    )


@dataclass(frozen=True)
class _Measures:
    """Distances of one head from the expected one, and levels that reveal processing."""

    distance: float  # as it is
    swapped: float  # with the ears swapped
    turned: float  # with directions turned by 180°
    diffuse_level_db: float  # standard deviation over frequency of the diffuse-field level
    mirror_level_db: float  # RMS of ILD(x) + ILD(mirror image of x); inf without such pairs
    asymmetry_db: float  # the same at low frequencies

    @classmethod
    def of(
        cls, expected: PPAM, layout: CueLayout, head: Head, settings: MembershipSettings
    ) -> _Measures:
        rows = np.arange(0, len(head), max(len(head) // settings.max_directions, 1))
        x, cues = head.directions, head.cues(layout)
        y = cues[rows]
        signs = np.where(layout.cue_kinds == "ipd_cos", 1.0, -1.0)
        turned = np.column_stack([wrap_degrees(x[rows, 0] + 180), x[rows, 1]])
        means, variances = expected.expected_cues(x[rows])

        def distance(values: Array, at: Array) -> float:
            return float(np.sqrt(((values - at) ** 2 / variances).mean()))

        image = Sphere().nearest(x, x * (-1.0, 1.0))
        paired = Sphere().distance(x[image], x * (-1.0, 1.0)) < 1.0
        level = layout.cue_kinds == "ild"
        low = level & (
            layout.cue_frequencies * (layout.rate / layout.window) < settings.asymmetry_hz
        )

        def asymmetry(chosen: Mask) -> float:
            sums = (cues + cues[image])[np.ix_(paired, chosen)]
            return float(np.sqrt((sums**2).mean())) if sums.size else np.inf

        return cls(
            distance(y, means),
            distance(y * signs, means),
            distance(y, expected.forward_map(turned)),
            _diffuse_level_db(head),
            asymmetry(level),
            asymmetry(low),
        )


def _diffuse_level_db(head: Head) -> float:
    """Return how far the power averaged over directions is from flat; inf without responses."""
    if not isinstance(head.ears, ImpulseResponses):
        return np.inf
    frequencies = np.arange(300.0, min(7500.0, 0.45 * head.ears.rate), 50.0)
    H = transfer_functions(head.ears.samples, head.ears.rate, frequencies)
    level = 10 * np.log10((np.abs(H) ** 2).mean(axis=0))
    return float(level.std(axis=1).mean())
