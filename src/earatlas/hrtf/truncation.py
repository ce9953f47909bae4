"""The direct sound of responses that were measured in a room: the head, without the room.

In: impulse responses of a room. Out: the first milliseconds of each, which are the head's: a head's
response lasts about 3 ms, and what a room sends back comes later. One window, from the ear that
hears it first, serves both ears, so delay and level between them stay as they are.

    p(t)   power of both ears, averaged over 0.25 ms
    onset  where p first passes the larger of peak - 20 dB and median + 9 dB
    w(t)   rises before the onset, is 1 for half of the window, and falls as a half-Hann

    h (N, 2, taps)  ->  (N, 2, lead + window)
"""

from __future__ import annotations

import numpy as np

from earatlas.errors import InputError
from earatlas.types import Array, Indices

__all__ = ["DIRECT_SECONDS", "direct_responses", "onsets"]

# Mean errors of level against the head in the open, over 60 directions and 150 to 7800 Hz: ku100 in
# two shoebox rooms (T60 0.3, 0.5 s) and in rooms made from it, cipic_021 (shoulders) in a shoebox.
#   2 ms  0.5, 0.6, 1.0, 0.4 dB      3 ms  0.1, 0.5, 1.7, 0.2 dB      4 ms  0.3, 0.9, 2.4, 0.6 dB
#   2.5   0.2, 0.4, 1.2, 0.3         3.5   between                    6     1.2, 2.1, 3.4
# Below 500 Hz shorter ones cut off what shoulders do: 1.9 dB at 2 ms, 0.6 at 2.5, 0.4 at 3.
DIRECT_SECONDS = 3e-3
_SHORTEST_SECONDS = 1e-3  # the far ear hears up to 0.8 ms later than the near one
_SMOOTH_SECONDS = 0.25e-3
_BELOW_PEAK_DB = 20.0  # ISO 3382: where an impulse response begins
_ABOVE_USUAL_DB = 9.0  # noise averaged so passes its median by 6 dB at most
_CLEAR_DB = 13.0  # of the peak above the median: white noise has 8 at most, measured heads 20 to 67
_LEAD_SECONDS = 0.5e-3  # kept before the onset: what rises to it
_FADE_SHARE = 0.5  # of the window; a quarter lets more of the room in, four fifths cut the head


def onsets(responses: Array, rate: float) -> Indices:
    """The sample (N,) at which the first sound reaches the ears; an InputError where none does."""
    from scipy.ndimage import uniform_filter1d  # a tenth of a second, and only rooms need it

    width = max(round(_SMOOTH_SECONDS * rate), 1)
    power = uniform_filter1d((responses**2).sum(axis=1), width, axis=-1, mode="constant")
    peak, usual = power.max(axis=1), np.median(power, axis=1)
    unclear = ~(peak > usual * 10 ** (_CLEAR_DB / 10))
    if unclear.any():
        raise InputError(
            f"responses must have a clear onset to keep their direct sound, got none in "
            f"{unclear.sum()} of {len(power)}, first response {int(np.argmax(unclear))}. Measure "
            "again with less noise, or leave those directions out."
        )
    floor = np.maximum(peak * 10 ** (-_BELOW_PEAK_DB / 10), usual * 10 ** (_ABOVE_USUAL_DB / 10))
    first: Indices = np.argmax(power > floor[:, None], axis=1)
    return first


def direct_responses(responses: Array, rate: float, window_seconds: float) -> Array:
    """The direct sound (N, 2, n) of responses (N, 2, taps): so many seconds from its onset on."""
    _check(window_seconds, responses.shape[-1] / rate)
    lead, length = round(_LEAD_SECONDS * rate), round(window_seconds * rate)
    start = onsets(responses, rate)
    # Silence around them: a response may begin with its onset, or end before the window does.
    padded = np.pad(responses, ((0, 0), (0, 0), (lead, length)))
    places = start[:, None] + np.arange(lead + length)
    kept = np.take_along_axis(padded, places[:, None], axis=-1)
    return kept * _window(lead, length)


def _check(window_seconds: float, response_seconds: float) -> None:
    shortest, longest = 1000 * _SHORTEST_SECONDS, 1000 * response_seconds
    if not window_seconds >= _SHORTEST_SECONDS:
        raise InputError(
            f"direct window must be at least {shortest:g} ms, which a head needs, got "
            f"{1000 * window_seconds:g} ms. {1000 * DIRECT_SECONDS:g} ms is the default."
        )
    if window_seconds > response_seconds:
        raise InputError(
            f"direct window must be no longer than the responses ({longest:.3g} ms), got "
            f"{1000 * window_seconds:g} ms. {1000 * DIRECT_SECONDS:g} ms is the default."
        )


def _window(lead: int, length: int) -> Array:
    """(lead + length,): a rise, ones, and a half-Hann that ends at 0."""
    fade = max(round(_FADE_SHARE * length), 1)
    rise = 0.5 - 0.5 * np.cos(np.pi * (np.arange(lead) + 1) / (lead + 1))
    fall = 0.5 + 0.5 * np.cos(np.pi * (np.arange(fade) + 1) / (fade + 1))
    return np.concatenate([rise, np.ones(length - fade), fall])
