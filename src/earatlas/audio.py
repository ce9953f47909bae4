"""Sound in and out: files, sampling rates, and the short-time Fourier transform.

A file becomes an `Audio` of two channels (0 left, 1 right); `stft` turns it into spectra
(channels, bins, frames) and `istft` gives the samples back to rounding error. `read_blocks` and
`FrameStream` do the same piece by piece, with the same numbers and bounded memory.

    x     (C, n)        samples, full scale 1
    w     (window,)     periodic Hann window
    S     (C, B, T)     spectra, B = window // 2 + 1 bins from 0 Hz, T = 1 + n // hop frames
    t     frame t is centred on sample t * hop; beyond the ends the sound is silent

Resampling is soxr's: as fast as scipy.signal.resample_poly, which leaves aliases at -17 dB where
soxr has them below -180 dB, and it streams (`python benchmarks/foundation.py` measures both). The
transform is written here, on scipy.fft: `scipy.signal.ShortTimeFFT` inverts only with frames that
reach over both ends of the sound, which the paper's T = 126 frames a second do not, and is slower.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.fft
import soundfile
import soxr
from numpy.typing import ArrayLike, NDArray

from earatlas.errors import EaratlasWarning, InputError, existing_file

__all__ = [
    "Audio",
    "FrameStream",
    "audio_seconds",
    "istft",
    "read_audio",
    "read_blocks",
    "read_mono",
    "resample",
    "stft",
]

Array = NDArray[np.float64]
Spectra = NDArray[np.complex128]

_LARGEST_SAMPLE = 1e6  # beyond, squares overflow or swamp everything else; no recorder gives it
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
        """How many channels."""
        return len(self.samples)

    @property
    def seconds(self) -> float:
        """How long."""
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
        try:
            soundfile.write(path, self.samples.T, self.rate, subtype, format=kind)
        except (OSError, soundfile.SoundFileError) as error:
            raise InputError(
                f"path must be a file that can be written, got '{path}' ({error}). "
                "Check that its folder exists and is writable."
            ) from error
        return path


def checked_rate(rate: float) -> int:
    """A sampling rate as a whole number, or an InputError."""
    if not (0 < rate < 1e9 and float(rate).is_integer()):
        raise InputError(f"rate must be a positive whole number of Hz, got {rate}. Such as 16000.")
    return int(rate)


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


def _open(path: str | Path) -> soundfile.SoundFile:
    path = existing_file(path, "recording")
    try:
        if path.stat().st_size == 0:
            raise InputError(f"recording must hold sound, got the empty file '{path}'. Record it.")
        if _is_cut_short(path):
            raise InputError(
                f"recording must be complete, got '{path}', whose end is missing. "
                "Copy or record it again."
            )
        return soundfile.SoundFile(path)
    except (OSError, soundfile.SoundFileError) as error:
        raise InputError(
            f"recording must be a WAV, FLAC, OGG or AIFF file, got '{path}', which cannot be read "
            f"as sound ({_reason(error)}). Check that it is complete and really is a sound file."
        ) from error


def _is_cut_short(path: Path) -> bool:
    """Whether a WAV, AIFF or OGG file ends before its own header says.

    libsndfile takes what is there for the whole and says nothing; for FLAC it does say.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        kind = file.read(12)[:4]
        if kind == b"OggS":
            file.seek(max(size - 65_536, 0))
            tail = file.read()
            last = tail.rfind(b"OggS")
            return last < 0 or not tail[last + 5 : last + 6] or not tail[last + 5] & 4
        if kind not in (b"RIFF", b"FORM"):
            return False
        while len(head := file.read(8)) == 8:
            length = int.from_bytes(head[4:], "little" if kind == b"RIFF" else "big")
            if head[:4] in (b"data", b"SSND"):
                streamed = length in (0, 0xFFFFFFFF)  # written to a pipe: the length is unknown
                return not streamed and file.tell() + length > size
            file.seek(length + length % 2, 1)
    return False


def _reason(error: BaseException) -> str:
    """The library's own word for what went wrong, without the path it repeats."""
    return str(getattr(error, "error_string", error)).rstrip(". ")


def _pick(data: Array, channels: tuple[int, ...], path: str | Path) -> Array:
    """Rows of the wanted channels from soundfile's (n, channels)."""
    allowed = range(data.shape[1])
    if len(set(channels)) != 2 or len(channels) != 2 or not set(channels) <= set(allowed):
        raise InputError(
            f"channels must be two different ones between 0 and {data.shape[1] - 1} for '{path}', "
            f"got {', '.join(map(str, channels))}. Choose channels that the file has."
        )
    return np.ascontiguousarray(data[:, list(channels)].T)


def _check_samples(samples: Array, path: str | Path, start: int, rate: int) -> None:
    """Refuse NaN, infinity and absurd values, saying where the first one is."""
    good = np.abs(samples) < _LARGEST_SAMPLE  # false for NaN
    if not good.all():
        channel, index = np.argwhere(~good)[0]
        raise InputError(
            f"audio must be finite and not beyond a million times full scale, got "
            f"{samples[channel, index]} in '{path}', channel {channel}, sample {start + index} "
            f"({(start + index) / rate:.3f} s). Repair or cut the recording."
        )


