"""A recording that can be heard more than once, in blocks, whether it is in memory or in a file.

Long recordings are worked through twice (first what counts as heard, then what is heard), and are
never all in memory: whatever works on recordings takes a `Recording`.

A converter may add a constant to each ear (`earatlas.features.dc_offset`): `centred` is the recording
without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from earatlas.features.audio import Audio
from earatlas.features.audio_files import audio_rate, audio_seconds, read_blocks
from earatlas.features.cues import check_ears, checked_audio
from earatlas.features.dc_offset import offset_of
from earatlas.features.layout import CueLayout
from earatlas.types import Array

__all__ = ["FileRecording", "MemoryRecording", "Recording"]

_BLOCK_SECONDS = 10.0  # a few megabytes of spectra


def _nothing() -> Array:
    return np.zeros((2, 1))


class Recording(Protocol):
    """Two channels of sound, at the rate of a layout or any other, as often as they are asked for.

    The two begin at the same time.
    """

    @property
    def offset(self) -> Array:
        """(2, 1) what was taken out of each ear."""

    def centred(self) -> Recording:
        """The same without what each ear has in the mean of the first seconds."""

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
    offset: Array = field(default_factory=_nothing)  # (2, 1) that was taken out of it

    def __post_init__(self) -> None:
        check_ears(self.audio)

    def centred(self) -> MemoryRecording:
        """The same without what each ear has in the mean of the first seconds."""
        samples, rate = self.audio.samples, self.audio.rate
        offset = offset_of(samples[:, : int(_BLOCK_SECONDS * rate)])
        return MemoryRecording(Audio(samples - offset, rate), self.offset + offset)

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


@dataclass(frozen=True, eq=False)
class FileRecording:
    """A recording in a sound file of any length; `channels` are those of the two ears."""

    path: str | Path
    channels: tuple[int, int] = (0, 1)
    offset: Array = field(default_factory=_nothing)  # (2, 1) that is taken out of it

    def centred(self) -> FileRecording:
        """The same without what each ear has in the mean of the first seconds."""
        first = next(self._read(self.rate, warn=False))
        return replace(self, offset=self.offset + offset_of(first.samples))

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
        return (block.samples for block in self._read(rate, warn=False))

    def blocks(self, layout: CueLayout, *, again: bool = False) -> Iterator[Audio]:
        """The sound in blocks, at the layout's rate."""
        return self._read(layout.rate, warn=not again)

    def _read(self, rate: int, *, warn: bool) -> Iterator[Audio]:
        return read_blocks(
            self.path, channels=self.channels, rate=rate, block_seconds=_BLOCK_SECONDS,
            offset=self.offset if self.offset.any() else None, warn=warn,
        )  # fmt: skip
