"""Sessions: heads, recordings and sounds of one page, separate from those of other pages.

Entries have ids given by the studio, and files in the folder of the session. All names on disk are
the studio's own; the names that a browser sends are only shown.
"""

from __future__ import annotations

import itertools
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from earatlas.errors import InputError
from earatlas.packaged_atlases import EXAMPLE_ATLAS, PEOPLE_ATLAS
from earatlas.studio.archives import download_names, safe_stem
from earatlas.studio.jobs import Job
from earatlas.studio.safety import Limits, display_name

__all__ = [
    "HeadEntry",
    "RecordingEntry",
    "Session",
    "Sessions",
    "Uploads",
    "stored_heads",
]

_HEADS = "heads"  # folder of the learned heads, in that of the studio
_HEAD_NAME = "name.txt"  # displayed name of a head, in its folder; absent: incomplete
_HEAD_FOLDERS = "head-" + 8 * "[0-9a-f]"  # pattern of the names of their folders
_HEAD_SOURCES = ("head.sofa", "positions.csv")  # measurements of a head, in its folder


@dataclass(eq=False)
class Uploads:
    """Uploaded files of a folder of calibration recordings; several uploads may run at once."""

    names: dict[str, str] = field(default_factory=dict)  # studio's by browser's names, of sounds
    table: str | None = None  # studio's name of the table that was uploaded last
    n_started: int = 0  # number of uploads, including aborted and repeated ones

    def new_name(self, suffix: str) -> str:
        """Return a unique file name."""
        self.n_started += 1
        return f"{self.n_started}{suffix}"


@dataclass(eq=False)
class HeadEntry:
    """A head that can be selected."""

    id: str
    name: str
    atlas: Path
    source: Path | None = None  # measurements for rendering scenes; None: only an atlas
    job: Job | None = None  # job that learns or reads it
    built_in: bool = False  # the simulated head, whose responses are computed
    uploads: Uploads | None = None  # uploads of a folder of recordings
    own: bool = False  # added by the user, who may rename and remove it

    @property
    def ready(self) -> bool:
        """Whether its atlas exists."""
        if self.job is None:
            return self.uploads is None
        return self.job.state == "done"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "id": self.id,
            "name": self.name,
            "ready": self.ready,
            "can_render": self.built_in or self.source is not None,
            "own": self.own,
        }

    def rename(self, name: str) -> None:
        """Give an own head another name, also for later starts of the studio."""
        self.name = name
        if self.ready:
            self.complete()

    def complete(self) -> None:
        """Store the name, which makes the head available to later starts of the studio."""
        self.atlas.with_name(_HEAD_NAME).write_text(self.name, encoding="utf-8")

    @property
    def abandoned(self) -> bool:
        """Whether learning has failed or was cancelled; the table of a folder can be corrected."""
        ended = self.job is not None and self.job.ended
        return self.own and ended and not self.ready and self.uploads is None


def stored_heads(folder: Path) -> list[HeadEntry]:
    """Return the heads that an earlier studio has learned in this folder, by name.

    The folders of heads whose learning was not completed are deleted.
    """
    heads = []
    for own in folder.glob(_HEAD_FOLDERS):
        atlas, name = own / "head.atlas", own / _HEAD_NAME
        if not (atlas.is_file() and name.is_file()):
            shutil.rmtree(own, ignore_errors=True)
            continue
        source = next(filter(Path.is_file, (own / file for file in _HEAD_SOURCES)), None)
        text = display_name(name.read_text(encoding="utf-8", errors="replace"))
        heads.append(HeadEntry(own.name, text, atlas, source, own=True))
    return sorted(heads, key=lambda head: head.name)


