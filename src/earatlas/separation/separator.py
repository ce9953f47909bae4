"""A learned head made ready for mixtures: from bins to sources and their masks.

The way: the surest bins (`earatlas.features.tf_bins`), a scout that proposes directions
(`earatlas.separation.candidate_search`), VESSL that follows each source (`earatlas.separation.vessl`), masks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from earatlas.features.layout import Threshold
from earatlas.features.onset_detector import OnsetBins, OnsetStream
from earatlas.features.statistics import LevelStatistics
from earatlas.features.tf_bins import HeardBins, coherence
from earatlas.localization.learned_head import LearnedHead
from earatlas.localization.multi_source_posterior import DOUBTFUL_GAIN
from earatlas.localization.onset_mixture import Heard, Several
from earatlas.ppam.calibration import TYPICAL_FRAME_NOISE
from earatlas.separation.candidate_search import Scout, Scouting, Sighting
from earatlas.separation.dense_masks import masks_everywhere
from earatlas.separation.source_model import Inference, SourceModel
from earatlas.separation.vessl import VESSL, State, moments
from earatlas.tracking.offline import Wanted, Way, ways_of
from earatlas.tracking.stitching import handed_on
from earatlas.training.source_pairs import ONSETS, STRONGEST
from earatlas.types import Array, Complex, Spectra

__all__ = ["Arrivals", "Separator", "in_room"]

_SURE = 0.99  # coherence that one source alone easily reaches
_SURE_SHARE = 0.5  # of the heard bins is kept at least: in a room few are that coherent
_PAUSE_DB, _CLEAN = 12.0, 0.75  # without noise, so many bins pass the noise floor less so much
MOST_SOURCES = 6
# Decay of 60 dB from which it is surely a room: 0.11 to 0.22 s in 60 scenes of 1 to 3 talkers in
# the open, 0.23 to 0.33 at T60 0.3 s. In noise, where it may be longer too, onsets count well.
ROOM_SECONDS = 0.25
_FEWEST_ONSETS = 20
_STARTS = 2  # sets of directions that VESSL tries
_TRIAL_STEPS = 4
_WORTH = 0.1  # nats a bin that one more source must gain; true ones gained 0.2 to 5, false ones 0
# The same after the steps of a trial, from which on it is worth to go on: of 32 mixtures of one to
# four talkers of cipic_021 in the open, those that came to gain enough had 0.06 and more by then,
# all others -0.09 and less; of ten of three talkers of ku100, -0.08 and more, and -0.22 and less.
# A lower one costs time alone.
_HOPELESS = -0.2
# Variance of the cues that scatter most (the upper tenth), over that of one sound, up to which the
# sources explain all that is heard. Of 92 mixtures of one to four talkers (ku100, cipic_021,
# kemar_full), the 8 in which the free energy found one more had 27 and more before it; one talker
# alone has up to 6, and so half of those with two are not asked: a third of their time.
_EXPLAINED = 12.0


def in_room(onsets: OnsetBins) -> bool:
    """Whether sound dies away as slowly as in a room."""
    return onsets.decay_seconds >= ROOM_SECONDS


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Sources by their onsets, in an order of their own, and the onsets that tell of them."""

    sources: tuple[Heard, ...]
    onsets: OnsetBins | None
    separated: tuple[OnsetBins, ...] = ()  # of each source of VESSL, by itself
    nearly: float = 0.0  # what one more has of what it takes to be counted; 0: not asked

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def sure(self) -> bool:
        """Whether each of them gains enough to be there."""
        return min(own.evidence for own in self.sources) >= DOUBTFUL_GAIN

    @property
    def places(self) -> Array:
        """(M, C) where they are."""
        return np.stack([own.place for own in self.sources])


