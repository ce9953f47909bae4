"""How loud a bin must be to be believed, from how often each level was heard.

In: tables by level and cue (`earatlas.hearing.statistics.LevelStatistics`, `LevelCounts`). Out: a
floor for each cue, in whole dB.

The floor of all bins is relative to the peak. The noise in a bin is the level that its quietest
frames stay below. If those frames have no direction (their phase differences point all ways), they
are noise or reverberation, and a bin must stand well above it. Noise in both ears pulls level
differences to 0 dB; at 10 dB SNR a talker was found 75 degrees off in azimuth without this rule and
3 degrees off with it (`benchmarks/localization.py speech`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from earatlas.hearing.layout import CueLayout, Threshold
from earatlas.hearing.loud_bins import LoudBins
from earatlas.hearing.transform import squared_size
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

    def __init__(self, layout: CueLayout, threshold: Threshold | None = None) -> None:
        self._layout, self._threshold = layout, threshold or Threshold()
        self._levels = HIGHEST_DB - LOWEST_DB + 1
        self._counts = np.zeros((self._levels, layout.n_frequencies))
        self._cos, self._sin = np.zeros((2, self._levels, len(layout.ipd_frequencies)))
        self._peak = 0.0

    def push(self, spectra: Spectra) -> Iterator[LoudBins]:
        """Count the frames of two-channel spectra (2, B, t); those that may be heard by now."""
        for start in range(0, spectra.shape[-1], _FRAMES_AT_ONCE):
            yield self._count(spectra[..., start : start + _FRAMES_AT_ONCE])

    def _count(self, spectra: Spectra) -> LoudBins:
        scale = (self._layout.window / 4) ** 2  # of a full-scale sine
        power = squared_size(spectra[:, 1:]).swapaxes(-1, -2)  # (2, t, F)
        self._peak = max(self._peak, float(power.max()) / scale)
        weaker = power.min(axis=0)
        with np.errstate(divide="ignore"):
            level = np.log(weaker)
        level *= 10 / np.log(10)
        level -= 10 * np.log10(scale)
        rows = np.clip(np.floor(level, out=level), LOWEST_DB, HIGHEST_DB, out=level)
        rows -= LOWEST_DB
        self._counts += _counted(rows, self._levels)
        phases = self._layout.ipd_frequencies
        if len(phases):
            band = slice(phases[0], phases[-1] + 1)
            left, right = spectra[:, 1:][:, band].swapaxes(-1, -2)
            size = np.sqrt(power[0, :, band] * power[1, :, band])
            size = np.maximum(size, np.finfo(size.dtype).tiny)
            cross = right * left.conj()
            self._cos += _counted(rows[:, band], self._levels, cross.real / size)
            self._sin += _counted(rows[:, band], self._levels, cross.imag / size)
        return LoudBins.above(spectra, weaker, self._threshold.floor(self._peak) * scale)

    def floors_db(self) -> Indices:
        """The level (D,) that each cue's bin must pass, as `LevelStatistics.floors_db`."""
        layout = self._layout
        counts = self._counts[:, layout.cue_frequencies]
        sums = np.hstack([np.zeros((self._levels, len(layout.ild_frequencies))), self._cos,
                          self._sin])  # fmt: skip
        return floors_of(counts, sums, layout, self._peak, self._threshold)


def _counted(rows: Array, levels: int, weights: Array | None = None) -> Array:
    """How often (levels, F), or with what sum of weights (t, F), each row (t, F) occurs."""
    F = rows.shape[1]
    place = rows * F  # whole numbers: exact in single precision, too
    place += np.arange(F, dtype=rows.dtype)
    own = None if weights is None else weights.ravel()
    counts = np.bincount(place.astype(np.intp).ravel(), own, minlength=levels * F)
    return np.asarray(counts, dtype=np.float64).reshape(levels, F)
