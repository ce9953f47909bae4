"""Heads: what reaches two ears from many directions, measured or simulated.

A `Head` is directions with, for each, either the two impulse responses or the mean cues of a noise
recording.

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

from earatlas.errors import EaratlasWarning, InputError, harmless
from earatlas.features.audio import resample
from earatlas.features.cues import response_cues, rings
from earatlas.features.layout import CueLayout
from earatlas.geometry.angles import to_vectors, wrap_degrees
from earatlas.geometry.spaces import Circle, Space, Sphere
from earatlas.hrtf.truncation import DIRECT_SECONDS, direct_responses
from earatlas.types import Array, Indices

__all__ = [
    "Duplicates",
    "Head",
    "ImpulseResponses",
    "MeasuredCues",
    "WrongWay",
    "distinct",
    "is_wrong_way_round",
    "left_first",
]

Duplicates = Literal["error", "first"]
WrongWay = Literal["ears", "azimuths"]  # which of the two is wrong where they contradict


@dataclass(frozen=True, eq=False, slots=True)
class ImpulseResponses:
    """Both ears' responses of every direction."""

    samples: Array  # (N, 2, taps)
    rate: float  # Hz

    def cues(self, layout: CueLayout) -> Array:
        """Mean interaural vectors (N, D)."""
        return response_cues(self.samples, self.rate, layout)

    def subset(self, indices: Indices) -> ImpulseResponses:
        """The measurements of some directions, in their order."""
        return ImpulseResponses(self.samples[indices], self.rate)

    def swapped(self) -> ImpulseResponses:
        """The same with left and right exchanged."""
        return ImpulseResponses(self.samples[:, ::-1], self.rate)

    def at_rate(self, rate: int) -> Array:
        """The responses (N, 2, taps') resampled, all delayed alike so that no onset is cut."""
        if rate == self.rate:
            return self.samples
        # A resampling filter rings on both sides of an onset; 64 samples hold all that counts.
        room = int(np.ceil(64 * max(self.rate / rate, 1.0)))
        return resample(np.pad(self.samples, ((0, 0), (0, 0), (room, room))), self.rate, rate)

    def __len__(self) -> int:
        return len(self.samples)


@dataclass(frozen=True, eq=False, slots=True)
class MeasuredCues:
    """Mean cues of noise recordings, where no impulse responses are known."""

    values: Array  # (N, D)
    layout: CueLayout

    def cues(self, layout: CueLayout) -> Array:
        """The channels (N, D') of another layout, which must lie within the measured one."""
        return self.values[:, layout.indices_in(self.layout)]

    def subset(self, indices: Indices) -> MeasuredCues:
        """The measurements of some directions, in their order."""
        return MeasuredCues(self.values[indices], self.layout)

    def swapped(self) -> MeasuredCues:
        """The same with left and right exchanged: ILD and IPD change their sign, so cos stays."""
        signs = np.where(self.layout.cue_kinds == "ipd_cos", 1.0, -1.0)
        return MeasuredCues(self.values * signs, self.layout)

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, eq=False)
class Head:
    """Directions, and what the two ears get from each; made by `read_sofa` and its siblings."""

    name: str
    directions: Array  # (N, 2) degrees
    ears: ImpulseResponses | MeasuredCues
    licence: str = "unknown"
    provenance: str = ""

    def __post_init__(self) -> None:
        x = Sphere().check(self.directions).copy()
        if len(x) != len(self.ears):
            raise InputError(
                f"directions must be as many as the ears' measurements, got {len(x)} and "
                f"{len(self.ears)}. Give one of each."
            )
        x[:, 0] = wrap_degrees(x[:, 0])
        object.__setattr__(self, "directions", x)
        for words in ("name", "licence", "provenance"):  # they come from files, and are shown
            object.__setattr__(self, words, harmless(getattr(self, words)))

    def __repr__(self) -> str:
        return f"Head({self.name!r}, {len(self)} directions)"

    def __len__(self) -> int:
        return len(self.directions)

    def cues(self, layout: CueLayout | None = None) -> Array:
        """Mean interaural vectors (N, D): what is learned from."""
        return self.ears.cues(layout or CueLayout())

    def subset(self, indices: ArrayLike) -> Head:
        """The head with some of its directions (indices or a mask), in that order."""
        chosen = np.arange(len(self))[np.asarray(indices)]
        return replace(self, directions=self.directions[chosen], ears=self.ears.subset(chosen))

    def responses(self) -> ImpulseResponses:
        """The impulse responses, or an InputError for a head that is known by noise only."""
        if isinstance(self.ears, MeasuredCues):
            raise InputError(
                f"head must have impulse responses to render sound, got '{self.name}', which was "
                "measured with noise. Use a SOFA file, or recordings of impulse responses."
            )
        return self.ears

    def rings(self, layout: CueLayout | None = None) -> bool:
        """Whether it has the responses of a room: long ones, or much a good while later."""
        if isinstance(self.ears, MeasuredCues):
            return False
        return rings(self.ears.samples, self.ears.rate, layout or CueLayout())

    def direct(self, window_seconds: float = DIRECT_SECONDS) -> Head:
        """The head without the room that it was measured in: the direct sound of its responses.

        Of each response `window_seconds` are kept from its onset on, faded out; delay and level
        between the ears stay. A head that was measured in one room then serves in another.
        """
        if isinstance(self.ears, MeasuredCues):
            raise InputError(
                f"head must have impulse responses to keep their direct sound, got '{self.name}', "
                "which was measured with noise. Measure responses, or learn it as it is."
            )
        ears = self.ears
        kept = direct_responses(ears.samples, ears.rate, window_seconds)
        told = f"{self.provenance}; " if self.provenance else ""
        return replace(
            self,
            ears=ImpulseResponses(kept, ears.rate),
            provenance=f"{told}direct sound: {1000 * window_seconds:g} ms of each response",
        )

    @property
    def space(self) -> Space:
        """Where its directions live: a circle if all have one elevation, else the sphere."""
        return Circle() if np.ptp(self.directions[:, 1]) < 1.0 else Sphere()

    @property
    def spacing_degrees(self) -> float:
        """Median distance from a direction to its nearest neighbour."""
        if len(self) < 2:
            return float("nan")
        from scipy.spatial import cKDTree  # a third of a second, which few commands need

        v = to_vectors(self.directions)
        chord = cKDTree(v).query(v, k=2)[0][:, 1]
        return float(np.median(np.degrees(2 * np.arcsin(np.minimum(chord / 2, 1.0)))))


