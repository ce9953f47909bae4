"""What a turning head believes: the posteriors of its poses, each turned back, multiplied.

In: the statistics of each pose (`earatlas.localization.pose_statistics`), and onsets with the turn of each
bin. Out: one posterior in the room's frame. Front and back cannot be told apart by one pose where cues
are bent; when the head turns, the true place stays and the false one moves by twice the turn.

Poses of one recording err alike: the same talker, the same room, the same model. Their evidence is
therefore not added, but shared. What may be believed of a cue (Q'_d, `Calibration.believable`) is
that of all frames together, and each pose has its share of it:

    Q'_pd = Q'_d Q_pd / Q_d
    log p(x) = Σ_p log p_p(x - ψ_p) - (P - 1) log p_0(x)      p_0: before any sound

With equal turns this is the posterior of a still head, but that each pose may take another chart. The
blur of the calibration comes once, after it. Onsets do the same bin by bin
(`DirectSound.turned_look`), and are trusted once.
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
from earatlas.localization.learned_head import Judgement, LearnedHead
from earatlas.localization.onset_likelihood import Look
from earatlas.localization.pose_statistics import Pose
from earatlas.localization.score_calibration import believed_places
from earatlas.ppam.calibration import Calibration
from earatlas.ppam.model import PPAM
from earatlas.types import Array

__all__ = ["turning_judgement"]

_LOST = 1e-3  # how probable it is that a pose says nothing: no pose alone rules out a place
_NEGLIGIBLE = 1e-5  # weight of a pose's component: far below what a lost pose leaves
_SPACINGS = (6.0, 3.0, 1.5, 0.75)  # degrees between the places that are looked at
_KEPT, _MASS = 100, 0.9999  # of them, and of the posterior, that are looked at more closely
_SEEDS = 1e-3  # weight of a pose's component from which on its place is looked at


def turning_judgement(
    head: LearnedHead, poses: Sequence[Pose], onsets: OnsetBins | None, yaw_of_bins: Array
) -> Judgement:
    """What is believed in the room's frame; `yaw_of_bins` (B,) is the yaw at each onset."""
    heard = [pose for pose in poses if pose.statistics.counts.any()] or list(poses[:1])
    middle = _middle(heard)
    if len(heard) == 1:
        return head.judged(heard[0].statistics, onsets).turned(middle)
    turns = np.array([wrap_degrees(pose.yaw_degrees - middle) for pose in heard])
    opened, misfit = _judged(head, [pose.statistics for pose in heard], turns)
    offsets = wrap_degrees(yaw_of_bins - middle)
    return head.joined(opened, misfit, onsets, offsets).turned(middle)


def _middle(poses: Sequence[Pose]) -> float:
    """The mean yaw, by what was heard in each pose."""
    first = poses[0].yaw_degrees
    counts = np.array([pose.statistics.counts.sum() for pose in poses]) + 1e-300
    beyond = np.array([wrap_degrees(pose.yaw_degrees - first) for pose in poses])
    return float(first + counts @ beyond / counts.sum())


def _judged(
    head: LearnedHead, poses: Sequence[CueStatistics], turns: Array
) -> tuple[DirectionPosterior, float]:
    """As `Calibration.judged`: the open-air posterior, relaxed by the misfit, and that misfit."""
    model, calibration = head.model, head.calibration
    shared = _shared(calibration, poses, model.noise)
    posterior = _multiplied(model, shared, turns)
    places = [model.space.turned(posterior.best, -turn) for turn in turns]
    counts = np.array([s.counts.sum() for s in shared])
    misfits = [model.misfit(s, place) for s, place in zip(shared, places, strict=True)]
    excess = float(counts @ misfits / max(counts.sum(), 1e-300)) / calibration.misfit
    if excess <= 1:
        return calibration.blur(posterior), excess
    relaxed = calibration.relaxed(excess)
    return relaxed.blur(_multiplied(model, _shared(relaxed, poses, model.noise), turns)), excess


def _shared(
    calibration: Calibration, poses: Sequence[CueStatistics], noise: Array
) -> list[CueStatistics]:
    """What may be believed of all frames together, shared among the poses by their counts."""
    counts = np.sum([s.counts for s in poses], axis=0)
    # A cue's variance is that within poses; between them its mean moves. So means are left out.
    within = np.sum([s.scatter for s in poses], axis=0)
    together = CueStatistics(counts, np.zeros_like(counts), within)
    worth = calibration.believable(together, noise).counts / np.maximum(counts, 1e-300)
    return [
        CueStatistics(worth * s.counts, worth * s.counts * s.means,
                      worth * s.counts * s.means**2, s.frames)
        for s in poses
    ]  # fmt: skip


def _multiplied(model: PPAM, poses: Sequence[CueStatistics], turns: Array) -> DirectionPosterior:
    """The product of the poses' posteriors, each turned: places that are found step by step."""
    space, P = model.space, len(poses)
    posteriors = [
        model.posterior(s).turned(float(turn)) for s, turn in zip(poses, turns, strict=True)
    ]
    posteriors = [posterior.pruned(_NEGLIGIBLE) for posterior in posteriors]
    anywhere = np.log(_LOST / space.area)

    def log_product(places: Array) -> Array:
        before = logsumexp(model.gates(places)[0], axis=1)
        total: Array = -(P - 1) * np.logaddexp(before, anywhere)
        for posterior in posteriors:
            total += np.logaddexp(posterior.log_density(places), anywhere)
        return total

    likely = [posterior.pruned(_SEEDS) for posterior in posteriors]
    seeds = np.concatenate([space.exp(b.centres, b.means) for b in likely])
    look, spacing = _found(space, log_product, seeds)
    return believed_places(space, look, 1.0, 0.3 * spacing)


def _found(space: Space, log_density: Callable[[Array], Array], seeds: Array) -> tuple[Look, float]:
    """Cells that hold the posterior, ever smaller around where it is, and their spacing."""
    cells = space.grid(_SPACINGS[0])
    if isinstance(space, Circle):
        cells[:, 1] = seeds[0, 1]
    cells = np.concatenate([cells, seeds])
    logs = log_density(cells)
    spacing = _SPACINGS[0]
    for finer in _SPACINGS[1:]:
        order = np.argsort(-logs, kind="stable")
        mass = np.cumsum(np.exp(logs[order] - logsumexp(logs)))
        count = int(np.searchsorted(mass, _MASS)) + 1
        if count > _KEPT:  # broad: no need to look closer
            break
        chosen = cells[order[: max(count, _KEPT // 2)]]
        offsets = np.array(list(product((-0.25, 0.25), repeat=space.dims))) * spacing
        cells = space.exp(chosen[:, None], offsets).reshape(-1, space.columns)
        logs, spacing = log_density(cells), finer
    return Look(cells, logs, np.ones(len(cells)), np.zeros(3)), spacing
