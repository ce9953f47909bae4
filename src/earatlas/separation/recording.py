"""Separate a recording: how many sources, where each is, and each by itself.

In: a `Separator` (a learned head, made ready) and a recording. Out: a `Scene`, or a `FoundScene`
and sound files. One that fits into a block is taken apart at once.

A long recording is done twice, in overlapping blocks. The first pass keeps a digest of bounded
size, the loudest sure bins of every block, and finds the sources in it as in a short recording. The
second pass separates block by block; what each source sounded like in the digest counts there like
bins that were heard (an anchor). So source 2 is the same talker in every block, and one that is
silent for a while does not take over somebody else. Neighbouring blocks are cross-faded.

Sources are found at the rate of the head's cues; their sounds have the recording's own rate, or the
one that is asked for (`earatlas.separation.sound.upper`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from math import gcd
from pathlib import Path

import numpy as np

from earatlas.errors import EaratlasWarning, InputError
from earatlas.files import output_folder
from earatlas.hearing.audio import Audio, checked_rate
from earatlas.hearing.blocks import Block, overlapping
from earatlas.hearing.cues import bin_power, check_length, checked_audio, nothing_heard
from earatlas.hearing.heard_bins import HeardBins
from earatlas.hearing.layout import CueLayout, Threshold
from earatlas.hearing.onsets import OnsetBins, OnsetStream
from earatlas.hearing.recording import FileRecording, MemoryRecording, Recording
from earatlas.hearing.sound_files import growing_sound_files
from earatlas.hearing.statistics import CueStatistics, LevelStatistics
from earatlas.hearing.transform import stft
from earatlas.localization.answer import anywhere
from earatlas.localization.doubts import Doubt
from earatlas.localization.recording import localize
from earatlas.separation.assembly import Assembly, Output, TakenApart
from earatlas.separation.directions import (
    MasksAtOnsets,
    doubles_told,
    drowned,
    may_be_more,
    misfits,
    placed_sources,
    scene_doubts,
)
from earatlas.separation.following import FollowedScene, follow
from earatlas.separation.passes import SURVEY, Passes
from earatlas.separation.scene import FoundScene, Placed, Scene, Source
from earatlas.separation.scout import loudest
from earatlas.separation.separator import MOST_SOURCES, ROOM_SECONDS, Arrivals, Separator
from earatlas.separation.sound.rendering import Rendering, check_rendering
from earatlas.separation.vessl import VESSL, State
from earatlas.types import Array, Progress, field_values

__all__ = ["Separating", "separate", "separate_file", "sound_file"]

_BLOCK_SECONDS, _OVERLAP_SECONDS = 12.0, 2.0
_RATES = (2_000, 384_000)  # Hz: below, no voice is left; above, no converter goes
_DIGEST_BINS_A_BLOCK, _DIGEST_BINS = 12_000, 120_000
_BINS_A_CELL = 20.0  # as a few seconds of two talkers have
_LEVELS_EVERY = 2  # frames that tell the noise: they overlap by seven eighths
_ANCHOR_FRAMES = 20.0  # what the digest is worth in a block, a cue and source


@dataclass(frozen=True)
class Separating:
    """What is wished of a separation."""

    n_sources: int | None = None  # None: find out
    rendering: Rendering = "spatial"  # how sound is made from masks
    threshold: Threshold = field(default_factory=Threshold)
    rate: int | None = None  # Hz, of the sounds; None: that of the recording
    dry: bool = False  # each with less of the room

    def __post_init__(self) -> None:
        allowed = range(1, MOST_SOURCES + 1)
        if self.n_sources is not None and self.n_sources not in allowed:
            raise InputError(
                f"n_sources must be from 1 to {MOST_SOURCES}, or left out to be found, got "
                f"{self.n_sources!r}. Two ears hardly tell more apart."
            )
        if self.n_sources is not None:
            object.__setattr__(self, "n_sources", int(self.n_sources))
        check_rendering(self.rendering)
        if self.rate is not None:
            object.__setattr__(self, "rate", checked_rate(self.rate))
            if not _RATES[0] <= self.rate <= _RATES[1]:
                raise InputError(
                    f"rate must be from {_RATES[0]} to {_RATES[1]} Hz for sounds to be separated, "
                    f"got {self.rate}. Ask for another with rate= (command line: --rate)."
                )

    def of(self, recording: Recording) -> Separating:
        """The same with a rate: the recording's own, unless another is wished."""
        return self if self.rate is not None else replace(self, rate=recording.rate)


