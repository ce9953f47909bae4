"""`earatlas simulate`: render a scene with known ground truth."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table

from earatlas.batch.file_arguments import (
    HEAD_SUFFIXES,
    check_unique_stems,
    expand_file_arguments,
    unique_files,
)
from earatlas.batch.job import BatchJob
from earatlas.cli.app import Command, command_app, examples
from earatlas.cli.batch_runner import BatchOptions, run_batch
from earatlas.cli.console import format_degrees, out, print_json, print_line, print_note, progress
from earatlas.cli.options import (
    ChannelsOption,
    Duplicates,
    DuplicatesOption,
    ForceOption,
    HeadOptions,
    HeadsArgument,
    JobsOption,
    JsonOption,
    Kind,
    KindOption,
    OutputOption,
    ResumeOption,
    SchedulerOption,
    WrongWayOption,
    read_head,
)
from earatlas.cli.outputs import OutputFiles, claim_scene
from earatlas.errors import EaratlasWarning, InputError, existing_file, sanitize
from earatlas.features.audio import check_rate
from earatlas.features.audio_files import audio_channels, audio_rate, read_mono
from earatlas.features.layout import CueLayout
from earatlas.geometry.angles import great_circle_error
from earatlas.hrtf.head import Head
from earatlas.hrtf.loading import head_files
from earatlas.simulation.image_source import Room
from earatlas.simulation.scene import SceneSettings, SimulatedScene, render_scene
from earatlas.simulation.speech import (
    DEMO_TALKERS,
    demo_talkers,
    speech_available,
    synthetic_demo_talkers,
)
from earatlas.simulation.trajectories import Trajectory, parse_trajectory
from earatlas.types import Array, Progress

__all__ = ["app", "simulate", "talker_signals"]

app = command_app()

_TALKER_DIRECTIONS = ((40.0, 0.0), (-50.0, 20.0), (5.0, -20.0))  # degrees


@dataclass(frozen=True)
class _Sources:
    """Sounds of a scene and their directions."""

    names: tuple[str, ...]
    sounds: tuple[Array, ...]  # (n_m,) each
    directions: tuple[tuple[float, float] | Trajectory, ...]
    rate: int  # Hz


@dataclass(frozen=True)
class _RoomOptions:
    """Options of the room; all are None for an anechoic scene."""

    t60: float | None
    size: str | None
    listener: str | None
    distance: float | None

    def room(self) -> Room | None:
        """Return the room, or None for an anechoic scene."""
        if self.t60 is None and self.size is None:
            for name, value in (("--listener", self.listener), ("--distance", self.distance)):
                if value is not None:
                    raise InputError(
                        f"{name} must be used with a room, got {value} without one. "
                        "Add --t60 or --room."
                    )
            return None
        fields: dict[str, Any] = {} if self.t60 is None else {"t60_seconds": self.t60}
        if self.size is not None:
            fields["size_metres"] = _parse_metres("room", self.size)
        if self.listener is not None:
            fields["listener_metres"] = _parse_metres("listener", self.listener)
        return Room(**fields)


@app.command(
    cls=Command,
    epilog=examples(
        "earatlas simulate simulated -o scene",
        "earatlas simulate ku100.sofa -o scene --sound a.wav:40:0 --sound b.wav:-30:20",
        "earatlas simulate ku100.sofa -o walk --sound a.wav:0,60,0/6,-60,0 --sound b.wav:-30:20",
        "earatlas simulate ku100.sofa -o room --sound a.wav:40:0 --t60 0.3 --rate 48000",
        "earatlas simulate heads/*.sofa -o scenes --sound a.wav:40:0 --jobs 4 --resume",
    ),
)
def simulate(
    head: HeadsArgument,
    output: OutputOption,
    sound: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE:AZ:EL",
            help="Sound file with azimuth and elevation in degrees; once per source. It is placed "
            "at the nearest measured direction. Moving source: FILE:SECONDS,AZ,EL/SECONDS,AZ,EL/… "
            "Default: synthesized talkers.",
        ),
    ] = None,
    talkers: Annotated[
        int, typer.Option(metavar="N", help="Number of synthesized talkers, without --sound.")
    ] = 2,
    rate: Annotated[
        int | None,
        typer.Option(
            metavar="HZ",
            help="Sampling rate of the scene. Default: the highest of the sounds, or 16000 for "
            "talkers.",
        ),
    ] = None,
    interpolate: Annotated[
        bool,
        typer.Option(
            "--between",
            help="Interpolate the head to place sounds exactly, between measured directions.",
        ),
    ] = False,
    level: Annotated[
        list[float] | None,
        typer.Option(
            metavar="DB",
            help="Level of a source while it is active; once per source. Default: all equal.",
        ),
    ] = None,
    snr_db: Annotated[
        float, typer.Option(metavar="DB", help="Signal-to-noise ratio of the mixture.")
    ] = 60.0,
    overlap: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="Share of the time with two or more active sources, 0 to 1."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Random seed of the noise.")] = 0,
    t60: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Reverberation time; renders the scene in a room."),
    ] = None,
    room: Annotated[
        str | None, typer.Option(metavar="X,Y,Z", help="Size of the room, in metres.")
    ] = None,
    listener: Annotated[
        str | None,
        typer.Option(metavar="X,Y,Z", help="Position of the head in the room, in metres."),
    ] = None,
    distance: Annotated[
        float | None,
        typer.Option(metavar="METRES", help="Distance of the sources from the head in the room."),
    ] = None,
    kind: KindOption = Kind.auto,
    channels: ChannelsOption = (0, 1),
    duplicates: DuplicatesOption = Duplicates.error,
    wrong_way: WrongWayOption = None,
    jobs: JobsOption = 1,
    resume: ResumeOption = False,
    scheduler: SchedulerOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Render a scene with known ground truth.

    Writes the mixture, the image of each source at the ears, and scene.json with the directions.
    """
    place = _RoomOptions(t60, room, listener, distance).room()
    settings = SceneSettings(
        levels_db=tuple(level or ()),
        snr_db=snr_db,
        overlap=overlap,
        distance_metres=SceneSettings.distance_metres if distance is None else distance,
        seed=seed,
        interpolate=interpolate,
    )
    head_options = HeadOptions(kind, channels, duplicates, wrong_way)
    batch = BatchOptions(jobs, resume, scheduler, force, as_json)
    heads = expand_file_arguments(head, HEAD_SUFFIXES, "heads")
    if heads.is_batch or resume:
        sources = _sources(sound, talkers, rate)
        job = _SimulationJob(batch.folder(output), head_options, sources, settings, place)
        _simulate_many(job, heads.files, batch)
        return
    outputs = OutputFiles(force=force)
    claim_scene(outputs, output)
    measured = read_head(head[0], head_options)
    job = _SimulationJob(output, head_options, _sources(sound, talkers, rate), settings, place)
    with progress("rendering"):
        scene = job.scene(measured)
        files = scene.write(output)
    outputs.report()
    if as_json:
        print_json({"folder": str(output), **scene.to_dict()})
        return
    _print(scene, job.sources.directions)
    print_line(f"{len(files)} files in {output}")


