"""`earatlas localize`: the direction of the sound in each recording, and over time."""

from __future__ import annotations

import csv
import json
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import ArrayLike

from earatlas.atlas import Atlas
from earatlas.batch.file_arguments import check_unique_stems, expand_file_arguments, unique_files
from earatlas.batch.localization_job import LocalizationJob
from earatlas.cli.app import Command, command_app, examples
from earatlas.cli.atlas_argument import ChosenAtlas, split_atlas
from earatlas.cli.batch_runner import BatchOptions, run_batch
from earatlas.cli.console import (
    FailureTally,
    FileWarnings,
    format_degrees,
    print_alternatives,
    print_doubts,
    print_json,
    print_line,
    progress,
)
from earatlas.cli.options import (
    AdaptOption,
    AtlasAndRecordingsArgument,
    ChannelsOption,
    ForceOption,
    JobsOption,
    JsonOption,
    PictureOption,
    ResumeOption,
    SchedulerOption,
    YawOption,
    check_picture,
    read_yaw,
)
from earatlas.cli.outputs import OutputFiles, is_track
from earatlas.errors import InputError, sanitize
from earatlas.features.audio_files import audio_seconds
from earatlas.features.layout import CueLayout
from earatlas.features.recording import FileRecording
from earatlas.features.sound_file import RECORDING_SUFFIXES
from earatlas.files import atomic_write
from earatlas.geometry.alternatives import Alternative
from earatlas.geometry.head_yaw import Yaw
from earatlas.geometry.lateral_angle import LateralAngle
from earatlas.geometry.spaces import Space
from earatlas.localization.result import Localization
from earatlas.localization.windowed import WindowedLocalizer, WindowSettings
from earatlas.wording import (
    coordinate_names,
    format_direction,
    format_position,
    format_radius,
    is_unknown,
)

__all__ = ["app", "localize_command", "print_localization"]

app = command_app()

_TRACK_COLUMNS = ("credible_90_area", "observed_share", "radius_90")  # after time and position


@dataclass(frozen=True)
class _LocalizeOptions:
    """Options of the command for a single recording."""

    channels: tuple[int, int]
    plot: Path | None
    track: Path | None
    windows: WindowSettings
    picture: Path | None = None


