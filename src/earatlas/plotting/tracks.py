"""Panels of sources over time: azimuth, elevation and level, with 90 % bands.

Inputs are the tracks of a scene's sources, outputs are lines on given axes. Lines are broken where
a source is silent and where its azimuth wraps at ±180 degrees.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from earatlas.plotting.palette import (
    AZIMUTH_TICKS,
    ELEVATION_TICKS,
    LEVEL_RANGE_DB,
    source_colour,
)
from earatlas.plotting.style import add_grid, style_axes
from earatlas.separation.result import SourceTrack
from earatlas.types import Array, Indices

__all__ = ["azimuth_radius", "continuous_runs", "draw_direction_tracks", "draw_levels"]


def continuous_runs(values: Array) -> list[Indices]:
    """Return the rows of values (W,) as runs without NaN (silence) or a wrap in between."""
    rows = np.flatnonzero(np.isfinite(values))
    # A step of more than half a turn is a wrap at ±180 degrees.
    broken = (np.diff(rows) > 1) | (np.abs(np.diff(values[rows])) >= 180.0)
    return [run for run in np.split(rows, np.flatnonzero(broken) + 1) if len(run)]


def azimuth_radius(track: SourceTrack, *, elevation: bool) -> Array:
    """Return half the width (W,) of the 90 % band in azimuth, in degrees.

    With `elevation`, a great-circle radius spans more azimuth the farther a source is from the
    horizontal plane.
    """
    if not elevation:
        return track.radius_90
    cosines = np.cos(np.radians(track.directions[:, 1]))
    radius: Array = np.minimum(track.radius_90 / np.maximum(cosines, 1e-3), 180.0)
    return radius


def draw_direction_tracks(
    axes: Axes, tracks: Sequence[SourceTrack], column: int = 0, *, elevation: bool = True
) -> None:
    """Draw the azimuths (column 0, left is up) or elevations (column 1) of all sources over time.

    Without `elevation` the space is a circle, where the radii are already in azimuth.
    """
    for m, track in enumerate(tracks):
        values = track.directions[:, column]
        radius = track.radius_90 if column else azimuth_radius(track, elevation=elevation)
        for run in continuous_runs(values):
            seconds, angles = track.seconds[run], values[run]
            axes.fill_between(
                seconds, angles - radius[run], angles + radius[run],
                color=source_colour(m), alpha=0.18, linewidth=0,
            )  # fmt: skip
            axes.plot(
                seconds, angles, "." if len(run) == 1 else "-", color=source_colour(m), linewidth=2
            )
    ticks = ELEVATION_TICKS if column else AZIMUTH_TICKS
    axes.set_yticks(ticks)
    axes.set_ylim(min(ticks), max(ticks))
    style_axes(add_grid(axes), "Elevation" if column else "Azimuth", "seconds", "degrees")


def draw_levels(axes: Axes, tracks: Sequence[SourceTrack]) -> None:
    """Draw the level of each source over time, in dB relative to a full-scale sine."""
    for m, track in enumerate(tracks):
        axes.plot(track.seconds, track.level_db, color=source_colour(m), linewidth=1.2)
    top = max(float(track.level_db.max()) for track in tracks)
    axes.set_ylim(top - LEVEL_RANGE_DB, top + 3)
    style_axes(add_grid(axes), "Level", "seconds", "dB")