def separate(separator: Separator, audio: Audio, how: Separating) -> Scene:
    """The sources of a recording in memory; all their sound and masks are kept.

    The sounds add up to the mixture. With one source, its belief is that of `localize`.
    """
    recording = MemoryRecording(checked_audio(audio, separator.layout))
    wide = MemoryRecording(audio)
    how = how.of(wide)
    found = take_apart(separator, recording, how)
    assembly = _assembly(separator, wide, found, how)
    stretches = []
    for block in found.blocks:
        stretches.append(assembly.add(block))
        found.note(block)
    scene = _scene(separator, recording, found, how, assembly)
    sounds = np.concatenate([stretch.sounds for stretch in stretches], axis=-1)
    masks = np.concatenate([stretch.masks for stretch in stretches], axis=-1)
    sources = tuple(
        Source(**field_values(source), audio=Audio(sounds[m], scene.rate), mask=masks[m])
        for m, source in enumerate(scene.sources)
    )
    mixture = audio.at_rate(scene.rate)
    return Scene(**{**field_values(scene), "sources": sources}, mixture=mixture)


def separate_file(
    separator: Separator,
    recording: FileRecording,
    folder: str | Path,
    how: Separating,
    *,
    progress: Progress | None = None,
) -> tuple[FoundScene, list[Path]]:
    """The sources of a file of any length, written to `folder` as they come: bounded memory.

    The files are named after the recording (party_source1.wav, …), at its rate or the wished one.
    They appear when all are complete, or not at all. `progress` is told the share that is done.
    """
    folder, passes = Path(folder), Passes(progress)
    with output_folder(folder):
        how = how.of(recording)
        found = take_apart(separator, recording, how, passes)
        passes.find()
        assembly = _assembly(separator, recording, found, how)
        names = [sound_file(recording.path, m) for m in range(found.n_sources)]
        rate = assembly.rate
        samples = round(found.samples * rate / separator.layout.rate)
        with growing_sound_files(folder, names, rate, samples=samples) as append:
            for block in found.blocks:
                append(assembly.add(block).sounds)
                found.note(block)
                passes.again(block.end / found.samples)
            scene = _scene(separator, recording, found, how, assembly)
    return scene, [folder / name for name in names]


def sound_file(path: str | Path, m: int) -> str:
    """The name that `separate_file` gives to the sound of source m of a recording."""
    return f"{Path(path).stem}_source{m + 1}.wav"


def _nobody(done: float, total: float) -> None:
    """Told of progress when nobody else is."""


def _assembly(
    separator: Separator, recording: Recording, found: _Found | FollowedScene, how: Separating
) -> Assembly:
    layout = separator.layout
    rate = how.rate or layout.rate
    overlap = _whole_hops(_OVERLAP_SECONDS, layout, rate)
    rooms = separator.head.rooms
    gate = None if rooms is None or not found.drowned else rooms.sound.gate
    if how.dry and not found.in_room:
        warnings.warn(_not_dried(found.onsets), EaratlasWarning, stacklevel=4)
    in_room, dry = found.in_room, how.dry and found.in_room
    output = Output(how.rendering, rate, recording.chunks(rate), gate, in_room=in_room, dry=dry)
    return Assembly(layout, found.n_sources, samples=found.samples, overlap=overlap, output=output)


def _not_dried(onsets: OnsetBins | None) -> str:
    """Why a recording is given as it is although dry sounds were asked for."""
    usual = "so dry=True (--dry) changes nothing: the usual sounds are given, which add up to it"
    if onsets is None:
        return f"this atlas was not made ready for rooms, {usual}. Learn the head again."
    if np.isnan(onsets.decay_seconds):
        return f"too little is heard to tell how long the room rings, {usual}."
    return (
        f"nothing in the recording is reverberant (sound falls by 60 dB in "
        f"{onsets.decay_seconds:.2f} s, in rooms in {ROOM_SECONDS} s or more), {usual}."
    )


