"""What a long recording holds, in a digest of bounded size: the loudest sure bins of every block.

In: its blocks, one after the other. Out: a digest that sources are found in as in a short
recording, and what they sounded like there (an anchor), which counts in every block like bins that
were heard.
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
from earatlas.features.tf_bins import HeardBins
from earatlas.separation.candidate_search import loudest
from earatlas.separation.progress import SURVEY
from earatlas.separation.separator import Separator
from earatlas.separation.vessl import State
from earatlas.types import Progress

__all__ = ["LEVELS_EVERY", "Survey", "anchor_of", "survey"]

LEVELS_EVERY = 2  # frames that tell the noise: they overlap by seven eighths
_DIGEST_BINS_A_BLOCK, _DIGEST_BINS = 12_000, 120_000
_BINS_A_CELL = 20.0  # as a few seconds of two talkers have
_ANCHOR_FRAMES = 20.0  # what the digest is worth in a block, a cue and source


@dataclass(frozen=True, eq=False)
class Survey:
    """What a first pass over a recording tells."""

    digest: HeardBins  # the loudest sure bins of every block
    floor_db: int  # that a bin of the recording must pass
    samples: int  # of all of it
    noisy: bool  # some of what is heard is noise


def survey(
    separator: Separator,
    blocks: Iterator[Block],
    seconds: float,
    threshold: Threshold,
    tell: Progress,
) -> Survey:
    """The loudest sure bins of every block, and the floor of the whole recording."""
    layout, levels = separator.layout, LevelStatistics(separator.layout)
    parts: list[HeardBins] = []
    peak, samples = 0.0, 0
    for block in blocks:
        spectra = stft(block.samples, layout.window, layout.hop)
        peak = max(peak, float(bin_power(spectra, layout.window).max()))
        bins = separator.sure_bins(spectra, threshold.floor_db(peak))
        parts.append(bins.subset(loudest(bins, _DIGEST_BINS_A_BLOCK, 4)))
        if sum(map(len, parts)) > 2 * _DIGEST_BINS:
            parts = _thinned(parts)
        levels.push(spectra[..., ::LEVELS_EVERY])
        samples = block.start + block.samples.shape[1]
        tell(SURVEY * min(samples / (seconds * layout.rate), 1.0), 1.0)
    floor_db = threshold.floor_db(peak)
    parts = [part.subset(np.flatnonzero(part.level_db >= floor_db)) for part in parts]
    digest = HeardBins.joined(_thinned(parts))
    clear = separator.above_noise(digest, levels, threshold)
    coarse = _coarser(clear, separator.source_model.how.bands)
    return Survey(coarse, floor_db, samples, noisy=len(clear) < len(digest))


def anchor_of(digest: HeardBins, state: State) -> CueStatistics:
    """What the sources sounded like in the digest, each worth the same number of frames."""
    known = digest.statistics(state.assignments[: len(state.sources)])
    return known.scaled(_ANCHOR_FRAMES / np.maximum(known.counts.mean(axis=1), 1e-300))


def _thinned(parts: list[HeardBins]) -> list[HeardBins]:
    """The loudest bins of each stretch, so many that all of them keep to the digest's size."""
    share = min(_DIGEST_BINS / max(sum(map(len, parts)), 1), 1.0)
    return [part.subset(loudest(part, int(share * len(part)), 1)) for part in parts]


def _coarser(digest: HeardBins, bands: int | None) -> HeardBins:
    """The digest in longer frames, none of them empty: shares need some bins a cell."""
    together = round(_BINS_A_CELL * digest.frames * (bands or 1) / max(len(digest), 1))
    frames, t = np.unique(digest.t // max(together, 1), return_inverse=True)
    return replace(digest, frames=len(frames), t=t)
