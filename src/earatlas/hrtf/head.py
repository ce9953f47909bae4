"""Heads: directions with the impulse responses or the mean cues of both ears.

x   (N, 2)         directions, (azimuth, elevation) in degrees
h   (N, 2, taps)   impulse responses, left and right
y   (N, D)         mean interaural vectors (paper, section 2)
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import EaratlasWarning, InputError, SettingHint, sanitize
from earatlas.features.audio import resample
from earatlas.features.cues import response_cues
from earatlas.features.impulse_responses import responses_are_reverberant
from earatlas.features.layout import CueLayout
from earatlas.geometry.angles import to_vectors, wrap_degrees
from earatlas.geometry.neighbours import nearest_neighbours
from earatlas.geometry.spaces import Circle, Plane, Space, Sphere
from earatlas.hrtf.truncation import TRUNCATION, truncate_to_direct_sound
from earatlas.notebooks import HtmlView
from earatlas.types import Array, Indices

__all__ = [
    "BUILT_IN_HEADS",
    "Duplicates",
    "Head",
    "ImpulseResponses",
    "MeasuredCues",
    "WrongWay",
    "correct_mirroring",
    "is_mirrored",
    "remove_duplicates",
]

BUILT_IN_HEADS = ("simulated", "kemar")  # names that `open_head` knows
Duplicates = Literal["error", "first"]
WrongWay = Literal["ears", "azimuths"]  # what to correct if ears and azimuths contradict


@dataclass(frozen=True, eq=False, slots=True)
class ImpulseResponses:
    """Impulse responses of both ears for every direction."""

    samples: Array  # (N, 2, taps)
    rate: float  # Hz

    def cues(self, layout: CueLayout) -> Array:
        """Return the mean interaural vectors (N, D)."""
        return response_cues(self.samples, self.rate, layout)

    def subset(self, indices: Indices) -> ImpulseResponses:
        """Return the measurements of some directions, in the order of the indices."""
        return ImpulseResponses(self.samples[indices], self.rate)

    def swapped(self) -> ImpulseResponses:
        """Return the responses with left and right exchanged."""
        return ImpulseResponses(self.samples[:, ::-1], self.rate)

    def at_rate(self, rate: int) -> Array:
        """Return resampled responses (N, 2, taps'), with a common delay so that none is cut off."""
        if rate == self.rate:
            return self.samples
        # The resampler rings for up to 64 samples on both sides of an onset.
        margin = int(np.ceil(64 * max(self.rate / rate, 1.0)))
        padded = np.pad(self.samples, ((0, 0), (0, 0), (margin, margin)))
        return resample(padded, self.rate, rate)

    def __len__(self) -> int:
        return len(self.samples)


@dataclass(frozen=True, eq=False, slots=True)
class MeasuredCues:
    """Mean cues of noise recordings, for heads without impulse responses."""

    values: Array  # (N, D)
    layout: CueLayout

    def cues(self, layout: CueLayout) -> Array:
        """Return the cues (N, D') of another layout, which must lie within the measured one."""
        return self.values[:, layout.indices_in(self.layout)]

    def subset(self, indices: Indices) -> MeasuredCues:
        """Return the measurements of some directions, in the order of the indices."""
        return MeasuredCues(self.values[indices], self.layout)

    def swapped(self) -> MeasuredCues:
        """Return the cues with left and right exchanged: ILD and IPD change their sign."""
        signs = np.where(self.layout.cue_kinds == "ipd_cos", 1.0, -1.0)
        return MeasuredCues(self.values * signs, self.layout)

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, eq=False)
class Head(HtmlView):
    """A head: directions, and the measurements of both ears for each of them.

    Heads are usually created by `open_head`, `read_sofa`, `read_recordings`, `simulated_head` or
    `kemar`.

    Parameters
    ----------
    name : str
        Name of the head.
    directions : array_like of shape (N, 2)
        Azimuth and elevation in degrees. Azimuth is positive to the left and wrapped to
        (-180, 180]; elevation is positive upwards. With `plane`, positions on it.
    ears : ImpulseResponses or MeasuredCues
        Measurements of both ears, one per direction: impulse responses, or the mean cues of noise
        recordings.
    licence : str, default "unknown"
        Licence of the data.
    provenance : str, default ""
        Origin of the data.
    plane : Plane, optional
        The plane of the positions if sources are labelled with positions in an image, in pixels,
        instead of directions.

    Raises
    ------
    InputError
        If the directions are invalid, or not as many as the measurements.

    Examples
    --------
    >>> import earatlas as ea
    >>> head = ea.simulated_head([[90.0, 0.0], [0.0, 0.0], [-90.0, 0.0]])
    >>> head
    Head('simulated', 3 directions)
    >>> head.cues().shape
    (3, 730)
    >>> head.space
    Circle()
    """

    name: str
    directions: Array  # (N, 2), degrees
    ears: ImpulseResponses | MeasuredCues
    licence: str = "unknown"
    provenance: str = ""
    plane: Plane | None = None

    def __post_init__(self) -> None:
        x = (self.plane or Sphere()).check(self.directions).copy()
        if len(x) != len(self.ears):
            raise InputError(
                f"directions must be as many as the measurements of the ears, got {len(x)} and "
                f"{len(self.ears)}. Pass one measurement per direction."
            )
        if self.plane is None:
            x[:, 0] = wrap_degrees(x[:, 0])
        else:
            _check_on_plane(self.plane, x)
        object.__setattr__(self, "directions", x)
        for field in ("name", "licence", "provenance"):  # text from files, shown in terminals
            object.__setattr__(self, field, sanitize(getattr(self, field)))

    def __repr__(self) -> str:
        return f"Head({self.name!r}, {len(self)} {self.label_name})"

    @property
    def label_name(self) -> str:
        """What sources are labelled with: "directions" or "positions"."""
        return "directions" if self.plane is None else "positions"

    def __len__(self) -> int:
        return len(self.directions)

    def check_directions(self, purpose: str) -> None:
        """Raise InputError if the head is labelled with positions instead of directions.

        Parameters
        ----------
        purpose : str
            What directions are needed for, such as "render sound".

        Raises
        ------
        InputError
            If the labels are positions in an image.
        """
        if self.plane is not None:
            raise InputError(
                f"The head must have directions in degrees to {purpose}, but '{self.name}' has "
                f"positions in {self.plane.unit_name}. Use the head with its measured directions."
            )

    def cues(self, layout: CueLayout | None = None) -> Array:
        """Compute the mean interaural vectors of all directions.

        Parameters
        ----------
        layout : CueLayout, optional
            Cues to compute. By default, `CueLayout()`.

        Returns
        -------
        ndarray of shape (N, D)
            One cue vector per direction: the training data of an atlas.
        """
        return self.ears.cues(layout or CueLayout())

    def subset(self, indices: ArrayLike) -> Head:
        """Select some of the directions.

        Parameters
        ----------
        indices : array_like of int or bool
            Indices, whose order is kept, or a mask of shape (N,).

        Returns
        -------
        Head
            The head with the selected directions.
        """
        chosen = np.arange(len(self))[np.asarray(indices)]
        return replace(self, directions=self.directions[chosen], ears=self.ears.subset(chosen))

    def responses(self) -> ImpulseResponses:
        """Return the impulse responses.

        Returns
        -------
        ImpulseResponses
            Responses of shape (N, 2, taps) with their sampling rate.

        Raises
        ------
        InputError
            If the head was measured with noise and has no impulse responses.
        """
        if isinstance(self.ears, MeasuredCues):
            raise InputError(
                f"The head must have impulse responses to render sound, but '{self.name}' was "
                "measured with noise. Use a SOFA file, or recordings of impulse responses."
            )
        return self.ears

    def is_reverberant(self, layout: CueLayout | None = None) -> bool:
        """Return whether the impulse responses were measured in a reverberant room.

        Parameters
        ----------
        layout : CueLayout, optional
            Layout whose window defines what is late. By default, `CueLayout()`.

        Returns
        -------
        bool
            True if the responses are longer than the window or have much late energy; always False
            for heads measured with noise.
        """
        if isinstance(self.ears, MeasuredCues):
            return False
        return responses_are_reverberant(self.ears.samples, self.ears.rate, layout or CueLayout())

    def direct(self, window_seconds: float = TRUNCATION.window_seconds) -> Head:
        """Truncate the impulse responses to the direct sound, which removes the room.

        Each response is windowed from its onset on. One window serves both ears, so that the
        interaural delay and level difference are unchanged. The head can then be used in any room.

        Parameters
        ----------
        window_seconds : float, default 0.003
            Duration of the direct sound in seconds.

        Returns
        -------
        Head
            The head with truncated responses.

        Raises
        ------
        InputError
            If the head has no impulse responses, a response has no clear onset, or the window is
            too short or longer than the responses.
        """
        if isinstance(self.ears, MeasuredCues):
            raise InputError(
                f"The head must have impulse responses to be truncated to the direct sound, but "
                f"'{self.name}' was measured with noise. Measure impulse responses, or learn the "
                "head as it is."
            )
        ears = self.ears
        settings = replace(TRUNCATION, window_seconds=window_seconds)
        truncated = truncate_to_direct_sound(ears.samples, ears.rate, settings)
        note = f"direct sound: {1000 * window_seconds:g} ms of each response"
        return replace(
            self,
            ears=ImpulseResponses(truncated, ears.rate),
            provenance=_append_note(self.provenance, note),
        )

    @property
    def space(self) -> Space:
        """Space of the directions: a circle if all have one elevation, otherwise the sphere.

        It is `plane` for positions.
        """
        if self.plane is not None:
            return self.plane
        flat = np.ptp(self.directions[:, 1]) < 1.0  # degrees; positioning errors are smaller
        return Circle() if flat else Sphere()

    @property
    def spacing_degrees(self) -> float:
        """Median distance in degrees between a direction and its nearest neighbour."""
        if len(self) < 2:
            return float("nan")
        if self.plane is not None:
            from scipy.spatial import cKDTree  # imported here because it takes 0.3 s

            gaps = cKDTree(self.directions).query(self.directions, k=2)[0][:, 1]
            return float(np.median(gaps)) / self.plane.unit_scale
        v = to_vectors(self.directions)
        chord = nearest_neighbours(v, v, k=2)[0][:, 1]
        return float(np.median(np.degrees(2 * np.arcsin(np.minimum(chord / 2, 1.0)))))


