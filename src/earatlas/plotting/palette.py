"""The colours of everything that is drawn, and the look that all pages share.

Colours are written here and nowhere else: figures, pages and the studio take them from here.
Nothing is imported for it, so that a page is there before the libraries are.
"""

from __future__ import annotations

from importlib.resources import files

__all__ = [
    "AZIMUTHS",
    "BLACK",
    "COLOURS",
    "DIFFERENCE_MAP",
    "ELEVATIONS",
    "ELEVATION_MAP",
    "GREY",
    "ILD_LIMIT_DB",
    "INK",
    "LEFT",
    "LEVEL_MAP",
    "LEVEL_RANGE_DB",
    "MEAN",
    "MISSING",
    "MISSING_OPACITY",
    "PHASE_MAP",
    "RIGHT",
    "TRUE",
    "WHITE",
    "colour_of",
    "look",
]

INK, GREY = "#1f2933", "#7b8794"  # text; lines around
MISSING = "#c9ced6"  # where nothing was observed, and grids
TRUE, MEAN = "#d7263d", "#2a9d5c"  # marks of the truth, and of a posterior's mean
COLOURS = ("#2f6db5", "#ff9f1c", "#d7263d", "#2a9d5c", "#8e5ea2", "#17a2b8", "#8d6e63")  # sources
BLACK, WHITE = "#10151a", "#ffffff"  # words on a colour
LEFT, RIGHT = "#2a6fc4", "#d1303f"  # the louder ear, on any ground
LEVEL_MAP = "magma"  # of spectrograms
DIFFERENCE_MAP, PHASE_MAP = "RdBu_r", "twilight_shifted"  # between the ears, right over left
ELEVATION_MAP = "turbo"  # of manifolds' lines
ILD_LIMIT_DB, LEVEL_RANGE_DB = 20.0, 60.0  # where the colours of a recording end
AZIMUTHS, ELEVATIONS = (180, 90, 0, -90, -180), (-90, -45, 0, 45, 90)  # ticks; left is left
MISSING_OPACITY = 0.43  # of the grey where nothing was heard, on a light ground and on a dark one


def colour_of(m: int) -> str:
    """The colour of source m."""
    return COLOURS[m % len(COLOURS)]


def look() -> str:
    """The style sheet that pages share: grounds, inks and sources' colours, light and dark."""
    text = files("earatlas.plotting").joinpath("look.css").read_text(encoding="utf-8")
    opacity = f"{round(255 * MISSING_OPACITY):02x}"
    for name, value in {"ink": INK, "truth": TRUE, "missing": GREY + opacity}.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return text
