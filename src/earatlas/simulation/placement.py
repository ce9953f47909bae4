"""From wished directions to placed sources: what turns a dry sound into what both ears hear of it.

In: a head, and for each source a direction or a `Trajectory`. Out: a `Standing` or a `Moving` source.
One that stands is placed at the nearest measured direction, or, if that is asked for, exactly where
it is wished, by responses between the measured ones (`heads.between`). One that moves always is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.head import Head, ImpulseResponses
from earatlas.hrtf.interpolation import ResponsesBetween, check_near
from earatlas.simulation.image_source import Room, room_responses
from earatlas.simulation.trajectories import Trajectory, moved
from earatlas.types import Array, Indices

__all__ = ["Moving", "Placed", "Standing", "Wish", "placed", "wishes"]

_EARLY_SECONDS = 0.05  # after the direct sound: the usual border for speech (C50)
_ONSET = 0.5  # of a response's peak: where the direct sound begins
_LONGEST_SECONDS = 0.1  # of a response in the open: reflections cannot be interpolated

Wish = Array | Trajectory  # (2,) degrees, or a way


@dataclass(frozen=True, eq=False)
class Standing:
    """A source that stays where it is."""

    direction: Array  # (2,) degrees
    response: Array  # (2, taps)

    def image(self, sound: Array, start: int) -> Array:
        """What a dry sound (n,) puts into both ears: (2, n + taps - 1)."""
        from scipy.signal import oaconvolve  # half of the package's import time, so only here

        image: Array = oaconvolve(sound[None], self.response, axes=1)
        return image

    def early(self, rate: int) -> Placed:
        """The same without what comes later than 50 ms; itself if nothing does."""
        size = np.abs(self.response).max(axis=0)
        last = int((size >= _ONSET * size.max()).argmax()) + round(_EARLY_SECONDS * rate)
        if not size[last + 1 :].any():
            return self
        late = np.arange(len(size)) > last
        return Standing(self.direction, np.where(late, 0.0, self.response))

    def middle(self, start: float, end: float) -> Array:
        """Its direction (2,) half-way between two times in seconds."""
        return self.direction


@dataclass(frozen=True, eq=False)
class Moving:
    """A source on its way, in the open."""

    trajectory: Trajectory
    places: ResponsesBetween
    rate: int

    def image(self, sound: Array, start: int) -> Array:
        """What a dry sound (n,) that begins at sample `start` puts into both ears."""
        return moved(sound, self.places, self.trajectory, start=start, rate=self.rate)

    def early(self, rate: int) -> Placed:
        """All of it: there are no reflections."""
        return self

    def middle(self, start: float, end: float) -> Array:
        """Its direction (2,) half-way between two times in seconds."""
        direction: Array = self.trajectory.at((start + end) / 2)[0]
        return direction


Placed = Standing | Moving


def wishes(directions: ArrayLike | Sequence[Any]) -> list[Wish]:
    """Where each source is to be, checked: directions (M, 2), some of which may be routes."""
    if not isinstance(directions, Sequence) or not any(
        isinstance(d, Trajectory) for d in directions
    ):
        return list(Sphere().check(directions))
    return [
        d if isinstance(d, Trajectory) else Sphere().check(np.array([d]))[0] for d in directions
    ]


def placed(
    head: Head,
    wished: Sequence[Wish],
    *,
    rate: int,
    room: Room | None,
    distance_metres: float,
    between: bool,
) -> list[Placed]:
    """The sources, each at its place."""
    if not between and not any(isinstance(wish, Trajectory) for wish in wished):
        chosen = _nearest(head, np.array(wished))
        responses = _responses(head, chosen, room, distance_metres).at_rate(rate)
        return [Standing(*pair) for pair in zip(head.directions[chosen], responses, strict=True)]
    if room is not None:
        raise InputError(
            "room must be None for sources that move or stand between measured directions, got one "
            f"of T60 {room.t60_seconds:g} s. Reflections are of measured directions: leave out the "
            "room (--t60, --room), or the path and --between."
        )
    ears = head.responses()
    if ears.samples.shape[-1] > _LONGEST_SECONDS * ears.rate:
        raise InputError(
            f"head must be measured in the open for directions between the measured ones, got "
            f"responses of {ears.samples.shape[-1] / ears.rate:.2f} s in '{head.name}'. "
            "Choose another head."
        )
    places = ResponsesBetween.of(head, rate)
    return [_one(wish, places, rate, between=between) for wish in wished]


def _one(wish: Wish, places: ResponsesBetween, rate: int, *, between: bool) -> Placed:
    head = places.head
    if isinstance(wish, Trajectory):
        check_near(head, wish.checkpoints(), "path")
        return Moving(wish, places, rate)
    chosen = _nearest(head, wish[None])
    if between and Sphere().distance(head.directions[chosen], wish[None])[0] > 1e-6:
        return Standing(wish, places.at(wish[None])[0])
    return Standing(head.directions[chosen][0], head.responses().subset(chosen).at_rate(rate)[0])


def _nearest(head: Head, directions: Array) -> Indices:
    check_near(head, directions)
    return Sphere().nearest(head.directions, directions)


def _responses(
    head: Head, chosen: Indices, room: Room | None, distance_metres: float
) -> ImpulseResponses:
    """What the ears get from the chosen directions, in the open or in a room."""
    ears = head.responses()
    if room is None:
        return ears.subset(chosen)
    heard = room_responses(
        room,
        head.directions[chosen],
        head.directions,
        ears.samples,
        ears.rate,
        distance_metres=distance_metres,
    )
    return ImpulseResponses(heard, ears.rate)
