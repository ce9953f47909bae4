"""Noise floor: the level that the bin of each cue must reach to be observed.

The inputs are tables by level and cue (`LevelStatistics` in `earatlas.features.statistics`, or
`LevelHistogram`). The output is one floor per cue in whole dB.

The minimum floor is relative to the peak of the recording. The quietest frames of a bin tell its
noise level. If they have no common direction, that is, if their phase differences are random, they
are noise or reverberation, which pull level differences towards 0 dB; then the floor is raised
above the noise.
"""

from __future__ import annotations

import numpy as np

from earatlas.features.cues import bin_power
from earatlas.features.layout import CueLayout, Threshold
from earatlas.types import Array, Indices, Spectra

__all__ = ["HIGHEST_DB", "LOWEST_DB", "LevelHistogram", "estimate_floors_db", "level_table_rows"]

# Evidence: docs/figures/settings/features.md, "noise_floor".
LOWEST_DB, HIGHEST_DB = -140, 60  # range of the tables; levels outside count at its ends
_QUIET_FRACTION = 0.15  # quietest fraction of the frames of a bin, which define its noise
_MIN_DIRECTIONAL_COHERENCE = 0.7  # mean phase coherence above which quiet frames are no noise
_MIN_OBSERVED_FRACTION = 0.002  # fraction of the bins; if fewer remain, the floor is not raised
_NOISE_MARGIN_DB = 18.0  # margin of the floor above the mean noise power
_FRAMES_AT_ONCE = 256  # frames processed together, as many as fit into the cache


def estimate_floors_db(
    counts: Array, sums: Array, layout: CueLayout, peak: float, threshold: Threshold
) -> Indices:
    """Return the level (D,) in whole dB that the bin of each cue must reach.

    `counts` (levels, D) is how often the bin of each cue had each level, and `sums` (levels, D) the
    sums of the cues at that level, of which only those of the phases are used. `peak` is the power
    of the strongest bin.
    """
    floors = np.full(layout.n_cues, threshold.floor_db(peak), dtype=np.intp)
    cos, sin = (layout.cue_kinds == kind for kind in ("ipd_cos", "ipd_sin"))
    if not cos.any():
        return floors
    # Exclude digital silence (padding, a muted input), whose phase is meaningless.
    rows = np.arange(len(counts))[:, None]
    sound = counts * (rows >= int(threshold.absolute_db) - LOWEST_DB)
    cumulative = np.cumsum(sound, axis=0)
    quiet = np.argmax(cumulative >= _QUIET_FRACTION * cumulative[-1], axis=0)  # (D,), table rows
    is_quiet = (rows >= int(threshold.absolute_db) - LOWEST_DB) & (rows <= quiet)
    n_quiet = np.maximum((counts * is_quiet).sum(axis=0), 1e-300)
    mean = (sums * is_quiet).sum(axis=0) / n_quiet
    if np.hypot(mean[cos], mean[sin]).mean() > _MIN_DIRECTIONAL_COHERENCE:
        return floors  # the quiet frames have a direction: a steady sound, or its decay
    # The powers of noise are exponentially distributed, which relates the quantile to the mean.
    to_mean_db = -10 * np.log10(-np.log(1 - _QUIET_FRACTION))
    noise = quiet + LOWEST_DB + np.ceil(to_mean_db + _NOISE_MARGIN_DB).astype(np.intp)
    raised: Indices = np.maximum(floors, noise)
    if counts[rows >= level_table_rows(raised)].sum() < _MIN_OBSERVED_FRACTION * sound.sum():
        return floors  # nothing exceeds the noise: several steady sounds rather than noise
    return raised


def level_table_rows(floors_db: Indices) -> Indices:
    """Return the first row of a level table that is above each floor (D,) in dB."""
    rows: Indices = np.clip(floors_db, LOWEST_DB, HIGHEST_DB) - LOWEST_DB
    return rows


class LevelHistogram:
    """Histogram of levels, sufficient for the floors; three times as fast as `LevelStatistics`."""

    def __init__(self, layout: CueLayout) -> None:
        self._layout = layout
        self._n_levels = HIGHEST_DB - LOWEST_DB + 1
        self._counts = np.zeros((self._n_levels, layout.n_frequencies))
        self._cos, self._sin = np.zeros((2, self._n_levels, len(layout.ipd_frequencies)))
        self._peak = 0.0

    def push(self, spectra: Spectra) -> None:
        """Add the frames of two-channel spectra (2, B, t)."""
        for start in range(0, spectra.shape[-1], _FRAMES_AT_ONCE):
            self._add(spectra[..., start : start + _FRAMES_AT_ONCE])

    def _add(self, spectra: Spectra) -> None:
        power = bin_power(spectra, self._layout.window).swapaxes(-1, -2)  # (2, t, F)
        self._peak = max(self._peak, float(power.max()))
        with np.errstate(divide="ignore"):
            level = np.log(power.min(axis=0))
        level *= 10 / np.log(10)
        rows = np.clip(np.floor(level, out=level), LOWEST_DB, HIGHEST_DB, out=level)
        rows = rows.astype(np.intp) - LOWEST_DB
        self._counts += _histogram(rows, self._n_levels)
        band = self._layout.ipd_frequencies
        if len(band):
            left, right = (ear[band[0] + 1 : band[-1] + 2].T for ear in spectra)
            cross = right * left.conj()
            cross /= np.maximum(np.abs(cross), np.finfo(cross.real.dtype).tiny)
            band_rows = rows[:, band[0] : band[-1] + 1]
            self._cos += _histogram(band_rows, self._n_levels, cross.real)
            self._sin += _histogram(band_rows, self._n_levels, cross.imag)

    def floors_db(self, threshold: Threshold | None = None) -> Indices:
        """Return the level (D,) in whole dB that the bin of each cue must reach."""
        layout = self._layout
        counts = self._counts[:, layout.cue_frequencies]
        no_ild = np.zeros((self._n_levels, len(layout.ild_frequencies)))
        sums = np.hstack([no_ild, self._cos, self._sin])
        return estimate_floors_db(counts, sums, layout, self._peak, threshold or Threshold())


def _histogram(rows: Indices, levels: int, weights: Array | None = None) -> Array:
    """Return the histogram (levels, F) of rows (t, F), optionally with weights (t, F)."""
    F = rows.shape[1]
    index = (rows * F + np.arange(F)).ravel()
    flat = None if weights is None else weights.ravel()
    return np.bincount(index, weights=flat, minlength=levels * F).reshape(levels, F).astype(float)
