"""Take a recording apart: who is there, and what of each block is whose.

In: a `Separator` and a recording. Out: its sources, and its blocks as they are asked for. One that
fits into a block is taken apart at once.

A long recording is done twice, in overlapping blocks. The first pass keeps a digest of bounded size
(`survey`) and finds the sources in it as in a short recording. The second pass separates block by
block; what each source sounded like in the digest counts there like bins that were heard. So source
2 is the same talker in every block, and one that is silent for a while does not take over somebody
else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from earatlas.features.blocks import Block
from earatlas.features.cues import bin_power, check_length, nothing_heard
from earatlas.features.onset_detector import OnsetBins, OnsetStream
from earatlas.features.recording import Recording
from earatlas.features.statistics import CueStatistics, LevelStatistics
from earatlas.features.stft import stft
from earatlas.features.tf_bins import HeardBins
from earatlas.separation.assembly import TakenApart
from earatlas.separation.blocks import blocks_of
from earatlas.separation.long_files import LEVELS_EVERY, anchor_of, survey
from earatlas.separation.moving_sources import FollowedScene, Follower
from earatlas.separation.options import Separating
from earatlas.separation.separator import ROOM_SECONDS, Arrivals, Separator, in_room
from earatlas.separation.source_directions import MasksAtOnsets, drowned, misfits
from earatlas.separation.vessl import VESSL, State
from earatlas.types import Array, Progress

__all__ = ["Found", "Sources", "take_apart"]

# Decay of 60 dB from which on it may be a room: two talkers at T60 0.2 to 0.25 s have 0.20 to 0.25
# (kemar_full and cipic_021), of 32 in the open three have more, of 16 in noise at 20 dB one.
_MAY_BE_SECONDS = 0.2


@dataclass(frozen=True, eq=False)
class Sources:
    """The sources of a recording: followed by VESSL, and as their onsets tell them."""

    vessl: VESSL
    state: State
    misfits: Array  # (M,)
    heard: Arrivals


@dataclass(frozen=True, eq=False)
class Found:
    """The sources of a recording, and its blocks as they are taken apart."""

    sources: Sources
    samples: int  # of the whole recording
    blocks: Iterator[TakenApart]
    whose: MasksAtOnsets | None
    noisy: bool  # some of what is heard is noise

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
        return self.onsets is not None and in_room(self.onsets)

    @property
    def may_be_room(self) -> bool:
        """Whether sound dies away as in a dry room: what the filters miss is to tell.

        In noise it does so in the open, and filters miss as much.
        """
        if self.onsets is None or self.noisy:
            return False
        return _MAY_BE_SECONDS <= self.onsets.decay_seconds < ROOM_SECONDS

    @property
    def drowned(self) -> bool:
        """Whether some source has to be looked at by itself to be placed."""
        return drowned(self.sources.misfits, self.sources.heard)

    def note(self, block: TakenApart) -> None:
        """Which onsets of a block belong to whom."""
        if self.whose is not None:
            self.whose.add(block)


def _nobody(done: float, total: float) -> None:
    """Told of progress when nobody else is."""


def take_apart(
    separator: Separator, recording: Recording, how: Separating, tell: Progress = _nobody
) -> Found | FollowedScene:
    """Find the sources; the blocks are worked on as they are asked for."""
    blocks = blocks_of(recording, separator.layout, how.rate or separator.layout.rate)
    first = next(blocks)
    check_length(first.samples.shape[1], separator.layout)
    if first.last:
        found = _short(separator, first, how)
        tell(0.5, 1.0)
        return found
    return _long(separator, recording, chain([first], blocks), how, tell)


def _sources(
    separator: Separator, bins: HeardBins, onsets: OnsetBins | None, n_sources: int | None
) -> Sources:
    """Who is there: onsets say where and how many; in the open the free energy may say more.

    In a room VESSL takes reflections for sources: it is not asked where sound dies away slowly, nor
    believed where it does not fit.
    """
    heard = separator.heard(onsets, n_sources)
    if onsets is None or not len(heard):
        return _followed(separator, bins, heard, *separator.find(bins, n_sources))
    sources = _started(separator, bins, heard)
    if n_sources is not None or in_room(onsets):
        return sources
    if heard.sure and (sources.misfits <= 1).all():
        vessl, state = sources.vessl, separator.find_more(bins, sources.vessl, sources.state)
    else:
        vessl, state = separator.find(bins)
    if len(state.sources) == len(heard) or (misfits(separator, state, bins) > 1).any():
        return sources
    return _followed(separator, bins, separator.heard(onsets, len(state.sources)), vessl, state)


def _started(separator: Separator, bins: HeardBins, heard: Arrivals) -> Sources:
    """Sources followed from where they were heard to arrive."""
    if not heard.sure:  # one arrives louder than all others
        return _followed(separator, bins, heard, *separator.find(bins, len(heard)))
    return _followed(separator, bins, heard, *separator.find_at(bins, heard.places))


def _followed(
    separator: Separator, bins: HeardBins, heard: Arrivals, vessl: VESSL, state: State
) -> Sources:
    return Sources(vessl, state, misfits(separator, state, bins), heard)


def _whose(separator: Separator, sources: Sources) -> MasksAtOnsets | None:
    """Ready to take note of the masks, where there are onsets to be told whose they are."""
    rooms, onsets = separator.head.rooms, sources.heard.onsets
    if rooms is None or onsets is None or not len(sources.heard):
        return None
    M = len(sources.state.sources)
    return MasksAtOnsets(separator.layout, rooms.sound.gate, onsets, M)


def _short(separator: Separator, block: Block, how: Separating) -> Found | FollowedScene:
    """A recording that is one block."""
    layout = separator.layout
    spectra = stft(block.samples, layout.window, layout.hop)
    floor_db = how.threshold.floor_db(float(bin_power(spectra, layout.window).max()))
    bins = _heard(separator.sure_bins(spectra, floor_db))
    levels, arriving = LevelStatistics(layout), separator.onset_stream()
    levels.push(spectra[..., ::LEVELS_EVERY])
    if arriving is not None:
        arriving.push(block.samples)
    clear = separator.above_noise(bins, levels, how.threshold)
    onsets = _ended(arriving)
    sources = _sources(separator, clear, onsets, how.n_sources)
    ways = separator.ways(onsets, sources.heard, how.n_sources, block.samples.shape[1])
    if onsets is not None and ways:
        follower, samples = Follower(separator, ways), block.samples.shape[1]
        apart = iter([follower.apart(block, spectra, bins)])
        return follower.scene(apart, onsets, samples)
    vessl, now = sources.vessl, sources.state
    if len(clear) < len(bins):  # noise tells nothing of directions, but is to be shared out
        vessl = VESSL(separator.source_model, bins)
        now = vessl.run(vessl.start_from(now.sources, now.noise))
    masks = separator.masks(vessl, now, spectra)
    blocks = iter([TakenApart(block, spectra, masks, bins, separator.ratios(now))])
    noisy = len(clear) < len(bins)
    return Found(sources, block.samples.shape[1], blocks, _whose(separator, sources), noisy)


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
) -> Found | FollowedScene:
    """A recording of many blocks: a survey of all of them, then each by itself."""
    arriving = separator.onset_stream(stretches=True)
    stretches: list[OnsetBins] = []
    surveyed = blocks if arriving is None else _listened(blocks, arriving, stretches)
    all_of_it = survey(separator, surveyed, recording.seconds, how.threshold, tell)
    digest, floor_db = _heard(all_of_it.digest), all_of_it.floor_db
    onsets = _ended(arriving)
    sources = _sources(separator, digest, onsets, how.n_sources)
    ways = separator.long_ways(stretches, sources.heard, how.n_sources, all_of_it.samples)
    state, anchor = sources.state, anchor_of(digest, sources.state)
    layout = separator.layout
    again = blocks_of(recording, layout, how.rate or layout.rate, again=True)
    if onsets is not None and ways:
        follower = Follower(separator, ways)
        followed = (_followed_block(follower, block, floor_db) for block in again)
        return follower.scene(followed, onsets, all_of_it.samples)
    apart = (_anchored(separator, block, state, anchor, floor_db) for block in again)
    whose = _whose(separator, sources)
    return Found(sources, all_of_it.samples, apart, whose, all_of_it.noisy)


def _listened(
    blocks: Iterator[Block], arriving: OnsetStream, stretches: list[OnsetBins]
) -> Iterator[Block]:
    """The blocks; their onsets are listened for, each sample once, and those of each kept."""
    end = 0
    for block in blocks:
        arriving.push(block.samples[:, end - block.start :])
        end = block.start + block.samples.shape[1]
        stretches.append(arriving.stretch().lighter())
        yield block


def _followed_block(follower: Follower, block: Block, floor_db: float) -> TakenApart:
    """A block taken apart along the ways of its sources."""
    layout = follower.separator.layout
    spectra = stft(block.samples, layout.window, layout.hop)
    return follower.apart(block, spectra, follower.separator.sure_bins(spectra, floor_db))


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
