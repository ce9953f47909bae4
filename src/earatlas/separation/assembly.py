"""Assembly of a scene from separated blocks: cross-faded signals, and the summary of the scene.

Input: blocks with the masks of their sources, in order, and the recording at the output rate.
Output: segments of the sources' signals at that rate, without gaps, and at the end a
`SceneSummary`. Its spectrograms and tracks have a bounded size, whatever the duration: a track has
one row per quarter of a second, or longer rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.features.onset_detector import OnsetBins, OnsetDetector, OnsetDetectorSettings
from earatlas.features.recording import CrossFade, SegmentReader
from earatlas.features.reverberation import UNKNOWN_REVERBERATION, ReverberationEstimate
from earatlas.features.stft import bin_power
from earatlas.features.tf_bins import ObservedBins
from earatlas.localization.diagnostics import Doubt
from earatlas.separation.demixing.band_extension import extend_band
from earatlas.separation.demixing.dereverberation import dereverberate
from earatlas.separation.demixing.rendering import Rendering
from earatlas.separation.result import (
    SceneSummary,
    SourceSummary,
    SourceTrack,
    SpectrogramSummary,
)
from earatlas.separation.source_directions import LocatedSource, Trajectory
from earatlas.separation.source_masks import SeparatedBlock
from earatlas.types import Array, Indices, Mask, Single, Spectra

__all__ = [
    "LevelMeter",
    "OutputPlan",
    "OutputSegment",
    "SceneAssembler",
    "SourceLevels",
    "SpectrogramAccumulator",
    "SpectrogramSettings",
]


@dataclass(frozen=True, eq=False)
class OutputPlan:
    """How the output signals are made: rendering, rate, and the recording at that rate."""

    rendering: Rendering
    rate: int  # Hz; block boundaries are whole samples at this rate
    recording: Iterable[Array]  # chunks (2, n) at that rate
    offset: Array  # (2, 1) DC offset that was removed; it is divided among the sources
    onset_settings: OnsetDetectorSettings | None = None  # detect onsets of each source, if given
    reverberation: ReverberationEstimate = UNKNOWN_REVERBERATION  # by the onsets of the recording
    dry: bool = False  # reduce late reverberation if the recording is reverberant


@dataclass(frozen=True, slots=True)
class SpectrogramSettings:
    """Resolution of spectrograms and tracks, and the levels of an active source.

    Separated signals retain some of the other talkers in the pauses of a source.
    """

    max_times: int = 1200  # columns of a spectrogram and rows of a track: 5 minutes of rows
    max_frequencies: int = 256  # rows of a spectrogram
    row_seconds: float = 0.25  # duration of a row of a track, about a syllable
    silence_db: float = -120.0  # re a full-scale sine, below the resolution of 16 bits
    below_loudest_db: float = 30.0  # largest distance of an active row below the loudest one
    below_total_db: float = 20.0  # largest distance below the sum of all sources


@dataclass(frozen=True, eq=False)
class OutputSegment:
    """A segment of the separated recording; successive segments have no gaps."""

    signals: Array  # (M, 2, n)
    masks: Single  # (M, F, t)


class SceneAssembler:
    """Assembles a scene with a known number of sources, block by block.

    `reverberation` is the estimate of the recording. The first block with two sources completes it
    if it is uncertain; all blocks, the band above the cues and the dereverberation follow it.
    """

    def __init__(
        self,
        layout: CueLayout,
        n_sources: int,
        *,
        samples: int,
        overlap: int,
        output: OutputPlan,
    ) -> None:
        M, summary = n_sources, SpectrogramSettings()
        self._layout = layout
        self._samples, self._output = samples, output
        self.reverberation = output.reverberation
        self._recording, self._overlap = SegmentReader(output.recording), overlap
        settings = output.onset_settings
        self._onset_detectors = [OnsetDetector(settings) for _ in range(M)] if settings else []
        self._spectrogram = SpectrogramAccumulator(layout, samples // layout.hop + 1, M, summary)
        self._energies = np.zeros(M)
        self._meter = LevelMeter(M, self._output_samples(samples), output.rate, summary)
        self._signal_fade = CrossFade(self._output_samples(overlap))
        self._mask_fade = CrossFade(overlap // layout.hop + 1)

    @property
    def rate(self) -> int:
        """Output rate in Hz."""
        return self._output.rate

    @property
    def dry(self) -> bool:
        """Whether late reverberation is reduced."""
        return self._output.dry and self.reverberation.reverberant

    def add(self, separated: SeparatedBlock) -> OutputSegment:
        """Add a block; return what is final: all of it except the overlap with the next block."""
        layout, observed, masks = self._layout, separated.observed, separated.masks
        block, spectra = observed.block, observed.spectra
        signals = self._signals(separated)
        if self.dry:
            signals = dereverberate(signals, self._output.rate)
        power = bin_power(spectra, layout.window).sum(axis=0)
        self._energies += np.einsum("mft,ft->m", masks, power)
        self._spectrogram.add(spectra, power, masks, block.start // layout.hop, observed.bins)
        segment = OutputSegment(
            self._signal_fade.push(signals, last=block.last),
            self._mask_fade.push(masks, last=block.last).astype(np.float32),
        )
        self._meter.add(segment.signals)
        offset = self._output.offset / len(masks)
        return replace(segment, signals=segment.signals + offset)

    def _signals(self, separated: SeparatedBlock) -> Array:
        """Return the signals (M, 2, n) of a block at the output rate."""
        layout, output, block = self._layout, self._output, separated.observed.block
        signals, self.reverberation = separated.signals(
            layout, output.rendering, self.reverberation
        )
        for detector, signal in zip(self._onset_detectors, signals, strict=False):
            detector.push(signal[:, self._overlap if block.start else 0 :])
        if output.rate == layout.rate:
            return signals
        begin, end = self._output_samples(block.start), self._output_samples(separated.observed.end)
        recorded = self._recording.read(begin, None if block.last else end)
        rendering = separated.rendering_above_cues(output.rendering)
        return extend_band(recorded, signals, layout, output.rate, rendering, self.reverberation)

    def _output_samples(self, samples: int) -> int:
        """Convert a number of samples from the layout's to the output rate."""
        return round(samples * self._output.rate / self._layout.rate)

    def source_onsets(self) -> list[OnsetBins]:
        """Return the onsets of each separated source after the last block, if requested."""
        for detector in self._onset_detectors:
            detector.finish()
        return [detector.bins() for detector in self._onset_detectors]

    def summary(
        self,
        located: Sequence[LocatedSource],
        doubts: tuple[Doubt, ...],
        free_energies: tuple[float, ...],
    ) -> SceneSummary:
        """Return the scene without signals; `located` holds the directions of the sources."""
        energies = self._energies / max(float(self._energies.sum()), 1e-300)
        levels = self._meter.levels()
        sources = tuple(
            SourceSummary(
                f"source{m + 1}",
                source.posterior,
                float(energies[m]),
                track=levels.track(source.trajectory, m),
                evidence=source.evidence,
                doubts=source.doubts,
                given=source.given,
            )
            for m, source in enumerate(located)
        )
        return SceneSummary(
            sources=sources,
            spectrogram=self._spectrogram.summary(),
            free_energies=free_energies,
            seconds=self._samples / self._layout.rate,
            rate=self._output.rate,
            dry=self.dry,
            doubts=doubts,
        )


