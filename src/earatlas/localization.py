"""What a learned head says of a sound: one answer, a track over time, or a live stream.

In: a `Listener` (an atlas has one) and sound. Out: a `Localization` (a belief and what it rests
on), a `Track` (one belief a window), or a `Localizer` that is fed samples as they come and asked
whenever an answer is wanted. All rest on the same sums (`earatlas.statistics`), so a stream, once
it has ended, has the answer of the recording.

A track takes two passes over the sound, in blocks: one for the floors that bins must pass, which
depend on the whole, and one for the sums of every window. Memory holds a window, not the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import soxr
from numpy.typing import ArrayLike, NDArray

from earatlas.audio import (
    Audio,
    FrameStream,
    Spectra,
    audio_seconds,
    checked_rate,
    read_blocks,
)
from earatlas.cues import (
    CueLayout,
    Threshold,
    bin_power,
    check_length,
    checked_audio,
    nothing_heard,
    spectra_blocks,
)
from earatlas.errors import InputError
from earatlas.posterior import Calibration, ChartMixture, CredibleRegion, region_radius
from earatlas.ppam import PPAM
from earatlas.statistics import CueStatistics, LevelStatistics

__all__ = [
    "Listener",
    "Localization",
    "Localizer",
    "Track",
    "Windows",
    "file_windows",
    "localize",
    "localize_file",
    "localize_file_frames",
    "localize_frames",
]

Array = NDArray[np.float64]

_BLOCK_SECONDS = 10.0  # of a track: a few megabytes of spectra


@dataclass(frozen=True, eq=False)
class Localization:
    """Where one sound is believed to be."""

    belief: ChartMixture
    observed_share: float  # of the time-frequency bins
    seconds: float  # of sound it rests on

    def __repr__(self) -> str:
        place = ", ".join(f"{v:.1f}" for v in self.direction)
        return f"Localization(({place}) degrees, {100 * self.observed_share:.0f} % observed)"

    @cached_property
    def direction(self) -> Array:
        """The most probable direction (C,), in degrees."""
        return self.belief.best

    @cached_property
    def mean(self) -> Array:
        """The mean direction (C,), in degrees."""
        return self.belief.mean

    def credible_region(self, level: float = 0.9) -> CredibleRegion:
        """The smallest region that holds the direction with probability `level`."""
        return self.belief.credible_region(level)

    def radius_degrees(self, level: float = 0.9) -> float:
        """Half the width of a credible region of that size: an arc, or a round patch."""
        return region_radius(self.belief.credible_area(level), self.belief.space.dims)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "direction": [round(float(v), 2) for v in self.direction],
            "mean": [round(float(v), 2) for v in self.mean],
            "credible_90_area": round(self.belief.credible_area(0.9), 1),
            "observed_share": round(self.observed_share, 4),
        }

    def to_row(self, time: float) -> dict[str, Any]:
        """The same for the window of a track around `time`; a silent one has no direction."""
        fields = self.to_dict() if self.observed_share > 0 else _SILENT
        return {"time": round(time, 4), **fields}


_SILENT = {"direction": None, "mean": None, "credible_90_area": None, "observed_share": 0.0}


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


@dataclass(frozen=True, eq=False)
class Listener:
    """A model, the layout of its cues, and how sure it may be: all that localizing needs."""

    model: PPAM
    layout: CueLayout
    calibration: Calibration

    def belief(self, statistics: CueStatistics) -> ChartMixture:
        """p(x | a recording), calibrated."""
        s = statistics
        return self.model.belief(s.counts, s.sums, s.squares, self.calibration)

    def answer(self, statistics: CueStatistics) -> Localization:
        """The belief, with the share of bins and the seconds that it rests on."""
        per_bin = np.zeros(self.layout.bins)
        per_bin[self.layout.channel_bins] = statistics.counts
        used = np.unique(self.layout.channel_bins)
        share = float(per_bin[used].mean() / max(statistics.frames, 1e-300))
        seconds = statistics.frames * self.layout.hop / self.layout.rate
        return Localization(self.belief(statistics), share, seconds)


def localize(
    listener: Listener, audio: Audio, *, threshold: Threshold | None = None
) -> Localization:
    """Where the one sound of a recording comes from."""
    localizer = Localizer(listener, threshold=threshold)
    localizer.push(checked_audio(audio, listener.layout).samples)
    return localizer.finish()


def localize_file(
    listener: Listener,
    path: str | Path,
    *,
    channels: tuple[int, int] = (0, 1),
    threshold: Threshold | None = None,
) -> Localization:
    """The answer of `localize` for a file of any length, in one pass and constant memory."""
    localizer = Localizer(listener, threshold=threshold)
    for block in read_blocks(path, channels=channels, rate=listener.layout.rate):
        localizer.push(block.samples)
    return localizer.finish()


@dataclass(frozen=True)
class Windows:
    """Which windows a track has: whole frames, and a window of whole hops.

    What counts as heard is relative to the peak and the noise of the whole recording.
    """

    window_seconds: float = 0.5
    hop_seconds: float = 0.1
    threshold: Threshold | None = None

    def frames(self, layout: CueLayout) -> tuple[int, int]:
        """Frames a hop, and hops a window."""
        frame = layout.hop / layout.rate
        check_track(self.hop_seconds, self.window_seconds, frame)
        step = max(round(self.hop_seconds / frame), 1)
        return step, max(round(self.window_seconds / (step * frame)), 1)


def localize_frames(
    listener: Listener,
    audio: Audio,
    *,
    window_seconds: float = 0.5,
    hop_seconds: float = 0.1,
    threshold: Threshold | None = None,
) -> Track:
    """Where the sound is over time: one answer each `hop_seconds`, from `window_seconds` of sound.

    Both are rounded to whole frames, and the window to whole hops. What counts as heard is
    relative to the peak and the noise of the whole recording.
    """
    windows = Windows(window_seconds, hop_seconds, threshold)
    windows.frames(listener.layout)
    samples = checked_audio(audio, listener.layout).samples
    size = int(_BLOCK_SECONDS * listener.layout.rate)

    def blocks() -> Iterator[Audio]:
        for start in range(0, samples.shape[1], size):
            yield Audio(samples[:, start : start + size], listener.layout.rate)

    return _track(_windows(listener, blocks, windows))


def localize_file_frames(
    listener: Listener,
    path: str | Path,
    *,
    channels: tuple[int, int] = (0, 1),
    window_seconds: float = 0.5,
    hop_seconds: float = 0.1,
    threshold: Threshold | None = None,
) -> Track:
    """The track of `localize_frames` for a file, in two passes: the samples are never all held.

    The beliefs of all windows are. Where even those are too many, `file_windows` hands them out
    one by one.
    """
    windows = Windows(window_seconds, hop_seconds, threshold)
    return _track(file_windows(listener, path, windows, channels=channels))


def file_windows(
    listener: Listener,
    path: str | Path,
    windows: Windows | None = None,
    *,
    channels: tuple[int, int] = (0, 1),
    progress: Callable[[float, float], None] | None = None,
) -> Iterator[tuple[float, Localization]]:
    """(middle in seconds, answer) of each window of a file of any length, in constant memory.

    `progress(done, total)` is called with seconds of sound.
    """
    windows = windows or Windows()
    windows.frames(listener.layout)
    total, passes = audio_seconds(path), 0

    def blocks() -> Iterator[Audio]:
        nonlocal passes
        passes += 1
        second, done = passes > 1, 0.0  # the first pass has said what is to be warned of
        rate = listener.layout.rate
        for block in read_blocks(
            path, channels=channels, rate=rate, block_seconds=_BLOCK_SECONDS, warn=not second
        ):
            yield block
            done += block.seconds
            if progress is not None and second:
                progress(min(done, total), total)

    return _windows(listener, blocks, windows)


def _track(windows: Iterable[tuple[float, Localization]]) -> Track:
    pairs = list(windows)
    return Track(np.array([time for time, _ in pairs]), tuple(window for _, window in pairs))


def _windows(
    listener: Listener, blocks: Callable[[], Iterable[Audio]], windows: Windows
) -> Iterator[tuple[float, Localization]]:
    """The windows of a recording whose blocks, at the layout's rate, can be had twice."""
    layout = listener.layout
    step, length = windows.frames(layout)
    levels = LevelStatistics(layout)
    for spectra in spectra_blocks(blocks(), layout):
        levels.push(spectra)
    floors = levels.floors_db(windows.threshold)
    hops = _hop_sums(spectra_blocks(blocks(), layout), layout, floors, step)
    begin, silence = 0, None
    for sums in _sliding(hops, length):
        if sums.counts.any():
            answer = listener.answer(sums)
        else:  # nothing heard is the same belief every time
            silence = silence or listener.answer(sums)
            answer = replace(silence, seconds=sums.frames * layout.hop / layout.rate)
        # Frame t is centred on t hops of the layout.
        yield (begin + 0.5 * (sums.frames - 1)) * layout.hop / layout.rate, answer
        begin += step


