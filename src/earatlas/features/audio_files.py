"""Sound files: any format, rate and width, whole or in blocks, with plain words for what is wrong.

A file becomes an `Audio` of two channels (0 left, 1 right). `read_blocks` gives the same samples
piece by piece, in bounded memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import soundfile
import soxr

from earatlas.errors import EaratlasWarning, InputError, existing_file
from earatlas.features.audio import LARGEST_SAMPLE, Audio, checked_rate, resample
from earatlas.features.wav import library_name
from earatlas.types import Array

__all__ = [
    "audio_rate",
    "audio_seconds",
    "read_all_channels",
    "read_audio",
    "read_blocks",
    "read_mono",
]

MORE_CHANNELS = r".* channels: 0 and 1 are taken"  # how the warning of `_warn_of_more` begins
_UNKNOWN = 1 << 62  # frames; libsndfile says so of a FLAC file that was written to a pipe
_FRAMES_A_BYTE = 5000  # at most: silence in FLAC takes 14 bytes for 65,535 frames
_RATES = 1000, 10**6  # Hz: below there are no cues, and a second of 16 kHz is made of few samples
# Written to a pipe, where the length is not known: 2³² - 1, or, by arecord and SoX, almost 2³¹.
_UNKNOWN_LENGTH = 0x7FFFF000
_MOST_CHUNKS = 1000  # before the sound: a hostile file may have millions
_BLOCK_VALUES = 1 << 22  # of all channels together: 32 MB, whatever a header says of their number


class _Forward(soundfile.SoundFile):  # type: ignore[misc]
    """A sound file that is read from its beginning to its end.

    To libsndfile the end of a file is where the header says; beyond what is there it cannot go.
    Read forward, a file gives what it has, and its header can be compared with that.
    """

    def seekable(self) -> bool:
        return False

    @property
    def is_of_known_length(self) -> bool:
        return bool(self.frames < _UNKNOWN)

    def blocks_of(self, path: str | Path, block_seconds: float) -> Iterator[Array]:
        """All samples, (n, channels) at a time; an InputError if there are fewer than it says."""
        size = min(int(block_seconds * self.samplerate), _BLOCK_VALUES // self.channels)
        done = 0
        while True:
            left = self.frames - done if self.is_of_known_length else size
            try:
                data = self.read(max(min(size, left), 1), "float64", always_2d=True)
            except soundfile.SoundFileError as error:
                raise _broken_off(path, done / self.samplerate, _reason(error)) from error
            if not len(data):
                break
            done += len(data)
            yield data
        if self.is_of_known_length and done < self.frames:
            raise _broken_off(path, done / self.samplerate, f"of {self.frames} samples a channel")


def _broken_off(path: str | Path, seconds: float, reason: str) -> InputError:
    return InputError(
        f"audio must be complete, got '{path}', which breaks off at {seconds:.2f} s ({reason}). "
        "Copy or record it again."
    )


def _open(path: str | Path) -> _Forward:
    path = existing_file(path, "recording")
    try:
        size = path.stat().st_size
        if size == 0:
            raise InputError(f"recording must hold sound, got the empty file '{path}'. Record it.")
        if _is_cut_short(path):
            raise InputError(
                f"recording must be complete, got '{path}', whose end is missing. "
                "Copy or record it again."
            )
        sound = _Forward(library_name(path))
    except (OSError, soundfile.SoundFileError) as error:
        raise InputError(
            f"recording must be a WAV, FLAC, OGG or AIFF file, got '{path}', which cannot be read "
            f"as sound ({_reason(error)}). Check that it is complete and really is a sound file."
        ) from error
    try:
        _check_header(sound, path, size)
    except InputError:
        sound.close()
        raise
    return sound


def _check_header(sound: _Forward, path: Path, size: int) -> None:
    """Refuse what cannot be before anything is decoded."""
    if not _RATES[0] <= sound.samplerate <= _RATES[1]:
        raise InputError(
            f"recording must have a sampling rate from {_RATES[0]} Hz to 1 MHz, got "
            f"{sound.samplerate} Hz in '{path}'. Record it again, or repair its header."
        )
    if sound.is_of_known_length and sound.frames > _FRAMES_A_BYTE * size:
        raise InputError(
            f"recording must hold the sound that its header tells of, got {size} bytes for "
            f"{sound.frames} samples a channel in '{path}'. Copy or record it again."
        )


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
            return last < 0 or not _is_last_page(tail[last:])
        if kind not in (b"RIFF", b"FORM"):
            return False
        for _ in range(_MOST_CHUNKS):
            if len(head := file.read(8)) < 8:
                break
            length = int.from_bytes(head[4:], "little" if kind == b"RIFF" else "big")
            if head[:4] in (b"data", b"SSND"):
                streamed = length == 0 or length >= _UNKNOWN_LENGTH
                return not streamed and file.tell() + length > size
            file.seek(length + length % 2, 1)
    return False


def _is_last_page(page: bytes) -> bool:
    """Whether an OGG page is all there, and says that it is the last."""
    if len(page) < 27:
        return False
    lengths = page[27 : 27 + page[26]]  # of its segments
    whole = len(lengths) == page[26] and len(page) >= 27 + len(lengths) + sum(lengths)
    return whole and bool(page[5] & 4)


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
    good = np.abs(samples) < LARGEST_SAMPLE  # false for NaN
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


def _warn_of_more(path: str | Path, has: int, channels: tuple[int, ...]) -> None:
    """Say which channels are the ears where others could be meant, as in a surround file."""
    if has > 2 and tuple(channels) == (0, 1):
        warnings.warn(
            f"'{path}' has {has} channels: 0 and 1 are taken as left and right. Choose others with "
            "channels= (command line: --channels).",
            EaratlasWarning,
            stacklevel=3,
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
                f"'{self.path}' has a DC offset (mean {offset.max():.3g} of full scale): it is"
                " taken out before anything is heard; separated sounds have their share of it"
                " again, so that they add up, those of a live stream have none. Mend the recorder.",
                EaratlasWarning,
                stacklevel=3,
            )


def read_audio(
    path: str | Path, *, channels: tuple[int, int] = (0, 1), rate: int | None = None
) -> Audio:
    """Two channels of a sound file of any format, rate and width; `rate` resamples.

    Raises InputError for what cannot be used (mono, empty, silent, NaN, unreadable) and warns of
    clipping, DC offset, and of channels 0 and 1 being taken where there are more.
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
    offset: Array | None = None,
    warn: bool = True,
) -> Iterator[Audio]:
    """The same samples as `read_audio`, about `block_seconds` at a time, less an offset (2, 1).

    A recording that is silent throughout, or a FLAC file whose end is missing, is known as such
    only at the end: the error then comes after the blocks.
    """
    with _open(path) as sound:
        _check_binaural(path, sound)
        if warn:
            _warn_of_more(path, sound.channels, channels)
        native = int(sound.samplerate)
        rate = native if rate is None else checked_rate(rate)
        resampler = soxr.ResampleStream(native, rate, 2, dtype="float64", quality="VHQ")
        health, done = _Health(path, native), 0
        nothing = np.zeros((0, sound.channels))
        for data in chain(sound.blocks_of(path, block_seconds), [nothing]):  # then the rest of it
            samples = _pick(data, channels, path)
            _check_samples(samples, path, done, native)
            health.add(samples)
            done += samples.shape[1]
            if offset is not None:
                samples = samples - offset
            if rate != native:
                part = np.ascontiguousarray(samples.T)
                samples = resampler.resample_chunk(part, last=data is nothing).T
            if samples.shape[1]:
                yield Audio(samples, rate)
        health.finish(warn)


