"""What a batch is about: names, folders, patterns and lists become files.

In: what was written on a command line. Out: the files, in that order; those of a folder or a
pattern by name.

    party.wav          a file, whether it exists or not: a batch goes on without it
    recordings         a folder: what is in it with one of the endings, and is not hidden
    'day*/**/*.wav'    a pattern, where the shell has not read it; ** is any depth
    @list.txt          a text with a name a line, relative to the list's own folder; lines that
                       begin with # say something else, unless there is such a file
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from earatlas.errors import InputError, existing_file

__all__ = ["HEADS", "RECORDINGS", "Listed", "check_stems", "listed", "once", "with_endings"]

# What libsndfile reads and people record with.
RECORDINGS = (
    ".aif", ".aifc", ".aiff", ".au", ".caf", ".flac", ".mp3", ".oga", ".ogg", ".opus", ".rf64",
    ".w64", ".wav",
)  # fmt: skip
HEADS = (".csv", ".sofa")
_LARGEST_LIST = 64 << 20  # bytes: half a million names


@dataclass(frozen=True)
class Listed:
    """The files that were meant, and whether more than one could have been."""

    files: tuple[Path, ...]
    several: bool


def listed(names: Iterable[str | Path], endings: tuple[str, ...], what: str) -> Listed:
    """The files that are named; `what` they are called in errors, such as "recordings"."""
    files: list[Path] = []
    alone = 0
    for name in map(str, names):
        found = _several(name, endings, what)
        alone += found is None
        files += [Path(name)] if found is None else found
    return Listed(tuple(files), several=alone != 1 or len(files) != 1)


def once(files: Iterable[Path]) -> tuple[Path, ...]:
    """The files, each by the first of its names: where results have names, one is meant once."""
    found: dict[str, Path] = {}
    for file in files:
        found.setdefault(os.path.normcase(os.path.abspath(file)), file)
    return tuple(found.values())


def _several(name: str, endings: tuple[str, ...], what: str) -> list[Path] | None:
    """What a folder, a pattern or a list stands for; None: it is the name of one."""
    if os.path.isdir(name):
        return _in_folder(Path(name), endings, what)
    if os.path.lexists(name):
        return None
    if name.startswith("@"):
        return _in_list(existing_file(name[1:], "list"), what)
    if glob.has_magic(name):
        found = sorted(map(Path, glob.iglob(name, recursive=True)))
        files = [file for file in found if not file.is_dir()]
        if not files:
            raise InputError(
                f"{what} must be files that exist, got the pattern '{name}', which fits none. "
                "Check the name."
            )
        return files
    return None


def with_endings(folder: Path, endings: tuple[str, ...]) -> list[Path]:
    """The files of a folder that have one of the endings, by name (an OSError if there is none).

    Hidden ones are not: some systems leave a ._a.wav beside each a.wav, which is no sound.
    """
    found = (file for file in folder.iterdir() if file.suffix.lower() in endings)
    return sorted(file for file in found if not (file.name.startswith(".") or file.is_dir()))


def _in_folder(folder: Path, endings: tuple[str, ...], what: str) -> list[Path]:
    try:
        files = with_endings(folder, endings)
    except OSError as error:
        raise InputError(
            f"{what} must be in a folder that can be read, got '{folder}' ({error.strerror}). "
            "Check its permissions."
        ) from error
    if not files:
        raise InputError(
            f"{what} must be files or a folder that holds some, got the folder '{folder}' with "
            f"none that ends in {', '.join(endings)}. Check the name; what is in folders below it "
            f"is meant by a pattern: '{folder}/**/*{endings[-1]}'."
        )
    return files


def _in_list(path: Path, what: str) -> list[Path]:
    """The names of a text; they may be of any bytes, as names of files are."""
    if path.stat().st_size > _LARGEST_LIST:
        raise InputError(
            f"list must be a text of names, got '{path}' of {path.stat().st_size / 1e6:.0f} MB. "
            "Check the name."
        )
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"list must be a file that can be read, got '{path}' ({error.strerror}). "
            "Check its permissions."
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
            f"list must be a text with a name of {what} on each line, got '{path}', which "
            f"{'has none' if not files else 'is no text'}. Check the name."
        )
    return files


def check_stems(files: Iterable[Path], what: str = "recordings") -> None:
    """Refuse names whose results would overwrite each other."""
    stems: dict[str, Path] = {}
    for file in files:
        other = stems.setdefault(file.stem.casefold(), file)  # some disks have no case
        if other is not file:
            raise InputError(
                f"{what} must differ in their names, got '{other}' and '{file}', whose "
                "results would have the same names. Run the command once for each, with an output "
                "folder of its own."
            )
