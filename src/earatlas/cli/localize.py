"""`earatlas localize`: where the one sound of each recording is, and over time."""

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
from earatlas.batch.file_arguments import RECORDINGS, check_stems, listed, once
from earatlas.batch.recordings import Localizing
from earatlas.cli.app import Command, examples, one_command
from earatlas.cli.batch_runner import BatchOptions, run_batch
from earatlas.cli.console import Tally, Warned, degrees, print_json, progress, say, say_doubts
from earatlas.cli.options import (
    AtlasArgument,
    ChannelsOption,
    ForceOption,
    JobsOption,
    JsonOption,
    RecordingsArgument,
    ResumeOption,
    SchedulerOption,
    YawOption,
    opened_yaw,
)
from earatlas.cli.outputs import Outputs, is_track
from earatlas.errors import InputError, harmless
from earatlas.features.audio_files import audio_seconds
from earatlas.features.layout import CueLayout
from earatlas.features.recording import FileRecording
from earatlas.files import written_whole
from earatlas.geometry.head_yaw import Yaw
from earatlas.geometry.spaces import Space
from earatlas.localization.result import Localization
from earatlas.localization.windowed import Tracking, Windows
from earatlas.wording import direction_words, radius_words

__all__ = ["app", "line", "localize_command"]

app = one_command()

_COLUMNS = ("time", "azimuth", "elevation", "credible_90_area", "observed_share", "radius_90")


@dataclass(frozen=True)
class _Wish:
    """What is wished beside the answer."""

    channels: tuple[int, int]
    plot: Path | None
    track: Path | None
    windows: Windows


