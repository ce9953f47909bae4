"""One track that is two talkers, and two that are one: told by their sounds, where onsets cannot.

Two talkers on one cone of confusion are often one track, most of all in a room, or one that seems
to walk from one to the other and back. So now and then what one track has is parted as if two had
made it, at the two places that onsets like best: are the parts two voices
(`earatlas.separation.sound.voices`), there are two. Of two tracks that are heard, the same is asked
of what they were given: two voices are kept, whatever onsets say of them, and one voice is one
track.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from earatlas.live.masks import MaskStream
from earatlas.live.parting import Parting
from earatlas.live.track import Track
from earatlas.live.whereabouts import Whereabouts
from earatlas.separation.sound.voices import SECONDS, voices
from earatlas.space.spaces import Space
from earatlas.types import Array, Complex, Single

__all__ = ["ByVoice"]

_EVERY, _AGAIN = 8, 4  # steps from one look to the next, and where the last has to be confirmed
_JOINING = 3  # in a row that say one
_TELLING_SECONDS = 2.0  # of sound
# ρ in the open, where filters leave less of one talker to be like the rest: 0.49 and more (36 looks
# at cipic_021 and kemar_full), of two at most 0.28.
_OPEN_TWO = 0.4
_HEARD_SECONDS = 0.5  # since it was heard last: it speaks now


class ByVoice:
    """Looks at the sounds of a stream's tracks."""

    def __init__(self, space: Space, parting: Parting) -> None:
        self._space, self._parting = space, parting
        bank = parting.bank
        self._rate, self._length = bank.rate, round(SECONDS / bank.hop_seconds)
        self._sounds: deque[dict[int, Single]] = deque(maxlen=self._length)
        self._two = False  # by the last look; it is to be confirmed
        self._one = 0  # looks in a row that say one
        self._due = 2 * _EVERY

    def hear(self, sounds: Mapping[int, Array]) -> None:
        """Take in a hop (2, hop) of each track."""
        self._sounds.append({i: sound.astype(np.float32) for i, sound in sounds.items()})

    def look(
        self,
        step: int,
        now: float,
        where: Whereabouts,
        sounding: Collection[int],
        masks: MaskStream,
        kept: Sequence[Complex],
        yaw: float,
    ) -> None:
        """Whether what is heard is as many voices as tracks; `kept` are the mask's frames."""
        if step < self._due:
            return
        self._due = step + _EVERY
        if len(sounding) == 2 and self._may_be_two(where, sounding, now):
            self._two = False
            return
        heard = [t for t in where.confirmed if now - t.heard_at < _HEARD_SECONDS]
        if len(heard) == 1:
            self._part(step, now, where, heard[0], masks, kept, yaw)
        else:
            self._two = False

    def _may_be_two(self, where: Whereabouts, pair: Collection[int], now: float) -> bool:
        """Two tracks: whether they are two voices, or have not been heard for long enough."""
        first, second = (self._sound_of(i) for i in pair)
        n = min(first.shape[1], second.shape[1])
        if n < _TELLING_SECONDS * self._rate:
            return True
        told = voices(first[:, -n:], second[:, -n:], self._rate)
        self._one = self._one + 1 if told.one else 0
        if told.two:
            where.uphold(pair, now)
        elif self._one >= _JOINING:
            where.join(pair)
            self._one = 0
        return told.two

    def _part(
        self,
        step: int,
        now: float,
        where: Whereabouts,
        track: Track,
        masks: MaskStream,
        kept: Sequence[Complex],
        yaw: float,
    ) -> None:
        """One track: whether it is two voices."""
        places = where.best_two()
        if places is None:
            return
        as_heard = np.stack([self._space.turned(place, -yaw) for place in places])
        q = masks.at_places(self._parting.kept(kept), as_heard)
        in_room = where.in_room or where.echoes
        told = voices(*self._parting.tried(q, in_room=in_room), self._rate)
        two = told.two and (in_room or told.alike < _OPEN_TWO) and not track.walks
        if (self._two and two) or (in_room and told.clearly_two):
            where.split(track, places, now)
            self._two = False
        else:
            self._two = two
            if two:
                self._due = step + _AGAIN

    def _sound_of(self, track: int) -> Single:
        """(2, n) the last that came out of it without a gap."""
        hops: list[Single] = []
        for sounds in reversed(self._sounds):
            if track not in sounds:
                break
            hops.append(sounds[track])
        return np.concatenate([np.zeros((2, 0), dtype=np.float32), *hops[::-1]], axis=1)
