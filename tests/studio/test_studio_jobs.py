"""Jobs of the studio: a line with an end, cancelling, and processes that are killed."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from studio_pages import ThreadWorker

from earatlas.studio.jobs import BusyError, Crew, Job
from earatlas.studio.worker import Worker, WorkerEndedError


def until(holds: Callable[[], bool], seconds: float = 90.0) -> None:
    """Wait for something, not for ever."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def ordered(crew: Crew, do: str, **order: str) -> Job:
    """A job in the line."""
    with crew.place():
        return crew.submit(Job({"do": do, **order}))


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> Crew:
    """One worker, which is a thread; two may wait."""
    monkeypatch.setattr("earatlas.studio.jobs.Worker", ThreadWorker)
    return Crew(1, 2)


def test_a_line_has_an_end(crew: Crew) -> None:
    """Places are promised; beyond them nobody waits, until one is free again."""
    first = ordered(crew, "wait")
    until(lambda: first.state == "running")
    waiting = [ordered(crew, "wait") for _ in range(2)]
    with pytest.raises(BusyError, match="Try again when something is done"), crew.place():
        pass
    crew.cancel(waiting[0])  # its place is free at once, though nobody has looked at it
    waiting.append(ordered(crew, "wait"))
    with pytest.raises(BusyError), crew.place():
        pass
    for job in (*waiting, first):
        crew.cancel(job)
    crew.close()
    assert [job.state for job in (first, *waiting)] == ["cancelled"] * 4


def test_a_place_is_given_back(crew: Crew) -> None:
    """Whether something was put into the line or went wrong; while it is kept, it counts."""
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), crew.place():
            1 / 0  # noqa: B018
    with crew.place(), crew.place(), pytest.raises(BusyError), crew.place():
        pass
    with crew.place(), crew.place():
        pass
    crew.close()


def test_a_job_that_is_cancelled(crew: Crew) -> None:
    """It ends at once, the next one has a new worker, and what is over stays as it ended."""
    job = ordered(crew, "wait")
    until(lambda: job.state == "running")
    crew.cancel(job)
    until(lambda: not crew.pids)
    assert (job.state, job.error) == ("cancelled", "")
    after = ordered(crew, "wait")
    until(lambda: after.state == "running")
    crew.cancel(after)
    crew.cancel(job)
    crew.close()
    assert job.state == "cancelled"


def test_a_worker_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of learning: the job says so, and another process does the next ones."""
    monkeypatch.setattr("earatlas.studio.jobs._WARM", {"do": "describe", "atlas": "none"})
    crew = Crew(1, 3)
    job = ordered(crew, "learn", source="simulated", name="x", atlas=str(tmp_path / "x.atlas"))
    until(lambda: job.words == "reading the head")
    (pid,) = crew.pids.values()
    os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))
    until(lambda: job.ended)
    assert job.state == "failed"
    assert "was ended by the system" in job.error
    wrong = ordered(crew, "describe", atlas=str(tmp_path))
    bug = ordered(crew, "no such order")
    until(lambda: wrong.ended and bug.ended)
    assert "atlas must be" in wrong.error
    assert "bug of earatlas" in bug.error
    assert "KeyError" in bug.details
    crew.close()


def test_half_an_answer() -> None:
    """A worker that ends in the middle of a line is one that ended."""
    worker = Worker()
    worker.end()
    with pytest.raises(WorkerEndedError):
        worker.ask({"do": "warm"}, lambda message: None)


def test_what_a_job_tells() -> None:
    """Shares and words as they come; an answer counts; a cancelled one takes no more."""
    job = Job({})
    job.tell({"share": 0.5, "words": "half"})
    job.tell({"answer": {"x": 1}})
    assert (job.share, job.words, job.answer, job.answers) == (0.5, "half", {"x": 1}, 1)
    job.finish({"done": {"x": 2}})
    assert (job.state, job.share, job.answer, job.answers) == ("done", 1.0, {"x": 2}, 2)
    lost = Job({})
    lost.state = "cancelled"
    lost.finish({"done": {}})
    lost.finish({"error": "late"})
    assert (lost.state, lost.error) == ("cancelled", "")