@dataclass(eq=False)
class RecordingEntry:
    """A recording, its last job, and its last separation that was completed.

    Each separation writes into a folder of its own, so that one that is cancelled or fails leaves
    the result of the previous one as it was.
    """

    id: str
    name: str
    folder: Path
    file: Path
    span: tuple[float, float] | None = None  # seconds of the file; None: all of it
    job: Job | None = None
    completed: Job | None = None  # the last separation that was done before `job`
    n_separations: int = 0
    renaming: Job | None = None  # the last job that wrote the names of its sources

    @property
    def is_separated(self) -> bool:
        """Whether its last job is a separation, and not only the rendering of a scene."""
        return self.job is not None and self.job.request["task"] == "separate"

    @property
    def shown_job(self) -> Job | None:
        """The job whose result is shown: the last one, unless it was cancelled or has failed."""
        if self.completed is not None and self.job is not None:
            return self.completed if self.job.state in ("cancelled", "failed") else self.job
        return self.job

    def begin_separation(self, job: Job) -> list[Job]:
        """Give the job a folder and replace the last one; return the jobs that are not needed.

        Their files are deleted, except for those of a rendered scene, which are its ground truth.
        """
        separations = [one for one in (self.completed, self.job) if one and self.is_separated]
        done = [one for one in separations if one.state == "done"]
        replaced = [one for one in (self.completed, self.job) if one and one not in done[-1:]]
        for one in replaced:
            if one.request["task"] == "separate":
                shutil.rmtree(one.request["folder"], ignore_errors=True)
        self.n_separations += 1
        folder = self.folder / f"separation{self.n_separations}"
        folder.mkdir()
        job.request["folder"] = str(folder)
        self.job, self.completed = job, done[-1] if done else None
        return replaced

    def rename_sources(self, names: list[str]) -> Job:
        """Give the sources of the shown result other names; return the job that writes them."""
        job = self.shown_job
        writing = self.renaming is not None and not self.renaming.ended
        if job is None or job.state != "done" or writing:
            raise InputError(
                "sources must be named after their report was written, got a running job. Wait "
                "until it has ended."
            )
        sources: list[dict[str, Any]] = (job.result or {}).get("sources", [])
        if len(names) != len(sources):
            raise InputError(
                f"names must be {len(sources)}, one per source, got {len(names)}. Reload the page."
            )
        for source, name in zip(sources, names, strict=True):
            source["label"] = name
        self.renaming = Job({**job.request, "task": "rename", "names": names})
        return self.renaming

    def saved_names(self, stem: str | None = None) -> dict[str, str]:
        """Return the names under which its files are saved, with the names of the user.

        They begin with `stem`, by default the name of the recording.
        """
        result = (self.shown_job and self.shown_job.result) or {}
        sounds = result.get("files", {}).get("sounds", [])
        sources = result.get("sources", [])[: len(sounds)]  # a preview has no sounds yet
        labels = [one["label"] or f"source{one['number']}" for one in sources]
        files = [name for name, _ in self.files()]
        named = dict(zip(sounds, labels, strict=True))
        return download_names(stem or safe_stem(self.name), files, named)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, from which a reloaded page finds the recording."""
        job = self.shown_job
        assert job is not None
        facts = (job.result or {}).get("facts", [])
        if job.state == "failed":
            facts = [f"failed: {job.error}"]
        return {
            "recording": self.id,
            "name": self.name,
            "job": job.id,
            "state": job.state,
            "facts": facts[:2],
        }

    def served_file(self, name: str) -> Path | None:
        """Return the path of a file that the page may load, which is one in a result, or None."""
        return dict(self.files()).get(name)

    def files(self) -> list[tuple[str, Path]]:
        """Return names and paths of the files in the result that is shown."""
        job = self.shown_job
        if job is None or not job.result or "files" not in job.result:
            return []
        names: list[str] = []
        for value in job.result["files"].values():
            names += [value] if isinstance(value, str) else value
        return [(name, Path(job.request["folder"]) / name) for name in names]


@dataclass(eq=False)
class Session:
    """Everything that belongs to one page."""

    id: str
    folder: Path
    limits: Limits
    heads_folder: Path  # learned heads, which later studios with this folder start with
    heads: dict[str, HeadEntry] = field(default_factory=dict)
    recordings: dict[str, RecordingEntry] = field(default_factory=dict)
    sounds: dict[str, tuple[str, Path]] = field(default_factory=dict)  # (name, file) by id
    jobs: dict[str, Job] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def _new_id(self, kind: str) -> str:
        """Return a unique id such as recording7; each kind of entries has its own limit."""
        own_heads = [head for head in self.heads.values() if head.own]
        counts = {
            "head": len(own_heads), "recording": len(self.recordings), "sound": len(self.sounds),
        }  # fmt: skip
        if counts[kind] >= self.limits.entries:
            remedy = "Remove some." if kind == "head" else "Remove some, or open another page."
            raise InputError(f"This page already has {self.limits.entries} {kind}s. {remedy}")
        return f"{kind}{next(self._numbers)}"

    def new_recording(self, name: str, file_name: str = "upload") -> RecordingEntry:
        """Add a recording with an empty folder."""
        entry_id, folder = self.new_folder("recording")
        entry = RecordingEntry(entry_id, name, folder, folder / file_name)
        self.recordings[entry_id] = entry
        return entry

    def new_selection(self, whole: RecordingEntry, start: float, end: float) -> RecordingEntry:
        """Add a part of a recording as a recording of its own, named after its seconds."""
        first = 0.0 if whole.span is None else whole.span[0]
        stem, suffix = Path(whole.name).stem.split(" (")[0], Path(whole.name).suffix
        name = f"{stem} ({first + start:.2f} to {first + end:.2f} s){suffix}"
        entry = self.new_recording(name, whole.file.name)
        entry.span = (first + start, first + end)
        for file in whole.folder.iterdir():  # the recording, and the ground truth of a scene
            if file.is_file():
                try:
                    (entry.folder / file.name).hardlink_to(file)
                except OSError:  # a file system without links
                    shutil.copyfile(file, entry.folder / file.name)
        return entry

    def new_head(self) -> tuple[str, Path]:
        """Return a new id, and an empty folder for the files of a head."""
        self._new_id("head")
        head_id = f"head-{secrets.token_hex(4)}"
        folder = self.heads_folder / head_id
        folder.mkdir(parents=True)
        return head_id, folder

    def remove_head(self, head: HeadEntry) -> None:
        """Remove an own head and delete its files."""
        self.heads.pop(head.id, None)
        if head.job is not None:
            self.jobs.pop(head.job.id, None)
        shutil.rmtree(head.atlas.parent, ignore_errors=True)

    def remove_abandoned_heads(self) -> None:
        """Remove heads whose learning failed or was cancelled; their jobs still tell why."""
        for head in [one for one in self.heads.values() if one.abandoned]:
            del self.heads[head.id]
            shutil.rmtree(head.atlas.parent, ignore_errors=True)

    def close(self, cancel: Callable[[Job], None]) -> None:
        """Cancel the jobs, and delete the files of heads that were never learned completely."""
        for job in self.own_jobs():
            cancel(job)
        for head in [one for one in self.heads.values() if one.own]:
            if not (head.ready or head.atlas.with_name(_HEAD_NAME).is_file()):
                self.remove_head(head)

    def new_folder(self, kind: str) -> tuple[str, Path]:
        """Return a new id, and an empty folder for its files."""
        entry_id = self._new_id(kind)
        folder = self.folder / entry_id
        folder.mkdir(parents=True)
        return entry_id, folder

    def remove(self, entry: RecordingEntry) -> None:
        """Remove a recording and delete its files."""
        self.recordings.pop(entry.id, None)
        for job in (entry.job, entry.completed):
            if job is not None:
                self.jobs.pop(job.id, None)
        shutil.rmtree(entry.folder, ignore_errors=True)

    @property
    def default_head(self) -> str:
        """Id of the head that is used unless another one is selected: the first."""
        return next(iter(self.heads))

    def own_jobs(self) -> list[Job]:
        """Return the jobs of its heads and recordings; the explainer's job is shared by all."""
        jobs = [head.job for head in self.heads.values()]
        jobs += [recording.job for recording in self.recordings.values()]
        return [job for job in jobs if job is not None]

    def register_job(self, job: Job, *replaced: Job | None) -> Job:
        """Make a job available to the page; drop replaced jobs and the oldest ended jobs.

        A result takes hundreds of kilobytes. Recordings and heads keep the jobs that they need.
        """
        for old in replaced:
            if old is not None:
                self.jobs.pop(old.id, None)
        ended = [one for one in self.jobs.values() if one.ended]
        for one in ended[: -self.limits.entries]:
            del self.jobs[one.id]
        self.jobs[job.id] = job
        return job


