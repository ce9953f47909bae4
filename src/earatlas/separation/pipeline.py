"""Separation of a recording: number of sources, their directions, and their signals.

Input: a `Separator` (a learned head prepared for mixtures) and a recording. Output: a `Scene`, or a
`SceneSummary` and audio files. The steps are:

1. observe the recording: coherent bins and onsets (`earatlas.separation.separator`);
2. estimate the number of sources and fit them (`earatlas.separation.model_order`), and estimate
   trajectories if some source moves (`earatlas.tracking`); if none moves, a single source in a room
   may be divided (`model_order`);
3. in every block: masks (`earatlas.separation.source_masks`), demixing and cross-fading
   (`earatlas.separation.assembly`);
4. localize each source (`earatlas.separation.source_directions`) and collect the doubts.

Static and moving sources differ in their masks and demixing filters (step 3) and in step 4: the
directions of moving sources are trajectories, and no doubts are raised about the head, the number
of sources, or sources that are close to each other.

Sources are estimated at the rate of the head's cues; their signals have the recording's own rate or
the requested one (`earatlas.separation.demixing.band_extension`).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import EaratlasWarning, InputError, SettingHint
from earatlas.features.audio import Audio, check_rate
from earatlas.features.audio_checks import check_audio
from earatlas.features.audio_writer import incremental_wav_writer
from earatlas.features.input_samples import clipped_findings
from earatlas.features.layout import Threshold
from earatlas.features.recording import FileRecording, MemoryRecording, Recording
from earatlas.files import output_folder
from earatlas.geometry.spaces import Space
from earatlas.localization.diagnostics import Doubt, RecordingDiagnosis, with_findings
from earatlas.localization.localizer import localize
from earatlas.separation.assembly import OutputPlan, OutputSegment, SceneAssembler
from earatlas.separation.demixing.dereverberation import explain_no_effect
from earatlas.separation.demixing.rendering import Rendering, check_rendering
from earatlas.separation.initialization import Initialization, OnsetDetections
from earatlas.separation.model_order import divided_fit, fit_sources
from earatlas.separation.result import Scene, SceneSummary, Source
from earatlas.separation.separator import (
    MAX_SOURCES,
    ObservedRecording,
    Separator,
    check_source_count,
    observe_recording,
)
from earatlas.separation.source_directions import (
    LocatedSource,
    OnsetMasks,
    diagnose_scene,
    flag_colocated_sources,
    locate_given_sources,
    locate_moving_source,
    locate_static_sources,
    needs_source_onsets,
    scene_mismatch,
    source_count_doubts,
)
from earatlas.separation.source_masks import SourceMasks, StaticMasks, TrajectoryMasks
from earatlas.threads import single_threaded_blas
from earatlas.tracking.offline import (
    EstimatedTrajectory,
    TrajectoryOptions,
    find_moving_trajectories,
)
from earatlas.tracking.stitching import stitch_tracks
from earatlas.types import Array, Progress, field_values

__all__ = [
    "SeparationOptions",
    "SeparationProgress",
    "separate",
    "separate_file",
    "source_file_name",
]


@dataclass(frozen=True)
class SeparationOptions:
    """Options of a separation.

    Parameters
    ----------
    n_sources : int or None, default None
        Number of sources, from 1 to 6. None estimates the number.
    rendering : {"spatial", "soft", "binary"}, default "spatial"
        How the signals are made from the masks: by demixing filters, soft masks or binary masks.
    threshold : Threshold, optional
        Level that a time-frequency bin must exceed to be used.
    rate : int or None, default None
        Sampling rate of the separated signals in Hz, from 2000 to 384000. None keeps the rate of
        the recording.
    dry : bool, default False
        Whether to reduce the late reverberation of each source. The signals then no longer sum to
        the mixture.
    directions : array_like of shape (M, C), optional
        Directions of the static sources in degrees, for example from a correction by hand. They are
        kept, in this order; only the cues and signals of the sources are estimated. None estimates
        the directions.

    Raises
    ------
    InputError
        If a value is out of range.

    Examples
    --------
    >>> SeparationOptions(n_sources=2).rendering
    'spatial'
    >>> SeparationOptions(directions=[[40, 0], [-60, 20]]).n_sources
    2
    """

    n_sources: int | None = None  # None: estimate the number
    rendering: Rendering = "spatial"
    threshold: Threshold = field(default_factory=Threshold)
    rate: int | None = None  # Hz, of the separated signals; None: that of the recording
    dry: bool = False  # reduce late reverberation
    directions: ArrayLike | None = None  # (M, C) degrees; None: estimate them

    def __post_init__(self) -> None:
        if self.directions is not None:
            self._check_directions(np.asarray(self.directions, dtype=np.float64))
        if self.n_sources is not None:
            remedy = "Leave it out to estimate the number."
            n_sources = check_source_count("n_sources", self.n_sources, remedy)
            object.__setattr__(self, "n_sources", n_sources)
        check_rendering(self.rendering)
        if self.rate is not None:
            object.__setattr__(self, "rate", check_rate(self.rate))
            lowest, highest = 2_000, 384_000  # Hz: range of speech, and of audio converters
            if not lowest <= self.rate <= highest:
                raise InputError(
                    f"rate must be from {lowest} to {highest} Hz for separated signals, got "
                    f"{self.rate}. Choose another output rate.",
                    hint=SettingHint("rate=48000", "--rate 48000"),
                )

    def _check_directions(self, directions: Array) -> None:
        """Keep directions as tuples, which can be compared and written as JSON."""
        if directions.ndim != 2:
            raise InputError(
                f"directions must be of shape (sources, columns), got {directions.shape}. "
                "Give one row per source."
            )
        count = check_source_count("number of directions", len(directions), "Give fewer.")
        if self.n_sources not in (None, count):
            raise InputError(
                f"n_sources must be the number of directions, {count}, got {self.n_sources}. "
                "Leave it out if directions are given."
            )
        object.__setattr__(self, "n_sources", count)
        object.__setattr__(self, "directions", tuple(map(tuple, directions.tolist())))

    def given_directions(self, space: Space) -> Array | None:
        """Return the directions (M, C) as points of a space; None if they are estimated."""
        if self.directions is None:
            return None
        points = space.check(self.directions)
        for number, point in enumerate(points[1:], 1):
            if (space.distance(points[:number], point) < 1e-9).any():
                place = ", ".join(f"{value:g}" for value in point)
                raise InputError(
                    f"directions must differ, got ({place}) twice. Two sources at one direction "
                    "cannot be separated: give it once."
                )
        return points

    def with_rate_of(self, recording: Recording) -> SeparationOptions:
        """Return the options with the recording's rate if no rate is given."""
        return self if self.rate is not None else replace(self, rate=recording.rate)


