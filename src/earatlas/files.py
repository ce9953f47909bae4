"""Atomic writing of one file, or of several files together.

New files are written to a scratch folder beside their destination, flushed to disk, and then
moved. A reader never sees a partial file, and the previous files remain until the new ones are
complete.

    .earatlas-x7q2/in-use      locked as long as the writer lives
                   new/        files that are being written
                   old/        files that they replace
                   complete    manifest; exists once all files in new/ are on disk and only moves
                               remain
                   undo        the manifest instead, once a move has failed

A writer that is killed leaves its scratch folder behind. The next writer in the same place finds
it unlocked: it finishes the moves if `complete` exists, undoes them if `undo` exists, and removes
the folder.

A scratch folder may also come from an archive that someone else has made. The manifest therefore
lists the identity of each file: inode, length and modification time. Nobody can choose the inodes
of unpacked files, which hashes would not prevent. A folder with links, with a file that is not in
its manifest, or whose moves would replace a file that is not in it, is left alone with a warning.

The destination is locked while files are moved into it. Otherwise, the moves of two writers could
alternate, and the folder would contain some files of each.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows has no fcntl: abandoned scratch folders are not recovered
    fcntl = None  # type: ignore[assignment]

from earatlas.errors import EaratlasWarning, InputError, check_path

__all__ = [
    "atomic_write",
    "atomic_write_all",
    "check_writable",
    "exclusive_folder",
    "final_path",
    "output_folder",
    "record_moves",
    "recover_scratch",
    "scratch_folder",
    "unwritable_folder",
    "write_error",
]

_SCRATCH_PREFIX = ".earatlas-"
_SCRATCH_FOLDERS = frozenset({"new", "old"})
_SCRATCH_FILES = frozenset({"in-use", "manifest", "complete", "undo"})
_MAX_MANIFEST_BYTES = 64 << 20  # bytes; an entry has about 100
_Identity = tuple[int, int, int]  # inode, length in bytes, modification time in ns
_moves: ContextVar[dict[str, tuple[int, int]] | None] = ContextVar("_moves", default=None)


def check_writable(path: str | Path, argument: str = "output") -> None:
    """Raise an `InputError` if a file cannot be written; commands call this before they compute."""
    path = check_path(path)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise InputError(
            f"{argument} must be a file in a folder that exists, got '{path}'. "
            "Name a file, and create its folder first."
        )
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        raise InputError(
            f"{argument} must be a file, got the pipe or device '{path}'. Name a file."
        )
    try:
        with (
            scratch_folder(path.absolute().parent) as scratch,
            (scratch / "new" / path.name).open("wb"),
        ):
            pass
    except OSError as error:
        raise write_error(path, argument, error) from error


@contextmanager
def atomic_write(path: str | Path, argument: str = "output") -> Iterator[Path]:
    """Yield a temporary path to write to; on success that file replaces `path`."""
    path = check_path(path)
    try:
        folder = path.absolute().parent
        with scratch_folder(folder) as scratch:
            new = scratch / "new" / path.name
            yield new
            _flush(new)
            _move(new, path)
            _flush(folder)
    except OSError as error:
        raise write_error(path, argument, error) from error


@contextmanager
def record_moves() -> Iterator[dict[str, tuple[int, int]]]:
    """Yield the identity of each file that is written meanwhile, by its absolute path.

    The identity is inode and modification time. It tells whether another writer has replaced the
    file since.
    """
    moves: dict[str, tuple[int, int]] = {}
    token = _moves.set(moves)
    try:
        yield moves
    finally:
        _moves.reset(token)


def _move(new: Path, path: Path) -> Path:
    """Move a complete file to its destination."""
    status, moves = new.stat(), _moves.get()
    if moves is not None:
        moves[os.path.abspath(path)] = status.st_ino, status.st_mtime_ns
    return new.replace(path)


def write_error(path: Path, argument: str, error: OSError) -> InputError:
    """Return the error for a file that could not be written."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return InputError(
        f"{argument} must be a file that can be written, got '{final_path(path)}' "
        f"({error.strerror or error}). "
        f"{'Free some space.' if full else 'Check that its folder exists and is writable.'}"
    )


def final_path(path: Path) -> Path:
    """Return where a file is moved to from a scratch folder, or the path of any other file."""
    folders = path.parts[:-1]
    for scratch in (n for n, name in enumerate(folders) if name.startswith(_SCRATCH_PREFIX)):
        if folders[scratch + 1 : scratch + 2] == ("new",):
            return final_path(Path(*folders[:scratch], *folders[scratch + 2 :], path.name))
    return path


@contextmanager
def scratch_folder(folder: Path) -> Iterator[Path]:
    """Yield a locked scratch folder with subfolders `new` and `old`, after `recover_scratch`."""
    recover_scratch(folder)
    scratch, lock = _create_locked(folder)
    try:
        (scratch / "new").mkdir()
        (scratch / "old").mkdir()
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        lock.close()


