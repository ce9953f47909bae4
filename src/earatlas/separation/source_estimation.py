"""Estimation of the sources of a recording, and separation of its blocks into masks.

Input: a `Separator` and a recording. Output: its sources (`StaticSources` or `MovingSources`), with
an iterator over the separated blocks. A recording that fits into one block is processed at once.

A long recording is processed in two passes over overlapping blocks. The first pass collects a
digest of bounded size (`earatlas.separation.long_files`) and estimates the sources in it as in a
short recording. The second pass separates block by block, with the cue statistics of each source in
the digest as a prior. The sources thus keep their identity in all blocks, and a source that is
silent for a while does not capture the bins of another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from earatlas.features.audio_checks import check_length, no_observed_bins_error
from earatlas.features.blocks import Block
from earatlas.features.cues import bin_power
from earatlas.features.onset_detector import OnsetBins, OnsetDetector
from earatlas.features.recording import Recording
from earatlas.features.statistics import CueStatistics, LevelStatistics
from earatlas.features.stft import stft
from earatlas.features.tf_bins import ObservedBins
from earatlas.separation.assembly import SeparatedBlock
from earatlas.separation.blocks import recording_blocks
from earatlas.separation.long_files import (
    LEVEL_FRAME_STEP,
    digest_recording,
    source_prior_statistics,
)
from earatlas.separation.moving_sources import MovingSources, MovingSourceSeparator
from earatlas.separation.options import SeparationOptions
from earatlas.separation.separator import (
    REVERBERANT_DECAY_SECONDS,
    OnsetDetections,
    Separator,
    decay_is_reverberant,
)
from earatlas.separation.source_directions import OnsetMasks, needs_source_onsets, residual_ratios
from earatlas.separation.vessl import VESSL, VESSLState
from earatlas.types import Array, Progress, Spectra

__all__ = ["SourceFit", "StaticSources", "estimate_sources"]

# Evidence: docs/figures/settings/separation.md, "source_estimation".
_POSSIBLY_REVERBERANT_SECONDS = 0.2  # s per 60 dB, from which a room may be reverberant


@dataclass(frozen=True, eq=False)
class SourceFit:
    """The sources of a recording, as fitted by VESSL and as detected by onsets."""

    vessl: VESSL
    state: VESSLState
    residual_ratios: Array  # (M,) of the anechoic model; above 1 it does not fit
    detections: OnsetDetections


@dataclass(frozen=True, eq=False)
class StaticSources:
    """The static sources of a recording, and an iterator over its separated blocks."""

    fit: SourceFit
    samples: int  # length of the recording
    blocks: Iterator[SeparatedBlock]
    onset_masks: OnsetMasks | None
    noisy: bool  # whether some of the observed bins are noise

    @property
    def n_sources(self) -> int:
        """Number of sources M."""
        return len(self.fit.state.sources)

    @property
    def free_energies(self) -> tuple[float, ...]:
        """Free energy after each iteration of VESSL."""
        return self.fit.state.free_energies

    @property
    def onsets(self) -> OnsetBins | None:
        """Onsets of the mixture; None if the head has no model of reverberant rooms."""
        return self.fit.detections.onsets

    @property
    def reverberant(self) -> bool:
        """Whether sound decays as slowly as in a reverberant room; False if that is unknown."""
        return self.onsets is not None and decay_is_reverberant(self.onsets)

    @property
    def possibly_reverberant(self) -> bool:
        """Whether the decay is between anechoic and reverberant, so that it does not decide.

        The diffuse-to-direct ratio decides then. Noise prolongs the decay and raises the ratio, so
        a noisy recording counts as anechoic.
        """
        if self.onsets is None or self.noisy:
            return False
        decay = self.onsets.decay_seconds
        return _POSSIBLY_REVERBERANT_SECONDS <= decay < REVERBERANT_DECAY_SECONDS

    @property
    def needs_source_onsets(self) -> bool:
        """Whether some source must be localized from the onsets of its separated signal."""
        return needs_source_onsets(self.fit.residual_ratios, self.fit.detections)

    def record_masks(self, block: SeparatedBlock) -> None:
        """Record the masks of a block at the onset bins."""
        if self.onset_masks is not None:
            self.onset_masks.add(block)


def _no_progress(done: float, total: float) -> None:
    """Ignore progress."""


def estimate_sources(
    separator: Separator,
    recording: Recording,
    options: SeparationOptions,
    progress: Progress = _no_progress,
) -> StaticSources | MovingSources:
    """Estimate the sources; the blocks are separated when the iterator is advanced."""
    layout = separator.layout
    blocks = recording_blocks(recording, layout, options.rate or layout.rate)
    first = next(blocks)
    check_length(first.samples.shape[1], layout)
    if first.last:
        sources = _estimate_short(separator, first, options)
        progress(0.5, 1.0)
        return sources
    return _estimate_long(separator, recording, chain([first], blocks), options, progress)


def _fit_sources(
    separator: Separator, bins: ObservedBins, onsets: OnsetBins | None, n_sources: int | None
) -> SourceFit:
    """Fit the sources: onsets give their number and directions, the free energy may add more.

    VESSL takes reflections for sources. It is therefore not asked for the number of sources in
    reverberant recordings, and its answer is ignored if it does not fit.
    """
    detections = separator.detect_sources(onsets, n_sources)
    if onsets is None or not len(detections):
        return _source_fit(separator, bins, detections, *separator.fit(bins, n_sources))
    fit = _fit_detections(separator, bins, detections)
    if n_sources is not None or decay_is_reverberant(onsets):
        return fit
    if detections.reliable and (fit.residual_ratios <= 1).all():
        vessl, state = fit.vessl, separator.fit_more_sources(bins, fit.vessl, fit.state)
    else:
        vessl, state = separator.fit(bins)
    same_number = len(state.sources) == len(detections)
    if same_number or (residual_ratios(separator, state, bins) > 1).any():
        return fit
    detections = separator.detect_sources(onsets, len(state.sources))
    return _source_fit(separator, bins, detections, vessl, state)


def _fit_detections(
    separator: Separator, bins: ObservedBins, detections: OnsetDetections
) -> SourceFit:
    """Fit sources that are initialized at the detected directions, if these are reliable."""
    if not detections.reliable:  # the onsets of one source mask those of the others
        return _source_fit(separator, bins, detections, *separator.fit(bins, len(detections)))
    fitted = separator.fit_at(bins, detections.directions)
    return _source_fit(separator, bins, detections, *fitted)


def _source_fit(
    separator: Separator,
    bins: ObservedBins,
    detections: OnsetDetections,
    vessl: VESSL,
    state: VESSLState,
) -> SourceFit:
    return SourceFit(vessl, state, residual_ratios(separator, state, bins), detections)


def _onset_masks(separator: Separator, fit: SourceFit) -> OnsetMasks | None:
    """Return storage for the masks at onset bins, if sources were detected by onsets."""
    localizer, onsets = separator.head.reverberant_localizer, fit.detections.onsets
    if localizer is None or onsets is None or not len(fit.detections):
        return None
    M = len(fit.state.sources)
    return OnsetMasks(separator.layout, localizer.direct_sound.onset_settings, onsets, M)


def _estimate_short(
    separator: Separator, block: Block, options: SeparationOptions
) -> StaticSources | MovingSources:
    """Estimate the sources of a recording that is a single block."""
    layout, samples = separator.layout, block.samples.shape[1]
    spectra = stft(block.samples, layout.window, layout.hop)
    floor_db = options.threshold.floor_db(float(bin_power(spectra, layout.window).max()))
    bins = _check_observed(separator.coherent_bins(spectra, floor_db))
    levels, detector = LevelStatistics(layout), separator.onset_detector()
    levels.push(spectra[..., ::LEVEL_FRAME_STEP])
    if detector is not None:
        detector.push(block.samples)
    clear = separator.bins_above_noise(bins, levels, options.threshold)
    onsets = _final_onsets(detector)
    fit = _fit_sources(separator, clear, onsets, options.n_sources)
    trajectories = separator.estimate_trajectories(
        onsets, fit.detections, options.n_sources, samples
    )
    if onsets is not None and trajectories:
        moving = MovingSourceSeparator(separator, trajectories)
        return moving.sources(iter([moving.separate(block, spectra, bins)]), onsets, samples)
    vessl, state = fit.vessl, fit.state
    if len(clear) < len(bins):  # noisy bins have no directional information, but need masks
        vessl = VESSL(separator.source_model, bins)
        state = vessl.run(vessl.initialize_from(state.sources, state.noise))
    blocks = iter([_separated_block(separator, vessl, state, block, spectra)])
    noisy = len(clear) < len(bins)
    return StaticSources(fit, samples, blocks, _onset_masks(separator, fit), noisy)


def _final_onsets(detector: OnsetDetector | None) -> OnsetBins | None:
    """Return all onsets at the end of the recording."""
    if detector is None:
        return None
    detector.finish()
    return detector.bins()


def _estimate_long(
    separator: Separator,
    recording: Recording,
    blocks: Iterator[Block],
    options: SeparationOptions,
    progress: Progress,
) -> StaticSources | MovingSources:
    """Estimate the sources of a recording with several blocks, in two passes."""
    detector = separator.onset_detector(segments=True)
    segments: list[OnsetBins] = []
    first_pass = blocks if detector is None else _detect_onsets(blocks, detector, segments)
    digest = digest_recording(separator, first_pass, recording.seconds, options.threshold, progress)
    bins, floor_db, samples = _check_observed(digest.bins), digest.floor_db, digest.samples
    onsets = _final_onsets(detector)
    fit = _fit_sources(separator, bins, onsets, options.n_sources)
    trajectories = separator.estimate_long_trajectories(
        segments, fit.detections, options.n_sources, samples
    )
    state, prior_statistics = fit.state, source_prior_statistics(bins, fit.state)
    layout = separator.layout
    second_pass = recording_blocks(recording, layout, options.rate or layout.rate, second_pass=True)
    if onsets is not None and trajectories:
        moving = MovingSourceSeparator(separator, trajectories)
        moving_blocks = (_separate_moving_block(moving, block, floor_db) for block in second_pass)
        return moving.sources(moving_blocks, onsets, samples)
    separated = (
        _separate_with_prior(separator, block, state, prior_statistics, floor_db)
        for block in second_pass
    )
    return StaticSources(fit, samples, separated, _onset_masks(separator, fit), digest.noisy)


def _detect_onsets(
    blocks: Iterator[Block], detector: OnsetDetector, segments: list[OnsetBins]
) -> Iterator[Block]:
    """Yield the blocks; pass each sample to the detector once and append the onsets per block."""
    end = 0
    for block in blocks:
        detector.push(block.samples[:, end - block.start :])
        end = block.start + block.samples.shape[1]
        segments.append(detector.onsets_since_last_call().to_single_precision())
        yield block


def _separate_moving_block(
    moving: MovingSourceSeparator, block: Block, floor_db: float
) -> SeparatedBlock:
    """Separate a block along the trajectories of its sources."""
    layout = moving.separator.layout
    spectra = stft(block.samples, layout.window, layout.hop)
    return moving.separate(block, spectra, moving.separator.coherent_bins(spectra, floor_db))


def _separate_with_prior(
    separator: Separator,
    block: Block,
    state: VESSLState,
    prior_statistics: CueStatistics,
    floor_db: float,
) -> SeparatedBlock:
    """Separate a block with the cue statistics of the sources in the whole recording as prior."""
    layout = separator.layout
    spectra = stft(block.samples, layout.window, layout.hop)
    bins = separator.coherent_bins(spectra, floor_db)
    vessl = VESSL(separator.source_model, bins, prior_statistics=prior_statistics)
    state = vessl.run(vessl.initialize_from(state.sources, state.noise))
    return _separated_block(separator, vessl, state, block, spectra)


def _separated_block(
    separator: Separator, vessl: VESSL, state: VESSLState, block: Block, spectra: Spectra
) -> SeparatedBlock:
    """Return a block with the masks of a VESSL state."""
    masks = separator.masks(vessl, state, spectra)
    ratios = separator.expected_interaural_ratios(state)
    return SeparatedBlock(block, spectra, masks, vessl.bins, ratios)


def _check_observed(bins: ObservedBins) -> ObservedBins:
    if not len(bins):
        raise no_observed_bins_error()
    return bins
