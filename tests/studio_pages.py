"""The studio for tests: asked as a browser asks it, with workers in this process.

A worker of its own takes three seconds to start, and what runs in it counts for no coverage. So the
tests of requests have workers that are threads of this process; what a process alone can show, that
it can be killed, is in tests/studio/test_studio_jobs.py.
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
from earatlas.studio.server import Limits, Studio
from earatlas.studio.tasks import Tasks
from earatlas.studio.worker import Told, WorkerEndedError

__all__ = ["TOKEN", "Page", "ThreadWorker", "studio_page"]

TOKEN = "a-token-of-the-tests"
PORT = 8123


class ThreadWorker:
    """What a worker does, in the thread that asks it; {"do": "wait"} lasts until it is ended."""

    pid = 0

    def __init__(self) -> None:
        self.ended = threading.Event()

    def ask(self, order: dict[str, Any], told: Told, data: bytes = b"") -> tuple[Any, bytes]:
        """As `Worker.ask`, but for bugs, which come through."""
        name = order["do"]
        if name == "warm":
            return {"done": {}}, b""
        if name == "wait":
            self.ended.wait(20)
        if self.ended.is_set():
            raise WorkerEndedError
        rest = {key: value for key, value in order.items() if key != "do"}
        try:
            done, came = Tasks(told).do(name, rest, data)
        except InputError as error:
            return {"error": str(error)}, b""
        return {"done": done}, came

    def end(self) -> None:
        """Whoever asks is told that it ended."""
        self.ended.set()


class Page:
    """A page of the studio that was opened: requests of its own session."""

    def __init__(self, client: TestClient, studio: Studio) -> None:
        self.client, self.studio = client, studio
        self.key = client.post(f"/{TOKEN}/api/sessions").json()["session"]

    def at(self, path: str) -> str:
        """The address of a thing of this session."""
        return f"/{TOKEN}/api/{self.key}/{path}"

    def get(self, path: str) -> Any:
        """A request for something."""
        return self.client.get(self.at(path))

    def post(self, path: str, **options: Any) -> Any:
        """A request that does something."""
        return self.client.post(self.at(path), **options)

    def done(self, taken: dict[str, Any]) -> dict[str, Any]:
        """How a job ended."""
        for _ in range(3000):
            job: dict[str, Any] = self.get(f"jobs/{taken['job']}").json()
            if job["state"] in ("done", "failed", "cancelled"):
                return job
            time.sleep(0.02)
        raise AssertionError(job)


@contextmanager
def studio_page(folder: Path, limits: Limits | None = None, **options: Any) -> Iterator[Page]:
    """A studio whose workers are threads, and a page of it."""
    with mock.patch("earatlas.studio.jobs.Worker", ThreadWorker):
        studio = Studio(folder, token=TOKEN, port=PORT, limits=limits, **options)
        with TestClient(studio.app, base_url=f"http://127.0.0.1:{PORT}") as client:
            yield Page(client, studio)
