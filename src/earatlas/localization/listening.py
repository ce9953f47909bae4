"""What is heard over time, hop by hop, in one pass over the sound.

The floors that bins must pass depend on the whole: until they are known, the bins that may pass
them wait on disk (`earatlas.hearing.shelf`), one in twenty. Then come the sums of every hop. Memory
holds some of them, not the recording. All is in single precision: what a track says changes by less
than a thousandth of a degree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from earatlas.hearing.audio import Audio
from earatlas.hearing.cues import spectra_blocks
from earatlas.hearing.floors import LevelCounts
from earatlas.hearing.hops import HopSums, hop_sums
from earatlas.hearing.layout import Threshold
from earatlas.hearing.loud_bins import LoudBins
from earatlas.hearing.onsets import Candidates, OnsetBins, OnsetStream
from earatlas.hearing.recording import Recording
from earatlas.hearing.shelf import Shelf
from earatlas.hearing.statistics import CueStatistics
from earatlas.learning.learned import LearnedHead
from earatlas.types import Array

__all__ = ["Listening"]

_Part = tuple[Candidates | None, list[LoudBins]]  # what rises, and what is loud, of a block


class Listening:
    """A recording that is being listened to with a head."""

    def __init__(self, head: LearnedHead, recording: Recording) -> None:
        self._layout, self._recording = head.layout, recording
        self._gate = None if head.rooms is None else head.rooms.sound.gate
        self._stream = None
        if self._gate is not None:
            self._stream = OnsetStream(self._gate, single=True, stretches=True)
        self._recent: OnsetBins | None = None  # in order of time, of the windows to come
        self._total = HopSums(np.zeros((3, 1, head.layout.n_cues)), np.zeros(1))

    def hops(self, step: int, threshold: Threshold | None) -> Iterator[HopSums]:
        """Sums of each `step` frames, some at a time."""
        layout, levels = self._layout, LevelCounts(self._layout, threshold)
        blocks = self._listened(self._recording.blocks(layout))
        with Shelf[_Part]() as shelf:
            for spectra in spectra_blocks(blocks, layout, single=True):
                rising = None if self._stream is None else self._stream.fresh()
                shelf.put((rising, list(levels.push(spectra))))
            for sums in hop_sums(self._told(shelf), layout, levels.floors_db(), step):
                self._total += sums.total()
                yield sums

    def whole(self) -> tuple[CueStatistics, OnsetBins | None]:
        """Sums and strongest onsets of all hops that were heard."""
        (statistics,) = self._total
        return statistics, None if self._stream is None else self._stream.bins()

    def _listened(self, blocks: Iterator[Audio]) -> Iterator[Audio]:
        """The blocks, once their onsets were listened for."""
        for block in blocks:
            if self._stream is not None:
                self._stream.push(block.samples)
            yield block
        if self._stream is not None:
            self._stream.finish()

    def _told(self, shelf: Shelf[_Part]) -> Iterator[LoudBins]:
        """The loud bins; the onsets of each part are known before these are handed on."""
        judge = None if self._stream is None else self._stream.judge()
        for rising, loud in shelf.taken():
            if judge is not None and rising is not None:
                new = judge(rising)
                self._recent = new if self._recent is None else self._recent.followed_by(new)
            yield from loud

    def onsets(self, begin: float, frames: float) -> OnsetBins | None:
        """All of a window of so many frames, in order of time; windows are asked for in order."""
        if self._gate is None or self._recent is None:
            return None
        frame = self._layout.hop / self._layout.rate / (self._gate.hop / self._gate.rate)
        first, last = (begin - 0.5) * frame, (begin - 0.5 + frames) * frame
        start, end = self._recent.t.searchsorted([first, last])
        found = replace(self._recent[slice(start, end)], frames=frames * frame)
        if start > len(self._recent) // 2:
            self._recent = self._recent[slice(start, None)]
        return found

    def seconds_of(self, onsets: OnsetBins) -> Array:
        """When (B,) onsets were."""
        assert self._gate is not None, "there are no onsets without"
        return np.asarray(onsets.t * (self._gate.hop / self._gate.rate), dtype=np.float64)
