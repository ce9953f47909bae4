"""Reverberation estimate from the fastest decays of a sound, independent of its directions.

The input is the power of both ears, frame by frame. The output is the time in which the fastest
decays fall by 60 dB. Speech stops abruptly many times per second; in a room its level cannot fall
faster than the reverberation. The measure is the fastest tenth of all segments of 64 ms that begin
well above the quiet level of their band.
"""

from __future__ import annotations

import itertools

import numpy as np

from earatlas.features.level_tables import add_frames
from earatlas.types import Array

__all__ = ["DecayEstimator"]

# Evidence: docs/figures/settings/features.md, "reverberation".
_BAND_EDGES_HZ = (150.0, 400.0, 700.0, 1100.0, 1700.0, 2500.0, 3600.0, 5200.0)  # lower edges
_SEGMENT_SECONDS = 0.064  # duration over which a decay is measured
_LOWEST_DB, _STEP_DB, _N_LEVELS = -160.0, 2.0, 120  # levels of the table
_DEEPEST_DB = 80  # largest decay of the table, which has steps of 1 dB
_ABOVE_QUIET_DB, _BELOW_PEAK_DB = 20.0, 30.0  # range of levels at which a segment may begin
_QUIET_FRACTION = 0.15  # quietest fraction of the frames, which define the quiet level
_FASTEST_FRACTION = 0.1  # fastest fraction of the segments, which define the estimate
_MIN_SEGMENTS = 20.0  # below, there is no estimate
_MIN_COUNT = 1e-3  # frames; levels that have decayed below are no peak any more
_MAX_SCALE = 1e100  # scale of the table at which it is renormalized, to avoid overflow


class DecayEstimator:
    """Histogram of decays within a segment, by band and by the level at which they begin.

    With `forgetting` = g < 1, a segment has the weight g^a after a further frames.
    """

    def __init__(
        self, frequencies_hz: Array, frame_seconds: float, *, forgetting: float = 1.0
    ) -> None:
        band = np.searchsorted(_BAND_EDGES_HZ, frequencies_hz, side="right") - 1
        edges = np.searchsorted(band, np.arange(len(_BAND_EDGES_HZ) + 1))
        self._bands = [slice(low, high) for low, high in itertools.pairwise(edges.tolist())]
        self._lag = max(round(_SEGMENT_SECONDS / frame_seconds), 1)
        self._lag_seconds = self._lag * frame_seconds
        self._forgetting, self._scale = forgetting, 1.0
        self._last_levels = np.zeros((len(_BAND_EDGES_HZ), 0))  # dB, of the last frames
        self._table = np.zeros((_N_LEVELS * (_DEEPEST_DB + 1), len(_BAND_EDGES_HZ)))

    def push(self, power: Array) -> None:
        """Add frames with powers (F, t)."""
        bands = np.stack([power[band].sum(axis=0) for band in self._bands])
        levels = np.hstack([self._last_levels, 10 * np.log10(bands + 1e-20)])
        new = levels.shape[1] - self._lag
        self._last_levels = levels[:, -self._lag :]
        if new <= 0:
            return
        start, end = levels[:, :new], levels[:, self._lag :]
        row = np.clip((start - _LOWEST_DB) / _STEP_DB, 0, _N_LEVELS - 1).astype(np.intp)
        decay_db = np.clip(start - end, 0, _DEEPEST_DB).astype(np.intp)
        weight = self._scale * self._forgetting ** -np.arange(1.0, new + 1)
        rows = (row * (_DEEPEST_DB + 1) + decay_db).T
        add_frames([self._table], rows, [weight[:, None]])
        self._scale = float(weight[-1])
        if self._scale > _MAX_SCALE:
            self._table /= self._scale
            self._scale = 1.0

    def seconds(self) -> float:
        """Return the time in which the fastest decays fall by 60 dB; NaN if there are too few."""
        table = self._table.T.reshape(-1, _N_LEVELS, _DEEPEST_DB + 1) / self._scale
        by_level = table.sum(axis=2)  # (bands, levels)
        cumulative = np.cumsum(by_level, axis=1)
        quiet = np.argmax(cumulative >= _QUIET_FRACTION * cumulative[:, -1:], axis=1)
        occupied = by_level > _MIN_COUNT
        peak = _N_LEVELS - 1 - np.argmax(occupied[:, ::-1], axis=1)
        lowest = np.maximum(quiet + _ABOVE_QUIET_DB / _STEP_DB, peak - _BELOW_PEAK_DB / _STEP_DB)
        valid = (np.arange(_N_LEVELS) >= lowest[:, None]) & occupied.any(axis=1, keepdims=True)
        decays = (table * valid[..., None]).sum(axis=(0, 1))  # segments per dB of decay
        if decays.sum() < _MIN_SEGMENTS:
            return float("nan")
        at_least = np.cumsum(decays[::-1])[::-1]  # segments that decay by this much or more
        fast_db = int(np.flatnonzero(at_least >= _FASTEST_FRACTION * decays.sum())[-1])
        return 60.0 * self._lag_seconds / (fast_db + 0.5)
