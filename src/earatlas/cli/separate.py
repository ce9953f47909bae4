"""`earatlas separate`: every sound of a recording by itself, and where it is."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer

from earatlas.atlas import Atlas
from earatlas.cli.console import Tally, degrees, print_json, progress, say, say_doubts, warn
from earatlas.cli.menu import Command, examples, one_command
from earatlas.cli.options import (
    AtlasArgument,
    ChannelsOption,
    ForceOption,
    JsonOption,
    OutputOption,
    RecordingsArgument,
)
from earatlas.cli.outputs import Outputs, tell_replaced
from earatlas.cli.truth import (
    check_truth,
    comparison,
    comparison_lines,
    hearing_lines,
    read_truth,
    written_sounds,
)
from earatlas.errors import EaratlasWarning, InputError
from earatlas.files import output_folder
from earatlas.judging.truth import Truth
from earatlas.separation.recording import Separating, sound_file
from earatlas.separation.scene import FoundScene
from earatlas.separation.separator import MOST_SOURCES
from earatlas.types import Progress
from earatlas.words import direction_words, rate_words, speed_words

__all__ = ["Render", "app", "separate_command"]

app = one_command()


class Render(StrEnum):
    """How sound is made from masks."""

    spatial = "spatial"
    soft = "soft"
    binary = "binary"


@dataclass(frozen=True)
class _Order:
    """What is wished of every recording; small, for it goes to other processes."""

    atlas: Path
    folder: Path
    how: Separating
    channels: tuple[int, int]
    report: bool
    truth: Path | None


@dataclass(frozen=True)
class _Outcome:
    """What became of a recording: an answer, or why there is none."""

    file: Path
    answer: dict[str, Any] | None
    error: str | None
    warnings: tuple[str, ...]
    replaced: tuple[str, ...]  # files of an earlier run


@app.command(
    cls=Command,
    epilog=examples(
        "earatlas separate ku100.atlas party.wav -o out",
        "earatlas separate ku100.atlas *.wav -n 2 -o out --jobs 4 --json",
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
    truth: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Compare with what `earatlas simulate` wrote: its folder."
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(metavar="N", help="Recordings at the same time.")] = 1,
    channels: ChannelsOption = (0, 1),
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write each sound of each recording to a file of its own, and say where it is."""
    how = Separating(n_sources, render.value, rate=rate)
    order = _Order(atlas, output, how, channels, report, truth)
    _check(order, recordings, jobs, force=force)
    flat = _loaded(atlas).space.dims == 1
    tally = Tally(len(recordings), as_json=as_json)
    with output_folder(output):
        for outcome in _outcomes(order, recordings, min(jobs, len(recordings))):
            for text in outcome.warnings:
                warn(text)
            tell_replaced(list(outcome.replaced))
            if outcome.answer is None:
                tally.fail(outcome.file, outcome.error or "")
            elif as_json:
                print_json(outcome.answer)
            else:
                _print(outcome.answer, flat=flat)
    tally.close()


def _check(order: _Order, recordings: Sequence[Path], jobs: int, *, force: bool) -> None:
    """Refuse what cannot be done before the work."""
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}. Take the number of your cores.")
    if order.truth is not None and len(recordings) > 1:
        raise InputError(
            f"--truth must go with one recording, got {len(recordings)}. "
            "Run the command once for each."
        )
    _check_names(recordings, order.folder)
    if order.report:
        outputs = Outputs(force=force)
        for recording in recordings:
            beside = (order.folder / sound_file(recording, 0)).exists()
            outputs.claim_in_folder(_page(order.folder, recording), beside)
    _loaded(order.atlas)
    if order.truth is not None:
        check_truth(order.truth, recordings[0], order.channels)


def _check_names(recordings: Sequence[Path], folder: Path) -> None:
    """Refuse names whose files would overwrite each other, or a recording."""
    stems: dict[str, Path] = {}
    for recording in recordings:
        other = stems.setdefault(recording.stem.casefold(), recording)  # some disks have no case
        if other is not recording:
            raise InputError(
                f"recordings must differ in their names, got '{other}' and '{recording}', whose "
                "sounds would have the same names. Separate them into folders of their own."
            )
    written = {
        folder.resolve() / sound_file(recording, m)
        for recording in recordings
        for m in range(MOST_SOURCES)
    }
    for recording in recordings:
        if recording.parent.resolve() / recording.name in written:
            raise InputError(
                f"output must be a folder in which no recording is overwritten, got '{folder}', "
                f"which holds '{recording}'. Choose another folder."
            )


def _page(folder: Path, recording: Path) -> Path:
    return folder / f"{recording.stem}.html"