def _whole_hops(seconds: float, layout: CueLayout, rate: int) -> int:
    """A length in samples, rounded to so many hops that it is whole samples at `rate`, too."""
    step = layout.hop * (layout.rate // gcd(layout.rate, layout.hop * rate))
    return max(round(seconds * layout.rate / step), 1) * step


def _scene(
    separator: Separator,
    recording: Recording,
    found: _Found | FollowedScene,
    how: Separating,
    assembly: Assembly,
) -> FoundScene:
    """What was found, once all blocks are there."""
    if isinstance(found, FollowedScene):
        placed, doubts = found.placed(separator)
    else:
        placed, doubts = _placed(separator, recording, found, how, assembly.onsets())
    return assembly.scene(placed, doubts, found.free_energies)


def _placed(
    separator: Separator,
    recording: Recording,
    found: _Found,
    how: Separating,
    alone: list[OnsetBins],
) -> tuple[list[Placed], tuple[Doubt, ...]]:
    """Where each source is: alone, as `localize` says; among others, as onsets and masks do.

    And what makes all of that doubtful. `alone` are the onsets of each source by itself.
    """
    sources, head = found.sources, separator.head
    arrivals = replace(sources.heard, separated=tuple(alone))
    placed = placed_sources(head, sources.state, sources.misfits, arrivals, found.whose)
    more = may_be_more(sources.heard.nearly)
    if len(placed) > 1:
        seconds = found.samples / separator.layout.rate
        doubts = scene_doubts(head, placed, sources.heard.onsets, seconds)
        if any(doubt.word == "nothing directional" for doubt in doubts):
            placed = [replace(own, belief=anywhere(own.belief)) for own in placed]
        return doubles_told(placed), (*doubts, *more)
    only = localize(head, recording, threshold=how.threshold, again=True)
    return [replace(placed[0], belief=only.belief, doubts=())], (*only.doubts, *more)


# --- taking apart ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Sources:
    """The sources of a recording: followed by VESSL, and as their onsets tell them."""

    vessl: VESSL
    state: State
    misfits: Array  # (M,)
    heard: Arrivals


@dataclass(frozen=True, eq=False)
class _Found:
    """The sources of a recording, and its blocks as they are taken apart."""

    sources: _Sources
    samples: int  # of the whole recording
    blocks: Iterator[TakenApart]
    whose: MasksAtOnsets | None

    @property
    def n_sources(self) -> int:
        """M."""
        return len(self.sources.state.sources)

    @property
    def free_energies(self) -> tuple[float, ...]:
        """One a step of VESSL."""
        return self.sources.state.free_energies

    @property
    def onsets(self) -> OnsetBins | None:
        """Those that tell of the sources; None where the head was not made ready for rooms."""
        return self.sources.heard.onsets

    @property
    def in_room(self) -> bool:
        """Whether sound dies away as slowly as in a room; False where the head cannot tell."""
        return self.onsets is not None and self.onsets.decay_seconds >= ROOM_SECONDS

    @property
    def drowned(self) -> bool:
        """Whether some source has to be looked at by itself to be placed."""
        return drowned(self.sources.misfits, self.sources.heard)

    def note(self, block: TakenApart) -> None:
        """Which onsets of a block belong to whom."""
        if self.whose is not None:
            self.whose.add(block)


def take_apart(
    separator: Separator, recording: Recording, how: Separating, tell: Progress = _nobody
) -> _Found | FollowedScene:
    """Find the sources; the blocks are worked on as they are asked for."""
    blocks = _blocks(separator, recording, how)
    first = next(blocks)
    check_length(first.samples.shape[1], separator.layout)
    if first.last:
        found = _short(separator, first, how)
        tell(0.5, 1.0)
        return found
    return _long(separator, recording, chain([first], blocks), how, tell)


def _blocks(
    separator: Separator, recording: Recording, how: Separating, *, again: bool = False
) -> Iterator[Block]:
    """The recording in overlapping blocks of whole hops."""
    layout = separator.layout
    length, overlap = (
        _whole_hops(seconds, layout, how.rate or layout.rate)
        for seconds in (_BLOCK_SECONDS, _OVERLAP_SECONDS)
    )
    chunks = (block.samples for block in recording.blocks(layout, again=again))
    return overlapping(chunks, length, overlap)


def _sources(
    separator: Separator, bins: HeardBins, onsets: OnsetBins | None, n_sources: int | None
) -> _Sources:
    """Who is there: onsets say where and how many; in the open the free energy may say more.

    In a room VESSL takes reflections for sources: it is not asked where sound dies away slowly, nor
    believed where it does not fit.
    """
    heard = separator.heard(onsets, n_sources)
    if onsets is None or not len(heard):
        return _followed(separator, bins, heard, *separator.find(bins, n_sources))
    sources = _started(separator, bins, heard)
    if n_sources is not None or onsets.decay_seconds >= ROOM_SECONDS:
        return sources
    if heard.sure and (sources.misfits <= 1).all():
        vessl, state = sources.vessl, separator.find_more(bins, sources.vessl, sources.state)
    else:
        vessl, state = separator.find(bins)
    if len(state.sources) == len(heard) or (misfits(separator, state, bins) > 1).any():
        return sources
    return _followed(separator, bins, separator.heard(onsets, len(state.sources)), vessl, state)


def _started(separator: Separator, bins: HeardBins, heard: Arrivals) -> _Sources:
    """Sources followed from where they were heard to arrive."""
    if not heard.sure:  # one arrives louder than all others
        return _followed(separator, bins, heard, *separator.find(bins, len(heard)))
    return _followed(separator, bins, heard, *separator.find_at(bins, heard.places))


def _followed(
    separator: Separator, bins: HeardBins, heard: Arrivals, vessl: VESSL, state: State
) -> _Sources:
    return _Sources(vessl, state, misfits(separator, state, bins), heard)


def _whose(separator: Separator, sources: _Sources) -> MasksAtOnsets | None:
    """Ready to take note of the masks, where there are onsets to be told whose they are."""
    rooms, onsets = separator.head.rooms, sources.heard.onsets
    if rooms is None or onsets is None or not len(sources.heard):
        return None
    M = len(sources.state.sources)
    return MasksAtOnsets(separator.layout, rooms.sound.gate, onsets, M)


def _short(separator: Separator, block: Block, how: Separating) -> _Found | FollowedScene:
    """A recording that is one block."""
    layout = separator.layout
    spectra = stft(block.samples, layout.window, layout.hop)
    floor_db = how.threshold.floor_db(float(bin_power(spectra, layout.window).max()))
    bins = _heard(separator.sure_bins(spectra, floor_db))
    levels, arriving = LevelStatistics(layout), separator.onset_stream()
    levels.push(spectra[..., ::_LEVELS_EVERY])
    if arriving is not None:
        arriving.push(block.samples)
    clear = separator.above_noise(bins, levels, how.threshold)
    onsets = _ended(arriving)
    sources = _sources(separator, clear, onsets, how.n_sources)
    ways = separator.ways(onsets, sources.heard, how.n_sources, block.samples.shape[1])
    if onsets is not None and ways:
        apart, energies = follow(separator, block, spectra, bins, ways)
        in_room = onsets.decay_seconds >= ROOM_SECONDS
        return FollowedScene(tuple(ways), apart, onsets, energies, in_room)
    vessl, now = sources.vessl, sources.state
    if len(clear) < len(bins):  # noise tells nothing of directions, but is to be shared out
        vessl = VESSL(separator.source_model, bins)
        now = vessl.run(vessl.start_from(now.sources, now.noise))
    masks = separator.masks(vessl, now, spectra)
    blocks = iter([TakenApart(block, spectra, masks, bins, separator.ratios(now))])
    return _Found(sources, block.samples.shape[1], blocks, _whose(separator, sources))


def _ended(arriving: OnsetStream | None) -> OnsetBins | None:
    if arriving is None:
        return None
    arriving.finish()
    return arriving.bins()


def _long(
    separator: Separator,
    recording: Recording,
    blocks: Iterator[Block],
    how: Separating,
    tell: Progress,
) -> _Found:
    """A recording of many blocks: a survey of all of them, then each by itself."""
    arriving = separator.onset_stream()
    surveyed = blocks if arriving is None else _listened(blocks, arriving)
    digest, floor_db, samples = _survey(separator, surveyed, recording.seconds, how.threshold, tell)
    sources = _sources(separator, _heard(digest), _ended(arriving), how.n_sources)
    state, anchor = sources.state, _anchor(digest, sources.state)
    again = _blocks(separator, recording, how, again=True)
    apart = (_anchored(separator, block, state, anchor, floor_db) for block in again)
    return _Found(sources, samples, apart, _whose(separator, sources))


def _listened(blocks: Iterator[Block], arriving: OnsetStream) -> Iterator[Block]:
    """The blocks; their onsets are listened for, each sample once."""
    end = 0
    for block in blocks:
        arriving.push(block.samples[:, end - block.start :])
        end = block.start + block.samples.shape[1]
        yield block


def _survey(
    separator: Separator,
    blocks: Iterator[Block],
    seconds: float,
    threshold: Threshold,
    tell: Progress,
) -> tuple[HeardBins, int, int]:
    """The loudest sure bins of every block, the floor of the whole recording, and its samples."""
    layout, levels = separator.layout, LevelStatistics(separator.layout)
    parts: list[HeardBins] = []
    peak, samples = 0.0, 0
    for block in blocks:
        spectra = stft(block.samples, layout.window, layout.hop)
        peak = max(peak, float(bin_power(spectra, layout.window).max()))
        bins = separator.sure_bins(spectra, threshold.floor_db(peak))
        parts.append(bins.subset(loudest(bins, _DIGEST_BINS_A_BLOCK, 4)))
        if sum(map(len, parts)) > 2 * _DIGEST_BINS:
            parts = _thinned(parts)
        levels.push(spectra[..., ::_LEVELS_EVERY])
        samples = block.start + block.samples.shape[1]
        tell(SURVEY * min(samples / (seconds * layout.rate), 1.0), 1.0)
    floor_db = threshold.floor_db(peak)
    parts = [part.subset(np.flatnonzero(part.level_db >= floor_db)) for part in parts]
    digest = HeardBins.joined(_thinned(parts))
    clear = separator.above_noise(digest, levels, threshold)
    return _coarser(clear, separator.source_model.how.bands), floor_db, samples


def _anchored(
    separator: Separator, block: Block, state: State, anchor: CueStatistics, floor_db: float
) -> TakenApart:
    """A block taken apart with what is known of the sources from the whole recording."""
    layout = separator.layout
    spectra = stft(block.samples, layout.window, layout.hop)
    bins = separator.sure_bins(spectra, floor_db)
    vessl = VESSL(separator.source_model, bins, anchor=anchor)
    now = vessl.run(vessl.start_from(state.sources, state.noise))
    masks = separator.masks(vessl, now, spectra)
    return TakenApart(block, spectra, masks, bins, separator.ratios(now))


def _heard(bins: HeardBins) -> HeardBins:
    if not len(bins):
        raise nothing_heard()
    return bins


def _thinned(parts: list[HeardBins]) -> list[HeardBins]:
    """The loudest bins of each stretch, so many that all of them keep to the digest's size."""
    share = min(_DIGEST_BINS / max(sum(map(len, parts)), 1), 1.0)
    return [part.subset(loudest(part, int(share * len(part)), 1)) for part in parts]


def _coarser(digest: HeardBins, bands: int | None) -> HeardBins:
    """The digest in longer frames, none of them empty: shares need some bins a cell."""
    together = round(_BINS_A_CELL * digest.frames * (bands or 1) / max(len(digest), 1))
    frames, t = np.unique(digest.t // max(together, 1), return_inverse=True)
    return replace(digest, frames=len(frames), t=t)


def _anchor(digest: HeardBins, state: State) -> CueStatistics:
    """What the sources sounded like in the digest, each worth the same number of frames."""
    known = digest.statistics(state.assignments[: len(state.sources)])
    return known.scaled(_ANCHOR_FRAMES / np.maximum(known.counts.mean(axis=1), 1e-300))
