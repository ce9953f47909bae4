"""Adaptations in words and as JSON values."""

from __future__ import annotations

from typing import Any

from earatlas.population.adaptation_report import Adaptation

__all__ = ["describe_adaptation", "format_adaptation", "format_segments"]


def describe_adaptation(adaptation: Adaptation) -> dict[str, Any]:
    """Return an adaptation as JSON values."""
    return {
        "verdict": adaptation.verdict.name.lower(),
        "segments": adaptation.recordings,
        "gain_nats": round(adaptation.gain_nats, 3),
        "fit_before": round(adaptation.residual_before, 3),
        "fit_after": round(adaptation.residual_after, 3),
    }


def format_adaptation(adaptation: Adaptation, n_files: int) -> str:
    """Describe an adaptation in one line."""
    return (
        f"{adaptation.verdict}: {format_segments(adaptation)} of {n_files} "
        f"recording{'' if n_files == 1 else 's'}, held-out gain {adaptation.gain_nats:+.2f} nats "
        f"per segment, residual {adaptation.residual_before:.2f} before and "
        f"{adaptation.residual_after:.2f} after (1 is the largest usual one)"
    )


def format_segments(adaptation: Adaptation) -> str:
    """Describe the number of usable segments."""
    count = adaptation.recordings
    return f"{count} usable segment{'' if count == 1 else 's'}"
