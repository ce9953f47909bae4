"""Many recordings with one atlas: where the sound of each is, or each of its sounds by itself.

In: an atlas, recordings, a folder. Out: an `Outcome` a recording, as it is done, with what
`earatlas localize --json` and `earatlas separate --json` say of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from earatlas.atlas import Atlas
from earatlas.batch.batch import Hands, planned, run, to_replace
from earatlas.batch.file_arguments import RECORDINGS, check_stems, listed, once
from earatlas.batch.job import Outcome, Work
from earatlas.batch.sidecar import read_sidecar, sidecar_path
from earatlas.errors import InputError
from earatlas.features.audio_files import audio_seconds
from earatlas.features.layout import Threshold
from earatlas.features.recording import FileRecording
from earatlas.files import output_folder
from earatlas.geometry.head_yaw import Yaw
from earatlas.separation.options import Separating
from earatlas.separation.pipeline import separate_file, sound_file
from earatlas.separation.result import FoundScene
from earatlas.separation.separator import MOST_SOURCES
from earatlas.types import Progress

__all__ = [
    "Localizing",
    "SeparatingFiles",
    "Task",
    "check_overwritten",
    "map_recordings",
    "without_results",
]

Task = Literal["localize", "separate"]


@dataclass(frozen=True)
class _OfRecordings(Work):
    """Work on recordings with an atlas."""

    atlas: Atlas

    def amount(self, file: Path) -> float:
        """Its seconds of sound."""
        try:
            return audio_seconds(file)
        except InputError:  # it will fail, and be told then
            return 0.0


@dataclass(frozen=True)
class Localizing(_OfRecordings):
    """Where the one sound of each recording is."""

    channels: tuple[int, int] = (0, 1)
    threshold: Threshold | None = None
    yaw: Yaw = field(default_factory=lambda: Yaw.still(0.0))

    command: ClassVar[str] = "localize"

    def answer(self, file: Path, tell: Progress | None) -> dict[str, Any]:
        """As `earatlas localize --json` has it."""
        start = time.perf_counter()
        where = self.atlas.localize_file(
            file, channels=self.channels, threshold=self.threshold, yaw=self.yaw
        )
        answer = {"file": str(file), **where.to_dict()}
        answer["seconds"] = round(time.perf_counter() - start, 4)
        answer["recording_seconds"] = round(audio_seconds(file), 3)
        return answer

    def outputs(self, answer: dict[str, Any]) -> list[Path]:
        """None: the answer is in the sidecar."""
        return []


@dataclass(frozen=True)
class SeparatingFiles(_OfRecordings):
    """The sounds of each recording, each in a file of its own."""

    how: Separating = field(default_factory=Separating)
    channels: tuple[int, int] = (0, 1)

    command: ClassVar[str] = "separate"

    def answer(self, file: Path, tell: Progress | None) -> dict[str, Any]:
        """As `earatlas separate --json` has it."""
        return self.separated(file, tell)[0]

    def separated(
        self, file: Path, tell: Progress | None
    ) -> tuple[dict[str, Any], FoundScene, list[Path]]:
        """The answer, and the scene and the sound files that it tells of."""
        separator = self.atlas.separator
        start = time.perf_counter()
        recording = FileRecording(file, self.channels)
        scene, files = separate_file(separator, recording, self.folder, self.how, progress=tell)
        seconds = time.perf_counter() - start
        answer = {
            "file": str(file),
            "n_sources": len(files),
            "sources": [
                {**source.to_dict(), "file": str(path)}
                for source, path in zip(scene.sources, files, strict=True)
            ],
            "doubts": [str(doubt) for doubt in scene.doubts],
            "free_energy": round(scene.free_energies[-1], 3),
            "rate": scene.rate,
            "dry": scene.dry,
            "recording_seconds": round(scene.seconds, 3),
            "seconds": round(seconds, 3),
            "real_time_factor": round(seconds / scene.seconds, 4),
            "report": None,
        }
        return answer, scene, files

    def outputs(self, answer: dict[str, Any]) -> list[Path]:
        """Its sounds, and its page if there is one."""
        files = [source["file"] for source in answer["sources"]] + [answer["report"]]
        return [Path(file) for file in files if file is not None]

    def may_write(self, file: Path) -> list[Path]:
        """The sounds of as many sources as there can be."""
        return [self.folder / sound_file(file, m) for m in range(MOST_SOURCES)]


def without_results(recordings: Sequence[Path], folder: Path) -> tuple[Path, ...]:
    """The recordings but for sounds that an earlier batch made of others of them, in their folder.

    Its sidecars tell which: a batch in the recordings' own folder can be gone on with. What has
    other contents since, or a name that no sound of that recording has, is a recording: never are
    all left out, for such names are longer than those of what they were made of.
    """
    place = folder.resolve()
    made: set[Path] = set()
    for recording in recordings:
        if recording.parent.resolve() == place:
            sidecar = read_sidecar(sidecar_path(folder, recording))
            if sidecar is not None and sidecar.recipe.command == SeparatingFiles.command:
                names = {sound_file(recording, m) for m in range(MOST_SOURCES)}
                ours = [mark for mark in sidecar.outputs if mark.file in names]
                made |= {place / mark.file for mark in ours if mark.fits(place / mark.file)}
    return tuple(file for file in recordings if file.parent.resolve() / file.name not in made)


def check_overwritten(recordings: Sequence[Path], folder: Path) -> None:
    """Refuse a folder where the sounds of one recording would take the place of another."""
    written = {
        folder.resolve() / sound_file(recording, m)
        for recording in recordings
        for m in range(MOST_SOURCES)
    }
    for recording in recordings:
        if recording.parent.resolve() / recording.name in written:
            raise InputError(
                f"output must be a folder in which no recording is overwritten, got '{folder}', "
                f"which holds '{recording}'. Choose another folder, or delete that file if it is a "
                "result that was left."
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
    """An `Outcome` of each recording as it is done; results and a sidecar each are in the folder.

    `recordings` are files, folders, patterns or @lists. `settings` are those of `localize_file`
    or `separate_file` by name, such as {"n_sources": 2}. `jobs` work side by side here, or the
    workers of `client`, a `dask.distributed.Client`. What was done before with the same settings,
    atlas and contents is skipped, unless `resume` is False. A bad recording is an outcome, too.

    Nothing is done before the first outcome is asked for; who stops asking stops the work.
    """
    given = [recordings] if isinstance(recordings, str | Path) else recordings
    files = once(listed(given, RECORDINGS, "recordings").files)
    if task == "separate":
        files = without_results(files, Path(folder))
    if client is not None:  # the others have a current folder of their own
        files, folder = tuple(file.absolute() for file in files), Path(folder).absolute()
    work = _work(atlas, Path(folder), task, dict(settings or {}))
    check_stems(files)
    for path, ours in to_replace(work, files):
        if not ours:
            raise InputError(
                f"folder must not hold a file of yours under the name of an answer, got '{path}'. "
                "Choose another folder, or rename the file."
            )
    if isinstance(work, SeparatingFiles):
        check_overwritten(files, work.folder)
    return _mapped(work, files, Hands(jobs, client), resume=resume)


def _work(atlas: Atlas, folder: Path, task: Task, settings: dict[str, Any]) -> Work:
    if task not in ("localize", "separate"):
        raise InputError(f"task must be 'localize' or 'separate', got '{task}'. Choose one.")
    try:
        if task == "localize":
            yaw = Yaw.of(settings.pop("yaw", 0.0))
            return Localizing(folder, atlas, yaw=yaw, **settings)
        channels = settings.pop("channels", (0, 1))
        settings["threshold"] = settings.get("threshold") or Threshold()
        return SeparatingFiles(folder, atlas, Separating(**settings), channels)
    except TypeError as error:
        raise InputError(
            f"settings must be those of {task}_file by name, got {sorted(settings)} ({error}). "
            "Check the names."
        ) from error


def _mapped(
    work: Work, files: tuple[Path, ...], hands: Hands, *, resume: bool
) -> Iterator[Outcome]:
    with output_folder(work.folder):
        yield from run(planned(work, files, resume=resume), hands, lambda number, share: None)
