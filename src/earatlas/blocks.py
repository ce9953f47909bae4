"""Long recordings in bounded memory: overlapping blocks, cross-fades, files that grow.

In: a recording that comes in chunks. Out: blocks that overlap (`overlapping`); results of the
blocks put together again without a seam (`CrossFade`); sound files that are written as the sound
comes and appear only when they are complete (`SoundFiles`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import soundfile
from numpy.typing import NDArray

from earatlas.errors import InputError
from earatlas.outputs import exchange, output_folder

__all__ = ["Block", "CrossFade", "SoundFiles", "overlapping"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Block:
    """Samples (2, n) of a recording from `start` on."""

    samples: Array
    start: int
    last: bool


def overlapping(chunks: Iterable[Array], length: int, overlap: int) -> Iterator[Block]:
    """Blocks of `length` samples that begin every `length - overlap`.

    The last one is longer by what is left if that is no more than half a block: no block is so
    short that little can be told of it.
    """
    held, start = np.zeros((2, 0)), 0
    hop, longest = length - overlap, length + length // 2
    for chunk in chunks:
        held = np.concatenate([held, chunk], axis=1)
        while held.shape[1] > longest:
            yield Block(held[:, :length], start, last=False)
            held, start = held[:, hop:], start + hop
    yield Block(held, start, last=True)


class CrossFade:
    """Results (…, n) of overlapping blocks, faded into each other over `overlap` steps."""

    def __init__(self, overlap: int) -> None:
        self._overlap = overlap
        self._tail: Array | None = None

    def push(self, values: Array, *, last: bool) -> Array:
        """What is final once this block is known: all of it but the overlap with the next."""
        if self._tail is not None:
            n = self._tail.shape[-1]
            rise = (np.arange(n) + 0.5) / n
            faded = values[..., :n] * rise + self._tail * (1 - rise)
            values = np.concatenate([faded, values[..., n:]], axis=-1)
        if last:
            return values
        self._tail = values[..., -self._overlap :].copy()
        return values[..., : -self._overlap]


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
