"""Live audio input for commands: standard input, an audio device, or a file played in real time.

`AudioInput` selects one of them and yields blocks (2, n) of the left and right ear. `StreamClock`
measures whether the processing keeps up with the sound.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.errors import InputError, missing_extra
from earatlas.types import Array

__all__ = ["AudioInput", "PcmFormat", "StreamClock", "to_pcm"]

_FULL_SCALE = {"s16": 2.0**15, "s24": 2.0**23, "f32": 1.0}  # sample value at full scale
# First bytes of sound files, which raw samples do not have, and the names of the formats.
_FILE_HEADERS = {b"RIFF": "WAV", b"RF64": "WAV", b"FORM": "AIFF", b"fLaC": "FLAC", b"OggS": "OGG"}
_SAMPLE_BYTES = {"s16": 2, "s24": 3, "f32": 4}  # bytes per sample of one channel


class PcmFormat(StrEnum):
    """Format of raw little-endian samples."""

    s16 = "s16"
    s24 = "s24"
    f32 = "f32"


@dataclass
class StreamClock:
    """Timing of a stream: how long the processing takes, and how far it lags behind the sound."""

    rate: int  # Hz
    live: bool = True  # False: the sound waits for the processing, so no block can be late
    samples: int = 0
    processing_seconds: float = 0.0  # total processing time
    lag_seconds: float = 0.0  # current lag of the processing behind the sound
    late_blocks: int = 0
    dropped_samples: int = 0
    left_over_bytes: int = 0  # bytes of an incomplete sample at the end of the input
    latencies_seconds: list[float] = field(default_factory=list)  # latencies of recent blocks

    def add_block(self, seconds: float, samples: int) -> None:
        """Record that a block of so many samples took so many seconds to process."""
        self.samples += samples
        self.processing_seconds += seconds
        if not self.live:
            return
        self.lag_seconds = max(self.lag_seconds + seconds - samples / self.rate, 0.0)
        # Recorders and sound cards buffer 0.1 s. Evidence: docs/figures/settings/cli.md,
        # "audio_input".
        self.late_blocks += self.lag_seconds > 0.1
        self.latencies_seconds.append(seconds + self.lag_seconds)
        del self.latencies_seconds[:-10_000]  # bounds the memory of long streams

    @property
    def latency_seconds(self) -> float:
        """95th percentile of the processing latency of recent blocks, in seconds."""
        return float(np.quantile(self.latencies_seconds, 0.95)) if self.latencies_seconds else 0.0


class AudioInput:
    """Source of live audio: a file if one is given, else standard input or a device."""

    def __init__(
        self,
        file: Path | None,
        stdin: bool,
        device: str | None,
        *,
        rate: int,
        form: PcmFormat,
        channels: int,
        fast: bool,
        ears: tuple[int, int] = (0, 1),
    ) -> None:
        """`rate`, `form` and `channels` describe raw samples; a file has its own rate.

        `ears` are the channels of the left and the right ear, counted from 0.
        `fast` reads a file without waiting for real time.
        """
        if not 2 <= channels <= 64:
            raise InputError(
                f"channels must be from 2 to 64, with left and right first, got {channels}. "
                "Record both ears: one channel has no interaural cues."
            )
        if ears[0] == ears[1] or not all(0 <= ear < 64 for ear in ears):
            raise InputError(
                f"ears must be two different channels from 0 to 63, got {ears[0]} and {ears[1]}. "
                "For example: --ears 2 3."
            )
        if stdin and max(ears) >= channels:
            raise InputError(
                f"ears must be channels of standard input, got {max(ears)} of {channels}. "
                f"Add --channels {max(ears) + 1}, or as many as the recorder writes."
            )
        if stdin and file is not None:
            raise InputError(
                "input must be one of --stdin and --from, got both. Remove one of them."
            )
        if fast and file is None:
            raise InputError("--fast must be used with --from, got no --from. Add --from FILE.")
        self.file, self._stdin, self._device = file, stdin, device
        self._form, self._channels, self._fast, self._ears = form, channels, fast, ears
        self.rate = rate if file is None else _rate_of(file)
        self.clock = StreamClock(self.rate, live=not fast)

    def blocks(self, seconds: float) -> Iterator[Array]:
        """Return an iterator over blocks (2, n) of this duration, until the input ends."""
        size = max(int(seconds * self.rate), 1)
        if self.file is not None:
            return _file_blocks(self.file, size, self.rate, self._ears, fast=self._fast)
        if self._stdin:
            every = _stdin_blocks(size, self._form, self._channels, self.clock)
        else:
            every = _device_blocks(self._device, self.rate, size, self.clock, max(self._ears) + 1)
        return (block[list(self._ears)] for block in every)


def _rate_of(path: Path) -> int:
    """Return the sampling rate of a file, in Hz."""
    from earatlas.features.audio_files import read_blocks

    return next(iter(read_blocks(path, block_seconds=0.5, warn=False))).rate


def _stdin_blocks(size: int, form: PcmFormat, channels: int, clock: StreamClock) -> Iterator[Array]:
    """Yield blocks (channels, n) of interleaved samples on standard input."""
    frame, start = _SAMPLE_BYTES[form] * channels, True
    while data := sys.stdin.buffer.read(frame * size):
        if start and data[:4] in _FILE_HEADERS:
            raise InputError(
                f"Standard input starts with a {_FILE_HEADERS[data[:4]]} header, but raw samples "
                "are needed. Use --from FILE."
            )
        start = False
        whole = len(data) - len(data) % frame
        clock.left_over_bytes = len(data) - whole
        if whole:
            yield _from_pcm(data[:whole], form).reshape(-1, channels).T


def _from_pcm(data: bytes, form: PcmFormat) -> Array:
    """Convert raw samples to floating point, where full scale is 1."""
    if form == PcmFormat.s24:  # prepend a least significant byte to get 32 bits
        parts = np.frombuffer(data, dtype=np.uint8).reshape(-1, 3)
        wide = np.zeros((len(parts), 4), dtype=np.uint8)
        wide[:, 1:] = parts
        return wide.view("<i4")[:, 0] / 2.0**31
    values = np.frombuffer(data, dtype="<i2" if form == PcmFormat.s16 else "<f4")
    return values.astype(np.float64) / _FULL_SCALE[form]


def to_pcm(samples: Array, form: PcmFormat) -> bytes:
    """Convert samples (2, n) to interleaved raw samples, clipped to full scale."""
    x = np.ascontiguousarray(samples.T)
    if form == PcmFormat.f32:
        return x.astype("<f4").tobytes()
    full = _FULL_SCALE[form]
    whole = np.clip(np.round(x * full), -full, full - 1).astype("<i4")
    if form == PcmFormat.s16:
        return whole.astype("<i2").tobytes()
    return whole.reshape(-1, 1).view(np.uint8)[:, :3].tobytes()


def _file_blocks(
    path: Path, size: int, rate: int, ears: tuple[int, int], *, fast: bool
) -> Iterator[Array]:
    """Yield blocks of a file, each at its time in the recording; `fast`: without waiting."""
    from earatlas.features.audio_files import read_blocks

    start, done = time.monotonic(), 0
    rest = np.zeros((2, 0))
    for block in read_blocks(path, channels=ears):
        rest = np.concatenate([rest, block.samples], axis=1)
        while rest.shape[1] >= size:
            ready, rest = rest[:, :size], rest[:, size:]
            done += size
            _wait(start + done / rate, fast=fast)
            yield ready
    if rest.shape[1]:
        _wait(start + (done + rest.shape[1]) / rate, fast=fast)
        yield rest


def _wait(until: float, *, fast: bool) -> None:
    """Sleep until a time of the monotonic clock, unless `fast`."""
    if not fast:
        time.sleep(max(until - time.monotonic(), 0.0))


def _device_blocks(
    device: str | None, rate: int, size: int, clock: StreamClock, channels: int
) -> Iterator[Array]:
    """Yield blocks (channels, n) of an input device, until interrupted or disconnected."""
    sounddevice = _sounddevice()
    number: Any = int(device) if device is not None and device.isdigit() else device
    started = False
    try:
        with sounddevice.InputStream(
            samplerate=rate, channels=channels, device=number, dtype="float32"
        ) as stream:
            while True:
                data, overflowed = stream.read(size)
                started = True
                clock.dropped_samples += (
                    size if overflowed else 0
                )  # upper bound: a part of the block
                yield np.asarray(data.T, dtype=np.float64)
    except sounddevice.PortAudioError as error:
        if started:
            raise InputError(
                f"device must stay connected, got a disconnection ({error}). Results until then "
                "are complete. Connect it again, and restart the command."
            ) from error
        raise InputError(
            f"device must be an input of {channels} channels at {rate} Hz, got "
            f"{device or 'the default'} ({error}). List the devices with: "
            "python -m sounddevice."
        ) from error


def _sounddevice() -> Any:
    """Import sounddevice, or raise an error about it or about its library PortAudio."""
    try:
        import sounddevice
    except ImportError as error:
        raise missing_extra("live", "sounddevice") from error
    except OSError as error:  # the package is installed, but does not find PortAudio
        raise InputError(
            f"This needs the library PortAudio, which was not found ({error}). Install it (Debian: "
            "apt install libportaudio2; macOS: brew install portaudio), or pipe a recorder into "
            "the command and use --stdin."
        ) from error
    return sounddevice
