"""What a learned head says of a sound: one answer, a track over time, or a live stream.

In: a `Listener` (an atlas has one) and sound. Out: a `Localization` (a belief and what it rests
on), a `Track` (one belief a window), or a `Localizer` that is fed samples as they come and asked
whenever an answer is wanted. All rest on the same sums (`earatlas.statistics`), so a stream, once
it has ended, has the answer of the recording.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import soxr
from numpy.typing import ArrayLike, NDArray

from earatlas.audio import Audio, FrameStream, checked_rate, read_blocks, stft
from earatlas.cues import CueLayout, Threshold, bin_power, check_length, checked_audio
from earatlas.errors import InputError
from earatlas.posterior import Calibration, ChartMixture, CredibleRegion
from earatlas.ppam import PPAM
from earatlas.statistics import CueStatistics, LevelStatistics

__all__ = [
    "Listener",
    "Localization",
    "Localizer",
    "Track",
    "localize",
    "localize_file",
    "localize_frames",
]

Array = NDArray[np.float64]


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
        area = self.belief.credible_area(level)
        return float(area / 2 if self.belief.space.dims == 1 else np.sqrt(area / np.pi))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "direction": [round(float(v), 2) for v in self.direction],
            "mean": [round(float(v), 2) for v in self.mean],
            "credible_90_area": round(self.belief.credible_area(0.9), 1),
            "observed_share": round(self.observed_share, 4),
        }


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
            silent = {
                "direction": None,
                "mean": None,
                "credible_90_area": None,
                "observed_share": 0.0,
            }
            fields = window.to_dict() if window.observed_share > 0 else silent
            yield {"time": round(float(time), 4), **fields}


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
    frame = listener.layout.hop / listener.layout.rate
    check_track(hop_seconds, window_seconds, frame)
    step = max(round(hop_seconds / frame), 1)
    length = max(round(window_seconds / (step * frame)), 1)
    layout = listener.layout
    spectra = stft(checked_audio(audio, layout).samples, layout.window, layout.hop)
    levels = LevelStatistics(layout)
    levels.push(spectra)
    power = bin_power(spectra, layout.window).min(axis=0)[layout.channel_bins]
    mask = power >= 10.0 ** (levels.floors_db(threshold)[:, None] / 10)
    left, right = spectra[:, 1:].swapaxes(-1, -2)
    y = np.where(mask, layout.stack(left, right).T, 0.0)
    frames = y.shape[1]
    edges = np.arange(0, frames, step)
    # Sums over hops, then over the hops of a window: no array of windows by frames.
    hops = [np.add.reduceat(a, edges, axis=1) for a in (mask.astype(np.float64), y, y**2)]
    sums = [np.pad(np.cumsum(a, axis=1), ((0, 0), (1, 0))) for a in hops]
    times, windows = [], []
    for last in range(min(length, len(edges)), len(edges) + 1):
        first = max(last - length, 0)
        Q, R, E = (np.maximum(a[:, last] - a[:, first], low) for a, low in zip(
            sums, (0.0, -np.inf, 0.0), strict=True))  # fmt: skip
        begin, end = edges[first], min(last * step, frames)
        windows.append(listener.answer(CueStatistics(Q, R, E, float(end - begin))))
        times.append(0.5 * (begin + end - 1) * frame)  # frame t is centred on t hops
    return Track(np.array(times), tuple(windows))


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
            raise InputError(
                "audio must have sound that both ears hear above the thresholds, got none. "
                "Record louder, or lower the threshold."
            )
        return answer
