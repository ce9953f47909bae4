"""Results on disk: the whole of a file appears, or nothing changes; so too of several together.

What is written goes to a scratch folder beside its place first, under its own name, and is moved
when it is complete. A reader never sees half of it, and what was there before stays until then.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from earatlas.errors import InputError

__all__ = ["check_writable", "output_folder", "written_together", "written_whole"]

_SCRATCH = ".earatlas-"  # what scratch folders are called


def check_writable(path: str | Path, what: str = "output") -> None:
    """Refuse an output that cannot be written: commands ask before the work, not after it."""
    path = Path(path)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise InputError(
            f"{what} must be a file in a folder that exists, got '{path}'. "
            "Name a file, and make its folder first."
        )
    try:
        with tempfile.TemporaryFile(dir=path.absolute().parent):
            pass
    except OSError as error:
        raise _not_written(path, what, error) from error


@contextmanager
def written_whole(path: str | Path, what: str = "output") -> Iterator[Path]:
    """A path to write to; at the end that file takes the place of `path`."""
    path = Path(path)
    try:
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=path.absolute().parent) as scratch:
            new = Path(scratch, path.name)
            yield new
            new.replace(path)
    except OSError as error:
        raise _not_written(path, what, error) from error


def _not_written(path: Path, what: str, error: OSError) -> InputError:
    return InputError(
        f"{what} must be a file that can be written, got '{path}' ({error.strerror or error}). "
        "Check that its folder exists and is writable."
    )


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


@contextmanager
def written_together(folder: Path, *, instead_of: Iterable[str] = ()) -> Iterator[Path]:
    """A folder to write to; at the end all of its files move into `folder`, or none does.

    They replace files of the same names, and those named in `instead_of`.
    """
    with output_folder(folder):
        scratch = tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=folder)
        with scratch as name:
            new, old = Path(name, "new"), Path(name, "old")
            new.mkdir()
            old.mkdir()
            yield new
            _exchange(folder, new, old, instead_of)


def _exchange(folder: Path, new: Path, old: Path, instead_of: Iterable[str]) -> None:
    """Move the files of `new` into the folder, and those they replace to `old`; or nothing."""
    files = sorted(new.iterdir())
    placed: list[Path] = []
    try:
        for name in {file.name for file in files} | set(instead_of):
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
