"""A live stream of several sources: samples in; who is where, and each by itself, out.

Everything is done hop by hop, so that the size of the blocks changes nothing. In a hop:

    samples ──▶ window ──▶ spectra ─────────────────────▶ filters ──▶ sounds, a known delay later
       └──▶ head's rate ──▶ masks of a frame ──────────────┘
                 └──▶ onsets ──▶ tracks       (every few hops, and with them cues and columns)
"""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.features.audio import checked_block, checked_rate
from earatlas.features.dc_offset import OffsetStream
from earatlas.localization.diagnostics import Doubt
from earatlas.localization.head_motion import Motion, YawLike, checked_yaw
from earatlas.separation.separator import MOST_SOURCES, Separator
from earatlas.streaming.online_masks import MaskStream
from earatlas.streaming.online_steering import RECENT_SECONDS
from earatlas.streaming.output_buffer import Outlet
from earatlas.streaming.renderer import LOW, USUAL, Parting
from earatlas.streaming.report import LiveReport, LiveSource
from earatlas.streaming.resampling import Resampler
from earatlas.streaming.speaker_split_merge import ByVoice
from earatlas.tracking.front_end import Whereabouts
from earatlas.tracking.online_track import Track
from earatlas.tracking.settings import Tracking
from earatlas.types import Array, Complex

__all__ = ["Live"]

RATES = (8_000, 192_000)  # Hz
_ACTIVE_SECONDS = 0.4  # since it was heard last: it is heard now
_SOUNDING_SECONDS = 1.5  # for which a third source keeps its share of the sound
# Of silence, after which what one has explained lately counts 1/e, and how much more who has a
# share of the sound counts than who has none. Set by hand, and not tried alone: with them in place
# of when each was heard last, one pair of twelve in rooms had 12.6 dB where it had 4.6, and one of
# twelve others 15.7 where it had 6.7; the rest were the same.
_PAUSE_SECONDS, _KEEPS = 1.0, 1.5
_LASTING_HITS = 24  # steps in which it was heard
_STEP_SECONDS = 0.128  # between steps of the tracks
_COLUMNS_EVERY = 2  # steps, of tracks that are new; those that are known change slowly
_YOUNG = 8  # updates; with 4, one of two murmurs of 4 s had 6.4 dB after 2 s, now above 8
_MOVING_SECONDS = 1.5  # of which masks are asked while a source moves: what is older tells little
_LEVEL_SECONDS = 0.3
_TOLD_EVERY = 8  # steps
_STILL_SECONDS, _STILL_DEGREES = 6.0, 3.0  # as long as cues are remembered
_LARGEST = 1e6  # of a sample; full scale is 1
_ANYWHERE_DEGREES = 143.0  # around any place, 90 % of a sphere
_SILENT_SECONDS = 1.0  # from which on an answer is doubted


