"""Expand file arguments (names, folders, patterns, lists) into files.

The input is what was given on a command line. The output is the tuple of files in the order of the
arguments; the files of a folder or a pattern are sorted by name.

    party.wav          a file; it need not exist, a batch reports it and continues
    recordings         a folder: its files with a known suffix, without hidden files
    'day*/**/*.wav'    a pattern that the shell did not expand; ** matches any depth
    @list.txt          a text file with one name per line, relative to the folder of the list;
                       lines that start with # are comments, unless a file of that name exists
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from earatlas.errors import InputError, existing_file

__all__ = [
    "HEAD_SUFFIXES",
    "FileArguments",
    "check_unique_stems",
    "expand_file_arguments",
    "files_with_suffix",
    "unique_files",
]

HEAD_SUFFIXES = (".csv", ".sofa")


@dataclass(frozen=True)
class FileArguments:
    """The files that the arguments name, and whether the arguments could name more than one."""

    files: tuple[Path, ...]
    is_batch: bool


def expand_file_arguments(
    names: Iterable[str | Path], suffixes: tuple[str, ...], file_kind: str
) -> FileArguments:
    """Return the files that the arguments name.

    `file_kind` is the noun for the files in error messages, such as "recordings".
    """
    files: list[Path] = []
    n_single = 0
    for name in map(str, names):
        expanded = _expand(name, suffixes, file_kind)
        n_single += expanded is None
        files += [Path(name)] if expanded is None else expanded
    return FileArguments(tuple(files), is_batch=n_single != 1 or len(files) != 1)


def unique_files(files: Iterable[Path]) -> tuple[Path, ...]:
    """Return the files without duplicates; each keeps the first of its names."""
    unique: dict[str, Path] = {}
    for file in files:
        unique.setdefault(os.path.normcase(os.path.abspath(file)), file)
    return tuple(unique.values())


def _expand(name: str, suffixes: tuple[str, ...], file_kind: str) -> list[Path] | None:
    """Return the files of a folder, a pattern or a list, or None for the name of a single file."""
    if os.path.isdir(name):
        return _in_folder(Path(name), suffixes, file_kind)
    if os.path.lexists(name):
        return None
    if name.startswith("@"):
        return _in_list(existing_file(name[1:], "list"), file_kind)
    if glob.has_magic(name):
        matched = sorted(map(Path, glob.iglob(name, recursive=True)))
        files = [file for file in matched if not file.is_dir()]
        if not files:
            raise InputError(
                f"{file_kind} must be files that exist, got the pattern '{name}', which matches no "
                "file. Check the pattern."
            )
        return files
    return None


def files_with_suffix(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Return the files of a folder that have one of the suffixes, sorted by name.

    Hidden files are skipped: macOS leaves a `._a.wav` that is not audio beside each `a.wav`. Raises
    OSError if the folder cannot be read.
    """
    candidates = (file for file in folder.iterdir() if file.suffix.lower() in suffixes)
    return sorted(file for file in candidates if not (file.name.startswith(".") or file.is_dir()))


def _in_folder(folder: Path, suffixes: tuple[str, ...], file_kind: str) -> list[Path]:
    """Return the files of a folder; raise InputError if it is unreadable or has no such files."""
    try:
        files = files_with_suffix(folder, suffixes)
    except OSError as error:
        raise InputError(
            f"{file_kind} must be in a readable folder, got '{folder}' ({error.strerror}). "
            "Check its permissions."
        ) from error
    if not files:
        raise InputError(
            f"{file_kind} must be files or a folder that contains some, got the folder '{folder}' "
            f"without any file that ends in {', '.join(suffixes)}. Check the name; to include "
            f"subfolders, use a pattern: '{folder}/**/*{suffixes[-1]}'."
        )
    return files


def _in_list(path: Path, file_kind: str) -> list[Path]:
    """Return the files that a list names; the names may contain any bytes, as file names do."""
    if path.stat().st_size > 64 << 20:  # about half a million names
        raise InputError(
            f"list must be a text file with file names, got '{path}' with "
            f"{path.stat().st_size / 1e6:.0f} MB. Check the name."
        )
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"list must be a readable file, got '{path}' ({error.strerror}). Check its permissions."
        ) from error
    lines = [line.strip() for line in text.removeprefix(b"\xef\xbb\xbf").splitlines()]
    names = [os.fsdecode(line) for line in lines if line]
    files = [
        path.parent / name
        for name in names
        if not name.startswith("#") or os.path.lexists(path.parent / name)
    ]
    if b"\0" in text or not files:
        raise InputError(
            f"list must be a text file that names {file_kind}, one per line, got '{path}', which "
            f"{'names none' if not files else 'is not a text file'}. Check the name."
        )
    return files


def check_unique_stems(files: Iterable[Path], file_kind: str = "recordings") -> None:
    """Raise InputError if the results of two files would have the same name."""
    stems: dict[str, Path] = {}
    for file in files:
        other = stems.setdefault(file.stem.casefold(), file)  # some file systems ignore case
        if other is not file:
            raise InputError(
                f"{file_kind} must differ in their names, got '{other}' and '{file}', whose "
                "results would overwrite each other. Run the command once for each, with separate "
                "output folders."
            )
