"""Separation of moving sources along their estimated trajectories.

Input: a block, its coherent bins, and one `EstimatedTrajectory` per source. Output: the same as for
static sources (masks, signals and posteriors), with directions that are known at every time.

Bins are assigned as in VESSL (`earatlas.separation.vessl`), except that the cues of a source are
those of its direction in each step of 1/8 s and are not fitted:

    q_mn ∝ λ_mc N(y_n; s_m,d(x_m in the step of n), v_d)        λ, v by EM
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from earatlas.features.blocks import Block
from earatlas.features.layout import CueLayout
from earatlas.features.onset_detector import OnsetBins
from earatlas.features.tf_bins import ObservedBins
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Space
from earatlas.localization.diagnostics import Doubt
from earatlas.localization.multi_source_posterior import LOW_EVIDENCE_NATS
from earatlas.separation.assembly import SeparatedBlock
from earatlas.separation.demixing.rendering import Rendering
from earatlas.separation.demixing.time_varying import interaural_ratios_at, separate_moving
from earatlas.separation.result import Evidence, LocatedSource
from earatlas.separation.separator import Separator, decay_is_reverberant
from earatlas.separation.source_directions import existence_doubt, scene_doubts
from earatlas.separation.source_track import SourceLevels, SourceTrack
from earatlas.separation.vessl import VESSL, mixing_weight_cells
from earatlas.tracking.offline import EstimatedTrajectory
from earatlas.types import Array, Complex, Indices, Spectra

__all__ = ["MovingSourceSeparator", "MovingSources"]

# Evidence: docs/figures/settings/separation.md, "moving_sources".
_STEP_FRAMES = 16  # frames per step, 1/8 s: 2.5 degrees at 20 degrees per second
_EM_ITERATIONS = 4  # EM iterations of the masks
_RADII_90 = {1: 1.645, 2: 2.146}  # 90 % radius of a Gaussian in standard deviations, by dimension
_MIN_WINDOW_ONSETS = 1.0  # weighted onsets of a window that determine a direction
_MAX_COMPONENTS = 240  # most components of the posterior of a moving source: one minute of windows


@dataclass(frozen=True, eq=False)
class MovingSourceBlock(SeparatedBlock):
    """A separated block with moving sources."""

    ratios: Complex = field(kw_only=True)  # (M, S, F) interaural ratios in each step
    starts: Indices = field(kw_only=True)  # (S,) first frame of each step

    def signals(
        self, layout: CueLayout, rendering: Rendering, *, reverberant: bool | None
    ) -> Array:
        """Return the signals (M, 2, n) of all sources."""
        if len(self.masks) == 1 or rendering != "spatial":
            return super().signals(layout, rendering, reverberant=reverberant)
        n = self.block.samples.shape[1]
        return separate_moving(self.spectra, self.masks, self.ratios, self.starts, layout, n)

    def rendering_above_cues(self, rendering: Rendering) -> Rendering:
        """Return soft masks: no interaural ratios were learned above the band of the cues."""
        return "soft" if rendering == "spatial" else rendering


@dataclass(frozen=True, eq=False)
class MovingSource(LocatedSource):
    """The posterior of a source over the whole recording, and its trajectory."""

    trajectory: EstimatedTrajectory

    def track(self, levels: SourceLevels, m: int) -> SourceTrack:
        """Return the track of source m along its trajectory, in every active row."""
        active, trajectory, t = levels.active[m], self.trajectory, levels.seconds
        directions = np.where(active[:, None], trajectory.at(t), np.nan)
        radius = np.where(active, trajectory.radius_at(t), np.nan)
        return SourceTrack(t, directions, radius, levels.level_db[m], moves=trajectory.moves)


@dataclass(frozen=True, eq=False)
class MovingSources:
    """The sources of a recording of which some move, and an iterator over its separated blocks.

    It has the interface of `StaticSources`.
    """

    trajectories: tuple[EstimatedTrajectory, ...]
    samples: int  # length of the recording
    blocks: Iterator[SeparatedBlock]
    onsets: OnsetBins
    reverberant: bool  # whether sound decays as slowly as in a reverberant room
    block_free_energies: list[Array]  # (iterations,) of every block that was separated
    needs_source_onsets: bool = False  # directions come from the onsets of the mixture
    possibly_reverberant: bool = False  # the filters are the same in all rooms

    @property
    def n_sources(self) -> int:
        """Number of sources M."""
        return len(self.trajectories)

    @property
    def free_energies(self) -> tuple[float, ...]:
        """Free energy per iteration, summed over all separated blocks."""
        return tuple(float(energy) for energy in np.sum(self.block_free_energies, axis=0))

    def record_masks(self, block: SeparatedBlock) -> None:
        """Do nothing: trajectories need no masks to be matched with onsets."""

    def located(self, separator: Separator) -> tuple[list[LocatedSource], tuple[Doubt, ...]]:
        """Return the located sources and the doubts that concern all of them."""
        head = separator.head
        located: list[LocatedSource] = [
            _located_source(head.space, trajectory) for trajectory in self.trajectories
        ]
        seconds = self.samples / head.layout.rate
        return located, scene_doubts(head, located, self.onsets, seconds)


def _located_source(space: Space, trajectory: EstimatedTrajectory) -> MovingSource:
    """Return a source whose posterior is a mixture over all windows with enough onsets.

    The posterior of a static source has a single component.
    """
    if trajectory.moves:
        windows = np.flatnonzero(trajectory.weights > _MIN_WINDOW_ONSETS)
    else:
        windows = np.zeros(1, dtype=np.intp)
    windows = windows if len(windows) else np.array([int(trajectory.weights.argmax())])
    windows = windows[:: -(-len(windows) // _MAX_COMPONENTS)]
    width = trajectory.radius_90[windows] / _RADII_90[space.dims]
    posterior = DirectionPosterior(
        space,
        trajectory.at(trajectory.seconds)[windows],
        np.full(len(windows), 1 / len(windows)),
        np.zeros((len(windows), space.dims)),
        (width**2)[:, None, None] * np.eye(space.dims),
    )
    evidence = Evidence(0.0, trajectory.onset_bins, gain=trajectory.gain, direct=True)
    doubtful = trajectory.gain < LOW_EVIDENCE_NATS
    doubts = (existence_doubt(trajectory.gain),) if doubtful else ()
    return MovingSource(posterior, evidence, doubts, trajectory=trajectory)


@dataclass(frozen=True, eq=False)
class MovingSourceSeparator:
    """Separates blocks along the trajectories of their sources."""

    separator: Separator
    trajectories: list[EstimatedTrajectory]
    block_free_energies: list[Array] = field(default_factory=list)  # (iterations,) per block

    def separate(self, block: Block, spectra: Spectra, bins: ObservedBins) -> MovingSourceBlock:
        """Return the masks and interaural ratios of a block."""
        layout, localizer = self.separator.layout, self.separator.head.reverberant_localizer
        assert localizer is not None  # trajectories require it
        starts = np.arange(0, spectra.shape[-1], _STEP_FRAMES)
        seconds = (block.start + (starts + 0.5 * _STEP_FRAMES) * layout.hop) / layout.rate
        directions = np.stack([t.at(seconds) for t in self.trajectories])  # (M, S, 2)
        assignment = _TrajectoryAssignment(self.separator, bins, directions, starts)
        masks, free_energies = assignment.masks(spectra)
        self.block_free_energies.append(np.array(free_energies))
        sound = localizer.direct_sound
        frequencies_hz = (np.arange(layout.n_frequencies) + 1) * layout.rate / layout.window
        at = sound.interpolation_for(
            sound.templates.directions, directions.reshape(-1, directions.shape[-1])
        )
        ratios = interaural_ratios_at(sound.templates, at, frequencies_hz)
        ratios = ratios.reshape(*directions.shape[:2], -1)
        return MovingSourceBlock(block, spectra, masks, bins, ratios=ratios, starts=starts)

    def sources(
        self, blocks: Iterator[SeparatedBlock], onsets: OnsetBins, samples: int
    ) -> MovingSources:
        """Return the sources of a recording whose blocks are separated by this object."""
        return MovingSources(
            tuple(self.trajectories),
            samples,
            blocks,
            onsets,
            decay_is_reverberant(onsets),
            self.block_free_energies,
        )


class _TrajectoryAssignment:
    """Assignment of bins to sources whose cues (M, S, D) are known in every step."""

    def __init__(
        self, separator: Separator, bins: ObservedBins, directions: Array, starts: Indices
    ) -> None:
        self._model, self._starts = separator.source_model, starts
        M, S = directions.shape[:2]
        cues, squares = self._model.expected(directions.reshape(M * S, -1))
        self._cues, self._squares = cues.reshape(M, S, -1), squares.reshape(M, S, -1)
        self._vessl = VESSL(self._model, bins)
        step = np.searchsorted(starts, bins.t, side="right") - 1
        rows = [np.flatnonzero(step == s) for s in range(S)]
        self._parts = [(s, own, bins.subset(own)) for s, own in enumerate(rows) if len(own)]

    def masks(self, spectra: Spectra) -> tuple[Array, tuple[float, ...]]:
        """Return soft masks (M, F, T) of all bins, and the free energies of the EM iterations."""
        M, settings = len(self._cues), self._model.settings
        v, free_energies = self._model.noise, []
        weights = np.full((M, self._vessl.n_cells), 1 / M)
        for _ in range(_EM_ITERATIONS):
            q, energy = self._assign(v, weights)
            energy += self._vessl.mixing_weight_log_prior(weights)
            energy -= (
                0.5 * settings.noise_prior_frames * float((np.log(v) + self._model.noise / v).sum())
            )
            free_energies.append(energy)
            v, weights = self._noise(q), self._vessl.mixing_weights(q)
        F = spectra.shape[1] - 1
        masks = np.empty((M, F, spectra.shape[2]))
        for s, (begin, end) in enumerate(pairwise([*self._starts, spectra.shape[2]])):
            f, t = (index.ravel() for index in np.indices((F, end - begin)))
            bins = ObservedBins.at(spectra[..., begin:end], self._model.layout, f, t)
            cells, count = mixing_weight_cells(bins, settings.weight_bands)
            first = begin * (count // (end - begin)) if settings.weight_bands else 0
            q, _ = _softmax(self._logs(s, v, bins, weights[:, first + cells]))
            masks[..., begin:end] = q.reshape(M, F, -1)
        return masks, tuple(free_energies)

    def _logs(self, s: int, v: Array, bins: ObservedBins, weights: Array) -> Array:
        """Return log λ p(y_n | m) (M, N) of bins in step s."""
        logs = self._vessl.log_likelihoods(self._cues[:, s], self._squares[:, s], v, bins)
        out: Array = logs + np.log(np.maximum(weights, 1e-300))
        return out

    def _assign(self, v: Array, weights: Array) -> tuple[Array, float]:
        """Return q (M, N) and Σ_n log Σ_m λ p(y_n | m)."""
        q, total = np.zeros((len(weights), len(self._vessl.bins))), 0.0
        for s, own, bins in self._parts:
            q[:, own], evidence = _softmax(
                self._logs(s, v, bins, weights[:, self._vessl.cells[own]])
            )
            total += evidence
        return q, total

    def _noise(self, q: Array) -> Array:
        """Return v (D,): the mean squared error of bins, with a prior at the initial variances."""
        initial, frames = self._model.noise, self._model.settings.noise_prior_frames
        errors, weight = frames * initial, np.full(len(initial), frames)
        for s, own, bins in self._parts:
            statistics = bins.statistics(q[:, own])
            squared = statistics.expected_squared_errors(self._cues[:, s], self._squares[:, s])
            errors = errors + np.maximum(squared, 0.0).sum(axis=0)
            weight = weight + statistics.counts.sum(axis=0)
        return np.where(weight > 0, errors / np.where(weight > 0, weight, 1.0), initial)


def _softmax(logs: Array) -> tuple[Array, float]:
    """Return the softmax over the first axis, and the sum of the log normalizers."""
    top = logs.max(axis=0)
    q = np.exp(logs - top)
    total = q.sum(axis=0)
    return q / total, float((top + np.log(total)).sum())
