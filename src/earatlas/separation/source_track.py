"""Where one source of a scene is over time, how sure that is, and how loud it is.

In: the separated sounds, stretch by stretch, and where each source is. Out: a `SourceTrack` a
source, with a row a quarter of a second. A long recording has longer rows, never more than so many:
a track is of bounded size, and may go into a file or a page as it is.

A source that stands has one direction wherever it is heard. One that is silent has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.types import Array, Mask

__all__ = ["LevelMeter", "Levels", "SourceTrack", "standing_track"]

HOP_SECONDS = 0.25  # from row to row; a syllable is about as long
MOST_ROWS = 1200  # five minutes in rows of a hop
_SILENCE_DB = -120.0  # re a full-scale sine in both ears: below what 16 bits can hold
# A source is heard in rows at most so far below its loudest ones and below all sources together.
# Separated sounds keep some of the other talkers in a source's pauses.
_BELOW_LOUDEST_DB = 30.0
_BELOW_ALL_DB = 20.0


@dataclass(frozen=True, eq=False)
class SourceTrack:
    """Where a source was in each row of time, and how loud; NaN is not heard."""

    seconds: Array  # (W,) middle of each row
    directions: Array  # (W, C) degrees; NaN where it is silent
    radius_90: Array  # (W,) degrees that hold it with a probability of 90 %; NaN where silent
    level_db: Array  # (W,) of its sound, re a full-scale sine in both ears
    moves: bool = False  # whether it is at different places at different times

    def __repr__(self) -> str:
        way = "moves" if self.moves else "stands"
        heard = int(self.heard.sum())
        return f"SourceTrack({len(self.seconds)} rows, heard in {heard}, {way})"

    @property
    def heard(self) -> Mask:
        """(W,) whether there is a direction."""
        return np.asarray(np.isfinite(self.directions).all(axis=1))

    def rows(self) -> list[dict[str, Any]]:
        """Plain JSON values, a row of time each; None where it is silent."""
        return [
            {
                "time": round(float(self.seconds[w]), 3),
                "direction": [round(float(v), 2) for v in self.directions[w]] if heard else None,
                "radius_90": round(float(self.radius_90[w]), 2) if heard else None,
                "level_db": round(float(self.level_db[w]), 1),
            }
            for w, heard in enumerate(self.heard)
        ]


@dataclass(frozen=True, eq=False)
class Levels:
    """How loud M sources are in each row of time."""

    seconds: Array  # (W,)
    level_db: Array  # (M, W) re a full-scale sine in both ears

    @property
    def heard(self) -> Mask:
        """(M, W) where each is loud enough to be heard beside the others."""
        every = 10 * np.log10((10 ** (self.level_db / 10)).sum(axis=0))
        loudest = self.level_db.max(axis=1, keepdims=True)
        least = np.maximum(loudest - _BELOW_LOUDEST_DB, every - _BELOW_ALL_DB)
        heard: Mask = (self.level_db >= least) & (self.level_db > _SILENCE_DB)
        return heard


class LevelMeter:
    """Levels of M sounds of known length that come in stretches."""

    def __init__(self, n_sources: int, *, samples: int, rate: int) -> None:
        """For `samples` at `rate` Hz; rows are longer where there would be too many."""
        self._row = max(round(HOP_SECONDS * rate), -(-samples // MOST_ROWS), 1)  # samples
        self._rate, self._done = rate, 0
        count = max(-(-samples // self._row), 1)
        self._energies = np.zeros((n_sources, count))
        self._counts = np.zeros(count)

    def add(self, sounds: Array) -> None:
        """The next stretch of all sounds (M, 2, n)."""
        n = sounds.shape[-1]
        rows = np.minimum((self._done + np.arange(n)) // self._row, len(self._counts) - 1)
        self._counts += np.bincount(rows, minlength=len(self._counts))
        for m, sound in enumerate(sounds):
            power = (sound**2).sum(axis=0)
            self._energies[m] += np.bincount(rows, power, len(self._counts))
        self._done += n

    def levels(self) -> Levels:
        """Of all that was added; a full-scale sine in both ears has 0 dB."""
        heard = max(int(np.count_nonzero(self._counts)), 1)
        counts = np.maximum(self._counts[:heard], 1)
        middle = (np.arange(heard) + 0.5) * self._row
        power = self._energies[:, :heard] / counts
        level = 10 * np.log10(np.maximum(power, 10 ** (_SILENCE_DB / 10)))
        return Levels(middle / self._rate, level)


def standing_track(posterior: DirectionPosterior, levels: Levels, m: int) -> SourceTrack:
    """Source m in one place, wherever it is heard."""
    heard = levels.heard[m]
    directions = np.where(heard[:, None], posterior.best, np.nan)
    radius = np.where(heard, posterior.radius_90, np.nan)
    return SourceTrack(levels.seconds, directions, radius, levels.level_db[m])
