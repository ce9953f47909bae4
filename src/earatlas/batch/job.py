"""Processing of the files of a batch: the job, and the outcome per file.

The input is a `BatchJob`, a picklable description of how to process one file. The output is an
`Outcome` per file, also after an error: one bad file never stops the batch. The answer is written
to a sidecar beside the results.
"""

from __future__ import annotations

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
    FileFingerprint,
    Recipe,
    Sidecar,
    fingerprints_of,
    read_sidecar,
    sidecar_path,
    write_sidecar,
)
from earatlas.errors import EaratlasWarning, InputError, abbreviate, exceeded_limit
from earatlas.files import record_moves
from earatlas.types import Progress

__all__ = ["BatchJob", "Outcome", "Status", "process_file"]

Status = Literal["done", "skipped", "failed"]

# `warnings.catch_warnings` acts on the whole process, so threads of a cluster worker take turns.
_warnings_lock = threading.Lock()


@dataclass(frozen=True)
class Outcome:
    """Result of processing one file of a batch.

    Attributes
    ----------
    file : Path
        The input file.
    status : {"done", "skipped", "failed"}
        "skipped" means that valid results of an earlier run exist.
    answer : dict or None
        The result as JSON values, as the command prints it with `--json`; None if it failed.
    error : str or None
        The reason of a failure.
    warnings : tuple of str
        Messages of the warnings that were issued for the file.
    replaced : tuple of str
        Files of an earlier run that were overwritten.
    removed : tuple of str
        Files of an earlier run that were removed because this run has no such result.
    seconds : float
        Processing time in seconds; 0 for a skipped file.
    rerun : str or None
        Why the file was processed again although it has a sidecar.
    traceback_text : str or None
        Traceback of an unexpected error, which is a bug and not a fault of the file.

    Examples
    --------
    >>> import earatlas as ea
    >>> from pathlib import Path
    >>> outcome = ea.Outcome(Path("party.wav"), "failed", error="file must exist")
    >>> outcome.status, outcome.answer
    ('failed', None)

    """

    file: Path
    status: Status
    answer: dict[str, Any] | None = None
    error: str | None = None
    warnings: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    seconds: float = 0.0
    rerun: str | None = None
    traceback_text: str | None = None


@dataclass(frozen=True)
class BatchJob(ABC):
    """How to process each file of a batch; the fields are the settings that a sidecar records.

    A field with the metadata `{"setting": False}` is not recorded.

    A subclass sets `command` (name of the CLI command) and `file_kind` (noun for the files in
    messages). `setting_keys` maps a field to its key in sidecars where the two differ.
    """

    folder: Path  # output folder

    command: ClassVar[str]
    file_kind: ClassVar[str] = "recordings"
    setting_keys: ClassVar[dict[str, str]] = {}

    @abstractmethod
    def answer(self, file: Path, progress: Progress | None) -> dict[str, Any]:
        """Process a file and return the result as JSON values.

        Raises InputError if the file cannot be used.
        """

    @abstractmethod
    def outputs(self, answer: dict[str, Any]) -> list[Path]:
        """Return the output files that an answer names."""

    def inputs(self, file: Path) -> list[Path]:
        """Return the files that the answer depends on."""
        return [file]

    def possible_outputs(self, file: Path) -> list[Path]:
        """Return all files that could be written for a file, to detect which ones are replaced."""
        return []

    def claimed_outputs(self, file: Path) -> list[Path]:
        """Return the files that may be replaced only if an earlier run wrote them."""
        return self.possible_outputs(file)

    def is_own_output(self, path: Path) -> bool:
        """Return whether the contents of a file show that this command wrote it."""
        return False

    def workload(self, file: Path) -> float:
        """Return the seconds of sound to process, or 0 if unknown."""
        return 0.0

    def recipe(self) -> Recipe:
        """Return what determines the answers besides the files."""
        values = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name != "folder" and f.metadata.get("setting", True)
        }
        atlas = values.pop("atlas", None)
        settings = {
            self.setting_keys.get(name, name): _json_value(value) for name, value in values.items()
        }
        return Recipe(self.command, settings, None if atlas is None else atlas.digest)


