"""Calls in forks of another process: messages, crashes, forks of this process, and the end."""

import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from forked_functions import answer

from earatlas.fork_server import ForkServer, ProcessCrashError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs forks and /proc")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """A server of which the process runs until the end of the module."""
    server = ForkServer(answer)
    yield server
    server.end()


def state(pid: int) -> str:
    """Return the state of a process in /proc: Z for a zombie, X if it does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "X"


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, at most a minute."""
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("a minute has passed")


def test_arrays_arrive_as_they_were_sent(server: ForkServer) -> None:
    """Shapes and values are kept, also of empty arrays and of those that are not contiguous."""
    rng = np.random.default_rng(0)
    arrays = [
        rng.normal(size=(2, 5, 3)).T,
        np.zeros((0, 4)),
        np.array(3.5),
        rng.normal(size=50_000),
    ]
    with server.connect() as connection:
        for _ in range(2):
            connection.send({"do": "return"}, *arrays)
            _, returned = connection.receive()
            assert [array.shape for array in returned] == [array.shape for array in arrays]
            for sent, received in zip(arrays, returned, strict=True):
                np.testing.assert_array_equal(received, sent)


def test_every_call_has_a_process_of_its_own(server: ForkServer) -> None:
    """Two calls at once are independent of each other, and leave no zombies."""
    with server.connect() as first, server.connect() as second:
        for connection in (second, first):
            connection.send({"do": "return"})
        pids = [connection.receive()[0]["pid"] for connection in (first, second)]
    assert len({*pids, os.getpid()}) == 3
    assert server.process is not None
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    wait_until(lambda: not children.read_text().split())


def test_the_signal_of_a_crash_is_known(server: ForkServer) -> None:
    """The error names the signal that has ended the call; the next call works."""
    with server.connect() as connection:
        connection.send({"do": "end"})
        with pytest.raises(ProcessCrashError) as error:
            connection.receive()
    assert error.value.signal == signal.SIGSEGV
    with server.connect() as connection:
        connection.send({"do": "return"})
        connection.receive()


def test_libraries_print_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """Neither output nor errors of the function reach the terminal, or the messages."""
    own = ForkServer(answer)  # started while the output is captured
    with own.connect() as connection:
        connection.send({"do": "print"})
        assert connection.receive() == ({}, [])
    own.end()
    assert capfd.readouterr() == ("", "")


def test_interruptions_do_not_reach_the_server(server: ForkServer) -> None:
    """Ctrl-C is sent to a group of processes, to which the server does not belong."""
    server.connect().close()
    assert server.process is not None
    assert os.getpgid(server.process.pid) != os.getpgid(0)


@pytest.mark.parametrize("ends_first", [True, False])
def test_a_fork_of_this_process_has_its_own_server(server: ForkServer, ends_first: bool) -> None:
    """It neither uses nor ends the server of its parent."""
    server.connect().close()
    assert server.process is not None
    original = server.process.pid
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the threads of the runner are idle
        fork = os.fork()
    if not fork:
        code = 1
        try:
            if ends_first:  # before it has one
                server.end()
            with server.connect() as connection:
                connection.send({"do": "return"})
                code = 2 if connection.receive()[0]["server"] == original else 0
            server.end()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]) == 0
    assert state(original) not in "ZX"
    with server.connect() as connection:
        connection.send({"do": "return"})
        assert connection.receive()[0]["server"] == original


def test_the_end_of_the_server_ends_its_calls() -> None:
    """A call that is still waiting ends with the server, and the next call starts another one."""
    server = ForkServer(answer)
    with server.connect() as waiting:
        waiting.send({"do": "return"})
        pid = waiting.receive()[0]["pid"]
        server.end()
        wait_until(lambda: state(pid) in "ZX")
        with server.connect() as connection:
            connection.send({"do": "return"})
            assert connection.receive()[0]["pid"] != pid
    server.end()
    assert server.process is None
