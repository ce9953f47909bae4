"""Validation of the options that a page sends for a recording or a scene.

The inputs are untrusted values of a query or of JSON, the outputs plain values for a worker.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from earatlas.errors import InputError
from earatlas.studio.safety import display_name

__all__ = [
    "parse_names",
    "parse_recording_ids",
    "parse_recording_options",
    "parse_scene_options",
    "parse_selection",
    "parse_wrong_way",
]

_RENDERINGS = ("spatial", "soft", "binary")
_WRONG_WAYS = ("azimuths", "ears")
_N_TALKERS = range(1, 5)  # numbers of talkers of a scene
_N_SOURCES = range(1, 7)  # `earatlas.separation.separator.MAX_SOURCES`, which is slow to import


def parse_recording_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the head (None: the first) and the options of `earatlas separate`.

    These are n_sources (None: estimate), rendering, rate (None: that of the recording), dry,
    channels (left, right), directions (None: estimate), and the names and numbers of the sources.
    """
    rendering = values.get("rendering") or "spatial"
    if rendering not in _RENDERINGS:
        raise InputError(
            f"rendering must be one of {', '.join(_RENDERINGS)}, got '{rendering}'. Choose one."
        )
    count = values.get("n_sources")
    n_sources = None
    if count not in (None, "", "auto"):
        n_sources = int(_number("n_sources", count, _N_SOURCES[0], _N_SOURCES[-1]))
    rate, head = values.get("rate"), values.get("head")
    directions = _directions(values.get("directions"))
    return {
        "head": None if not head else str(head),
        "n_sources": n_sources if directions is None else len(directions),
        "rendering": rendering,
        "rate": None if rate in (None, "") else int(_number("rate", rate, 2_000, 384_000)),
        "dry": _flag("dry", values.get("dry")),
        "channels": _channels(values.get("channels")),
        "directions": directions,
        "source_names": parse_names(values.get("names", [])),
        "source_numbers": _source_numbers(values.get("numbers", [])),
    }


def parse_selection(values: Mapping[str, Any]) -> tuple[float, float]:
    """Return the first and the last second of a selection."""
    start, end = (_number(name, values.get(name), 0, 1e6) for name in ("start", "end"))
    if not end > start:
        raise InputError(
            f"end must be after start, got {start:g} to {end:g} s. Select a part of the recording."
        )
    return start, end


def parse_names(values: Any) -> list[str]:
    """Return the displayed names of the sources; an empty one stands for its number."""
    if not isinstance(values, list) or len(values) > len(_N_SOURCES):
        raise InputError(
            f"names must be a list of at most {len(_N_SOURCES)} texts, got {str(values)[:40]!r}. "
            "Reload the page."
        )
    if not all(isinstance(name, str) for name in values):
        raise InputError(f"names must be texts, got {str(values)[:40]!r}. Reload the page.")
    return [display_name(name)[:40] if name.strip() else "" for name in values]


def parse_wrong_way(value: Any) -> str | None:
    """Return what to correct in a head whose ears and azimuths contradict each other."""
    if value in (None, ""):
        return None
    if value not in _WRONG_WAYS:
        raise InputError(
            f"wrong_way must be one of {', '.join(_WRONG_WAYS)}, got {str(value)[:40]!r}. Choose "
            "one, or leave it out."
        )
    return str(value)


def _source_numbers(values: Any) -> list[int]:
    """Return the numbers of the sources, from 1, which determine their colours."""
    valid = isinstance(values, list) and len(values) <= len(_N_SOURCES)
    if not valid or len({str(value) for value in values}) < len(values):
        raise InputError(
            f"numbers must be at most {len(_N_SOURCES)} different ones, got {str(values)[:40]!r}. "
            "Reload the page."
        )
    return [int(_number("numbers", value, 1, 99)) for value in values]


def _directions(values: Any) -> list[list[float]] | None:
    """Return given directions as (azimuth, elevation), or None."""
    if values is None:
        return None
    if not isinstance(values, list) or len(values) not in _N_SOURCES:
        count = len(values) if isinstance(values, list) else "none"
        raise InputError(
            f"directions must be {_N_SOURCES[0]} to {_N_SOURCES[-1]}, got {count}. Add or remove "
            "sources."
        )
    pairs = [one if isinstance(one, list) and len(one) == 2 else [None, None] for one in values]
    return [
        [_number("azimuth", azimuth, -180, 180), _number("elevation", elevation, -90, 90)]
        for azimuth, elevation in pairs
    ]


def _channels(values: Any) -> list[int]:
    """Return the channels of the left and the right ear, counted from 0."""
    if values is None:
        return [0, 1]
    pair = values if isinstance(values, list) and len(values) == 2 else [None, None]
    left, right = (_number("channels", value, 0, 1023) for value in pair)
    if left == right or not (left.is_integer() and right.is_integer()):
        raise InputError(
            f"channels must be two different ones, got {left:g} and {right:g}. Choose another for "
            "one ear."
        )
    return [int(left), int(right)]


def _flag(name: str, value: Any) -> bool:
    if value not in (None, True, False):
        raise InputError(f"{name} must be true or false, got {str(value)[:40]!r}. Choose one.")
    return bool(value)


def parse_recording_ids(values: Any, max_count: int = 100) -> list[str]:
    """Return the ids of different recordings; the default limit is that of a page's recordings."""
    given = [one for one in values if one] if isinstance(values, list) else []
    ids = list(dict.fromkeys(one for one in given if isinstance(one, str)))
    if not ids or len(ids) != len(given) or len(ids) > max_count:
        raise InputError(
            f"recordings must be 1 to {max_count} different ids of recordings, got {len(given)} "
            "values. Reload the page."
        )
    return ids


def parse_scene_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return name, head, talkers with their directions, noise level and reverberation time."""
    talkers = values.get("talkers")
    if not isinstance(talkers, list) or len(talkers) not in _N_TALKERS:
        count = len(talkers) if isinstance(talkers, list) else "none"
        raise InputError(
            f"talkers must be {_N_TALKERS[0]} to {_N_TALKERS[-1]}, got {count}. Add or remove some."
        )
    t60 = values.get("t60_seconds")
    return {
        "name": str(values.get("name") or f"{len(talkers)} talkers"),
        "head": str(values.get("head") or "simulated"),
        "talkers": [_talker(talker) for talker in talkers],
        "snr_db": _number("snr_db", values.get("snr_db", 60), -20, 100),
        "t60_seconds": None if t60 is None else _number("t60_seconds", t60, 0.1, 1.2),
    }


def _talker(talker: Any) -> dict[str, Any]:
    """Return the direction of a talker, and its voice or uploaded sound."""
    if not isinstance(talker, dict):
        raise InputError("talkers must be JSON objects, got another value. Reload the page.")
    direction = {
        "azimuth": _number("azimuth", talker.get("azimuth"), -180, 180),
        "elevation": _number("elevation", talker.get("elevation"), -90, 90),
    }
    if talker.get("sound"):
        return {**direction, "sound": str(talker["sound"])}
    # `earatlas.studio.scenes.TALKERS`, which is slow to import, has four voices.
    return {**direction, "voice": int(_number("voice", talker.get("voice"), 0, 3))}


def _number(name: str, value: Any, low: float, high: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):  # an integer may have 400 digits
        number = math.nan
    if not low <= number <= high:
        raise InputError(
            f"{name} must be a number from {low:g} to {high:g}, got {str(value)[:40]!r}. Choose "
            "another."
        )
    return number
