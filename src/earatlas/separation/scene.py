"""What was found in a recording: its sources, where each is, and each by itself.

A scene in memory, `Scene`, has the sound and the mask of every source. One whose sounds went to
files, `FoundScene`, has the same but for these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from earatlas.hearing.audio import Audio
from earatlas.separation.picture import Picture
from earatlas.space.belief import ChartMixture
from earatlas.types import Array, Single

__all__ = ["FoundScene", "FoundSource", "Scene", "Source"]


@dataclass(frozen=True, eq=False)
class FoundSource:
    """One sound of a scene: where it is, and how much of the energy it has."""

    name: str
    belief: ChartMixture  # where it is
    share: float  # of the mixture's energy that its mask has; all sources' sum to 1

    def __repr__(self) -> str:
        place = ", ".join(f"{v:.1f}" for v in self.direction)
        name = type(self).__name__
        return f"{name}({self.name!r}, ({place}) degrees, {100 * self.share:.0f} % of the energy)"

    @cached_property
    def direction(self) -> Array:
        """The most probable direction (C,), in degrees."""
        return self.belief.best

    @cached_property
    def credible_90_area(self) -> float:
        """Size of the region that holds it with a probability of 90 %, in (square) degrees."""
        return self.belief.credible_area(0.9)

    @property
    def radius_90(self) -> float:
        """Half the width of that region, in degrees."""
        return self.belief.space.radius(self.credible_90_area)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "name": self.name,
            "direction": [round(float(v), 2) for v in self.direction],
            "share": round(self.share, 4),
            "radius_90": round(self.radius_90, 2),
            "credible_90_area": round(self.credible_90_area, 1),
        }


@dataclass(frozen=True, eq=False, repr=False)
class Source(FoundSource):
    """One sound of a scene, with the sound itself."""

    audio: Audio  # both ears
    mask: Single = field(repr=False)  # (F, T) of the bins above 0 Hz


@dataclass(frozen=True, eq=False)
class FoundScene:
    """The sources of a recording, the one with most of the sure bins first."""

    sources: tuple[FoundSource, ...]
    picture: Picture
    free_energies: tuple[float, ...]  # one a step of VESSL: never falls
    seconds: float
    rate: int  # Hz, of the sources' sounds
    track_seconds: Array  # (W,) middle of each block of a long recording; a short one has one
    track: Array  # (W, M, C) directions in each of them

    def __repr__(self) -> str:
        places = ", ".join(f"({', '.join(f'{v:.0f}' for v in s.direction)})" for s in self.sources)
        name = type(self).__name__
        return f"{name}({self.seconds:.1f} s, {len(self.sources)} sources at {places} degrees)"

    @property
    def directions(self) -> Array:
        """(M, C) most probable directions, in degrees."""
        return np.stack([source.direction for source in self.sources])


@dataclass(frozen=True, eq=False, repr=False)
class Scene(FoundScene):
    """The sources of a recording in memory; their sounds add up to the mixture."""

    sources: tuple[Source, ...]
    mixture: Audio  # what was recorded, at the rate of the sounds

    @property
    def masks(self) -> Single:
        """(M, F, T) soft masks."""
        return np.stack([source.mask for source in self.sources])