def _outcomes(order: _Order, recordings: Sequence[Path], jobs: int) -> Iterator[_Outcome]:
    """What becomes of each recording, as soon as it is known.

    Each has a progress bar of its own: nothing can be printed while one is shown.
    """
    total = len(recordings)
    if jobs == 1:
        for number, recording in enumerate(recordings):
            count = f" ({number + 1} of {total})" if total > 1 else ""
            with progress(f"separating {recording.name}{count}") as update:
                tell = partial(_tell, update, number, total)
                outcome = _separated(order, recording, tell)
            yield outcome
        return
    from joblib import Parallel, delayed

    pool = Parallel(n_jobs=jobs, return_as="generator_unordered")
    results = pool(delayed(_separated)(order, recording) for recording in recordings)
    try:
        for number in range(total):
            with progress(f"separating {total} recordings, {number} done") as update:
                update(number, total)
                outcome = next(results)
            yield outcome
    except BrokenProcessPool as error:
        raise InputError(
            f"jobs must be as many as memory allows, got {jobs}, and one of them was ended by the "
            "system. Take fewer."
        ) from error


def _tell(update: Progress, before: int, total: int, done: float, whole: float) -> None:
    """Progress among all recordings from that of this one."""
    update(before + done / whole, total)


@lru_cache(maxsize=1)
def _loaded(atlas: Path) -> Atlas:
    """The atlas, ready for mixtures; once a process."""
    loaded = Atlas.load(atlas)
    _ = loaded.separator  # made here, so that the first recording does not seem to take longer
    return loaded


def _separated(order: _Order, recording: Path, tell: Progress | None = None) -> _Outcome:
    """Separate one recording; bad input and warnings come back as words."""
    old = {str(file) for file in _files_of(order, recording) if file.exists()}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", EaratlasWarning)
        answer, problem = None, None
        try:
            answer = _answer(order, recording, tell)
        except InputError as error:
            problem = str(error)
    words = tuple(str(w.message) for w in caught if issubclass(w.category, EaratlasWarning))
    new = [] if answer is None else [s["file"] for s in answer["sources"]] + [answer["report"]]
    return _Outcome(recording, answer, problem, words, tuple(f for f in new if f in old))


def _files_of(order: _Order, recording: Path) -> list[Path]:
    """All that could be written for a recording."""
    sounds = [order.folder / sound_file(recording, m) for m in range(MOST_SOURCES)]
    return [*sounds, _page(order.folder, recording)]


def _answer(order: _Order, recording: Path, tell: Progress | None) -> dict[str, Any]:
    """Separate one recording, and say it as JSON values."""
    atlas = _loaded(order.atlas)
    start = time.perf_counter()
    scene, files = atlas.separate_file(
        recording,
        order.folder,
        n_sources=order.how.n_sources,
        rendering=order.how.rendering,
        rate=order.how.rate,
        channels=order.channels,
        progress=tell,
    )
    seconds = time.perf_counter() - start
    answer = {
        "file": str(recording),
        "n_sources": len(files),
        "sources": [
            {**source.to_dict(), "file": str(file)}
            for source, file in zip(scene.sources, files, strict=True)
        ],
        "doubts": [str(doubt) for doubt in scene.doubts],
        "free_energy": round(scene.free_energies[-1], 3),
        "rate": scene.rate,
        "recording_seconds": round(scene.seconds, 3),
        "seconds": round(seconds, 3),
        "real_time_factor": round(seconds / scene.seconds, 4),
        "report": None,
    }
    known = None
    if order.truth is not None:
        known = read_truth(order.truth, scene.seconds)
        sounds = written_sounds(recording, files, order.channels)
        answer["truth"] = comparison(scene, known, *sounds)
    if order.report:
        page = _page(order.folder, recording)
        _write_report(page, scene, [recording, *files], known, seconds)
        answer["report"] = str(page)
    _warn_of_leftovers(order, recording, len(files))
    return answer


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


def _warn_of_leftovers(order: _Order, recording: Path, count: int) -> None:
    """What an earlier run wrote and this one does not is not to be taken for ours."""
    *sounds, page = _files_of(order, recording)
    for file in filter(Path.exists, [*sounds[count:], *([] if order.report else [page])]):
        warnings.warn(
            f"'{file}' is left from an earlier run and not of this one. Delete it.",
            EaratlasWarning,
            stacklevel=2,
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
    for source in sources:
        azimuth, elevation = source["direction"]
        rows.append(
            (
                degrees(azimuth),
                "" if flat else degrees(elevation),
                direction_words(source["direction"][: 1 if flat else 2]),
                f"{source['radius_90']:.1f}°",
                f"{100 * source['share']:.0f} %",
                source["file"],
            )
        )
    tall, wide = 0 if flat else 11, max(len(row[2]) for row in rows)
    return [f"  {a:>7}{e:>{tall}}  {w:{wide}}{r:>13}{s:>7}  {f}" for a, e, w, r, s, f in rows]
