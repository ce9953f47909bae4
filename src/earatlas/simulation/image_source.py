"""Binaural room impulse responses of a shoebox room by the image source method.

Input: a room, source directions and a head's responses. Output: binaural room impulse responses.
Image i of a source, at distance d_i in direction x_i, adds the head's response h at the measured
direction nearest to x_i, delayed and attenuated:

    response(t) = sum_i g_i h(t - tau_i; x_i),  tau_i = lead + (d_i - d_0) / c,
    g_i = (1 - absorption)^(order_i / 2) d_0 / d_i

The delay is the same for both ears, so every image keeps its interaural cues exactly. The direct
path, i = 0, has unit gain and starts after a lead of 1 ms. The images are computed by the optional
package `pyroomacoustics`.

    M    sources          N    measured directions of the head
    I    images           n    samples of a room response, about T60
    c    speed of sound   d_0  distance_metres, length of the direct path

The head faces +x, +y is to its left and +z is up; a corner of the room is at the origin. The head
does not move, so the direction of a source in the room is its direction from the head.

Reference: J. B. Allen and D. A. Berkley, "Image method for efficiently simulating small-room
acoustics", J. Acoust. Soc. Am. 65(4), 1979.
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


# Evidence: docs/figures/settings/simulation.md, "image_source".
@dataclass(frozen=True, slots=True)
class ImageSourceSettings:
    """Limits and layout of room responses."""

    lead_seconds: float = 0.001  # silence before the direct sound
    max_images: int = 5_000_000  # pyroomacoustics needs about 300 bytes per image
    # Energy-weighted mean angle from a reflection to the measured direction that replaces it,
    # above which a warning is issued
    max_mean_angle_degrees: float = 10.0


_DEFAULTS = ImageSourceSettings()


@dataclass(frozen=True, slots=True)
class Room:
    """A shoebox room whose walls, floor and ceiling have the same absorption.

    Parameters
    ----------
    size_metres : tuple of 3 floats
        Length, width and height (x, y, z).
    t60_seconds : float
        Reverberation time, in which the sound decays by 60 dB according to Sabine's formula.
    listener_metres : tuple of 3 floats
        Position (x, y, z) of the centre of the head from the corner of the room.

    Raises
    ------
    InputError
        If the listener is outside the room, or if the T60 is shorter than fully absorbing walls
        allow.

    Examples
    --------
    >>> import earatlas as ea
    >>> room = ea.Room(size_metres=(6.0, 5.0, 3.0), t60_seconds=0.3)
    >>> print(f"{room.absorption:.2f}")
    0.38

    """

    size_metres: tuple[float, float, float] = (6.0, 5.0, 3.0)
    t60_seconds: float = 0.3
    listener_metres: tuple[float, float, float] = (2.7, 2.2, 1.5)

    def __post_init__(self) -> None:
        if len(self.size_metres) != 3 or not all(0 < side < math.inf for side in self.size_metres):
            raise InputError(
                f"size_metres must be three positive lengths, got {self.size_metres}. "
                "Give the room's length, width and height."
            )
        if len(self.listener_metres) != 3 or not all(
            0 < position < side
            for position, side in zip(self.listener_metres, self.size_metres, strict=True)
        ):
            raise InputError(
                f"listener_metres must be inside the room of size {self.size_metres}, "
                f"got {self.listener_metres}. Give (x, y, z) from the room's corner."
            )
        if not self.smallest_t60_seconds <= self.t60_seconds < math.inf:
            smallest = math.ceil(1000 * self.smallest_t60_seconds) / 1000
            raise InputError(
                f"t60_seconds must be at least {smallest:g} in a room of size {self.size_metres}, "
                f"got {self.t60_seconds}. Fully absorbing walls do not reach a shorter one: "
                "give a longer T60 or a smaller room."
            )

    @property
    def smallest_t60_seconds(self) -> float:
        """T60 of this room with fully absorbing walls, according to Sabine's formula."""
        x, y, z = self.size_metres
        surface = 2 * (x * y + y * z + z * x)
        return 24 * math.log(10) * x * y * z / (SPEED_OF_SOUND * surface)

    @property
    def absorption(self) -> float:
        """Share of the energy that is lost at each reflection, in (0, 1]."""
        return self.smallest_t60_seconds / self.t60_seconds

    def wall_distances(self, directions: ArrayLike) -> Array:
        """Return the distance from the listener to the wall in each direction.

        Parameters
        ----------
        directions : array_like of shape (M, 2)
            Azimuth and elevation in degrees.

        Returns
        -------
        ndarray of shape (M,)
            Distances in metres.

        """
        step = to_vectors(directions)
        listener, size = np.array(self.listener_metres), np.array(self.size_metres)
        ahead = np.where(step > 0, size - listener, listener)
        # Without the floor, a direction parallel to a wall would divide by zero.
        slope = np.maximum(np.abs(step), 1e-12)
        distances: Array = np.min(ahead / slope, axis=-1)
        return distances


