"""Live stream: samples in; tracked sources and their separated signals out, with a fixed latency.

Samples are processed hop by hop (`earatlas.streaming.hop_processor`), so that the size of the
blocks has no influence on the result.
"""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError, SettingHint
from earatlas.features.audio import MAX_ABS_SAMPLE, check_block, check_rate
from earatlas.localization.diagnostics import Doubt, DoubtKind
from earatlas.localization.head_motion import HeadMotion, YawLike, check_yaw
from earatlas.separation.separator import MAX_SOURCES, Separator
from earatlas.streaming.hop_processor import HopProcessor
from earatlas.streaming.output_buffer import OutputBuffer
from earatlas.streaming.renderer import DEFAULT_LATENCY, LOW_LATENCY
from earatlas.streaming.report import LiveReport, LiveSource
from earatlas.tracking.online_track import OnlineTrack
from earatlas.types import Array

__all__ = ["Live"]

# Evidence: docs/figures/settings/streaming.md, "stream".
RATES = (8_000, 192_000)  # lowest and highest supported sampling rate, Hz
_ACTIVE_SECONDS = 0.4  # time since the last hit within which a source is active
_SILENT_SECONDS = 1.0  # time since the last hit after which a source gets a doubt
_UNKNOWN_RADIUS_90 = 143.0  # radius of a cap with 90 % of the sphere: arccos(-0.8) = 143.1°
_YAW_MEMORY_SECONDS = 0.1  # a fiftieth of the history of head yaws that is kept


