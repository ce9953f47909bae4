"""Separate a recording: how many sources, where each is, and each by itself.

In: a `Listener` (a learned head) and a recording, in memory or in a file. Out: a `Scene` of
`Source`s. The way there: the surest bins (`earatlas.bins`), a scout that proposes directions
(`earatlas.scout`), VESSL that follows each source (`earatlas.vessl`), masks, sound
(`earatlas.rendering`).

A long recording is done twice, in overlapping blocks. The first pass keeps a digest of bounded
size, the loudest sure bins of every block, and finds the sources in it as in a short recording. The
second pass separates block by block; what each source sounded like in the digest counts there like
bins that were heard (an `Anchor`). So source 2 is the same talker in every block, and one that is
silent for a while does not take over somebody else. Neighbouring blocks are cross-faded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earatlas.audio import Audio, Spectra, read_blocks, stft
from earatlas.bins import HeardBins, coherence
from earatlas.blocks import Block, CrossFade, SoundFiles, overlapping
from earatlas.calibration import TYPICAL_FRAME_NOISE
from earatlas.cues import Threshold, bin_power, check_length, checked_audio, nothing_heard
from earatlas.errors import InputError
from earatlas.localization import Listener, Localizer
from earatlas.pictures import Picture, PictureBuilder
from earatlas.posterior import ChartMixture
from earatlas.rendering import Rendering, check_rendering, sounds_of
from earatlas.scout import Scout, Scouting, loudest
from earatlas.statistics import LevelStatistics
from earatlas.vessl import Anchor, Inference, Mixture, SourceModel, State

__all__ = ["Picture", "Scene", "Separator", "Source", "separate", "separate_file"]

Array = NDArray[np.float64]
Chunks = Callable[[], Iterable[Array]]
Progress = Callable[[float], None]

_SURE = 0.99  # coherence that one source alone easily reaches
_SURE_SHARE = 0.5  # of the heard bins is kept at least: in a room few are that coherent
_PAUSE_DB, _CLEAN = 12.0, 0.75  # without noise, so many bins pass the noise floor less so much
MOST_SOURCES = 6
_STARTS = 2  # sets of directions that VESSL tries
_TRIAL_STEPS = 4
_WORTH = 0.1  # nats a bin that one more source must gain; true ones gained 0.2 to 5, false ones 0
_CROWD = 3.0  # beliefs among M sources are as wide as if they fitted (M - 1) times so badly
_BLOCK_SECONDS, _OVERLAP_SECONDS = 12.0, 2.0
_DIGEST_BINS_A_BLOCK, _DIGEST_BINS = 12_000, 120_000
_BINS_A_CELL = 20.0  # as a few seconds of two talkers have
_ANCHOR_FRAMES = 20.0  # what the digest is worth in a block, a channel and source


@dataclass(frozen=True, eq=False)
class Source:
    """One sound of a scene."""

    name: str
    belief: ChartMixture  # where it is
    share: float  # of the mixture's energy that its mask has; all sources' sum to 1
    audio: Audio | None = None  # both ears; None where it went to a file
    mask: NDArray[np.float32] | None = None  # (F, T) of the bins above 0 Hz

    def __repr__(self) -> str:
        place = ", ".join(f"{v:.1f}" for v in self.direction)
        return f"Source({self.name!r}, ({place}) degrees, {100 * self.share:.0f} % of the energy)"

    @cached_property
    def direction(self) -> Array:
        """The most probable direction (C,), in degrees."""
        return self.belief.best

    @cached_property
    def credible_90_area(self) -> float:
        """Size of the region that holds it with a probability of 90 %, in degrees^L."""
        return self.belief.credible_area(0.9)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "name": self.name,
            "direction": [round(float(v), 2) for v in self.direction],
            "share": round(self.share, 4),
            "credible_90_area": round(self.credible_90_area, 1),
        }


@dataclass(frozen=True, eq=False)
class Scene:
    """The sources of a recording, the one with most of the sure bins first."""

    sources: tuple[Source, ...]
    picture: Picture
    free_energies: tuple[float, ...]  # one a step of VESSL: never falls
    seconds: float
    mixture: Audio | None = None  # at the rate of the head's cues; None where it is in a file
    track_seconds: Array | None = None  # (W,) middle of each block of a long recording
    track: Array | None = None  # (W, M, C) directions in each of them

    def __repr__(self) -> str:
        places = ", ".join(f"({', '.join(f'{v:.0f}' for v in s.direction)})" for s in self.sources)
        return f"Scene({self.seconds:.1f} s, {len(self.sources)} sources at {places} degrees)"

    @property
    def directions(self) -> Array:
        """(M, C) most probable directions, in degrees."""
        return np.stack([source.direction for source in self.sources])

    @property
    def masks(self) -> NDArray[np.float32] | None:
        """(M, F, T) soft masks, or None where they were not kept."""
        masks = [source.mask for source in self.sources]
        kept = [mask for mask in masks if mask is not None]
        return np.stack(kept) if len(kept) == len(masks) else None


class Separator:
    """A learned head made ready for mixtures: what is computed once for all recordings."""

    def __init__(
        self,
        listener: Listener,
        *,
        inference: Inference | None = None,
        scouting: Scouting | None = None,
    ) -> None:
        layout, noise = listener.layout, listener.calibration.frame_noise
        if noise is None:
            noise = np.array([TYPICAL_FRAME_NOISE[str(kind)] for kind in layout.channel_kinds])
        self.listener, self.layout = listener, layout
        self.source_model = SourceModel.of(listener.model, layout, noise, inference)
        self.scout = Scout(listener.model, layout, scouting)

    def sure_bins(self, spectra: Spectra, floor_db: float) -> HeardBins:
        """The heard bins that one source alone can explain best: at least half of them."""
        layout = self.source_model.layout
        bins = HeardBins.of_spectra(spectra, layout, np.full(layout.bins, floor_db))
        if not len(bins):
            return bins
        alone = coherence(spectra)[bins.f, bins.t]
        least = min(_SURE, float(np.quantile(alone, 1 - _SURE_SHARE)))
        return bins.subset(np.flatnonzero(alone >= least))

    def above_noise(
        self, bins: HeardBins, levels: LevelStatistics, threshold: Threshold
    ) -> HeardBins:
        """The bins that stand above the recording's noise; all of them where there is little."""
        floors = np.full(self.layout.bins, -np.inf)
        floors[self.layout.channel_bins] = levels.floors_db(threshold)
        above = bins.level_db - floors[bins.f]
        # Pauses of several talkers look like noise, but then few bins are anywhere near it.
        quiet = np.mean(above >= -_PAUSE_DB) > _CLEAN or not (above >= 0).any()
        return bins if quiet else bins.subset(np.flatnonzero(above >= 0))

    def find(self, bins: HeardBins, n_sources: int | None = None) -> tuple[Mixture, State]:
        """Where the sources are; without a number, one more while the free energy says so."""
        mixture = Mixture(self.source_model, bins)
        sighting = self.scout.look(bins)
        best: State | None = None
        counts = range(1, MOST_SOURCES + 1) if n_sources is None else (n_sources,)
        for count in counts:
            starts = sighting.best_sets(count, _STARTS if count > 1 else 1)
            trials = [mixture.run(mixture.start_at(x), _TRIAL_STEPS) for x in starts]
            trial = max(trials, key=lambda state: state.free_energy)
            state = mixture.run(trial)
            if best is not None and state.free_energy <= best.free_energy + _WORTH * len(bins):
                break
            best = state
        assert best is not None
        heard = best.assignments[: len(best.sources)].sum(axis=1)
        return mixture, _reordered(best, np.argsort(-heard, kind="stable"))

    def masks(self, mixture: Mixture, state: State, spectra: Spectra) -> Array:
        """Soft masks (M, F, T) of all bins, heard or not."""
        F, T = self.layout.bins, spectra.shape[-1]
        if len(state.sources) == 1:
            return np.ones((1, F, T))
        f, t = (index.ravel() for index in np.indices((F, T)))
        everything = HeardBins.at(spectra, self.source_model.layout, f, t)
        return mixture.posterior_masks(state, everything).reshape(-1, F, T)


