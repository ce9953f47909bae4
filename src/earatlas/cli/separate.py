"""`earatlas separate`: separate recordings into their sources, and localize them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from earatlas.batch.file_arguments import check_unique_stems, expand_file_arguments, unique_files
from earatlas.batch.recordings import SeparationJob, check_no_overwrite, exclude_results
from earatlas.cli.app import Command, command_app, examples
from earatlas.cli.atlas_argument import ChosenAtlas, split_atlas
from earatlas.cli.batch_runner import BatchOptions, run_batch
from earatlas.cli.console import (
    format_degrees,
    print_alternatives,
    print_doubts,
    print_line,
    print_note,
)
from earatlas.cli.ground_truth import (
    check_truth,
    compare_with_truth,
    format_comparison,
    format_perceptual_scores,
    read_separated,
    read_truth,
    truth_files,
)
from earatlas.cli.options import (
    AdaptOption,
    AtlasAndRecordingsArgument,
    ChannelsOption,
    ForceOption,
    JobsOption,
    JsonOption,
    OutputOption,
    PictureOption,
    ResumeOption,
    SchedulerOption,
    check_picture,
)
from earatlas.cli.outputs import OutputFiles
from earatlas.errors import InputError
from earatlas.evaluation.ground_truth import GroundTruth
from earatlas.features.sound_file import RECORDING_SUFFIXES
from earatlas.geometry.alternatives import Alternative
from earatlas.geometry.lateral_angle import LateralAngle
from earatlas.geometry.spaces import Space
from earatlas.interchange.dcase import write_dcase
from earatlas.interchange.rttm import write_rttm
from earatlas.separation.pipeline import SeparationOptions, source_file_name
from earatlas.separation.result import SceneSummary
from earatlas.types import Progress
from earatlas.wording import (
    coordinate_names,
    format_direction,
    format_one_decimal,
    format_position,
    format_sampling_rate,
    format_speed,
    is_unknown,
)

__all__ = ["Render", "app", "separate_command"]

app = command_app()

_EXTRA_SUFFIXES = {
    "report": ".html",
    "rttm": ".rttm",
    "dcase": ".dcase.csv",
}  # files beside the sounds


class Render(StrEnum):
    """Names of the rendering methods."""

    spatial = "spatial"
    soft = "soft"
    binary = "binary"


@dataclass(frozen=True)
class _SeparateJob(SeparationJob):
    """Separate a recording, compare it with the truth, and write a report."""

    report: bool = False
    truth: Path | None = None
    rttm: bool = False
    dcase: bool = False
    picture: Path | None = None

    def inputs(self, file: Path) -> list[Path]:
        """Return the recording, the files of the truth, and the picture of the report."""
        truth = [] if self.truth is None else truth_files(self.truth)
        return [file, *truth, *([] if self.picture is None else [self.picture])]

    def possible_outputs(self, file: Path) -> list[Path]:
        """Return the sound files, the report and the tables."""
        extra = [_extra_path(self.folder, file, suffix) for suffix in _EXTRA_SUFFIXES.values()]
        return [*super().possible_outputs(file), *extra]

    def claimed_outputs(self, file: Path) -> list[Path]:
        """Return the sound files; the report and the tables are claimed if they are requested."""
        return SeparationJob.possible_outputs(self, file)[: self.options.n_sources]

    def requested(self, file: Path) -> dict[str, Path]:
        """Return the report and the tables that were asked for, by name."""
        asked = {"report": self.report, "rttm": self.rttm, "dcase": self.dcase}
        return {
            name: _extra_path(self.folder, file, _EXTRA_SUFFIXES[name])
            for name, wanted in asked.items()
            if wanted
        }

    def outputs(self, answer: dict[str, Any]) -> list[Path]:
        """Return the sound files, the report and the tables that were written."""
        extra = (answer.get(name) for name in ("rttm", "dcase"))
        return [*super().outputs(answer), *(Path(file) for file in extra if file is not None)]

    def answer(self, file: Path, progress: Progress | None) -> dict[str, Any]:
        """Separate one recording; return the result as JSON values."""
        answer, scene, files = self.separated(file, progress)
        truth = None
        if self.truth is not None:
            truth = read_truth(self.truth, scene.seconds)
            sounds = read_separated(file, files, self.channels)
            answer["truth"] = compare_with_truth(scene, truth, *sounds)
        for name, path in self.requested(file).items():
            if name == "report":
                self.write_report(path, scene, [file, *files], truth, answer["seconds"])
            elif name == "rttm":
                write_rttm(scene, path)
            else:
                write_dcase(scene, path)
            answer[name] = str(path)
        return answer

    def write_report(
        self,
        path: Path,
        scene: SceneSummary,
        files: list[Path],
        truth: GroundTruth | None,
        seconds: float,
    ) -> None:
        """Write the report; `files` are those of the mixture and of each source."""
        from earatlas.report import write_report

        names = ("mixture", *(source.name for source in scene.sources))
        write_report(
            path,
            scene,
            title=files[0].name,
            truth=truth,
            files=dict(zip(names, files, strict=True)),
            elapsed_seconds=seconds,
            picture=self.picture,
        )


@app.command(
    cls=Command,
    epilog=examples(
        "earatlas separate party.wav -o out",
        "earatlas separate ku100.atlas party.wav -o out",
        "earatlas separate ku100.atlas *.wav -n 2 -o out --jobs 4 --json",
        "earatlas separate ku100.atlas recordings -o out --jobs 4 --resume",
        "earatlas separate ku100.atlas party.wav -o out --at 40:0 --at -60:20",
        "earatlas separate ku100.atlas scene/mixture.wav -o out --truth scene --report",
    ),
)
def separate_command(
    arguments: AtlasAndRecordingsArgument,
    output: OutputOption,
    n_sources: Annotated[
        int | None,
        typer.Option(
            "--sources", "-n", metavar="N", help="Number of sources. Default: estimate it."
        ),
    ] = None,
    render: Annotated[
        Render,
        typer.Option(
            help="How to make the sounds: spatial filters (best), soft masks, or binary masks (as "
            "in the paper)."
        ),
    ] = Render.spatial,
    report: Annotated[
        bool, typer.Option("--report", help="Also write an HTML report with plots and players.")
    ] = False,
    picture: PictureOption = None,
    rttm: Annotated[
        bool, typer.Option("--rttm", help="Also write when each source is active (RTTM).")
    ] = False,
    dcase: Annotated[
        bool, typer.Option("--dcase", help="Also write directions every 100 ms (DCASE CSV).")
    ] = False,
    rate: Annotated[
        int | None,
        typer.Option(
            metavar="HZ", help="Sampling rate of the output. Default: that of the recording."
        ),
    ] = None,
    dry: Annotated[
        bool,
        typer.Option(
            "--dry",
            help="Reduce reverberation; the sources then no longer add up to the recording.",
        ),
    ] = False,
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="AZ:EL",
            help="Known direction of a static source in degrees; once per source. Directions and "
            "number of sources are then not estimated.",
        ),
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Compare with the ground truth in this folder, written by `earatlas simulate`.",
        ),
    ] = None,
    adapt: AdaptOption = False,
    jobs: JobsOption = 1,
    resume: ResumeOption = False,
    scheduler: SchedulerOption = None,
    channels: ChannelsOption = (0, 1),
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Separate each recording into its sources, and localize them.

    Writes one sound file per source, with both ears, and prints the direction of each source.
    """
    options = SeparationOptions(
        n_sources, render.value, rate=rate, dry=dry, directions=_parse_directions(at)
    )
    batch = BatchOptions(jobs, resume, scheduler, force, as_json)
    atlas, names = split_atlas(arguments)
    files = batch.files(
        unique_files(expand_file_arguments(names, RECORDING_SUFFIXES, "recordings").files)
    )
    files = _exclude_results(files, output)
    chosen = ChosenAtlas.load(atlas)
    folder = batch.folder(output)
    job = _SeparateJob(
        folder, chosen.atlas, options, channels, report, truth, rttm, dcase,
        picture, atlas_fields=chosen.fields,
    )  # fmt: skip
    _check(job, files, force=force)
    chosen.note_default(files)
    if adapt:
        chosen = chosen.adapted(files, channels, folder, force=force)
        job = replace(job, atlas=chosen.atlas, atlas_fields=chosen.fields)
    run_batch(job, files, batch, partial(_print, space=chosen.atlas.space))