def _create_locked(folder: Path) -> tuple[Path, IO[bytes]]:
    """Create a scratch folder, and return it with its open and locked lock file."""
    while True:
        scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH_PREFIX, dir=folder))
        try:
            lock = (scratch / "in-use").open("wb")
        except OSError:  # the disk has no free inode
            scratch.rmdir()
            raise
        if fcntl is None:
            return scratch, lock
        with suppress(OSError):  # on a file system without locks no one else can lock it either
            fcntl.flock(lock, fcntl.LOCK_EX)  # released when the process ends, however it ends
        if os.fstat(lock.fileno()).st_nlink:
            return scratch, lock
        lock.close()  # another writer removed the folder as abandoned before it was locked


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder; wait while another writer moves files into it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows does not open folders
        yield
        return
    with _flock(descriptor, wait=True):
        yield


@contextmanager
def exclusive_folder(folder: Path, user: str) -> Iterator[None]:
    """Refuse a folder that another process of the same kind uses; `user` names the kind."""
    path = folder / f".{user}-in-use"
    try:
        # A planted pipe cannot block it, and a planted link does not create a file elsewhere.
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        raise unwritable_folder(folder, error) from error
    with _flock(descriptor, wait=False) as locked:
        if not locked or not os.fstat(descriptor).st_nlink:  # or its user has just left
            raise InputError(
                f"folder must not be used by another {user}, got '{folder}', which is in use. "
                f"Close the other {user}, or give another folder."
            )
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def _flock(descriptor: int, *, wait: bool) -> Iterator[bool]:
    """Lock an open file and close it at the end; yield whether no other process has locked it."""
    locked = True
    try:
        if fcntl is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                locked = False
            except OSError:  # a file system without locks
                pass
        yield locked
    finally:
        if fcntl is not None and locked:
            with suppress(OSError):  # also releases what a forked process has inherited
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def recover_scratch(folder: Path) -> None:
    """Finish or undo what killed writers left in the folder, and remove their scratch folders."""
    if fcntl is not None and any(folder.glob(f"{_SCRATCH_PREFIX}*")):
        with _locked(folder):
            _recover_abandoned(folder)


def _recover_abandoned(folder: Path) -> None:
    """Recover the scratch folders of killed writers in a locked folder."""
    if fcntl is None:
        return
    for scratch in folder.glob(f"{_SCRATCH_PREFIX}*"):
        try:
            status = scratch.lstat()
        except OSError:  # another process removed it
            continue
        # In a shared folder, links and folders of other users may be an attack.
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            continue
        with suppress(OSError):  # another process recovers it, too
            if os.path.lexists(scratch / "in-use"):
                _recover_unlocked(folder, scratch)
            elif time.time() - status.st_mtime > 3600.0:  # abandoned before its lock was made
                scratch.rmdir()


class _ForeignScratchError(Exception):
    """A scratch folder contains what no writer of this package could have left there."""


def _recover_unlocked(folder: Path, scratch: Path) -> None:
    """Finish or undo the work of one writer; raises an `OSError` if that writer is alive."""
    try:
        _check_scratch(scratch)
        with (scratch / "in-use").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            moves, removals = _plan_recovery(folder, scratch)
            for file in moves:
                file.replace(folder / file.name)
            for file in removals:
                file.unlink()
            shutil.rmtree(scratch)
    except _ForeignScratchError:
        warnings.warn(
            f"The folder '{scratch.absolute()}' looks like an interrupted write, but its contents "
            "or the files that it would replace were changed by something else. Nothing was moved. "
            f"{_remedy(scratch.absolute())}",
            EaratlasWarning,
            stacklevel=2,
        )


def _remedy(scratch: Path) -> str:
    """Return what to do with a refused scratch folder, which may have the only copy of results."""
    folders = [
        folder
        for folder in (scratch / "old", scratch / "new")
        if folder.is_dir() and not folder.is_symlink() and any(folder.iterdir())
    ]
    if not folders:
        return "Delete it."
    kept = " and ".join(
        f"{'previous' if folder.name == 'old' else 'new'} results may be in '{folder}'"
        for folder in folders
    )
    return f"The {kept}. Keep what you need before you delete the folder."


def _check_scratch(scratch: Path) -> None:
    """Raise `_ForeignScratchError` unless a folder contains what a writer makes, without links."""
    for path in scratch.iterdir():
        mode = path.lstat().st_mode
        folder = path.name in _SCRATCH_FOLDERS and stat.S_ISDIR(mode)
        if not folder and not (path.name in _SCRATCH_FILES and stat.S_ISREG(mode)):
            raise _ForeignScratchError


