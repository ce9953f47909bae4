"""A binaural recording that can be read repeatedly in blocks, from memory or from a file.

Long recordings are processed in two passes (first the thresholds, then the bins above them) without
ever being held in memory. Algorithms therefore take a `Recording`. `without_dc_offset` returns the
same recording with the constant removed that a converter may add (`earatlas.features.dc_offset`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from earatlas.features.audio import Audio
from earatlas.features.audio_checks import check_audio, check_binaural
from earatlas.features.audio_files import audio_rate, audio_seconds, read_blocks
from earatlas.features.dc_offset import estimate_dc_offset
from earatlas.features.layout import CueLayout
from earatlas.features.sample_checks import count_clipped
from earatlas.types import Array

__all__ = ["FileRecording", "MemoryRecording", "Recording"]

_BLOCK_SECONDS = 10.0  # duration of a block; its spectra take a few megabytes


def _zero_offset() -> Array:
    return np.zeros((2, 1))


def _clipped_fraction(samples: Array) -> float:
    """Return the fraction of samples (2, n) that are clipped."""
    return count_clipped(samples) / max(samples.size, 1)


class Recording(Protocol):
    """Two channels of sound that can be read several times, at any sampling rate."""

    @property
    def offset(self) -> Array:
        """DC offset (2, 1) that was removed from each ear."""

    @property
    def clipped_fraction(self) -> float:
        """Fraction of the samples of the first block that are clipped, at the native rate."""

    def without_dc_offset(self) -> Recording:
        """Return the recording without the DC offset of its first block, with its clipping."""

    @property
    def seconds(self) -> float:
        """Duration in seconds."""

    @property
    def rate(self) -> int:
        """Native sampling rate in Hz."""

    def chunks(self, rate: int) -> Iterator[Array]:
        """Yield samples (2, n) at any rate, without the checks and warnings of `blocks`."""

    def blocks(self, layout: CueLayout, *, second_pass: bool = False) -> Iterator[Audio]:
        """Yield blocks at the rate of the layout; a second pass does not repeat warnings."""


@dataclass(frozen=True, eq=False)
class MemoryRecording:
    """A recording in memory."""

    audio: Audio
    offset: Array = field(default_factory=_zero_offset)  # (2, 1), already removed
    clipped_fraction: float = 0.0  # of the samples of the first block; 0: not measured

    def __post_init__(self) -> None:
        check_binaural(self.audio)

    def without_dc_offset(self) -> MemoryRecording:
        """Return the recording without the DC offset of its first block."""
        samples, rate = self.audio.samples, self.audio.rate
        first = samples[:, : int(_BLOCK_SECONDS * rate)]
        offset, clipped = estimate_dc_offset(first), _clipped_fraction(first + self.offset)
        return MemoryRecording(Audio(samples - offset, rate), self.offset + offset, clipped)

    @property
    def seconds(self) -> float:
        """Duration in seconds."""
        return self.audio.seconds

    @property
    def rate(self) -> int:
        """Native sampling rate in Hz."""
        return self.audio.rate

    def chunks(self, rate: int) -> Iterator[Array]:
        """Yield all samples (2, n) at any rate, as one chunk."""
        yield self.audio.at_rate(rate).samples

    def blocks(self, layout: CueLayout, *, second_pass: bool = False) -> Iterator[Audio]:
        """Yield blocks at the rate of the layout; raise InputError if there can be no cues."""
        samples = check_audio(self.audio, layout).samples
        size = int(_BLOCK_SECONDS * layout.rate)
        for start in range(0, samples.shape[1], size):
            yield Audio(samples[:, start : start + size], layout.rate)


@dataclass(frozen=True, eq=False)
class FileRecording:
    """A recording in a sound file of any length."""

    path: str | Path
    channels: tuple[int, int] = (0, 1)  # channel numbers of the left and the right ear
    offset: Array = field(default_factory=_zero_offset)  # (2, 1), removed while reading
    clipped_fraction: float = 0.0  # of the samples of the first block; 0: not measured

    def without_dc_offset(self) -> FileRecording:
        """Return the recording without the DC offset of its first block."""
        first = next(self._read(self.rate, warn=False)).samples
        offset, clipped = estimate_dc_offset(first), _clipped_fraction(first + self.offset)
        return replace(self, offset=self.offset + offset, clipped_fraction=clipped)

    @property
    def seconds(self) -> float:
        """Duration in seconds, from the header."""
        return audio_seconds(self.path)

    @property
    def rate(self) -> int:
        """Native sampling rate in Hz, from the header."""
        return audio_rate(self.path)

    def chunks(self, rate: int) -> Iterator[Array]:
        """Yield samples (2, n) at any rate, without warnings."""
        return (block.samples for block in self._read(rate, warn=False))

    def blocks(self, layout: CueLayout, *, second_pass: bool = False) -> Iterator[Audio]:
        """Yield blocks at the rate of the layout; a second pass does not repeat warnings."""
        return self._read(layout.rate, warn=not second_pass)

    def _read(self, rate: int, *, warn: bool) -> Iterator[Audio]:
        return read_blocks(
            self.path, channels=self.channels, rate=rate, block_seconds=_BLOCK_SECONDS,
            offset=self.offset if self.offset.any() else None, warn=warn,
        )  # fmt: skip