# --- one recording -------------------------------------------------------------------------


def separate(
    separator: Separator,
    audio: Audio,
    *,
    n_sources: int | None = None,
    rendering: str = "spatial",
    threshold: Threshold | None = None,
) -> Scene:
    """The sources of a recording in memory; all their sound and masks are kept.

    The sounds add up to the mixture. With one source, its belief is that of `localize`.
    """
    audio = checked_audio(audio, separator.layout)
    sounds: list[Array] = []
    masks: list[NDArray[np.float32]] = []
    job = Job(separator, check_n_sources(n_sources), check_rendering(rendering), threshold)
    for part in job.run(lambda: [audio.samples]):
        sounds.append(part.sounds)
        masks.append(part.masks)
    scene = job.scene()
    whole, mask = np.concatenate(sounds, axis=-1), np.concatenate(masks, axis=-1)
    sources = tuple(
        replace(source, audio=Audio(whole[m], audio.rate), mask=mask[m])
        for m, source in enumerate(scene.sources)
    )
    return replace(scene, sources=sources, mixture=audio)


def separate_file(
    separator: Separator,
    path: str | Path,
    folder: str | Path,
    *,
    n_sources: int | None = None,
    rendering: str = "spatial",
    channels: tuple[int, int] = (0, 1),
    threshold: Threshold | None = None,
    progress: Progress | None = None,
) -> tuple[Scene, list[Path]]:
    """The sources of a file of any length, written to `folder` as they come: bounded memory.

    The files are named after the recording (party_source1.wav, …), at the rate of the head's cues.
    They appear when all are complete, or not at all. `progress` is told the share that is done.
    """
    rate = separator.layout.rate
    job = Job(separator, check_n_sources(n_sources), check_rendering(rendering), threshold)

    def chunks() -> Iterator[Array]:
        warn = not job.surveyed  # the second pass has nothing new to say
        for block in read_blocks(path, channels=channels, rate=rate, warn=warn):
            yield block.samples

    folder = Path(folder)
    with SoundFiles(folder, rate) as files:
        for part in job.run(chunks, progress):
            if not files.names:
                files.open([sound_file(path, m) for m in range(len(part.sounds))])
            files.append(part.sounds)
        scene = job.scene()
    return scene, [folder / name for name in files.names]


