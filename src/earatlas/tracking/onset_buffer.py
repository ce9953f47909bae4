"""What arrived lately: onsets of the last moments, and how well each fits every direction.

In: onsets (`earatlas.features.onset_detector`) a step at a time, and how the head was turned then. Out: the
density of each around places of the room, relative to diffuse sound (`earatlas.localization.onset_likelihood`).

Of each step the bins that rise most are kept, equally many of a loud one and of a quiet one: the
first word after a silence rises above all others, and would be all that is listened to for seconds.

Places are the room's. A bin that was heard with the head turned by ψ tells of place x what it tells
a still head of x - ψ; with a head that stays at 0 the two are the same.

    B bins of the last moments    G coarse places, all round    P fine places around a track
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from earatlas.features.onset_detector import OnsetBins
from earatlas.geometry.angles import to_vectors
from earatlas.localization.onset_likelihood import LEVELS, DirectSound, bin_class, bin_weights
from earatlas.types import Array, Indices, Single

__all__ = ["Arrivals"]

_TURN_DEGREES = 2.0  # bins of a turning head that are closer go together
_MOST = 50  # bins of a step; the 800 strongest of 2 s, whatever their step, counted alike


@dataclass(frozen=True, eq=False)
class _Step:
    """The bins of one step."""

    f: Indices  # (b,)
    kind: Indices  # (b,) of the table of densities
    seen: Single  # (b, 3)
    turns: Array  # (b,) degrees
    ages: Array  # (b,) seconds before the end of the step
    densities: Single  # (b, G)


class Arrivals:
    """The onsets of the last `steps` steps."""

    def __init__(self, sound: DirectSound, steps: int) -> None:
        from scipy.spatial import cKDTree

        self._sound = sound
        self._frame_seconds = sound.gate.hop / sound.gate.rate
        self._table = np.exp(sound.log_densities)
        self.places = sound.grid[sound.cells[0]]  # (G, C)
        self.vectors = to_vectors(self.places)
        elevations = np.unique(self.places[:, 1])
        self.elevation = float(elevations[0]) if len(elevations) == 1 else None  # if all have one
        self._tree = cKDTree(to_vectors(sound.grid))
        self._coarse = sound.points(sound.cells[0])  # (F, 3, G) of a still head
        self.most_steps = steps
        self._steps: deque[_Step] = deque(maxlen=steps)
        self._gather(0.0)

    def add(self, new: OnsetBins, turns: Array, now: int, seconds: float) -> None:
        """Take in the bins of a step of so many seconds, with the head's yaw (b,) in each.

        They are in order of frequency; `now` is the number of frames so far.
        """
        order = np.sort(np.argsort(-new.rise_db, kind="stable")[:_MOST])
        new, turns = new[order], turns[order]
        kind = bin_class(new.rise_db, self._sound.gate.frequencies_hz[new.f])
        ages = self._frame_seconds * (now - new.t).astype(np.float64)
        densities = self._coarsely(new, turns)
        self._steps.append(_Step(new.f, kind, self._sound.seen(new), turns, ages, densities))
        self._gather(seconds)

    def _gather(self, seconds: float) -> None:
        """All steps in one, the oldest first."""
        steps = list(self._steps)
        self.lengths = np.array([len(step.f) for step in steps], dtype=np.intp)
        nothing = np.zeros(0, dtype=np.intp)
        self._f = np.concatenate([nothing, *(s.f for s in steps)])
        self._kind = np.concatenate([nothing, *(s.kind for s in steps)])
        self._turns = np.concatenate([np.zeros(0), *(s.turns for s in steps)])
        blank = np.zeros((0, 3), dtype=np.float32)
        self._seen: Single = np.concatenate([blank, *(s.seen for s in steps)])
        blank = np.zeros((0, len(self.places)), dtype=np.float32)
        self.densities: Single = np.concatenate([blank, *(s.densities for s in steps)])  # (B, G)
        back = seconds * np.arange(len(steps) - 1, -1, -1.0)
        self.step_ages = back + seconds / 2  # of the middle of each step
        self.ages = np.concatenate(
            [np.zeros(0), *(s.ages + b for s, b in zip(steps, back, strict=True))]
        )
        self.weights = bin_weights(self._f)  # v (B,): a frequency has about one vote

    def __len__(self) -> int:
        return len(self._f)

    @property
    def new(self) -> slice:
        """The bins of the last step."""
        return slice(len(self) - int(self.lengths[-1]) if len(self.lengths) else 0, len(self))

    def since(self, seconds: float) -> slice:
        """The bins of the steps of the last seconds."""
        old = self.lengths[: int((self.step_ages > seconds).sum())]
        return slice(int(old.sum()), len(self))

    def recent_weights(self, seconds: float) -> Array:
        """v (B,) of bins that count 1/e after so many seconds."""
        recent = np.exp(-self.ages / seconds)
        weights: Array = recent / (1.0 + np.bincount(self._f, recent)[self._f])
        return weights

    def snapped(self, places: Array) -> tuple[Array, Array]:
        """The nearest fine places (P, C) of the head's grid, and how far off they are (P,)."""
        chord, rows = self._tree.query(to_vectors(places))
        snapped: Array = self._sound.grid[rows]
        return snapped, np.degrees(2 * np.arcsin(np.clip(chord / 2, 0, 1)))

    def at(self, places: Array, among: slice = slice(None)) -> Single:
        """Densities (B, P) around fine places (P, C); `among` some of the bins."""
        f, kind, seen = self._f[among], self._kind[among], self._seen[among]
        out = np.empty((len(f), len(places)), dtype=np.float32)
        for own, turn in _alike(self._turns[among]):
            points = self._points(places, turn)
            u = np.einsum("bi,bip->bp", seen[own], points[f[own]])
            level = np.clip((u + 1) * (LEVELS / 2), 0, LEVELS - 1).astype(np.int32)
            out[own] = self._table[kind[own, None], level]
        return out

    def _points(self, places: Array, turn: float) -> Single:
        """(F, 3, P) what a head that is turned so far hears of places."""
        heard = self._sound.space.turned(places, -turn) if turn else places
        return self._sound.points(self._nearest(heard))

    def _nearest(self, places: Array) -> Indices:
        return np.asarray(self._tree.query(to_vectors(places))[1], dtype=np.intp)

    def _coarsely(self, bins: OnsetBins, turns: Array) -> Single:
        """Densities (b, G) of new bins around all places."""
        out = np.empty((len(bins), len(self.places)), dtype=np.float32)
        for own, turn in _alike(turns):
            points = self._points(self.places, turn) if turn else self._coarse
            for rows, densities in self._sound.read(self._table, bins[own], points):
                out[own[rows]] = densities
        return out


def _alike(turns: Array) -> list[tuple[Indices, float]]:
    """Rows that were heard with about the same turn, and its mean."""
    number = np.round(turns / _TURN_DEGREES)
    groups = (np.flatnonzero(number == n) for n in np.unique(number))
    return [(own, float(np.mean(turns[own]))) for own in groups]
