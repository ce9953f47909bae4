"""`earatlas separate`: every sound of a recording by itself, and where it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from earatlas.atlas import Atlas
from earatlas.batch.file_arguments import RECORDINGS, check_stems, listed, once
from earatlas.batch.recordings import SeparatingFiles, check_overwritten, without_results
from earatlas.cli.app import Command, examples, one_command
from earatlas.cli.batch_runner import BatchOptions, run_batch
from earatlas.cli.console import degrees, note, say, say_doubts
from earatlas.cli.ground_truth import (
    check_truth,
    comparison,
    comparison_lines,
    hearing_lines,
    read_truth,
    written_sounds,
)
from earatlas.cli.options import (
    AtlasArgument,
    ChannelsOption,
    ForceOption,
    JobsOption,
    JsonOption,
    OutputOption,
    RecordingsArgument,
    ResumeOption,
    SchedulerOption,
)
from earatlas.cli.outputs import Outputs
from earatlas.errors import InputError
from earatlas.evaluation.ground_truth import Truth
from earatlas.separation.options import Separating
from earatlas.separation.pipeline import sound_file
from earatlas.separation.result import FoundScene
from earatlas.types import Progress
from earatlas.wording import direction_words, rate_words, speed_words

__all__ = ["Render", "app", "separate_command"]

app = one_command()


class Render(StrEnum):
    """How sound is made from masks."""

    spatial = "spatial"
    soft = "soft"
    binary = "binary"


@dataclass(frozen=True)
class _Order(SeparatingFiles):
    """What is wished of every recording; it goes to other processes."""

    report: bool = False
    truth: Path | None = None

    def may_write(self, file: Path) -> list[Path]:
        """Its sounds, and its page."""
        return [*super().may_write(file), _page(self.folder, file)]

    def answer(self, file: Path, tell: Progress | None) -> dict[str, Any]:
        """Separate one recording, and say it as JSON values."""
        answer, scene, files = self.separated(file, tell)
        known = None
        if self.truth is not None:
            known = read_truth(self.truth, scene.seconds)
            sounds = written_sounds(file, files, self.channels)
            answer["truth"] = comparison(scene, known, *sounds)
        if self.report:
            page = _page(self.folder, file)
            _write_report(page, scene, [file, *files], known, answer["seconds"])
            answer["report"] = str(page)
        return answer


@app.command(
    cls=Command,
    epilog=examples(
        "earatlas separate ku100.atlas party.wav -o out",
        "earatlas separate ku100.atlas *.wav -n 2 -o out --jobs 4 --json",
        "earatlas separate ku100.atlas recordings -o out --jobs 4 --resume",
        "earatlas separate ku100.atlas scene/mixture.wav -o out --truth scene --report",
    ),
)
def separate_command(
    atlas: AtlasArgument,
    recordings: RecordingsArgument,
    output: OutputOption,
    n_sources: Annotated[
        int | None,
        typer.Option("--sources", "-n", metavar="N", help="How many there are. Default: find out."),
    ] = None,
    render: Annotated[
        Render,
        typer.Option(
            help="How the sound is made: spatial (filters that use both ears, the best), soft "
            "(masks), binary (each bin to one source, as in the paper)."
        ),
    ] = Render.spatial,
    report: Annotated[
        bool, typer.Option("--report", help="Write a page to look at and listen to, too.")
    ] = False,
    rate: Annotated[
        int | None,
        typer.Option(metavar="HZ", help="Of the sounds. Default: the recording's own."),
    ] = None,
    dry: Annotated[
        bool,
        typer.Option(
            "--dry", help="With less of the room's reverberation; sounds then do not add up."
        ),
    ] = False,
    truth: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Compare with what `earatlas simulate` wrote: its folder."
        ),
    ] = None,
    jobs: JobsOption = 1,
    resume: ResumeOption = False,
    scheduler: SchedulerOption = None,
    channels: ChannelsOption = (0, 1),
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write each sound of each recording to a file of its own, and say where it is."""
    how = Separating(n_sources, render.value, rate=rate, dry=dry)
    batch = BatchOptions(jobs, resume, scheduler, force, as_json)
    files = batch.files(once(listed(recordings, RECORDINGS, "recordings").files))
    files = _without_sounds(files, output)
    learned = Atlas.load(atlas)
    order = _Order(batch.folder(output), learned, how, channels, report, truth)
    _check(order, files, force=force)
    run_batch(order, files, batch, partial(_print, flat=learned.space.dims == 1))


