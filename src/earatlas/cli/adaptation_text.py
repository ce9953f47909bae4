"""Adaptations in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from earatlas.population.adaptation_report import Adaptation

__all__ = ["format_adaptation", "format_segments"]


def format_adaptation(adaptation: Adaptation, n_files: int) -> str:
    """Describe from what an atlas was adapted, and what was gained, in one line."""
    return (
        f"{format_segments(adaptation)} of {n_files} "
        f"recording{'' if n_files == 1 else 's'}, held-out gain {adaptation.gain_nats:+.2f} nats "
        f"per segment, residual {adaptation.residual_before:.2f} before and "
        f"{adaptation.residual_after:.2f} after (1 is the largest usual one)"
    )


def format_segments(adaptation: Adaptation) -> str:
    """Describe the number of usable segments."""
    count = adaptation.recordings
    usable = f"{count} usable segment{'' if count == 1 else 's'}"
    left_out = adaptation.reverberant
    return f"{usable}, {left_out} reverberant left out" if left_out else usable
