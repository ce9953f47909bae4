"""Range and default of the delay of streams, for which the command line needs no NumPy."""

from __future__ import annotations

from numbers import Real
from typing import cast

from earatlas.errors import InputError

__all__ = ["DEFAULT_DELAY_SECONDS", "MAX_DELAY_SECONDS", "MIN_DELAY_SECONDS", "check_delay"]

# Evidence: docs/figures/settings/streaming.md, "delay".
DEFAULT_DELAY_SECONDS = 0.112
MIN_DELAY_SECONDS = 0.024
# A track may be replaced after as much silence (`TrackSettings.active_seconds`): with a longer
# delay, its last sound would go to its successor.
MAX_DELAY_SECONDS = 1.0


def check_delay(delay_seconds: object) -> float:
    """Return a delay in seconds; raise an InputError if it is not a number in the range."""
    is_number = isinstance(delay_seconds, Real) and not isinstance(delay_seconds, bool)
    seconds = float(cast("Real", delay_seconds)) if is_number else None
    if seconds is None or not MIN_DELAY_SECONDS <= seconds <= MAX_DELAY_SECONDS:
        given = repr(delay_seconds) if seconds is None else f"{seconds:g}"
        raise InputError(
            f"delay_seconds must be from {MIN_DELAY_SECONDS:g} to {MAX_DELAY_SECONDS:g} s, got "
            f"{given}. Give it in seconds: {DEFAULT_DELAY_SECONDS:g} is the default. For "
            "recordings, use `separate`."
        )
    return seconds
