"""Direction, uncertainty and level of each source over time.

Input: the separated signals, segment by segment, and the direction of each source. Output: one
`SourceTrack` per source, with one row per quarter of a second. Long recordings have longer rows, so
the number of rows is bounded and a track can be stored in a file or a page.

A static source has the same direction in every row in which it is active. A silent source has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.types import Array, Mask

__all__ = ["LevelMeter", "SourceLevels", "SourceTrack", "static_track"]

HOP_SECONDS = 0.25  # duration of a row, about a syllable
MAX_ROWS = 1200  # five minutes in rows of `HOP_SECONDS`
_SILENCE_DB = -120.0  # dB re a full-scale sine in both ears, below the resolution of 16 bits
# Level range of an active source: separated signals retain some of other talkers in its pauses.
_BELOW_LOUDEST_DB = 30.0  # largest distance below its loudest row, dB
_BELOW_TOTAL_DB = 20.0  # largest distance below the sum of all sources, dB


@dataclass(frozen=True, eq=False)
class SourceTrack:
    """Direction and level of a source in W rows of time; NaN where it is silent."""

    seconds: Array  # (W,) centre of each row
    directions: Array  # (W, C) degrees; NaN where the source is silent
    radius_90: Array  # (W,) degrees that hold it with a probability of 90 %; NaN where silent
    level_db: Array  # (W,) dB re a full-scale sine in both ears
    moves: bool = False  # whether the direction changes over time

    def __repr__(self) -> str:
        motion = "moving" if self.moves else "static"
        return (
            f"SourceTrack({len(self.seconds)} rows, active in {int(self.active.sum())}, {motion})"
        )

    @property
    def active(self) -> Mask:
        """Whether the source is active, and so has a direction, in each row (W,)."""
        return np.asarray(np.isfinite(self.directions).all(axis=1))

    def rows(self) -> list[dict[str, Any]]:
        """Return plain JSON values, one entry per row; None where the source is silent."""
        return [
            {
                "time": round(float(self.seconds[w]), 3),
                "direction": [round(float(v), 2) for v in self.directions[w]] if active else None,
                "radius_90": round(float(self.radius_90[w]), 2) if active else None,
                "level_db": round(float(self.level_db[w]), 1),
            }
            for w, active in enumerate(self.active)
        ]


@dataclass(frozen=True, eq=False)
class SourceLevels:
    """Levels of M sources in W rows of time."""

    seconds: Array  # (W,)
    level_db: Array  # (M, W) dB re a full-scale sine in both ears

    @property
    def active(self) -> Mask:
        """Whether each source is active, and loud enough against the others, (M, W)."""
        total = 10 * np.log10((10 ** (self.level_db / 10)).sum(axis=0))
        loudest = self.level_db.max(axis=1, keepdims=True)
        threshold = np.maximum(loudest - _BELOW_LOUDEST_DB, total - _BELOW_TOTAL_DB)
        active: Mask = (self.level_db >= threshold) & (self.level_db > _SILENCE_DB)
        return active


class LevelMeter:
    """Levels of M signals of known length that arrive in segments."""

    def __init__(self, n_sources: int, *, samples: int, rate: int) -> None:
        """Meter `samples` at `rate` Hz; rows are longer if there would be too many."""
        self._row = max(round(HOP_SECONDS * rate), -(-samples // MAX_ROWS), 1)  # samples
        self._rate, self._done = rate, 0
        count = max(-(-samples // self._row), 1)
        self._energies = np.zeros((n_sources, count))
        self._counts = np.zeros(count)

    def add(self, signals: Array) -> None:
        """Add the next segment of all signals (M, 2, n)."""
        n = signals.shape[-1]
        rows = np.minimum((self._done + np.arange(n)) // self._row, len(self._counts) - 1)
        self._counts += np.bincount(rows, minlength=len(self._counts))
        for m, signal in enumerate(signals):
            power = (signal**2).sum(axis=0)
            self._energies[m] += np.bincount(rows, power, len(self._counts))
        self._done += n

    def levels(self) -> SourceLevels:
        """Return the levels of everything that was added; a full-scale sine has 0 dB."""
        n_rows = max(int(np.count_nonzero(self._counts)), 1)
        counts = np.maximum(self._counts[:n_rows], 1)
        middle = (np.arange(n_rows) + 0.5) * self._row
        power = self._energies[:, :n_rows] / counts
        level = 10 * np.log10(np.maximum(power, 10 ** (_SILENCE_DB / 10)))
        return SourceLevels(middle / self._rate, level)


def static_track(posterior: DirectionPosterior, levels: SourceLevels, m: int) -> SourceTrack:
    """Return the track of source m with the same direction in every active row."""
    active = levels.active[m]
    directions = np.where(active[:, None], posterior.best, np.nan)
    radius = np.where(active, posterior.radius_90, np.nan)
    return SourceTrack(levels.seconds, directions, radius, levels.level_db[m])