def room_responses(
    room: Room,
    directions: ArrayLike,
    head_directions: ArrayLike,
    head_responses: ArrayLike,
    rate: float,
    *,
    distance_metres: float = 1.5,
    settings: ImageSourceSettings = _DEFAULTS,
) -> Array:
    """Return binaural room impulse responses (M, 2, n) of sources in the directions (M, 2).

    The head is given by its responses (N, 2, taps) in the directions (N, 2), at `rate` samples per
    second. Reflections that arrive more than T60 after the direct sound are left out. A warning is
    issued if their energy-weighted mean angle to the nearest measured direction is large.
    """
    from scipy.sparse import csr_array  # imported here: it takes a third of a second
    from scipy.spatial import cKDTree

    sources = Sphere().check(directions, "directions")
    measured = Sphere().check(head_directions, "head_directions")
    h = np.asarray(head_responses, dtype=np.float64)
    _check(room, sources, measured, h, rate, distance_metres)
    images = _image_count(_image_order(room))
    if images > settings.max_images:
        raise InputError(
            f"room must need at most {settings.max_images:,} image sources, got {images:,}. "
            "Give a shorter T60 or a larger room."
        )

    lead = round(settings.lead_seconds * rate)
    last = lead + math.ceil(room.t60_seconds * rate)
    tree = cKDTree(to_vectors(measured))
    responses = np.empty((len(sources), 2, last + h.shape[-1]))
    angle_sum = energy_sum = 0.0
    for m, vector in enumerate(to_vectors(sources)):
        offsets, reflections = image_sources(room, distance_metres * vector)
        distances = np.linalg.norm(offsets, axis=1)
        direct = distances.min()
        delays = lead + np.rint((distances - direct) * (rate / SPEED_OF_SOUND)).astype(int)
        gains = reflections * (direct / distances)
        kept = delays <= last
        chords, nearest = tree.query(offsets[kept] / distances[kept, None])
        energies = np.where(distances[kept] > direct, gains[kept] ** 2, 0.0)  # reflections only
        angle_sum += energies @ np.degrees(2 * np.arcsin(np.minimum(chords / 2, 1.0)))
        energy_sum += energies.sum()
        trains = csr_array(
            (gains[kept], (delays[kept], nearest)),
            shape=(last + 1, len(measured)),
        )
        responses[m] = _render(trains, h)[:, : responses.shape[-1]]
    if angle_sum > settings.max_mean_angle_degrees * energy_sum:
        warnings.warn(
            f"Reflections in this room arrive on average {angle_sum / energy_sum:.1f} degrees from "
            "the nearest measured direction of the head and are rendered from that direction. "
            "Use a head measured in all directions, also above and below.",
            EaratlasWarning,
            stacklevel=2,
        )
    return responses


def _check(
    room: Room, sources: Array, measured: Array, h: Array, rate: float, distance_metres: float
) -> None:
    """Raise an InputError for arguments of `room_responses` that do not fit each other."""
    if h.ndim != 3 or h.shape[:2] != (len(measured), 2) or h.shape[2] == 0:
        raise InputError(
            f"head_responses must have the shape ({len(measured)}, 2, taps), as there are "
            f"{len(measured)} head_directions, got {h.shape}. Give both ears of each direction."
        )
    if not np.isfinite(h).all():
        raise InputError(
            "head_responses must be finite, got NaN or infinity. Leave those directions out."
        )
    if np.ptp(measured[:, 1]) < 1.0:
        raise InputError(
            f"head_directions must have more than one elevation in a room, got "
            f"{measured[0, 1]:g} degrees only. Reflections from walls, floor and ceiling arrive "
            "from directions that were not measured. Use a head measured in all "
            "directions, or no room."
        )
    if not 0 < rate < math.inf:
        raise InputError(f"rate must be positive, got {rate}. Give the head's samples per second.")
    walls = room.wall_distances(sources)
    closest = int(np.argmin(walls))
    if not 0 < distance_metres < walls[closest]:
        # Rounded down to centimetres, and below the distance of the wall if that is a whole one.
        fits = math.floor(100 * walls[closest] - 0.5) / 100
        raise InputError(
            f"distance_metres must be positive and keep the sources inside the room, "
            f"got {distance_metres}. In the direction {sources[closest].tolist()} "
            f"the wall is {walls[closest]:.3f} m away: give at most {fits:g} m."
        )


def _image_order(room: Room) -> int:
    """Return the largest number of reflections of an image at the distance c T60.

    In the unit direction e, a path of length d meets about d (|e_x|/X + |e_y|/Y + |e_z|/Z) walls of
    a room (X, Y, Z), which is at most d |(1/X, 1/Y, 1/Z)|.
    """
    return math.ceil(
        SPEED_OF_SOUND * room.t60_seconds * math.hypot(*1 / np.array(room.size_metres))
    )


def _image_count(order: int) -> int:
    """Return the number of integer triples with |i| + |j| + |k| <= order."""
    return (2 * order + 1) * (2 * order**2 + 2 * order + 3) // 3


def image_sources(room: Room, offset: Array) -> tuple[Array, Array]:
    """Return the image sources of one source: offsets (I, 3) and reflection gains (I,).

    Offsets are in metres from the head. The source itself is the image with a gain of 1.
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


def _render(trains: csr_array, h: Array) -> Array:
    """Return sum_tj trains[t, j] h[j] delayed by t: (2, n), n at least rows + taps - 1.

    trains (rows, N) holds the gain of the image that arrives at sample t from head direction j.
    """
    rows, (directions, _, taps) = trains.shape[0], h.shape
    flat = h.reshape(directions, 2 * taps)
    size = 256  # samples per block, so that the (size, 2, taps) values of one stay in the cache
    width = taps + size
    blocks = math.ceil(rows / size)
    sound = np.zeros((2, blocks * size + taps - 1))
    for start in range(0, rows, size):
        block = trains[start : start + size]
        images = np.zeros((2, size, width))
        images[:, : block.shape[0], :taps] = np.moveaxis((block @ flat).reshape(-1, 2, taps), 1, 0)
        # Row t must be delayed by t samples. It was written at t * width = t * (width - 1) + t,
        # so the same memory, read in rows that are one element shorter, has it in column t.
        delayed = images.reshape(2, -1)[:, :-size].reshape(2, size, width - 1)
        sound[:, start : start + width - 1] += delayed.sum(axis=1)
    return sound