def sound_file(path: str | Path, m: int) -> str:
    """The name that `separate_file` gives to the sound of source m of a recording."""
    return f"{Path(path).stem}_source{m + 1}.wav"


def check_n_sources(n_sources: int | None) -> int | None:
    """A number of sources that can be asked for, or an InputError."""
    if n_sources is not None and n_sources not in range(1, MOST_SOURCES + 1):
        raise InputError(
            f"n_sources must be from 1 to {MOST_SOURCES}, or None to find out, got {n_sources!r}. "
            "Two ears hardly tell more apart."
        )
    return None if n_sources is None else int(n_sources)


@dataclass(frozen=True, eq=False)
class Part:
    """A stretch of the separated recording; stretches follow each other without a gap."""

    sounds: Array  # (M, 2, n)
    masks: NDArray[np.float32]  # (M, F, t)


class Job:
    """One recording on its way through the separator: `run` it, then ask for its `scene`."""

    def __init__(
        self,
        separator: Separator,
        n_sources: int | None,
        rendering: Rendering,
        threshold: Threshold | None = None,
    ) -> None:
        layout = separator.layout
        self.separator, self.rendering = separator, rendering
        self.n_sources, self.threshold = n_sources, threshold or Threshold()
        self.surveyed = False  # the sources are known
        self._block = round(_BLOCK_SECONDS * layout.rate / layout.hop) * layout.hop
        self._overlap = round(_OVERLAP_SECONDS * layout.rate / layout.hop) * layout.hop
        self._levels = LevelStatistics(layout)
        self._samples = 0

    def run(self, chunks: Chunks, tell: Progress | None = None) -> Iterator[Part]:
        """Separate what `chunks()` gives, arrays (2, n) one after the other.

        It is asked once if all fits into a block, else again for every pass.
        """
        separator, layout, tell = self.separator, self.separator.layout, tell or _nobody
        blocks = overlapping(chunks(), self._block, self._overlap)
        first = next(blocks)
        check_length(first.samples.shape[1], layout)
        if first.last:
            spectra = stft(first.samples, layout.window, layout.hop)
            floor_db = self.threshold.floor_db(float(bin_power(spectra, layout.window).max()))
            bins = self._heard(separator.sure_bins(spectra, floor_db))
            self._levels.push(spectra)
            clear = separator.above_noise(bins, self._levels, self.threshold)
            mixture, state = separator.find(clear, self.n_sources)
            self._begin(state, spectra.shape[-1], chunks)
            tell(0.5)
            if len(clear) < len(bins):  # noise tells nothing of directions, but is to be shared out
                mixture = Mixture(separator.source_model, bins)
                state = mixture.run(mixture.start_from(state.sources, state.noise))
            yield self._part(first, spectra, mixture, state)
            tell(1.0)
            return
        digest, floor_db = self._survey(chain([first], blocks), tell)
        _, state = separator.find(self._heard(digest), self.n_sources)
        self._begin(state, self._samples // layout.hop + 1, chunks)
        anchor = _anchor(digest, state)
        for block in overlapping(chunks(), self._block, self._overlap):
            spectra = stft(block.samples, layout.window, layout.hop)
            bins = separator.sure_bins(spectra, floor_db)
            here = Mixture(separator.source_model, bins, anchor=anchor)
            now = here.run(here.start_from(state.sources, state.noise))
            yield self._part(block, spectra, here, now)
            tell(0.5 + 0.5 * (block.start + block.samples.shape[1]) / self._samples)

    def _heard(self, bins: HeardBins) -> HeardBins:
        if not len(bins):
            raise nothing_heard()
        return bins

    def _survey(self, blocks: Iterator[Block], tell: Progress) -> tuple[HeardBins, int]:
        """The loudest sure bins of every block, and the floor of the whole recording."""
        layout, parts, peak = self.separator.layout, [], 0.0
        for block in blocks:
            spectra = stft(block.samples, layout.window, layout.hop)
            peak = max(peak, float(bin_power(spectra, layout.window).max()))
            bins = self.separator.sure_bins(spectra, self.threshold.floor_db(peak))
            parts.append(bins.subset(loudest(bins, _DIGEST_BINS_A_BLOCK, 4)))
            if sum(map(len, parts)) > 2 * _DIGEST_BINS:
                parts = _thinned(parts)
            self._levels.push(spectra)
            self._samples = block.start + block.samples.shape[1]
            tell(0.5 * (1 - _BLOCK_SECONDS * layout.rate / (self._samples + self._block)))
        floor_db = self.threshold.floor_db(peak)
        parts = [part.subset(np.flatnonzero(part.level_db >= floor_db)) for part in parts]
        digest = HeardBins.joined(_thinned(parts))
        clear = self.separator.above_noise(digest, self._levels, self.threshold)
        return _coarser(clear, self.separator.source_model.how.bands), floor_db

    def _begin(self, state: State, frames: int, chunks: Chunks) -> None:
        """Get ready to add up what the blocks give."""
        M = len(state.sources)
        self.surveyed = True
        self._state, self._chunks = state, chunks
        self._picture = PictureBuilder(self.separator.layout, frames, M)
        self._energies = np.zeros(M)
        self._track: list[tuple[float, Array]] = []
        hop = self.separator.layout.hop
        self._sound_fade, self._mask_fade = (
            CrossFade(self._overlap),
            CrossFade(self._overlap // hop + 1),
        )

    def _part(self, block: Block, spectra: Spectra, mixture: Mixture, state: State) -> Part:
        layout = self.separator.layout
        masks = self.separator.masks(mixture, state, spectra)
        n = block.samples.shape[1]
        sounds = sounds_of(block.samples, spectra, masks, layout, self.rendering)
        power = bin_power(spectra, layout.window).sum(axis=0)
        self._energies += np.einsum("mft,ft->m", masks, power)
        self._picture.add(spectra, masks, block.start // layout.hop, mixture.bins)
        middle = (block.start + 0.5 * n) / layout.rate
        self._track.append((middle, np.stack([s.belief.best for s in state.sources])))
        self._samples = block.start + n
        return Part(
            self._sound_fade.push(sounds, last=block.last),
            self._mask_fade.push(masks, last=block.last).astype(np.float32),
        )

    def scene(self) -> Scene:
        """What was found, without the sound."""
        listener, state = self.separator.listener, self._state
        if len(state.sources) == 1:
            localizer = Localizer(listener, threshold=self.threshold)
            for chunk in self._chunks():
                localizer.push(chunk)
            beliefs = [localizer.finish().belief]
        else:
            crowded = listener.calibration.relaxed(_CROWD * (len(state.sources) - 1))
            beliefs = [crowded.blur(source.belief) for source in state.sources]
        energies = self._energies / max(float(self._energies.sum()), 1e-300)
        sources = tuple(
            Source(f"source{m + 1}", belief, float(share))
            for m, (belief, share) in enumerate(zip(beliefs, energies, strict=True))
        )
        times, places = zip(*self._track, strict=True)
        return Scene(
            sources=sources,
            picture=self._picture.picture(),
            free_energies=state.free_energies,
            seconds=self._samples / self.separator.layout.rate,
            track_seconds=np.array(times),
            track=np.stack(places),
        )


def _nobody(share: float) -> None:
    """Told of progress when nobody else is."""


def _thinned(parts: list[HeardBins]) -> list[HeardBins]:
    """The loudest bins of each stretch, so many that all of them keep to the digest's size."""
    share = min(_DIGEST_BINS / max(sum(map(len, parts)), 1), 1.0)
    return [part.subset(loudest(part, int(share * len(part)), 1)) for part in parts]


def _coarser(digest: HeardBins, bands: int | None) -> HeardBins:
    """The digest in longer frames, none of them empty: shares need some bins a cell."""
    together = round(_BINS_A_CELL * digest.frames * (bands or 1) / max(len(digest), 1))
    frames, t = np.unique(digest.t // max(together, 1), return_inverse=True)
    return replace(digest, frames=len(frames), t=t)


def _anchor(digest: HeardBins, state: State) -> Anchor:
    """What the sources sounded like in the digest, each worth the same number of frames."""
    anchor = Anchor(*digest.sums(state.assignments[: len(state.sources)]))
    return anchor.scaled(_ANCHOR_FRAMES / np.maximum(anchor.counts.mean(axis=1), 1e-300))


def _reordered(state: State, order: NDArray[np.intp]) -> State:
    """The same state with the sources in another order; a garbage class stays last."""
    rows = np.concatenate([order, np.arange(len(order), len(state.assignments))])
    return State(
        state.assignments[rows],
        state.noise,
        state.shares[rows],
        tuple(state.sources[m] for m in order),
        state.free_energies,
    )