@single_threaded_blas()
def separate(separator: Separator, audio: Audio, options: SeparationOptions) -> Scene:
    """Separate the sources of a recording in memory.

    The signals of the sources sum to the mixture, unless `options.dry` is set. With a single source
    its posterior is that of `localize`.

    Parameters
    ----------
    separator : Separator
        A learned head prepared for mixtures (`Atlas.separator`).
    audio : Audio
        Two-channel recording at any rate.
    options : SeparationOptions
        Number of sources, rendering, threshold, output rate, dereverberation.

    Returns
    -------
    Scene
        The sources with their directions, signals and masks.

    Raises
    ------
    InputError
        If the recording does not have two channels, is silent, or is shorter than one window.

    References
    ----------
    .. [1] A. Deleforge, F. Forbes and R. Horaud, "Acoustic space learning for sound-source
       separation and localization on binaural manifolds", International Journal of Neural Systems
       25(1), 2015.

    Examples
    --------
    >>> import earatlas as ea
    >>> head = ea.simulated_head([[-40, 0], [40, 0]])
    >>> voices = [ea.synthetic_speech(0.6, seed=m) for m in range(2)]
    >>> mixture = ea.render_scene(head, voices, [[-40, 0], [40, 0]]).mixture
    >>> options = SeparationOptions(n_sources=2, rendering="soft")
    >>> scene = separate(ea.example_atlas().separator, mixture, options)
    >>> [source.name for source in scene.sources]
    ['source1', 'source2']
    """
    narrow = check_audio(audio, separator.layout)
    wide = MemoryRecording(audio).without_dc_offset()
    if wide.offset.any():
        narrow = wide.audio.at_rate(separator.layout.rate)
    recording = MemoryRecording(narrow, wide.offset, wide.clipped_fraction)
    run = _Separation(separator, recording, wide, options.with_rate_of(wide))
    segments = list(run.segments())
    summary = run.summary()
    signals = np.concatenate([segment.signals for segment in segments], axis=-1)
    masks = np.concatenate([segment.masks for segment in segments], axis=-1)
    separated = tuple(
        Source(**field_values(source), audio=Audio(signals[m], summary.rate), mask=masks[m])
        for m, source in enumerate(summary.sources)
    )
    mixture = audio
    if summary.rate != audio.rate:
        mixture = Audio(wide.audio.at_rate(summary.rate).samples + wide.offset, summary.rate)
    return Scene(**{**field_values(summary), "sources": separated}, mixture=mixture)


