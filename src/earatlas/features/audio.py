"""Audio in memory: the samples of both ears at one sampling rate, and resampling.

Resampling uses soxr, which also resamples streams.

    x     (C, n)        samples of C channels, full scale is 1; channel 0 is the left ear
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
from numpy.typing import ArrayLike, DTypeLike, NDArray

from earatlas.errors import InputError, check_path
from earatlas.features.wav import clear_peak_timestamp, libsndfile_path, wav_format
from earatlas.files import atomic_write, final_path
from earatlas.notebooks import HtmlView
from earatlas.types import Array

__all__ = ["MAX_ABS_SAMPLE", "Audio", "resample"]

# Evidence: docs/figures/settings/features.md, "audio".
MAX_ABS_SAMPLE = 1e6  # largest accepted magnitude of a sample, in units of full scale

_FORMATS = {  # file name extension: (format, subtype) of libsndfile
    ".wav": ("WAV", "FLOAT"),
    ".flac": ("FLAC", "PCM_24"),
    ".aif": ("AIFF", "PCM_24"),
    ".aiff": ("AIFF", "PCM_24"),
    ".ogg": ("OGG", "VORBIS"),
}


@dataclass(frozen=True, eq=False, slots=True)
class Audio(HtmlView):
    """Samples of one or more channels at one sampling rate.

    `np.asarray(audio)` returns the samples; notebooks show a player.

    Parameters
    ----------
    samples : array_like of shape (C, n)
        One channel per row, as float64 with full scale 1. In a binaural recording, channel 0 is
        the left ear and channel 1 the right ear.
    rate : int
        Sampling rate in Hz.

    Raises
    ------
    InputError
        If `samples` does not have one channel per row, or `rate` is not a positive whole number.

    See Also
    --------
    read_audio : Read a binaural sound file.

    Examples
    --------
    >>> import numpy as np
    >>> import earatlas as ea
    >>> audio = ea.Audio(np.zeros((2, 16000)), 16000)
    >>> audio
    Audio(2 channels, 1.00 s, 16000 Hz)
    >>> audio.at_rate(48000).samples.shape
    (2, 48000)
    >>> np.asarray(audio).shape
    (2, 16000)
    """

    samples: Array  # (C, n), full scale is 1; integers of 16 or 32 bits are divided by theirs
    rate: int  # Hz

    def __post_init__(self) -> None:
        samples = _full_scale_one(np.asarray(self.samples))
        if samples.ndim != 2 or samples.shape[0] == 0:
            raise InputError(
                f"samples must be an array of shape (channels, n), got shape {samples.shape}. "
                "Put one channel in each row; soundfile.read returns the transpose."
            )
        if samples.shape[0] > 64 >= samples.shape[1]:
            raise InputError(
                f"samples must have one channel in each row, got shape {samples.shape}. "
                "Transpose the array."
            )
        object.__setattr__(self, "samples", samples)
        object.__setattr__(self, "rate", check_rate(self.rate))

    def __repr__(self) -> str:
        return f"Audio({self.channels} channels, {self.seconds:.2f} s, {self.rate} Hz)"

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.samples, dtype=dtype, copy=copy)

    @property
    def channels(self) -> int:
        """Number of channels C; a binaural recording has two."""
        return len(self.samples)

    @property
    def seconds(self) -> float:
        """Duration in seconds."""
        return float(self.samples.shape[1] / self.rate)

    def at_rate(self, rate: int) -> Audio:
        """Resample to another sampling rate.

        Parameters
        ----------
        rate : int
            New sampling rate in Hz.

        Returns
        -------
        Audio
            The same sound at `rate`; this object itself if the rate is unchanged.
        """
        return self if rate == self.rate else Audio(resample(self.samples, self.rate, rate), rate)

    def write(self, path: str | Path) -> Path:
        """Write all channels to a sound file.

        The file appears only when it is complete. Equal samples give equal bytes.

        Parameters
        ----------
        path : str or Path
            File to write. The extension selects the format: `.wav` (32-bit float, which does not
            clip), `.flac`, `.aif` or `.aiff` (24 bits), or `.ogg` (Vorbis).

        Returns
        -------
        Path
            The path of the file.

        Raises
        ------
        InputError
            If the extension is unknown or the file cannot be written.
        """
        path = check_path(path)
        if path.suffix.lower() not in _FORMATS:
            raise InputError(
                f"The name of a sound file must end in one of {', '.join(_FORMATS)}, got '{path}'. "
                "Rename the output."
            )
        file_format, subtype = _FORMATS[path.suffix.lower()]
        if file_format == "WAV":
            file_format = wav_format(self.samples.size)
        with atomic_write(path, "path") as scratch:
            try:
                name = libsndfile_path(scratch)
                soundfile.write(name, self.samples.T, self.rate, subtype, format=file_format)
            except soundfile.SoundFileError as error:
                raise InputError(
                    f"The sound file '{final_path(path)}' cannot be written ({error}). "
                    "Check the free space of its folder, or choose another format."
                ) from error
            clear_peak_timestamp(scratch)
        return path


def _full_scale_one(samples: NDArray[Any]) -> Array:
    """Return samples as float64 of full scale 1, also those of 16- or 32-bit integers."""
    if samples.dtype in (np.int16, np.int32):
        return samples / -float(np.iinfo(samples.dtype).min)
    return np.asarray(samples, dtype=np.float64)


def check_rate(rate: float) -> int:
    """Return the sampling rate in Hz as an int; raise InputError if it is not one."""
    if not (0 < rate < 1e9 and float(rate).is_integer()):
        raise InputError(f"rate must be a positive whole number of Hz, got {rate}. Try 16000.")
    return int(rate)


def check_block(samples: ArrayLike) -> Array:
    """Return a block of a stream as float64 (2, n); raise InputError for any other shape."""
    if isinstance(samples, Audio):
        raise InputError(
            "samples must be an array of shape (2, n), got an Audio. Pass its samples attribute."
        )
    x = np.asarray(samples, dtype=np.float64)
    if x.ndim != 2 or len(x) != 2:
        raise InputError(
            f"samples must have shape (2, n), left and right, got {x.shape}. Transpose blocks "
            "that have one channel per column."
        )
    return x


def resample(samples: ArrayLike, rate: float, new_rate: float) -> Array:
    """Resample (..., n) along the last axis with soxr: linear phase, very high quality."""
    x = np.asarray(samples, dtype=np.float64)
    if rate == new_rate:
        return x
    rows = x.reshape(-1, x.shape[-1])
    out = [
        soxr.resample(part.T, rate, new_rate, quality="VHQ").T
        for part in _split_rows(rows, 256)  # each needs about 80 kB in soxr
    ]
    return np.concatenate(out).reshape(*x.shape[:-1], -1)


def _split_rows(rows: Array, size: int) -> Iterator[Array]:
    """Yield groups of at most `size` rows."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
