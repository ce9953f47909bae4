"""How loud a bin must be to be believed, from how often each level was heard.

In: tables by level and cue (`earatlas.features.statistics.LevelStatistics`, `LevelCounts`). Out: a
floor for each cue, in whole dB.

The floor of all bins is relative to the peak. The noise in a bin is the level that its quietest
frames stay below. If those frames have no direction (their phase differences point all ways), they
are noise or reverberation, and a bin must stand well above it. Noise in both ears pulls level
differences to 0 dB; at 10 dB SNR a talker was found 75 degrees off in azimuth without this rule and
3 degrees off with it (`benchmarks/localization.py speech`).
"""

from __future__ import annotations

import numpy as np

from earatlas.features.cues import bin_power
from earatlas.features.layout import CueLayout, Threshold
from earatlas.types import Array, Indices, Spectra

__all__ = ["HIGHEST_DB", "LOWEST_DB", "LevelCounts", "floors_of", "level_rows"]

LOWEST_DB, HIGHEST_DB = -140, 60  # levels outside are counted at the ends
_QUIET_SHARE = 0.15  # of a bin's frames: speech pauses more than that
_DIRECTIONAL = 0.7  # mean phase coherence; 0.1 in noise, 0.25 in a room, above 0.65 without both
_TOO_LITTLE = 0.002  # share of the bins; speech in noise at 10 dB SNR keeps ten times that
_NOISE_MARGIN_DB = 18.0  # 6 and 10 let too much noise in, 14 was half as good at 10 dB SNR
_FRAMES_AT_ONCE = 256  # as many as stay in the cache


def floors_of(
    counts: Array, sums: Array, layout: CueLayout, peak: float, threshold: Threshold
) -> Indices:
    """The level (D,) that each cue's bin must pass, in whole dB.

    By how often (levels, D) bins had each level, and the sums of their cues: phases alone count.
    """
    floors = np.full(layout.n_cues, threshold.floor_db(peak), dtype=np.intp)
    cos, sin = (layout.cue_kinds == kind for kind in ("ipd_cos", "ipd_sin"))
    if not cos.any():
        return floors
    # Digital silence (padding, a gated input) is no noise, and its phase means nothing.
    rows = np.arange(len(counts))[:, None]
    sound = counts * (rows >= int(threshold.absolute_db) - LOWEST_DB)
    below = np.cumsum(sound, axis=0)
    quiet = np.argmax(below >= _QUIET_SHARE * below[-1], axis=0)  # (D,) a row of the table
    heard = (rows >= int(threshold.absolute_db) - LOWEST_DB) & (rows <= quiet)
    seen = np.maximum((counts * heard).sum(axis=0), 1e-300)
    mean = (sums * heard).sum(axis=0) / seen
    if np.hypot(mean[cos], mean[sin]).mean() > _DIRECTIONAL:
        return floors  # the quiet frames come from somewhere too: a steady sound, or its end
    # The powers of noise are exponentially distributed: from their quantile to their mean.
    to_mean_db = -10 * np.log10(-np.log(1 - _QUIET_SHARE))
    noise = quiet + LOWEST_DB + np.ceil(to_mean_db + _NOISE_MARGIN_DB).astype(np.intp)
    raised: Indices = np.maximum(floors, noise)
    if counts[rows >= level_rows(raised)].sum() < _TOO_LITTLE * sound.sum():
        return floors  # nothing stands out: steady sounds from several places, not noise
    return raised


def level_rows(floors_db: Indices) -> Indices:
    """The rows of a table from which on levels pass these floors (D,)."""
    rows: Indices = np.clip(floors_db, LOWEST_DB, HIGHEST_DB) - LOWEST_DB
    return rows


class LevelCounts:
    """What floors need of a sound, and no more: a third of the time of `LevelStatistics`."""

    def __init__(self, layout: CueLayout) -> None:
        self._layout = layout
        self._levels = HIGHEST_DB - LOWEST_DB + 1
        self._counts = np.zeros((self._levels, layout.n_frequencies))
        self._cos, self._sin = np.zeros((2, self._levels, len(layout.ipd_frequencies)))
        self._peak = 0.0

    def push(self, spectra: Spectra) -> None:
        """Count the frames of two-channel spectra (2, B, t)."""
        for start in range(0, spectra.shape[-1], _FRAMES_AT_ONCE):
            self._count(spectra[..., start : start + _FRAMES_AT_ONCE])

    def _count(self, spectra: Spectra) -> None:
        power = bin_power(spectra, self._layout.window).swapaxes(-1, -2)  # (2, t, F)
        self._peak = max(self._peak, float(power.max()))
        with np.errstate(divide="ignore"):
            level = np.log(power.min(axis=0))
        level *= 10 / np.log(10)
        rows = np.clip(np.floor(level, out=level), LOWEST_DB, HIGHEST_DB, out=level)
        rows = rows.astype(np.intp) - LOWEST_DB
        self._counts += _counted(rows, self._levels)
        phases = self._layout.ipd_frequencies
        if len(phases):
            left, right = (ear[phases[0] + 1 : phases[-1] + 2].T for ear in spectra)
            cross = right * left.conj()
            cross /= np.maximum(np.abs(cross), np.finfo(cross.real.dtype).tiny)
            own = rows[:, phases[0] : phases[-1] + 1]
            self._cos += _counted(own, self._levels, cross.real)
            self._sin += _counted(own, self._levels, cross.imag)

    def floors_db(self, threshold: Threshold | None = None) -> Indices:
        """The level (D,) that each cue's bin must pass, as `LevelStatistics.floors_db`."""
        layout = self._layout
        counts = self._counts[:, layout.cue_frequencies]
        sums = np.hstack([np.zeros((self._levels, len(layout.ild_frequencies))), self._cos,
                          self._sin])  # fmt: skip
        return floors_of(counts, sums, layout, self._peak, threshold or Threshold())


def _counted(rows: Indices, levels: int, weights: Array | None = None) -> Array:
    """How often (levels, F), or with what sum of weights (t, F), each row (t, F) occurs."""
    F = rows.shape[1]
    place = (rows * F + np.arange(F)).ravel()
    own = None if weights is None else weights.ravel()
    return np.bincount(place, weights=own, minlength=levels * F).reshape(levels, F).astype(float)
