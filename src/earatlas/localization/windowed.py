"""Where a sound is over time: one posterior a window.

A track takes two passes over the sound (`earatlas.localization.windowed_features`), and answers many
windows at once. Memory holds some windows, not the recording.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from earatlas.errors import InputError
from earatlas.features.hop_statistics import HopSums, sliding_sums
from earatlas.features.layout import CueLayout, Threshold
from earatlas.features.recording import Recording
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.head_yaw import Yaw
from earatlas.localization.head_motion import YawLike, checked_yaw
from earatlas.localization.learned_head import LearnedHead
from earatlas.localization.localizer import localize
from earatlas.localization.pose_statistics import Pose, joined_poses, total_statistics
from earatlas.localization.result import Localization, answer, heard, turning_answer
from earatlas.localization.windowed_batch import QuickAnswers
from earatlas.localization.windowed_features import Listening
from earatlas.types import Array, Progress

__all__ = ["Track", "Tracking", "Windows", "track", "windows_of"]


@dataclass(frozen=True, eq=False)
class Track:
    """One localization a window; `times[i]` is the middle of window i, in seconds."""

    times: Array  # (W,)
    windows: tuple[Localization, ...]  # (W,)

    def __repr__(self) -> str:
        return f"Track({len(self.windows)} windows)"

    def __len__(self) -> int:
        return len(self.windows)

    @cached_property
    def directions(self) -> Array:
        """(W, C) most probable directions, NaN where nothing was heard."""
        columns = self.windows[0].posterior.space.columns
        return np.array(
            [
                w.direction if w.observed_share > 0 else np.full(columns, np.nan)
                for w in self.windows
            ]
        )

    def rows(self) -> Iterator[dict[str, Any]]:
        """A JSON object a window; silent windows have no direction."""
        for time, window in zip(self.times, self.windows, strict=True):
            yield window.to_row(float(time))


@dataclass(frozen=True)
class Windows:
    """Which windows a track has: whole frames, and a window of whole hops.

    What counts as heard is relative to the peak and the noise of the whole recording. Where the
    head turns within a window, its hops are those of several poses; within a hop it is as in the
    middle of it.
    """

    window_seconds: float = 0.5
    hop_seconds: float = 0.1
    threshold: Threshold | None = None
    yaw: YawLike = 0.0  # of the head: directions are then the room's

    def frames(self, layout: CueLayout) -> tuple[int, int]:
        """Frames a hop, and hops a window; an InputError for those that no track can have."""
        frame = layout.hop / layout.rate
        if not (frame <= self.hop_seconds <= self.window_seconds < np.inf):
            raise InputError(
                f"hop_seconds must be at least a frame ({frame:g} s) and at most window_seconds, "
                f"got {self.hop_seconds} and {self.window_seconds}. 0.1 and 0.5 are the defaults."
            )
        step = max(round(self.hop_seconds / frame), 1)
        return step, max(round(self.window_seconds / (step * frame)), 1)


def track(head: LearnedHead, recording: Recording, windows: Windows) -> Track:
    """One answer each hop, from a window of sound; both are rounded to whole frames.

    The samples are never all held; the posteriors of all windows are. Where even those are too many,
    `windows_of` hands them out one by one.
    """
    pairs = list(windows_of(head, recording, windows))
    return Track(np.array([time for time, _ in pairs]), tuple(window for _, window in pairs))


def windows_of(
    head: LearnedHead,
    recording: Recording,
    windows: Windows,
    *,
    progress: Progress | None = None,
) -> Iterator[tuple[float, Localization]]:
    """(middle in seconds, answer) of each window of a recording of any length, in constant memory.

    `progress(done, total)` is called with seconds of sound.
    """
    return iter(Tracking(head, recording, windows, progress=progress))


class Tracking:
    """A recording that is being followed: its windows, one by one, and the answer to all of it."""

    def __init__(
        self,
        head: LearnedHead,
        recording: Recording,
        windows: Windows,
        *,
        progress: Progress | None = None,
    ) -> None:
        windows.frames(head.layout)  # an InputError here, not when the first one is asked for
        self._yaw = checked_yaw(windows.yaw, head.space)
        self._yaw.check_end(recording.seconds)
        self._head, self._recording, self._windows = head, recording, windows
        self._listening = Listening(head, recording.centred())
        self._answers = self._followed(progress)

    def __iter__(self) -> Iterator[tuple[float, Localization]]:
        """(middle in seconds, answer) of each window that was not asked for yet."""
        return self._answers

    def _followed(self, progress: Progress | None) -> Iterator[tuple[float, Localization]]:
        head = self._head
        answers = _turning_answers if np.ptp(self._yaw.degrees) else _still_answers
        # Frame t is centred on t hops of the layout.
        seconds, total = head.layout.hop / head.layout.rate, self._recording.seconds
        for begin, found in answers(head, self._listening, self._windows, self._yaw):
            frames = found.seconds / seconds
            yield (begin + 0.5 * (frames - 1)) * seconds, found
            if progress is not None:
                progress(min((begin + frames) * seconds, total), total)

    def whole(self) -> Localization:
        """What is believed after all of the recording: `localize`, in single precision.

        The sums and onsets are those of the windows, so the sound is not heard once more.
        """
        threshold, yaw = self._windows.threshold, self._yaw
        if np.ptp(yaw.degrees):  # what is heard in each pose stands in no sum of windows
            return localize(self._head, self._recording, threshold=threshold, yaw=yaw, again=True)
        deque(self._answers, maxlen=0)
        statistics, onsets = self._listening.whole()
        pose = Pose(float(yaw.degrees[0]), statistics)
        turns = np.zeros(0) if onsets is None else np.full(len(onsets), pose.yaw_degrees)
        return heard(turning_answer(self._head, [pose], onsets, turns))


def _still_answers(
    head: LearnedHead, listening: Listening, windows: Windows, yaw: Yaw
) -> Iterator[tuple[int, Localization]]:
    """(first frame, answer) of each window, of a head that stays: many at once."""
    step, length = windows.frames(head.layout)
    quick, begin = QuickAnswers(head, float(yaw.degrees[0])), 0
    for sums in sliding_sums(listening.hops(step, windows.threshold), length):
        begins = begin + step * np.arange(len(sums))
        spans = zip(begins.tolist(), sums.frames.tolist(), strict=True)
        onsets = [listening.onsets(first, frames) for first, frames in spans]
        yield from zip(begins.tolist(), quick(sums, onsets), strict=True)
        begin += step * len(sums)


def _turning_answers(
    head: LearnedHead, listening: Listening, windows: Windows, yaw: Yaw
) -> Iterator[tuple[int, Localization]]:
    """The same of a head that turns: hops with turns that are alike go together."""
    step, length = windows.frames(head.layout)
    silence: Localization | None = None
    seconds = head.layout.hop / head.layout.rate
    for number, recent in enumerate(_runs(listening.hops(step, windows.threshold), length)):
        begin = number * step
        starts = begin + step * np.arange(len(recent))
        middles = [
            start + 0.5 * (hop.frames - 1) for start, hop in zip(starts, recent, strict=True)
        ]
        parts = map(Pose, yaw.at(np.array(middles) * seconds).tolist(), recent)
        poses = joined_poses(parts)
        sums = total_statistics(poses)
        if not sums.counts.any():  # nothing heard is the same posterior every time
            silence = silence or answer(head, sums)
            yield begin, replace(silence, seconds=sums.frames * seconds)
            continue
        onsets = listening.onsets(begin, sums.frames)
        times = np.zeros(0)
        if onsets is not None and head.rooms is not None:
            onsets = onsets.by_frequency().strongest(head.rooms.sound.gate.most_bins)
            times = listening.seconds_of(onsets)
        yield begin, turning_answer(head, poses, onsets, yaw.at(times), thorough=False)


def _runs(parts: Iterable[HopSums], length: int) -> Iterator[list[CueStatistics]]:
    """Every `length` hops in a row; all of them if there are fewer."""
    recent: deque[CueStatistics] = deque(maxlen=length)
    whole = False
    for hop in (hop for part in parts for hop in part):
        recent.append(hop)
        if len(recent) == length:
            whole = True
            yield list(recent)
    if recent and not whole:
        yield list(recent)
