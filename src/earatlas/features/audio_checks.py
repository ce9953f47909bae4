"""Checks of binaural audio before its cues are computed; all of them raise InputError."""

from __future__ import annotations

import numpy as np

from earatlas.errors import InputError
from earatlas.features.audio import MAX_ABS_SAMPLE, Audio
from earatlas.features.layout import CueLayout

__all__ = ["check_audio", "check_binaural", "check_length", "no_observed_bins_error"]


def check_binaural(audio: Audio) -> None:
    """Raise InputError if `audio` is not an Audio with two channels."""
    if not isinstance(audio, Audio):
        raise InputError(
            f"audio must be an Audio, got {type(audio).__name__}. Use read_audio(path), or "
            "Audio(samples, rate) for an array of shape (2, n)."
        )
    if audio.channels != 2:
        found = "only one channel" if audio.channels == 1 else f"{audio.channels} channels"
        raise InputError(
            f"The audio has {found}. Two channels are needed, left ear and right ear, to compute "
            "interaural cues. Record both ears, or select their two channels."
        )


def check_audio(audio: Audio, layout: CueLayout) -> Audio:
    """Return the audio at the rate of the layout; raise InputError if it can give no cues."""
    check_binaural(audio)
    if not np.isfinite(audio.samples).all():
        raise InputError(
            "The audio must be finite, got NaN or infinity among its samples. Repair or cut it."
        )
    if np.abs(audio.samples).max(initial=0.0) >= MAX_ABS_SAMPLE:
        raise InputError(
            f"The audio must not be beyond a million times full scale, got "
            f"{np.abs(audio.samples).max():.3g}. Divide the samples by their full scale."
        )
    if not audio.samples.any():
        raise InputError("The audio is silent: all samples are zero. Check the recording.")
    audio = audio.at_rate(layout.rate)
    check_length(audio.samples.shape[1], layout)
    return audio


def no_observed_bins_error(doubt: str | None = None) -> InputError:
    """Return the error for a recording that has no bin above the thresholds.

    `doubt`: the fault of the input that explains it.
    """
    if doubt is not None:
        return InputError(f"The audio has no sound in both ears at once; {doubt}")
    return InputError(
        "The audio is too quiet: no sound exceeds the thresholds in both ears at once. "
        "Record at a higher level, or lower the threshold (in Python: threshold=)."
    )


def check_length(samples: int, layout: CueLayout) -> None:
    """Raise InputError if a number of samples is shorter than the window of the layout."""
    if samples < layout.window:
        raise InputError(
            f"The audio is too short: it lasts {1000 * samples / layout.rate:.1f} ms, and at least "
            f"one window of {1000 * layout.window / layout.rate:.0f} ms is needed. Record longer."
        )
