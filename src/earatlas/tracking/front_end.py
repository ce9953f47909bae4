"""Where everyone is: from samples at the head's rate to tracks, a step at a time.

In: samples of both ears as they come, and how the head is turned. Out: `Track`s in the room's
frame, and what makes all of them doubtful.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np

from earatlas.features.onset_detector import OnsetStream
from earatlas.localization.diagnostics import Doubt, conditions, one_sound
from earatlas.localization.reverberant_localizer import RoomHearing
from earatlas.tracking.online import Tracker
from earatlas.tracking.online_track import Track
from earatlas.tracking.onset_buffer import Arrivals
from earatlas.tracking.settings import Tracking
from earatlas.types import Array

__all__ = ["Whereabouts"]

# Of onsets that tell where sources are: 3 s. Of two talkers in rooms, counted every 0.8 s, 2, 3
# and 4 s had one of them beyond 20 degrees in 10, 5 and 4 % of the cases.
_WINDOW_STEPS = 24
_QUIET_SECONDS = 10.0  # after which the quiet and the peak are forgotten by 1/e
# The fastest decays of 60 dB: 0.11 to 0.22 s of talkers in the open, 0.23 to 0.33 at T60 0.3 s.
# What was taken for a room stays one until it is surely none.
_ROOM_SECONDS, _OPEN_SECONDS, _SURELY_OPEN = 0.24, 0.20, 0.22
# Who talks at once fills each other's gaps, and a few seconds have few others. Of cipic_021 and
# kemar_full, 20 scenes each, after 1, 2, 3 and 4 s: two in the open had up to 0.25, 0.23, 0.23 and
# 0.20 s, three 0.37, 0.31, 0.28 and 0.25; two at T60 0.3 s half of the time 0.30, 0.30, 0.30, 0.28.
# So three in the open may still be taken for three in a room, for seconds. A pair of ku100 that was
# taken for one in a room after 2 s lost 28 dB, and a name.
_EARLY, _EARLY_SECONDS = 0.4, 4.0  # so much more must it be to begin with, and until when
# ε of filters of the open for two, which tells a room from the open at once: after 1.5 to 4 s at
# most 0.005 in the open, at least 0.024 at T60 0.2 s (the same heads, 10 scenes each); in noise at
# 20 dB 0.004 to 0.09, so that it only decides where decays are a room's.
_ROOM_MISSES = 0.012
# Where they miss this much, it is one wherever sound does not die away as fast as in the open: at
# T60 0.22 s, where decays take seconds to show it, 0.038 to 0.067 and 0.2 s and more; in the open
# at most 0.0024, in noise there at 20 dB 0.019, at 10 dB up to 0.16, but decays of at most 0.19 s
# once a second has been heard (12 scenes each of the same heads).
_SURELY_MISSES = 0.03
_DOUBTS_EVERY = 8  # steps


class Whereabouts:
    """Follows the sources of a stream at the head's rate."""

    def __init__(self, rooms: RoomHearing, yaw_at: Callable[[Array], Array], how: Tracking) -> None:
        gate = rooms.sound.gate
        self.sound = rooms.sound
        self._frame = gate.hop / gate.rate
        forgetting = float(np.exp(-self._frame / _QUIET_SECONDS))
        self._onsets = OnsetStream(gate, forgetting=forgetting)
        self._arrivals = Arrivals(rooms.sound, _WINDOW_STEPS)
        self._tracker = Tracker(self._arrivals, how)
        self._yaw_at = yaw_at
        self._steps = self._counted = 0
        self._heard_seconds = 0.0
        self.in_room = self.in_open = False  # neither: it has not shown yet
        self.echoes = False  # sound dies away as slowly as in a room, by what was heard so far
        self.directional = True  # both ears do not have the very same
        self.doubts: tuple[Doubt, ...] = ()

    @property
    def tracks(self) -> list[Track]:
        """All that are alive, tentative ones too."""
        return self._tracker.tracks

    @property
    def confirmed(self) -> list[Track]:
        """Those that are believed."""
        return self._tracker.confirmed

    def tell(self, places: Mapping[int, Array]) -> None:
        """Places (C,) of tracks that something else than onsets is sure of."""
        self._tracker.tell(places)

    @property
    def like_a_room(self) -> bool:
        """Whether it is a room, or sounds like one so far."""
        return self.in_room or self.echoes

    @property
    def most(self) -> int:
        """Tracks that are confirmed at a time."""
        return self._tracker.how.most

    def best_two(self) -> Array | None:
        """(2, C) where two would be who are one track yet; None: nothing arrived lately."""
        return self._tracker.best_two()

    def split(self, track: Track, places: Array, now: float) -> None:
        """One track is two voices, at these places (2, C)."""
        self._tracker.split(track, places, now)

    def uphold(self, ids: Collection[int], now: float) -> None:
        """These tracks are voices of their own."""
        self._tracker.uphold(ids, now)

    def hear(self, track: int, now: float) -> None:
        """One is heard now, whatever onsets say."""
        self._tracker.hear(track, now)

    def join(self, ids: Collection[int]) -> None:
        """These tracks are one voice."""
        self._tracker.join(ids)

    def step(self, samples: Array, now: float, seconds: float, missed: float | None = None) -> None:
        """Take in the samples (2, n) of the last `seconds` before `now`.

        `missed` is how much of two sources filters of the open miss (ε), where that is known.
        """
        self._onsets.push(samples)
        new = self._onsets.arrived(self._counted)
        turns = self._yaw_at(new.t.astype(np.float64) * self._frame)
        self._arrivals.add(new, turns, self._onsets.frames, seconds)
        self._tracker.step(now, seconds, float(self._yaw_at(np.array([now]))[0]))
        self._counted = self._onsets.frames
        self._steps += 1
        self._heard_seconds += seconds if len(new) else 0.0
        if self._steps % _DOUBTS_EVERY == 0:
            bins = self._onsets.bins()
            fits = len(bins) == 0  # silence is no doubt
            self.echoes = bins.decay_seconds > _ROOM_SECONDS
            self.in_room = self._room_told(bins.decay_seconds, missed)
            missing = missed is not None and missed > _SURELY_MISSES
            self.in_open = bins.decay_seconds < _SURELY_OPEN and not missing
            self.directional = not one_sound(bins)
            self.doubts = tuple(conditions(bins, now, fits=fits))

    def _room_told(self, decay_seconds: float, missed: float | None) -> bool:
        """Whether it is a room, by how sound dies away and by what filters miss."""
        if self.in_room:
            return decay_seconds > _OPEN_SECONDS
        if missed is not None:
            if missed > _SURELY_MISSES:
                return decay_seconds > _OPEN_SECONDS
            return decay_seconds > _ROOM_SECONDS and missed > _ROOM_MISSES
        early = _EARLY * max(1 - self._heard_seconds / _EARLY_SECONDS, 0.0)
        return decay_seconds > _ROOM_SECONDS * (1 + early)
