"""A shoebox room heard through a head: each wall's mirror image of a source is one more source.

A room, source directions and a head's responses go in; binaural room impulse responses come out.
Image i of a source, from direction x_i at distance d_i, adds the head's response h of the measured
direction nearest to x_i, later and weaker:

    response(t) = sum_i g_i h(t - tau_i; x_i),  tau_i = lead + (d_i - d_0) / c,
    g_i = (1 - absorption)^(order_i / 2) d_0 / d_i

One delay serves both ears, so every image keeps its interaural cues exactly. The direct path,
i = 0, has unit gain and starts after a lead of 1 ms. The images are those of `pyroomacoustics`, an
optional package.

    M    sources          N    directions that the head was measured in
    I    images           n    samples of a room response, about T60
    c    speed of sound   d_0  distance_metres, of the direct path

The head looks along +x, y is to its left and z is up; the room's corner is at the origin. The head
does not move, so a source's direction in the room is its direction from the head.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import EaratlasWarning, InputError, missing_extra
from earatlas.geometry.angles import to_vectors
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.simulated import SPEED_OF_SOUND
from earatlas.types import Array

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["Room", "image_sources", "room_responses"]

LEAD_SECONDS = 0.001
# pyroomacoustics takes about 300 bytes an image: 1.4 GB for T60 = 1 s in the default room.
_MOST_IMAGES = 5_000_000
# Samples rendered at a time: the block's echoes, block x 2 x taps, should stay in the cache.
_BLOCK = 256
# Mean angle from a reflection to the measured direction that stands in for it. A lattice 15 degrees
# apart has 6, one 4 degrees apart with nothing below -30 degrees of elevation has 7.
_FAR_DEGREES = 10.0


@dataclass(frozen=True, slots=True)
class Room:
    """A rectangular room whose walls, floor and ceiling all absorb the same share of the energy."""

    size_metres: tuple[float, float, float] = (6.0, 5.0, 3.0)  # (x, y, z)
    t60_seconds: float = 0.3  # time in which the sound falls by 60 dB, by Sabine's formula
    listener_metres: tuple[float, float, float] = (2.7, 2.2, 1.5)  # (x, y, z), middle of the head

    def __post_init__(self) -> None:
        if len(self.size_metres) != 3 or not all(0 < side < math.inf for side in self.size_metres):
            raise InputError(
                f"size_metres must be three positive lengths, got {self.size_metres}. "
                "Give the room's length, width and height."
            )
        if len(self.listener_metres) != 3 or not all(
            0 < place < side
            for place, side in zip(self.listener_metres, self.size_metres, strict=True)
        ):
            raise InputError(
                f"listener_metres must be inside the room of size {self.size_metres}, "
                f"got {self.listener_metres}. Give (x, y, z) from the room's corner."
            )
        if not self.smallest_t60_seconds <= self.t60_seconds < math.inf:
            smallest = math.ceil(1000 * self.smallest_t60_seconds) / 1000
            raise InputError(
                f"t60_seconds must be at least {smallest:g} in a room of size {self.size_metres}, "
                f"got {self.t60_seconds}. Walls that absorb everything reach no less; "
                "give a longer T60 or a smaller room."
            )

    @property
    def smallest_t60_seconds(self) -> float:
        """T60 of this room, by Sabine's formula, if its walls absorbed everything."""
        x, y, z = self.size_metres
        surface = 2 * (x * y + y * z + z * x)
        return 24 * math.log(10) * x * y * z / (SPEED_OF_SOUND * surface)

    @property
    def absorption(self) -> float:
        """Share of the energy that a reflection loses, in (0, 1]."""
        return self.smallest_t60_seconds / self.t60_seconds

    def wall_distances(self, directions: ArrayLike) -> Array:
        """Metres (M,) from the listener to the wall in each direction (M, 2)."""
        step = to_vectors(directions)
        here, size = np.array(self.listener_metres), np.array(self.size_metres)
        ahead = np.where(step > 0, size - here, here)
        # A direction along a wall never meets it: 0 would divide, a 1e-12 puts it very far off.
        steep = np.maximum(np.abs(step), 1e-12)
        distances: Array = np.min(ahead / steep, axis=-1)
        return distances


def room_responses(
    room: Room,
    directions: ArrayLike,
    head_directions: ArrayLike,
    head_responses: ArrayLike,
    rate: float,
    *,
    distance_metres: float = 1.5,
) -> Array:
    """Binaural room impulse responses (M, 2, n) of sources in the directions (M, 2).

    The head is known by its responses (N, 2, taps) in the directions (N, 2), at `rate` samples per
    second. Reflections that come more than T60 after the direct sound are left out. Warns where
    they come, on the average of their energy, from far beside any of the head's directions.
    """
    from scipy.sparse import csr_array  # a third of a second, and only rooms need them
    from scipy.spatial import cKDTree

    sources = Sphere().check(directions, "directions")
    known = Sphere().check(head_directions, "head_directions")
    heard = np.asarray(head_responses, dtype=np.float64)
    _check(room, sources, known, heard, rate, distance_metres)

    lead = round(LEAD_SECONDS * rate)
    last = lead + math.ceil(room.t60_seconds * rate)
    nearest_known = cKDTree(to_vectors(known))
    responses = np.empty((len(sources), 2, last + heard.shape[-1]))
    angle_sum = energy_sum = 0.0
    for m, vector in enumerate(to_vectors(sources)):
        offsets, reflections = image_sources(room, distance_metres * vector)
        distances = np.linalg.norm(offsets, axis=1)
        direct = distances.min()
        delays = lead + np.rint((distances - direct) * (rate / SPEED_OF_SOUND)).astype(int)
        gains = reflections * (direct / distances)
        soon = delays <= last
        chords, nearest = nearest_known.query(offsets[soon] / distances[soon, None])
        energies = np.where(distances[soon] > direct, gains[soon] ** 2, 0.0)  # of reflections
        angle_sum += energies @ np.degrees(2 * np.arcsin(np.minimum(chords / 2, 1.0)))
        energy_sum += energies.sum()
        trains = csr_array(
            (gains[soon], (delays[soon], nearest)),
            shape=(last + 1, len(known)),
        )
        responses[m] = _render(trains, heard)[:, : responses.shape[-1]]
    if angle_sum > _FAR_DEGREES * energy_sum:
        warnings.warn(
            f"Reflections in this room come on average {angle_sum / energy_sum:.1f} degrees from "
            "the nearest direction that the head was measured at, and are heard as from there. "
            "Use a head measured all round, below and above too.",
            EaratlasWarning,
            stacklevel=2,
        )
    return responses


