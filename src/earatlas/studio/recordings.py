"""Recordings in the studio: separate, view, name, and write files and a report.

The input is an uploaded, recorded or rendered file and an atlas. The output is JSON values for the
page and, in the folder of the recording, mixture.wav, one sound per source, separated.json and
report.html.
"""

from __future__ import annotations

import json
import math
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.atlas import Atlas
from earatlas.batch.recordings import SeparationJob
from earatlas.errors import EaratlasWarning, InputError
from earatlas.evaluation.assignment import nan_mean
from earatlas.evaluation.ground_truth import GroundTruth
from earatlas.features.audio import Audio
from earatlas.features.audio_files import audio_channels, audio_seconds, read_audio
from earatlas.plotting.palette import source_numbers
from earatlas.report import write_report
from earatlas.report.comparison import SceneComparison, format_decibels
from earatlas.separation.pipeline import SeparationOptions, source_file_name
from earatlas.separation.result import SceneSummary
from earatlas.simulation.synthetic_speech import synthetic_speech
from earatlas.studio.archives import PICTURES
from earatlas.studio.identity import SourceIdentity, SourceLabels, identified_scene
from earatlas.studio.progress import ProgressReporter
from earatlas.studio.scenes import read_scene_truth
from earatlas.studio.stored_scene import read_scene, write_scene
from earatlas.studio.tables import write_tables
from earatlas.studio.views import colours, scene_view, spectrogram_images, truth_view
from earatlas.wording import (
    format_direction,
    format_duration,
    format_error,
    format_sampling_rate,
    format_speed,
)

__all__ = ["MIXTURE", "rename_sources", "separate_recording", "warm_up"]

MIXTURE = "mixture.wav"
_RESULT = "separated.json"
# Fields of a request that are settings, which the page shows again.
_SETTINGS = ("n_sources", "rendering", "rate", "dry", "channels", "directions")
# Evidence: docs/figures/settings/studio.md, "recordings".
_PREVIEW_SECONDS = 4.0  # longer recordings get a preview before their sounds are separated


def separate_recording(
    request: dict[str, Any], atlas: Atlas, reporter: ProgressReporter
) -> dict[str, Any]:
    """Separate a recording; publish a preview, then the scene with its sounds, then the report."""
    folder, file, name = Path(request["folder"]), Path(request["file"]), str(request["name"])
    options = _separation_options(request, atlas)
    part, labels = RecordingPart.of(request), SourceLabels.of(request)
    progress = reporter.stage("reading", 0.0, 0.05)
    mixture = _write_mixture(file, folder / MIXTURE, part)
    progress(1.0, 1.0)
    truth = part.truth(file.parent)
    about = {
        "name": name,
        "head": str(request["head"]),
        "truth": [] if truth is None else _true_directions(truth),
        "n_channels": audio_channels(file),
        "settings": {key: request.get(key) for key in _SETTINGS},
    }
    if audio_seconds(mixture) > _PREVIEW_SECONDS:
        reporter.stage("finding the sources", 0.05)
        reporter.publish({**about, **_preview(atlas, mixture, options, truth, labels)})
    progress = reporter.stage("separating the sounds", 0.3, 0.9)
    answer, scene, files = SeparationJob(folder, atlas, options).separated(mixture, progress)
    reporter.stage("preparing the view", 0.9)
    scene, identities, order = identified_scene(scene, truth, labels)
    _reorder_files(files, order)
    answer["sources"] = [
        {**answer["sources"][j], "name": source.name, "file": str(path)}
        for j, source, path in zip(order, scene.sources, files, strict=True)
    ]
    sounds = _sound_files(scene, folder)
    view = {
        **about,
        **scene_view(scene, identities),
        "facts": _facts(scene, options, answer["seconds"]),
        "comparison": [] if truth is None else _comparison_rows(scene, truth, sounds, identities),
        "images": spectrogram_images(scene, mixture, identities),
        "files": _files(scene, write_tables(folder, scene, identities)),
    }
    _write_json(folder / _RESULT, answer, name)
    write_scene(folder, scene)
    reporter.publish(view)
    reporter.stage("writing the report", 0.95)
    write_report(
        folder / "report.html", scene, title=name, truth=truth, files=sounds,
        elapsed_seconds=answer["seconds"],
    )  # fmt: skip
    return {**view, "files": {**view["files"], "report": "report.html"}}


