"""The command line: every command reads files, says what it found, and never shows a traceback.

Answers go to standard output (with `--json` as JSON), progress and warnings to standard error. Bad
input gets one sentence and exit code 2; see `earatlas.errors`.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import earatlas
from earatlas.audio import Audio, audio_seconds, read_audio, read_blocks, read_mono
from earatlas.cues import CueLayout, Threshold, audio_cues, cue_blocks, peak_power
from earatlas.diagnosis import HeadReport, coverage_map, diagnose
from earatlas.errors import EaratlasWarning, InputError
from earatlas.heads import Head, open_head, simulated_head
from earatlas.rooms import Room
from earatlas.scenes import SimulatedScene, Staging, render_scene

__all__ = ["app", "main"]

out = Console()
err = Console(stderr=True)

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
    help="Learn how a head hears directions; localize and separate sounds with two microphones.",
    epilog="A head is a .sofa file, a .csv table of recordings, 'simulated' or 'kemar'.",
)


class Duplicates(StrEnum):
    """What to do with a direction that a file has more than once."""

    error = "error"
    first = "first"


HeadArgument = Annotated[
    str, typer.Argument(metavar="HEAD", help="A .sofa file, a .csv table, 'simulated' or 'kemar'.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
DuplicatesOption = Annotated[
    Duplicates, typer.Option(help="Directions given twice: refuse, or keep the first.")
]


def main() -> None:
    """Run the command line; the entry point of the package."""
    warnings.showwarning = _show_warning
    warnings.simplefilter("always", EaratlasWarning)
    try:
        app()
    except InputError as error:
        err.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader, such as head(1), has had enough
        sys.stderr.close()
        sys.exit(0)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, EaratlasWarning):
        err.print(f"[yellow]warning:[/] {escape(str(message))}", soft_wrap=True, highlight=False)


@contextmanager
def _progress(label: str) -> Iterator[Any]:
    """A progress bar on standard error, gone when done; yields `update(done, total)`."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    quiet = not err.is_terminal  # a log file needs no bars
    with Progress(*columns, console=err, transient=True, disable=quiet) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _open(head: str, duplicates: Duplicates = Duplicates.error) -> Head:
    with _progress(f"reading {head}") as update:
        return open_head(head, duplicates=duplicates.value, progress=update)