def _check(
    room: Room, sources: Array, known: Array, heard: Array, rate: float, distance_metres: float
) -> None:
    if heard.ndim != 3 or heard.shape[:2] != (len(known), 2) or heard.shape[2] == 0:
        raise InputError(
            f"head_responses must have the shape ({len(known)}, 2, taps), as there are "
            f"{len(known)} head_directions, got {heard.shape}. Give both ears of each direction."
        )
    if not np.isfinite(heard).all():
        raise InputError(
            "head_responses must be finite, got NaN or infinity. Leave those directions out."
        )
    if np.ptp(known[:, 1]) < 1.0:
        raise InputError(
            f"head_directions must have more than one elevation in a room, got {known[0, 1]:g} "
            "degrees only. Wall, floor and ceiling reflections come from directions it was not "
            "measured at: use a head measured all round, or no room."
        )
    if not 0 < rate < math.inf:
        raise InputError(f"rate must be positive, got {rate}. Give the head's samples per second.")
    walls = room.wall_distances(sources)
    closest = int(np.argmin(walls))
    if not 0 < distance_metres < walls[closest]:
        # Rounded down to centimetres, and short of the wall even where it is at a whole one.
        fits = math.floor(100 * walls[closest] - 0.5) / 100
        raise InputError(
            f"distance_metres must be positive and keep the sources inside the room, "
            f"got {distance_metres}. In the direction {sources[closest].tolist()} "
            f"the wall is {walls[closest]:.3f} m away; at most {fits:g} m fits."
        )
    images = _image_count(_image_order(room))
    if images > _MOST_IMAGES:
        raise InputError(
            f"room must need at most {_MOST_IMAGES:,} image sources, got {images:,}. "
            "Give a shorter T60 or a larger room."
        )


def _image_order(room: Room) -> int:
    """Reflections on the way from an image that is c T60 away, in the direction that has most.

    In the unit direction e a path of length d meets about d (|e_x|/X + |e_y|/Y + |e_z|/Z) walls of
    a room (X, Y, Z), which is at most d |(1/X, 1/Y, 1/Z)|.
    """
    return math.ceil(
        SPEED_OF_SOUND * room.t60_seconds * math.hypot(*1 / np.array(room.size_metres))
    )


def _image_count(order: int) -> int:
    """Number of triples of integers with |i| + |j| + |k| <= order."""
    return (2 * order + 1) * (2 * order**2 + 2 * order + 3) // 3


def image_sources(room: Room, offset: Array) -> tuple[Array, Array]:
    """Image sources of one source: offsets (I, 3) from the head in metres; reflected shares (I,).

    The share is of the amplitude; the source itself is among the images, with the share 1.
    """
    try:
        import pyroomacoustics
    except ImportError as error:
        raise missing_extra("rooms", "pyroomacoustics") from error
    listener = np.array(room.listener_metres)
    box = pyroomacoustics.ShoeBox(
        room.size_metres,
        materials=pyroomacoustics.Material(room.absorption),
        max_order=_image_order(room),
    )
    box.add_source(listener + offset)
    box.add_microphone(listener)
    box.image_source_model()
    (source,) = box.sources
    return source.images.T - listener, source.damping[0].astype(np.float64)


def _render(trains: csr_array, heard: Array) -> Array:
    """sum_tj trains[t, j] heard[j] delayed by t: sound (2, n), n at least rows + taps - 1.

    trains (rows, N) holds the gain of what comes at sample t from head direction j.
    """
    rows, (directions, _, taps) = trains.shape[0], heard.shape
    flat = heard.reshape(directions, 2 * taps)
    width = taps + _BLOCK
    blocks = math.ceil(rows / _BLOCK)
    sound = np.zeros((2, blocks * _BLOCK + taps - 1))
    for start in range(0, rows, _BLOCK):
        block = trains[start : start + _BLOCK]
        echoes = np.zeros((2, _BLOCK, width))
        echoes[:, : block.shape[0], :taps] = np.moveaxis((block @ flat).reshape(-1, 2, taps), 1, 0)
        # Row t is due t samples later. It was written at t * width = t * (width - 1) + t, so the
        # same memory read in rows that are one shorter has it in column t.
        delayed = echoes.reshape(2, -1)[:, :-_BLOCK].reshape(2, _BLOCK, width - 1)
        sound[:, start : start + width - 1] += delayed.sum(axis=1)
    return sound
