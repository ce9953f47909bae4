"""`earatlas adapt`: adapt an atlas of many heads to a listener, from recordings."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from earatlas.atlas import Atlas
from earatlas.batch.file_arguments import expand_file_arguments, unique_files
from earatlas.cli.adaptation_text import format_adaptation, format_segments
from earatlas.cli.app import Command, command_app, examples
from earatlas.cli.console import print_json, print_line, progress
from earatlas.cli.options import AtlasArgument, ForceOption, JsonOption, RecordingsArgument
from earatlas.cli.outputs import OutputFiles, check_atlas_name, is_atlas
from earatlas.csv_tables import read_table
from earatlas.errors import InputError, existing_file
from earatlas.features.sound_file import RECORDING_SUFFIXES
from earatlas.population.adaptation_report import Adaptation, AdaptationVerdict

__all__ = ["adapt_command", "app"]

app = command_app()

_REMEDIES = {
    AdaptationVerdict.NO_GAIN: "Check that all recordings have the same listener, and add "
    "recordings, or use the atlas as it is.",
    AdaptationVerdict.OTHER_HEAD: "Record one source at a time, and check the channels and the "
    "microphones. Otherwise, measure this head, or learn a population of such heads.",
    AdaptationVerdict.TOO_FEW: "Record more talkers, one at a time.",
    AdaptationVerdict.ONE_DIRECTION: "Add recordings from other directions.",
    AdaptationVerdict.SMALL_GAIN: "Check that all recordings have the same listener, and add "
    "recordings, or directions of some of them (--labels). A dummy head is not a person: use an "
    "atlas of its model.",
    AdaptationVerdict.WORSE_FIT: "Check that all recordings have the same listener. "
    "A dummy head is not a person: use an atlas of its model.",
    AdaptationVerdict.TWO_LISTENERS: "Adapt to each listener separately.",
    AdaptationVerdict.MIRRORED_LABELS: "Exchange the channels, or negate the azimuths: positive "
    "ones are to the left.",
    AdaptationVerdict.WRONG_LABELS: "Check which recording has which direction.",
}
# Reverberation can be the cause of these.
_IN_ROOMS = frozenset(
    {
        AdaptationVerdict.NO_GAIN,
        AdaptationVerdict.OTHER_HEAD,
        AdaptationVerdict.SMALL_GAIN,
        AdaptationVerdict.WORSE_FIT,
        AdaptationVerdict.TWO_LISTENERS,
    }
)
_ROOM_REMEDY = (
    "Many of the recordings are reverberant and say less about a head: add recordings without "
    "reverberation."
)
_MANY_REVERBERANT = 0.5  # share of the usable segments


@app.command(
    cls=Command,
    epilog=examples(
        "earatlas adapt people day/*.wav -o me.atlas",
        "earatlas adapt people day -o me.atlas --labels known.csv",
        "earatlas adapt people.atlas day/*.wav -o me.atlas --json",
    ),
)
def adapt_command(
    atlas: AtlasArgument,
    recordings: RecordingsArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Atlas file to write.")
    ],
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Known directions: a .csv table with the columns file, azimuth and elevation. "
            "Recordings that it does not name are used without a direction.",
        ),
    ] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Adapt an atlas of many heads to a listener.

    Uses recordings of one listener with sounds from several directions, which need not be known.
    Writes the adapted atlas only if recordings that were held out fit it better.
    """
    check_atlas_name(output)
    outputs = OutputFiles(force=force)
    outputs.claim(output, is_atlas)
    files = unique_files(expand_file_arguments(recordings, RECORDING_SUFFIXES, "recordings").files)
    directions = None if labels is None else _read_labels(labels, files)
    start = time.perf_counter()
    adapted, adaptation = _adapt_atlas(Atlas.load(atlas), files, directions)
    adapted.save(output)
    outputs.report()
    if as_json:
        answer = {"atlas": str(output), "files": len(files), **adaptation.to_dict()}
        print_json({**answer, "seconds": round(time.perf_counter() - start, 2)})
        return
    print_line(f"{adaptation.verdict}: {format_adaptation(adaptation, len(files))}")
    print_line(f"atlas: {output} ({output.stat().st_size / 1e6:.1f} MB)")


def _adapt_atlas(
    atlas: Atlas,
    files: Sequence[Path],
    directions: Sequence[tuple[float, float] | None] | None = None,
) -> tuple[Atlas, Adaptation]:
    """Return the adapted atlas; raise InputError if the recordings do not improve it."""
    with progress(f"adapting to {len(files)} recordings"):
        adapted, adaptation = atlas.adapt(files, directions)
    if not adaptation.adapted:
        raise InputError(
            "recordings must improve the atlas to adapt it, got a refusal: "
            f"{adaptation.verdict} ({format_segments(adaptation)}). "
            f"{_remedy(adaptation)}"
        )
    return adapted, adaptation


def _remedy(adaptation: Adaptation) -> str:
    """Return what to do about a refused adaptation."""
    remedy, reverberant = _REMEDIES[adaptation.verdict], adaptation.reverberant
    many = reverberant >= max(_MANY_REVERBERANT * adaptation.recordings, 1)
    if adaptation.verdict not in _IN_ROOMS or not many:
        return remedy
    return f"{_ROOM_REMEDY} {remedy}"


def _read_labels(table: Path, files: Sequence[Path]) -> list[tuple[float, float] | None]:
    """Return the known direction of each recording; names are relative to the table."""
    existing_file(table, "labels")
    known: dict[Path, tuple[float, float]] = {}
    places = {file.resolve() for file in files}
    for row in read_table(table, ("file", "azimuth", "elevation"), "labels"):
        azimuth, elevation = row.numbers("azimuth", "elevation")
        if not (abs(azimuth) <= 360 and abs(elevation) <= 90):
            raise InputError(
                f"labels must have azimuths within ±360° and elevations within ±90°, got "
                f"{azimuth:g} and {elevation:g} in line {row.line} of '{table}'. Correct that line."
            )
        file = (table.parent / str(row.cells["file"]).strip()).resolve()
        if file not in places:
            raise InputError(
                f"labels must name recordings of this command, got '{row.cells['file']}' in line "
                f"{row.line} of '{table}'. Names are relative to the folder of the table."
            )
        known[file] = (azimuth, elevation)
    return [known.get(file.resolve()) for file in files]