@dataclass(frozen=True)
class _SimulationJob(BatchJob):
    """Render the scene around each head."""

    head_options: HeadOptions
    sources: _Sources
    settings: SceneSettings
    room: Room | None

    command: ClassVar[str] = "simulate"
    file_kind: ClassVar[str] = "heads"
    setting_keys: ClassVar[dict[str, str]] = {"head_options": "how"}

    def scene(self, head: Head) -> SimulatedScene:
        """Return the scene around a head."""
        return render_scene(
            head,
            self.sources.sounds,
            self.sources.directions,
            rate=self.sources.rate,
            settings=self.settings,
            room=self.room,
            names=self.sources.names,
        )

    def answer(self, file: Path, progress: Progress | None) -> dict[str, Any]:
        """Write the scene around one of several heads; return its description as JSON values."""
        scene = self.scene(read_head(str(file), self.head_options, verbose=False))
        folder = self.folder / file.stem
        files = scene.write(folder)
        return {"folder": str(folder), **scene.to_dict(), "files": [str(path) for path in files]}

    def inputs(self, file: Path) -> list[Path]:
        """Return the file, or the table and its recordings."""
        return head_files(file)

    def outputs(self, answer: dict[str, Any]) -> list[Path]:
        """Return the files of the scene."""
        return [Path(path) for path in answer["files"]]


def _simulate_many(job: _SimulationJob, heads: tuple[Path, ...], batch: BatchOptions) -> None:
    """Render one scene per head, each in its own folder."""
    files = batch.files(unique_files(heads))
    check_unique_stems(files, "heads")
    outputs = OutputFiles(force=batch.force)
    for file in files:
        claim_scene(outputs, job.folder / file.stem)
    run_batch(job, files, batch, _show)


def _show(answer: dict[str, Any]) -> None:
    """Print one line for one of several heads."""
    count = len(answer["sources"])
    print_line(f"{answer['folder']}: {count} source{'' if count == 1 else 's'}")


