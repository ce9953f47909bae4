"""What a live stream says after each block: who is there now, and each one's sound."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from earatlas.localization.diagnostics import Doubt
from earatlas.types import Array

__all__ = ["LiveReport", "LiveSource"]


@dataclass(frozen=True, eq=False)
class LiveSource:
    """One source that is alive, and its sound of a block."""

    id: int  # stays, and is never given to another
    direction: Array  # (C,) degrees; the room's, where the head's yaw is known
    radius_90: float  # degrees; grows while it is silent
    since: float  # seconds from the start of the stream, when it was first heard
    age: float  # seconds since it was heard last
    level_db: float  # of its sound lately, re full scale; -inf: it has none yet
    confirmed: bool  # heard for long enough to be believed; only then it has sound
    active: bool  # heard just now
    speed: float  # degrees a second
    doubts: tuple[Doubt, ...] = ()
    samples: Array = field(repr=False, default_factory=lambda: np.zeros((2, 0)))  # (2, n)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, without the sound."""
        return {
            "id": self.id,
            "direction": [round(float(v), 1) for v in self.direction],
            "radius_90": round(self.radius_90, 1),
            "since": round(self.since, 2),
            "age": round(self.age, 2),
            "level_db": round(self.level_db, 1) if np.isfinite(self.level_db) else None,
            "confirmed": self.confirmed,
            "active": self.active,
            "speed": round(self.speed, 1),
            "doubts": [str(doubt) for doubt in self.doubts],
        }


@dataclass(frozen=True, eq=False)
class LiveReport:
    """The state of a stream after a block.

    The sounds of all sources are of the same stretch: input samples `start` to `start` + n, which
    came in `delay_samples` before; where two or more sources have sound, they add up to it,
    less a constant offset of the converter.
    """

    time: float  # seconds of input so far
    start: int  # input sample that the sounds begin at
    sources: tuple[LiveSource, ...]  # alive, or with sound that still waits; the oldest first
    ended: tuple[LiveSource, ...] = ()  # that ended in this block, with the last of their sound
    doubts: tuple[Doubt, ...] = ()  # that concern all of them
    samples: int = 0  # n, also where nobody is

    def __repr__(self) -> str:
        places = ", ".join(
            f"{s.id}: ({', '.join(f'{v:.0f}' for v in s.direction)})" for s in self.sources
        )
        return f"LiveReport({self.time:.2f} s, {places or 'nobody'})"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, without the sound."""
        return {
            "time": round(self.time, 3),
            "sources": [source.to_dict() for source in self.sources],
            "ended": [source.id for source in self.ended],
            "doubts": [str(doubt) for doubt in self.doubts],
        }
