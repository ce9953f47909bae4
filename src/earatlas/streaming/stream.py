"""Live stream: samples in; tracked sources and their separated signals out, with a fixed latency.

`Live` checks the input and runs the three parts of `earatlas.streaming.stages` for each hop, so
that the size of the blocks has no influence on the result:

    samples ──▶ tracks ──▶ masks ──▶ signals ──▶ report
"""

from __future__ import annotations

import copy

from numpy.typing import ArrayLike

from earatlas.errors import InputError, SettingHint
from earatlas.features.audio import check_block, check_rate
from earatlas.localization.head_rotation import HeadMotion, YawLike, check_yaw
from earatlas.separation.separator import Separator, check_source_count
from earatlas.streaming.delay import DEFAULT_DELAY_SECONDS
from earatlas.streaming.hops import OutputSettings, StreamInput, StreamOutput
from earatlas.streaming.renderer import latency_profile
from earatlas.streaming.report import LiveReport
from earatlas.streaming.stages import MaskStage, RenderStage, TrackStage
from earatlas.threads import single_threaded_blas
from earatlas.types import Array

__all__ = ["Live"]


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
    delay_seconds : float, default 0.112
        Largest latency of the separated signals, from 0.024 to 1 s. In reverberant rooms, a longer
        one separates better, since filters are estimated from the sound that follows, too.
    max_sources : int, default 4
        Largest number of sources at a time.
    yaw : float, Yaw or array_like, optional
        Head yaw that is known in advance. Without it, the yaw can be given to `push`.

    Raises
    ------
    InputError
        If the atlas was not learned for reverberant rooms, or if `rate`, `delay_seconds` or
        `max_sources` is out of range.

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
        delay_seconds: float = DEFAULT_DELAY_SECONDS,
        max_sources: int = 4,
        yaw: YawLike | None = None,
    ) -> None:
        head = separator.head
        if not head.space.holds_directions:
            raise InputError(
                "atlas must be one of directions to separate live sound, got one of positions. "
                "Separate recordings of the sound, or localize it live.",
                hint=SettingHint("atlas.localizer()", "earatlas listen without --separate"),
            )
        if head.reverberant_localizer is None:
            raise InputError(
                "atlas must be prepared for reverberant rooms to be used live, got one that is "
                "not. Learn the head again with this preparation; if it was measured in a "
                "reverberant room, truncate its responses to the direct sound.",
                hint=SettingHint("learn(head.direct(), rooms=True)", "earatlas learn --direct"),
            )
        max_sources = check_source_count(
            "max_sources", max_sources, "Choose a number in this range."
        )
        self.rate = head.layout.rate if rate is None else check_rate(rate)
        if not 8_000 <= self.rate <= 192_000:
            raise InputError(
                f"rate must be from 8000 to 192000 Hz, got {self.rate}. Resample the input."
            )
        known_yaw = None if yaw is None else check_yaw(yaw, head.space)
        # Yaws are kept for 50 times as long, 5 s.
        self._motion = HeadMotion(known_yaw, memory_seconds=0.1)
        latency = latency_profile(delay_seconds, self.rate)
        self._rendering = RenderStage(self.rate, latency, head.layout, max_sources)
        filterbank = self._rendering.renderer.filterbank
        self._tracking = TrackStage(
            separator,
            head.reverberant_localizer,
            filterbank,
            self._motion.at,
            max_sources=max_sources,
        )
        self._masking = MaskStage(separator, filterbank, latency)
        self._input = StreamInput(self.rate, head.layout.rate, filterbank.hop)
        self._output = StreamOutput(
            filterbank.hop, self.rate, filterbank.latency_samples, OutputSettings()
        )
        self._is_open = True

    def __repr__(self) -> str:
        n = len(self._tracking.tracker.confirmed)
        return (
            f"Live({self.rate} Hz, {self._input.n_samples / self.rate:.1f} s, "
            f"{n} source{'' if n == 1 else 's'}, latency {1000 * self.delay_seconds:.0f} ms)"
        )

    @property
    def max_sources(self) -> int:
        """Largest number of sources at a time."""
        return self._tracking.tracker.settings.max_tracks

    @property
    def delay_samples(self) -> int:
        """Latency in samples, from an input sample to the same sample of the separated signals."""
        return self._rendering.renderer.filterbank.latency_samples

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
            Result of `snapshot` of this stream, or of one with the same rate, latency and largest
            number of sources.

        Raises
        ------
        InputError
            If the snapshot has another rate, latency or largest number of sources.

        """
        if (
            not isinstance(snapshot, Live)
            or snapshot.rate != self.rate
            or snapshot.delay_samples != self.delay_samples
            or snapshot.max_sources != self.max_sources
        ):
            raise InputError(
                "snapshot must be of a stream like this one (same rate, latency and largest number "
                f"of sources, here {self.max_sources}), "
                f"got {snapshot!r} for {self!r}. Use the result of its snapshot() method."
            )
        vars(self).update(vars(snapshot.snapshot()))

    def use_head(self, separator: Separator) -> None:
        """Continue with another learned head, such as one that was adapted to the listener.

        The tracks and their statistics are kept. The onsets are still compared with the first head.

        Parameters
        ----------
        separator : Separator
            Separator of an atlas with the same layout of cues, learned for reverberant rooms.
        """
        self._masking.model.use_separator(separator)
        self._tracking.posteriors.use_head(separator.head)

    def _shared(self) -> tuple[object, ...]:
        """Return the immutable parts, which copies share."""
        separator = self._masking.model.separator
        return (separator, separator.head, self._tracking.front_end.sound)

    @single_threaded_blas()
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
        x = check_block(samples)
        if yaw is not None:
            check_yaw(yaw, self._tracking.space)
        # The state changes only after all checks: a block that is refused has no effect.
        self._motion.update((self._input.n_samples + x.shape[1]) / self.rate, yaw)
        x = self._input.accept(x)
        return self._process(x, self._input.n_samples - self.delay_samples)

    @single_threaded_blas()
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
        return self._process(self._input.padding(self.delay_samples), self._input.n_samples)

    def _process(self, x: Array, until: int) -> LiveReport:
        """Process samples (2, n), and report with the signals up to input sample `until`."""
        tracking, masking, rendering = self._tracking, self._masking, self._rendering
        for hop in self._input.hops(x):
            step_ended = tracking.push(hop, rendering.renderer.diffuse_ratio)
            masks = masking.push(hop, rendering.mask_ids)
            signals = rendering.push(hop, masks)
            tracking.speaker_test.advance()
            tracking.speaker_test.append(hop.resampled, signals)
            self._output.append(signals)
            rendering.advance(masking)
            if step_ended:
                self._update()
        time, now = self._input.n_samples / self.rate, tracking.now
        doubts = (*self._input.doubts, *tracking.doubts)
        return self._output.report(until, time, now, tracking.front_end, doubts)

    def _update(self) -> None:
        """Update the tracks after a step of the tracker, and begin an update of the filters."""
        tracking, masking, rendering = self._tracking, self._masking, self._rendering
        tracking.correct(masking, rendering.ids)
        tracks, reverberant = (
            tracking.tracker.confirmed,
            tracking.front_end.reverberation.reverberant,
        )
        self._output.register(tracks)
        if rendering.select(tracks, tracking.now, reverberant=reverberant):
            rendering.begin_update(tracking.positions(), reverberant=reverberant)
