"""Sidecar of a result, NAME.json: the answer, and everything that it depends on.

The inputs are a `Recipe` (command, settings, atlas, version, code) and the files that were read and
written. The outputs are a file beside the results, written atomically after them, and on the next
run the reason why the file must be processed again, or None if nothing that affects the answer has
changed.

A file is identified by its length and modification time or, if the time differs (it was copied), by
its contents. This applies to output files, too: results of other settings beside an old sidecar, as
a kill between writing the two leaves them, are not attributed to that sidecar.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import earatlas
from earatlas.code_hash import package_hash
from earatlas.errors import abbreviate, sanitize
from earatlas.files import atomic_write

__all__ = [
    "FileFingerprint",
    "Recipe",
    "Sidecar",
    "fingerprints_of",
    "is_damaged",
    "read_sidecar",
    "rerun_reason",
    "sidecar_path",
    "write_sidecar",
]

_MAX_BYTES = 64 << 20  # bytes; a sidecar has a few thousand
_FINGERPRINT_KEYS = ("inputs", "outputs")
_FIRST_BYTES = b'{\n "earatlas": "'  # start of every file that `write_sidecar` writes


@dataclass(frozen=True)
class FileFingerprint:
    """Name, length, modification time and hash that identify a file."""

    file: str
    size: int
    mtime_ns: int
    sha256: str

    def __post_init__(self) -> None:
        types = (str, int, int, str)
        if tuple(type(getattr(self, field_.name)) for field_ in fields(self)) != types:
            raise TypeError("a fingerprint must have a name, a length, a time and a hash")

    def matches(self, path: Path) -> bool:
        """Return whether a path is the unchanged file; hash it only if the time differs."""
        try:
            status = path.stat()
            if status.st_size != self.size:
                return False
            return status.st_mtime_ns == self.mtime_ns or _sha256(path) == self.sha256
        except (OSError, ValueError):
            return False


@dataclass(frozen=True)
class Recipe:
    """What determines the answers of a batch besides the files."""

    command: str
    settings: dict[str, Any]  # JSON values
    atlas: str | None  # hash of the learned parameters
    version: str = earatlas.__version__
    code: str = field(default_factory=package_hash)  # hash of this package

    def difference_from(self, other: Recipe) -> str | None:
        """Return how an earlier recipe differs from this one, or None if it is the same."""
        if other.command != self.command:
            return f"it was made by {_quoted(other.command)}"
        if other.version != self.version:
            return f"it was made by version {_quoted(other.version)} of earatlas"
        if other.code != self.code:
            return "the code of earatlas changed"
        if other.atlas != self.atlas:
            return "another atlas"
        names = _differing_settings(self.settings, other.settings)
        return f"other settings: {_quoted(', '.join(names))}" if names else None


def _differing_settings(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return the names of the settings that differ, also within nested settings."""
    names, missing = [], object()
    for name in sorted(one.keys() | other.keys()):
        mine, theirs = one.get(name, missing), other.get(name, missing)
        if mine == theirs:
            continue
        nested = isinstance(mine, dict) and isinstance(theirs, dict)
        names += _differing_settings(mine, theirs) if nested else [name]
    return names


@dataclass(frozen=True)
class Sidecar:
    """An answer and everything that it depends on."""

    recipe: Recipe
    inputs: tuple[FileFingerprint, ...]
    outputs: tuple[FileFingerprint, ...]  # paths are relative to the folder of the sidecar
    answer: dict[str, Any]
    warnings: tuple[str, ...]
    seconds: float  # processing time


def _quoted(text: str) -> str:
    """Return text of a file, shortened and without control characters, for use in a message."""
    return abbreviate(sanitize(text))


def sidecar_path(folder: Path, file: Path) -> Path:
    """Return the path of the sidecar of a file: out/party.json for party.wav."""
    return folder / f"{file.stem}.json"


def fingerprints_of(
    files: Iterable[Path],
    folder: Path | None = None,
    *,
    written: Mapping[str, tuple[int, int]] = MappingProxyType({}),
) -> tuple[FileFingerprint, ...]:
    """Return fingerprints of the existing files, with paths absolute or relative to `folder`.

    Files that another command has replaced since they were `written` (`record_moves`) get a
    fingerprint that no file matches.
    """
    return tuple(_fingerprint(file, folder, written) for file in files if file.is_file())


