"""Located sources: the direction of each source of a recording before its signal is summarized.

Output of `earatlas.separation.source_directions`. A static source has a constant trajectory, a
moving one that of the tracker.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.localization.diagnostics import Doubt
from earatlas.localization.result import uninformative_posterior
from earatlas.types import Array

__all__ = ["ConstantTrajectory", "Evidence", "LocatedSource", "Trajectory"]


@dataclass(frozen=True)
class Evidence:
    """Evidence for a source; NaN where it is not known."""

    residual_ratio: float  # residual of the anechoic model; above 1 it does not fit; NaN if moving
    onset_bins: float = math.nan  # expected number of its onset bins
    nats_per_bin: float = math.nan  # directional information of these, over diffuse sound
    gain: float = math.nan  # nats per onset of the recording that the source adds
    direct: bool = False  # whether the posterior is that of the onsets

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; None where they are not known."""
        numbers = {
            "misfit": self.residual_ratio,
            "onset_bins": self.onset_bins,
            "nats_a_bin": self.nats_per_bin,
            "gain": self.gain,
        }
        rounded = {k: round(v, 3) if math.isfinite(v) else None for k, v in numbers.items()}
        return {**rounded, "direct": self.direct}


class Trajectory(Protocol):
    """The direction of a source over time."""

    @property
    def moves(self) -> bool:
        """Whether the direction changes."""

    def at(self, seconds: Array) -> Array:
        """Return directions (T, C) in degrees at times (T,)."""

    def radius_at(self, seconds: Array) -> Array:
        """Return the radii (T,) that hold the source with a probability of 90 %, in degrees."""


@dataclass(frozen=True, eq=False)
class ConstantTrajectory:
    """The trajectory of a static source."""

    direction: Array  # (C,) degrees
    radius_90: float  # degrees

    @property
    def moves(self) -> bool:
        """Whether the direction changes: no."""
        return False

    def at(self, seconds: Array) -> Array:
        """Return the direction (T, C) at times (T,)."""
        return np.broadcast_to(self.direction, (len(seconds), len(self.direction)))

    def radius_at(self, seconds: Array) -> Array:
        """Return the radius (T,) at times (T,)."""
        return np.full(len(seconds), self.radius_90)


@dataclass(frozen=True, eq=False)
class LocatedSource:
    """The direction of one source, with the evidence for it and doubts about it."""

    posterior: DirectionPosterior  # over the whole recording
    trajectory: Trajectory
    evidence: Evidence
    doubts: tuple[Doubt, ...] = ()
    given: bool = False  # the direction was given, not estimated

    @classmethod
    def static(
        cls, posterior: DirectionPosterior, evidence: Evidence, doubts: tuple[Doubt, ...] = ()
    ) -> LocatedSource:
        """Return a source with the same direction at all times."""
        trajectory = ConstantTrajectory(posterior.direction, posterior.radius_90)
        return cls(posterior, trajectory, evidence, doubts)

    def without_direction(self) -> LocatedSource:
        """Return the source with an uninformative posterior."""
        posterior = uninformative_posterior(self.posterior)
        return LocatedSource.static(posterior, self.evidence, self.doubts)