def distinct(head: Head, duplicates: Duplicates, where: str) -> Head:
    """The head with one measurement a direction, or an InputError if that is not allowed."""
    _, first, counts = np.unique(
        np.round(to_vectors(head.directions), 5), axis=0, return_index=True, return_counts=True
    )
    if not (counts > 1).any():
        return head
    if duplicates == "error":
        example = head.directions[first[np.argmax(counts > 1)]]
        raise InputError(
            f"head must have each direction once, got {(counts > 1).sum()} directions more than "
            f"once in '{where}', such as azimuth {example[0]:g}, elevation {example[1]:g}. Pass "
            "duplicates='first' (command line: --duplicates first) to keep the first of each."
        )
    return head.subset(np.sort(first))


def is_wrong_way_round(head: Head) -> bool:
    """Whether sounds from the left are louder in channel 1, as far as levels are known."""
    azimuth, elevation = head.directions.T
    lateral = (np.abs(np.abs(azimuth) - 90) < 50) & (np.abs(elevation) <= 45)
    left, right = lateral & (azimuth > 0), lateral & (azimuth < 0)
    if isinstance(head.ears, ImpulseResponses):
        energy = (head.ears.samples**2).sum(axis=2) + 1e-300
        level_db = 10 * np.log10(energy[:, 1:] / energy[:, :1])  # (N, 1)
    else:
        level_db = head.ears.values[:, head.ears.layout.cue_kinds == "ild"]
    if not (left.any() and right.any() and level_db.size):
        return False
    return bool(level_db[left].mean() > level_db[right].mean() + 3.0)


def left_first(head: Head, where: str, wrong_way: WrongWay | None = None) -> Head:
    """The head, put right if sounds from the left are louder in channel 1.

    What is heard decides, not the file's receiver positions: some files have their signs wrong
    (the KU100 of TH Köln is one) and would be swapped for nothing. Whether the ears or the azimuths
    are wrong cannot be heard: unless `wrong_way` says it, the ears are swapped, with a warning.
    """
    if wrong_way not in (None, *get_args(WrongWay)):
        raise InputError(
            f"wrong_way must be one of {', '.join(get_args(WrongWay))}, got '{wrong_way}'. "
            "Choose one, or leave it out."
        )
    if not is_wrong_way_round(head):
        return head
    told = f"{head.provenance}; " if head.provenance else ""  # an atlas of it must say so, too
    if wrong_way == "azimuths":
        provenance = f"{told}azimuths negated: the file counts them clockwise"
        return replace(head, directions=head.directions * (-1.0, 1.0), provenance=provenance)
    if wrong_way is None:
        warnings.warn(
            f"'{where}' has its ears or azimuths the wrong way round: sounds from the left are "
            "louder in channel 1. The azimuths are taken as right and the ears are swapped; if it "
            "is the azimuths that are wrong, that makes a mirrored head. Say which of them is "
            "wrong with --wrong-way azimuths or ears (in Python wrong_way='azimuths').",
            EaratlasWarning,
            stacklevel=3,
        )
    provenance = f"{told}ears swapped: the file has the right one first"
    return replace(head, ears=head.ears.swapped(), provenance=provenance)
