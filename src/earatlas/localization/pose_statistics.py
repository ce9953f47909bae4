"""Cue statistics of a rotating head, accumulated separately for each pose.

Input: spectra and the yaw of the head in each frame. Output: a `Pose` for each range of yaw: its
mean yaw and the statistics of its frames. A static head has one pose.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from earatlas.features.layout import CueLayout, Threshold
from earatlas.features.statistics import CueStatistics, LevelStatistics
from earatlas.features.stft import squared_magnitude
from earatlas.geometry.angles import wrap_degrees
from earatlas.types import Array, Indices, Spectra

__all__ = ["POSE_DEGREES", "Pose", "PoseStatistics", "merge_poses", "total_statistics"]

# Evidence: docs/figures/settings/localization.md, "pose_statistics".
POSE_DEGREES = 10.0  # range of yaw that is one pose
_MIN_FRAMES = 1e-6  # effective frames below which a pose is dropped


@dataclass(frozen=True, eq=False)
class Pose:
    """A yaw of the head, and the statistics of its frames."""

    yaw_degrees: float  # positive to the left
    statistics: CueStatistics


def total_statistics(poses: Iterable[Pose]) -> CueStatistics:
    """Return the statistics of all poses together."""
    first, *rest = (pose.statistics for pose in poses)
    return sum(rest, first)


def merge_poses(parts: Iterable[Pose]) -> list[Pose]:
    """Merge parts of a recording with similar yaw into poses."""
    every = list(parts)
    numbers = pose_numbers(np.array([part.yaw_degrees for part in every]))
    poses = []
    for number in np.unique(numbers):
        own = [part for part, n in zip(every, numbers, strict=True) if n == number]
        counts = np.array([part.statistics.counts.sum() for part in own]) + 1e-9
        offsets = np.array([wrap_degrees(part.yaw_degrees - own[0].yaw_degrees) for part in own])
        yaw = own[0].yaw_degrees + float(counts @ offsets / counts.sum())
        poses.append(Pose(yaw, total_statistics(own)))
    return poses


class PoseStatistics:
    """`LevelStatistics` of each pose; thresholds are relative to all poses together."""

    def __init__(self, layout: CueLayout, *, forgetting: float = 1.0) -> None:
        self._layout, self._forgetting = layout, forgetting
        self._poses: dict[int, _PoseLevels] = {}

    def push(self, spectra: Spectra, yaw_degrees: Array) -> None:
        """Add the frames of two-channel spectra (2, B, t) with the yaw (t,) of the head."""
        if not len(yaw_degrees):
            return
        numbers = pose_numbers(yaw_degrees)
        edges = np.flatnonzero(np.diff(numbers)) + 1
        for run in np.split(np.arange(len(numbers)), edges):
            number = int(numbers[run[0]])
            for other, pose in self._poses.items():
                if other != number:
                    pose.levels.advance(len(run))
            if number not in self._poses:
                self._poses[number] = _PoseLevels(self._layout, self._forgetting)
            self._poses[number].push(spectra[..., run[0] : run[-1] + 1], yaw_degrees[run])
        if self._forgetting < 1:
            self._poses = {
                n: pose for n, pose in self._poses.items() if pose.levels.frames > _MIN_FRAMES
            }

    def poses(self, threshold: Threshold | None = None) -> list[Pose]:
        """Return every pose so far; an empty one before the first frame."""
        if not self._poses:
            return [Pose(0.0, LevelStatistics(self._layout).statistics(threshold))]
        parts = [part for _, part in sorted(self._poses.items())]
        every = [part.levels for part in parts]
        whole = every[0] if len(every) == 1 else LevelStatistics.merge(every)
        floors = whole.floors_db(threshold)
        return [Pose(part.yaw_degrees, part.levels.statistics_above(floors)) for part in parts]


def pose_numbers(yaw_degrees: Array) -> Indices:
    """Return the index of the pose of each yaw, which is periodic in 360 degrees."""
    numbers = np.floor(yaw_degrees / POSE_DEGREES + 0.5).astype(np.intp)
    poses: Indices = numbers % round(360 / POSE_DEGREES)
    return poses


class _PoseLevels:
    """Statistics of one pose, and its mean yaw weighted by the loudness of the frames."""

    def __init__(self, layout: CueLayout, forgetting: float) -> None:
        self.levels = LevelStatistics(layout, forgetting=forgetting)
        self._first: float | None = None
        self._weight = self._sum = 0.0

    def push(self, spectra: Spectra, yaw_degrees: Array) -> None:
        self.levels.push(spectra)
        if self._first is None:
            self._first = float(yaw_degrees[0])
        # Every eighth frequency is enough for a weight, at a hundredth of the cost.
        loudness = np.sqrt(squared_magnitude(spectra[:, ::8]).sum(axis=(0, 1)))
        self._weight += float(loudness.sum())
        # Relative to the first yaw, so that a static head has exactly its yaw.
        self._sum += float(loudness @ wrap_degrees(yaw_degrees - self._first))

    @property
    def yaw_degrees(self) -> float:
        return (self._first or 0.0) + self._sum / max(self._weight, 1e-300)
