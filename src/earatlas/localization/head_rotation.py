"""Rotation of the head: its yaw over time, cue statistics of each pose, and one posterior of all.

Input: the yaw as users give it, spectra with the yaw of each frame, and onsets with the yaw of each
bin. Output: one posterior in the frame of the room. A static head has one pose. A single pose often
cannot distinguish front from back; when the head rotates, the true direction stays and the false
one moves by twice the rotation.

Poses of one recording have correlated errors: the talker, the room and the model are the same.
Their evidence is therefore shared, not added. The effective number of observations of a cue (Q'_d,
`Calibration.effective_statistics`) is that of all frames together, and each pose gets its share:

    Q'_pd = Q'_d Q_pd / Q_d
    log p(x) = Σ_p log p_p(x - ψ_p) - (P - 1) log p_0(x)      p_0: prior, ψ_p: yaw of pose p

With equal yaws this is the posterior of a static head, except that each pose may use another chart.
The blur of the calibration is applied once, at the end. Onsets are treated in the same way, bin by
bin (`DirectSoundModel.rotated_log_likelihood`), and are calibrated once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.features.layout import CueLayout, Threshold
from earatlas.features.onset_detector import OnsetBins
from earatlas.features.statistics import CueStatistics, LevelStatistics
from earatlas.features.stft import squared_magnitude
from earatlas.geometry.angles import wrap_degrees
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.head_yaw import Yaw, check_yaw_step
from earatlas.geometry.spaces import Circle, Space
from earatlas.localization.learned_head import CalibratedPosterior, LearnedHead
from earatlas.localization.onset_likelihood import DirectionLogLikelihood
from earatlas.localization.score_calibration import tempered_posterior
from earatlas.numerics import logsumexp
from earatlas.ppam.calibration import Calibration
from earatlas.ppam.model import PPAM
from earatlas.types import Array, Indices, Spectra

__all__ = [
    "HeadMotion",
    "HeadRotationSettings",
    "Pose",
    "PoseStatistics",
    "YawLike",
    "check_yaw",
    "merge_poses",
    "rotating_head_posterior",
    "static_onsets",
    "total_statistics",
]

YawLike = float | Yaw | ArrayLike  # degrees, a Yaw, or an array (n, 2) of seconds and degrees


@dataclass(frozen=True, slots=True)
class HeadRotationSettings:
    """Settings of the posterior of a rotating head.

    Evidence: docs/figures/settings/localization.md, "head_rotation".
    """

    pose_degrees: float = 10.0  # range of yaw that is one pose
    static_degrees: float = 6.0  # range of yaw in which the head counts as static
    outlier_probability: float = 1e-3  # prior of a pose without information: none excludes alone
    negligible_weight: float = 1e-5  # components of a pose's posterior that are left out
    seed_weight: float = 1e-3  # components whose means are added to the first grid
    spacings_degrees: tuple[float, ...] = (6.0, 3.0, 1.5, 0.75)  # grids, from coarse to fine
    max_cells: int = 100  # cells that are refined
    refined_mass: float = 0.9999  # probability that these contain


_SETTINGS = HeadRotationSettings()


# --- yaw over time -------------------------------------------------------------------------------


def check_yaw(yaw: YawLike, space: Space) -> Yaw:
    """Return the yaw; raise an InputError if the space has no yaw or it starts after the sound."""
    checked = Yaw.of(yaw)
    if checked.degrees.any() and not space.holds_directions:
        raise InputError(
            f"yaw must be used with an atlas of directions, got an atlas whose {space.name} has "
            "coordinates other than directions. Leave the yaw out."
        )
    checked.check_start()
    return checked


class HeadMotion:
    """Yaw of the head in a stream, known in advance or given with the blocks.

    The yaw of a block is that at its end, and is interpolated linearly between blocks.
    """

    def __init__(self, yaw: Yaw | None, memory_seconds: float | None) -> None:
        self._known, self._memory = yaw, memory_seconds
        self._times: list[float] = []
        self._degrees: list[float] = []
        self._with_blocks: bool | None = None  # None: not known before the first block

    def update(self, seconds: float, yaw: float | None) -> None:
        """Set the length of the stream and, if given with blocks, the present yaw."""
        if self._known is not None:
            if yaw is not None:
                raise InputError(
                    f"yaw must be given with the localizer or with its blocks, got {yaw} for a "
                    "block of a localizer that has a yaw. Leave one of them out."
                )
            self._known.check_end(seconds)
            return
        if self._with_blocks not in (None, yaw is not None):
            raise InputError(
                "yaw must be given with every block or with none, got blocks with and without one. "
                "Call push(samples, yaw=...) with the yaw of the head each time."
            )
        self._with_blocks = yaw is not None
        if yaw is not None:
            self._add(seconds, float(yaw))

    def _add(self, seconds: float, yaw: float) -> None:
        if not np.isfinite(yaw):
            raise InputError(f"yaw must be finite, got {yaw}. Check the head tracker.")
        if not self._times:
            self._times, self._degrees = [0.0], [yaw]
        if seconds <= self._times[-1]:
            return
        last = self._degrees[-1]
        now = float(np.unwrap([last, yaw], period=360.0)[1])
        check_yaw_step(np.array([last, now]), np.array([self._times[-1], seconds]))
        self._times.append(seconds)
        self._degrees.append(now)
        if self._memory is not None:  # yaws of 50 time constants are kept
            while len(self._times) > 2 and self._times[1] < seconds - 50 * self._memory:
                del self._times[0], self._degrees[0]

    def at(self, seconds: ArrayLike) -> Array:
        """Return the yaw in degrees at times (n,) so far."""
        if self._known is not None:
            return self._known.at(seconds)
        if not self._times:
            return np.zeros(np.shape(seconds))
        return np.interp(np.asarray(seconds, dtype=np.float64), self._times, self._degrees)


# --- statistics of each pose ---------------------------------------------------------------------


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
        self._poses: dict[int, LevelStatistics] = {}
        self._yaws: dict[int, Array] = {}  # first yaw, Σ loudness, Σ loudness (yaw - first)

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
                    pose.advance(len(run))
            if number not in self._poses:  # new, or forgotten
                self._poses[number] = LevelStatistics(self._layout, forgetting=self._forgetting)
                self._yaws[number] = np.array([yaw_degrees[run[0]], 0.0, 0.0])
            frames = spectra[..., run[0] : run[-1] + 1]
            self._poses[number].push(frames)
            # Every eighth frequency is enough for a weight, at a hundredth of the cost.
            loudness = np.sqrt(squared_magnitude(frames[:, ::8]).sum(axis=(0, 1)))
            # Relative to the first yaw, so that a static head has exactly its yaw.
            offsets = wrap_degrees(yaw_degrees[run] - self._yaws[number][0])
            self._yaws[number][1:] += float(loudness.sum()), float(loudness @ offsets)
        if self._forgetting < 1:  # drop poses that are forgotten
            self._poses = {n: pose for n, pose in self._poses.items() if pose.frames > 1e-6}

    def poses(self, threshold: Threshold | None = None) -> list[Pose]:
        """Return every pose so far; an empty one before the first frame."""
        if not self._poses:
            return [Pose(0.0, LevelStatistics(self._layout).statistics(threshold))]
        every = list(self._poses.values())
        whole = every[0] if len(every) == 1 else LevelStatistics.merge(every)
        floors = whole.floors_db(threshold)
        return [
            Pose(
                float(first + total / max(weight, 1e-300)),
                self._poses[number].statistics_above(floors),
            )
            for number, (first, weight, total) in sorted(self._yaws.items())
            if number in self._poses
        ]


def pose_numbers(yaw_degrees: Array) -> Indices:
    """Return the index of the pose of each yaw, which is periodic in 360 degrees."""
    numbers = np.floor(yaw_degrees / _SETTINGS.pose_degrees + 0.5).astype(np.intp)
    poses: Indices = numbers % round(360 / _SETTINGS.pose_degrees)
    return poses


def static_onsets(onsets: OnsetBins, yaw_of_bins: Array) -> OnsetBins:
    """Return the onsets of the most frequent yaw (B,): rotation would spread one source."""
    number = np.floor(yaw_of_bins / _SETTINGS.static_degrees + 0.5)
    values, counts = np.unique(number, return_counts=True)
    return onsets if len(values) < 2 else onsets[number == values[counts.argmax()]]


# --- posterior -----------------------------------------------------------------------------------


def rotating_head_posterior(
    head: LearnedHead, poses: Sequence[Pose], onsets: OnsetBins | None, yaw_of_bins: Array
) -> CalibratedPosterior:
    """Return the posterior in the room's frame; `yaw_of_bins` (B,) is the yaw at each onset."""
    observed = [pose for pose in poses if pose.statistics.counts.any()] or list(poses[:1])
    mean_yaw = _mean_yaw(observed)
    if len(observed) == 1:
        return head.calibrated_posterior(observed[0].statistics, onsets).rotated(mean_yaw)
    yaws = np.array([wrap_degrees(pose.yaw_degrees - mean_yaw) for pose in observed])
    anechoic, ratio = _anechoic_posterior(head, [pose.statistics for pose in observed], yaws)
    offsets = wrap_degrees(yaw_of_bins - mean_yaw)
    (combined,) = head.combine(
        np.array([ratio]), lambda rows: [anechoic] * len(rows), [onsets], offsets
    )
    return combined.rotated(mean_yaw)