class Live:
    """Track and separate the sources of a stream, block by block.

    Memory use is constant, and no thread is started. A stream can be pickled, and `snapshot`
    returns a copy to which it can be restored. `Atlas.live` makes one from an atlas.

    Parameters
    ----------
    separator : Separator
        Separator of an atlas that was learned for reverberant rooms.
    rate : int, optional
        Sampling rate of the input in Hz, from 8 000 to 192 000. Default: the head's rate.
    low_delay : bool, default False
        Reduce the latency from about 112 ms to 24 ms. Separation in reverberant rooms is worse.
    max_sources : int, default 4
        Largest number of sources at a time.
    yaw : float, Yaw or array_like, optional
        Head yaw that is known in advance. Without it, the yaw can be given to `push`.

    Raises
    ------
    InputError
        If the atlas was not learned for reverberant rooms, or if `rate` or `max_sources` is out of
        range.

    References
    ----------
    The latency is that of the filterbank of D. Mauler and R. Martin, A low delay, variable
    resolution, perfect reconstruction spectral analysis-synthesis system, EUSIPCO 2007.

    Examples
    --------
    >>> import numpy as np
    >>> import earatlas as ea
    >>> live = ea.example_atlas().live()
    >>> live.push(np.zeros((2, 1600)))
    LiveReport(0.10 s, no sources)
    >>> live
    Live(16000 Hz, 0.1 s, 0 sources, latency 112 ms)

    """

    def __init__(
        self,
        separator: Separator,
        *,
        rate: int | None = None,
        low_delay: bool = False,
        max_sources: int = 4,
        yaw: YawLike | None = None,
    ) -> None:
        head = separator.head
        if head.reverberant_localizer is None:
            raise InputError(
                "atlas must be prepared for reverberant rooms to be used live, got one that is "
                "not. Learn the head again with this preparation; if it was measured in a "
                "reverberant room, truncate its responses to the direct sound.",
                hint=SettingHint("learn(head.direct(), rooms=True)", "earatlas learn --direct"),
            )
        if not isinstance(max_sources, int) or not 1 <= max_sources <= MAX_SOURCES:
            too_many = isinstance(max_sources, int) and max_sources > MAX_SOURCES
            reason = ": two channels do not distinguish more sources" if too_many else ""
            raise InputError(
                f"max_sources must be from 1 to {MAX_SOURCES}, got {max_sources}. "
                f"Choose a number in this range{reason}."
            )
        self.rate = head.layout.rate if rate is None else check_rate(rate)
        if not RATES[0] <= self.rate <= RATES[1]:
            raise InputError(
                f"rate must be from {RATES[0]} to {RATES[1]} Hz, got {self.rate}. "
                "Resample the input."
            )
        self.max_sources = max_sources
        self._space = head.space
        known_yaw = None if yaw is None else check_yaw(yaw, head.space)
        self._motion = HeadMotion(known_yaw, _YAW_MEMORY_SECONDS)
        self._processor = HopProcessor(
            separator,
            head.reverberant_localizer,
            LOW_LATENCY if low_delay else DEFAULT_LATENCY,
            rate=self.rate,
            max_sources=max_sources,
            yaw_at=self._motion.at,
        )
        hop = self._processor.hop
        self._output = OutputBuffer(hop, hop - self.delay_samples)
        self._remainder = np.zeros((2, 0))  # samples that do not fill a hop yet
        self._n_samples = 0
        self._draining: dict[int, OnlineTrack] = {}  # deleted tracks with pending samples
        self._n_broken = 0
        self._is_open = True

    def __repr__(self) -> str:
        n = len(self._processor.front_end.confirmed)
        return (
            f"Live({self.rate} Hz, {self._n_samples / self.rate:.1f} s, "
            f"{n} source{'' if n == 1 else 's'}, latency {1000 * self.delay_seconds:.0f} ms)"
        )

    @property
    def delay_samples(self) -> int:
        """Latency in samples, from an input sample to the same sample of the separated signals."""
        return self._processor.latency_samples

    @property
    def delay_seconds(self) -> float:
        """Latency in seconds."""
        return self.delay_samples / self.rate

    def snapshot(self) -> Live:
        """Return an independent copy of the stream in its current state.

        Returns
        -------
        Live
            The copy. Pushing to it does not change this stream.

        Examples
        --------
        >>> import numpy as np
        >>> import earatlas as ea
        >>> live = ea.example_atlas().live()
        >>> saved = live.snapshot()
        >>> _ = live.push(np.zeros((2, 1600)))
        >>> live.restore(saved)
        >>> live
        Live(16000 Hz, 0.0 s, 0 sources, latency 112 ms)

        """
        return copy.deepcopy(self, {id(part): part for part in self._shared()})

    def restore(self, snapshot: Live) -> None:
        """Restore the state of a snapshot.

        Parameters
        ----------
        snapshot : Live
            Result of `snapshot` of this stream, or of one with the same rate and latency.

        Raises
        ------
        InputError
            If the snapshot has another rate or latency.

        """
        if (
            not isinstance(snapshot, Live)
            or snapshot.rate != self.rate
            or snapshot.delay_samples != self.delay_samples
        ):
            raise InputError(
                "snapshot must be of a stream like this one (same rate and latency), "
                f"got {snapshot!r} for {self!r}. Use the result of its snapshot() method."
            )
        vars(self).update(vars(snapshot.snapshot()))

    def _shared(self) -> tuple[object, ...]:
        """Return the immutable parts, which copies share."""
        separator = self._processor.masks.separator
        return (separator, separator.head, self._processor.front_end.sound)

    def push(self, samples: ArrayLike, *, yaw: float | None = None) -> LiveReport:
        """Process a block of samples.

        Parameters
        ----------
        samples : array_like of shape (2, n)
            Left and right channel at the stream's rate; full scale is 1. Any n is allowed. Samples
            that are not finite or larger than 1e6 are replaced by silence, with a doubt.
        yaw : float, optional
            Head yaw to the left at the end of the block, in degrees. Give it with every block or
            with none.

        Returns
        -------
        LiveReport
            The sources after the block, and the next n samples of their signals.

        Raises
        ------
        InputError
            If the samples have another shape, the yaw is invalid or jumps, or the stream is
            finished. The stream is unchanged then.

        Examples
        --------
        >>> import numpy as np
        >>> import earatlas as ea
        >>> report = ea.example_atlas().live().push(np.zeros((2, 800)))
        >>> report.time, report.sources
        (0.05, ())

        """
        if not self._is_open:
            raise InputError(
                "samples must be pushed before finish(), got more after it. Start a new stream."
            )
        x = check_block(samples).copy()
        if yaw is not None:
            check_yaw(yaw, self._space)
        # The state changes only after all checks: a block that is refused has no effect.
        self._motion.update((self._n_samples + x.shape[1]) / self.rate, yaw)
        self._n_samples += x.shape[1]
        broken = ~(np.abs(x) < MAX_ABS_SAMPLE)
        if broken.any():
            x[broken] = 0.0
            self._n_broken += int(broken.any(axis=0).sum())
        return self._process(x, self._n_samples - self.delay_samples)

    def finish(self) -> LiveReport:
        """End the stream and return the samples that are still due.

        Returns
        -------
        LiveReport
            The sources at the end, with their signals up to the last input sample.

        Raises
        ------
        InputError
            If the stream is finished already.

        Examples
        --------
        >>> import numpy as np
        >>> import earatlas as ea
        >>> live = ea.example_atlas().live()
        >>> n = live.push(np.zeros((2, 4000))).samples
        >>> n + live.finish().samples
        4000

        """
        if not self._is_open:
            raise InputError("finish() must be called once, got a second call. Start a new stream.")
        self._is_open = False
        hop = self._processor.hop
        missing = -(self._n_samples + self.delay_samples) % hop + self.delay_samples
        # Padded with the converter's offset: filters with look-ahead would respond to a step.
        silence = np.repeat(self._processor.dc_offset, missing, axis=1)
        return self._process(silence, self._n_samples)

    def _process(self, x: Array, until: int) -> LiveReport:
        """Process samples (2, n), and report with the signals up to input sample `until`."""
        processor, front_end, hop = self._processor, self._processor.front_end, self._processor.hop
        before = {track.id: track for track in front_end.confirmed}
        x = np.concatenate([self._remainder, x], axis=1)
        n_whole = x.shape[1] // hop * hop
        for start in range(0, n_whole, hop):
            self._output.append(processor.push(x[:, start : start + hop]))
            if processor.at_step_end:
                before |= {track.id: track for track in front_end.confirmed}
        self._remainder = x[:, n_whole:]
        start, signals = self._output.start, self._output.take(until)
        tracks = {track.id: track for track in front_end.tracks}
        ended = {i: t for i, t in (self._draining | before).items() if i not in tracks}
        self._draining = {i: t for i, t in ended.items() if self._output.has_pending(i)}
        current = dict(sorted((tracks | self._draining).items()))
        processor.retain_levels(current.keys() | ended.keys())
        n = self._output.start - start
        return LiveReport(
            self._n_samples / self.rate,
            start,
            tuple(self._source(track, signals, n) for track in current.values()),
            tuple(self._source(t, signals, n) for i, t in ended.items() if i not in current),
            (*self._input_doubts(), *front_end.doubts),
            n,
        )

    def _source(self, track: OnlineTrack, signals: dict[int, Array], n: int) -> LiveSource:
        """Return the report of a track with n samples."""
        age = max(self._processor.now - track.last_hit_at, 0.0)
        doubts = []
        if age > _SILENT_SECONDS:
            reason = (
                f"no sound from this source for {age:.0f} s. It may have moved; wait until it is "
                "active again."
            )
            doubts.append(Doubt(DoubtKind.SILENT, reason, age))
        directional = self._processor.front_end.directional
        return LiveSource(
            track.id,
            track.direction[: self._space.columns],
            track.radius_90 if directional else _UNKNOWN_RADIUS_90,
            track.initiated_at,
            age,
            self._processor.level_db(track.id),
            track.confirmed,
            age <= _ACTIVE_SECONDS,
            track.speed,
            tuple(doubts),
            signals.get(track.id, np.zeros((2, n))),
        )

    def _input_doubts(self) -> tuple[Doubt, ...]:
        """Return a doubt if samples were replaced."""
        if not self._n_broken:
            return ()
        reason = (
            f"{self._n_broken} samples were not finite or beyond 1e6 and were replaced by silence. "
            "Check the input device."
        )
        return (Doubt(DoubtKind.BROKEN_INPUT, reason, self._n_broken),)
