"""A separation against the truth: sound and directions, each under its best assignment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.evaluation.assignment import Assignment
from earatlas.evaluation.directions import (
    DirectionErrors,
    assign_directions,
    check_found,
    direction_errors,
)
from earatlas.evaluation.quality import (
    TAPS,
    Quality,
    all_pairs,
    best_by_sdr,
    check_mixture,
    check_pair,
    quality_of,
)
from earatlas.geometry.spaces import Sphere
from earatlas.types import Array

__all__ = ["Score", "score"]


@dataclass(frozen=True, eq=False, slots=True)
class Score:
    """A separation against the truth, in the order of the true sources.

    Sound is judged under the assignment with the best SDR, directions under the one with the least
    error, each on its own: neither is blamed for a mistake of the other. That alone would hide a
    source whose sound comes with its neighbour's direction, so `agree` says whether the two
    assignments are the same.
    """

    by_sound: Assignment
    quality: Quality
    mixture: Quality  # the same figures with the mixture as every estimate: "before"
    by_direction: Assignment | None  # None: no directions were given
    errors: DirectionErrors | None

    def __repr__(self) -> str:
        after, gain = self.quality.mean(), self.improvement.mean()
        words = [
            f"SDR {after.sdr_db:.1f} dB ({gain.sdr_db:+.1f})",
            f"SIR {after.sir_db:.1f} dB ({gain.sir_db:+.1f})",
            f"{len(self.by_sound.missed)} missed",
            f"{len(self.by_sound.false)} false",
        ]
        if self.errors is not None:
            words.insert(2, f"off by {self.errors.mean().great_circle_degrees:.1f} degrees")
        if self.agree is False:
            words.append("sounds and directions are swapped")
        return f"Score({len(self.by_sound.found)} sources: {', '.join(words)})"

    @property
    def improvement(self) -> Quality:
        """Quality over that of the mixture, in dB."""
        return self.quality - self.mixture

    @property
    def agree(self) -> bool | None:
        """Whether sounds and directions are assigned alike; None without directions."""
        if self.by_direction is None:
            return None
        return bool(np.array_equal(self.by_sound.found, self.by_direction.found))


def score(
    images: ArrayLike,
    estimates: ArrayLike,
    mixture: ArrayLike,
    *,
    directions: ArrayLike | None = None,
    found_directions: ArrayLike | None = None,
    filter_length: int = TAPS,
) -> Score:
    """Everything about a separation: estimates (J, 2, n) of images (M, 2, n) in a mixture (2, n).

    With `directions` (M, 2) and `found_directions` (J, 2), both or none, the errors of these too.
    Where J is not M, the sources that were missed have NaN and count in no mean.
    """
    true, found = check_pair(images, estimates, filter_length)
    _, mixed = check_pair(true, check_mixture(mixture)[None], filter_length, "mixture")
    if (directions is None) != (found_directions is None):
        given, lacking = "directions", "found_directions"
        if directions is None:
            given, lacking = lacking, given
        raise InputError(
            f"{lacking} must come with {given}, got {given} alone. Give both, or neither."
        )
    by_direction, errors = None, None
    if directions is not None and found_directions is not None:
        x, y = Sphere().check(directions, "directions"), check_found(found_directions)
        _check_count(x, true, "directions", "images")
        _check_count(y, found, "found_directions", "estimates")
        by_direction = assign_directions(x, y)
        errors = direction_errors(x, y, by_direction)
    # The mixture is one more estimate: the costly part, the images' normal equations, is shared.
    pairs = all_pairs(true, np.concatenate([found, mixed]), filter_length)
    by_sound = best_by_sdr(pairs["sdr_db"][:, :-1])
    last = np.full(len(true), len(found))
    return Score(
        by_sound=by_sound,
        quality=quality_of(pairs, by_sound),
        mixture=quality_of(pairs, Assignment(last, len(found) + 1)),
        by_direction=by_direction,
        errors=errors,
    )


def _check_count(points: Array, sounds: Array, name: str, sounds_name: str) -> None:
    if len(points) != len(sounds):
        raise InputError(
            f"{name} must be as many as {sounds_name}, got {len(points)} and {len(sounds)}. "
            "Give one a source."
        )
