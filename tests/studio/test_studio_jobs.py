"""Tests of the studio's jobs: bounded queue, cancelling, and killed processes."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from studio_pages import ThreadWorker

from earatlas.studio.jobs import BusyError, Job, WorkerPool
from earatlas.studio.worker import Worker, WorkerEndedError


def wait_until(condition: Callable[[], bool], seconds: float = 90.0) -> None:
    """Wait for a condition, with a time limit."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def submit(pool: WorkerPool, task: str, **request: str) -> Job:
    """Submit a job."""
    with pool.reserve():
        return pool.submit(Job({"task": task, **request}))


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> WorkerPool:
    """Return a pool with one worker, which is a thread, and a queue of two."""
    monkeypatch.setattr("earatlas.studio.jobs.Worker", ThreadWorker)
    return WorkerPool(1, 2)


def test_queue_is_bounded(pool: WorkerPool) -> None:
    """A full queue refuses jobs until a place is free."""
    first = submit(pool, "wait")
    wait_until(lambda: first.state == "running")
    waiting = [submit(pool, "wait") for _ in range(2)]
    with pytest.raises(BusyError, match="Try again when one is done"), pool.reserve():
        pass
    pool.cancel(waiting[0])  # its place is free before a worker takes it from the queue
    waiting.append(submit(pool, "wait"))
    with pytest.raises(BusyError), pool.reserve():
        pass
    for job in (*waiting, first):
        pool.cancel(job)
    pool.close()
    assert [job.state for job in (first, *waiting)] == ["cancelled"] * 4


def test_reservation_is_released(pool: WorkerPool) -> None:
    """A reservation counts while it is held, and is released also after an error."""
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), pool.reserve():
            1 / 0  # noqa: B018
    with pool.reserve(), pool.reserve(), pytest.raises(BusyError), pool.reserve():
        pass
    with pool.reserve(), pool.reserve():
        pass
    pool.close()


def test_cancelled_job(pool: WorkerPool) -> None:
    """A cancelled job ends at once and keeps its state; the next job has a new worker."""
    job = submit(pool, "wait")
    wait_until(lambda: job.state == "running")
    pool.cancel(job)
    wait_until(lambda: not pool.pids)
    assert (job.state, job.error) == ("cancelled", "")
    after = submit(pool, "wait")
    wait_until(lambda: after.state == "running")
    pool.cancel(after)
    pool.cancel(job)
    pool.close()
    assert job.state == "cancelled"


def test_killed_worker_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job whose process is killed fails with an explanation; a new process does the next."""
    monkeypatch.setattr("earatlas.studio.jobs._WARM_UP", {"task": "describe", "atlas": "none"})
    pool = WorkerPool(1, 3)
    job = submit(pool, "learn", source="simulated", name="x", atlas=str(tmp_path / "x.atlas"))
    wait_until(lambda: job.stage == "reading the head")
    (pid,) = pool.pids.values()
    os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))
    wait_until(lambda: job.ended)
    assert job.state == "failed"
    assert "was ended by the system" in job.error
    wrong = submit(pool, "describe", atlas=str(tmp_path))
    bug = submit(pool, "no such task")
    wait_until(lambda: wrong.ended and bug.ended)
    assert "atlas must be" in wrong.error
    assert "bug in earatlas" in bug.error
    assert "KeyError" in bug.details
    pool.close()


def test_worker_that_ended() -> None:
    """A request to a process that has ended raises WorkerEndedError."""
    worker = Worker()
    worker.kill()
    with pytest.raises(WorkerEndedError):
        worker.run({"task": "warm_up"}, lambda message: None)


def test_job_state() -> None:
    """Messages update a job; results are counted; a cancelled job ignores late messages."""
    job = Job({})
    job.update({"progress": 0.5, "stage": "half"})
    job.update({"result": {"x": 1}})
    assert (job.progress, job.stage, job.result, job.result_version) == (0.5, "half", {"x": 1}, 1)
    job.finish({"done": {"x": 2}})
    assert (job.state, job.progress, job.result, job.result_version) == ("done", 1.0, {"x": 2}, 2)
    lost = Job({})
    lost.state = "cancelled"
    lost.finish({"done": {}})
    lost.finish({"error": "late"})
    assert (lost.state, lost.error) == ("cancelled", "")
