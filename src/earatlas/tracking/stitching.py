"""Ways of sources through a long recording: found piece by piece, and handed on.

In: the onsets of a recording's stretches, one after the other, and where its sources are if all of
them stand. Out: a `Way` a source, from beginning to end, where somebody moves; else none.

Two stretches are a piece: each but the first begins with the last seconds of the one before. A
source of a piece is the one of the piece before that was nearest to it in the time that both know;
one that was not heard for a while is where it was heard last. Whoever is nobody's is new. How many
there are is settled at the end: in a piece somebody may be silent.

    piece k    |———————————————|
    piece k+1              |———————————————|      the same windows tell who is who
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from earatlas.features.onset_detector import OnsetBins
from earatlas.localization.onset_likelihood import DirectSound
from earatlas.tracking.offline import HOP_SECONDS, Wanted, Way, all_ways, ways_of
from earatlas.types import Array

__all__ = ["handed_on"]

_SHARED_SECONDS = 4.0  # of two pieces: as long as a short walk is followed without a break
# Degrees between a source of a piece and one of the piece before, up to which they may be the same.
_SAME_DEGREES, _WAITED_DEGREES = 25.0, 15.0  # heard in both; not heard in the piece before
# What it is worth, when somebody speaks again, to have been heard e times as much before: near a
# talker's last place there may be the ghost of one piece. A third of the above; not measured.
_HEARD_MORE_DEGREES = 5.0
_STANDS_DEGREES = 10.0  # between the pieces of one that stands
_FEWEST = 0.03  # of all onsets that a source must have: less is a reflection in a single piece


@dataclass(frozen=True, eq=False)
class _Piece:
    """Onsets of a stretch and of the end of the one before, counted from its first window."""

    first: int  # window of the recording
    onsets: OnsetBins
    seconds: float


@dataclass(eq=False)
class _Track:
    """One source: its ways in the pieces in which it was heard, each with its first window."""

    parts: list[tuple[int, Way]] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The window after its last."""
        first, way = self.parts[-1]
        return first + len(way.seconds)

    @property
    def told(self) -> float:
        """Onsets that tell of it, weighted."""
        return sum(float(way.weights.sum()) for _, way in self.parts)

    def apart(self, first: int, way: Way) -> float:
        """Degrees between it and a way that begins with a window: where both are known, or ends."""
        begin, own = self.parts[-1]
        shared = self.end - first
        if shared <= 0:
            cosines, told = own.vectors[-1:] @ way.vectors[:1].T, np.ones(1)
        else:
            before, after = slice(first - begin, None), slice(0, shared)
            cosines = np.einsum("wa,wa->w", own.vectors[before], way.vectors[after])
            # Where one of them is heard, not both: whoever goes off without a source is not it.
            told = own.weights[before] + way.weights[after] + 1e-6
        degrees = np.degrees(np.arccos(np.clip(cosines.ravel(), -1, 1)))
        return float(degrees @ told / told.sum())

    def whole(self, windows: int) -> Way:
        """One way of all windows: handed on in the middle of what two pieces share."""
        vectors, radius, weights = np.zeros((windows, 3)), np.zeros(windows), np.zeros(windows)
        known = np.zeros(windows, dtype=bool)
        end = 0
        for first, way in self.parts:
            begin = first + max(end - first, 0) // 2
            end = first + len(way.seconds)
            rows, own = slice(begin, end), slice(begin - first, None)
            vectors[rows], radius[rows] = way.vectors[own], way.radius_90[own]
            weights[rows], known[rows] = way.weights[own], True
        # Where nothing was heard of it, it is where it was heard last; before, where it came to be.
        last = np.maximum.accumulate(np.where(known, np.arange(windows), -1))
        last = np.where(last < 0, int(known.argmax()), last)
        told = np.array([float(way.weights.sum()) + 1e-9 for _, way in self.parts])
        gain = float(np.array([way.gain for _, way in self.parts]) @ told / told.sum())
        way = Way(
            (np.arange(float(windows)) + 0.5) * HOP_SECONDS,
            vectors[last],
            radius[last],
            weights,
            moves=True,
            gain=gain,
            onset_bins=sum(way.onset_bins for _, way in self.parts),
        )
        return self._standing(way) if self._stands(way) else way

    def _stands(self, way: Way) -> bool:
        if any(part.moves for _, part in self.parts):
            return False
        middle = self._middle(way)
        return bool((way.vectors @ middle).min() > np.cos(np.radians(_STANDS_DEGREES)))

    @staticmethod
    def _middle(way: Way) -> Array:
        mean = (way.weights + 1e-9) @ way.vectors
        middle: Array = mean / np.linalg.norm(mean)
        return middle

    def _standing(self, way: Way) -> Way:
        """In one place from beginning to end."""
        vectors = np.repeat(self._middle(way)[None], len(way.vectors), axis=0)
        radius = np.full_like(way.radius_90, float(np.median(way.radius_90)))
        return replace(way, vectors=vectors, radius_90=radius, moves=False)


