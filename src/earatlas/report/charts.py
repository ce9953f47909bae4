"""HTML charts: frames with ticks, spectrograms and line charts.

The inputs are arrays of a scene, the output is HTML. Ticks and labels are HTML text and marks are
SVG, so charts stay sharp at any size and adapt to the width of the page. They are made in
milliseconds, where matplotlib figures would take seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from earatlas.plotting.palette import source_colour, text_colour
from earatlas.plotting.posterior_maps import cell_edges
from earatlas.types import Array

__all__ = [
    "ELEVATION_TICKS",
    "Chart",
    "Ticks",
    "line_chart",
    "number_mark",
    "spectrogram_chart",
    "tick_values",
    "time_ticks",
]

Ticks = Sequence[tuple[float, str]]  # (position as a fraction of the axis, label)
ELEVATION_TICKS = [(0.0, "−90°"), (0.25, "−45°"), (0.5, "0°"), (0.75, "45°"), (1.0, "90°")]

_TRANSLUCENT = ' class="clear"'


@dataclass(frozen=True)
class Chart:
    """A frame with ticks along its sides."""

    caption: str  # HTML
    inside: str  # HTML of the content of the frame
    shape: str  # CSS of the frame: height or aspect-ratio
    x: Ticks = ()
    y: Ticks = ()
    key: str = ""  # HTML list items of the legend

    def html(self) -> str:
        """Return the HTML figure."""
        y_labels = "".join(
            f'<span{_edge_class(at, "bottom", "top")} style="bottom:{100 * at:.2f}%">{label}</span>'
            for at, label in self.y
        )
        x_labels = "".join(
            f'<span{_edge_class(at, "first", "last")} style="left:{100 * at:.2f}%">{label}</span>'
            for at, label in self.x
        )
        key = f'<ul class="key">{self.key}</ul>' if self.key else ""
        y_axis = f'<div class="y" aria-hidden="true">{y_labels}</div>' if self.y else ""
        return (
            f"<figure><figcaption>{self.caption}</figcaption>"
            f'<div class="plot{"" if self.y else " bare"}">{y_axis}'
            f'<div class="frame" style="{self.shape}">{self.inside}</div>'
            f'<div class="x" aria-hidden="true">{x_labels}</div></div>{key}</figure>'
        )


def number_mark(m: int, style: str = "") -> str:
    """Return the number of source m on its colour."""
    colour = source_colour(m)
    colours = f"background:{colour};color:{text_colour(colour)}"
    return f'<b class="number" style="{style}{colours}">{m + 1}</b>'


def _edge_class(at: float, first: str, last: str) -> str:
    """Return the class attribute of a label that would extend beyond the end of its axis."""
    return f' class="{first}"' if at < 0.02 else f' class="{last}"' if at > 0.98 else ""


def tick_values(low: float, high: float, most: int, steps: Sequence[float]) -> Array:
    """Return multiples of the smallest step that gives at most `most` ticks."""
    step = next((s for s in steps if (high - low) / s < most), steps[-1])
    first = np.ceil(low / step - 1e-6)
    return step * np.arange(first, np.floor(high / step + 1e-6) + 1) + 0.0  # avoids -0


def time_ticks(start: float, end: float) -> Ticks:
    """Return the ticks of a time axis from `start` to `end` in seconds."""
    steps = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200)
    times = tick_values(max(start, 0.0), end, 6, steps)
    return [((t - start) / (end - start), _format_time(round(t, 3), end > 120)) for t in times]


def _format_time(seconds: float, minutes: bool) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}" if minutes else f"{seconds:g} s"


def spectrogram_chart(
    image: str,
    seconds: Array,
    frequencies_hz: Array,
    *,
    caption: str,
    alt: str,
    key: str = "",
    opaque: bool = False,
) -> str:
    """Return an image with time and frequency axes; `caption` and `key` are HTML, `alt` is text.

    In dark mode, the style sheet makes images that are not opaque brighter.
    """
    start, end = cell_edges(seconds)
    low, high = (f / 1000 for f in cell_edges(frequencies_hz))
    khz = tick_values(low, high, 6, (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50))
    return Chart(
        caption,
        f'<img src="{image}" alt="{escape(alt)}"{"" if opaque else _TRANSLUCENT}>',
        "height:11rem",
        time_ticks(start, end),
        [((f - low) / (high - low), f"{f:g}" + (" kHz" if f == khz[-1] else "")) for f in khz],
        key,
    ).html()


def line_chart(values: Sequence[float], *, caption: str, alt: str) -> str:
    """Return a chart of a quantity over the iterations."""
    v = np.array(values, dtype=np.float64)
    low, high = float(v.min()), float(v.max())
    span = high - low or 1.0
    x = np.linspace(0.0, 100.0, len(v)) if len(v) > 1 else np.array([0.0])
    y = 95 - 90 * (v - low) / span
    points = " ".join(f"{a:.2f},{b:.2f}" for a, b in zip(x, y, strict=True))
    inside = (
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(alt)}"><polyline class="curve" points="{points}"/></svg>'
    )
    ticks = [(0.0, "iteration 1"), (1.0, str(len(v)))] if len(v) > 1 else [(0.0, "iteration 1")]
    return Chart(caption, inside, "height:8rem", ticks).html()