def _json_value(value: Any) -> Any:
    """Return a setting as JSON values: an array as its hash, a dataclass with its class name."""
    if is_dataclass(value) and not isinstance(value, type):
        values = {f.name: _json_value(getattr(value, f.name)) for f in fields(value)}
        return {"kind": type(value).__name__, **values}
    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value)
        header = f"{array.dtype.str} {array.shape} ".encode()
        return f"sha256:{hashlib.sha256(header + array.tobytes()).hexdigest()}"
    if isinstance(value, dict):
        return {str(name): _json_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, bool | int | float | None) else str(value)


def process_file(
    job: BatchJob, recipe: Recipe, file: Path, progress: Progress | None = None
) -> Outcome:
    """Process one file and write its sidecar; errors and warnings are returned in the outcome."""
    with _warnings_lock, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", EaratlasWarning)
        start = time.perf_counter()
        answer, problem, bug = None, None, None
        existing = {str(path) for path in job.possible_outputs(file) if path.exists()}
        lost = _replaced_sidecar(job, file)
        before = read_sidecar(sidecar_path(job.folder, file))
        removed: list[str] = []
        try:
            inputs = fingerprints_of(job.inputs(file))
            with record_moves() as written:
                answer = job.answer(file, progress)
            stale = _stale_results(job, file, answer, before)
            messages = tuple(str(w.message) for w in caught)
            seconds = time.perf_counter() - start
            outputs = fingerprints_of(job.outputs(answer), job.folder, written=written)
            sidecar = Sidecar(recipe, inputs, outputs, answer, messages, round(seconds, 3))
            write_sidecar(sidecar_path(job.folder, file), sidecar)
            removed = _remove(stale)
        except InputError as error:
            problem = str(error)
        except Exception as error:
            problem = exceeded_limit(error)
            if problem is None:
                problem = f"{type(error).__name__}: {abbreviate(str(error))}"
                bug = traceback.format_exc()
    return Outcome(
        file,
        "done" if problem is None else "failed",
        answer if problem is None else None,
        problem,
        tuple(str(w.message) for w in caught),
        tuple(str(path) for path in _output_files(job, answer) if str(path) in existing)
        + (lost if problem is None else ()),
        tuple(removed),
        round(time.perf_counter() - start, 3),
        traceback_text=bug,
    )


def _replaced_sidecar(job: BatchJob, file: Path) -> tuple[str, ...]:
    """Return the sidecar that will be overwritten, if it belongs to another file or command."""
    path = sidecar_path(job.folder, file)
    sidecar = read_sidecar(path)
    if sidecar is None:
        return ()
    same = sidecar.recipe.command == job.command and (
        not sidecar.inputs or Path(sidecar.inputs[0].file) == Path(os.path.abspath(file))
    )
    return () if same else (str(path),)


def _stale_results(
    job: BatchJob, file: Path, answer: dict[str, Any], before: Sidecar | None
) -> list[Path]:
    """Return results of an earlier run that could be mistaken for results of this one.

    An example is the third source of a recording that now has two. Files that the earlier sidecar
    lists and that are unchanged are returned; other ones get a warning.
    """
    fingerprints: dict[Path, FileFingerprint] = {}
    if before is not None and before.recipe.command == job.command:
        fingerprints = {
            job.folder / fingerprint.file: fingerprint for fingerprint in before.outputs
        }
    stale, new = [], set(job.outputs(answer))
    for path in job.possible_outputs(file):
        if path in new or not path.exists():
            continue
        if path in fingerprints and fingerprints[path].matches(path):
            stale.append(path)
        else:
            _warn_leftover(path)
    return stale


def _remove(stale: Iterable[Path]) -> list[str]:
    """Remove results of an earlier run; warn about files that cannot be removed."""
    removed = []
    for path in stale:
        try:
            path.unlink(missing_ok=True)
            removed.append(str(path))
        except OSError:  # open in another program, or no permission
            _warn_leftover(path)
    return removed


def _warn_leftover(path: Path) -> None:
    warnings.warn(
        f"'{path}' is left from an earlier run and does not belong to this one. Delete it.",
        EaratlasWarning,
        stacklevel=2,
    )


def _output_files(job: BatchJob, answer: dict[str, Any] | None) -> list[Path]:
    return [] if answer is None else job.outputs(answer)
