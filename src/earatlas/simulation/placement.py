"""Placement of sources around a head: binaural filters for requested directions.

Input: a head and, per source, a direction or a `Trajectory`. Output: a `StaticPlacement` or a
`MovingPlacement` per source, which renders the binaural image of a dry sound. A static source is
placed at the nearest measured direction, or on request exactly at the requested direction with an
interpolated response (`earatlas.hrtf.interpolation`). A moving source is always interpolated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError, SettingHint
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.head import Head, ImpulseResponses
from earatlas.hrtf.interpolation import InterpolatedResponses, check_covered
from earatlas.numerics import convolve
from earatlas.simulation.image_source import Room, room_responses
from earatlas.simulation.trajectories import Trajectory, render_moving_source
from earatlas.types import Array, Indices

__all__ = [
    "EARLY_SECONDS",
    "DirectionOrTrajectory",
    "MovingPlacement",
    "PlacedSource",
    "StaticPlacement",
    "check_directions",
    "place_sources",
]

EARLY_SECONDS = 0.05  # limit of early reflections after the direct sound, as in C50 for speech

DirectionOrTrajectory = Array | Trajectory  # a direction is (2,) degrees


@dataclass(frozen=True, eq=False)
class StaticPlacement:
    """A source in a fixed direction."""

    direction: Array  # (2,) degrees
    response: Array  # (2, taps)

    def image(self, sound: Array, start: int) -> Array:
        """Return the binaural image (2, n + taps - 1) of a dry sound (n,)."""
        return convolve(sound, self.response)

    def early(self, rate: int) -> PlacedSource:
        """Return the source without reflections after 50 ms, or itself if it has none."""
        size = np.abs(self.response).max(axis=0)
        onset = int((size >= 0.5 * size.max()).argmax())  # the direct sound is 6 dB below its peak
        last = onset + round(EARLY_SECONDS * rate)
        if not size[last + 1 :].any():
            return self
        late = np.arange(len(size)) > last
        return StaticPlacement(self.direction, np.where(late, 0.0, self.response))

    def direction_between(self, start: float, end: float) -> Array:
        """Return the direction (2,) at the midpoint of two times in seconds."""
        return self.direction


@dataclass(frozen=True, eq=False)
class MovingPlacement:
    """A source that moves along a trajectory in the free field."""

    trajectory: Trajectory
    responses: InterpolatedResponses
    rate: int

    def image(self, sound: Array, start: int) -> Array:
        """Return the binaural image of a dry sound (n,) that begins at sample `start`."""
        return render_moving_source(
            sound, self.responses, self.trajectory, start=start, rate=self.rate
        )

    def early(self, rate: int) -> PlacedSource:
        """Return the source itself: it has no reflections."""
        return self

    def direction_between(self, start: float, end: float) -> Array:
        """Return the direction (2,) at the midpoint of two times in seconds."""
        direction: Array = self.trajectory.at((start + end) / 2)[0]
        return direction


PlacedSource = StaticPlacement | MovingPlacement


def check_directions(directions: ArrayLike | Sequence[Any]) -> list[DirectionOrTrajectory]:
    """Validate the directions (M, 2) of sources, some of which may be trajectories."""
    if not isinstance(directions, Sequence) or not any(
        isinstance(d, Trajectory) for d in directions
    ):
        return list(Sphere().check(directions))
    return [
        d if isinstance(d, Trajectory) else Sphere().check(np.array([d]))[0] for d in directions
    ]


def place_sources(
    head: Head,
    directions: Sequence[DirectionOrTrajectory],
    *,
    rate: int,
    room: Room | None,
    distance_metres: float,
    interpolate: bool,
) -> list[PlacedSource]:
    """Place one source per direction, with responses at `rate` samples per second."""
    head.check_directions("render sound")
    if not interpolate and not any(isinstance(d, Trajectory) for d in directions):
        chosen = _nearest(head, np.array(directions))
        responses = _responses(head, chosen, room, distance_metres).at_rate(rate)
        return [
            StaticPlacement(*pair) for pair in zip(head.directions[chosen], responses, strict=True)
        ]
    if room is not None:
        raise InputError(
            "room must be None for sources that move or lie between measured directions, got one "
            f"with a T60 of {room.t60_seconds:g} s. Reflections use measured directions only: "
            "leave out the room, or place static sources at measured directions.",
            hint=SettingHint("room=None", "no --t60 and --room"),
        )
    ears = head.responses()
    # Responses of more than 0.1 s contain reflections, which cannot be interpolated.
    if ears.samples.shape[-1] > 0.1 * ears.rate:
        raise InputError(
            f"head must be anechoic for directions between the measured ones, got "
            f"responses of {ears.samples.shape[-1] / ears.rate:.2f} s in '{head.name}'. "
            "Choose another head."
        )
    interpolated = InterpolatedResponses.of(head, rate)
    return [_place(d, interpolated, rate, interpolate=interpolate) for d in directions]


def _place(
    direction: DirectionOrTrajectory,
    responses: InterpolatedResponses,
    rate: int,
    *,
    interpolate: bool,
) -> PlacedSource:
    """Place one anechoic source."""
    head = responses.head
    if isinstance(direction, Trajectory):
        check_covered(head, direction.checkpoints(), "path")
        return MovingPlacement(direction, responses, rate)
    chosen = _nearest(head, direction[None])
    if interpolate and Sphere().distance(head.directions[chosen], direction[None])[0] > 1e-6:
        return StaticPlacement(direction, responses.at(direction[None])[0])
    measured = head.responses().subset(chosen).at_rate(rate)[0]
    return StaticPlacement(head.directions[chosen][0], measured)


def _nearest(head: Head, directions: Array) -> Indices:
    check_covered(head, directions)
    return Sphere().nearest(head.directions, directions)


def _responses(
    head: Head, chosen: Indices, room: Room | None, distance_metres: float
) -> ImpulseResponses:
    """Return the responses of the chosen directions, anechoic or in a room."""
    ears = head.responses()
    if room is None:
        return ears.subset(chosen)
    reverberant = room_responses(
        room,
        head.directions[chosen],
        head.directions,
        ears.samples,
        ears.rate,
        distance_metres=distance_metres,
    )
    return ImpulseResponses(reverberant, ears.rate)
