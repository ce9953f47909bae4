"""Sessions: heads, recordings and sounds of one page, separate from those of other pages.

Entries have ids given by the studio, and files in the folder of the session. All names on disk are
the studio's own; the names that a browser sends are only shown.
"""

from __future__ import annotations

import itertools
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from earatlas.errors import InputError
from earatlas.studio.jobs import Job
from earatlas.studio.safety import Limits

__all__ = [
    "PEOPLE_ATLAS",
    "SIMULATED_ATLAS",
    "HeadEntry",
    "RecordingEntry",
    "Session",
    "Sessions",
    "Uploads",
]

# The same files as earatlas.atlas.PEOPLE_ATLAS and EXAMPLE_ATLAS, without importing numerical
# libraries.
PEOPLE_ATLAS = Path(__file__).parents[1] / "data" / "people.atlas"
SIMULATED_ATLAS = PEOPLE_ATLAS.with_name("simulated.atlas")


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
        }


@dataclass(eq=False)
class RecordingEntry:
    """A recording and its last job."""

    id: str
    name: str
    folder: Path
    file: Path
    job: Job | None = None

    @property
    def is_separated(self) -> bool:
        """Whether its last job is a separation, and not only the rendering of a scene."""
        return self.job is not None and self.job.request["task"] == "separate"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, from which a reloaded page finds the recording."""
        assert self.job is not None
        facts = (self.job.result or {}).get("facts", [])
        if self.job.state == "failed":
            facts = [f"failed: {self.job.error}"]
        return {
            "recording": self.id,
            "name": self.name,
            "job": self.job.id,
            "state": self.job.state,
            "facts": facts[:2],
        }

    def served_files(self) -> set[str]:
        """Return the names of the files that the page may load: those in its result."""
        result = None if self.job is None else self.job.result
        if not result or "files" not in result:
            return set()
        names: set[str] = set()
        for value in result["files"].values():
            names |= {value} if isinstance(value, str) else set(value)
        return names


@dataclass(eq=False)
class Session:
    """Everything that belongs to one page."""

    id: str
    folder: Path
    limits: Limits
    heads: dict[str, HeadEntry] = field(default_factory=dict)
    recordings: dict[str, RecordingEntry] = field(default_factory=dict)
    sounds: dict[str, tuple[str, Path]] = field(default_factory=dict)  # (name, file) by id
    jobs: dict[str, Job] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def _new_id(self, kind: str) -> str:
        """Return a unique id such as recording7."""
        if max(len(self.heads), len(self.recordings), len(self.sounds)) >= self.limits.entries:
            raise InputError(
                f"This page already has {self.limits.entries} recordings, heads or sounds. Remove "
                "some, or open another page."
            )
        return f"{kind}{next(self._numbers)}"

    def new_recording(self, name: str, file_name: str = "upload") -> RecordingEntry:
        """Add a recording with an empty folder."""
        entry_id, folder = self.new_folder("recording")
        entry = RecordingEntry(entry_id, name, folder, folder / file_name)
        self.recordings[entry_id] = entry
        return entry

    def new_folder(self, kind: str) -> tuple[str, Path]:
        """Return a new id, and an empty folder for its files."""
        entry_id = self._new_id(kind)
        folder = self.folder / entry_id
        folder.mkdir(parents=True)
        return entry_id, folder

    def remove(self, entry: RecordingEntry) -> None:
        """Remove a recording and delete its files."""
        self.recordings.pop(entry.id, None)
        if entry.job is not None:
            self.jobs.pop(entry.job.id, None)
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

    def register_job(self, job: Job, replaced: Job | None = None) -> Job:
        """Make a job available to the page; drop the replaced job and the oldest ended jobs.

        A result takes hundreds of kilobytes. Recordings and heads keep the jobs that they need.
        """
        if replaced is not None:
            self.jobs.pop(replaced.id, None)
        ended = [old for old in self.jobs.values() if old.ended]
        for old in ended[: -self.limits.entries]:
            del self.jobs[old.id]
        self.jobs[job.id] = job
        return job


class Sessions:
    """All sessions of a studio, each with a folder of its own."""

    def __init__(
        self, folder: Path, head: Path | None, cancel: Callable[[Job], None], limits: Limits
    ) -> None:
        self._folder, self._head, self._cancel, self._limits = folder, head, cancel, limits
        self._sessions: dict[str, Session] = {}  # ordered by last use

    def open(self) -> Session:
        """Return a new session; if there are too many, the least recently used one is dropped.

        The jobs of a dropped session are cancelled. Its files are kept, because the user may have
        asked for that.
        """
        while len(self._sessions) >= self._limits.sessions:
            for job in self._sessions.pop(next(iter(self._sessions))).own_jobs():
                self._cancel(job)
        key = secrets.token_urlsafe(16)
        # The name of the folder is not the key: a listing of the disk gives no access.
        folder = self._folder / f"session-{secrets.token_hex(4)}"
        folder.mkdir(parents=True)
        session = Session(key, folder, self._limits)
        if self._head is not None:
            session.heads["given"] = HeadEntry("given", self._head.stem, self._head)
        session.heads["people"] = HeadEntry("people", "People", PEOPLE_ATLAS)
        session.heads["simulated"] = HeadEntry(
            "simulated", "Simulated head", SIMULATED_ATLAS, built_in=True
        )
        self._sessions[key] = session
        return session

    def get(self, key: str) -> Session | None:
        """Return the session with this key, and mark it as used."""
        session = self._sessions.pop(key, None)
        if session is not None:
            self._sessions[key] = session
        return session
