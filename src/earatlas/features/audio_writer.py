"""Writing several WAV files incrementally; all of them appear together when they are complete."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import soundfile

from earatlas.errors import InputError
from earatlas.features.wav import (
    RESULT_COMMENT,
    clear_peak_timestamp,
    libsndfile_path,
    wav_format,
)
from earatlas.files import atomic_write_all
from earatlas.types import Array

__all__ = ["incremental_wav_writer"]

_WRITE_ERRORS = (OSError, soundfile.SoundFileError)


@contextmanager
def incremental_wav_writer(
    folder: Path, names: Sequence[str], rate: int, *, samples: int = 0
) -> Iterator[Callable[[Array], None]]:
    """Open one stereo WAV file per name and yield a function that appends samples (M, 2, n).

    Row m of the appended samples belongs to the m-th name. Either all files appear at the end, or
    none. Their comment says that this package wrote them. `samples` is the expected number of
    samples per channel; files that are too large for WAV are written as RF64.
    """
    file_format = wav_format(2 * samples)
    for name in names:
        if (folder / name).is_dir():
            raise InputError(
                f"The sound file '{folder / name}' cannot be written because a folder has that "
                "name. Move it, or choose another output folder."
            )
    with _report_write_errors(folder), atomic_write_all(folder) as new:
        with ExitStack() as opened:
            created = (_open_wav(new / name, folder / name, rate, file_format) for name in names)
            files = [opened.enter_context(file) for file in created]

            def append(sounds: Array) -> None:
                for file, sound in zip(files, sounds, strict=True):
                    file.write(sound.T)

            yield append
        for name in names:
            clear_peak_timestamp(new / name)


def _open_wav(scratch: Path, path: Path, rate: int, file_format: str) -> soundfile.SoundFile:
    """Create the scratch file of a WAV file that will be moved to `path`."""
    name = libsndfile_path(scratch)
    try:
        file = soundfile.SoundFile(name, "w", rate, 2, "FLOAT", format=file_format)
        file.comment = RESULT_COMMENT
    except _WRITE_ERRORS as error:
        raise InputError(
            f"The sound file '{path}' cannot be created ({_reason(error)}). "
            "Rename the recording, free some space, or choose another folder."
        ) from error
    return file


@contextmanager
def _report_write_errors(folder: Path) -> Iterator[None]:
    """Turn errors of the file system and of libsndfile into an InputError."""
    try:
        yield
    except _WRITE_ERRORS as error:
        raise InputError(
            f"The sound files cannot be written to '{folder}' ({_reason(error)}). "
            "Free some space, or choose another folder."
        ) from error


def _reason(error: Exception) -> str:
    """Return the reason for an error, without the name of the scratch file."""
    return str(getattr(error, "error_string", None) or getattr(error, "strerror", None) or error)
