"""Who is where, as a table on the terminal that is drawn anew with every report."""

from __future__ import annotations

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from earatlas.errors import harmless
from earatlas.streaming.report import LiveReport, LiveSource
from earatlas.wording import direction_words, length_words

__all__ = ["live_line", "live_table"]

_BAR, _SHORT_BAR = 12, 8  # letters
_WIDE = 118  # letters of a terminal in which all columns have room
_QUIETEST_DB, _LOUDEST_DB = -60.0, -10.0
# From dark to bright, readable on both grounds; a track keeps its colour.
_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")


def live_table(report: LiveReport, footer: str, width: int = _WIDE) -> RenderableType:
    """A row for each source, confirmed ones first.

    In a terminal that is less wide, degrees are said in words alone, and the bar is shorter.
    """
    wide = width >= _WIDE
    table = Table(box=None, pad_edge=False, header_style="dim", expand=False)
    table.add_column("track", justify="right")
    table.add_column("where", min_width=31 if wide else 27)
    if wide:
        table.add_column("azimuth", justify="right", min_width=7)
        table.add_column("elev.", justify="right", min_width=6)
    table.add_column("within", justify="right", min_width=6)
    table.add_column("level", min_width=_BAR + 8 if wide else _SHORT_BAR)
    table.add_column("since", justify="right", min_width=8 if wide else 5)
    table.add_column("", min_width=22 if wide else 15)
    for source in sorted(report.sources, key=lambda s: (not s.confirmed, s.id)):
        table.add_row(*_cells(source, report.time, wide=wide))
    if not report.sources:
        table.add_row("", Text("nobody is heard", style="dim"))
    lines: list[RenderableType] = [table]
    lines += [Text(f"doubtful: {harmless(str(doubt))}", style="yellow") for doubt in report.doubts]
    lines.append(Text(footer, style="dim"))
    return Group(*lines)


def _cells(source: LiveSource, now: float, *, wide: bool) -> list[Text]:
    colour = _COLOURS[(source.id - 1) % len(_COLOURS)]
    style = colour if source.confirmed and source.active else "dim"
    elevation = f"{_degrees(source.direction[1])}" if len(source.direction) > 1 else ""
    degrees = (_degrees(source.direction[0]), elevation) if wide else ()
    return [
        Text(str(source.id) if source.confirmed else "?", style=f"bold {style}"),
        Text(direction_words(source.direction), style=style),
        *(Text(angle, style=style) for angle in degrees),
        Text(f"± {min(source.radius_90, 180):.0f}°", style=style),
        _level(source, style, wide=wide),
        Text(length_words(max(now - source.since, 0.0)), style=style),
        Text(_state(source), style="dim"),
    ]


def _degrees(angle: float) -> str:
    return f"{round(float(angle)) + 0:+d}°".replace("-", "−").replace("+0°", "0°")


def _level(source: LiveSource, style: str, *, wide: bool) -> Text:
    if not np.isfinite(source.level_db) or not source.confirmed:
        return Text("")
    full = (source.level_db - _QUIETEST_DB) / (_LOUDEST_DB - _QUIETEST_DB)
    letters = _BAR if wide else _SHORT_BAR
    filled = round(letters * min(max(full, 0.0), 1.0))
    bar = Text("█" * filled, style=style)
    bar.append("░" * (letters - filled), style="dim")
    if not wide:
        return bar
    return bar.append(f" {source.level_db:4.0f} dB".replace("-", "−"), style="dim")


def _state(source: LiveSource) -> str:
    if not source.confirmed:
        return "new"
    if not source.active:
        return f"silent for {length_words(source.age)}"
    return f"moves at {source.speed:.0f}°/s" if source.speed >= 8 else ""


def live_line(report: LiveReport) -> str:
    """The same on one line, for a log."""
    told = [
        f"{s.id}: {direction_words(s.direction)} ±{s.radius_90:.0f}°{'' if s.active else ' silent'}"
        for s in report.sources
        if s.confirmed
    ]
    return f"{report.time:7.1f} s  " + ("; ".join(told) if told else "nobody is heard")
