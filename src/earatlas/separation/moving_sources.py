"""Take a recording apart along the ways of its sources: masks that follow, and where each one was.

In: a block, its sure bins, and a `Way` a source. Out: what a standing scene has, masks, sounds and
posteriors, from sources whose directions are known at every moment.

Bins are shared out as by VESSL (`earatlas.separation.vessl`), but for the cues of a source, which
are those of its place in each step of an eighth of a second and not fitted:

    q_mn ∝ λ_mc N(y_n; s_m,d(x_m at the step of n), v_d)        λ, v by EM, which cannot fall
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from earatlas.features.blocks import Block
from earatlas.features.layout import CueLayout
from earatlas.features.onset_detector import OnsetBins
from earatlas.features.tf_bins import HeardBins
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Space
from earatlas.localization.diagnostics import Doubt
from earatlas.localization.multi_source_posterior import DOUBTFUL_GAIN
from earatlas.separation.assembly import TakenApart
from earatlas.separation.demixing.rendering import Rendering
from earatlas.separation.demixing.time_varying import ratios_at, separate_along
from earatlas.separation.result import Evidence, Placed
from earatlas.separation.separator import Separator, in_room
from earatlas.separation.source_directions import may_not_exist, scene_doubts
from earatlas.separation.source_track import Levels, SourceTrack
from earatlas.separation.vessl import VESSL, share_cells
from earatlas.tracking.offline import Way
from earatlas.types import Array, Complex, Indices, Spectra

__all__ = ["FollowedScene", "Follower"]

_STEP_FRAMES = 16  # an eighth of a second: at 20 degrees a second 2.5 degrees
_STEPS_OF_EM = 4
_WITHIN_90 = {1: 1.645, 2: 2.146}  # standard deviations of a Gaussian on a line, on a surface
_HEARD = 1.0  # onsets (weighted) of a window that tell where a source is
_MOST_PLACES = 240  # of a posterior about one that moves: all windows of a minute


@dataclass(frozen=True, eq=False)
class FollowedApart(TakenApart):
    """A block whose sources are on their ways."""

    ratios: Complex = field(kw_only=True)  # (M, S, F) of both ears
    starts: Indices = field(kw_only=True)  # (S,) first frame of each step

    def sounds(self, layout: CueLayout, rendering: Rendering, *, in_room: bool | None) -> Array:
        """Both ears (M, 2, n) of every source."""
        if len(self.masks) == 1 or rendering != "spatial":
            return super().sounds(layout, rendering, in_room=in_room)
        n = self.block.samples.shape[1]
        return separate_along(self.spectra, self.masks, self.ratios, self.starts, layout, n)

    def above(self, rendering: Rendering) -> Rendering:
        """By masks: how a direction reaches the ears above the band of the cues was not learned."""
        return "soft" if rendering == "spatial" else rendering


@dataclass(frozen=True, eq=False)
class OnItsWay(Placed):
    """Where a source is believed to be on the whole, and where it was when."""

    way: Way

    def track(self, levels: Levels, m: int) -> SourceTrack:
        """Where source m was wherever it is heard."""
        heard, way, t = levels.heard[m], self.way, levels.seconds
        directions = np.where(heard[:, None], way.at(t), np.nan)
        radius = np.where(heard, way.radius_at(t), np.nan)
        return SourceTrack(t, directions, radius, levels.level_db[m], moves=way.moves)


@dataclass(frozen=True, eq=False)
class FollowedScene:
    """The sources of a recording of which some move, and its blocks as they are taken apart."""

    ways: tuple[Way, ...]
    samples: int  # of the whole recording
    blocks: Iterator[TakenApart]
    onsets: OnsetBins
    in_room: bool  # whether sound dies away as slowly as in a room
    energies: list[Array]  # (steps,) of every block that was asked for
    drowned: bool = False  # nobody: windows are looked at one by one
    may_be_room: bool = False  # filters along ways are the same everywhere

    @property
    def n_sources(self) -> int:
        """M."""
        return len(self.ways)

    @property
    def free_energies(self) -> tuple[float, ...]:
        """One a step, of all blocks so far."""
        return tuple(float(energy) for energy in np.sum(self.energies, axis=0))

    def note(self, block: TakenApart) -> None:
        """Ways need no masks to be told whose onsets are whose."""

    def placed(self, separator: Separator) -> tuple[list[Placed], tuple[Doubt, ...]]:
        """Where each source is, and what makes all of that doubtful."""
        head = separator.head
        placed: list[Placed] = [_placed(head.space, way) for way in self.ways]
        seconds = self.samples / head.layout.rate
        return placed, scene_doubts(head, placed, self.onsets, seconds)


def _placed(space: Space, way: Way) -> OnItsWay:
    """The posterior is that of all windows in which it was heard; of one place if it stands."""
    told = np.flatnonzero(way.weights > _HEARD) if way.moves else np.zeros(1, dtype=np.intp)
    told = told if len(told) else np.array([int(way.weights.argmax())])
    told = told[:: -(-len(told) // _MOST_PLACES)]
    width = way.radius_90[told] / _WITHIN_90[space.dims]
    posterior = DirectionPosterior(
        space,
        way.at(way.seconds)[told],
        np.full(len(told), 1 / len(told)),
        np.zeros((len(told), space.dims)),
        (width**2)[:, None, None] * np.eye(space.dims),
    )
    evidence = Evidence(0.0, way.onset_bins, gain=way.gain, direct=True)
    doubts = (may_not_exist(way.gain),) if way.gain < DOUBTFUL_GAIN else ()
    return OnItsWay(posterior, evidence, doubts, way=way)


@dataclass(frozen=True, eq=False)
class Follower:
    """Takes blocks apart along the ways of their sources."""

    separator: Separator
    ways: list[Way]
    energies: list[Array] = field(default_factory=list)  # (steps,) of every block

    def apart(self, block: Block, spectra: Spectra, bins: HeardBins) -> FollowedApart:
        """A block of a recording with these ways."""
        layout, rooms = self.separator.layout, self.separator.head.rooms
        assert rooms is not None  # there are no ways without
        starts = np.arange(0, spectra.shape[-1], _STEP_FRAMES)
        seconds = (block.start + (starts + 0.5 * _STEP_FRAMES) * layout.hop) / layout.rate
        directions = np.stack([way.at(seconds) for way in self.ways])  # (M, S, 2)
        masks, energies = _Following(self.separator, bins, directions, starts).masks(spectra)
        self.energies.append(np.array(energies))
        sound = rooms.sound
        hertz = (np.arange(layout.n_frequencies) + 1) * layout.rate / layout.window
        at = sound.between(sound.templates.directions, directions.reshape(-1, directions.shape[-1]))
        ratios = ratios_at(sound.templates, at, hertz).reshape(*directions.shape[:2], -1)
        return FollowedApart(block, spectra, masks, bins, ratios=ratios, starts=starts)

    def scene(self, blocks: Iterator[TakenApart], onsets: OnsetBins, samples: int) -> FollowedScene:
        """What is made of blocks that are taken apart here."""
        room = in_room(onsets)
        return FollowedScene(tuple(self.ways), samples, blocks, onsets, room, self.energies)


class _Following:
    """Bins shared out among sources whose cues (M, S, D) are known in every step."""

    def __init__(
        self, separator: Separator, bins: HeardBins, directions: Array, starts: Indices
    ) -> None:
        self._model, self._starts = separator.source_model, starts
        M, S = directions.shape[:2]
        cues, squares = self._model.expected(directions.reshape(M * S, -1))
        self._cues, self._squares = cues.reshape(M, S, -1), squares.reshape(M, S, -1)
        self._vessl = VESSL(self._model, bins)
        step = np.searchsorted(starts, bins.t, side="right") - 1
        rows = [np.flatnonzero(step == s) for s in range(S)]
        self._parts = [(s, own, bins.subset(own)) for s, own in enumerate(rows) if len(own)]

    def masks(self, spectra: Spectra) -> tuple[Array, tuple[float, ...]]:
        """Soft masks (M, F, T) of all bins, heard or not, and the free energies of the EM."""
        M, how = len(self._cues), self._model.how
        v, energies = self._model.noise, []
        shares = np.full((M, self._vessl.n_cells), 1 / M)
        for _ in range(_STEPS_OF_EM):
            q, energy = self._assigned(v, shares)
            energy += self._vessl.share_prior(shares, M)
            energy -= 0.5 * how.noise_frames * float((np.log(v) + self._model.noise / v).sum())
            energies.append(energy)
            v, shares = self._noise(q), self._vessl.shares(q, M)[:M]
        F = spectra.shape[1] - 1
        masks = np.empty((M, F, spectra.shape[2]))
        for s, (begin, end) in enumerate(pairwise([*self._starts, spectra.shape[2]])):
            f, t = (index.ravel() for index in np.indices((F, end - begin)))
            bins = HeardBins.at(spectra[..., begin:end], self._model.layout, f, t)
            cells, count = share_cells(bins, how.bands)
            first = begin * (count // (end - begin)) if how.bands else 0
            masks[..., begin:end] = _softmax(self._logs(s, v, bins, shares[:, first + cells]))[
                0
            ].reshape(M, F, -1)
        return masks, tuple(energies)

    def _logs(self, s: int, v: Array, bins: HeardBins, shares: Array) -> Array:
        """log λ p(y_n | m) (M, N) of bins in step s."""
        logs = self._vessl.log_likelihoods(self._cues[:, s], self._squares[:, s], v, bins)
        out: Array = logs[: len(shares)] + np.log(np.maximum(shares, 1e-300))
        return out

    def _assigned(self, v: Array, shares: Array) -> tuple[Array, float]:
        """q (M, N), and Σ_n log Σ_m λ p(y_n | m)."""
        q, total = np.zeros((len(shares), len(self._vessl.bins))), 0.0
        for s, own, bins in self._parts:
            q[:, own], evidence = _softmax(
                self._logs(s, v, bins, shares[:, self._vessl.cells[own]])
            )
            total += evidence
        return q, total

    def _noise(self, q: Array) -> Array:
        """v (D,): the mean squared distance of bins from their sources, drawn towards the start."""
        start, frames = self._model.noise, self._model.how.noise_frames
        misses, weight = frames * start, np.full(len(start), frames)
        for s, own, bins in self._parts:
            heard = bins.statistics(q[:, own])
            off = heard.misses(self._cues[:, s], self._squares[:, s])
            misses = misses + np.maximum(off, 0.0).sum(axis=0)
            weight = weight + heard.counts.sum(axis=0)
        return np.where(weight > 0, misses / np.where(weight > 0, weight, 1.0), start)


def _softmax(logs: Array) -> tuple[Array, float]:
    """Over the first axis, and the sum of the logarithms of what it is divided by."""
    top = logs.max(axis=0)
    q = np.exp(logs - top)
    total = q.sum(axis=0)
    return q / total, float((top + np.log(total)).sum())
