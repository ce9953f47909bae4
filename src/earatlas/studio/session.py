"""Sessions: what one page has, apart from what any other has.

In: heads, recordings and sounds by numbers that the studio gave them. Out: their files, in a folder
of the session. All names on the disk are the studio's own; what a browser calls a file is shown,
and never used.
"""

from __future__ import annotations

import itertools
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from earatlas.atlas import EXAMPLE_ATLAS
from earatlas.errors import InputError
from earatlas.studio.jobs import Job

__all__ = ["BUILT_IN", "HeadEntry", "RecordingEntry", "Session", "Sessions", "Uploads"]

BUILT_IN = EXAMPLE_ATLAS
_MOST_SESSIONS = 20
_MOST_ENTRIES = 100  # of a kind, a session


@dataclass(eq=False)
class Uploads:
    """Files of a folder of calibration recordings, which come one by one and several at once."""

    names: dict[str, str] = field(default_factory=dict)  # ours by the browser's, of sounds
    table: str | None = None  # our name of the last one that came
    begun: int = 0  # more than came, where one broke off or came twice

    def own_name(self, ending: str) -> str:
        """A name that no other file has, whenever that one is done."""
        self.begun += 1
        return f"{self.begun}{ending}"


@dataclass(eq=False)
class HeadEntry:
    """A head that can be chosen."""

    id: str
    name: str
    atlas: Path
    source: Path | None = None  # what scenes are rendered with; None: only the atlas is known
    job: Job | None = None  # that learns it
    built_in: bool = False
    uploads: Uploads | None = None  # of a folder; None: it is none

    @property
    def ready(self) -> bool:
        """Whether its atlas is there."""
        if self.job is None:
            return self.uploads is None
        return self.job.state == "done"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "id": self.id,
            "name": self.name,
            "ready": self.ready,
            "makes_scenes": self.built_in or self.source is not None,
        }


@dataclass(eq=False)
class RecordingEntry:
    """A recording, and what was last done with it."""

    id: str
    name: str
    folder: Path
    file: Path
    job: Job | None = None

    @property
    def is_separated(self) -> bool:
        """Whether it was taken apart, or is being; a scene may only have been made."""
        return self.job is not None and self.job.order["do"] == "separate"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: how a page that was loaded again finds it."""
        assert self.job is not None
        facts = (self.job.answer or {}).get("facts", [])
        if self.job.state == "failed":
            facts = [f"did not work: {self.job.error}"]
        return {
            "recording": self.id,
            "name": self.name,
            "job": self.job.id,
            "state": self.job.state,
            "facts": facts[:2],
        }

    def served(self) -> set[str]:
        """Names of its files that the page may have: those that its answer tells of."""
        answer = None if self.job is None else self.job.answer
        if not answer or "files" not in answer:
            return set()
        names: set[str] = set()
        for value in answer["files"].values():
            names |= {value} if isinstance(value, str) else set(value)
        return names


@dataclass(eq=False)
class Session:
    """What one page has."""

    id: str
    folder: Path
    heads: dict[str, HeadEntry] = field(default_factory=dict)
    recordings: dict[str, RecordingEntry] = field(default_factory=dict)
    sounds: dict[str, tuple[str, Path]] = field(default_factory=dict)  # names and files
    jobs: dict[str, Job] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def number(self, kind: str) -> str:
        """A name of the studio's own, such as recording7."""
        if max(len(self.heads), len(self.recordings), len(self.sounds)) >= _MOST_ENTRIES:
            raise InputError(
                f"a page must hold at most {_MOST_ENTRIES} recordings, heads or sounds, got one "
                "more. Remove some, or open another page."
            )
        return f"{kind}{next(self._numbers)}"

    def new_recording(self, name: str, ending: str = "upload") -> RecordingEntry:
        """A recording with a folder of its own, in which nothing is yet."""
        number = self.number("recording")
        folder = self.folder / number
        folder.mkdir(parents=True)
        entry = RecordingEntry(number, name, folder, folder / ending)
        self.recordings[number] = entry
        return entry

    def new_folder(self, kind: str) -> tuple[str, Path]:
        """A number, and a folder for what belongs to it."""
        number = self.number(kind)
        folder = self.folder / number
        folder.mkdir(parents=True)
        return number, folder

    def remove(self, entry: RecordingEntry) -> None:
        """Forget a recording and delete its files."""
        self.recordings.pop(entry.id, None)
        if entry.job is not None:
            self.jobs.pop(entry.job.id, None)
        shutil.rmtree(entry.folder, ignore_errors=True)

    def own_jobs(self) -> list[Job]:
        """Jobs for its heads and recordings; the story is told to others, too."""
        jobs = [head.job for head in self.heads.values()]
        jobs += [recording.job for recording in self.recordings.values()]
        return [job for job in jobs if job is not None]

    def watch(self, job: Job, replaced: Job | None = None) -> Job:
        """Let the page ask for this job, and no longer for the one before or long ago.

        An answer has hundreds of kilobytes; what a recording or a head still needs, it holds.
        """
        if replaced is not None:
            self.jobs.pop(replaced.id, None)
        ended = [old for old in self.jobs.values() if old.ended]
        for old in ended[:-_MOST_ENTRIES]:
            del self.jobs[old.id]
        self.jobs[job.id] = job
        return job


class Sessions:
    """All sessions of a studio, each with a folder below its own."""

    def __init__(self, folder: Path, head: Path | None, cancel: Callable[[Job], None]) -> None:
        self._folder, self._head, self._cancel = folder, head, cancel
        self._all: dict[str, Session] = {}  # the one that was used last is the last

    def open(self) -> Session:
        """A new session; beyond the bound the one that was not used for longest is forgotten.

        Its jobs are cancelled. Its files stay: a user may have asked for them to be kept.
        """
        while len(self._all) >= _MOST_SESSIONS:
            for job in self._all.pop(next(iter(self._all))).own_jobs():
                self._cancel(job)
        key = secrets.token_urlsafe(16)
        # The folder's name is no key: who reads a listing cannot ask for what is in it.
        folder = self._folder / f"session-{secrets.token_hex(4)}"
        folder.mkdir(parents=True)
        session = Session(key, folder)
        if self._head is not None:
            session.heads["given"] = HeadEntry("given", self._head.stem, self._head)
        session.heads["simulated"] = HeadEntry(
            "simulated", "Simulated head", BUILT_IN, built_in=True
        )
        self._all[key] = session
        return session

    def get(self, key: str) -> Session | None:
        """The session with that key, which is used by that."""
        session = self._all.pop(key, None)
        if session is not None:
            self._all[key] = session
        return session
