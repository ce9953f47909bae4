"""Charts of where the sources were over time, how sure that is, and how loud each was.

In: the tracks of a scene's sources. Out: HTML text, a chart each for azimuth, elevation and level.
A line is drawn where a source is heard, and around it the band that holds it with 90 %.

    W   rows of a track; a run is a number of them in a row, not broken by silence or the seam
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from earatlas.plotting.palette import LEVEL_RANGE_DB, colour_of
from earatlas.plotting.posterior_maps import edges
from earatlas.plotting.tracks import azimuth_radius, runs_of
from earatlas.report.charts import Chart, Ticks, tick_values, time_ticks
from earatlas.separation.source_track import SourceTrack
from earatlas.types import Array, Indices

__all__ = ["track_charts"]

_AZIMUTHS = [(0.0, "180°"), (0.25, "right"), (0.5, "front"), (0.75, "left"), (1.0, "180°")]
_ELEVATIONS = [(0.0, "below"), (0.25, "−45°"), (0.5, "0°"), (0.75, "45°"), (1.0, "above")]


def track_charts(tracks: Sequence[SourceTrack], *, elevation: bool) -> str:
    """Charts of all sources over the same rows of time; without elevation on a circle."""
    seconds = tracks[0].seconds
    azimuth = _Plot(seconds, -180.0, 180.0)
    height = _Plot(seconds, -90.0, 90.0)
    top = max(float(track.level_db.max()) for track in tracks)
    level = _Plot(seconds, top - LEVEL_RANGE_DB, top)
    for m, track in enumerate(tracks):
        azimuth.add(m, track.directions[:, 0], azimuth_radius(track, elevation=elevation))
        if elevation:
            height.add(m, track.directions[:, 1], track.radius_90)
        level.add(m, np.maximum(track.level_db, level.low), None)
    parts = [azimuth.html("Azimuth <span>over time, and where it is with 90 %</span>", _AZIMUTHS)]
    if elevation:
        parts.append(height.html("Elevation <span>over time</span>", _ELEVATIONS))
    shown = tick_values(level.low, level.high, 4, (10, 20, 30))
    ticks = [(level.share(v), f"{v:.0f} dB".replace("-", "−")) for v in shown]
    parts.append(level.html("Level <span>of each sound by itself</span>", ticks))
    return "".join(parts)


class _Plot:
    """Lines of values between `low` and `high` over rows of time, in SVG."""

    def __init__(self, seconds: Array, low: float, high: float) -> None:
        self.low, self.high = low, high
        self._start, self._end = edges(seconds)
        self._across = 100 * (seconds - self._start) / (self._end - self._start)
        self._bands: list[str] = []
        self._lines: list[str] = []

    def share(self, value: float) -> float:
        """How far up a value is."""
        return (value - self.low) / (self.high - self.low)

    def add(self, m: int, values: Array, radius: Array | None) -> None:
        """Source m: values (W,), NaN in silence, and half the width (W,) of its band."""
        colour = colour_of(m)
        for run in runs_of(values):
            if radius is not None:
                upper = self._points(run, values[run] + radius[run])
                lower = self._points(run, values[run] - radius[run])
                self._bands.append(
                    f'<polygon points="{" ".join([*upper, *reversed(lower)])}" '
                    f'fill="{colour}" fill-opacity="0.18"/>'
                )
            points = " ".join(self._points(run, values[run]))
            self._lines.append(f'<polyline class="way" points="{points}" stroke="{colour}"/>')

    def _points(self, run: Indices, values: Array) -> list[str]:
        """Points of a run; half a row longer at both ends, so that a single row is seen."""
        half = 50 / len(self._across)
        x = np.concatenate(
            [[self._across[run[0]] - half], self._across[run], [self._across[run[-1]] + half]]
        )
        shares = np.clip((values - self.low) / (self.high - self.low), 0.0, 1.0)
        y = 100 * (1 - np.concatenate([shares[:1], shares, shares[-1:]]))
        return [f"{a:.2f},{b:.2f}" for a, b in zip(x, y, strict=True)]

    def html(self, caption: str, ticks: Ticks) -> str:
        """The figure; `caption` is HTML."""
        grid = "".join(
            f'<line class="grid" x1="0" x2="100" y1="{y:.1f}" y2="{y:.1f}"/>'
            for y in (100 * (1 - at) for at, _ in ticks if 0.02 < at < 0.98)
        )
        name = escape(caption.split(" <")[0])
        inside = (
            f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" '
            f'aria-label="{name} of each source over time">'
            f"{grid}{''.join(self._bands)}{''.join(self._lines)}</svg>"
        )
        times = time_ticks(self._start, self._end)
        return Chart(caption, inside, "height:8rem", times, ticks).html()