@single_threaded_blas()
def separate_file(
    separator: Separator,
    recording: FileRecording,
    folder: str | Path,
    options: SeparationOptions,
    *,
    progress: Progress | None = None,
) -> tuple[SceneSummary, list[Path]]:
    """Separate the sources of a file of any length and write them to a folder.

    Memory is bounded. The files are named after the recording (party_source1.wav, …). They appear
    when all of them are complete, or not at all.

    Parameters
    ----------
    separator : Separator
        A learned head prepared for mixtures (`Atlas.separator`).
    recording : FileRecording
        Two channels of an audio file.
    folder : str or Path
        Output folder; it is created if necessary.
    options : SeparationOptions
        Number of sources, rendering, threshold, output rate, dereverberation.
    progress : callable, optional
        Called as `progress(done, total)` while the separation runs.

    Returns
    -------
    summary : SceneSummary
        The sources with their directions.
    files : list of Path
        The audio files, one per source.

    Raises
    ------
    InputError
        If the file cannot be read, is silent or too short, or the folder cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import earatlas as ea
    >>> head = ea.simulated_head([[-40, 0], [40, 0]])
    >>> voices = [ea.synthetic_speech(0.6, seed=m) for m in range(2)]
    >>> mixture = ea.render_scene(head, voices, [[-40, 0], [40, 0]]).mixture
    >>> options = SeparationOptions(n_sources=2, rendering="soft")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     recording = FileRecording(mixture.write(f"{folder}/party.wav"))
    ...     summary, files = separate_file(
    ...         ea.example_atlas().separator, recording, f"{folder}/out", options
    ...     )
    >>> [file.name for file in files]
    ['party_source1.wav', 'party_source2.wav']
    """
    folder, report = Path(folder), SeparationProgress(progress)
    with output_folder(folder):
        options, recording = options.with_rate_of(recording), recording.without_dc_offset()
        run = _Separation(separator, recording, recording, options, report)
        names = [source_file_name(recording.path, m) for m in range(run.masks.n_sources)]
        rate = run.assembler.rate
        samples = round(run.observed.samples * rate / separator.layout.rate)
        with incremental_wav_writer(folder, names, rate, samples=samples) as append:
            for segment in run.segments():
                append(segment.signals)
            summary = run.summary()
    return summary, [folder / name for name in names]


def source_file_name(path: str | Path, m: int) -> str:
    """Return the file name that `separate_file` gives to source m of a recording."""
    return f"{Path(path).stem}_source{m + 1}.wav"


