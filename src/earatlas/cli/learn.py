"""`earatlas learn`: from a head to the atlas that localizes and separates."""

from __future__ import annotations

import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from rich.table import Table

from earatlas.atlas import Atlas, learn
from earatlas.batch.file_arguments import HEADS, check_stems, listed, once
from earatlas.batch.job import Work
from earatlas.cli.app import Command, examples, one_command
from earatlas.cli.batch_runner import BatchOptions, run_batch
from earatlas.cli.console import note, out, print_json, progress, say
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
    ResumeOption,
    SchedulerOption,
    WrongWayOption,
    opened_head,
)
from earatlas.cli.outputs import Outputs, is_atlas
from earatlas.errors import EaratlasWarning, InputError
from earatlas.geometry.spaces import Circle, Cylinder, Plane, Space, Sphere
from earatlas.hrtf.diagnosis import diagnose
from earatlas.hrtf.head import Head
from earatlas.hrtf.loading import files_of_head
from earatlas.hrtf.truncation import DIRECT_SECONDS
from earatlas.localization.learned_head import Accuracy
from earatlas.types import Progress

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
        "earatlas learn heads/*.sofa -o atlases --jobs 4 --resume",
        "earatlas learn calibration.csv -o robot.atlas --space cylinder --components 64",
    ),
)
def learn_command(
    head: HeadsArgument,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File for the atlas; of several heads, the folder for NAME.atlas of each.",
        ),
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
    jobs: JobsOption = 1,
    resume: ResumeOption = False,
    scheduler: SchedulerOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Learn a head: its charts, held-out errors, and how sure it may be."""
    direct_sound = _DirectSound(wished=direct, window_ms=direct_ms, in_room=in_room)
    direct_sound.check()
    batch = BatchOptions(jobs, resume, scheduler, force, as_json)
    heads = listed(head, HEADS, "heads")
    learning = _Learning(
        batch.folder(output if heads.several or resume else output.parent),
        HeadOptions(kind, channels, duplicates, wrong_way),
        direct_sound,
        None if space is None else _SPACES[space.value],
        components,
        rooms,
        seed,
    )
    if heads.several or resume:
        _check_folder_name(output)
        _learn_many(learning, heads.files, batch)
        return
    _check_alone(batch)
    _check_name(output)
    outputs = Outputs(force=force)
    outputs.claim(output, is_atlas)
    whole = opened_head(head[0], learning.how, diagnosed=True)
    learned = learning.learned(whole, output, shown=True)
    outputs.tell()
    if as_json:
        print_json(learned.answer)
    else:
        _print(learned.atlas, output, learned.answer["seconds"])


@dataclass(frozen=True)
class _Learned:
    """An atlas, and what is said of it."""

    atlas: Atlas
    answer: dict[str, Any]


@dataclass(frozen=True)
class _Learning(Work):
    """What is wished of every head; it goes to other processes."""

    how: HeadOptions
    direct_sound: _DirectSound
    space: Space | None
    components: int | None
    rooms: bool
    seed: int

    command: ClassVar[str] = "learn"
    what: ClassVar[str] = "heads"

    def answer(self, file: Path, tell: Progress | None) -> dict[str, Any]:
        """Learn one head of several, and say it as JSON values."""
        whole = opened_head(str(file), self.how, diagnosed=True, shown=False)
        return self.learned(whole, _atlas_path(self.folder, file), tell).answer

    def inputs(self, file: Path) -> list[Path]:
        """The file, or the table and its recordings."""
        return files_of_head(file)

    def outputs(self, answer: dict[str, Any]) -> list[Path]:
        """The atlas."""
        return [Path(answer["atlas"])]

    def may_write(self, file: Path) -> list[Path]:
        """The atlas."""
        return [_atlas_path(self.folder, file)]

    def learned(
        self, whole: Head, path: Path, tell: Progress | None = None, *, shown: bool = False
    ) -> _Learned:
        """Learn a head and write its atlas; `shown`: with a bar, and warnings before the work."""
        window_ms = self.direct_sound.window_of(whole)
        opened = self.direct_sound.of(whole, window_ms, shown=shown)
        found = diagnose(opened).warnings
        for text in found:
            warnings.warn(text, EaratlasWarning, stacklevel=2)
        start = time.perf_counter()
        label = f"learning {opened.name}, {len(opened)} directions"
        with progress(label, logged=True) if shown else nullcontext(tell) as update:
            atlas = learn(
                opened,
                space=self.space,
                components=self.components,
                rooms=self.rooms,
                seed=self.seed,
                progress=update,
            )
        atlas.save(path)
        answer = _answer(atlas, path, time.perf_counter() - start)
        return _Learned(atlas, {**answer, "direct_ms": window_ms, "warnings": found})


def _atlas_path(folder: Path, head: Path) -> Path:
    return folder / f"{head.stem}.atlas"


def _check_alone(batch: BatchOptions) -> None:
    """Refuse what one head has no use for."""
    for name, wished in {"--jobs": batch.jobs > 1, "--scheduler": batch.scheduler}.items():
        if wished:
            raise InputError(f"{name} must go with several heads, got one. Leave it out.")


def _check_folder_name(output: Path) -> None:
    """The atlases of several heads, or of one that may be done already, are in a folder."""
    if output.suffix.lower() == ".atlas":
        raise InputError(
            f"output must be a folder for several heads and with --resume, got '{output}'. "
            "Name a folder; each atlas has the name of its head."
        )


def _check_name(output: Path) -> None:
    """An atlas is not to be taken for a sound, a head or a table."""
    if output.suffix.lower() in {".csv", ".flac", ".json", ".sofa", ".wav"}:
        raise InputError(
            f"output must be named as an atlas, got '{output}'. "
            f"Name it {output.with_suffix('.atlas').name}."
        )


def _learn_many(learning: _Learning, heads: tuple[Path, ...], batch: BatchOptions) -> None:
    """An atlas a head, in a folder."""
    files = batch.files(once(heads))
    check_stems(files, "heads")
    outputs = Outputs(force=batch.force)
    for file in files:
        path = _atlas_path(learning.folder, file)
        outputs.claim_in_folder(path, path.is_file() and is_atlas(path))
    run_batch(learning, files, batch, _show)


def _show(answer: dict[str, Any]) -> None:
    """A line of one of several."""
    errors = answer["held_out"]
    far = "" if errors is None else f", off by {errors['median_degrees']:.2f}° (median)"
    say(
        f"{answer['head']}: {answer['directions']} directions on the {answer['space']}, "
        f"{answer['components']} charts{far}, in {answer['seconds']:.1f} s: {answer['atlas']}"
    )


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

    def of(self, head: Head, window_ms: float | None, *, shown: bool = True) -> Head:
        """What is learned of a head; a line says what nobody wished."""
        if window_ms is None:
            return head
        direct = head.direct(window_ms / 1000)
        if shown and not (self.wished or self.window_ms is not None):
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
        flat = isinstance(atlas.space, Circle)
        out.print(accuracy_table(atlas.accuracy, flat=flat), highlight=False)
    say(f"atlas: {path} ({path.stat().st_size / 1e6:.1f} MB)")


def _ready(atlas: Atlas) -> str:
    return "" if atlas.rooms is None else ", ready for rooms"


def accuracy_table(accuracy: Accuracy, *, flat: bool = False) -> Table:
    """Errors on held-out directions, for people; a `flat` head knows no elevations."""
    table = Table("held-out directions", str(accuracy.held_out), box=None, padding=(0, 2))
    for name, value in (
        ("median error", f"{accuracy.median_degrees:.2f}°"),
        ("mean error", f"{accuracy.mean_degrees:.2f}°"),
        ("beyond 30°", f"{100 * accuracy.beyond_30_share:.2f} %"),
        ("mean azimuth error", f"{accuracy.mean_azimuth_degrees:.2f}°"),
        ("mean elevation error", "" if flat else f"{accuracy.mean_elevation_degrees:.2f}°"),
    ):
        if value:
            table.add_row(name, value)
    return table
