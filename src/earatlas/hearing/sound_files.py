"""Sound files that grow as the sound comes, and appear only when they are complete."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import soundfile

from earatlas.errors import InputError
from earatlas.files import exchange, output_folder
from earatlas.types import Array

__all__ = ["SoundFiles"]


class SoundFiles:
    """Several WAV files in a folder that grow together: all of them appear at the end, or none."""

    def __init__(self, folder: Path, rate: int) -> None:
        self.folder, self.rate = folder, rate
        self.names: list[str] = []
        self._files: list[soundfile.SoundFile] = []
        self._stack = ExitStack()
        self._new = self._old = folder  # scratch folders, once it is entered

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(output_folder(self.folder))
            made = tempfile.TemporaryDirectory(prefix=".earatlas-", dir=self.folder)
            scratch = Path(stack.enter_context(made))
            self._new, self._old = scratch / "new", scratch / "old"
            self._new.mkdir()
            self._old.mkdir()
            self._stack = stack.pop_all()
        return self

    def open(self, names: Sequence[str]) -> None:
        """Begin the files; nothing of them can be seen in the folder yet."""
        for name in names:
            if (self.folder / name).is_dir():
                raise InputError(
                    f"output must be a file, got the folder '{self.folder / name}'. "
                    "Move it, or choose another folder."
                )
        self.names = list(names)
        for name in names:
            try:
                file = soundfile.SoundFile(
                    self._new / name, "w", self.rate, 2, "FLOAT", format="WAV"
                )
            except (OSError, soundfile.SoundFileError) as error:
                raise InputError(
                    f"output must be a file that can be made, got '{self.folder / name}' "
                    f"({error}). Rename the recording, or choose another folder."
                ) from error
            self._files.append(file)

    def append(self, sounds: Array) -> None:
        """Write the next samples (M, 2, n), a row a file."""
        for file, sound in zip(self._files, sounds, strict=True):
            try:
                file.write(sound.T)
            except (OSError, soundfile.SoundFileError) as error:
                raise InputError(
                    f"output folder must have room for the sound, got '{self.folder}' ({error}). "
                    "Free some space, or choose another folder."
                ) from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._stack:
            try:
                for file in self._files:
                    file.close()
                if kind is None:
                    exchange(self.folder, self._new, self._old)
            except (OSError, soundfile.SoundFileError) as problem:
                if kind is None:
                    raise InputError(
                        f"output folder must take the sounds, got '{self.folder}' ({problem}). "
                        "Free some space, or choose another folder."
                    ) from problem
