"""Validation of the options that a page sends for a recording or a scene.

The inputs are untrusted values of a query or of JSON, the outputs plain values for a worker.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from earatlas.errors import InputError

__all__ = ["parse_recording_ids", "parse_recording_options", "parse_scene_options"]

_RENDERINGS = ("spatial", "soft", "binary")
_N_TALKERS = range(1, 5)  # numbers of talkers of a scene


def parse_recording_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the head (None: the first), the number of sources (None: estimate), the rendering."""
    rendering = values.get("rendering") or "spatial"
    if rendering not in _RENDERINGS:
        raise InputError(
            f"rendering must be one of {', '.join(_RENDERINGS)}, got '{rendering}'. Choose one."
        )
    count = values.get("n_sources")
    n_sources = None if count in (None, "", "auto") else int(_number("n_sources", count, 1, 6))
    head = values.get("head")
    return {"head": None if not head else str(head), "n_sources": n_sources, "rendering": rendering}


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
