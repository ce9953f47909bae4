"""Whose a bin is, frame by frame: VESSL made causal.

In: spectra of both ears at the head's rate, a frame at a time, and where the tracks are. Out: a
mask a track. What each track sounds like (its cues) is inferred now and then from statistics of its
bins that fade, and from its direction, which counts like a few bins that were heard (an anchor, as
in a long recording: `earatlas.separation.vessl`).

    q_mft ∝ λ_mbt p(y_ft | s_m)      λ shares of a band of the frame, s_m cues of track m
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import scipy.fft

from earatlas.features.cues import bin_power
from earatlas.features.layout import Threshold
from earatlas.features.statistics import CueStatistics
from earatlas.features.tf_bins import HeardBins
from earatlas.separation.separator import Separator
from earatlas.separation.source_model import SourcePosterior
from earatlas.separation.vessl import VESSL
from earatlas.streaming.expected_cues import Expected
from earatlas.types import Array, Complex, Indices, Mask

__all__ = ["MaskStream"]

_BANDS = 4  # of λ, as in a recording
_SHARE_STEPS = 3
_SHARE_BINS = 4.0  # an even share is worth so many bins of a band
_MEMORY_SECONDS = 6.0  # after which what a track sounded like counts 1/e
_PLACE_FRAMES = 5.0  # what a track's direction is worth, in frames
_EVERYWHERE = 8  # updates
_MOVED_DEGREES = 1.0  # from which on a track's place is asked for its cues again
# By its cues alone, a talker beside another in the open was within 8 degrees once it had been heard
# for so many frames (three of ku100, not those judged); in rooms often on another elevation.
_TELLING_FRAMES, _SURE_DEGREES = 2.0, 10.0
_PEAK_SECONDS = 10.0  # after which the loudest bin counts 1/e


class MaskStream:
    """The cues of tracks, and masks by them."""

    def __init__(self, separator: Separator, frame_seconds: float) -> None:
        self._model, self._layout = separator.source_model, separator.layout
        self.separator = separator
        self._frame_seconds = frame_seconds
        self._window = 0.5 - 0.5 * np.cos(
            2 * np.pi * np.arange(self._layout.window) / self._layout.window
        )
        F = self._layout.n_frequencies
        self._band = np.arange(F) * _BANDS // F
        self._noise = self._model.noise
        self._known: dict[int, CueStatistics] = {}
        self._sources: dict[int, SourcePosterior] = {}
        self._cues: dict[int, tuple[Array, Array]] = {}
        self._frames: list[Complex] = []
        self._peak = 0.0
        self._updates = 0
        self._expected: dict[int, tuple[Array, CueStatistics]] = {}

    def hear(self, samples: Array) -> None:
        """Take in the frame of the last window of samples (2, n)."""
        layout = self._layout
        spectra = scipy.fft.rfft(samples[:, -layout.window :] * self._window, axis=-1)[..., None]
        self._frames.append(spectra)
        self._peak = max(
            self._peak * float(np.exp(-self._frame_seconds / _PEAK_SECONDS)),
            float(bin_power(spectra, layout.window).max()),
        )

    def now(self, ids: Sequence[int]) -> Array:
        """Masks (M, F) of the last frame."""
        return self._masks(self.last, ids)[..., 0]

    @property
    def last(self) -> Complex:
        """Spectra (2, B, 1) of the last frame."""
        return self._frames[-1]

    def again(self, spectra: Complex, ids: Sequence[int]) -> Array:
        """Masks (M, F, T) of frames of before, by what is known now."""
        return self._masks(spectra, ids)

    def at_places(self, spectra: Complex, places: Array) -> Array:
        """Masks (M, F, T) of frames of before, if sources at these places (M, C) made them."""
        other = copy.copy(self)
        other._known, other._sources, other._cues, other._expected = {}, {}, {}, {}
        other._frames, other._updates = [spectra], 0
        other.update(dict(enumerate(places)), {})
        return other.again(spectra, range(len(places)))

    def _masks(self, spectra: Complex, ids: Sequence[int]) -> Array:
        M, F, T = len(ids), self._layout.n_frequencies, spectra.shape[-1]
        if M <= 1:
            return np.ones((M, F, T))
        f, t = (index.ravel() for index in np.indices((F, T)))
        bins = HeardBins.at(spectra, self._model.layout, f, t)
        cues, squares = (np.stack([self._cues[i][part] for i in ids]) for part in (0, 1))
        v = self._noise
        constant = -0.5 * (np.log(2 * np.pi * v) + squares / v)
        logs = bins.quadratic(np.broadcast_to(-0.5 / v, cues.shape), cues / v, constant)
        heard = bins.level_db >= Threshold().floor_db(self._peak)
        return self._shared(logs, self._band[f] * T + t, heard, _BANDS * T).reshape(M, F, T)

    def _shared(self, logs: Array, cells: Indices, heard: Mask, count: int) -> Array:
        """q (M, N) with the shares that the heard bins of each cell have."""
        M = len(logs)
        shares = np.full((M, count), 1 / M)
        logs -= logs.max(axis=0)
        p = np.exp(logs)
        for _ in range(_SHARE_STEPS):
            q = p * shares[:, cells]
            q /= q.sum(axis=0)
            own = np.stack([np.bincount(cells, heard * row, count) for row in q])
            shares = (own + _SHARE_BINS / M) / (own.sum(axis=0) + _SHARE_BINS)
        q = p * shares[:, cells]
        masks: Array = q / q.sum(axis=0)
        return masks

    def update(self, places: Mapping[int, Array], moved: Mapping[int, float]) -> None:
        """What each track sounds like, from the frames since the last time.

        `places` are where the tracks are, as their head hears them, `moved` (0 to 1) how little of
        what was known holds after their motion.
        """
        for gone in set(self._known) - set(places):
            del self._known[gone], self._cues[gone], self._sources[gone], self._expected[gone]
        ids = list(places)
        for new in set(ids) - set(self._known):
            self._begin(new, places[new])
        spectra, self._frames = self._recent(), []
        if not ids or spectra is None:
            return
        fade = float(np.exp(-spectra.shape[-1] * self._frame_seconds / _MEMORY_SECONDS))
        places_known = CueStatistics.stacked([self._expected_of(i, places[i]) for i in ids])
        past = CueStatistics.stacked([self._known[i] for i in ids]).scaled(
            np.array([fade * (1 - moved.get(i, 0.0)) for i in ids])
        )
        bins = self.separator.sure_bins(spectra, Threshold().floor_db(self._peak))
        vessl = VESSL(self._model, bins, anchor=past + places_known)
        sources = tuple(self._sources[i] for i in ids)
        state = vessl.start_from(sources, self._noise)
        # Of what is known, only the charts in reach are looked at again, but for now and then.
        self._updates += 1
        everywhere = self._updates % _EVERYWHERE == 0
        state = vessl.step(
            replace(state, sources=sources, free_energies=(0.0,)), all_charts=everywhere
        )
        known = past + bins.statistics(state.assignments[: len(ids)])
        self._noise = state.noise
        for m, i in enumerate(ids):
            self._known[i] = known[m]
            self._sources[i] = state.sources[m]
            self._cues[i] = (state.sources[m].cues, state.sources[m].squares)

    def expected(self, ids: Sequence[int]) -> Expected:
        """What the head makes expect of tracks where they are."""
        layout = self._model.layout
        level, cosine, sine = (np.full((len(ids), layout.n_frequencies), np.nan) for _ in range(3))
        for kind, values in (("ild", level), ("ipd_cos", cosine), ("ipd_sin", sine)):
            own = layout.cue_kinds == kind
            for row, i in zip(values, ids, strict=True):
                known = self._expected[i][1]
                heard = own & (known.counts > 0)
                row[layout.cue_frequencies[heard]] = known.sums[heard] / known.counts[heard]
        return Expected(level, np.arctan2(sine, cosine))

    def places(self) -> dict[int, Array]:
        """Where each track is by its cues alone, as its head hears it: of those that tell it."""
        found = {}
        for track, known in self._known.items():
            if float(np.mean(known.counts)) >= _TELLING_FRAMES:
                posterior = self._model.posterior(known, self._noise).posterior
                if posterior.radius_90 <= _SURE_DEGREES:
                    found[track] = posterior.best
        return found

    def _recent(self) -> Complex | None:
        return np.concatenate(self._frames, axis=-1) if self._frames else None

    def _begin(self, new: int, place: Array) -> None:
        nothing = np.zeros(self._model.layout.n_cues)
        self._known[new] = CueStatistics(nothing, nothing, nothing, 0.0)
        prior = self._expected_of(new, place)
        self._sources[new] = self._model.posterior(prior, self._noise)
        self._cues[new] = (self._sources[new].cues, self._sources[new].squares)

    def _expected_of(self, track: int, place: Array) -> CueStatistics:
        """The same of one track; asked anew when it has moved."""
        before = self._expected.get(track)
        if before is None or self._model.model.space.distance(before[0], place) > _MOVED_DEGREES:
            before = self._expected[track] = (place, self._at(place[None])[0])
        return before[1]

    def _at(self, places: Array) -> CueStatistics:
        """What is expected at places (M, C), as if it had been heard for a few frames."""
        means, variances = self._model.model.expected_cues(places)
        counts, sums, squares = (
            np.zeros((len(places), self._model.layout.n_cues)) for _ in range(3)
        )
        learned = self._model.learned
        counts[:, learned] = _PLACE_FRAMES
        sums[:, learned] = _PLACE_FRAMES * means
        squares[:, learned] = _PLACE_FRAMES * (means**2 + variances)
        return CueStatistics(counts, sums, squares, _PLACE_FRAMES)
