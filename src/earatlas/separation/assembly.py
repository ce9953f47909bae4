"""Assembly of a scene from separated blocks: cross-faded signals, and the summary of the scene.

Input: blocks with the masks of their sources, in order, and the recording at the output rate.
Output: segments of the sources' signals at that rate, without gaps, and at the end a
`SceneSummary`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from earatlas.features.blocks import Block, CrossFade, SegmentReader
from earatlas.features.cues import bin_power
from earatlas.features.layout import CueLayout
from earatlas.features.onset_detector import OnsetBins, OnsetDetector, OnsetDetectorSettings
from earatlas.features.tf_bins import ObservedBins
from earatlas.localization.diagnostics import Doubt
from earatlas.separation.demixing.band_extension import extend_band
from earatlas.separation.demixing.dereverberation import dereverberate
from earatlas.separation.demixing.rendering import Rendering, render_sources
from earatlas.separation.result import LocatedSource, SceneSummary, SourceSummary
from earatlas.separation.source_track import LevelMeter
from earatlas.separation.spectrogram_summary import SpectrogramAccumulator
from earatlas.types import Array, Complex, Single, Spectra

__all__ = ["OutputSegment", "OutputSettings", "SceneAssembler", "SeparatedBlock"]


@dataclass(frozen=True, eq=False)
class OutputSettings:
    """How the output signals are made: rendering, rate, and the recording at that rate."""

    rendering: Rendering
    rate: int  # Hz; block boundaries are whole samples at this rate
    recording: Iterable[Array]  # chunks (2, n) at that rate
    offset: Array  # (2, 1) DC offset that was removed; it is divided among the sources
    onset_settings: OnsetDetectorSettings | None = None  # detect onsets of each source, if given
    reverberant: bool | None = False  # None: the diffuse-to-direct ratio decides
    dry: bool = False  # reduce late reverberation


@dataclass(frozen=True, eq=False)
class SeparatedBlock:
    """A block of a recording with the masks of its sources."""

    block: Block
    spectra: Spectra  # (2, B, t)
    masks: Array  # (M, F, t)
    bins: ObservedBins
    expected_ratios: Complex | None = None  # (M, F) interaural ratios; NaN where unknown

    @property
    def end(self) -> int:
        """Index of the sample after the last one."""
        return self.block.start + int(self.block.samples.shape[1])

    def signals(
        self, layout: CueLayout, rendering: Rendering, *, reverberant: bool | None
    ) -> Array:
        """Return the signals (M, 2, n) of all sources."""
        return render_sources(
            self.block.samples,
            self.spectra,
            self.masks,
            layout,
            rendering,
            reverberant=reverberant,
            ratios=self.expected_ratios,
        )

    def rendering_above_cues(self, rendering: Rendering) -> Rendering:
        """Return the rendering of frequencies above the band of the cues."""
        return rendering


@dataclass(frozen=True, eq=False)
class OutputSegment:
    """A segment of the separated recording; successive segments have no gaps."""

    signals: Array  # (M, 2, n)
    masks: Single  # (M, F, t)


class SceneAssembler:
    """Assembles a scene with a known number of sources, block by block."""

    def __init__(
        self,
        layout: CueLayout,
        n_sources: int,
        *,
        samples: int,
        overlap: int,
        output: OutputSettings,
    ) -> None:
        M = n_sources
        self._layout = layout
        self._samples, self._output = samples, output
        self._recording, self._overlap = SegmentReader(output.recording), overlap
        settings = output.onset_settings
        self._onset_detectors = [OnsetDetector(settings) for _ in range(M)] if settings else []
        self._spectrogram = SpectrogramAccumulator(layout, samples // layout.hop + 1, M)
        self._energies = np.zeros(M)
        self._meter = LevelMeter(M, samples=self._output_samples(samples), rate=output.rate)
        self._signal_fade = CrossFade(self._output_samples(overlap))
        self._mask_fade = CrossFade(overlap // layout.hop + 1)

    @property
    def rate(self) -> int:
        """Output rate in Hz."""
        return self._output.rate

    def add(self, separated: SeparatedBlock) -> OutputSegment:
        """Add a block; return what is final: all of it except the overlap with the next block."""
        layout, block = self._layout, separated.block
        signals = self._signals(separated)
        if self._output.dry:
            signals = dereverberate(signals, self._output.rate)
        power = bin_power(separated.spectra, layout.window).sum(axis=0)
        self._energies += np.einsum("mft,ft->m", separated.masks, power)
        first = block.start // layout.hop
        self._spectrogram.add(separated.spectra, power, separated.masks, first, separated.bins)
        segment = OutputSegment(
            self._signal_fade.push(signals, last=block.last),
            self._mask_fade.push(separated.masks, last=block.last).astype(np.float32),
        )
        self._meter.add(segment.signals)
        offset = self._output.offset / len(separated.masks)
        return replace(segment, signals=segment.signals + offset)

    def _signals(self, separated: SeparatedBlock) -> Array:
        """Return the signals (M, 2, n) of a block at the output rate."""
        layout, output, block = self._layout, self._output, separated.block
        signals = separated.signals(layout, output.rendering, reverberant=output.reverberant)
        for detector, signal in zip(self._onset_detectors, signals, strict=False):
            detector.push(signal[:, self._overlap if block.start else 0 :])
        if output.rate == layout.rate:
            return signals
        begin, end = self._output_samples(block.start), self._output_samples(separated.end)
        recorded = self._recording.read(begin, None if block.last else end)
        rendering = separated.rendering_above_cues(output.rendering)
        return extend_band(recorded, signals, layout, output.rate, rendering)

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
                track=source.track(levels, m),
                evidence=source.evidence,
                doubts=source.doubts,
            )
            for m, source in enumerate(located)
        )
        return SceneSummary(
            sources=sources,
            spectrogram=self._spectrogram.summary(),
            free_energies=free_energies,
            seconds=self._samples / self._layout.rate,
            rate=self._output.rate,
            dry=self._output.dry,
            doubts=doubts,
        )
