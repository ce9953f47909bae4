"""Separation of a recording: number of sources, their directions, and their signals.

Input: a `Separator` (a learned head prepared for mixtures) and a recording. Output: a `Scene`, or a
`SceneSummary` and audio files. `source_estimation` estimates the sources and the masks of each
block; here the signals of neighbouring blocks are cross-faded and each source is localized.

Sources are estimated at the rate of the head's cues; their signals have the recording's own rate or
the requested one (`earatlas.separation.demixing.band_extension`).
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

from earatlas.errors import EaratlasWarning
from earatlas.features.audio import Audio
from earatlas.features.audio_checks import check_audio
from earatlas.features.audio_writer import incremental_wav_writer
from earatlas.features.onset_detector import OnsetBins
from earatlas.features.recording import FileRecording, MemoryRecording, Recording
from earatlas.files import output_folder
from earatlas.localization.diagnostics import Doubt, DoubtKind
from earatlas.localization.localizer import localize
from earatlas.localization.result import uninformative_posterior
from earatlas.separation.assembly import OutputSettings, SceneAssembler
from earatlas.separation.blocks import overlap_samples
from earatlas.separation.moving_sources import MovingSources
from earatlas.separation.options import SeparationOptions
from earatlas.separation.progress import SeparationProgress
from earatlas.separation.result import LocatedSource, Scene, SceneSummary, Source
from earatlas.separation.separator import REVERBERANT_DECAY_SECONDS, Separator
from earatlas.separation.source_directions import (
    flag_colocated_sources,
    locate_sources,
    scene_doubts,
    source_count_doubts,
)
from earatlas.separation.source_estimation import StaticSources, estimate_sources
from earatlas.types import Progress, field_values

__all__ = ["separate", "separate_file", "source_file_name"]


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
    recording = MemoryRecording(narrow, wide.offset)
    options = options.with_rate_of(wide)
    sources = estimate_sources(separator, recording, options)
    assembler = _scene_assembler(separator, wide, sources, options)
    segments = []
    for block in sources.blocks:
        segments.append(assembler.add(block))
        sources.record_masks(block)
    summary = _scene_summary(separator, recording, sources, options, assembler)
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
        sources = estimate_sources(separator, recording, options, report)
        report.begin_second_pass()
        assembler = _scene_assembler(separator, recording, sources, options)
        names = [source_file_name(recording.path, m) for m in range(sources.n_sources)]
        rate = assembler.rate
        samples = round(sources.samples * rate / separator.layout.rate)
        with incremental_wav_writer(folder, names, rate, samples=samples) as append:
            for block in sources.blocks:
                append(assembler.add(block).signals)
                sources.record_masks(block)
                report.report_second_pass(block.end / sources.samples)
            summary = _scene_summary(separator, recording, sources, options, assembler)
    return summary, [folder / name for name in names]


def source_file_name(path: str | Path, m: int) -> str:
    """Return the file name that `separate_file` gives to source m of a recording."""
    return f"{Path(path).stem}_source{m + 1}.wav"


def _scene_assembler(
    separator: Separator,
    recording: Recording,
    sources: StaticSources | MovingSources,
    options: SeparationOptions,
) -> SceneAssembler:
    """Return an assembler for the sources; warn if dereverberation has no effect."""
    layout, localizer = separator.layout, separator.head.reverberant_localizer
    rate = options.rate or layout.rate
    onset_settings = None
    if localizer is not None and sources.needs_source_onsets:
        onset_settings = localizer.direct_sound.onset_settings
    if options.dry and not sources.reverberant:
        warnings.warn(_no_dereverberation(sources.onsets), EaratlasWarning, stacklevel=4)
    output = OutputSettings(
        options.rendering,
        rate,
        recording.chunks(rate),
        recording.offset,
        onset_settings=onset_settings,
        reverberant=None if sources.possibly_reverberant else sources.reverberant,
        dry=options.dry and sources.reverberant,
    )
    return SceneAssembler(
        layout,
        sources.n_sources,
        samples=sources.samples,
        overlap=overlap_samples(layout, rate),
        output=output,
    )


def _no_dereverberation(onsets: OnsetBins | None) -> str:
    """Return a warning that explains why the recording is not dereverberated."""
    effect = "Dereverberation has no effect: the signals are not changed, and sum to the mixture"
    if onsets is None:
        return f"{effect}. This atlas has no model of reverberant rooms; learn the head again."
    if np.isnan(onsets.decay_seconds):
        return f"{effect}. The recording has too few onsets to measure its reverberation."
    return (
        f"{effect}. The recording is not reverberant: sound decays by 60 dB in "
        f"{onsets.decay_seconds:.2f} s, in reverberant rooms in {REVERBERANT_DECAY_SECONDS} s or "
        "more."
    )


def _scene_summary(
    separator: Separator,
    recording: Recording,
    sources: StaticSources | MovingSources,
    options: SeparationOptions,
    assembler: SceneAssembler,
) -> SceneSummary:
    """Return the scene without signals, after the last block."""
    if isinstance(sources, MovingSources):
        located, doubts = sources.located(separator)
    else:
        onsets = assembler.source_onsets()
        located, doubts = _locate_static(separator, recording, sources, options, onsets)
    return assembler.summary(located, doubts, sources.free_energies)


def _locate_static(
    separator: Separator,
    recording: Recording,
    sources: StaticSources,
    options: SeparationOptions,
    source_onsets: list[OnsetBins],
) -> tuple[list[LocatedSource], tuple[Doubt, ...]]:
    """Return the located sources and the doubts that concern all of them.

    A single source is localized as by `localize`, several ones by onsets and masks.
    `source_onsets` are the onsets of each separated signal.
    """
    fit, head = sources.fit, separator.head
    detections = replace(fit.detections, source_onsets=tuple(source_onsets))
    located = locate_sources(head, fit.state, fit.residual_ratios, detections, sources.onset_masks)
    count_doubts = source_count_doubts(detections.next_source_ratio)
    if len(located) > 1:
        seconds = sources.samples / separator.layout.rate
        doubts = scene_doubts(head, located, detections.onsets, seconds)
        if any(doubt.word is DoubtKind.NOT_DIRECTIONAL for doubt in doubts):
            located = [
                replace(source, posterior=uninformative_posterior(source.posterior))
                for source in located
            ]
        return flag_colocated_sources(located), (*doubts, *count_doubts)
    single = localize(head, recording, threshold=options.threshold, second_pass=True)
    source = replace(located[0], posterior=single.posterior, doubts=())
    return [source], (*single.doubts, *count_doubts)