def read_all_channels(path: str | Path) -> Audio:
    """All channels as they stand in the file; silence is sound too."""
    done = 0
    with _open(path) as sound:
        parts = [np.zeros((0, sound.channels))]
        for data in sound.blocks_of(path, 60.0):
            _check_samples(data.T, path, done, sound.samplerate)
            parts.append(data)
            done += len(data)
        return Audio(np.ascontiguousarray(np.concatenate(parts).T), sound.samplerate)


def read_mono(path: str | Path, *, rate: int) -> Array:
    """The mean of all channels (n,) at `rate`: a dry sound to be placed in a scene."""
    audio = read_all_channels(path)
    if not audio.samples.any():
        raise InputError(f"audio must hold sound, got silence in '{path}'. Choose another file.")
    return resample(audio.samples.mean(axis=0), audio.rate, rate)


def audio_seconds(path: str | Path) -> float:
    """Length of a sound file, from its header; one that was written to a pipe is counted."""
    with _open(path) as sound:
        known = sound.is_of_known_length
        frames = sound.frames if known else sum(map(len, sound.blocks_of(path, 60.0)))
        return float(frames) / float(sound.samplerate)


def audio_rate(path: str | Path) -> int:
    """Sampling rate of a sound file in Hz, from its header."""
    with _open(path) as sound:
        return int(sound.samplerate)
