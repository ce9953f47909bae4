"""Posterior of a rotating head: the product of the posteriors of its poses, in the room's frame.

Input: the cue statistics of each pose (`earatlas.localization.pose_statistics`) and onsets with the
yaw of each bin. Output: one posterior in the frame of the room. A single pose often cannot
distinguish front from back; when the head rotates, the true direction stays and the false one moves
by twice the rotation.

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

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from scipy.special import logsumexp

from earatlas.features.onset_detector import OnsetBins
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.angles import wrap_degrees
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Circle, Space
from earatlas.localization.learned_head import CalibratedPosterior, LearnedHead
from earatlas.localization.onset_likelihood import DirectionLogLikelihood
from earatlas.localization.pose_statistics import Pose
from earatlas.localization.score_calibration import tempered_posterior
from earatlas.ppam.calibration import Calibration
from earatlas.ppam.model import PPAM
from earatlas.types import Array

__all__ = ["rotating_head_posterior"]

_OUTLIER_PROBABILITY = 1e-3  # prior of an uninformative pose: no pose alone excludes a direction
_NEGLIGIBLE_WEIGHT = 1e-5  # components of a pose's posterior below this weight are left out
_SPACINGS_DEGREES = (6.0, 3.0, 1.5, 0.75)  # spacing of the grids, from coarse to fine
_MAX_CELLS, _MASS = 100, 0.9999  # cells that are refined, and the probability that they contain
_SEED_WEIGHT = 1e-3  # the mean of a component above this weight is added to the first grid


def rotating_head_posterior(
    head: LearnedHead, poses: Sequence[Pose], onsets: OnsetBins | None, yaw_of_bins: Array
) -> CalibratedPosterior:
    """Return the posterior in the room's frame; `yaw_of_bins` (B,) is the yaw at each onset."""
    observed = [pose for pose in poses if pose.statistics.counts.any()] or list(poses[:1])
    mean_yaw = _mean_yaw(observed)
    if len(observed) == 1:
        return head.calibrated_posterior(observed[0].statistics, onsets).rotated(mean_yaw)
    yaws = np.array([wrap_degrees(pose.yaw_degrees - mean_yaw) for pose in observed])
    anechoic, residual_ratio = _anechoic_posterior(
        head, [pose.statistics for pose in observed], yaws
    )
    offsets = wrap_degrees(yaw_of_bins - mean_yaw)
    return head.combine(anechoic, residual_ratio, onsets, offsets).rotated(mean_yaw)


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
    directions = [model.space.rotated(posterior.best, -yaw) for yaw in yaws]
    counts = np.array([s.counts.sum() for s in shared])
    residuals = [
        model.normalized_residual(s, direction)
        for s, direction in zip(shared, directions, strict=True)
    ]
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
    posteriors = [posterior.pruned(_NEGLIGIBLE_WEIGHT) for posterior in posteriors]
    outlier = np.log(_OUTLIER_PROBABILITY / space.area)

    def log_product(directions: Array) -> Array:
        prior = logsumexp(model.log_gating(directions)[0], axis=1)
        total: Array = -(P - 1) * np.logaddexp(prior, outlier)
        for posterior in posteriors:
            total += np.logaddexp(posterior.log_density(directions), outlier)
        return total

    likely = [posterior.pruned(_SEED_WEIGHT) for posterior in posteriors]
    seeds = np.concatenate([space.exp(b.centres, b.means) for b in likely])
    log_density, spacing = _refine_grid(space, log_product, seeds)
    return tempered_posterior(space, log_density, 1.0, 0.3 * spacing)


def _refine_grid(
    space: Space, log_density: Callable[[Array], Array], seeds: Array
) -> tuple[DirectionLogLikelihood, float]:
    """Evaluate a density on ever finer cells around its mass; return these and their spacing."""
    cells = space.grid(_SPACINGS_DEGREES[0])
    if isinstance(space, Circle):
        cells[:, 1] = seeds[0, 1]
    cells = np.concatenate([cells, seeds])
    logs = log_density(cells)
    spacing = _SPACINGS_DEGREES[0]
    for finer in _SPACINGS_DEGREES[1:]:
        order = np.argsort(-logs, kind="stable")
        mass = np.cumsum(np.exp(logs[order] - logsumexp(logs)))
        count = int(np.searchsorted(mass, _MASS)) + 1
        if count > _MAX_CELLS:  # broad enough for this spacing
            break
        chosen = cells[order[: max(count, _MAX_CELLS // 2)]]
        offsets = np.array(list(product((-0.25, 0.25), repeat=space.dims))) * spacing
        cells = space.exp(chosen[:, None], offsets).reshape(-1, space.columns)
        logs, spacing = log_density(cells), finer
    return DirectionLogLikelihood(cells, logs, np.ones(len(cells)), np.zeros(3)), spacing
