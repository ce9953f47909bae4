"""`earatlas fit`: which of several learned heads made a recording."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from earatlas.atlas import Atlas
from earatlas.batch.file_arguments import expand_file_arguments
from earatlas.cli.app import Command, command_app, examples
from earatlas.cli.console import print_json, print_line, progress
from earatlas.cli.options import JsonOption
from earatlas.errors import InputError
from earatlas.features.sound_file import RECORDING_SUFFIXES
from earatlas.geometry.spaces import Space
from earatlas.population.comparison import AtlasFit
from earatlas.population_atlas import compare_heads
from earatlas.wording import format_position, unit_field

__all__ = ["app", "fit_command"]

app = command_app()


@app.command(
    cls=Command,
    epilog=examples(
        "earatlas fit talker.wav ku100.atlas kemar.atlas people",
        "earatlas fit talker.wav atlases --json",
    ),
)
def fit_command(
    recording: Annotated[
        Path,
        typer.Argument(metavar="RECORDING", help="Two-channel recording of one source."),
    ],
    atlases: Annotated[
        list[Path],
        typer.Argument(
            metavar="ATLAS",
            help="Atlases: files, folders, patterns, @LIST, or the built-in ones 'people' and "
            "'simulated'.",
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Find which of several heads made a recording.

    Prints how well the recording of one source fits each atlas, the best one first, and whether
    any of them fits.
    """
    files = expand_file_arguments(atlases, (".atlas",), "atlases").files
    for file in files:
        if file.suffix.lower() in RECORDING_SUFFIXES:
            raise InputError(
                f"atlases must be files that `earatlas learn` wrote, got the sound '{file}'. The "
                "recording comes first, atlases after it."
            )
    with progress("comparing heads"):
        loaded = [Atlas.load(file) for file in files]
        fits = compare_heads(recording, loaded)
    spaces = [atlas.space for atlas in loaded]
    if as_json:
        answers = [
            {
                "atlas": str(files[one.index]),
                "head": one.name,
                "fit": round(one.fit, 3),
                "fits": one.fits,
                "direction": [round(angle, 2) for angle in one.direction],
                **unit_field(spaces[one.index]),
            }
            for one in fits
        ]
        print_json(
            {"file": str(recording), "any_fits": any(f.fits for f in fits), "atlases": answers}
        )
        return
    for line in _format_table(fits, files, spaces):
        print_line(line)
    print_line(_format_conclusion(fits, files))


def _format_table(
    fits: Sequence[AtlasFit], files: Sequence[Path], spaces: Sequence[Space]
) -> list[str]:
    """Return one line per atlas, the best fit first; a head that does not fit has no direction."""
    rows = [("atlas", "fit", "fits", "where")]
    for one in fits:
        where = format_position(spaces[one.index], one.direction) if one.fits else "-"
        rows.append((str(files[one.index]), f"{one.fit:.2f}", "yes" if one.fits else "no", where))
    width = max(len(row[0]) for row in rows)
    return [f"{name:{width}}{fit:>7}{fits:>6}  {where}" for name, fit, fits, where in rows]


def _format_conclusion(fits: Sequence[AtlasFit], files: Sequence[Path]) -> str:
    """Say whether any atlas fits."""
    best = fits[0]
    if best.fits:
        return f"{files[best.index]} fits best."
    return (
        "No atlas fits: the recording was made with another head or in a room, or has several "
        "sources."
    )