def _parse_directions(arguments: Sequence[str] | None) -> list[list[float]] | None:
    """Return the directions of `--at AZ:EL`, or AZ alone for an atlas of azimuths."""
    try:
        directions = [[float(v) for v in text.split(":")] for text in arguments or ()]
    except ValueError:
        raise _direction_error("AZIMUTH:ELEVATION", ", ".join(arguments or ())) from None
    if len({len(direction) for direction in directions}) > 1:
        raise _direction_error("AZIMUTH:ELEVATION", ", ".join(arguments or ()))
    return directions or None


def _direction_error(form: str, got: str) -> InputError:
    example = "--at 40:0 --at -60:20" if ":" in form else "--at 40 --at -60"
    return InputError(f"at must be {form} in degrees, got '{got}'. For example: {example}.")


def _check_directions(options: SeparationOptions, space: Space) -> None:
    """Refuse directions with another number of angles than those of the atlas."""
    given = np.asarray([] if options.directions is None else options.directions)
    if len(given) and space.holds_directions and given.shape[1] != space.columns:
        got = ", ".join(":".join(f"{angle:g}" for angle in row) for row in given)
        raise _direction_error(("AZIMUTH", "AZIMUTH:ELEVATION")[space.columns - 1], got)
    options.given_directions(space)


