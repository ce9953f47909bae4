"""`earatlas info` says what a head has; `earatlas cues` what a recording lets one hear."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import numpy as np
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
    opened_head,
    out,
    print_json,
    progress,
    say,
)
from earatlas.heads.diagnosis import HeadReport, coverage_map, diagnose
from earatlas.heads.head import Head
from earatlas.hearing.cues import Cues, recording_cues
from earatlas.hearing.files import audio_seconds
from earatlas.hearing.layout import CueLayout, Threshold

__all__ = ["commands", "print_report"]

commands = typer.Typer()

_DRAWN_SECONDS = 60.0


@commands.command(
    epilog="Examples: earatlas info ku100.sofa --plot ku100.png; earatlas info simulated"
)
def info(
    head: HeadArgument,
    plot: Annotated[Path | None, typer.Option(help="Write a picture (.png, .svg, .pdf).")] = None,
    kind: KindOption = Kind.auto,
    channels: ChannelsOption = (0, 1),
    duplicates: DuplicatesOption = Duplicates.error,
    as_json: JsonOption = False,
) -> None:
    """Say what a head has: directions, coverage, symmetry, and what cannot be learned from it."""
    opened = opened_head(head, kind=kind, channels=channels, duplicates=duplicates)
    with progress("measuring"):
        report = diagnose(opened)
    if plot is not None:
        from earatlas.drawing.heads import plot_head
        from earatlas.drawing.style import save

        with progress("drawing"):
            save(plot_head(opened), plot)
    if as_json:
        print_json({**report.to_dict(), "plot": None if plot is None else str(plot)})
        return
    print_report(opened, report)
    if plot is not None:
        say(f"picture: {plot}")


def print_report(head: Head, report: HeadReport) -> None:
    """A head in a table, a map and warnings."""
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
    for warning in report.warnings:
        out.print(f"[yellow]warning:[/] {escape(warning)}", highlight=False)


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


@commands.command(
    epilog="Examples: earatlas cues party.wav; earatlas cues party.wav --plot cues.png"
)
def cues(
    recording: Annotated[Path, typer.Argument(help="A two-channel recording: left, right.")],
    plot: Annotated[Path | None, typer.Option(help="Write a picture of the first minute.")] = None,
    channels: ChannelsOption = (0, 1),
    relative_db: Annotated[
        float, typer.Option(help="A bin counts as heard above this, below the recording's peak.")
    ] = -45.0,
    as_json: JsonOption = False,
) -> None:
    """Say how much of a recording carries interaural cues, and draw them."""
    start = time.perf_counter()
    layout, threshold = CueLayout(), Threshold(relative_db=relative_db)
    length = audio_seconds(recording)
    frames = observed = levels = 0
    level_sum = 0.0
    drawn: list[Cues] = []
    with progress("listening") as update:
        for part in recording_cues(
            recording, layout, threshold=threshold, channels=channels, progress=update
        ):
            if plot is not None and frames * layout.hop < _DRAWN_SECONDS * layout.rate:
                drawn.append(part)
            frames += part.frames
            observed += int(part.observed.sum())
            levels += int(part.observed[layout.ild_frequencies].sum())
            level_sum += float(np.nansum(part.ild))
    if plot is not None:
        _draw(drawn, plot, recording.name)
    seconds = time.perf_counter() - start
    share = observed / (frames * layout.n_frequencies)
    mean_db = round(level_sum / levels, 2) if levels else None
    if as_json:
        print_json(
            {
                "file": str(recording),
                "recording_seconds": round(length, 3),
                "frames": frames,
                "observed_share": round(share, 4),
                "mean_ild_db": mean_db,
                "seconds": round(seconds, 3),
                "real_time_factor": round(seconds / length, 5),
                "plot": None if plot is None else str(plot),
            }
        )
        return
    answer = f"{recording.name}: {length:.1f} s, {frames} frames, "
    answer += f"{100 * share:.0f} % of the time-frequency bins heard"
    if mean_db is not None:
        louder = "right" if mean_db > 0 else "left" if mean_db < 0 else "neither"
        answer += f", mean level difference {mean_db:+.1f} dB ({louder} louder)"
    say(answer)
    if plot is not None:
        say(f"picture: {plot}")


def _draw(parts: list[Cues], plot: Path, title: str) -> None:
    from earatlas.drawing.cues import plot_cues
    from earatlas.drawing.style import save

    layout = parts[0].layout
    most = round(_DRAWN_SECONDS * layout.rate / layout.hop)
    values = np.concatenate([part.values for part in parts], axis=1)[:, :most]
    observed = np.concatenate([part.observed for part in parts], axis=1)[:, :most]
    with progress("drawing"):
        save(plot_cues(Cues(values, observed, layout), title=title), plot)