@app.command(
    cls=Command,
    epilog=examples(
        "earatlas localize talker.wav",
        "earatlas localize ku100.atlas talker.wav",
        "earatlas localize ku100.atlas *.wav --json",
        "earatlas localize ku100.atlas recordings -o places --jobs 4 --resume",
        "earatlas localize day/*.wav --adapt -o places",
        "earatlas localize ku100.atlas walk.wav --track walk.csv",
        "earatlas localize ku100.atlas room.wav --yaw turning.csv",
    ),
)
def localize_command(
    arguments: AtlasAndRecordingsArgument,
    channels: ChannelsOption = (0, 1),
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Plot the posterior over directions (.png, .svg, .pdf)."),
    ] = None,
    picture: PictureOption = None,
    track: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write directions over time (.csv or .json)."),
    ] = None,
    window: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="With --track: duration of the sound used for one row."
        ),
    ] = WindowSettings.window_seconds,
    hop: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="With --track: interval between rows, rounded to whole frames."
        ),
    ] = WindowSettings.hop_seconds,
    yaw: YawOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Output folder for one NAME.json per recording.",
        ),
    ] = None,
    adapt: AdaptOption = False,
    jobs: JobsOption = 1,
    resume: ResumeOption = False,
    scheduler: SchedulerOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Estimate the direction of the sound in each recording.

    Assumes one source per recording; use separate for several. Prints the direction and the radius
    around it that contains the true direction with 90 % probability.
    """
    atlas, names = split_atlas(arguments)
    chosen = ChosenAtlas.load(atlas)
    head_yaw = read_yaw(yaw) or Yaw.constant(0.0)
    windows = WindowSettings(window, hop, yaw=head_yaw)
    options = _LocalizeOptions(channels, plot, track, windows, picture)
    check_picture(picture, chosen.atlas.space, needed="--plot" if plot is None else None)
    batch = BatchOptions(jobs, resume, scheduler, force, as_json)
    recordings = list(
        batch.files(expand_file_arguments(names, RECORDING_SUFFIXES, "recordings").files)
    )
    outputs = OutputFiles(force=force)
    _check(options, chosen.atlas, recordings, outputs)
    _check_folder(options, batch, output)
    chosen.note_default(recordings)
    if adapt:
        chosen = chosen.adapted(recordings, channels, output, force=force)
    learned = chosen.atlas
    if output is not None:
        recordings = list(unique_files(recordings))
        check_unique_stems(recordings)
        job = LocalizationJob(
            batch.folder(output), learned, channels, yaw=head_yaw, atlas_fields=chosen.fields
        )
        run_batch(job, recordings, batch, partial(_show, learned.space))
        return
    tally, file_warnings = (
        FailureTally(len(recordings), as_json=as_json),
        FileWarnings(len(recordings)),
    )
    for recording in recordings:
        try:
            with file_warnings.catching(recording):
                result = _localize_recording(learned, recording, options)
        except InputError as error:
            tally.fail(recording, str(error))
            continue
        _print_result(recording, result, chosen, as_json=as_json)
        for text in _write_extras(recording, result, options, learned.layout):
            if not as_json:
                print_line(text)
    outputs.report()
    file_warnings.close()
    tally.close()


def _check(
    options: _LocalizeOptions, atlas: Atlas, recordings: list[Path], outputs: OutputFiles
) -> None:
    """Refuse options that do not fit together, before the work."""
    if (options.plot or options.track) and len(recordings) > 1:
        raise InputError(
            f"--plot and --track must be used with one recording, got {len(recordings)}. "
            "Run the command once for each."
        )
    windows = options.windows.window_seconds, options.windows.hop_seconds
    if options.track is None:
        if windows != (WindowSettings.window_seconds, WindowSettings.hop_seconds):
            raise InputError(
                "--window and --hop must be used with --track, got no --track. Add it."
            )
    else:
        if options.track.suffix.lower() not in {".csv", ".json"}:
            raise InputError(f"track must end in .csv or .json, got '{options.track}'. Rename it.")
        options.windows.frames(atlas.layout)
        outputs.claim(options.track, is_track, "track")
    if options.plot is not None:
        outputs.claim_picture(options.plot)


def _check_folder(options: _LocalizeOptions, batch: BatchOptions, output: Path | None) -> None:
    """Refuse options that need an output folder, or that exclude one."""
    if output is not None and (options.plot or options.track):
        raise InputError(
            f"--plot and --track must be used without --output, got '{output}'. Remove it."
        )
    batch_options = {
        "--jobs": batch.jobs > 1,
        "--resume": batch.resume,
        "--scheduler": batch.scheduler,
    }
    for name, given in batch_options.items():
        if output is None and given:
            raise InputError(
                f"{name} must be used with --output, got no --output. Add --output FOLDER."
            )


@dataclass(frozen=True, eq=False)
class _Result:
    """Localization of a recording."""

    whole: Localization  # result for the whole recording
    rows: list[dict[str, Any]]  # rows of the track; empty without --track
    seconds: float  # processing time


def _localize_recording(atlas: Atlas, recording: Path, options: _LocalizeOptions) -> _Result:
    """Localize a recording as a whole and, with a track, over time in the same two passes."""
    start = time.perf_counter()
    if options.track is None:
        yaw = options.windows.yaw
        whole = atlas.localize_file(recording, channels=options.channels, yaw=yaw)
        return _Result(whole, [], time.perf_counter() - start)
    with progress("localizing") as update:
        file = FileRecording(recording, options.channels)
        windows = WindowedLocalizer(atlas, file, options.windows, progress=update)
        # Rows instead of a Track: the posteriors of an hour of windows take gigabytes.
        rows = [window.to_row(middle) for middle, window in windows]
    return _Result(windows.whole(), rows, time.perf_counter() - start)


def _print_result(recording: Path, result: _Result, chosen: ChosenAtlas, *, as_json: bool) -> None:
    """Print the localization of a recording."""
    if as_json:
        answer = {"file": str(recording), **chosen.fields, **result.whole.to_dict()}
        answer["seconds"] = round(result.seconds, 4)
        answer["recording_seconds"] = round(audio_seconds(recording), 3)
        print_json(answer)
    else:
        whole = result.whole
        print_localization(str(recording), whole)
        print_doubts(whole.doubts)


def print_localization(name: str, result: Localization) -> None:
    """Print direction and 90 % credible radius in one line, and alternatives in another one."""
    space, radius = result.posterior.space, result.radius_90
    print_line(_format_line(name, result.direction, radius, result.observed_share, space))
    print_alternatives(space, result.alternatives, radius, result.lateral_angle)


def _show(space: Space, answer: dict[str, Any]) -> None:
    """Print a localization given as JSON values."""
    direction, radius, share = (answer[n] for n in ("direction", "radius_90", "observed_share"))
    print_line(_format_line(answer["file"], direction, radius, share, space))
    alternatives = [Alternative.from_dict(one) for one in answer.get("alternatives", [])]
    lateral_angle = LateralAngle.from_dict(answer.get("lateral_angle"))
    print_alternatives(space, alternatives, radius, lateral_angle)
    print_doubts(answer["doubts"])


def _format_line(name: str, direction: ArrayLike, radius: float, share: float, space: Space) -> str:
    """Describe a direction, its 90 % credible radius and the fraction of observed bins."""
    if not space.holds_directions:
        where = f"{format_position(space, direction)}, 90 % within {format_radius(space, radius)}"
        return f"{name}: {where}, {100 * share:.0f} % of the bins observed"
    azimuth, elevation = np.asarray(direction)
    height = "" if space.dims == 1 else f", elevation {format_degrees(elevation)}"
    words = format_direction(np.asarray(direction)[: space.dims], radius)
    if is_unknown(radius):
        where = words
    else:
        where = (
            f"azimuth {format_degrees(azimuth)}{height} ({words}), "
            f"90 % within {format_radius(space, radius)}"
        )
    return f"{name}: {where}, {100 * share:.0f} % of the bins observed"


def _write_extras(
    recording: Path, result: _Result, options: _LocalizeOptions, layout: CueLayout
) -> list[str]:
    """Write the track and the plot of the options; return one line per file.

    Both files appear when both are complete, or neither does.
    """
    written = []
    with ExitStack() as stack:
        if options.track is not None:
            path = stack.enter_context(atomic_write(options.track, "track"))
            space = result.whole.posterior.space
            names = coordinate_names(space) if space.columns == 2 else ("azimuth", "elevation")
            _write_track(result.rows, names, path)
            written.append(f"track: {options.track} ({_format_windows(options.windows, layout)})")
        if options.plot is not None:
            from earatlas.plotting.pictures import plot_on_picture
            from earatlas.plotting.posteriors import plot_posterior
            from earatlas.plotting.style import save

            with progress("plotting"):
                posterior, title = result.whole.posterior, sanitize(recording.name)
                if options.picture is None:
                    figure = plot_posterior(posterior, title=title)
                else:
                    figure = plot_on_picture([posterior], options.picture, title=title)
                save(figure, stack.enter_context(atomic_write(options.plot, "plot")))
            written.append(f"picture: {options.plot}")
    return written


def _format_windows(windows: WindowSettings, layout: CueLayout) -> str:
    """Describe the windows of a track, which are rounded to whole frames and whole hops."""
    frames, hops = windows.frames(layout)
    hop = frames * layout.hop / layout.rate
    return f"one row every {hop:g} s, from windows of {hops * hop:g} s"


def _write_track(rows: list[dict[str, Any]], names: tuple[str, ...], path: Path) -> None:
    """Write the rows of a track as CSV or JSON."""
    with path.open("w", newline="") as handle:
        if path.suffix.lower() == ".json":
            json.dump(rows, handle)
            handle.write("\n")
            return
        writer = csv.DictWriter(handle, ("time", *names, *_TRACK_COLUMNS), extrasaction="ignore")
        writer.writeheader()
        for row in rows:
            place = row["direction"] or [None] * len(names)
            writer.writerow({**row, **dict(zip(names, place, strict=True))})
