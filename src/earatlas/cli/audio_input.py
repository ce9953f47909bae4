"""Live sound for commands: from standard input, a device, or a file that is played as if live.

`Input` chooses; each gives blocks (2, n) of both ears. `Clock` says afterwards how the stream kept
up.
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

__all__ = ["Clock", "Input", "PcmFormat", "to_pcm"]

_MOST_CHANNELS = 64
_FULL_SCALE = {"s16": 2.0**15, "s24": 2.0**23, "f32": 1.0}
_PATIENCE_SECONDS = 0.1  # what recorders and sound cards hold back for us
_BYTES = {"s16": 2, "s24": 3, "f32": 4}


class PcmFormat(StrEnum):
    """Raw samples, little-endian."""

    s16 = "s16"
    s24 = "s24"
    f32 = "f32"


@dataclass
class Clock:
    """How a stream keeps up with its sound."""

    rate: int
    live: bool = True  # else the sound waits for the work, and nothing can be late
    samples: int = 0
    worked_seconds: float = 0.0  # in all
    behind_seconds: float = 0.0  # that the work is behind the sound
    late_blocks: int = 0
    dropped_samples: int = 0
    left_over_bytes: int = 0  # of a sample that never was whole
    work_seconds: list[float] = field(default_factory=list)  # until the last blocks were done

    def worked(self, seconds: float, samples: int) -> None:
        """A block of so many samples took so long."""
        self.samples += samples
        self.worked_seconds += seconds
        if not self.live:
            return
        self.behind_seconds = max(self.behind_seconds + seconds - samples / self.rate, 0.0)
        self.late_blocks += self.behind_seconds > _PATIENCE_SECONDS
        self.work_seconds.append(seconds + self.behind_seconds)
        del self.work_seconds[:-10_000]  # an hour of the usual blocks has more: the last tell

    @property
    def usual_work_seconds(self) -> float:
        """After which nineteen blocks of twenty were done."""
        return float(np.quantile(self.work_seconds, 0.95)) if self.work_seconds else 0.0


class Input:
    """A file if there is one, or standard input if it is wanted, or else a device."""

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
    ) -> None:
        """`rate`, `form` and `channels` are those of raw samples; a file has its own rate."""
        if not 2 <= channels <= _MOST_CHANNELS:
            raise InputError(
                f"channels must be from 2 to {_MOST_CHANNELS}, left and right first, got "
                f"{channels}. One alone carries no interaural cues."
            )
        if stdin and file is not None:
            raise InputError("input must be one, got --stdin and --from. Leave one of them out.")
        if fast and file is None:
            raise InputError("--fast must go with --from, got none. Name the recording.")
        self._file, self._stdin, self._device = file, stdin, device
        self._form, self._channels, self._fast = form, channels, fast
        self.rate = rate if file is None else _rate_of(file)
        self.clock = Clock(self.rate, live=not fast)

    def blocks(self, seconds: float) -> Iterator[Array]:
        """Blocks (2, n) of so many seconds, until it ends."""
        size = max(int(seconds * self.rate), 1)
        if self._file is not None:
            return _file_blocks(self._file, size, self.rate, fast=self._fast)
        if self._stdin:
            return _stdin_blocks(size, self._form, self._channels, self.clock)
        return _device_blocks(self._device, self.rate, size, self.clock)


def _rate_of(path: Path) -> int:
    from earatlas.features.audio_files import read_blocks

    return next(iter(read_blocks(path, block_seconds=0.5, warn=False))).rate


def _stdin_blocks(size: int, form: PcmFormat, channels: int, clock: Clock) -> Iterator[Array]:
    """Blocks of interleaved samples of standard input; of many channels the first two."""
    frame = _BYTES[form] * channels
    while data := sys.stdin.buffer.read(frame * size):
        whole = len(data) - len(data) % frame
        clock.left_over_bytes = len(data) - whole
        if whole:
            yield _from_pcm(data[:whole], form).reshape(-1, channels)[:, :2].T


def _from_pcm(data: bytes, form: PcmFormat) -> Array:
    if form == PcmFormat.s24:  # a fourth byte below makes it 32 bits
        parts = np.frombuffer(data, dtype=np.uint8).reshape(-1, 3)
        wide = np.zeros((len(parts), 4), dtype=np.uint8)
        wide[:, 1:] = parts
        return wide.view("<i4")[:, 0] / 2.0**31
    values = np.frombuffer(data, dtype="<i2" if form == PcmFormat.s16 else "<f4")
    return values.astype(np.float64) / _FULL_SCALE[form]


def to_pcm(samples: Array, form: PcmFormat) -> bytes:
    """Samples (2, n) as raw ones, left and right in turn; what is too loud is cut."""
    x = np.ascontiguousarray(samples.T)
    if form == PcmFormat.f32:
        return x.astype("<f4").tobytes()
    full = _FULL_SCALE[form]
    whole = np.clip(np.round(x * full), -full, full - 1).astype("<i4")
    if form == PcmFormat.s16:
        return whole.astype("<i2").tobytes()
    return whole.reshape(-1, 1).view(np.uint8)[:, :3].tobytes()


def _file_blocks(path: Path, size: int, rate: int, *, fast: bool) -> Iterator[Array]:
    """Blocks of a file, each when it would have been heard; `fast`: as soon as it is wanted."""
    from earatlas.features.audio_files import read_blocks

    begun, done = time.monotonic(), 0
    rest = np.zeros((2, 0))
    for block in read_blocks(path):
        rest = np.concatenate([rest, block.samples], axis=1)
        while rest.shape[1] >= size:
            ready, rest = rest[:, :size], rest[:, size:]
            done += size
            _wait(begun + done / rate, fast=fast)
            yield ready
    if rest.shape[1]:
        _wait(begun + (done + rest.shape[1]) / rate, fast=fast)
        yield rest


def _wait(until: float, *, fast: bool) -> None:
    if not fast:
        time.sleep(max(until - time.monotonic(), 0.0))


def _device_blocks(device: str | None, rate: int, size: int, clock: Clock) -> Iterator[Array]:
    """Blocks of an input device, until interrupted or until it is gone."""
    sounddevice = _sounddevice()
    number: Any = int(device) if device is not None and device.isdigit() else device
    begun = False
    try:
        with sounddevice.InputStream(
            samplerate=rate, channels=2, device=number, dtype="float32"
        ) as stream:
            while True:
                data, overflowed = stream.read(size)
                begun = True
                clock.dropped_samples += size if overflowed else 0  # at least a part of it
                yield np.asarray(data.T, dtype=np.float64)
    except sounddevice.PortAudioError as error:
        if begun:
            raise InputError(
                f"device must stay connected, got its end ({error}). What was heard until then is "
                "complete. Connect it again, and start anew."
            ) from error
        raise InputError(
            f"device must be a stereo input at {rate} Hz, got {device or 'the default'} ({error}). "
            "List devices with: python -m sounddevice."
        ) from error


def _sounddevice() -> Any:
    """The package for devices, or what is missing: itself, or the library that it calls."""
    try:
        import sounddevice
    except ImportError as error:
        raise missing_extra("live", "sounddevice") from error
    except OSError as error:  # the package is there, and does not find the library
        raise InputError(
            f"This needs the library PortAudio, which was not found ({error}). Install it (Debian: "
            "apt install libportaudio2; macOS: brew install portaudio), or pipe a recorder into "
            "--stdin."
        ) from error
    return sounddevice
