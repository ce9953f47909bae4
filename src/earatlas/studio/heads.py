"""Heads in the studio: learn an atlas from a file or a folder, and describe it for the page.

The input is a .sofa file, a table (CSV) of recordings with the recordings next to it, or an atlas.
The output is an atlas in the session's folder, and JSON values: measured directions, limitations of
the measurement, and errors on held-out directions.
"""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.atlas import Atlas, learn
from earatlas.errors import InputError
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.diagnosis import coverage_map, diagnose
from earatlas.hrtf.head import Head
from earatlas.hrtf.loading import open_head
from earatlas.hrtf.simulated import simulated_head
from earatlas.packaged_atlases import EXAMPLE_ATLAS
from earatlas.studio.progress import ProgressReporter

__all__ = [
    "TABLE",
    "describe_atlas",
    "learn_uploaded_head",
    "rename_files_in_table",
    "write_example_atlas",
]

TABLE = "positions.csv"  # table of a folder of recordings, with the studio's file names


def learn_uploaded_head(request: dict[str, Any], reporter: ProgressReporter) -> dict[str, Any]:
    """Learn an atlas and return its description; the measurements are published beforehand."""
    source, name = Path(request["source"]), str(request["name"])
    if "names" in request:
        table = source.with_name(TABLE)
        text = rename_files_in_table(source.read_bytes(), request["names"])
        table.write_text(text, encoding="utf-8")
        source = table
    progress = reporter.stage("reading the head", 0.0, 0.1)
    head = open_head(source, wrong_way=request.get("wrong_way"), progress=progress)
    head = replace(head, name=Path(name).stem)
    head.check_directions("be used in the studio")
    reporter.stage("analysing the measurements", 0.1)
    description = _describe_measurements(head, name)
    reporter.publish(description)
    atlas = learn(head, progress=reporter.stage("learning the head", 0.15, 1.0))
    atlas.save(request["atlas"])
    return {**description, **_describe_model(atlas), "name": name}


def describe_atlas(path: Path) -> dict[str, Any]:
    """Return the description of an atlas file."""
    atlas = Atlas.load(path)
    if not atlas.space.holds_directions:
        raise InputError(
            "atlas must be one of directions to be used in the studio, got one of positions in a "
            "plane. Use it on the command line or in Python."
        )
    description = {
        "points": _points(atlas.model.centres),
        "points_label": "centres of the charts",
        "coverage": None,
        "notes": [],
        "spacing_degrees": atlas.about.get("spacing_degrees"),
    }
    return {
        **description,
        **_describe_model(atlas),
        "name": str(atlas.about.get("head", "?")),
    }


def _describe_measurements(head: Head, name: str) -> dict[str, Any]:
    report = diagnose(head)
    return {
        "name": name,
        "directions": report.directions,
        "licence": report.licence,
        "spacing_degrees": round(report.spacing_degrees, 1),
        "largest_gap_degrees": round(report.largest_gap_degrees, 1),
        "points": _points(head.directions),
        "points_label": "measured directions",
        "coverage": np.round(np.minimum(coverage_map(head), 1.0), 2).tolist(),
        "notes": list(report.warnings),
    }


def _describe_model(atlas: Atlas) -> dict[str, Any]:
    return {
        "directions": atlas.about.get("directions"),
        "licence": atlas.about.get("licence") or "unknown",
        "space": atlas.space.name,
        "charts": len(atlas.model.weights),
        "reverberant": atlas.reverberant_localizer is not None,
        "held_out": None if atlas.accuracy is None else asdict(atlas.accuracy),
    }


def _points(directions: np.ndarray) -> list[list[float]]:
    """Return at most 1500 of the directions (N, C), evenly chosen, as (azimuth, elevation)."""
    x = np.column_stack([directions, np.zeros(len(directions))])[:, :2]
    rounded: list[list[float]] = np.round(x[:: -(-len(x) // 1500)], 1).tolist()
    return rounded


def rename_files_in_table(table: bytes, names: dict[str, str]) -> str:
    """Return a table in which the browser's file names are replaced by the studio's.

    `names` maps a path in the dropped folder to the studio's name.
    """
    try:
        text = table.decode("utf-8-sig")
        rows = list(csv.reader(io.StringIO(text)))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"table must be a CSV file, got a file that cannot be read ({error}). Save it as CSV."
        ) from error
    columns = [cell.strip().lower() for cell in rows[0]] if rows else []
    if "file" not in columns:
        raise InputError(
            "table must have the columns file, azimuth, elevation, got "
            f"{', '.join(columns) or 'none'}. Add them."
        )
    column = columns.index("file")
    studio_names = {_normalized(name): own for name, own in names.items()}
    for row in rows[1:]:
        if len(row) > column:
            row[column] = studio_names.get(_normalized(row[column]), "not in the dropped folder")
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue()


def _normalized(name: str) -> str:
    return name.strip().replace("\\", "/").removeprefix("./")


def write_example_atlas(path: Path) -> None:
    """Learn the simulated head that is shipped with the package, and write its atlas."""
    # A spacing of 8 degrees. Evidence: docs/figures/settings/studio.md, "heads".
    learn(simulated_head(Sphere().grid(8.0))).save(path)


if __name__ == "__main__":  # python -m earatlas.studio.heads
    write_example_atlas(EXAMPLE_ATLAS)