class Sessions:
    """All sessions of a studio, each with a folder of its own."""

    def __init__(
        self, folder: Path, head: Path | None, cancel: Callable[[Job], None], limits: Limits
    ) -> None:
        self._folder, self._head, self._cancel, self._limits = folder, head, cancel, limits
        self._stored_heads = stored_heads(folder / _HEADS)
        self._sessions: dict[str, Session] = {}  # ordered by last use

    def open(self) -> Session:
        """Return a new session; if there are too many, the least recently used one is dropped.

        The jobs of a dropped session are cancelled. Its files are kept, because the user may have
        asked for that, except for those of heads that are not learned.
        """
        while len(self._sessions) >= self._limits.sessions:
            self._sessions.pop(next(iter(self._sessions))).close(self._cancel)
        key = secrets.token_urlsafe(16)
        # The name of the folder is not the key: a listing of the disk gives no access.
        folder = self._folder / f"session-{secrets.token_hex(4)}"
        folder.mkdir(parents=True)
        session = Session(key, folder, self._limits, self._folder / _HEADS)
        if self._head is not None:
            session.heads["given"] = HeadEntry("given", self._head.stem, self._head)
        session.heads["people"] = HeadEntry("people", "People", PEOPLE_ATLAS)
        session.heads["simulated"] = HeadEntry(
            "simulated", "Simulated head", EXAMPLE_ATLAS, built_in=True
        )
        kept = [replace(head) for head in self._stored_heads if head.atlas.is_file()]
        session.heads |= {head.id: head for head in kept}
        self._sessions[key] = session
        return session

    def get(self, key: str) -> Session | None:
        """Return the session with this key, and mark it as used."""
        session = self._sessions.pop(key, None)
        if session is not None:
            self._sessions[key] = session
        return session
