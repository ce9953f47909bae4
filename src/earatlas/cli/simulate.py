"""`earatlas simulate` writes a scene with known truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table

from earatlas.batch.file_arguments import HEADS, check_stems, listed, once
from earatlas.batch.job import Work
from earatlas.cli.app import Command, examples, one_command
from earatlas.cli.batch_runner import BatchOptions, run_batch
from earatlas.cli.console import degrees, note, out, print_json, progress, say
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
    opened_head,
)
from earatlas.cli.outputs import Outputs, claim_scene
from earatlas.errors import InputError, harmless
from earatlas.features.audio import checked_rate
from earatlas.features.audio_files import audio_rate, read_mono
from earatlas.features.layout import CueLayout
from earatlas.geometry.angles import great_circle_error
from earatlas.hrtf.head import Head
from earatlas.hrtf.loading import files_of_head
from earatlas.simulation.image_source import Room
from earatlas.simulation.scene import SceneSettings, SimulatedScene, render_scene
from earatlas.simulation.speech import DEMO_TALKERS, can_speak, demo_talkers, synthetic_demo_talkers
from earatlas.simulation.trajectories import Trajectory, path_of
from earatlas.types import Array, Progress

__all__ = ["app", "simulate", "voices"]

app = one_command()

_PLACES = ((40.0, 0.0), (-50.0, 20.0), (5.0, -20.0))  # of the talkers


@dataclass(frozen=True)
class _Sources:
    """What sounds where."""

    names: tuple[str, ...]
    sounds: tuple[Array, ...]  # (n_m,) each
    directions: tuple[tuple[float, float] | Trajectory, ...]
    rate: int  # Hz


@dataclass(frozen=True)
class _RoomWish:
    """The options that ask for a room; all None: in the open."""

    t60: float | None
    size: str | None
    listener: str | None
    distance: float | None

    def room(self) -> Room | None:
        """The room that is asked for; None in the open."""
        if self.t60 is None and self.size is None:
            for name, wish in (("--listener", self.listener), ("--distance", self.distance)):
                if wish is not None:
                    raise InputError(
                        f"{name} must go with a room, got {wish} in the open. Add --t60 or --room."
                    )
            return None
        fields: dict[str, Any] = {} if self.t60 is None else {"t60_seconds": self.t60}
        if self.size is not None:
            fields["size_metres"] = _metres("room", self.size)
        if self.listener is not None:
            fields["listener_metres"] = _metres("listener", self.listener)
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
            help="A sound and its azimuth and elevation, once a source; it is placed at the "
            "nearest measured direction. One that moves: FILE:SECONDS,AZ,EL/SECONDS,AZ,EL/… "
            "Without: spoken talkers.",
        ),
    ] = None,
    talkers: Annotated[
        int, typer.Option(metavar="N", help="How many spoken talkers, without --sound.")
    ] = 2,
    rate: Annotated[
        int | None,
        typer.Option(
            metavar="HZ", help="Of the scene. Default: the highest of the sounds; talkers, 16000."
        ),
    ] = None,
    between: Annotated[
        bool,
        typer.Option(
            "--between", help="Place sounds exactly there, between the measured directions."
        ),
    ] = False,
    level: Annotated[
        list[float] | None,
        typer.Option(metavar="DB", help="While it sounds, once a source. Without: all equal."),
    ] = None,
    snr_db: Annotated[float, typer.Option(metavar="DB", help="Sources over noise.")] = 60.0,
    overlap: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Of the time with two sources or more, 0 … 1."),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the noise.")] = 0,
    t60: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Put it in a room with this reverberation."),
    ] = None,
    room: Annotated[
        str | None, typer.Option(metavar="X,Y,Z", help="Put it in a room of this size, in metres.")
    ] = None,
    listener: Annotated[
        str | None, typer.Option(metavar="X,Y,Z", help="Where the head is in the room, in metres.")
    ] = None,
    distance: Annotated[
        float | None,
        typer.Option(metavar="METRES", help="From the head to the sources in the room."),
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
    """Write a scene with known truth: mixture, each source's image, and scene.json."""
    place = _RoomWish(t60, room, listener, distance).room()
    settings = SceneSettings(
        levels_db=tuple(level or ()),
        snr_db=snr_db,
        overlap=overlap,
        distance_metres=SceneSettings.distance_metres if distance is None else distance,
        seed=seed,
        between=between,
    )
    how = HeadOptions(kind, channels, duplicates, wrong_way)
    batch = BatchOptions(jobs, resume, scheduler, force, as_json)
    heads = listed(head, HEADS, "heads")
    if heads.several or resume:
        sources = _sources(sound, talkers, rate)
        work = _Simulating(batch.folder(output), how, sources, settings, place)
        _simulate_many(work, heads.files, batch)
        return
    outputs = Outputs(force=force)
    claim_scene(outputs, output)
    opened = opened_head(head[0], how)
    work = _Simulating(output, how, _sources(sound, talkers, rate), settings, place)
    with progress("rendering"):
        scene = work.scene(opened)
        files = scene.write(output)
    outputs.tell()
    if as_json:
        print_json({"folder": str(output), **scene.to_dict()})
        return
    _print(scene, work.sources.directions)
    say(f"{len(files)} files in {output}")


