"""Cue statistics and onsets of a recording, hop by hop, in two passes over the sound.

Input: a learned head and a recording. Output: statistics of each hop and onsets of each window. The
first pass determines the floors that bins must exceed, which depend on the whole recording; the
second pass accumulates the statistics. Only some hops are kept in memory. Both passes use single
precision, which changes directions by less than 0.001 degrees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import tee

import numpy as np

from earatlas.features.audio import Audio
from earatlas.features.cues import spectra_blocks
from earatlas.features.hop_statistics import HopStatistics, hop_statistics
from earatlas.features.layout import Threshold
from earatlas.features.onset_detector import OnsetBins, OnsetDetector
from earatlas.features.recording import Recording
from earatlas.features.statistics import CueStatistics, LevelHistogram
from earatlas.localization.learned_head import LearnedHead
from earatlas.types import Array

__all__ = ["WindowedFeatures"]


class WindowedFeatures:
    """Statistics and onsets of a recording, computed while iterating over its hops."""

    def __init__(self, head: LearnedHead, recording: Recording) -> None:
        self._layout, self._recording = head.layout, recording
        self._onset_settings = (
            None
            if head.reverberant_localizer is None
            else head.reverberant_localizer.direct_sound.onset_settings
        )
        self._detector = None
        if head.reverberant_localizer is not None:
            sound = head.reverberant_localizer.direct_sound
            self._detector = OnsetDetector(
                sound.onset_settings, single=True, limits=sound.interaural_limits
            )
        self._recent: OnsetBins | None = None  # onsets of the next windows, sorted by time
        self._total = HopStatistics(np.zeros((3, 1, head.layout.n_cues)), np.zeros(1))

    def hops(self, step: int, threshold: Threshold | None) -> Iterator[HopStatistics]:
        """Yield the statistics of hops of `step` frames, several hops at a time."""
        layout, levels = self._layout, LevelHistogram(self._layout)
        blocks = self._first_pass(self._recording.blocks(layout))
        for spectra in spectra_blocks(blocks, layout, single=True):
            levels.push(spectra)
        blocks = self._second_pass(self._recording.blocks(layout, second_pass=True))
        spectra_again = spectra_blocks(blocks, layout, single=True)
        for hops in hop_statistics(spectra_again, layout, levels.floors_db(threshold), step):
            self._total += hops.total()
            yield hops

    def total(self) -> tuple[CueStatistics, OnsetBins | None]:
        """Return the statistics and the strongest onsets of all hops so far."""
        (statistics,) = self._total
        return statistics, None if self._detector is None else self._detector.bins()

    def _first_pass(self, blocks: Iterator[Audio]) -> Iterator[Audio]:
        """Yield the blocks, and push them to the onset detector to learn the noise floor."""
        for block in blocks:
            if self._detector is not None:
                self._detector.push(block.samples)
            yield block
        if self._detector is not None:
            self._detector.finish()

    def _second_pass(self, blocks: Iterator[Audio]) -> Iterator[Audio]:
        """Yield the blocks; the onsets of a block are detected before it is yielded."""
        if self._detector is None:
            yield from blocks
            return
        now, later = tee(blocks)
        detected = self._detector.second_pass(block.samples for block in now)
        for block in later:
            self._add(next(detected))
            yield block
        for last in detected:
            self._add(last)

    def _add(self, new: OnsetBins) -> None:
        parts = [new] if self._recent is None else [self._recent, new]
        self._recent = OnsetBins.concatenate(parts)

    def onsets(self, begin: float, frames: float) -> OnsetBins | None:
        """Return all onsets of a window, sorted by time; windows must be requested in order."""
        if self._onset_settings is None or self._recent is None:
            return None
        onset_hop = self._onset_settings.hop / self._onset_settings.rate
        scale = self._layout.hop / self._layout.rate / onset_hop
        first, last = (begin - 0.5) * scale, (begin - 0.5 + frames) * scale
        start, end = self._recent.t.searchsorted([first, last])
        onsets = replace(self._recent[slice(start, end)], frames=frames * scale)
        if start > len(self._recent) // 2:
            self._recent = self._recent[slice(start, None)]
        return onsets

    def seconds_of(self, onsets: OnsetBins) -> Array:
        """Return the times (B,) of onsets in seconds."""
        assert self._onset_settings is not None, "there are no onsets without settings"
        hop_seconds = self._onset_settings.hop / self._onset_settings.rate
        return np.asarray(onsets.t * hop_seconds, dtype=np.float64)
