"""Charts of the sources over time: azimuth, elevation and level.

The inputs are the tracks of a scene's sources, the output is HTML with one chart per quantity. A
line is drawn where a source is active, with the 90 % credible band around it.

    W     rows of a track
    run   consecutive rows without silence or a wrap at ±180 degrees
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from earatlas.plotting.palette import LEVEL_RANGE_DB, source_colour, source_numbers
from earatlas.plotting.posterior_maps import cell_edges
from earatlas.plotting.tracks import continuous_runs, marginal_bands
from earatlas.report.charts import (
    ELEVATION_TICKS,
    Chart,
    Ticks,
    number_mark,
    tick_values,
    time_ticks,
)
from earatlas.separation.result import SourceSummary, SourceTrack
from earatlas.types import Array, Indices

__all__ = ["direction_charts", "source_charts", "track_charts"]

# Ticks of both axes: position as a fraction of the axis, and label.
_AZIMUTHS = [(0.0, "180°"), (0.25, "90° right"), (0.5, "0°"), (0.75, "90° left"), (1.0, "180°")]


def track_charts(sources: Sequence[SourceSummary]) -> str:
    """Return charts of all sources over the same rows of time; on a circle without elevation."""
    return source_charts(sources) + _level_chart(sources)


def source_charts(sources: Sequence[SourceSummary]) -> str:
    """Return charts of azimuth and elevation of all sources over time, with their bands."""
    tracks = [source.track for source in sources]
    bands = [marginal_bands(source) if source.direction_known else None for source in sources]
    elevation = sources[0].posterior.space.dims > 1
    return direction_charts(tracks, bands, elevation=elevation, numbers=source_numbers(sources))


def direction_charts(
    tracks: Sequence[SourceTrack],
    bands: Sequence[Array | None],
    *,
    elevation: bool,
    numbers: Sequence[int] | None = None,
) -> str:
    """Return charts of azimuth and elevation over time; on a circle without elevation.

    The bands have half-widths (W, C); a track without a band is not drawn. `numbers` determine the
    colours; by default they are those of the order.
    """
    seconds = tracks[0].seconds
    azimuths = _TrackPlot(seconds, -180.0, 180.0)
    elevations = _TrackPlot(seconds, -90.0, 90.0)
    for m, track, band in zip(numbers or range(len(tracks)), tracks, bands, strict=True):
        if band is not None:
            azimuths.add(m, track.directions[:, 0], band[:, 0])
            if elevation:
                elevations.add(m, track.directions[:, 1], band[:, 1])
    note = "<span>over time, with 90 % band</span>"
    charts = azimuths.html(f"Azimuth {note}", _AZIMUTHS)
    return charts + elevations.html(f"Elevation {note}", ELEVATION_TICKS) if elevation else charts


def _level_chart(sources: Sequence[SourceSummary]) -> str:
    """Return a chart of the levels of all sources over time."""
    tracks = [source.track for source in sources]
    top = max(float(track.level_db.max()) for track in tracks)
    levels = _TrackPlot(tracks[0].seconds, top - LEVEL_RANGE_DB, top)
    for m, track in zip(source_numbers(sources), tracks, strict=True):
        levels.add(m, np.maximum(track.level_db, levels.low), None)
    values = tick_values(levels.low, levels.high, 4, (10, 20, 30))
    ticks = [(levels.fraction(v), f"{v:.0f} dB".replace("-", "−")) for v in values]
    return levels.html("Level <span>of each separated sound</span>", ticks)


class _TrackPlot:
    """Lines of values between `low` and `high` over rows of time, as SVG."""

    def __init__(self, seconds: Array, low: float, high: float) -> None:
        self.low, self.high = low, high
        self._start, self._end = cell_edges(seconds)
        self._x = 100 * (seconds - self._start) / (self._end - self._start)
        self._bands: list[str] = []
        self._lines: list[str] = []
        self._begins: list[tuple[int, float, float]] = []  # source, and percents of both axes

    def fraction(self, value: float) -> float:
        """Return the position of a value as a fraction of the vertical axis."""
        return (value - self.low) / (self.high - self.low)

    def add(self, m: int, values: Array, radius: Array | None) -> None:
        """Add source m: values (W,), NaN in silence, and half the width (W,) of its band."""
        colour = source_colour(m)
        for run in continuous_runs(values):
            if radius is not None:
                upper = self._points(run, values[run] + radius[run])
                lower = self._points(run, values[run] - radius[run])
                self._bands.append(
                    f'<polygon points="{" ".join([*upper, *reversed(lower)])}" '
                    f'fill="{colour}" fill-opacity="0.18"/>'
                )
            shape = self._points(run, values[run])
            if m not in [source for source, _, _ in self._begins]:
                x, y = map(float, shape[0].split(","))
                self._begins.append((m, x, y))
            points = " ".join(shape)
            self._lines.append(f'<polyline class="track" points="{points}" stroke="{colour}"/>')

    def _points(self, run: Indices, values: Array) -> list[str]:
        """Return SVG points of a run, extended by half a row so that a single row is visible."""
        half = 50 / len(self._x)
        x = np.concatenate([[self._x[run[0]] - half], self._x[run], [self._x[run[-1]] + half]])
        heights = np.clip((values - self.low) / (self.high - self.low), 0.0, 1.0)
        y = 100 * (1 - np.concatenate([heights[:1], heights, heights[-1:]]))
        return [f"{a:.2f},{b:.2f}" for a, b in zip(x, y, strict=True)]

    def _numbers(self) -> str:
        """Return the number of each source where its line begins, beside those in its place."""
        badges = []
        for i, (m, x, y) in enumerate(self._begins):
            before = sum(abs(x - a) < 6 and abs(y - b) < 12 for _, a, b in self._begins[:i])
            place = f"left:{x:.1f}%;top:{min(max(y, 8), 92):.1f}%;margin-left:{1.1 * before:g}rem;"
            badges.append(number_mark(m, place))
        return f'<span aria-hidden="true">{"".join(badges)}</span>'

    def html(self, caption: str, ticks: Ticks) -> str:
        """Return the figure; `caption` is HTML."""
        grid = "".join(
            f'<line class="grid" x1="0" x2="100" y1="{y:.1f}" y2="{y:.1f}"/>'
            for y in (100 * (1 - at) for at, _ in ticks if 0.02 < at < 0.98)
        )
        name = escape(caption.split(" <")[0])
        inside = (
            f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" '
            f'aria-label="{name} of each source over time">'
            f"{grid}{''.join(self._bands)}{''.join(self._lines)}</svg>{self._numbers()}"
        )
        times = time_ticks(self._start, self._end)
        return Chart(caption, inside, "height:8rem", times, ticks).html()
