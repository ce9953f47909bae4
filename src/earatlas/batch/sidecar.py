"""The sidecar of a result, NAME.json: what was answered, and all that it depends on.

In: a `Recipe` (command, settings, atlas, version) and the files that were read and written. Out: a
file beside the results, written whole after them; and, the next time, a word on why the work must
be done again, or none: nothing that would change the answer has changed.

A file is known by its length and the time it was last changed, or, where that time is another (it
was copied), by its contents. That holds for what was written, too: results of other settings beside
an old sidecar, as a kill between the two leaves them, are not taken for those that it tells of.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import earatlas
from earatlas.errors import brief, harmless
from earatlas.files import written_whole

__all__ = [
    "FileMark",
    "Recipe",
    "Sidecar",
    "is_damaged",
    "marks_of",
    "read_sidecar",
    "sidecar_path",
    "why_again",
    "write_sidecar",
]

_LARGEST = 64 << 20  # bytes; a sidecar has a few thousand
_DEEPEST = 30  # values within values; an answer has five
_MARKS = ("inputs", "outputs")
_BEGINNING = b'{\n "earatlas": "'  # of all that `write_sidecar` writes


@dataclass(frozen=True)
class FileMark:
    """What a file is known by."""

    file: str
    size: int
    mtime_ns: int
    sha256: str

    def __post_init__(self) -> None:
        kinds = (str, int, int, str)
        if tuple(type(getattr(self, part.name)) for part in fields(self)) != kinds:
            raise TypeError("a mark has a name, a length, a time and a hash")

    def fits(self, path: Path) -> bool:
        """Whether that is the file, unchanged; its contents are read where the time is another."""
        try:
            now = path.stat()
            if now.st_size != self.size:
                return False
            return now.st_mtime_ns == self.mtime_ns or _sha256(path) == self.sha256
        except (OSError, ValueError):
            return False


@dataclass(frozen=True)
class Recipe:
    """What decides on the answers of a batch, beside the files."""

    command: str
    settings: dict[str, Any]  # JSON values
    atlas: str | None  # hash of what was learned
    version: str = earatlas.__version__

    def changed(self, other: Recipe) -> str | None:
        """What is not the same in an earlier recipe, in words; None: nothing is."""
        if other.command != self.command:
            return f"it was made by {_word(other.command)}"
        if other.version != self.version:
            return f"it was made by version {_word(other.version)} of earatlas"
        if other.atlas != self.atlas:
            return "another atlas"
        differ = _differing(self.settings, other.settings)
        return f"other settings: {_word(', '.join(differ))}" if differ else None


def _differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The names of settings that differ; of those that hold settings, theirs."""
    found, missing = [], object()
    for name in sorted(one.keys() | other.keys()):
        mine, theirs = one.get(name, missing), other.get(name, missing)
        if mine == theirs:
            continue
        inside = isinstance(mine, dict) and isinstance(theirs, dict)
        found += _differing(mine, theirs) if inside else [name]
    return found


@dataclass(frozen=True)
class Sidecar:
    """An answer and what it depends on."""

    recipe: Recipe
    inputs: tuple[FileMark, ...]
    outputs: tuple[FileMark, ...]  # names are relative to the folder of the sidecar
    answer: dict[str, Any]
    warnings: tuple[str, ...]
    seconds: float  # that the work took


def _word(text: str) -> str:
    """What a file says, in a sentence of ours."""
    return brief(harmless(text))


def sidecar_path(folder: Path, file: Path) -> Path:
    """Where the sidecar of a file is: out/party.json for party.wav."""
    return folder / f"{file.stem}.json"


def marks_of(files: Iterable[Path], folder: Path | None = None) -> tuple[FileMark, ...]:
    """Marks of those that exist; names are absolute, or relative to the folder."""
    return tuple(_mark(file, folder) for file in files if file.is_file())


def _mark(file: Path, folder: Path | None) -> FileMark:
    about = file.stat()  # before it is read: what changes meanwhile has another time then
    name = os.path.abspath(file) if folder is None else os.path.relpath(file, folder)
    return FileMark(name, about.st_size, about.st_mtime_ns, _sha256(file))


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def write_sidecar(path: Path, sidecar: Sidecar) -> None:
    """The whole of it, or nothing."""
    told = {
        "earatlas": sidecar.recipe.version,
        "command": sidecar.recipe.command,
        "settings": sidecar.recipe.settings,
        "atlas": sidecar.recipe.atlas,
        "versions": _versions(),
        "inputs": [asdict(mark) for mark in sidecar.inputs],
        "outputs": [asdict(mark) for mark in sidecar.outputs],
        "seconds": sidecar.seconds,
        "warnings": list(sidecar.warnings),
        "answer": sidecar.answer,
    }
    with written_whole(path, "sidecar") as scratch:
        scratch.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8", newline="\n")


@cache
def _versions() -> dict[str, str]:
    """Of what the numbers come from, for people: another one is no reason to do it again."""
    import numpy as np
    import scipy

    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "system": f"{platform.system()} {platform.machine()}",
    }


def read_sidecar(path: Path) -> Sidecar | None:
    """What `write_sidecar` wrote, or None for any other file."""
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return None
        told = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
        _check_depth(told)
        settings, answer = dict(told["settings"]), dict(told["answer"])
        recipe = Recipe(str(told["command"]), settings, told["atlas"], str(told["earatlas"]))
        inputs, outputs = (tuple(FileMark(**mark) for mark in told[n]) for n in _MARKS)
        words = tuple(map(str, told["warnings"]))
        return Sidecar(recipe, inputs, outputs, answer, words, float(told["seconds"]))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def is_damaged(path: Path) -> bool:
    """Whether it is what is left of a sidecar: somebody, or a disk, has changed it.

    It begins as one, with whatever ends of lines, or it is empty or all zeros, as files are whose
    contents were still to be written when the power went; nobody loses anything with those.
    """
    try:
        with path.open("rb") as file:
            first = file.read(2 * len(_BEGINNING))
            if first.replace(b"\r\n", b"\n").startswith(_BEGINNING):
                return read_sidecar(path) is None
            small = path.stat().st_size <= _LARGEST
            return small and not (first + file.read()).strip(b"\0")
    except OSError:
        return False


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


def _check_depth(value: Any, most: int = _DEEPEST) -> None:
    """A ValueError for values within values that no answer has, and no function could go down."""
    if most == 0:
        raise ValueError("values lie too deep")
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        _check_depth(part, most - 1)


def why_again(sidecar: Sidecar, recipe: Recipe, inputs: Iterable[Path], folder: Path) -> str | None:
    """Why what a sidecar tells of must be done again; None: all of it holds still."""
    changed = recipe.changed(sidecar.recipe)
    if changed is not None:
        return changed
    files = [file for file in inputs if file.is_file()]
    if len(files) != len(sidecar.inputs) or not all(
        mark.fits(file) for mark, file in zip(sidecar.inputs, files, strict=True)
    ):
        return "other contents of the file"
    if not all(mark.fits(folder / mark.file) for mark in sidecar.outputs):
        return "results that are gone or changed"
    return None
