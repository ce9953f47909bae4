"""What was found in a recording: its sources, where each is, and each by itself.

A scene in memory, `Scene`, has the sound and the mask of every source. One whose sounds went to
files, `FoundScene`, has the same but for these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from earatlas.features.audio import Audio
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.localization.diagnostics import Doubt
from earatlas.separation.source_track import Levels, SourceTrack, standing_track
from earatlas.separation.spectrogram_summary import Picture
from earatlas.types import Array, Single

__all__ = ["Evidence", "FoundScene", "FoundSource", "Placed", "Scene", "Source"]


@dataclass(frozen=True)
class Evidence:
    """What speaks for a source; NaN: its onsets were not looked at."""

    misfit: float  # of the open-air model; above 1 it does not fit as sources in the open do
    onset_bins: float = math.nan  # bins in which it is heard to arrive
    nats_a_bin: float = math.nan  # that these tell of a direction, over diffuse sound
    gain: float = math.nan  # nats that every onset of the recording gains by its being there
    direct: bool = False  # whether the posterior is that of the onsets

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; None where the onsets were not looked at."""
        numbers = {
            "misfit": self.misfit,
            "onset_bins": self.onset_bins,
            "nats_a_bin": self.nats_a_bin,
            "gain": self.gain,
        }
        shown = {k: round(v, 3) if math.isfinite(v) else None for k, v in numbers.items()}
        return {**shown, "direct": self.direct}


@dataclass(frozen=True, eq=False)
class Placed:
    """Where one of the sources is believed to be, and what speaks for and against it."""

    posterior: DirectionPosterior
    evidence: Evidence
    doubts: tuple[Doubt, ...]

    def track(self, levels: Levels, m: int) -> SourceTrack:
        """Source m over time: it stands where it is believed to be."""
        return standing_track(self.posterior, levels, m)


@dataclass(frozen=True, eq=False)
class FoundSource:
    """One sound of a scene: where it is, and how much of the energy it has."""

    name: str
    posterior: DirectionPosterior  # where it is
    share: float  # of the mixture's energy that its mask has; all sources' sum to 1
    track: SourceTrack = field(kw_only=True, repr=False)  # where it was when, and how loud
    evidence: Evidence = field(kw_only=True, default=Evidence(math.nan))
    doubts: tuple[Doubt, ...] = field(kw_only=True, default=())  # what speaks against it

    def __repr__(self) -> str:
        place = ", ".join(f"{v:.1f}" for v in self.direction)
        name = type(self).__name__
        return f"{name}({self.name!r}, ({place}) degrees, {100 * self.share:.0f} % of the energy)"

    @cached_property
    def direction(self) -> Array:
        """The most probable direction (C,), in degrees."""
        return self.posterior.best

    @cached_property
    def credible_90_area(self) -> float:
        """Size of the region that holds it with a probability of 90 %, in (square) degrees."""
        return self.posterior.credible_area(0.9)

    @cached_property
    def radius_90(self) -> float:
        """How far from `direction`, in degrees, it lies with a probability of 90 %."""
        return self.posterior.radius_90

    @property
    def moves(self) -> bool:
        """Whether it is at different places at different times."""
        return self.track.moves

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        radius, area = self.posterior.credible_digits(0.9)
        return {
            "name": self.name,
            "direction": [round(float(v), 2) for v in self.direction],
            "share": round(self.share, 4),
            "radius_90": radius,
            "credible_90_area": area,
            "moves": self.moves,
            "track": self.track.rows(),
            "evidence": self.evidence.to_dict(),
            "doubts": [str(doubt) for doubt in self.doubts],
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
    doubts: tuple[Doubt, ...] = field(kw_only=True, default=())  # that concern all of them
    dry: bool = field(kw_only=True, default=False)  # without late sound: they do not add up

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
    """The sources of a recording in memory; their sounds add up to the mixture, unless dry."""

    sources: tuple[Source, ...]
    mixture: Audio  # what was recorded, at the rate of the sounds

    @property
    def masks(self) -> Single:
        """(M, F, T) soft masks."""
        return np.stack([source.mask for source in self.sources])
