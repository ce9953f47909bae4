"""Localize or separate many recordings with one atlas.

The inputs are an atlas, recordings and an output folder. The output is an `Outcome` per recording,
with the same answer as `earatlas localize --json` and `earatlas separate --json`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from earatlas.atlas import Atlas
from earatlas.batch.batch import Executor, execute_batch, existing_outputs, plan_batch
from earatlas.batch.file_arguments import check_unique_stems, expand_file_arguments, unique_files
from earatlas.batch.job import BatchJob, Outcome
from earatlas.batch.localization_job import LocalizationJob, RecordingJob
from earatlas.batch.sidecar import read_sidecar, sidecar_path
from earatlas.errors import InputError
from earatlas.features.layout import Threshold
from earatlas.features.recording import FileRecording
from earatlas.features.sound_file import RECORDING_SUFFIXES
from earatlas.features.wav import has_result_comment
from earatlas.files import output_folder
from earatlas.geometry.head_yaw import Yaw
from earatlas.separation.pipeline import SeparationOptions, separate_file, source_file_name
from earatlas.separation.result import SceneSummary
from earatlas.separation.separator import MAX_SOURCES
from earatlas.types import Progress

__all__ = [
    "SeparationJob",
    "Task",
    "check_no_overwrite",
    "exclude_results",
    "map_recordings",
]

Task = Literal["localize", "separate"]


@dataclass(frozen=True)
class SeparationJob(RecordingJob):
    """Separate each recording into one sound file per source."""

    options: SeparationOptions = field(default_factory=SeparationOptions)
    channels: tuple[int, int] = (0, 1)

    command: ClassVar[str] = "separate"
    setting_keys: ClassVar[dict[str, str]] = {"options": "how"}

    def answer(self, file: Path, progress: Progress | None) -> dict[str, Any]:
        """Return the answer of `earatlas separate --json`."""
        return self.separated(file, progress)[0]

    def separated(
        self, file: Path, progress: Progress | None
    ) -> tuple[dict[str, Any], SceneSummary, list[Path]]:
        """Separate a recording; return the answer, the scene and the sound files."""
        separator = self.atlas.separator
        start = time.perf_counter()
        recording = FileRecording(file, self.channels)
        scene, files = separate_file(
            separator, recording, self.folder, self.options, progress=progress
        )
        seconds = time.perf_counter() - start
        answer = {
            "file": str(file),
            **self.atlas_fields,
            **scene.to_dict(),
            "seconds": round(seconds, 3),
            "real_time_factor": round(seconds / scene.seconds, 4),
            "report": None,
        }
        for source, path in zip(answer["sources"], files, strict=True):
            source["file"] = str(path)
        return answer, scene, files

    def outputs(self, answer: dict[str, Any]) -> list[Path]:
        """Return the sound files of the sources, and the report if there is one."""
        files = [source["file"] for source in answer["sources"]] + [answer["report"]]
        return [Path(file) for file in files if file is not None]

    def possible_outputs(self, file: Path) -> list[Path]:
        """Return the sound files of as many sources as are supported."""
        return [self.folder / source_file_name(file, m) for m in range(MAX_SOURCES)]

    def claimed_outputs(self, file: Path) -> list[Path]:
        """Return the sound files of the given number of sources, or of as many as supported."""
        return self.possible_outputs(file)[: self.options.n_sources]

    def is_own_output(self, path: Path) -> bool:
        """Return whether the comment of a sound file says that it was separated."""
        return has_result_comment(path)


def exclude_results(recordings: Sequence[Path], folder: Path) -> tuple[Path, ...]:
    """Return the recordings without sound files that an earlier batch wrote into their folder.

    A batch whose output folder is the folder of the recordings can therefore be resumed. The
    sidecars identify the results. A file whose contents changed since, or whose name is not that of
    a source of the recording, counts as a recording. At least one recording always remains, because
    the name of a result is longer than that of its recording.
    """
    resolved_folder = folder.resolve()
    results: set[Path] = set()
    for recording in recordings:
        if recording.parent.resolve() == resolved_folder:
            sidecar = read_sidecar(sidecar_path(folder, recording))
            if sidecar is not None and sidecar.recipe.command == SeparationJob.command:
                names = {source_file_name(recording, m) for m in range(MAX_SOURCES)}
                own = [output for output in sidecar.outputs if output.file in names]
                results |= {
                    resolved_folder / output.file
                    for output in own
                    if output.matches(resolved_folder / output.file)
                }
    return tuple(file for file in recordings if file.parent.resolve() / file.name not in results)


def check_no_overwrite(recordings: Sequence[Path], folder: Path) -> None:
    """Raise InputError if a source of one recording would overwrite another recording."""
    written = {
        folder.resolve() / source_file_name(recording, m)
        for recording in recordings
        for m in range(MAX_SOURCES)
    }
    for recording in recordings:
        if recording.parent.resolve() / recording.name in written:
            raise InputError(
                f"output must be a folder in which no recording is overwritten, got '{folder}', "
                f"which contains '{recording}'. Choose another folder, or delete that file if it "
                "is an old result."
            )


def map_recordings(
    atlas: Atlas,
    recordings: Sequence[str | Path] | str | Path,
    folder: str | Path,
    *,
    task: Task = "localize",
    settings: Mapping[str, Any] | None = None,
    jobs: int = 1,
    client: Any = None,
    resume: bool = True,
) -> Iterator[Outcome]:
    """Localize or separate many recordings, in parallel and resumable.

    Each recording gets a sidecar NAME.json with its answer in the output folder, and the file
    batch.jsonl there summarizes the batch. A recording that cannot be processed yields an outcome
    with the status "failed" and does not stop the others. Processing starts with the first outcome
    that is requested, and stops when the caller stops iterating.

    Parameters
    ----------
    atlas : Atlas
        Atlas of the head that made the recordings.
    recordings : str, Path or sequence of these
        Files, folders, patterns such as "day*/**/*.wav", or lists such as "@list.txt".
    folder : str or Path
        Output folder.
    task : {"localize", "separate"}
        What to do with each recording.
    settings : mapping, optional
        Keyword arguments of `Atlas.localize_file` or `Atlas.separate_file`, such as
        `{"n_sources": 2}`.
    jobs : int
        Number of worker processes on this machine.
    client : dask.distributed.Client, optional
        Cluster that processes the recordings instead.
    resume : bool
        Skip recordings with valid results of the same settings, atlas and contents.

    Returns
    -------
    outcomes : iterator of Outcome
        One per recording: skipped recordings first, then in the order of completion.

    Raises
    ------
    InputError
        If an argument is invalid, or if a file in `folder` that is not a result would be
        overwritten.

    Examples
    --------
    >>> import tempfile
    >>> import earatlas as ea
    >>> from earatlas.batch.recordings import map_recordings
    >>> folder = tempfile.mkdtemp()
    >>> outcomes = map_recordings(ea.example_atlas(), ["missing.wav"], folder)
    >>> [(outcome.file.name, outcome.status) for outcome in outcomes]
    [('missing.wav', 'failed')]

    """
    arguments = [recordings] if isinstance(recordings, str | Path) else recordings
    files = unique_files(expand_file_arguments(arguments, RECORDING_SUFFIXES, "recordings").files)
    if task == "separate":
        files = exclude_results(files, Path(folder))
    if client is not None:  # workers have other working directories
        files, folder = tuple(file.absolute() for file in files), Path(folder).absolute()
    job = _create_job(atlas, Path(folder), task, dict(settings or {}))
    check_unique_stems(files)
    if isinstance(job, SeparationJob):
        check_no_overwrite(files, job.folder)
    for path, written_by_batch in existing_outputs(job, files):
        if not written_by_batch:
            raise InputError(
                f"folder must not contain other files with the names of results, got '{path}'. "
                "Choose another folder, or rename the file."
            )
    return _execute(job, files, Executor(jobs, client), resume=resume)


def _create_job(atlas: Atlas, folder: Path, task: Task, settings: dict[str, Any]) -> BatchJob:
    """Create the job of a task; raise InputError for unknown tasks and settings."""
    if task not in ("localize", "separate"):
        raise InputError(
            f"task must be 'localize' or 'separate', got '{task}'. Choose one of them."
        )
    try:
        if task == "localize":
            yaw = Yaw.of(settings.pop("yaw", 0.0))
            return LocalizationJob(folder, atlas, yaw=yaw, **settings)
        channels = settings.pop("channels", (0, 1))
        settings["threshold"] = settings.get("threshold") or Threshold()
        return SeparationJob(folder, atlas, SeparationOptions(**settings), channels)
    except TypeError as error:
        raise InputError(
            f"settings must be keyword arguments of {task}_file, got {sorted(settings)} ({error}). "
            "Check the names."
        ) from error


def _execute(
    job: BatchJob, files: tuple[Path, ...], executor: Executor, *, resume: bool
) -> Iterator[Outcome]:
    with output_folder(job.folder):
        yield from execute_batch(
            plan_batch(job, files, resume=resume), executor, lambda number, share: None
        )
