"""What a page wishes of a recording or a scene, checked: numbers are numbers, and within reason.

In: values of a query or of JSON, from anywhere. Out: plain values that go to a worker.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from earatlas.errors import InputError

__all__ = ["recording_wishes", "scene_wishes"]

_RENDERINGS = ("spatial", "soft", "binary")
_TALKERS = range(1, 5)
_VOICES = 4


def recording_wishes(values: Mapping[str, Any]) -> dict[str, Any]:
    """The head, the number of sources (None: find out), and how sound is made."""
    rendering = values.get("rendering") or "spatial"
    if rendering not in _RENDERINGS:
        raise InputError(
            f"rendering must be one of {', '.join(_RENDERINGS)}, got '{rendering}'. Choose one."
        )
    count = values.get("n_sources")
    n_sources = None if count in (None, "", "auto") else int(_number("n_sources", count, 1, 6))
    head = str(values.get("head") or "simulated")
    return {"head": head, "n_sources": n_sources, "rendering": rendering}


def scene_wishes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Who speaks where, in how much noise, and in which room."""
    talkers = values.get("talkers")
    if not isinstance(talkers, list) or len(talkers) not in _TALKERS:
        raise InputError(
            f"talkers must be {_TALKERS[0]} to {_TALKERS[-1]}, got another number. Add or remove."
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
    if not isinstance(talker, dict):
        raise InputError("talkers must be JSON objects, got something else. Load the page again.")
    place = {
        "azimuth": _number("azimuth", talker.get("azimuth"), -180, 180),
        "elevation": _number("elevation", talker.get("elevation"), -90, 90),
    }
    if talker.get("sound"):
        return {**place, "sound": str(talker["sound"])}
    return {**place, "voice": int(_number("voice", talker.get("voice"), 0, _VOICES - 1))}


def _number(name: str, value: Any, low: float, high: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):  # a whole number may have 400 digits
        number = math.nan
    if not low <= number <= high:
        raise InputError(
            f"{name} must be a number from {low:g} to {high:g}, got {str(value)[:40]!r}. Choose "
            "another."
        )
    return number