def _check(job: _SeparateJob, recordings: Sequence[Path], *, force: bool) -> None:
    """Refuse options that do not fit together, before the work."""
    _check_directions(job.options, job.atlas.space)
    check_picture(job.picture, job.atlas.space, needed="--report" if not job.report else None)
    if job.truth is not None and len(recordings) > 1:
        raise InputError(
            f"--truth must be used with one recording, got {len(recordings)}. "
            "Run the command once for each."
        )
    check_unique_stems(recordings)
    check_no_overwrite(recordings, job.folder)
    outputs = OutputFiles(force=force)
    for recording in recordings:
        own = job.is_own_output(job.folder / source_file_name(recording, 0))
        for path in job.requested(recording).values():
            outputs.claim_in_folder(path, own)
    if job.truth is not None:
        check_truth(job.truth, recordings[0], job.channels)


def _exclude_results(recordings: tuple[Path, ...], folder: Path) -> tuple[Path, ...]:
    """Return the recordings that are not results of an earlier run; print how many are."""
    files = exclude_results(recordings, folder)
    if len(files) < len(recordings):
        print_note(
            "[cyan]skipped:[/]",
            f"{len(recordings) - len(files)} sounds that an earlier run separated from the others.",
        )
    return files


def _extra_path(folder: Path, recording: Path, suffix: str) -> Path:
    """Return the path of the report or a table of a recording."""
    return folder / f"{recording.stem}{suffix}"


def _print(answer: dict[str, Any], *, space: Space) -> None:
    """Print the result of a recording as text."""
    count = answer["n_sources"]
    print_line(
        f"{answer['file']}: {count} source{'' if count == 1 else 's'} in "
        f"{answer['recording_seconds']:.1f} s of sound at {format_sampling_rate(answer['rate'])}"
    )
    for line in _format_sources(answer["sources"], space):
        print_line(line)
    for number, source in enumerate(answer["sources"], 1):
        alternatives = [Alternative.from_dict(one) for one in source.get("alternatives", [])]
        lateral_angle = LateralAngle.from_dict(source.get("lateral_angle"))
        label = f"source {number}: "
        print_alternatives(space, alternatives, source["radius_90"], lateral_angle, label)
    print_doubts(answer["doubts"])
    for number, source in enumerate(answer["sources"], 1):
        print_doubts(source["doubts"], f"doubtful, source {number}")
    if "truth" in answer:
        for line in (
            *format_comparison(answer["truth"]),
            *format_perceptual_scores(answer["truth"]),
        ):
            print_line(line)
    print_line(f"  separated in {format_speed(answer['seconds'], answer['recording_seconds'])}")
    for name in _EXTRA_SUFFIXES:
        if answer.get(name) is not None:
            print_line(f"  {name}: {answer[name]}")


def _format_sources(sources: Sequence[dict[str, Any]], space: Space) -> list[str]:
    """Return a table of the sources as lines; file names are last, as they may be long."""
    flat, directions = space.dims == 1, space.holds_directions
    first, second = (*coordinate_names(space), "")[:2]
    rows = [(first, "" if flat else second, "", "90 % within", "share", "file")]
    columns = 1 if flat else 2

    def describe(place: Sequence[float], radius: float = 0.0) -> str:
        if directions:
            return format_direction(place[:columns], radius)
        return format_position(space, place) if radius == 0 else space.unit_name

    for source in sources:
        number = format_degrees if directions else format_one_decimal
        azimuth, elevation = (*map(number, source["direction"]), "")[:2]
        radius = source["radius_90"]
        words = describe(source["direction"], radius)
        track = [row for row in source["track"] if row["direction"]] if source.get("moves") else []
        if track:  # show both ends, and the median radius along the track
            azimuth, elevation = "moves", ""
            ends = (describe(row["direction"]) for row in (track[0], track[-1]))
            words, radius = " to ".join(ends), float(np.median([r["radius_90"] for r in track]))
        elif is_unknown(radius, space):
            azimuth, elevation = "-", "-"
        uncertainty = f"{radius:.1f}{'°' if directions else ''}"
        if source.get("given"):
            uncertainty = "given"
        elif is_unknown(radius, space):
            uncertainty = "-"
        rows.append(
            (
                azimuth,
                "" if flat else elevation,
                words,
                uncertainty,
                f"{100 * source['share']:.0f} %",
                source["file"],
            )
        )
    height_width, words_width = 0 if flat else 11, max(len(row[2]) for row in rows)
    return [
        f"  {azimuth:>7}{elevation:>{height_width}}  {words:{words_width}}{radius:>13}{share:>7}  "
        f"{file}"
        for azimuth, elevation, words, radius, share, file in rows
    ]
