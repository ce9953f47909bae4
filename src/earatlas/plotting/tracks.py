"""Sources over time: azimuth, elevation and level, with the band of what is uncertain.

In: the tracks of a scene's sources. Out: lines on axes of your own. Silence is a gap, and so is the
seam behind the head, through which no line is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from earatlas.plotting.palette import AZIMUTHS, ELEVATIONS, LEVEL_RANGE_DB, colour_of
from earatlas.plotting.style import gridded, styled
from earatlas.separation.source_track import SourceTrack
from earatlas.types import Array, Indices

__all__ = ["azimuth_radius", "draw_levels", "draw_ways", "runs_of"]

_SEAM = 180.0  # degrees from one row to the next: it went behind the head


def runs_of(values: Array) -> list[Indices]:
    """Rows of values (W,) that follow each other without silence (NaN) or the seam between."""
    rows = np.flatnonzero(np.isfinite(values))
    broken = (np.diff(rows) > 1) | (np.abs(np.diff(values[rows])) >= _SEAM)
    return [run for run in np.split(rows, np.flatnonzero(broken) + 1) if len(run)]


def azimuth_radius(track: SourceTrack, *, elevation: bool) -> Array:
    """(W,) half the width of the 90 % band in azimuth: the higher up, the more of them it spans."""
    if not elevation:
        return track.radius_90
    cosines = np.cos(np.radians(track.directions[:, 1]))
    wide: Array = np.minimum(track.radius_90 / np.maximum(cosines, 1e-3), 180.0)
    return wide


def draw_ways(
    axes: Axes, tracks: Sequence[SourceTrack], column: int = 0, *, elevation: bool = True
) -> None:
    """Azimuths (column 0; left is up) or elevations (column 1) of all sources over time.

    Without `elevation` the space is a circle, whose radii are in azimuth already.
    """
    for m, track in enumerate(tracks):
        values = track.directions[:, column]
        radius = track.radius_90 if column else azimuth_radius(track, elevation=elevation)
        for run in runs_of(values):
            seconds, way = track.seconds[run], values[run]
            axes.fill_between(
                seconds, way - radius[run], way + radius[run],
                color=colour_of(m), alpha=0.18, linewidth=0,
            )  # fmt: skip
            axes.plot(seconds, way, "." if len(run) == 1 else "-", color=colour_of(m), linewidth=2)
    ticks = ELEVATIONS if column else AZIMUTHS
    axes.set_yticks(ticks)
    axes.set_ylim(min(ticks), max(ticks))
    styled(gridded(axes), "Elevation" if column else "Azimuth", "seconds", "degrees")


def draw_levels(axes: Axes, tracks: Sequence[SourceTrack]) -> None:
    """How loud each source is over time, in dB re a full-scale sine."""
    for m, track in enumerate(tracks):
        axes.plot(track.seconds, track.level_db, color=colour_of(m), linewidth=1.2)
    top = max(float(track.level_db.max()) for track in tracks)
    axes.set_ylim(top - LEVEL_RANGE_DB, top + 3)
    styled(gridded(axes), "Level", "seconds", "dB")