def _plan_recovery(folder: Path, scratch: Path) -> tuple[list[Path], list[Path]]:
    """Return the scratch files to move into the folder, and the files there to remove.

    If the moves are finished, the files of `new` are moved, and files that were to be removed
    without a replacement are removed. If they are undone, `old` and `new` exchange their roles.
    """
    state, moved, others = scratch / "complete", "new", "old"
    if (scratch / "undo").exists():
        state, moved, others = scratch / "undo", "old", "new"
    elif not state.exists():  # killed before the first move
        if next((scratch / "old").glob("*"), None) is not None:
            raise _ForeignScratchError
        return [], []
    manifest = _read_manifest(state)
    moves = sorted((scratch / moved).iterdir())
    for file in moves:
        replaced = _identity(folder / file.name)
        expected = (None, manifest[others].get(file.name))
        if _identity(file) != manifest[moved].get(file.name) or replaced not in expected:
            raise _ForeignScratchError
    removals = [
        folder / name
        for name, identity in manifest[others].items()
        if name not in manifest[moved] and _identity(folder / name) == identity
    ]
    return moves, removals


def _identity(path: Path) -> _Identity | None:
    """Return what a move does not change about a file, or None if there is no such file."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _write_manifest(folder: Path, scratch: Path, names: Iterable[str]) -> Path:
    """Write the identities of the new files, and of the files that `names` list, to `complete`."""
    manifest = {
        "new": {file.name: _identity(file) for file in sorted((scratch / "new").iterdir())},
        "old": {name: _identity(folder / name) for name in names if (folder / name).is_file()},
    }
    draft = scratch / "manifest"
    draft.write_text(json.dumps(manifest), encoding="ascii")
    _flush(draft)
    complete = draft.replace(scratch / "complete")
    _flush(scratch)  # otherwise, a power cut could keep moves, but not the manifest
    return complete


def _read_manifest(path: Path) -> dict[str, dict[str, _Identity]]:
    """Return the contents of a manifest; raise `_ForeignScratchError` for any other file."""
    try:
        if path.stat().st_size > _MAX_MANIFEST_BYTES:
            raise _ForeignScratchError
        content = json.loads(path.read_text(encoding="ascii"))
        manifest: dict[str, dict[str, _Identity]] = {
            part: {name: tuple(identity) for name, identity in content[part].items()}
            for part in sorted(_SCRATCH_FOLDERS)
        }
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise _ForeignScratchError from None
    if any(name != os.path.basename(name) for part in manifest.values() for name in part):
        raise _ForeignScratchError
    return manifest


def _flush(path: Path) -> None:
    """Force the contents of a file, or the entries of a folder, to disk."""
    if not path.is_dir():
        with path.open("r+b") as file:
            os.fsync(file)
        return
    with suppress(OSError):  # not every system can open folders; the files are already flushed
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def unwritable_folder(folder: Path, error: OSError) -> InputError:
    """Return the error for an output folder that cannot be written to."""
    reason = "it is a file" if folder.is_file() else error.strerror
    return InputError(
        f"output folder must be writable, got '{folder}' ({reason}). Choose another folder."
    )


@contextmanager
def output_folder(folder: Path) -> Iterator[None]:
    """Create a folder and check that it is writable; remove it at the end if it is empty."""
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise unwritable_folder(folder, error) from error
        yield
    finally:
        for path in created:
            with suppress(OSError):  # it contains results, or could not be created
                path.rmdir()


@contextmanager
def atomic_write_all(folder: Path, *, replacing: Iterable[str] = ()) -> Iterator[Path]:
    """Yield a folder to write to; on success all of its files move into `folder`, or none does.

    They replace files of the same names, and the files named in `replacing` are removed.
    """
    with output_folder(folder), scratch_folder(folder) as scratch:
        yield scratch / "new"
        for file in (scratch / "new").iterdir():
            _flush(file)
        with _locked(folder):
            # A writer that was killed since then must not move its files over the new ones later.
            _recover_abandoned(folder)
            _swap_files(folder, scratch, replacing)


def _swap_files(folder: Path, scratch: Path, replacing: Iterable[str]) -> None:
    """Move the replaced files to `old` and the files of `new` into the folder; undo on error."""
    old, files = scratch / "old", sorted((scratch / "new").iterdir())
    moved: list[Path] = []
    names = {file.name for file in files} | set(replacing)
    manifest = _write_manifest(folder, scratch, names)
    try:
        for name in names:
            if (folder / name).is_file():
                with suppress(FileNotFoundError):  # another writer has just moved it
                    (folder / name).replace(old / name)
        for file in files:
            moved.append(_move(file, folder / file.name))
        _flush(folder)
    except BaseException:
        manifest.replace(scratch / "undo")
        _flush(scratch)
        for file in moved:
            file.unlink(missing_ok=True)
        for file in old.iterdir():
            file.replace(folder / file.name)
        raise
