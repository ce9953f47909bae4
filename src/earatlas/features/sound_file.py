"""Opening sound files safely: reading forward, and detecting incomplete and impossible files.

`open_sound_file` returns a `SequentialSoundFile`, or raises an InputError that says what is wrong
with the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import soundfile

from earatlas.errors import InputError, existing_file
from earatlas.features.containers import Container, caf_frames, check_container
from earatlas.features.decoder import Decoder, open_decoder
from earatlas.types import Array

__all__ = ["RECORDING_SUFFIXES", "SUPPORTED_RATES_HZ", "SequentialSoundFile", "open_sound_file"]

# Suffixes of the formats that libsndfile reads; all messages about formats list these.
RECORDING_SUFFIXES = (
    ".aif", ".aifc", ".aiff", ".au", ".caf", ".flac", ".mp3", ".oga", ".ogg", ".opus", ".rf64",
    ".w64", ".wav",
)  # fmt: skip

# Evidence: docs/figures/settings/features.md, "sound_file".
SUPPORTED_RATES_HZ = (1000, 10**6)  # lowest and highest sampling rate of recordings and heads


class SequentialSoundFile:
    """A sound file that is only read forward, from beginning to end."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self.samplerate, self.channels = decoder.samplerate, decoder.channels
        self.frames = decoder.frames  # samples per channel according to the header of the file

    def __enter__(self) -> SequentialSoundFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._decoder.close()

    @property
    def has_known_length(self) -> bool:
        """Whether the header tells the number of samples."""
        # libsndfile reports very many samples for FLAC files that were written to a pipe.
        return self.frames < 1 << 62

    def read_blocks(self, path: str | Path, block_seconds: float) -> Iterator[Array]:
        """Yield all samples in blocks (n, channels); raise InputError if the file is truncated."""
        # At most 4 million values (32 MB) per block, over all channels.
        size = min(int(block_seconds * self.samplerate), (1 << 22) // self.channels)
        done = 0
        while True:
            remaining = self.frames - done if self.has_known_length else size
            try:
                data = self._decoder.read_forward(max(min(size, remaining), 1))
            except (OSError, soundfile.SoundFileError) as error:
                raise _truncated_error(path, done / self.samplerate, _reason(error)) from error
            if not len(data):
                break
            done += len(data)
            yield data
        if self.has_known_length and done < self.frames:
            raise _truncated_error(
                path, done / self.samplerate, f"expected {self.frames} samples per channel"
            )


def _truncated_error(path: str | Path, seconds: float, reason: str) -> InputError:
    return InputError(
        f"The recording '{path}' is not complete: it breaks off at {seconds:.2f} s ({reason}). "
        "Copy or record it again."
    )


def open_sound_file(path: str | Path) -> SequentialSoundFile:
    """Open a sound file for reading; raise InputError if it is not a complete sound file."""
    path = existing_file(path, "recording")
    try:
        size = path.stat().st_size
        if size == 0:
            raise InputError(f"The file '{path}' is empty. Copy or record it again.")
        container = check_container(path)
        decoder = open_decoder(path, separate=container.prints_when_decoded)
    except (OSError, soundfile.SoundFileError) as error:
        raise InputError(
            f"The file '{path}' cannot be read as sound ({_reason(error)}). Supported formats: "
            f"{', '.join(RECORDING_SUFFIXES)}. Check that it is complete and really is a sound "
            "file."
        ) from error
    sound = SequentialSoundFile(decoder)
    try:
        damaged = decoder.format not in container.value
        if container is Container.CAF:  # libsndfile stops at damaged lengths of packets
            damaged = damaged or caf_frames(path) not in (None, decoder.frames)
        if damaged:
            raise InputError(
                f"The file '{path}' cannot be read as sound (it is damaged at its beginning). "
                "Copy or record it again."
            )
        _check_header(sound, path, size)
    except InputError:
        decoder.close()
        raise
    return sound


def _check_header(sound: SequentialSoundFile, path: Path, size: int) -> None:
    """Refuse impossible headers before anything is decoded; `size` is the file size in bytes."""
    lowest, highest = SUPPORTED_RATES_HZ
    if not lowest <= sound.samplerate <= highest:
        raise InputError(
            f"The recording '{path}' has a sampling rate of {sound.samplerate} Hz. Rates from "
            f"{lowest} Hz to 1 MHz are supported. Record it again, or repair its header."
        )
    # No encoder reaches 5000 samples per byte, not even FLAC for digital silence.
    if sound.has_known_length and sound.frames > 5000 * size:
        raise InputError(
            f"The header of '{path}' announces {sound.frames} samples per channel, but the file "
            f"has only {size} bytes. Copy or record it again."
        )


def _reason(error: BaseException) -> str:
    """Return the reason that the library gives, without the path that it repeats."""
    return str(getattr(error, "error_string", error)).rstrip(". ")
