"""Sound in memory: samples of both ears at one rate, and other rates.

Channel 0 is the left ear. Resampling is soxr's: as fast as scipy.signal.resample_poly, which leaves
aliases at -17 dB where soxr has them below -180 dB, and it streams (`python
benchmarks/foundation.py` measures both).

    x     (C, n)        samples, full scale 1
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.features.wav import blank_date, library_name, wav_kind
from earatlas.files import written_whole
from earatlas.types import Array

__all__ = ["LARGEST_SAMPLE", "Audio", "resample"]

LARGEST_SAMPLE = 1e6  # beyond, squares overflow or swamp everything else; no recorder gives it

_FORMATS = {
    ".wav": ("WAV", "FLOAT"),
    ".flac": ("FLAC", "PCM_24"),
    ".aif": ("AIFF", "PCM_24"),
    ".aiff": ("AIFF", "PCM_24"),
    ".ogg": ("OGG", "VORBIS"),
}


@dataclass(frozen=True, eq=False, slots=True)
class Audio:
    """Samples of all channels at one rate; channel 0 is the left ear.

    >>> Audio(np.zeros((2, 16000)), 16000)
    Audio(2 channels, 1.00 s, 16000 Hz)
    """

    samples: Array  # (C, n) full scale 1
    rate: int  # Hz

    def __post_init__(self) -> None:
        samples = np.asarray(self.samples, dtype=np.float64)
        if samples.ndim != 2 or samples.shape[0] == 0:
            raise InputError(
                f"samples must be an array of shape (channels, n), got shape {samples.shape}. "
                "Put one channel in each row; soundfile returns the transpose."
            )
        if samples.shape[0] > 64 >= samples.shape[1]:
            raise InputError(
                f"samples must have one channel in each row, got shape {samples.shape}. "
                "Transpose the array."
            )
        object.__setattr__(self, "samples", samples)
        object.__setattr__(self, "rate", checked_rate(self.rate))

    def __repr__(self) -> str:
        return f"Audio({self.channels} channels, {self.seconds:.2f} s, {self.rate} Hz)"

    @property
    def channels(self) -> int:
        """How many channels there are: two, for both ears."""
        return len(self.samples)

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return float(self.samples.shape[1] / self.rate)

    def at_rate(self, rate: int) -> Audio:
        """The same sound at another sampling rate."""
        return self if rate == self.rate else Audio(resample(self.samples, self.rate, rate), rate)

    def write(self, path: str | Path) -> Path:
        """Write a sound file; its ending names the format (.wav is 32-bit float: nothing clips)."""
        path = Path(path)
        if path.suffix.lower() not in _FORMATS:
            raise InputError(
                f"path must end in one of {', '.join(_FORMATS)}, got '{path}'. Rename the output."
            )
        kind, subtype = _FORMATS[path.suffix.lower()]
        if kind == "WAV":
            kind = wav_kind(self.samples.size)
        with written_whole(path, "path") as scratch:
            try:
                name = library_name(scratch)
                soundfile.write(name, self.samples.T, self.rate, subtype, format=kind)
            except soundfile.SoundFileError as error:
                raise InputError(
                    f"path must be a file that can be written, got '{path}' ({error}). "
                    "Check that its folder has room, or choose another format."
                ) from error
            blank_date(scratch)
        return path


def checked_rate(rate: float) -> int:
    """A sampling rate as a whole number, or an InputError."""
    if not (0 < rate < 1e9 and float(rate).is_integer()):
        raise InputError(f"rate must be a positive whole number of Hz, got {rate}. Such as 16000.")
    return int(rate)


def checked_block(samples: ArrayLike) -> Array:
    """A block of a stream: samples (2, n) of both ears, or an InputError."""
    if isinstance(samples, Audio):
        raise InputError("samples must be an array (2, n), got an Audio. Use its samples.")
    x = np.asarray(samples, dtype=np.float64)
    if x.ndim != 2 or len(x) != 2:
        raise InputError(
            f"samples must have shape (2, n), left and right, got {x.shape}. Transpose blocks "
            "that have one channel a column."
        )
    return x


def resample(samples: ArrayLike, rate: float, new_rate: float) -> Array:
    """The same sound (..., n) at another rate: soxr at its best quality, linear phase."""
    x = np.asarray(samples, dtype=np.float64)
    if rate == new_rate:
        return x
    rows = x.reshape(-1, x.shape[-1])
    # soxr takes at most 65,535 channels in one call; a head has that many responses soon.
    out = [soxr.resample(part.T, rate, new_rate, quality="VHQ").T for part in _parts(rows, 4096)]
    return np.concatenate(out).reshape(*x.shape[:-1], -1)


def _parts(rows: Array, size: int) -> Iterator[Array]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
