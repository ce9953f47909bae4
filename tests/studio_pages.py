"""Helpers for tests of the studio: a page that sends requests, and workers in this process.

A worker process takes three seconds to start and is not measured by coverage. Tests of requests
therefore use workers in threads of this process; tests/studio/test_studio_jobs.py tests processes
that are killed.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from starlette.testclient import TestClient

from earatlas.errors import InputError
from earatlas.studio.safety import Limits
from earatlas.studio.server import Studio
from earatlas.studio.session import Session
from earatlas.studio.tasks import Tasks
from earatlas.studio.worker import MessageHandler, WorkerEndedError

__all__ = ["TOKEN", "Page", "ThreadWorker", "studio_page"]

TOKEN = "a-token-of-the-tests"
PORT = 8123


class ThreadWorker:
    """A worker in the calling thread; the task "wait" lasts until the worker is killed."""

    pid = 0

    def __init__(self) -> None:
        self.killed = threading.Event()

    def run(
        self, request: dict[str, Any], on_message: MessageHandler, data: bytes = b""
    ) -> tuple[Any, bytes]:
        """Do what `Worker.run` does, but let exceptions other than InputError through."""
        name = request["task"]
        if name == "warm_up":
            return {"done": {}}, b""
        if name == "wait":
            self.killed.wait(20)
        if self.killed.is_set():
            raise WorkerEndedError
        rest = {key: value for key, value in request.items() if key != "task"}
        try:
            done, payload = Tasks(on_message).run(name, rest, data)
        except InputError as error:
            return {"error": str(error)}, b""
        return {"done": done}, payload

    def kill(self) -> None:
        """Let a running request raise WorkerEndedError."""
        self.killed.set()


class Page:
    """An opened page of the studio, which sends requests of its own session."""

    def __init__(self, client: TestClient, studio: Studio) -> None:
        self.client, self.studio = client, studio
        self.key = client.post(f"/{TOKEN}/api/sessions").json()["session"]

    @property
    def session(self) -> Session:
        """The session of this page in the studio."""
        session = self.studio.sessions.get(self.key)
        assert session is not None
        return session

    def at(self, path: str) -> str:
        """Return the address of an item of this session."""
        return f"/{TOKEN}/api/{self.key}/{path}"

    def get(self, path: str) -> Any:
        """Send a GET request."""
        return self.client.get(self.at(path))

    def post(self, path: str, **options: Any) -> Any:
        """Send a POST request."""
        return self.client.post(self.at(path), **options)

    def wait(self, submitted: dict[str, Any]) -> dict[str, Any]:
        """Wait until a submitted job has ended, and return it; each request takes some CPU time."""
        own = self.session.jobs[submitted["job"]]
        for _ in range(15_000):  # five minutes: drawing takes one on a very busy machine
            if own.ended:
                job: dict[str, Any] = self.get(f"jobs/{submitted['job']}").json()
                return job
            time.sleep(0.02)
        raise AssertionError(own)


@contextmanager
def studio_page(folder: Path, limits: Limits | None = None, **options: Any) -> Iterator[Page]:
    """Open a page of a studio whose workers are threads."""
    with mock.patch("earatlas.studio.jobs.Worker", ThreadWorker):
        studio = Studio(folder, token=TOKEN, port=PORT, limits=limits, **options)
        with TestClient(studio.app, base_url=f"http://127.0.0.1:{PORT}") as client:
            yield Page(client, studio)
