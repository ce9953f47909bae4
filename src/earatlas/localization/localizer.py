"""Localization of one source in a recording or in a stream.

Input: a learned head and either a recording, blocks of samples, or cue statistics with onsets.
Output: a `Localization`. Recordings and streams accumulate the same statistics in one pass and in
constant memory (`earatlas.localization.pose_statistics`), so that a finished stream has the result
of the recording. (The DC offset is known from the beginning of a recording but must be estimated in
a stream; with an offset the two results differ slightly.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import soxr
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.features.audio import MAX_ABS_SAMPLE, check_block, check_rate
from earatlas.features.audio_checks import check_length, no_observed_bins_error
from earatlas.features.dc_offset import DCOffsetFilter
from earatlas.features.layout import CueLayout, Threshold
from earatlas.features.onset_detector import OnsetBins, OnsetDetector
from earatlas.features.recording import Recording
from earatlas.features.statistics import CueStatistics
from earatlas.features.stft import FrameStream, squared_magnitude
from earatlas.localization.diagnostics import (
    Doubt,
    DoubtKind,
    head_mismatch,
    localization_doubts,
    with_onset_score,
)
from earatlas.localization.head_motion import HeadMotion, YawLike, check_yaw
from earatlas.localization.head_rotation import rotating_head_posterior
from earatlas.localization.learned_head import CalibratedPosterior, LearnedHead
from earatlas.localization.multi_source_posterior import widen_posterior
from earatlas.localization.pose_statistics import Pose, PoseStatistics, total_statistics
from earatlas.localization.result import Localization, uninformative_posterior
from earatlas.types import Array, Spectra

__all__ = [
    "Localizer",
    "localization_from_posterior",
    "localize",
    "localize_rotating_head",
    "localize_statistics",
    "observed_shares",
    "require_observed",
]

_STATIC_DEGREES = 6.0  # range of yaw in which the head counts as static
_ACTIVE_RATIO = 0.01  # power over that of the loudest frame; words are above it, pauses below
_LOUDEST_SECONDS = 10.0  # time constant with which the loudest frame is forgotten


def localize(
    head: LearnedHead,
    recording: Recording,
    *,
    threshold: Threshold | None = None,
    yaw: YawLike = 0.0,
    second_pass: bool = False,
) -> Localization:
    """Return the localization of a recording; `second_pass`: it was read before."""
    head_yaw = check_yaw(yaw, head.space)
    head_yaw.check_end(recording.seconds)
    localizer = Localizer(head, threshold=threshold, yaw=head_yaw)
    for block in recording.without_dc_offset().blocks(head.layout, second_pass=second_pass):
        localizer.push(block.samples)
    return localizer.finish()


def localize_statistics(head: LearnedHead, statistics: CueStatistics) -> Localization:
    """Return the localization given the cue statistics of a static head, without onsets."""
    calibrated = head.calibrated_posterior(statistics, None)
    return _localization(head, calibrated, statistics, None, static_onsets=None)


def localize_rotating_head(
    head: LearnedHead,
    poses: Sequence[Pose],
    onsets: OnsetBins | None,
    yaw_of_bins: Array,
    *,
    test_several: bool = True,
) -> Localization:
    """Return the localization for a rotating head, in the frame of the room.

    `yaw_of_bins` (B,) is the yaw at each onset in degrees. `test_several`: test for several
    sources, which takes as long as the localization.
    """
    calibrated = rotating_head_posterior(head, poses, onsets, yaw_of_bins)
    static = None if onsets is None or not test_several else _static_onsets(onsets, yaw_of_bins)
    return _localization(head, calibrated, total_statistics(poses), onsets, static_onsets=static)


def _static_onsets(onsets: OnsetBins, yaw_of_bins: Array) -> OnsetBins:
    """Return the onsets of the most frequent yaw: rotation would spread one source."""
    number = np.floor(yaw_of_bins / _STATIC_DEGREES + 0.5)
    values, counts = np.unique(number, return_counts=True)
    return onsets if len(values) < 2 else onsets[number == values[counts.argmax()]]


def localization_from_posterior(
    head: LearnedHead,
    calibrated: CalibratedPosterior,
    onsets: OnsetBins | None,
    *,
    observed_share: float,
    seconds: float,
    static_onsets: OnsetBins | None = None,
) -> Localization:
    """Return the localization with its doubts, and with a wider posterior where they require it.

    `static_onsets`: see `earatlas.localization.diagnostics.localization_doubts`.
    """
    posterior = calibrated.posterior
    doubts: tuple[Doubt, ...] = ()
    if observed_share > 0:
        calibrated = with_onset_score(head, calibrated, static_onsets)
        doubts = localization_doubts(head, calibrated, onsets, seconds, static_onsets=static_onsets)
    words = {doubt.word for doubt in doubts}
    if words & {DoubtKind.HEAD_MISMATCH, DoubtKind.SEVERAL_SOUNDS}:
        posterior = widen_posterior(posterior, head_mismatch(head, calibrated, onsets))
    if DoubtKind.NOT_DIRECTIONAL in words:
        posterior = uninformative_posterior(posterior)
    return Localization(posterior, observed_share, seconds, doubts)


def _localization(
    head: LearnedHead,
    calibrated: CalibratedPosterior,
    statistics: CueStatistics,
    onsets: OnsetBins | None,
    *,
    static_onsets: OnsetBins | None,
) -> Localization:
    """Return the localization with the observed share and duration of the statistics."""
    layout, frames = head.layout, np.array([statistics.frames])
    share = float(observed_shares(layout, statistics.counts[None], frames)[0])
    seconds = statistics.frames * layout.hop / layout.rate
    return localization_from_posterior(
        head, calibrated, onsets, observed_share=share, seconds=seconds, static_onsets=static_onsets
    )


def observed_shares(layout: CueLayout, counts: Array, frames: Array) -> Array:
    """Return the share (W,) of observed bins, given counts (W, D) and frames (W,)."""
    _, once = np.unique(layout.cue_frequencies, return_index=True)
    shares: Array = counts[:, once].mean(axis=1) / np.maximum(frames, 1e-300)
    return shares


def require_observed(localization: Localization) -> Localization:
    """Return the localization; raise an InputError if no bins were observed."""
    if localization.observed_share == 0:
        raise no_observed_bins_error()
    return localization


def _forgetting(hop_seconds: float, memory_seconds: float | None) -> float:
    """Return the weight of a frame after one hop."""
    return 1.0 if memory_seconds is None else float(np.exp(-hop_seconds / memory_seconds))


class _SilenceTimer:
    """Time since a stream was last active."""

    def __init__(self, frame_seconds: float) -> None:
        self._frame = frame_seconds
        self._forgetting = float(np.exp(-frame_seconds / _LOUDEST_SECONDS))
        self._loudest = self.seconds = 0.0

    def push(self, spectra: Spectra) -> None:
        """Add frames (2, B, t)."""
        for power in squared_magnitude(spectra[:, 1:]).sum(axis=(0, 1)):
            self._loudest = max(self._forgetting * self._loudest, float(power))
            active = power > _ACTIVE_RATIO * self._loudest
            self.seconds = 0.0 if active else self.seconds + self._frame


class Localizer:
    """Localizer of one source in a stream of blocks of samples.

    Memory is constant, except for two numbers per block with a yaw. `Atlas.localizer` creates one.

    Parameters
    ----------
    head : LearnedHead
        Learned head, such as an `Atlas`.
    rate : int, optional
        Samples per second of the stream, by default those of the head.
    memory_seconds : float, optional
        Time constant with which older sound is forgotten. None: everything is remembered, and
        `finish` returns the result of `Atlas.localize` for the whole stream.
    threshold : Threshold, optional
        Level above which bins are used.
    yaw : float, Yaw or array_like of shape (n, 2), optional
        Yaw of the head if it is known in advance; directions are then those of the room. Otherwise
        it can be given with each block.

    Raises
    ------
    InputError
        If `memory_seconds` is shorter than a window, or if `rate` or `yaw` is invalid.

    Examples
    --------
    >>> import earatlas as ea
    >>> head = ea.simulated_head([[40, 0]])
    >>> scene = ea.render_scene(head, [ea.synthetic_speech(0.6)], [[40, 0]])
    >>> localizer = ea.Localizer(ea.example_atlas())
    >>> for first in range(0, 9600, 1600):
    ...     localizer.push(scene.mixture.samples[:, first : first + 1600])
    >>> localizer
    Localizer(16000 Hz, 0.6 s of sound, memory unlimited)
    >>> bool(ea.great_circle_error(localizer.finish().direction, [40, 0]) < 15)
    True

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
                f"{memory_seconds}. Use one or two seconds to follow a moving talker."
            )
        self._head, self._threshold, self._memory_seconds = head, threshold, memory_seconds
        self._frames = FrameStream(layout.window, layout.hop)
        forgetting = _forgetting(layout.hop / layout.rate, memory_seconds)
        self._statistics = PoseStatistics(layout, forgetting=forgetting)
        known = None if yaw is None else check_yaw(yaw, head.space)
        self._motion = HeadMotion(known, memory_seconds)
        self._onsets = None
        if head.reverberant_localizer is not None:
            onset_settings = head.reverberant_localizer.direct_sound.onset_settings
            forgetting = _forgetting(onset_settings.hop / onset_settings.rate, memory_seconds)
            self._onsets = OnsetDetector(onset_settings, forgetting=forgetting)
        self._resampler = None
        if rate is not None and check_rate(rate) != layout.rate:
            self._resampler = soxr.ResampleStream(
                rate, layout.rate, 2, dtype="float64", quality="VHQ"
            )
        self._rate = layout.rate if rate is None else rate
        self._dc_filter = DCOffsetFilter(self._rate)
        self._n_pushed = 0  # samples at the rate of the stream
        self._n_samples = self._n_frames = 0  # at the rate of the layout
        self._silence = None if memory_seconds is None else _SilenceTimer(layout.hop / layout.rate)
        self._open = True

    def __repr__(self) -> str:
        memory = "unlimited" if self._memory_seconds is None else f"{self._memory_seconds:g} s"
        seconds = self._n_pushed / self._rate
        return f"Localizer({self._rate} Hz, {seconds:.1f} s of sound, memory {memory})"

    def push(self, samples: ArrayLike, *, yaw: float | None = None) -> None:
        """Add a block of samples.

        Parameters
        ----------
        samples : array_like of shape (2, n)
            Left and right channel at the rate of the stream.
        yaw : float, optional
            Yaw of the head at the end of the block in degrees, positive to the left. It is given
            with every block or with none, and not if the localizer has a yaw.

        Raises
        ------
        InputError
            If samples are not finite or the stream is finished, or if yaws are inconsistent.

        """
        if not self._open:
            raise InputError(
                "samples must be pushed before finish(), got more after it. Start a new localizer."
            )
        x = check_block(samples)
        if not np.isfinite(x).all():
            raise InputError("samples must be finite, got NaN or infinity. Check the input device.")
        if np.abs(x).max(initial=0.0) >= MAX_ABS_SAMPLE:
            raise InputError(
                f"samples must be below a million times full scale, got {np.abs(x).max():.3g}."
                " Divide them by their full scale."
            )
        if yaw is not None:
            check_yaw(yaw, self._head.space)
        self._motion.update((self._n_pushed + x.shape[1]) / self._rate, yaw)
        self._n_pushed += x.shape[1]
        self._add_samples(self._dc_filter.push(x), last=False)

    def _add_samples(self, x: Array, *, last: bool) -> None:
        if self._resampler is not None:
            x = self._resampler.resample_chunk(np.ascontiguousarray(x.T), last=last).T
        self._n_samples += x.shape[1]
        self._add_frames(self._frames.push(x))
        if self._onsets is not None:
            self._onsets.push(x)

    def _add_frames(self, spectra: Spectra) -> None:
        layout, frames = self._head.layout, spectra.shape[-1]
        numbers = np.arange(self._n_frames, self._n_frames + frames)
        self._statistics.push(spectra, self._motion.at(numbers * (layout.hop / layout.rate)))
        self._n_frames += frames
        if self._silence is not None:
            self._silence.push(spectra)

    def where(self) -> Localization:
        """Return the present localization, from all complete frames.

        Returns
        -------
        Localization
            With `memory_seconds`, it has an age, and its posterior widens during silence.

        """
        localization = self._localization()
        return localization if self._silence is None else localization.aged(self._silence.seconds)

    def _localization(self) -> Localization:
        poses = self._statistics.poses(self._threshold)
        if self._onsets is None or self._head.reverberant_localizer is None:
            return localize_rotating_head(self._head, poses, None, np.zeros(0))
        bins = self._onsets.bins()
        onset_settings = self._head.reverberant_localizer.direct_sound.onset_settings
        yaw = self._motion.at(bins.t * (onset_settings.hop / onset_settings.rate))
        return localize_rotating_head(self._head, poses, bins, yaw)

    def finish(self) -> Localization:
        """End the stream and return the final localization.

        Returns
        -------
        Localization
            The localization after the last frames were added.

        Raises
        ------
        InputError
            If the stream is shorter than a window, or if no bins were observed.

        """
        if self._open:
            self._add_samples(self._dc_filter.finish(), last=True)
            check_length(self._n_samples, self._head.layout)
            self._add_frames(self._frames.finish())
            if self._onsets is not None:
                self._onsets.finish()
            self._open = False
        return require_observed(self.where())