def _check_on_plane(plane: Plane, positions: Array) -> None:
    """Raise InputError unless all positions lie between the bounds of the plane."""
    outside = np.flatnonzero(~plane.contains(positions))
    if len(outside):
        (left, right), (top, bottom) = plane.bounds
        raise InputError(
            f"positions must lie between {left:g} and {right:g} {plane.unit_name} in x and between "
            f"{top:g} and {bottom:g} in y, got {positions[outside[0]].tolist()} in row "
            f"{outside[0]}. Check the size of the image."
        )


def _append_note(provenance: str, note: str) -> str:
    return f"{provenance}; {note}" if provenance else note


def remove_duplicates(head: Head, duplicates: Duplicates, where: str) -> Head:
    """Keep the first measurement of each direction, or raise InputError if `duplicates` is "error".

    `where` names the file in the error.
    """
    labels = head.directions if head.plane is not None else to_vectors(head.directions)
    _, first, counts = np.unique(np.round(labels, 5), axis=0, return_index=True, return_counts=True)
    if not (counts > 1).any():
        return head
    if duplicates == "error":
        example = head.directions[first[np.argmax(counts > 1)]]
        first_name, second_name = ("azimuth", "elevation") if head.plane is None else ("x", "y")
        repeated = int((counts > 1).sum())
        noun = head.label_name if repeated > 1 else head.label_name.removesuffix("s")
        raise InputError(
            f"The head '{where}' contains {repeated} {noun} more than once, "
            f"such as {first_name} {example[0]:g}, {second_name} {example[1]:g}. Each may occur "
            "once. "
            "Remove the repeated measurements, or choose to keep the first of each. If the file "
            "contains colatitudes or swapped columns, correct them instead.",
            hint=SettingHint("duplicates='first'", "--duplicates first"),
        )
    return head.subset(np.sort(first))


