"""Where a sound is over time: one belief a window.

A track takes two passes over the sound, in blocks: one for the floors that bins must pass, which
depend on the whole, and one for the sums of every window. Memory holds a window, not the recording.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, islice, tee
from operator import add
from typing import Any

import numpy as np

from earatlas.errors import InputError
from earatlas.hearing.audio import Audio
from earatlas.hearing.cues import bin_power, spectra_blocks
from earatlas.hearing.layout import CueLayout, Threshold
from earatlas.hearing.onsets import OnsetBins, OnsetStream
from earatlas.hearing.recording import Recording
from earatlas.hearing.statistics import CueStatistics, LevelStatistics
from earatlas.learning.learned import LearnedHead
from earatlas.learning.posteriors import Posteriors
from earatlas.localization.answer import Localization, answer, quick_answers, turning_answer
from earatlas.localization.motion import YawLike, checked_yaw
from earatlas.localization.poses import Pose, joined_poses, total_statistics
from earatlas.space.yaw import Yaw
from earatlas.types import Array, Indices, Progress, Spectra

__all__ = ["Track", "Windows", "track", "windows_of"]

_AT_ONCE = 32  # windows that are answered together: 0.5 MB of sums and a tenth of the time


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
        columns = self.windows[0].belief.space.columns
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

    The samples are never all held; the beliefs of all windows are. Where even those are too many,
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
    windows.frames(head.layout)  # an InputError here, not when the first one is asked for
    checked_yaw(windows.yaw, head.space).check_end(recording.seconds)
    return _windows(head, recording, windows, progress)


def _windows(
    head: LearnedHead, recording: Recording, windows: Windows, progress: Progress | None
) -> Iterator[tuple[float, Localization]]:
    posteriors, silence = Posteriors(head.model), None
    seconds, total = head.layout.hop / head.layout.rate, recording.seconds
    heard = _listened(head, recording, windows)
    while some := list(islice(heard, _AT_ONCE)):
        quick = [n for n, part in enumerate(some) if len(part.poses) == 1 and not part.silent]
        found: dict[int, Localization] = {}
        if quick:
            sounds = [(some[n].poses[0], some[n].onsets) for n in quick]
            found = dict(zip(quick, quick_answers(head, posteriors, sounds), strict=True))
        for n, part in enumerate(some):
            if part.silent:  # nothing heard is the same belief every time
                silence = silence or answer(head, part.sums)
                found[n] = replace(silence, seconds=part.sums.frames * seconds)
            elif n not in found:
                found[n] = turning_answer(
                    head, part.poses, part.onsets, part.yaw_of_bins, thorough=False
                )
            # Frame t is centred on t hops of the layout.
            yield (part.begin + 0.5 * (part.sums.frames - 1)) * seconds, found.pop(n)
            if progress is not None:
                progress(min((part.begin + part.sums.frames) * seconds, total), total)


@dataclass(frozen=True, eq=False)
class _Window:
    """What was heard in a window that begins with a frame."""

    begin: int
    sums: CueStatistics
    poses: list[Pose]
    onsets: OnsetBins | None
    yaw_of_bins: Array  # (B,) how the head is turned in each onset

    @property
    def silent(self) -> bool:
        return not self.sums.counts.any()


def _listened(head: LearnedHead, recording: Recording, windows: Windows) -> Iterator[_Window]:
    """Every window, in order, of two passes over the sound."""
    layout, yaw = head.layout, checked_yaw(windows.yaw, head.space)
    step, length = windows.frames(layout)
    levels, arriving = LevelStatistics(layout), _Arriving(head)
    for spectra in spectra_blocks(arriving.first(recording.blocks(layout)), layout):
        levels.push(spectra)
    floors = levels.floors_db(windows.threshold)
    again = arriving.second(recording.blocks(layout, again=True))
    hops = _hop_sums(spectra_blocks(again, layout), layout, floors, step)
    seconds = layout.hop / layout.rate
    for number, (sums, poses) in enumerate(_posed(hops, length, yaw, seconds)):
        begin = number * step
        onsets, times = arriving.within((begin - 0.5) * seconds, sums.frames * seconds)
        yield _Window(begin, sums, poses, onsets, yaw.at(times))


class _Arriving:
    """The onsets of each window: what is quiet is heard first, what arrives the second time."""

    def __init__(self, head: LearnedHead) -> None:
        self._gate = None if head.rooms is None else head.rooms.sound.gate
        self._stream = None if self._gate is None else OnsetStream(self._gate)
        self._recent: deque[OnsetBins] = deque()  # of the windows to come

    def first(self, blocks: Iterator[Audio]) -> Iterator[Audio]:
        """The blocks, listened to."""
        for block in blocks:
            if self._stream is not None:
                self._stream.push(block.samples)
            yield block
        if self._stream is not None:
            self._stream.finish()

    def second(self, blocks: Iterator[Audio]) -> Iterator[Audio]:
        """The blocks again; the onsets of each are known before it is handed on."""
        if self._stream is None:
            yield from blocks
            return
        now, later = tee(blocks)
        arrived = self._stream.again(block.samples for block in now)
        for block in later:
            self._recent.append(next(arrived))
            yield block
        self._recent.extend(arrived)

    def within(self, begin: float, seconds: float) -> tuple[OnsetBins | None, Array]:
        """The strongest onsets of a window, and when (B,) they were; windows come in order."""
        if self._gate is None or not self._recent:
            return None, np.zeros(0)
        frame = self._gate.hop / self._gate.rate
        first, last = begin / frame, (begin + seconds) / frame
        while len(self._recent) > 1 and not (self._recent[0].t >= first).any():
            self._recent.popleft()
        parts = [part[(part.t >= first) & (part.t < last)] for part in self._recent]
        found = OnsetBins.joined(parts).strongest(self._gate.most_bins)
        found = replace(found, frames=seconds / frame)
        times: Array = np.asarray(found.t * frame, dtype=np.float64)
        return found, times


def _posed(
    hops: Iterable[CueStatistics], length: int, yaw: Yaw, frame_seconds: float
) -> Iterator[tuple[CueStatistics, list[Pose]]]:
    """Sums of each window, and of the poses in it: hops with turns that are alike go together."""
    if not np.ptp(yaw.degrees):  # a head that stays: one addition a window
        for sums in _sliding(hops, length):
            yield sums, [Pose(float(yaw.degrees[0]), sums)]
        return
    recent: deque[Pose] = deque(maxlen=length)
    first, whole = 0.0, False
    for hop in hops:
        middle = (first + 0.5 * (hop.frames - 1)) * frame_seconds
        recent.append(Pose(float(yaw.at([middle])[0]), hop))
        first += hop.frames
        if len(recent) == length:
            whole = True
            yield total_statistics(recent), joined_poses(recent)
    if recent and not whole:
        yield total_statistics(recent), joined_poses(recent)


def _hop_sums(
    parts: Iterable[Spectra], layout: CueLayout, floors: Indices, step: int
) -> Iterator[CueStatistics]:
    """Sums of each `step` frames of spectra that come in parts; the last may have fewer."""
    least = 10.0 ** (floors / 10)
    rest: CueStatistics | None = None
    for spectra in parts:
        power = bin_power(spectra, layout.window).min(axis=0).T[:, layout.cue_frequencies]
        mask = power >= least  # (t, D)
        left, right = spectra[:, 1:].swapaxes(-1, -2)
        y = np.where(mask, layout.stack(left, right), 0.0)
        start = 0
        while start < len(y):
            end = start + step - (int(rest.frames) if rest else 0)
            m, v = mask[start:end], y[start:end]
            sums = CueStatistics(
                m.sum(axis=0, dtype=np.float64), v.sum(axis=0), (v**2).sum(axis=0), float(len(v))
            )
            rest, start = (rest + sums if rest else sums), end
            if rest.frames == step:
                yield rest
                rest = None
    if rest is not None:
        yield rest


def _sliding(hops: Iterable[CueStatistics], length: int) -> Iterator[CueStatistics]:
    """Sums of every `length` hops in a row; of all hops if there are fewer.

    Each is a tail of one run of `length` hops and a head of the next, so nothing is ever
    subtracted: silence sums to exactly zero, and one addition a window is enough.
    """
    tails: list[CueStatistics] = []  # of the last whole run, the longest at the end
    run: list[CueStatistics] = []
    head: CueStatistics | None = None  # sum of the run so far
    fewer = True
    for hop in hops:
        run.append(hop)
        head = hop if head is None else head + hop
        if len(run) == length:
            yield head
            tails = list(accumulate(reversed(run[1:]), add))
            run, head, fewer = [], None, False
        elif tails:
            yield tails.pop() + head
    if fewer and head is not None:
        yield head
