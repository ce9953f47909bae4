"""`earatlas learn`: learn an atlas from a head."""

from __future__ import annotations

import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from earatlas.atlas import Atlas, learn
from earatlas.batch.file_arguments import (
    HEAD_SUFFIXES,
    check_unique_stems,
    expand_file_arguments,
    unique_files,
)
from earatlas.batch.job import BatchJob
from earatlas.cli.app import Command, command_app, examples
from earatlas.cli.batch_runner import BatchOptions, run_batch
from earatlas.cli.console import out, print_json, print_line, print_note, progress
from earatlas.cli.learn_population import accuracy_table, learn_population_command
from earatlas.cli.options import (
    ChannelsOption,
    Duplicates,
    DuplicatesOption,
    FieldOfViewOption,
    ForceOption,
    HeadOptions,
    HeadsArgument,
    ImageSizeOption,
    JobsOption,
    JsonOption,
    Kind,
    KindOption,
    ResumeOption,
    SchedulerOption,
    WrongWayOption,
    read_head,
)
from earatlas.cli.outputs import OutputFiles, check_atlas_name, is_atlas
from earatlas.cli.verdict_text import verdict_fields, verdict_lines
from earatlas.errors import EaratlasWarning, InputError
from earatlas.geometry.spaces import Circle, Cylinder, Plane, Space, Sphere
from earatlas.hrtf.diagnosis import diagnose
from earatlas.hrtf.head import Head
from earatlas.hrtf.loading import head_files
from earatlas.hrtf.truncation import TRUNCATION
from earatlas.localization.head_mismatch import Unit
from earatlas.types import Progress
from earatlas.wording import unit_field

__all__ = ["app", "learn_command"]

app = command_app()


