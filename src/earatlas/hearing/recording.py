"""A recording that can be heard more than once, in blocks, whether it is in memory or in a file.

Long recordings are worked through twice (first what counts as heard, then what is heard), and are
never all in memory: whatever works on recordings takes a `Recording`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from earatlas.hearing.audio import Audio
from earatlas.hearing.cues import checked_audio
from earatlas.hearing.files import audio_rate, audio_seconds, read_blocks
from earatlas.hearing.layout import CueLayout
from earatlas.types import Array

__all__ = ["FileRecording", "MemoryRecording", "Recording"]

_BLOCK_SECONDS = 10.0  # a few megabytes of spectra


class Recording(Protocol):
    """Two channels of sound, at the rate of a layout or any other, as often as they are asked for.

    The two begin at the same time.
    """

    @property
    def seconds(self) -> float:
        """How long it is."""

    @property
    def rate(self) -> int:
        """Its own sampling rate, in Hz."""

    def chunks(self, rate: int) -> Iterator[Array]:
        """The sound (2, n) piece by piece at any rate, after it was checked by `blocks`."""

    def blocks(self, layout: CueLayout, *, again: bool = False) -> Iterator[Audio]:
        """The sound in blocks; `again`: what is to be warned of was said the first time."""


@dataclass(frozen=True, eq=False)
class MemoryRecording:
    """A recording in memory."""

    audio: Audio

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.audio.seconds

    @property
    def rate(self) -> int:
        """Its own sampling rate, in Hz."""
        return self.audio.rate

    def chunks(self, rate: int) -> Iterator[Array]:
        """All of the sound (2, n) at any rate, in one piece."""
        yield self.audio.at_rate(rate).samples

    def blocks(self, layout: CueLayout, *, again: bool = False) -> Iterator[Audio]:
        """The sound in blocks, at the layout's rate; an InputError if it can give no cues."""
        samples = checked_audio(self.audio, layout).samples
        size = int(_BLOCK_SECONDS * layout.rate)
        for start in range(0, samples.shape[1], size):
            yield Audio(samples[:, start : start + size], layout.rate)


@dataclass(frozen=True)
class FileRecording:
    """A recording in a sound file of any length; `channels` are those of the two ears."""

    path: str | Path
    channels: tuple[int, int] = (0, 1)

    @property
    def seconds(self) -> float:
        """How long it is, from its header."""
        return audio_seconds(self.path)

    @property
    def rate(self) -> int:
        """Its own sampling rate in Hz, from its header."""
        return audio_rate(self.path)

    def chunks(self, rate: int) -> Iterator[Array]:
        """The sound (2, n) piece by piece at any rate; what is to be warned of was said before."""
        blocks = read_blocks(
            self.path, channels=self.channels, rate=rate, block_seconds=_BLOCK_SECONDS, warn=False
        )
        return (block.samples for block in blocks)

    def blocks(self, layout: CueLayout, *, again: bool = False) -> Iterator[Audio]:
        """The sound in blocks, at the layout's rate."""
        return read_blocks(
            self.path, channels=self.channels, rate=layout.rate, block_seconds=_BLOCK_SECONDS,
            warn=not again,
        )  # fmt: skip