def _mean_yaw(poses: Sequence[Pose]) -> float:
    """Return the mean yaw, weighted by the number of observations of each pose."""
    first = poses[0].yaw_degrees
    counts = np.array([pose.statistics.counts.sum() for pose in poses]) + 1e-300
    offsets = np.array([wrap_degrees(pose.yaw_degrees - first) for pose in poses])
    return float(first + counts @ offsets / counts.sum())


def _anechoic_posterior(
    head: LearnedHead, poses: Sequence[CueStatistics], yaws: Array
) -> tuple[DirectionPosterior, float]:
    """Return the results of `Calibration.calibrated_posterior` for many poses."""
    model, calibration = head.model, head.calibration
    shared = _share_statistics(calibration, poses, model.noise)
    posterior = _product(model, shared, yaws)
    directions = np.stack([model.space.rotated(posterior.best, -yaw) for yaw in yaws])
    counts = np.array([s.counts.sum() for s in shared])
    residuals = model.normalized_residuals(CueStatistics.stack(shared), directions)
    residual = float(counts @ residuals / max(counts.sum(), 1e-300))
    residual_ratio = residual / calibration.max_residual
    if residual_ratio <= 1:
        return calibration.blur(posterior), residual_ratio
    relaxed = calibration.relaxed(residual_ratio)
    shared = _share_statistics(relaxed, poses, model.noise)
    return relaxed.blur(_product(model, shared, yaws)), residual_ratio