def rename_sources(request: dict[str, Any], reporter: ProgressReporter) -> dict[str, Any]:
    """Write the files of a separated recording again, with other names of its sources.

    Its pictures are deleted; they are drawn again when somebody asks for them.
    """
    folder, name = Path(request["folder"]), str(request["name"])
    reporter.stage("writing the report")
    stored = read_scene(folder)
    numbers = [number + 1 for number in source_numbers(stored.sources)]
    scene, identities, _ = identified_scene(stored, None, SourceLabels(request["names"], numbers))
    answer = json.loads((folder / _RESULT).read_text(encoding="utf-8"))
    for source, values in zip(scene.sources, answer["sources"], strict=True):
        values["name"] = source.name
    write_tables(folder, scene, identities)
    _write_json(folder / _RESULT, answer, name)
    write_scene(folder, scene)
    shutil.rmtree(folder / PICTURES, ignore_errors=True)
    truth = RecordingPart.of(request).truth(Path(request["file"]).parent)
    write_report(
        folder / "report.html", scene, title=name, truth=truth, files=_sound_files(scene, folder),
        elapsed_seconds=answer["seconds"],
    )  # fmt: skip
    return {"names": [one.label for one in identities]}


def _preview(
    atlas: Atlas,
    mixture: Path,
    options: SeparationOptions,
    truth: GroundTruth | None = None,
    labels: SourceLabels | None = None,
) -> dict[str, Any]:
    """Return the view of a scene separated by soft masks at the rate of the cues, without sounds.

    This takes about 40 % of the time of the whole separation.
    """
    audio = read_audio(mixture, rate=atlas.layout.rate)
    scene = atlas.separate(
        audio, n_sources=options.n_sources, rendering="soft", directions=options.directions
    )
    summary, identities, _ = identified_scene(scene, truth, labels)
    return {
        **scene_view(summary, identities),
        "preliminary": True,
        "facts": [
            f"{format_duration(scene.seconds)} long",
            _describe_count(scene, options),
            "separating the sounds …",
        ],
        "comparison": [],
        "images": spectrogram_images(summary, mixture, identities),
        "files": {"mixture": MIXTURE, "sounds": []},
    }