def _hop_sums(
    parts: Iterable[Spectra], layout: CueLayout, floors: NDArray[np.intp], step: int
) -> Iterator[CueStatistics]:
    """Sums of each `step` frames of spectra that come in parts; the last may have fewer."""
    least = 10.0 ** (floors / 10)
    rest: CueStatistics | None = None
    for spectra in parts:
        power = bin_power(spectra, layout.window).min(axis=0).T[:, layout.channel_bins]
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


def check_track(hop_seconds: float, window_seconds: float, frame_seconds: float) -> None:
    """Refuse windows and hops that a track cannot have."""
    if not (frame_seconds <= hop_seconds <= window_seconds < np.inf):
        raise InputError(
            f"hop_seconds must be at least a frame ({frame_seconds:g} s) and at most "
            f"window_seconds, got {hop_seconds} and {window_seconds}. 0.1 and 0.5 are the defaults."
        )


class Localizer:
    """Localizes a stream: feed it blocks of samples, ask it where the sound is.

    Constant memory. Without `memory_seconds` it remembers everything, and after `finish` has the
    answer of `localize` on all that it was fed; with it, older sound fades by 1/e in that time.
    """

    def __init__(
        self,
        listener: Listener,
        *,
        rate: int | None = None,
        memory_seconds: float | None = None,
        threshold: Threshold | None = None,
    ) -> None:
        layout = listener.layout
        shortest = layout.window / layout.rate
        if memory_seconds is not None and not memory_seconds >= shortest:
            raise InputError(
                f"memory_seconds must be at least one window ({shortest:g} s) or None, got "
                f"{memory_seconds}. One or two seconds follow a moving talker."
            )
        fade = 1.0
        if memory_seconds is not None:
            fade = float(np.exp(-layout.hop / layout.rate / memory_seconds))
        self._listener, self._threshold = listener, threshold
        self._frames = FrameStream(layout.window, layout.hop)
        self._levels = LevelStatistics(layout, forgetting=fade)
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

    def where(self) -> Localization:
        """What is believed now, from the frames that are complete."""
        return self._listener.answer(self._levels.statistics(self._threshold))

    def finish(self) -> Localization:
        """End the stream, count its last frames, and answer."""
        if self._open:
            if self._resampler is not None:
                self._take(np.zeros((2, 0)), last=True)
            check_length(self._samples, self._listener.layout)
            self._levels.push(self._frames.finish())
            self._open = False
        answer = self.where()
        if answer.observed_share == 0:
            raise nothing_heard()
        return answer
