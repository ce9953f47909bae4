"""Results of a live stream: the tracked sources after a block and their separated signals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from earatlas.geometry.alternatives import Alternative
from earatlas.geometry.lateral_angle import LateralAngle
from earatlas.localization.diagnostics import Doubt
from earatlas.notebooks import HtmlView
from earatlas.types import Array
from earatlas.wording import UNKNOWN_DIRECTION, is_unknown, repr_alternatives, repr_doubts

__all__ = ["LiveReport", "LiveSource"]


@dataclass(frozen=True, eq=False)
class LiveSource:
    """One tracked source of a live stream, with its signal for one block.

    Parameters
    ----------
    id : int
        Number of the track. It is never reused for another source.
    direction : ndarray of shape (C,)
        Direction in degrees. It is relative to the room if the head's yaw is known, and relative
        to the head otherwise.
    radius_90 : float
        Radius in degrees around `direction` that holds the source with 90 % probability. It grows
        while the source is silent.
    since : float
        Time at which the track was initiated, in seconds of the stream.
    age : float
        Seconds since the source was last detected.
    level_db : float
        Current level of the signal in dB re full scale; -inf without a signal.
    confirmed : bool
        Whether the source was detected often enough. Only confirmed sources have a signal.
    active : bool
        Whether the source was detected in the last 0.4 s.
    speed : float
        Angular speed in degrees per second; 0 for a static source.
    doubts : tuple of Doubt
        Reasons to doubt this source.
    samples : ndarray of shape (2, n)
        Separated signal at both ears.
    alternatives : tuple of Alternative
        Possible directions on the cone of confusion, `direction` first; empty or one if there is
        no other.
    lateral_angle : LateralAngle, optional
        Angle from the median plane, positive on the left, with its own 90 % radius; relative to the
        room or the head, as `direction` is. None if the source moves or has not been active long
        enough.

    Examples
    --------
    >>> import numpy as np
    >>> from earatlas.streaming.report import LiveSource
    >>> LiveSource(1, np.array([30.0, 0.0]), 4.0, 0.5, 0.1, -20.0, True, True, 0.0)
    LiveSource(1: (30°, 0°) ± 4°, active, -20 dB)

    """

    id: int  # never reused
    direction: Array  # (C,) degrees
    radius_90: float  # degrees
    since: float  # seconds
    age: float  # seconds
    level_db: float  # re full scale
    confirmed: bool
    active: bool
    speed: float  # degrees per second
    doubts: tuple[Doubt, ...] = ()
    samples: Array = field(default_factory=lambda: np.zeros((2, 0)))  # (2, n)
    alternatives: tuple[Alternative, ...] = ()  # `direction` is that of the first
    lateral_angle: LateralAngle | None = None

    def __repr__(self) -> str:
        if not self.confirmed:
            state = "tentative"
        else:
            state = "active" if self.active else f"silent for {self.age:.1f} s"
        moving = f", moving at {self.speed:.0f}°/s" if self.speed else ""
        level = f", {self.level_db:.0f} dB" if np.isfinite(self.level_db) else ""
        place = _format_place(self) + repr_alternatives(
            self.alternatives, self.radius_90, lateral_angle=self.lateral_angle
        )
        doubts = repr_doubts(doubt.word for doubt in self.doubts)
        return f"LiveSource({self.id}: {place}, {state}{moving}{level}{doubts})"

    def to_dict(self) -> dict[str, Any]:
        """Return the values for JSON, without the samples.

        Returns
        -------
        dict
            Keys `id`, `direction`, `radius_90`, `since`, `age`, `level_db` (None without a signal),
            `confirmed`, `active`, `speed`, `alternatives`, `lateral_angle` (None if not known) and
            `doubts`.

        """
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
            "alternatives": [one.to_dict() for one in self.alternatives],
            "lateral_angle": self.lateral_angle and self.lateral_angle.to_dict(),
            "doubts": [str(doubt) for doubt in self.doubts],
        }


@dataclass(frozen=True, eq=False)
class LiveReport(HtmlView):
    """The state of a live stream after a block.

    The signals of all sources cover the same input samples, `start` to `start` + `samples`, which
    were pushed `Live.delay_samples` earlier. If two or more sources have a signal, the signals add
    up to the input, without the constant offset of the converter.

    Parameters
    ----------
    time : float
        Seconds of input so far.
    start : int
        Input sample at which the signals begin.
    sources : tuple of LiveSource
        Tracked sources, and deleted ones whose last samples are still due; the oldest first.
    ended : tuple of LiveSource
        Sources that were deleted in this block, with their last samples.
    doubts : tuple of Doubt
        Reasons to doubt all sources: reverberation, noise, broken input.
    samples : int
        Number of samples that each signal has, also if there is no source.

    Examples
    --------
    >>> from earatlas.streaming.report import LiveReport
    >>> LiveReport(0.5, 0, ())
    LiveReport(0.50 s, no sources)

    """

    time: float  # seconds
    start: int  # samples
    sources: tuple[LiveSource, ...]
    ended: tuple[LiveSource, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    samples: int = 0

    def __repr__(self) -> str:
        sources = ", ".join(f"{s.id}: {_format_place(s)}" for s in self.sources)
        doubts = repr_doubts(doubt.word for doubt in self.doubts)
        return f"LiveReport({self.time:.2f} s, {sources or 'no sources'}{doubts})"

    def to_dict(self) -> dict[str, Any]:
        """Return the values for JSON, without the samples.

        Returns
        -------
        dict
            Keys `time`, `sources` (see `LiveSource.to_dict`), `ended` (ids) and `doubts`.

        Examples
        --------
        >>> from earatlas.streaming.report import LiveReport
        >>> LiveReport(0.5, 0, ()).to_dict()
        {'time': 0.5, 'sources': [], 'ended': [], 'doubts': []}

        """
        return {
            "time": round(self.time, 3),
            "sources": [source.to_dict() for source in self.sources],
            "ended": [source.id for source in self.ended],
            "doubts": [str(doubt) for doubt in self.doubts],
        }


def _format_place(source: LiveSource) -> str:
    """Return coordinates and radius as text, for example "(30°, -5°) ± 4°", if they are known."""
    if is_unknown(source.radius_90):
        return UNKNOWN_DIRECTION
    place = ", ".join(f"{round(float(v))}°" for v in source.direction)
    return f"({place}) ± {source.radius_90:.0f}°"
