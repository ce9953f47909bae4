"""The verdict about an atlas in words: what it is good for, what it is not, and what to do."""

from __future__ import annotations

from typing import Any

from earatlas.atlas import Atlas
from earatlas.training.verdict import AtlasVerdict, Limitation, LimitationKind
from earatlas.wording import format_direction

__all__ = ["verdict_fields", "verdict_lines"]


def verdict_lines(atlas: Atlas) -> list[str]:
    """Return sentences about an atlas: good for, not for, and one line per limitation."""
    verdict = AtlasVerdict.of(atlas)
    lines = [f"good for: {', '.join(verdict.good_for) or 'nothing'}"]
    if verdict.not_for:
        lines.append(f"not for: {', '.join(verdict.not_for)}")
    return [*lines, *(_sentence(limitation) for limitation in verdict.limitations)]


def verdict_fields(atlas: Atlas) -> dict[str, Any]:
    """Return the verdict as JSON values."""
    verdict = AtlasVerdict.of(atlas)
    return {
        "good_for": list(verdict.good_for),
        "not_for": list(verdict.not_for),
        "limitations": [_sentence(limitation) for limitation in verdict.limitations],
    }


def _sentence(limitation: Limitation) -> str:
    """Describe a limitation, and what to do about it."""
    needed = limitation.directions
    held_out = "directions" if limitation.heads is None else "heads"
    more = "Check the recordings and the directions."
    if limitation.heads is not None:
        more = f"Add heads to the {limitation.heads} of the population, or adapt it to a listener."
    elif needed is not None:
        more = f"Measure about {needed} directions, evenly spaced over the region of interest."
    match limitation.kind:
        case LimitationKind.LABELS:
            return (
                "The directions do not fit the delays between the ears (reading that fits: "
                f"{limitation.detail}). Correct the labels and learn again."
            )
        case LimitationKind.LARGE_ERRORS:
            return f"The median error at held-out {held_out} is {limitation.value:.0f}°. {more}"
        case LimitationKind.CONE_CONFUSIONS:
            return (
                f"{100 * limitation.value:.0f} % of the held-out errors exceed 30°: front and "
                f"back, or up and down, are confused; lateral angles are better. {more}"
            )
        case LimitationKind.UNTESTED:
            return (
                f"{limitation.value:.0f} directions are too few to hold some out: errors are not "
                f"measured, and credible regions are conservative. {more}"
            )
        case LimitationKind.NO_ROOM_MODEL:
            reason = f"this head {limitation.detail}" if limitation.detail else "it was left out"
            return (
                f"The atlas has no model of reverberant rooms, because {reason}. In rooms its "
                "regions are far too small, and broken input is not found. Learn the head from "
                "anechoic or truncated impulse responses."
            )
        case LimitationKind.PARTIAL_COVERAGE:
            return (
                f"The measured directions cover {100 * limitation.value:.0f} % of the "
                "space; a source elsewhere is placed within them. "
                f"About {needed} directions, evenly spaced all round, cover all of it."
            )
        case LimitationKind.GAP:
            assert limitation.centre is not None
            return (
                f"No direction was measured within {limitation.value:.0f}° of one direction "
                f"({format_direction(limitation.centre)}): sources in this part are the exception, "
                "and are placed at its edge."
            )