def _fingerprint(
    file: Path, folder: Path | None, written: Mapping[str, tuple[int, int]]
) -> FileFingerprint:
    path = os.path.abspath(file)
    with file.open("rb") as opened:
        status = os.fstat(opened.fileno())  # before reading, so that a later change is detected
        identity = status.st_ino, status.st_mtime_ns
        replaced = written.get(path, identity) != identity
        sha256 = "" if replaced else hashlib.file_digest(opened, "sha256").hexdigest()
    name = path if folder is None else os.path.relpath(file, folder)
    return FileFingerprint(name, status.st_size, 0 if replaced else status.st_mtime_ns, sha256)


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def write_sidecar(path: Path, sidecar: Sidecar) -> None:
    """Write a sidecar atomically."""
    content = {
        "earatlas": sidecar.recipe.version,
        "code": sidecar.recipe.code,
        "command": sidecar.recipe.command,
        "settings": sidecar.recipe.settings,
        "atlas": sidecar.recipe.atlas,
        "versions": _versions(),
        "inputs": [asdict(fingerprint) for fingerprint in sidecar.inputs],
        "outputs": [asdict(fingerprint) for fingerprint in sidecar.outputs],
        "seconds": sidecar.seconds,
        "warnings": list(sidecar.warnings),
        "answer": sidecar.answer,
    }
    with atomic_write(path, "sidecar") as scratch:
        scratch.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8", newline="\n")


@cache
def _versions() -> dict[str, str]:
    """Return the versions of the numerical libraries, for information only."""
    import numpy as np
    import scipy

    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "system": f"{platform.system()} {platform.machine()}",
    }


def read_sidecar(path: Path) -> Sidecar | None:
    """Return the contents of a sidecar, or None for any other file."""
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            return None
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_reject_constant)
        _check_depth(content)
        settings, answer = dict(content["settings"]), dict(content["answer"])
        version, code = str(content["earatlas"]), str(content.get("code", ""))
        recipe = Recipe(str(content["command"]), settings, content["atlas"], version, code)
        inputs, outputs = (
            tuple(FileFingerprint(**fingerprint) for fingerprint in content[n])
            for n in _FINGERPRINT_KEYS
        )
        messages = tuple(map(str, content["warnings"]))
        return Sidecar(recipe, inputs, outputs, answer, messages, float(content["seconds"]))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def is_damaged(path: Path) -> bool:
    """Return whether a file is a damaged sidecar, which may be overwritten.

    It starts like a sidecar (with any line endings), or it is empty or consists of zeros, as files
    do whose contents were not yet on the disk at a power failure.
    """
    try:
        with path.open("rb") as file:
            first = file.read(2 * len(_FIRST_BYTES))
            if first.replace(b"\r\n", b"\n").startswith(_FIRST_BYTES):
                return read_sidecar(path) is None
            small = path.stat().st_size <= _MAX_BYTES
            return small and not (first + file.read()).strip(b"\0")
    except OSError:
        return False


def _reject_constant(word: str) -> float:
    raise ValueError(f"{word} is not a JSON number")


def _check_depth(value: Any, max_depth: int = 30) -> None:
    """Raise ValueError for values that are nested too deeply; an answer has five levels."""
    if max_depth == 0:
        raise ValueError("values are nested too deeply")
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in items:
        _check_depth(item, max_depth - 1)


def rerun_reason(
    sidecar: Sidecar, recipe: Recipe, inputs: Iterable[Path], folder: Path
) -> str | None:
    """Return why the file of a sidecar must be processed again, or None if it is up to date."""
    difference = recipe.difference_from(sidecar.recipe)
    if difference is not None:
        return difference
    files = [file for file in inputs if file.is_file()]
    if len(files) != len(sidecar.inputs):
        return "the contents of the file changed"
    for number, (fingerprint, file) in enumerate(zip(sidecar.inputs, files, strict=True)):
        if not fingerprint.matches(file):
            changed = f"'{_quoted(file.name)}'" if number else "the file"
            return f"the contents of {changed} changed"
    if not all(fingerprint.matches(folder / fingerprint.file) for fingerprint in sidecar.outputs):
        return "results are missing or changed"
    return None
