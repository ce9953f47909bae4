"""Adaptations in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from earatlas.population.adaptation_report import Adaptation

__all__ = ["format_adaptation", "format_segments"]


def format_adaptation(adaptation: Adaptation, n_files: int) -> str:
    """Describe from what an atlas was adapted, and what was gained, in one line."""
    text = (
        f"{format_segments(adaptation)} of {n_files} "
        f"recording{'' if n_files == 1 else 's'}, held-out gain {adaptation.gain_nats:+.2f} nats "
        "per segment"
    )
    if math.isnan(adaptation.residual_before):
        return text
    return (
        f"{text}, residual {adaptation.residual_before:.2f} before and "
        f"{adaptation.residual_after:.2f} after (1 is the largest usual one)"
    )


def format_segments(adaptation: Adaptation) -> str:
    """Describe the number of usable segments."""
    count = adaptation.recordings
    usable = f"{count} usable segment{'' if count == 1 else 's'}"
    if adaptation.reverberant:
        usable += f", {adaptation.reverberant} of them reverberant"
    if adaptation.several_sources:
        usable += f", {adaptation.several_sources} with several sources left out"
    if adaptation.few_onsets:
        usable += f", {adaptation.few_onsets} reverberant with too few onsets left out"
    return usable
