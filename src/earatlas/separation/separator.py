"""A learned head prepared for mixtures, and the first pass over a recording.

Input: a learned head and a recording. Output: an `ObservedRecording` with the coherent bins and the
onsets, in which the sources are estimated, and an iterator over the blocks of the second pass.

A recording that fits into one block is kept as it is. A long recording is read twice, in
overlapping blocks. The first pass keeps a digest of bounded size, with the loudest coherent bins of
every block; the second pass separates block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from math import gcd

import numpy as np

from earatlas.errors import InputError
from earatlas.features.audio_checks import check_length, no_observed_bins_error
from earatlas.features.layout import Threshold
from earatlas.features.onset_detector import OnsetBins, OnsetDetector
from earatlas.features.recording import Block, Recording, overlapping_blocks
from earatlas.features.statistics import LevelStatistics
from earatlas.features.stft import bin_power, stft
from earatlas.features.tf_bins import ObservedBins, interaural_coherence
from earatlas.localization.detected_sources import DETECTION_SETTINGS
from earatlas.localization.learned_head import LearnedHead
from earatlas.ppam.calibration import TYPICAL_FRAME_NOISE
from earatlas.separation.candidate_search import CandidateSearch, loudest
from earatlas.separation.source_model import SourceModel
from earatlas.types import Spectra

__all__ = [
    "MAX_SOURCES",
    "ObservationSettings",
    "ObservedBlock",
    "ObservedRecording",
    "PeekableBlocks",
    "Separator",
    "check_source_count",
    "observe_recording",
]

MAX_SOURCES = 6  # largest number of sources; two microphones hardly separate more


def check_source_count(name: str, count: float, remedy: str) -> int:
    """Return a number of sources; raise an InputError if it is not from 1 to MAX_SOURCES."""
    if count in range(1, MAX_SOURCES + 1):  # also integers of NumPy
        return int(count)
    too_many = isinstance(count, int | np.integer) and count > MAX_SOURCES
    reason = "Two microphones hardly separate more. " if too_many else ""
    raise InputError(f"{name} must be from 1 to {MAX_SOURCES}, got {count!r}. {reason}{remedy}")


# Evidence: docs/figures/settings/separation.md, "separator".
@dataclass(frozen=True, slots=True)
class ObservationSettings:
    """Settings of the blocks, and of the selection of bins."""

    block_seconds: float = 12.0  # length of a block
    overlap_seconds: float = 2.0  # overlap of consecutive blocks
    min_coherence: float = 0.99  # interaural coherence that a single source usually exceeds
    min_kept_fraction: float = 0.5  # at least this fraction of the observed bins is kept
    noise_margin_db: float = 12.0  # bins so far below the noise floor are close to it
    clean_fraction: float = 0.75  # fraction of bins above, from which a recording is clean
    level_frame_step: int = 2  # every second frame is used for the noise floor
    digest_block_bins: int = 12_000  # largest number of bins of a block in the digest
    digest_bins: int = 120_000  # largest number of bins in the digest
    digest_frames: int = 4  # frames per bin and frequency in the digest of a block
    digest_cell_bins: float = 20.0  # bins per cell of mixing weights, as in a few seconds


class Separator:
    """A learned head prepared for mixtures; holds everything that is independent of a recording."""

    def __init__(self, head: LearnedHead, settings: ObservationSettings | None = None) -> None:
        layout, noise = head.layout, head.calibration.frame_noise
        if noise is None:
            noise = np.array([TYPICAL_FRAME_NOISE[str(kind)] for kind in layout.cue_kinds])
        self.head, self.layout = head, layout
        self.settings = settings or ObservationSettings()
        self.source_model = SourceModel.from_ppam(head.model, layout, noise)
        self.candidate_search = CandidateSearch(head.model, layout)
        localizer = head.reverberant_localizer
        # None: the head has no model of reverberant rooms
        self.onset_settings = None if localizer is None else localizer.direct_sound.onset_settings

    def coherent_bins(self, spectra: Spectra, floor_db: float) -> ObservedBins:
        """Return the observed bins with the highest coherence, at least half of them."""
        layout, settings = self.source_model.layout, self.settings
        bins = ObservedBins.from_spectra(spectra, layout, np.full(layout.n_frequencies, floor_db))
        if not len(bins):
            return bins
        coherence = interaural_coherence(spectra)[bins.f, bins.t]
        kept = float(np.quantile(coherence, 1 - settings.min_kept_fraction))
        return bins.subset(np.flatnonzero(coherence >= min(settings.min_coherence, kept)))

    def bins_above_noise(
        self, bins: ObservedBins, levels: LevelStatistics, threshold: Threshold
    ) -> ObservedBins:
        """Return the bins above the recording's noise floor, or all bins if it is clean."""
        floors = np.full(self.layout.n_frequencies, -np.inf)
        floors[self.layout.cue_frequencies] = levels.floors_db(threshold)
        above, settings = bins.level_db - floors[bins.f], self.settings
        # Pauses of several talkers resemble noise, but then few bins are close to the floor.
        far = float(np.mean(above >= -settings.noise_margin_db))
        clean = far > settings.clean_fraction or not (above >= 0).any()
        return bins if clean else bins.subset(np.flatnonzero(above >= 0))

    def onset_detector(self, *, segments: bool = False) -> OnsetDetector | None:
        """Return an onset detector; None if the head has no model of reverberant rooms."""
        if self.head.reverberant_localizer is None:
            return None
        sound = self.head.reverberant_localizer.direct_sound
        onset_settings = replace(sound.onset_settings, most_bins=DETECTION_SETTINGS.many_bins)
        return OnsetDetector(onset_settings, segments=segments, limits=sound.interaural_limits)

    def blocks(
        self, recording: Recording, rate: int, *, second_pass: bool = False
    ) -> Iterator[Block]:
        """Yield all blocks of the recording; a second pass does not repeat warnings."""
        chunks = (block.samples for block in recording.blocks(self.layout, second_pass=second_pass))
        length = self._whole_hops(self.settings.block_seconds, rate)
        return overlapping_blocks(chunks, length, self.overlap_samples(rate))

    def overlap_samples(self, rate: int) -> int:
        """Return the overlap of neighbouring blocks, in samples at the rate of the layout."""
        return self._whole_hops(self.settings.overlap_seconds, rate)

    def _whole_hops(self, seconds: float, rate: int) -> int:
        """Return a length in samples that is a multiple of the hop and of samples at `rate`."""
        layout = self.layout
        step = layout.hop * (layout.rate // gcd(layout.rate, layout.hop * rate))
        return max(round(seconds * layout.rate / step), 1) * step


@dataclass(frozen=True, eq=False)
class ObservedBlock:
    """A block of a recording with its spectra and its coherent bins."""

    block: Block
    spectra: Spectra  # (2, B, t)
    bins: ObservedBins

    @property
    def end(self) -> int:
        """Index of the sample after the last one."""
        return self.block.start + int(self.block.samples.shape[1])


class PeekableBlocks(Iterator[ObservedBlock]):
    """Iterator over blocks, the next of which can be read without consuming it."""

    def __init__(self, blocks: Iterator[ObservedBlock]) -> None:
        self._blocks = blocks

    def __next__(self) -> ObservedBlock:
        return next(self._blocks)

    def peek(self) -> ObservedBlock:
        """Return the next block, which the iterator yields nevertheless."""
        block = next(self._blocks)
        self._blocks = chain([block], self._blocks)
        return block


@dataclass(frozen=True, eq=False)
class ObservedRecording:
    """The first pass over a recording, and the blocks of the second pass."""

    bins: ObservedBins  # coherent bins above the noise; the loudest ones if there are many blocks
    onsets: OnsetBins | None  # None if the head has no model of reverberant rooms
    segments: tuple[OnsetBins, ...]  # onsets of successive blocks; none if there is a single block
    samples: int  # length of the recording
    seconds: float  # the same
    single_block: bool
    blocks: PeekableBlocks


def observe_recording(
    separator: Separator,
    recording: Recording,
    rate: int,
    threshold: Threshold,
    progress: Callable[[float], None],
) -> ObservedRecording:
    """Run the first pass; `progress` is called with the fraction of the recording that is done.

    Block boundaries are whole samples at the output rate as well.
    """
    layout, settings = separator.layout, separator.settings
    blocks = separator.blocks(recording, rate)
    first = next(blocks)
    check_length(first.samples.shape[1], layout)
    levels, digest = LevelStatistics(layout), _Digest(separator)
    detector = separator.onset_detector(segments=not first.last)
    segments: list[OnsetBins] = []
    peak, end = 0.0, 0
    for block in chain([first], blocks):
        spectra = stft(block.samples, layout.window, layout.hop)
        peak = max(peak, float(bin_power(spectra, layout.window).max()))
        floor_db = threshold.floor_db(peak)
        observed = ObservedBlock(block, spectra, separator.coherent_bins(spectra, floor_db))
        levels.push(spectra[..., :: settings.level_frame_step])
        if detector is not None:
            detector.push(block.samples[:, end - block.start :])
        if not first.last:
            digest.add(observed.bins)
            if detector is not None:
                segments.append(detector.onsets_since_last_call().to_single_precision())
        end = observed.end
        progress(min(end / (recording.seconds * layout.rate), 1.0))
    bins = observed.bins if first.last else digest.bins(floor_db)
    if not len(bins):
        raise no_observed_bins_error()
    clear = separator.bins_above_noise(bins, levels, threshold)
    onsets, seconds = None, end / layout.rate
    if detector is not None:
        detector.finish()
        onsets = detector.bins()
    if first.last:
        second_pass = PeekableBlocks(iter([observed]))
        return ObservedRecording(clear, onsets, (), end, seconds, True, second_pass)
    second_pass = PeekableBlocks(_second_pass(separator, recording, rate, floor_db))
    clear = digest.with_merged_frames(clear)
    return ObservedRecording(clear, onsets, tuple(segments), end, seconds, False, second_pass)


def _second_pass(
    separator: Separator, recording: Recording, rate: int, floor_db: float
) -> Iterator[ObservedBlock]:
    """Yield the blocks again, with the threshold of the whole recording."""
    layout = separator.layout
    for block in separator.blocks(recording, rate, second_pass=True):
        spectra = stft(block.samples, layout.window, layout.hop)
        yield ObservedBlock(block, spectra, separator.coherent_bins(spectra, floor_db))


class _Digest:
    """The loudest coherent bins of every block of a long recording, in bounded size."""

    def __init__(self, separator: Separator) -> None:
        self._settings = separator.settings
        self._bands = separator.source_model.settings.weight_bands or 1
        self._parts: list[ObservedBins] = []

    def add(self, bins: ObservedBins) -> None:
        """Add the bins of the next block."""
        settings = self._settings
        kept = loudest(bins, settings.digest_block_bins, settings.digest_frames)
        self._parts.append(bins.subset(kept))
        if sum(map(len, self._parts)) > 2 * settings.digest_bins:
            self._thin()

    def bins(self, floor_db: float) -> ObservedBins:
        """Return the bins of all blocks that reach the floor of the whole recording."""
        self._parts = [
            part.subset(np.flatnonzero(part.level_db >= floor_db)) for part in self._parts
        ]
        self._thin()
        return ObservedBins.concatenate(self._parts)

    def _thin(self) -> None:
        """Keep the loudest bins of each part, so that all parts together fit the digest."""
        fraction = min(self._settings.digest_bins / max(sum(map(len, self._parts)), 1), 1.0)
        self._parts = [
            part.subset(loudest(part, int(fraction * len(part)), 1)) for part in self._parts
        ]

    def with_merged_frames(self, bins: ObservedBins) -> ObservedBins:
        """Return bins with merged frames: mixing weights need several bins per cell."""
        cells = bins.frames * self._bands
        merged = round(self._settings.digest_cell_bins * cells / max(len(bins), 1))
        frames, t = np.unique(bins.t // max(merged, 1), return_inverse=True)
        return replace(bins, frames=len(frames), t=t)
