"""Reading sound files of any format, rate and sample width, at once or in blocks.

A file becomes an `Audio` with two channels (0 is the left ear, 1 the right). `read_blocks` yields
the same samples block by block in bounded memory. Files that cannot be used raise an InputError;
properties that degrade the cues (clipping, DC offset) give an EaratlasWarning.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import soxr

from earatlas.errors import EaratlasWarning, InputError, SettingHint
from earatlas.features.audio import MAX_ABS_SAMPLE, Audio, check_rate, resample
from earatlas.features.input_samples import count_clipped
from earatlas.features.sound_file import SequentialSoundFile, open_sound_file
from earatlas.types import Array

__all__ = [
    "audio_channels",
    "audio_rate",
    "audio_seconds",
    "example_recording",
    "read_all_channels",
    "read_audio",
    "read_blocks",
    "read_mono",
]

# Regular expression that matches the beginning of the warning about extra channels.
EXTRA_CHANNELS_WARNING = r".* channels; the first two are used"

_CHANNELS_HINT = SettingHint("channels=(2, 3)", "--channels 2 3")


def _select_channels(data: Array, channels: tuple[int, ...], path: str | Path) -> Array:
    """Return two channels (2, n) of an array (n, channels) that soundfile has read."""
    allowed = range(data.shape[1])
    if len(set(channels)) != 2 or len(channels) != 2 or not set(channels) <= set(allowed):
        raise InputError(
            f"The channels must be two different ones between 0 and {data.shape[1] - 1} for "
            f"'{path}', got {', '.join(map(str, channels))}. Choose channels that the file has."
        )
    return np.ascontiguousarray(data[:, list(channels)].T)


def _check_samples(samples: Array, path: str | Path, start: int, rate: int) -> None:
    """Raise InputError if a sample is NaN, infinite or far beyond full scale."""
    valid = np.abs(samples) < MAX_ABS_SAMPLE  # false for NaN
    if not valid.all():
        channel, index = np.argwhere(~valid)[0]
        raise InputError(
            f"The audio must be finite and not beyond a million times full scale, got "
            f"{samples[channel, index]} in '{path}', channel {channel}, sample {start + index} "
            f"({(start + index) / rate:.3f} s). Repair or cut the recording."
        )


def _check_binaural(path: str | Path, sound: SequentialSoundFile) -> None:
    if sound.channels < 2:
        raise InputError(
            f"The recording '{path}' has only one channel. Two channels are needed, left ear and "
            "right ear, because a mono recording carries no interaural cues. Record both ears."
        )


def _warn_extra_channels(path: str | Path, n_channels: int, channels: tuple[int, ...]) -> None:
    """Warn if channels 0 and 1 are used by default although the file has more than two."""
    if n_channels > 2 and tuple(channels) == (0, 1):
        warnings.warn(
            EaratlasWarning(
                f"The file '{path}' has {n_channels} channels; the first two are used as left and "
                "right ear. Choose other channels if these are not the ears.",
                hint=_CHANNELS_HINT,
            ),
            stacklevel=3,
        )


class _RecordingChecks:
    """Checks of a whole recording, accumulated block by block.

    `finish` raises InputError for empty or silent recordings and warns, once per recording, of
    properties that degrade the cues: identical channels, clipping and a DC offset.
    """

    def __init__(self, path: str | Path, rate: int) -> None:
        self.path, self.rate = path, rate
        self.n = 0  # samples per channel
        self.sums = np.zeros(2)
        self.peaks = np.zeros(2)
        self.identical = True  # both channels
        self.n_clipped = 0
        self.energies = np.zeros(2)

    def add(self, samples: Array) -> None:
        self.n += samples.shape[1]
        self.sums = self.sums + samples.sum(axis=1)
        self.energies = self.energies + (samples**2).sum(axis=1)
        self.peaks = np.maximum(self.peaks, np.abs(samples).max(axis=1, initial=0.0))
        self.identical = self.identical and bool(np.array_equal(samples[0], samples[1]))
        self.n_clipped += count_clipped(samples)

    def finish(self, warn: bool) -> None:
        if self.n == 0:
            raise InputError(f"The recording '{self.path}' contains no samples. Record it again.")
        if not self.peaks.any():
            raise InputError(
                f"The recording '{self.path}' is silent: all samples are zero. "
                "Check the microphones and the recording level."
            )
        for name, peak in zip(("left", "right"), self.peaks, strict=True):
            if peak == 0:
                raise InputError(
                    f"The {name} channel of '{self.path}' is silent, but sound is needed in both "
                    "channels. Check that microphone, or choose other channels."
                )
        if warn and self.identical:
            warnings.warn(
                f"The recording '{self.path}' has the same sound in both channels, like a mono "
                "recording, so it carries no interaural cues. Record both ears.",
                EaratlasWarning,
                stacklevel=3,
            )
        if warn and self.n_clipped:
            warnings.warn(
                f"The recording '{self.path}' is clipped ({self.n_clipped} samples at full scale), "
                "so its level differences are partly wrong. Record at a lower level.",
                EaratlasWarning,
                stacklevel=3,
            )
        offset = np.abs(self.sums / self.n)
        rms = np.sqrt(self.energies / self.n)
        # Impulse responses, which are shorter than half a second, have a mean by nature.
        if warn and self.n > self.rate / 2 and (offset > 0.1 * rms).any():
            warnings.warn(
                f"The recording '{self.path}' has a DC offset (mean {offset.max():.3g} of full "
                "scale). It is removed before the analysis. Sources separated from a file contain "
                "their share of it, so that they add up to the recording; sources of a live "
                "stream do not. Check the recorder.",
                EaratlasWarning,
                stacklevel=3,
            )


def read_audio(
    path: str | Path, *, channels: tuple[int, int] = (0, 1), rate: int | None = None
) -> Audio:
    """Read the two ears from a sound file of any format, rate and sample width.

    Parameters
    ----------
    path : str or Path
        WAV, FLAC, OGG or AIFF file with at least two channels.
    channels : (int, int), default (0, 1)
        Channels of the left and the right ear, counted from 0.
    rate : int, optional
        Sampling rate in Hz to resample to. By default the rate of the file is kept.

    Returns
    -------
    Audio
        Two channels, left and right.

    Raises
    ------
    InputError
        If the file is missing, unreadable, truncated, mono, empty, silent in a channel, or
        contains NaN or infinite samples.

    Warns
    -----
    EaratlasWarning
        If the recording is clipped, has a DC offset or identical channels, or if channels 0 and 1
        are used although the file has more than two.

    See Also
    --------
    read_blocks : The same samples block by block, for long recordings.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> import earatlas as ea
    >>> noise = 0.1 * np.random.default_rng(0).normal(size=(2, 8000))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = ea.Audio(noise, 16000).write(pathlib.Path(folder) / "noise.wav")
    ...     ea.read_audio(path, rate=48000)
    Audio(2 channels, 0.50 s, 48000 Hz)
    """
    blocks = list(read_blocks(path, channels=channels, rate=rate, block_seconds=60.0))
    if not blocks:
        raise InputError(
            f"The recording '{path}' is too short to be resampled. Record a longer one."
        )
    return Audio(np.concatenate([b.samples for b in blocks], axis=1), blocks[0].rate)


def example_recording() -> Audio:
    """Read the recording that ships with the package: two talkers, who speak at the same time.

    Synthetic speech from (40, 0) and (-60, 19) degrees, with 40 dB SNR and without reverberation,
    at the ears of a KEMAR (subject 21 of the CIPIC HRTF database).

    Returns
    -------
    Audio
        Two channels of 2.5 s at 16 kHz.

    See Also
    --------
    people_atlas : An atlas for heads that nobody measured, which does not contain this one.

    Examples
    --------
    >>> import earatlas as ea
    >>> ea.example_recording()
    Audio(2 channels, 2.51 s, 16000 Hz)
    """
    return read_audio(Path(__file__).parents[1] / "data" / "recording.flac")


def read_blocks(
    path: str | Path,
    *,
    channels: tuple[int, int] = (0, 1),
    rate: int | None = None,
    block_seconds: float = 10.0,
    offset: Array | None = None,
    warn: bool = True,
) -> Iterator[Audio]:
    """Read the two ears from a sound file block by block, in bounded memory.

    The concatenated blocks equal the result of `read_audio`. A recording that is silent throughout
    and a truncated FLAC file are recognized only at the end, after the last block.

    Parameters
    ----------
    path : str or Path
        WAV, FLAC, OGG or AIFF file with at least two channels.
    channels : (int, int), default (0, 1)
        Channels of the left and the right ear, counted from 0.
    rate : int, optional
        Sampling rate in Hz to resample to. By default the rate of the file is kept.
    block_seconds : float, default 10.0
        Approximate duration of a block in seconds.
    offset : array of shape (2, 1), optional
        DC offset of each ear, subtracted from the samples.
    warn : bool, default True
        Whether to warn of clipping, a DC offset, identical channels and extra channels.

    Yields
    ------
    Audio
        The next block, two channels.

    Raises
    ------
    InputError
        As `read_audio`.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> import earatlas as ea
    >>> noise = 0.1 * np.random.default_rng(0).normal(size=(2, 40000))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = ea.Audio(noise, 16000).write(pathlib.Path(folder) / "noise.wav")
    ...     [block.seconds for block in ea.read_blocks(path, block_seconds=1.0)]
    [1.0, 1.0, 0.5]
    """
    with open_sound_file(path) as sound:
        _check_binaural(path, sound)
        if warn:
            _warn_extra_channels(path, sound.channels, channels)
        file_rate = int(sound.samplerate)
        rate = file_rate if rate is None else check_rate(rate)
        resampler = soxr.ResampleStream(file_rate, rate, 2, dtype="float64", quality="VHQ")
        checks, done = _RecordingChecks(path, file_rate), 0
        end = np.zeros((0, sound.channels))  # flushes the resampler
        for data in chain(sound.read_blocks(path, block_seconds), [end]):
            samples = _select_channels(data, channels, path)
            _check_samples(samples, path, done, file_rate)
            checks.add(samples)
            done += samples.shape[1]
            if offset is not None:
                samples = samples - offset
            if rate != file_rate:
                chunk = np.ascontiguousarray(samples.T)
                samples = resampler.resample_chunk(chunk, last=data is end).T
            if samples.shape[1]:
                yield Audio(samples, rate)
        checks.finish(warn)


def read_all_channels(path: str | Path) -> Audio:
    """Read all channels of a sound file, without resampling; silence is allowed."""
    done = 0
    with open_sound_file(path) as sound:
        parts = [np.zeros((0, sound.channels))]
        for data in sound.read_blocks(path, 60.0):
            _check_samples(data.T, path, done, sound.samplerate)
            parts.append(data)
            done += len(data)
        return Audio(np.ascontiguousarray(np.concatenate(parts).T), sound.samplerate)


def read_mono(path: str | Path, *, rate: int) -> Array:
    """Read a sound file and average its channels, for example a dry source for a scene.

    Parameters
    ----------
    path : str or Path
        WAV, FLAC, OGG or AIFF file with any number of channels.
    rate : int
        Sampling rate in Hz to resample to.

    Returns
    -------
    ndarray of shape (n,)
        Mean of all channels at `rate`.

    Raises
    ------
    InputError
        If the file cannot be read or is silent.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import earatlas as ea
    >>> speech = ea.synthetic_speech(0.5, seed=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = ea.Audio(speech[None], 16000).write(pathlib.Path(folder) / "dry.wav")
    ...     ea.read_mono(path, rate=8000).shape
    (4000,)
    """
    audio = read_all_channels(path)
    if not audio.samples.any():
        raise InputError(f"The file '{path}' is silent. Choose a file that contains sound.")
    return resample(audio.samples.mean(axis=0), audio.rate, rate)


def audio_seconds(path: str | Path) -> float:
    """Return the duration of a sound file in seconds, counted if the header does not tell it."""
    with open_sound_file(path) as sound:
        known = sound.has_known_length
        frames = sound.frames if known else sum(map(len, sound.read_blocks(path, 60.0)))
        return float(frames) / float(sound.samplerate)


def audio_channels(path: str | Path) -> int:
    """Return the number of channels of a sound file."""
    with open_sound_file(path) as sound:
        return int(sound.channels)


def audio_rate(path: str | Path) -> int:
    """Return the sampling rate of a sound file in Hz."""
    with open_sound_file(path) as sound:
        return int(sound.samplerate)