def warm_up(atlas: Atlas) -> None:
    """Separate a short sound, so that modules are imported and cached values are computed."""
    samples = np.stack([synthetic_speech(0.6, seed=1), synthetic_speech(0.6, seed=2)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EaratlasWarning)
        atlas.separate(Audio(samples, 16_000), n_sources=2)


def _reorder_files(files: Sequence[Path], order: Sequence[int]) -> None:
    """Rename sound files, so that file m is the one that was file order[m]."""
    moved = [path.rename(path.with_suffix(".moved")) for path in files]
    for path, j in zip(files, order, strict=True):
        moved[j].rename(path)


@dataclass(frozen=True)
class RecordingPart:
    """The channels of the ears and the selected seconds of a recording."""

    channels: tuple[int, int] = (0, 1)  # left, right
    span: tuple[float, float] | None = None  # first and last second; None: all

    @classmethod
    def of(cls, request: dict[str, Any]) -> RecordingPart:
        """Return the part that a request asks for."""
        left, right = request.get("channels", (0, 1))
        span = request.get("span")
        return cls((left, right), None if span is None else (span[0], span[1]))

    def cut(self, audio: Audio) -> Audio:
        """Return this part of a sound with all channels, such as the image of a source."""
        left, right = self.channels
        ears = self.channels if max(left, right) < audio.channels else (0, 1)
        return self.seconds(Audio(audio.samples[list(ears)], audio.rate))

    def truth(self, folder: Path) -> GroundTruth | None:
        """Return this part of the ground truth of a scene rendered into the folder, if any."""
        truth = read_scene_truth(folder)
        if truth is None:
            return None
        return replace(truth, images=tuple(self.cut(image) for image in truth.images))

    def seconds(self, audio: Audio) -> Audio:
        """Return the selected seconds of a sound."""
        if self.span is None:
            return audio
        first, last = (round(second * audio.rate) for second in self.span)
        if first >= audio.samples.shape[1]:
            raise InputError(
                f"selection must begin before the end of the recording ({audio.seconds:.2f} s), "
                f"got {self.span[0]:.2f} s. Select another part."
            )
        return Audio(audio.samples[:, first:last], audio.rate)


def _separation_options(request: dict[str, Any], atlas: Atlas) -> SeparationOptions:
    """Return the options of a request; an atlas of azimuths has no elevations."""
    directions = request.get("directions")
    if directions is not None:
        directions = [place[: atlas.space.columns] for place in directions]
    return SeparationOptions(
        request.get("n_sources"), request.get("rendering", "spatial"), rate=request.get("rate"),
        dry=bool(request.get("dry")), directions=directions,
    )  # fmt: skip


def _write_mixture(file: Path, path: Path, part: RecordingPart, max_seconds: float = 300.0) -> Path:
    """Write the recording as a WAV file at its own rate, which all browsers play.

    A page can hold at most `max_seconds` in memory.
    """
    seconds = audio_seconds(file)
    if part.span is not None:
        seconds = min(part.span[1], seconds) - part.span[0]
    if seconds > max_seconds:
        raise InputError(
            f"recording must have at most {format_duration(max_seconds)} in the studio, got "
            f"{format_duration(seconds)}. Use the command `earatlas separate` for longer ones."
        )
    part.seconds(read_audio(file, channels=part.channels)).write(path)
    return path


def _describe_count(scene: SceneSummary, options: SeparationOptions) -> str:
    count = len(scene.sources)
    suffix = "found" if options.n_sources is None else "as requested"
    if options.directions is not None:
        suffix = "at given directions"
    return f"{count} source{'' if count == 1 else 's'} {suffix}"


def _facts(scene: SceneSummary, options: SeparationOptions, seconds: float) -> list[str]:
    return [
        f"{format_duration(scene.seconds)} long",
        _describe_count(scene, options),
        f"sampling rate {format_sampling_rate(scene.rate)}",
        f"separated in {format_speed(seconds, scene.seconds)}",
    ]


def _sound_files(scene: SceneSummary, folder: Path) -> dict[str, Path]:
    """Return the sound files of a separated recording by the names of their sources."""
    files = {s.name: folder / source_file_name(MIXTURE, m) for m, s in enumerate(scene.sources)}
    return {"mixture": folder / MIXTURE, **files}


def _files(scene: SceneSummary, tables: list[str]) -> dict[str, Any]:
    sounds = [source_file_name(MIXTURE, m) for m in range(len(scene.sources))]
    return {"mixture": MIXTURE, "sounds": sounds, "json": _RESULT, "tables": tables}


def _true_directions(truth: GroundTruth) -> list[dict[str, Any]]:
    assert truth.directions is not None
    return truth_view(truth.names, truth.directions)


def _comparison_rows(
    scene: SceneSummary,
    truth: GroundTruth,
    sounds: dict[str, Path],
    identities: Sequence[SourceIdentity],
) -> list[dict[str, str]]:
    """Return one row per true talker: true and estimated direction, SDR before and after."""
    comparison = SceneComparison.compute(scene, truth, sounds)
    assert comparison.by_direction is not None
    assert truth.directions is not None
    rows = []
    for m, (name, true) in enumerate(zip(truth.names, truth.directions, strict=True)):
        j = int(comparison.by_direction.found[m])
        row = {
            "name": name, "true": format_direction(true), "estimated": "not found", "error": "–",
            **colours(m), "number": str(m + 1),
        }  # fmt: skip
        if j >= 0:
            source = scene.sources[j]
            space = source.posterior.space
            error = format_error(space, truth.direction_error(m, source))
            place = f"{identities[j].number + 1}: {source.describe_place()}"
            row |= {"estimated": place, "error": error}
        sdr = {"before": math.nan, "after": math.nan}
        if comparison.score is not None:
            score = comparison.score
            for key, quality in (("before", score.mixture), ("after", score.quality)):
                sdr[key] = nan_mean(quality.sdr_db[m])
        rows.append({**row, **{key: format_decibels(value) for key, value in sdr.items()}})
    return rows


def _write_json(path: Path, answer: dict[str, Any], name: str) -> None:
    """Write the answer of `earatlas separate --json`, with names instead of local paths."""
    sources = [{**source, "file": Path(source["file"]).name} for source in answer["sources"]]
    path.write_text(json.dumps({**answer, "file": name, "sources": sources}, indent=2) + "\n")