def _check_binaural(path: str | Path, sound: soundfile.SoundFile) -> None:
    if sound.channels < 2:
        raise InputError(
            f"audio must have two channels (left, right), got 1 in '{path}'. "
            "A mono sound carries no interaural cues: record both ears."
        )


class _Health:
    """Warns, once a recording, of what makes cues worse without making them useless."""

    def __init__(self, path: str | Path, rate: int) -> None:
        self.path, self.rate = path, rate
        self.n = 0
        self.sums = np.zeros(2)
        self.peaks = np.zeros(2)
        self.same = True
        self.clipped = 0
        self.power = np.zeros(2)

    def add(self, samples: Array) -> None:
        self.n += samples.shape[1]
        self.sums = self.sums + samples.sum(axis=1)
        self.power = self.power + (samples**2).sum(axis=1)
        self.peaks = np.maximum(self.peaks, np.abs(samples).max(axis=1, initial=0.0))
        self.same = self.same and bool(np.array_equal(samples[0], samples[1]))
        loud = np.abs(samples) >= 0.999
        # A flat top: full scale, and the same again. A float file may rightly go beyond 1.
        self.clipped += int((loud[:, 1:] & (samples[:, 1:] == samples[:, :-1])).sum())

    def finish(self, warn: bool) -> None:
        if self.n == 0:
            raise InputError(
                f"audio must hold samples, got none in '{self.path}'. Record it again."
            )
        if not self.peaks.any():
            raise InputError(
                f"audio must not be silent, got only zeros in '{self.path}'. "
                "Check the microphones and the recording level."
            )
        for name, peak in zip(("left", "right"), self.peaks, strict=True):
            if peak == 0:
                raise InputError(
                    f"audio must have sound in both channels, got a silent {name} channel in "
                    f"'{self.path}'. Check that microphone, or pick other channels."
                )
        if warn and self.same:
            warnings.warn(
                f"'{self.path}' has the same sound in both channels, as a mono recording has: it "
                "carries no interaural cues. Record both ears.",
                EaratlasWarning,
                stacklevel=3,
            )
        if warn and self.clipped:
            warnings.warn(
                f"'{self.path}' is clipped ({self.clipped} samples in flat tops at full scale): "
                "level differences are wrong there. Record at a lower level.",
                EaratlasWarning,
                stacklevel=3,
            )
        offset = np.abs(self.sums / self.n)
        # An impulse response has a mean by nature; it is over in a fraction of a second.
        if warn and self.n > self.rate / 2 and (offset > 0.1 * np.sqrt(self.power / self.n)).any():
            warnings.warn(
                f"'{self.path}' has a DC offset (mean {offset.max():.3g} of full scale): cues do "
                "not use 0 Hz, but the lowest bins suffer. High-pass the recording.",
                EaratlasWarning,
                stacklevel=3,
            )


def read_audio(
    path: str | Path, *, channels: tuple[int, int] = (0, 1), rate: int | None = None
) -> Audio:
    """Two channels of a sound file of any format, rate and width; `rate` resamples.

    Raises InputError for what cannot be used (mono, empty, silent, NaN, unreadable) and warns of
    clipping and DC offset.
    """
    blocks = list(read_blocks(path, channels=channels, rate=rate, block_seconds=60.0))
    if not blocks:
        raise InputError(f"recording must be longer, got '{path}' of one sample. Record it again.")
    return Audio(np.concatenate([b.samples for b in blocks], axis=1), blocks[0].rate)


def read_blocks(
    path: str | Path,
    *,
    channels: tuple[int, int] = (0, 1),
    rate: int | None = None,
    block_seconds: float = 10.0,
    warn: bool = True,
) -> Iterator[Audio]:
    """The same samples as `read_audio`, about `block_seconds` at a time.

    A recording that is silent throughout, or a FLAC file whose end is missing, is known as such
    only at the end: the error then comes after the blocks.
    """
    with _open(path) as sound:
        _check_binaural(path, sound)
        native = int(sound.samplerate)
        rate = native if rate is None else checked_rate(rate)
        resampler = soxr.ResampleStream(native, rate, 2, dtype="float64", quality="VHQ")
        health, done = _Health(path, native), 0
        while True:
            try:
                data = sound.read(max(int(block_seconds * native), 1), "float64", always_2d=True)
            except soundfile.SoundFileError as error:
                raise InputError(
                    f"audio must be complete, got '{path}', which breaks off at "
                    f"{done / native:.2f} s ({_reason(error)}). Copy or record it again."
                ) from error
            samples = _pick(data, channels, path)
            last = samples.shape[1] == 0
            _check_samples(samples, path, done, native)
            health.add(samples)
            done += samples.shape[1]
            if rate != native:
                samples = resampler.resample_chunk(np.ascontiguousarray(samples.T), last=last).T
            if samples.shape[1]:
                yield Audio(samples, rate)
            if last:
                break
        health.finish(warn)