@dataclass(frozen=True, eq=False)
class SourceLevels:
    """Levels of M sources in W rows of time."""

    seconds: Array  # (W,)
    level_db: Array  # (M, W) dB re a full-scale sine in both ears
    settings: SpectrogramSettings = SpectrogramSettings()

    @property
    def active(self) -> Mask:
        """Whether each source is active, and loud enough against the others, (M, W)."""
        total = 10 * np.log10((10 ** (self.level_db / 10)).sum(axis=0))
        loudest = self.level_db.max(axis=1, keepdims=True)
        settings = self.settings
        threshold = np.maximum(loudest - settings.below_loudest_db, total - settings.below_total_db)
        active: Mask = (self.level_db >= threshold) & (self.level_db > settings.silence_db)
        return active

    def track(self, trajectory: Trajectory, m: int) -> SourceTrack:
        """Return the track of source m along its trajectory; NaN where it is silent."""
        active, t = self.active[m], self.seconds
        directions = np.where(active[:, None], trajectory.at(t), np.nan)
        radius = np.where(active, trajectory.radius_at(t), np.nan)
        return SourceTrack(t, directions, radius, self.level_db[m], moves=trajectory.moves)


class LevelMeter:
    """Levels of M signals of known length that arrive in segments."""

    def __init__(
        self, n_sources: int, samples: int, rate: int, settings: SpectrogramSettings
    ) -> None:
        """Meter `samples` at `rate` Hz; rows are longer if there would be too many."""
        shortest = round(settings.row_seconds * rate)
        self._row = max(shortest, -(-samples // settings.max_times), 1)  # samples
        self._rate, self._done, self._settings = rate, 0, settings
        count = max(-(-samples // self._row), 1)
        self._energies = np.zeros((n_sources, count))
        self._counts = np.zeros(count)

    def add(self, signals: Array) -> None:
        """Add the next segment of all signals (M, 2, n)."""
        n = signals.shape[-1]
        rows = np.minimum((self._done + np.arange(n)) // self._row, len(self._counts) - 1)
        self._counts += np.bincount(rows, minlength=len(self._counts))
        for m, signal in enumerate(signals):
            power = (signal**2).sum(axis=0)
            self._energies[m] += np.bincount(rows, power, len(self._counts))
        self._done += n

    def levels(self) -> SourceLevels:
        """Return the levels of everything that was added; a full-scale sine has 0 dB."""
        n_rows = max(int(np.count_nonzero(self._counts)), 1)
        counts = np.maximum(self._counts[:n_rows], 1)
        middle = (np.arange(n_rows) + 0.5) * self._row
        power = self._energies[:, :n_rows] / counts
        level = 10 * np.log10(np.maximum(power, 10 ** (self._settings.silence_db / 10)))
        return SourceLevels(middle / self._rate, level, self._settings)


class SpectrogramAccumulator:
    """Accumulates the summary of T frames from successive blocks."""

    def __init__(
        self, layout: CueLayout, frames: int, n_sources: int, settings: SpectrogramSettings
    ) -> None:
        self._layout = layout
        self._bins_per_row = max(-(-layout.n_frequencies // settings.max_frequencies), 1)
        self._frames_per_column = max(-(-frames // settings.max_times), 1)
        shape = (
            -(-layout.n_frequencies // self._bins_per_row),
            -(-frames // self._frames_per_column),
        )
        self._power, self._bins = np.zeros(shape), np.zeros(shape)
        self._observed, self._ild = np.zeros(shape), np.zeros(shape)
        self._masks = np.zeros((n_sources, *shape))

    def add(
        self, spectra: Spectra, power: Array, masks: Array, first: int, observed: ObservedBins
    ) -> None:
        """Add frames from `first` on: spectra (2, B, t), power (F, t), masks (M, F, t).

        Frames that two blocks share count twice, both in the sums and in the counts.
        """
        F, T = self._layout.n_frequencies, spectra.shape[-1]
        rows = np.arange(F) // self._bins_per_row
        columns = (first + np.arange(T)) // self._frames_per_column
        columns = np.minimum(columns, self._power.shape[1] - 1)
        cell = rows[:, None] * self._power.shape[1] + columns
        self._power += self._sums(cell.ravel(), power.ravel())
        self._bins += self._sums(cell.ravel(), np.ones(F * T))
        observed_cell = cell[observed.f, observed.t]
        self._observed += self._sums(observed_cell, np.ones(len(observed_cell)))
        left, right = spectra[:, observed.f + 1, observed.t]
        self._ild += self._sums(observed_cell, 20 * np.log10(np.abs(right) / np.abs(left)))
        for m, mask in enumerate(masks):
            self._masks[m] += self._sums(observed_cell, mask[observed.f, observed.t])

    def _sums(self, cell: Indices, values: Array) -> Array:
        """Return the sums of values per cell."""
        size = self._power.size
        sums: Array = np.bincount(cell, values, size).reshape(self._power.shape).astype(np.float64)
        return sums

    def summary(self) -> SpectrogramSummary:
        """Return the summary of all frames that were added."""
        layout, (rows, columns) = self._layout, self._power.shape
        observed = np.where(self._observed > 0, self._observed, np.nan)
        middle = (np.arange(columns) + 0.5) * self._frames_per_column - 0.5
        f = np.minimum((np.arange(rows) + 0.5) * self._bins_per_row + 0.5, layout.n_frequencies)
        power = self._power / np.maximum(self._bins, 1.0)
        return SpectrogramSummary(
            seconds=middle * layout.hop / layout.rate,
            frequencies_hz=f * layout.rate / layout.window,
            level_db=10 * np.log10(np.maximum(power, 1e-20)),
            ild_db=self._ild / observed,
            masks=self._masks / observed,
        )
