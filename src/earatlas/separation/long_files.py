"""The first pass over a long recording: a digest of bounded size.

Input: the blocks of a recording. Output: a `RecordingDigest` with the loudest coherent bins of each
block, in which the sources are estimated as in a short recording, and the cue statistics of each
source in the digest, which serve as a prior in every block of the second pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from earatlas.features.blocks import Block
from earatlas.features.cues import bin_power
from earatlas.features.layout import Threshold
from earatlas.features.statistics import CueStatistics, LevelStatistics
from earatlas.features.stft import stft
from earatlas.features.tf_bins import ObservedBins
from earatlas.separation.candidate_search import loudest
from earatlas.separation.progress import FIRST_PASS_FRACTION
from earatlas.separation.separator import Separator
from earatlas.separation.vessl import VESSLState
from earatlas.types import Progress

__all__ = ["LEVEL_FRAME_STEP", "RecordingDigest", "digest_recording", "source_prior_statistics"]

# Evidence: docs/figures/settings/separation.md, "long_files".
LEVEL_FRAME_STEP = 2  # every second frame is used for the noise floor; frames overlap by 7/8
_DIGEST_BINS_PER_BLOCK, _DIGEST_BINS = 12_000, 120_000  # largest numbers of bins
_DIGEST_FRAMES = 4  # frames per bin and frequency in the digest of a block
_BINS_PER_CELL = 20.0  # bins per cell of mixing weights, as in a few seconds of two talkers
_PRIOR_FRAMES = 20.0  # weight of the digest in a block, in frames per cue and source


@dataclass(frozen=True, eq=False)
class RecordingDigest:
    """Result of the first pass over a recording."""

    bins: ObservedBins  # the loudest coherent bins of every block
    floor_db: int  # threshold of the whole recording
    samples: int  # length of the recording
    noisy: bool  # whether some of the observed bins are noise


def digest_recording(
    separator: Separator,
    blocks: Iterator[Block],
    seconds: float,
    threshold: Threshold,
    progress: Progress,
) -> RecordingDigest:
    """Collect the loudest coherent bins of every block and the threshold of the recording."""
    layout, levels = separator.layout, LevelStatistics(separator.layout)
    parts: list[ObservedBins] = []
    peak, samples = 0.0, 0
    for block in blocks:
        spectra = stft(block.samples, layout.window, layout.hop)
        peak = max(peak, float(bin_power(spectra, layout.window).max()))
        bins = separator.coherent_bins(spectra, threshold.floor_db(peak))
        parts.append(bins.subset(loudest(bins, _DIGEST_BINS_PER_BLOCK, _DIGEST_FRAMES)))
        if sum(map(len, parts)) > 2 * _DIGEST_BINS:
            parts = _thinned(parts)
        levels.push(spectra[..., ::LEVEL_FRAME_STEP])
        samples = block.start + block.samples.shape[1]
        progress(FIRST_PASS_FRACTION * min(samples / (seconds * layout.rate), 1.0), 1.0)
    floor_db = threshold.floor_db(peak)
    parts = [part.subset(np.flatnonzero(part.level_db >= floor_db)) for part in parts]
    digest = ObservedBins.concatenate(_thinned(parts))
    clear = separator.bins_above_noise(digest, levels, threshold)
    coarse = _merge_frames(clear, separator.source_model.settings.weight_bands)
    return RecordingDigest(coarse, floor_db, samples, noisy=len(clear) < len(digest))


def source_prior_statistics(digest: ObservedBins, state: VESSLState) -> CueStatistics:
    """Return the cue statistics of the sources in the digest, each scaled to the same weight."""
    statistics = digest.statistics(state.assignments)
    return statistics.scaled(_PRIOR_FRAMES / np.maximum(statistics.counts.mean(axis=1), 1e-300))


def _thinned(parts: list[ObservedBins]) -> list[ObservedBins]:
    """Return the loudest bins of each part, so that all parts together fit the digest."""
    fraction = min(_DIGEST_BINS / max(sum(map(len, parts)), 1), 1.0)
    return [part.subset(loudest(part, int(fraction * len(part)), 1)) for part in parts]


def _merge_frames(digest: ObservedBins, bands: int | None) -> ObservedBins:
    """Return the digest with merged frames: mixing weights need several bins per cell."""
    merged = round(_BINS_PER_CELL * digest.frames * (bands or 1) / max(len(digest), 1))
    frames, t = np.unique(digest.t // max(merged, 1), return_inverse=True)
    return replace(digest, frames=len(frames), t=t)
