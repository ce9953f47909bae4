"""Folders that results are written to: all of the files appear, or none."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from earatlas.errors import InputError

__all__ = ["exchange", "output_folder"]


@contextmanager
def output_folder(folder: Path) -> Iterator[None]:
    """A folder that can be written to, made where it is missing; none is left behind empty."""
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise InputError(
                f"output folder must be writable, got '{folder}' ({error.strerror}). "
                "Choose another folder."
            ) from error
        yield
    finally:
        with suppress(OSError):  # there is something in it: that is what it is for
            for place in made:
                place.rmdir()


def exchange(folder: Path, new: Path, old: Path, *, also: Iterable[str] = ()) -> list[Path]:
    """Move the files of `new` into the folder, and those they replace to `old`; or change nothing.

    Replaced are files of the same name, and those named in `also`.
    """
    files = sorted(new.iterdir())
    placed: list[Path] = []
    try:
        for name in {file.name for file in files} | set(also):
            if (folder / name).is_file():
                (folder / name).replace(old / name)
        for file in files:
            placed.append(file.replace(folder / file.name))
    except BaseException:
        for file in placed:
            file.unlink()
        for file in old.iterdir():
            file.replace(folder / file.name)
        raise
    return placed
