"""Localization of one source in a recording or in a stream.

Input: a learned head and either a recording, blocks of samples, or cue statistics with onsets.
Output: a `Localization`. Recordings and streams accumulate the same statistics in one pass and in
constant memory (`earatlas.localization.head_rotation`), so that a finished stream has the result
of the recording. (The DC offset is known from the beginning of a recording but must be estimated in
a stream; with an offset the two results differ slightly.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import soxr
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.features.audio import check_block, check_rate
from earatlas.features.audio_checks import check_length, no_observed_bins_error
from earatlas.features.input_samples import DCOffsetFilter, SampleChecker, clipped_findings
from earatlas.features.layout import CueLayout, Threshold
from earatlas.features.onset_detector import OnsetBins, OnsetDetector
from earatlas.features.recording import Recording
from earatlas.features.stft import FrameStream, squared_magnitude
from earatlas.localization.detected_sources import SourceDetector
from earatlas.localization.diagnostics import (
    HeadFit,
    RecordingDiagnosis,
    SourceDiagnosis,
    with_findings,
)
from earatlas.localization.head_rotation import (
    HeadMotion,
    Pose,
    PoseStatistics,
    YawLike,
    check_yaw,
    rotating_head_posterior,
    static_onsets,
    total_statistics,
)
from earatlas.localization.learned_head import CalibratedPosterior, LearnedHead
from earatlas.localization.result import Localization, uninformative_posterior
from earatlas.localization.reverberant_localizer import widen_posterior
from earatlas.threads import single_threaded_blas
from earatlas.types import Array, Spectra

__all__ = [
    "Localizer",
    "localization_from_posterior",
    "localize",
    "localize_poses",
    "observed_shares",
    "require_observed",
]


@single_threaded_blas()
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
    recording = recording.without_dc_offset()
    for block in recording.blocks(head.layout, second_pass=second_pass):
        localizer.push(block.samples)
    localization = localizer.finish()
    # Resampling and the removed offset hide clipped samples from the localizer.
    clipped = clipped_findings(recording.clipped_fraction)
    return replace(localization, doubts=with_findings(clipped, localization.doubts))


def localize_poses(
    head: LearnedHead,
    poses: Sequence[Pose],
    onsets: OnsetBins | None,
    yaw_of_bins: Array,
    *,
    test_several: bool = True,
) -> Localization:
    """Return the localization given the cue statistics of each pose, in the frame of the room.

    `yaw_of_bins` (B,) is the yaw at each onset in degrees. `test_several`: test for several
    sources, which takes as long as the localization.
    """
    calibrated = rotating_head_posterior(head, poses, onsets, yaw_of_bins)
    statistics = total_statistics(poses)
    frames = np.array([statistics.frames])
    share = observed_shares(head.layout, statistics.counts[None], frames)
    static = None
    if onsets is not None and test_several:
        static = static_onsets(onsets, yaw_of_bins)
    return localization_from_posterior(
        head,
        calibrated,
        onsets,
        observed_share=float(share[0]),
        seconds=statistics.frames * head.layout.hop / head.layout.rate,
        static=static,
    )


def localization_from_posterior(
    head: LearnedHead,
    calibrated: CalibratedPosterior,
    onsets: OnsetBins | None,
    *,
    observed_share: float,
    seconds: float,
    static: OnsetBins | None = None,
) -> Localization:
    """Return the localization: a posterior as wide as its diagnosis requires, and its doubts.

    `static` are the onsets during which the head did not rotate. They are tested for several
    sources. None: the test is left out.
    """
    posterior = calibrated.posterior
    if observed_share == 0:
        recording = RecordingDiagnosis.measure(onsets, seconds, fits=True)
        doubts = () if recording.plausible else tuple(recording.doubts())
        return Localization(posterior, observed_share, seconds, doubts)
    diagnosis = _diagnosis(head, calibrated, onsets, seconds, static)
    # The posterior of a determined mismatch is as wide as the deviation of the head requires.
    if diagnosis.several_sources or (diagnosis.other_head and math.isnan(calibrated.mismatch)):
        posterior = widen_posterior(posterior, diagnosis.fit.deviation)
    if not diagnosis.directional:
        posterior = uninformative_posterior(posterior)
    return Localization(posterior, observed_share, seconds, tuple(diagnosis.doubts()))


def _diagnosis(
    head: LearnedHead,
    calibrated: CalibratedPosterior,
    onsets: OnsetBins | None,
    seconds: float,
    static: OnsetBins | None,
) -> SourceDiagnosis:
    """Measure what the diagnosis needs: the score of the onsets, and the gain of a second source.

    If the anechoic model fits, the onsets were not used for the posterior. But the anechoic model
    of a head with large residuals also fits two talkers and loud noise; their onsets reveal them.
    """
    localizer = head.reverberant_localizer
    if localizer is None or onsets is None:
        fit = HeadFit.measure(calibrated.residual_ratio, onsets_analysed=False)
        return SourceDiagnosis.measure(
            RecordingDiagnosis.measure(None, seconds, fits=fit.fits), fit
        )
    static = static if static is not None and static.enough else None
    nats, gain = calibrated.nats_per_onset, math.nan
    if static is not None and math.isnan(nats):
        nats = float(localizer.direct_sound.log_likelihood(static).features[0])
    typical = localizer.score_calibration.typical_nats_per_onset
    if static is not None:  # windows of a track are too short for cues of several sources
        onsets = onsets.with_reverberation(cue_variance=calibrated.cue_variance)
    fit = HeadFit.measure(
        calibrated.residual_ratio,
        nats,
        typical,
        onsets.reverberation,
        mismatch=calibrated.mismatch,
    )
    # The mismatch is determined only without a room.
    recording = RecordingDiagnosis.measure(
        onsets, seconds, fits=fit.fits, anechoic=fit.deviating_head
    )
    if static is not None and not fit.fits and recording.only_reverberant:
        gain = SourceDetector(localizer.direct_sound, static).second_source_gain()
    return SourceDiagnosis.measure(recording, fit, gain)


def observed_shares(layout: CueLayout, counts: Array, frames: Array) -> Array:
    """Return the share (W,) of observed bins, given counts (W, D) and frames (W,)."""
    _, once = np.unique(layout.cue_frequencies, return_index=True)
    shares: Array = counts[:, once].mean(axis=1) / np.maximum(frames, 1e-300)
    return shares


def require_observed(localization: Localization) -> Localization:
    """Return the localization; raise an InputError if no bins were observed."""
    if localization.observed_share == 0:
        raise no_observed_bins_error(str(localization.doubts[0]) if localization.doubts else None)
    return localization


def _forgetting(hop_seconds: float, memory_seconds: float | None) -> float:
    """Return the weight of a frame after one hop."""
    return 1.0 if memory_seconds is None else float(np.exp(-hop_seconds / memory_seconds))


class _SilenceTimer:
    """Time since a stream was last active: above 1 % of the power of the loudest frame.

    Words are above it, pauses below. The loudest frame is forgotten within 10 s.
    """

    def __init__(self, frame_seconds: float) -> None:
        self._frame = frame_seconds
        self._forgetting = float(np.exp(-frame_seconds / 10))
        self._loudest = self.seconds = 0.0

    def push(self, spectra: Spectra) -> None:
        """Add frames (2, B, t)."""
        for power in squared_magnitude(spectra[:, 1:]).sum(axis=(0, 1)):
            self._loudest = max(self._forgetting * self._loudest, float(power))
            active = power > 0.01 * self._loudest
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
            sound = head.reverberant_localizer.direct_sound
            onset_settings = sound.onset_settings
            forgetting = _forgetting(onset_settings.hop / onset_settings.rate, memory_seconds)
            self._onsets = OnsetDetector(
                onset_settings, forgetting=forgetting, limits=sound.interaural_limits
            )
        self._resampler = None
        if rate is not None and check_rate(rate) != layout.rate:
            self._resampler = soxr.ResampleStream(
                rate, layout.rate, 2, dtype="float64", quality="VHQ"
            )
        self._rate = layout.rate if rate is None else rate
        self._samples = SampleChecker(self._rate)
        self._dc_filter = DCOffsetFilter(self._rate)
        self._n_pushed = 0  # samples at the rate of the stream
        self._n_samples = self._n_frames = 0  # at the rate of the layout
        self._silence = None if memory_seconds is None else _SilenceTimer(layout.hop / layout.rate)
        self._open = True

    def __repr__(self) -> str:
        memory = "unlimited" if self._memory_seconds is None else f"{self._memory_seconds:g} s"
        seconds = self._n_pushed / self._rate
        return f"Localizer({self._rate} Hz, {seconds:.1f} s of sound, memory {memory})"

    @single_threaded_blas()
    def push(self, samples: ArrayLike, *, yaw: float | None = None) -> None:
        """Add a block of samples.

        Parameters
        ----------
        samples : array_like of shape (2, n)
            Left and right channel at the rate of the stream. Samples that are not finite or larger
            than 1e6 are replaced by silence, with a doubt.
        yaw : float, optional
            Yaw of the head at the end of the block in degrees, positive to the left. It is given
            with every block or with none, and not if the localizer has a yaw.

        Raises
        ------
        InputError
            If the stream is finished, or if yaws are inconsistent.

        """
        if not self._open:
            raise InputError(
                "samples must be pushed before finish(), got more after it. Start a new localizer."
            )
        x = check_block(samples)
        if yaw is not None:
            check_yaw(yaw, self._head.space)
        self._motion.update((self._n_pushed + x.shape[1]) / self._rate, yaw)
        self._n_pushed += x.shape[1]
        self._add_samples(self._dc_filter.push(self._samples.usable(x)), last=False)

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

    def use_head(self, head: LearnedHead) -> None:
        """Continue with another learned head, such as one that was adapted to the listener.

        Parameters
        ----------
        head : LearnedHead
            A head with the same layout of cues.
        """
        self._head = head

    @single_threaded_blas()
    def where(self) -> Localization:
        """Return the present localization, from all complete frames.

        Returns
        -------
        Localization
            With `memory_seconds`, it has an age, and its posterior widens during silence.

        """
        poses = self._statistics.poses(self._threshold)
        bins, yaw = None, np.zeros(0)
        if self._onsets is not None and self._head.reverberant_localizer is not None:
            bins = self._onsets.bins()
            onset_settings = self._head.reverberant_localizer.direct_sound.onset_settings
            yaw = self._motion.at(bins.t * (onset_settings.hop / onset_settings.rate))
        localization = localize_poses(self._head, poses, bins, yaw)
        doubts = with_findings(self._samples.findings, localization.doubts)
        localization = replace(localization, doubts=doubts)
        return localization if self._silence is None else localization.aged(self._silence.seconds)

    @single_threaded_blas()
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
