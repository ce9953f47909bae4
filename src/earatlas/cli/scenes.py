"""`earatlas simulate` writes a scene with known truth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from earatlas.cli.console import (
    ChannelsOption,
    Duplicates,
    DuplicatesOption,
    HeadArgument,
    JsonOption,
    Kind,
    KindOption,
    OutputOption,
    opened_head,
    out,
    print_json,
    progress,
    say,
)
from earatlas.errors import InputError
from earatlas.hearing.files import read_mono
from earatlas.hearing.layout import CueLayout
from earatlas.scenes.rooms import Room
from earatlas.scenes.scene import SimulatedScene, Staging, render_scene

__all__ = ["commands", "print_scene", "spoken"]

commands = typer.Typer()

Sources = tuple[list[str], list[Any], list[tuple[float, float]]]  # names, sounds, directions


@commands.command(
    epilog="Examples: earatlas simulate simulated -o scene; "
    "earatlas simulate ku100.sofa -o scene --sound a.wav:40:0 --sound b.wav:-30:20 --t60 0.3"
)
def simulate(
    head: HeadArgument,
    output: OutputOption,
    sound: Annotated[
        list[str] | None,
        typer.Option(
            help="FILE:AZIMUTH:ELEVATION, once a source, placed at the nearest measured direction. "
            "Without: spoken talkers."
        ),
    ] = None,
    talkers: Annotated[int, typer.Option(help="How many spoken talkers, without --sound.")] = 2,
    level: Annotated[
        list[float] | None,
        typer.Option(help="dB while it sounds, once a source. Without: all equal."),
    ] = None,
    snr_db: Annotated[float, typer.Option(help="Sources over noise.")] = 60.0,
    overlap: Annotated[
        float | None, typer.Option(help="Share of the time with two sources or more, 0 … 1.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the noise.")] = 0,
    t60: Annotated[
        float | None, typer.Option(help="Put it in a room with this reverberation, in seconds.")
    ] = None,
    room: Annotated[
        str | None, typer.Option(metavar="X,Y,Z", help="Put it in a room of this size, in metres.")
    ] = None,
    listener: Annotated[
        str | None, typer.Option(metavar="X,Y,Z", help="Where the head is in the room, in metres.")
    ] = None,
    distance: Annotated[
        float | None, typer.Option(help="From the head to the sources in the room, in metres.")
    ] = None,
    kind: KindOption = Kind.auto,
    channels: ChannelsOption = (0, 1),
    duplicates: DuplicatesOption = Duplicates.error,
    as_json: JsonOption = False,
) -> None:
    """Write a scene with known truth: mixture, each source's image, and scene.json."""
    place = _room(t60, room, listener, distance)
    staging = Staging(
        levels_db=tuple(level or ()),
        snr_db=snr_db,
        overlap=overlap,
        distance_metres=Staging.distance_metres if distance is None else distance,
        seed=seed,
    )
    opened = opened_head(head, kind=kind, channels=channels, duplicates=duplicates)
    rate = CueLayout().rate
    names, sounds, directions = spoken(talkers, rate) if not sound else _sounds(sound, rate)
    with progress("rendering"):
        scene = render_scene(
            opened, sounds, directions, rate=rate, staging=staging, room=place, names=names
        )
        files = scene.write(output)
    if as_json:
        print_json({"folder": str(output), **scene.to_dict()})
        return
    print_scene(scene)
    say(f"{len(files)} files in {output}")


def _room(
    t60: float | None, size: str | None, listener: str | None, distance: float | None
) -> Room | None:
    """The room that the options ask for; None in the open."""
    if t60 is None and size is None:
        for name, wish in (("--listener", listener), ("--distance", distance)):
            if wish is not None:
                raise InputError(
                    f"{name} must go with a room, got {wish} in the open. Add --t60 or --room."
                )
        return None
    fields: dict[str, Any] = {} if t60 is None else {"t60_seconds": t60}
    if size is not None:
        fields["size_metres"] = _metres("room", size)
    if listener is not None:
        fields["listener_metres"] = _metres("listener", listener)
    return Room(**fields)


def _metres(name: str, text: str) -> tuple[float, float, float]:
    try:
        x, y, z = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{name} must be X,Y,Z in metres, got '{text}'. Such as 6,5,3.") from None
    return x, y, z


def spoken(talkers: int, rate: int) -> Sources:
    """The talkers of the demo, spoken by eSpeak, and where they stand."""
    from earatlas.scenes.speech import DEMO_TALKERS, demo_talkers

    if not 1 <= talkers <= len(DEMO_TALKERS):
        raise InputError(
            f"talkers must be between 1 and {len(DEMO_TALKERS)}, got {talkers}. "
            "Use --sound for more."
        )
    with progress("speaking"):
        voices = demo_talkers(talkers, rate)
    places = [(40.0, 0.0), (-50.0, 20.0), (5.0, -20.0)]
    return [name for name, _ in voices], [s for _, s in voices], places[:talkers]


def _sounds(wishes: list[str], rate: int) -> Sources:
    names, sounds, directions = [], [], []
    for wish in wishes:
        try:
            # From the right: a path may hold colons of its own.
            file, azimuth, elevation = wish.rsplit(":", 2)
            directions.append((float(azimuth), float(elevation)))
        except ValueError:
            raise InputError(
                f"sound must be FILE:AZIMUTH:ELEVATION, got '{wish}'. Such as talker.wav:40:0."
            ) from None
        names.append(Path(file).stem)
        sounds.append(read_mono(file, rate=rate))
    return names, sounds, directions


def print_scene(scene: SimulatedScene) -> None:
    """Who is where, and when each one starts."""
    table = Table("source", "azimuth", "elevation", "starts", box=None, padding=(0, 2))
    for name, (azimuth, elevation), start in zip(
        scene.names, scene.directions, scene.starts_seconds, strict=True
    ):
        table.add_row(escape(name), f"{azimuth:.1f}°", f"{elevation:.1f}°", f"{start:.2f} s")
    out.print(table, highlight=False)
