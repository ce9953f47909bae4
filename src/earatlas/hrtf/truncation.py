"""Truncation of room impulse responses to the direct sound, which removes the room.

The response of a head lasts about 3 ms; reflections arrive later. One window, which begins at the
ear that receives the sound first, is applied to both ears, so that interaural delay and level
difference are unchanged.

    p(t)   power of both ears, averaged over 0.25 ms
    onset  where p first exceeds the larger of peak - 20 dB and median + 9 dB
    w(t)   window: rises before the onset, is 1 for half of its duration, falls as a half-Hann

    h (N, 2, taps)  ->  (N, 2, lead + window)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.errors import InputError
from earatlas.numerics import moving_mean
from earatlas.types import Array, Indices

__all__ = ["TRUNCATION", "TruncationSettings", "find_onsets", "truncate_to_direct_sound"]


# Evidence: docs/figures/settings/hrtf.md, "truncation".
@dataclass(frozen=True, slots=True)
class TruncationSettings:
    """Parameters of the onset detection and of the window."""

    window_seconds: float = 3e-3  # duration of the direct sound
    min_window_seconds: float = 1e-3  # shortest window; interaural delays reach 0.8 ms
    smoothing_seconds: float = 0.25e-3  # averaging time of the power p(t)
    onset_below_peak_db: float = 20.0  # level of the onset below the peak (ISO 3382)
    onset_above_median_db: float = 9.0  # minimum level of the onset above the median
    min_peak_db: float = 13.0  # level of the peak above the median that makes an onset clear
    lead_seconds: float = 0.5e-3  # duration kept before the onset
    fade_fraction: float = 0.5  # fraction of the window that fades out


TRUNCATION = TruncationSettings()


def find_onsets(
    responses: Array, rate: float, settings: TruncationSettings = TRUNCATION
) -> Indices:
    """Return the first sample (N,) of the direct sound of responses (N, 2, taps).

    Raises InputError if a response has no clear onset.
    """
    width = max(round(settings.smoothing_seconds * rate), 1)
    power = moving_mean((responses**2).sum(axis=1), width, mode="constant")
    peak, median = power.max(axis=1), np.median(power, axis=1)
    unclear = ~(peak > median * 10 ** (settings.min_peak_db / 10))
    if unclear.any():
        raise InputError(
            f"{unclear.sum()} of {len(power)} impulse responses have no clear onset (the first is "
            f"response {int(np.argmax(unclear))}), so their direct sound cannot be found. Measure "
            "again with less noise, or leave those directions out."
        )
    floor = np.maximum(
        peak * 10 ** (-settings.onset_below_peak_db / 10),
        median * 10 ** (settings.onset_above_median_db / 10),
    )
    first: Indices = np.argmax(power > floor[:, None], axis=1)
    return first


def truncate_to_direct_sound(
    responses: Array, rate: float, settings: TruncationSettings = TRUNCATION
) -> Array:
    """Return the direct sound (N, 2, n) of responses (N, 2, taps), windowed from its onset on."""
    _check_window(settings, responses.shape[-1] / rate)
    lead = round(settings.lead_seconds * rate)
    length = round(settings.window_seconds * rate)
    start = find_onsets(responses, rate, settings)
    # Pad with zeros: a response may begin with its onset, or end before the window does.
    padded = np.pad(responses, ((0, 0), (0, 0), (lead, length)))
    samples = start[:, None] + np.arange(lead + length)
    direct = np.take_along_axis(padded, samples[:, None], axis=-1)
    return direct * _window(lead, length, settings.fade_fraction)


def _check_window(settings: TruncationSettings, response_seconds: float) -> None:
    """Raise InputError for a window that is too short, or longer than the responses."""
    window_seconds = settings.window_seconds
    min_ms, max_ms = 1000 * settings.min_window_seconds, 1000 * response_seconds
    default_ms = 1000 * TRUNCATION.window_seconds
    if not window_seconds >= settings.min_window_seconds:
        raise InputError(
            f"The window of the direct sound must be at least {min_ms:g} ms to contain the "
            f"response of a head, got {1000 * window_seconds:g} ms. The default is "
            f"{default_ms:g} ms."
        )
    if window_seconds > response_seconds:
        raise InputError(
            f"The window of the direct sound must be no longer than the responses ({max_ms:.3g} "
            f"ms), got {1000 * window_seconds:g} ms. The default is {default_ms:g} ms."
        )


def _window(lead: int, length: int, fade_fraction: float) -> Array:
    """Return the window (lead + length,): a rise, ones, and a half-Hann that ends at 0."""
    fade = max(round(fade_fraction * length), 1)
    rise = 0.5 - 0.5 * np.cos(np.pi * (np.arange(lead) + 1) / (lead + 1))
    fall = 0.5 + 0.5 * np.cos(np.pi * (np.arange(fade) + 1) / (fade + 1))
    return np.concatenate([rise, np.ones(length - fade), fall])
