"""A live stream: fed samples as they come, asked whenever an answer is wanted.

It rests on the same sums as the answer to a recording (`earatlas.features.statistics`), so a stream,
once it has ended, has that answer. (An offset of the converter is known from the beginning of a
recording, and of a stream from when it shows: with one, the two answers differ a little.)
"""

from __future__ import annotations

import numpy as np
import soxr
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.features.audio import LARGEST_SAMPLE, checked_block, checked_rate
from earatlas.features.cues import check_length
from earatlas.features.dc_offset import OffsetStream
from earatlas.features.layout import Threshold
from earatlas.features.onset_detector import OnsetStream
from earatlas.features.stft import FrameStream, squared_size
from earatlas.localization.head_motion import Motion, YawLike, checked_yaw
from earatlas.localization.learned_head import LearnedHead
from earatlas.localization.pose_statistics import PoseStatistics
from earatlas.localization.result import Localization, heard, turning_answer
from earatlas.types import Array, Spectra

__all__ = ["Localizer"]

_AUDIBLE = 0.01  # of the loudest frame's power: what words have, and pauses have not
_LOUDEST_SECONDS = 10.0  # after which the loudest frame counts 1/e


def _fade(hop_seconds: float, memory_seconds: float | None) -> float:
    """What is left of a frame after a hop."""
    return 1.0 if memory_seconds is None else float(np.exp(-hop_seconds / memory_seconds))


class Silence:
    """How long it is since a stream was heard."""

    def __init__(self, frame_seconds: float) -> None:
        self._frame = frame_seconds
        self._fade = float(np.exp(-frame_seconds / _LOUDEST_SECONDS))
        self._loudest = self.seconds = 0.0

    def push(self, spectra: Spectra) -> None:
        """Take in frames (2, B, t)."""
        for power in squared_size(spectra[:, 1:]).sum(axis=(0, 1)):
            self._loudest = max(self._fade * self._loudest, float(power))
            heard = power > _AUDIBLE * self._loudest
            self.seconds = 0.0 if heard else self.seconds + self._frame


class Localizer:
    """Localizes a stream: feed it blocks of samples, ask it where the sound is.

    Constant memory, but for two numbers a block that brings a yaw. Without `memory_seconds` it
    remembers everything, and after `finish` has the answer of `localize` on all that it was fed;
    with it, older sound fades by 1/e in that time.
    Where the head turns, its `yaw` is given here if it is known, or with every block; directions
    are then the room's.
    """

    def __init__(
        self,
        head: LearnedHead,
        *,
        rate: int | None = None,
        memory_seconds: float | None = None,
        threshold: Threshold | None = None,
        yaw: YawLike | None = None,
    ) -> None:
        layout = head.layout
        shortest = layout.window / layout.rate
        if memory_seconds is not None and not memory_seconds >= shortest:
            raise InputError(
                f"memory_seconds must be at least one window ({shortest:g} s), got "
                f"{memory_seconds}. One or two seconds follow a moving talker."
            )
        self._head, self._threshold = head, threshold
        self._frames = FrameStream(layout.window, layout.hop)
        fade = _fade(layout.hop / layout.rate, memory_seconds)
        self._levels = PoseStatistics(layout, forgetting=fade)
        known = None if yaw is None else checked_yaw(yaw, head.space)
        self._motion = Motion(known, memory_seconds)
        self._onsets = None
        if head.rooms is not None:
            gate = head.rooms.sound.gate
            fade = _fade(gate.hop / gate.rate, memory_seconds)
            self._onsets = OnsetStream(gate, forgetting=fade)
        self._resampler = None
        if rate is not None and checked_rate(rate) != layout.rate:
            self._resampler = soxr.ResampleStream(
                rate, layout.rate, 2, dtype="float64", quality="VHQ"
            )
        self._rate = layout.rate if rate is None else rate
        self._offset = OffsetStream(self._rate)
        self._pushed = 0  # samples at the stream's rate
        self._samples = self._counted = 0  # and at the layout's, and frames
        self._silence = None if memory_seconds is None else Silence(layout.hop / layout.rate)
        self._open = True

    def push(self, samples: ArrayLike, *, yaw: float | None = None) -> None:
        """Take in a block (2, n) of samples at the stream's rate.

        `yaw`: how far the head is turned to its left at the end of the block, in degrees, where it
        was not given to the localizer; either with every block, or with none.
        """
        if not self._open:
            raise InputError("samples must come before finish(), got more after. Start a new one.")
        x = checked_block(samples)
        if not np.isfinite(x).all():
            raise InputError("samples must be finite, got NaN or infinity. Check the input device.")
        if np.abs(x).max(initial=0.0) >= LARGEST_SAMPLE:
            raise InputError(
                f"samples must not be beyond a million times full scale, got {np.abs(x).max():.3g}."
                " Divide them by their full scale."
            )
        if yaw is not None:
            checked_yaw(yaw, self._head.space)
        self._motion.tell((self._pushed + x.shape[1]) / self._rate, yaw)
        self._pushed += x.shape[1]
        self._take(self._offset.push(x), last=False)

    def _take(self, x: Array, *, last: bool) -> None:
        if self._resampler is not None:
            x = self._resampler.resample_chunk(np.ascontiguousarray(x.T), last=last).T
        self._samples += x.shape[1]
        self._count(self._frames.push(x))
        if self._onsets is not None:
            self._onsets.push(x)

    def _count(self, spectra: Spectra) -> None:
        layout, frames = self._head.layout, spectra.shape[-1]
        numbers = np.arange(self._counted, self._counted + frames)
        self._levels.push(spectra, self._motion.at(numbers * (layout.hop / layout.rate)))
        self._counted += frames
        if self._silence is not None:
            self._silence.push(spectra)

    def where(self) -> Localization:
        """What is believed now, from the frames that are complete.

        With a memory, an answer has an age, and the longer nothing was heard, the less sure it is.
        """
        found = self._believed()
        return found if self._silence is None else found.aged(self._silence.seconds)

    def _believed(self) -> Localization:
        poses = self._levels.poses(self._threshold)
        if self._onsets is None or self._head.rooms is None:
            return turning_answer(self._head, poses, None, np.zeros(0))
        bins, gate = self._onsets.bins(), self._head.rooms.sound.gate
        yaw = self._motion.at(bins.t * (gate.hop / gate.rate))
        return turning_answer(self._head, poses, bins, yaw)

    def finish(self) -> Localization:
        """End the stream, count its last frames, and answer."""
        if self._open:
            self._take(self._offset.finish(), last=True)
            check_length(self._samples, self._head.layout)
            self._count(self._frames.finish())
            if self._onsets is not None:
                self._onsets.finish()
            self._open = False
        return heard(self.where())
