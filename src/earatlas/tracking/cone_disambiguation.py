"""Where on its cone a track is: another place on it that explains more, or that its cues tell.

Onsets tell the side of a source well, and much worse where on its cone of confusion it is. So the
whole cone is looked at again and again: of one who stands by all that was heard of it, of one who
walks by the last moments, and only as long as it is hardly known. In the open the cues of long
windows tell more than onsets (`tell`), which must not say that nobody is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from earatlas.geometry.angles import to_vectors
from earatlas.tracking.local_search import BETA
from earatlas.tracking.observations import Places
from earatlas.tracking.online_track import Track
from earatlas.tracking.settings import Tracking
from earatlas.types import Array, Single

__all__ = ["Elsewhere"]

# Of what the onsets tell of where a track is, that they must tell of where its cues put it. They
# leave its cone open: of two talkers in the open (8 scenes of cipic_021 and kemar_full) they told
# 1.1 times as much of the one place that was right, -0.2 and 0.1 times as much of two at the
# zenith that were wrong, where a talker behind lost its name.
_TOLD_PART = 0.5
_TOLD_SHARE = 0.3  # of the bins, that are asked of either place: as of a first source


class Elsewhere:
    """Looks for other places of tracks."""

    def __init__(self, places: Places, how: Tracking) -> None:
        self._places, self._how = places, how

    def look(
        self, tracks: Sequence[Track], m: int, v: Array, explained: Array, *, settled: bool
    ) -> None:
        """Whether another place on its cone explains more than that of track m.

        `explained` (B, M + 1) is what each track explains, and nowhere, `settled` whether it has
        stood for long.
        """
        track, places = tracks[m], self._places
        if not settled:
            track.memory *= 0
        known = not settled and track.hits > self._how.young_hits
        if track.told or track.meets or known or track.misses > self._how.lost_steps:
            return
        total = explained.sum(axis=1)
        share = float(np.clip(v @ (explained[:, m] / total) / v.sum(), self._how.least_share, 1.0))
        others = total - explained[:, m]
        if settled:
            both = self._stander_at(track, len(tracks), v, others, share)
        else:
            both = self._walker_at(others, share)
        here = both[places.near(track)]
        allowed = places.on_cone(track) if track.confirmed else np.ones(len(both), dtype=bool)
        if track.confirmed and not track.walks:
            track.cone_radius = self._cone_radius(track, np.where(allowed, both, -np.inf))
        for other in tracks:
            allowed &= ~places.near(other)
        both = np.where(allowed, both, -np.inf)
        best = int(both.argmax())
        more = self._how.jump_nats if settled else self._how.walker_jump_nats
        if len(here) and both[best] < here.max() + more:
            return
        place, column = places.arrivals.vectors[best], places.arrivals.densities[:, best]
        if settled:
            track.jump(place)
            track.trail = places.trail(column)
        else:
            track.turn_over(place)
            places.lay(track, column, self._how.lag_seconds)

    def _cone_radius(self, track: Track, L: Single) -> float:
        """Degrees around a track within which nine tenths of its cone are, by nats L (G,)."""
        p = np.exp(2 * BETA * (L - L.max()))
        gaps = np.degrees(np.arccos(np.clip(self._places.arrivals.vectors @ track.place, -1, 1)))
        order = np.argsort(gaps)
        held = np.cumsum(p[order]) / p.sum()
        return float(gaps[order[int(np.searchsorted(held, 0.9))]])

    def _stander_at(self, track: Track, M: int, v: Array, others: Array, share: float) -> Single:
        """(G,) nats of places of one of M who stands, by the last seconds and what was before."""
        L = self._places.likelihoods(v, others, share)
        L -= L.max()
        rate = M * self._how.new_every / self._places.arrivals.most_steps
        fade = np.exp(-rate * self._places.arrivals.most_steps / self._how.memory_steps)
        both: Single = L + fade * track.memory
        track.memory = rate * L + fade * track.memory
        return both

    def _walker_at(self, others: Array, share: float) -> Single:
        """(G,) nats of places of one who walks, by the last moments."""
        v = self._places.arrivals.recent_weights(self._how.lag_seconds)
        late = self._places.arrivals.since(2 * self._how.lag_seconds)
        return self._places.likelihoods(v[late], others[late], share, late)

    def tell(self, tracks: Sequence[Track], places: Mapping[int, Array]) -> None:
        """Take in places (C,) by name that are surer than onsets about where on its cone one is."""
        for track in tracks:
            place = to_vectors(places[track.id]) if track.id in places else None
            track.told = place is not None and self._is_free(tracks, track, place)
            if place is None or not track.told or track.walks or self._places.is_at(track, place):
                continue
            column = self._places.at(place)
            here = self._told_by_onsets(np.concatenate(list(track.trail)))
            there = self._told_by_onsets(column)
            # In silence nothing speaks against the place, and nothing for it.
            track.told = len(column) > 0 and there >= min(here, _TOLD_PART * here)
            if track.told:
                track.jump(place)
                track.trail = self._places.trail(column)

    def _told_by_onsets(self, g: Single) -> float:
        """Nats that one source with densities (B,) explains of all bins."""
        return float(self._places.arrivals.weights @ np.log1p(_TOLD_SHARE * (g - 1.0)))

    def _is_free(self, tracks: Sequence[Track], track: Track, place: Array) -> bool:
        """Whether a place (3,) is on the cone of a track, and no other's."""
        return self._places.fit_cone(track, place) and not any(
            self._places.is_at(other, place) for other in tracks if other is not track
        )