class Separator:
    """A learned head made ready for mixtures: what is computed once for all recordings."""

    def __init__(
        self,
        head: LearnedHead,
        *,
        inference: Inference | None = None,
        scouting: Scouting | None = None,
    ) -> None:
        layout, noise = head.layout, head.calibration.frame_noise
        if noise is None:
            noise = np.array([TYPICAL_FRAME_NOISE[str(kind)] for kind in layout.cue_kinds])
        self.head, self.layout = head, layout
        self.source_model = SourceModel.of(head.model, layout, noise, inference)
        self.scout = Scout(head.model, layout, scouting)

    def sure_bins(self, spectra: Spectra, floor_db: float) -> HeardBins:
        """The heard bins that one source alone can explain best: at least half of them."""
        layout = self.source_model.layout
        bins = HeardBins.of_spectra(spectra, layout, np.full(layout.n_frequencies, floor_db))
        if not len(bins):
            return bins
        alone = coherence(spectra)[bins.f, bins.t]
        least = min(_SURE, float(np.quantile(alone, 1 - _SURE_SHARE)))
        return bins.subset(np.flatnonzero(alone >= least))

    def above_noise(
        self, bins: HeardBins, levels: LevelStatistics, threshold: Threshold
    ) -> HeardBins:
        """The bins that stand above the recording's noise; all of them where there is little."""
        floors = np.full(self.layout.n_frequencies, -np.inf)
        floors[self.layout.cue_frequencies] = levels.floors_db(threshold)
        above = bins.level_db - floors[bins.f]
        # Pauses of several talkers look like noise, but then few bins are anywhere near it.
        quiet = np.mean(above >= -_PAUSE_DB) > _CLEAN or not (above >= 0).any()
        return bins if quiet else bins.subset(np.flatnonzero(above >= 0))

    def onset_stream(self, *, stretches: bool = False) -> OnsetStream | None:
        """For the onsets of a mixture; None where the head was not made ready for rooms."""
        if self.head.rooms is None:
            return None
        gate = replace(self.head.rooms.sound.gate, most_bins=ONSETS)
        return OnsetStream(gate, stretches=stretches)

    def heard(self, onsets: OnsetBins | None, n_sources: int | None) -> Arrivals:
        """The sources that the onsets tell of; none where too few arrive to tell.

        The bins that rise most tell the places best. Now and then all of them are one talker's, and
        the others are heard only in more bins.
        """
        if self.head.rooms is None or onsets is None or len(onsets) < _FEWEST_ONSETS:
            return Arrivals((), onsets)
        sources: tuple[Heard, ...] = ()
        for count in (STRONGEST, ONSETS):
            bins = onsets.strongest(count)
            several = Several(self.head.rooms.sound, bins)
            if n_sources is None:
                cells = several.counted(MOST_SOURCES)
            else:
                cells = several.placed(n_sources)[-1]
            sources = tuple(several.heard(cells))
            if n_sources is None or min(own.evidence for own in sources) >= DOUBTFUL_GAIN:
                break
        # In the open the free energy is asked for more of them.
        ask = n_sources is None and in_room(onsets)
        return Arrivals(sources, bins, nearly=several.nearly(cells) if ask else 0.0)

    def ways(
        self, onsets: OnsetBins | None, heard: Arrivals, n_sources: int | None, samples: int
    ) -> list[Way]:
        """The ways of sources that were heard in their places if one of them moves; else none."""
        if self.head.rooms is None or onsets is None or not len(heard):
            return []
        wanted = Wanted(samples / self.layout.rate, n_sources, MOST_SOURCES)
        return ways_of(self.head.rooms.sound, onsets, heard.places, wanted)

    def long_ways(
        self, stretches: list[OnsetBins], heard: Arrivals, n_sources: int | None, samples: int
    ) -> list[Way]:
        """The same of a long recording, from the onsets of its stretches, one after the other."""
        if self.head.rooms is None or not stretches or not len(heard):
            return []
        wanted = Wanted(samples / self.layout.rate, n_sources, MOST_SOURCES)
        return handed_on(self.head.rooms.sound, stretches, heard.places, wanted)

    def find_at(self, bins: HeardBins, places: Array) -> tuple[VESSL, State]:
        """Sources followed from known places (M, C)."""
        vessl = VESSL(self.source_model, bins)
        return vessl, _ordered(vessl.run(vessl.start_at(places)))

    def find(self, bins: HeardBins, n_sources: int | None = None) -> tuple[VESSL, State]:
        """Where the sources are; without a number, one more while the free energy says so."""
        vessl = VESSL(self.source_model, bins)
        sighting = self.scout.look(bins)
        state = vessl.run(_trial(vessl, sighting, n_sources or 1))
        if n_sources is None:
            state = _grown(vessl, sighting, state, len(bins))
        return vessl, _ordered(state)

    def find_more(self, bins: HeardBins, vessl: VESSL, state: State) -> State:
        """These sources, or more of them while the free energy says so."""
        scatter = state.noise / self.source_model.noise
        if np.quantile(scatter, 0.9) < _EXPLAINED:
            return state
        return _ordered(_grown(vessl, self.scout.look(bins), state, len(bins)))

    def ratios(self, state: State) -> Complex:
        """What is expected of both ears of each source, right over left (M, F).

        NaN above the phases that were learned; below them, the source's own are taken.
        """
        wide, learned = self.source_model.layout, self.layout.ipd_frequencies
        phases = np.arange(learned[-1] + 1 if len(learned) else 0)
        known = {
            kind: np.full((len(state.sources), wide.n_frequencies), np.nan)
            for kind in ("ild", "ipd_cos", "ipd_sin")
        }
        cues, _ = moments(state.sources)
        for kind, values in known.items():
            own = wide.cue_kinds == kind
            values[:, wide.cue_frequencies[own]] = cues[:, own]
        phase = np.arctan2(known["ipd_sin"], known["ipd_cos"])
        ratios = np.full(phase.shape, np.nan, dtype=np.complex128)
        ratios[:, phases] = (10 ** (known["ild"] / 20) * np.exp(1j * phase))[:, phases]
        return ratios

    def masks(self, vessl: VESSL, state: State, spectra: Spectra) -> Array:
        """Soft masks (M, F, T) of all bins, heard or not."""
        if len(state.sources) == 1:
            return np.ones((1, self.layout.n_frequencies, spectra.shape[-1]))
        return masks_everywhere(vessl, state, spectra)


def _trial(vessl: VESSL, sighting: Sighting, count: int) -> State:
    """So many sources after a few steps, from the best of a few starts."""
    starts = sighting.best_sets(count, _STARTS if count > 1 else 1)
    trials = [vessl.run(vessl.start_at(x), _TRIAL_STEPS) for x in starts]
    return max(trials, key=lambda state: state.free_energy)


def _grown(vessl: VESSL, sighting: Sighting, state: State, bins: int) -> State:
    """One more source while the free energy says so."""
    for count in range(len(state.sources) + 1, MOST_SOURCES + 1):
        more = _trial(vessl, sighting, count)
        if more.free_energy < state.free_energy + _HOPELESS * bins:
            break
        more = vessl.run(more)
        if more.free_energy <= state.free_energy + _WORTH * bins:
            break
        state = more
    return state


def _ordered(state: State) -> State:
    """The source with most of the sure bins first."""
    heard = state.assignments[: len(state.sources)].sum(axis=1)
    return state.reordered(np.argsort(-heard, kind="stable"))
