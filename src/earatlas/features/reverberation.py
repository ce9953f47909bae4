"""How fast sound dies away: what tells a room from the open, whatever comes from where.

In: powers of both ears, as they come. Out: the time in which the fastest decays fall by 60 dB.
Speech stops abruptly, many times a second; in a room it cannot fall faster than the room lets it.
Of all stretches of 64 ms that begin well above the quiet of their band, the tenth that falls most
is the measure. One talker of 3 s (40 each): 0.12 to 0.19 s in the open, 0.14 to 0.21 in noise at
20 to 10 dB, 0.17 to 0.22 at T60 0.2 s, 0.26 to 0.32 at 0.3 s, 0.38 to 0.46 at 0.5 s; in random
rooms its logarithm correlates with that of T60 by 0.95.
"""

from __future__ import annotations

import itertools

import numpy as np

from earatlas.features.level_tables import add_frames
from earatlas.types import Array

__all__ = ["DecayStream"]

_EDGES_HZ = (
    150.0,
    400.0,
    700.0,
    1100.0,
    1700.0,
    2500.0,
    3600.0,
    5200.0,
)  # of the bands, from below
_STRETCH_SECONDS = 0.064
_LOWEST_DB, _STEP_DB, _LEVELS = -160.0, 2.0, 120
_DEEPEST_DB = 80  # falls are counted by whole dB
_ABOVE_QUIET_DB, _BELOW_PEAK_DB = 20.0, 30.0  # where a stretch must begin
_QUIET_SHARE = 0.15
_FASTEST = 0.1  # of the stretches
_FEWEST = 20.0  # stretches that tell anything


class DecayStream:
    """Counts how far sound falls within a stretch, by band and by the level that it falls from.

    With `forgetting` = g < 1 a stretch counts g^a after a frames.
    """

    def __init__(
        self, frequencies_hz: Array, frame_seconds: float, *, forgetting: float = 1.0
    ) -> None:
        band = np.searchsorted(_EDGES_HZ, frequencies_hz, side="right") - 1
        edges = np.searchsorted(band, np.arange(len(_EDGES_HZ) + 1))
        self._bands = [slice(low, high) for low, high in itertools.pairwise(edges.tolist())]
        self._lag = max(round(_STRETCH_SECONDS / frame_seconds), 1)
        self._seconds = self._lag * frame_seconds
        self._forgetting, self._scale = forgetting, 1.0
        self._before = np.zeros((len(_EDGES_HZ), 0))  # levels of the last frames
        self._table = np.zeros((_LEVELS * (_DEEPEST_DB + 1), len(_EDGES_HZ)))

    def push(self, power: Array) -> None:
        """Take in powers (F, t), frame after frame."""
        bands = np.stack([power[own].sum(axis=0) for own in self._bands])
        levels = np.hstack([self._before, 10 * np.log10(bands + 1e-20)])
        new = levels.shape[1] - self._lag
        self._before = levels[:, -self._lag :]
        if new <= 0:
            return
        start, end = levels[:, :new], levels[:, self._lag :]
        row = np.clip((start - _LOWEST_DB) / _STEP_DB, 0, _LEVELS - 1).astype(np.intp)
        fall = np.clip(start - end, 0, _DEEPEST_DB).astype(np.intp)
        worth = self._scale * self._forgetting ** -np.arange(1.0, new + 1)
        place = (row * (_DEEPEST_DB + 1) + fall).T
        add_frames([self._table], place, [worth[:, None]])
        self._scale = float(worth[-1])
        if self._scale > 1e100:
            self._table /= self._scale
            self._scale = 1.0

    def seconds(self) -> float:
        """In which the fastest decays would fall by 60 dB; NaN: too little was heard to tell."""
        table = self._table.T.reshape(-1, _LEVELS, _DEEPEST_DB + 1) / self._scale
        by_level = table.sum(axis=2)  # (bands, levels)
        below = np.cumsum(by_level, axis=1)
        quiet = np.argmax(below >= _QUIET_SHARE * below[:, -1:], axis=1)
        # What has faded to a thousandth of a frame is no peak any more.
        heard = by_level > 1e-3
        peak = _LEVELS - 1 - np.argmax(heard[:, ::-1], axis=1)
        least = np.maximum(quiet + _ABOVE_QUIET_DB / _STEP_DB, peak - _BELOW_PEAK_DB / _STEP_DB)
        begins = (np.arange(_LEVELS) >= least[:, None]) & heard.any(axis=1, keepdims=True)
        falls = (table * begins[..., None]).sum(axis=(0, 1))
        if falls.sum() < _FEWEST:
            return float("nan")
        deeper = np.cumsum(falls[::-1])[::-1]  # so many fall by this much or more
        fast = int(np.flatnonzero(deeper >= _FASTEST * falls.sum())[-1])
        return 60.0 * self._seconds / (fast + 0.5)
