"""Put a scene together from blocks that were taken apart: sound without a seam, and what it shows.

In: blocks with the masks of their sources, one after the other. Out: stretches of the sources'
sounds that follow each other without a gap, and at the end a `FoundScene`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from earatlas.hearing.blocks import Block, CrossFade
from earatlas.hearing.cues import bin_power
from earatlas.hearing.heard_bins import HeardBins
from earatlas.hearing.layout import CueLayout
from earatlas.separation.picture import PictureBuilder
from earatlas.separation.scene import Evidence, FoundScene, FoundSource
from earatlas.separation.sound.rendering import Rendering, sounds_of
from earatlas.separation.vessl import State
from earatlas.space.belief import ChartMixture
from earatlas.types import Array, Single, Spectra

__all__ = ["Assembly", "Stretch", "TakenApart"]


@dataclass(frozen=True, eq=False)
class TakenApart:
    """A block of a recording, and what of it belongs to whom."""

    block: Block
    spectra: Spectra  # (2, B, t)
    masks: Array  # (M, F, t)
    bins: HeardBins
    directions: Array  # (M, C) of the sources in this block

    @property
    def end(self) -> int:
        """The sample after its last."""
        return self.block.start + int(self.block.samples.shape[1])


@dataclass(frozen=True, eq=False)
class Stretch:
    """A stretch of the separated recording; stretches follow each other without a gap."""

    sounds: Array  # (M, 2, n)
    masks: Single  # (M, F, t)


class Assembly:
    """Adds up a scene of known sources, block by block."""

    def __init__(
        self, layout: CueLayout, state: State, *, samples: int, overlap: int, rendering: Rendering
    ) -> None:
        M = len(state.sources)
        self._layout, self._state = layout, state
        self._samples, self._rendering = samples, rendering
        self._picture = PictureBuilder(layout, samples // layout.hop + 1, M)
        self._energies = np.zeros(M)
        self._track: list[tuple[float, Array]] = []
        self._sound_fade = CrossFade(overlap)
        self._mask_fade = CrossFade(overlap // layout.hop + 1)

    def add(self, apart: TakenApart) -> Stretch:
        """What is final once this block is known: all of it but the overlap with the next."""
        layout, block = self._layout, apart.block
        sounds = sounds_of(block.samples, apart.spectra, apart.masks, layout, self._rendering)
        power = bin_power(apart.spectra, layout.window).sum(axis=0)
        self._energies += np.einsum("mft,ft->m", apart.masks, power)
        self._picture.add(apart.spectra, apart.masks, block.start // layout.hop, apart.bins)
        middle = 0.5 * (block.start + apart.end) / layout.rate
        self._track.append((middle, apart.directions))
        return Stretch(
            self._sound_fade.push(sounds, last=block.last),
            self._mask_fade.push(apart.masks, last=block.last).astype(np.float32),
        )

    def scene(self, placed: Sequence[tuple[ChartMixture, Evidence]]) -> FoundScene:
        """What was found, without the sound; `placed` are where the sources are, in order."""
        energies = self._energies / max(float(self._energies.sum()), 1e-300)
        sources = tuple(
            FoundSource(f"source{m + 1}", belief, float(energies[m]), evidence=evidence)
            for m, (belief, evidence) in enumerate(placed)
        )
        times, places = zip(*self._track, strict=True)
        return FoundScene(
            sources=sources,
            picture=self._picture.picture(),
            free_energies=self._state.free_energies,
            seconds=self._samples / self._layout.rate,
            track_seconds=np.array(times),
            track=np.stack(places),
        )
