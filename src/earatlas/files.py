"""Results on disk: the whole of a file appears, or nothing changes; so too of several together.

What is written goes to a scratch folder beside its place first, under its own name, and is moved
when it is complete and on the disk. A reader never sees half of it, and what was there before stays
until then.

    .earatlas-x7q2/in-use      locked as long as the writer lives
                   new/        what is written
                   old/        what it takes the place of
                   complete    all of new/ is on the disk: what is left to do is moving

A writer that is killed leaves its folder behind. The next one to write there finds it unlocked:
it finishes what was complete, so that nothing of the old is lost, and removes the rest.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows: scratch folders of the dead stay
    fcntl = None  # type: ignore[assignment]

from earatlas.errors import InputError

__all__ = [
    "check_writable",
    "clear_scratch",
    "output_folder",
    "scratch_folder",
    "unwritable",
    "written_together",
    "written_whole",
]

_SCRATCH = ".earatlas-"  # what scratch folders are called
_BEGUN_SECONDS = 3600.0  # a folder without a lock is just being made, or this old


def check_writable(path: str | Path, what: str = "output") -> None:
    """Refuse an output that cannot be written: commands ask before the work, not after it."""
    path = Path(path)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise InputError(
            f"{what} must be a file in a folder that exists, got '{path}'. "
            "Name a file, and make its folder first."
        )
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        raise InputError(f"{what} must be a file, got the pipe or device '{path}'. Name a file.")
    try:
        with (
            scratch_folder(path.absolute().parent) as scratch,
            (scratch / "new" / path.name).open("wb"),
        ):
            pass
    except OSError as error:
        raise _not_written(path, what, error) from error


@contextmanager
def written_whole(path: str | Path, what: str = "output") -> Iterator[Path]:
    """A path to write to; at the end that file takes the place of `path`."""
    path = Path(path)
    try:
        folder = path.absolute().parent
        with scratch_folder(folder) as scratch:
            new = scratch / "new" / path.name
            yield new
            _flush(new)
            new.replace(path)
            _flush(folder)
    except OSError as error:
        raise _not_written(path, what, error) from error


def _not_written(path: Path, what: str, error: OSError) -> InputError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return InputError(
        f"{what} must be a file that can be written, got '{path}' ({error.strerror or error}). "
        f"{'Free some space.' if full else 'Check that its folder exists and is writable.'}"
    )


@contextmanager
def scratch_folder(folder: Path) -> Iterator[Path]:
    """A scratch folder with the folders new and old in it; those of the dead are cleared first."""
    clear_scratch(folder)
    scratch, lock = _locked(folder)
    try:
        (scratch / "new").mkdir()
        (scratch / "old").mkdir()
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        lock.close()


def _locked(folder: Path) -> tuple[Path, IO[bytes]]:
    """A new scratch folder, and the open file that says it is in use."""
    while True:
        scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=folder))
        lock = (scratch / "in-use").open("wb")
        if fcntl is None:
            return scratch, lock
        with suppress(OSError):  # a file system without locks: nobody else can take it, either
            fcntl.flock(lock, fcntl.LOCK_EX)  # gone with its process, however that ends
        if os.fstat(lock.fileno()).st_nlink:
            return scratch, lock
        lock.close()  # another writer took it for that of a dead one before it was locked


def clear_scratch(folder: Path) -> None:
    """Finish or remove what writers left in the folder that were killed."""
    if fcntl is None:
        return
    for scratch in folder.glob(f"{_SCRATCH}*"):
        try:
            about = scratch.lstat()
        except OSError:  # someone else cleared it
            continue
        # In a folder that many write to, what others left may be a trap.
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
            continue
        with suppress(OSError):  # someone else clears it, too
            if (scratch / "in-use").exists():
                _clear_unused(folder, scratch)
            elif time.time() - about.st_mtime > _BEGUN_SECONDS:
                shutil.rmtree(scratch)


def _clear_unused(folder: Path, scratch: Path) -> None:
    """Finish or remove what one writer left; an OSError if it is alive."""
    with (scratch / "in-use").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Without the word that all is complete, it was killed while it took everything back.
        unmoved = scratch / ("new" if (scratch / "complete").exists() else "old")
        if unmoved.exists():
            for file in unmoved.iterdir():
                file.replace(folder / file.name)
        shutil.rmtree(scratch)


def _flush(path: Path) -> None:
    """What was written to a file, or the names in a folder, on the disk: a power cut may follow."""
    if not path.is_dir():
        with path.open("r+b") as file:
            os.fsync(file)
        return
    with suppress(OSError):  # not every system opens folders; the files themselves are there
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def unwritable(folder: Path, error: OSError) -> InputError:
    """What to say of a folder that could not be written to."""
    reason = "it is a file" if folder.is_file() else error.strerror
    return InputError(
        f"output folder must be writable, got '{folder}' ({reason}). Choose another folder."
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
            raise unwritable(folder, error) from error
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
    with output_folder(folder), scratch_folder(folder) as scratch:
        yield scratch / "new"
        _exchange(folder, scratch, instead_of)


def _exchange(folder: Path, scratch: Path, instead_of: Iterable[str]) -> None:
    """Move the files of `new` into the folder, and those they replace to `old`; or nothing."""
    old, files = scratch / "old", sorted((scratch / "new").iterdir())
    for file in files:
        _flush(file)
    placed: list[Path] = []
    complete = scratch / "complete"
    complete.touch()
    try:
        for name in {file.name for file in files} | set(instead_of):
            if (folder / name).is_file():
                with suppress(FileNotFoundError):  # another writer has just moved it away
                    (folder / name).replace(old / name)
        for file in files:
            placed.append(file.replace(folder / file.name))
        _flush(folder)
    except BaseException:
        complete.unlink()
        for file in placed:
            file.unlink(missing_ok=True)
        for file in old.iterdir():
            file.replace(folder / file.name)
        raise