class Live:
    """Sources of a stream: feed it blocks of samples; each block gives a report.

    Constant memory, no thread. It can be pickled, and `snapshot` gives a copy to go back to.
    """

    def __init__(
        self,
        separator: Separator,
        *,
        rate: int | None = None,
        low_delay: bool = False,
        max_sources: int = 4,
        yaw: YawLike | None = None,
    ) -> None:
        head = separator.head
        if head.rooms is None:
            raise InputError(
                "atlas must be made ready for rooms to be used live, got one that is not. Learn "
                "the head again without --no-rooms; one that was recorded in a room with --direct."
            )
        if not isinstance(max_sources, int) or not 1 <= max_sources <= MOST_SOURCES:
            raise InputError(
                f"max_sources must be from 1 to {MOST_SOURCES}, got {max_sources}. Two ears hardly "
                "tell more apart."
            )
        layout = head.layout
        self.rate = layout.rate if rate is None else checked_rate(rate)
        if not RATES[0] <= self.rate <= RATES[1]:
            raise InputError(
                f"rate must be from {RATES[0]} to {RATES[1]} Hz, got {self.rate}. "
                "Resample the input."
            )
        self.max_sources, self.low_delay = max_sources, low_delay
        delay = LOW if low_delay else USUAL
        self._parting = Parting(self.rate, delay, layout.frequencies_hz, max_sources)
        bank = self._parting.bank
        self._hop_size, self._heard, self._hop_seconds = bank.hop, bank.heard, bank.hop_seconds
        self._space, self._layout = head.space, layout
        known = None if yaw is None else checked_yaw(yaw, head.space)
        self._motion = Motion(known, 0.1)
        self._offset = OffsetStream(self.rate, bank.hop)
        self._resampler = Resampler(self.rate, layout.rate)
        self._where = Whereabouts(head.rooms, self._motion.at, Tracking(most=max_sources))
        self._masks = MaskStream(separator, bank.hop_seconds)
        self._by_voice = ByVoice(head.space, layout, self.rate, bank.hop_seconds)
        self._outlet = Outlet(bank.hop, bank.hop - bank.heard)
        # Masks are of the middle of what is heard, or as near to it as their window reaches.
        self._behind = max(round(bank.heard / 2 / self.rate * layout.rate) - layout.window // 2, 0)
        self._recent = np.zeros((2, layout.window + self._behind))  # at the head's rate
        self._stepped: list[Array] = []  # samples at the head's rate since the last step
        self._kept: list[Complex] = []  # frames of the masks
        self._rest = np.zeros((2, 0))
        self._pushed = self._hops = self._steps = 0
        self._lately = round(_MOVING_SECONDS / bank.hop_seconds)  # hops
        self._hops_a_step = max(round(_STEP_SECONDS / bank.hop_seconds), 1)
        self._sounding: tuple[int, ...] = ()
        self._slots: dict[int, int] = {}
        self._levels: dict[int, float] = {}
        self._leaving: dict[int, Track] = {}  # dead, the last of their sound still waits
        self._facing, self._turned_at = 0.0, -np.inf  # degrees of yaw, seconds
        self._heard_at_yaw = 0.0  # degrees, when filters were made last
        self._spoilt = 0
        self._open = True

    def __repr__(self) -> str:
        alive = len(self._where.confirmed)
        return (
            f"Live({self.rate} Hz, {self._pushed / self.rate:.1f} s, {alive} sources, "
            f"delay {1000 * self.delay_seconds:.0f} ms)"
        )

    @property
    def delay_samples(self) -> int:
        """From a sample that goes in to the same sample of each source that comes out."""
        return self._heard

    @property
    def delay_seconds(self) -> float:
        """The same in seconds."""
        return self._heard / self.rate

    def snapshot(self) -> Live:
        """A copy of the stream as it is now, which goes on by itself."""
        return copy.deepcopy(self, {id(part): part for part in self._shared()})

    def restore(self, snapshot: Live) -> None:
        """Go back to a snapshot of this stream."""
        if (
            not isinstance(snapshot, Live)
            or snapshot.rate != self.rate
            or snapshot._parting.bank.heard != self._heard
        ):
            raise InputError(
                f"snapshot must be of a stream like this one, got {snapshot!r} for {self!r}. "
                "Use one that its snapshot() gave."
            )
        vars(self).update(vars(snapshot.snapshot()))

    def _shared(self) -> tuple[object, ...]:
        """What copies need not copy: it never changes."""
        return (self._masks.separator, self._masks.separator.head, self._where.sound)

    # --- in and out ----------------------------------------------------------------------------

    def push(self, samples: ArrayLike, *, yaw: float | None = None) -> LiveReport:
        """Take in a block (2, n) of samples at the stream's rate; say who is where now.

        `yaw`: how far the head is turned to its left at the end of the block, in degrees; either
        with every block, or with none. Samples that are no numbers are taken for silence.
        """
        if not self._open:
            raise InputError("samples must come before finish(), got more after. Start a new one.")
        x = checked_block(samples).copy()
        if yaw is not None:
            checked_yaw(yaw, self._space)
        # Nothing is counted before all was checked: a block that is refused was never there.
        self._motion.tell((self._pushed + x.shape[1]) / self.rate, yaw)
        self._pushed += x.shape[1]
        broken = ~(np.abs(x) < _LARGEST)
        if broken.any():
            x[broken] = 0.0
            self._spoilt += int(broken.any(axis=0).sum())
        return self._through(x, self._pushed - self.delay_samples)

    def finish(self) -> LiveReport:
        """End the stream: the sound that still waited, up to the last sample."""
        if not self._open:
            raise InputError("finish() must come once, got it twice. Start a new stream.")
        self._open = False
        hop = self._hop_size
        missing = -(self._pushed + self.delay_samples) % hop + self.delay_samples
        # Silence of this converter: zeros would be a step, which filters that look ahead hear.
        silence = np.repeat(self._offset.taken, missing, axis=1)
        return self._through(silence, self._pushed)

    def _through(self, x: Array, until: int) -> LiveReport:
        before = {track.id: track for track in self._where.confirmed}
        x = np.concatenate([self._rest, x], axis=1)
        hop = self._hop_size
        whole = x.shape[1] // hop * hop
        for start in range(0, whole, hop):
            self._hop(x[:, start : start + hop])
            if self._hops % self._hops_a_step == 0:
                before |= {track.id: track for track in self._where.confirmed}
        self._rest = x[:, whole:]
        start, sounds = self._outlet.start, self._outlet.take(until)
        alive = {track.id: track for track in self._where.tracks}
        ended = {i: t for i, t in (self._leaving | before).items() if i not in alive}
        self._leaving = {i: t for i, t in ended.items() if self._outlet.holds(i)}
        here = dict(sorted((alive | self._leaving).items()))
        self._levels = {i: level for i, level in self._levels.items() if i in here or i in ended}
        n = self._outlet.start - start
        return LiveReport(
            self._pushed / self.rate,
            start,
            tuple(self._source(track, sounds, n) for track in here.values()),
            tuple(self._source(t, sounds, n) for i, t in ended.items() if i not in here),
            (*self._input_doubts(), *self._where.doubts),
            n,
        )

    def _source(self, track: Track, sounds: dict[int, Array], n: int) -> LiveSource:
        now = self._hops * self._hop_seconds
        age = max(now - track.heard_at, 0.0)
        level = self._levels.get(track.id, 0.0)
        doubts = []
        if age > _SILENT_SECONDS:
            reason = f"not heard for {age:.0f} s; it may have moved"
            doubts.append(Doubt("silent", reason, age))
        return LiveSource(
            track.id,
            track.direction[: self._space.columns],
            track.radius_90 if self._where.directional else _ANYWHERE_DEGREES,
            track.born,
            age,
            10 * float(np.log10(level)) if level > 0 else -np.inf,
            track.confirmed,
            age <= _ACTIVE_SECONDS,
            track.speed,
            tuple(doubts),
            sounds.get(track.id, np.zeros((2, n))),
        )

    def _input_doubts(self) -> tuple[Doubt, ...]:
        if not self._spoilt:
            return ()
        reason = f"{self._spoilt} samples were no numbers, and are silence"
        return (Doubt("broken input", reason, self._spoilt),)

    # --- a hop ---------------------------------------------------------------------------------

    def _hop(self, x: Array) -> None:
        ids, x = self._sounding, self._offset.push(x)
        at_head = self._resampler.push(x)
        self._stepped.append(at_head)
        n = at_head.shape[1]
        self._recent = np.concatenate([self._recent[:, n:], at_head], axis=1)
        self._masks.hear(self._recent[:, : self._layout.window])
        self._keep(self._masks.last)
        masks = self._masks.now(ids) if self._parting.by_windows else None
        self._sound(self._parting.push(x, masks, [self._slots[i] for i in ids]))
        self._hops += 1
        if self._hops % self._hops_a_step == 0:
            self._step()

    def _keep(self, frame: Complex) -> None:
        self._kept.append(frame)
        del self._kept[: -round(RECENT_SECONDS / self._hop_seconds)]

    def _sound(self, hops: Array) -> None:
        """A hop (sources, 2, hop) of the sound in each slot, to the track that has it."""
        sounds = {i: hops[slot] for i, slot in self._slots.items()}
        self._outlet.put(sounds)
        self._by_voice.hear(self._stepped[-1], sounds)
        fade = float(np.exp(-self._hop_seconds / _LEVEL_SECONDS))
        for i, sound in sounds.items():
            power = float(np.mean(sound**2))
            self._levels[i] = fade * self._levels.get(i, 0.0) + (1 - fade) * power

    def _step(self) -> None:
        """Tracks, and what hangs on them."""
        seconds = self._hops_a_step * self._hop_seconds
        now = self._hops * self._hop_seconds
        heard = np.concatenate(self._stepped, axis=1)
        self._where.step(heard, now, seconds, self._parting.missed)
        self._stepped = []
        self._steps += 1
        if self._steps % _TOLD_EVERY == 0:
            self._tell_places(now)
        self._look_at_voices(now)
        tracks = {track.id: track for track in self._where.confirmed}
        for gone in set(self._slots) - set(tracks):
            self._parting.clear(self._slots.pop(gone))
        self._parting.forget(list(tracks))
        for new in sorted(set(tracks) - set(self._slots)):
            self._slots[new] = min(set(range(self.max_sources)) - set(self._slots.values()))
        entered = self._where.in_room != self._parting.in_room
        if entered:
            self._parting.enter(self._where.in_room)
        before, self._sounding = self._sounding, self._heard_now(list(tracks.values()), now)
        young = self._parting.updates(self._sounding) < _YOUNG
        every = _COLUMNS_EVERY if young else 2 * _COLUMNS_EVERY
        if entered or self._sounding != before or self._steps % every == 0:
            self._renew_filters(tracks, now)

    def _yaw_at(self, now: float) -> float:
        """How far the head is turned, in degrees."""
        return float(self._motion.at(np.array([now]))[0])

    def _look_at_voices(self, now: float) -> None:
        """Whether tracks of a room are as many as voices, with a head that is still."""
        if now - self._turned_at >= _STILL_SECONDS:
            yaw = self._yaw_at(now)
            self._by_voice.look(
                self._steps, now, self._where, self._sounding, self._masks, self._kept, yaw
            )

    def _tell_places(self, now: float) -> None:
        """In the open, and with a head that is still, the cues of tracks tell where they are."""
        yaw = self._yaw_at(now)
        if abs(yaw - self._facing) > _STILL_DEGREES:
            self._facing, self._turned_at = yaw, now
        places = {}
        if self._where.in_open and now - self._turned_at >= _STILL_SECONDS:
            places = self._masks.places()
        self._where.tell({i: self._space.turned(p, yaw) for i, p in places.items()})

    def _heard_now(self, tracks: list[Track], now: float) -> tuple[int, ...]:
        """Who has a share of the sound: the two that explain most now, and more while heard.

        By when they were heard last alone, reflections of a room took turns with talkers.
        """

        def order(track: Track) -> tuple[float, float, int]:
            age = now - track.heard_at
            keeps = _KEEPS if track.id in self._sounding else 1.0
            return -max(keeps * track.gain * np.exp(-age / _PAUSE_SECONDS), 0.0), age, track.id

        ranked = sorted(tracks, key=order)
        chosen = ranked[:2]
        # In a room a third may be a reflection, which would take sound from the two: it must last.
        hits = _LASTING_HITS if self._where.in_room else 0
        for track in ranked[2:]:
            heard = now - track.heard_at < _SOUNDING_SECONDS
            if heard and track.hits >= hits and not track.little:
                chosen.append(track)
        return tuple(sorted(track.id for track in chosen))

    def _renew_filters(self, tracks: dict[int, Track], now: float) -> None:
        yaw = self._yaw_at(now)
        columns = self._space.columns
        places = {
            i: self._space.turned(track.direction[:columns], -yaw) for i, track in tracks.items()
        }
        turned, self._heard_at_yaw = yaw - self._heard_at_yaw, yaw
        moved = {i: track.moved(turned) for i, track in tracks.items()}
        self._masks.update(places, moved)
        ids = self._sounding
        furthest = max((moved[i] for i in ids), default=0.0)
        masks = expected = None
        if self._parting.needs_masks(ids) and self._kept:
            frames = self._kept[-self._lately :] if furthest else self._kept
            masks = self._masks.again(self._parting.kept(frames), ids)
            # In a room reflections turn both ears' ratio from what is expected.
            if len(ids) == 2 and not self._parting.in_room:
                expected = self._masks.expected(ids)
        rows = {i: self._slots[i] for i in ids}
        self._parting.update(rows, masks, furthest, expected)
