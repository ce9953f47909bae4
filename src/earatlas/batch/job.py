"""What a batch does with each of its files: a value that goes to other processes and machines.

In: a `Work`, which knows how to answer for one file. Out: its `Outcome`, whatever happens: one bad
file never stops the others. What was answered is written beside the results as a sidecar.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import time
import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from earatlas.batch.sidecar import (
    FileMark,
    Recipe,
    Sidecar,
    marks_of,
    read_sidecar,
    sidecar_path,
    write_sidecar,
)
from earatlas.errors import EaratlasWarning, InputError, brief
from earatlas.types import Progress

__all__ = ["Outcome", "Status", "Work", "done"]

Status = Literal["done", "skipped", "failed"]

# Warnings are caught for a whole process: threads of a cluster's worker take turns.
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Outcome:
    """What became of a file: an answer, or why there is none."""

    file: Path
    status: Status
    answer: dict[str, Any] | None = None  # as `--json` has it
    error: str | None = None
    warnings: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()  # files of an earlier run
    removed: tuple[str, ...] = ()  # those of an earlier run that this one has none for
    seconds: float = 0.0  # that it took
    again: str | None = None  # why it was done once more
    bug: str | None = None  # the traceback of what is no fault of the file


@dataclass(frozen=True)
class Work(ABC):
    """What is done with each file; its fields are the settings that a sidecar tells."""

    folder: Path  # of the results

    command: ClassVar[str]
    what: ClassVar[str] = "recordings"

    @abstractmethod
    def answer(self, file: Path, tell: Progress | None) -> dict[str, Any]:
        """Do it, and say it as JSON values; an InputError if the file cannot be used."""

    @abstractmethod
    def outputs(self, answer: dict[str, Any]) -> list[Path]:
        """The files that an answer tells of."""

    def inputs(self, file: Path) -> list[Path]:
        """The files that an answer depends on."""
        return [file]

    def may_write(self, file: Path) -> list[Path]:
        """All that could be written for a file, for what is replaced to be told."""
        return []

    def amount(self, file: Path) -> float:
        """How much there is to be done, in seconds of sound; 0 if it cannot be known."""
        return 0.0

    def recipe(self) -> Recipe:
        """What decides on the answers, beside the files."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "folder"}
        atlas = values.pop("atlas", None)
        settings = {name: _plain(value) for name, value in values.items()}
        return Recipe(self.command, settings, None if atlas is None else atlas.digest)


def _plain(value: Any) -> Any:
    """A setting as JSON values; of arrays, their hash. What has no fields goes by its kind."""
    if is_dataclass(value) and not isinstance(value, type):
        told = {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
        return {"kind": type(value).__name__, **told}
    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value)
        about = f"{array.dtype.str} {array.shape} ".encode()
        return f"sha256:{hashlib.sha256(about + array.tobytes()).hexdigest()}"
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, bool | int | float | None) else str(value)


def done(work: Work, recipe: Recipe, file: Path, tell: Progress | None = None) -> Outcome:
    """Do one file and leave its sidecar; bad input, bugs and warnings come back as words."""
    with _one_at_a_time, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", EaratlasWarning)
        start = time.perf_counter()
        answer, problem, bug = None, None, None
        old = {str(path) for path in work.may_write(file) if path.exists()}
        lost, before = _lost_sidecar(work, file), read_sidecar(sidecar_path(work.folder, file))
        removed: list[str] = []
        try:
            inputs = marks_of(work.inputs(file))
            answer = work.answer(file, tell)
            stale = _stale(work, file, answer, before)
            told = tuple(str(w.message) for w in caught)
            seconds = time.perf_counter() - start
            outputs = marks_of(work.outputs(answer), work.folder)
            sidecar = Sidecar(recipe, inputs, outputs, answer, told, round(seconds, 3))
            write_sidecar(sidecar_path(work.folder, file), sidecar)
            removed = _removed(stale)
        except InputError as error:
            problem = str(error)
        except Exception as error:
            problem, bug = f"{type(error).__name__}: {brief(str(error))}", traceback.format_exc()
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                problem, bug = "output must have room, got a full disk. Free some space.", None
    return Outcome(
        file,
        "done" if problem is None else "failed",
        answer if problem is None else None,
        problem,
        tuple(str(w.message) for w in caught),
        tuple(str(path) for path in _written(work, answer) if str(path) in old) + lost,
        tuple(removed),
        round(time.perf_counter() - start, 3),
        bug=bug,
    )


def _lost_sidecar(work: Work, file: Path) -> tuple[str, ...]:
    """The sidecar whose place will be taken, if it tells of another file or another command."""
    path = sidecar_path(work.folder, file)
    sidecar = read_sidecar(path)
    if sidecar is None:
        return ()
    same = sidecar.recipe.command == work.command and (
        not sidecar.inputs or Path(sidecar.inputs[0].file) == Path(os.path.abspath(file))
    )
    return () if same else (str(path),)


def _stale(work: Work, file: Path, answer: dict[str, Any], before: Sidecar | None) -> list[Path]:
    """Results of an earlier run that would be taken for some of this one, such as a third sound.

    Those that its sidecar tells of, unchanged, are ours to remove; others get a warning.
    """
    marks: dict[Path, FileMark] = {}
    if before is not None and before.recipe.command == work.command:
        marks = {work.folder / mark.file: mark for mark in before.outputs}
    stale, new = [], set(work.outputs(answer))
    for path in work.may_write(file):
        if path in new or not path.exists():
            continue
        if path in marks and marks[path].fits(path):
            stale.append(path)
        else:
            _warn_left(path)
    return stale


def _removed(stale: Iterable[Path]) -> list[str]:
    """Remove results of an earlier run; those that cannot be get a warning: the work is done."""
    removed = []
    for path in stale:
        try:
            path.unlink(missing_ok=True)
            removed.append(str(path))
        except OSError:  # somebody has it open, or the folder is another's
            _warn_left(path)
    return removed


def _warn_left(path: Path) -> None:
    warnings.warn(
        f"'{path}' is left from an earlier run and not of this one. Delete it.",
        EaratlasWarning,
        stacklevel=2,
    )


def _written(work: Work, answer: dict[str, Any] | None) -> list[Path]:
    return [] if answer is None else work.outputs(answer)
