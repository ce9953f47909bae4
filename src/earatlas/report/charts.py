"""Charts for a page: frames whose ticks are text of the page, so that they suit any width.

In: arrays of a scene. Out: HTML text. What can be written (ticks, labels) is text, what can be
drawn (marks, grids) is SVG. Hence nothing is blurred on a fine screen or tiny on a small one, and a
page needs milliseconds where figures would need seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from earatlas.plotting.posterior_maps import edges
from earatlas.types import Array

__all__ = ["Chart", "Ticks", "course", "spectrogram", "tick_values", "time_ticks"]

Ticks = Sequence[tuple[float, str]]  # (share of the axis from its start, label)

_CLEAR = ' class="clear"'


@dataclass(frozen=True)
class Chart:
    """A frame with ticks that are text of the page."""

    caption: str  # HTML
    inside: str  # HTML of what fills the frame
    shape: str  # CSS of the frame: height or aspect-ratio
    x: Ticks = ()
    y: Ticks = ()
    key: str = ""  # HTML of the list items below

    def html(self) -> str:
        """The figure."""
        marks = "".join(
            f'<span{_end(at, "bottom", "top")} style="bottom:{100 * at:.2f}%">{label}</span>'
            for at, label in self.y
        )
        below = "".join(
            f'<span{_end(at, "first", "last")} style="left:{100 * at:.2f}%">{label}</span>'
            for at, label in self.x
        )
        key = f'<ul class="key">{self.key}</ul>' if self.key else ""
        side = f'<div class="y" aria-hidden="true">{marks}</div>' if self.y else ""
        return (
            f"<figure><figcaption>{self.caption}</figcaption>"
            f'<div class="plot{"" if self.y else " bare"}">{side}'
            f'<div class="frame" style="{self.shape}">{self.inside}</div>'
            f'<div class="x" aria-hidden="true">{below}</div></div>{key}</figure>'
        )


def _end(at: float, first: str, last: str) -> str:
    """The class of a label that would stick out of its axis."""
    return f' class="{first}"' if at < 0.02 else f' class="{last}"' if at > 0.98 else ""


def tick_values(low: float, high: float, most: int, sizes: Sequence[float]) -> Array:
    """The multiples of the smallest of the sizes that gives `most` ticks or fewer."""
    size = next((s for s in sizes if (high - low) / s < most), sizes[-1])
    first = np.ceil(low / size - 1e-6)
    return size * np.arange(first, np.floor(high / size + 1e-6) + 1) + 0.0  # no -0


def time_ticks(start: float, end: float) -> Ticks:
    """Where a time axis has its labels."""
    sizes = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200)
    times = tick_values(max(start, 0.0), end, 6, sizes)
    return [((t - start) / (end - start), _clock(round(t, 3), end > 120)) for t in times]


def _clock(seconds: float, long: bool) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}" if long else f"{seconds:g} s"


def spectrogram(
    image: str,
    seconds: Array,
    frequencies_hz: Array,
    *,
    caption: str,
    alt: str,
    key: str = "",
    opaque: bool = False,
) -> str:
    """An image of bins and frames with its axes; `caption` and `key` are HTML, `alt` is text.

    An image that is not opaque is made brighter on a dark ground.
    """
    start, end = edges(seconds)
    low, high = (f / 1000 for f in edges(frequencies_hz))
    rows = tick_values(low, high, 6, (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50))
    return Chart(
        caption,
        f'<img src="{image}" alt="{escape(alt)}"{"" if opaque else _CLEAR}>',
        "height:11rem",
        time_ticks(start, end),
        [((f - low) / (high - low), f"{f:g}" + (" kHz" if f == rows[-1] else "")) for f in rows],
        key,
    ).html()


def course(values: Sequence[float], *, caption: str, alt: str) -> str:
    """A quantity over the iterations as a line."""
    v = np.array(values, dtype=np.float64)
    low, high = float(v.min()), float(v.max())
    span = high - low or 1.0
    x = np.linspace(0.0, 100.0, len(v)) if len(v) > 1 else np.array([0.0])
    y = 95 - 90 * (v - low) / span
    points = " ".join(f"{a:.2f},{b:.2f}" for a, b in zip(x, y, strict=True))
    inside = (
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(alt)}"><polyline class="course" points="{points}"/></svg>'
    )
    ticks = [(0.0, "iteration 1"), (1.0, str(len(v)))] if len(v) > 1 else [(0.0, "iteration 1")]
    return Chart(caption, inside, "height:8rem", ticks).html()