def _sources(sound: list[str] | None, talkers: int, rate: int | None) -> _Sources:
    """Return the given sounds, or synthesized talkers if there are none."""
    return (
        _read_sounds(sound, rate)
        if sound
        else _synthesized_talkers(talkers, rate or CueLayout().rate)
    )


def _parse_metres(name: str, text: str) -> tuple[float, float, float]:
    """Parse `X,Y,Z` in metres; `name` is the option in error messages."""
    try:
        x, y, z = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"{name} must be X,Y,Z in metres, got '{text}'. For example: 6,5,3."
        ) from None
    return x, y, z


def talker_signals(talkers: int, rate: int) -> tuple[tuple[str, ...], tuple[Array, ...]]:
    """Return names and sounds of the demo talkers, with synthetic speech if espeak is missing."""
    if not speech_available():
        print_note(
            "[yellow]note:[/]",
            "the talkers use synthetic speech without words, because speech synthesis is not "
            "installed. Install it with: pip install 'earatlas[speech]'.",
        )
    with progress("synthesizing speech"):
        synthesize = demo_talkers if speech_available() else synthetic_demo_talkers
        names, sounds = zip(*synthesize(talkers, rate), strict=True)
    return names, sounds


def _synthesized_talkers(count: int, rate: int) -> _Sources:
    """Return the first `count` talkers of the demo at their directions."""
    if not 1 <= count <= len(DEMO_TALKERS):
        raise InputError(
            f"talkers must be between 1 and {len(DEMO_TALKERS)}, got {count}. Use --sound for more."
        )
    return _Sources(*talker_signals(count, check_rate(rate)), _TALKER_DIRECTIONS[:count], rate)


def _read_sounds(arguments: list[str], rate: int | None) -> _Sources:
    """Read sound files given as `FILE:AZIMUTH:ELEVATION` or with a trajectory."""
    files, directions = zip(*map(_parse_sound, arguments), strict=True)
    for file in files:
        n_channels = audio_channels(existing_file(file, "sound"))
        if n_channels > 1:
            warnings.warn(
                f"The sound '{file}' has {n_channels} channels, which are averaged. Use a mono "
                "file of one source.",
                EaratlasWarning,
                stacklevel=2,
            )
    common = max(map(audio_rate, files)) if rate is None else check_rate(rate)
    names = tuple(sanitize(file.stem) for file in files)
    sounds = tuple(read_mono(file, rate=common) for file in files)
    return _Sources(names, sounds, directions, common)


def _parse_sound(argument: str) -> tuple[Path, tuple[float, float] | Trajectory]:
    """Return a file and its direction or trajectory; the file name may contain colons."""
    file, _, waypoints = argument.rpartition(":")
    if file and "," in waypoints:
        return Path(file), parse_trajectory(waypoints)
    try:
        file, azimuth, elevation = argument.rsplit(":", 2)
        return Path(file), (float(azimuth), float(elevation))
    except ValueError:
        raise InputError(
            f"sound must be FILE:AZIMUTH:ELEVATION, got '{argument}'. For example: talker.wav:40:0."
        ) from None


def _print(scene: SimulatedScene, requested: Sequence[tuple[float, float] | Trajectory]) -> None:
    """Print a table of the sources: direction, start, and the requested direction if different.

    `requested` is a direction or a trajectory for each source.
    """
    table = Table("source", "azimuth", "elevation", "starts", box=None, padding=(0, 2))
    differing = [
        ""
        if isinstance(target, Trajectory) or _near(target, direction)
        else ", ".join(map(format_degrees, target))
        for target, direction in zip(requested, scene.directions, strict=True)
    ]
    if any(differing):
        table.add_column("requested")
    for name, (azimuth, elevation), start, trajectory, target in zip(
        scene.names,
        scene.directions,
        scene.starts_seconds,
        scene.trajectories,
        differing,
        strict=True,
    ):
        direction = [format_degrees(azimuth), format_degrees(elevation)]
        if trajectory is not None:
            direction = ["moves", _format_ends(trajectory)]
        table.add_row(
            escape(name), *direction, f"{start:.2f} s", *([target] if any(differing) else [])
        )
    out.print(table, highlight=False)
    if any(differing):
        print_line(
            "Sources are at the nearest measured directions. Pass --between for the exact ones."
        )


def _near(target: tuple[float, float], direction: Array) -> bool:
    """Whether two directions agree to a tenth of a degree."""
    return float(great_circle_error(np.array(target), direction)) < 0.1


def _format_ends(trajectory: Trajectory) -> str:
    """Describe the two ends of a trajectory."""
    first, last = (", ".join(map(format_degrees, trajectory.directions[i])) for i in (0, -1))
    return f"{first} to {last}"