def handed_on(
    sound: DirectSound, stretches: Sequence[OnsetBins], places: Array, wanted: Wanted
) -> list[Way]:
    """The ways of all sources if one of them moves; none if all stand in their places (M, C)."""
    pieces = list(_pieces(sound, stretches, wanted.seconds))
    # No more than there are, but not as many: of those who are told of, some are silent in a piece.
    most = wanted.n_sources or wanted.most
    wants = [Wanted(piece.seconds, None, most) for piece in pieces]
    moving = [
        ways_of(sound, piece.onsets, places, want)
        for piece, want in zip(pieces, wants, strict=True)
    ]
    if not any(moving):
        return []
    found = zip(pieces, wants, moving, strict=True)
    tracks = _tracks(
        (piece.first, known or all_ways(sound, piece.onsets, places, want))
        for piece, want, known in found
    )
    kept = _kept(tracks, wanted)
    if len(kept) < (wanted.n_sources or 0):  # as in a short recording: so many, heard or not
        told = (replace(want, n_sources=wanted.n_sources) for want in wants)
        asked = zip(pieces, told, strict=True)
        tracks = _tracks(
            (piece.first, all_ways(sound, piece.onsets, places, want)) for piece, want in asked
        )
        kept = _most_told(tracks)[: wanted.n_sources]
    windows = int(np.ceil(wanted.seconds / HOP_SECONDS))
    ways = [track.whole(windows) for track in kept]
    return ways if any(way.moves for way in ways) else []


def _tracks(pieces: Iterable[tuple[int, list[Way]]]) -> list[_Track]:
    """All that are heard in pieces, each a first window and its ways."""
    tracks: list[_Track] = []
    for first, ways in pieces:
        _hand_on(tracks, first, ways)
    return tracks


def _kept(tracks: list[_Track], wanted: Wanted) -> list[_Track]:
    """Those that are sources, who is heard most first; no more than there can be."""
    most = wanted.n_sources or wanted.most
    least = _FEWEST * sum(track.told for track in tracks)
    by_told = _most_told(tracks)
    if wanted.n_sources is None:
        return [track for track in by_told if track.told >= least][:most]
    kept = by_told[:most]
    for track in by_told[most:]:
        if track.told >= least:
            _join(kept, track)
    return kept


def _most_told(tracks: list[_Track]) -> list[_Track]:
    return sorted(tracks, key=lambda track: -track.told)


def _join(kept: list[_Track], track: _Track) -> None:
    """One too many is the nearest of those who were gone when it came, or came when it was gone."""
    pairs = [(one, track, one) for one in kept if one.parts[-1][0] < track.parts[0][0]]
    pairs += [(track, one, one) for one in kept if track.parts[-1][0] < one.parts[0][0]]
    if pairs:
        before, after, one = min(pairs, key=lambda pair: pair[0].apart(*pair[1].parts[0]))
        one.parts = before.parts + after.parts


def _pieces(sound: DirectSound, stretches: Sequence[OnsetBins], seconds: float) -> Iterator[_Piece]:
    """Each stretch with the end of the one before."""
    a_window = HOP_SECONDS * sound.gate.rate / sound.gate.hop  # frames
    windows = int(np.ceil(seconds / HOP_SECONDS))
    shared = round(_SHARED_SECONDS / HOP_SECONDS)
    before, end = None, 0
    for number, stretch in enumerate(stretches):
        first = max(end - shared, 0)
        # By the frames heard until then, not by the last onset: there may be none.
        last = number == len(stretches) - 1
        end = windows if last else min(int(np.ceil(stretch.frames / a_window)), windows)
        onsets = stretch if before is None else OnsetBins.joined([before, stretch])
        onsets = onsets[np.flatnonzero(onsets.t >= first * a_window)]
        t = np.maximum(onsets.t - round(first * a_window), 0)
        yield _Piece(first, replace(onsets, t=t), (end - first) * HOP_SECONDS)
        before = stretch


def _hand_on(tracks: list[_Track], first: int, ways: list[Way]) -> None:
    """Give each way of a piece to the track that it goes on with, or to a new one."""
    from scipy.optimize import linear_sum_assignment

    apart = np.array([[track.apart(first, way) for way in ways] for track in tracks])
    left = set(range(len(ways)))
    if apart.size:
        heard = np.array([track.end > first for track in tracks])
        limit = np.where(heard, _SAME_DEGREES, _WAITED_DEGREES)[:, None]
        told = np.array([track.told for track in tracks])
        less = np.log((told.max() + 1e-9) / (told + 1e-3 * told.max() + 1e-9))
        far = apart + np.where(heard, 0.0, _HEARD_MORE_DEGREES * less)[:, None]
        # What is too far is taken only where there is nothing else: then not at all.
        price = np.where(apart <= limit, far - 1000.0, 0.0)
        for m, way in zip(*linear_sum_assignment(price), strict=True):
            if apart[m, way] <= limit[m, 0]:
                tracks[m].parts.append((first, ways[way]))
                left.discard(int(way))
    tracks.extend(_Track([(first, ways[way])]) for way in sorted(left))
