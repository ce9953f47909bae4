"""Sums of a sound that is heard with a turning head: those of each pose by itself.

In: spectra, and how far the head is turned in each frame. Out: a `Pose` for every few degrees that
the head was turned to: their mean, and the statistics of the frames. A head that stays has one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from earatlas.features.layout import CueLayout, Threshold
from earatlas.features.statistics import CueStatistics, LevelStatistics
from earatlas.features.stft import squared_size
from earatlas.geometry.angles import wrap_degrees
from earatlas.types import Array, Indices, Spectra

__all__ = ["POSE_DEGREES", "Pose", "PoseStatistics", "joined_poses", "total_statistics"]

# 5 and 10 degrees do alike (`benchmarks/yaw.py`, 50 talkers, ±20 degrees, T60 0.3 s: median 1.0°
# and none exchanged with both; open: 0.8°), and with 10 half as many poses are asked.
POSE_DEGREES = 10.0
_FORGOTTEN = 1e-6  # frames: a pose that is worth less is dropped


@dataclass(frozen=True, eq=False)
class Pose:
    """How far the head is turned to its left, and what it heard so."""

    yaw_degrees: float
    statistics: CueStatistics


def total_statistics(poses: Iterable[Pose]) -> CueStatistics:
    """Those of all poses together, however the head was turned."""
    first, *rest = (pose.statistics for pose in poses)
    return sum(rest, first)


def joined_poses(parts: Iterable[Pose]) -> list[Pose]:
    """Poses that are a few degrees apart, of parts of a recording: those alike go together."""
    every = list(parts)
    numbers = pose_numbers(np.array([part.yaw_degrees for part in every]))
    poses = []
    for number in np.unique(numbers):
        own = [part for part, n in zip(every, numbers, strict=True) if n == number]
        heard = np.array([part.statistics.counts.sum() for part in own]) + 1e-9
        beyond = np.array([wrap_degrees(part.yaw_degrees - own[0].yaw_degrees) for part in own])
        yaw = own[0].yaw_degrees + float(heard @ beyond / heard.sum())
        poses.append(Pose(yaw, total_statistics(own)))
    return poses


class PoseStatistics:
    """`LevelStatistics` of each pose; what counts as heard is relative to all of them."""

    def __init__(self, layout: CueLayout, *, forgetting: float = 1.0) -> None:
        self._layout, self._forgetting = layout, forgetting
        self._poses: dict[int, _PoseLevels] = {}

    def push(self, spectra: Spectra, yaw_degrees: Array) -> None:
        """Count the frames of two-channel spectra (2, B, t) with the head turned so far (t,)."""
        if not len(yaw_degrees):
            return
        place = pose_numbers(yaw_degrees)
        edges = np.flatnonzero(np.diff(place)) + 1
        for run in np.split(np.arange(len(place)), edges):
            number = int(place[run[0]])
            for other, pose in self._poses.items():
                if other != number:
                    pose.levels.age(len(run))
            if number not in self._poses:
                self._poses[number] = _PoseLevels(self._layout, self._forgetting)
            self._poses[number].push(spectra[..., run[0] : run[-1] + 1], yaw_degrees[run])
        if self._forgetting < 1:
            self._poses = {
                n: pose for n, pose in self._poses.items() if pose.levels.frames > _FORGOTTEN
            }

    def poses(self, threshold: Threshold | None = None) -> list[Pose]:
        """Every pose so far; one of silence before the first frame."""
        if not self._poses:
            return [Pose(0.0, LevelStatistics(self._layout).statistics(threshold))]
        parts = [part for _, part in sorted(self._poses.items())]
        every = [part.levels for part in parts]
        whole = every[0] if len(every) == 1 else LevelStatistics.joined(every)
        floors = whole.floors_db(threshold)
        return [Pose(part.yaw_degrees, part.levels.above(floors)) for part in parts]


def pose_numbers(yaw_degrees: Array) -> Indices:
    """Which pose each yaw belongs to: the same after a whole turn."""
    numbers = np.floor(yaw_degrees / POSE_DEGREES + 0.5).astype(np.intp)
    poses: Indices = numbers % round(360 / POSE_DEGREES)
    return poses


class _PoseLevels:
    """What was heard in one pose, and its mean yaw: loud frames count more than pauses."""

    def __init__(self, layout: CueLayout, forgetting: float) -> None:
        self.levels = LevelStatistics(layout, forgetting=forgetting)
        self._first: float | None = None
        self._weight = self._sum = 0.0

    def push(self, spectra: Spectra, yaw_degrees: Array) -> None:
        self.levels.push(spectra)
        if self._first is None:
            self._first = float(yaw_degrees[0])
        # Every eighth frequency is enough for a weight, and costs a hundredth of the counting.
        loudness = np.sqrt(squared_size(spectra[:, ::8]).sum(axis=(0, 1)))
        self._weight += float(loudness.sum())
        # From the first one on: a head that stays has exactly its yaw.
        self._sum += float(loudness @ wrap_degrees(yaw_degrees - self._first))

    @property
    def yaw_degrees(self) -> float:
        return (self._first or 0.0) + self._sum / max(self._weight, 1e-300)
