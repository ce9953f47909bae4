"""A live stream: fed samples as they come, asked whenever an answer is wanted.

It rests on the same sums as the answer to a recording (`earatlas.hearing.statistics`), so a stream,
once it has ended, has that answer.
"""

from __future__ import annotations

import numpy as np
import soxr
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.hearing.audio import checked_rate
from earatlas.hearing.cues import check_length, nothing_heard
from earatlas.hearing.layout import Threshold
from earatlas.hearing.onsets import OnsetStream
from earatlas.hearing.statistics import LevelStatistics
from earatlas.hearing.transform import FrameStream
from earatlas.learning.learned import LearnedHead
from earatlas.localization.answer import Localization, answer
from earatlas.types import Array

__all__ = ["Localizer"]


class Localizer:
    """Localizes a stream: feed it blocks of samples, ask it where the sound is.

    Constant memory. Without `memory_seconds` it remembers everything, and after `finish` has the
    answer of `localize` on all that it was fed; with it, older sound fades by 1/e in that time.
    """

    def __init__(
        self,
        head: LearnedHead,
        *,
        rate: int | None = None,
        memory_seconds: float | None = None,
        threshold: Threshold | None = None,
    ) -> None:
        layout = head.layout
        shortest = layout.window / layout.rate
        if memory_seconds is not None and not memory_seconds >= shortest:
            raise InputError(
                f"memory_seconds must be at least one window ({shortest:g} s) or None, got "
                f"{memory_seconds}. One or two seconds follow a moving talker."
            )
        fade = 1.0
        if memory_seconds is not None:
            fade = float(np.exp(-layout.hop / layout.rate / memory_seconds))
        self._head, self._threshold = head, threshold
        self._frames = FrameStream(layout.window, layout.hop)
        self._levels = LevelStatistics(layout, forgetting=fade)
        self._onsets = None
        if head.rooms is not None:
            self._onsets = OnsetStream(head.rooms.sound.gate, forgetting=fade)
        self._resampler = None
        if rate is not None and checked_rate(rate) != layout.rate:
            self._resampler = soxr.ResampleStream(
                rate, layout.rate, 2, dtype="float64", quality="VHQ"
            )
        self._samples = 0
        self._open = True

    def push(self, samples: ArrayLike) -> None:
        """Take in a block (2, n) of samples at the stream's rate."""
        if not self._open:
            raise InputError("samples must come before finish(), got more after. Start a new one.")
        x = np.asarray(samples, dtype=np.float64)
        if x.ndim != 2 or len(x) != 2:
            raise InputError(
                f"samples must have shape (2, n), left and right, got {x.shape}. Transpose blocks "
                "that have one channel a column."
            )
        if not np.isfinite(x).all():
            raise InputError("samples must be finite, got NaN or infinity. Check the input device.")
        self._take(x, last=False)

    def _take(self, x: Array, *, last: bool) -> None:
        if self._resampler is not None:
            x = self._resampler.resample_chunk(np.ascontiguousarray(x.T), last=last).T
        self._samples += x.shape[1]
        self._levels.push(self._frames.push(x))
        if self._onsets is not None:
            self._onsets.push(x)

    def where(self) -> Localization:
        """What is believed now, from the frames that are complete."""
        onsets = None if self._onsets is None else self._onsets.bins()
        return answer(self._head, self._levels.statistics(self._threshold), onsets)

    def finish(self) -> Localization:
        """End the stream, count its last frames, and answer."""
        if self._open:
            if self._resampler is not None:
                self._take(np.zeros((2, 0)), last=True)
            check_length(self._samples, self._head.layout)
            self._levels.push(self._frames.finish())
            if self._onsets is not None:
                self._onsets.finish()
            self._open = False
        found = self.where()
        if found.observed_share == 0:
            raise nothing_heard()
        return found