def _check(order: _Order, recordings: Sequence[Path], *, force: bool) -> None:
    """Refuse what cannot be done before the work."""
    if order.truth is not None and len(recordings) > 1:
        raise InputError(
            f"--truth must go with one recording, got {len(recordings)}. "
            "Run the command once for each."
        )
    check_stems(recordings)
    check_overwritten(recordings, order.folder)
    if order.report:
        outputs = Outputs(force=force)
        for recording in recordings:
            beside = (order.folder / sound_file(recording, 0)).exists()
            outputs.claim_in_folder(_page(order.folder, recording), beside)
    if order.truth is not None:
        check_truth(order.truth, recordings[0], order.channels)


def _without_sounds(recordings: tuple[Path, ...], folder: Path) -> tuple[Path, ...]:
    """What is left where results lie among the recordings; a line says so."""
    files = without_results(recordings, folder)
    if len(files) < len(recordings):
        note(
            "[cyan]left out:[/]",
            f"{len(recordings) - len(files)} sounds that an earlier run made of the others.",
        )
    return files


def _page(folder: Path, recording: Path) -> Path:
    return folder / f"{recording.stem}.html"


def _write_report(
    page: Path, scene: FoundScene, files: list[Path], known: Truth | None, seconds: float
) -> None:
    """A page of the scene; the files are those of the mixture and of each source."""
    from earatlas.report import write_report

    names = ("mixture", *(source.name for source in scene.sources))
    write_report(
        page,
        scene,
        title=files[0].name,
        truth=known,
        files=dict(zip(names, files, strict=True)),
        elapsed_seconds=seconds,
    )


def _print(answer: dict[str, Any], *, flat: bool) -> None:
    count = answer["n_sources"]
    say(
        f"{answer['file']}: {count} source{'' if count == 1 else 's'} in "
        f"{answer['recording_seconds']:.1f} s of sound at {rate_words(answer['rate'])}"
    )
    for line in _source_lines(answer["sources"], flat=flat):
        say(line)
    say_doubts(answer["doubts"])
    for number, source in enumerate(answer["sources"], 1):
        say_doubts(source["doubts"], f"doubtful, source {number}")
    if "truth" in answer:
        for line in (*comparison_lines(answer["truth"]), *hearing_lines(answer["truth"])):
            say(line)
    say(f"  separated in {speed_words(answer['seconds'], answer['recording_seconds'])}")
    if answer["report"] is not None:
        say(f"  report: {answer['report']}")


def _source_lines(sources: Sequence[dict[str, Any]], *, flat: bool) -> list[str]:
    """A table of what was found; file names come last, for they may be of any length."""
    rows = [("azimuth", "" if flat else "elevation", "", "90 % within", "share", "file")]
    columns = 1 if flat else 2
    for source in sources:
        azimuth, elevation = map(degrees, source["direction"])
        words, radius = direction_words(source["direction"][:columns]), source["radius_90"]
        way = [row for row in source["track"] if row["direction"]] if source.get("moves") else []
        if way:  # where it was half-way says little, and it is not as unsure as it went far
            azimuth, elevation = "moves", ""
            ends = (direction_words(row["direction"][:columns]) for row in (way[0], way[-1]))
            words, radius = " to ".join(ends), float(np.median([row["radius_90"] for row in way]))
        rows.append(
            (
                azimuth,
                "" if flat else elevation,
                words,
                f"{radius:.1f}°",
                f"{100 * source['share']:.0f} %",
                source["file"],
            )
        )
    tall, wide = 0 if flat else 11, max(len(row[2]) for row in rows)
    return [f"  {a:>7}{e:>{tall}}  {w:{wide}}{r:>13}{s:>7}  {f}" for a, e, w, r, s, f in rows]