class SpaceName(StrEnum):
    """Names of the spaces of directions."""

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
        "earatlas learn --population people/*.sofa -o people.atlas",
        "earatlas learn calibration.csv -o robot.atlas --space cylinder --components 64",
        "earatlas learn pixels.csv -o camera.atlas --image-size 640x480",
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
            help="Atlas file to write. For several heads: folder for one NAME.atlas per head.",
        ),
    ],
    space: Annotated[
        SpaceName | None,
        typer.Option(
            metavar="SPACE",
            help="Space of directions: plane, circle, cylinder or sphere. "
            "Default: sphere; circle if all directions have the same elevation.",
        ),
    ] = None,
    components: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            help="Number of charts (mixture components). "
            "Default: one per 10 directions; one per 5 on the circle.",
        ),
    ] = None,
    direct: Annotated[
        bool,
        typer.Option(
            "--direct",
            help="Truncate the responses to the direct sound. Applied automatically if the "
            "responses are reverberant.",
        ),
    ] = False,
    direct_ms: Annotated[
        float | None,
        typer.Option(
            metavar="MS",
            help="Duration of the direct sound after its onset, in milliseconds. "
            f"Default: {1000 * TRUNCATION.window_seconds:g}.",
        ),
    ] = None,
    in_room: Annotated[
        bool,
        typer.Option(
            "--in-room",
            help="Keep the reverberation of the responses; the atlas is then for that room only.",
        ),
    ] = False,
    rooms: Annotated[
        bool,
        typer.Option("--rooms/--no-rooms", help="Also train for reverberant rooms in general."),
    ] = True,
    unit: Annotated[
        Unit,
        typer.Option(
            metavar="UNIT",
            help="Head that makes the recordings: same (the measured one, perhaps set up again), "
            "other (perhaps another unit of it) or person (another person).",
        ),
    ] = Unit.OTHER,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Random seed of the initialization and of the held-out directions.",
        ),
    ] = 0,
    population: Annotated[
        bool,
        typer.Option(
            "--population",
            help="Learn one atlas from all heads: people, or several units or set-ups of one head.",
        ),
    ] = False,
    kind: KindOption = Kind.auto,
    channels: ChannelsOption = (0, 1),
    duplicates: DuplicatesOption = Duplicates.error,
    wrong_way: WrongWayOption = None,
    image_size: ImageSizeOption = None,
    field_of_view: FieldOfViewOption = None,
    jobs: JobsOption = 1,
    resume: ResumeOption = False,
    scheduler: SchedulerOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Learn an atlas from a head.

    The atlas is used by localize, listen and separate. Some directions are held out to measure
    the errors and to calibrate the credible regions.
    """
    direct_sound = _DirectSound(requested=direct, window_ms=direct_ms, in_room=in_room)
    direct_sound.check()
    batch = BatchOptions(jobs, resume, scheduler, force, as_json)
    heads = expand_file_arguments(head, HEAD_SUFFIXES, "heads")
    options = HeadOptions(kind, channels, duplicates, wrong_way, image_size, field_of_view)
    if population:
        _check_population(
            batch,
            space=space,
            components=components,
            direct=direct or None,
            direct_ms=direct_ms,
            in_room=in_room or None,
        )
        learn_population_command(
            heads.files, output, options, rooms=rooms, seed=seed, force=force, as_json=as_json
        )
        return
    job = _LearningJob(
        batch.folder(output if heads.is_batch or resume else output.parent),
        options,
        direct_sound,
        None if space is None else _SPACES[space.value],
        components,
        rooms,
        unit,
        seed,
    )
    if heads.is_batch or resume:
        _check_folder_name(output)
        _learn_many(job, heads.files, batch)
        return
    _check_single(batch)
    check_atlas_name(output)
    outputs = OutputFiles(force=force)
    outputs.claim(output, is_atlas)
    whole = read_head(head[0], job.head_options, diagnosed=True)
    learned = job.learned(whole, output, verbose=True)
    outputs.report()
    if as_json:
        print_json(learned.answer)
    else:
        _print(learned.atlas, output, learned.answer["seconds"])


@dataclass(frozen=True)
class _Learned:
    """A learned atlas, and its description as JSON values."""

    atlas: Atlas
    answer: dict[str, Any]


@dataclass(frozen=True)
class _LearningJob(BatchJob):
    """Learn an atlas from each head."""

    head_options: HeadOptions
    direct_sound: _DirectSound
    space: Space | None
    components: int | None
    rooms: bool
    unit: Unit
    seed: int

    command: ClassVar[str] = "learn"
    file_kind: ClassVar[str] = "heads"
    setting_keys: ClassVar[dict[str, str]] = {"head_options": "how"}

    def answer(self, file: Path, progress: Progress | None) -> dict[str, Any]:
        """Learn one of several heads; return its description as JSON values."""
        whole = read_head(str(file), self.head_options, diagnosed=True, verbose=False)
        return self.learned(whole, _atlas_path(self.folder, file), progress).answer

    def inputs(self, file: Path) -> list[Path]:
        """Return the file, or the table and its recordings."""
        return head_files(file)

    def space_for(self, head: Head) -> Space | None:
        """Return the space of an option; the plane of positions in an image is that of the head."""
        return head.plane if head.plane is not None and self.space == Plane() else self.space

    def outputs(self, answer: dict[str, Any]) -> list[Path]:
        """Return the atlas file."""
        return [Path(answer["atlas"])]

    def possible_outputs(self, file: Path) -> list[Path]:
        """Return the atlas file."""
        return [_atlas_path(self.folder, file)]

    def learned(
        self, whole: Head, path: Path, update: Progress | None = None, *, verbose: bool = False
    ) -> _Learned:
        """Learn a head and write its atlas; `verbose` adds a progress bar and a note."""
        window_ms = self.direct_sound.window_ms_for(whole)
        truncated = self.direct_sound.apply(whole, window_ms, verbose=verbose)
        messages = diagnose(truncated).warnings
        for text in messages:
            warnings.warn(text, EaratlasWarning, stacklevel=2)
        start = time.perf_counter()
        label = f"learning {truncated.name}, {len(truncated)} {truncated.label_name}"
        with progress(label, logged=True) if verbose else nullcontext(update) as progressed:
            atlas = learn(
                truncated,
                space=self.space_for(truncated),
                components=self.components,
                rooms=self.rooms,
                unit=self.unit.value,
                seed=self.seed,
                progress=progressed,
            )
        atlas.save(path)
        answer = _answer(atlas, path, time.perf_counter() - start)
        return _Learned(atlas, {**answer, "direct_ms": window_ms, "warnings": messages})


def _atlas_path(folder: Path, head: Path) -> Path:
    """Return the atlas file of a head in a folder."""
    return folder / f"{head.stem}.atlas"


def _check_population(batch: BatchOptions, **options: object) -> None:
    """Refuse options that apply to single heads only."""
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]
    given += ["--jobs"] if batch.jobs > 1 else []
    given += ["--resume"] if batch.resume else []
    given += ["--scheduler"] if batch.scheduler else []
    if given:
        raise InputError(
            f"{given[0]} must be used without --population, got both. Remove one of them."
        )


def _check_single(batch: BatchOptions) -> None:
    """Refuse options that need several heads."""
    for name, given in {"--jobs": batch.jobs > 1, "--scheduler": batch.scheduler}.items():
        if given:
            raise InputError(f"{name} must be used with several heads, got one. Remove the option.")


def _check_folder_name(output: Path) -> None:
    """Refuse an atlas name where the output must be a folder."""
    if output.suffix.lower() == ".atlas":
        raise InputError(
            f"output must be a folder for several heads and with --resume, got '{output}'. "
            "Name a folder; each atlas is named after its head."
        )


def _learn_many(job: _LearningJob, heads: tuple[Path, ...], batch: BatchOptions) -> None:
    """Learn one atlas per head, in a folder."""
    files = batch.files(unique_files(heads))
    check_unique_stems(files, "heads")
    outputs = OutputFiles(force=batch.force)
    for file in files:
        path = _atlas_path(job.folder, file)
        outputs.claim_in_folder(path, path.is_file() and is_atlas(path))
    run_batch(job, files, batch, _show)


def _show(answer: dict[str, Any]) -> None:
    """Print one line for one of several heads."""
    errors = answer["held_out"]
    median = {} if errors is None else {k: v for k, v in errors.items() if k.startswith("median_")}
    error = "".join(
        f", median error {value:.2f}" + ("°" if name == "median_degrees" else f" {name[7:]}")
        for name, value in median.items()
    )
    labels = "directions" if "median_degrees" in median or not median else "positions"
    print_line(
        f"{answer['head']}: {answer['directions']} {labels} on the {answer['space']}, "
        f"{answer['components']} charts{error}, in {answer['seconds']:.1f} s: {answer['atlas']}"
    )


@dataclass(frozen=True)
class _DirectSound:
    """Options for the truncation of responses to the direct sound."""

    requested: bool  # by --direct
    window_ms: float | None
    in_room: bool

    def check(self) -> None:
        """Refuse contradicting options."""
        if self.in_room and (self.requested or self.window_ms is not None):
            got = "--direct" if self.requested else "--direct-ms"
            raise InputError(
                f"--in-room must be used without --direct and --direct-ms, got {got}. Choose one: "
                "the head alone, for any room, or the head with its room."
            )

    def window_ms_for(self, head: Head) -> float | None:
        """Return the milliseconds of the responses to keep, or None to keep all."""
        requested = self.requested or self.window_ms is not None
        if self.in_room or not (requested or head.is_reverberant()):
            return None
        return 1000 * TRUNCATION.window_seconds if self.window_ms is None else self.window_ms

    def apply(self, head: Head, window_ms: float | None, *, verbose: bool = True) -> Head:
        """Return the head with truncated responses; print a note if this was automatic."""
        if window_ms is None:
            return head
        direct = head.direct(window_ms / 1000)
        if verbose and not (self.requested or self.window_ms is not None):
            print_note(
                "[cyan]note:[/]",
                f"the responses of '{head.name}' are reverberant: only the first {window_ms:g} ms "
                "of each are used, without the room. Pass --in-room to learn the head with its "
                "room, or --direct-ms to change the duration.",
            )
        return direct


def _answer(atlas: Atlas, path: Path, seconds: float) -> dict[str, Any]:
    """Return the description of an atlas as JSON values."""
    return {
        "atlas": str(path),
        "head": atlas.about["head"],
        "space": atlas.space.name,
        "components": len(atlas.model.weights),
        "directions": atlas.about["directions"],
        "held_out": None if atlas.accuracy is None else atlas.accuracy.in_units(atlas.space),
        **unit_field(atlas.space),
        "rooms": atlas.reverberant_localizer is not None,
        **verdict_fields(atlas),
        "seconds": round(seconds, 2),
    }


def _print(atlas: Atlas, path: Path, seconds: float) -> None:
    """Print the description of an atlas and its held-out errors."""
    left_out = atlas.about["left_out"]
    labels = "directions" if atlas.space.holds_directions else "positions"
    print_line(
        f"{atlas.about['head']}: {atlas.about['directions']} {labels} on the {atlas.space.name}"
        f"{f' ({left_out} others omitted)' if left_out else ''}, "
        f"{len(atlas.model.weights)} charts{_ready_for_rooms(atlas)}, in {seconds:.1f} s"
    )
    if atlas.accuracy is not None:
        out.print(accuracy_table(atlas.accuracy, atlas.space), highlight=False)
    for line in verdict_lines(atlas):
        print_line(line)
    print_line(f"atlas: {path} ({path.stat().st_size / 1e6:.1f} MB)")


def _ready_for_rooms(atlas: Atlas) -> str:
    """Return a remark if the atlas is trained for reverberant rooms."""
    return "" if atlas.reverberant_localizer is None else ", ready for reverberant rooms"
