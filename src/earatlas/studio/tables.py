"""Tables of a scene as CSV files: one row per source, and one row per source and time.

Numbers have a point and degrees are positive to the left and upwards, as in JSON. Cells are empty
where a source is silent or its direction is unknown; a given direction has no radius.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from earatlas.plotting.tracks import marginal_bands
from earatlas.separation.result import SceneSummary, SourceSummary
from earatlas.studio.identity import SourceIdentity, identify_sources
from earatlas.studio.views import azimuth_elevation

__all__ = ["SOURCES_TABLE", "TRACKS_TABLE", "write_tables"]

SOURCES_TABLE, TRACKS_TABLE = "sources.csv", "tracks.csv"
_SOURCE_COLUMNS = (
    "number", "name", "azimuth_degrees", "elevation_degrees", "radius_90_degrees",
    "energy_share", "moves", "place", "doubts",
)  # fmt: skip
_TRACK_COLUMNS = (
    "number", "name", "time_seconds", "azimuth_degrees", "elevation_degrees",
    "azimuth_band_90_degrees", "elevation_band_90_degrees", "radius_90_degrees", "level_db",
)  # fmt: skip
_Cell = str | int | float | bool | None


def write_tables(
    folder: Path, scene: SceneSummary, identities: Sequence[SourceIdentity] | None = None
) -> list[str]:
    """Write the tables of a scene into a folder, and return their names."""
    numbers = [one.number + 1 for one in identities or identify_sources(scene)]
    sources = list(zip(numbers, scene.sources, strict=True))
    _write(folder / SOURCES_TABLE, _SOURCE_COLUMNS, (_source_row(*one) for one in sources))
    tracks = (row for one in sources for row in _track_rows(*one))
    _write(folder / TRACKS_TABLE, _TRACK_COLUMNS, tracks)
    return [SOURCES_TABLE, TRACKS_TABLE]


def _source_row(number: int, source: SourceSummary) -> list[_Cell]:
    known = source.direction_known
    azimuth, elevation = azimuth_elevation(source.direction)[0]
    radius = math.nan if source.given else source.radius_90
    return [
        number,
        source.name,
        *(_rounded(v, 2) if known else None for v in (azimuth, elevation, radius)),
        _rounded(source.share, 4),
        source.moves,
        source.describe_place(),
        "; ".join(str(doubt) for doubt in source.doubts),
    ]


def _track_rows(number: int, source: SourceSummary) -> Iterable[list[_Cell]]:
    track, known = source.track, source.direction_known
    places, bands = azimuth_elevation(track.directions), azimuth_elevation(marginal_bands(source))
    for w, active in enumerate(track.active):
        angles = [*places[w], *bands[w], track.radius_90[w]]
        yield [
            number,
            source.name,
            _rounded(track.seconds[w], 3),
            *(_rounded(v, 2) if active and known else None for v in angles),
            _rounded(track.level_db[w], 1),
        ]


def _rounded(value: float, digits: int) -> float | None:
    return round(float(value), digits) if math.isfinite(value) else None


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[_Cell]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([_safe(cell) for cell in row] for row in rows)


def _safe(cell: _Cell) -> _Cell:
    """Return a cell that no spreadsheet takes for a formula; names may come from users."""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{cell}"
    return cell
