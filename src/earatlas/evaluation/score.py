"""Score of a separation: sound quality and direction errors, each under its best assignment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.evaluation.assignment import Assignment
from earatlas.evaluation.directions import (
    DirectionErrors,
    assign_directions,
    check_estimated_directions,
    direction_errors,
)
from earatlas.evaluation.quality import (
    FILTER_LENGTH,
    Quality,
    assign_by_sdr,
    assigned_quality,
    check_mixture,
    check_pair,
    pairwise_metrics,
)
from earatlas.geometry.spaces import Sphere
from earatlas.types import Array

__all__ = ["Score", "score"]


@dataclass(frozen=True, eq=False, slots=True)
class Score:
    """Sound quality and direction errors of a separation, in the order of the true sources.

    Sound quality is evaluated under the assignment with the best SDR, directions under the
    assignment with the least error, independently of each other. `agree` tells whether the two
    assignments are the same; if not, a sound is reported with the direction of another source.

    Attributes
    ----------
    by_sound : Assignment
        Assignment of the estimates by SDR.
    quality : Quality
        Quality of the assigned estimates.
    mixture : Quality
        Quality of the mixture as the estimate of every source.
    by_direction : Assignment or None
        Assignment by direction, None if no directions were given.
    errors : DirectionErrors or None
        Direction errors, None if no directions were given.

    """

    by_sound: Assignment
    quality: Quality
    mixture: Quality
    by_direction: Assignment | None
    errors: DirectionErrors | None

    def __repr__(self) -> str:
        after, gain = self.quality.mean(), self.improvement.mean()
        parts = [
            f"SDR {after.sdr_db:.1f} dB ({gain.sdr_db:+.1f})",
            f"SIR {after.sir_db:.1f} dB ({gain.sir_db:+.1f})",
            f"{len(self.by_sound.missed)} missed",
            f"{len(self.by_sound.false)} false",
        ]
        if self.errors is not None:
            parts.insert(
                2, f"direction error {self.errors.mean().great_circle_degrees:.1f} degrees"
            )
        if self.agree is False:
            parts.append("sounds and directions are assigned differently")
        return f"Score({len(self.by_sound.found)} sources: {', '.join(parts)})"

    @property
    def improvement(self) -> Quality:
        """Improvement over the mixture, in dB."""
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
    estimated_directions: ArrayLike | None = None,
    filter_length: int = FILTER_LENGTH,
) -> Score:
    """Evaluate a separation against the ground truth.

    Parameters
    ----------
    images : array_like, shape (M, 2, n)
        True image of each source at both ears.
    estimates : array_like, shape (J, 2, n)
        Estimated images. If J differs from M, missed sources have NaN and are left out of means.
    mixture : array_like, shape (2, n)
        Both channels of the mixture.
    directions : array_like, shape (M, 2), optional
        True (azimuth, elevation) in degrees.
    estimated_directions : array_like, shape (J, 2), optional
        Estimated (azimuth, elevation) in degrees; required with `directions`.
    filter_length : int
        Taps of the distortion filter of BSS-eval.

    Returns
    -------
    score : Score
        Quality, improvement and direction errors.

    Raises
    ------
    InputError
        If shapes do not match, or if only one of the two kinds of directions is given.

    References
    ----------
    E. Vincent, R. Gribonval and C. Févotte, "Performance measurement in blind
    audio source separation", IEEE Trans. Audio, Speech, Lang. Process., 14(4), 2006.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.random.default_rng(0).normal(size=(2, 2, 4000))
    >>> mixture = images.sum(axis=0)
    >>> score(images, images[::-1] + 0.1 * mixture, mixture, filter_length=1)
    Score(2 sources: SDR 20.8 dB (+20.9), SIR 20.8 dB (+20.9), 0 missed, 0 false)

    """
    true, estimated = check_pair(images, estimates, filter_length)
    _, mixed = check_pair(true, check_mixture(mixture)[None], filter_length, "mixture")
    if (directions is None) != (estimated_directions is None):
        given, lacking = "directions", "estimated_directions"
        if directions is None:
            given, lacking = lacking, given
        raise InputError(
            f"{lacking} must come with {given}, got {given} alone. Give both, or neither."
        )
    by_direction, errors = None, None
    if directions is not None and estimated_directions is not None:
        true_directions, found_directions = (
            Sphere().check(directions, "directions"),
            check_estimated_directions(estimated_directions),
        )
        _check_count(true_directions, true, "directions", "images")
        _check_count(found_directions, estimated, "estimated_directions", "estimates")
        by_direction = assign_directions(true_directions, found_directions)
        errors = direction_errors(true_directions, found_directions, by_direction)
    # The mixture is one more estimate, so that the normal equations of the images are shared.
    pairs = pairwise_metrics(true, np.concatenate([estimated, mixed]), filter_length)
    by_sound = assign_by_sdr(pairs["sdr_db"][:, :-1])
    last = np.full(len(true), len(estimated))
    return Score(
        by_sound=by_sound,
        quality=assigned_quality(pairs, by_sound),
        mixture=assigned_quality(pairs, Assignment(last, len(estimated) + 1)),
        by_direction=by_direction,
        errors=errors,
    )


def _check_count(points: Array, sounds: Array, name: str, sounds_name: str) -> None:
    if len(points) != len(sounds):
        raise InputError(
            f"{name} must be as many as {sounds_name}, got {len(points)} and {len(sounds)}. "
            "Give one per source."
        )
