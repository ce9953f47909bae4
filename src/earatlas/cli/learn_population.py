"""`earatlas learn --population`: one atlas of many heads. Also the table of held-out errors."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from earatlas.batch.file_arguments import unique_files
from earatlas.cli.console import out, print_json, print_line, print_note, progress
from earatlas.cli.options import HeadOptions, read_head
from earatlas.cli.outputs import OutputFiles, check_atlas_name, is_atlas
from earatlas.cli.verdict_text import verdict_lines
from earatlas.geometry.spaces import Circle, Space
from earatlas.localization.learned_head import Accuracy
from earatlas.population_atlas import PopulationAtlas, learn_population

__all__ = ["accuracy_table", "learn_population_command"]


def learn_population_command(
    heads: Sequence[Path],
    output: Path,
    options: HeadOptions,
    *,
    rooms: bool,
    seed: int,
    force: bool,
    as_json: bool,
) -> None:
    """Learn an atlas from all heads, and print which of them were left out."""
    check_atlas_name(output)
    outputs = OutputFiles(force=force)
    outputs.claim(output, is_atlas)
    start = time.perf_counter()
    files = unique_files(heads)
    with progress(f"reading {len(files)} heads") as update:
        opened = []
        for number, file in enumerate(files):
            opened.append(read_head(str(file), options, diagnosed=True, verbose=False))
            update(number + 1, len(files))
    with progress(f"learning a population of {len(files)} heads", logged=True):
        atlas = learn_population(opened, rooms=rooms, seed=seed)
    atlas.save(output)
    outputs.report()
    seconds = time.perf_counter() - start
    if as_json:
        print_json(_answer(atlas, output, seconds))
    else:
        _print(atlas, output, seconds)


def _answer(atlas: PopulationAtlas, path: Path, seconds: float) -> dict[str, Any]:
    """Return the description of a population as JSON values."""
    return {
        "atlas": str(path),
        "head": atlas.about["head"],
        "space": atlas.space.name,
        "components": len(atlas.model.weights),
        "members": [member.name for member in atlas.members if member.problem is None],
        "omitted_heads": {
            member.name: str(member.problem) for member in atlas.members if member.problem
        },
        "held_out": None if atlas.accuracy is None else vars(atlas.accuracy),
        "rooms": atlas.reverberant_localizer is not None,
        "seconds": round(seconds, 2),
    }


def _print(atlas: PopulationAtlas, path: Path, seconds: float) -> None:
    """Print the description of a population, its held-out errors, and the heads left out."""
    rooms = "" if atlas.reverberant_localizer is None else ", ready for reverberant rooms"
    print_line(
        f"{atlas.about['head']}: {len(atlas.model.weights)} charts on the {atlas.space.name}"
        f"{rooms}, in {seconds:.1f} s"
    )
    for member in atlas.members:
        if member.problem is not None:
            print_note("[yellow]left out:[/]", f"{member.name}: {member.problem}.")
    if atlas.accuracy is not None:
        print_line("Errors for heads that were held out, without adaptation:")
        out.print(accuracy_table(atlas.accuracy, atlas.space), highlight=False)
    for line in verdict_lines(atlas):
        print_line(line)
    print_line(f"atlas: {path} ({path.stat().st_size / 1e6:.1f} MB)")


def accuracy_table(accuracy: Accuracy, space: Space) -> Table:
    """Return a table of the held-out errors; that of a circle has no elevation."""
    if not space.holds_directions and space.unit_name:
        return _position_accuracy_table(accuracy, space)
    flat = isinstance(space, Circle)
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


def _position_accuracy_table(accuracy: Accuracy, space: Space) -> Table:
    """Return a table of the held-out errors of positions, in the unit of the space."""
    unit, errors = space.unit_name, accuracy.in_units(space)
    table = Table("held-out positions", str(accuracy.held_out), box=None, padding=(0, 2))
    for name, key in (
        ("median error", f"median_{unit}"),
        ("mean error", f"mean_{unit}"),
        ("mean error in x", f"mean_x_{unit}"),
        ("mean error in y", f"mean_y_{unit}"),
    ):
        table.add_row(name, f"{errors[key]:.1f} {unit}")
    return table