def _share_statistics(
    calibration: Calibration, poses: Sequence[CueStatistics], noise: Array
) -> list[CueStatistics]:
    """Return the effective statistics of all frames, divided among the poses by their counts."""
    counts = np.sum([s.counts for s in poses], axis=0)
    # Only the variance within poses counts: between poses, the mean of a cue changes.
    within = np.sum([s.scatter for s in poses], axis=0)
    together = CueStatistics(counts, np.zeros_like(counts), within)
    scale = calibration.effective_statistics(together, noise).counts / np.maximum(counts, 1e-300)
    return [
        CueStatistics(scale * s.counts, scale * s.counts * s.means,
                      scale * s.counts * s.means**2, s.frames)
        for s in poses
    ]  # fmt: skip


def _product(model: PPAM, poses: Sequence[CueStatistics], yaws: Array) -> DirectionPosterior:
    """Return the product of the rotated posteriors of all poses, on an adaptive grid."""
    space, P = model.space, len(poses)
    posteriors = [
        model.posterior(s).rotated(float(yaw)) for s, yaw in zip(poses, yaws, strict=True)
    ]
    posteriors = [posterior.pruned(_SETTINGS.negligible_weight) for posterior in posteriors]
    outlier = np.log(_SETTINGS.outlier_probability / space.area)

    def log_product(directions: Array) -> Array:
        prior = logsumexp(model.log_gating(directions)[0], axis=1)
        total: Array = -(P - 1) * np.logaddexp(prior, outlier)
        for posterior in posteriors:
            total += np.logaddexp(posterior.log_density(directions), outlier)
        return total

    likely = [posterior.pruned(_SETTINGS.seed_weight) for posterior in posteriors]
    seeds = np.concatenate([space.exp(b.centres, b.means) for b in likely])
    log_density, spacing = _refine_grid(space, log_product, seeds)
    return tempered_posterior(space, log_density, 1.0, 0.3 * spacing)


def _refine_grid(
    space: Space, log_density: Callable[[Array], Array], seeds: Array
) -> tuple[DirectionLogLikelihood, float]:
    """Evaluate a density on ever finer cells around its mass; return these and their spacing."""
    cells = space.grid(_SETTINGS.spacings_degrees[0])
    if isinstance(space, Circle):
        cells[:, 1] = seeds[0, 1]
    cells = np.concatenate([cells, seeds])
    logs = log_density(cells)
    spacing = _SETTINGS.spacings_degrees[0]
    for finer in _SETTINGS.spacings_degrees[1:]:
        order = np.argsort(-logs, kind="stable")
        mass = np.cumsum(np.exp(logs[order] - logsumexp(logs)))
        count = int(np.searchsorted(mass, _SETTINGS.refined_mass)) + 1
        if count > _SETTINGS.max_cells:  # broad enough for this spacing
            break
        chosen = cells[order[: max(count, _SETTINGS.max_cells // 2)]]
        offsets = np.array(list(product((-0.25, 0.25), repeat=space.dims))) * spacing
        cells = space.exp(chosen[:, None], offsets).reshape(-1, space.columns)
        logs, spacing = log_density(cells), finer
    return DirectionLogLikelihood(cells, logs, np.ones(len(cells)), np.zeros(3)), spacing
