"""Heads in the studio: a file or a folder becomes an atlas while one looks on.

In: a .sofa file, or a table (CSV) of recordings with the recordings beside it; or an atlas. Out: an
atlas in the session's folder, and what the page shows of it: where the head was measured, what
cannot be learned from it, and how far the answers were off on directions that were held out.
"""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.atlas import EXAMPLE_ATLAS, Atlas, learn
from earatlas.errors import InputError
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.diagnosis import coverage_map, diagnose
from earatlas.hrtf.head import Head
from earatlas.hrtf.loading import open_head
from earatlas.hrtf.simulated import simulated_head
from earatlas.studio.progress import Teller

__all__ = ["TABLE", "described", "learned", "own_names", "write_built_in"]

TABLE = "positions.csv"  # of a folder of recordings, with names of ours
_MOST_POINTS = 1500  # directions that are drawn on the sphere
_BUILT_IN_SPACING = 8.0  # degrees: 645 directions, 1.6° of error in the median, 1.8 MB


def learned(order: dict[str, Any], teller: Teller) -> dict[str, Any]:
    """Learn a head, and say what came of it; what was measured is told before the learning."""
    source, name = Path(order["source"]), str(order["name"])
    if "names" in order:
        table = source.with_name(TABLE)
        table.write_text(own_names(source.read_bytes(), order["names"]), encoding="utf-8")
        source = table
    head = open_head(source, progress=teller.stage("reading the head", 0.0, 0.1))
    head = replace(head, name=Path(name).stem)
    teller.stage("measuring what it has", 0.1)
    facts = _measured(head, name)
    teller.answer(facts)
    atlas = learn(head, progress=teller.stage("learning how it hears", 0.15, 1.0))
    atlas.save(order["atlas"])
    return {**facts, **_of_atlas(atlas), "name": name}


def described(path: Path) -> dict[str, Any]:
    """What an atlas holds."""
    atlas = Atlas.load(path)
    facts = {
        "points": _points(atlas.model.centres),
        "points_are": "charts",
        "coverage": None,
        "notes": [],
        "spacing_degrees": atlas.about.get("spacing_degrees"),
    }
    return {**facts, **_of_atlas(atlas), "name": str(atlas.about.get("head", "?"))}


def _measured(head: Head, name: str) -> dict[str, Any]:
    report = diagnose(head)
    return {
        "name": name,
        "directions": report.directions,
        "licence": report.licence,
        "spacing_degrees": round(report.spacing_degrees, 1),
        "largest_gap_degrees": round(report.largest_gap_degrees, 1),
        "points": _points(head.directions),
        "points_are": "measured directions",
        "coverage": np.round(np.minimum(coverage_map(head), 1.0), 2).tolist(),
        "notes": list(report.warnings),
    }


def _of_atlas(atlas: Atlas) -> dict[str, Any]:
    held_out = None if atlas.accuracy is None else vars(atlas.accuracy)
    return {
        "directions": atlas.about.get("directions"),
        "licence": atlas.about.get("licence") or "unknown",
        "space": atlas.space.name,
        "charts": len(atlas.model.weights),
        "rooms": atlas.rooms is not None,
        "held_out": held_out,
    }


def _points(directions: np.ndarray) -> list[list[float]]:
    """Some of the directions (N, C), evenly chosen, for the sphere."""
    x = np.column_stack([directions, np.zeros(len(directions))])[:, :2]
    rounded: list[list[float]] = np.round(x[:: -(-len(x) // _MOST_POINTS)], 1).tolist()
    return rounded


def own_names(table: bytes, names: dict[str, str]) -> str:
    """A table whose files have the names that the studio gave them, not those of the browser.

    `names` are those by what the browser called them: a path in the folder that was dropped.
    """
    try:
        text = table.decode("utf-8-sig")
        rows = list(csv.reader(io.StringIO(text)))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"table must be a readable text file, got something else ({error}). Save it as CSV."
        ) from error
    columns = [cell.strip().lower() for cell in rows[0]] if rows else []
    if "file" not in columns:
        raise InputError(
            "table must have the columns file, azimuth, elevation, got "
            f"{', '.join(columns) or 'none'}. Add them."
        )
    at = columns.index("file")
    known = {_plain(name): own for name, own in names.items()}
    for row in rows[1:]:
        if len(row) > at:
            row[at] = known.get(_plain(row[at]), "not in the folder that was dropped")
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue()


def _plain(name: str) -> str:
    return name.strip().replace("\\", "/").removeprefix("./")


def write_built_in(path: Path) -> None:
    """Learn the built-in head anew, where its file is too old: see the end of this file."""
    learn(simulated_head(Sphere().grid(_BUILT_IN_SPACING))).save(path)


if __name__ == "__main__":  # python -m earatlas.studio.heads
    write_built_in(EXAMPLE_ATLAS)
