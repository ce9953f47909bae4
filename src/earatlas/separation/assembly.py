"""Put a scene together from blocks that were taken apart: sound without a seam, and what it shows.

In: blocks with the masks of their sources, one after the other, and the recording at the rate that
its sounds are to have. Out: stretches of the sources' sounds at that rate that follow each other
without a gap, and at the end a `FoundScene`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from earatlas.features.blocks import Block, CrossFade, Spans
from earatlas.features.cues import bin_power
from earatlas.features.layout import CueLayout
from earatlas.features.onset_detector import Gate, OnsetBins, OnsetStream
from earatlas.features.tf_bins import HeardBins
from earatlas.localization.diagnostics import Doubt
from earatlas.separation.demixing.band_extension import at_full_rate
from earatlas.separation.demixing.dereverberation import without_late_sound
from earatlas.separation.demixing.rendering import Rendering, sounds_of
from earatlas.separation.result import FoundScene, FoundSource, Placed
from earatlas.separation.source_track import LevelMeter
from earatlas.separation.spectrogram_summary import PictureBuilder
from earatlas.types import Array, Complex, Single, Spectra

__all__ = ["Assembly", "Output", "Stretch", "TakenApart"]


@dataclass(frozen=True, eq=False)
class Output:
    """How the sounds are to be: made in which way, at which rate, from which recording."""

    rendering: Rendering
    rate: int  # Hz; blocks begin and end with a sample at this rate, too
    recording: Iterable[Array]  # (2, n) at that rate, in chunks
    offset: Array  # (2, 1) of both ears, which was taken out of it: the sources have it again
    gate: Gate | None = None  # for the onsets of each source by itself
    in_room: bool | None = False  # sound dies away slowly; None: the filters are to tell
    dry: bool = False  # without the late sound of a room


@dataclass(frozen=True, eq=False)
class TakenApart:
    """A block of a recording, and what of it belongs to whom."""

    block: Block
    spectra: Spectra  # (2, B, t)
    masks: Array  # (M, F, t)
    bins: HeardBins
    expected: Complex | None = None  # (M, F) ratios of the ears; NaN where none is known

    @property
    def end(self) -> int:
        """The sample after its last."""
        return self.block.start + int(self.block.samples.shape[1])

    def sounds(self, layout: CueLayout, rendering: Rendering, *, in_room: bool | None) -> Array:
        """Both ears (M, 2, n) of every source."""
        return sounds_of(
            self.block.samples,
            self.spectra,
            self.masks,
            layout,
            rendering,
            in_room=in_room,
            ratios=self.expected,
        )

    def above(self, rendering: Rendering) -> Rendering:
        """How sound above the band of the cues is made, where the rest is made so."""
        return rendering


@dataclass(frozen=True, eq=False)
class Stretch:
    """A stretch of the separated recording; stretches follow each other without a gap."""

    sounds: Array  # (M, 2, n)
    masks: Single  # (M, F, t)


class Assembly:
    """Adds up a scene of known sources, block by block."""

    def __init__(
        self, layout: CueLayout, n_sources: int, *, samples: int, overlap: int, output: Output
    ) -> None:
        M = n_sources
        self._layout = layout
        self._samples, self._output = samples, output
        self._recording, self._overlap = Spans(output.recording), overlap
        self._arriving = [OnsetStream(output.gate) for _ in range(M)] if output.gate else []
        self._picture = PictureBuilder(layout, samples // layout.hop + 1, M)
        self._energies = np.zeros(M)
        self._meter = LevelMeter(M, samples=self._at_output(samples), rate=output.rate)
        self._sound_fade = CrossFade(self._at_output(overlap))
        self._mask_fade = CrossFade(overlap // layout.hop + 1)

    @property
    def rate(self) -> int:
        """Hz, of the sounds."""
        return self._output.rate

    def add(self, apart: TakenApart) -> Stretch:
        """What is final once this block is known: all of it but the overlap with the next."""
        layout, block = self._layout, apart.block
        sounds = self._sounds(apart)
        if self._output.dry:
            sounds = without_late_sound(sounds, self._output.rate)
        power = bin_power(apart.spectra, layout.window).sum(axis=0)
        self._energies += np.einsum("mft,ft->m", apart.masks, power)
        first = block.start // layout.hop
        self._picture.add(apart.spectra, power, apart.masks, first, apart.bins)
        stretch = Stretch(
            self._sound_fade.push(sounds, last=block.last),
            self._mask_fade.push(apart.masks, last=block.last).astype(np.float32),
        )
        self._meter.add(stretch.sounds)
        return replace(stretch, sounds=stretch.sounds + self._output.offset / len(apart.masks))

    def _sounds(self, apart: TakenApart) -> Array:
        """Sounds (M, 2, n) of a block at the rate of the output."""
        layout, output, block = self._layout, self._output, apart.block
        sounds = apart.sounds(layout, output.rendering, in_room=output.in_room)
        for stream, sound in zip(self._arriving, sounds, strict=False):
            stream.push(sound[:, self._overlap if block.start else 0 :])
        if output.rate == layout.rate:
            return sounds
        begin, end = self._at_output(block.start), self._at_output(apart.end)
        heard = self._recording.take(begin, None if block.last else end)
        return at_full_rate(heard, sounds, layout, output.rate, apart.above(output.rendering))

    def _at_output(self, samples: int) -> int:
        """A number of samples of the layout in those of the output."""
        return round(samples * self._output.rate / self._layout.rate)

    def onsets(self) -> list[OnsetBins]:
        """Of each source by itself, once all blocks are there; none without a gate for them."""
        for stream in self._arriving:
            stream.finish()
        return [stream.bins() for stream in self._arriving]

    def scene(
        self, placed: Sequence[Placed], doubts: tuple[Doubt, ...], free_energies: tuple[float, ...]
    ) -> FoundScene:
        """What was found, without the sound; `placed` are where the sources are, in order."""
        energies = self._energies / max(float(self._energies.sum()), 1e-300)
        levels = self._meter.levels()
        sources = tuple(
            FoundSource(
                f"source{m + 1}",
                own.posterior,
                float(energies[m]),
                track=own.track(levels, m),
                evidence=own.evidence,
                doubts=own.doubts,
            )
            for m, own in enumerate(placed)
        )
        return FoundScene(
            sources=sources,
            picture=self._picture.picture(),
            free_energies=free_energies,
            seconds=self._samples / self._layout.rate,
            rate=self._output.rate,
            dry=self._output.dry,
            doubts=doubts,
        )
