"""Localization over time: one posterior per window of a recording.

Input: a learned head, a recording of any length and window settings. Output: a `Track`, or its
windows one by one. Two passes are made over the sound
(`earatlas.localization.windowed_features`), and many windows are localized at once. Memory holds
some windows, not the recording.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from earatlas.errors import InputError
from earatlas.features.hop_statistics import HopStatistics, sliding_statistics
from earatlas.features.input_samples import clipped_findings
from earatlas.features.layout import CueLayout, Threshold
from earatlas.features.onset_detector import OnsetBins
from earatlas.features.recording import Recording
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.posterior_summary import summarize_posteriors
from earatlas.geometry.spaces import Sphere
from earatlas.localization.diagnostics import with_findings
from earatlas.localization.head_rotation import (
    Pose,
    YawLike,
    check_yaw,
    merge_poses,
    total_statistics,
)
from earatlas.localization.learned_head import LearnedHead
from earatlas.localization.localizer import (
    localization_from_posterior,
    localize,
    localize_poses,
    observed_shares,
    require_observed,
)
from earatlas.localization.result import Localization
from earatlas.localization.windowed_features import WindowedFeatures
from earatlas.notebooks import HtmlView, data_frame
from earatlas.threads import single_threaded_blas
from earatlas.types import Array, Indices, Progress
from earatlas.wording import coordinate_names

if TYPE_CHECKING:
    import pandas

__all__ = ["Track", "WindowSettings", "WindowedLocalizer", "localize_windows"]

_Windows = Iterator[tuple[int, Localization]]  # first frame and result of each window


@dataclass(frozen=True, eq=False)
class Track(HtmlView, Sequence[Localization]):
    """Localizations of the windows of a recording, a sequence of `Localization`.

    Attributes
    ----------
    times : ndarray of shape (W,)
        Centres of the windows in seconds.
    windows : tuple of Localization
        One localization per window.

    Examples
    --------
    >>> import earatlas as ea
    >>> head = ea.simulated_head([[40, 0]])
    >>> scene = ea.render_scene(head, [ea.synthetic_speech(0.8)], [[40, 0]])
    >>> track = ea.example_atlas().localize_frames(scene.mixture, window_seconds=0.4)
    >>> track.directions.shape == (len(track), 2)
    True
    >>> track[0].direction_known, len(track[:2])
    (True, 2)
    >>> list(track.to_dict())
    ['time', 'azimuth', 'elevation', 'radius_90', 'credible_90_area', 'observed_share', 'doubts']

    """

    times: Array
    windows: tuple[Localization, ...]

    def __repr__(self) -> str:
        if not len(self):
            return "Track(0 windows)"
        observed = [window.radius_90 for window in self if window.observed_share > 0]
        radius = f", median radius_90 {np.median(observed):.1f}" if observed else ""
        return (
            f"Track({len(self)} windows from {self.times[0]:.1f} to {self.times[-1]:.1f} s, "
            f"{len(observed)} with sound{radius})"
        )

    def __len__(self) -> int:
        return len(self.windows)

    @overload
    def __getitem__(self, index: int) -> Localization: ...

    @overload
    def __getitem__(self, index: slice) -> Track: ...

    def __getitem__(self, index: int | slice) -> Localization | Track:
        if isinstance(index, slice):
            return Track(self.times[index], self.windows[index])
        return self.windows[index]

    @cached_property
    def directions(self) -> Array:
        """(W, C) most probable directions in degrees, NaN in silent windows."""
        columns = self.windows[0].posterior.space.columns
        return np.array(
            [
                w.direction if w.observed_share > 0 else np.full(columns, np.nan)
                for w in self.windows
            ]
        )

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one JSON object per window; silent windows have no direction.

        Yields
        ------
        dict
            The key time, in seconds, and the keys of `Localization.to_dict` without alternatives.

        """
        for time, window in zip(self.times, self.windows, strict=True):
            yield window.to_row(float(time))

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the track as columns of JSON values.

        Returns
        -------
        dict
            Columns `time` (seconds), `azimuth` and `elevation` (degrees; `x1`, `x2`, … in a space
            without directions), `radius_90`, `credible_90_area`, `observed_share` and `doubts`.
            Positions and sizes are None in silent windows.
        """
        names = coordinate_names(self.windows[0].posterior.space) if self.windows else ()
        rows = list(self.rows())
        places = [row["direction"] or [None] * len(names) for row in rows]
        columns = {name: [place[c] for place in places] for c, name in enumerate(names)}
        others = ("radius_90", "credible_90_area", "observed_share", "doubts")
        return {
            "time": [row["time"] for row in rows],
            **columns,
            **{name: [row[name] for row in rows] for name in others},
        }

    def to_pandas(self) -> pandas.DataFrame:
        """Return the track as a table; needs the extra `earatlas[pandas]`.

        Returns
        -------
        pandas.DataFrame
            One row per window, with the columns of `to_dict`.

        Raises
        ------
        MissingExtraError
            If pandas is not installed.
        """
        return data_frame(self.to_dict())


@dataclass(frozen=True)
class WindowSettings:
    """Length and interval of the windows of a track, rounded to whole frames and whole hops.

    The threshold is relative to the peak and the noise of the whole recording. If the head rotates
    within a window, its hops belong to several poses; the yaw of a hop is that at its centre.
    """

    window_seconds: float = 0.5
    hop_seconds: float = 0.1
    threshold: Threshold | None = None
    yaw: YawLike = 0.0  # head yaw, degrees; with it, directions are relative to the room

    def frames(self, layout: CueLayout) -> tuple[int, int]:
        """Return the frames per hop and the hops per window; check the settings."""
        frame = layout.hop / layout.rate
        if not frame <= self.window_seconds < np.inf:
            raise InputError(
                f"window_seconds must be at least a frame ({frame:g} s) and finite, got "
                f"{self.window_seconds}. 0.5 is the default."
            )
        if not frame <= self.hop_seconds <= self.window_seconds:
            raise InputError(
                f"hop_seconds must be at least a frame ({frame:g} s) and at most window_seconds, "
                f"got {self.hop_seconds} and {self.window_seconds}. 0.1 and 0.5 are the defaults."
            )
        step = max(round(self.hop_seconds / frame), 1)
        return step, max(round(self.window_seconds / (step * frame)), 1)


def localize_windows(head: LearnedHead, recording: Recording, windows: WindowSettings) -> Track:
    """Return the track of a recording.

    The samples are never all in memory, but the posteriors of all windows are;
    `WindowedLocalizer` yields them one by one.
    """
    pairs = list(WindowedLocalizer(head, recording, windows))
    return Track(np.array([time for time, _ in pairs]), tuple(window for _, window in pairs))


class WindowedLocalizer:
    """Iterator over the windows of a recording, and the localization of the whole recording.

    Memory is constant. `progress(done, total)` is called with seconds of sound.
    """

    def __init__(
        self,
        head: LearnedHead,
        recording: Recording,
        windows: WindowSettings,
        *,
        progress: Progress | None = None,
    ) -> None:
        self._step, self._length = windows.frames(head.layout)  # frames per hop, hops per window
        self._yaw = check_yaw(windows.yaw, head.space)
        self._yaw.check_end(recording.seconds)
        self._head, self._recording, self._windows = head, recording, windows
        without_offset = recording.without_dc_offset()
        self._clipped = clipped_findings(without_offset.clipped_fraction)
        self._features = WindowedFeatures(head, without_offset)
        self._frame_seconds = head.layout.hop / head.layout.rate
        self._localizations = self._localize(progress)

    def __iter__(self) -> Iterator[tuple[float, Localization]]:
        """Iterate over the remaining windows."""
        return self

    @single_threaded_blas()  # per window: the caller may use BLAS between windows
    def __next__(self) -> tuple[float, Localization]:
        """Return the centre in seconds and the localization of the next window."""
        return next(self._localizations)

    def _localize(self, progress: Progress | None) -> Iterator[tuple[float, Localization]]:
        rotating = np.ptp(self._yaw.degrees) > 0
        hops = self._features.hops(self._step, self._windows.threshold)
        windows = self._localize_rotating(hops) if rotating else self._localize_static(hops)
        # Frame t is centred on t hops of the layout.
        seconds, total = self._frame_seconds, self._recording.seconds
        for begin, window in windows:
            frames = window.seconds / seconds
            yield (begin + 0.5 * (frames - 1)) * seconds, window
            if progress is not None:
                progress(min((begin + frames) * seconds, total), total)

    @single_threaded_blas()
    def whole(self) -> Localization:
        """Return the localization of the whole recording: `localize`, in single precision.

        The statistics and onsets of the windows are used, so the sound is not read again, unless
        the head rotates.
        """
        threshold, yaw = self._windows.threshold, self._yaw
        if np.ptp(yaw.degrees):  # windows do not keep the statistics of each pose
            return localize(
                self._head, self._recording, threshold=threshold, yaw=yaw, second_pass=True
            )
        deque(self._localizations, maxlen=0)
        statistics, onsets = self._features.total()
        pose = Pose(float(yaw.degrees[0]), statistics)
        yaws = np.zeros(0) if onsets is None else np.full(len(onsets), pose.yaw_degrees)
        whole = require_observed(localize_poses(self._head, [pose], onsets, yaws))
        return replace(whole, doubts=with_findings(self._clipped, whole.doubts))

    def _localize_static(self, hops: Iterable[HopStatistics]) -> _Windows:
        """Yield (first frame, localization) of each window of a static head, many at once."""
        begin = 0
        for windows in sliding_statistics(hops, self._length):
            begins = (begin + self._step * np.arange(len(windows))).tolist()
            spans = zip(begins, windows.frames.tolist(), strict=True)
            onsets = [self._features.onsets(first, frames) for first, frames in spans]
            yield from zip(begins, self._localize_batch(windows, onsets), strict=True)
            begin += self._step * len(windows)

    def _localize_batch(
        self, windows: HopStatistics, onsets: Sequence[OnsetBins | None]
    ) -> Iterator[Localization]:
        """Yield the localization of each window; its onsets are sorted by time.

        The results are those of `localize_poses` without the test for several sources.
        """
        observed = windows.table[0].any(axis=1)
        localized = iter(self._localize_observed(windows, np.flatnonzero(observed), onsets))
        for is_observed, frames in zip(observed, windows.frames.tolist(), strict=True):
            yield next(localized) if is_observed else self._silent(frames)

    def _localize_observed(
        self, windows: HopStatistics, rows: Indices, onsets: Sequence[OnsetBins | None]
    ) -> list[Localization]:
        """Localize the windows in these rows, all of which have observed bins.

        On the sphere, the summaries of all posteriors (direction, mean, radius, area) are computed
        together.
        """
        if not len(rows):
            return []
        head, yaw = self._head, float(self._yaw.degrees[0])
        shares = observed_shares(head.layout, windows.table[0], windows.frames)
        chosen = [onsets[n] for n in rows.tolist()]
        combined = head.calibrated_posteriors(
            CueStatistics(*windows.table[:, rows]), chosen, all_charts=False
        )
        localizations = [
            localization_from_posterior(
                head,
                calibrated.rotated(yaw),
                own,
                observed_share=float(shares[n]),
                seconds=float(windows.frames[n]) * self._frame_seconds,
            )
            for n, calibrated, own in zip(rows, combined, chosen, strict=True)
        ]
        if isinstance(head.space, Sphere):
            posteriors = [localization.posterior for localization in localizations]
            for posterior, summary in zip(
                posteriors, summarize_posteriors(posteriors), strict=True
            ):
                posterior.cache_summary(summary)
        return localizations

    def _localize_rotating(self, hops: Iterable[HopStatistics]) -> _Windows:
        """Yield the same for a rotating head; hops of similar yaw are merged into poses."""
        head, localizer = self._head, self._head.reverberant_localizer
        for number, window in enumerate(_sliding_hops(hops, self._length)):
            begin = number * self._step
            starts = begin + self._step * np.arange(len(window))
            centres = starts + 0.5 * (np.array([hop.frames for hop in window]) - 1)
            yaws = self._yaw.at(centres * self._frame_seconds)
            poses = merge_poses(map(Pose, yaws.tolist(), window))
            statistics = total_statistics(poses)
            if not statistics.counts.any():
                yield begin, self._silent(statistics.frames)
                continue
            onsets = self._features.onsets(begin, statistics.frames)
            times = np.zeros(0)
            if onsets is not None and localizer is not None:
                most = localizer.direct_sound.onset_settings.most_bins
                onsets = onsets.by_frequency().strongest(most)
                times = self._features.seconds_of(onsets)
            yaw = self._yaw.at(times)
            yield begin, localize_poses(head, poses, onsets, yaw, test_several=False)

    def _silent(self, frames: float) -> Localization:
        """Return the localization of a window without observed bins."""
        return replace(self._silence, seconds=frames * self._frame_seconds)

    @cached_property
    def _silence(self) -> Localization:
        """All silent windows have the same posterior."""
        nothing = np.zeros(self._head.layout.n_cues)
        pose = Pose(0.0, CueStatistics(nothing, nothing, nothing))
        return localize_poses(self._head, [pose], None, np.zeros(0))


def _sliding_hops(parts: Iterable[HopStatistics], length: int) -> Iterator[list[CueStatistics]]:
    """Yield every `length` consecutive hops, or all hops if there are fewer."""
    recent: deque[CueStatistics] = deque(maxlen=length)
    complete = False
    for hop in (hop for part in parts for hop in part):
        recent.append(hop)
        if len(recent) == length:
            complete = True
            yield list(recent)
    if recent and not complete:
        yield list(recent)