def read_mono(path: str | Path, *, rate: int) -> Array:
    """The mean of all channels (n,) at `rate`: a dry sound to be placed in a scene."""
    with _open(path) as sound:
        try:
            data = sound.read(dtype="float64", always_2d=True)
        except soundfile.SoundFileError as error:
            raise InputError(
                f"audio must be complete, got '{path}' ({_reason(error)}). Copy it again."
            ) from error
        native = int(sound.samplerate)
    _check_samples(data.T, path, 0, native)
    if not data.any():
        raise InputError(f"audio must hold sound, got silence in '{path}'. Choose another file.")
    return resample(data.mean(axis=1), native, rate)


def audio_seconds(path: str | Path) -> float:
    """Length of a sound file, from its header."""
    with _open(path) as sound:
        return float(sound.frames) / float(sound.samplerate)


def _hann(window: int) -> Array:
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)


def _transform(padded: Array, window: int, hop: int, frames: int) -> Spectra:
    """Spectra (C, B, frames) of windows that start at 0, hop, 2 hop, … of padded (C, n)."""
    views = np.lib.stride_tricks.sliding_window_view(padded, window, axis=-1)[:, ::hop]
    spectra = np.empty((len(padded), frames, window // 2 + 1), dtype=np.complex128)
    w = _hann(window)
    for start in range(0, frames, 256):  # as many windows as stay in the cache: twice as fast
        part = slice(start, min(start + 256, frames))
        spectra[:, part] = scipy.fft.rfft(views[:, part] * w, axis=-1)
    return spectra.swapaxes(-1, -2)


def stft(samples: ArrayLike, window: int, hop: int) -> Spectra:
    """Spectra (C, B, T) of samples (C, n), with istft(stft(x)) = x and T = 1 + n // hop."""
    x = np.asarray(samples, dtype=np.float64)
    half = window // 2
    padded = np.pad(x, ((0, 0), (half, half + hop)))
    return _transform(padded, window, hop, 1 + x.shape[-1] // hop)


def istft(spectra: ArrayLike, window: int, hop: int, n: int) -> Array:
    """Samples (..., n) from spectra (..., B, T): windowed overlap-add over the sum of w^2.

    The least-squares inverse (Griffin and Lim 1984): exact for spectra that stft made, and the
    nearest sound for others, such as masked ones. It is linear, so parts add up to the whole.
    """
    s = np.asarray(spectra)
    w = _hann(window)
    half, frames = window // 2, s.shape[-1]
    pieces = scipy.fft.irfft(s.swapaxes(-1, -2), n=window, axis=-1) * w
    length = max((frames - 1) * hop + window, half + n)
    out = np.zeros((*s.shape[:-2], length))
    norm = np.zeros(length)
    # Frames that are window/hop apart do not overlap: one strided addition places them all.
    step = -(-window // hop)
    for first in range(min(step, frames)):
        block = pieces[..., first::step, :]
        count = block.shape[-2]
        span = slice(first * hop, first * hop + (count - 1) * step * hop + window)
        _strided(out[..., span], count, step * hop, window)[...] += block
        _strided(norm[span], count, step * hop, window)[...] += w**2
    return out[..., half : half + n] / norm[half : half + n]


def _strided(x: Array, count: int, step: int, window: int) -> Array:
    """A writable view (..., count, window) of windows `step` >= window apart in x (..., m)."""
    shape = (*x.shape[:-1], count, window)
    strides = (*x.strides[:-1], step * x.strides[-1], x.strides[-1])
    return np.lib.stride_tricks.as_strided(x, shape, strides)


class FrameStream:
    """`stft` for a sound that arrives in pieces: the pieces' frames, put together, are the same.

    `push` returns the frames that are complete, `finish` the rest, which wait for the end.
    """

    def __init__(self, window: int, hop: int, channels: int = 2) -> None:
        self._window, self._hop = window, hop
        self._rest = np.zeros((channels, window // 2))
        self._pushed = self._frames = 0

    def push(self, samples: ArrayLike) -> Spectra:
        """Spectra (C, B, t) of the frames that these samples (C, n) complete; t may be 0."""
        x = np.asarray(samples, dtype=np.float64)
        self._pushed += x.shape[-1]
        return self._take(np.concatenate([self._rest, x], axis=-1))

    def finish(self) -> Spectra:
        """Spectra of the last frames, which reach beyond the end of the sound."""
        missing = 1 + self._pushed // self._hop - self._frames
        need = (missing - 1) * self._hop + self._window - self._rest.shape[-1]
        return self._take(np.pad(self._rest, ((0, 0), (0, max(need, 0)))))

    def _take(self, x: Array) -> Spectra:
        count = max((x.shape[-1] - self._window) // self._hop + 1, 0)
        self._frames += count
        self._rest = x[:, count * self._hop :].copy()
        if count == 0:
            return np.zeros((len(x), self._window // 2 + 1, 0), dtype=np.complex128)
        return _transform(x, self._window, self._hop, count)