def is_mirrored(head: Head, min_level_db: float = 3.0) -> bool:
    """Return whether sounds from the left are louder in the right ear, if levels are known.

    The right ear must be louder by `min_level_db` for sounds from the left than for sounds from the
    right. Evidence: docs/figures/settings/hrtf.md, "head". Positions in an image are not tested.
    """
    if head.plane is not None:
        return False
    azimuth, elevation = head.directions.T
    # Directions within 50 degrees of ±90 degrees and below 45 degrees tell the sides apart.
    lateral = (np.abs(np.abs(azimuth) - 90) < 50.0) & (np.abs(elevation) <= 45.0)
    left, right = lateral & (azimuth > 0), lateral & (azimuth < 0)
    if isinstance(head.ears, ImpulseResponses):
        energy = (head.ears.samples**2).sum(axis=2) + 1e-300
        level_db = 10 * np.log10(energy[:, 1:] / energy[:, :1])  # (N, 1)
    else:
        level_db = head.ears.values[:, head.ears.layout.cue_kinds == "ild"]
    if not (left.any() and right.any() and level_db.size):
        return False
    return bool(level_db[left].mean() > level_db[right].mean() + min_level_db)


def correct_mirroring(head: Head, where: str, wrong_way: WrongWay | None = None) -> Head:
    """Correct a head whose sounds from the left are louder in the right ear.

    The levels decide, not the receiver positions of the file, whose signs are wrong in some files.
    The levels do not tell whether the ears or the azimuths are wrong: unless `wrong_way` says it,
    the ears are swapped, with a warning. `where` names the file in the warning.
    """
    if wrong_way not in (None, *get_args(WrongWay)):
        raise InputError(
            f"wrong_way must be one of {', '.join(get_args(WrongWay))}, got '{wrong_way}'. "
            "Choose one, or leave it out."
        )
    if not is_mirrored(head):
        return head
    if wrong_way == "azimuths":
        note = "azimuths negated: the file counts them clockwise"
        return replace(
            head,
            directions=head.directions * (-1.0, 1.0),
            provenance=_append_note(head.provenance, note),
        )
    if wrong_way is None:
        warnings.warn(
            EaratlasWarning(
                f"In '{where}', sounds from the left are louder in the right ear, so either the "
                "ears or the azimuths are the wrong way round. The ears were swapped. If the "
                "azimuths are wrong instead, this head is now mirrored: read it again and state "
                "that the azimuths are the wrong way round.",
                hint=SettingHint("wrong_way='azimuths'", "--wrong-way azimuths"),
            ),
            stacklevel=3,
        )
    note = "ears swapped: the file has the right one first"
    return replace(head, ears=head.ears.swapped(), provenance=_append_note(head.provenance, note))