def _print_json(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        out.print(f"earatlas {earatlas.__version__}", highlight=False)
        raise typer.Exit


@app.command(epilog="Examples: earatlas info ku100.sofa --plot ku100.png; earatlas info simulated")
def info(
    head: HeadArgument,
    plot: Annotated[Path | None, typer.Option(help="Write a picture (.png, .svg, .pdf).")] = None,
    duplicates: DuplicatesOption = Duplicates.error,
    as_json: JsonOption = False,
) -> None:
    """Say what a head has: directions, coverage, symmetry, and what cannot be learned from it."""
    opened = _open(head, duplicates)
    with _progress("measuring"):
        report = diagnose(opened)
    if plot is not None:
        from earatlas.plots import plot_head, save

        with _progress("drawing"):
            save(plot_head(opened), plot)
    if as_json:
        _print_json({**report.to_dict(), "plot": None if plot is None else str(plot)})
        return
    _print_report(opened, report)
    if plot is not None:
        out.print(f"picture: {plot}", highlight=False)


def _print_report(head: Head, report: HeadReport) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column()
    low, high = report.elevation_range
    left, right = report.azimuth_range[1], report.azimuth_range[0]
    rows = {
        "head": report.name,
        "what": report.provenance or "-",
        "licence": report.licence,
        "directions": f"{report.directions}, {report.spacing_degrees:.1f}° apart (median), "
        f"on the {report.space}",
        "coverage": f"azimuth {left:.0f}° … {right:.0f}°, elevation {low:.0f}° … {high:.0f}°, "
        f"largest gap {report.largest_gap_degrees:.0f}°",
        "responses": "mean cues of noise recordings"
        if report.rate is None
        else f"{report.taps} samples at {report.rate:g} Hz",
        "ears": f"{_figure(report.mirror_ild_db)} from mirror images of each other",
        "median plane": f"{_figure(report.median_plane_ild_db)} of level difference (RMS)",
    }
    for key, value in rows.items():
        table.add_row(key, escape(value))
    out.print(table, highlight=False)
    out.print()
    out.print(_coverage_text(head), highlight=False)
    for note in report.warnings:
        out.print(f"[yellow]warning:[/] {escape(note)}", highlight=False)


def _figure(decibels: float) -> str:
    return "not measured" if np.isnan(decibels) else f"{decibels:.1f} dB"


def _coverage_text(head: Head) -> str:
    """The map of `coverage_map` in characters: darker means denser."""
    density = coverage_map(head)
    shades = " ░▒▓█"
    level = np.ceil(np.minimum(density, 1.0) * (len(shades) - 1)).astype(int)
    names = {0: "up 90°", len(density) // 2: "0°", len(density) - 1: "-90°"}
    lines = [
        f"{names.get(row, ''):>7} ▕{''.join(shades[v] * 2 for v in cells)}▏"
        for row, cells in enumerate(level)
    ]
    scale = "".join(f"{name:^15}" for name in ("left", "ahead", "right"))
    return "\n".join([*lines, f"{'':9}back   {scale}    back"])


@app.command(epilog="Examples: earatlas cues party.wav; earatlas cues party.wav --plot cues.png")
def cues(
    recording: Annotated[Path, typer.Argument(help="A two-channel recording: left, right.")],
    plot: Annotated[Path | None, typer.Option(help="Write a picture of the first minute.")] = None,
    channels: Annotated[
        tuple[int, int], typer.Option(help="Which channels are left and right.")
    ] = (0, 1),
    relative_db: Annotated[
        float, typer.Option(help="A bin counts as heard above this, below the recording's peak.")
    ] = -45.0,
    as_json: JsonOption = False,
) -> None:
    """Say how much of a recording carries interaural cues, and draw them."""
    start = time.perf_counter()
    layout, threshold = CueLayout(), Threshold(relative_db=relative_db)
    length = audio_seconds(recording)
    frames = observed = 0
    ild_sum = 0.0
    with _progress("listening") as update:

        def blocks(passes_done: int) -> Iterator[Audio]:
            done = passes_done * length
            for block in read_blocks(recording, channels=channels, rate=layout.rate):
                yield block
                done += block.seconds
                update(done, 2 * length)

        peak = peak_power(blocks(0), layout)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EaratlasWarning)  # said in the first pass
            for part in cue_blocks(blocks(1), layout, peak=peak, threshold=threshold):
                ild_sum += float(part.values[: len(layout.ild_bins)][part.observed].sum())
                frames += part.frames
                observed += int(part.observed.sum())
    if plot is not None:
        _plot_first_minute(recording, channels, layout, threshold, plot)
    seconds = time.perf_counter() - start
    answer = {
        "file": str(recording),
        "recording_seconds": round(length, 3),
        "frames": frames,
        "observed_share": round(observed / (frames * layout.bins), 4),
        "mean_ild_db": round(ild_sum / max(observed, 1), 2),
        "peak_dbfs": round(10 * float(np.log10(peak)), 1),
        "seconds": round(seconds, 3),
        "real_time_factor": round(seconds / length, 5),
        "plot": None if plot is None else str(plot),
    }
    if as_json:
        _print_json(answer)
        return
    out.print(
        f"{escape(recording.name)}: {length:.1f} s, {frames} frames, "
        f"{100 * observed / (frames * layout.bins):.0f} % of the time-frequency bins heard, "
        f"mean level difference {answer['mean_ild_db']:+.1f} dB "
        f"({'right' if ild_sum > 0 else 'left'} louder)",
        highlight=False,
    )
    if plot is not None:
        out.print(f"picture: {plot}", highlight=False)


def _plot_first_minute(
    recording: Path, channels: tuple[int, int], layout: CueLayout, threshold: Threshold, plot: Path
) -> None:
    from earatlas.plots import plot_cues, save

    with _progress("drawing"):
        blocks = read_blocks(recording, channels=channels, rate=layout.rate, block_seconds=60.0)
        heard = audio_cues(next(blocks), layout, threshold=threshold)
        save(plot_cues(heard, title=recording.name), plot)


@app.command(
    epilog="Examples: earatlas simulate simulated -o scene; "
    "earatlas simulate ku100.sofa -o scene --sound a.wav:40:0 --sound b.wav:-30:20 --t60 0.3"
)
def simulate(
    head: HeadArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the scene.")],
    sound: Annotated[
        list[str] | None,
        typer.Option(help="FILE:AZIMUTH:ELEVATION, once a source. Without: spoken talkers."),
    ] = None,
    talkers: Annotated[int, typer.Option(help="How many spoken talkers, without --sound.")] = 2,
    snr_db: Annotated[float, typer.Option(help="Sources over noise.")] = 60.0,
    overlap: Annotated[
        float | None, typer.Option(help="Share of the time with two sources or more, 0 … 1.")
    ] = None,
    t60: Annotated[
        float | None, typer.Option(help="Put it in a room with this reverberation, in seconds.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a scene with known truth: mixture, each source's image, and scene.json."""
    opened = _open(head)
    rate = CueLayout().rate
    names, sounds, directions = _spoken(talkers, rate) if not sound else _sounds(sound, rate)
    staging = Staging(snr_db=snr_db, overlap=overlap)
    room = None if t60 is None else Room(t60_seconds=t60)
    with _progress("rendering"):
        scene = render_scene(
            opened, sounds, directions, rate=rate, staging=staging, room=room, names=names
        )
        files = scene.write(output)
    if as_json:
        _print_json({"folder": str(output), **scene.to_dict()})
        return
    _print_scene(scene)
    out.print(f"{len(files)} files in {output}", highlight=False)


def _spoken(talkers: int, rate: int) -> tuple[list[str], list[Any], list[tuple[float, float]]]:
    from earatlas.speech import DEMO_TALKERS, demo_talkers

    if not 1 <= talkers <= len(DEMO_TALKERS):
        raise InputError(
            f"talkers must be between 1 and {len(DEMO_TALKERS)}, got {talkers}. "
            "Use --sound for more."
        )
    with _progress("speaking"):
        spoken = demo_talkers(talkers, rate)
    places = [(40.0, 0.0), (-50.0, 20.0), (5.0, -20.0)]
    return [name for name, _ in spoken], [s for _, s in spoken], places[:talkers]


def _sounds(wishes: list[str], rate: int) -> tuple[list[str], list[Any], list[tuple[float, float]]]:
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


def _print_scene(scene: SimulatedScene) -> None:
    table = Table("source", "azimuth", "elevation", "starts", box=None, padding=(0, 2))
    for name, (azimuth, elevation), start in zip(
        scene.names, scene.directions, scene.starts_seconds, strict=True
    ):
        table.add_row(escape(name), f"{azimuth:.1f}°", f"{elevation:.1f}°", f"{start:.2f} s")
    out.print(table, highlight=False)


@app.command(epilog="Example: earatlas demo -o demo")
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the results.")] = Path(
        "demo"
    ),
    as_json: JsonOption = False,
) -> None:
    """Show what there is with no data of your own: the simulated head and what it hears."""
    from earatlas.plots import plot_cues, plot_head, save

    head = simulated_head()
    names, sounds, directions = _spoken(2, CueLayout().rate)
    with _progress("rendering and drawing"):
        scene = render_scene(head, sounds, directions, names=names, staging=Staging(overlap=0.6))
        scene.write(output)
        heard = audio_cues(read_audio(output / "mixture.wav"))
        pictures = [
            save(plot_head(head), output / "head.png"),
            save(plot_cues(heard, title="Two talkers, one head"), output / "cues.png"),
        ]
    if as_json:
        _print_json({**scene.to_dict(), "pictures": [str(p) for p in pictures]})
        return
    _print_report(head, diagnose(head))
    _print_scene(scene)
    out.print(
        f"{100 * heard.observed_share:.0f} % of the time-frequency bins are heard by both ears.",
        highlight=False,
    )
    for picture in pictures:
        out.print(f"picture: {picture}", highlight=False)
