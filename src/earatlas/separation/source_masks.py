"""Masks of the sources in each block: of static sources, and along trajectories.

Input: the estimated sources of a recording and one observed block at a time. Output: a
`SeparatedBlock` with the masks of all bins and what is known about the interaural ratios, from
which its signals follow.

**Static sources** have the cues that VESSL fitted. In a long recording VESSL runs again in every
block, with the cue statistics of each source in the whole recording as a prior. The sources thus
keep their identity in all blocks, and a source that is silent for a while does not capture the bins
of another.

**Along trajectories**, bins are assigned as in VESSL, except that the cues of a source are those of
its direction in each step of 1/8 s and are not fitted:

    q_mn ∝ λ_mc N(y_n; s_m,d(x_m in the step of n), v_d)        λ, v by EM

Static sources are sources with a single step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.features.reverberation import ReverberationEstimate
from earatlas.features.statistics import CueStatistics
from earatlas.features.tf_bins import ObservedBins
from earatlas.separation.bin_assignment import CueDensities, dense_masks, responsibilities
from earatlas.separation.demixing.permutation_alignment import ExpectedCues
from earatlas.separation.demixing.rendering import Rendering, render_sources
from earatlas.separation.demixing.time_varying import interaural_ratios_at, separate_moving
from earatlas.separation.initialization import SourceFit
from earatlas.separation.separator import ObservedBlock, ObservedRecording, Separator
from earatlas.separation.vessl import VESSL, VESSLState, cue_moments
from earatlas.tracking.offline import EstimatedTrajectory
from earatlas.types import Array, Complex, Indices, Spectra

__all__ = [
    "MaskSettings",
    "SeparatedBlock",
    "SourceMasks",
    "StaticMasks",
    "TrajectoryAssignment",
    "TrajectoryMasks",
    "interaural_ratios",
]


# Evidence: docs/figures/settings/separation.md, "source_masks".
@dataclass(frozen=True, slots=True)
class MaskSettings:
    """Settings of the masks of a block."""

    prior_frames: float = 20.0  # weight of the whole recording in a block, in frames per cue
    step_frames: int = 16  # frames per step of a trajectory, 1/8 s: 2.5° at 20° per second
    iterations: int = 4  # EM iterations along trajectories


@dataclass(frozen=True, eq=False)
class SeparatedBlock:
    """A block of a recording with the masks of its sources.

    Directions are constant in steps of time. Static sources have a single step.
    """

    observed: ObservedBlock
    masks: Array  # (M, F, t)
    ratios: Complex  # (M, S, F) expected interaural ratios, right over left; NaN where unknown
    starts: Indices  # (S,) first frame of each step

    @property
    def static(self) -> bool:
        """Whether the directions are constant."""
        return len(self.starts) == 1

    def signals(
        self, layout: CueLayout, rendering: Rendering, reverberation: ReverberationEstimate
    ) -> tuple[Array, ReverberationEstimate]:
        """Return the signals (M, 2, n) of all sources, and the completed estimate."""
        samples, spectra = self.observed.block.samples, self.observed.spectra
        if rendering == "spatial" and not self.static and len(self.masks) > 1:
            n = samples.shape[1]
            signals = separate_moving(spectra, self.masks, self.ratios, self.starts, layout, n)
            return signals, reverberation
        ratios = self.ratios[:, 0]
        return render_sources(
            samples,
            spectra,
            self.masks,
            layout,
            rendering,
            reverberation=reverberation,
            expected=ExpectedCues(20 * np.log10(np.abs(ratios)), np.angle(ratios)),
        )

    def rendering_above_cues(self, rendering: Rendering) -> Rendering:
        """Return the rendering of frequencies above the band of the cues.

        Moving sources have soft masks there: no interaural ratios were learned.
        """
        return "soft" if rendering == "spatial" and not self.static else rendering


class SourceMasks(Protocol):
    """Masks of the sources of a recording, block by block."""

    @property
    def n_sources(self) -> int:
        """Number of sources M."""

    @property
    def free_energies(self) -> tuple[float, ...]:
        """Free energy after each iteration, in nats."""

    def separate(self, observed: ObservedBlock) -> SeparatedBlock:
        """Return the masks of a block."""


class StaticMasks:
    """Masks of static sources."""

    def __init__(
        self,
        separator: Separator,
        fit: SourceFit,
        observed: ObservedRecording,
        settings: MaskSettings | None = None,
    ) -> None:
        self._separator, self._fit = separator, fit
        self._prior_statistics: CueStatistics | None = None
        if not observed.single_block:
            settings = settings or MaskSettings()
            statistics = fit.vessl.bins.statistics(fit.state.assignments)
            frames = np.maximum(statistics.counts.mean(axis=1), 1e-300)
            self._prior_statistics = statistics.scaled(settings.prior_frames / frames)

    @property
    def n_sources(self) -> int:
        """Number of sources M."""
        return self._fit.n_sources

    @property
    def free_energies(self) -> tuple[float, ...]:
        """Free energy after each iteration of VESSL in the whole recording."""
        return self._fit.state.free_energies

    def separate(self, observed: ObservedBlock) -> SeparatedBlock:
        """Return the masks of a block."""
        vessl, state = self._fit.vessl, self._fit.state
        if observed.bins is not vessl.bins:  # another block, or noisy bins, which need masks too
            vessl = VESSL(
                self._separator.source_model,
                observed.bins,
                prior_statistics=self._prior_statistics,
                directions=vessl.directions,
            )
            state = vessl.run(vessl.initialize_from(state.sources, state.noise))
        masks = vessl.masks(state, observed.spectra)
        return SeparatedBlock(
            observed, masks, interaural_ratios(self._separator, state)[:, None], np.array([0])
        )


def interaural_ratios(separator: Separator, state: VESSLState) -> Complex:
    """Return the expected interaural transfer functions (right over left) (M, F) of sources.

    They are NaN above the highest frequency with learned phase. Below it, gaps are filled with
    the source's own phase.
    """
    wide = separator.source_model.layout
    learned = separator.layout.ipd_frequencies
    phases = np.arange(learned[-1] + 1 if len(learned) else 0)
    known = {
        kind: np.full((len(state.sources), wide.n_frequencies), np.nan)
        for kind in ("ild", "ipd_cos", "ipd_sin")
    }
    cues, _ = cue_moments(state.sources)
    for kind, values in known.items():
        own = wide.cue_kinds == kind
        values[:, wide.cue_frequencies[own]] = cues[:, own]
    phase = np.arctan2(known["ipd_sin"], known["ipd_cos"])
    ratios = np.full(phase.shape, np.nan, dtype=np.complex128)
    ratios[:, phases] = (10 ** (known["ild"] / 20) * np.exp(1j * phase))[:, phases]
    return ratios


class TrajectoryMasks:
    """Masks of sources along their trajectories."""

    def __init__(
        self,
        separator: Separator,
        trajectories: Sequence[EstimatedTrajectory],
        settings: MaskSettings | None = None,
    ) -> None:
        self._separator, self._trajectories = separator, trajectories
        self._settings = settings or MaskSettings()
        self._block_free_energies: list[tuple[float, ...]] = []

    @property
    def n_sources(self) -> int:
        """Number of sources M."""
        return len(self._trajectories)

    @property
    def free_energies(self) -> tuple[float, ...]:
        """Free energy per iteration, summed over all separated blocks."""
        return tuple(map(sum, zip(*self._block_free_energies, strict=True)))

    def separate(self, observed: ObservedBlock) -> SeparatedBlock:
        """Return the masks of a block."""
        layout, step = self._separator.layout, self._settings.step_frames
        starts = np.arange(0, observed.spectra.shape[-1], step)
        seconds = (observed.block.start + (starts + 0.5 * step) * layout.hop) / layout.rate
        directions = np.stack([t.at(seconds) for t in self._trajectories])  # (M, S, 2)
        assignment = TrajectoryAssignment(self._separator, observed.bins, directions, starts)
        masks, free_energies = assignment.masks(observed.spectra, self._settings.iterations)
        self._block_free_energies.append(free_energies)
        return SeparatedBlock(observed, masks, self._interaural_ratios(directions), starts)

    def _interaural_ratios(self, directions: Array) -> Complex:
        """Return the interaural transfer functions (M, S, F) of directions (M, S, C)."""
        layout, localizer = self._separator.layout, self._separator.head.reverberant_localizer
        assert localizer is not None  # trajectories require it
        sound = localizer.direct_sound
        frequencies_hz = (np.arange(layout.n_frequencies) + 1) * layout.rate / layout.window
        at = sound.interpolation_for(
            sound.templates.directions, directions.reshape(-1, directions.shape[-1])
        )
        ratios = interaural_ratios_at(sound.templates, at, frequencies_hz)
        return ratios.reshape(*directions.shape[:2], -1)


class TrajectoryAssignment:
    """Assignment of bins to sources whose cues (M, D) are known in each of S steps."""

    def __init__(
        self, separator: Separator, bins: ObservedBins, directions: Array, starts: Indices
    ) -> None:
        self._starts = starts
        self._vessl = VESSL(separator.source_model, bins)
        self._moments = [separator.source_model.expected(x) for x in directions.swapaxes(0, 1)]
        step = np.searchsorted(starts, bins.t, side="right") - 1
        rows = [np.flatnonzero(step == s) for s in range(len(starts))]
        self._parts = [(s, own, bins.subset(own)) for s, own in enumerate(rows) if len(own)]

    def masks(self, spectra: Spectra, iterations: int) -> tuple[Array, tuple[float, ...]]:
        """Return soft masks (M, F, T) of all bins, and the free energies of the EM iterations."""
        vessl, free_energies = self._vessl, []
        v, M = vessl.source_model.noise, len(self._moments[0][0])
        weights = np.full((M, len(vessl.cells)), 1 / M)
        for _ in range(iterations):
            q, evidence = self._assign(v, weights)
            free_energies.append(evidence + vessl.log_prior(v, weights))
            v, weights = self._noise(q), vessl.mixing_weights(q)
        densities = [CueDensities.from_moments(*moments, v) for moments in self._moments]
        layout = vessl.bins.layout
        masks = dense_masks(densities, self._starts, vessl.cells, weights, spectra, layout)
        return masks, tuple(free_energies)

    def _assign(self, v: Array, weights: Array) -> tuple[Array, float]:
        """E-W: return q (M, N) and Σ_n log Σ_m λ p(y_n | m)."""
        q, total = np.zeros((len(weights), len(self._vessl.bins))), 0.0
        log_weights = np.log(np.maximum(weights, 1e-300))[:, self._vessl.cell]
        for s, own, bins in self._parts:
            logs = CueDensities.from_moments(*self._moments[s], v).of_bins(bins)
            q[:, own], evidence = responsibilities(logs + log_weights[:, own])
            total += float(evidence.sum())
        return q, total

    def _noise(self, q: Array) -> Array:
        """Return v (D,) from the squared errors of all steps."""
        statistics = [(s, bins.statistics(q[:, own])) for s, own, bins in self._parts]
        errors = [part.expected_squared_errors(*self._moments[s]) for s, part in statistics]
        counts = sum((part.counts for _, part in statistics), np.zeros_like(self._moments[0][0]))
        total = sum((np.maximum(e, 0.0) for e in errors), np.zeros_like(counts))
        return self._vessl.noise_variances(total, counts)