@app.command(
    cls=Command,
    epilog=examples(
        "earatlas localize ku100.atlas talker.wav",
        "earatlas localize ku100.atlas *.wav --json",
        "earatlas localize ku100.atlas recordings -o places --jobs 4 --resume",
        "earatlas localize ku100.atlas walk.wav --track walk.csv",
        "earatlas localize ku100.atlas room.wav --yaw turning.csv",
    ),
)
def localize_command(
    atlas: AtlasArgument,
    recordings: RecordingsArgument,
    channels: ChannelsOption = (0, 1),
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a map of the posterior (.png, .svg, .pdf)."),
    ] = None,
    track: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write directions over time (.csv or .json)."),
    ] = None,
    window: Annotated[
        float, typer.Option(metavar="SECONDS", help="Of sound for an answer of the track.")
    ] = Windows.window_seconds,
    hop: Annotated[
        float, typer.Option(metavar="SECONDS", help="Between answers of the track; whole frames.")
    ] = Windows.hop_seconds,
    yaw: YawOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="Folder for a file a recording: NAME.json."
        ),
    ] = None,
    jobs: JobsOption = 1,
    resume: ResumeOption = False,
    scheduler: SchedulerOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say where the one sound of each recording comes from, and how sure that is."""
    learned = Atlas.load(atlas)
    turned = opened_yaw(yaw) or Yaw.still(0.0)
    wish = _Wish(channels, plot, track, Windows(window, hop, yaw=turned))
    batch = BatchOptions(jobs, resume, scheduler, force, as_json)
    recordings = list(batch.files(listed(recordings, RECORDINGS, "recordings").files))
    outputs = Outputs(force=force)
    _check(wish, learned, recordings, outputs)
    _check_folder(wish, batch, output)
    if output is not None:
        recordings = list(once(recordings))
        check_stems(recordings)
        work = Localizing(batch.folder(output), learned, channels, yaw=turned)
        run_batch(work, recordings, batch, partial(_show, learned.space))
        return
    tally, warned = Tally(len(recordings), as_json=as_json), Warned(len(recordings))
    for recording in recordings:
        try:
            with warned.catching(recording):
                found = _found(learned, recording, wish)
        except InputError as error:
            tally.fail(recording, str(error))
            continue
        _tell(recording, found, as_json=as_json)
        for line in _extras(recording, found, wish, learned.layout):
            if not as_json:
                say(line)
    outputs.tell()
    warned.close()
    tally.close()


def _check(wish: _Wish, atlas: Atlas, recordings: list[Path], outputs: Outputs) -> None:
    """Refuse what cannot be done before the work."""
    if (wish.plot or wish.track) and len(recordings) > 1:
        raise InputError(
            f"--plot and --track must go with one recording, got {len(recordings)}. "
            "Run the command once for each."
        )
    windows = wish.windows.window_seconds, wish.windows.hop_seconds
    if wish.track is None:
        if windows != (Windows.window_seconds, Windows.hop_seconds):
            raise InputError("--window and --hop must go with --track, got none. Name its file.")
    else:
        if wish.track.suffix.lower() not in {".csv", ".json"}:
            raise InputError(
                f"track must end in .csv or .json, got '{wish.track}'. Rename the output."
            )
        wish.windows.frames(atlas.layout)
        outputs.claim(wish.track, is_track, "track")
    if wish.plot is not None:
        outputs.claim_picture(wish.plot)


def _check_folder(wish: _Wish, batch: BatchOptions, output: Path | None) -> None:
    """Refuse options that go with a folder, or without one."""
    if output is not None and (wish.plot or wish.track):
        raise InputError(
            f"--plot and --track must go without --output, got '{output}'. Leave it out."
        )
    beside = {"--jobs": batch.jobs > 1, "--resume": batch.resume, "--scheduler": batch.scheduler}
    for name, wished in beside.items():
        if output is None and wished:
            raise InputError(
                f"{name} must go with --output, got none. Name a folder for the answers."
            )


@dataclass(frozen=True, eq=False)
class _Found:
    """What was found out of a recording."""

    where: Localization
    rows: list[dict[str, Any]]  # of the track; none where none is wished
    seconds: float  # that it took


def _found(atlas: Atlas, recording: Path, wish: _Wish) -> _Found:
    """Where the sound of a recording is; with a track, in the same two passes over it."""
    start = time.perf_counter()
    if wish.track is None:
        yaw = wish.windows.yaw
        where = atlas.localize_file(recording, channels=wish.channels, yaw=yaw)
        return _Found(where, [], time.perf_counter() - start)
    with progress("tracking") as update:
        file = FileRecording(recording, wish.channels)
        tracking = Tracking(atlas, file, wish.windows, progress=update)
        # Rows, not a Track: the posteriors of an hour's windows are gigabytes.
        rows = [window.to_row(middle) for middle, window in tracking]
    return _Found(tracking.whole(), rows, time.perf_counter() - start)


def _tell(recording: Path, found: _Found, *, as_json: bool) -> None:
    """Say where the sound of a recording is."""
    if as_json:
        answer = {"file": str(recording), **found.where.to_dict()}
        answer["seconds"] = round(found.seconds, 4)
        answer["recording_seconds"] = round(audio_seconds(recording), 3)
        print_json(answer)
    else:
        say(line(str(recording), found.where))
        say_doubts(found.where.doubts)


def line(name: str, where: Localization) -> str:
    """A readable answer: direction in numbers and words, and its 90 % region."""
    space = where.posterior.space
    return _words(name, where.direction, where.radius_90, where.observed_share, space)


def _show(space: Space, answer: dict[str, Any]) -> None:
    """The same of an answer in JSON."""
    direction, radius, share = (answer[n] for n in ("direction", "radius_90", "observed_share"))
    say(_words(answer["file"], direction, radius, share, space))
    say_doubts(answer["doubts"])


def _words(name: str, direction: ArrayLike, radius: float, share: float, space: Space) -> str:
    azimuth, elevation = np.asarray(direction)
    height = "" if space.dims == 1 else f", elevation {degrees(elevation)}"
    return (
        f"{name}: azimuth {degrees(azimuth)}{height} "
        f"({direction_words(np.asarray(direction)[: space.dims])}), "
        f"within {radius_words(space, radius)} at 90 %, "
        f"{100 * share:.0f} % of the bins heard"
    )


def _extras(recording: Path, found: _Found, wish: _Wish, layout: CueLayout) -> list[str]:
    """Write the track and the picture that are wished for, and say what each is, and its file.

    Both appear when both are complete, or neither does.
    """
    written = []
    with ExitStack() as together:
        if wish.track is not None:
            _write_track(found.rows, together.enter_context(written_whole(wish.track, "track")))
            written.append(f"track: {wish.track} ({_rounded(wish.windows, layout)})")
        if wish.plot is not None:
            from earatlas.plotting.posteriors import plot_belief
            from earatlas.plotting.style import save

            with progress("drawing"):
                figure = plot_belief(found.where.posterior, title=harmless(recording.name))
                save(figure, together.enter_context(written_whole(wish.plot, "plot")))
            written.append(f"picture: {wish.plot}")
    return written


def _rounded(windows: Windows, layout: CueLayout) -> str:
    """What a track has, which may not be what was asked for: whole frames, and whole hops."""
    frames, hops = windows.frames(layout)
    hop = frames * layout.hop / layout.rate
    return f"a row each {hop:g} s, from windows of {hops * hop:g} s"


def _write_track(rows: list[dict[str, Any]], path: Path) -> None:
    with path.open("w", newline="") as handle:
        if path.suffix.lower() == ".json":
            json.dump(rows, handle)
            handle.write("\n")
            return
        writer = csv.DictWriter(handle, _COLUMNS, extrasaction="ignore")
        writer.writeheader()
        for row in rows:
            azimuth, elevation = row["direction"] or (None, None)
            writer.writerow({**row, "azimuth": azimuth, "elevation": elevation})
