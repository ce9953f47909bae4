"""`earatlas learn`: from a head to the atlas that localizes and separates."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from earatlas.atlas import Atlas, learn
from earatlas.cli.console import note, out, print_json, progress, say, warn
from earatlas.cli.menu import Command, examples, one_command
from earatlas.cli.options import (
    ChannelsOption,
    Duplicates,
    DuplicatesOption,
    ForceOption,
    HeadArgument,
    HeadOptions,
    JsonOption,
    Kind,
    KindOption,
    WrongWayOption,
    opened_head,
)
from earatlas.cli.outputs import Outputs, is_atlas
from earatlas.errors import InputError
from earatlas.heads.diagnosis import diagnose
from earatlas.heads.direct_sound import DIRECT_SECONDS
from earatlas.heads.head import Head
from earatlas.learning.learned import Accuracy
from earatlas.space.spaces import Circle, Cylinder, Plane, Space, Sphere

__all__ = ["accuracy_table", "app", "learn_command"]

app = one_command()


class SpaceName(StrEnum):
    """Where directions live."""

    plane = "plane"
    circle = "circle"
    cylinder = "cylinder"
    sphere = "sphere"


_SPACES: dict[str, Space] = {
    "plane": Plane(),
    "circle": Circle(),
    "cylinder": Cylinder(),
    "sphere": Sphere(),
}


@app.command(
    cls=Command,
    epilog=examples(
        "earatlas learn ku100.sofa -o ku100.atlas",
        "earatlas learn lab/positions.csv -o lab.atlas --direct",
        "earatlas learn calibration.csv -o robot.atlas --space cylinder --components 64",
    ),
)
def learn_command(
    head: HeadArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="File for the atlas.")
    ],
    space: Annotated[
        SpaceName | None,
        typer.Option(
            metavar="SPACE",
            help="plane, circle, cylinder or sphere. Default: sphere, or circle for one elevation.",
        ),
    ] = None,
    components: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            help="Number of charts. Default: one for ten directions, on the circle for five.",
        ),
    ] = None,
    direct: Annotated[
        bool,
        typer.Option(
            "--direct", help="Keep the direct sound of responses; so is done where they ring."
        ),
    ] = False,
    direct_ms: Annotated[
        float | None,
        typer.Option(
            metavar="MS",
            help=f"Of the direct sound, from its onset. Default: {1000 * DIRECT_SECONDS:g}.",
        ),
    ] = None,
    in_room: Annotated[
        bool,
        typer.Option("--in-room", help="Learn a room's responses with the room, for that room."),
    ] = False,
    rooms: Annotated[
        bool,
        typer.Option(
            "--rooms/--no-rooms", help="Make it ready for rooms that were never learned, too."
        ),
    ] = True,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Of the start and the held-out part.")
    ] = 0,
    kind: KindOption = Kind.auto,
    channels: ChannelsOption = (0, 1),
    duplicates: DuplicatesOption = Duplicates.error,
    wrong_way: WrongWayOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Learn a head: its charts, held-out errors, and how sure it may be."""
    outputs = Outputs(force=force)
    outputs.claim(output, is_atlas)
    how = HeadOptions(kind, channels, duplicates, wrong_way)
    direct_sound = _DirectSound(wished=direct, window_ms=direct_ms, in_room=in_room)
    direct_sound.check()
    whole = opened_head(head, how, diagnosed=True)
    window_ms = direct_sound.window_of(whole)
    opened = direct_sound.of(whole, window_ms)
    warnings = diagnose(opened).warnings
    for text in warnings:
        warn(text)
    start = time.perf_counter()
    with progress(f"learning {opened.name}") as update:
        atlas = learn(
            opened,
            space=None if space is None else _SPACES[space.value],
            components=components,
            rooms=rooms,
            seed=seed,
            progress=update,
        )
    atlas.save(output)
    seconds = time.perf_counter() - start
    outputs.tell()
    if as_json:
        print_json(
            {**_answer(atlas, output, seconds), "direct_ms": window_ms, "warnings": warnings}
        )
    else:
        _print(atlas, output, seconds)


@dataclass(frozen=True)
class _DirectSound:
    """Whether the direct sound of responses alone is learned."""

    wished: bool
    window_ms: float | None
    in_room: bool

    def check(self) -> None:
        """Refuse wishes that contradict each other."""
        if self.in_room and (self.wished or self.window_ms is not None):
            got = "--direct" if self.wished else "--direct-ms"
            raise InputError(
                f"--in-room must go without --direct and --direct-ms, got {got} too. Choose one: "
                "the head alone, for any room, or the head with its room."
            )

    def window_of(self, head: Head) -> float | None:
        """Milliseconds to keep of the head's responses, or None: all of them."""
        wished = self.wished or self.window_ms is not None
        if self.in_room or not (wished or head.rings()):
            return None
        return 1000 * DIRECT_SECONDS if self.window_ms is None else self.window_ms

    def of(self, head: Head, window_ms: float | None) -> Head:
        """What is learned of a head; a line says what nobody wished."""
        if window_ms is None:
            return head
        direct = head.direct(window_ms / 1000)
        if not (self.wished or self.window_ms is not None):
            note(
                "[cyan]note:[/]",
                f"'{head.name}' holds a room's responses: the first {window_ms:g} ms of each are "
                "kept, the head without the room. Pass --in-room to learn it with the room, or "
                "--direct-ms to keep more or less.",
            )
        return direct


def _answer(atlas: Atlas, path: Path, seconds: float) -> dict[str, Any]:
    return {
        "atlas": str(path),
        "head": atlas.about["head"],
        "space": atlas.space.name,
        "components": len(atlas.model.weights),
        "scales": [len(atlas.model.weights)],
        "directions": atlas.about["directions"],
        "held_out": None if atlas.accuracy is None else vars(atlas.accuracy),
        "rooms": atlas.rooms is not None,
        "seconds": round(seconds, 2),
    }


def _print(atlas: Atlas, path: Path, seconds: float) -> None:
    left_out = atlas.about["left_out"]
    say(
        f"{atlas.about['head']}: {atlas.about['directions']} directions on the {atlas.space.name}"
        f"{f' ({left_out} outside it left out)' if left_out else ''}, "
        f"{len(atlas.model.weights)} charts{_ready(atlas)}, in {seconds:.1f} s"
    )
    if atlas.accuracy is None:
        say(
            "Too few directions to hold some out: no errors were measured, and how sure the answers"
        )
        say("are is a cautious guess.")
    else:
        out.print(accuracy_table(atlas.accuracy), highlight=False)
    say(f"atlas: {path} ({path.stat().st_size / 1e6:.1f} MB)")


def _ready(atlas: Atlas) -> str:
    return "" if atlas.rooms is None else ", ready for rooms"


def accuracy_table(accuracy: Accuracy) -> Table:
    """Errors on held-out directions, for people."""
    table = Table("held-out directions", str(accuracy.held_out), box=None, padding=(0, 2))
    for name, value in (
        ("median error", f"{accuracy.median_degrees:.2f}°"),
        ("mean error", f"{accuracy.mean_degrees:.2f}°"),
        ("beyond 30°", f"{100 * accuracy.beyond_30_share:.2f} %"),
        ("mean azimuth error", f"{accuracy.mean_azimuth_degrees:.2f}°"),
        ("mean elevation error", f"{accuracy.mean_elevation_degrees:.2f}°"),
    ):
        table.add_row(name, value)
    return table