class _Separation:
    """One separation, from the observations to the scene without signals.

    `recording` is analysed; `output` is the same sound, from which the output signals are made.
    """

    def __init__(
        self,
        separator: Separator,
        recording: Recording,
        output: Recording,
        options: SeparationOptions,
        progress: SeparationProgress | None = None,
    ) -> None:
        self._separator, self._recording, self._options = separator, recording, options
        self._progress = progress or SeparationProgress(None)
        rate = options.rate or separator.layout.rate
        directions = options.given_directions(separator.head.space)
        self.observed = observe_recording(
            separator, recording, rate, options.threshold, self._progress.report_first_pass
        )
        start = Initialization(
            separator, self.observed.bins, self.observed.onsets, directions=directions
        )
        fit = fit_sources(start, options.n_sources)
        self._trajectories = _moving_trajectories(
            separator, self.observed, fit.detections, options.n_sources
        )
        if options.n_sources is None and not self._trajectories:
            fit = divided_fit(start, fit, self.observed)
        self._fit = fit
        self.masks: SourceMasks
        if self._trajectories:
            self.masks = TrajectoryMasks(separator, self._trajectories)
        else:
            self.masks = StaticMasks(separator, self._fit, self.observed)
        self._onset_masks = self._new_onset_masks()
        self.assembler = self._scene_assembler(output, rate)

    def _new_onset_masks(self) -> OnsetMasks | None:
        """Return storage for the masks at onset bins of static sources detected by onsets."""
        separator, detections = self._separator, self._fit.detections
        settings, onsets = separator.onset_settings, detections.onsets
        if self._trajectories or settings is None or onsets is None or not len(detections):
            return None
        return OnsetMasks(separator.layout, settings, onsets, self.masks.n_sources)

    def _scene_assembler(self, output: Recording, rate: int) -> SceneAssembler:
        """Return an assembler for the sources."""
        separator, options = self._separator, self._options
        alone = not self._trajectories and needs_source_onsets(self._fit)
        return SceneAssembler(
            separator.layout,
            self.masks.n_sources,
            samples=self.observed.samples,
            overlap=separator.overlap_samples(rate),
            output=OutputPlan(
                options.rendering,
                rate,
                output.chunks(rate),
                output.offset,
                onset_settings=separator.onset_settings if alone else None,
                reverberation=self._fit.detections.reverberation,
                dry=options.dry,
            ),
        )

    def segments(self) -> Iterator[OutputSegment]:
        """Separate block by block; yield the final signals and masks."""
        self._progress.begin_second_pass()
        for block in self.observed.blocks:
            separated = self.masks.separate(block)
            if self._onset_masks is not None:
                self._onset_masks.add(separated)
            yield self.assembler.add(separated)
            self._progress.report_second_pass(block.end / self.observed.samples)

    def summary(self) -> SceneSummary:
        """Return the scene without signals, after the last block.

        Warns if dereverberation was requested and has no effect.
        """
        if self._options.dry and not self.assembler.dry:
            reverberation = None if self.observed.onsets is None else self.assembler.reverberation
            warnings.warn(explain_no_effect(reverberation), EaratlasWarning, stacklevel=4)
        located, doubts = self._located()
        doubts = with_findings(clipped_findings(self._recording.clipped_fraction), doubts)
        return self.assembler.summary(located, doubts, self.masks.free_energies)

    def _located(self) -> tuple[list[LocatedSource], tuple[Doubt, ...]]:
        """Localize each source; return the sources and the doubts that concern all of them.

        A single static source is localized as by `localize`, several ones by onsets and masks. The
        reverberation is that which the signals follow.
        """
        head, seconds = self._separator.head, self.observed.seconds
        reverberation = self.assembler.reverberation
        fit = self._fit.with_reverberation(reverberation)
        detections = fit.detections
        if self._trajectories:
            located = [locate_moving_source(head.space, t) for t in self._trajectories]
            onsets = self.observed.onsets
            if onsets is not None:
                onsets = replace(onsets, reverberation=reverberation)
            return located, tuple(diagnose_scene(head, located, onsets, seconds).doubts())
        if fit.vessl.directions is not None:
            recording = RecordingDiagnosis.measure(detections.onsets, seconds, fits=fit.anechoic)
            return locate_given_sources(fit, recording), tuple(recording.doubts())
        source_onsets = self.assembler.source_onsets()
        mismatch = scene_mismatch(head, fit)
        located = locate_static_sources(head, fit, source_onsets, self._onset_masks, mismatch)
        count_doubts = source_count_doubts(detections.next_source_ratio)
        if len(located) > 1:
            diagnosis = diagnose_scene(head, located, detections.onsets, seconds, mismatch)
            if not diagnosis.recording.directional:
                located = [source.without_direction() for source in located]
            return flag_colocated_sources(located), (*diagnosis.doubts(), *count_doubts)
        threshold = self._options.threshold
        single = localize(head, self._recording, threshold=threshold, second_pass=True)
        source = LocatedSource.static(single.posterior, located[0].evidence)
        return [source], (*single.doubts, *count_doubts)


def _moving_trajectories(
    separator: Separator,
    observed: ObservedRecording,
    detections: OnsetDetections,
    n_sources: int | None,
) -> list[EstimatedTrajectory]:
    """Return the trajectories of all sources if one of them moves, otherwise none."""
    localizer, onsets = separator.head.reverberant_localizer, observed.onsets
    if localizer is None or onsets is None or not len(detections):
        return []
    sound, directions = localizer.direct_sound, detections.directions
    options = TrajectoryOptions(observed.seconds, n_sources, MAX_SOURCES)
    if observed.single_block:
        return find_moving_trajectories(sound, onsets, directions, options)
    return stitch_tracks(sound, observed.segments, directions, options)


class SeparationProgress:
    """Reports non-decreasing progress, as a fraction of the total time.

    A long recording is read twice. Between the passes the sources are estimated, which takes as
    long for a minute as for an hour. The first pass therefore counts as a fixed fraction
    (docs/figures/settings/separation.md, "pipeline"); in the second, the remaining time is
    extrapolated from the blocks that are done.
    """

    first_pass_fraction = 0.2  # estimated fraction of the total time that the first pass takes

    def __init__(
        self, report: Progress | None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._report, self._clock = report, clock
        self._start = self._second_start = clock()
        self._last = 0.0

    def report_first_pass(self, fraction: float) -> None:
        """Report that a fraction of the first pass is done."""
        self._report_fraction(self.first_pass_fraction * fraction)

    def begin_second_pass(self) -> None:
        """Start the clock of the second pass, once the sources are estimated."""
        self._second_start = self._clock()

    def report_second_pass(self, fraction: float) -> None:
        """Report that a fraction of the second pass is done, at constant speed."""
        now = self._clock()
        remaining = (now - self._second_start) * (1 - fraction) / max(fraction, 1e-9)
        self._report_fraction((now - self._start) / max(now - self._start + remaining, 1e-9))

    def _report_fraction(self, fraction: float) -> None:
        self._last = max(self._last, fraction)
        if self._report is not None:
            self._report(self._last, 1.0)
