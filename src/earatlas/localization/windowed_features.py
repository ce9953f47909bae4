"""What is heard over time, hop by hop, in two passes over the sound.

The first is for the floors that bins must pass, which depend on the whole, the second for the sums
of every hop. Memory holds some of them, not the recording. Both passes are in single precision:
what a track says changes by less than a thousandth of a degree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import tee

import numpy as np

from earatlas.features.audio import Audio
from earatlas.features.cues import spectra_blocks
from earatlas.features.hop_statistics import HopSums, hop_sums
from earatlas.features.layout import Threshold
from earatlas.features.noise_floor import LevelCounts
from earatlas.features.onset_detector import OnsetBins, OnsetStream
from earatlas.features.recording import Recording
from earatlas.features.statistics import CueStatistics
from earatlas.localization.learned_head import LearnedHead
from earatlas.types import Array

__all__ = ["Listening"]


class Listening:
    """A recording that is being listened to with a head."""

    def __init__(self, head: LearnedHead, recording: Recording) -> None:
        self._layout, self._recording = head.layout, recording
        self._gate = None if head.rooms is None else head.rooms.sound.gate
        self._stream = None if self._gate is None else OnsetStream(self._gate, single=True)
        self._recent: OnsetBins | None = None  # in order of time, of the windows to come
        self._total = HopSums(np.zeros((3, 1, head.layout.n_cues)), np.zeros(1))

    def hops(self, step: int, threshold: Threshold | None) -> Iterator[HopSums]:
        """Sums of each `step` frames, some at a time."""
        layout, levels = self._layout, LevelCounts(self._layout)
        blocks = self._first(self._recording.blocks(layout))
        for spectra in spectra_blocks(blocks, layout, single=True):
            levels.push(spectra)
        again = self._second(self._recording.blocks(layout, again=True))
        spectra_again = spectra_blocks(again, layout, single=True)
        for sums in hop_sums(spectra_again, layout, levels.floors_db(threshold), step):
            self._total += sums.total()
            yield sums

    def whole(self) -> tuple[CueStatistics, OnsetBins | None]:
        """Sums and strongest onsets of all hops that were heard."""
        (statistics,) = self._total
        return statistics, None if self._stream is None else self._stream.bins()

    def _first(self, blocks: Iterator[Audio]) -> Iterator[Audio]:
        """The blocks, listened to: what is quiet is known after all of them."""
        for block in blocks:
            if self._stream is not None:
                self._stream.push(block.samples)
            yield block
        if self._stream is not None:
            self._stream.finish()

    def _second(self, blocks: Iterator[Audio]) -> Iterator[Audio]:
        """The blocks again; the onsets of each are known before it is handed on."""
        if self._stream is None:
            yield from blocks
            return
        now, later = tee(blocks)
        arrived = self._stream.again(block.samples for block in now)
        for block in later:
            self._add(next(arrived))
            yield block
        for last in arrived:
            self._add(last)

    def _add(self, new: OnsetBins) -> None:
        self._recent = new if self._recent is None else self._recent.followed_by(new)

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
