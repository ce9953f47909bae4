"""Sound files that grow as the sound comes, and appear only when all of them are complete."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import soundfile

from earatlas.errors import InputError
from earatlas.features.wav import blank_date, library_name, wav_kind
from earatlas.files import written_together
from earatlas.types import Array

__all__ = ["growing_sound_files"]

_PROBLEMS = (OSError, soundfile.SoundFileError)


@contextmanager
def growing_sound_files(
    folder: Path, names: Sequence[str], rate: int, *, samples: int = 0
) -> Iterator[Callable[[Array], None]]:
    """WAV files of these names in a folder; what it gives appends sounds (M, 2, n), a row a file.

    All of them appear at the end, or none. `samples` says how long they will be: what no WAV file
    can hold becomes RF64.
    """
    kind = wav_kind(2 * samples)
    for name in names:
        if (folder / name).is_dir():
            raise InputError(
                f"output must be a file, got the folder '{folder / name}'. "
                "Move it, or choose another folder."
            )
    with _room_in(folder), written_together(folder) as new:
        with ExitStack() as opened:
            begun = (_begun(new / name, folder / name, rate, kind) for name in names)
            files = [opened.enter_context(file) for file in begun]

            def append(sounds: Array) -> None:
                for file, sound in zip(files, sounds, strict=True):
                    file.write(sound.T)

            yield append
        for name in names:
            blank_date(new / name)


def _begun(scratch: Path, path: Path, rate: int, kind: str) -> soundfile.SoundFile:
    try:
        return soundfile.SoundFile(library_name(scratch), "w", rate, 2, "FLOAT", format=kind)
    except _PROBLEMS as error:
        raise InputError(
            f"output must be a file that can be made, got '{path}' ({_reason(error)}). "
            "Rename the recording, free some space, or choose another folder."
        ) from error


@contextmanager
def _room_in(folder: Path) -> Iterator[None]:
    try:
        yield
    except _PROBLEMS as error:
        raise InputError(
            f"output folder must have room for the sound, got '{folder}' ({_reason(error)}). "
            "Free some space, or choose another folder."
        ) from error


def _reason(error: Exception) -> str:
    """What went wrong, without the name of a scratch file."""
    return str(getattr(error, "error_string", None) or getattr(error, "strerror", None) or error)
