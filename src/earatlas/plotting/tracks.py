"""Panels of sources over time: azimuth, elevation and level, with 90 % bands.

Inputs are the sources of a scene, outputs are lines on given axes. Lines are broken where a source
is silent and where its azimuth wraps at ±180 degrees. A band holds 90 % of the marginal
distribution of its angle, not of the direction: a source in the median plane may have a narrow band
of azimuth and a wide one of elevation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from earatlas.geometry.alternatives import Alternative
from earatlas.geometry.angles import wrap_degrees
from earatlas.geometry.chart_gaussians import gaussian_radius_90
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Space
from earatlas.plotting.palette import (
    AZIMUTH_TICKS,
    ELEVATION_TICKS,
    LEVEL_RANGE_DB,
    source_colour,
    source_numbers,
    text_colour,
)
from earatlas.plotting.style import add_grid, degree_labels, style_axes
from earatlas.separation.result import SourceSummary, SourceTrack
from earatlas.types import Array, Indices

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "alternative_bands",
    "continuous_runs",
    "draw_direction_tracks",
    "draw_levels",
    "isotropic_bands",
    "marginal_bands",
]

_N_DRAWS = 2000  # of a posterior, from which the bands of a static source are computed


def continuous_runs(values: Array) -> list[Indices]:
    """Return the rows of values (W,) as runs without NaN (silence) or a wrap in between."""
    rows = np.flatnonzero(np.isfinite(values))
    # A step of more than half a turn is a wrap at ±180 degrees.
    broken = (np.diff(rows) > 1) | (np.abs(np.diff(values[rows])) >= 180.0)
    return [run for run in np.split(rows, np.flatnonzero(broken) + 1) if len(run)]


def marginal_bands(source: SourceSummary) -> Array:
    """Return half-widths (W, C) of the 90 % bands of azimuth and elevation, in degrees.

    The band of a static source is that of its posterior, the band of a moving source, which has
    only a radius in each row, that of `isotropic_bands`.
    """
    track, space = source.track, source.posterior.space
    if track.moves:
        return isotropic_bands(track, space)
    widths = _sampled_bands(source.posterior, source.direction, _N_DRAWS)
    return np.where(track.active[:, None], widths, np.nan)


def alternative_bands(
    space: Space, alternatives: Sequence[Alternative], n_draws: int = 500
) -> Array:
    """Return half-widths (C,) of the 90 % bands around the first of several possible directions.

    Each alternative is an isotropic Gaussian with its radius and probability. The bands are those
    of their mixture, so that an alternative behind the head widens the band of azimuth.
    """
    weights = np.array([one.probability for one in alternatives])
    deviations = [one.radius_90 / gaussian_radius_90(space.dims) for one in alternatives]
    mixture = DirectionPosterior(
        space,
        np.stack([one.direction for one in alternatives]),
        weights / weights.sum(),
        np.zeros((len(weights), space.dims)),
        np.stack([max(one, 1e-3) ** 2 * np.eye(space.dims) for one in deviations]),
    )
    return _sampled_bands(mixture, alternatives[0].direction, n_draws)


def _sampled_bands(posterior: DirectionPosterior, direction: Array, n_draws: int) -> Array:
    """Return half-widths (C,) around a direction that hold 90 % of each marginal distribution."""
    deviation = posterior.sample(n_draws) - direction
    if posterior.space.holds_directions:
        deviation[:, 0] = wrap_degrees(deviation[:, 0])
    widths: Array = np.quantile(np.abs(deviation), 0.9, axis=0)
    return widths


def isotropic_bands(track: SourceTrack, space: Space) -> Array:
    """Return the half-widths (W, C) of the 90 % bands of Gaussians with the radii of a track.

    Azimuths spread the more the farther the source is from the horizontal plane.
    """
    if space.dims == 1:
        return np.broadcast_to(track.radius_90[:, None], track.directions.shape)
    width = track.radius_90 * gaussian_radius_90(1) / gaussian_radius_90(2)
    cosines = np.cos(np.radians(track.directions[:, 1])) if space.holds_directions else 1.0
    return np.column_stack([np.minimum(width / np.maximum(cosines, 1e-3), 180.0), width])


def draw_direction_tracks(axes: Axes, sources: Sequence[SourceSummary], column: int = 0) -> None:
    """Draw the azimuths (column 0, left is up) or elevations (column 1) of all sources over time.

    A source whose direction is unknown is not drawn.
    """
    for m, source in zip(source_numbers(sources), sources, strict=True):
        if not source.direction_known:
            continue
        track = source.track
        values, radius = track.directions[:, column], marginal_bands(source)[:, column]
        runs = continuous_runs(values)
        for run in runs:
            seconds, angles = track.seconds[run], values[run]
            axes.fill_between(
                seconds, angles - radius[run], angles + radius[run],
                color=source_colour(m), alpha=0.18, linewidth=0,
            )  # fmt: skip
            axes.plot(
                seconds, angles, "." if len(run) == 1 else "-", color=source_colour(m), linewidth=2
            )
        if runs:
            _draw_number(axes, track.seconds[runs[0][0]], values[runs[0][0]], m)
    ticks = ELEVATION_TICKS if column else AZIMUTH_TICKS
    axes.set_yticks(ticks)
    axes.set_ylim(min(ticks), max(ticks))
    degree_labels(axes.yaxis)
    style_axes(add_grid(axes), "Elevation" if column else "Azimuth (left is up)", "seconds")


def _draw_number(axes: Axes, x: float, y: float, m: int) -> None:
    """Draw the number of source m where its line begins, so that colour is not needed."""
    colour = source_colour(m)
    axes.text(
        x, y, str(m + 1), color=text_colour(colour), fontsize=7, fontweight="bold",
        ha="center", va="center", clip_on=True,
        bbox={"boxstyle": "circle,pad=0.25", "facecolor": colour, "edgecolor": "none"},
    )  # fmt: skip


def draw_levels(axes: Axes, sources: Sequence[SourceSummary]) -> None:
    """Draw the level of each source over time, in dB relative to a full-scale sine."""
    tracks = [source.track for source in sources]
    for m, track in zip(source_numbers(sources), tracks, strict=True):
        axes.plot(track.seconds, track.level_db, color=source_colour(m), linewidth=1.2)
        _draw_number(axes, track.seconds[0], track.level_db[0], m)
    top = max(float(track.level_db.max()) for track in tracks)
    axes.set_ylim(top - LEVEL_RANGE_DB, top + 3)
    style_axes(add_grid(axes), "Level", "seconds", "dB")
