"""One track that is two talkers, and two that are one: told by their sounds, where onsets cannot.

Two talkers on one cone of confusion are often one track, most of all in a room, or one that seems
to walk from one to the other and back. So now and then what one track has is parted as if two had
made it, at the two places that onsets like best: are the parts two voices
(`earatlas.separation.demixing.speaker_similarity`), there are two. Of two tracks that are heard, the same is asked
of what they were given: two voices are kept, whatever onsets say of them, and one voice is one
track.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.geometry.spaces import Space
from earatlas.separation.demixing.speaker_similarity import SECONDS, voices
from earatlas.streaming.online_masks import MaskStream
from earatlas.streaming.online_steering import RECENT_SECONDS
from earatlas.streaming.renderer import USUAL
from earatlas.tracking.front_end import Whereabouts
from earatlas.tracking.online_track import Track
from earatlas.types import Array, Complex, Single

__all__ = ["ByVoice"]

# Steps from one look to the next; where the last has to be confirmed; and after some that have said
# one, since a look takes a tenth of a second.
_EVERY, _AGAIN, _SELDOM = 8, 4, 16
_ALONE = 4  # looks in a row that have said one
_JOINING = 3  # in a row that say one of two tracks
_TELLING_SECONDS = 2.0  # of sound
# ρ in the open, where filters leave less of one talker to be like the rest: 0.49 and more (36 looks
# at cipic_021 and kemar_full), of two at most 0.28.
_OPEN_TWO = 0.4
_HEARD_SECONDS = 0.5  # since it was heard last: it speaks now
_SPEAKS = 0.1  # of its mean power, that it has lately
_FRAMES = 4  # hops of the bank from one mask to the next


class ByVoice:
    """Looks at the sounds of a stream's tracks: what is parted for it is at the head's rate."""

    def __init__(self, space: Space, layout: CueLayout, rate: int, hop_seconds: float) -> None:
        """For a stream at `rate`, in hops of so many seconds."""
        self._space, self._layout = space, layout
        self._rate, self._hop_seconds = rate, hop_seconds
        self._bank = USUAL.bank(layout.rate)
        self._sounds: deque[dict[int, Single]] = deque(maxlen=round(SECONDS / hop_seconds))
        windows = USUAL.lasting_hops * USUAL.hop_seconds
        self._past: deque[Single] = deque(maxlen=round((RECENT_SECONDS + windows) / hop_seconds))
        self._two: int | None = None  # a track that is two by the last look, to be confirmed
        self._one: tuple[frozenset[int], int] = (frozenset(), 0)  # a pair, looks that say one
        self._alone = 0  # looks at one track that have said one
        self._due = 2 * _EVERY

    def hear(self, at_head: Array, sounds: Mapping[int, Array]) -> None:
        """Take in a hop of the stream at the head's rate, and (2, hop) of each track."""
        self._past.append(at_head.astype(np.float32))
        own = sounds if len(sounds) > 1 else {}
        self._sounds.append({i: sound.astype(np.float32) for i, sound in own.items()})

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
        tracks = {track.id: track for track in where.confirmed}
        pair = frozenset(sounding) & tracks.keys()
        if len(pair) == 2 and self._may_be_two(where, pair, now):
            self._two, self._alone = None, 0
            return
        heard = [t for t in tracks.values() if now - t.heard_at < _HEARD_SECONDS]
        if len(heard) == 1 and where.most > 1:
            self._part(step, now, where, heard[0], masks, kept, yaw)
        else:
            self._two = None

    def _may_be_two(self, where: Whereabouts, pair: frozenset[int], now: float) -> bool:
        """Two tracks: whether they are two voices, or it cannot be told."""
        sounds = {i: self._sound_of(i) for i in pair}
        n = min(sound.shape[1] for sound in sounds.values())
        tracks = [track for track in where.confirmed if track.id in pair]
        # In the open onsets tell who walks, whom filters of who stands do not part.
        walked = not (where.like_a_room or _have_stood(tracks, now))
        if walked or n < _TELLING_SECONDS * self._rate:
            return True
        first, second = (sound[:, -n:] for sound in sounds.values())
        told = voices(first, second, self._rate)
        before, count = self._one
        self._one = (pair, count + 1 if before == pair else 1) if told.one else (pair, 0)
        if told.two:
            where.uphold(pair, now)
            for i, sound in sounds.items():
                lately = sound[:, -round(_HEARD_SECONDS * self._rate) :]
                if np.mean(lately**2) > _SPEAKS * np.mean(sound**2):
                    where.hear(i, now)
        elif self._one[1] >= _JOINING:
            where.join(pair)
            self._one = (frozenset(), 0)
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
        if places is None or not kept:
            return
        as_heard = np.stack([self._space.turned(place, -yaw) for place in places])
        in_room = where.like_a_room
        told = voices(*self._parted(masks, kept, as_heard, in_room=in_room), self._layout.rate)
        if in_room:
            two = told.two and not track.walks
        else:
            two = told.two and told.alike < _OPEN_TWO and _have_stood(where.confirmed, now)
        self._alone = 0 if told.two else self._alone + 1
        if (two and self._two == track.id) or (in_room and told.clearly_two):
            where.split(track, places, now)
            self._two = None
        else:
            self._two = track.id if two else None
            seldom = self._alone >= _ALONE
            self._due = step + (_AGAIN if two else _SELDOM if seldom else _EVERY)

    def _parted(
        self, masks: MaskStream, kept: Sequence[Complex], places: Array, *, in_room: bool
    ) -> tuple[Array, Array]:
        """The last seconds as two sounds (2, n) of sources at these places, as the head hears."""
        bank = self._bank
        stride = round(_FRAMES * bank.hop_seconds / self._hop_seconds)
        rows = np.arange(len(kept) - 1, -1, -stride)[::-1]
        q = masks.at_places(np.concatenate([kept[i] for i in rows], axis=-1), places)
        lasting = USUAL.long_filters(bank, self._layout.frequencies_hz, in_room=in_room)
        x = np.concatenate(list(self._past), axis=1).astype(np.float64)
        for end in range(x.shape[1] % bank.hop + bank.hop, x.shape[1] + 1, bank.hop):
            lasting.hear(x[:, end - bank.hop : end])
        hops = self._hop_seconds / bank.hop_seconds  # of the bank, that one of the stream lasts
        ends = np.asarray(hops * (rows - len(kept) + 1), dtype=np.float64)
        late = x[:, -round(SECONDS * self._layout.rate) :]
        first = lasting.tried(q, ends, late)
        return first, late - first

    def _sound_of(self, track: int) -> Single:
        """(2, n) the last that came out of it without a gap."""
        hops: list[Single] = []
        for sounds in reversed(self._sounds):
            if track not in sounds:
                break
            hops.append(sounds[track])
        return np.concatenate([np.zeros((2, 0), dtype=np.float32), *hops[::-1]], axis=1)


def _have_stood(tracks: Sequence[Track], now: float) -> bool:
    """Whether all have stood for as long as the sound that tells lasts."""
    return all(not t.walks and now - t.standing_since > SECONDS for t in tracks)
