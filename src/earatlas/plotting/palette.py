"""Colours of all figures and pages, and the style sheet that the pages share.

This is the only module that defines colours. It imports no numerical library, so that the studio's
server starts quickly.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from typing import Protocol

__all__ = [
    "AZIMUTH_TICKS",
    "BLACK",
    "COLOURS",
    "DEGREE_STEPS",
    "DIFFERENCE_MAP",
    "ELEVATION_MAP",
    "ELEVATION_TICKS",
    "GREY",
    "ILD_LIMIT_DB",
    "INK",
    "LEFT_EAR",
    "LEVEL_MAP",
    "LEVEL_RANGE_DB",
    "MARKERS",
    "MEAN_COLOUR",
    "MISSING",
    "MISSING_OPACITY",
    "PHASE_MAP",
    "RIGHT_EAR",
    "TRUTH_COLOUR",
    "WHITE",
    "shared_css",
    "source_colour",
    "source_numbers",
    "text_colour",
]

INK, GREY = "#1f2933", "#7b8794"  # text; frames and axes
MISSING = "#c9ced6"  # bins without an observation; grid lines
TRUTH_COLOUR, MEAN_COLOUR = "#d7263d", "#2a9d5c"  # marks of true directions and posterior means
# Sources: based on the palette of Okabe and Ito (2008) for colour-blind readers, with a contrast of
# at least 3 to 1 to light and dark pages, and none of them the red of the truth.
COLOURS = ("#0072b2", "#d17f00", "#009e73", "#c8589a", "#3d9bdc", "#b65a16", "#6b7280")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # of the same curves, for readers who see no colours
BLACK, WHITE = "#10151a", "#ffffff"  # text on a coloured background
LEFT_EAR, RIGHT_EAR = "#2a6fc4", "#d1303f"  # which ear is louder, on a light or dark background
# Colour maps are perceptually uniform, and none distinguishes red from green.
LEVEL_MAP = "magma"  # colour map of spectrograms
DIFFERENCE_MAP, PHASE_MAP = "RdBu_r", "twilight_shifted"  # colour maps of ILD and IPD
ELEVATION_MAP = "viridis"  # colour map of the lines of manifolds
ILD_LIMIT_DB, LEVEL_RANGE_DB = 20.0, 60.0  # ends of the colour scales of a recording
AZIMUTH_TICKS, ELEVATION_TICKS = (180, 90, 0, -90, -180), (-90, -45, 0, 45, 90)  # degrees
DEGREE_STEPS = (0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 45.0, 90.0)  # distances of ticks of close-ups
MISSING_OPACITY = 0.43  # opacity of the grey of missing bins, on light and dark pages


def source_colour(m: int) -> str:
    """Return the colour of source m."""
    return COLOURS[m % len(COLOURS)]


class Numbered(Protocol):
    """A source that may have a number of its own."""

    @property
    def number(self) -> int | None:
        """Number in pictures, counted from 0; None: its position in the scene."""


def source_numbers(sources: Iterable[Numbered]) -> list[int]:
    """Return the numbers of the sources of a scene, which determine their colours, from 0."""
    return [m if one.number is None else one.number for m, one in enumerate(sources)]


def text_colour(colour: str) -> str:
    """Return black or white, whichever has more contrast on a colour such as "#0072b2" (WCAG 2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    luminance = sum(a * b for a, b in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))
    return BLACK if luminance > 0.179 else WHITE


def shared_css() -> str:
    """Return the style sheet of all pages: colours for light and dark mode, and common elements."""
    text = files("earatlas.plotting").joinpath("shared.css").read_text(encoding="utf-8")
    opacity = f"{round(255 * MISSING_OPACITY):02x}"
    for name, value in {"ink": INK, "truth": TRUTH_COLOUR, "missing": GREY + opacity}.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return text