@dataclass(frozen=True)
class _Simulating(Work):
    """What is wished of every head; it goes to other processes."""

    how: HeadOptions
    sources: _Sources
    settings: SceneSettings
    room: Room | None

    command: ClassVar[str] = "simulate"
    what: ClassVar[str] = "heads"

    def scene(self, head: Head) -> SimulatedScene:
        """The scene around a head."""
        return render_scene(
            head,
            self.sources.sounds,
            self.sources.directions,
            rate=self.sources.rate,
            settings=self.settings,
            room=self.room,
            names=self.sources.names,
        )

    def answer(self, file: Path, tell: Progress | None) -> dict[str, Any]:
        """Write the scene around one head of several, and say it as JSON values."""
        scene = self.scene(opened_head(str(file), self.how, shown=False))
        folder = self.folder / file.stem
        files = scene.write(folder)
        return {"folder": str(folder), **scene.to_dict(), "files": [str(path) for path in files]}

    def inputs(self, file: Path) -> list[Path]:
        """The file, or the table and its recordings."""
        return files_of_head(file)

    def outputs(self, answer: dict[str, Any]) -> list[Path]:
        """The files of the scene."""
        return [Path(path) for path in answer["files"]]


def _simulate_many(work: _Simulating, heads: tuple[Path, ...], batch: BatchOptions) -> None:
    """A scene a head, in folders of their own."""
    files = batch.files(once(heads))
    check_stems(files, "heads")
    outputs = Outputs(force=batch.force)
    for file in files:
        claim_scene(outputs, work.folder / file.stem)
    run_batch(work, files, batch, _show)


def _show(answer: dict[str, Any]) -> None:
    """A line of one of several."""
    count = len(answer["sources"])
    say(f"{answer['folder']}: {count} source{'' if count == 1 else 's'}")


def _sources(sound: list[str] | None, talkers: int, rate: int | None) -> _Sources:
    return _sounds(sound, rate) if sound else _talkers(talkers, rate or CueLayout().rate)


def _metres(name: str, text: str) -> tuple[float, float, float]:
    try:
        x, y, z = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{name} must be X,Y,Z in metres, got '{text}'. Such as 6,5,3.") from None
    return x, y, z


def voices(talkers: int, rate: int) -> tuple[tuple[str, ...], tuple[Array, ...]]:
    """Names and sounds of the talkers of the demo; they synthetic_speech where nothing can speak."""
    if not can_speak():
        note(
            "[yellow]note:[/]",
            "the talkers synthetic_speech: speech is not installed. Install it with: "
            "pip install 'earatlas[speech]'.",
        )
    with progress("speaking"):
        speaking = demo_talkers if can_speak() else synthetic_demo_talkers
        names, sounds = zip(*speaking(talkers, rate), strict=True)
    return names, sounds


def _talkers(count: int, rate: int) -> _Sources:
    if not 1 <= count <= len(DEMO_TALKERS):
        raise InputError(
            f"talkers must be between 1 and {len(DEMO_TALKERS)}, got {count}. Use --sound for more."
        )
    return _Sources(*voices(count, checked_rate(rate)), _PLACES[:count], rate)


def _sounds(wishes: list[str], rate: int | None) -> _Sources:
    files, directions = zip(*map(_sound, wishes), strict=True)
    common = max(map(audio_rate, files)) if rate is None else checked_rate(rate)
    names = tuple(harmless(file.stem) for file in files)
    sounds = tuple(read_mono(file, rate=common) for file in files)
    return _Sources(names, sounds, directions, common)


def _sound(wish: str) -> tuple[Path, tuple[float, float] | Trajectory]:
    """A file, and where its sound is. From the right: the name may hold colons of its own."""
    file, _, place = wish.rpartition(":")
    if file and "," in place:
        return Path(file), path_of(place)
    try:
        file, azimuth, elevation = wish.rsplit(":", 2)
        return Path(file), (float(azimuth), float(elevation))
    except ValueError:
        raise InputError(
            f"sound must be FILE:AZIMUTH:ELEVATION, got '{wish}'. Such as talker.wav:40:0."
        ) from None


def _print(scene: SimulatedScene, wishes: Sequence[tuple[float, float] | Trajectory]) -> None:
    """Who is where, and when each one starts; and what was asked for, where that was not measured.

    `wishes` is a place or a route for each source.
    """
    table = Table("source", "azimuth", "elevation", "starts", box=None, padding=(0, 2))
    asked = [
        "" if isinstance(wish, Trajectory) or _near(wish, place) else ", ".join(map(degrees, wish))
        for wish, place in zip(wishes, scene.directions, strict=True)
    ]
    if any(asked):
        table.add_column("asked for")
    for name, (azimuth, elevation), start, trajectory, wish in zip(
        scene.names, scene.directions, scene.starts_seconds, scene.trajectories, asked, strict=True
    ):
        place = [degrees(azimuth), degrees(elevation)]
        if trajectory is not None:
            place = ["moves", _way(trajectory)]
        table.add_row(escape(name), *place, f"{start:.2f} s", *([wish] if any(asked) else []))
    out.print(table, highlight=False)
    if any(asked):
        say("Sounds are at the nearest measured directions; --between puts them exactly there.")


def _near(wish: tuple[float, float], place: Array) -> bool:
    """Whether a place is the one that was asked for, to a tenth of a degree."""
    return float(great_circle_error(np.array(wish), place)) < 0.1


def _way(trajectory: Trajectory) -> str:
    """The two ends of a route."""
    first, last = (", ".join(map(degrees, trajectory.directions[i])) for i in (0, -1))
    return f"{first} to {last}"
