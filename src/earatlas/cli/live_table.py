"""Live report of tracked sources, as a table on the terminal or as one line."""

from __future__ import annotations

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from earatlas.errors import sanitize
from earatlas.geometry.spaces import Sphere
from earatlas.streaming.report import LiveReport, LiveSource
from earatlas.wording import format_alternatives, format_direction, format_duration, is_unknown

__all__ = ["live_line", "live_table"]

_FULL_WIDTH = 118  # characters of a terminal in which all columns fit
# Readable on dark and light backgrounds; a track keeps its colour.
_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")


def live_table(report: LiveReport, footer: str, width: int = _FULL_WIDTH) -> RenderableType:
    """Return a table with one row per source, confirmed ones first.

    A narrow terminal has no columns for the angles, and shorter bars.
    """
    wide = width >= _FULL_WIDTH
    table = Table(box=None, pad_edge=False, header_style="dim", expand=False)
    table.add_column("track", justify="right")
    table.add_column("direction", min_width=31 if wide else 27)
    if wide:
        table.add_column("azimuth", justify="right", min_width=7)
        table.add_column("elev.", justify="right", min_width=6)
    table.add_column("within", justify="right", min_width=6)
    table.add_column("level", min_width=20 if wide else 8)
    table.add_column("since", justify="right", min_width=8 if wide else 5)
    table.add_column("", min_width=22 if wide else 15)
    for source in sorted(report.sources, key=lambda s: (not s.confirmed, s.id)):
        table.add_row(*_cells(source, report.time, wide=wide))
    if not report.sources:
        table.add_row("", Text("no sources", style="dim"))
    lines: list[RenderableType] = [table]
    for source in report.sources:
        text = _format_alternatives(source)
        if source.confirmed and text is not None:
            lines.append(Text(f"track {source.id}: {text}", style="dim"))
    lines += [Text(f"doubtful: {sanitize(str(doubt))}", style="yellow") for doubt in report.doubts]
    lines.append(Text(footer, style="dim"))
    return Group(*lines)


def _cells(source: LiveSource, now: float, *, wide: bool) -> list[Text]:
    """Return the cells of a source."""
    colour = _COLOURS[(source.id - 1) % len(_COLOURS)]
    style = colour if source.confirmed and source.active else "dim"
    unknown = is_unknown(source.radius_90)
    angles = ("", "")
    if not unknown:
        elevation = _format_angle(source.direction[1]) if len(source.direction) > 1 else ""
        angles = (_format_angle(source.direction[0]), elevation)
    return [
        Text(str(source.id) if source.confirmed else "?", style=f"bold {style}"),
        Text(format_direction(source.direction, source.radius_90), style=style),
        *(Text(angle, style=style) for angle in angles if wide),
        Text("" if unknown else f"± {source.radius_90:.0f}°", style=style),
        _level_bar(source, style, wide=wide),
        Text(format_duration(max(now - source.since, 0.0)), style=style),
        Text(_format_state(source), style="dim"),
    ]


def _format_alternatives(source: LiveSource) -> str | None:
    """Describe the other possible directions of a source; None if there are none."""
    return format_alternatives(
        Sphere(), source.alternatives, source.radius_90, source.lateral_angle
    )


def _format_angle(angle: float) -> str:
    """Format an angle as a signed whole number of degrees."""
    return f"{round(float(angle)) + 0:+d}°".replace("-", "−").replace("+0°", "0°")


def _level_bar(source: LiveSource, style: str, *, wide: bool) -> Text:
    """Return the level of a source as a bar."""
    if not np.isfinite(source.level_db) or not source.confirmed:
        return Text("")
    quietest, loudest = -60.0, -10.0  # dB, ends of the bar
    fraction = (source.level_db - quietest) / (loudest - quietest)
    length = 12 if wide else 8  # characters; a wide bar is followed by the number
    filled = round(length * min(max(fraction, 0.0), 1.0))
    bar = Text("█" * filled, style=style)
    bar.append("░" * (length - filled), style="dim")
    if not wide:
        return bar
    return bar.append(f" {source.level_db:4.0f} dB".replace("-", "−"), style="dim")


def _format_state(source: LiveSource) -> str:
    """Describe whether a source is new, silent or moving."""
    if not source.confirmed:
        return "new"
    if not source.active:
        return f"silent for {format_duration(source.age)}"
    return f"moves at {source.speed:.0f}°/s" if source.speed >= 8 else ""


def live_line(report: LiveReport) -> str:
    """Return the confirmed sources as one line, for a log."""
    sources = [f"{s.id}: {_format_source(s)}" for s in report.sources if s.confirmed]
    return f"{report.time:7.1f} s  " + ("; ".join(sources) if sources else "no sources")


def _format_source(source: LiveSource) -> str:
    """Describe the direction of a source, its radius, and whether it is silent."""
    words = format_direction(source.direction, source.radius_90)
    radius = "" if is_unknown(source.radius_90) else f" ±{source.radius_90:.0f}°"
    other = _format_alternatives(source)
    others = "" if other is None else f", {other}"
    return f"{words}{radius}{others}{'' if source.active else ', silent'}"
