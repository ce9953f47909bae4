"""`earatlas separate`: every sound of a recording by itself, and where it is."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer

from earatlas.atlas import Atlas
from earatlas.cli.atlas import AtlasArgument, _words
from earatlas.cli.console import (
    ChannelsOption,
    JsonOption,
    OutputOption,
    note,
    print_json,
    progress,
    say,
)
from earatlas.cli.truth import comparison, comparison_lines, read_truth, written_sounds
from earatlas.errors import EaratlasWarning, InputError
from earatlas.files import output_folder
from earatlas.hearing.files import audio_seconds
from earatlas.separation.recording import Separating, sound_file
from earatlas.separation.separator import MOST_SOURCES
from earatlas.separation.sound.rendering import check_rendering
from earatlas.space.belief import region_radius
from earatlas.types import Progress

__all__ = ["commands"]

commands = typer.Typer()


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


@commands.command(
    name="separate",
    epilog="Examples: earatlas separate ku100.atlas party.wav -o out; "
    "earatlas separate ku100.atlas *.wav -n 2 -o out --jobs 4 --json; "
    "earatlas separate ku100.atlas scene/mixture.wav -o out --truth scene --report",
)
def separate_command(
    atlas: AtlasArgument,
    recordings: Annotated[list[Path], typer.Argument(help="Two-channel recordings.")],
    output: OutputOption,
    n_sources: Annotated[
        int | None,
        typer.Option("--sources", "-n", help="How many there are. Default: find out."),
    ] = None,
    render: Annotated[
        str,
        typer.Option(
            help="How the sound is made: spatial (filters that use both ears, the best), soft "
            "(masks), binary (each bin to one source, as in the paper)."
        ),
    ] = Separating.rendering,
    report: Annotated[
        bool, typer.Option("--report", help="Write a page to look at and listen to, too.")
    ] = False,
    truth: Annotated[
        Path | None,
        typer.Option(help="Compare with what `earatlas simulate` wrote: its folder."),
    ] = None,
    jobs: Annotated[int, typer.Option(help="Recordings at the same time.")] = 1,
    channels: ChannelsOption = (0, 1),
    as_json: JsonOption = False,
) -> None:
    """Write each sound of each recording to a file of its own, and say where it is."""
    how = Separating(n_sources, check_rendering(render))
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}. Take the number of your cores.")
    if truth is not None and len(recordings) > 1:
        raise InputError(
            f"--truth must go with one recording, got {len(recordings)}. "
            "Run the command once for each."
        )
    _check_names(recordings, output)
    dims = _loaded(atlas).space.dims
    if truth is not None:
        read_truth(truth, audio_seconds(recordings[0]))
    order = _Order(atlas, output, how, channels, report, truth)
    failed = 0
    with output_folder(output):
        for outcome in _outcomes(order, recordings, min(jobs, len(recordings))):
            for text in outcome.warnings:
                note("[yellow]warning:[/]", text)
            if outcome.error is not None:
                if len(recordings) == 1:
                    raise InputError(outcome.error)
                failed += 1
                note("[bold red]error:[/]", outcome.error)
            if as_json:
                print_json(outcome.answer or {"file": str(outcome.file), "error": outcome.error})
                sys.stdout.flush()
            elif outcome.answer is not None:
                _print_answer(outcome.answer, dims)
    if failed:
        note("[bold red]error:[/]", f"{failed} of {len(recordings)} recordings failed.")
        raise typer.Exit(1)


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
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", EaratlasWarning)
        answer, problem = None, None
        try:
            answer = _answer(order, recording, tell)
        except InputError as error:
            named = str(recording) in str(error)
            problem = str(error) if named else f"{recording}: {error}"
    words = tuple(str(w.message) for w in caught if issubclass(w.category, EaratlasWarning))
    return _Outcome(recording, answer, problem, words)


def _answer(order: _Order, recording: Path, tell: Progress | None) -> dict[str, Any]:
    atlas = _loaded(order.atlas)
    start = time.perf_counter()
    scene, files = atlas.separate_file(
        recording,
        order.folder,
        n_sources=order.how.n_sources,
        rendering=order.how.rendering,
        channels=order.channels,
        progress=tell,
    )
    seconds = time.perf_counter() - start
    _warn_of_leftovers(order, recording, len(files))
    answer = {
        "file": str(recording),
        "n_sources": len(files),
        "sources": [
            {**source.to_dict(), "file": str(file)}
            for source, file in zip(scene.sources, files, strict=True)
        ],
        "free_energy": round(scene.free_energies[-1], 3),
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
        from earatlas.report import write_report

        names = ("mixture", *(source.name for source in scene.sources))
        page = write_report(
            _page(order.folder, recording),
            scene,
            title=recording.name,
            truth=known,
            files=dict(zip(names, (recording, *files), strict=True)),
            elapsed_seconds=seconds,
        )
        answer["report"] = str(page)
    return answer


def _warn_of_leftovers(order: _Order, recording: Path, count: int) -> None:
    """What an earlier run wrote and this one does not is not to be taken for ours."""
    old = [order.folder / sound_file(recording, m) for m in range(count, MOST_SOURCES)]
    if not order.report:
        old.append(_page(order.folder, recording))
    for file in filter(Path.exists, old):
        warnings.warn(
            f"'{file}' is left from an earlier run and not of this one. Delete it.",
            EaratlasWarning,
            stacklevel=2,
        )


def _print_answer(answer: dict[str, Any], dims: int) -> None:
    count = answer["n_sources"]
    say(
        f"{answer['file']}: {count} source{'' if count == 1 else 's'} in "
        f"{answer['recording_seconds']:.1f} s of sound"
    )
    for line in _source_lines(answer["sources"], dims):
        say(line)
    if "truth" in answer:
        for line in comparison_lines(answer["truth"]):
            say(line)
    factor = answer["real_time_factor"]
    say(f"  separated in {answer['seconds']:.1f} s, {factor:.2g} × real time")
    if answer["report"] is not None:
        say(f"  report: {answer['report']}")


def _source_lines(sources: Sequence[dict[str, Any]], dims: int) -> list[str]:
    """A table of what was found; file names come last, for they may be of any length."""
    rows = [("azimuth", "elevation", "", "90 %", "share", "file")]
    for source in sources:
        azimuth, elevation = source["direction"]
        area = source["credible_90_area"]
        radius = region_radius(area, dims)
        rows.append(
            (
                f"{azimuth:.1f}°",
                f"{elevation:.1f}°",
                _words(azimuth, elevation),
                f"±{radius:.1f}°",
                f"{100 * source['share']:.0f} %",
                source["file"],
            )
        )
    if dims == 1:
        rows = [(row[0], "", *row[2:]) for row in rows]
    tall = 10 if dims > 1 else 0
    return [f"  {a:>7}{e:>{tall}}  {w:17}{r:>7}{s:>7}  {f}" for a, e, w, r, s, f in rows]
